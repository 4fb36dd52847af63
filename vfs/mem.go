package vfs

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// ErrKilled is what every call of a process returns after Kill: nothing of it is done.
var ErrKilled = errors.New("the process is dead")

// MemOptions says how a Mem behaves. The zero value has blocks of 512 bytes and no limit.
type MemOptions struct {
	Block int   // bytes of a block: what loss of power keeps or takes; 0: 512
	Limit int64 // bytes that fit: content, and one block for each file and directory; 0: no limit
}

// Mem is a disk in memory which several processes use: what its names are and what its files hold, what of
// that is synced, and who has which lock. It is as strict as docs/format.md says that a disk may be: nothing
// survives loss of power but what was synced in the file, and named in a directory that was synced.
//
// A disk begins with an empty root directory, "/". There are no symbolic links. Times are a count of the
// changes. All methods are safe for concurrent use.
type Mem struct {
	mu      sync.Mutex
	block   int
	limit   int64
	ro      bool
	used    int64
	tick    int64
	root    *inode
	pending []*change // of names, not synced, in their order
}

// inode is a file (names is nil) or a directory.
type inode struct {
	mode  fs.FileMode
	owner int
	mtime int64
	links int // names that lead to it now
	open  int // descriptors

	data    []byte   // only appended to, so that clones may share it
	synced  int      // this many bytes survive loss of power,
	dropped [][2]int // but for these, whose sync failed

	names   map[string]*inode // now
	durable map[string]*inode // synced

	excl   *memFile
	shared map[*memFile]bool
}

// NewMem returns an empty disk.
func NewMem(opt MemOptions) *Mem {
	if opt.Block <= 0 {
		opt.Block = 512
	}
	m := &Mem{block: opt.Block, limit: opt.Limit, used: int64(opt.Block)}
	m.root = m.newDir(0)
	m.root.links = 1
	return m
}

func (m *Mem) newDir(owner int) *inode {
	return &inode{mode: fs.ModeDir | 0o700, owner: owner, names: map[string]*inode{}, durable: map[string]*inode{}}
}

// SetLimit changes how many bytes fit; 0: any number. What is there stays.
func (m *Mem) SetLimit(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = n
}

// Used returns what counts for the limit.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// SetReadOnly makes every change fail with EROFS, also through descriptors that are open.
func (m *Mem) SetReadOnly(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ro = yes
}

// Chmod sets the permission bits of name, durably.
func (m *Mem) Chmod(name string, perm fs.FileMode) error {
	return m.outside("chmod", name, func(i *inode) error {
		i.mode = i.mode.Type() | perm.Perm()
		return nil
	})
}

// Chown gives name to another user, durably. Users have the first permission bits for what they own, and the last
// for the rest; there are no groups and nobody is exempt.
func (m *Mem) Chown(name string, uid int) error {
	return m.outside("chown", name, func(i *inode) error {
		i.owner = uid
		return nil
	})
}

// Edit replaces the content of a file by what f makes of it, durably and whoever has it locked: what a broken disk
// or a careless person does. The file stays the same one.
func (m *Mem) Edit(name string, f func([]byte) []byte) error {
	return m.outside("edit", name, func(i *inode) error {
		if i.names != nil {
			return syscall.EISDIR
		}
		was := len(i.data)
		i.data = f(slices.Clone(i.data))
		m.used += int64(len(i.data) - was)
		i.synced, i.dropped = len(i.data), nil
		m.touch(i)
		return nil
	})
}

// ReadFile returns the content of a file, as processes see it now.
func (m *Mem) ReadFile(name string) (b []byte, err error) {
	err = m.outside("read", name, func(i *inode) error {
		if i.names != nil {
			return syscall.EISDIR
		}
		b = slices.Clone(i.data)
		return nil
	})
	return b, err
}

// Names returns every file and directory below the root, sorted.
func (m *Mem) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	var walk func(string, *inode)
	walk = func(at string, i *inode) {
		for name, c := range i.names {
			out = append(out, at+name)
			walk(at+name+"/", c)
		}
	}
	walk("/", m.root)
	slices.Sort(out)
	return out
}

// Changes counts what was written, named and synced: as long as it stays the same, so does what a crash may leave.
func (m *Mem) Changes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tick
}

func (m *Mem) outside(op, name string, f func(*inode) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.find(nil, name)
	if err == nil {
		err = f(i)
	}
	return pathError(op, name, err)
}

// Process returns the disk as a process of user 0 sees it. Its locks and descriptors end with Kill.
func (m *Mem) Process() *Process { return m.ProcessOf(0) }

// ProcessOf is Process for a user.
func (m *Mem) ProcessOf(uid int) *Process {
	return &Process{m: m, uid: uid, files: map[*memFile]bool{}}
}

// Process is an FS on a Mem.
type Process struct {
	m     *Mem
	uid   int
	dead  bool
	files map[*memFile]bool
}

var _ FS = (*Process)(nil)

// Kill ends the process as SIGKILL does: what it wrote stays, its locks are free, and every later call on it and on
// its files returns ErrKilled and does nothing.
func (p *Process) Kill() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.dead = true
	for f := range p.files {
		f.close()
	}
}

// Killed reports whether Kill was called.
func (p *Process) Killed() bool {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.dead
}

// Open returns how many descriptors are open.
func (p *Process) Open() int {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return len(p.files)
}

const (
	mayRead   = 4
	mayWrite  = 2
	maySearch = 1
)

func (p *Process) may(i *inode, what fs.FileMode) error {
	if p == nil {
		return nil
	}
	perm := i.mode.Perm()
	if p.uid == i.owner {
		perm >>= 6
	}
	if perm&what != what {
		return syscall.EACCES
	}
	return nil
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func split(name string) (dir, base string) {
	name = path.Join("/", filepath.ToSlash(name))
	dir, base = path.Split(name)
	return dir, base
}

// find returns the inode at name; p is nil for who may do everything.
func (m *Mem) find(p *Process, name string) (*inode, error) {
	at := m.root
	name = path.Join("/", filepath.ToSlash(name))[1:]
	for name != "" {
		if at.names == nil {
			return nil, syscall.ENOTDIR
		}
		if err := p.may(at, maySearch); err != nil {
			return nil, err
		}
		n := 0
		for n < len(name) && name[n] != '/' {
			n++
		}
		next := at.names[name[:n]]
		if next == nil {
			return nil, syscall.ENOENT
		}
		at, name = next, name[min(n+1, len(name)):]
	}
	return at, nil
}

// parent returns the directory of name, which may be searched, and what name is, if it is.
func (m *Mem) parent(p *Process, name string) (dir *inode, base string, i *inode, err error) {
	up, base := split(name)
	if dir, err = m.find(p, up); err != nil {
		return nil, base, nil, err
	}
	if dir.names == nil {
		return nil, base, nil, syscall.ENOTDIR
	}
	if err := p.may(dir, maySearch); err != nil {
		return nil, base, nil, err
	}
	if base == "" {
		return dir, base, dir, nil
	}
	return dir, base, dir.names[base], nil
}

// changing says whether names of dir may be changed.
func (m *Mem) changing(p *Process, dir *inode) error {
	if m.ro {
		return syscall.EROFS
	}
	return p.may(dir, mayWrite|maySearch)
}

func (m *Mem) touch(i *inode) {
	m.tick++
	i.mtime = m.tick
}

// do runs one call of the process.
func (p *Process) do(op, name string, f func() error) error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.dead {
		return pathError(op, name, ErrKilled)
	}
	return pathError(op, name, f())
}

// OpenFile implements FS.
func (p *Process) OpenFile(name string, mode Mode) (File, error) {
	m := p.m
	var file *memFile
	err := p.do("open", name, func() error {
		dir, base, i, err := m.parent(p, name)
		switch {
		case err != nil:
			return err
		case i == nil && (mode == CreateAppend || mode == OpenOrCreate):
			if err := m.changing(p, dir); err != nil {
				return err
			}
			i = &inode{mode: 0o600, owner: p.uid}
			if err := m.add(dir, base, i); err != nil {
				return err
			}
		case i == nil:
			return syscall.ENOENT
		case mode == CreateAppend:
			return syscall.EEXIST
		case mode == ReadOnly:
			if err := p.may(i, mayRead); err != nil {
				return err
			}
		case i.names != nil:
			return syscall.EISDIR
		default:
			if err := p.may(i, mayRead|mayWrite); err != nil {
				return err
			}
			if m.ro {
				return syscall.EROFS
			}
		}
		file = &memFile{p: p, i: i, name: name, mode: mode}
		i.open++
		p.files[file] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return file, nil
}

// add makes a new inode with a name.
func (m *Mem) add(dir *inode, base string, i *inode) error {
	if !m.fits(int64(m.block)) {
		return syscall.ENOSPC
	}
	m.used += int64(m.block)
	m.touch(i)
	m.change(entry{dir, base, nil, i})
	return nil
}

func (m *Mem) fits(n int64) bool { return m.limit == 0 || m.used+n <= m.limit }

// Link implements FS.
func (p *Process) Link(oldname, newname string) error {
	m := p.m
	err := p.do("link", oldname, func() error {
		i, err := m.find(p, oldname)
		if err != nil {
			return err
		}
		if i.names != nil {
			return syscall.EPERM
		}
		dir, base, there, err := m.parent(p, newname)
		if err != nil {
			return err
		}
		if there != nil {
			return syscall.EEXIST
		}
		if err := m.changing(p, dir); err != nil {
			return err
		}
		m.change(entry{dir, base, nil, i})
		return nil
	})
	if errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
		return errors.Join(ErrNotSupported, err)
	}
	return err
}

// RenameNoReplace implements FS.
func (p *Process) RenameNoReplace(oldname, newname string) error {
	m := p.m
	err := p.do("rename", oldname, func() error {
		from, oldbase, i, err := m.parent(p, oldname)
		if err != nil {
			return err
		}
		to, newbase, there, err := m.parent(p, newname)
		switch {
		case err != nil:
			return err
		case i == nil:
			return syscall.ENOENT
		case there != nil:
			return syscall.EEXIST
		case i == m.root || i == to || within(i, to):
			return syscall.EINVAL
		}
		if err := m.changing(p, from); err != nil {
			return err
		}
		if err := m.changing(p, to); err != nil {
			return err
		}
		m.change(entry{from, oldbase, i, nil}, entry{to, newbase, nil, i})
		return nil
	})
	if errors.Is(err, syscall.EINVAL) {
		return errors.Join(ErrNotSupported, err)
	}
	return err
}

// within reports whether d lies below i.
func within(i, d *inode) bool {
	for _, c := range i.names {
		if c.names != nil && (c == d || within(c, d)) {
			return true
		}
	}
	return false
}

// Remove implements FS.
func (p *Process) Remove(name string) error {
	m := p.m
	return p.do("remove", name, func() error {
		dir, base, i, err := m.parent(p, name)
		switch {
		case err != nil:
			return err
		case i == nil:
			return syscall.ENOENT
		case i == m.root:
			return syscall.EINVAL
		}
		if err := m.changing(p, dir); err != nil {
			return err
		}
		if len(i.names) > 0 {
			return syscall.ENOTEMPTY
		}
		m.change(entry{dir, base, i, nil})
		return nil
	})
}

// Mkdir implements FS.
func (p *Process) Mkdir(name string) error {
	m := p.m
	return p.do("mkdir", name, func() error {
		dir, base, i, err := m.parent(p, name)
		if err != nil {
			return err
		}
		if i != nil {
			return syscall.EEXIST
		}
		if err := m.changing(p, dir); err != nil {
			return err
		}
		return m.add(dir, base, m.newDir(p.uid))
	})
}

// ReadDir implements FS.
func (p *Process) ReadDir(name string) (list []fs.DirEntry, err error) {
	err = p.do("open", name, func() error {
		i, err := p.m.find(p, name)
		if err != nil {
			return err
		}
		if i.names == nil {
			return syscall.ENOTDIR
		}
		if err := p.may(i, mayRead); err != nil {
			return err
		}
		for _, base := range slices.Sorted(maps.Keys(i.names)) {
			list = append(list, fs.FileInfoToDirEntry(i.names[base].info(base)))
		}
		return nil
	})
	return list, err
}

// SyncDir implements FS.
func (p *Process) SyncDir(name string) error {
	return p.do("sync", name, func() error {
		i, err := p.m.find(p, name)
		if err != nil {
			return err
		}
		if err := p.may(i, mayRead); err != nil {
			return err
		}
		p.m.sync(i)
		return nil
	})
}

// Stat implements FS.
func (p *Process) Stat(name string) (info fs.FileInfo, err error) {
	err = p.do("lstat", name, func() error {
		i, err := p.m.find(p, name)
		if err == nil {
			info = i.info(path.Base(filepath.ToSlash(name)))
		}
		return err
	})
	return info, err
}

// SameFile implements FS.
func (p *Process) SameFile(a, b fs.FileInfo) bool {
	x, ok1 := a.(memInfo)
	y, ok2 := b.(memInfo)
	return ok1 && ok2 && x.i == y.i
}

// Writable implements FS.
func (p *Process) Writable(name string) error {
	return p.do("access", name, func() error {
		i, err := p.m.find(p, name)
		if err != nil {
			return err
		}
		return p.m.changing(p, i)
	})
}

// free gives back the room of an inode that nobody can reach.
func (m *Mem) free(i *inode) {
	if i.links == 0 && i.open == 0 {
		m.used -= int64(len(i.data)) + int64(m.block)
	}
}
