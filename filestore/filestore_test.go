package filestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func TestLives(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	s := openStore(t, root, nil)
	ctx := t.Context()

	w := must[store.Writer](t)(s.Create(ctx, testHeader("first")))
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("Create made %s", root)
	}
	all := events(0, 10)
	mustAppend(t, w, all[:3])
	mustAppend(t, w, all[3:5])
	pos := mustFlush(t, w)
	if pos.Next != 5 {
		t.Fatalf("flushed to %d", pos.Next)
	}
	if _, err := s.Open(ctx, "first"); !errors.Is(err, store.ErrBusy) {
		t.Fatalf("second handle: %v", err)
	}
	got, snap := readEvents(t, s, "first")
	wantEvents(t, got, all[:5])
	if snap.Pos != pos {
		t.Fatalf("read to %v, flushed %v", snap.Pos, pos)
	}
	w.Close()

	w = must[store.Writer](t)(s.Open(ctx, "first"))
	wantEvents(t, collect(t, w.Opened().Prefix), all[:5])
	if w.Base() != session.None {
		t.Fatalf("base %d before the first append", w.Base())
	}
	mustAppend(t, w, all[5:7])
	mustAppend(t, w, all[7:])
	if w.Base() != 5 {
		t.Fatalf("base %d", w.Base())
	}
	st := must[store.Stat](t)(s.Stat(ctx, "first"))
	if st.Base != 5 || st.Holder == nil || st.Holder.PID != os.Getpid() || st.Pos.Next != 10 {
		t.Fatalf("stat of a held session: %+v", st)
	}
	pos = mustFlush(t, w)
	wantEvents(t, collect(t, w.Stored()), all)
	w.Close()
	st = must[store.Stat](t)(s.Stat(ctx, "first"))
	if st.Base != 10 || st.Holder != nil || st.Pos != pos || st.State != store.StateOK {
		t.Fatalf("stat of a closed session: %+v, want pos %v", st, pos)
	}
	got, _ = readEvents(t, s, "first")
	wantEvents(t, got, all)
	if list, _ := os.ReadDir(s.dir("first")); len(list) != 3 {
		t.Fatalf("files: %v", list)
	}
}

func TestLookingNeverWrites(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	newStored(t, s, "quiet", 20)
	before := tree(t, root)

	ctx := t.Context()
	w := must[store.Writer](t)(s.Open(ctx, "quiet"))
	if pos := mustFlush(t, w); pos.Next != 20 {
		t.Fatalf("flush of an untouched session: %d", pos.Next)
	}
	w.Close()
	readEvents(t, s, "quiet")
	must[store.Stat](t)(s.Stat(ctx, "quiet"))
	must[store.Page](t)(s.List(ctx, store.Query{}))
	must[session.Link](t)(s.LinkAt(ctx, "quiet", 7))
	c := must[store.Writer](t)(s.Create(ctx, testHeader("never")))
	c.Close()
	if d := cmp.Diff(before, tree(t, root)); d != "" {
		t.Fatalf("something was written:\n%s", d)
	}
}

// P3: a torn record does not eat its neighbour.
func TestTornTail(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	newStored(t, s, "torn", 100)
	path := filepath.Join(s.dir("torn"), segmentName(0))
	info, _ := os.Stat(path)
	if err := os.Truncate(path, info.Size()-7); err != nil {
		t.Fatal(err)
	}
	bytesBefore, _ := os.ReadFile(path)
	st := must[store.Stat](t)(s.Stat(t.Context(), "torn"))
	if st.State != store.StateTorn || st.Pos.Next != 99 {
		t.Fatalf("stat: %+v", st)
	}
	w := must[store.Writer](t)(s.Open(t.Context(), "torn"))
	if w.Opened().Pos.Next != 99 || w.Opened().Torn == nil {
		t.Fatalf("opened: %+v", w.Opened())
	}
	more := events(99, 3)
	mustAppend(t, w, more)
	mustFlush(t, w)
	w.Close()
	got, snap := readEvents(t, s, "torn")
	wantEvents(t, got, append(events(0, 99), more...))
	if snap.Torn != nil || len(snap.Damage) > 0 {
		t.Fatalf("after the next life: %+v", snap)
	}
	if now, _ := os.ReadFile(path); string(now) != string(bytesBefore) {
		t.Fatal("the torn file was changed")
	}
}

func TestFork(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	ctx := t.Context()
	w := must[store.Writer](t)(s.Create(ctx, testHeader("parent")))
	mustAppend(t, w, events(0, 500)) // live, not flushed
	parent := testHeader("parent")
	id, kids := session.ID("parent"), []session.ID{"kid1", "kid2", "kid3"}
	all := events(0, 300)
	for i, kid := range kids {
		cut := session.Seq(299 - 10*i)
		h := testHeader(kid)
		h.Kind, h.SeedLength = session.KindFork, cut+1
		h.Parent = &session.Parent{ID: id, Seq: cut, Link: must[session.Link](t)(s.LinkAt(ctx, id, cut)), Spans: parent.Spans(cut + 1)}
		if err := s.CreateFork(ctx, h, events(cut+1, 5)); err != nil {
			t.Fatal(err)
		}
		if err := s.CreateFork(ctx, h, nil); !errors.Is(err, store.ErrExists) {
			t.Fatalf("again: %v", err)
		}
		all = append(all[:cut+1], events(cut+1, 5)...)
		got, snap := readEvents(t, s, kid)
		wantEvents(t, got, all)
		if st := must[store.Stat](t)(s.Stat(ctx, kid)); st.Pos != snap.Pos {
			t.Fatalf("stat %v, read %v", st.Pos, snap.Pos)
		}
		parent, id = h, kid
	}
	w2 := must[store.Writer](t)(s.Open(ctx, "kid3"))
	n := w2.Opened().Pos.Next
	mustAppend(t, w2, events(n, 2))
	mustFlush(t, w2)
	ev, err := w2.Stored().At(3)
	if err != nil || ev.Seq != 3 {
		t.Fatal(ev, err)
	}
	// The parent goes to the trash: its forks are as before.
	w.Close()
	os.MkdirAll(s.path("trash"), 0o700)
	if err := os.Rename(s.dir("parent"), s.trash("parent")); err != nil {
		t.Fatal(err)
	}
	got, _ := readEvents(t, s, "kid1")
	if len(got) != 305 {
		t.Fatalf("%d events", len(got))
	}
	if _, err := s.Create(ctx, testHeader("parent")); !errors.Is(err, store.ErrExists) {
		t.Fatalf("the id of a session in the trash: %v", err)
	}
	// And gone for good: the fork says whose file is missing.
	os.RemoveAll(s.path("trash"))
	_, err = s.Open(context.Background(), "kid1")
	var de *store.DamagedError
	if !errors.As(err, &de) || de.Owner != "parent" {
		t.Fatalf("open without parent: %v", err)
	}
}
