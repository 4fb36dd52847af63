package filestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

type storeFile struct {
	Strandline int    `json:"strandline"`
	Store      string `json:"store"`
}

// parseStoreFile says what a store is.
func (s *Store) parseStoreFile(b []byte) (storeFile, error) {
	var f storeFile
	err := json.Unmarshal(b, &f)
	if err == nil && f.Strandline < 1 {
		err = errors.New("it names no format")
	}
	if err != nil {
		return f, &store.StoreFileError{Path: s.path(storeName), Why: err.Error()}
	}
	return f, nil
}

// version refuses a store that a newer program made.
func (s *Store) version() error {
	if err := s.rooted(); err != nil {
		return err
	}
	b, _, err := s.readFile(s.path(storeName), 1<<16)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &store.ReadOnlyError{Path: s.root, Cause: err}
	}
	f, bad := s.parseStoreFile(b)
	if bad != nil {
		return &store.ReadOnlyError{Path: s.root, Cause: bad}
	}
	if f.Strandline > session.Format {
		return &store.ReadOnlyError{Path: s.root, Cause: fmt.Errorf(
			"%w: its format %d is newer than %d, which this program writes", store.ErrUnsupported, f.Strandline, session.Format)}
	}
	return nil
}

// rooted refuses a store whose sessions/ is a link: what is written there would be beyond it, where nothing is looked for that purge and collect
// remove. The root itself may be one.
func (s *Store) rooted() error {
	dir := s.path("sessions")
	info, err := s.fs.Stat(dir)
	if err == nil && !info.IsDir() {
		return &store.ReadOnlyError{Path: s.root, Cause: fmt.Errorf("%s is no directory (%v), and nothing is written outside the store: put the directory itself there, or make the whole store a link", dir, info.Mode().Type())}
	}
	return nil // what else is wrong is seen by who writes
}

// writable returns a *store.ReadOnlyError if the store cannot be written, as far as can be told
// without writing, and store.ErrClosed after Close.
func (s *Store) writable() error {
	s.mu.Lock()
	closed, ready := s.closed, s.ready
	s.mu.Unlock()
	if closed {
		return fmt.Errorf("filestore: %w", store.ErrClosed)
	}
	check := s.version
	if ready {
		check = s.rooted
	}
	if err := check(); err != nil {
		return err
	}
	dir := s.path("sessions")
	for {
		err := s.fs.Writable(dir)
		if err == nil {
			return nil
		}
		up := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || up == dir {
			return &store.ReadOnlyError{Path: s.root, Cause: err}
		}
		dir = up
	}
}

// readOnly returns err as a *store.ReadOnlyError if it says that nothing can be written here.
func (s *Store) readOnly(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, vfs.ErrNotSupported) {
		return &store.ReadOnlyError{Path: s.root, Cause: err}
	}
	return err
}

// prepare makes the root durable before the first write of this Store.
func (s *Store) prepare() error {
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	if ready {
		return nil
	}
	_, err := s.fs.Stat(s.path(storeName))
	fresh := errors.Is(err, fs.ErrNotExist)
	if err == nil { // it is made when the directories are durable
		s.mu.Lock()
		s.dirs[s.root], s.dirs[s.path("sessions")], s.dirs[s.path("live")] = true, true, true
		s.mu.Unlock()
	}
	if err == nil || fresh {
		err = s.mkdirAll(s.path("sessions"))
	}
	if err == nil {
		err = s.mkdirAll(s.path("live"))
	}
	if err == nil && fresh {
		var id string
		if id, err = s.nonce(); err == nil {
			err = s.makeStoreFile(id)
		}
	}
	if err != nil {
		return s.readOnly(err)
	}
	if err := s.version(); err != nil {
		return err
	}
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
	return nil
}

func (s *Store) makeStoreFile(id string) error {
	b, err := json.Marshal(storeFile{session.Format, id})
	if err != nil {
		return err
	}
	tmp := s.path(newStore + id)
	f, err := s.writeTemp(tmp, append(b, '\n'), false)
	if err != nil {
		return err
	}
	f.Close()
	if err := s.publish(tmp, s.path(storeName)); err != nil {
		// Another was first, and perhaps swept the temporary name away: then all that is missing is the sync.
		if _, serr := s.fs.Stat(s.path(storeName)); serr != nil {
			return err
		}
	}
	return s.syncDir(s.root)
}

// mkdirAll makes dir and what is missing above it, durably: whoever made what is there may have died before its name
// was synced, or been told that the sync failed. Once is enough for a Store.
func (s *Store) mkdirAll(dir string) error {
	_, err := s.fs.Stat(dir)
	there := err == nil
	if !there && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.mu.Lock()
	durable := s.dirs[dir]
	s.mu.Unlock()
	up := filepath.Dir(dir)
	if there && (durable || up == dir) {
		return nil
	}
	if up != dir {
		if err := s.mkdirAll(up); err != nil {
			return err
		}
	}
	if !there {
		if err := s.fs.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// A directory above the root that was there before may be one that this user cannot open.
	if err := s.syncDir(up); err != nil && !(there && errors.Is(err, fs.ErrPermission) && len(dir) <= len(s.root)) {
		return err
	}
	s.mu.Lock()
	s.dirs[dir] = true
	s.mu.Unlock()
	return nil
}

// writeTemp makes a file with the content b, synced and, if lock is set, locked exclusively. After
// an error nothing is left but perhaps the name.
func (s *Store) writeTemp(name string, b []byte, lock bool) (vfs.File, error) {
	f, err := s.newFile(name, b, lock)
	if err == nil {
		if err = s.sync(f.Sync); err == nil {
			return f, nil
		}
		f.Close()
		s.fs.Remove(name)
	}
	return nil, err
}

// newFile is writeTemp without the sync.
func (s *Store) newFile(name string, b []byte, lock bool) (vfs.File, error) {
	f, err := s.fs.OpenFile(name, vfs.CreateAppend)
	if err != nil {
		return nil, err
	}
	n, err := f.Write(b)
	if err == nil {
		err = shortWrite(n, len(b))
	}
	if err == nil && lock {
		var ok bool
		if ok, err = f.TryLock(true); err != nil {
			err = &store.ReadOnlyError{Path: s.root, Cause: fmt.Errorf("file locks do not work here: %w", err)}
		} else if !ok {
			err = fmt.Errorf("%s: a new file is locked: %w", name, vfs.ErrNotSupported)
		}
	}
	if err != nil {
		f.Close()
		s.fs.Remove(name)
		return nil, err
	}
	return f, nil
}

func shortWrite(n, of int) error {
	if n < of {
		return io.ErrShortWrite
	}
	return nil
}

// publish gives the file tmp its name, which must be free, and takes the old name away.
func (s *Store) publish(tmp, name string) error {
	err := s.fs.Link(tmp, name)
	if errors.Is(err, vfs.ErrNotSupported) {
		return s.fs.RenameNoReplace(tmp, name)
	}
	s.fs.Remove(tmp) // what remains is skipped by readers and removed later
	return err
}

// checkLocks makes sure, once, that a lock on name, which is held exclusively, keeps others out.
func (s *Store) checkLocks(name string) error {
	s.mu.Lock()
	done := s.locks
	s.mu.Unlock()
	if done {
		return nil
	}
	f, err := s.fs.OpenFile(name, vfs.ReadWrite)
	if err != nil {
		return err
	}
	defer f.Close()
	ok, err := f.TryLock(true)
	if err != nil {
		return &store.ReadOnlyError{Path: s.root, Cause: err}
	}
	if ok {
		return &store.ReadOnlyError{Path: s.root, Cause: errors.New("file locks do not work here: two could write one session")}
	}
	s.mu.Lock()
	s.locks = true
	s.mu.Unlock()
	return nil
}
