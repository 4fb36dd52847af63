package filestore

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"
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
