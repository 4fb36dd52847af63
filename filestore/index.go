package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"sort"
	"sync"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// segment is the index of one segment file: the records first..end-1 lie from off to stop. A copy
// stays right while the original grows: marks is only appended to.
type segment struct {
	owner      session.ID // whose file it is
	path       string
	first, end session.Seq
	prev       session.Link
	off, stop  int64
	marks      []mark
	text       []byte // the records, where they are not in a file: path is ""
	far        *far   // not nil: it was not read, so off, stop and marks are not known
}

// at returns the greatest mark at or below seq, and the offset of the mark after it.
func (g *segment) at(seq session.Seq) (mark, int64) {
	i := sort.Search(len(g.marks), func(i int) bool { return g.marks[i].seq > seq })
	stop := g.stop
	if i < len(g.marks) {
		stop = g.marks[i].off
	}
	if i == 0 {
		return mark{g.first, g.off}, stop
	}
	return g.marks[i-1], stop
}

// view is a log on disk: a Prefix that reads events when they are asked for. It keeps the index and a
// few blocks in memory, and no descriptor open.
type view struct {
	s    *Store
	id   session.ID
	segs []segment
	n    session.Seq

	mu     sync.Mutex
	blocks []block // the last used first
	closed bool
	moved  map[place]moved // guarded by mu: of segments that are not where they were found
}

// block is the text of the records between two marks.
type block struct {
	path  string
	first session.Seq
	text  []byte

	end session.Seq // of a far segment: behind the last, and where it begins
	off int64
}

const maxBlocks = 4

var _ session.Prefix = (*view)(nil)

func (v *view) Len() session.Seq { return v.n }

func (v *view) release() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed, v.blocks = true, nil
	return nil
}

// find returns the index of the segment that holds seq, or -1.
func (v *view) find(seq session.Seq) int {
	i := sort.Search(len(v.segs), func(i int) bool { return v.segs[i].end > seq })
	if i == len(v.segs) || seq < v.segs[i].first {
		return -1
	}
	return i
}

func (v *view) At(seq session.Seq) (session.Event, error) {
	i := -1
	if seq >= 0 && seq < v.n {
		i = v.find(seq)
	}
	if i < 0 {
		return session.Event{}, fmt.Errorf("filestore: seq %d of %d: %w", seq, v.n, session.ErrRange)
	}
	g := &v.segs[i]
	m, stop := g.at(seq)
	var text []byte
	var err error
	if g.far != nil {
		m, text, err = v.farBlock(g, seq)
		stop = m.off + int64(len(text))
	} else {
		text, err = v.block(g, m, stop)
	}
	if err != nil {
		return session.Event{}, err
	}
	line := text
	for q := m.seq; ; q++ {
		k := bytes.IndexByte(line, '\n')
		if k < 0 {
			return session.Event{}, v.damaged(g, m.off, stop-m.off, seq, "a record is gone")
		}
		if q < seq {
			line = line[k+1:]
			continue
		}
		off := m.off + int64(len(text)-len(line))
		raw, err := record.Parse(line[:k:k])
		if err != nil {
			return session.Event{}, v.damaged(g, off, int64(k)+1, seq, err.Error())
		}
		if raw.Seq != seq {
			return session.Event{}, v.damaged(g, off, int64(k)+1, seq, fmt.Sprintf("a record with seq %d in its place", raw.Seq))
		}
		return v.s.accepted(context.Background(), v.id, g.owner, &raw)
	}
}

// damaged says what was met.
func (v *view) damaged(g *segment, off, n int64, seq session.Seq, why string) error {
	v.s.met(v.id, seq)
	return &store.DamagedError{ID: v.id, Owner: g.owner, Ranges: []store.Range{
		{File: g.path, Offset: off, Bytes: n, First: seq, Last: seq, Detail: why}}}
}

// block returns the text from m to stop, which is not written to afterwards.
func (v *view) block(g *segment, m mark, stop int64) ([]byte, error) {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return nil, fmt.Errorf("filestore: the snapshot of %s: %w", v.id, store.ErrClosed)
	}
	for i, b := range v.blocks {
		if b.path == g.path && b.first == m.seq && int64(len(b.text)) >= stop-m.off {
			copy(v.blocks[1:i+1], v.blocks[:i])
			v.blocks[0] = b
			v.mu.Unlock()
			return b.text[:stop-m.off], nil
		}
	}
	v.mu.Unlock()

	f, shift, err := v.open(g)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := make([]byte, stop-m.off)
	if n, err := f.ReadAt(text, m.off+shift); n < len(text) {
		if err == io.EOF {
			return nil, v.damaged(g, m.off+int64(n), int64(len(text)-n), m.seq, "the file is shorter than it was")
		}
		return nil, err
	}
	v.keep(block{path: g.path, first: m.seq, text: text})
	return text, nil
}

// keep remembers a block.
func (v *view) keep(b block) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closed {
		v.blocks = append([]block{b}, v.blocks[:min(len(v.blocks), maxBlocks-1)]...)
	}
}

// moved says where the records of a segment lie now: so much further on, in another file.
type moved struct {
	path  string
	shift int64
}

// open opens a segment, which may have moved to the trash, or been joined to others, since it was found. The offsets
// that g knows are those of the file plus shift.
func (v *view) open(g *segment) (f vfs.File, shift int64, err error) {
	if g.text != nil {
		return textFile(g.text), 0, nil
	}
	at := place{g.owner, g.first}
	v.mu.Lock()
	m, ok := v.moved[at]
	v.mu.Unlock()
	if !ok {
		m.path = g.path
	}
	if f, err = v.s.openSegment(m.path); err == nil {
		return f, m.shift, nil
	}
	for range 10 { // what is found may be joined again before it is opened
		for _, dir := range v.s.homes(g.owner, v.id) {
			f, m, e := v.s.relocate(dir, g)
			if e == nil {
				v.mu.Lock()
				if v.moved == nil {
					v.moved = map[place]moved{}
				}
				v.moved[at] = m
				v.mu.Unlock()
				return f, m.shift, nil
			}
			if errors.Is(err, fs.ErrNotExist) && !errors.Is(e, fs.ErrNotExist) {
				err = e // it may be there: nobody could look
			}
		}
	}
	if g.far != nil && errors.Is(err, fs.ErrNotExist) { // nobody has seen it there but by its name
		if dir, _, lerr := v.s.locate(g.owner, v.id); lerr == nil && dir != "" {
			return nil, 0, v.damaged(g, 0, 0, g.first, "the file is gone")
		}
	}
	return nil, 0, err
}

// relocate finds the records of g in dir.
func (s *Store) relocate(dir string, g *segment) (vfs.File, moved, error) {
	m := moved{}
	names, err := s.segmentNames(dir)
	if err != nil {
		return nil, m, err
	}
	i := holding(names, g.first)
	if i < 0 || !names[i].packed() && names[i].String() != filepath.Base(g.path) {
		return nil, m, fs.ErrNotExist
	}
	m.path = names[i].in(dir)
	f, err := s.openSegment(m.path)
	if err != nil {
		return nil, m, err
	}
	if names[i].packed() && g.end > g.first && g.far == nil {
		at, err := locateRecord(context.Background(), f, g.first, nil)
		if err != nil {
			f.Close()
			return nil, m, err
		}
		m.shift = at - g.off
	}
	return f, m, nil
}

// locateRecord returns where the record of seq begins in the segment f, and calls use, if not nil, with it.
// fs.ErrNotExist: there is none.
func locateRecord(ctx context.Context, f vfs.File, seq session.Seq, use func(*record.Raw)) (int64, error) {
	return locateWithin(ctx, f, seq, window, use)
}

// locateWithin is locateRecord for who expects short records: it reads so many bytes at a time.
func locateWithin(ctx context.Context, f vfs.File, seq session.Seq, step int, use func(*record.Raw)) (int64, error) {
	lo, err := seekWithin(f, seq, step)
	if err != nil {
		return 0, err
	}
	at, err := recordFrom(ctx, f, lo, seq, step, use)
	if errors.Is(err, fs.ErrNotExist) && lo > 0 { // led astray
		return recordFrom(ctx, f, 0, seq, window, use)
	}
	return at, err
}

// recordFrom is locateWithin from off on.
func recordFrom(ctx context.Context, f vfs.File, off int64, seq session.Seq, step int, use func(*record.Raw)) (int64, error) {
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	r := record.NewReader(&fileReader{f, off}, off, (*buf)[:step])
	for {
		tok, err := r.Next()
		switch {
		case err != nil:
			return 0, err
		case tok == record.End || tok == record.Good && r.Raw.Seq > seq:
			return 0, fmt.Errorf("no record has the seq %d: %w", seq, fs.ErrNotExist)
		case tok == record.Good && r.Raw.Seq == seq:
			if use != nil {
				use(&r.Raw)
			}
			return r.At, nil
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		}
	}
}

func (v *view) Range(from, to session.Seq) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) {
		ctx, stopped := context.Background(), false
		err := v.each(ctx, from, to, func(g *segment, raw *record.Raw) bool {
			ev, err := v.s.accepted(ctx, v.id, g.owner, raw)
			stopped = !yield(ev, err) || err != nil
			return !stopped
		})
		if err != nil && !stopped {
			yield(session.Event{}, err)
		}
	}
}

// Lend is Range without copies.
func (v *view) Lend(from, to session.Seq, f func(session.Event)) error {
	var failed error
	ctx := context.Background()
	err := v.each(ctx, from, to, func(g *segment, raw *record.Raw) bool {
		var ev session.Event
		if ev, failed = v.s.internal(ctx, v.id, g.owner, raw.Borrow()); failed == nil {
			f(ev)
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// each calls f with the records from..to-1, and the segments they lie in, until it returns false.
func (v *view) each(ctx context.Context, from, to session.Seq, f func(*segment, *record.Raw) bool) error {
	if from >= to {
		return nil
	}
	if from < 0 || to > v.n {
		return fmt.Errorf("filestore: seqs %d to %d of %d: %w", from, to, v.n, session.ErrRange)
	}
	for i := v.find(from); from < to; i++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if i < 0 || i >= len(v.segs) || v.segs[i].first > from {
			return fmt.Errorf("filestore: seq %d: %w", from, session.ErrRange)
		}
		end, stopped := min(to, v.segs[i].end), false
		err := v.scan(ctx, i, from, end, func(raw *record.Raw) bool {
			stopped = !f(&v.segs[i], raw)
			return !stopped
		})
		if err != nil || stopped {
			return err
		}
		from = end
	}
	return nil
}

// scan calls f with the records from..to-1 of segment i until it returns false.
func (v *view) scan(ctx context.Context, i int, from, to session.Seq, f func(*record.Raw) bool) error {
	v.mu.Lock()
	closed := v.closed
	v.mu.Unlock()
	if closed {
		return fmt.Errorf("filestore: the snapshot of %s: %w", v.id, store.ErrClosed)
	}
	g := &v.segs[i]
	file, shift, err := v.open(g)
	if err != nil {
		return err
	}
	defer file.Close()
	m, _ := g.at(from)
	end := g.stop
	if g.far != nil {
		if m, end, err = v.farPlace(g, file, from); err != nil {
			return err
		}
	} else if end-m.off > aheadBytes {
		return v.scanAhead(ctx, g, file, shift, m, from, to, f)
	}
	var buf *[]byte
	if n := end - m.off; n <= 16<<10 { // short: no need for a big window
		b := make([]byte, max(n, 4096))
		buf = &b
	} else {
		buf = windows.Get().(*[]byte)
		defer windows.Put(buf)
	}
	r := record.NewReader(io.LimitReader(&fileReader{file, m.off + shift}, end-m.off), m.off, *buf)
	for due := m.seq; due < to; due++ {
		tok, err := r.Next()
		switch {
		case err != nil:
			return err
		case tok == record.End:
			return v.damaged(g, end, 0, due, "the file is shorter than it was")
		case tok == record.Broken:
			return v.damaged(g, r.Bad.Offset, r.Bad.Bytes, due, r.Bad.String())
		case r.Raw.Seq != due:
			return v.damaged(g, r.At, int64(len(r.Raw.Line())), due, fmt.Sprintf("a record with seq %d in its place", r.Raw.Seq))
		}
		if due >= from && !f(&r.Raw) {
			return nil
		}
		if due%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// textFile is a file in memory, for reading.
type textFile []byte

func (t textFile) ReadAt(b []byte, off int64) (int, error) { return bytes.NewReader(t).ReadAt(b, off) }
func (t textFile) Write([]byte) (int, error)               { return 0, fs.ErrPermission }
func (t textFile) Sync() error                             { return nil }
func (t textFile) SyncData() error                         { return nil }
func (t textFile) Stat() (fs.FileInfo, error)              { return nil, fs.ErrInvalid }
func (t textFile) TryLock(bool) (bool, error)              { return false, vfs.ErrNotSupported }
func (t textFile) HasWriter() (bool, error)                { return false, nil }
func (t textFile) Close() error                            { return nil }
