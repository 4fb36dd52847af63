package filestore

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/strandline-dev/strandline/vfs"
)

// The explorer's disk: names, files and locks, each change of which can be taken back. vfs.Mem is the same and more, but cannot
// go back; where a schedule is run once, both are asked and must answer the same.

// inode is a file or directory, with a name that does not depend on the schedule: who made it, as which of his.
type inode struct {
	key     string
	by      int // the process that made it; -1: it was there, or the meddler made it
	dir     bool
	data    []byte // replaced, never changed, by a write: what was read stays what it was
	sum     uint64 // folds key and content
	names   int
	open    int
	writers int // descriptors that can write
	public  bool
	locks   []*desc
}

// desc is a descriptor of a process.
type desc struct {
	i         *inode
	proc      *mover
	name      string
	mode      vfs.Mode
	locked    bool
	exclusive bool
	real      vfs.File
}

// modelDisk is what the processes share. sum folds all of it that anybody can find out: what has neither name nor descriptor is gone.
type modelDisk struct {
	names map[string]*inode
	sum   uint64
	made  int // by the meddler
	back  []func()
}

// undo remembers how to take back what follows.
func (d *modelDisk) undo(f func()) { d.back = append(d.back, f) }

// rollback takes back what was done since there were so many changes.
func (d *modelDisk) rollback(to int) {
	for len(d.back) > to {
		last := len(d.back) - 1
		d.back[last]()
		d.back = d.back[:last]
	}
}

// set changes a value of the world, and remembers what it was.
func set[T any](d *modelDisk, p *T, v T) {
	old := *p
	*p = v
	d.undo(func() { *p = old })
}

// toggle takes a fact into the sum, or out of it.
func (d *modelDisk) toggle(h uint64) { set(d, &d.sum, d.sum^h) }

// diskOf returns the disk that mem is now.
func diskOf(mem *vfs.Mem) *modelDisk {
	d := &modelDisk{names: map[string]*inode{"/": {key: "root", by: -1, dir: true}}}
	god := mem.Process()
	for _, name := range mem.Names() {
		info, err := god.Stat(name)
		if err != nil {
			panic(err)
		}
		i := &inode{key: "was " + name, by: -1, dir: info.IsDir()}
		if !i.dir {
			if i.data, err = mem.ReadFile(name); err != nil {
				panic(err)
			}
		}
		d.appear(name, i)
	}
	return d
}

// mem returns the disk as vfs.Mem has it.
func (d *modelDisk) mem() *vfs.Mem {
	m := vfs.NewMem(vfs.MemOptions{})
	god := m.Process()
	first := map[*inode]string{}
	for _, name := range d.all() {
		i := d.names[name]
		var err error
		switch {
		case name == "/":
		case i.dir:
			err = god.Mkdir(name)
		case first[i] != "":
			err = god.Link(first[i], name)
		default:
			first[i] = name
			var f vfs.File
			if f, err = god.OpenFile(name, vfs.CreateAppend); err == nil {
				_, err = f.Write(i.data)
				f.Close()
			}
		}
		if err != nil {
			panic(err)
		}
	}
	return m
}

func (d *modelDisk) all() []string {
	var all []string
	for name := range d.names {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// appear gives a new inode a name.
func (d *modelDisk) appear(name string, i *inode) {
	i.sum = mix(i.key, i.data)
	d.bind(name, i)
}

// weigh does what changes who can reach i, and keeps the sum right.
func (d *modelDisk) weigh(i *inode, change func()) {
	was := i.names+i.open > 0
	change()
	if now := i.names+i.open > 0; now != was {
		d.toggle(i.sum)
	}
}

func (d *modelDisk) bind(name string, i *inode) {
	d.weigh(i, func() { set(d, &i.names, i.names+1) })
	d.names[name] = i
	d.undo(func() { delete(d.names, name) })
	d.toggle(mix("name", name, i.key))
}

func (d *modelDisk) unbind(name string) {
	i := d.names[name]
	d.weigh(i, func() { set(d, &i.names, i.names-1) })
	delete(d.names, name)
	d.undo(func() { d.names[name] = i })
	d.toggle(mix("name", name, i.key))
}

// parent returns the directory of name.
func (d *modelDisk) parent(name string) (string, error) {
	up := path.Dir(name)
	for at := up; ; at = path.Dir(at) {
		i := d.names[at]
		if i != nil && !i.dir {
			return "", syscall.ENOTDIR
		}
		if i != nil && at == up {
			return up, nil
		}
		if i != nil {
			return "", syscall.ENOENT
		}
	}
}

// find returns what is at name.
func (d *modelDisk) find(name string) (*inode, error) {
	if i := d.names[name]; i != nil {
		return i, nil
	}
	if _, err := d.parent(name); err != nil {
		return nil, err
	}
	return nil, syscall.ENOENT
}

// list returns the names in a directory, sorted; those of directories end in a slash.
func (d *modelDisk) list(name string) ([]string, error) {
	i, err := d.find(name)
	if err == nil && !i.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, err
	}
	var list []string
	prefix := strings.TrimSuffix(name, "/") + "/"
	for full, c := range d.names {
		if base, ok := strings.CutPrefix(full, prefix); ok && base != "" && !strings.Contains(base, "/") {
			if c.dir {
				base += "/"
			}
			list = append(list, base)
		}
	}
	slices.Sort(list)
	return list, nil
}

func (d *modelDisk) link(old, now string) (*inode, error) {
	i, err := d.find(old)
	if err != nil {
		return nil, err
	}
	if i.dir {
		return nil, syscall.EPERM
	}
	if _, err := d.parent(now); err != nil {
		return nil, err
	}
	if d.names[now] != nil {
		return nil, syscall.EEXIST
	}
	d.bind(now, i)
	return i, nil
}

func (d *modelDisk) rename(old, now string) error {
	_, err1 := d.parent(old)
	_, err2 := d.parent(now)
	i := d.names[old]
	switch {
	case err1 != nil:
		return err1
	case err2 != nil:
		return err2
	case i == nil:
		return syscall.ENOENT
	case d.names[now] != nil:
		return syscall.EEXIST
	}
	for _, name := range d.all() {
		if rest, below := strings.CutPrefix(name, old); below && (rest == "" || i.dir && rest[0] == '/') {
			c := d.names[name]
			d.unbind(name)
			d.bind(now+rest, c)
		}
	}
	return nil
}

func (d *modelDisk) remove(name string) error {
	i, err := d.find(name)
	if err != nil {
		return err
	}
	if i.dir {
		if list, _ := d.list(name); len(list) > 0 {
			return syscall.ENOTEMPTY
		}
	}
	d.unbind(name)
	return nil
}

func (d *modelDisk) write(i *inode, b []byte) {
	d.toggle(i.sum)
	set(d, &i.data, append(slices.Clip(i.data), b...))
	set(d, &i.sum, mix(i.key, i.data))
	d.toggle(i.sum)
}

// descend counts a descriptor, or one less.
func (d *modelDisk) descend(f *desc, n int) {
	d.weigh(f.i, func() { set(d, &f.i.open, f.i.open+n) })
	if f.mode == vfs.CreateAppend {
		set(d, &f.i.writers, f.i.writers+n)
	}
}

// taken reports whether another descriptor's lock is in the way of this one's.
func (f *desc) taken(exclusive bool) bool {
	return slices.ContainsFunc(f.i.locks, func(o *desc) bool { return o != f && (exclusive || o.exclusive) })
}

func (d *modelDisk) lock(f *desc, exclusive bool) {
	d.unlock(f)
	set(d, &f.locked, true)
	set(d, &f.exclusive, exclusive)
	set(d, &f.i.locks, append(slices.Clip(f.i.locks), f))
	d.toggle(f.lockSum())
}

func (f *desc) lockSum() uint64 { return mix("lock", f.proc.n, f.i.key, f.exclusive) }

func (d *modelDisk) unlock(f *desc) {
	if !f.locked {
		return
	}
	d.toggle(f.lockSum())
	set(d, &f.locked, false)
	set(d, &f.i.locks, slices.DeleteFunc(slices.Clone(f.i.locks), func(o *desc) bool { return o == f }))
}

// put makes a file of the meddler's at name, which must be free.
func (w *world) put(name string, b []byte) {
	d := w.disk
	set(d, &d.made, d.made+1)
	d.appear(name, &inode{key: fmt.Sprint("meddled ", d.made), by: -1, data: b})
	if w.mem != nil {
		f, err := w.mem.Process().OpenFile(name, vfs.CreateAppend)
		if err == nil {
			_, err = f.Write(b)
			f.Close()
		}
		if err != nil {
			panic(err)
		}
	}
}

func (w *world) remove(name string) {
	err := w.disk.remove(name)
	if err == nil && w.mem != nil {
		err = w.mem.Process().Remove(name)
	}
	if err != nil {
		panic(err)
	}
}

// call is what a process asks of the disk, or of the world.
type call struct {
	op        vfs.Op
	name, to  string
	fd        int
	mode      vfs.Mode
	off       int64
	n         int
	b         []byte
	exclusive bool
	only      func(name string) bool // of a listing; nil: all
}

// What is asked beside the operations of vfs.
const (
	opClose   vfs.Op = "close"
	opDue     vfs.Op = "due"     // what is acknowledged now, and so must be seen
	opMeddled vfs.Op = "meddled" // whether the meddler has done something
)

// answer is all that a process is told.
type answer struct {
	err   error // without the names of the call
	key   string
	dir   bool
	ok    bool
	n     int
	names []string
	b     []byte
}

func (r answer) sum() uint64 {
	vs := []any{errName(r.err), r.key, r.dir, r.ok, r.n, r.b}
	for _, name := range r.names {
		vs = append(vs, name)
	}
	return mix(vs...)
}

func (r answer) stat(i *inode) answer {
	r.key, r.dir = i.key, i.dir
	if !i.dir {
		r.n = len(i.data)
	}
	return r
}

// do makes a call of a process.
func (w *world) do(p *mover, c call) answer {
	before := p.fd(c.fd)
	r := w.model(p, c)
	if w.mem != nil {
		w.compare(p, c, cmp.Or(before, p.fd(c.fd)), r)
	}
	if w.s.fault != nil {
		w.s.fault(c, &r)
	}
	if c.only != nil {
		r.names = slices.DeleteFunc(r.names, func(name string) bool { return !c.only(name) })
	}
	return r
}

func (p *mover) fd(n int) *desc {
	if n < len(p.fds) {
		return p.fds[n]
	}
	return nil
}

func (w *world) model(p *mover, c call) (r answer) {
	d := w.disk
	f := func() *desc { return p.fds[c.fd] }
	switch c.op {
	case vfs.OpOpen, vfs.OpCreate:
		var i *inode
		if i, r.err = d.find(c.name); i == nil && c.op == vfs.OpCreate {
			if _, r.err = d.parent(c.name); r.err == nil {
				i = w.make(p, c.name, false)
			}
		} else if i != nil && c.mode == vfs.CreateAppend {
			r.err = syscall.EEXIST
		} else if i != nil && i.dir && c.mode != vfs.ReadOnly {
			r.err = syscall.EISDIR
		}
		if r.err != nil {
			return r
		}
		r.key, r.dir = i.key, i.dir
		fds := append(slices.Clone(p.fds), make([]*desc, max(0, c.fd+1-len(p.fds)))...)
		fds[c.fd] = &desc{i: i, proc: p, name: c.name, mode: c.mode}
		set(d, &p.fds, fds)
		d.descend(f(), 1)
	case vfs.OpLink:
		var i *inode
		if i, r.err = d.link(c.name, c.to); r.err == nil {
			r.key = i.key
			set(d, &i.public, true)
			w.linked(p, i, c.to)
		}
	case vfs.OpRename:
		r.err = d.rename(c.name, c.to)
	case vfs.OpRemove:
		r.err = d.remove(c.name)
	case vfs.OpMkdir:
		if _, r.err = d.parent(c.name); r.err == nil {
			if r.err = syscall.EEXIST; d.names[c.name] == nil {
				r.err = nil
				w.make(p, c.name, true)
			}
		}
	case vfs.OpReadDir:
		r.names, r.err = d.list(c.name)
	case vfs.OpStat:
		var i *inode
		if i, r.err = d.find(c.name); r.err == nil {
			r = r.stat(i)
		}
	case vfs.OpSyncDir, vfs.OpAccess:
		_, r.err = d.find(c.name)
	case vfs.OpFileStat:
		r = r.stat(f().i)
	case vfs.OpWrite:
		if f().mode != vfs.CreateAppend {
			r.err = syscall.EBADF
			return r
		}
		if f().i.by != p.n {
			w.fail("%s wrote to %s, which is another's", p.name, f().name)
		}
		d.write(f().i, c.b)
		r.n = len(c.b)
	case vfs.OpRead:
		if i := f().i; i.dir {
			r.err = syscall.EISDIR
		} else if c.off < int64(len(i.data)) {
			r.b = i.data[c.off:min(c.off+int64(c.n), int64(len(i.data)))]
		}
	case vfs.OpLock:
		switch {
		case w.s.lockless(c.name): // nobody notices
			r.ok = true
		case c.exclusive && f().mode == vfs.ReadOnly:
			r.err = syscall.EBADF
		case !f().taken(c.exclusive):
			r.ok = true
			d.lock(f(), c.exclusive)
		}
	case vfs.OpHasWriter:
		r.ok = slices.ContainsFunc(f().i.locks, func(o *desc) bool { return o != f() && o.exclusive })
	case opClose:
		w.close(p, c.fd)
	case opDue:
		for _, q := range w.ackedSeqs() {
			r.names = append(r.names, fmt.Sprint(int(q), " ", w.acks[q]))
		}
	case opMeddled:
		r.ok = w.meddled > 0
	default:
		panic(c.op)
	}
	return r
}

func (w *world) make(p *mover, name string, dir bool) *inode {
	set(w.disk, &p.made, p.made+1)
	i := &inode{key: fmt.Sprint(p.name, " ", p.made), by: p.n, dir: dir}
	w.disk.appear(name, i)
	return i
}

func (w *world) close(p *mover, fd int) {
	f := p.fds[fd]
	w.disk.unlock(f)
	w.disk.descend(f, -1)
	fds := slices.Clone(p.fds)
	fds[fd] = nil
	set(w.disk, &p.fds, fds)
}

// linked is called when a claim has come to the name of a segment.
func (w *world) linked(p *mover, i *inode, name string) {
	if w.s.locks == noLock || !isSegment(name) {
		return
	}
	for _, f := range i.locks {
		if f.proc == p && f.exclusive {
			return
		}
	}
	w.fail("%s linked %s without having it locked", p.name, filepath.Base(name))
}

func isSegment(name string) bool {
	return strings.HasSuffix(name, segSuffix) && filepath.Dir(name) == subjectDir
}

// compare makes the call on a vfs.Mem as well.
func (w *world) compare(p *mover, c call, f *desc, want answer) {
	var got answer
	var info fs.FileInfo
	switch c.op {
	case vfs.OpOpen, vfs.OpCreate:
		var file vfs.File
		if file, got.err = p.real.OpenFile(c.name, c.mode); got.err == nil {
			f.real = file
			info, got.err = file.Stat()
			want = want.stat(f.i)
		}
	case vfs.OpLink:
		got.err = p.real.Link(c.name, c.to)
		got.key = want.key
	case vfs.OpRename:
		got.err = p.real.RenameNoReplace(c.name, c.to)
	case vfs.OpRemove:
		got.err = p.real.Remove(c.name)
	case vfs.OpMkdir:
		got.err = p.real.Mkdir(c.name)
	case vfs.OpReadDir:
		var list []fs.DirEntry
		list, got.err = p.real.ReadDir(c.name)
		for _, e := range list {
			name := e.Name()
			if e.IsDir() {
				name += "/"
			}
			got.names = append(got.names, name)
		}
		slices.Sort(got.names)
	case vfs.OpStat:
		info, got.err = p.real.Stat(c.name)
	case vfs.OpSyncDir:
		got.err = p.real.SyncDir(c.name)
	case vfs.OpAccess:
		got.err = p.real.Writable(c.name)
	case vfs.OpFileStat:
		info, got.err = f.real.Stat()
	case vfs.OpWrite:
		got.n, got.err = f.real.Write(c.b)
	case vfs.OpRead:
		b := make([]byte, c.n)
		n, err := f.real.ReadAt(b, c.off)
		if want.err != nil {
			got.err = err
		}
		if n > 0 {
			got.b = b[:n]
		}
	case vfs.OpLock:
		if got.ok = true; !w.s.lockless(c.name) {
			got.ok, got.err = f.real.TryLock(c.exclusive)
		}
	case vfs.OpHasWriter:
		got.ok, got.err = f.real.HasWriter()
	case opClose:
		f.real.Close()
	default:
		got = want
	}
	if info != nil {
		var id *inode
		if id = w.disk.names[c.name]; c.op != vfs.OpStat && f != nil {
			id = f.i
		}
		if id == nil {
			w.fail("the disks differ: %s %s of %s finds something only on the other", c.op, c.name, p.name)
			return
		}
		first := w.infos[id.key]
		if first == nil {
			w.infos[id.key] = info
		} else if !p.real.SameFile(first, info) {
			w.fail("the disks differ: %s %s is another file than %s", c.op, c.name, id.key)
		}
		got.key, got.dir = id.key, info.IsDir()
		if !got.dir {
			got.n = int(info.Size())
		}
	}
	if e, ok := errors.AsType[*fs.PathError](got.err); ok {
		got.err = e.Err
	}
	if got.sum() != want.sum() {
		w.fail("the disks differ: %s %s of %s: the explorer's says %+v, the other %+v", c.op, c.name, p.name, want, got)
	}
}
