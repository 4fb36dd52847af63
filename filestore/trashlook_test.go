package filestore

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Whoever looks while a session is moved to the trash is not told that somebody writes it: what its last life left
// open would pass for running.
func TestLookedAtWhileTrashed(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	newStored(t, s, subject, 3)
	seen := 0
	look := func(call *vfs.Call) {
		st, err := s.Stat(t.Context(), subject)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			t.Errorf("behind %s %s: %v", call.Op, call.Name, err)
		case st.Holder != nil || st.Base != st.Pos.Next:
			t.Errorf("behind %s %s: held by %+v from %d on", call.Op, call.Name, st.Holder, st.Base)
		default:
			seen++
		}
	}
	other := openStore(t, root, vfs.Around(unsynced, func(call *vfs.Call, do func() error) error {
		err := do()
		look(call)
		return err
	}))
	if err := other.Trash(t.Context(), subject); err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("nobody looked")
	}
}

// A life that has opened a session and written nothing, and whose session.json was replaced, is told when it writes
// that the session is gone; until then it has acknowledged nothing.
func TestTrashedUnderAnOpener(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	newStored(t, s, subject, 3)
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	dropLease(t, s, subject)
	other := openStore(t, root, nil)
	if err := other.Trash(t.Context(), subject); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), events(3, 1)); !errors.Is(err, store.ErrNotSaved) {
		t.Errorf("append: %v", err)
	}
	if pos, err := w.Flush(t.Context()); err == nil && pos.Next != 3 {
		t.Errorf("%d events are acknowledged", pos.Next)
	}
	w.Close()
	if err := other.Restore(t.Context(), subject); err != nil {
		t.Fatal(err)
	}
	log, _ := readEvents(t, other, subject)
	wantEvents(t, log, events(0, 3))
}

// What a fork begins with is moved to the trash, or back, while the fork is repaired: that is no damage.
func TestRepairWhileTheParentMoves(t *testing.T) {
	for _, back := range []bool{false, true} {
		root := t.TempDir()
		other := openStore(t, root, nil)
		newStored(t, other, subject, 6)
		h, err := childHeader(t.Context(), other, testHeader(subject), "child", 3)
		if err == nil {
			err = other.CreateFork(t.Context(), h, by("fork", 4, 1))
		}
		move, where := other.Trash, "sessions"
		if back && err == nil {
			err = other.Trash(t.Context(), subject)
			move, where = other.Restore, "trash"
		}
		if err != nil {
			t.Fatal(err)
		}
		moved := false
		s := openStore(t, root, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
			if !moved && c.Op == vfs.OpOpen && strings.HasPrefix(c.Name, filepath.Join(root, where, string(subject))) && strings.HasSuffix(c.Name, segSuffix) {
				moved = true
				if err := move(t.Context(), subject); err != nil {
					t.Error(err)
				}
			}
			return do()
		}))
		rep, err := s.Repair(t.Context(), "child", false)
		if err != nil || len(rep.Damage) > 0 || !moved {
			t.Errorf("from %s: %v, %+v (moved: %v)", where, err, rep, moved)
		}
	}
}
