//go:build !linux && !darwin

package vfs

import "io/fs"

// Identity is not known on this platform.
func Identity(fs.FileInfo) (inode, changed int64, ok bool) { return 0, 0, false }
