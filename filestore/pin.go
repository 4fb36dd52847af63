package filestore

import (
	"bytes"

	"github.com/strandline-dev/strandline/vfs"
)

// pins are blobs that somebody put and that no record names yet: store.lock is held shared until there are none, so
// that nobody collects them meanwhile. One whose record never comes is kept until somebody says so (ReleaseBlob), or the
// store is closed.
type pins struct {
	names map[string]int // how often it was put
	lock  vfs.File       // nil while there are no names
}

// pin takes over lock, which was held when the blob was put.
func (s *Store) pin(name string, lock vfs.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.pins.lock != nil {
		defer lock.Close()
	}
	if s.closed {
		return
	}
	if s.pins.lock == nil {
		s.pins = pins{map[string]int{}, lock}
	}
	s.pins.names[name]++
}

// pinned returns the pinned blobs that text names.
func (s *Store) pinned(text []byte) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.pins.names {
		if bytes.Contains(text, []byte(name)) {
			names = append(names, name)
		}
	}
	return names
}

// unpin is called when the records that name them are written.
func (s *Store) unpin(names []string) {
	if len(names) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		delete(s.pins.names, name)
	}
	s.pinsGone()
}

// ReleaseBlob takes one PutBlob of name back.
func (s *Store) ReleaseBlob(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.pins.names[name]; n > 1 {
		s.pins.names[name] = n - 1
	} else {
		delete(s.pins.names, name)
	}
	s.pinsGone()
}

// pinsGone lets store.lock go if nothing is pinned. s.mu is held.
func (s *Store) pinsGone() {
	if len(s.pins.names) == 0 && s.pins.lock != nil {
		s.pins.lock.Close()
		s.pins = pins{}
	}
}
