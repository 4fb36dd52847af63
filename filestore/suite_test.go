package filestore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		root := filepath.Join(t.TempDir(), "store")
		s := openStore(t, root, nil)
		again := func(t *testing.T) store.Store { return openStore(t, root, nil) }
		return storetest.Harness{
			Store: s, Reopen: again, Another: again,
			DropLease: func(t *testing.T, id session.ID) { dropLease(t, s, id) },
			Remove: func(t *testing.T, id session.ID) {
				if err := os.MkdirAll(s.path("trash"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(s.dir(id), s.trash(id)); err != nil {
					t.Fatal(err)
				}
			},
			CorruptBlob: func(t *testing.T, name string) {
				path := s.blobPath(name)
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				b[len(b)/2] ^= 1
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

// dropLease makes the locks of the holder of id ineffective, without its knowing.
func dropLease(t testing.TB, s *Store, id session.ID) {
	t.Helper()
	s.mu.Lock()
	w := s.writers[id]
	delete(s.writers, id)
	s.mu.Unlock()
	w.lease.close()
	for _, h := range w.own { // still needed for writing, but a shared lock keeps nobody out
		if ok, err := h.f.TryLock(false); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
}

// swapFiles puts copies in the place of a session's header and segments: whoever holds locks holds
// them on files that nobody finds any more.
func swapFiles(t testing.TB, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.Remove(path)
		}
		if err == nil {
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
