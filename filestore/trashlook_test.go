package filestore

import (
	"errors"
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
