package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// takeBytes is about how much of a session that is taken in is kept in memory.
const takeBytes = 4 << 20

// Take stores a session that was made elsewhere.
func (s *Store) Take(ctx context.Context, h session.Header, events iter.Seq2[session.Event, error]) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if _, err := record.AppendHeader(nil, h); err != nil {
		return err
	}
	if h.Parent != nil {
		return fmt.Errorf("filestore: %s names a parent: that is a fork", h.ID)
	}
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.free(h.ID); err != nil {
		return err
	}
	lock, err := s.shareStore(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	t := &taking{s: s, hdr: h}
	defer t.close()
	var batch []session.Event
	size := int64(0)
	for ev, err := range events {
		if err != nil {
			return err
		}
		if size > min(takeBytes, s.opt.SegmentBytes) {
			if err := t.add(ctx, batch); err != nil {
				return err
			}
			batch, size = nil, 0
		}
		batch = append(batch, ev)
		size += int64(len(ev.Data)) + 200
	}
	if t.w == nil {
		return s.placeWhole(ctx, h, store.Pos{}, batch)
	}
	if err := t.add(ctx, batch); err != nil {
		return err
	}
	return t.place()
}

// taking is a session with more events than are kept in memory, on its way into the store: it is written, batch by
// batch as any other, in a directory that no reader looks into, and gets its name when it is whole.
type taking struct {
	s      *Store
	hdr    session.Header
	w      *writer // nil before the first batch
	placed bool
}

func (t *taking) add(ctx context.Context, batch []session.Event) error {
	if t.w != nil {
		if _, err := t.w.Append(ctx, batch); err != nil {
			return err
		}
		_, err := t.w.Flush(ctx)
		return err
	}
	n, err := t.s.nonce()
	if err != nil {
		return err
	}
	w := &writer{s: t.s, id: t.hdr.ID, hdr: t.hdr, dir: t.s.path("sessions", newSession+n), created: true, since: t.s.opt.Now()}
	if err := t.s.reserve(t.hdr.ID, w); err != nil {
		return err
	}
	t.w = w
	return w.placeFirst(ctx, store.Pos{}, batch)
}

// place renames the directory.
func (t *taking) place() error {
	s, w := t.s, t.w
	if err := s.unused(w.id); err != nil {
		return err
	}
	dir := s.dir(w.id)
	if err := s.fs.RenameNoReplace(w.dir, dir); err != nil {
		mine, _, serr := s.isAt(&held{f: w.lease.f, info: w.lease.info, path: filepath.Join(dir, headerName)})
		switch {
		case serr != nil:
			return w.notSaved(errors.Join(err, serr))
		case mine:
		case errors.Is(err, fs.ErrExist):
			return &store.ExistsError{ID: w.id, Detail: "another process created it first"}
		default:
			return w.notSaved(s.readOnly(err))
		}
	}
	t.placed = true
	return w.notSaved(s.syncDir(filepath.Dir(dir)))
}

// close ends the life; of a session that did not get its name nothing is left.
func (t *taking) close() {
	if t.w == nil {
		return
	}
	t.w.Close()
	if !t.placed {
		t.s.removeAll(t.w.dir)
	}
}
