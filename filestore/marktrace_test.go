package filestore

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
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

// What is seen of a session on the way to its end is what Marks sees, whatever state it is in.
func TestEndsAreMarks(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	s := must[*Store](t)(Open(root, Options{Rand: rand.Reader, Now: func() time.Time { return time.Now().Add(time.Hour) }}))
	defer s.Close()
	in := func(id session.ID, name string) string { return filepath.Join(root, "sessions", string(id), name) }
	spoil := func(id session.ID, name, text string) {
		newStored(t, s, id, 5)
		if err := os.WriteFile(in(id, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newStored(t, s, "sound", 5)
	if _, err := store.Fork(t.Context(), s, "sound", store.ForkOptions{Child: "forked", Now: 5, Registry: session.Core()}); err != nil {
		t.Fatal(err)
	}
	newStored(t, s, "headless", 5)
	spoil("bad-header", headerName, "{}\n")
	spoil("damaged", segmentName(0), "not a segment\n")
	if err := os.Remove(in("headless", headerName)); err != nil {
		t.Fatal(err)
	}
	newStored(t, s, "linked", 5)
	if err := os.Rename(in("linked", segmentName(0)), filepath.Join(root, "aside")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "aside"), in("linked", segmentName(0))); err != nil {
		t.Fatal(err)
	}
	newStored(t, s, "repaired", 5)
	if err := os.Mkdir(in("repaired", damagedName), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in("repaired", damagedName+"/1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := must[store.Writer](t)(s.Open(t.Context(), "sound"))
	defer w.Close()

	marks := must[[]store.Mark](t)(s.Marks(t.Context(), nil, func(session.ID) store.Mark { return store.Mark{} }))
	known := make([]store.Mark, len(marks))
	for i, m := range marks {
		known[i].ID = m.ID
	}
	stamps := 0
	for i, e := range must[[]store.End](t)(s.Ends(t.Context(), known)) {
		if e.Mark != marks[i] {
			t.Errorf("%+v, want %+v", e.Mark, marks[i])
		}
		if e.Mark.Stamp != "" {
			stamps++
		}
		st, err := s.Stat(t.Context(), marks[i].ID)
		if err != nil || e.Err != nil || !reflect.DeepEqual(e.Stat, st) {
			t.Errorf("%+v %v, want %+v %v", e.Stat, e.Err, st, err)
		}
	}
	if len(marks) != 7 || stamps < 4 {
		t.Errorf("%d marks, %d with a stamp", len(marks), stamps)
	}
}
