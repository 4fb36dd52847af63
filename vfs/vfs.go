// Package vfs is the handful of file calls that the file store makes, each with what it promises
// about durability. Production code gets OS; tests put Around, Trace or Fault in between, or bring a
// file system of their own. Locks are part of it, so that a simulated file system can simulate them: Mem is one, a
// disk in memory with several processes, which can lose its power.
//
// What a name means after a crash is never taken for granted here: a file's bytes are safe after
// Sync or SyncData, a name (created, linked, renamed, removed) after SyncDir of its directory. There
// is no truncate and no write at an offset: nothing that is on disk is ever cut or overwritten.
package vfs

import (
	"errors"
	"io/fs"
)

// ErrNotSupported says that this platform or file system lacks a call that the store cannot do without.
var ErrNotSupported = errors.New("not supported here")

// Mode says how OpenFile opens.
type Mode uint8

// The modes. Append and CreateAppend also allow ReadAt and exclusive locks.
const (
	ReadOnly     Mode = iota // an existing file or directory, for reading, syncing and shared locks
	ReadWrite                // an existing file, for reading and exclusive locks; nothing is written
	CreateAppend             // a new file (an existing name is fs.ErrExist), writes go to its end
	OpenOrCreate             // a file that is made if it is not there, for locks only
)

// FS is a file system. Names are slash-or-native paths as package os takes them. Errors wrap
// fs.ErrNotExist, fs.ErrExist and fs.ErrPermission where these apply. A call that a signal interrupts is made
// again: no caller sees EINTR from OS. All methods are safe for concurrent use. None but
// ReadDir, SyncDir and Writable follows a symbolic link at the last element of a name.
type FS interface {
	// OpenFile opens name; of a symbolic link the link itself, of which Stat says what it is, and nothing can be read. Descriptors are close-on-exec: a child must not keep a lock alive. New
	// files have permissions 0600. Creating a name is not durable before SyncDir.
	OpenFile(name string, mode Mode) (File, error)
	// Link gives the file oldname a second name. fs.ErrExist if newname exists; ErrNotSupported where
	// the file system has no hard links. Atomic; durable after SyncDir.
	Link(oldname, newname string) error
	// RenameNoReplace renames a file or directory. fs.ErrExist if newname exists, whatever it is;
	// ErrNotSupported where that cannot be promised. Atomic; durable after SyncDir of both parents.
	RenameNoReplace(oldname, newname string) error
	// Remove removes a file or an empty directory. Durable after SyncDir.
	Remove(name string) error
	// Mkdir makes a directory with permissions 0700. Durable after SyncDir of the parent.
	Mkdir(name string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
	// Stat returns what name is now. It does not follow a symbolic link.
	Stat(name string) (fs.FileInfo, error)
	// SameFile reports whether two results of Stat, of a name or of an open file, are the same inode.
	SameFile(a, b fs.FileInfo) bool
	// Writable returns nil if files can be made in the directory name, as far as can be told without
	// making one; else why not.
	Writable(name string) error
}

// File is an open file or directory. ReadAt, Stat and HasWriter may be called concurrently with
// everything; the rest by one goroutine at a time.
type File interface {
	// Write appends b to the end of the file in one system call. n < len(b) comes with an error. The
	// bytes survive the process; they survive loss of power after Sync or SyncData.
	Write(b []byte) (n int, err error)
	// ReadAt reads as io.ReaderAt does: io.EOF when the file ends within b.
	ReadAt(b []byte, off int64) (n int, err error)
	// Sync makes bytes and metadata durable. After an error the descriptor must not be trusted again:
	// a second call can report success for bytes that are gone.
	Sync() error
	// SyncData makes bytes and size durable; the same warning holds. It may be called on a descriptor
	// that was opened for reading.
	SyncData() error
	Stat() (fs.FileInfo, error)
	// TryLock takes a lock on the whole file without waiting and reports whether it has it. Locks
	// belong to this descriptor: a second one in the same process is refused like any other. A later
	// call replaces the lock held. Close and the death of the process release it. An exclusive lock
	// needs a file opened for writing.
	TryLock(exclusive bool) (bool, error)
	// HasWriter reports whether another descriptor holds an exclusive lock. It takes no lock that
	// outlives the call; on platforms that can only ask by trying, a shared lock exists for a moment,
	// and whoever meets it tries again.
	HasWriter() (bool, error)
	Close() error
}
