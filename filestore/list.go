package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"golang.org/x/sync/errgroup"
)

// List returns a page. It looks at the end of every session's files; nothing is cached.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	page := store.Page{Hidden: map[session.SessionKind]int{}}
	rows, err := s.rows(ctx, q.Trash)
	if err != nil {
		return page, err
	}
	kept := rows[:0]
	for _, st := range rows {
		if readable := st.Header.ID != ""; readable {
			if !q.InProject(st.Header) {
				continue
			}
			if q.Kinds != nil && !slices.Contains(q.Kinds, st.Header.Kind) {
				page.Hidden[st.Header.Kind]++
				continue
			}
		}
		kept = append(kept, st)
	}
	key := func(st *store.Stat) int64 {
		if q.ByCreation {
			return st.Header.CreatedAt
		}
		return st.LastActivity
	}
	order := func(a int64, aid session.ID, b int64, bid session.ID) int {
		return cmp.Or(cmp.Compare(b, a), cmp.Compare(aid, bid))
	}
	slices.SortFunc(kept, func(a, b store.Stat) int { return order(key(&a), a.ID, key(&b), b.ID) })
	page.Total = len(kept)
	if q.Cursor != "" {
		at, id, err := parseCursor(q.Cursor)
		if err != nil {
			return page, err
		}
		kept = kept[sort.Search(len(kept), func(i int) bool { return order(key(&kept[i]), kept[i].ID, at, id) > 0 }):]
	}
	if q.Limit > 0 && len(kept) > q.Limit {
		kept = kept[:q.Limit:q.Limit]
		last := &kept[q.Limit-1]
		page.Next = fmt.Sprintf("%d.%s", key(last), last.ID)
	}
	page.Rows = kept
	return page, nil
}

func parseCursor(c string) (int64, session.ID, error) {
	at, id, ok := strings.Cut(c, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil {
		return 0, "", fmt.Errorf("filestore: %q: %w", c, store.ErrCursor)
	}
	return n, session.ID(id), nil
}

// ids returns the names of the sessions in where, sessions or trash, that begin with prefix, sorted.
func (s *Store) ids(where, prefix string) ([]session.ID, error) {
	list, err := s.fs.ReadDir(s.path(where))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []session.ID
	for _, e := range list {
		if strings.HasPrefix(e.Name(), prefix) && session.ValidID(session.ID(e.Name())) == nil {
			out = append(out, session.ID(e.Name()))
		}
	}
	return out, nil
}

// rows returns a Stat of every session. One that cannot be read is a row that says so.
func (s *Store) rows(ctx context.Context, trash bool) ([]store.Stat, error) {
	where := "sessions"
	if trash {
		where = "trash"
	}
	ids, err := s.ids(where, "")
	if err != nil {
		return nil, err
	}
	live, _ := s.announced() // most sessions have no holder: one listing answers for them
	rows := make([]store.Stat, len(ids))
	var g errgroup.Group
	g.SetLimit(4 * runtime.GOMAXPROCS(0))
	for i, id := range ids {
		g.Go(func() error {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			var err error
			if trash {
				rows[i], err = s.statIn(ctx, id, s.trash(id))
			} else if live[string(id)+".json"] {
				rows[i], err = s.Stat(ctx, id)
			} else {
				rows[i], err = s.stat(ctx, id)
			}
			switch {
			case err == nil:
			case errors.Is(err, store.ErrNotFound):
				rows[i] = store.Stat{}
			case context.Cause(ctx) != nil:
				return err
			default:
				rows[i].ID, rows[i].State, rows[i].Reason = id, store.StateDamaged, err.Error()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(rows, func(st store.Stat) bool { return st.ID == "" }), nil
}

// Match returns the ids that begin with prefix.
func (s *Store) Match(ctx context.Context, prefix string, limit int) ([]session.ID, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	ids, err := s.ids("sessions", prefix)
	if limit > 0 && len(ids) > limit {
		ids = ids[:limit]
	}
	return ids, err
}
