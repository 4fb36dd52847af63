package filestore

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Who writes leaves traces, also where its first announcement failed. What changed just now, and a link, prove nothing.
func TestLeftTraces(t *testing.T) {
	root, fail := filepath.Join(t.TempDir(), "store"), false
	fsys := vfs.Around(vfs.OS(), func(c *vfs.Call, do func() error) error {
		if fail && c.Op == vfs.OpCreate && filepath.Base(filepath.Dir(c.Name)) == "live" {
			return fs.ErrPermission
		}
		return do()
	})
	later := time.Hour
	s := must[*Store](t)(Open(root, Options{FS: fsys, Rand: rand.Reader, Now: func() time.Time { return time.Now().Add(later) }}))
	defer s.Close()
	traces := func() store.Traces { return must[store.Traces](t)(s.Traces(t.Context())) }
	if tr := traces(); tr.Stamp != "" || len(tr.Held) > 0 { // no store at all: nobody is announced
		t.Error(tr)
	}
	newStored(t, s, "session-one", 3)
	before := traces()
	if again := traces(); before.Stamp == "" || again.Stamp != before.Stamp {
		t.Error(before, again)
	}
	if later = 0; traces().Stamp != "" {
		t.Error("a change of a moment ago was believed")
	}
	later = time.Hour
	fail = true
	w := must[store.Writer](t)(s.Open(t.Context(), "session-one"))
	mustAppend(t, w, events(3, 1))
	if tr := traces(); len(tr.Held) > 0 {
		t.Fatal("announced, which was to fail", tr)
	}
	fail = false
	mustAppend(t, w, events(4, 1))
	if tr := traces(); !slices.Equal(tr.Held, []session.ID{"session-one"}) {
		t.Error("an announcement that failed was not tried again", tr)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	// A repair is announced also where it has no segment to lock.
	if _, err := store.Fork(t.Context(), s, "session-one", store.ForkOptions{Child: "session-two", Now: 5, Registry: session.Core()}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "sessions", "session-two", headerName), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.patience = 0
	before = traces()
	rep, err := s.Repair(t.Context(), "session-two", false)
	t.Log(rep, err)
	if now := traces(); now.Stamp == before.Stamp {
		t.Error("a repair left no traces")
	}

	aside := filepath.Join(t.TempDir(), "live")
	if err := os.Rename(filepath.Join(root, "live"), aside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(aside, filepath.Join(root, "live")); err != nil {
		t.Fatal(err)
	}
	if tr := traces(); tr.Stamp != "" {
		t.Error("a link was believed")
	}
}
