package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Layer returns what base holds with a layer above it that takes every change and every lock: base is read, and never
// written to, synced or locked. So whatever is done to the layer shows what it would do to base. What is written is held in memory, until
// nobody has the layer any more. Writable is asked of nobody: a layer can always be written to.
func Layer(base FS) FS {
	return &layer{base: base, mem: NewMem(MemOptions{}).Process(), over: map[string]entity{}, in: map[string]map[string]bool{}, locks: map[string]string{}}
}

// entity is what a name of a layer leads to: one of these, or nothing.
type entity struct {
	base string // a name in base, with what is below it there
	mem  string // a file in memory
	dir  bool   // a directory that was made: all that is in it is in the layer
}

func (e entity) none() bool { return e == entity{} }

type layer struct {
	base FS

	mu    sync.Mutex
	mem   *Process // the files that were made, and those that stand for the locks on files of base
	made  int
	over  map[string]entity          // by clean names: what differs from base, with all below it that is not named itself
	in    map[string]map[string]bool // the names of over, by their directories
	locks map[string]string          // by names in base, names in mem
}

// set makes name lead to e. What is below it is as it was.
func (l *layer) set(name string, e entity) {
	name = filepath.Clean(name)
	l.over[name] = e
	dir := filepath.Dir(name)
	if l.in[dir] == nil {
		l.in[dir] = map[string]bool{}
	}
	l.in[dir][name] = true
}

// at returns what name leads to, which base may not have. mu is held.
func (l *layer) at(name string) entity {
	name = filepath.Clean(name)
	for up := name; ; {
		if e, ok := l.over[up]; ok {
			switch {
			case up == name:
				return e
			case e.base == "":
				return entity{}
			}
			return entity{base: filepath.Join(e.base, name[len(up):])}
		}
		next := filepath.Dir(up)
		if next == up {
			return entity{base: name}
		}
		up = next
	}
}

// layerInfo is what is known of a name; the name in base, or in memory, may be another.
type layerInfo struct {
	fs.FileInfo
	name string
}

func (i layerInfo) Name() string { return i.name }

func (l *layer) stat(name string) (fs.FileInfo, error) {
	var info fs.FileInfo
	var err error
	switch e := l.at(name); {
	case e.base != "":
		info, err = l.base.Stat(e.base)
	case e.mem != "":
		info, err = l.mem.Stat(e.mem)
	case e.dir:
		info, err = l.mem.Stat("/")
	default:
		if up := filepath.Dir(filepath.Clean(name)); up != filepath.Clean(name) {
			if in, err := l.stat(up); err == nil && !in.IsDir() {
				return nil, pathError("stat", name, syscall.ENOTDIR)
			}
		}
		return nil, pathError("stat", name, syscall.ENOENT)
	}
	if err != nil {
		return nil, err
	}
	return layerInfo{info, filepath.Base(name)}, nil
}

// vacant says whether something can be made under name.
func (l *layer) vacant(op, name string) error {
	up, err := l.stat(filepath.Dir(filepath.Clean(name)))
	if err != nil {
		return err
	}
	if !up.IsDir() {
		return pathError(op, name, syscall.ENOTDIR)
	}
	if _, err := l.stat(name); err == nil {
		return pathError(op, name, syscall.EEXIST)
	}
	return nil
}

// file makes a file in memory.
func (l *layer) file(mode Mode) (string, File, error) {
	l.made++
	name := "/" + strconv.Itoa(l.made)
	f, err := l.mem.OpenFile(name, mode)
	return name, f, err
}

// OpenFile implements FS.
func (l *layer) OpenFile(name string, mode Mode) (File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	info, err := l.stat(name)
	if mode == CreateAppend || mode == OpenOrCreate && err != nil {
		if err := l.vacant("open", name); err != nil {
			return nil, err
		}
		made, f, err := l.file(mode)
		if err != nil {
			return nil, err
		}
		l.set(name, entity{mem: made})
		return &layerFile{File: f, name: name}, nil
	}
	if err != nil {
		return nil, err
	}
	if mode != ReadOnly && info.IsDir() {
		return nil, pathError("open", name, syscall.EISDIR)
	}
	var f File
	switch e := l.at(name); {
	case e.mem != "":
		f, err = l.mem.OpenFile(e.mem, mode)
	case e.dir:
		f, err = l.mem.OpenFile("/", ReadOnly)
	default:
		return l.below(name, e.base, mode)
	}
	if err != nil {
		return nil, err
	}
	return &layerFile{File: f, name: name}, nil
}

// below opens a file of base, for reading, and what is locked in its place.
func (l *layer) below(name, base string, mode Mode) (File, error) {
	f, err := l.base.OpenFile(base, ReadOnly)
	if err != nil {
		return nil, err
	}
	out := &layerFile{File: f, name: name}
	if there := l.locks[base]; there != "" {
		out.lock, err = l.mem.OpenFile(there, mode)
	} else {
		l.made++
		l.locks[base] = "/" + strconv.Itoa(l.made)
		var first File
		if first, err = l.mem.OpenFile(l.locks[base], OpenOrCreate); err == nil {
			out.lock, err = l.mem.OpenFile(l.locks[base], mode)
			first.Close()
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return out, nil
}

// Link implements FS.
func (l *layer) Link(oldname, newname string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	info, err := l.stat(oldname)
	if err != nil {
		return err
	}
	if err := l.vacant("link", newname); err != nil {
		return err
	}
	if info.IsDir() {
		return pathError("link", oldname, errors.Join(ErrNotSupported, syscall.EPERM))
	}
	l.set(newname, l.at(oldname))
	return nil
}

// RenameNoReplace implements FS.
func (l *layer) RenameNoReplace(oldname, newname string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.stat(oldname); err != nil {
		return err
	}
	if err := l.vacant("rename", newname); err != nil {
		return err
	}
	from, to := filepath.Clean(oldname), filepath.Clean(newname)
	if strings.HasPrefix(to, from+string(filepath.Separator)) {
		return pathError("rename", oldname, ErrNotSupported)
	}
	l.move(from, to)
	return nil
}

// move renames from, with what is below it.
func (l *layer) move(from, to string) {
	l.set(to, l.at(from))
	for name := range l.in[from] {
		l.move(name, filepath.Join(to, filepath.Base(name)))
	}
	l.clear(from)
}

// clear takes name away, with all that is below it.
func (l *layer) clear(name string) {
	for below := range l.in[name] {
		l.clear(below)
		delete(l.over, below)
	}
	delete(l.in, name)
	l.set(name, entity{})
}

// Remove implements FS.
func (l *layer) Remove(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	info, err := l.stat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		list, err := l.list(name)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			return pathError("remove", name, syscall.ENOTEMPTY)
		}
	}
	l.clear(filepath.Clean(name))
	return nil
}

// Mkdir implements FS.
func (l *layer) Mkdir(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.vacant("mkdir", name); err != nil {
		return err
	}
	l.clear(filepath.Clean(name))
	l.set(name, entity{dir: true})
	return nil
}

// ReadDir implements FS.
func (l *layer) ReadDir(name string) ([]fs.DirEntry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list(name)
}

func (l *layer) list(name string) ([]fs.DirEntry, error) {
	name = filepath.Clean(name)
	all := map[string]fs.DirEntry{}
	switch e := l.at(name); {
	case e.base != "":
		list, err := l.base.ReadDir(e.base)
		if err != nil {
			return nil, err
		}
		for _, d := range list {
			all[d.Name()] = d
		}
	case !e.dir:
		_, err := l.stat(name)
		if err == nil {
			err = pathError("readdir", name, syscall.ENOTDIR)
		}
		return nil, err
	}
	for n := range l.in[name] {
		if n == name { // the root is in itself
			continue
		}
		delete(all, filepath.Base(n))
		if l.over[n].none() {
			continue
		}
		info, err := l.stat(n)
		if err != nil {
			return nil, err
		}
		all[filepath.Base(n)] = fs.FileInfoToDirEntry(info)
	}
	out := make([]fs.DirEntry, 0, len(all))
	for _, d := range all {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}

// SyncDir implements FS.
func (l *layer) SyncDir(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.stat(name)
	return err
}

// Stat implements FS.
func (l *layer) Stat(name string) (fs.FileInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stat(name)
}

// SameFile implements FS.
func (l *layer) SameFile(a, b fs.FileInfo) bool {
	var mem [2]bool
	for i, info := range []*fs.FileInfo{&a, &b} {
		if own, ok := (*info).(layerInfo); ok {
			*info = own.FileInfo
		}
		_, mem[i] = (*info).(memInfo)
	}
	if mem[0] != mem[1] {
		return false
	}
	return mem[0] && l.mem.SameFile(a, b) || l.base.SameFile(a, b)
}

// Writable implements FS.
func (l *layer) Writable(name string) error { return l.SyncDir(name) }

// layerFile is a file in memory, or (lock is not nil) one of base that is read, with what stands for its locks.
type layerFile struct {
	File
	name string
	lock File
}

func (f *layerFile) Write(b []byte) (int, error) {
	if f.lock != nil {
		return 0, pathError("write", f.name, syscall.EBADF)
	}
	return f.File.Write(b)
}

func (f *layerFile) Sync() error {
	_, err := f.File.Stat()
	return err
}

func (f *layerFile) SyncData() error { return f.Sync() }

func (f *layerFile) Stat() (fs.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return nil, err
	}
	return layerInfo{info, filepath.Base(f.name)}, nil
}

func (f *layerFile) TryLock(exclusive bool) (bool, error) {
	if f.lock != nil {
		return f.lock.TryLock(exclusive)
	}
	return f.File.TryLock(exclusive)
}

func (f *layerFile) HasWriter() (bool, error) {
	yes, err := f.File.HasWriter()
	if f.lock == nil || yes || err != nil {
		return yes, err
	}
	return f.lock.HasWriter()
}

func (f *layerFile) Close() error {
	if f.lock != nil {
		f.lock.Close()
	}
	return f.File.Close()
}
