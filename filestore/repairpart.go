package filestore

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// inherited repairs, in the part of l.whose that the session begins with, what is this session's own copy. What is in the
// files of l.whose is for that to repair, unless it went on with other events: then this session gets its own copy of
// what is certain.
func (r *repair) inherited(ctx context.Context, h session.Header, l *logScan, kin []relative) error {
	id := l.whose
	self := relative{parent: h.Parent}
	from, end, _ := self.part(id)
	mine := r.s.homes(id, r.id)[0]
	dir, _, err := r.s.locate(id, r.id)
	hurt := &store.DamagedError{ID: r.id, Owner: l.owner, Ranges: l.damage}
	if err != nil {
		return err
	}
	if dir == "" { // nowhere: what can come back is waited for
		purged, err := r.s.purged(id)
		if err == nil && !purged {
			err = hurt
		}
		if err == nil {
			err = r.s.mkdirAll(mine)
		}
		if err != nil {
			return err
		}
		dir = mine
	}
	m := &mend{s: r.s, id: id, dir: mine, from: from, clip: end, time: h.CreatedAt, check: l.check}
	if e, ok := r.s.takenFrom(id, h.Parent, h.CreatedAt); ok {
		m.time = e.made // a mark at its end has to be older than what was forked there
	}
	if dir == mine {
		same, err := r.s.sameParts(ctx, h, id, kin, l.check)
		if err != nil {
			return err
		}
		m.aside = append([]string{filepath.Join(mine, damagedName)}, same...)
	}
	if link, ok, err := r.s.linkBehind(ctx, h, id, kin, l.check); err != nil {
		return err
	} else if ok {
		m.last = &link
	}
	for i, g := range l.segs {
		if g.first < from && (i+1 == len(l.segs) || l.segs[i+1].first >= from) {
			before, err := r.s.endBefore(ctx, r.id, l.segs[:i+1], from)
			if err != nil {
				return err
			}
			m.prev, m.prevLost = before.link, before.lost
		}
	}
	part := &repair{writer: &writer{s: r.s, id: id, dir: mine, lease: r.lease}, m: m}
	until, err := r.s.parted(ctx, h, id, dir, l.other, l.check)
	if err != nil {
		return err
	}
	if dir == mine && until < end { // it was handed what its session went on with
		m.until = &until
	}
	if dir != mine {
		if until == end {
			return hurt
		}
		r.rep.Written = append(r.rep.Written, mine) // as a whole
		if until > from {
			m.until, m.aside = &until, []string{filepath.Join(dir, damagedName)}
		}
		switch {
		case until > from:
			err = r.handDown(ctx, dir, id, until)
		default:
			err = r.s.mkdirAll(mine)
		}
		if err != nil {
			return err
		}
	}
	err = part.mend(ctx)
	for _, h := range part.own {
		h.close()
	}
	r.rep.Lost, r.rep.Found = append(r.rep.Lost, part.rep.Lost...), append(r.rep.Found, part.rep.Found...)
	if dir == mine {
		r.rep.Kept, r.rep.Written = append(r.rep.Kept, part.rep.Kept...), append(r.rep.Written, part.rep.Written...)
	}
	return err
}

// handDown is bequeath for a repair: no purge takes away meanwhile what is handed over, or, as a dead one's, what it is handed over in.
func (r *repair) handDown(ctx context.Context, from string, id session.ID, end session.Seq) error {
	lock, err := r.s.shareStore(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	return r.s.bequeath(ctx, from, id, end, r.dir)
}

// sameParts returns the directories of other sessions that were handed the same part of id as one with the header h, and hold all of it:
// every record, each following the one before, up to the link that says where the part of h ends.
func (s *Store) sameParts(ctx context.Context, h session.Header, id session.ID, kin []relative, check func(*record.Raw) (string, error)) ([]string, error) {
	want, ok, err := s.linkBehind(ctx, h, id, kin, check)
	if err != nil || !ok {
		return nil, err
	}
	from, end, _ := (&relative{parent: h.Parent}).part(id)
	var out []string
	for i := range kin {
		dir := filepath.Join(kin[i].dir, inheritedDir, string(id))
		names, err := s.segmentNames(dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (len(names) == 0 || kin[i].id == h.ID) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m := &mend{s: s, id: id, dir: dir, from: from, clip: end, prevLost: true, last: &want, check: check}
		if err := m.plan(ctx); err != nil {
			return nil, err
		}
		last := m.pieces[len(m.pieces)-1]
		if m.unsupported != "" || len(m.lost) > 0 || last.link != want {
			continue
		}
		v := m.view()
		marked, err := v.behindMarks(ctx, from, end)
		v.release()
		if err != nil {
			return nil, err
		}
		if marked == from {
			out = append(out, dir)
		}
	}
	return out, nil
}

// linkBehind is partLink also where the part behind that of id is gone from h, if another session was left the same.
func (s *Store) linkBehind(ctx context.Context, h session.Header, id session.ID, kin []relative, check func(*record.Raw) (string, error)) (link session.Link, ok bool, err error) {
	link, ok, err = s.partLink(h, id)
	i := slices.IndexFunc(h.Parent.Spans, func(sp session.OriginSpan) bool { return sp.ID == id })
	if ok || err != nil || i < 0 || i == len(h.Parent.Spans)-1 {
		return link, ok, err
	}
	dirs, err := s.sameParts(ctx, h, h.Parent.Spans[i+1].ID, kin, check)
	for _, dir := range dirs {
		names, err := s.segmentNames(dir)
		if err != nil || len(names) == 0 || names[0].first != h.Parent.Spans[i].End {
			return link, false, unlessBad(err)
		}
		err = s.withText(names[0].in(dir), func(f vfs.File) error {
			head, _, err := readSegmentHead(f)
			link, ok = head.Prev, err == nil
			return err
		})
		if ok || unlessBad(err) != nil {
			return link, ok, unlessBad(err)
		}
	}
	return link, false, err
}
