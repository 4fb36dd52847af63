package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
)

// A header that is gone, or whose bytes are not what they were, is made anew of what other files prove: a sum says that its text was changed,
// and not where. What it says that nothing contradicts is taken as it reads; what a session begins with has to fit to what is there.

// errNoGuess says that a header cannot be made of what is left.
var errNoGuess = errors.New("nothing that is left says what session it was")

// lineage is what a session may begin with.
type lineage struct {
	parent session.ID
	spans  []session.OriginSpan
	head   session.Header // of the parent, if it can be read
	why    string
}

func (l *lineage) end() session.Seq {
	if len(l.spans) == 0 {
		return 0
	}
	return l.spans[len(l.spans)-1].End
}

// traces is what the own files of a session show of what it was.
type traces struct {
	text    session.Header // as it reads now
	isText  bool
	first   session.Seq  // where the first segment begins; None: there is none
	prev    session.Link // what its first line says
	isPrev  bool
	created int64 // the time of the first good record, or of what was made later; 0: there is none
}

// guessHeader makes a header of what the files say, for a session whose own is gone or bad, and tells what of it is
// not certain. errNoGuess if that cannot be done.
func (s *Store) guessHeader(ctx context.Context, id session.ID, kin []relative) (session.Header, []string, error) {
	dir := s.dir(id)
	if info, err := s.fs.Stat(dir); err == nil && !info.IsDir() {
		return session.Header{}, nil, errNoGuess // also a link: nothing outside the store is read, or repaired
	}
	t, err := s.traces(ctx, id)
	if err != nil {
		return session.Header{}, nil, err
	}
	for i := range kin { // it is older than who begins with a part of it
		if _, _, ok := kin[i].part(id); ok && kin[i].id != id && kin[i].lost == nil && (t.created == 0 || kin[i].created < t.created) {
			t.created = kin[i].created
		}
	}
	from, err := s.lineage(ctx, id, t, kin)
	if err != nil {
		return session.Header{}, nil, err
	}
	h, told := t.text, []string{"its bytes are not what they were: every member is as it reads now"}
	if !t.isText {
		h = session.Header{Format: session.Format, ID: id, Kind: session.KindRoot, CreatedAt: t.created}
		told = []string{"kind: root", "cwd: not known"}
		if from.end() > 0 {
			h.Kind, h.Cwd, h.Project, h.ProjectID = session.KindFork, from.head.Cwd, from.head.Project, from.head.ProjectID
			told = []string{"kind: fork", "cwd: that of its parent"}
		}
		if t.created > 0 {
			told = append(told, fmt.Sprintf("createdAt: the time of its first record, or of a fork, %d", t.created))
		}
	}
	if from.why != "" {
		told = append(told, from.why)
	}
	h.SeedLength = from.end()
	if h.SeedLength == 0 {
		h.Parent = nil
		return h, told, nil
	}
	was := h.Parent
	h.Parent = &session.Parent{ID: from.parent, Seq: h.SeedLength - 1, Spans: from.spans}
	at, known, err := s.forkPoint(ctx, id, h.Parent)
	known = known && (t.created == 0 || at.time <= t.created) // else its session went on with others
	switch {
	case err != nil:
		return h, nil, err
	case t.isPrev && t.first == h.SeedLength:
		h.Parent.Link = t.prev
	case known:
		h.Parent.Link = at.link
	case was != nil:
		h.Parent.Link = was.Link
	}
	switch {
	case known && at.link == h.Parent.Link: // so it is there, and so is what leads to it
		trail, err := s.trailOf(ctx, id, h.Parent)
		if err != nil {
			return h, nil, err
		}
		h.Parent.Trail = trail
		if was != nil && slices.Equal(was.Spans, h.Parent.Spans) && was.Trail != nil && len(trail) > 0 {
			i := slices.IndexFunc(was.Trail, func(w session.Waypoint) bool { return w.Seq >= trail[0].Seq })
			if i < 0 {
				i = len(was.Trail)
			}
			h.Parent.Trail = slices.Concat(was.Trail[:i], trail)
		}
	case was != nil && slices.Equal(was.Spans, h.Parent.Spans):
		h.Parent.Trail = was.Trail
	}
	if was != nil && was.ID == h.Parent.ID {
		h.Parent.Activity, h.Parent.Extra = was.Activity, was.Extra
	}
	// A fork was made when its parent had that record, and before it had one of its own.
	if t.created > 0 && (h.CreatedAt > t.created || h.CreatedAt < at.time) && t.isText {
		h.CreatedAt = t.created
		told = append(told, fmt.Sprintf("createdAt: the time of its first record, or of a fork, %d", t.created))
	}
	return h, told, nil
}

// guessKin fills in what those of kin begin with whose headers are to be made anew: what they prove is proven before that, too.
func (s *Store) guessKin(ctx context.Context, kin []relative) error {
	for i := range kin {
		r := &kin[i]
		if _, newer := errors.AsType[*record.FormatError](r.lost); r.lost == nil || r.unseen || r.trashed || newer {
			continue
		}
		h, _, err := s.guessHeader(ctx, r.id, kin)
		switch {
		case errors.Is(err, errNoGuess), errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		default:
			r.parent, r.created = h.Parent, h.CreatedAt
		}
	}
	return nil
}

// traces reads what is left of id.
func (s *Store) traces(ctx context.Context, id session.ID) (traces, error) {
	t := traces{first: session.None}
	if b, _, err := s.readFile(filepath.Join(s.dir(id), headerName), maxHeader); err == nil {
		t.text, t.isText = record.SalvageHeader(b)
		t.isText = t.isText && t.text.ID == id
	}
	if !t.isText {
		t.text = session.Header{}
	}
	m := &mend{s: s, id: id, dir: s.dir(id), clip: session.None, empty: true}
	if err := m.load(ctx); err != nil {
		return t, err
	}
	for _, src := range slices.Concat(m.files, m.kept) {
		if src.ours && (t.first == session.None || src.first < t.first) {
			t.first = src.first
		}
	}
	for _, src := range m.used() {
		if src.first == t.first && src.headErr == nil {
			t.prev, t.isPrev = src.head.Prev, true
		}
		for _, it := range src.items {
			if it.good && t.created == 0 {
				raw, err := m.recordAt(src.path, it.run.off, it.run.stop)
				if err != nil {
					return t, err
				}
				t.created = raw.Time
			}
		}
	}
	return t, nil
}

// lineage says what id begins with: the first of these that fits.
func (s *Store) lineage(ctx context.Context, id session.ID, t traces, kin []relative) (lineage, error) {
	var read lineage // what the text says
	if t.isText {
		if t.text.Parent != nil {
			read.parent, read.spans = t.text.Parent.ID, t.text.Parent.Spans
		}
		if ok, err := s.fits(id, read, t); err != nil || ok {
			return read, err
		}
	}
	if t.first == 0 {
		return lineage{}, nil
	}
	if l, err := s.byLink(ctx, id, t); err != nil || len(l.spans) > 0 {
		return l, err
	}
	for _, certain := range []bool{true, false} { // who begins with a part of it says what comes before that
		for i := range kin {
			l, ok := s.before(id, &kin[i], certain)
			if !ok {
				continue
			}
			if len(l.spans) == 0 {
				return l, nil
			}
			if ok, err := s.fits(id, l, t); err != nil || ok {
				return s.withHead(l), err
			}
		}
	}
	if l, err := s.byHeritage(id, t); err != nil || len(l.spans) > 0 {
		return l, err
	}
	if l, err := s.nearestIDs(id, read, t); err != nil || len(l.spans) > 0 {
		return l, err
	}
	if t.isText {
		return read, nil
	}
	if t.first == session.None {
		return lineage{}, nil
	}
	return lineage{why: fmt.Sprintf("parent: none is known; if it was a fork, the events before %d are still in the session that it was forked from", t.first)}, nil
}

// before is what comes before the part of id in r, whose header is certain, or as it reads now.
func (s *Store) before(id session.ID, r *relative, certain bool) (l lineage, ok bool) {
	p := r.parent
	if certain != (r.lost == nil) || r.id == id {
		return l, false
	}
	if !certain {
		h, _ := record.SalvageHeader(r.text)
		p = h.Parent
	}
	if p == nil {
		return l, false
	}
	i := slices.IndexFunc(p.Spans, func(sp session.OriginSpan) bool { return sp.ID == id })
	if i > 0 {
		l.spans = slices.Clone(p.Spans[:i])
		l.parent = l.spans[i-1].ID
		l.why = fmt.Sprintf("parent: %s, as %s says, which begins with both", l.parent, r.id)
	}
	return l, i >= 0
}

// withHead adds the header of the parent.
func (s *Store) withHead(l lineage) lineage {
	if h, bad, err := s.readHeader(s.dir(l.parent), l.parent); err == nil && bad == nil {
		l.head = h
	}
	return l
}

// fits reports whether id can begin with l: each part is there, and ends where the one behind it begins.
func (s *Store) fits(id session.ID, l lineage, t traces) (bool, error) {
	if t.first != session.None && (t.first < l.end() || t.isPrev && t.first > l.end() && l.end() == 0) {
		return false, nil
	}
	for i, sp := range l.spans {
		dir, names, err := s.locate(sp.ID, id)
		if err != nil {
			return false, err
		}
		begins := session.Seq(0)
		if i > 0 {
			begins = l.spans[i-1].End
		}
		if dir == "" { // all its segments are gone
			_, err = s.fs.Stat(s.dir(sp.ID))
		}
		if err != nil || sp.End <= begins || len(names) > 0 && names[0].first < begins {
			return false, nil
		}
		if h, bad, err := s.readHeader(s.dir(sp.ID), sp.ID); err == nil && bad == nil && h.SeedLength != begins {
			return false, nil
		}
	}
	return true, nil
}

// byLink looks for the session that holds the record that the first one of id follows.
func (s *Store) byLink(ctx context.Context, id session.ID, t traces) (lineage, error) {
	if !t.isPrev || t.first <= 0 || t.prev == (session.Link{}) {
		return lineage{}, nil
	}
	ids, err := s.ids("sessions", "")
	if err != nil {
		return lineage{}, err
	}
	for _, other := range ids {
		if other == id {
			continue
		}
		h, bad, err := s.readHeader(s.dir(other), other)
		if err != nil || bad != nil || h.Origin(t.first-1) != other {
			continue
		}
		at, known, err := s.forkPoint(ctx, id, &session.Parent{ID: other, Seq: t.first - 1, Link: t.prev, Spans: h.Spans(t.first)})
		if cause := context.Cause(ctx); cause != nil {
			return lineage{}, cause
		}
		if err == nil && known && at.link == t.prev {
			return lineage{other, h.Spans(t.first), h, fmt.Sprintf("parent: %s, which holds the record that its first one follows", other)}, nil
		}
	}
	return lineage{}, nil
}

// forkPoint tells of the last record that id begins with, if it is there: as its session holds it, damaged or not. A lost one is known by the link
// that p names if the record behind it follows that.
func (s *Store) forkPoint(ctx context.Context, id session.ID, p *session.Parent) (at logEnd, known bool, err error) {
	sp := p.Spans[len(p.Spans)-1]
	from := session.Seq(0)
	if n := len(p.Spans); n > 1 {
		from = p.Spans[n-2].End
	}
	dir, _, err := s.locate(sp.ID, id)
	if err != nil || dir == "" {
		return at, false, err
	}
	m := &mend{s: s, id: sp.ID, dir: dir, from: from, clip: session.None, prevLost: true}
	if err := m.plan(ctx); err != nil || m.unsupported != "" {
		return at, false, err
	}
	v := m.view()
	defer v.release()
	if v.n <= p.Seq || p.Seq < from {
		return at, false, nil
	}
	err = v.each(ctx, p.Seq, min(p.Seq+2, v.n), func(_ *segment, raw *record.Raw) bool {
		if lost := string(raw.Type) == session.TypeLost; raw.Seq == p.Seq {
			at.link, known = raw.Link()
			at.lost, at.time, known = lost, raw.Time, known && !lost
		} else if _, ok := raw.CheckLink(p.Link); ok && !known && p.Link != (session.Link{}) {
			at.link, known = p.Link, true
		}
		return true
	})
	return at, known, err
}

// byHeritage makes a lineage of what id was handed, when those that logged it were purged.
func (s *Store) byHeritage(id session.ID, t traces) (lineage, error) {
	var l lineage
	list, err := s.entries(filepath.Join(s.dir(id), inheritedDir))
	if errors.Is(err, fs.ErrNotExist) || t.first == session.None {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	var firsts []session.Seq
	for _, e := range list {
		other := session.ID(e.Name())
		names, err := s.segmentNames(filepath.Join(s.dir(id), inheritedDir, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return l, err
		}
		if session.ValidID(other) == nil && len(names) > 0 {
			i, _ := slices.BinarySearch(firsts, names[0].first)
			firsts = slices.Insert(firsts, i, names[0].first)
			l.spans = slices.Insert(l.spans, i, session.OriginSpan{ID: other})
		}
	}
	for i := range l.spans {
		if l.spans[i].End = t.first; i+1 < len(l.spans) {
			l.spans[i].End = firsts[i+1]
		}
	}
	if ok, err := s.fits(id, l, t); err != nil || !ok || len(l.spans) == 0 {
		return lineage{}, err
	}
	l.parent = l.spans[len(l.spans)-1].ID
	l.why = fmt.Sprintf("parent: %s, of which it was handed the last events that it begins with", l.parent)
	return l, nil
}

// nearestIDs is what the text says, with the ids of sessions that are there in the place of those that are not, where one differs in two
// bytes at most, and with the ends where the next part begins.
func (s *Store) nearestIDs(id session.ID, read lineage, t traces) (lineage, error) {
	if len(read.spans) == 0 {
		return lineage{}, nil
	}
	places, err := s.all()
	if err != nil {
		return lineage{}, err
	}
	there := func(was session.ID) session.ID {
		var near []session.ID
		for _, p := range places {
			d := differing(p.id, was)
			if d == 0 {
				return was
			}
			if d <= 2 && p.id != id {
				near = append(near, p.id)
			}
		}
		if len(near) == 1 {
			return near[0]
		}
		return was
	}
	l := lineage{parent: there(read.parent), spans: slices.Clone(read.spans)}
	for i := range l.spans {
		l.spans[i].ID = there(l.spans[i].ID)
		if i == 0 {
			continue
		}
		if h, bad, err := s.readHeader(s.dir(l.spans[i].ID), l.spans[i].ID); err == nil && bad == nil {
			l.spans[i-1].End = h.SeedLength
		}
	}
	if t.isPrev {
		l.spans[len(l.spans)-1].End = t.first
	}
	l.why = fmt.Sprintf("parent: %s, which is there and has nearly the id that it reads now", l.parent)
	if ok, err := s.fits(id, l, t); err != nil || !ok {
		return lineage{}, err
	}
	return s.withHead(l), nil
}

// differing counts the bytes in which a and b differ; what is longer differs in all of them.
func differing(a, b session.ID) int {
	if len(a) != len(b) {
		return max(len(a), len(b))
	}
	n := 0
	for i := range len(a) {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}
