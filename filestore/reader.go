package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"sort"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
	"golang.org/x/sync/errgroup"
)

const maxHeader = 1 << 20

// logScan is what one pass over a whole log found.
type logScan struct {
	hdr    session.Header
	segs   []segment // of the good prefix, spans included
	pos    store.Pos
	synced session.Seq // highest mark
	torn   *store.Range
	left   []store.Range // Verify: torn tails of earlier segments
	lost   []lostRecord
	damage []store.Range
	owner  session.ID // who has to be repaired for that
	whose  session.ID // who logged the events that it hurt
	other  bool       // they are the events of another log

	check func(*record.Raw) (string, error) // Verify: what else must be right of a record

	behind store.Pos         // what lies below is not read, but for the record before it, which is the one that is meant
	fold   *store.Checkpoint // of behind
	foldAt string            // its file
	scars  []string          // from before it was read; nil: nobody asked

	coming      bool // a fork that is not on disk yet: its parent has what it will inherit
	certain     bool // what is not there now is gone for good
	unsupported string
	size        int64 // of the last segment when it was read
	time        int64 // of the last good record, else the header's creation
	afterLost   bool  // the last record is a session/lost: what follows keeps the link that it had
}

func (l *logScan) hurt(owner session.ID, r store.Range) {
	if len(l.damage) == 0 {
		l.owner, l.whose = owner, owner
	}
	l.damage = append(l.damage, r)
}

// readHeader reads session.json in dir. bad says what is wrong with it, if it can be read at all.
func (s *Store) readHeader(dir string, id session.ID) (h session.Header, bad error, err error) {
	return s.lookHeader(dir, id, &looked{})
}

// lookHeader is readHeader, and tells what it saw.
func (s *Store) lookHeader(dir string, id session.ID, l *looked) (h session.Header, bad error, err error) {
	path := filepath.Join(dir, headerName)
	if info, err := s.fs.Stat(dir); err == nil {
		if l.dir = info; !info.IsDir() { // also a link: what it names is not in this store
			return h, &notFileError{dir, info.Mode()}, nil
		}
	}
	var b []byte
	for try := 0; ; try++ {
		b, l.header, err = s.readFile(path, maxHeader)
		if err == nil {
			break
		}
		var nf *notFileError
		_, serr := s.fs.Stat(dir)
		switch {
		case errors.As(err, &nf):
			return h, err, nil
		case errors.Is(serr, fs.ErrNotExist):
			return h, nil, serr
		case !errors.Is(err, fs.ErrNotExist):
			return h, nil, err
		case try > 0: // the second time: it did not just come into being
			return h, errors.New("it has no " + headerName), nil
		}
	}
	if len(b) == 0 {
		return h, errors.New(headerName + " is empty"), nil
	}
	h, err = record.ParseHeader(b)
	if err == nil && h.ID != id {
		err = fmt.Errorf("%s is that of %s", headerName, h.ID)
	}
	return h, err, nil
}

// Read returns a valid prefix of the log of id, also while someone writes.
func (s *Store) Read(ctx context.Context, id session.ID) (*store.Snapshot, error) {
	if session.ValidID(id) != nil {
		return nil, &store.NotFoundError{ID: string(id)}
	}
	l, err := s.scanSettled(ctx, id, nil)
	if err == nil && l.uncertain() {
		var kin []relative
		if kin, err = s.kin(ctx); err == nil { // before the log, which may have grown
			l, err = s.scanSettled(ctx, id, nil)
		}
		if err == nil {
			err = s.prove(ctx, l, kin)
		}
	}
	if err != nil {
		return nil, err
	}
	return s.snapshot(l, id), nil
}

// scanSettled is scanLog for those who have no lease: what looks bad may be the work of somebody who
// is writing right now.
func (s *Store) scanSettled(ctx context.Context, id session.ID, check func(*record.Raw) (string, error)) (*logScan, error) {
	return s.settled(ctx, id, check, false)
}

// settled is scanSettled, or scanTail in its place.
func (s *Store) settled(ctx context.Context, id session.ID, check func(*record.Raw) (string, error), tail bool) (*logScan, error) {
	for try := 0; ; try++ {
		l, err := s.scanWith(ctx, id, check, tail)
		if err != nil || l.torn == nil && l.lost == nil && len(l.damage) == 0 {
			return l, err
		}
		names, err := s.segmentNames(s.dir(id))
		if err != nil || len(names) == 0 {
			return l, nil
		}
		last := names[len(names)-1]
		if n := len(l.segs); n > 0 && l.segs[n-1].owner == id && l.segs[n-1].first < last.first && try < 10 && len(l.damage) == 0 {
			continue // a segment came while we read
		}
		if held, err := s.hasWriter(last.in(s.dir(id))); err == nil && held {
			l.torn, l.lost = nil, nil // not left by the dead: still being written, or already given up
		}
		return l, nil
	}
}

func (s *Store) hasWriter(path string) (bool, error) {
	f, err := s.fs.OpenFile(path, vfs.ReadOnly)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return f.HasWriter()
}

// snapshot makes the Snapshot of a scan.
func (s *Store) snapshot(l *logScan, id session.ID) *store.Snapshot {
	v := &view{s: s, id: id, segs: l.segs, n: l.pos.Next}
	snap := &store.Snapshot{Header: l.hdr, Prefix: v, Pos: l.pos, Torn: l.torn, Left: l.left, Damage: l.damage,
		Unsupported: l.unsupported, Release: v.release}
	if n := len(l.scars); n > 0 {
		snap.Repaired = l.scars[n-1]
	}
	for _, r := range l.lost {
		snap.Lost = append(snap.Lost, r.ev)
	}
	if l.fold != nil {
		snap.Nearest = func(n session.Seq) (store.Checkpoint, bool) { return v.nearest(l.hdr, l.scars, *l.fold, n) }
	}
	return snap
}

// scanTail reads the header, the spans and the own segments of id, of them only what lies behind a checkpoint if there
// is one, and all is well there.
func (s *Store) scanTail(ctx context.Context, id session.ID) (*logScan, error) {
	return s.scanWith(ctx, id, nil, true)
}

// scanWith is scanTail of the whole log, unless tail is set, with a check of each record. A listed segment may be gone
// when it is opened; then the segments are listed again. One whose name leads nowhere for good is damaged.
func (s *Store) scanWith(ctx context.Context, id session.ID, check func(*record.Raw) (string, error), tail bool) (*logScan, error) {
	for try := 0; ; try++ {
		l, err := s.scanOnce(ctx, id, check, tail && try < 10, try == 10)
		if !errors.Is(err, fs.ErrNotExist) || try == 10 {
			if err == nil && len(l.damage) > 0 && l.hdr.ID == id {
				s.met(id, firstOf(l.damage))
			}
			return l, err
		}
	}
}

// firstOf returns the lowest seq that any of rs stands for.
func firstOf(rs []store.Range) session.Seq {
	first := store.Whole
	for _, r := range rs {
		first = min(first, r.First)
	}
	return first
}

func (s *Store) scanOnce(ctx context.Context, id session.ID, check func(*record.Raw) (string, error), tail, certain bool) (*logScan, error) {
	dir := s.dir(id)
	h, bad, err := s.readHeader(dir, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.absent(id)
	}
	if err != nil {
		return nil, err
	}
	l := &logScan{synced: session.None, check: check, certain: certain}
	var fe *record.FormatError
	if errors.As(bad, &fe) {
		l.unsupported = fe.Error()
		return l, nil
	}
	if bad != nil {
		l.hurt(id, store.Range{File: filepath.Join(dir, headerName), First: 0, Last: session.None, Detail: bad.Error()})
		return l, nil
	}
	l.hdr = h
	if tail {
		l.scars = s.scars(h, false)
		if behind, err := s.scanBehind(ctx, h, l.scars, dir); err != nil || behind != nil {
			return behind, err
		}
	}
	return l, s.scanBody(ctx, l, dir)
}

// scanBody reads what l.hdr names: the spans and the own segments in dir.
func (s *Store) scanBody(ctx context.Context, l *logScan, dir string) error {
	h := l.hdr
	l.time = h.CreatedAt
	if h.Parent != nil {
		if err := s.scanSpans(ctx, l); err != nil || len(l.damage) > 0 || l.unsupported != "" {
			return err
		}
	}
	names, err := s.segmentNames(dir)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		why := "it has no segment"
		empty := h.MayBeEmpty()
		if empty { // unless a repair died between two of its steps
			if empty, err = s.nothingAside(dir); err != nil {
				return err
			}
			why = "its first segment stands in " + damagedName + " alone"
		}
		if !empty {
			l.hurt(h.ID, store.Range{File: dir, First: l.pos.Next, Last: l.pos.Next - 1, Detail: why})
		}
		return nil
	}
	return s.scanOwn(ctx, l, h.ID, dir, names, session.None)
}

// nothingAside reports whether no segment was set aside in the session's directory.
func (s *Store) nothingAside(dir string) (bool, error) {
	list, err := s.entries(filepath.Join(dir, damagedName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return !slices.ContainsFunc(list, func(e fs.DirEntry) bool { _, ok := keptName(e.Name()); return ok }), nil
}

// shareIndex takes the index of the inherited prefix from the parent's writer, if this process holds the parent: what
// the parent read or wrote itself is not scanned again for each of its children, and its index is not copied. The one record
// that ties the two together, the last that is inherited, is read. Everything else shows its damage when it is read.
func (s *Store) shareIndex(ctx context.Context, l *logScan) bool {
	h := l.hdr
	s.mu.Lock()
	w := s.writers[h.Parent.ID]
	s.mu.Unlock()
	if w == nil || h.SeedLength == 0 || !w.sameScars(l) {
		return false
	}
	v := w.Stored().(*view)
	i := v.find(h.SeedLength - 1)
	if i < 0 || v.n < h.SeedLength || v.segs[0].first != 0 {
		return false
	}
	v.n, v.segs = h.SeedLength, cut(v.segs[:i+1], h.SeedLength)
	tied, at := false, int64(0)
	err := v.scan(ctx, i, h.SeedLength-1, h.SeedLength, func(raw *record.Raw) bool {
		link, ok := raw.Link()
		tied, at = ok && link == h.Parent.Link, raw.Time
		return true
	})
	if err != nil || !tied {
		return false // the scan says what is wrong
	}
	if q := l.behind.Next - 1; q >= 0 && q < h.SeedLength && !v.has(q, l.behind.Link) {
		return false
	}
	l.segs, l.pos, l.time = v.segs, store.Pos{Next: h.SeedLength, Link: h.Parent.Link}, at
	return true
}

// scanSpans reads the inherited prefix.
func (s *Store) scanSpans(ctx context.Context, l *logScan) error {
	h := l.hdr
	if l.check == nil && s.shareIndex(ctx, l) {
		return nil
	}
	for _, sp := range h.Parent.Spans {
		dir, names, err := s.locate(sp.ID, h.ID)
		if err == nil && dir == "" && l.coming {
			if dir, err = s.handedDown(sp.ID, h.Parent.ID); err == nil && dir != "" {
				names, err = s.segmentNames(dir)
			}
		}
		if err != nil {
			return err
		}
		gone := store.Range{File: s.dir(sp.ID), First: l.pos.Next, Last: sp.End - 1}
		if dir == "" {
			gone.Detail = fmt.Sprintf("the session %s, which holds its beginning, is not in this store", sp.ID)
			l.hurt(sp.ID, gone)
			if purged, err := s.purged(sp.ID); err == nil && purged { // what it left is gone, and that was the fork's
				l.owner = h.ID
			}
			return nil
		}
		err = s.scanOwn(ctx, l, sp.ID, dir, names, sp.End)
		if err == nil && l.pos.Next < sp.End && len(l.damage) == 0 && l.unsupported == "" {
			gone.First = l.pos.Next
			gone.Detail = fmt.Sprintf("the session %s ends before the fork", sp.ID)
			l.hurt(sp.ID, gone)
		}
		if err != nil || len(l.damage) > 0 || l.unsupported != "" {
			return cmp.Or(err, s.heir(ctx, l))
		}
	}
	ok := l.pos.Link == h.Parent.Link || l.behind.Next > h.SeedLength
	if l.behind.Next > h.SeedLength { // it was not read
		l.pos.Link = h.Parent.Link
	}
	if l.afterLost { // the record that was forked is gone, and its place is known
		may, err := s.mayMark(ctx, l.time, h.Origin(h.Parent.Seq), h)
		if err != nil {
			return err
		}
		if may {
			l.pos.Link, ok = h.Parent.Link, true
		}
	}
	if !ok {
		var err error
		if ok, err = s.relink(ctx, l, h.Parent.Link); err != nil {
			return err
		}
	}
	if !ok {
		l.notForked(h.Origin(h.Parent.Seq), s.dir(h.Origin(h.Parent.Seq)), h.Parent.Seq)
		return s.heir(ctx, l)
	}
	return nil
}

// notForked enters that the record at seq, which id should have logged in dir, is not the one that a fork was made at.
func (l *logScan) notForked(id session.ID, dir string, seq session.Seq) {
	first := len(l.damage) == 0
	l.hurt(id, store.Range{File: dir, First: seq, Last: seq,
		Detail: fmt.Sprintf("the record at the fork point is not the one that was forked: the session %s went on with others", id)})
	l.other = l.other || first
}

// heir makes the session that was read the owner of what is damaged in the parts that it was handed. Of those of others only what
// is certain stays.
func (s *Store) heir(ctx context.Context, l *logScan) error {
	dir, _, err := s.locate(l.whose, l.hdr.ID)
	if err == nil && len(l.damage) > 0 && dir == s.homes(l.whose, l.hdr.ID)[0] {
		l.owner = l.hdr.ID
	}
	return s.cutOther(ctx, l)
}

// locate finds the own segments of id for a reader of child; dir is "" if they are nowhere.
func (s *Store) locate(id, child session.ID) (dir string, names []segName, err error) {
	homes := s.homes(id, child)
	for _, dir := range append(homes, homes...) { // twice: it may be moved to where it was looked for before
		names, err := s.segmentNames(dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0 {
			continue
		}
		return dir, names, err
	}
	return "", nil, nil
}

// scanOwn reads the segments of id in dir and adds what is good of them, below clip, to l. Without
// clip the last segment is the end of the log: what is bad there may be torn or lost.
func (s *Store) scanOwn(ctx context.Context, l *logScan, id session.ID, dir string, names []segName, clip session.Seq) error {
	end := clip != session.None
	if end { // what begins at the clip or behind it is not asked for
		names = names[:sort.Search(len(names), func(i int) bool { return names[i].first >= clip })]
	}
	names, err := s.farParts(l, id, dir, names, clip)
	if err != nil {
		return err
	}
	scans := make([]*segScan, len(names))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, n := range names {
		limit := n.end // a packed one has something behind it, always
		if i+1 < len(names) {
			limit = names[i+1].first
		}
		if end && (limit == session.None || clip < limit) {
			limit = clip
		}
		path, first := n.in(dir), n.first
		p := pass{verify: limit == session.None || l.check != nil || l.behind.Next > 0}
		if first < l.behind.Next {
			p.from = l.behind
		}
		g.Go(func() (err error) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			scans[i], err = s.scanSegment(ctx, id, path, first, limit, p, l.check)
			if l.certain && errors.Is(err, fs.ErrNotExist) {
				scans[i], err = &segScan{path: path, first: first, synced: session.None, headErr: err}, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, sc := range scans {
		switch {
		case i+1 < len(scans) && scans[i+1].headErr == nil:
			sc.settle(scans[i+1].head.Prev)
		case end && sc.open != nil && sc.open.run.lost: // anything may follow a mark: its own link does not matter
			sc.settle(sc.open.calc)
		case end && sc.open != nil:
			link, ok, err := s.partLink(l.hdr, id)
			if err != nil {
				return err
			}
			if ok {
				sc.settle(link)
			}
		}
		l.synced = max(l.synced, sc.synced)
		if !end { // of a span only the part that is inherited is ours to tell of
			l.left = append(l.left, sc.left...)
		}
	}
	for i, sc := range scans {
		last := i == len(scans)-1 && !end && !names[i].packed()
		limit := names[i].end
		if i+1 < len(scans) {
			limit = scans[i+1].first
		} else if end {
			limit = session.None // whoever asked for the span sees whether it is all there
		}
		if err := s.join(ctx, l, id, sc, limit, last); err != nil {
			return err
		}
		if last {
			l.size = sc.size
		}
	}
	if n := len(names); n > 0 && !end && names[n-1].packed() {
		l.hurt(id, store.Range{File: names[n-1].in(dir), First: names[n-1].end, Last: session.None,
			Detail: "the segment behind it is gone: a packed one is never the last"})
	}
	return nil
}

// join adds one segment to l. limit is the first seq of the next one.
func (s *Store) join(ctx context.Context, l *logScan, id session.ID, sc *segScan, limit session.Seq, last bool) error {
	var fe *record.FormatError
	if errors.As(sc.headErr, &fe) {
		if l.unsupported == "" {
			l.unsupported = fmt.Sprintf("%s: %v", sc.path, fe)
		}
		return nil
	}
	broken := len(l.damage) > 0 || l.unsupported != ""
	whole := store.Range{File: sc.path, Offset: 0, Bytes: sc.headLen, First: sc.first, Last: sc.first - 1}
	switch {
	case sc.headErr != nil:
		whole.Detail = "the first line: " + sc.headErr.Error()
		l.hurt(id, whole)
		return nil
	case broken:
	case sc.first != l.pos.Next:
		whole.First, whole.Last = l.pos.Next, sc.first-1
		whole.Detail = fmt.Sprintf("the segment before it ends at %d", l.pos.Next)
		l.hurt(id, whole)
		broken = true
	case sc.head.Prev != l.pos.Link:
		if may, err := s.mayFollow(ctx, l, id); err != nil || may {
			if err != nil {
				return err
			}
			break
		}
		// Either the link at the end of the segment before is damaged, or the two do not belong together.
		ok, err := s.relink(ctx, l, sc.head.Prev)
		if err != nil {
			return err
		}
		if n := len(l.segs); !ok && n > 0 && l.segs[n-1].owner != id && l.hdr.ID != id {
			l.notForked(l.segs[n-1].owner, s.dir(l.segs[n-1].owner), sc.first-1)
			broken = true
		} else if !ok {
			whole.Detail = "it does not follow the segment before it"
			l.hurt(id, whole)
			broken = true
		}
	}
	if !broken {
		l.segs = append(l.segs, segment{owner: id, path: sc.path, first: sc.first, end: sc.first, prev: sc.head.Prev,
			off: sc.headLen, stop: sc.headLen})
	}

	due := sc.first
	var bad []item // since the last run
	lost := false
	for i := range sc.items {
		it := &sc.items[i]
		if !it.good {
			bad = append(bad, *it)
			continue
		}
		if len(bad) > 0 || it.run.first != due {
			if s.gap(l, id, sc, bad, due, it.run.first, it.run.off, last) {
				lost = true
			}
		}
		bad = nil
		due = it.run.end
		if len(l.damage) == 0 && l.unsupported == "" && !lost {
			seg := &l.segs[len(l.segs)-1]
			seg.end, seg.stop, seg.marks = it.run.end, it.run.stop, it.run.marks
			link, _ := session.ParseLink(it.run.link) // zero: damaged, relink finds out
			l.pos, l.time, l.afterLost = store.Pos{Next: it.run.end, Link: link}, it.run.time, it.run.lost
		}
	}
	if last {
		if s.ending(l, id, sc, bad, due) {
			lost = true
		}
		if lost && len(l.damage) == 0 {
			return s.collectLost(ctx, l, sc)
		}
		return nil
	}
	if limit != session.None && due < limit {
		s.gap(l, id, sc, bad, due, limit, sc.size, false)
	}
	return nil
}

// mayFollow reports whether the first segment of id may follow what is in l though its link does not: behind a
// session/lost, which has the time of the record before it, and unless that was written when the fork was there.
func (s *Store) mayFollow(ctx context.Context, l *logScan, id session.ID) (bool, error) {
	if n := len(l.segs); l.afterLost && n > 0 && l.segs[n-1].owner != id && l.hdr.ID != id {
		return s.mayMark(ctx, l.time, l.segs[n-1].owner, l.hdr)
	}
	return l.afterLost, nil
}

// gap judges the bad items between two good records, the second of which is at off; due..next-1 are
// missing. It reports whether loss of power explains them.
func (s *Store) gap(l *logScan, id session.ID, sc *segScan, bad []item, due, next session.Seq, off int64, last bool) bool {
	r := store.Range{File: sc.path, Offset: off, First: due, Last: next - 1, Detail: "records are missing"}
	beside := false
	for i, it := range bad {
		beside = beside || it.beside
		if it.bad.Kind == record.Newer && it.bad.LF && it.why == "" {
			l.newer(sc, &it)
			return false
		}
		if i == 0 {
			r.Offset, r.Detail = it.bad.Offset, it.describe()
		}
		r.Bytes = it.bad.Offset + it.bad.Bytes - r.Offset
	}
	if last && !beside && due > l.synced && due > sc.first && next > due {
		return true
	}
	l.hurt(id, r)
	return false
}

func (l *logScan) newer(sc *segScan, it *item) {
	if l.unsupported == "" {
		l.unsupported = fmt.Sprintf("%s at byte %d: %s", sc.path, it.bad.Offset, it.describe())
	}
}

// ending judges what stands behind the last good record of a log.
func (s *Store) ending(l *logScan, id session.ID, sc *segScan, bad []item, due session.Seq) (lost bool) {
	if due == sc.first && len(bad) == 0 && sc.first >= l.behind.Next { // a segment comes to its name with its first record
		l.hurt(id, store.Range{File: sc.path, Offset: sc.size, First: due, Last: due, Detail: "it ends before its first record"})
		return false
	}
	for i := range bad {
		it := &bad[i]
		switch {
		case it.bad.Kind == record.Newer && it.bad.LF && it.why == "":
			l.newer(sc, it)
			return false
		case due == sc.first, it.beside:
			l.hurt(id, store.Range{File: sc.path, Offset: it.bad.Offset, Bytes: it.bad.Bytes, First: due, Last: due, Detail: it.describe()})
			return false
		case it.bad.LF && !it.bad.Blank:
			lost = true
		}
	}
	if !lost && len(bad) > 0 {
		first, end := bad[0].bad, bad[len(bad)-1].bad
		l.torn = &store.Range{File: sc.path, Offset: first.Offset, Bytes: end.Offset + end.Bytes - first.Offset,
			First: due, Last: due - 1, Detail: bad[0].describe()}
	}
	return lost
}
