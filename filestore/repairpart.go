package filestore

import (
	"cmp"
	"context"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// inherited repairs, in the part of l.whose that the session begins with, what is this session's own copy. What is in the
// files of l.whose is for that to repair, unless it went on with other events: then this session gets its own copy of
// what is certain.
func (r *repair) inherited(ctx context.Context, h session.Header, l *logScan, dryRun bool) error {
	id := l.whose
	self := relative{parent: h.Parent}
	from, end, _ := self.part(id)
	mine := r.s.homes(id, r.id)[0]
	dir, _, err := r.s.locate(id, r.id)
	hurt := &store.DamagedError{ID: r.id, Owner: l.owner, Ranges: l.damage}
	if err != nil || dir == "" {
		return cmp.Or[error](err, hurt)
	}
	if dir != mine {
		until, err := r.s.parted(ctx, h, id, dir, l.other, l.check)
		switch {
		case err != nil:
			return err
		case until == end:
			return hurt
		case dryRun:
			for seq := until; seq < end; seq++ {
				r.rep.Lost = store.AddSeq(r.rep.Lost, seq)
			}
			r.rep.Written = append(r.rep.Written, mine)
			return nil
		case until > from:
			err = r.s.bequeath(ctx, dir, id, until, r.dir)
		default:
			err = r.s.mkdirAll(mine)
		}
		if err != nil {
			return err
		}
	}
	part := &repair{writer: &writer{s: r.s, id: id, dir: mine, lease: r.lease}}
	part.m = &mend{s: r.s, id: id, dir: mine, from: from, clip: end, time: h.CreatedAt, check: l.check}
	for i, g := range l.segs {
		if g.first < from && (i+1 == len(l.segs) || l.segs[i+1].first >= from) {
			part.m.prev, part.m.prevLost, err = r.s.linkBefore(r.id, l.segs[:i+1], from)
		}
	}
	if err == nil {
		err = part.mend(ctx, dryRun)
	}
	for _, h := range part.own {
		h.close()
	}
	r.rep.Lost, r.rep.Found = append(r.rep.Lost, part.rep.Lost...), append(r.rep.Found, part.rep.Found...)
	r.rep.Kept, r.rep.Written = append(r.rep.Kept, part.rep.Kept...), append(r.rep.Written, part.rep.Written...)
	return err
}
