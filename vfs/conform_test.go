//go:build linux || darwin

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// kind is what a caller can tell of an error.
func kind(err error) string {
	var out []string
	for _, k := range []struct {
		err  error
		name string
	}{
		{io.EOF, "EOF"}, {fs.ErrNotExist, "not there"}, {fs.ErrExist, "exists"}, {fs.ErrPermission, "permission"}, {fs.ErrClosed, "closed"},
		{ErrNotSupported, "not supported"}, {syscall.ENOTDIR, "not a directory"}, {syscall.EISDIR, "a directory"}, {syscall.EBADF, "bad"},
	} {
		if errors.Is(err, k.err) {
			out = append(out, k.name)
		}
	}
	if err != nil && out == nil {
		out = append(out, "failed: "+err.Error())
	}
	return strings.Join(out, ", ")
}

// TestConformance makes the same calls on the machine's file system, on a disk in memory and on a layer above either: the simulation is
// worth what its answers are like the real ones.
func TestConformance(t *testing.T) {
	script := func(t *testing.T, fsys FS, root string) []string {
		var out []string
		say := func(what string, args ...any) {
			for i, a := range args {
				if err, ok := a.(error); ok {
					args[i] = kind(err)
				}
			}
			out = append(out, what+": "+strings.TrimSpace(fmt.Sprintln(args...)))
		}
		at := func(n string) string { return filepath.Join(root, n) }
		names := map[string]File{}
		open := func(key, name string, mode Mode) File {
			f, err := fsys.OpenFile(at(name), mode)
			say("open "+key, err)
			if err == nil {
				names[key] = f
				t.Cleanup(func() { f.Close() })
			}
			return f
		}
		stat := func(name string) fs.FileInfo {
			i, err := fsys.Stat(at(name))
			if err != nil {
				say("stat "+name, err)
				return nil
			}
			size := i.Size()
			if i.IsDir() {
				size = 0
			}
			say("stat "+name, i.Name(), size, i.Mode())
			return i
		}
		list := func(name string) {
			l, err := fsys.ReadDir(at(name))
			say("list "+name, err)
			for _, e := range l {
				i, err := e.Info()
				say("  ", e.Name(), e.IsDir(), e.Type(), i.Mode(), err)
			}
		}
		read := func(key string, n int, off int64) {
			b := make([]byte, n)
			n, err := names[key].ReadAt(b, off)
			say("read "+key, n, err, string(b[:n]))
		}
		write := func(key, text string) {
			n, err := names[key].Write([]byte(text))
			say("write "+key, n, err)
		}
		lock := func(key string, ex bool) {
			got, err := names[key].TryLock(ex)
			say(fmt.Sprint("lock ", key, " ", ex), got, err)
		}
		probe := func(key string) {
			got, err := names[key].HasWriter()
			say("probe "+key, got, err)
		}

		list("")
		open("none", "a", ReadOnly)
		open("none", "a", ReadWrite)
		open("a", "a", CreateAppend)
		write("a", "hello")
		write("a", "")
		open("again", "a", CreateAppend)
		open("r", "a", ReadOnly)
		open("w", "a", ReadWrite)
		open("o", "a", OpenOrCreate)
		open("b", "b", OpenOrCreate)
		say("mkdir", fsys.Mkdir(at("d")))
		say("mkdir again", fsys.Mkdir(at("d")))
		say("mkdir over a file", fsys.Mkdir(at("a")))
		say("mkdir below nothing", fsys.Mkdir(at("x/y")))
		say("mkdir below a file", fsys.Mkdir(at("a/y")))
		open("dir", "d", ReadOnly)
		open("dir w", "d", ReadWrite)
		open("dir c", "d", CreateAppend)
		open("dir o", "d", OpenOrCreate)
		open("below a file", "a/x", ReadOnly)
		open("below nothing", "x/y", CreateAppend)
		list("")
		list("a")
		list("none")

		for _, off := range []int64{0, 2, 5, 9} {
			read("r", 3, off)
			read("a", 5, off)
			read("r", 0, off)
		}
		read("dir", 3, 0)
		for _, key := range []string{"a", "r", "w", "dir"} {
			say("sync "+key, names[key].Sync(), names[key].SyncData())
			i, err := names[key].Stat()
			say("fstat "+key, i.IsDir(), i.Mode(), err)
		}
		write("r", "x")
		say("syncdir", fsys.SyncDir(at("")), fsys.SyncDir(at("d")), fsys.SyncDir(at("none")))
		say("writable", fsys.Writable(at("")), fsys.Writable(at("d")), fsys.Writable(at("none")))

		one := stat("a")
		say("link", fsys.Link(at("a"), at("l")))
		say("link again", fsys.Link(at("a"), at("l")))
		say("link to itself", fsys.Link(at("a"), at("a")))
		say("link onto a directory", fsys.Link(at("a"), at("d")))
		say("link nothing", fsys.Link(at("none"), at("m")))
		say("link below nothing", fsys.Link(at("a"), at("x/m")))
		say("link a directory", fsys.Link(at("d"), at("m")))
		two, three := stat("l"), stat("b")
		f, _ := names["r"].Stat()
		say("same", fsys.SameFile(one, two), fsys.SameFile(two, f), fsys.SameFile(two, three))
		say("remove", fsys.Remove(at("a")))
		say("remove again", fsys.Remove(at("a")))
		write("a", " there")
		read("r", 20, 0)
		stat("l")
		stat("a")
		stat("l/x")

		say("rename", fsys.RenameNoReplace(at("l"), at("a")))
		say("rename nothing", fsys.RenameNoReplace(at("l"), at("m")))
		say("rename onto a file", fsys.RenameNoReplace(at("a"), at("b")))
		say("rename onto itself", fsys.RenameNoReplace(at("a"), at("a")))
		say("rename onto a directory", fsys.RenameNoReplace(at("a"), at("d")))
		say("rename into nothing", fsys.RenameNoReplace(at("a"), at("x/a")))
		say("rename into itself", fsys.RenameNoReplace(at("d"), at("d/e")))
		say("rename into", fsys.RenameNoReplace(at("a"), at("d/a")))
		say("mkdir", fsys.Mkdir(at("e")))
		say("rename a directory onto one", fsys.RenameNoReplace(at("d"), at("e")))
		say("remove a full directory", fsys.Remove(at("d")))
		say("rename a directory", fsys.RenameNoReplace(at("d"), at("e/d")))
		list("e")
		list("e/d")
		stat("e/d/a")
		say("remove an empty directory", fsys.Remove(at("e/d/a")), fsys.Remove(at("e/d")))
		list("")

		lock("a", true)
		lock("a", true)
		lock("w", true)
		lock("r", false)
		probe("r")
		probe("w")
		lock("a", false)
		probe("r")
		lock("r", false)
		lock("w", false)
		lock("a", true)
		names["r"].Close()
		lock("a", true)
		names["w"].Close()
		lock("a", true)
		probe("o")
		lock("b", true) // another file
		say("close", names["a"].Close())
		probe("o")
		lock("o", true)
		say("close again", names["a"].Close())
		write("a", "x")
		read("a", 1, 0)
		say("sync of a closed one", names["a"].Sync())
		_, err := names["a"].Stat()
		say("fstat of a closed one", err)
		return out
	}
	real := script(t, OS(), t.TempDir())
	p := NewMem(MemOptions{}).Process()
	ok(t, p.Mkdir("/store"))
	above := Layer(OS())
	for name, got := range map[string][]string{
		"memory":                    script(t, p, "/store"),
		"a layer above the machine": script(t, Layer(OS()), t.TempDir()),
		"a layer above a layer":     script(t, Layer(above), t.TempDir()),
	} {
		for i := range max(len(real), len(got)) {
			a, b := "", ""
			if i < len(real) {
				a = real[i]
			}
			if i < len(got) {
				b = got[i]
			}
			if a != b {
				t.Errorf("the machine: %q, %s: %q", a, name, b)
			}
		}
	}
}
