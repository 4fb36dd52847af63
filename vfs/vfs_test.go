//go:build linux || darwin

package vfs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func create(t *testing.T, fsys FS, name, content string) File {
	t.Helper()
	f, err := fsys.OpenFile(name, CreateAppend)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	return f
}

func open(t *testing.T, name string, mode Mode) File {
	t.Helper()
	f, err := OS().OpenFile(name, mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func lock(t *testing.T, f File, exclusive, want bool) {
	t.Helper()
	if got, err := f.TryLock(exclusive); err != nil || got != want {
		t.Fatalf("TryLock(%v) = %v, %v, want %v", exclusive, got, err, want)
	}
}

func writer(t *testing.T, f File, want bool) {
	t.Helper()
	if got, err := f.HasWriter(); err != nil || got != want {
		t.Fatalf("HasWriter = %v, %v, want %v", got, err, want)
	}
}

func TestLocks(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	a := create(t, OS(), name, "x")
	b, c := open(t, name, ReadWrite), open(t, name, ReadOnly)
	writer(t, c, false)
	lock(t, a, true, true)
	lock(t, b, true, false)
	lock(t, b, false, false)
	lock(t, c, false, false)
	writer(t, c, true)
	open(t, name, ReadOnly).Close() // closing another descriptor drops no lock
	lock(t, b, true, false)
	lock(t, a, false, true) // down to shared
	writer(t, c, false)
	lock(t, b, false, true)
	lock(t, a, true, false)
	b.Close()
	lock(t, a, true, true)
	a.Close()
	lock(t, c, false, true)
}

// A lock does not survive its descriptor in a child process.
func TestLocksAreCloseOnExec(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	a := create(t, OS(), name, "x")
	lock(t, a, true, true)
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip("no cat:", err)
	}
	a.Close()
	lock(t, open(t, name, ReadWrite), true, true)
	in.Close()
	cmd.Wait()
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	p := func(n string) string { return filepath.Join(dir, n) }
	f := create(t, OS(), p("a"), "one")
	create(t, OS(), p("b"), "two")
	is := func(err, want error, what string) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	_, err := OS().OpenFile(p("a"), CreateAppend)
	is(err, fs.ErrExist, "create again")
	is(OS().Link(p("a"), p("b")), fs.ErrExist, "link onto a file")
	is(OS().RenameNoReplace(p("a"), p("b")), fs.ErrExist, "rename onto a file")
	is(OS().RenameNoReplace(p("none"), p("c")), fs.ErrNotExist, "rename nothing")
	is(OS().Mkdir(p("d")), nil, "mkdir")
	is(OS().Mkdir(p("e")), nil, "mkdir")
	is(OS().RenameNoReplace(p("d"), p("e")), fs.ErrExist, "rename a directory onto an empty one")
	is(OS().RenameNoReplace(p("d"), p("d2")), nil, "rename a directory")
	is(OS().Link(p("a"), p("c")), nil, "link")
	x, _ := OS().Stat(p("a"))
	y, _ := OS().Stat(p("c"))
	z, _ := f.Stat()
	if !OS().SameFile(x, y) || !OS().SameFile(y, z) {
		t.Error("a link is another file")
	}
	is(OS().Remove(p("a")), nil, "remove")
	is(OS().Remove(p("a")), fs.ErrNotExist, "remove again")
	is(OS().SyncDir(dir), nil, "syncdir")
	is(OS().Writable(dir), nil, "writable")
	if info, _ := os.Stat(p("c")); info.Mode().Perm() != 0o600 {
		t.Error(info.Mode())
	}
	if info, _ := os.Stat(p("e")); info.Mode().Perm() != 0o700 {
		t.Error(info.Mode())
	}
	os.Symlink(p("b"), p("s"))
	if info, err := OS().Stat(p("s")); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Error("Stat follows a link")
	}
}

func TestFault(t *testing.T) {
	dir := t.TempDir()
	writes := func(c Call) bool { return c.Op == OpWrite }
	for name, tt := range map[string]struct {
		rule Rule
		want string // what is in the file after three writes of two bytes
		errs string // which of them failed
	}{
		"second":        {Rule{Match: writes, K: 2}, "aacc", ".x."},
		"from second":   {Rule{Match: writes, K: 2, Forever: true}, "aa", ".xx"},
		"short":         {Rule{Match: writes, K: 2, Short: 1}, "aabcc", ".x."},
		"done and fail": {Rule{Match: writes, K: 2, After: true}, "aabbcc", ".x."},
		"never":         {Rule{Match: writes, K: 9}, "aabbcc", "..."},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			fsys := Fault(OS(), tt.rule)
			f, err := fsys.OpenFile(path, CreateAppend)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			errs := ""
			for _, s := range []string{"aa", "bb", "cc"} {
				_, err := f.Write([]byte(s))
				switch {
				case err == nil:
					errs += "."
				case errors.Is(err, syscall.EIO):
					errs += "x"
				}
			}
			got, _ := os.ReadFile(path)
			if string(got) != tt.want || errs != tt.errs || fsys.Hits() != 3 {
				t.Errorf("file %q, errors %q, %d hits; want %q, %q", got, errs, fsys.Hits(), tt.want, tt.errs)
			}
		})
	}
}

func TestTrace(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	fsys := Trace(OS(), &out, func(s string) string { return strings.TrimPrefix(s, dir+"/") })
	f := create(t, fsys, dir+"/tmp", "abc")
	f.TryLock(true)
	f.SyncData()
	fsys.Link(dir+"/tmp", dir+"/name")
	f.Write([]byte("d"))
	fsys.Link(dir+"/tmp", dir+"/name")
	fsys.Stat(dir + "/gone")
	want := `create tmp
write tmp (3 bytes)
lock tmp (exclusive)
fdatasync tmp
link tmp -> name
write name (1 bytes)
link tmp -> name: exists
stat gone: not there
`
	if out.String() != want {
		t.Errorf("got:\n%s", out.String())
	}
}
