package keeper_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

func files(t testing.TB, root string, fsys vfs.FS) *filestore.Store {
	t.Helper()
	st, err := filestore.Open(root, filestore.Options{
		FS: fsys, Now: time.Now, Rand: rand.Reader, Host: "here", Program: "test", PID: os.Getpid(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// tree lists everything below root with size, mode and time of change.
func tree(t testing.TB, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		if rel == "live" { // where holders announce themselves; not part of any session
			return nil
		}
		size := info.Size()
		if d.IsDir() {
			size = 0
		}
		fmt.Fprintf(&b, "%s %v %d %s\n", rel, info.Mode(), size, info.ModTime().Format(time.RFC3339Nano))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Looking never writes: every way of opening that accepts nothing leaves every file and directory as it was.
func TestFilesUntouched(t *testing.T) {
	root := t.TempDir()
	st := files(t, root, nil)
	crash(t, st, "abcd")
	k := start(st)
	child, err := k.Fork(t.Context(), "abcd", store.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seed := session.Events(stored(t, st, "abcd"))
	before := tree(t, root)
	for name, f := range map[string]func(){
		"resume": func() {
			h := resume(t, k, "abcd")
			flush(t, h)
			dispose(t, h)
		},
		"resume of a fork": func() { dispose(t, resume(t, k, child.ID)) },
		"resume, abandoned": func() {
			if _, err := resume(t, k, "abcd").Abandon(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"adopt": func() {
			h, err := k.Adopt(t.Context(), alone(t, header("abcd"), session.Seed{Prefix: seed}))
			if err != nil {
				t.Error(err)
				return
			}
			dispose(t, h)
		},
		"refused adoption": func() {
			if _, err := k.Adopt(t.Context(), alone(t, header("abcd"), session.Seed{})); !errors.Is(err, store.ErrExists) {
				t.Error(err)
			}
		},
		"create": func() { dispose(t, create(t, k, "efgh")) },
		"create with a seed": func() {
			h, err := k.Create(t.Context(), header("efgh"), session.Seed{Prefix: seed})
			if err != nil {
				t.Error(err)
				return
			}
			dispose(t, h)
		},
		"claim": func() {
			c, err := k.Open(t.Context(), "abcd")
			if err != nil {
				t.Error(err)
				return
			}
			if err := c.Release(); err != nil {
				t.Error(err)
			}
		},
	} {
		f()
		if after := tree(t, root); after != before {
			t.Errorf("%s changed the files:\n%s\nbefore:\n%s", name, after, before)
			before = after
		}
	}
}

// The construction paths put the same boundaries into files as into memory.
func TestFilesPaths(t *testing.T) {
	st := files(t, t.TempDir(), nil)
	crash(t, st, "abcd")
	k := start(st)
	cold, err := k.Fork(t.Context(), "abcd", store.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "cold fork", stored(t, st, cold.ID), repaired+" |")

	h := resume(t, k, "abcd")
	put(t, h.Session(), titled("x"))
	put(t, h.Session(), openTurn(2)...)
	hot, err := k.Fork(t.Context(), "abcd", store.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "live fork", stored(t, st, hot.ID), repaired+" | title |")
	put(t, h.Session(), endTurn(2)...)
	dispose(t, h)
	same(t, "resumed", stored(t, st, "abcd"), repaired+" | title "+repaired)

	s := alone(t, header("abcd"), session.Seed{Prefix: session.Events(stored(t, st, "abcd"))})
	put(t, s, titled("adopted"))
	if h, err = k.Adopt(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	dispose(t, h)
	same(t, "adopted", stored(t, st, "abcd"), repaired+" | title "+repaired+" | title")

	h, err = k.Create(t.Context(), header("seeded"), session.Seed{Prefix: session.Events(stored(t, st, "abcd"))})
	if err != nil {
		t.Fatal(err)
	}
	put(t, h.Session(), titled("y"))
	dispose(t, h)
	same(t, "seeded", stored(t, st, "seeded"), repaired+" | title "+repaired+" | title | title")

	// A log of many events is read back through the store once memory is given back.
	h = resume(t, k, "abcd")
	for i := range 300 {
		put(t, h.Session(), titled(fmt.Sprint(i)))
		if i%50 == 0 {
			flush(t, h)
		}
	}
	flush(t, h)
	if got := events(t, h.Session().Events()); len(got) != len(stored(t, st, "abcd")) {
		t.Errorf("%d events", len(got))
	}
	dispose(t, h)
}

// Somebody replaces the files of a session under its writer and another process goes on with them: the first
// writer is fenced by what it sees, and what it held is in a fork.
func TestFilesFenced(t *testing.T) {
	root := t.TempDir()
	st := files(t, root, nil)
	k := start(st)
	h := create(t, k, "abcd")
	put(t, h.Session(), openTurn(1)...)
	put(t, h.Session(), endTurn(1)...)
	flush(t, h)

	dir := filepath.Join(root, "sessions", "abcd")
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		p := filepath.Join(dir, e.Name())
		b, err := os.ReadFile(p)
		if err == nil {
			err = errors.Join(os.WriteFile(p+".new", b, 0o600), os.Rename(p+".new", p))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	other := start(files(t, root, nil))
	o := resume(t, other, "abcd")
	put(t, o.Session(), titled("the other's"))
	flush(t, o)

	put(t, h.Session(), openTurn(2)...)
	var f *store.FencedError
	if err := h.Flush(t.Context()); !errors.As(err, &f) || f.SavedAs == "" {
		t.Fatalf("err %v", err)
	}
	same(t, "the session is the other's", stored(t, st, "abcd"), repaired+" | title")
	same(t, "the fork", stored(t, st, f.SavedAs), repaired+" "+crashed)
	if err := h.Dispose(t.Context()); !errors.Is(err, store.ErrFenced) {
		t.Error(err)
	}
	dispose(t, o)
}
