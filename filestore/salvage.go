package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
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
		if h, _, err = s.guessHeader(ctx, id); err != nil {
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
			if dir == "" {
				dir = s.dir(sp.ID)
			}
			m := &mend{id: sp.ID, dir: dir, from: l.pos.Next, clip: sp.End}
			if whose == sp.ID && dir != s.homes(sp.ID, id)[0] {
				if m.until, err = s.parted(ctx, h, sp.ID, dir, other, check); err != nil {
					return nil, err
				}
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

// errNoGuess says that a header cannot be made of what is left.
var errNoGuess = errors.New("nothing that is left says what session it was")

// guessHeader makes a header of what the files say, for a session whose own is gone or bad, and tells what of it is
// not certain. errNoGuess if that cannot be done.
func (s *Store) guessHeader(ctx context.Context, id session.ID) (session.Header, []string, error) {
	dir := s.dir(id)
	if info, err := s.fs.Stat(dir); err == nil && !info.IsDir() {
		return session.Header{}, nil, errNoGuess // also a link: nothing outside the store is read, or repaired
	}
	if b, _, err := s.readFile(dir+"/"+headerName, maxHeader); err == nil {
		if h, ok := record.SalvageHeader(b); ok && h.ID == id {
			if err := s.proveLink(&h, dir); err != nil {
				return h, nil, err
			}
			return h, []string{"its bytes are not what they were: every member is as it reads now"}, nil
		}
	}
	m := &mend{s: s, id: id, dir: dir, clip: session.None, empty: true}
	if err := m.load(ctx); err != nil {
		return session.Header{}, nil, err
	}
	h := session.Header{Format: session.Format, ID: id, Kind: session.KindRoot}
	guessed := []string{"kind: " + string(h.Kind), "cwd: not known"}
	first := session.None
	for _, src := range append(m.files, m.kept...) {
		if src.ours && (first == session.None || src.first < first) {
			first = src.first
		}
	}
	for _, src := range m.used() {
		for _, it := range src.items {
			if it.good && h.CreatedAt == 0 {
				raw, err := m.recordAt(src.path, it.run.off, it.run.stop)
				if err != nil {
					return h, nil, err
				}
				h.CreatedAt = raw.Time
				guessed = append(guessed, fmt.Sprintf("createdAt: the time of its first record, %d", raw.Time))
			}
		}
	}
	if first <= 0 {
		return h, guessed, nil
	}
	// A fork begins where its parent's prefix ends: whoever holds the record with that link is the parent.
	var prev session.Link
	for _, src := range m.used() {
		if src.first == first && src.headErr == nil {
			prev = src.head.Prev
		}
	}
	ids, err := s.ids("sessions", "")
	if err != nil {
		return h, nil, err
	}
	for _, other := range ids {
		if other == id || prev == (session.Link{}) {
			continue
		}
		if link, err := s.linkOf(ctx, other, first-1); err != nil || link != prev {
			continue
		}
		ph, bad, err := s.readHeader(s.dir(other), other)
		if err != nil || bad != nil || ph.Origin(first-1) != other {
			continue
		}
		h.Kind, h.Cwd, h.Project, h.ProjectID, h.SeedLength = session.KindFork, ph.Cwd, ph.Project, ph.ProjectID, first
		h.Parent = &session.Parent{ID: other, Seq: first - 1, Link: prev, Spans: ph.Spans(first)}
		return h, []string{"kind: " + string(h.Kind), "cwd: that of its parent", "parent: " + string(other) + ", which holds the record that its first one follows",
			guessed[len(guessed)-1]}, nil
	}
	return h, nil, errNoGuess
}

// proveLink takes the link at the fork point from the first segment of h, where that says it: its first line has a sum.
func (s *Store) proveLink(h *session.Header, dir string) error {
	names, err := s.segmentNames(dir)
	if err != nil || h.Parent == nil || len(names) == 0 || names[0].first != h.SeedLength {
		return err
	}
	err = s.withText(names[0].in(dir), func(f vfs.File) error {
		head, _, err := readSegmentHead(f)
		if err == nil && head.Session == h.ID && head.First == h.SeedLength {
			h.Parent.Link = head.Prev
		}
		return err
	})
	return unlessBad(err)
}

// linkOf returns the link of the record at seq in the log of id.
func (s *Store) linkOf(ctx context.Context, id session.ID, seq session.Seq) (session.Link, error) {
	snap, err := s.Read(ctx, id)
	if err != nil {
		return session.Link{}, err
	}
	defer snap.Close()
	if seq >= snap.Prefix.Len() {
		return session.Link{}, session.ErrRange
	}
	var link session.Link
	err = snap.Prefix.(*view).each(ctx, seq, seq+1, func(_ *segment, raw *record.Raw) bool {
		link, _ = raw.Link()
		return true
	})
	return link, err
}
