package filestore

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Where nobody can announce what he writes, traces say nothing: a list looks at all sessions.
func TestNoTracesWhereNobodyIsAnnounced(t *testing.T) {
	root := t.TempDir()
	s, err := Open(root, Options{Rand: rand.Reader, Now: func() time.Time { return time.Now().Add(time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	live := filepath.Join(root, "live")
	for _, name := range []string{"sessions", "live"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	told := func(when string, want bool) {
		t.Helper()
		tr, err := s.Traces(t.Context())
		if err != nil || (tr.Stamp != "") != want {
			t.Errorf("%s: stamp %q, %v", when, tr.Stamp, err)
		}
	}
	told("as it should be", true)
	if err := os.Chmod(live, 0o500); err != nil {
		t.Fatal(err)
	}
	told("live/ cannot be written to", false)
	if err := os.Remove(live); err != nil {
		t.Fatal(err)
	}
	told("live/ is gone", false) // as before it was made, and perhaps as somebody writes who was announced there
}

// A live/ that cannot be read - a file in its place, a link that leads back to itself - says nothing, and is no reason to list nothing.
func TestListedWithoutAnnouncements(t *testing.T) {
	for name, spoil := range map[string]func(live string) error{
		"a file":       func(live string) error { return os.WriteFile(live, nil, 0o600) },
		"a loop":       func(live string) error { return os.Symlink("live", live) },
		"a link away":  func(live string) error { return os.Symlink("nowhere", live) },
		"not readable": func(live string) error { return os.Mkdir(live, 0o300) }, // but by root
	} {
		root := t.TempDir()
		s, err := Open(root, Options{Rand: rand.Reader, Now: func() time.Time { return time.Now().Add(time.Hour) }})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Take(t.Context(), testHeader("here"), session.Events(events(0, 5)).Range(0, 5)); err != nil {
			t.Fatal(err)
		}
		live := filepath.Join(root, "live")
		if err := os.RemoveAll(live); err != nil {
			t.Fatal(err)
		}
		if err := spoil(live); err != nil {
			t.Fatal(err)
		}
		nothing := func(session.ID) store.Mark { return store.Mark{} }
		if marks, err := s.Marks(t.Context(), nil, nothing); err != nil || len(marks) != 1 || marks[0].ID != "here" {
			t.Errorf("%s: marks %v, %v", name, marks, err)
		}
		if ends, err := s.Ends(t.Context(), []store.Mark{{ID: "here"}}); err != nil || len(ends) != 1 || ends[0].Err != nil || ends[0].Stat.Pos.Next != 5 {
			t.Errorf("%s: ends %v, %v", name, ends, err)
		}
		if tr, err := s.Traces(t.Context()); err != nil || tr.Stamp != "" && (name != "not readable" || os.Getuid() != 0) {
			t.Errorf("%s: traces %v, %v", name, tr, err)
		}
	}
}
