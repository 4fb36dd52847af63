package vfs

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// openLink opens a link itself.
const openLink = unix.O_PATH | unix.O_NOFOLLOW

func renameNoReplace(oldname, newname string) error {
	return retry(func() error {
		return unix.Renameat2(unix.AT_FDCWD, oldname, unix.AT_FDCWD, newname, unix.RENAME_NOREPLACE)
	})
}

func (f osFile) SyncData() (err error) {
	cerr := f.control(func(fd int) { err = retry(func() error { return unix.Fdatasync(fd) }) })
	if err == nil {
		err = cerr
	}
	if err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// tryLock uses open file description locks: they belong to the descriptor, not to the process, and
// closing another descriptor of the same file does not drop them.
func tryLock(fd int, exclusive bool) (bool, error) {
	lk := unix.Flock_t{Type: unix.F_RDLCK}
	if exclusive {
		lk.Type = unix.F_WRLCK
	}
	err := retry(func() error { return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lk) })
	if err == unix.EAGAIN || err == unix.EACCES {
		return false, nil
	}
	return err == nil, err
}

func hasWriter(fd int) (bool, error) {
	lk := unix.Flock_t{Type: unix.F_RDLCK} // which only an exclusive lock is in the way of
	err := retry(func() error { return unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lk) })
	return err == nil && lk.Type != unix.F_UNLCK, err
}
