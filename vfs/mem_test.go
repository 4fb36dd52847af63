package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func put(t testing.TB, fsys FS, name, content string) File {
	t.Helper()
	f, err := fsys.OpenFile(name, CreateAppend)
	if err == nil {
		_, err = f.Write([]byte(content))
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func ok(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// disk prints what is on it.
func disk(m *Mem) string {
	var out []string
	for _, name := range m.Names() {
		b, err := m.ReadFile(name)
		if err == nil {
			name += "=" + strings.ReplaceAll(string(b), "\x00", "0")
		}
		out = append(out, name[1:])
	}
	return strings.Join(out, " ")
}

// What may be found after loss of power, all of it: each row is the history and every outcome.
func TestCrash(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(t *testing.T, p FS)
		want []string
	}{
		"nothing synced": {func(t *testing.T, p FS) { put(t, p, "a", "x") }, []string{"", "a=", "a=0", "a=x"}},
		"a name without its bytes": {func(t *testing.T, p FS) {
			put(t, p, "a", "xy")
			ok(t, p.SyncDir("/"))
		}, []string{"a=", "a=0", "a=00", "a=0y", "a=x", "a=x0", "a=xy"}},
		"bytes without a name": {func(t *testing.T, p FS) { ok(t, put(t, p, "a", "x").Sync()) }, []string{"", "a=x"}},
		"both":                 {func(t *testing.T, p FS) { ok(t, put(t, p, "a", "x").SyncData(), p.SyncDir("/")) }, []string{"a=x"}},
		"more than was synced": {func(t *testing.T, p FS) {
			f := put(t, p, "a", "x")
			ok(t, f.Sync(), p.SyncDir("/"))
			f.Write([]byte("y"))
		}, []string{"a=x", "a=x0", "a=xy"}},
		"a sync by another descriptor": {func(t *testing.T, p FS) {
			put(t, p, "a", "x")
			f, err := p.OpenFile("a", ReadOnly)
			ok(t, err, f.SyncData(), p.SyncDir("/"))
		}, []string{"a=x"}},
		"a file in a directory that is not there": {func(t *testing.T, p FS) {
			ok(t, p.Mkdir("d"))
			ok(t, put(t, p, "d/a", "x").Sync(), p.SyncDir("/d"))
		}, []string{"", "d d/a=x"}},
		"link, then remove": {func(t *testing.T, p FS) {
			ok(t, put(t, p, "a", "x").Sync(), p.SyncDir("/"))
			ok(t, p.Link("a", "b"), p.Remove("a"))
		}, []string{"", "a=x", "a=x b=x", "b=x"}},
		"made, renamed": {func(t *testing.T, p FS) {
			ok(t, put(t, p, "a", "x").Sync(), p.RenameNoReplace("a", "b"))
		}, []string{"", "a=x", "b=x"}},
		"renamed into another directory, which was synced": {func(t *testing.T, p FS) {
			ok(t, p.Mkdir("d"), put(t, p, "a", "x").Sync(), p.SyncDir("/"))
			ok(t, p.RenameNoReplace("a", "d/a"), p.SyncDir("d"))
		}, []string{"a=x d", "d d/a=x"}},
		"the other one too": {func(t *testing.T, p FS) {
			ok(t, p.Mkdir("d"), put(t, p, "a", "x").Sync(), p.SyncDir("/"))
			ok(t, p.RenameNoReplace("a", "d/a"), p.SyncDir("d"), p.SyncDir("/"))
		}, []string{"d d/a=x"}},
		"a name that was used again, synced": {func(t *testing.T, p FS) {
			ok(t, p.Mkdir("d"), put(t, p, "a", "x").Sync(), p.SyncDir("/"))
			ok(t, p.RenameNoReplace("a", "d/a"))
			ok(t, put(t, p, "a", "y").Sync(), p.SyncDir("/"))
		}, []string{"a=y d d/a=x"}},
		"a removed file that is back": {func(t *testing.T, p FS) {
			ok(t, put(t, p, "a", "x").Sync(), p.SyncDir("/"), p.Remove("a"))
			ok(t, put(t, p, "a", "y").Sync())
		}, []string{"", "a=x", "a=y"}},
		"a removed tree": {func(t *testing.T, p FS) {
			ok(t, p.Mkdir("d"), p.SyncDir("/"))
			ok(t, put(t, p, "d/a", "x").Sync(), p.SyncDir("d"))
			ok(t, p.Remove("d/a"), p.Remove("d"))
		}, []string{"", "d", "d d/a=x"}},
		"what a failed sync dropped": {func(t *testing.T, p FS) {
			fp := Fault(p, Rule{K: 1, Drop: true, Match: func(c Call) bool { return c.Op == OpSync }})
			f := put(t, fp, "a", "x")
			if err := f.Sync(); !errors.Is(err, syscall.EIO) {
				t.Error(err)
			}
			f.Write([]byte("y"))
			ok(t, f.Sync(), p.SyncDir("/"))
		}, []string{"a=0y", "a=xy"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMem(MemOptions{Block: 1})
			tt.do(t, m.Process())
			for _, m := range []*Mem{m, m.Clone(), m.Clone().Clone()} {
				got := map[string]bool{}
				now := disk(m)
				if !Every(1000, func(c Chooser) bool { got[disk(m.Crash(c))] = true; return true }) {
					t.Fatal("too many outcomes")
				}
				list := []string{}
				for s := range got {
					list = append(list, s)
				}
				slices.Sort(list)
				if !slices.Equal(list, tt.want) {
					t.Errorf("got  %q\nwant %q", list, tt.want)
				}
				if s := disk(m); s != now || disk(m.Crash(Survived)) != now {
					t.Errorf("survivor %q of %q, then %q", disk(m.Crash(Survived)), now, s)
				}
			}
		})
	}
}

// What a crash left is all durable, and a clone goes its own way.
func TestCloneAndCrashAreWhole(t *testing.T) {
	m := NewMem(MemOptions{Block: 2})
	p := m.Process()
	f := put(t, p, "a", "abcdef")
	ok(t, f.Sync(), p.SyncDir("/"))
	f.Write([]byte("gh"))
	c := m.Clone()
	if m.Fingerprint("") != c.Fingerprint("") {
		t.Error("a clone has another fingerprint")
	}
	f.Write([]byte("XX"))
	g, err := c.Process().OpenFile("a", ReadOnly)
	ok(t, err, g.Sync())
	if m.Fingerprint("") == c.Fingerprint("") || m.Fingerprint("") == m.Crash(Survived).Fingerprint("") ||
		c.Fingerprint("") != c.Clone().Fingerprint("") || m.Crash(Lost).Fingerprint("") != m.Clone().Crash(Lost).Fingerprint("") {
		t.Error("fingerprints of equal disks differ, or the other way round")
	}
	for what, tt := range map[string][2]string{
		"the clone":      {disk(c), "a=abcdefgh"},
		"its crash":      {disk(c.Crash(Lost)), "a=abcdefgh"},
		"the first":      {disk(m), "a=abcdefghXX"},
		"its crash too":  {disk(m.Crash(Lost)), "a=abcdef"},
		"crash of crash": {disk(m.Crash(Survived).Crash(Lost)), "a=abcdefghXX"},
		"by chance":      {disk(m.Crash(Random(1, .5))), disk(m.Crash(Random(1, .5)))},
	} {
		if tt[0] != tt[1] {
			t.Errorf("%s: %q, want %q", what, tt[0], tt[1])
		}
	}
}

func TestKill(t *testing.T) {
	m := NewMem(MemOptions{})
	p, q := m.Process(), m.Process()
	f := put(t, p, "a", "x")
	lock(t, f, true, true)
	g, err := q.OpenFile("a", ReadWrite)
	ok(t, err)
	lock(t, g, true, false)
	writer(t, g, true)
	p.Kill()
	if _, err := f.Write([]byte("y")); !errors.Is(err, ErrKilled) {
		t.Error(err)
	}
	if err := p.Remove("a"); !errors.Is(err, ErrKilled) {
		t.Error(err)
	}
	if err := f.Close(); !errors.Is(err, ErrKilled) || p.Open() != 0 || q.Open() != 1 {
		t.Error(err, p.Open(), q.Open())
	}
	lock(t, g, true, true)
	if s := disk(m); s != "a=x" {
		t.Error(s)
	}
}

func TestSpace(t *testing.T) {
	m := NewMem(MemOptions{Block: 10, Limit: 50}) // the root takes 10
	p := m.Process()
	f := put(t, p, "a", strings.Repeat("x", 20))
	n, err := f.Write(make([]byte, 15))
	if n != 10 || !errors.Is(err, syscall.ENOSPC) || m.Used() != 50 {
		t.Fatal(n, err, m.Used())
	}
	if err := p.Mkdir("d"); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	ok(t, p.Link("a", "b"), p.Remove("a"), p.Remove("b"))
	if m.Used() != 50 {
		t.Fatal("an open file takes no room", m.Used())
	}
	f.Close()
	if m.Used() != 10 {
		t.Fatal(m.Used())
	}
	ok(t, p.Mkdir("d"))
	put(t, p, "d/a", "yyy")
	if n := m.Used(); m.Clone().Used() != n || m.Crash(Survived).Used() != n {
		t.Fatal(n, m.Clone().Used(), m.Crash(Survived).Used())
	}
	m.SetLimit(1)
	if err := p.Mkdir("e"); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	m.SetLimit(0)
	ok(t, p.Mkdir("e"))
}

func TestReadOnlyAndOwners(t *testing.T) {
	m := NewMem(MemOptions{})
	p, q := m.Process(), m.ProcessOf(7)
	ok(t, m.Chmod("/", 0o755))
	f := put(t, p, "a", "x")
	ok(t, p.Mkdir("d"), m.Chown("d", 7))
	for what, tt := range map[string]struct{ err, want error }{
		"open":            {func() error { _, err := q.OpenFile("a", ReadOnly); return err }(), fs.ErrPermission},
		"make":            {q.Mkdir("b"), fs.ErrPermission},
		"writable":        {q.Writable("/"), fs.ErrPermission},
		"writable owned":  {q.Writable("d"), nil},
		"list":            {func() error { _, err := q.ReadDir("/"); return err }(), nil},
		"list another's":  {func() error { _, err := p.ReadDir("d"); return err }(), fs.ErrPermission},
		"below another's": {func() error { _, err := p.Stat("d/x"); return err }(), fs.ErrPermission},
	} {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: %v, want %v", what, tt.err, tt.want)
		}
	}
	m.SetReadOnly(true)
	_, werr := f.Write([]byte("y"))
	_, oerr := p.OpenFile("a", ReadWrite)
	for _, err := range []error{werr, oerr, p.Mkdir("e"), p.Remove("a"), p.Link("a", "c"), p.RenameNoReplace("a", "c"), p.Writable("/")} {
		if !errors.Is(err, syscall.EROFS) {
			t.Error(err)
		}
	}
	m.SetReadOnly(false)
	ok(t, p.Remove("a"))
}

func BenchmarkMem(b *testing.B) {
	for range b.N {
		m := NewMem(MemOptions{})
		p := m.Process()
		ok(b, p.Mkdir("d"))
		for i := range 10 {
			f := put(b, p, fmt.Sprint("d/", i), "some text")
			ok(b, f.Sync(), f.Close())
		}
		m.Clone().Crash(Lost)
	}
}
