//go:build linux || darwin

package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// OS returns the file system of the machine.
func OS() FS { return osFS{} }

type osFS struct{}

var (
	_ FS   = osFS{}
	_ File = osFile{}
)

func (osFS) OpenFile(name string, mode Mode) (File, error) {
	flag := os.O_RDONLY
	switch mode {
	case ReadWrite:
		flag = os.O_RDWR
	case CreateAppend:
		flag = os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_EXCL
	case OpenOrCreate:
		flag = os.O_RDWR | os.O_CREATE
	}
	// Never wait on a pipe that somebody put in the place of a file, and never go where a link leads.
	f, err := os.OpenFile(name, flag|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, unix.ELOOP) {
		f, err = os.OpenFile(name, openLink, 0)
	}
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Link(oldname, newname string) error {
	err := os.Link(oldname, newname)
	if errors.Is(err, unix.EPERM) || unsupported(err) {
		return errors.Join(ErrNotSupported, err)
	}
	return err
}

func (osFS) RenameNoReplace(oldname, newname string) error {
	err := renameNoReplace(oldname, newname)
	if err == nil {
		return nil
	}
	err = &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
	if errors.Is(err, unix.EINVAL) || unsupported(err) {
		return errors.Join(ErrNotSupported, err)
	}
	return err
}

func unsupported(err error) bool {
	return errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

func (osFS) Remove(name string) error                   { return os.Remove(name) }
func (osFS) Mkdir(name string) error                    { return os.Mkdir(name, 0o700) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (osFS) Stat(name string) (fs.FileInfo, error)      { return os.Lstat(name) }
func (osFS) SameFile(a, b fs.FileInfo) bool             { return os.SameFile(a, b) }

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (osFS) Writable(name string) error {
	if err := retry(func() error { return unix.Access(name, unix.W_OK|unix.X_OK) }); err != nil {
		return &fs.PathError{Op: "access", Path: name, Err: err}
	}
	return nil
}

// osFile is an *os.File; the runtime closes a file that nobody can reach, and its lock with it, so
// whoever holds a lock must keep it.
type osFile struct{ *os.File }

func (f osFile) TryLock(exclusive bool) (ok bool, err error) {
	cerr := f.control(func(fd int) { ok, err = tryLock(fd, exclusive) })
	if err == nil {
		err = cerr
	}
	if err != nil {
		return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return ok, nil
}

func (f osFile) HasWriter() (yes bool, err error) {
	cerr := f.control(func(fd int) { yes, err = hasWriter(fd) })
	if err == nil {
		err = cerr
	}
	if err != nil {
		return false, &fs.PathError{Op: "probe lock", Path: f.Name(), Err: err}
	}
	return yes, nil
}

func (f osFile) control(do func(fd int)) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return c.Control(func(fd uintptr) { do(int(fd)) })
}

// retry repeats a call that a signal interrupted, as package os does with all of its calls.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
