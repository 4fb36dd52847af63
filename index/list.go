package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Query selects and orders a page of a list. The zero value lists everything by last activity.
type Query struct {
	Projects   []string              // names of one project, as in store.Query; nil = any
	Kinds      []session.SessionKind // nil = all
	Title      string                // that the title must hold, both folded as a search folds them; "" = any
	ByCreation bool
	Limit      int    // 0 = no limit
	Cursor     string // from Page.Next
}

// Page is a part of a list: newest first, ties by id. A session that cannot be read is a row with its reason.
type Page struct {
	Rows   []Row
	Next   string                      // "" = no more
	Total  int                         // rows in all pages
	Hidden map[session.SessionKind]int // sessions left out by Kinds
}

// Row is a session as it is stored. Stat has the state that reading the whole log found.
type Row struct {
	store.Stat
	Facts *Facts // nil: it cannot be read
	Held  bool   // somebody may write it at this moment: who does, and what is there then, has to be asked together
}

// List returns a page. Where the index knows little yet, it takes as long as reading the ends of all sessions and the logs
// of those on the page (of all, for a title), which progress is told of.
func (x *Index) List(ctx context.Context, q Query, progress Progress) (Page, error) {
	page := Page{Hidden: map[session.SessionKind]int{}}
	after, err := parseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	if q.Limit > 0 && q.Title == "" {
		if page, ok, err := x.quickList(ctx, q, after, progress); ok || err != nil {
			return page, err
		}
	}
	s, err := x.lookAtAll(ctx, progress)
	if err != nil {
		return page, err
	}
	all := q
	if q.Title != "" { // what holds it is known only when it was read
		all.Limit, all.Cursor = 0, ""
	}
	rows := map[session.ID]Row{}
	keys, total, hidden := (&shelf{heads: s.heads}).page(all, after)
	if q.Title != "" {
		if err := x.rows(ctx, s, keys, rows, progress); err != nil {
			return page, err
		}
		want := search.Fold(q.Title)
		keys = slices.DeleteFunc(keys, func(k key) bool {
			r, ok := rows[k.id]
			return !ok || r.Facts == nil || !strings.Contains(search.Fold(r.Facts.Called()), want)
		})
		total = len(keys)
		if q.Cursor != "" {
			keys = keys[sort.Search(len(keys), func(i int) bool { return keys[i].compare(after) > 0 }):]
		}
	}
	page.Total, page.Hidden = total, hidden
	if keys = page.cut(keys, q.Limit); q.Title == "" {
		if err := x.rows(ctx, s, keys, rows, progress); err != nil {
			return page, err
		}
	}
	page.fill(keys, rows)
	return page, nil
}

// quickList returns a page where a glance is enough. What is shown is looked at, as all of it may have been changed by
// others than the store's writers.
func (x *Index) quickList(ctx context.Context, q Query, after key, progress Progress) (page Page, ok bool, err error) {
	s, ok, err := x.glance(ctx)
	if err != nil || !ok {
		return page, false, err
	}
	var keys []key
	for {
		x.mu.Lock()
		if s.life != x.life {
			x.mu.Unlock()
			return page, false, nil
		}
		keys, page.Total, page.Hidden = x.shelf.page(q, after)
		keys = page.cut(keys, q.Limit)
		s.heads = make(map[session.ID]head, len(keys))
		var unseen []session.ID
		for _, k := range keys {
			s.heads[k.id] = x.shelf.heads[k.id]
			if !s.seen[k.id] {
				unseen = append(unseen, k.id)
			}
		}
		x.mu.Unlock()
		if len(unseen) == 0 {
			break
		}
		if _, err := x.recheck(ctx, &s, unseen); err != nil {
			return page, false, err
		}
	}
	rows := map[session.ID]Row{}
	if err := x.rows(ctx, s, keys, rows, progress); err != nil {
		return page, false, err
	}
	page.fill(keys, rows)
	return page, true, nil
}

// cut keeps limit keys, and where the next page begins if there are more.
func (p *Page) cut(keys []key, limit int) []key {
	if p.Next = ""; limit > 0 && len(keys) > limit {
		keys = keys[:limit]
		p.Next = keys[limit-1].String()
	}
	return keys
}

func (p *Page) fill(keys []key, rows map[session.ID]Row) {
	for _, k := range keys {
		if r, ok := rows[k.id]; ok {
			p.Rows = append(p.Rows, r)
		}
	}
}

// rows makes the rows of keys.
func (x *Index) rows(ctx context.Context, s sight, keys []key, into map[session.ID]Row, progress Progress) error {
	made := make([]Row, len(keys))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, k := range keys {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			b, ok, err := x.row(ctx, k.id, s.heads[k.id])
			if err != nil || !ok {
				return err
			}
			if now, err := x.advance(ctx, k.id, b); err == nil {
				b = now
			} else if ctx.Err() != nil {
				return context.Cause(ctx)
			} else if gone(err, k.id) {
				return nil // to the trash, or for good, since it was looked at
			} else {
				b.Bad, b.Reason, b.Facts = store.StateDamaged, err.Error(), nil
			}
			made[i] = rowOf(b)
			if owner := s.owner[k.id]; owner != nil {
				made[i].Holder = owner
			}
			made[i].Held = s.held[k.id] || made[i].Holder != nil || s.heads[k.id].mark.Stamp == ""
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, r := range made {
		if r.ID != "" {
			into[r.ID] = r
		}
		if progress != nil && i == len(made)-1 {
			progress(len(made), len(made))
		}
	}
	return nil
}

// Row returns one session as it is now. ok is false if it is not stored.
func (x *Index) Row(ctx context.Context, id session.ID) (r Row, ok bool, err error) {
	x.mu.Lock()
	x.ready(ctx)
	x.mu.Unlock()
	b, ok, err := x.fresh(ctx, id)
	if err != nil || !ok {
		return r, false, err
	}
	if b, err = x.advance(ctx, id, b); gone(err, id) {
		return r, false, nil
	} else if err != nil {
		return r, false, err
	}
	r = rowOf(b)
	r.Held = true
	return r, true, nil
}

// gone reports whether err says that session id itself, and not one that it begins with, is not stored any more.
func gone(err error, id session.ID) bool {
	none, ok := errors.AsType[*store.NotFoundError](err)
	return ok && none.ID == string(id)
}

// rowOf tells what is known of a session.
func rowOf(b body) Row {
	r := Row{Stat: b.Stat}
	if !whole(r.Stat) {
		return r
	}
	r.Facts = b.Facts
	switch {
	case b.Bad != "":
		r.State, r.Reason = b.Bad, b.Reason
	case r.Facts != nil && len(r.Facts.Unknown) > 0:
		r.State, r.Reason = store.StateUnsupported, (&session.UnsupportedError{Types: r.Facts.Unknown}).Reason()
	}
	return r
}

// key is a place in a list.
type key struct {
	at int64
	id session.ID
}

func (k key) compare(o key) int { return cmp.Or(cmp.Compare(o.at, k.at), cmp.Compare(k.id, o.id)) }

// String returns k as a cursor.
func (k key) String() string { return fmt.Sprintf("%d.%s", k.at, k.id) }

func parseCursor(c string) (key, error) {
	at, id, ok := strings.Cut(c, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	if c != "" && (!ok || err != nil) {
		return key{}, fmt.Errorf("index: %q: %w", c, store.ErrCursor)
	}
	return key{n, session.ID(id)}, nil
}
