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
			DropLease: func(t *testing.T, id session.ID) { swapFiles(t, s.dir(id)) },
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
