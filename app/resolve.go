package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Last is what a person types for the session that was last worked on in this project.
const Last = "last"

// MinPrefix is how many signs of an id are enough, if no other id begins with them.
const MinPrefix = 4

// Skipped is a newer session that Last passed over, and why.
type Skipped struct {
	ID     session.ID
	Reason string
}

// NoLastError says that Last means none of a project's sessions though it has some. It is a store.ErrNotFound.
type NoLastError struct{ Skipped []Skipped }

func (e *NoLastError) Error() string {
	counts := map[string]int{}
	for _, s := range e.Skipped {
		counts[s.Reason]++
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	return fmt.Sprintf("%s is none of this project's sessions: %s", Last, strings.Join(parts, ", "))
}

func (e *NoLastError) Unwrap() error { return &store.NotFoundError{ID: Last} }

// AmbiguousError says that a prefix fits several sessions.
type AmbiguousError struct {
	Prefix string
	IDs    []session.ID // some of them
}

func (e *AmbiguousError) Error() string {
	var ids []string
	for _, id := range e.IDs {
		ids = append(ids, string(id))
	}
	return fmt.Sprintf("%s is the beginning of several ids (%s, ..)", e.Prefix, strings.Join(ids, ", "))
}

// Resolve returns the session that arg names: a full id, the unambiguous beginning of one (4 signs or more), or
// Last, which means the newest by activity of kind root, fork or imported in project that can be gone on with, now or
// when its holder lets it go. Newer sessions of that project that Last does not mean are named in skipped, also with an
// error. Errors: store.ErrNotFound (also *NoLastError), *AmbiguousError.
func (a *App) Resolve(ctx context.Context, arg string, project Project) (id session.ID, skipped []Skipped, err error) {
	if arg == Last {
		return a.last(ctx, project)
	}
	notFound := &store.NotFoundError{ID: arg}
	if session.ValidID(session.ID(arg)) != nil {
		return "", nil, notFound
	}
	_, err = a.Store.Stat(ctx, session.ID(arg))
	if err == nil || !errors.Is(err, store.ErrNotFound) {
		return session.ID(arg), nil, err
	}
	if nf, ok := errors.AsType[*store.NotFoundError](err); ok {
		notFound = nf
	}
	l, ok := a.Store.(store.Lister)
	if !ok || len(arg) < MinPrefix {
		return "", nil, notFound
	}
	ids, err := l.Match(ctx, arg, 4)
	switch {
	case err != nil:
		return "", nil, err
	case len(ids) == 0:
		return "", nil, a.deleted(ctx, notFound)
	case len(ids) > 1:
		return "", nil, &AmbiguousError{arg, ids}
	}
	return ids[0], nil, nil
}

// deleted says more of a session that was not found: that it is in the trash.
func (a *App) deleted(ctx context.Context, notFound *store.NotFoundError) error {
	r, ok := a.Store.(store.Remover)
	if !ok || notFound.Trashed || notFound.Purged {
		return notFound
	}
	if ids, err := r.MatchTrash(ctx, notFound.ID, 2); err == nil && len(ids) == 1 {
		return &store.NotFoundError{ID: string(ids[0]), Trashed: true}
	}
	return notFound
}

// conversational are the kinds that people work with; the others are made by programs.
var conversational = []session.SessionKind{session.KindRoot, session.KindFork, session.KindImported}

// last looks at the candidates' logs: only those tell of damage in the middle, and of events that nobody here knows.
func (a *App) last(ctx context.Context, project Project) (session.ID, []Skipped, error) {
	l, ok := a.Store.(store.Lister)
	if !ok {
		return "", nil, errors.New("this store cannot list")
	}
	var skipped []Skipped
	var same []store.Stat // worked on at the same moment, as a fork and its parent are: the one made last counts
	choose := func() (session.ID, error) {
		slices.SortStableFunc(same, func(a, b store.Stat) int { return cmp.Compare(b.Header.CreatedAt, a.Header.CreatedAt) })
		for _, st := range same {
			r := a.rowNow(ctx, st)
			switch {
			case context.Cause(ctx) != nil:
				return "", context.Cause(ctx)
			case r.ID == "": // it is gone meanwhile
			case !r.Readable():
				skipped = append(skipped, Skipped{r.ID, string(r.State)})
			case !isConversational(r.Kind):
				skipped = append(skipped, Skipped{r.ID, "of kind " + string(r.Kind)})
			default:
				return r.ID, nil
			}
		}
		same = same[:0]
		return "", nil
	}
	q := store.Query{Projects: project.Names, Limit: 50}
	for {
		page, err := l.List(ctx, q)
		if err != nil {
			return "", nil, err
		}
		for _, r := range page.Rows {
			if len(same) > 0 && r.LastActivity < same[0].LastActivity {
				if id, err := choose(); id != "" || err != nil {
					return id, skipped, err
				}
			}
			same = append(same, r)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	id, err := choose()
	switch {
	case id != "" || err != nil:
	case len(skipped) > 0:
		err = &NoLastError{skipped}
	default:
		err = &store.NotFoundError{ID: Last}
	}
	return id, skipped, err
}

func isConversational(k session.SessionKind) bool { return slices.Contains(conversational, k) }
