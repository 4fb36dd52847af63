package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// held is a file that this process has open and locked. It must stay reachable: closing the
// descriptor frees the lock.
type held struct {
	f    vfs.File
	info fs.FileInfo
	path string
}

func (h *held) close() error {
	if h == nil {
		return nil
	}
	return h.f.Close()
}

// isAt reports whether the file at h's path is the one that is held. An error means that nobody knows.
func (s *Store) isAt(h *held) (bool, fs.FileInfo, error) {
	now, err := s.fs.Stat(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	return s.fs.SameFile(now, h.info), now, nil
}

// takeLease locks session.json exclusively.
func (s *Store) takeLease(ctx context.Context, id session.ID) (*held, error) {
	path := filepath.Join(s.dir(id), headerName)
	for range 100 {
		f, err := s.fs.OpenFile(path, vfs.ReadWrite)
		if err != nil {
			if err = s.openError(id, path, err); errors.Is(err, fs.ErrNotExist) && !errors.Is(err, store.ErrNotFound) {
				continue // it was replaced this very moment
			}
			return nil, err
		}
		ok, err := f.TryLock(true)
		for left := s.patience; err == nil && !ok; left -= 5 * time.Millisecond {
			if h := s.holder(id); h != nil && !s.gone(h) || left <= 0 {
				f.Close()
				return nil, &store.BusyError{ID: id, Holder: h}
			}
			if err := vfs.Wait(ctx, 5*time.Millisecond); err != nil {
				f.Close()
				return nil, err
			}
			ok, err = f.TryLock(true)
		}
		if err != nil {
			info, serr := f.Stat()
			f.Close()
			if serr == nil && !info.Mode().IsRegular() {
				return nil, s.openError(id, path, err)
			}
			return nil, &store.ReadOnlyError{Path: s.root, Cause: err}
		}
		h := &held{f: f, path: path}
		if h.info, err = f.Stat(); err == nil {
			var same bool
			if same, _, err = s.isAt(h); same {
				if err = s.checkLocks(path); err == nil {
					return h, nil
				}
				if still, _, serr := s.isAt(h); serr == nil && !still {
					err = nil // it was replaced meanwhile, and what was tried was another file
				}
			}
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("filestore: %s is replaced again and again", path)
}

// gone reports whether a holder's process is known to have ended. Readers never touch a lease, so a refusal is an
// answer, with two exceptions that are worth a wait: a holder that has just come gets a moment to say who it is;
// and a process that was killed while it started a child leaves its locks to that child until the child has
// become another program.
func (s *Store) gone(h *store.Holder) bool {
	return s.opt.Alive != nil && h.Host == s.opt.Host && !s.opt.Alive(h.PID, h.Started)
}

// openError says why session.json cannot be opened for writing.
func (s *Store) openError(id session.ID, path string, err error) error {
	_, bad, rerr := s.readHeader(s.dir(id), id)
	switch {
	case errors.Is(rerr, fs.ErrNotExist):
		return s.absent(id)
	case rerr == nil && bad != nil:
		return &store.DamagedError{ID: id, Owner: id, Ranges: []store.Range{{File: path, Last: session.None, Detail: bad.Error()}}}
	}
	return s.readOnly(err)
}

// takeTail takes a shared lock on the last segment, which a living writer, whatever became of session.json, does not
// let go. An exclusive one would say that somebody writes it. Nil if the session has no segment.
func (s *Store) takeTail(ctx context.Context, id session.ID, dir string) (*held, error) {
	vanished := 0
	for left := s.patience; ; {
		names, err := s.segmentNames(dir)
		if err != nil || len(names) == 0 {
			return nil, err
		}
		path := names[len(names)-1].in(dir)
		f, err := s.fs.OpenFile(path, vfs.ReadOnly)
		if errors.Is(err, fs.ErrNotExist) && vanished < 10 {
			vanished++ // list again
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &store.DamagedError{ID: id, Owner: id, Ranges: []store.Range{
				{File: path, First: names[len(names)-1].first, Last: names[len(names)-1].first - 1, Detail: err.Error()}}}
		}
		if err != nil {
			return nil, err
		}
		ok, err := f.TryLock(false)
		if ok && err == nil {
			h := &held{f: f, path: path}
			if h.info, err = f.Stat(); err == nil {
				return h, nil
			}
		}
		info, serr := f.Stat()
		f.Close()
		if err != nil && serr == nil && !info.Mode().IsRegular() {
			err = &store.DamagedError{ID: id, Owner: id, Ranges: []store.Range{{File: path, First: names[len(names)-1].first, Last: session.None,
				Detail: (&notFileError{path, info.Mode()}).Error()}}}
		}
		if err != nil {
			return nil, err
		}
		if left <= 0 {
			return nil, s.busy(ctx, id)
		}
		left -= 2 * time.Millisecond
		if err := vfs.Wait(ctx, 2*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// Open takes the lease of id and reads its log. It changes no byte of it.
func (s *Store) Open(ctx context.Context, id session.ID) (store.Writer, error) {
	if err := session.ValidID(id); err != nil {
		return nil, &store.NotFoundError{ID: string(id)}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	w := &writer{s: s, id: id, dir: s.dir(id), since: s.opt.Now()}
	if err := s.reserve(id, w); err != nil {
		return nil, err
	}
	if err := w.open(ctx); err != nil {
		w.release()
		return nil, readOnlyFor(id, err)
	}
	return w, nil
}

// readOnlyFor names in an error of a store that cannot be written the session that was to be.
func readOnlyFor(id session.ID, err error) error {
	if e, ok := errors.AsType[*store.ReadOnlyError](err); ok {
		return &store.ReadOnlyError{Path: e.Path, ID: id, Cause: e.Cause}
	}
	return err
}

// reserve enters w as this process's only handle of id.
func (s *Store) reserve(id session.ID, w *writer) error {
	s.mu.Lock()
	other, closed := s.writers[id], s.closed
	if other == nil && !closed {
		s.writers[id] = w
	}
	s.mu.Unlock()
	if closed {
		return fmt.Errorf("filestore: %w", store.ErrClosed)
	}
	if other == nil {
		return nil
	}
	if w.created {
		return &store.ExistsError{ID: id, Detail: "this process holds it"}
	}
	h := s.holder(id)
	if h == nil { // not on disk yet, or this very moment
		o := s.opt
		h = &store.Holder{PID: o.PID, Started: o.ProcessStart, Host: o.Host, Program: o.Program, Since: other.since, SessionID: id}
	}
	return &store.BusyError{ID: id, Holder: h}
}

func (w *writer) open(ctx context.Context) (err error) {
	s := w.s
	if err := s.version(); err != nil {
		return err
	}
	if w.lease, err = s.takeLease(ctx, w.id); err != nil {
		return err
	}
	if err := s.fs.Writable(w.dir); err != nil {
		return &store.ReadOnlyError{Path: s.root, Cause: err}
	}
	var l *logScan
	for {
		if w.tail, err = s.takeTail(ctx, w.id, w.dir); err != nil {
			return err
		}
		if l, err = s.scanTail(ctx, w.id); err != nil {
			return err
		}
		names, err := s.segmentNames(w.dir)
		if err != nil {
			return err
		}
		last := ""
		if len(names) > 0 {
			last = names[len(names)-1].in(w.dir)
		}
		if w.tail == nil && last == "" || w.tail != nil && w.tail.path == last {
			break
		}
		w.tail.close()
		w.tail = nil
	}
	if l.uncertain() {
		kin, err := s.kin(ctx)
		if err == nil {
			err = s.prove(ctx, l, kin)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case len(l.damage) > 0:
		return &store.DamagedError{ID: w.id, Owner: l.owner, Ranges: l.damage}
	case l.unsupported != "":
		return &store.UnsupportedError{ID: w.id, Detail: l.unsupported}
	}
	w.start(l)
	w.ann = s.announce(w.id, w.since)
	return nil
}
