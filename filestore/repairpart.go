package filestore

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// inherited repairs, in the part of l.whose that the session begins with, what is this session's own copy. What is in the
// files of l.whose is for that to repair, unless it went on with other events: then this session gets its own copy of
// what is certain.
func (r *repair) inherited(ctx context.Context, h session.Header, l *logScan) error {
	id := l.whose
	self := relative{parent: h.Parent}
	from, end, _ := self.part(id)
	mine := r.s.homes(id, r.id)[0]
	dir, _, err := r.s.locate(id, r.id)
	hurt := &store.DamagedError{ID: r.id, Owner: l.owner, Ranges: l.damage}
	if err != nil || dir == "" {
		return cmp.Or[error](err, hurt)
	}
	m := &mend{s: r.s, id: id, dir: mine, from: from, clip: end, time: h.CreatedAt, check: l.check}
	if link, ok, err := r.s.partLink(h, id); err != nil {
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
	if dir != mine {
		until, err := r.s.parted(ctx, h, id, dir, l.other, l.check)
		switch {
		case err != nil:
			return err
		case until == end:
			return hurt
		}
		r.rep.Written = append(r.rep.Written, mine) // as a whole
		if until > from {
			m.until, m.aside = until, filepath.Join(dir, damagedName)
		}
		switch {
		case until > from:
			err = r.s.bequeath(ctx, dir, id, until, r.dir)
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
