package filestore

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// laid is a part of what a fork begins with, as a repair would leave it.
type laid struct {
	segs []segment
	end  logEnd
}

// lay notes what m, which has planned, makes of the part of id: who only asks what a repair would do goes on as if it were so.
func (r *repair) lay(id session.ID, m *mend) {
	var p laid
	for _, s := range m.pieces {
		p.segs, p.end = append(p.segs, s.segment), logEnd{s.link, s.lost, s.time}
	}
	if r.laid == nil {
		r.laid = map[session.ID]laid{}
	}
	r.laid[id] = p
}

// take adds to l the part that ends before seq end as it was laid.
func (l *logScan) take(p laid, end session.Seq) {
	l.segs = append(l.segs, p.segs...)
	l.pos, l.time, l.afterLost = store.Pos{Next: end, Link: p.end.link}, p.end.time, p.end.lost
}

// inherited repairs, in the part of l.whose that the session begins with, what is this session's own copy. What is in the
// files of l.whose is for that to repair, unless it went on with other events: then this session gets its own copy of
// what is certain.
func (r *repair) inherited(ctx context.Context, h session.Header, l *logScan, dryRun bool) error {
	id := l.whose
	before := r.rep.Damage
	r.rep.Damage = append(r.rep.Damage, l.damage...)
	self := relative{parent: h.Parent}
	from, end, _ := self.part(id)
	mine := r.s.homes(id, r.id)[0]
	dir, _, err := r.s.locate(id, r.id)
	hurt := &store.DamagedError{ID: r.id, Owner: l.owner, Ranges: l.damage}
	if dir == "" && slices.Contains(r.after, id) {
		dir = r.s.dir(id) // it has no segment now
	}
	if err != nil || dir == "" {
		return cmp.Or[error](err, hurt)
	}
	m := &mend{s: r.s, id: id, dir: mine, from: from, clip: end, time: h.CreatedAt, check: l.check}
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
		case until == end && slices.Contains(r.after, id): // by then it is repaired
			r.rep.Damage, m.dir = before, dir
			if err = part.mend(ctx, true); err == nil {
				r.lay(id, m)
			}
			return err
		case until == end:
			return hurt
		}
		r.rep.Written = append(r.rep.Written, mine) // as a whole
		if until > from {
			m.until, m.aside = until, filepath.Join(dir, damagedName)
		}
		switch {
		case dryRun && until > from:
			m.dir = dir
		case dryRun:
		case until > from:
			err = r.s.bequeath(ctx, dir, id, until, r.dir)
		default:
			err = r.s.mkdirAll(mine)
		}
		if err != nil {
			return err
		}
	}
	err = part.mend(ctx, dryRun)
	for _, h := range part.own {
		h.close()
	}
	if m.until > 0 && slices.Contains(r.after, id) { // what is missing before that has its marks by then
		part.rep.Lost, part.rep.Found = []store.Span{{First: m.until, Last: end - 1}}, nil
	}
	r.rep.Lost, r.rep.Found = append(r.rep.Lost, part.rep.Lost...), append(r.rep.Found, part.rep.Found...)
	if dir == mine {
		r.rep.Kept, r.rep.Written = append(r.rep.Kept, part.rep.Kept...), append(r.rep.Written, part.rep.Written...)
	}
	if err == nil && dryRun {
		r.lay(id, m)
	}
	return err
}
