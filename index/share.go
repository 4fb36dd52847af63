package index

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Forks share what they begin with: two hundred of one long session would have it folded two hundred times before they
// are known. So facts are remembered on the way: those of what a log held up to an event, under the session whose own files
// hold that event. A fork's header names those. What is remembered, and the row of such a session where it ends in time,
// counts for a fork if no file that it was folded from was touched since, as it does for the session itself.

const (
	// stride is after how many events facts are remembered. A fork folds less than that of what it inherited.
	stride = 4096
	// maxShares bounds what is remembered, of all sessions; it begins anew behind that.
	maxShares = 1024
)

// shares remembers facts. It is safe for concurrent use.
type shares struct {
	stride session.Seq

	mu sync.Mutex
	of map[session.ID][]share // guarded by mu: by whose file holds the last event
	n  int                    // guarded by mu
}

// share is what is known of a log's first events.
type share struct {
	header session.Header // of the session that it was folded for
	check  string         // of store.Checker, before that was read
	facts  Facts
}

func (s *shares) put(owner session.ID, v share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := slices.BinarySearchFunc(s.of[owner], v.facts.Next, compareShare)
	if found {
		s.of[owner][i] = v
		return
	}
	if s.n >= maxShares || s.of == nil {
		s.of, s.n, i = map[session.ID][]share{}, 0, 0
	}
	s.of[owner] = slices.Insert(s.of[owner], i, v)
	s.n++
}

func compareShare(v share, next session.Seq) int { return cmp.Compare(v.facts.Next, next) }

// within returns what is remembered of an owner's events that end behind lo and no later than at hi, the longest last.
func (s *shares) within(owner session.ID, lo, hi session.Seq) []share {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.of[owner]
	from, _ := slices.BinarySearchFunc(all, lo+1, compareShare)
	to, _ := slices.BinarySearchFunc(all, hi+1, compareShare)
	return slices.Clone(all[from:max(from, to)])
}

// inherited returns the facts of the longest part of what a fork with this header inherited that is known; nil: of none.
func (x *Index) inherited(ctx context.Context, h session.Header) *Facts {
	if h.Parent == nil {
		return nil
	}
	spans := h.Parent.Spans
	for i := len(spans) - 1; i >= 0; i-- {
		lo, hi := session.Seq(0), min(spans[i].End, h.Shared())
		if i > 0 {
			lo = spans[i-1].End
		}
		known := x.shares.within(spans[i].ID, lo, hi)
		x.mu.Lock()
		head, stored := x.shelf.heads[spans[i].ID]
		x.mu.Unlock()
		if stored {
			b, ok, err := x.row(ctx, spans[i].ID, head)
			if err == nil && ok && b.Facts != nil && b.Kind == x.kind && b.Bad == "" && b.Facts.Next > lo && b.Facts.Next <= hi {
				known = append(known, share{b.Stat.Header, b.Check, *b.Facts})
				slices.SortStableFunc(known, func(a, b share) int { return cmp.Compare(a.facts.Next, b.facts.Next) })
			}
		}
		for _, v := range slices.Backward(known) {
			if f, ok := v.facts.handedOn(v.header, h); ok && x.untouched(ctx, v) {
				return &f
			}
		}
	}
	return nil
}

// untouched reports whether the files are still those that v was folded from. Where a store cannot say, its last event
// speaks for it, as everywhere.
func (x *Index) untouched(ctx context.Context, v share) bool {
	c, ok := x.opt.Store.(store.Checker)
	if !ok {
		return true
	}
	_, same, err := c.Check(ctx, v.header, v.check)
	return err == nil && same
}

// handedOn makes of the facts of a session those of another one that inherited all that they say. ok is false where that
// cannot be told: before anybody was active, that is the time of the header.
func (f Facts) handedOn(from, to session.Header) (out Facts, ok bool) {
	f.Begun, f.StepAt, f.Running = nil, 0, nil
	f.Spent = slices.Clone(f.Spent)
	for i := range f.Spent {
		f.Spent[i].Own = nil
	}
	return f, f.LastActivity != from.CreatedAt || from.CreatedAt == to.CreatedAt
}

// sharer remembers facts as one log is folded.
type sharer struct {
	s     *shares // nil: nothing is remembered
	h     session.Header
	check string
}

func (x *Index) sharer(h session.Header, check string, sound bool) sharer {
	if _, proves := x.opt.Store.(store.Checker); !sound || proves && check == "" {
		return sharer{}
	}
	return sharer{&x.shares, h, check}
}

// folded is told of each event that f has taken in.
func (r sharer) folded(f *Facts, ev session.Event) {
	if r.s == nil {
		return
	}
	owner, cut := r.h.ID, false
	if r.h.Parent != nil {
		for _, sp := range r.h.Parent.Spans {
			if ev.Seq < sp.End {
				owner, cut = sp.ID, f.Next == sp.End
				break
			}
		}
	}
	if !cut && f.Next%r.s.stride != 0 {
		return
	}
	v, _ := f.handedOn(r.h, r.h)
	v.Last = digest(ev)
	r.s.put(owner, share{r.h, r.check, v})
}
