package filestore

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

var _ store.Remover = (*Store)(nil)

// tombstone is the empty file that keeps the id of a purged session from being used again.
func (s *Store) tombstone(id session.ID) string { return s.path("purged", string(id)[:2], string(id)) }

// former says whether there was a session id which is no more: where it went.
func (s *Store) former(id session.ID) (trashed, purged bool, err error) {
	_, err = s.fs.Stat(s.trash(id))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err == nil, false, err
	}
	_, err = s.fs.Stat(s.tombstone(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	return false, err == nil, err
}

// purged reports whether id was purged: then nothing can bring it back. While it is in sessions/ or in the trash, whatever is left of it, it was not.
func (s *Store) purged(id session.ID) (bool, error) {
	for _, dir := range []string{s.dir(id), s.trash(id), s.dir(id)} { // again: it may have come back
		if _, err := s.fs.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	_, purged, err := s.former(id)
	return purged, err
}

// absent is the answer to who asks for a session that is not in sessions/.
func (s *Store) absent(id session.ID) error {
	e := &store.NotFoundError{ID: string(id)}
	e.Trashed, e.Purged, _ = s.former(id) // who cannot look there learns less
	return e
}

// Trash moves a session into the trash, under its lease.
func (s *Store) Trash(ctx context.Context, id session.ID) error {
	if session.ValidID(id) != nil {
		return &store.NotFoundError{ID: string(id)}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := s.writable(); err != nil {
		return err
	}
	if _, err := s.fs.Stat(s.dir(id)); errors.Is(err, fs.ErrNotExist) {
		return s.absent(id)
	} else if err != nil {
		return err
	}
	w := &writer{s: s, id: id, dir: s.dir(id), since: s.opt.Now()}
	if err := s.reserve(id, w); err != nil {
		return err
	}
	defer w.release()
	if err := w.seize(ctx); err != nil {
		return err
	}
	if err := s.move(ctx, id, s.dir(id), s.trash(id)); err != nil {
		return err
	}
	s.fs.Remove(s.livePath(id)) // of a dead holder
	return s.dropDerived(id)
}

// seize takes the locks that every writer of a session holds, as far as it has the files to lock: what cannot be
// read can be thrown away.
func (w *writer) seize(ctx context.Context) (err error) {
	s := w.s
	if info, err := s.fs.Stat(w.dir); err != nil || !info.IsDir() {
		return nil // no file of it can be locked
	}
	w.lease, err = s.takeLease(ctx, w.id)
	switch {
	case err == nil, errors.Is(err, store.ErrDamaged), errors.Is(err, fs.ErrPermission):
	case errors.Is(err, store.ErrNotFound):
		return s.absent(w.id)
	default:
		return err
	}
	// Also a holder whose session.json was replaced has this one.
	w.tail, err = s.takeTail(ctx, w.id, w.dir)
	if errors.Is(err, store.ErrDamaged) {
		return nil
	}
	if err != nil && !errors.Is(err, store.ErrBusy) {
		names, lerr := s.segmentNames(w.dir)
		if lerr == nil && len(names) > 0 {
			last, serr := s.fs.Stat(names[len(names)-1].in(w.dir))
			if serr == nil && !last.Mode().IsRegular() {
				return nil
			}
		}
	}
	return err
}

// Restore takes a session out of the trash.
func (s *Store) Restore(ctx context.Context, id session.ID) error {
	if session.ValidID(id) != nil {
		return &store.NotFoundError{ID: string(id)}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.trashed(id); err != nil {
		return err
	}
	return s.move(ctx, id, s.trash(id), s.dir(id))
}

// trashed returns nil if id is in the trash, else where it is.
func (s *Store) trashed(id session.ID) error {
	_, err := s.fs.Stat(s.trash(id))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := s.fs.Stat(s.dir(id)); err == nil {
		return &store.NotTrashedError{ID: id}
	}
	return s.absent(id)
}

// move renames the directory of a session, durably. It waits for a purge, which must not miss it on its way.
func (s *Store) move(ctx context.Context, id session.ID, from, to string) error {
	lock, err := s.lockStore(ctx, false)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := s.mkdirAll(filepath.Dir(to)); err != nil {
		return s.readOnly(err)
	}
	err = s.fs.RenameNoReplace(from, to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.trashedOr(id, to)
	case errors.Is(err, fs.ErrExist):
		return &store.ExistsError{ID: id, Detail: to}
	case err != nil:
		return s.readOnly(err)
	}
	// The new name first: a session with two names can be found, one with none cannot.
	return errors.Join(s.syncDir(filepath.Dir(to)), s.syncDir(filepath.Dir(from)))
}

// trashedOr is the answer to who was overtaken on the way of id to the directory to.
func (s *Store) trashedOr(id session.ID, to string) error {
	if to == s.trash(id) {
		return s.absent(id)
	}
	return s.trashed(id)
}

// MatchTrash returns the ids in the trash that begin with prefix.
func (s *Store) MatchTrash(ctx context.Context, prefix string, limit int) ([]session.ID, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	ids, err := s.ids("trash", prefix)
	if limit > 0 && len(ids) > limit {
		ids = ids[:limit]
	}
	return ids, err
}

// dropDerived removes what is derived of one session. Whatever is kept of a session beside its log belongs below
// cache/<id>, so that deleting the session reaches it.
func (s *Store) dropDerived(id session.ID) error {
	dir := s.path("cache", string(id))
	_, err := s.fs.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = s.removeAll(dir)
	}
	if err != nil {
		return err
	}
	return s.syncDir(filepath.Dir(dir))
}

// removeAll removes a file or a directory with all that is in it, and returns how many bytes the files had.
func (s *Store) removeAll(name string) (int64, error) { return s.bottomUp(name, s.fs.Remove) }

// bottomUp calls f with everything in a directory, and then with the directory. It returns how many bytes the files
// had. What is not there is nothing.
func (s *Store) bottomUp(name string, f func(name string) error) (int64, error) {
	info, err := s.fs.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var n int64
	if info.IsDir() {
		list, err := s.fs.ReadDir(name)
		if err != nil {
			return 0, err
		}
		for _, e := range list {
			m, err := s.bottomUp(filepath.Join(name, e.Name()), f)
			if n += m; err != nil {
				return n, err
			}
		}
	} else if info.Mode().IsRegular() {
		n = info.Size()
	}
	if err := f(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return n, err
	}
	return n, nil
}

// eachFile calls f with every regular file in dir and below. fs.ErrNotExist: one that was listed is gone.
func (s *Store) eachFile(ctx context.Context, dir string, f func(path string, file vfs.File) error) error {
	list, err := s.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			err = s.eachFile(ctx, path, f)
		case e.Type().IsRegular():
			err = s.withText(path, func(file vfs.File) error { return f(path, file) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// withText calls f with a file opened for reading: of a packed segment its text.
func (s *Store) withText(path string, f func(vfs.File) error) error {
	file, err := s.openSegment(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return f(file)
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }
