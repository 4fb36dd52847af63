package filestore

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// A session that is taken in piece by piece is nowhere until it is whole, and leaves nothing when it does not come.
func TestTakeLong(t *testing.T) {
	s := memStore(t, vfs.NewMem(vfs.MemOptions{}).Process(), 600, 9)
	defer s.Close()
	inside := func() int { return len(must[[]fs.DirEntry](t)(s.fs.ReadDir(s.path("sessions")))) }
	h, log := testHeader(subject), events(0, 40)
	gone := errors.New("the source is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	for _, end := range []func() error{
		func() error { return gone },
		func() error { cancel(gone); return nil },
	} {
		err := s.Take(ctx, h, func(yield func(session.Event, error) bool) {
			for i, ev := range log {
				var err error
				if i == 30 {
					if inside() != 1 {
						t.Errorf("%d names while it is taken in", inside())
					}
					if _, err := s.Stat(t.Context(), subject); !errors.Is(err, store.ErrNotFound) {
						t.Errorf("half of it is a session: %v", err)
					}
					err = end()
				}
				if !yield(ev, err) || err != nil {
					return
				}
			}
		})
		if !errors.Is(err, gone) {
			t.Fatal(err)
		}
		if inside() != 0 {
			t.Fatalf("%d names are left", inside())
		}
	}
	if err := s.Take(t.Context(), h, session.Events(log).Range(0, 40)); err != nil {
		t.Fatal(err)
	}
	got, snap := readEvents(t, s, subject)
	defer snap.Close()
	if d := difference(log, got); d != "" {
		t.Fatal(d)
	}
	if names := must[[]segName](t)(s.segmentNames(s.dir(subject))); len(names) < 3 {
		t.Fatalf("segments %v: it was not long", names)
	}
	if err := s.Take(t.Context(), h, session.Events(log).Range(0, 40)); !errors.Is(err, store.ErrExists) || inside() != 1 {
		t.Fatalf("again: %v", err)
	}
}
