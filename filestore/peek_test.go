package filestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// What is peeked, or found by itself, is what is read, in every order of asking: several lives, small segments, a blob, a fork of
// a fork, and a session that is being written.
func TestPeekIsRead(t *testing.T) {
	ctx := t.Context()
	root := t.TempDir()
	o := testOptions()
	o.SegmentBytes = 64 << 10
	s := openWith(t, root, o)
	big := strings.Repeat("x", 40<<10)
	event := func(q session.Seq) session.Event {
		text := strings.Repeat("word ", int(q%97))
		if q == 500 {
			text = big
		}
		return session.Event{Seq: q, Time: int64(q), Type: "test/note", Ignorable: true,
			Data: jsontext.Value(fmt.Sprintf(`{"n":%d,"text":%q}`, q, text))}
	}
	write := func(w store.Writer, from, to session.Seq) {
		t.Helper()
		for q := from; q < to; q += 50 {
			var evs []session.Event
			for k := q; k < min(q+50, to); k++ {
				evs = append(evs, event(k))
			}
			if _, err := w.Append(ctx, evs); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w, err := s.Create(ctx, session.Header{Format: 1, ID: "peek-parent", Kind: session.KindRoot})
	if err != nil {
		t.Fatal(err)
	}
	write(w, 0, 3000)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w, err = s.Open(ctx, "peek-parent"); err != nil {
		t.Fatal(err)
	}
	write(w, 3000, 4000) // and stays open
	compare := func(id session.ID) {
		t.Helper()
		want, err := s.Read(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		defer want.Close()
		got, err := s.Peek(ctx, id)
		if err != nil || got == nil {
			t.Fatalf("%v %v", got, err)
		}
		if got.Pos != want.Pos || got.Prefix.Len() != want.Prefix.Len() {
			t.Fatalf("%s ends at %v, want %v", id, got.Pos, want.Pos)
		}
		n := int64(want.Prefix.Len())
		check := func(q session.Seq) {
			t.Helper()
			a, err := got.Prefix.At(q)
			b, err2 := want.Prefix.At(q)
			if err != nil || err2 != nil || !same(a, b) {
				t.Fatalf("%s at %d: %.100v %v, want %.100v %v", id, q, a, err, b, err2)
			}
			a, ok, err := s.Find(ctx, want.Header, q)
			if own := q >= want.Header.SeedLength; err != nil || ok != own || own && !same(a, b) {
				t.Fatalf("%s at %d is found %v: %.100v %v, want %.100v", id, q, ok, a, err, b)
			}
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			check(session.Seq(rng.Int64N(n)))
		}
		for q := session.Seq(n - 1); q >= max(session.Seq(n-700), 0); q-- {
			check(q)
		}
		next := session.Seq(0)
		for ev, err := range got.Prefix.Range(0, session.Seq(n)) {
			if err != nil || ev.Seq != next {
				t.Fatalf("%s: %d after %d events: %v", id, ev.Seq, next, err)
			}
			next++
		}
		for _, q := range []session.Seq{-1, session.Seq(n)} {
			if _, err := got.Prefix.At(q); err == nil {
				t.Errorf("%s: At(%d) succeeds", id, q)
			}
			if _, ok, err := s.Find(ctx, want.Header, q); ok || err != nil {
				t.Errorf("%s: Find(%d): %v %v", id, q, ok, err)
			}
		}
	}
	compare("peek-parent")
	child := session.ID("peek-parent")
	for i, at := range []session.Seq{3500, 3600, 20} {
		id := session.ID(fmt.Sprintf("peek-child-%d", i))
		if i == 2 {
			child = "peek-parent"
		}
		if _, err := store.Fork(ctx, s, child, store.ForkOptions{At: &at, Child: id, Now: 1}); err != nil {
			t.Fatal(err)
		}
		child = id
		cw, err := s.Open(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		write(cw, cw.Opened().Pos.Next, cw.Opened().Pos.Next+200)
		if err := cw.Close(); err != nil {
			t.Fatal(err)
		}
		compare(id)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Pack(ctx, "peek-parent"); err != nil || p.BytesAfter >= p.BytesBefore {
		t.Fatalf("packed: %+v %v", p, err)
	}
	compare("peek-parent")
	if err := s.Trash(ctx, "peek-parent"); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Find(ctx, session.Header{ID: "peek-parent"}, 7); ok || !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of a session in the trash an event is found: %v %v", ok, err)
	}
}

// Who looks at a record in a segment whose first line is bad is told that it is damaged.
func TestPeekBehindABadFirstLine(t *testing.T) {
	k := newKin(t)
	if err := flipAt(filepath.Join(k.s.dir(subject), segmentName(0)), 20); err != nil {
		t.Fatal(err)
	}
	snap := must[*store.Snapshot](t)(k.s.Peek(t.Context(), subject))
	if snap == nil {
		t.Fatal("its end is healthy, and it cannot be peeked")
	}
	if _, err := snap.Prefix.At(3); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("%T: %v", err, err)
	}
	if ev, err := snap.Prefix.At(12); err != nil || !same(ev, k.logs[subject][12]) {
		t.Errorf("%v, %v", ev, err)
	}
}
