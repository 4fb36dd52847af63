package vfs

import (
	"fmt"
	"io/fs"
)

// Op names a call of FS or File.
type Op string

// The calls. Close and SameFile are not intercepted.
const (
	OpOpen      Op = "open"
	OpCreate    Op = "create" // OpenFile with a mode that creates
	OpLink      Op = "link"
	OpRename    Op = "rename"
	OpRemove    Op = "remove"
	OpMkdir     Op = "mkdir"
	OpReadDir   Op = "readdir"
	OpSyncDir   Op = "syncdir"
	OpStat      Op = "stat"
	OpAccess    Op = "access"
	OpWrite     Op = "write"
	OpRead      Op = "read"
	OpSync      Op = "sync"
	OpSyncData  Op = "fdatasync"
	OpFileStat  Op = "fstat"
	OpLock      Op = "lock"
	OpHasWriter Op = "probe"
)

// Call is one intercepted call.
type Call struct {
	Op   Op
	Name string
	To   string // OpLink, OpRename: the new name

	// Limit is the number of bytes that an OpWrite will write; an interceptor may lower it, and then
	// returns an error as a short write does.
	Limit int

	drop func() // a sync's: nothing that is unsynced will ever be durable

	// Result says what came of it, for a trace: set once the call was made.
	Result string
}

// Around returns base with f around every call. f runs do to make the call, or does not, and returns
// the error that the caller sees. It may be called concurrently.
func Around(base FS, f func(c *Call, do func() error) error) FS { return &aroundFS{base, f} }

type aroundFS struct {
	base FS
	f    func(*Call, func() error) error
}

func (a *aroundFS) OpenFile(name string, mode Mode) (file File, err error) {
	c := &Call{Op: OpOpen, Name: name}
	if mode == CreateAppend || mode == OpenOrCreate {
		c.Op = OpCreate
	}
	err = a.f(c, func() (err error) {
		file, err = a.base.OpenFile(name, mode)
		return err
	})
	if err != nil {
		if file != nil {
			file.Close()
		}
		return nil, err
	}
	return &aroundFile{file, a, name}, nil
}

func (a *aroundFS) Link(oldname, newname string) error {
	return a.f(&Call{Op: OpLink, Name: oldname, To: newname}, func() error { return a.base.Link(oldname, newname) })
}

func (a *aroundFS) RenameNoReplace(oldname, newname string) error {
	return a.f(&Call{Op: OpRename, Name: oldname, To: newname}, func() error { return a.base.RenameNoReplace(oldname, newname) })
}

func (a *aroundFS) Remove(name string) error {
	return a.f(&Call{Op: OpRemove, Name: name}, func() error { return a.base.Remove(name) })
}

func (a *aroundFS) Mkdir(name string) error {
	return a.f(&Call{Op: OpMkdir, Name: name}, func() error { return a.base.Mkdir(name) })
}

func (a *aroundFS) ReadDir(name string) (list []fs.DirEntry, err error) {
	c := &Call{Op: OpReadDir, Name: name}
	err = a.f(c, func() (err error) {
		list, err = a.base.ReadDir(name)
		c.Result = fmt.Sprintf("%d names", len(list))
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (a *aroundFS) SyncDir(name string) error {
	return a.f(&Call{Op: OpSyncDir, Name: name}, func() error { return a.base.SyncDir(name) })
}

func (a *aroundFS) Stat(name string) (info fs.FileInfo, err error) {
	err = a.f(&Call{Op: OpStat, Name: name}, func() (err error) {
		info, err = a.base.Stat(name)
		return err
	})
	return info, err
}

func (a *aroundFS) SameFile(x, y fs.FileInfo) bool { return a.base.SameFile(x, y) }

func (a *aroundFS) Writable(name string) error {
	return a.f(&Call{Op: OpAccess, Name: name}, func() error { return a.base.Writable(name) })
}

type aroundFile struct {
	File
	a    *aroundFS
	name string
}

func (f *aroundFile) Write(b []byte) (n int, err error) {
	c := &Call{Op: OpWrite, Name: f.name, Limit: len(b)}
	err = f.a.f(c, func() (err error) {
		n, err = f.File.Write(b[:min(c.Limit, len(b))])
		c.Result = fmt.Sprintf("%d bytes", n)
		return err
	})
	return n, err
}

func (f *aroundFile) ReadAt(b []byte, off int64) (n int, err error) {
	c := &Call{Op: OpRead, Name: f.name}
	err = f.a.f(c, func() (err error) {
		n, err = f.File.ReadAt(b, off)
		c.Result = fmt.Sprintf("%d bytes at %d", n, off)
		return err
	})
	return n, err
}

func (f *aroundFile) dropUnsynced() {
	if d, ok := f.File.(interface{ dropUnsynced() }); ok {
		d.dropUnsynced()
	}
}

func (f *aroundFile) Sync() error {
	return f.a.f(&Call{Op: OpSync, Name: f.name, drop: f.dropUnsynced}, f.File.Sync)
}

func (f *aroundFile) SyncData() error {
	return f.a.f(&Call{Op: OpSyncData, Name: f.name, drop: f.dropUnsynced}, f.File.SyncData)
}

func (f *aroundFile) Stat() (info fs.FileInfo, err error) {
	err = f.a.f(&Call{Op: OpFileStat, Name: f.name}, func() (err error) {
		info, err = f.File.Stat()
		return err
	})
	return info, err
}

func (f *aroundFile) TryLock(exclusive bool) (ok bool, err error) {
	c := &Call{Op: OpLock, Name: f.name}
	err = f.a.f(c, func() (err error) {
		ok, err = f.File.TryLock(exclusive)
		c.Result = "shared"
		if exclusive {
			c.Result = "exclusive"
		}
		if !ok {
			c.Result += ", refused"
		}
		return err
	})
	return ok && err == nil, err
}

func (f *aroundFile) HasWriter() (yes bool, err error) {
	c := &Call{Op: OpHasWriter, Name: f.name}
	err = f.a.f(c, func() (err error) {
		yes, err = f.File.HasWriter()
		c.Result = "no writer"
		if yes {
			c.Result = "writer"
		}
		return err
	})
	return yes, err
}
