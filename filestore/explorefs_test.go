package filestore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/strandline-dev/strandline/vfs"
)

// The explorer's disk. Each process of an explored world sees the disk in memory through an explorerFS, which gives
// the baton back before each call that others can notice or change the result of, and which folds every result into a
// number: a process is a function of what it was told, so two ways that told each process the same and left
// the same disk are one state.

var seed = maphash.MakeSeed()

func mix(vs ...any) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, v := range vs {
		switch v := v.(type) {
		case string:
			h.WriteString(v)
		case []byte:
			h.Write(v)
		case uint64:
			for i := range 8 {
				h.WriteByte(byte(v >> (8 * i)))
			}
		case int:
			for i := range 8 {
				h.WriteByte(byte(uint64(v) >> (8 * i)))
			}
		case bool:
			if v {
				h.WriteByte(1)
			}
		case error:
			h.WriteString(v.Error())
		case nil:
		default:
			panic(fmt.Sprintf("mix %T", v))
		}
		h.WriteByte(0xff)
	}
	return h.Sum64()
}

// node is a file or directory of the world, with a name that does not depend on the schedule: who made it, as
// which of his.
type node struct {
	key   string
	by    *actor // nil: it was there, or the meddler made it
	file  vfs.File
	info  fs.FileInfo
	bytes uint64 // folds the content
	dir   bool
}

// mirror repeats the names of the disk in memory, to fold them.
type mirror struct {
	mem   *vfs.Mem
	god   *vfs.Process
	names map[string]*node
	nodes []*node
	sum   uint64
	made  int // by the meddler
}

func mirrorOf(mem *vfs.Mem) *mirror {
	d := &mirror{mem: mem, god: mem.Process(), names: map[string]*node{}}
	for _, name := range mem.Names() {
		d.appear(name, "was "+name, nil)
	}
	return d
}

func (d *mirror) toggle(vs ...any) { d.sum ^= mix(vs...) }

// appear records a new inode.
func (d *mirror) appear(name, key string, by *actor) *node {
	n := &node{key: key, by: by}
	info, err := d.god.Stat(name)
	if err != nil {
		panic(err)
	}
	n.info, n.dir = info, info.IsDir()
	if !n.dir {
		if n.file, err = d.god.OpenFile(name, vfs.ReadOnly); err != nil {
			panic(err)
		}
		b := make([]byte, info.Size())
		n.file.ReadAt(b, 0)
		n.bytes = mix(n.key, b)
		d.sum ^= n.bytes
	}
	d.nodes = append(d.nodes, n)
	d.bind(name, n)
	return n
}

func (d *mirror) bind(name string, n *node) {
	d.names[name] = n
	d.toggle("name", name, n.key)
}

func (d *mirror) unbind(name string) {
	d.toggle("name", name, d.names[name].key)
	delete(d.names, name)
}

func (d *mirror) move(old, now string) {
	n := d.names[old]
	d.unbind(old)
	d.bind(now, n)
	if n.dir {
		var below []string
		for name := range d.names {
			if strings.HasPrefix(name, old+"/") {
				below = append(below, name)
			}
		}
		for _, name := range below {
			n := d.names[name]
			d.unbind(name)
			d.bind(now+name[len(old):], n)
		}
	}
}

func (d *mirror) wrote(n *node, b []byte) {
	d.sum ^= n.bytes
	n.bytes = mix(n.bytes, b)
	d.sum ^= n.bytes
}

func (d *mirror) content(n *node) []byte {
	info, err := n.file.Stat()
	if err != nil {
		panic(err)
	}
	b := make([]byte, info.Size())
	n.file.ReadAt(b, 0)
	return b
}

// put makes a file of the meddler's at name, which must be free.
func (d *mirror) put(name string, b []byte) {
	f, err := d.god.OpenFile(name, vfs.CreateAppend)
	if err == nil {
		_, err = f.Write(b)
		f.Close()
	}
	if err != nil {
		panic(err)
	}
	d.made++
	d.appear(name, fmt.Sprint("meddled ", d.made), nil)
}

func (d *mirror) remove(name string) {
	if err := d.god.Remove(name); err != nil {
		panic(err)
	}
	d.unbind(name)
}

// explorerFS is the disk as one process sees it.
type explorerFS struct {
	a *actor
}

// quiet says which files nobody but their holder can notice, or whose content decides nothing.
func (f explorerFS) quiet(name string) bool {
	fixed := len(f.a.w.s.meddles) == 0 && !f.a.w.s.unnamed || filepath.Base(name) == storeName
	if n := f.a.w.disk.names[name]; n != nil && n.by == nil && fixed {
		return true // it was there, and nobody changes it
	}
	return !f.a.w.loud && strings.HasPrefix(name, "/s/live/") || strings.Contains(name, "/"+newSession)
}

// enter gives the baton back, unless nobody can notice.
func (f explorerFS) enter(quiet bool, op vfs.Op, name string) error {
	if !quiet {
		f.a.yield(op, name)
	}
	if f.a.dead {
		return vfs.ErrKilled
	}
	return nil
}

// told folds what a call answered into the process.
func (f explorerFS) told(vs ...any) {
	f.a.local = mix(append(vs, f.a.local)...)
}

func errName(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, fs.ErrNotExist):
		return "not there"
	case errors.Is(err, fs.ErrExist):
		return "exists"
	}
	return err.Error()
}

func (f explorerFS) OpenFile(name string, mode vfs.Mode) (vfs.File, error) {
	op := vfs.OpOpen
	if mode == vfs.CreateAppend || mode == vfs.OpenOrCreate {
		op = vfs.OpCreate
	}
	if err := f.enter(f.quiet(name), op, name); err != nil {
		return nil, err
	}
	d := f.a.w.disk
	_, was := d.names[name]
	file, err := f.a.proc.OpenFile(name, mode)
	if err != nil {
		f.told("open", errName(err))
		return nil, err
	}
	if !was {
		f.a.made++
		d.appear(name, fmt.Sprint(f.a.name, " ", f.a.made), f.a)
	}
	n := d.names[name]
	f.told("open", n.key)
	return &explorerFile{File: file, fs: f, n: n, name: name}, nil
}

func (f explorerFS) Link(oldname, newname string) error {
	if err := f.enter(false, vfs.OpLink, newname); err != nil {
		return err
	}
	err := f.a.proc.Link(oldname, newname)
	if err == nil {
		n := f.a.w.disk.names[oldname]
		f.a.w.disk.bind(newname, n)
		f.a.linked(n, newname)
	}
	f.told("link", errName(err))
	return err
}

func (f explorerFS) RenameNoReplace(oldname, newname string) error {
	if err := f.enter(false, vfs.OpRename, newname); err != nil {
		return err
	}
	err := f.a.proc.RenameNoReplace(oldname, newname)
	if err == nil {
		f.a.w.disk.move(oldname, newname)
	}
	f.told("rename", errName(err))
	return err
}

func (f explorerFS) Remove(name string) error {
	if err := f.enter(f.quiet(name), vfs.OpRemove, name); err != nil {
		return err
	}
	err := f.a.proc.Remove(name)
	if err == nil {
		f.a.w.disk.unbind(name)
	}
	f.told("remove", errName(err))
	return err
}

func (f explorerFS) Mkdir(name string) error {
	if err := f.enter(f.quiet(name), vfs.OpMkdir, name); err != nil {
		return err
	}
	err := f.a.proc.Mkdir(name)
	if err == nil {
		f.a.made++
		f.a.w.disk.appear(name, fmt.Sprint(f.a.name, " ", f.a.made), f.a)
	}
	f.told("mkdir", errName(err))
	return err
}

func (f explorerFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.enter(false, vfs.OpReadDir, name); err != nil {
		return nil, err
	}
	list, err := f.a.proc.ReadDir(name)
	f.told("readdir", errName(err))
	for _, e := range list { // nobody in these scripts asks an entry for more than its name
		f.told(e.Name())
	}
	return list, err
}

func (f explorerFS) SyncDir(name string) error {
	if f.a.dead {
		return vfs.ErrKilled
	}
	return f.a.proc.SyncDir(name)
}

func (f explorerFS) Stat(name string) (fs.FileInfo, error) {
	if err := f.enter(f.quiet(name), vfs.OpStat, name); err != nil {
		return nil, err
	}
	info, err := f.a.proc.Stat(name)
	f.told("stat", errName(err))
	if err == nil {
		if n := f.a.w.disk.names[name]; n != nil { // not the root
			f.told(n.key)
		}
		if !info.IsDir() {
			f.told(int(info.Size()))
		}
	}
	return info, err
}

func (f explorerFS) SameFile(a, b fs.FileInfo) bool { return f.a.proc.SameFile(a, b) }

func (f explorerFS) Writable(name string) error {
	if f.a.dead {
		return vfs.ErrKilled
	}
	return f.a.proc.Writable(name)
}

// explorerFile is a descriptor of a process.
type explorerFile struct {
	vfs.File
	fs   explorerFS
	n    *node
	name string
	lock string // what it is, as it is folded into the disk
}

// own reports whether only this process knows the file: it made it, and it has no name that counts.
func (f *explorerFile) own() bool {
	return f.n.by == f.fs.a && !f.fs.a.public[f.n]
}

func (f *explorerFile) Write(b []byte) (int, error) {
	a := f.fs.a
	if err := f.fs.enter(f.own() || f.fs.quiet(f.name), vfs.OpWrite, f.name); err != nil {
		return 0, err
	}
	if f.n.by != a {
		a.w.fail("%s wrote to %s, which is another's", a.name, f.name)
	}
	n, err := f.File.Write(b)
	a.w.disk.wrote(f.n, b[:n])
	f.fs.told("write", n, errName(err))
	return n, err
}

func (f *explorerFile) ReadAt(b []byte, off int64) (int, error) {
	// What no process wrote does not change; a segment is read while it grows.
	if err := f.fs.enter(f.n.by == nil || f.own() || f.fs.quiet(f.name), vfs.OpRead, f.name); err != nil {
		return 0, err
	}
	n, err := f.File.ReadAt(b, off)
	f.fs.told("read", b[:n])
	return n, err
}

func (f *explorerFile) sync(do func() error) error {
	a := f.fs.a
	if a.dead {
		return vfs.ErrKilled
	}
	if a.syncs++; a.syncs == a.failSync {
		return errors.New("input/output error")
	}
	return do()
}

func (f *explorerFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *explorerFile) SyncData() error { return f.sync(f.File.SyncData) }

// Stat is asked for what does not change: which inode it is, or the size of a file that is whole.
func (f *explorerFile) Stat() (fs.FileInfo, error) {
	if f.fs.a.dead {
		return nil, vfs.ErrKilled
	}
	info, err := f.File.Stat()
	if err == nil && !info.IsDir() {
		f.fs.told(int(info.Size()))
	}
	return info, err
}

func (f *explorerFile) TryLock(exclusive bool) (bool, error) {
	a := f.fs.a
	if filepath.Base(f.name) == lockName { // who is refused asks again and again
		a.waits, a.exclusive = f, exclusive
	}
	err := f.fs.enter(f.own() || strings.HasPrefix(f.name, "/s/live/") && !a.w.loud, vfs.OpLock, f.name)
	a.waits = nil
	if err != nil {
		return false, err
	}
	if a.w.s.lockless(f.name) { // so nobody notices
		return true, nil
	}
	ok, err := f.File.TryLock(exclusive)
	if ok {
		f.unlock()
		f.lock = fmt.Sprint("lock ", a.name, " ", f.n.key, " ", exclusive)
		a.w.disk.toggle(f.lock)
		a.locks[f] = exclusive
	}
	f.fs.told("lock", ok, errName(err))
	return ok, err
}

func (f *explorerFile) unlock() {
	if f.lock != "" {
		f.fs.a.w.disk.toggle(f.lock)
		f.lock = ""
		delete(f.fs.a.locks, f)
	}
}

func (f *explorerFile) HasWriter() (bool, error) {
	if err := f.fs.enter(strings.HasPrefix(f.name, "/s/live/") && !f.fs.a.w.loud, vfs.OpHasWriter, f.name); err != nil {
		return false, err
	}
	yes, err := f.File.HasWriter()
	f.fs.told("probe", yes, errName(err))
	return yes, err
}

func (f *explorerFile) Close() error {
	// A lock that goes is noticed.
	if err := f.fs.enter(f.lock == "" || f.own() || strings.HasPrefix(f.name, "/s/live/") && !f.fs.a.w.loud, "close", f.name); err != nil {
		return err
	}
	f.unlock()
	return f.File.Close()
}
