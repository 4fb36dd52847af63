package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

const maxBlob = 1 << 30

func (s *Store) blobPath(name string) string {
	hash := name[len("sha256-"):]
	return s.path("blobs", "sha256", hash[:2], hash)
}

// shareStore locks store.lock shared: until it is closed neither collector nor purge runs.
func (s *Store) shareStore(ctx context.Context) (vfs.File, error) { return s.lockStore(ctx, false) }

// lockStore takes store.lock, and waits for it. Who takes it exclusively removes what nobody needs: not beyond a link.
func (s *Store) lockStore(ctx context.Context, exclusive bool) (vfs.File, error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	f, err := s.fs.OpenFile(s.path(lockName), vfs.OpenOrCreate)
	if err != nil {
		return nil, s.readOnly(err)
	}
	err = s.waitLock(ctx, f, exclusive)
	if err == nil && exclusive {
		err = s.inside()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// inside refuses a store of which a directory is a link, or no directory: what it leads to may be anybody's.
func (s *Store) inside() error {
	for _, dir := range []string{"sessions", "trash", "purged", "live", "cache", "blobs", filepath.Join("blobs", "sha256")} {
		info, err := s.fs.Stat(s.path(dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return &store.ReadOnlyError{Path: s.root, Cause: fmt.Errorf("%s is no directory (%v), and nothing outside the store is removed: put the directory itself there", s.path(dir), info.Mode().Type())}
		}
	}
	return nil
}

// waitLock locks f, which is store.lock.
func (s *Store) waitLock(ctx context.Context, f vfs.File, exclusive bool) error {
	for {
		ok, err := f.TryLock(exclusive)
		if ok && err == nil {
			return nil
		}
		if info, serr := f.Stat(); err != nil && serr == nil && !info.Mode().IsRegular() {
			err = &store.ReadOnlyError{Path: s.root, Cause: &notFileError{s.path(lockName), info.Mode()}}
		} else if err == nil {
			err = vfs.Wait(ctx, 5*time.Millisecond)
		} else {
			err = &store.ReadOnlyError{Path: s.root, Cause: fmt.Errorf("file locks do not work here: %w", err)}
		}
		if err != nil {
			return err
		}
	}
}

// PutBlob stores data under its name and returns when it is synced. Until a record that names it is written, by this
// store, or it is released, or the store is closed, nobody collects it.
func (s *Store) PutBlob(ctx context.Context, data []byte) (string, error) {
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	if err := s.writable(); err != nil {
		return "", err
	}
	lock, err := s.shareStore(ctx)
	if err != nil {
		return "", err
	}
	name, err := s.putBlob(data)
	if err != nil {
		lock.Close()
		return "", err
	}
	s.pin(name, lock)
	return name, nil
}

// putBlob is PutBlob for those who hold store.lock.
func (s *Store) putBlob(data []byte) (string, error) {
	name := record.BlobName(data)
	path := s.blobPath(name)
	dir := filepath.Dir(path)
	if err := s.mkdirAll(dir); err != nil {
		return "", err
	}
	old, _, err := s.readFile(path, maxBlob)
	if err == nil && !bytes.Equal(old, data) {
		if err = s.setAside(path, data); err == nil {
			err = fs.ErrNotExist
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		n, err := s.nonce()
		if err != nil {
			return "", err
		}
		tmp := filepath.Join(dir, newBlob+n)
		f, err := s.writeTemp(tmp, data, false)
		if err != nil {
			return "", err
		}
		f.Close()
		if err := s.publish(tmp, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	default:
		return "", err
	}
	// Also if it was there: whoever put it may have died before this.
	return name, s.syncDir(dir)
}

// setAside gives the blob at path, whose bytes are not data, another name: what one bad file holds must not keep
// every session from saving the same text. Who does it locks that very file, so that the good one which takes the
// place is not set aside in turn.
func (s *Store) setAside(path string, data []byte) error {
	f, err := s.fs.OpenFile(path, vfs.ReadWrite)
	if err != nil {
		return err
	}
	defer f.Close()
	if ok, err := f.TryLock(true); err != nil || !ok {
		return errors.Join(err, s.badBlob(path, int64(len(data)))) // another does it: try again
	}
	now, info, err := readAll(f, path, maxBlob)
	if err != nil {
		return err
	}
	if at, _, err := s.isAt(&held{f: f, info: info, path: path}); err != nil || !at || bytes.Equal(now, data) {
		return err
	}
	n, err := s.nonce()
	if err != nil {
		return err
	}
	return s.fs.RenameNoReplace(path, filepath.Join(filepath.Dir(path), "damaged-"+n))
}

func (s *Store) badBlob(path string, n int64) error {
	return &store.DamagedError{Ranges: []store.Range{{File: path, Bytes: n, Last: session.None, Detail: "its bytes do not have its name"}}}
}

// GetBlob returns the blob's bytes, which have its name.
func (s *Store) GetBlob(ctx context.Context, name string) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if !record.ValidBlobName(name) {
		return nil, fmt.Errorf("filestore: %q is not the name of a blob: %w", name, store.ErrNotFound)
	}
	b, _, err := s.readFile(s.blobPath(name), maxBlob)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("filestore: no blob %s in this store: %w", name, store.ErrNotFound)
	}
	if _, ok := errors.AsType[*notFileError](err); ok {
		return nil, &store.DamagedError{Ranges: []store.Range{{File: s.blobPath(name), Last: session.None, Detail: err.Error()}}}
	}
	if err != nil {
		return nil, err
	}
	if record.BlobName(b) != name {
		return nil, s.badBlob(s.blobPath(name), int64(len(b)))
	}
	return b, nil
}

// accepted returns the event of a record with its data as it was accepted. A blob that is not there, or is not
// what it was, is damage of the session that owner names.
func (s *Store) accepted(ctx context.Context, id, owner session.ID, raw *record.Raw) (session.Event, error) {
	return s.internal(ctx, id, owner, raw.Event())
}

// internal gives ev, as it was stored, the data that was accepted.
func (s *Store) internal(ctx context.Context, id, owner session.ID, ev session.Event) (session.Event, error) {
	var medium error
	file := ""
	data, err := record.Internalize(ev.Data, func(name string) ([]byte, error) {
		b, err := s.GetBlob(ctx, name)
		if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrDamaged) {
			medium = err
		}
		if record.ValidBlobName(name) {
			file = s.blobPath(name)
		}
		return b, err
	})
	switch {
	case medium != nil:
		return session.Event{}, fmt.Errorf("filestore: event %d: %w", ev.Seq, medium)
	case err != nil:
		why := "is not what it names: " + err.Error()
		if de, ok := errors.AsType[*store.DamagedError](err); ok {
			why = "is bad: " + de.Ranges[0].Detail
		} else if errors.Is(err, store.ErrNotFound) {
			why = "is gone"
		}
		s.met(id, ev.Seq)
		return session.Event{}, &store.DamagedError{ID: id, Owner: owner, Ranges: []store.Range{{
			File: file, First: ev.Seq, Last: ev.Seq, Detail: fmt.Sprintf("the text that event %d needs %s", ev.Seq, why)}}}
	}
	ev.Data = data
	return ev, nil
}
