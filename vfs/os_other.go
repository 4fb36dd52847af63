//go:build !linux && !darwin

package vfs

import (
	"fmt"
	"io/fs"
	"runtime"
)

// OS returns a file system that refuses everything: the file store is not supported here yet.
func OS() FS { return noFS{} }

type noFS struct{}

var _ FS = noFS{}

func (noFS) err() error {
	return fmt.Errorf("the file store is not supported on %s yet: %w", runtime.GOOS, ErrNotSupported)
}

func (n noFS) OpenFile(string, Mode) (File, error)    { return nil, n.err() }
func (n noFS) Link(string, string) error              { return n.err() }
func (n noFS) RenameNoReplace(string, string) error   { return n.err() }
func (n noFS) Remove(string) error                    { return n.err() }
func (n noFS) Mkdir(string) error                     { return n.err() }
func (n noFS) ReadDir(string) ([]fs.DirEntry, error)  { return nil, n.err() }
func (n noFS) SyncDir(string) error                   { return n.err() }
func (n noFS) Stat(string) (fs.FileInfo, error)       { return nil, n.err() }
func (n noFS) SameFile(fs.FileInfo, fs.FileInfo) bool { return false }
func (n noFS) Writable(string) error                  { return n.err() }
