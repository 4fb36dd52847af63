package index

import (
	"container/heap"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Search yields what search.Scan yields, in the same order. The tables propose events, newest first; each is read from its
// log, and search.Match decides. What the tables do not know (yet, or of a damaged session) is scanned. Where they cannot
// be used, and from where they fail on the way, the logs answer alone.
func (x *Index) Search(ctx context.Context, q search.Query, f search.Filter, limit int, w search.Watch) iter.Seq2[search.Result, error] {
	told := map[session.ID]bool{}
	if w.Progress == nil {
		w.Progress = func(int, int) {}
	}
	watch := search.Watch{Progress: w.Progress, Trouble: func(id session.ID, err error) {
		if !told[id] && w.Trouble != nil {
			w.Trouble(id, err)
		}
		told[id] = true
	}}
	return func(yield func(search.Result, error) bool) {
		f, left := f, limit // left is below 0 where there is no limit
		give := func(r search.Result) bool {
			f.After = r.Key
			left--
			return yield(r, nil) && (limit == 0 || left > 0)
		}
		p, err := x.plan(ctx, f, watch)
		if err == nil {
			for r, e := range x.merged(ctx, p, q, f, limit, watch) {
				if err = e; err != nil {
					break
				}
				if !give(r) {
					return
				}
			}
			if err == nil {
				return
			}
		}
		if cause := context.Cause(ctx); cause != nil {
			yield(search.Result{}, cause)
			return
		}
		for r, err := range search.Scan(ctx, x.opt.Store, q, f, max(left, 0), watch) {
			if err != nil {
				yield(r, err)
				return
			}
			if !give(r) {
				return
			}
		}
	}
}

// plan is who answers for what.
type plan struct {
	covered map[int64]session.Header // by the tables; not changed once it was made
	spill   int64                    // how many seconds later than its own a key may be
	scan    []search.Target          // by the logs
}

// planned is a plan of all sessions that follows from what memory has: it holds until one of these is another one. Nothing
// had to be read for it from a log or a row, and nobody had to be told of trouble.
type planned struct {
	life, changes, coverings int
	plan                     *plan // nil: there is none
}

// of returns what f selects of a plan.
func (p plan) of(f search.Filter) plan {
	if f.Include == nil {
		return p
	}
	all := p.covered
	p.covered = map[int64]session.Header{}
	for n, h := range all {
		if f.Includes(h) {
			p.covered[n] = h
		}
	}
	p.scan = slices.DeleteFunc(slices.Clone(p.scan), func(t search.Target) bool { return !f.Includes(t.Header) })
	return p
}

// asBefore returns the plan of the last search if it is still right after a glance.
func (x *Index) asBefore(ctx context.Context, s sight) (p plan, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.loadCovers(ctx) == nil || x.planned.plan == nil || s.life != x.life {
		return p, false
	}
	now := planned{x.life, x.shelf.changes, x.coverings, x.planned.plan}
	return *now.plan, now == x.planned
}

// errNoTables says that the logs have to answer alone.
var errNoTables = errors.New("index: the tables cannot be used")

// plan looks at the store, and takes into the tables what is new if that is much.
func (x *Index) plan(ctx context.Context, f search.Filter, w search.Watch) (plan, error) {
	s, glanced, err := x.glance(ctx)
	if err != nil {
		return plan{}, err
	}
	if glanced {
		if p, ok := x.asBefore(ctx, s); ok {
			return p.of(f), nil
		}
	}
	if s, err = x.widen(ctx, s, glanced, w.Progress); err != nil {
		return plan{}, err
	}
	p := plan{covered: map[int64]session.Header{}}
	x.mu.Lock()
	var covers map[session.ID]cover
	if loaded := x.loadCovers(ctx); loaded != nil {
		covers = make(map[session.ID]cover, len(loaded))
		for id, c := range loaded {
			covers[id] = c
		}
	}
	then := planned{s.life, s.changes, x.coverings, &p}
	x.mu.Unlock()
	if covers == nil {
		return plan{}, errNoTables
	}
	rows := make([]store.Stat, 0, len(s.heads))
	var late []behind
	var settled []cover
	waits, known := session.Seq(0), session.Seq(0)
	pure := len(covers) == len(s.heads) // and each of them is one of those
	for id, h := range s.heads {
		c, ok := covers[id]
		known += c.Next
		if ok && h.mark.Stamp != "" && h.mark.Stamp == string(c.Stamp) && h.mark.Past == string(c.Past) {
			rows = append(rows, store.Stat{ID: id, Header: c.Header})
			p.covered[c.n] = c.Header
			continue
		}
		pure = false
		b, found, err := x.row(ctx, id, h)
		switch {
		case err != nil:
			return plan{}, err
		case !found:
			continue
		}
		rows = append(rows, b.Stat)
		switch {
		case b.Stat.Header.ID == "":
			w.Trouble(id, errors.New(b.Stat.Reason))
			continue
		case !whole(b.Stat):
			p.scan = append(p.scan, search.Target{Header: b.Stat.Header, From: b.Stat.Header.SeedLength, To: session.None})
			continue
		}
		l := behind{mark: h.mark, stat: b.Stat, c: c}
		if l.on, err = x.still(ctx, l, ok); err != nil {
			return plan{}, err
		}
		if l.on && c.Next == b.Stat.Pos.Next && h.mark.Stamp != "" { // nothing is new: it need not be looked at again
			c.Header, c.Stamp, c.Past = b.Stat.Header, []byte(h.mark.Stamp), []byte(h.mark.Past)
			settled = append(settled, c)
			p.covered[c.n] = c.Header
			continue
		}
		waits += b.Stat.Pos.Next - l.from()
		late = append(late, l)
	}
	x.settle(ctx, settled)
	lag := session.Seq(x.opt.Lag)
	if lag == 0 {
		lag = 1000 + known/50
	}
	taken := make([]*part, len(late)) // nil: not tried
	if waits > lag {
		t := taker{x: x}
		for i, l := range late {
			w.Progress(i, len(late))
			if taken[i] = t.take(ctx, l); ctx.Err() != nil {
				return plan{}, context.Cause(ctx)
			}
		}
		if t.flush(ctx); ctx.Err() != nil {
			return plan{}, context.Cause(ctx)
		}
	}
	for i, l := range late {
		if t := taken[i]; t != nil {
			if t.err == nil {
				p.covered[t.next.n] = l.stat.Header
				continue
			}
			l.on = false // it is searched whole, whatever the tables have of it
		}
		if l.on {
			p.covered[l.c.n] = l.stat.Header
		}
		if !l.on || l.c.Next < l.stat.Pos.Next {
			p.scan = append(p.scan, search.Target{Header: l.stat.Header, From: l.from(), To: session.None})
		}
	}
	x.mu.Lock()
	p.spill = max(p.spill, x.spill)
	x.mu.Unlock()
	x.forgetPurged(ctx, s, covers)
	for _, t := range search.Targets(rows) {
		if t.To != session.None { // what forks have of a deleted session
			p.scan = append(p.scan, t)
		}
	}
	if pure && s.changes >= 0 {
		x.mu.Lock()
		x.planned = then
		x.mu.Unlock()
	}
	return p.of(f), nil
}

// still reports whether what the tables have of a session is the beginning of its log.
func (x *Index) still(ctx context.Context, l behind, ok bool) (bool, error) {
	if !ok || string(l.c.Past) != l.mark.Past || l.c.Next > l.stat.Pos.Next || l.c.Header.ID != l.stat.Header.ID {
		return false, nil
	}
	if l.c.Last == "" {
		return l.c.Next == l.stat.Header.SeedLength, nil
	}
	ev, err := x.eventAt(ctx, l.stat.Header, l.c.Next-1)
	if err != nil {
		return false, nil // it is searched in its log, which tells why
	}
	return digest(ev) == l.c.Last, context.Cause(ctx)
}

// forgetPurged takes the words of sessions that were deleted for good out of the tables. Those of sessions in the trash stay, for
// they may come back; no answer shows them.
func (x *Index) forgetPurged(ctx context.Context, s sight, covers map[session.ID]cover) {
	var purged []session.ID
	for id := range covers {
		if _, here := s.heads[id]; here {
			continue
		}
		var gone *store.NotFoundError
		if _, err := x.opt.Store.Stat(ctx, id); errors.As(err, &gone) && !gone.Trashed {
			purged = append(purged, id)
		}
	}
	if len(purged) > 0 {
		x.erase(ctx, purged, true)
	}
}

// merged yields the results of p in order.
func (x *Index) merged(ctx context.Context, p plan, q search.Query, f search.Filter, limit int, w search.Watch) iter.Seq2[search.Result, error] {
	if len(p.scan) == 0 {
		return x.proposed(ctx, p, q, f, limit)
	}
	return func(yield func(search.Result, error) bool) {
		next, stop := iter.Pull2(search.ScanTargets(ctx, x.opt.Store, p.scan, q, f, limit, w))
		defer stop()
		s, err, more := next()
		for r, e := range x.proposed(ctx, p, q, f, limit) {
			for e == nil && more && err == nil && s.Key.Compare(r.Key) < 0 {
				if !yield(s, nil) {
					return
				}
				s, err, more = next()
			}
			if !yield(r, errors.Join(e, err)) || e != nil || err != nil {
				return
			}
		}
		for more {
			if !yield(s, err) || err != nil {
				return
			}
			s, err, more = next()
		}
	}
}

// candidate is an event that the tables propose.
type candidate struct {
	search.Key
	second int64 // its own; its key may have spilled into a later one
	tool   string
	header session.Header
}

// proposed yields the results among the events that p.covered covers. limit is how many are asked for, 0: all.
func (x *Index) proposed(ctx context.Context, p plan, q search.Query, f search.Filter, limit int) iter.Seq2[search.Result, error] {
	return func(yield func(search.Result, error) bool) {
		if len(p.covered) == 0 {
			return
		}
		rd := reader{x: x}
		defer rd.close()
		wait := &candidates{}
		// emit gives out what comes before everything that is still to come: all of a later second than now.
		emit := func(now int64) bool {
			for len(*wait) > 0 && (*wait)[0].second > now {
				c := heap.Pop(wait).(candidate)
				ev, err := rd.at(ctx, c.header, c.Seq)
				if err == nil && ev.Time != c.Time {
					err = errWrong
				}
				if err != nil {
					yield(search.Result{}, err)
					return false
				}
				if r, ok := search.Examine(q, f, c.header, ev, search.TextsOf(ev, c.tool)); ok && !yield(r, nil) {
					return false
				}
			}
			return true
		}
		ask := asked(q)
		below := int64(math.MaxInt64)
		if f.After != (search.Key{}) {
			below = (second(f.After.Time) + p.spill + 1) << slotBits
		}
		n := 64
		if limit > 0 { // most of what is proposed is found
			n = min(n, limit+limit/4+8)
		}
		for ; ; n = min(2*n, 2048) {
			batch, least, err := x.propose(ctx, ask, p, f, below, n)
			if err != nil {
				yield(search.Result{}, err)
				return
			}
			below = least
			for _, c := range batch {
				if f.After != (search.Key{}) && f.After.Compare(c.Key) >= 0 {
					continue
				}
				if c.Time >= f.Since {
					heap.Push(wait, c)
				}
			}
			if least == 0 || least>>slotBits < second(f.Since) {
				emit(-1)
				return
			}
			if !emit(least >> slotBits) {
				return
			}
		}
	}
}

// question is what the tables are asked.
type question struct{ words, grams string }

// asked returns what the tables can say about q: all that it finds is among what they answer.
func asked(q search.Query) question {
	var words, grams []string
	for _, t := range q.Terms() {
		w := t.Words
		if t.OpenLeft {
			for g := range gramsOf(w[0]) {
				grams = append(grams, `"`+g+`"`)
			}
			w = w[1:]
		}
		if len(w) == 0 {
			continue
		}
		s := `"` + strings.Join(w, " ") + `"`
		if t.OpenRight {
			s += " *"
		}
		words = append(words, s)
	}
	return question{strings.Join(words, " AND "), strings.Join(grams, " AND ")}
}

// propose returns the next candidates with keys below, newest first, and the least key that was looked at: 0 at the end.
func (x *Index) propose(ctx context.Context, ask question, p plan, f search.Filter, below int64, n int) ([]candidate, int64, error) {
	sql, by := "SELECT key, n, seq, time, tool FROM docs WHERE key < ?1", "key"
	args := []any{below, ask.words, ask.grams, n}
	if ask.words != "" {
		by = "words.rowid"
	} else if ask.grams != "" {
		by = "grams.rowid"
	}
	switch {
	case ask.words != "" && ask.grams != "":
		sql = "SELECT key, n, seq, time, tool FROM words CROSS JOIN docs ON key = words.rowid WHERE words MATCH ?2 AND words.rowid < ?1 " +
			"AND words.rowid IN (SELECT rowid FROM grams WHERE grams MATCH ?3)"
	case ask.words != "":
		sql = "SELECT key, n, seq, time, tool FROM words CROSS JOIN docs ON key = words.rowid WHERE words MATCH ?2 AND words.rowid < ?1"
	case ask.grams != "":
		sql = "SELECT key, n, seq, time, tool FROM grams CROSS JOIN docs ON key = grams.rowid WHERE grams MATCH ?3 AND grams.rowid < ?1"
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.db == nil {
		return nil, 0, errNoTables
	}
	rows, err := x.db.QueryContext(ctx, sql+" ORDER BY "+by+" DESC LIMIT ?4", args...)
	if err != nil {
		x.trouble(err)
		return nil, 0, err
	}
	defer rows.Close()
	var out []candidate
	seen, least := 0, int64(0)
	for rows.Next() {
		var num, seq int64
		var c candidate
		if err := rows.Scan(&least, &num, &seq, &c.Time, &c.tool); err != nil {
			return nil, 0, err
		}
		seen++
		if h, ok := p.covered[num]; ok {
			c.ID, c.Seq, c.second, c.header = h.ID, session.Seq(seq), second(c.Time), h
			out = append(out, c)
		}
	}
	if err := rows.Err(); err != nil {
		if ctx.Err() == nil {
			x.trouble(err)
		}
		return nil, 0, err
	}
	if seen < n {
		least = 0
	}
	return out, least, nil
}

// candidates is a heap, the first in the order of results on top.
type candidates []candidate

func (c candidates) Len() int           { return len(c) }
func (c candidates) Less(i, j int) bool { return c[i].Compare(c[j].Key) < 0 }
func (c candidates) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(v any)        { *c = append(*c, v.(candidate)) }
func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// reader reads single events. Where the store does not find them by themselves, it keeps the logs that it read from last open.
type reader struct {
	x     *Index
	snaps []*store.Snapshot // the one that was used last first
}

const maxOpen = 16

func (r *reader) at(ctx context.Context, h session.Header, seq session.Seq) (session.Event, error) {
	for i, s := range r.snaps {
		if s.Header.ID == h.ID {
			copy(r.snaps[1:i+1], r.snaps[:i])
			r.snaps[0] = s
			return s.Prefix.At(seq)
		}
	}
	if f, ok := r.x.opt.Store.(store.Finder); ok {
		if ev, ok, err := f.Find(ctx, h, seq); ok || err != nil {
			return ev, err
		}
	}
	var snap *store.Snapshot
	var err error
	if p, ok := r.x.opt.Store.(store.Peeker); ok {
		snap, err = p.Peek(ctx, h.ID)
	}
	if snap == nil && err == nil {
		snap, err = r.x.opt.Store.Read(ctx, h.ID)
	}
	if err != nil {
		return session.Event{}, err
	}
	if len(r.snaps) == maxOpen {
		r.snaps[maxOpen-1].Close()
		r.snaps = r.snaps[:maxOpen-1]
	}
	r.snaps = slices.Insert(r.snaps, 0, snap)
	return snap.Prefix.At(seq)
}

func (r *reader) close() {
	for _, s := range r.snaps {
		s.Close()
	}
}

// eventAt reads one event.
func (x *Index) eventAt(ctx context.Context, h session.Header, seq session.Seq) (session.Event, error) {
	r := reader{x: x}
	defer r.close()
	return r.at(ctx, h, seq)
}
