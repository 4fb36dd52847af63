package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// A log whose end is cut off looks whole: nothing in it says that there was more. Its forks do: each names the last
// event that it begins with, and that was synced before the fork was made. So who has lost such events is told by
// the headers of others, and marks them; a fork then finds the mark in the place of the record that it was made at.
//
// That holds only while nobody went on behind the cut: who did has other events at these seqs, and they are not
// the fork's. The trail in the fork's header tells them apart (trail.go). Headers from before there were trails have none: for their
// forks what is newer than the fork was written behind the cut. From the first such record on nothing is taken for the fork's.

// proof is what a fork says of the log that it begins with.
type proof struct {
	ending
	by  session.ID
	end session.Seq // of the own part of the other: its records below this were synced
}

// kinship is what the headers of all sessions say, as it was when the directories had these times.
type kinship struct {
	list  []relative
	times [2]time.Time
}

// kin is relatives for the health check, which asks for every session. What is missing in an answer that is a little
// old is told by the next one.
func (s *Store) kin(ctx context.Context) ([]relative, error) {
	var now kinship
	for i, dir := range []string{"sessions", "trash"} {
		if info, err := s.fs.Stat(s.path(dir)); err == nil {
			now.times[i] = info.ModTime()
		}
	}
	s.mu.Lock()
	old := s.known
	s.mu.Unlock()
	if old != nil && old.times == now.times && !now.times[0].IsZero() {
		return old.list, nil
	}
	var err error
	if now.list, err = s.relatives(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.known = &now
	s.mu.Unlock()
	return now.list, nil
}

// forgetKin is called before a header is made anew.
func (s *Store) forgetKin() {
	s.mu.Lock()
	s.known = nil
	s.mu.Unlock()
}

// proofs returns what forks say of id. One that has its own copy of what it begins with does not count.
func (s *Store) proofs(kin []relative, id session.ID) ([]proof, error) {
	var out []proof
	for i := range kin {
		r := &kin[i]
		_, end, ok := r.part(id)
		if !ok || r.id == id {
			continue
		}
		names, err := s.segmentNames(filepath.Join(r.dir, inheritedDir, string(id)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if e, ok := s.takenFrom(id, r.parent, r.created); ok && len(names) == 0 {
			out = append(out, proof{e, r.id, end})
		}
	}
	return out, nil
}

// takenFrom returns how the part of id in p, which is in a header of that time, was taken from id: p says that itself, or if it has no
// trail, and the part is not the last, the header of the session that logged the next part.
func (s *Store) takenFrom(id session.ID, p *session.Parent, created int64) (ending, bool) {
	i := slices.IndexFunc(p.Spans, func(sp session.OriginSpan) bool { return sp.ID == id })
	if link, trail, ok := p.Ending(id); ok || i < 0 {
		return ending{link, trail, created}, ok
	}
	next := p.Spans[i+1].ID
	for _, dir := range []string{s.dir(next), s.trash(next)} {
		if h, bad, err := s.readHeader(dir, next); err == nil && bad == nil && h.Parent != nil {
			link, trail, ok := h.Parent.Ending(id)
			return ending{link, trail, h.CreatedAt}, ok
		}
	}
	return ending{}, false
}

// newer returns the first seq from from on, below end, whose record is newer than made; end if there is none.
func (v *view) newer(ctx context.Context, from, end session.Seq, made int64) (session.Seq, error) {
	found := end
	err := v.each(ctx, from, min(end, v.n), func(_ *segment, raw *record.Raw) bool {
		if raw.Time > made {
			found = raw.Seq
		}
		return found == end
	})
	return found, err
}

// floor returns how far the own part of a log in dir, of which v is left, goes at least, and which fork proves that. A fork from before
// something in v does not count: what it proves is gone for good, and others are in its place.
func (s *Store) floor(ctx context.Context, v *view, dir string, from session.Seq, proofs []proof) (end session.Seq, by session.ID, err error) {
	end = v.n
	for _, p := range proofs {
		if p.end <= end {
			continue
		}
		if n, err := s.leaves(ctx, v, dir, from, p.end, p.ending); err != nil {
			return 0, "", err
		} else if n == p.end {
			end, by = p.end, p.by
		}
	}
	return end, by, nil
}

// uncertain reports whether the log ends in what a dead writer or a loss of power leaves, which is worth asking the forks. One that is
// cut off between two lines looks like any other, and to ask for each would make opening cost what all sessions do.
func (l *logScan) uncertain() bool { return l.torn != nil || l.lost != nil }

// prove adds to l, in which nothing is damaged, what forks prove to be gone behind its end.
func (s *Store) prove(ctx context.Context, l *logScan, kin []relative) error {
	if len(l.damage) > 0 || l.unsupported != "" || l.hdr.ID == "" {
		return nil
	}
	proofs, err := s.proofs(kin, l.hdr.ID)
	if err != nil || len(proofs) == 0 {
		return err
	}
	v := &view{s: s, id: l.hdr.ID, segs: l.segs, n: l.pos.Next}
	defer v.release()
	end, by, err := s.floor(ctx, v, s.dir(l.hdr.ID), l.hdr.SeedLength, proofs)
	if err != nil || end == l.pos.Next {
		return err
	}
	r := store.Range{File: s.dir(l.hdr.ID), First: l.pos.Next, Last: end - 1,
		Detail: fmt.Sprintf("it ends before event %d, and the fork %s begins with its events up to %d: its end was cut off", l.pos.Next, by, end-1)}
	if n := len(l.segs); n > 0 && l.segs[n-1].owner == l.hdr.ID {
		r.File, r.Offset = l.segs[n-1].path, l.segs[n-1].stop
	}
	l.lost, l.torn = nil, nil
	l.hurt(l.hdr.ID, r)
	return nil
}

// parted returns from which seq on the records of id in dir are not those that a fork with the header h begins with; the end of its
// part if they are. other: the link at the end of the part is another one.
func (s *Store) parted(ctx context.Context, h session.Header, id session.ID, dir string, other bool, check func(*record.Raw) (string, error)) (session.Seq, error) {
	self := relative{parent: h.Parent}
	from, end, _ := self.part(id)
	m := &mend{s: s, id: id, dir: dir, from: from, clip: end, prevLost: true, check: check}
	if err := m.plan(ctx); err != nil || m.unsupported != "" {
		return end, err
	}
	e, ok := s.takenFrom(id, h.Parent, h.CreatedAt)
	last := m.pieces[len(m.pieces)-1] // up to the end there are records, or marks
	switch {
	case ok && !last.lost && last.link == e.link:
		return end, nil
	case !ok && (other || last.lost) && dir != s.homes(id, h.ID)[0]:
		return from, nil
	case !ok: // nobody tells; of what it was handed its links do
		return end, nil
	}
	v := m.view()
	defer v.release()
	n, err := s.leaves(ctx, v, dir, from, end, e)
	if err == nil && n == end && other && len(m.lost) == 0 {
		return v.behindMarks(ctx, from, end) // all of it is there, and it is another log
	}
	return n, err
}

// behindMarks returns the seq behind the last session/lost in from..end-1, from if there is none: up to there no link says that the records before
// are not those of a log that ends with another one.
func (v *view) behindMarks(ctx context.Context, from, end session.Seq) (session.Seq, error) {
	err := v.each(ctx, from, min(end, v.n), func(_ *segment, raw *record.Raw) bool {
		if string(raw.Type) == session.TypeLost {
			from = raw.Seq + 1
		}
		return true
	})
	return from, err
}

// view returns what m found, to be read.
func (m *mend) view() *view {
	v := &view{s: m.s, id: m.id, n: m.from}
	for _, p := range m.pieces {
		v.segs, v.n = append(v.segs, p.segment), p.end
	}
	return v
}

// atLeast sets the floor of m by what forks prove.
func (m *mend) atLeast(ctx context.Context, proofs []proof) error {
	if len(proofs) == 0 {
		return nil
	}
	trial := *m
	if err := trial.plan(ctx); err != nil || trial.unsupported != "" {
		return err
	}
	v := trial.view()
	defer v.release()
	var err error
	m.floor, _, err = m.s.floor(ctx, v, m.dir, m.from, proofs)
	return err
}

// cutOther takes out of l, in which a part of another session is damaged, what that session wrote when the fork was there; it may have been
// handed over.
func (s *Store) cutOther(ctx context.Context, l *logScan) error {
	self := relative{parent: l.hdr.Parent}
	from, end, ok := self.part(l.whose)
	n := min(end, l.pos.Next)
	if !ok || len(l.damage) == 0 || n <= from {
		return nil
	}
	until := n
	if e, ok := s.takenFrom(l.whose, l.hdr.Parent, l.hdr.CreatedAt); ok {
		dir, _, err := s.locate(l.whose, l.hdr.ID)
		if err != nil || dir == "" {
			return err
		}
		v := &view{s: s, id: l.hdr.ID, segs: l.segs, n: l.pos.Next}
		defer v.release()
		if until, err = s.leaves(ctx, v, dir, from, end, e); err != nil {
			return err
		}
		until = min(until, n)
	} else if l.owner == l.hdr.ID {
		return nil // nobody tells; of what it was handed its links do
	}
	if until == n && !l.other {
		return nil
	}
	if until == n {
		until = from
	}
	i := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].end >= until })
	l.segs, l.pos = cut(l.segs[:i+1], until), store.Pos{Next: until}
	if until == 0 {
		l.segs = nil
		return nil
	}
	at, err := s.endBefore(ctx, l.hdr.ID, l.segs, until)
	l.pos.Link, l.afterLost = at.link, at.lost
	return err
}

// endBefore tells of the record before seq, with which segs end.
func (s *Store) endBefore(ctx context.Context, id session.ID, segs []segment, seq session.Seq) (end logEnd, err error) {
	v := &view{s: s, id: id, segs: segs, n: seq}
	defer v.release()
	err = v.each(ctx, seq-1, seq, func(_ *segment, raw *record.Raw) bool {
		end.link, _ = raw.Link()
		end.lost, end.time = string(raw.Type) == session.TypeLost, raw.Time
		return true
	})
	return end, err
}
