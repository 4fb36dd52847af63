package vfs

import (
	"io/fs"
	"syscall"
)

// Identity returns the inode number of info, a result of Stat, and when the inode changed last, in Unix nanoseconds:
// its bytes, its size, its names or its permissions. That time cannot be set, as that of the last write can. ok is
// false where this is not known.
func Identity(info fs.FileInfo) (inode, changed int64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int64(st.Ino), st.Ctimespec.Nano(), true
}
