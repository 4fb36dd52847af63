package filestore

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Salvage returns the log of id with marks for what is missing or bad.
func (s *Store) Salvage(ctx context.Context, id session.ID) (*store.Snapshot, error) {
	if session.ValidID(id) != nil {
		return nil, &store.NotFoundError{ID: string(id)}
	}
	kin, err := s.kin(ctx)
	if err != nil {
		return nil, err
	}
	check := s.healthy(ctx)
	for try := 0; ; try++ {
		l, err := s.scanSettled(ctx, id, check)
		if err == nil {
			err = s.prove(ctx, l, kin)
		}
		if err != nil {
			return nil, err
		}
		if len(l.damage) == 0 || l.unsupported != "" {
			return s.snapshot(l, id), nil
		}
		snap, err := s.salvage(ctx, id, l, check, kin)
		if !errors.Is(err, fs.ErrNotExist) || try == 10 {
			return snap, err
		}
	}
}

func (s *Store) salvage(ctx context.Context, id session.ID, l *logScan, check func(*record.Raw) (string, error), kin []relative) (*store.Snapshot, error) {
	h, whose, other := l.hdr, l.whose, l.other
	if h.ID == "" {
		var err error
		if h, _, err = s.guessHeader(ctx, id, kin); err != nil {
			if errors.Is(err, errNoGuess) {
				return s.snapshot(l, id), nil
			}
			return nil, err
		}
	}
	l = &logScan{hdr: h, damage: l.damage, time: h.CreatedAt}
	at := logEnd{time: h.CreatedAt}
	add := func(m *mend) error {
		m.s, m.check = s, check
		m.prev, m.prevLost, m.time = at.link, at.lost, at.time
		if m.id == id && h.Parent != nil { // what a fork begins with follows what was forked
			m.prev, m.prevLost, m.time = h.Parent.Link, false, h.CreatedAt
		}
		if err := m.plan(ctx); err != nil {
			return err
		}
		if l.unsupported == "" {
			l.unsupported = m.unsupported
		}
		for _, p := range m.pieces {
			l.segs = append(l.segs, p.segment)
			at = logEnd{p.link, p.lost, p.time}
			l.pos = store.Pos{Next: p.end, Link: p.link}
		}
		return nil
	}
	if h.Parent != nil {
		for _, sp := range h.Parent.Spans {
			dir, _, err := s.locate(sp.ID, id)
			if err != nil {
				return nil, err
			}
			mine := s.homes(sp.ID, id)[0]
			if dir == "" {
				dir = s.dir(sp.ID)
				if purged, err := s.purged(sp.ID); err == nil && purged {
					dir = mine
				}
			}
			m := &mend{id: sp.ID, dir: dir, from: l.pos.Next, clip: sp.End}
			if dir == mine {
				same, err := s.sameParts(ctx, h, sp.ID, kin, check)
				if err != nil {
					return nil, err
				}
				m.aside = append([]string{filepath.Join(mine, damagedName)}, same...)
			}
			if whose == sp.ID {
				until, err := s.parted(ctx, h, sp.ID, dir, other, check)
				if err != nil {
					return nil, err
				}
				m.until = &until
			}
			if err := add(m); err != nil {
				return nil, err
			}
		}
	}
	own := &mend{s: s, id: id, dir: s.dir(id), from: h.SeedLength, clip: session.None, empty: h.MayBeEmpty()}
	proofs, err := s.proofs(kin, id)
	if err != nil {
		return nil, err
	}
	if err := own.atLeast(ctx, proofs); err != nil {
		return nil, err
	}
	if err := add(own); err != nil {
		return nil, err
	}
	return s.snapshot(l, id), nil
}

// logEnd is what the next record has to fit to.
type logEnd struct {
	link session.Link
	lost bool
	time int64
}
