package vfs

import "golang.org/x/sys/unix"

// openLink opens a link itself.
const openLink = unix.O_RDONLY | unix.O_SYMLINK

func renameNoReplace(oldname, newname string) error {
	return retry(func() error { return unix.RenamexNp(oldname, newname, unix.RENAME_EXCL) })
}

// SyncData is a full sync: macOS has nothing weaker that survives loss of power.
func (f osFile) SyncData() error { return f.Sync() }

func tryLock(fd int, exclusive bool) (bool, error) {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	err := retry(func() error { return unix.Flock(fd, how|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// hasWriter can only ask by trying. It must not be called on a descriptor that holds a lock.
func hasWriter(fd int) (bool, error) {
	ok, err := tryLock(fd, false)
	if err != nil || !ok {
		return !ok, err
	}
	return false, retry(func() error { return unix.Flock(fd, unix.LOCK_UN) })
}
