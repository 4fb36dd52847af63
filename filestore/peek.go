package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"sync"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// around is how many bytes before the place of an event are read with it: who looks at the end of a log looks
// backwards.
const around = 128 << 10

// Peek returns the log of id without reading it. A log whose end is not healthy, or that a part of what it begins with does not lead to,
// is left to Read.
func (s *Store) Peek(ctx context.Context, id session.ID) (*store.Snapshot, error) {
	st, err := s.Stat(ctx, id)
	if err != nil || st.State != store.StateOK {
		return nil, err
	}
	if ok, err := s.tied(ctx, st.Header, 0, st.Pos.Next); err != nil || !ok {
		return nil, err
	}
	p := &peeked{s: s, hdr: st.Header, n: st.Pos.Next}
	return &store.Snapshot{Header: st.Header, Prefix: p, Pos: st.Pos}, nil
}

// findStep is how much Find reads at a time: a few records of the usual size.
const findStep = 8 << 10

// Find returns one event of the part that the session of h logged itself. What it begins with, and what it was handed, is left to Peek.
func (s *Store) Find(ctx context.Context, h session.Header, seq session.Seq) (ev session.Event, ok bool, err error) {
	if seq < h.SeedLength {
		return ev, false, nil
	}
	dir := s.dir(h.ID)
	names, err := s.segmentNames(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return ev, false, s.absent(h.ID)
	}
	if err != nil {
		return ev, false, err
	}
	i := holding(names, seq) // so it lies below the next one's first, or does not count
	if i < 0 || names[i].packed() && seq >= names[i].end {
		return ev, false, nil
	}
	var failed error
	err = s.withText(names[i].in(dir), func(f vfs.File) error {
		_, err := locateWithin(ctx, f, seq, findStep, func(raw *record.Raw) {
			ev, failed = s.accepted(ctx, h.ID, h.ID, raw)
			ok = failed == nil
		})
		return err
	})
	return ev, ok, errors.Join(failed, unlessBad(err))
}

// peeked is a Prefix that finds its events in the files, a few at a time. Safe for concurrent use.
type peeked struct {
	s   *Store
	hdr session.Header
	n   session.Seq

	mu   sync.Mutex
	near []session.Event // guarded by mu: adjacent events, those that were looked for last
}

var _ store.Finder = (*Store)(nil)

var _ session.Prefix = (*peeked)(nil)

func (p *peeked) Len() session.Seq { return p.n }

func (p *peeked) At(seq session.Seq) (session.Event, error) {
	if seq < 0 || seq >= p.n {
		return session.Event{}, fmt.Errorf("filestore: seq %d of %d: %w", seq, p.n, session.ErrRange)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.near) == 0 || seq < p.near[0].Seq || seq > p.near[len(p.near)-1].Seq {
		var err error
		if p.near, err = p.find(context.Background(), seq); err != nil {
			p.near = nil
			return session.Event{}, err
		}
	}
	return p.near[seq-p.near[0].Seq], nil
}

func (p *peeked) Range(from, to session.Seq) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) {
		for q := from; q < to; q++ {
			ev, err := p.At(q)
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// find returns the event at seq and some before and behind it, without a gap.
func (p *peeked) find(ctx context.Context, seq session.Seq) ([]session.Event, error) {
	owner := p.hdr.Origin(seq)
	for range 100 {
		dir, names, err := p.s.locate(owner, p.hdr.ID)
		if err != nil {
			return nil, err
		}
		i := holding(names, seq)
		if i < 0 {
			break
		}
		end := min(spanEnd(p.hdr, seq, p.n), p.n)
		if i+1 < len(names) {
			end = min(end, names[i+1].first)
		}
		path := names[i].in(dir)
		evs, err := p.read(ctx, path, seq, end)
		if errors.Is(err, fs.ErrNotExist) {
			continue // packed or moved: list again
		}
		if _, bad := errors.AsType[*record.Error](err); !bad && (err != nil || evs != nil) {
			return evs, err
		}
		p.s.met(p.hdr.ID, seq)
		return nil, &store.DamagedError{ID: p.hdr.ID, Owner: owner, Ranges: []store.Range{
			{File: path, First: seq, Last: seq, Detail: "the record is not where it should be"}}}
	}
	p.s.met(p.hdr.ID, seq)
	return nil, &store.DamagedError{ID: p.hdr.ID, Owner: owner, Ranges: []store.Range{
		{File: p.s.dir(owner), First: seq, Last: seq, Detail: "no segment holds the record"}}}
}

// read returns the good records around seq that lie in one segment, below end; nil if seq is not among them.
func (p *peeked) read(ctx context.Context, path string, seq, end session.Seq) ([]session.Event, error) {
	f, err := p.s.openSegment(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	off, err := seekRecord(f, seq)
	if err != nil {
		return nil, err
	}
	_, head, err := readSegmentHead(f)
	if err != nil {
		return nil, err
	}
	evs, err := p.readFrom(ctx, f, max(off-around, head), seq, end)
	if err == nil && evs == nil { // led astray
		evs, err = p.readFrom(ctx, f, head, seq, end)
	}
	return evs, err
}

// readFrom is read from off on.
func (p *peeked) readFrom(ctx context.Context, f vfs.File, off int64, seq, end session.Seq) ([]session.Event, error) {
	var evs []session.Event
	var failed error
	budget := int64(2 * around)
	err := eachRecord(ctx, f, off, func(raw *record.Raw) bool {
		if raw.Seq >= end || raw.Seq > seq && budget <= 0 {
			return false
		}
		if budget -= int64(len(raw.Line())); raw.Seq < seq && len(evs) > 0 && budget < -int64(2*around) {
			evs, budget = nil, int64(2*around) // far before it still: not all of that is kept
		}
		ev, e := p.s.accepted(ctx, p.hdr.ID, p.hdr.Origin(raw.Seq), raw)
		switch {
		case e != nil && raw.Seq == seq:
			failed = e
			return false
		case e != nil: // nobody asked for this one, but there must be no gap
			if raw.Seq > seq {
				return false
			}
			evs = evs[:0]
			return true
		case len(evs) > 0 && ev.Seq != evs[len(evs)-1].Seq+1:
			if ev.Seq > seq || evs[len(evs)-1].Seq >= seq {
				return false
			}
			evs = evs[:0] // a gap: what is before it does not lead to seq
		}
		evs = append(evs, ev)
		return true
	})
	if failed != nil {
		err = failed
	}
	if err != nil || len(evs) == 0 || evs[0].Seq > seq || evs[len(evs)-1].Seq < seq {
		return nil, err
	}
	return evs, nil
}
