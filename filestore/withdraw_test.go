package filestore

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// rollers opens old over seqs 0 to 2, then young's store; no lock works, so only links and looks decide.
func rollers(t *testing.T, oldFS vfs.FS, roll int64) (old store.Writer, young *Store) {
	root := t.TempDir()
	newStored(t, openStore(t, root, nil), subject, 3)
	all := func(string) bool { return true }
	o := testOptions()
	o.FS, o.SegmentBytes = noLocks{oldFS, all}, roll
	s := openWith(t, root, o)
	young = openStore(t, root, noLocks{unsynced, all})
	s.locks, young.locks = true, true // they believe so
	old = must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, old, by("old", 3, 5))
	mustFlush(t, old)
	return old, young
}

func inBackground(old store.Writer, evs []session.Event) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := old.Append(context.Background(), evs)
		if err == nil {
			_, err = old.Flush(context.Background())
		}
		done <- err
	}()
	return done
}

// A writer stops between the link of its new segment and what it looks at then. Another reads that segment and
// goes on behind it. The first must not take away what the other has built on.
func TestRollOvertaken(t *testing.T) {
	linked := false
	g := newGate(func(c vfs.Call) bool { // the first listing behind the link
		linked = linked || c.Op == vfs.OpLink
		return linked && c.Op == vfs.OpReadDir
	})
	old, s := rollers(t, g.fs(), 600)
	linked = false
	g.armed.Store(true)
	done := inBackground(old, by("old", 8, 2))
	<-g.reached
	young := must[store.Writer](t)(s.Open(t.Context(), subject))
	if n := young.Opened().Pos.Next; n != 10 {
		t.Fatalf("young begins at %d", n)
	}
	mustAppend(t, young, by("young", 10, 2))
	mustFlush(t, young)
	close(g.open)
	if err := <-done; !errors.Is(err, store.ErrFenced) {
		t.Fatalf("old: %v", err)
	}
	mustAppend(t, young, by("young", 12, 1))
	mustFlush(t, young)
	got, snap := readEvents(t, s, subject)
	if len(snap.Damage) > 0 {
		t.Fatalf("damage: %+v", snap.Damage)
	}
	wantEvents(t, got[8:], append(by("old", 8, 2), by("young", 10, 3)...))
}

// A sync fails, and the first goes on in a new segment behind the last synced record, while another has read
// further in the file before. Then the other finds a segment that it has not read.
func TestRollBehindTheReader(t *testing.T) {
	var fail atomic.Bool
	old, s := rollers(t, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		if c.Op == vfs.OpSyncData && fail.CompareAndSwap(true, false) {
			return syscall.EIO
		}
		return do()
	}), 0)
	mustAppend(t, old, by("old", 8, 2))
	young := must[store.Writer](t)(s.Open(t.Context(), subject)) // reads 8 and 9 in the first file
	fail.Store(true)
	mustFlush(t, old)
	mustAppend(t, old, by("old", 10, 1))
	if pos := mustFlush(t, old); pos.Next != 11 {
		t.Fatal(pos)
	}
	if _, err := young.Append(t.Context(), by("young", 10, 1)); !errors.Is(err, store.ErrFenced) {
		t.Fatalf("young: %v", err)
	}
	mustAppend(t, old, by("old", 11, 1))
	mustFlush(t, old)
	got, snap := readEvents(t, s, subject)
	if len(snap.Damage) > 0 {
		t.Fatalf("damage: %+v", snap.Damage)
	}
	wantEvents(t, got[3:], by("old", 3, 9))
}

// A writer whose turn to roll comes when another has long gone on does not put its segment into the other's
// log, not even for a moment: it could die in it.
func TestRollTooLate(t *testing.T) {
	links := 0
	old, s := rollers(t, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		if c.Op == vfs.OpLink && strings.HasSuffix(c.To, segSuffix) {
			links++
		}
		return do()
	}), 900)
	young := must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, young, by("young", 8, 1))
	mustAppend(t, old, by("old", 8, 1)) // written, where nothing counts any more
	for q := session.Seq(9); q < 12; q++ {
		mustAppend(t, young, by("young", q, 1))
	}
	mustFlush(t, young)
	links = 0
	if _, err := old.Append(t.Context(), by("old", 9, 3)); !errors.Is(err, store.ErrFenced) {
		t.Fatalf("old: %v", err)
	}
	if links > 0 {
		names, _ := s.segmentNames(filepath.Join(s.root, "sessions", string(subject)))
		t.Fatalf("it linked a segment among %v", names)
	}
	got, _ := readEvents(t, s, subject)
	wantEvents(t, got[8:], by("young", 8, 4))
}

// behindTheLink matches the sync of the session's directory that comes when a segment has its name.
func behindTheLink() func(vfs.Call) bool {
	var linked atomic.Bool // segments are read side by side
	return func(c vfs.Call) bool {
		if c.Op == vfs.OpLink && strings.HasSuffix(c.To, segSuffix) {
			linked.Store(true)
		}
		return c.Op == vfs.OpSyncDir && strings.HasSuffix(c.Name, string(subject)) && linked.Load()
	}
}

// The same with the first segment of a life.
func TestFirstCommitOvertaken(t *testing.T) {
	root := t.TempDir()
	newStored(t, openStore(t, root, nil), subject, 3)
	g := newGate(behindTheLink())
	var w [2]store.Writer
	var s *Store
	for i, fs := range []vfs.FS{g.fs(), unsynced} {
		s = openStore(t, root, noLocks{fs, func(string) bool { return true }})
		s.locks = true // it believes so
		if i == 0 {
			w[0] = must[store.Writer](t)(s.Open(t.Context(), subject))
			g.armed.Store(true)
		}
	}
	done := inBackground(w[0], by("old", 3, 2))
	<-g.reached
	young := must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, young, by("young", 5, 2))
	mustFlush(t, young)
	close(g.open)
	if err := <-done; !errors.Is(err, store.ErrFenced) {
		t.Fatalf("old: %v", err)
	}
	mustFlush(t, young)
	got, snap := readEvents(t, s, subject)
	if len(snap.Damage) > 0 {
		t.Fatalf("damage: %+v", snap.Damage)
	}
	wantEvents(t, got[3:], append(by("old", 3, 2), by("young", 5, 2)...))
}

// unlockedStores returns stores on one root in which no lock works; each believes that they do.
func unlockedStores(t *testing.T, fss ...vfs.FS) (stores []*Store) {
	root := t.TempDir()
	newStored(t, openStore(t, root, nil), subject, 3)
	for _, fs := range fss {
		s := openStore(t, root, noLocks{fs, func(string) bool { return true }})
		s.locks = true
		stores = append(stores, s)
	}
	return stores
}

// What an opener puts in the place of records that it has not read must not get its name, not even for a moment:
// it could die then.
func TestOvertakenBeforeTheLink(t *testing.T) {
	armed := false
	ss := unlockedStores(t, unsynced, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		if armed && c.Op == vfs.OpLink {
			if err := do(); err != nil {
				return err
			}
			runtime.Goexit() // it dies directly behind its link
		}
		return do()
	}))
	old := must[store.Writer](t)(ss[0].Open(t.Context(), subject))
	mustAppend(t, old, by("old", 3, 1))
	mustFlush(t, old)
	young := must[store.Writer](t)(ss[1].Open(t.Context(), subject))
	mustAppend(t, old, by("old", 4, 1))
	mustFlush(t, old) // acknowledged
	armed = true
	done := make(chan error, 1)
	go func() {
		err := errors.New("it linked, and died")
		defer func() { done <- err }()
		_, err = young.Append(context.Background(), by("young", 4, 2))
	}()
	if err := <-done; !errors.Is(err, store.ErrFenced) {
		t.Errorf("young: %v", err)
	}
	got, _ := readEvents(t, openStore(t, ss[0].root, nil), subject)
	wantEvents(t, got[3:], by("old", 3, 2))
}

// Three lives: the second links what the first has overtaken, the third reads it. Nobody may build on what is
// taken back.
func TestBuiltOnTheOvertaken(t *testing.T) {
	g := newGate(behindTheLink())
	ss := unlockedStores(t, unsynced, g.fs(), unsynced)
	old := must[store.Writer](t)(ss[0].Open(t.Context(), subject))
	mustAppend(t, old, by("old", 3, 1))
	mustFlush(t, old)
	young := must[store.Writer](t)(ss[1].Open(t.Context(), subject))
	mustAppend(t, old, by("old", 4, 1)) // written, not acknowledged
	g.armed.Store(true)
	done := inBackground(young, by("young", 4, 1))
	var err error
	select {
	case <-g.reached: // linked
	case err = <-done:
	}
	third := must[store.Writer](t)(ss[2].Open(t.Context(), subject))
	n := third.Opened().Pos.Next
	mustAppend(t, third, by("third", n, 1))
	close(g.open)
	if err == nil {
		err = <-done
	}
	if _, ferr := third.Flush(t.Context()); ferr != nil {
		t.Fatalf("third: %v", ferr)
	}
	if !errors.Is(err, store.ErrFenced) {
		t.Errorf("young: %v", err)
	}
	if _, err := old.Flush(t.Context()); !errors.Is(err, store.ErrFenced) {
		t.Errorf("old: %v", err)
	}
	got, snap := readEvents(t, openStore(t, ss[0].root, nil), subject)
	if len(snap.Damage) > 0 {
		t.Fatalf("damage: %+v", snap.Damage)
	}
	wantEvents(t, got[n:], by("third", n, 1))
}

// Two that meet do not both give way.
func TestOneGoesOn(t *testing.T) {
	var old store.Writer
	var oldErr error
	ss := unlockedStores(t, unsynced, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		switch {
		case c.Op == vfs.OpLink: // the young one has seen that nothing has changed
			mustAppend(t, old, by("old", 4, 1))
		case c.Op == vfs.OpSyncDir && old != nil:
			_, oldErr = old.Flush(t.Context())
		}
		return do()
	}))
	w := must[store.Writer](t)(ss[0].Open(t.Context(), subject))
	mustAppend(t, w, by("old", 3, 1))
	mustFlush(t, w)
	young := must[store.Writer](t)(ss[1].Open(t.Context(), subject))
	old = w
	_, err := young.Append(t.Context(), by("young", 4, 1))
	if err == nil {
		_, err = young.Flush(t.Context())
	}
	if err != nil || !errors.Is(oldErr, store.ErrFenced) {
		t.Fatalf("young: %v; old: %v", err, oldErr)
	}
	got, _ := readEvents(t, ss[1], subject)
	wantEvents(t, got[4:], by("young", 4, 1))
}
