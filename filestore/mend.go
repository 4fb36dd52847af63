package filestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

const damagedName = "damaged" // where bytes are kept that count no more

// source is a file with records of one session, wherever it stands and whatever it is named.
type source struct {
	*segScan
	name    segName // where the records begin is first
	file    string  // its base name
	regular bool
	stray   bool // its name lies within that of a packed segment: it does not count
	ours    bool // nothing says that it is of another session
	use     bool // scanned: its records count where they stand
}

// stretch is a part of a mended log: records as they stand in a file, or (text not nil) in memory.
type stretch struct {
	segment
	link session.Link // of its last record
	lost bool         // its last record is a session/lost
	time int64
}

// lack is a part of a log that no file holds where it counts.
type lack struct {
	store.Span
	at   int // the index of the stretch behind it
	path string
	bad  []item // what stands in its place
	tail bool   // it has no end but that of the files: Last is what is known of it
}

// mend is what can be made of the damaged own records of a session: every seq from from on, good or marked as lost.
// It is made by reading alone.
type mend struct {
	s    *Store
	id   session.ID
	dir  string
	from session.Seq
	clip session.Seq   // None: there is no end but that of the files
	last *session.Link // of the record before clip, as what follows says it; nil: nobody does
	// What stands before from.
	prev     session.Link
	prevLost bool
	time     int64
	empty    bool         // the session may be without a record
	floor    session.Seq  // how far the log goes at least, as forks prove
	until    *session.Seq // from here on what stands there is another log; nil: nothing is
	check    func(*record.Raw) (string, error)

	aside []string // where else records of this log may lie; nil: in damaged/ of dir

	files       []*source // of dir, by name
	kept        []*source // that were set aside
	pieces      []stretch
	lost, found []store.Span
	unsupported string
}

// maxMarks bounds how many records a file may claim to have held without showing one.
const maxMarks = 1 << 22

// plan finds a place for every seq. Errors are those of the medium.
func (m *mend) plan(ctx context.Context) error {
	if err := m.load(ctx); err != nil || m.unsupported != "" {
		return err
	}
	holes, err := m.arrange(ctx)
	if err != nil {
		return err
	}
	if len(holes) > 0 {
		if err := m.recall(ctx, holes); err != nil {
			return err
		}
		if holes, err = m.arrange(ctx); err != nil {
			return err
		}
		if holes, err = m.fromStrays(ctx, holes); err != nil {
			return err
		}
	}
	return m.fill(holes)
}

// load scans the files of dir, each where its first line says that it belongs.
func (m *mend) load(ctx context.Context) error {
	list, err := m.s.fs.ReadDir(m.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var edges []session.Seq
	names, hidden := counting(list)
	for i, n := range slices.Concat(names, hidden) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		src, err := m.open(n.in(m.dir), n)
		if err != nil {
			return err
		}
		if src.stray = i >= len(names); !src.stray {
			edges = append(edges, n.first, src.first)
		}
		m.files = append(m.files, src)
	}
	slices.SortStableFunc(m.files, func(a, b *source) int { return cmp.Compare(a.name.first, b.name.first) })
	aside := m.aside
	if aside == nil {
		aside = []string{filepath.Join(m.dir, damagedName)}
	}
	for _, dir := range aside {
		kept, err := m.s.fs.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range kept {
			if n, ok := keptName(e.Name()); ok {
				src, err := m.open(filepath.Join(dir, e.Name()), n)
				if err != nil {
					return err
				}
				m.kept, m.empty = append(m.kept, src), false
			}
		}
	}
	if m.clip != session.None {
		edges = append(edges, m.clip)
	}
	slices.Sort(edges)
	at := map[session.Seq]*source{}
	for _, src := range m.files {
		if old := at[src.first]; src.ours && !src.stray && src.first >= m.from && (m.clip == session.None || src.first < m.clip) && (old == nil || src.name.first == src.first) {
			at[src.first] = src
		}
	}
	for _, src := range at {
		limit := src.name.end
		if i, _ := slices.BinarySearch(edges, src.first+1); i < len(edges) && (limit == session.None || edges[i] < limit) {
			limit = edges[i]
		}
		if err := m.scan(ctx, src, limit); err != nil {
			return err
		}
	}
	return nil
}

// keptName returns what the name of a segment in damaged/ was before it was set aside.
func keptName(name string) (segName, bool) {
	if again, rest, ok := strings.Cut(name, "."); ok && len(again) < segDigits {
		name = rest
	}
	return parseSegName(name)
}

// open looks at the first line of a file. A name that leads to none has no records.
func (m *mend) open(path string, name segName) (*source, error) {
	src := &source{segScan: &segScan{path: path, first: name.first, synced: session.None}, name: name, file: filepath.Base(path)}
	info, err := m.s.fs.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return src, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := m.s.openSegment(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	src.regular = true
	head, _, err := readSegmentHead(f)
	var re *record.Error
	var fe *record.FormatError
	switch {
	case errors.As(err, &fe):
		m.newer(path, fe.Error())
	case errors.As(err, &re):
		src.ours = true // nothing says that it is another's
	case err != nil:
		return nil, err
	case head.Session == m.id:
		src.first, src.ours = head.First, true
	}
	return src, nil
}

func (m *mend) newer(path, why string) {
	if m.unsupported == "" {
		m.unsupported = path + ": " + why
	}
}

func (m *mend) scan(ctx context.Context, src *source, limit session.Seq) error {
	sc, err := m.s.scanSegment(ctx, m.id, src.path, src.first, limit, pass{verify: true}, m.check)
	if err != nil {
		return err
	}
	src.segScan, src.use = sc, true
	for i := range sc.items {
		if it := &sc.items[i]; !it.good && it.bad.Kind == record.Newer && it.bad.LF && it.why == "" {
			m.newer(src.path, fmt.Sprintf("at byte %d: %s", it.bad.Offset, it.describe()))
		}
	}
	return nil
}

// used returns the files whose records count, in their order.
func (m *mend) used() []*source {
	var out []*source
	for _, src := range slices.Concat(m.files, m.kept) {
		if src.use {
			out = append(out, src)
		}
	}
	slices.SortStableFunc(out, func(a, b *source) int { return cmp.Compare(a.first, b.first) })
	return out
}

// arrange puts the runs of the files behind each other and returns what is missing between them.
func (m *mend) arrange(ctx context.Context) ([]lack, error) {
	m.pieces = nil
	var holes []lack
	due, prev, free := m.from, m.prev, m.prevLost // free: the next record need not follow prev
	gap := func(to session.Seq, src *source, bad []item) {
		if to > due {
			h := lack{Span: store.Span{First: due, Last: to - 1}, at: len(m.pieces), bad: bad}
			if src != nil {
				h.path = src.path
			}
			holes, due, free = append(holes, h), to, true
		}
	}
	var bad []item // behind the last run
	var last *source
	used := m.used()
	for i, src := range used {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if i+1 < len(used) && used[i+1].headErr == nil {
			src.settle(used[i+1].head.Prev)
		} else if d := src.open; i+1 == len(used) && m.clip != session.None && d != nil && d.run.lost { // as who reads the part takes it
			src.settle(d.calc)
		} else if i+1 == len(used) && m.last != nil {
			src.settle(*m.last)
		}
		gap(src.first, last, bad)
		bad, last = nil, src
		begun := false
		for j := range src.items {
			it := &src.items[j]
			if !it.good {
				bad = append(bad, *it)
				continue
			}
			r := it.run
			if m.until != nil && r.end > *m.until {
				var err error
				if r, err = m.below(ctx, src, r, *m.until); err != nil {
					return nil, err
				}
				if r.first == r.end {
					continue
				}
			}
			if r.first < due { // of two files with the same seqs the first counts
				bad = nil
				continue
			}
			if !begun && r.first == due && !free {
				ok, next, err := m.fits(src, &r, prev)
				if err != nil {
					return nil, err
				}
				if !ok && src.headErr != nil {
					break // neither a first line nor a link says that it is of this log
				}
				if !ok { // as within a file: the record that does not follow is not of this log
					r.marks, r.off, r.first = append([]mark{{r.first + 1, next}}, marksBehind(r.marks, r.first+1)...), next, r.first+1
				}
			}
			begun = true
			if want := m.wants(r.end, used[i+1:]); want != nil && r.loose && !r.lost && r.calc != *want { // its link is damaged, and nothing tells what it was
				var err error
				if r, err = m.below(ctx, src, r, r.end-1); err != nil {
					return nil, err
				}
			}
			if r.first == r.end {
				continue
			}
			gap(r.first, src, bad)
			bad = nil
			m.pieces = append(m.pieces, stretch{segment: segment{owner: m.id, path: src.path, first: r.first, end: r.end,
				off: r.off, stop: r.stop, marks: r.marks}, link: r.calc, lost: r.lost, time: r.time})
			due, prev, free = r.end, r.calc, r.lost
		}
	}
	return append(holes, m.ending(due, last, bad)...), nil
}

// wants returns the link of the record before end, as what stands behind it says it: a file of behind, or what follows the part. Nil: nothing does.
func (m *mend) wants(end session.Seq, behind []*source) *session.Link {
	switch {
	case len(behind) > 0 && behind[0].headErr == nil && behind[0].first == end:
		return &behind[0].head.Prev
	case end == m.clip:
		return m.last
	}
	return nil
}

// below returns r, which lies in src, without its records from seq on.
func (m *mend) below(ctx context.Context, src *source, r run, seq session.Seq) (run, error) {
	if r = r.below(seq); r.first == r.end {
		return r, nil
	}
	end, err := m.s.endBefore(ctx, m.id, []segment{{owner: m.id, path: src.path, first: r.first, end: r.end, off: r.off, stop: r.stop, marks: r.marks}}, r.end)
	r.calc, r.lost, r.time = end.link, end.lost, end.time
	return r, err
}

func marksBehind(marks []mark, seq session.Seq) []mark {
	i := 0
	for i < len(marks) && marks[i].seq <= seq {
		i++
	}
	return marks[i:]
}

// fits reports whether the first run of a file follows prev, and where its second record begins.
func (m *mend) fits(src *source, r *run, prev session.Link) (bool, int64, error) {
	if src.headErr == nil && src.head.Prev == prev {
		return true, 0, nil
	}
	raw, err := m.recordAt(src.path, r.off, r.stop)
	if err != nil {
		return false, 0, err
	}
	_, ok := raw.CheckLink(prev)
	return ok, r.off + int64(len(raw.Line())) + 1, nil
}

// recordAt reads the record at off, of which it is known that it was good.
func (m *mend) recordAt(path string, off, stop int64) (*record.Raw, error) {
	f, err := m.s.openSegment(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var line []byte
	for size, whole := int64(2<<10), false; !whole; size *= 8 { // most are short, and there may be many
		text := make([]byte, min(stop-off, size))
		n, err := f.ReadAt(text, off)
		if err != nil && err != io.EOF {
			return nil, err
		}
		line, _, whole = bytes.Cut(text[:n], []byte{'\n'})
		whole = whole || int64(n) < size
	}
	raw, err := record.Parse(line)
	if err != nil {
		return nil, fmt.Errorf("filestore: session %s changed while it was read: %w", m.id, err)
	}
	return &raw, nil
}

// ending returns the lack behind the last good record, if there is one.
func (m *mend) ending(due session.Seq, last *source, bad []item) []lack {
	h := lack{Span: store.Span{First: due, Last: m.least(due) - 1}, at: len(m.pieces), bad: bad, tail: m.clip == session.None}
	if last != nil {
		h.path = last.path
	}
	if h.tail {
		h.Last = max(h.Last, due+session.Seq(lines(bad))-1)
	}
	if h.Last < h.First {
		return nil
	}
	return []lack{h}
}

// lines counts the bad lines that were records; the others are what a dead writer leaves at the end.
func lines(bad []item) int {
	n := 0
	for i := range bad {
		if bad[i].bad.LF && !bad[i].bad.Blank {
			n++
		}
	}
	return n
}

// least returns how far the log goes at least, where good records end at due.
func (m *mend) least(due session.Seq) session.Seq {
	if m.clip != session.None {
		return m.clip
	}
	for _, src := range m.files { // a segment is made with its first record, and there is one behind a packed one
		due = max(due, max(src.name.first, src.name.end)+1)
	}
	if due == m.from && !m.empty {
		due++
	}
	return max(due, m.floor)
}

// recall takes the files of damaged/ that begin where a lack does: where a repair died between two of its steps they are all
// there is. One that begins behind that follows nothing, and may be of what the session was before it lost its end and went on.
func (m *mend) recall(ctx context.Context, holes []lack) error {
	used := map[session.Seq]bool{}
	for _, src := range m.used() {
		used[src.first] = true
	}
	filled := map[int]bool{}
	for _, src := range slices.Backward(m.kept) { // the last that was set aside
		i := sort.Search(len(holes), func(i int) bool { return holes[i].Last >= src.first })
		if i == len(holes) || !src.ours || src.first != holes[i].First || used[src.first] || filled[i] {
			continue
		}
		limit := holes[i].Last + 1
		if holes[i].tail {
			limit = session.None
		}
		if err := m.scan(ctx, src, limit); err != nil {
			return err
		}
		used[src.first], filled[i] = true, true
	}
	return nil
}

// fill makes the marks for what is lost.
func (m *mend) fill(holes []lack) error {
	out := make([]stretch, 0, len(m.pieces)+len(holes))
	prev, now := m.prev, m.time
	for i := 0; i <= len(m.pieces); i++ {
		for ; len(holes) > 0 && holes[0].at == i; holes = holes[1:] {
			p, err := m.marks(&holes[0], prev, now)
			if err != nil {
				return err
			}
			out, prev = append(out, p), p.link
		}
		if i < len(m.pieces) {
			p := m.pieces[i]
			out, prev, now = append(out, p), p.link, p.time
		}
	}
	m.pieces = out
	return nil
}

// marks makes the records that stand for a lack.
func (m *mend) marks(h *lack, prev session.Link, now int64) (stretch, error) {
	p := stretch{segment: segment{owner: m.id, first: h.First, end: h.Last + 1, prev: prev}, lost: true, time: now}
	n := int(h.Last-h.First) + 1
	if n > maxMarks {
		return p, fmt.Errorf("filestore: session %s: a file says that %d records stood before it, and none of them is there: move it away if it is not of this session (%s)", m.id, n, m.dir)
	}
	var where session.Lost
	if len(h.bad) > 0 {
		end := h.bad[len(h.bad)-1].bad
		where.Offset = h.bad[0].bad.Offset
		where.Bytes = end.Offset + end.Bytes - where.Offset
	}
	for i := range n {
		if len(h.bad) == n {
			where = session.Lost{Offset: h.bad[i].bad.Offset, Bytes: h.bad[i].bad.Bytes}
		}
		data, err := json.Marshal(where)
		if err != nil {
			return p, err
		}
		seq, synced := h.First+session.Seq(i), session.None
		if i == 0 {
			synced = seq - 1 // what stands before it is as safe as this
		}
		p.add(seq, func(text []byte) []byte {
			text, p.link = record.Append(text, session.Event{Seq: seq, Time: now, Type: session.TypeLost, Op: session.Append(), Data: data}, prev, synced)
			return text
		})
		prev = p.link
		m.lost = store.AddSeq(m.lost, seq)
	}
	return p, nil
}

// add adds a record to a stretch in memory.
func (p *stretch) add(seq session.Seq, write func([]byte) []byte) {
	p.segment.marks = addMark(p.segment.marks, seq, int64(len(p.text)))
	p.text = write(p.text)
	p.stop = int64(len(p.text))
}
