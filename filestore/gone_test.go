package filestore

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// A segment that was listed may be gone when it is opened: a fenced life took its own away. Whoever reads lists
// again.
func TestListedSegmentGone(t *testing.T) {
	for what, do := range map[string]func(*Store) error{
		"read":   func(s *Store) error { snap, err := s.Read(t.Context(), subject); snap.Close(); return err },
		"verify": func(s *Store) error { snap, err := s.Verify(t.Context(), subject); snap.Close(); return err },
		"stat":   func(s *Store) error { _, err := s.Stat(t.Context(), subject); return err },
		"open": func(s *Store) error {
			w, err := s.Open(t.Context(), subject)
			if err == nil {
				err = w.Close()
			}
			return err
		},
		"link": func(s *Store) error { _, err := s.LinkAt(t.Context(), subject, 11); return err },
	} {
		t.Run(what, func(t *testing.T) {
			root := t.TempDir()
			s := openStore(t, root, nil)
			newStored(t, s, subject, 10)
			w := must[store.Writer](t)(s.Open(t.Context(), subject))
			mustAppend(t, w, events(10, 2))
			mustFlush(t, w)
			w.Close()
			f := vfs.Fault(unsynced, vfs.Rule{K: 1, Err: fs.ErrNotExist, Match: func(c vfs.Call) bool {
				return c.Op == vfs.OpOpen && filepath.Base(c.Name) == segmentName(10)
			}})
			if err := do(openStore(t, root, f)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A name that leads nowhere, for good, is a damaged session, not a failure of the store.
func TestSegmentLeadsNowhere(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	newStored(t, s, subject, 10)
	path := filepath.Join(s.dir(subject), segmentName(10))
	if err := os.Symlink("nowhere", path); err != nil {
		t.Fatal(err)
	}
	snap, err := s.Read(t.Context(), subject)
	if err != nil || len(snap.Damage) != 1 || snap.Damage[0].File != path || snap.Pos.Next != 10 {
		t.Fatalf("read: %+v, %v", snap, err)
	}
	snap.Close()
	if st, err := s.Stat(t.Context(), subject); err != nil || st.State != store.StateDamaged {
		t.Errorf("stat: %+v, %v", st, err)
	}
	if _, err := s.Open(t.Context(), subject); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("open: %v", err)
	}
}

// What a life that died left may have a name that is not durable. Flush says that all is synced: so is the name.
func TestFlushSyncsTheName(t *testing.T) {
	root := t.TempDir()
	newStored(t, openStore(t, root, nil), subject, 3)
	var trace bytes.Buffer
	s := openStore(t, root, vfs.Trace(unsynced, &trace, filepath.Base))
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	defer w.Close()
	for range 2 {
		mustFlush(t, w)
	}
	if n := strings.Count(trace.String(), "syncdir "+string(subject)+"\n"); n != 1 {
		t.Errorf("%d syncs of the directory in\n%s", n, trace.String())
	}
}
