package vfs

import (
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// memInfo is what an inode was when it was asked for.
type memInfo struct {
	i    *inode
	base string
	size int64
	mode fs.FileMode
	at   int64
}

func (i *inode) info(base string) memInfo {
	return memInfo{i, base, int64(len(i.data)), i.mode, i.mtime}
}

func (m memInfo) Name() string       { return m.base }
func (m memInfo) Size() int64        { return m.size }
func (m memInfo) Mode() fs.FileMode  { return m.mode }
func (m memInfo) ModTime() time.Time { return time.Unix(0, m.at) }
func (m memInfo) IsDir() bool        { return m.mode.IsDir() }
func (m memInfo) Sys() any           { return nil }

// memFile is a descriptor.
type memFile struct {
	p      *Process
	i      *inode
	name   string
	mode   Mode
	closed bool
}

func (f *memFile) do(op string, do func() error) error {
	return f.p.do(op, f.name, func() error {
		if f.closed {
			return fs.ErrClosed
		}
		return do()
	})
}

func (f *memFile) Write(b []byte) (n int, err error) {
	m := f.p.m
	err = f.do("write", func() error {
		if f.mode != CreateAppend {
			return syscall.EBADF
		}
		if m.ro {
			return syscall.EROFS
		}
		n = len(b)
		if !m.fits(int64(n)) {
			n = int(max(0, m.limit-m.used))
		}
		f.i.data = append(f.i.data, b[:n]...)
		m.used += int64(n)
		m.touch(f.i)
		if n < len(b) {
			return syscall.ENOSPC
		}
		return nil
	})
	return n, err
}

func (f *memFile) ReadAt(b []byte, off int64) (n int, err error) {
	end := false
	err = f.do("read", func() error {
		switch {
		case f.i.names != nil:
			return syscall.EISDIR
		case off < 0:
			return syscall.EINVAL
		case off < int64(len(f.i.data)):
			n = copy(b, f.i.data[off:])
		}
		end = n < len(b)
		return nil
	})
	if err == nil && end {
		err = io.EOF
	}
	return n, err
}

func (f *memFile) Sync() error {
	return f.do("sync", func() error { f.p.m.sync(f.i); return nil })
}

func (f *memFile) SyncData() error { return f.Sync() }

// dropUnsynced is what a failed sync may have done: the bytes can still be read, no later sync makes them durable,
// and none of them says so.
func (f *memFile) dropUnsynced() {
	f.do("sync", func() error {
		if i := f.i; i.synced < len(i.data) {
			i.dropped = append(slices.Clone(i.dropped), [2]int{i.synced, len(i.data)})
			i.synced = len(i.data)
		}
		return nil
	})
}

func (f *memFile) Stat() (info fs.FileInfo, err error) {
	err = f.do("stat", func() error {
		info = f.i.info(path.Base(filepath.ToSlash(f.name)))
		return nil
	})
	return info, err
}

func (f *memFile) TryLock(exclusive bool) (ok bool, err error) {
	err = f.do("lock", func() error {
		i := f.i
		if exclusive && f.mode == ReadOnly {
			return syscall.EBADF
		}
		mine := i.shared[f]
		others := len(i.shared)
		if mine {
			others--
		}
		if i.excl != nil && i.excl != f || exclusive && others > 0 {
			return nil
		}
		ok = true
		if exclusive {
			delete(i.shared, f)
			i.excl = f
			return nil
		}
		if i.excl == f {
			i.excl = nil
		}
		if i.shared == nil {
			i.shared = map[*memFile]bool{}
		}
		i.shared[f] = true
		return nil
	})
	return ok, err
}

func (f *memFile) HasWriter() (yes bool, err error) {
	err = f.do("probe lock", func() error {
		yes = f.i.excl != nil && f.i.excl != f
		return nil
	})
	return yes, err
}

func (f *memFile) Close() error {
	return f.do("close", func() error { f.close(); return nil })
}

func (f *memFile) close() {
	if f.closed {
		return
	}
	f.closed = true
	delete(f.p.files, f)
	delete(f.i.shared, f)
	if f.i.excl == f {
		f.i.excl = nil
	}
	f.i.open--
	f.p.m.free(f.i)
}
