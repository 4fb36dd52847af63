package filestore

import (
	"cmp"
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

// The trail in the header of a fork holds links of what it begins with. A record that has such a link, and so all before it, is
// what was forked. Whoever writes behind a cut is a new life, and begins a file of its own: so behind the last record that the trail
// knows everything up to the next place where a life may have begun was there at the fork, too. Files that are made of others
// (joined, repaired, handed over) keep these places in their first line.

const (
	trailStarts = 8 // of the last places where a life may have begun so many are in a trail
	trailStep   = 8 // and records at distances that are powers of this from the fork point
	maxStarts   = 256
)

// ending is what the header of a fork says of the end of a part that it begins with.
type ending struct {
	link  session.Link
	trail []session.Waypoint // nil: it has none
	made  int64              // the time of the fork, which decides where there is no trail
}

// Trail returns links of records before seq, ascending, of the part of id in which seq lies.
func (s *Store) Trail(ctx context.Context, id session.ID, seq session.Seq) ([]session.Waypoint, error) {
	h, bad, err := s.headerAnywhere(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, s.absent(id)
	case err != nil:
		return nil, err
	case bad != nil:
		return nil, headerDamaged(id, bad)
	}
	owner, from := h.Origin(seq), h.SeedLength
	if owner != id {
		from, _, _ = (&relative{parent: h.Parent}).part(owner)
	}
	return s.trail(ctx, id, owner, from, seq)
}

// trailOf is Trail for the fork id, whose header names p.
func (s *Store) trailOf(ctx context.Context, id session.ID, p *session.Parent) ([]session.Waypoint, error) {
	owner := p.Spans[len(p.Spans)-1].ID
	from, _, _ := (&relative{parent: p}).part(owner)
	return s.trail(ctx, id, owner, from, p.Seq)
}

// trail returns links of records of owner, as id reads them.
func (s *Store) trail(ctx context.Context, id, owner session.ID, from, seq session.Seq) ([]session.Waypoint, error) {
	for try := 1; ; try++ {
		dir, names, err := s.locate(owner, id)
		if err != nil {
			return nil, err
		}
		p := &partFiles{s: s, dir: dir, names: names, gone: try == 10}
		out, err := p.trail(ctx, from, seq)
		p.close()
		if !errors.Is(err, fs.ErrNotExist) || p.gone {
			return out, err
		}
	}
}

func (p *partFiles) trail(ctx context.Context, from, seq session.Seq) ([]session.Waypoint, error) {
	want := []session.Seq{from}
	for i := holding(p.names, seq); i >= 0 && len(want) < trailStarts+1; i-- {
		var head record.Segment
		if p.names[i].packed() { // of others it is the name that says it
			f, err := p.open(p.names[i].first)
			if err != nil {
				return nil, err
			}
			if f != nil {
				head, _, err = readSegmentHead(f)
			}
			if err = unlessBad(err); err != nil {
				return nil, err
			}
		}
		for _, sp := range slices.Backward(startsOf(head, p.names[i])) {
			if len(want) < trailStarts+1 && sp.First < seq {
				want = append(want, sp.First)
			}
		}
	}
	for d := session.Seq(1); seq-d > from; d *= trailStep {
		want = append(want, seq-d)
	}
	for i := session.Seq(1); i < 4; i++ {
		want = append(want, from+(seq-from)/4*i)
	}
	slices.Sort(want)
	out := []session.Waypoint{}
	for _, q := range slices.Compact(want) {
		if q < from || q >= seq {
			continue
		}
		err := p.record(ctx, q, func(raw *record.Raw) {
			if link, ok := raw.Link(); ok && string(raw.Type) != session.TypeLost {
				out = append(out, session.Waypoint{Seq: q, Link: link})
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// partFiles finds records in the files of a directory, one open at a time.
type partFiles struct {
	s     *Store
	dir   string
	names []segName
	f     vfs.File // of names[at]
	at    int
	gone  bool // a name that leads to no file is taken for an empty one
}

func (p *partFiles) close() {
	if p.f != nil {
		p.f.Close()
		p.f = nil
	}
}

// open opens the file that should hold seq; nil: there is none.
func (p *partFiles) open(seq session.Seq) (vfs.File, error) {
	i := holding(p.names, seq)
	if p.f != nil && p.at == i || i < 0 {
		return p.f, nil
	}
	p.close()
	f, err := p.s.openSegment(p.names[i].in(p.dir))
	if err == nil {
		p.f, p.at = f, i
	}
	if p.gone && errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return p.f, err
}

// record calls use with the record of seq, if it is there and whole. fs.ErrNotExist: the files are others by now.
func (p *partFiles) record(ctx context.Context, seq session.Seq, use func(*record.Raw)) error {
	i := holding(p.names, seq)
	if i < 0 {
		return nil
	}
	f, err := p.open(seq)
	if err != nil || f == nil {
		return err
	}
	if p.names[i].first == seq {
		_, err = recordFrom(ctx, f, 0, seq, findStep, use)
	} else {
		_, err = locateWithin(ctx, f, seq, findStep, use)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return unlessBad(err)
}

// is reports whether the record of w is there, and whether none or a mark stands in its place.
func (p *partFiles) is(ctx context.Context, w session.Waypoint) (same, mark bool, err error) {
	mark = true
	err = p.record(ctx, w.Seq, func(raw *record.Raw) {
		link, ok := raw.Link()
		same, mark = ok && link == w.Link, string(raw.Type) == session.TypeLost
	})
	if err == nil && !same && !mark { // its link may be what is damaged: no sum covers that
		err = p.record(ctx, w.Seq+1, func(raw *record.Raw) { _, same = raw.CheckLink(w.Link) })
	}
	return same, mark, err
}

// parts returns from which seq on, below end, the records of a part that begins at from, and whose files are in dir, are not
// known to be those that e says were forked; end if all are.
func (s *Store) parts(ctx context.Context, dir string, from, end session.Seq, e ending) (session.Seq, error) {
	for try := 1; ; try++ {
		names, err := s.segmentNames(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return end, nil // nothing is there that could be another's
		}
		if err != nil {
			return from, err
		}
		p := &partFiles{s: s, dir: dir, names: names, gone: try == 10} // till then it may be packed, or moved
		n, err := p.parts(ctx, from, end, e)
		p.close()
		if !errors.Is(err, fs.ErrNotExist) || p.gone {
			return n, err
		}
	}
}

func (p *partFiles) parts(ctx context.Context, from, end session.Seq, e ending) (session.Seq, error) {
	known, other := from-1, end // the last record that is known to be what was forked, and the first behind it that is not
	for _, w := range append(slices.Clip(e.trail), session.Waypoint{Seq: end - 1, Link: e.link}) {
		same, mark, err := p.is(ctx, w)
		switch {
		case err != nil:
			return from, err
		case same:
			known = w.Seq
		case !mark:
			other = w.Seq
		}
		if other < end {
			break
		}
	}
	starts, err := p.starts(known+1, end)
	switch {
	case err != nil:
		return from, err
	case len(starts) > 0 && starts[0].First <= other:
		return p.written(ctx, max(starts[0].First, known+1), end)
	case other < end:
		return known + 1, nil // nothing says where these were begun
	}
	return end, nil
}

// written returns the first seq from from on, below end, that has a record which is no mark; end if there is none.
func (p *partFiles) written(ctx context.Context, from, end session.Seq) (session.Seq, error) {
	for i := max(holding(p.names, from), 0); i < len(p.names) && p.names[i].first < end && from < end; i++ {
		below, found := end, end
		if i+1 < len(p.names) {
			below = min(below, p.names[i+1].first)
		}
		f, err := p.open(max(from, p.names[i].first))
		if err != nil {
			return from, err
		}
		if f == nil {
			continue
		}
		err = eachRecord(ctx, f, 0, func(raw *record.Raw) bool {
			if raw.Seq >= from && raw.Seq < below && string(raw.Type) != session.TypeLost {
				found = min(found, raw.Seq)
			}
			return raw.Seq < below
		})
		if err = unlessBad(err); err != nil || found < end {
			return found, err
		}
		from = below
	}
	return end, nil
}

// starts returns where in from..end-1 a life may have begun, ascending.
func (p *partFiles) starts(from, end session.Seq) ([]session.Span, error) {
	var out []session.Span
	for _, dir := range []string{p.dir, filepath.Join(p.dir, damagedName)} { // a repair may take from there what it needs
		list, err := p.s.entries(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range list {
			n, ok := keptName(e.Name())
			if !ok || n.first >= end {
				continue
			}
			var head record.Segment // what cannot be read is named
			err := p.s.withText(filepath.Join(dir, e.Name()), func(f vfs.File) (err error) {
				head, _, err = readSegmentHead(f)
				return err
			})
			if err = unlessBad(err); err != nil {
				return nil, err
			}
			out = append(out, startsOf(head, n)...)
		}
	}
	return clipSpans(out, from, end), nil
}

// starts returns where in a plain file of from..end-1 that is made of those of m a life may have begun; nil: where it begins itself.
func (m *mend) starts(from, end session.Seq) []session.Span {
	var out []session.Span
	for _, src := range slices.Concat(m.files, m.kept) {
		out = append(out, startsOf(src.head, src.name)...)
	}
	if out = clipSpans(out, from, end); len(out) == 1 && out[0] == (session.Span{First: from, Last: from}) {
		return nil
	}
	return out
}

// startsOf returns where in a file a life may have begun. head is zero if it cannot be read.
func startsOf(head record.Segment, name segName) []session.Span {
	switch {
	case head.Starts != nil:
		return head.Starts
	case name.packed():
		return []session.Span{{First: name.first, Last: name.end - 1}}
	case head.Session != "" && head.First != name.first:
		return []session.Span{{First: name.first, Last: name.first}, {First: head.First, Last: head.First}}
	}
	return []session.Span{{First: name.first, Last: name.first}}
}

// clipSpans returns what of spans lies in from..end-1, ascending and each once. It is not nil. Of too many the first become one.
func clipSpans(spans []session.Span, from, end session.Seq) []session.Span {
	out := []session.Span{}
	for _, sp := range spans {
		if sp.First, sp.Last = max(sp.First, from), min(sp.Last, end-1); sp.First <= sp.Last {
			out = append(out, sp)
		}
	}
	slices.SortFunc(out, func(a, b session.Span) int { return cmp.Compare(a.First, b.First) })
	n := 0
	for _, sp := range out {
		if n > 0 && sp.First <= out[n-1].Last {
			out[n-1].Last = max(out[n-1].Last, sp.Last)
			continue
		}
		out[n] = sp
		n++
	}
	out = out[:n]
	if n > maxStarts {
		out[n-maxStarts].First = out[0].First
		out = out[n-maxStarts:]
	}
	return out
}

// leaves returns from which seq on, below end, the records in v, which are of the part of a session whose files are in dir, are not
// what e says was forked; end if all are. Of a fork without a trail the time of the records decides.
func (s *Store) leaves(ctx context.Context, v *view, dir string, from, end session.Seq, e ending) (session.Seq, error) {
	if e.trail != nil {
		return s.parts(ctx, dir, from, end, e)
	}
	return v.newer(ctx, from, end, e.made)
}

func headerDamaged(id session.ID, bad error) error {
	return &store.DamagedError{ID: id, Owner: id, Ranges: []store.Range{{File: headerName, Last: session.None, Detail: bad.Error()}}}
}
