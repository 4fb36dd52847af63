package filestore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/vfs"
)

// What a process of an explored world has in the place of a file system: each call is handed out, and answered by who runs
// the process. All answers are folded into a number: a process is a function of what it was told.

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

// ask hands a call out, and returns what it answered. Of a process that has died nothing more is asked.
func (a *actor) ask(c call) answer {
	if a.dead {
		return answer{err: vfs.ErrKilled}
	}
	a.code.calls <- c
	r, ok := <-a.code.answers
	if !ok {
		a.dead = true
		return answer{err: vfs.ErrKilled}
	}
	a.local = mix(a.local, r.sum())
	if r.err != nil {
		r.err = &fs.PathError{Op: string(c.op), Path: c.name, Err: r.err}
	}
	return r
}

// explorerFS is the disk as one process sees it.
type explorerFS struct {
	a *actor
}

func (f explorerFS) OpenFile(name string, mode vfs.Mode) (vfs.File, error) {
	op := vfs.OpOpen
	if mode == vfs.CreateAppend || mode == vfs.OpenOrCreate {
		op = vfs.OpCreate
	}
	fd := slices.Index(f.a.files, nil)
	if fd < 0 {
		fd, f.a.files = len(f.a.files), append(f.a.files, nil)
	}
	r := f.a.ask(call{op: op, name: name, mode: mode, fd: fd})
	if r.err != nil {
		return nil, r.err
	}
	file := &explorerFile{a: f.a, fd: fd, name: name, key: r.key, mode: mode}
	f.a.files[fd] = file
	return file, nil
}

func (f explorerFS) Link(oldname, newname string) error {
	r := f.a.ask(call{op: vfs.OpLink, name: oldname, to: newname})
	if r.err == nil && isSegment(newname) {
		f.a.links(newname, r.key)
	}
	return r.err
}

func (f explorerFS) RenameNoReplace(oldname, newname string) error {
	return f.a.ask(call{op: vfs.OpRename, name: oldname, to: newname}).err
}

func (f explorerFS) Remove(name string) error { return f.a.ask(call{op: vfs.OpRemove, name: name}).err }
func (f explorerFS) Mkdir(name string) error  { return f.a.ask(call{op: vfs.OpMkdir, name: name}).err }
func (f explorerFS) SyncDir(name string) error {
	return f.a.ask(call{op: vfs.OpSyncDir, name: name}).err
}
func (f explorerFS) Writable(name string) error {
	return f.a.ask(call{op: vfs.OpAccess, name: name}).err
}

func (f explorerFS) ReadDir(name string) ([]fs.DirEntry, error) {
	r := f.a.ask(call{op: vfs.OpReadDir, name: name, only: f.a.looksFor()})
	var list []fs.DirEntry
	for _, base := range r.names {
		base, dir := strings.CutSuffix(base, "/")
		list = append(list, explorerEntry{f, filepath.Join(name, base), dir})
	}
	return list, r.err
}

// looksFor says which names a listing is asked for by who asks; nil: for all. A process that is told no others cannot go by
// them, and is the same whether they were there or not. What asks for less than it goes by shows in TestReductions.
func (a *actor) looksFor() func(name string) bool {
	if a.plain {
		return nil
	}
	segment := func(name string) bool { _, ok := parseSegName(name); return ok }
	pcs := make([]uintptr, 8)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		frame, more := frames.Next()
		_, caller, _ := strings.Cut(frame.Function, "filestore.(*")
		switch {
		case caller == "Store).segmentNames":
			return segment
		case caller == "writer).sweep":
			return func(name string) bool { return strings.HasPrefix(name, newSegment) }
		case (caller == "writer).look" || caller == "writer).unchanged") && a.w != nil: // and so the claims of others below where it ends
			end, mine := a.w.next.Next, ""
			if try := a.w.try; try != nil && caller == "writer).unchanged" {
				end, mine = try.seg.first, try.tmp
			} else if try != nil {
				end, mine = max(end, try.end.Next), try.tmp
			}
			return func(name string) bool {
				first, claim := claimOf(name)
				return segment(name) || claim && first < end && name != filepath.Base(mine)
			}
		case !more:
			return nil
		}
	}
}

func (f explorerFS) Stat(name string) (fs.FileInfo, error) {
	r := f.a.ask(call{op: vfs.OpStat, name: name})
	if r.err != nil {
		return nil, r.err
	}
	return explorerInfo{name, r}, nil
}

func (f explorerFS) SameFile(a, b fs.FileInfo) bool {
	x, ok1 := a.(explorerInfo)
	y, ok2 := b.(explorerInfo)
	return ok1 && ok2 && x.r.key == y.r.key
}

// explorerEntry is a name in a listing. What else is asked of it is asked then.
type explorerEntry struct {
	fs   explorerFS
	path string
	dir  bool
}

func (e explorerEntry) Name() string               { return filepath.Base(e.path) }
func (e explorerEntry) IsDir() bool                { return e.dir }
func (e explorerEntry) Info() (fs.FileInfo, error) { return e.fs.Stat(e.path) }
func (e explorerEntry) Type() fs.FileMode {
	if e.dir {
		return fs.ModeDir
	}
	return 0
}

// explorerInfo knows no times: there is no clock.
type explorerInfo struct {
	name string
	r    answer
}

func (i explorerInfo) Name() string       { return filepath.Base(i.name) }
func (i explorerInfo) Size() int64        { return int64(i.r.n) }
func (i explorerInfo) ModTime() time.Time { return time.Time{} }
func (i explorerInfo) IsDir() bool        { return i.r.dir }
func (i explorerInfo) Sys() any           { return nil }
func (i explorerInfo) Mode() fs.FileMode {
	if i.r.dir {
		return fs.ModeDir | 0o700
	}
	return 0o600
}

// explorerFile is a descriptor of a process.
type explorerFile struct {
	a      *actor
	fd     int
	name   string
	key    string // of its inode
	mode   vfs.Mode
	locked string
	closed bool
}

func (f *explorerFile) ask(c call) answer {
	if f.closed {
		return answer{err: fs.ErrClosed}
	}
	c.fd, c.name = f.fd, f.name
	return f.a.ask(c)
}

func (f *explorerFile) Write(b []byte) (int, error) {
	r := f.ask(call{op: vfs.OpWrite, b: slices.Clone(b)})
	return r.n, r.err
}

func (f *explorerFile) ReadAt(b []byte, off int64) (int, error) {
	r := f.ask(call{op: vfs.OpRead, off: off, n: len(b)})
	if r.err != nil {
		return 0, r.err
	}
	n := copy(b, r.b)
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *explorerFile) sync() error {
	a := f.a
	if a.dead {
		return vfs.ErrKilled
	}
	if a.syncs++; a.syncs == a.s.failSync[a.n] {
		return errors.New("input/output error")
	}
	return nil
}

func (f *explorerFile) Sync() error     { return f.sync() }
func (f *explorerFile) SyncData() error { return f.sync() }

func (f *explorerFile) Stat() (fs.FileInfo, error) {
	r := f.ask(call{op: vfs.OpFileStat})
	if r.err != nil {
		return nil, r.err
	}
	return explorerInfo{f.name, r}, nil
}

func (f *explorerFile) TryLock(exclusive bool) (bool, error) {
	r := f.ask(call{op: vfs.OpLock, exclusive: exclusive})
	if r.ok {
		f.locked = fmt.Sprint("locked ", exclusive)
	}
	return r.ok, r.err
}

func (f *explorerFile) HasWriter() (bool, error) {
	r := f.ask(call{op: vfs.OpHasWriter})
	return r.ok, r.err
}

func (f *explorerFile) Close() error {
	r := f.ask(call{op: opClose})
	if r.err == nil {
		f.closed = true
		f.a.files[f.fd] = nil
	}
	return r.err
}
