package filestore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Joining: the segments of ended lives become few, packed ones. The packed file is complete, synced and read back
// before it has its name; with the name it counts and what begins inside it does not, in one step and for good.
// So what it holds may be taken away afterwards in any order, by anybody, or be left there by who dies; and a writer
// that wakes up and makes a segment inside it is read by nobody and finds out when it looks.

const manySegs = 32 // a life joins what earlier ones left when that takes away at least so many segments

// joiner joins segments of one session, under its lease.
type joiner struct {
	s    *Store
	id   session.ID
	dir  string
	held func() error // nil: the lease is still this one
	keep session.Seq  // segments from here on are not touched

	aside int64 // bytes that went to damaged/
}

// joined is what a group of segments became.
type joined struct {
	segs []segName // what was joined
	seg  segment   // in its place
}

// Pack joins and packs the segments of id but the last. It takes the lease for that time.
func (s *Store) Pack(ctx context.Context, id session.ID) (p store.Packed, err error) {
	p.ID = id
	w, err := s.Open(ctx, id)
	if err != nil {
		return p, err
	}
	own := w.(*writer)
	defer func() { err = errors.Join(err, w.Close()) }()
	before, _, n, err := s.sizes(own.dir)
	if err != nil {
		return p, err
	}
	p.Before, p.BytesBefore = len(n), before
	p.After, p.BytesAfter = p.Before, p.BytesBefore
	if len(n) > 0 {
		own.op.Lock()
		defer own.op.Unlock()
		j := own.joiner(n[len(n)-1].first)
		if _, err = j.run(ctx, 1); err == nil {
			err = j.tidy(ctx)
		}
		if errors.Is(err, fs.ErrNotExist) { // only where locks protect nothing
			err = &store.FencedError{ID: id, At: store.Pos{Next: j.keep}, Detail: "while its segments were joined a file was taken away"}
		}
		p.Aside = j.aside
	}
	after, _, n, serr := s.sizes(own.dir)
	if serr == nil {
		p.After, p.BytesAfter = len(n), after
	}
	return p, errors.Join(err, serr)
}

// sizes returns the bytes of the segments in dir, those of the packed ones, and the segments that count.
func (s *Store) sizes(dir string) (all, packed int64, names []segName, err error) {
	list, err := s.fs.ReadDir(dir)
	if err != nil {
		return 0, 0, nil, err
	}
	for _, e := range list {
		n, ok := parseSegName(e.Name())
		if !ok {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, 0, nil, err
		}
		all += info.Size()
		if n.packed() {
			packed += info.Size()
		}
	}
	names, _ = counting(list)
	return all, packed, names, nil
}

func (w *writer) joiner(keep session.Seq) *joiner {
	return &joiner{s: w.s, id: w.id, dir: w.dir, keep: keep, held: func() error {
		same, _, err := w.s.isAt(w.lease)
		if err == nil && !same {
			err = &store.FencedError{ID: w.id, At: store.Pos{Next: keep}, Detail: headerName + " is another file than the one that is held"}
		}
		return err
	}}
}

// run joins what can be joined, if that takes away at least so many segments or, with least 1, packs a plain one.
func (j *joiner) run(ctx context.Context, least int) ([]joined, error) {
	names, err := j.s.segmentNames(j.dir)
	if err != nil {
		return nil, err
	}
	groups, fewer, err := j.groups(names)
	if err != nil || least > 1 && fewer < least {
		return nil, err
	}
	var out []joined
	link, known := session.Link{}, false // of the record before the group
	for _, g := range groups {
		if len(g) == 1 && g[0].packed() {
			known = false
			continue
		}
		end := names[holding(names, g[len(g)-1].first)+1].first
		seg, last, err := j.join(ctx, g, end, link, known)
		if err != nil {
			return out, err
		}
		link, known = last, true
		out = append(out, joined{g, seg})
	}
	return out, nil
}

// groups divides the closed ones of names into what will become one segment each, and says how many that takes away.
func (j *joiner) groups(names []segName) (groups [][]segName, fewer int, err error) {
	size, first := int64(0), []byte(nil)
	for i, n := range names {
		if n.first >= j.keep || i+1 == len(names) {
			break
		}
		text, extra, err := j.text(n)
		if err != nil {
			return nil, 0, err
		}
		// One first line stands for all of a group: members of it that are not known here must be the same.
		if len(groups) == 0 || size+text > j.s.opt.SegmentBytes || !bytes.Equal(extra, first) {
			groups, size, first = append(groups, nil), 0, extra
		} else {
			fewer++
		}
		k := len(groups) - 1
		groups[k] = append(groups[k], n)
		size += text
	}
	return groups, fewer, nil
}

// text returns the size of a segment's text, and the members of its first line that are not known here.
func (j *joiner) text(n segName) (int64, []byte, error) {
	f, err := j.s.openSegment(n.in(j.dir))
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	if held, err := f.HasWriter(); err != nil || held {
		return 0, nil, errors.Join(err, j.busy(held))
	}
	info, err := f.Stat()
	if err != nil {
		return 0, nil, err
	}
	head, _, err := readSegmentHead(f)
	if _, bad := errors.AsType[*record.Error](err); err != nil && !bad { // a bad one is told when it is joined
		return 0, nil, err
	}
	return info.Size(), head.Extra, nil
}

func (j *joiner) busy(held bool) error {
	if !held {
		return nil
	}
	return &store.BusyError{ID: j.id, Holder: j.s.holder(j.id)}
}

// join makes one packed segment of group, whose records end before end, and takes the originals away. link is that
// of the record before it, if it is known. It returns the index of the new one, and the link of its last record.
func (j *joiner) join(ctx context.Context, group []segName, end session.Seq, link session.Link, known bool) (segment, session.Link, error) {
	s, first := j.s, group[0].first
	var none segment
	scans := make([]*segScan, len(group))
	for i, n := range group {
		limit := end
		if i+1 < len(group) {
			limit = group[i+1].first
		}
		sc, err := s.scanSegment(ctx, j.id, n.in(j.dir), n.first, limit, pass{verify: true}, nil)
		if err != nil {
			return none, link, err
		}
		if link, err = j.whole(sc, limit, link, known); err != nil {
			return none, link, err
		}
		scans[i], known = sc, true
	}
	if err := j.held(); err != nil {
		return none, link, err
	}
	nonce, err := s.nonce()
	if err != nil {
		return none, link, err
	}
	name := segName{first, end}
	tmp := filepath.Join(j.dir, newSegment+nonce+packSuffix)
	defer s.fs.Remove(tmp)
	sum := sha256.New()
	if err := j.write(ctx, tmp, group, scans, sum); err != nil {
		return none, link, err
	}
	sc, err := j.readBack(ctx, tmp, first, end, link, sum.Sum(nil))
	if err != nil {
		return none, link, err
	}
	if err := j.held(); err != nil {
		return none, link, err
	}
	if err := s.publish(tmp, name.in(j.dir)); err != nil {
		return none, link, s.readOnly(err)
	}
	if err := s.syncDir(j.dir); err != nil {
		return none, link, err
	}
	if _, err := s.settle(j.dir, j.keep, nil); err != nil { // a name that becomes free must not let an old claim through
		return none, link, err
	}
	ctx = context.WithoutCancel(ctx) // what is left is little, and is taken away now or by the next joining only
	for _, n := range group {
		if err := j.retire(ctx, name, n); err != nil {
			return none, link, err
		}
	}
	r := sc.items[0].run
	return segment{owner: j.id, path: name.in(j.dir), first: first, end: end, prev: sc.head.Prev, off: sc.headLen, stop: r.stop, marks: r.marks},
		link, s.syncDir(j.dir)
}

// whole makes sure that sc holds the records up to limit, healthy, behind link, and returns the link of the last.
func (j *joiner) whole(sc *segScan, limit session.Seq, link session.Link, known bool) (session.Link, error) {
	r := store.Range{File: sc.path, First: sc.first, Last: limit - 1}
	switch {
	case sc.headErr != nil:
		r.Detail = "the first line: " + sc.headErr.Error()
	case known && sc.head.Prev != link:
		r.Detail = "it does not follow the segment before it"
	case len(sc.items) != 1 || !sc.items[0].good || sc.items[0].run.first != sc.first || sc.items[0].run.end != limit:
		r.Detail = "not all of its records are there and right"
		for i := range sc.items {
			if it := &sc.items[i]; !it.good {
				r.Offset, r.Bytes, r.Detail = it.bad.Offset, it.bad.Bytes, it.describe()
				break
			}
		}
	default:
		last, err := session.ParseLink(sc.items[0].run.link)
		if err == nil {
			return last, nil
		}
		r.Detail = err.Error()
	}
	j.s.met(j.id, r.First)
	return link, &store.DamagedError{ID: j.id, Owner: j.id, Ranges: []store.Range{r}}
}

// write makes the packed file tmp of what counts of scans, synced; the text goes to sum, too.
func (j *joiner) write(ctx context.Context, tmp string, group []segName, scans []*segScan, sum hash.Hash) (err error) {
	s := j.s
	f, err := s.fs.OpenFile(tmp, vfs.CreateAppend)
	if err != nil {
		return s.readOnly(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	pw, err := newPackWriter(func(b []byte) error {
		n, err := f.Write(b)
		return errors.Join(err, shortWrite(n, len(b)))
	})
	if err != nil {
		return err
	}
	to := io.MultiWriter(sum, pw)
	head := scans[0].head
	var starts []session.Span
	for i, sc := range scans {
		starts = append(starts, clipSpans(startsOf(sc.head, group[i]), sc.first, sc.items[0].run.end)...)
	}
	head.Starts = clipSpans(starts, head.First, scans[len(scans)-1].items[0].run.end)
	if _, err := to.Write(record.AppendSegment(nil, head)); err != nil {
		return err
	}
	for _, sc := range scans {
		if err := s.copyText(ctx, to, sc.path, sc.headLen, sc.items[0].run.stop); err != nil {
			return err
		}
	}
	if err := pw.finish(); err != nil {
		return err
	}
	return s.sync(f.Sync)
}

// copyText writes the text of a segment from off to stop.
func (s *Store) copyText(ctx context.Context, to io.Writer, path string, off, stop int64) error {
	f, err := s.openSegment(path)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	for off < stop {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b := (*buf)[:min(int64(len(*buf)), stop-off)]
		n, err := f.ReadAt(b, off)
		if err != nil && (err != io.EOF || n < len(b)) {
			return fmt.Errorf("%s changed while it was read: %w", path, err)
		}
		if _, err := to.Write(b); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// readBack makes sure that the packed file tmp holds the text with that sum, and that it is what a reader needs.
func (j *joiner) readBack(ctx context.Context, tmp string, first, end session.Seq, link session.Link, want []byte) (*segScan, error) {
	sc, err := j.s.scanSegment(ctx, j.id, tmp, first, end, pass{verify: true}, nil)
	if err != nil {
		return nil, err
	}
	last, err := j.whole(sc, end, session.Link{}, false)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	if err := j.s.copyText(ctx, sum, tmp, 0, sc.items[0].run.stop); err != nil {
		return nil, err
	}
	if last != link || !bytes.Equal(sum.Sum(nil), want) {
		return nil, fmt.Errorf("filestore: %s does not read as it was written: nothing was taken away", tmp)
	}
	return sc, nil
}

// tidy takes away what begins inside a packed segment, of this or an earlier joining that was cut short.
func (j *joiner) tidy(ctx context.Context) error {
	list, err := j.s.fs.ReadDir(j.dir)
	if err != nil {
		return err
	}
	names, hidden := counting(list)
	if len(hidden) == 0 {
		return nil
	}
	if _, err := j.s.settle(j.dir, j.keep, nil); err != nil { // as join does
		return err
	}
	for _, h := range hidden {
		if err := j.retire(ctx, names[holding(names, h.first)], h); err != nil {
			return err
		}
	}
	return j.s.syncDir(j.dir)
}

// retire takes away the segment old, which begins inside the packed one. What the packed one does not hold of it -
// a torn tail, records that were written again, what a fenced writer left - goes to damaged/ first. A file that
// somebody still writes to stays.
func (j *joiner) retire(ctx context.Context, packed, old segName) error {
	s, path := j.s, old.in(j.dir)
	if err := j.held(); err != nil {
		return err
	}
	f, err := s.openSegment(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if held, err := f.HasWriter(); err != nil || held {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	same, err := j.common(ctx, packed, old, f)
	if err != nil {
		return err
	}
	if same < info.Size() {
		lost := info.Size() - same
		if old.packed() {
			same = 0 // as it is: its frames are not cut
		}
		if err := j.setAside(f, old, same, info.Size()); err != nil {
			return err
		}
		j.aside += lost
	}
	// It may have grown, or be another file by now: then it stays for the next time.
	now, err := s.fs.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	raw, size := info, info.Size()
	if p, ok := info.(packedInfo); ok {
		raw, size = p.FileInfo, p.FileInfo.Size()
	}
	if !s.fs.SameFile(now, raw) || now.Size() != size {
		return nil
	}
	if err := s.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.readOnly(err)
	}
	return nil
}

// common returns how many bytes of f's text, which is that of old, the packed segment holds too: its first line, if
// it says no more than its name and the first line of the packed one do, and the records that follow it.
func (j *joiner) common(ctx context.Context, packed, old segName, f vfs.File) (int64, error) {
	p, err := j.s.openSegment(packed.in(j.dir))
	if err != nil {
		return 0, err
	}
	defer p.Close()
	head, n, err := readSegmentHead(f)
	var re *record.Error
	var fe *record.FormatError
	switch {
	case errors.As(err, &re) || errors.As(err, &fe):
		return 0, nil
	case err != nil:
		return 0, err
	}
	line := make([]byte, n)
	if _, err := f.ReadAt(line, 0); err != nil && err != io.EOF {
		return 0, err
	}
	told := record.Segment{Session: j.id, First: old.first, Prev: head.Prev, Starts: head.Starts}
	if ph, _, err := readSegmentHead(p); err == nil {
		told.Extra = ph.Extra // it stands for all that were joined
	}
	if !bytes.Equal(line, record.AppendSegment(nil, told)) && !(old.first == packed.first && j.same(p, line, 0)) {
		return 0, nil
	}
	at, err := locateRecord(ctx, p, old.first, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	for shift, same, head := at-n, n, n; ; {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		k, err := f.ReadAt(*buf, n)
		if err != nil && err != io.EOF {
			return 0, err
		}
		b := (*buf)[:k]
		if !j.same(p, b, n+shift) { // find the line that differs
			for i := bytes.IndexByte(b, '\n') + 1; i > 0 && j.same(p, b[:i], n+shift); i = bytes.IndexByte(b, '\n') + 1 {
				n, b = n+int64(i), b[i:]
				same = n
			}
			if same == head {
				same = 0 // nothing of it: kept as it is
			}
			return same, nil
		}
		if i := int64(bytes.LastIndexByte(b, '\n') + 1); i > 0 {
			same = n + i
		}
		if n += int64(k); err == io.EOF {
			return same, nil
		}
	}
}

// same reports whether the text of p at off begins with b.
func (j *joiner) same(p vfs.File, b []byte, off int64) bool {
	got := make([]byte, len(b))
	n, _ := p.ReadAt(got, off)
	return bytes.Equal(got[:n], b)
}

// setAside keeps the text of f from off to end, under a name that says where it was.
func (j *joiner) setAside(f vfs.File, old segName, off, end int64) error {
	s, dir := j.s, filepath.Join(j.dir, damagedName)
	if err := s.mkdirAll(dir); err != nil {
		return s.readOnly(err)
	}
	if p, ok := f.(*packedFile); ok {
		f = p.File
		info, err := f.Stat()
		if err != nil {
			return err
		}
		end = info.Size()
	}
	b := make([]byte, end-off)
	if n, err := f.ReadAt(b, off); err != nil && (err != io.EOF || n < len(b)) {
		return err
	}
	nonce, err := s.nonce()
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, newSegment+nonce)
	t, err := s.writeTemp(tmp, b, false)
	if err != nil {
		return s.readOnly(err)
	}
	t.Close()
	name := filepath.Join(dir, fmt.Sprintf("%s.%d", old, off))
	err = s.publish(tmp, name)
	if errors.Is(err, fs.ErrExist) { // of a joining that was cut short, or of another file with that name
		have, _, rerr := s.readFile(name, 1<<40)
		if rerr != nil {
			return rerr
		}
		if err = nil; !bytes.Equal(have, b) {
			t, err := s.writeTemp(tmp, b, false)
			if err != nil {
				return s.readOnly(err)
			}
			t.Close()
			if err := s.publish(tmp, name+"."+nonce); err != nil {
				return s.readOnly(err)
			}
		}
	}
	if err != nil {
		return s.readOnly(err)
	}
	return s.syncDir(dir)
}

// joinable reports whether earlier lives left so many segments before first that joining them may be worth it.
func (w *writer) joinable(first session.Seq) bool {
	n := 0
	for _, g := range w.segs {
		if g.owner == w.id && g.first < first {
			n++
		}
	}
	return n > manySegs
}

// startJoin begins to join what earlier lives left, beside the work of this one. Close ends it.
func (w *writer) startJoin() {
	first := w.segs[len(w.segs)-1].first
	if !w.joinable(first) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stopJoin, w.joinDone = cancel, make(chan struct{})
	j := w.joiner(first)
	go func() {
		defer close(w.joinDone)
		done, err := j.run(ctx, manySegs)
		if err == nil && len(done) > 0 {
			_ = j.tidy(ctx) // what stays is taken away the next time
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.joined = done
	}()
}

// endJoin stops the joining and waits for it.
func (w *writer) endJoin() {
	if w.stopJoin != nil {
		w.stopJoin()
		<-w.joinDone
	}
}

// takeJoined puts what was joined meanwhile into the index. Without it reading would find its way, a little slower.
func (w *writer) takeJoined() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.joined {
		var segs []segment
		for _, g := range w.segs {
			switch {
			case g.owner != w.id || g.first < j.seg.first || g.first >= j.seg.end:
				segs = append(segs, g)
			case g.first == j.seg.first:
				segs = append(segs, j.seg)
			}
		}
		w.segs = segs
	}
	w.joined = nil
}
