package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// lostRecord is an event that the next life writes in the place of what loss of power took: a mark,
// or (raw not nil) a good record behind it, which is copied as it is.
type lostRecord struct {
	ev   session.Event
	raw  []byte // the line with its LF
	link session.Link
}

// collectLost reads the end of the last segment again, from its first bad seq, and makes the marks and
// copies.
func (s *Store) collectLost(ctx context.Context, l *logScan, sc *segScan) error {
	var good []lostRecord
	f, err := s.fs.OpenFile(sc.path, vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer f.Close()
	from := l.segs[len(l.segs)-1].stop
	due, now := l.pos.Next, l.time
	mark := func(r item) error {
		data, err := json.Marshal(session.Lost{Offset: r.bad.Offset, Bytes: r.bad.Bytes})
		if err != nil {
			return err
		}
		l.lost = append(l.lost, lostRecord{ev: session.Event{Seq: due, Time: now, Type: session.TypeLost, Op: session.Append(), Data: data}})
		due++
		return nil
	}
	var bad []item
	for _, it := range sc.items {
		if !it.good {
			if it.bad.Offset >= from {
				bad = append(bad, it)
			}
			continue
		}
		if it.run.off < from {
			continue
		}
		stretch := item{bad: record.Bad{Offset: it.run.off}}
		if len(bad) > 0 {
			stretch.bad.Offset = bad[0].bad.Offset
			stretch.bad.Bytes = it.run.off - stretch.bad.Offset
		}
		each := len(bad) == int(it.run.first-due)
		for i := 0; due < it.run.first; i++ {
			m := stretch
			if each {
				m = bad[i]
			}
			if err := mark(m); err != nil {
				return err
			}
		}
		bad = nil
		if good, err = s.copies(ctx, l, f, &it.run); err != nil {
			if de, ok := errors.AsType[*store.DamagedError](err); ok { // a blob that a copy would need
				l.lost = nil
				l.hurt(l.hdr.ID, de.Ranges[0])
				return nil
			}
			return err
		}
		l.lost = append(l.lost, good...)
		due, now = it.run.end, it.run.time
	}
	for _, it := range bad {
		if !it.bad.LF || it.bad.Blank {
			l.torn = &store.Range{File: sc.path, Offset: it.bad.Offset, Bytes: it.bad.Bytes, First: due, Last: due - 1, Detail: it.describe()}
			continue
		}
		if err := mark(it); err != nil {
			return err
		}
	}
	return nil
}

// copies returns the records of a run behind a gap, with their bytes.
func (s *Store) copies(ctx context.Context, l *logScan, f vfs.File, r *run) ([]lostRecord, error) {
	raw := make([]byte, r.stop-r.off)
	if _, err := f.ReadAt(raw, r.off); err != nil && err != io.EOF {
		return nil, err
	}
	var out []lostRecord
	var sc record.Scanner
	sc.Feed(raw, true)
	for sc.Next() == record.Good {
		ev, err := s.accepted(ctx, l.hdr.ID, l.hdr.ID, &sc.Raw)
		if err != nil {
			return nil, err
		}
		n := len(sc.Raw.Line()) + 1
		rest, _ := sc.Rest()
		at := len(raw) - len(rest) - n
		link, ok := sc.Raw.Link()
		if !ok {
			link = session.Link{}
		}
		out = append(out, lostRecord{ev: ev, raw: raw[at : at+n : at+n], link: link})
	}
	if len(out) != int(r.end-r.first) {
		return nil, fmt.Errorf("filestore: session %s changed while it was read", l.hdr.ID)
	}
	return out, nil
}
