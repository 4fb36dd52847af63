package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// writer is one life of a session. Its states: created (nothing is on disk, lease is nil), opened
// (lease and tail are held, own is empty), writing (own is not empty), broken (its last descriptor is
// not trusted: the next call places a new segment first), gone (fenced) and closed.
type writer struct {
	s       *Store
	id      session.ID
	hdr     session.Header
	dir     string
	since   time.Time
	created bool // by Create; guarded by nothing: set before the writer is shared

	op sync.Mutex // held by Append, Flush and Close; guards what follows

	lease     *held
	newLease  *held // of a session whose directory is not in place yet
	tail      *held // shared lock on the last segment of the life before
	tailSize  int64
	tailSeg   int         // index in segs of what tail is
	tailMark  session.Seq // what the log itself says is synced
	tailSafe  bool        // tail was synced by this life
	tailNamed bool        // its name is durable, and that of the session
	tailBad   bool        // its sync failed: what is above tailMark is written again
	lost      []lostRecord
	ann       *announcement
	try       *attempt
	gone      error
	closed    bool
	broken    bool
	looked    bool
	unsynced  []byte   // the records from synced to next, as they are in the file
	named     []string // pinned blobs that the batch names which is being written
	kept      int      // that many bytes of unsynced are written; the rest is the batch that is not yet
	acked     store.Pos
	opened    *store.Snapshot
	stopJoin  context.CancelFunc // of the joining in the background; nil: there is none
	joinDone  chan struct{}      // closed at its end

	hurt    atomic.Bool // damage was met in this log: no checkpoint hides it
	folding sync.Mutex  // held by who makes a checkpoint; guards what follows
	newest  string      // the path of the newest checkpoint, if it is this session's own

	mu     sync.Mutex // guards what other goroutines may ask for at any time
	joined []joined   // what the joining in the background made and is not in segs yet
	segs   []segment
	scars  []string  // of what was read; nil: not known
	own    []*held   // this life's segments: their locks are kept to its end
	next   store.Pos // written
	synced store.Pos
}

var _ store.Writer = (*writer)(nil)

// Create reserves h.ID. Nothing is stored before the first Append.
func (s *Store) Create(ctx context.Context, h session.Header) (store.Writer, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if _, err := record.AppendHeader(nil, h); err != nil {
		return nil, err
	}
	if err := s.writable(); err != nil {
		return nil, err
	}
	if err := s.free(h.ID); err != nil {
		return nil, err
	}
	w := &writer{s: s, id: h.ID, hdr: h, dir: s.dir(h.ID), created: true, since: s.opt.Now()}
	if err := s.reserve(h.ID, w); err != nil {
		return nil, err
	}
	l := &logScan{hdr: h, synced: session.None, coming: true}
	l.scars = s.scars(h, true)
	if h.Parent != nil {
		err := s.scanSpans(ctx, l)
		if err == nil && len(l.damage) > 0 {
			err = &store.DamagedError{ID: h.ID, Owner: l.owner, Ranges: l.damage}
		}
		if err == nil && l.unsupported != "" {
			err = &store.UnsupportedError{ID: h.ID, Detail: l.unsupported}
		}
		if err != nil {
			w.release()
			return nil, err
		}
	}
	w.start(l)
	return w, nil
}

// free refuses an id that is stored, or was.
func (s *Store) free(id session.ID) error {
	_, err := s.fs.Stat(s.dir(id))
	if err == nil {
		return &store.ExistsError{ID: id, Detail: s.dir(id)}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.unused(id)
}

// unused refuses the id of a session that was deleted.
func (s *Store) unused(id session.ID) error {
	trashed, purged, err := s.former(id)
	if err == nil && (trashed || purged) {
		err = &store.ExistsError{ID: id, Deleted: true, Purged: purged}
	}
	return err
}

// start takes over what a scan found.
func (w *writer) start(l *logScan) {
	w.hdr, w.lost, w.acked = l.hdr, l.lost, l.pos
	w.mu.Lock() // a child that is opened meanwhile asks for the index
	w.segs, w.next, w.synced, w.scars = l.segs, l.pos, l.pos, l.scars
	w.mu.Unlock()
	w.tailSize, w.tailMark, w.tailSeg = l.size, l.synced, len(l.segs)-1
	w.tailSafe = w.tail == nil
	w.opened = w.s.snapshot(l, w.id)
	if l.fold != nil && filepath.Dir(l.foldAt) == w.s.cacheDir(w.id) {
		w.newest = l.foldAt
	}
}

func (w *writer) Header() session.Header     { return w.hdr }
func (w *writer) Opened() *store.Snapshot    { return w.opened }
func (w *writer) view() (v *view)            { return &view{s: w.s, id: w.id, segs: w.segs, n: w.next.Next} }
func (w *writer) current() (*held, *segment) { return w.own[len(w.own)-1], &w.segs[len(w.segs)-1] }

// Stored returns what is written now.
func (w *writer) Stored() session.Prefix {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.view()
	v.segs = slices.Clone(w.segs)
	return v
}

func (w *writer) Base() session.Seq {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.own) == 0 {
		return session.None
	}
	return w.segs[len(w.segs)-len(w.own)].first
}

// usable says why this life cannot go on.
func (w *writer) usable(ctx context.Context) error {
	switch {
	case w.closed:
		return fmt.Errorf("filestore: the writer of %s: %w", w.id, store.ErrClosed)
	case w.gone != nil:
		return w.gone
	}
	return context.Cause(ctx)
}

// notSaved wraps what callers do not decide on. Nil stays nil.
func (w *writer) notSaved(err error) error {
	if err == nil {
		return nil
	}
	for _, kind := range []error{store.ErrFenced, store.ErrExists, store.ErrReadOnly, store.ErrNotSaved} {
		if errors.Is(err, kind) {
			return err
		}
	}
	return &store.NotSavedError{ID: w.id, Path: w.dir, Cause: err}
}

func (w *writer) Append(ctx context.Context, events []session.Event) (store.Pos, error) {
	w.op.Lock()
	defer w.op.Unlock()
	if err := w.usable(ctx); err != nil {
		return w.next, err
	}
	w.takeJoined()
	// What an earlier call left half done comes first: it may hold the beginning of events.
	if w.try != nil {
		if err := w.place(); err != nil {
			return w.next, w.notSaved(err)
		}
	}
	events, err := w.known(ctx, events)
	if err != nil || len(events) == 0 {
		return w.next, err
	}
	// While a session comes into being nobody sweeps away what is not locked yet, or purges what it inherits.
	if w.lease == nil {
		lock, err := w.s.shareStore(ctx)
		if err != nil {
			return w.next, w.notSaved(err)
		}
		defer lock.Close()
	}
	end, lock, err := w.encode(ctx, events)
	if lock != nil {
		defer lock.Close()
	}
	if err == nil {
		if err = w.write(end); err == nil {
			w.s.unpin(w.named)
		}
	}
	w.unsynced = w.unsynced[:w.kept]
	return w.next, err
}

// write brings unsynced[kept:] to disk.
func (w *writer) write(end store.Pos) error {
	text := w.unsynced[w.kept:]
	if w.ann == nil && w.lease != nil && w.dir == w.s.dir(w.id) { // it failed: who lists sessions relies on it
		w.ann = w.s.announce(w.id, w.since)
	}
	if len(w.own) == 0 {
		err := w.first(text, end)
		if err == nil && w.ann == nil {
			w.ann = w.s.announce(w.id, w.since)
		}
		return w.notSaved(err)
	}
	f, seg := w.current()
	if !w.broken && seg.stop+int64(len(text)) > w.s.opt.SegmentBytes {
		// A new segment begins with the batch; the old one is done, so it must be synced.
		if w.kept > 0 {
			if err := w.syncData(f); err != nil {
				w.broken = true
			} else {
				w.mu.Lock()
				w.synced = w.next
				w.mu.Unlock()
				w.unsynced, w.kept = append(w.unsynced[:0], text...), 0
			}
		}
		return w.notSaved(w.roll(end))
	}
	if w.broken {
		return w.notSaved(w.roll(end))
	}
	n, err := f.f.Write(text)
	if err != nil || n < len(text) {
		w.broken = true
		if rerr := w.roll(end); rerr != nil {
			w.arrived(text[:n])
			return w.notSaved(errors.Join(err, rerr))
		}
		return nil
	}
	w.wrote(text, end)
	return nil
}

// wrote takes in that the records text stand in the file.
func (w *writer) wrote(text []byte, end store.Pos) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, seg := w.current()
	w.kept += len(text)
	seq, at := w.next.Next, seg.stop
	for len(text) > 0 {
		k := bytes.IndexByte(text, '\n') + 1
		seg.marks = addMark(seg.marks, seq, at)
		seq, at, text = seq+1, at+int64(k), text[k:]
	}
	seg.end, seg.stop = end.Next, at
	w.next = end
	w.looked = false
}

// arrived takes in what of a batch got into the file before its write failed. Others may have read the whole
// records of it: this life must not go on elsewhere without them.
func (w *writer) arrived(text []byte) {
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	if len(text) == 0 {
		return
	}
	last := text[bytes.LastIndexByte(text[:len(text)-1], '\n')+1:]
	raw, err := record.Parse(last[:len(last)-1])
	if err != nil {
		return // not this program's bytes: a reader does not take them either
	}
	link, _ := raw.Link()
	w.wrote(text, store.Pos{Next: raw.Seq + 1, Link: link})
}

// roll goes on in a new segment that begins behind the last synced record.
func (w *writer) roll(end store.Pos) error {
	if err := w.newAttempt(w.synced, end, w.unsynced); err != nil {
		return err
	}
	return w.place()
}

// first makes the first segment of this life.
func (w *writer) first(text []byte, end store.Pos) error {
	at := w.next
	if err := w.syncNames(); err != nil {
		return err
	}
	w.syncTail()
	if w.tailBad {
		again, from, err := w.unsafeTail()
		if err != nil {
			return err
		}
		at, text = from, append(again, text...)
	}
	if err := w.newAttempt(at, end, text); err != nil {
		return err
	}
	return w.place()
}

// syncTail makes durable what the life before has written and perhaps not synced.
func (w *writer) syncTail() {
	if w.tailSafe || w.tailBad {
		return
	}
	if err := w.syncData(w.tail); err != nil {
		w.tailBad = true // a second sync could report success for bytes that are gone
		return
	}
	w.tailSafe = true
}

// unsafeTail returns the records of the segment before that are not known to be synced, and where they
// begin. Its first record always is: a first commit is synced before it has a name.
func (w *writer) unsafeTail() ([]byte, store.Pos, error) {
	seg := w.segs[w.tailSeg]
	from := max(w.tailMark, seg.first) + 1
	if from >= seg.end {
		return nil, w.next, nil
	}
	var text []byte
	at := store.Pos{Next: from}
	err := w.view().scan(context.Background(), w.tailSeg, from-1, seg.end, func(r *record.Raw) bool {
		if r.Seq == from-1 {
			at.Link, _ = r.Link()
			return true
		}
		text = append(append(text, r.Line()...), '\n')
		return true
	})
	return text, at, err
}

// syncNames makes durable what lives before have named: they may have died before that, and a segment that survives
// loss of power without the one before it is damage.
func (w *writer) syncNames() error {
	if w.tailNamed || w.lease == nil {
		return nil
	}
	if err := w.s.syncDir(w.dir); err != nil {
		return err
	}
	if err := w.s.syncDir(filepath.Dir(w.dir)); err != nil {
		return err
	}
	w.tailNamed = true
	return nil
}

func (w *writer) syncData(h *held) error { return w.s.sync(h.f.SyncData) }

func (w *writer) Flush(ctx context.Context) (store.Pos, error) {
	w.op.Lock()
	defer w.op.Unlock()
	if err := w.usable(ctx); err != nil {
		return w.synced, err
	}
	if w.try != nil {
		if err := w.place(); err != nil {
			return w.synced, w.notSaved(err)
		}
	}
	if len(w.own) == 0 {
		if w.syncTail(); w.tailBad {
			return w.synced, w.notSaved(errors.New("what the life before wrote cannot be synced"))
		}
		return w.synced, w.notSaved(w.syncNames())
	}
	if w.kept > 0 {
		f, _ := w.current()
		if !w.broken && w.syncData(f) != nil {
			w.broken = true
		}
		if w.broken {
			if err := w.roll(w.next); err != nil {
				return w.synced, w.notSaved(err)
			}
		}
	}
	if !w.looked {
		ok, why, err := w.look(w.next.Next, w.own)
		if err != nil {
			return w.synced, w.notSaved(err)
		}
		if !ok {
			return w.synced, w.fence(why)
		}
		w.looked = true
	}
	w.mu.Lock()
	w.synced = w.next
	w.mu.Unlock()
	w.acked = w.next
	w.forget()
	return w.synced, nil
}

// smallRoom is what an idle writer may hold on to for its next records.
const smallRoom = 4 << 10

// forget drops the records that are synced. Big room goes back to the store: an idle session keeps none.
func (w *writer) forget() {
	w.kept = 0
	if cap(w.unsynced) <= smallRoom {
		w.unsynced = w.unsynced[:0]
		return
	}
	room := w.unsynced[:0]
	w.unsynced = nil
	w.s.rooms.Put(&room)
}

// Close releases the lease.
func (w *writer) Close() error {
	w.op.Lock()
	defer w.op.Unlock()
	if w.closed {
		return nil
	}
	w.release()
	return nil
}

// release gives everything back, the lease last.
func (w *writer) release() {
	w.closed = true
	w.endJoin()
	if w.try != nil {
		f := w.try.file
		if w.newLease != nil {
			f = w.newLease
		}
		if mine, _, err := w.s.isAt(f); err == nil && !mine {
			w.drop(w.try)
		} else {
			w.try.file.close()
			w.newLease.close()
		}
	}
	w.s.withdraw(w.ann)
	w.tail.close()
	for _, h := range slices.Backward(w.own) { // the last first: with it all of them count as let go
		h.close()
	}
	w.lease.close()
	if w.opened != nil {
		w.opened.Close()
	}
	w.s.mu.Lock()
	if w.s.writers[w.id] == w {
		delete(w.s.writers, w.id)
	}
	w.s.mu.Unlock()
}
