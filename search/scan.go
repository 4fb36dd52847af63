package search

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Filter says where to look. The zero Filter looks everywhere.
type Filter struct {
	Include func(session.Header) bool // which sessions; nil: all
	Tool    string                    // only what belongs to calls of this tool
	Fields  []Field                   // only these; nil: all
	Since   int64                     // only events of this time and later, Unix milliseconds; 0: all
	After   Key                       // only what comes behind it in the order of results; zero: all
}

// Includes reports whether a session is looked at.
func (f Filter) Includes(h session.Header) bool { return f.Include == nil || f.Include(h) }

// texts returns those of texts that f selects.
func (f Filter) texts(texts []Text) []Text {
	if f.Tool == "" && len(f.Fields) == 0 {
		return texts
	}
	return slices.DeleteFunc(slices.Clone(texts), func(t Text) bool {
		return f.Tool != "" && t.Tool != f.Tool || len(f.Fields) > 0 && !slices.Contains(f.Fields, t.Field)
	})
}

// Key is the place of a hit in the order of results. The zero Key is before all.
type Key struct {
	Time int64
	ID   session.ID
	Seq  session.Seq
}

// Compare is negative if k comes before o: it is newer.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(o.Time, k.Time), cmp.Compare(k.ID, o.ID), cmp.Compare(o.Seq, k.Seq))
}

// String returns what ParseKey reads; "" for the zero Key.
func (k Key) String() string {
	if k == (Key{}) {
		return ""
	}
	return fmt.Sprintf("%d.%d.%s", k.Time, k.Seq, k.ID)
}

// ParseKey reads a cursor. What is none is store.ErrCursor.
func ParseKey(s string) (Key, error) {
	if s == "" {
		return Key{}, nil
	}
	p := strings.SplitN(s, ".", 3)
	if len(p) == 3 {
		t, err1 := strconv.ParseInt(p[0], 10, 64)
		seq, err2 := strconv.ParseInt(p[1], 10, 64)
		if err1 == nil && err2 == nil && seq >= 0 && session.ValidID(session.ID(p[2])) == nil {
			return Key{t, session.ID(p[2]), session.Seq(seq)}, nil
		}
	}
	return Key{}, fmt.Errorf("search: %q: %w", s, store.ErrCursor)
}

// Result is an event in which all terms were found.
type Result struct {
	Key
	Type    string
	Header  session.Header // of the session under which it was found
	Field   Field          // where the snippet is from
	Tool    string
	Snippet Snippet
	Score   int64 // how well it answers the query: more is better
}

// Examine decides whether an event with these texts is a result, and makes it. Its session and its time have to be looked
// at by the caller.
func Examine(q Query, f Filter, h session.Header, ev session.Event, texts []Text) (Result, bool) {
	texts = f.texts(texts)
	found := Found(q, texts)
	if found == nil {
		return Result{}, false
	}
	best := 0 // the text with the most terms
	most := -1
	for i, hits := range found {
		terms := map[int]bool{}
		for _, h := range hits {
			terms[h.Term] = true
		}
		if len(terms) > most {
			best, most = i, len(terms)
		}
	}
	return Result{
		Key: Key{ev.Time, h.ID, ev.Seq}, Type: ev.Type, Header: h,
		Field: texts[best].Field, Tool: strings.Clone(texts[best].Tool), Snippet: Snip(texts[best].Text, found[best]),
		Score: score(q, texts, found),
	}, true
}

// Target is a part of a log that is searched under a session: the events From..To-1.
type Target struct {
	Header   session.Header
	From, To session.Seq // To: session.None for the end of the log
}

// Targets returns what is to be searched so that each event of the store is found once: of every session its own events, and
// of a deleted one what is still inherited, under the oldest session that has it. rows are all sessions of the store; those
// whose header cannot be read are left out.
func Targets(rows []store.Stat) []Target {
	listed := make(map[session.ID]bool, len(rows))
	var order []session.Header
	for _, r := range rows {
		if listed[r.ID] = true; r.Header.ID != "" {
			order = append(order, r.Header)
		}
	}
	slices.SortFunc(order, func(a, b session.Header) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	out := make([]Target, 0, len(order))
	given := map[session.ID]session.Seq{} // of a deleted session: up to where its events have a place
	for _, h := range order {
		if p := h.Parent; p != nil {
			from := session.Seq(0)
			for _, sp := range p.Spans {
				if first := max(from, given[sp.ID]); !listed[sp.ID] && first < sp.End {
					out = append(out, Target{h, first, sp.End})
					given[sp.ID] = sp.End
				}
				from = sp.End
			}
		}
		out = append(out, Target{h, h.SeedLength, session.None})
	}
	return out
}

// Watch is told what a search does. Its functions may be nil.
type Watch struct {
	Progress func(done, total int)          // sessions
	Trouble  func(id session.ID, why error) // of this session not everything could be searched
}

func (w Watch) progress(done, total int) {
	if w.Progress != nil {
		w.Progress(done, total)
	}
}

func (w Watch) trouble(id session.ID, err error) {
	if w.Trouble != nil {
		w.Trouble(id, err)
	}
}

// window is how many results Scan keeps at a time.
const window = 1000

// Scan yields the results in the store in order, newest first: it is ScanTargets over all logs that f includes.
func Scan(ctx context.Context, st store.Store, q Query, f Filter, limit int, w Watch) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		rows, err := All(ctx, st)
		if err != nil {
			yield(Result{}, err)
			return
		}
		for _, r := range rows {
			if r.Header.ID == "" {
				w.trouble(r.ID, errors.New(r.Reason))
			}
		}
		targets := slices.DeleteFunc(Targets(rows), func(t Target) bool { return !f.Includes(t.Header) })
		for r, err := range ScanTargets(ctx, st, targets, q, f, limit, w) {
			if !yield(r, err) {
				return
			}
		}
	}
}

// ScanTargets yields the results in targets in order. It reads every target once for every
// window of at most limit results (0: no limit; then windows of 1000), and keeps no more than that in memory. A session that cannot
// be read is told to w and ends nothing. It yields at most one error, the cause of ctx, and then nothing more.
func ScanTargets(ctx context.Context, st store.Store, targets []Target, q Query, f Filter, limit int, w Watch) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		targets := slices.Clone(targets)
		f, w := f, w
		for left := limit; limit == 0 || left > 0; {
			n := window
			if limit > 0 {
				n = min(n, left)
			}
			best := &results{most: n, more: map[session.ID]bool{}}
			for i, t := range targets {
				w.progress(i, len(targets))
				err := ScanTarget(ctx, st, q, f, t, best.add)
				if cause := context.Cause(ctx); cause != nil {
					yield(Result{}, cause)
					return
				}
				if err != nil {
					w.trouble(t.Header.ID, err)
				}
			}
			w.progress(len(targets), len(targets))
			w.Trouble = nil // it was told
			targets = slices.DeleteFunc(targets, func(t Target) bool { return !best.more[t.Header.ID] })
			page := best.sorted()
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
			}
			if left -= len(page); len(targets) == 0 {
				return
			}
			f.After = page[len(page)-1].Key
		}
	}
}

// All returns all sessions of a store.
func All(ctx context.Context, st store.Store) ([]store.Stat, error) {
	l, ok := st.(store.Lister)
	if !ok {
		return nil, errors.New("search: this store cannot list its sessions")
	}
	page, err := l.List(ctx, store.Query{})
	return page.Rows, err
}

// ScanTarget calls found with the results in one target, in the order of the log. An error says that not all of it could be
// read; what could be was looked at.
func ScanTarget(ctx context.Context, st store.Store, q Query, f Filter, t Target, found func(Result)) error {
	var names Names
	return Each(ctx, st, t, func(p session.Prefix, ev session.Event) error {
		if ev.Time < f.Since || f.After != (Key{}) && f.After.Compare(Key{ev.Time, t.Header.ID, ev.Seq}) >= 0 {
			names.See(ev)
			return nil
		}
		texts, err := names.Texts(ev, p, t.From)
		if err != nil {
			return err
		}
		if r, ok := Examine(q, f, t.Header, ev, texts); ok {
			found(r)
		}
		return nil
	})
}

// Each calls f with the events of a target that can have texts, and with the log that they are from: of a damaged
// session also with those behind the damage. A session that is deleted has none. *store.DamagedError: not all of it could be
// read; f has seen the rest. Otherwise the errors of the store and of f, which end it.
func Each(ctx context.Context, st store.Store, t Target, f func(session.Prefix, session.Event) error) error {
	next := t.From
	read := func(open func(context.Context, session.ID) (*store.Snapshot, error)) error {
		snap, err := open(ctx, t.Header.ID)
		if err != nil || snap == nil {
			return err
		}
		defer snap.Close()
		to := snap.Prefix.Len()
		if t.To != session.None {
			to = min(to, t.To)
		}
		for ev, err := range snap.Prefix.Range(next, to) {
			if err == nil {
				err = context.Cause(ctx)
			}
			if err == nil && Searched(ev.Type) {
				err = f(snap.Prefix, ev)
			}
			if err != nil {
				return err
			}
			next = ev.Seq + 1
		}
		if len(snap.Damage) > 0 {
			return &store.DamagedError{ID: t.Header.ID, Ranges: snap.Damage}
		}
		return nil
	}
	err := read(func(ctx context.Context, id session.ID) (*store.Snapshot, error) {
		if p, ok := st.(store.Peeker); ok && t.From > 0 { // what a fork inherits is not read for its own part
			if snap, err := p.Peek(ctx, id); err != nil || snap != nil {
				return snap, err
			}
		}
		return st.Read(ctx, id)
	})
	if r, ok := st.(store.Repairer); ok && errors.Is(err, store.ErrDamaged) {
		err = read(r.Salvage) // goes on behind what was read
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// results keeps the first of many in the order of results.
type results struct {
	most int
	kept []Result            // a heap, the last one on top
	more map[session.ID]bool // the sessions of those that are not kept
}

func (r *results) add(x Result) {
	if len(r.kept) == r.most {
		if r.kept[0].Compare(x.Key) < 0 {
			r.more[x.ID] = true
			return
		}
		r.more[heap.Pop(r).(Result).ID] = true
	}
	heap.Push(r, x)
}

func (r *results) sorted() []Result {
	slices.SortFunc(r.kept, func(a, b Result) int { return a.Compare(b.Key) })
	return r.kept
}

func (r *results) Len() int           { return len(r.kept) }
func (r *results) Less(i, j int) bool { return r.kept[i].Compare(r.kept[j].Key) > 0 }
func (r *results) Swap(i, j int)      { r.kept[i], r.kept[j] = r.kept[j], r.kept[i] }
func (r *results) Push(x any)         { r.kept = append(r.kept, x.(Result)) }
func (r *results) Pop() any {
	last := r.kept[len(r.kept)-1]
	r.kept = r.kept[:len(r.kept)-1]
	return last
}
