package filestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Whoever takes the name of a segment away has taken away every claim to it before: a name that is free again would
// let through somebody who claimed it long ago.
func TestClaimsGoBeforeNames(t *testing.T) {
	id := subject
	pack := func(t *testing.T, s *Store) { must[store.Packed](t)(s.Pack(t.Context(), subject)) }
	repair := func(t *testing.T, s *Store) {
		if rep := must[store.Repair](t)(s.Repair(t.Context(), id, false)); rep.Damage == nil {
			t.Error("nothing was repaired")
		}
	}
	spoil := func(n session.Seq, what string, with string) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			name := filepath.Join(s.dir(subject), segmentName(n))
			b, err := os.ReadFile(name)
			if err == nil {
				err = os.WriteFile(name, []byte(strings.Replace(string(b), what, with, 1)), 0o600)
			}
			if err != nil || !strings.Contains(string(b), what) {
				t.Fatal(err)
			}
		}
	}
	half := func(t *testing.T, s *Store) { // a joining that dies before it takes anything away
		s.fs = vfs.Around(s.fs, func(c *vfs.Call, do func() error) error {
			if c.Op == vfs.OpRemove && strings.HasSuffix(c.Name, segSuffix) {
				return errors.New("dead")
			}
			return do()
		})
		if _, err := s.Pack(t.Context(), subject); err == nil {
			t.Fatal("it went on")
		}
	}
	for _, c := range []struct {
		name   string
		before func(*testing.T, *Store)
		do     func(*testing.T, *Store)
	}{
		{"join", nil, pack},
		{"join what one that died left", half, pack},
		{"repair a record", spoil(4, `"n":5`, `"n":6`), repair},
		{"repair a first line", spoil(4, `"first":4`, `"first":5`), repair},
		{"repair the first record of a file", spoil(4, `"n":4`, `"n":6`), repair},
		{"repair the first record of all", spoil(0, `"n":0`, `"n":6`), repair},
		{"repair a name that is in the way", func(t *testing.T, s *Store) {
			if err := os.Mkdir(filepath.Join(s.dir(subject), segmentName(3)), 0o700); err != nil {
				t.Fatal(err)
			}
		}, repair},
		{"repair a name below a fork's own", func(t *testing.T, s *Store) {
			id = "child"
			h, err := forkHeader(t.Context(), s, id, 3)
			if err == nil {
				err = s.CreateFork(t.Context(), h, events(4, 2))
			}
			if err == nil {
				err = os.Mkdir(filepath.Join(s.dir(id), segmentName(1)), 0o700)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, repair},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			s := openStore(t, root, nil)
			newStored(t, s, subject, 2)
			for n := session.Seq(2); n < 10; n += 2 { // four lives
				w := must[store.Writer](t)(s.Open(t.Context(), subject))
				mustAppend(t, w, events(n, 2))
				mustFlush(t, w)
				w.Close()
			}
			if c.before != nil {
				c.before(t, openStore(t, root, nil))
			}
			dir := s.dir(id)
			claim := filepath.Join(dir, claimName(0, "old"))
			if err := os.WriteFile(claim, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			taken := 0
			s = openStore(t, root, vfs.Around(unsynced, func(call *vfs.Call, do func() error) error {
				_, isSegment := parseSegName(filepath.Base(call.Name))
				if (call.Op == vfs.OpRemove || call.Op == vfs.OpRename) && isSegment && filepath.Dir(call.Name) == dir {
					taken++
					if _, err := os.Stat(claim); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("%s %s while there is a claim", call.Op, filepath.Base(call.Name))
					}
				}
				return do()
			}))
			c.do(t, s)
			if taken == 0 && c.name != "repair a record" {
				t.Error("no name was taken away")
			}
		})
	}
}

// session.json is away for a moment while somebody opens the session, and there again when he asks why.
func TestOpenWhileReplaced(t *testing.T) {
	root := t.TempDir()
	newStored(t, openStore(t, root, nil), subject, 3)
	away := 1
	s := openStore(t, root, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		if c.Op == vfs.OpOpen && filepath.Base(c.Name) == headerName && away > 0 {
			away--
			return &fs.PathError{Op: "open", Path: c.Name, Err: fs.ErrNotExist}
		}
		return do()
	}))
	must[store.Writer](t)(s.Open(t.Context(), subject)).Close()
	if away != 0 {
		t.Error("it was never away")
	}
}
