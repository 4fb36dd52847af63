package filestore

import (
	"errors"
	"slices"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Whenever the session that a fork begins with goes to the trash, and when it comes back: there is the fork, whole, or
// it is said that there is no such session.
func TestForkOfTheMoved(t *testing.T) {
	for _, from := range []session.ID{subject, "child"} {
		for back := range 4 { // so many calls later it comes back; 0: it does not
			for at, calls := 1, 1; at <= calls; at++ {
				root := t.TempDir()
				s := openStore(t, root, nil)
				newStored(t, s, subject, 4)
				header, n := testHeader(subject), session.Seq(4)
				if from == "child" {
					h, err := forkHeader(t.Context(), s, "child", 2)
					if err == nil {
						header, n = h, 6
						err = s.CreateFork(t.Context(), h, events(3, 3))
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				calls = 0
				var moved error
				forking := openStore(t, root, vfs.Around(unsynced, func(_ *vfs.Call, do func() error) error {
					switch calls++; {
					case calls == at:
						moved = errors.Join(moved, s.Trash(t.Context(), subject))
					case back > 0 && calls == at+back:
						moved = errors.Join(moved, s.Restore(t.Context(), subject))
					}
					return do()
				}))
				forking.locks, forking.ready = true, true // what the store does once is not asked here
				h, err := childHeader(t.Context(), forking, header, "grandchild", n-1)
				if err == nil {
					err = forking.CreateFork(t.Context(), h, events(n, 1))
				}
				if moved != nil {
					t.Fatal(moved)
				}
				if errors.Is(err, store.ErrNotFound) {
					continue
				}
				if err != nil {
					t.Errorf("from %s, moved before call %d, back %d later: %v", from, at, back, err)
					continue
				}
				got, snap := readEvents(t, s, "grandchild")
				if len(snap.Damage) > 0 || !slices.EqualFunc(got, events(0, int(n)+1), same) {
					t.Errorf("from %s, moved before call %d, back %d later: the fork has %d events, damage %v", from, at, back, len(got), snap.Damage)
				}
			}
		}
	}
}
