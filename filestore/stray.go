package filestore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// stray is a record with a right sum that stands where it does not count: out of order, behind the end of its segment,
// in a file of another name, within a bad line. Its sum proves its bytes; that it is the record of its seq in
// this log is proven by its link to a neighbour, or not at all.
type stray struct {
	raw  record.Raw
	path string
	off  int64
	ours bool // it does not stand in a file of another session, whose log may have the same beginning
}

// fromStrays fills what it can of the holes with strays, and returns the rest of them.
func (m *mend) fromStrays(ctx context.Context, holes []lack) ([]lack, error) {
	if len(holes) == 0 {
		return nil, nil
	}
	strays, err := m.strays(ctx, holes)
	if err != nil {
		return nil, err
	}
	var pieces []stretch
	var rest []lack
	from := 0
	for _, h := range holes {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		pieces, from = append(pieces, m.pieces[from:h.at]...), h.at
		var front, back []stray
		prev, free := m.prev, m.prevLost // free: the next record need not follow prev
		if n := len(pieces); n > 0 {
			prev, free = pieces[n-1].link, pieces[n-1].lost
		}
		if !free {
			front = forward(h, strays, prev)
		}
		if h.at < len(m.pieces) {
			p := &m.pieces[h.at]
			next, err := m.recordAt(p.path, p.off, p.stop)
			if err != nil {
				return nil, err
			}
			left := h
			left.First += session.Seq(len(front))
			back = backward(left, strays, next)
			if len(front)+len(back) == int(h.Last-h.First)+1 {
				front, back = seam(front, back, next, prev, free)
			}
		}
		if len(front) > 0 {
			pieces = append(pieces, m.memory(front))
		}
		if h.tail {
			h = m.shorten(h, front, strays)
		}
		h.First, h.Last = h.First+session.Seq(len(front)), h.Last-session.Seq(len(back))
		if h.at = len(pieces); h.Last >= h.First {
			rest = append(rest, h)
		}
		if len(back) > 0 {
			pieces = append(pieces, m.memory(back))
		}
	}
	m.pieces = append(pieces, m.pieces[from:]...)
	return rest, nil
}

// seam leaves one record out of two that fill a lack and do not follow each other, or what is before or behind it, because a link is
// damaged: only behind a mark that is no matter.
func seam(front, back []stray, next *record.Raw, prev session.Link, free bool) ([]stray, []stray) {
	if n := len(front); n > 0 {
		prev, _ = front[n-1].raw.Link()
	}
	switch {
	case len(back) > 0 && !free && !follows(&back[0].raw, prev):
		return front, back[1:]
	case len(back) == 0 && !follows(next, prev):
		return front[:len(front)-1], nil
	}
	return front, back
}

// shorten takes out of the last lack the bad lines in which front was found; what other lines show of later records
// says how far the log went.
func (m *mend) shorten(h lack, front []stray, strays map[session.Seq][]stray) lack {
	h.bad = slices.DeleteFunc(slices.Clone(h.bad), func(it item) bool {
		return slices.ContainsFunc(front, func(st stray) bool {
			return st.path == h.path && st.off >= it.bad.Offset && st.off < it.bad.Offset+it.bad.Bytes
		})
	})
	found := h.First + session.Seq(len(front))
	h.Last = max(m.least(found), found+session.Seq(lines(h.bad))) - 1
	limit := h.Last + session.Seq(len(strays)) // data may hold the text of any record
	for seq, all := range strays {
		for _, st := range all {
			if st.path == h.path && seq <= limit {
				h.Last = max(h.Last, seq)
			}
		}
	}
	return h
}

// forward returns the strays that follow each other behind the record with link prev.
func forward(h lack, strays map[session.Seq][]stray, prev session.Link) (out []stray) {
	for seq := h.First; h.tail || seq <= h.Last; seq++ {
		i := slices.IndexFunc(strays[seq], func(st stray) bool { _, ok := st.raw.CheckLink(prev); return ok && st.ours })
		if i < 0 || string(strays[seq][i].raw.Type) == session.TypeLost {
			break
		}
		st := strays[seq][i]
		out, prev = append(out, st), st.raw.NextLink(prev)
	}
	return out
}

// backward returns the strays that lead to next, without a gap.
func backward(h lack, strays map[session.Seq][]stray, next *record.Raw) (out []stray) {
	for seq := h.Last; seq >= h.First; seq-- {
		i := slices.IndexFunc(strays[seq], func(st stray) bool {
			l, isLink := st.raw.Link()
			_, ok := next.CheckLink(l)
			return ok && isLink && string(st.raw.Type) != session.TypeLost
		})
		if i < 0 {
			break
		}
		out, next = append(out, strays[seq][i]), &strays[seq][i].raw
	}
	slices.Reverse(out)
	return out
}

// memory makes a stretch of records that cannot be read where they stand.
func (m *mend) memory(list []stray) stretch {
	p := stretch{segment: segment{owner: m.id, first: list[0].raw.Seq, end: list[0].raw.Seq + session.Seq(len(list))}}
	for _, st := range list {
		p.add(st.raw.Seq, func(text []byte) []byte { return append(append(text, st.raw.Line()...), '\n') })
		m.found = store.AddSeq(m.found, st.raw.Seq)
	}
	end := list[len(list)-1].raw
	p.link, _ = end.Link() // checked by whoever proved it
	p.time = end.Time
	return p
}

// strays looks through all files for records that are missing.
func (m *mend) strays(ctx context.Context, holes []lack) (map[session.Seq][]stray, error) {
	out := map[session.Seq][]stray{}
	var failed error
	for _, src := range slices.Concat(m.files, m.kept) {
		if !src.regular {
			continue
		}
		take := func(raw *record.Raw, off int64, inBad bool) {
			i, _ := slices.BinarySearchFunc(holes, raw.Seq, func(h lack, seq session.Seq) int { return int(h.Last - seq) })
			if i == len(holes) {
				if i--; !holes[i].tail || !inBad || src.path != holes[i].path { // what is behind the end ends there
					return
				}
			}
			if failed != nil || raw.Seq < holes[i].First || m.until != nil && raw.Seq >= *m.until {
				return
			}
			if m.check != nil {
				if why, err := m.check(raw); err != nil || why != "" {
					failed = err
					return
				}
			}
			line := slices.Clone(raw.Line())
			if own, err := record.Parse(line); err == nil {
				out[raw.Seq] = append(out[raw.Seq], stray{own, src.path, off, src.ours})
			}
		}
		if err := m.each(ctx, src.path, take); err != nil || failed != nil {
			return nil, errors.Join(err, failed)
		}
	}
	return out, nil
}

// each calls take with every record of a file that has a right sum, wherever it stands.
func (m *mend) each(ctx context.Context, path string, take func(raw *record.Raw, off int64, inBad bool)) error {
	f, err := m.s.openSegment(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	r := record.NewReader(&fileReader{f, 0}, 0, *buf)
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		tok, err := r.Next()
		switch {
		case err != nil || tok == record.End:
			return err
		case tok == record.Good:
			take(&r.Raw, r.At, false)
		case r.Bad.Kind != record.Long:
			line := make([]byte, r.Bad.Bytes)
			if _, err := f.ReadAt(line, r.Bad.Offset); err != nil && err != io.EOF {
				return err
			}
			record.Embedded(line, func(raw *record.Raw) { // what the file ends with was not written whole, unless something stands where its line ended
				if r.Bad.LF || !bytes.HasSuffix(line, raw.Line()) {
					take(raw, r.Bad.Offset, true)
				}
			})
		}
	}
}
