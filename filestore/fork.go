package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// CreateFork stores a session that begins with a prefix of another. The parent is not written to.
func (s *Store) CreateFork(ctx context.Context, h session.Header, own []session.Event) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if _, err := record.AppendHeader(nil, h); err != nil {
		return err
	}
	if h.Parent == nil {
		return fmt.Errorf("filestore: %s names no parent: a fork has one", h.ID)
	}
	if err := s.writable(); err != nil {
		return readOnlyFor(h.Parent.ID, err)
	}
	if err := s.free(h.ID); err != nil {
		return err
	}
	// Before the look at the parent: what is found there is not purged until the child is in its place.
	lock, err := s.shareStore(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := s.checkParent(ctx, h); err != nil {
		return err
	}
	return s.placeWhole(ctx, h, store.Pos{Next: h.SeedLength, Link: h.Parent.Link}, own)
}

// placeWhole stores a session whose own events begin at at. Whoever calls it holds store.lock.
func (s *Store) placeWhole(ctx context.Context, h session.Header, at store.Pos, own []session.Event) error {
	w := &writer{s: s, id: h.ID, hdr: h, dir: s.dir(h.ID), created: true, since: s.opt.Now()}
	if err := s.reserve(h.ID, w); err != nil {
		return err
	}
	defer w.Close()
	return w.placeFirst(ctx, at, own)
}

// placeFirst brings a new session with its first events to the place that is w.dir. Nobody is told of its holder.
func (w *writer) placeFirst(ctx context.Context, at store.Pos, own []session.Event) error {
	w.op.Lock()
	defer w.op.Unlock()
	w.start(&logScan{hdr: w.hdr, pos: at, synced: session.None})
	end, blobs, err := w.encode(ctx, own)
	if blobs != nil {
		defer blobs.Close()
	}
	if err != nil {
		return err
	}
	if err := w.newAttempt(at, end, w.unsynced); err != nil {
		return w.notSaved(err)
	}
	if err := w.place(); err != nil {
		return w.notSaved(err)
	}
	w.s.unpin(w.named)
	return nil
}

// checkParent makes sure that h names what is stored, and that it is synced.
func (s *Store) checkParent(ctx context.Context, h session.Header) error {
	p := h.Parent
	parent, bad, err := s.headerAnywhere(p.ID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &store.NotFoundError{ID: string(p.ID)}
	case err != nil:
		return err
	case bad != nil:
		return headerDamaged(p.ID, bad)
	case !slices.Equal(parent.Spans(h.SeedLength), p.Spans):
		return fmt.Errorf("filestore: fork %s: its spans are not those of %s", h.ID, p.ID)
	}
	link := session.Link{}
	if p.Seq != session.None {
		if link, err = s.LinkAt(ctx, p.ID, p.Seq); err != nil {
			return err
		}
	}
	if link != p.Link {
		return fmt.Errorf("filestore: fork %s: the link of %s at %d is %s, not %s", h.ID, p.ID, p.Seq, link, p.Link)
	}
	return nil
}

// headerAnywhere is readHeader of a session that is stored or in the trash.
func (s *Store) headerAnywhere(id session.ID) (h session.Header, bad, err error) {
	err = fs.ErrNotExist
	for _, dir := range []string{s.dir(id), s.trash(id), s.dir(id)} { // again: it may have come back
		if errors.Is(err, fs.ErrNotExist) {
			h, bad, err = s.readHeader(dir, id)
		}
	}
	return h, bad, err
}

// LinkAt returns the link at seq and makes the log durable up to it.
func (s *Store) LinkAt(ctx context.Context, id session.ID, seq session.Seq) (session.Link, error) {
	var zero session.Link
	if session.ValidID(id) != nil {
		return zero, &store.NotFoundError{ID: string(id)}
	}
	h, bad, err := s.headerAnywhere(id) // also for whoever had it when it was deleted
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return zero, s.absent(id)
	case err != nil:
		return zero, err
	case bad != nil:
		return zero, headerDamaged(id, bad)
	}
	missing := fmt.Errorf("filestore: session %s has no seq %d: %w", id, seq, session.ErrRange)
	if seq < 0 {
		return zero, missing
	}
	owner := h.Origin(seq)
	at := place{id, seq} // the same seq of the same owner may be another record for somebody else
	s.mu.Lock()
	link, known := zero, s.linked == at
	if known {
		link = s.linkedTo
	}
	s.mu.Unlock()
	if known {
		return link, nil
	}
	ok, err := s.tied(ctx, h, seq, spanEnd(h, seq, seq))
	if err == nil && !ok {
		err = s.certain(ctx, id, seq)
	}
	if err != nil {
		return zero, err
	}
	for range 100 {
		dir, names, err := s.locate(owner, id)
		if err != nil {
			return zero, err
		}
		i := holding(names, seq)
		if i < 0 {
			if dir == "" && owner == id {
				if _, err := s.fs.Stat(s.dir(id)); errors.Is(err, fs.ErrNotExist) {
					return zero, s.absent(id)
				}
			}
			return zero, missing
		}
		path := names[i].in(dir)
		link, found, err := s.syncedLink(ctx, dir, path, seq)
		if errors.Is(err, fs.ErrNotExist) {
			continue // packed or moved: list again
		}
		if errors.Is(err, errNotTied) {
			return zero, &store.DamagedError{ID: id, Owner: owner, Ranges: []store.Range{{File: path, First: seq, Last: seq, Detail: err.Error()}}}
		}
		if err != nil {
			return zero, err
		}
		// Whoever goes on in a new segment may have taken the record there while we looked.
		again, err := s.segmentNames(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // moved to the trash, or from there
		}
		if err != nil {
			return zero, err
		}
		if j := holding(again, seq); j < 0 || again[j] != names[i] {
			continue
		}
		if !found {
			return zero, missing
		}
		s.mu.Lock()
		s.linked, s.linkedTo = at, link
		s.mu.Unlock()
		return link, nil
	}
	return zero, changesTooFast(id)
}

func changesTooFast(id session.ID) error {
	return fmt.Errorf("filestore: session %s changes faster than it can be read", id)
}

// certain reads the whole log of id and says what is wrong with it, if seq is not in what is certain.
func (s *Store) certain(ctx context.Context, id session.ID, seq session.Seq) error {
	l, err := s.scanSettled(ctx, id, nil)
	switch {
	case err != nil || seq < l.pos.Next:
		return err
	case l.unsupported != "":
		return &store.UnsupportedError{ID: id, Detail: l.unsupported}
	case len(l.damage) > 0:
		return &store.DamagedError{ID: id, Owner: l.owner, Ranges: l.damage}
	}
	return fmt.Errorf("filestore: session %s has no seq %d: %w", id, seq, session.ErrRange)
}

// place names a record.
type place struct {
	id  session.ID
	seq session.Seq
}

// syncedLink finds the record of seq in a segment and syncs the segment, its name and that of the session.
func (s *Store) syncedLink(ctx context.Context, dir, path string, seq session.Seq) (session.Link, bool, error) {
	var link session.Link
	f, err := s.openSegment(path)
	if err != nil {
		return link, false, err
	}
	defer f.Close()
	// The sum does not cover the link: the record before has to be followed, or the child could never be read.
	var before session.Link
	checked := false
	if head, _, err := readSegmentHead(f); err != nil {
		return link, false, err
	} else if head.First == seq {
		before, checked = head.Prev, true
	} else if err := findRecord(ctx, f, seq-1, func(raw *record.Raw) {
		before, checked = raw.Link()
		checked = checked && string(raw.Type) != session.TypeLost // behind a mark a link may not follow
	}); err != nil {
		return link, false, err
	}
	found, follow := false, true
	err = findRecord(ctx, f, seq, func(raw *record.Raw) {
		link, found = raw.Link()
		follow = !checked || string(raw.Type) == session.TypeLost || follows(raw, before)
	})
	if err != nil || !found {
		return link, false, err
	}
	if !follow {
		return link, false, errNotTied
	}
	if err := s.sync(f.SyncData); err != nil {
		return link, false, err
	}
	if err := s.syncDir(dir); err != nil {
		return link, false, err
	}
	return link, true, s.syncDir(filepath.Dir(dir))
}

var errNotTied = errors.New("its link does not follow the record before it")

// findRecord calls use with the record of seq, if the segment f holds it.
func findRecord(ctx context.Context, f vfs.File, seq session.Seq, use func(*record.Raw)) error {
	lo, err := seekRecord(f, seq)
	if err != nil {
		return err
	}
	found := false
	look := func(raw *record.Raw) bool {
		if raw.Seq == seq {
			use(raw)
			found = true
		}
		return raw.Seq < seq
	}
	if err := eachRecord(ctx, f, lo, look); err != nil || found || lo == 0 {
		return err
	}
	return eachRecord(ctx, f, 0, look)
}

// seekRecord returns a place in the segment f, not far before the record of seq. What does not count may stand behind
// the end of a segment, and lead it astray: who finds nothing there looks from the beginning. It halves the file until
// little is left: the cost does not grow with the segment.
func seekRecord(f vfs.File, seq session.Seq) (int64, error) { return seekWithin(f, seq, window) }

// seekWithin is seekRecord for who reads so many bytes at a time: so much is little.
func seekWithin(f vfs.File, seq session.Seq, step int) (int64, error) {
	_, head, err := readSegmentHead(f)
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	lo, hi := head, info.Size()
	for hi-lo > int64(step) {
		mid := lo + (hi-lo)/2
		r := record.NewReader(&fileReader{f, mid}, mid, (*buf)[:step])
		at, got := int64(-1), session.None
		for {
			tok, err := r.Next()
			if err != nil {
				return 0, err
			}
			if tok == record.Broken {
				continue // the first line is seldom whole
			}
			if tok == record.Good {
				at, got = r.At, r.Raw.Seq
			}
			break
		}
		if at < 0 || at >= hi || got > seq {
			hi = mid
		} else {
			lo = at
		}
	}
	return lo, nil
}

// eachRecord calls f with the good records from off on until it returns false.
func eachRecord(ctx context.Context, file vfs.File, off int64, f func(*record.Raw) bool) error {
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	r := record.NewReader(&fileReader{file, off}, off, *buf)
	for n := 0; ; n++ {
		tok, err := r.Next()
		if err != nil || tok == record.End {
			return err
		}
		if tok == record.Good && !f(&r.Raw) {
			return nil
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
