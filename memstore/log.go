package memstore

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"iter"
	"sort"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// run is a stretch of records that one session logged: lines[i] is that of seq first+i, without LF.
// Lines are never changed; only the last run of a log grows, and only behind what others can see.
type run struct {
	first session.Seq
	lines [][]byte
}

func (r run) end() session.Seq { return r.first + session.Seq(len(r.lines)) }

// log is a session. Memory.mu guards it; what snapshots and forks took of it needs no lock.
type log struct {
	header    session.Header
	inherited []run // a fork's part of its ancestors' records
	own       run
	pos       store.Pos
	bytes     int64 // header line and own records
	activity  int64
	titles    []titleAt // each title that counts, inherited ones included
}

type titleAt struct {
	seq session.Seq
	session.Title
}

func (l *log) title() session.Title {
	if n := len(l.titles); n > 0 {
		return l.titles[n-1].Title
	}
	return session.Title{}
}

// batch is encoded events on their way into a log.
type batch struct {
	lines [][]byte
	links []session.Link
	bytes int64
}

// encode makes the records of events behind pos. The blobs of long strings are put into the memory.
func (m *Memory) encode(id session.ID, pos store.Pos, events []session.Event) (batch, error) {
	var b batch
	var buf []byte
	link, synced := pos.Link, pos.Next-1 // of a memory everything is synced
	ends := make([]int, 0, len(events))
	for i, ev := range events {
		if want := pos.Next + session.Seq(i); ev.Seq != want {
			return batch{}, fmt.Errorf("memstore: event %d of a batch for session %s where %d is due: %w", ev.Seq, id, want, session.ErrRange)
		}
		if err := record.Check(ev); err != nil {
			return batch{}, err
		}
		var err error
		if ev.Data, err = record.Externalize(ev.Data, record.BlobLimit, m.put); err != nil {
			return batch{}, err
		}
		start := len(buf)
		buf, link = record.Append(buf, ev, link, synced)
		if n := len(buf) - start; n > record.MaxRecord {
			return batch{}, &store.TooLargeError{ID: id, Seq: ev.Seq, Bytes: n, Limit: record.MaxRecord}
		}
		ends, b.links, synced = append(ends, len(buf)), append(b.links, link), session.None
	}
	b.bytes = int64(len(buf))
	start := 0
	for _, end := range ends {
		b.lines = append(b.lines, buf[start:end-1:end-1])
		start = end
	}
	return b, nil
}

// add puts the records of events into l.
func (l *log) add(b batch, events []session.Event) {
	if len(events) == 0 {
		return
	}
	l.own.lines = append(l.own.lines, b.lines...)
	l.bytes += b.bytes
	l.pos = store.Pos{Next: l.pos.Next + session.Seq(len(events)), Link: b.links[len(b.links)-1]}
	for _, ev := range events {
		if session.IsActivity(ev) {
			l.activity = ev.Time
		}
		if ev.Type != session.TypeTitle {
			continue
		}
		var t session.Title
		if json.Unmarshal(ev.Data, &t) == nil && (t.Source == "user" || l.title().Source != "user") {
			l.titles = append(l.titles, titleAt{ev.Seq, t})
		}
	}
}

// runs returns the records below n.
func (l *log) runs(n session.Seq) []run {
	var out []run
	for _, r := range append(l.inherited[:len(l.inherited):len(l.inherited)], l.own) {
		if k := min(len(r.lines), int(max(n-r.first, 0))); k > 0 {
			out = append(out, run{r.first, r.lines[:k:k]})
		}
	}
	return out
}

func (m *Memory) snapshot(l *log) *store.Snapshot {
	return &store.Snapshot{Header: l.header, Pos: l.pos, Prefix: prefix{m, l.runs(l.pos.Next), l.pos.Next}}
}

// prefix is a session.Prefix of records that do not change any more.
type prefix struct {
	mem  *Memory
	runs []run
	n    session.Seq
}

func (p prefix) Len() session.Seq { return p.n }

func (p prefix) line(seq session.Seq) ([]byte, error) {
	if seq < 0 || seq >= p.n {
		return nil, fmt.Errorf("memstore: seq %d of %d: %w", seq, p.n, session.ErrRange)
	}
	r := p.runs[sort.Search(len(p.runs), func(i int) bool { return p.runs[i].end() > seq })]
	return r.lines[seq-r.first], nil
}

func (p prefix) At(seq session.Seq) (session.Event, error) {
	line, err := p.line(seq)
	if err != nil {
		return session.Event{}, err
	}
	raw, err := record.Parse(line)
	if err != nil {
		return session.Event{}, fmt.Errorf("memstore: record %d: %w", seq, err)
	}
	ev := raw.Event()
	if ev.Data, err = record.Internalize(ev.Data, p.mem.get); err != nil {
		return session.Event{}, fmt.Errorf("memstore: record %d: %w", seq, err)
	}
	return ev, nil
}

func (p prefix) Range(from, to session.Seq) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) {
		for q := from; q < to; q++ {
			ev, err := p.At(q)
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// rank is a row's place in a list: later times first, then ids.
type rank struct {
	time int64
	id   session.ID
}

func key(st store.Stat, q store.Query) rank {
	if q.ByCreation {
		return rank{st.Header.CreatedAt, st.ID}
	}
	return rank{st.LastActivity, st.ID}
}

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(o.time, r.time), cmp.Compare(r.id, o.id))
}

func (r rank) before(o rank) bool { return r.compare(o) < 0 }

func (r rank) cursor() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", r.time, r.id))
}

func parseCursor(c string) (rank, error) {
	if c == "" {
		return rank{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(c)
	t, id, ok := strings.Cut(string(b), " ")
	n, err2 := strconv.ParseInt(t, 10, 64)
	if err != nil || err2 != nil || !ok {
		return rank{}, fmt.Errorf("memstore: %q: %w", c, store.ErrCursor)
	}
	return rank{n, session.ID(id)}, nil
}
