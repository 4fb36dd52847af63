package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

const (
	window      = 256 << 10 // read at a time when reading through a file
	markRecords = 128       // a segment's index has a mark at least this often,
	markBytes   = 64 << 10  // or this often
	linkTail    = 16 + 6 + len(`"}`)
)

// mark is an entry of a segment's sparse index.
type mark struct {
	seq session.Seq
	off int64
}

// run is a stretch of good records without a gap. The zero run is empty.
type run struct {
	first, end session.Seq // end is behind the last
	off, stop  int64
	link       string       // text of the stored link at end-1
	calc       session.Link // that link as it was computed, where links are
	lost       bool         // the last record is a session/lost
	loose      bool         // its link is taken as it is stored: what it follows is not known
	time       int64        // of the last record
	marks      []mark
}

// place says how far the records of a run reach.
func (r *run) add(raw *record.Raw, at, stop int64) {
	if n := len(r.marks); n == 0 || raw.Seq-r.marks[n-1].seq >= markRecords || at-r.marks[n-1].off >= markBytes {
		r.marks = append(r.marks, mark{raw.Seq, at})
	}
	r.end, r.stop, r.time, r.lost = raw.Seq+1, stop, raw.Time, string(raw.Type) == session.TypeLost
}

// item is a part of a segment: a run or something bad.
type item struct {
	good   bool
	run    run
	bad    record.Bad
	why    string // more than bad says; ""
	beside bool   // what is wrong does not lie in the record's own bytes
}

// segScan is what one pass over a segment file found.
type segScan struct {
	path    string
	first   session.Seq // by its name
	head    record.Segment
	headErr error // the first line is no header of this segment
	headLen int64
	items   []item
	synced  session.Seq   // highest mark in it
	left    []store.Range // with check: torn bytes behind the last record that counts
	size    int64         // bytes read through: the end of the file, unless limit ended the pass
	open    *doubt        // about its last record
}

// doubt is about a record with the right sum and a link that does not follow the record before: it belongs to the log
// if the record behind it follows the link that it should have.
type doubt struct {
	at   int // the items from here on are one run, with it, if it does
	calc session.Link
	run  run
	accused
}

// accused is what a doubt comes to where the record before has a link that nothing proves, and what comes next follows the one in doubt: then the link
// of the one before is the damaged one.
type accused struct {
	items []item       // in the place of the run that ends with the one before; nil: that one is proven
	one   run          // the record in doubt
	link  session.Link // of it, as it is stored
}

// settle ends the doubt about the last record of a segment. prev is what the header of the next one says.
func (sc *segScan) settle(prev session.Link) {
	if d := sc.open; d != nil && d.calc == prev {
		d.run.calc, d.run.link = prev, prev.String()
		sc.items = append(sc.items[:d.at], item{good: true, run: d.run})
		sc.open = nil
	} else if d != nil && d.accused.items != nil && d.accused.link == prev {
		sc.items = append(append(sc.items[:d.at], d.accused.items...), item{good: true, run: d.accused.one})
		sc.open = nil
	}
}

// fileReader reads a file from an offset on.
type fileReader struct {
	f   vfs.File
	off int64
}

func (r *fileReader) Read(b []byte) (int, error) {
	n, err := r.f.ReadAt(b, r.off)
	r.off += int64(n)
	return n, err
}

var windows = sync.Pool{New: func() any { b := make([]byte, window); return &b }}

// readSegmentHead reads the first line of a segment. The second result is its length with LF.
func readSegmentHead(f io.ReaderAt) (record.Segment, int64, error) {
	b := make([]byte, 512)
	for {
		n, err := f.ReadAt(b, 0)
		if err != nil && err != io.EOF {
			return record.Segment{}, 0, err
		}
		for i, c := range b[:n] {
			if c == '\n' {
				h, err := record.ParseSegment(b[:i:i])
				return h, int64(i) + 1, err
			}
		}
		if n < len(b) || n >= 64<<10 {
			return record.Segment{}, 0, &record.Error{Offset: n, Reason: "a segment without its first line"}
		}
		b = make([]byte, 8*len(b))
	}
}

// scanSegment reads one segment. limit is the first seq of the next segment (None: there is none):
// from there on nothing counts. how says what is verified, and where to begin. check,
// if not nil, says what is wrong with a good record beyond its own bytes ("": nothing). Errors are
// those of the medium, and errNotBehind.
func (s *Store) scanSegment(ctx context.Context, id session.ID, path string, first, limit session.Seq, how pass,
	check func(*record.Raw) (string, error)) (*segScan, error) {
	f, err := s.openSegment(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc := &segScan{path: path, first: first, synced: session.None}
	sc.head, sc.headLen, sc.headErr = readSegmentHead(f)
	var re *record.Error
	var fe *record.FormatError
	if sc.headErr != nil {
		if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
			sc.headErr = &notFileError{path, info.Mode()}
			return sc, nil
		}
	}
	switch {
	case errors.As(sc.headErr, &fe):
		return sc, nil
	case sc.headErr != nil && !errors.As(sc.headErr, &re):
		return nil, sc.headErr
	case sc.headErr == nil && (sc.head.Session != id || sc.head.First != first):
		sc.headErr = fmt.Errorf("it says that it is %s of session %s", segmentName(sc.head.First), sc.head.Session)
	}
	if sc.headErr != nil {
		sc.headLen = 0 // what follows may still be good records; the bad line is met as one
	}

	p := how
	p.segScan, p.due, p.prev, p.prevOK = sc, first, sc.head.Prev, sc.headErr == nil
	if p.from.Next > 0 {
		if err := p.skip(ctx, f); err != nil {
			return nil, err
		}
	}
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	r := record.NewReader(&fileReader{f, sc.headLen}, sc.headLen, *buf)
	for n := 0; limit == session.None || p.due < limit; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		tok, err := r.Next()
		if err != nil {
			return nil, err
		}
		if tok == record.End {
			_, sc.size = r.Rest()
			break
		}
		if tok == record.Broken {
			if sc.headErr != nil && r.Bad.Offset == 0 {
				continue // the header, reported as such
			}
			p.endRun()
			p.bad(r.Bad, "")
			continue
		}
		if limit != session.None && r.Raw.Seq >= limit {
			break
		}
		if check != nil {
			why, err := check(&r.Raw)
			if err != nil {
				return nil, err
			}
			if why != "" {
				p.endRun()
				p.bad(record.Bad{Offset: r.At, Bytes: int64(len(r.Raw.Line())) + 1, LF: true, Seq: r.Raw.Seq}, why)
				p.items[len(p.items)-1].beside = true
				continue
			}
		}
		p.good(&r.Raw, r.At)
	}
	p.endRun()
	if p.doubt > 0 {
		sc.open = &doubt{p.doubt - 1, p.calc, p.maybe, p.other}
	}
	if packed, ok := f.(*packedFile); ok {
		packed.explain(sc.items)
	}
	if limit != session.None && p.due >= limit && check != nil {
		return sc, p.behind(ctx, r)
	}
	return sc, nil
}

// behind looks for torn bytes behind the last record that counts. Good records there were written again in
// the next segment, and bad lines have their marks in it.
func (p *pass) behind(ctx context.Context, r *record.Reader) error {
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		tok, err := r.Next()
		if err != nil || tok == record.End {
			return err
		}
		if b := r.Bad; tok == record.Broken && (!b.LF || b.Blank) {
			it := item{bad: b}
			p.left = append(p.left, store.Range{File: p.path, Offset: b.Offset, Bytes: b.Bytes, First: p.due, Last: p.due - 1, Detail: it.describe()})
		}
	}
}

// pass is the state of a scan.
type pass struct {
	*segScan
	verify bool      // each link is computed, else stored links are taken
	from   store.Pos // what stands before the record before this is passed over, and that one must have this link
	due    session.Seq
	cur    *run
	tail   [linkTail]byte // the end of the last record of cur

	prev      session.Link // of the record before
	prevOK    bool         // prev is known, so the next link must follow it
	afterLost bool         // the record before is a session/lost: the next link may fail to follow

	loose bool         // what the record follows is not known
	doubt int          // index of an item that is bad only if the next record does not follow calc; 0: none
	calc  session.Link // what its link should have been
	maybe run          // the run before it, with it
	other accused      // what else may be wrong

	short   run   // the run before the last record, while what that follows is not known
	looseAt int64 // where that record begins
}

func (p *pass) endRun() {
	if p.cur == nil {
		return
	}
	p.cur.link, p.cur.calc = string(p.tail[:16]), p.prev
	p.items = append(p.items, item{good: true, run: *p.cur})
	p.cur = nil
}

func (p *pass) bad(b record.Bad, why string) {
	p.items = append(p.items, item{bad: b, why: why})
	p.prevOK, p.doubt, p.afterLost = false, 0, false
}

func (p *pass) good(raw *record.Raw, at int64) {
	line := raw.Line()
	stop := at + int64(len(line)) + 1
	if raw.Seq < p.due {
		p.endRun()
		p.bad(record.Bad{Offset: at, Bytes: stop - at, LF: true, Seq: raw.Seq}, fmt.Sprintf("seq %d again", raw.Seq))
		return
	}
	if raw.Seq != p.due {
		p.endRun()
		p.prevOK, p.doubt, p.afterLost = false, 0, false
	}
	if p.verify && !p.follows(raw, at, stop) {
		p.due = raw.Seq + 1
		return
	}
	if p.cur == nil {
		p.cur = &run{first: raw.Seq, off: at}
	}
	p.cur.add(raw, at, stop)
	p.cur.loose = p.loose
	copy(p.tail[:], line[len(line)-linkTail:])
	if raw.Synced > p.synced && raw.Synced < raw.Seq {
		p.synced = raw.Synced
	}
	p.due = raw.Seq + 1
}

// follows checks the link of raw and reports whether the record belongs to the log.
func (p *pass) follows(raw *record.Raw, at, stop int64) bool {
	stored, isLink := raw.Link()
	defer func() { p.afterLost = string(raw.Type) == session.TypeLost }()
	if p.doubt > 0 {
		if l, ok := raw.CheckLink(p.calc); ok { // only the link of the one before was damaged
			p.items = p.items[:p.doubt-1]
			m := p.maybe
			p.cur = &m
			p.prev, p.prevOK, p.doubt, p.loose = l, true, 0, false
			return true
		}
		if l, ok := raw.CheckLink(p.other.link); ok && p.other.items != nil {
			p.items = append(p.items[:p.doubt-1], p.other.items...)
			one := p.other.one
			p.cur = &one
			p.prev, p.prevOK, p.doubt, p.loose = l, true, 0, false
			return true
		}
		p.prevOK, p.doubt = false, 0
	}
	unproven := p.loose
	p.loose = false
	if !p.prevOK {
		p.take(at)
		p.prev, p.prevOK, p.loose = stored, isLink, true
		return true
	}
	calc, ok := raw.CheckLink(p.prev)
	if ok {
		p.prev = calc
		return true
	}
	if p.afterLost && isLink {
		p.take(at)
		p.prev, p.loose = stored, true
		return true
	}
	m := run{first: raw.Seq, off: at}
	if p.cur != nil {
		m = *p.cur
		m.marks = append([]mark(nil), m.marks...)
	}
	m.add(raw, at, stop)
	from := len(p.items)
	p.endRun()
	p.bad(record.Bad{Offset: at, Bytes: stop - at, LF: true, Seq: raw.Seq}, "the link does not follow the record before")
	p.doubt, p.calc, p.maybe, p.other = from+1, calc, m, accused{}
	if unproven && isLink {
		p.other = accused{link: stored, one: run{first: raw.Seq, off: at, link: stored.String(), calc: stored, loose: true}}
		p.other.one.add(raw, at, stop)
		hurt := record.Bad{Offset: p.looseAt, Bytes: at - p.looseAt, LF: true, Seq: raw.Seq - 1}
		if p.short.end > p.short.first {
			p.other.items = append(p.other.items, item{good: true, run: p.short})
		}
		p.other.items = append(p.other.items, item{bad: hurt, why: "its link is not the one that the next record follows"})
	}
	return false
}

// take notes that the record at is taken with the link that it has.
func (p *pass) take(at int64) {
	p.short, p.looseAt = run{}, at
	if p.cur != nil {
		p.short = *p.cur
		p.short.marks = append([]mark(nil), p.cur.marks...)
		p.short.link, p.short.calc = string(p.tail[:16]), p.prev
	}
}

// describe puts a bad item in words.
func (it *item) describe() string {
	if it.why != "" {
		return it.why
	}
	return it.bad.String()
}

// below returns r without its records from seq on; what is known of its end is that of the other.
func (r run) below(seq session.Seq) run {
	if r.end = max(seq, r.first); len(r.marks) > 0 {
		g := cut([]segment{{end: r.end, stop: r.stop, marks: r.marks}}, r.end)[0]
		r.stop, r.marks = g.stop, g.marks
	}
	return r
}
