package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/recall"
	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/tool"
)

// SearchQuery says what is looked for, and where.
type SearchQuery struct {
	Text     string   // what search.Parse reads
	Projects []string // the names of one project (Project.Names); nil = any
	Kinds    []session.SessionKind
	Tool     string
	Fields   []search.Field
	Since    int64 // Unix milliseconds
	Limit    int   // 0 = no limit
	Cursor   string
	Rank     bool // the best of each search.RankWindow first, in pages as search.Ranked makes them
}

// Match is a line of a search: an event in which all was found. Time is in Unix milliseconds.
type Match struct {
	ID      session.ID          `json:"id"`
	Seq     session.Seq         `json:"seq"`
	Type    string              `json:"type"`
	Time    int64               `json:"time"`
	Title   string              `json:"title"`   // of the session
	Snippet string              `json:"snippet"` // one line, what was found in «»
	Kind    session.SessionKind `json:"kind"`
	Project string              `json:"project"`
	Field   search.Field        `json:"field"` // where the snippet is from
	Tool    string              `json:"tool,omitzero"`

	Marks search.Snippet `json:"-"` // the snippet, for those who mark in another way
}

// SearchEnd is the last line of a search.
type SearchEnd struct {
	Next       string       `json:"next"`       // cursor of the next page, "" if there is none
	Incomplete []Incomplete `json:"incomplete"` // what could not be searched
}

// Incomplete is a session that could not be searched, or not all of it.
type Incomplete struct {
	ID     session.ID `json:"id"`
	Reason string     `json:"reason"`
}

// Search calls found with each match, newest first unless they are ranked. progress, if it is not nil, is told how many of the
// sessions have been looked at when that takes long. Nothing is written.
func (a *App) Search(ctx context.Context, q SearchQuery, progress func(done, total int), found func(Match) error) (SearchEnd, error) {
	end := SearchEnd{Incomplete: []Incomplete{}}
	query, err := search.Parse(q.Text)
	if err != nil {
		var bad *search.QueryError
		if errors.As(err, &bad) {
			return end, &UsageError{"the query", bad.Why, bad.Hint}
		}
		return end, err
	}
	f, err := q.filter()
	if err != nil {
		return end, err
	}
	w := search.Watch{Progress: progress, Trouble: func(id session.ID, err error) {
		end.Incomplete = append(end.Incomplete, Incomplete{id, err.Error()})
	}}
	titles := map[session.ID]string{}
	show := func(r search.Result) error {
		title, ok := titles[r.ID]
		if !ok {
			title = a.titleOf(ctx, r.ID)
			titles[r.ID] = title
		}
		return found(Match{
			ID: r.ID, Seq: r.Seq, Type: r.Type, Time: r.Time, Title: title, Snippet: r.Snippet.Marked("«", "»"), Kind: r.Header.Kind,
			Project: projectOf(r.Header), Field: r.Field, Tool: r.Tool, Marks: r.Snippet,
		})
	}
	if q.Rank {
		at, err := search.ParsePlace(q.Cursor)
		if err != nil {
			return end, err
		}
		page, next, err := search.Ranked(at, q.Limit, func(after search.Key, limit int) iter.Seq2[search.Result, error] {
			f.After = after
			return a.results(ctx, query, f, limit, w)
		})
		for i := 0; err == nil && i < len(page); i++ {
			err = show(page[i])
		}
		end.Next = next.String()
		return end, err
	}
	limit := q.Limit
	if limit > 0 {
		limit++ // one more tells whether there is more
	}
	n := 0
	for r, err := range a.results(ctx, query, f, limit, w) {
		if err != nil {
			return end, err
		}
		if n++; q.Limit > 0 && n > q.Limit {
			end.Next = f.After.String()
			break
		}
		f.After = r.Key
		if err := show(r); err != nil {
			return end, err
		}
	}
	return end, nil
}

func (a *App) results(ctx context.Context, q search.Query, f search.Filter, limit int, w search.Watch) iter.Seq2[search.Result, error] {
	return a.idx().Search(ctx, q, f, limit, w)
}

func (q SearchQuery) filter() (search.Filter, error) {
	f := search.Filter{Tool: q.Tool, Fields: q.Fields, Since: q.Since}
	if !q.Rank {
		var err error
		if f.After, err = search.ParseKey(q.Cursor); err != nil {
			return f, err
		}
	}
	if in := (store.Query{Projects: q.Projects}); q.Projects != nil || len(q.Kinds) > 0 {
		f.Include = func(h session.Header) bool {
			return in.InProject(h) && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, h.Kind))
		}
	}
	return f, nil
}

// recall is the tool with which the session with header h, which goes on in dir, searches the past sessions of its project.
func (a *App) recall(h session.Header, dir string) tool.Definition {
	ours := store.Query{Projects: namesOf(h, dir)}
	return recall.Definition(recall.Options{
		Store: a.Store, Self: h.ID, Title: a.titleOf, Now: time.Now,
		Search: func(ctx context.Context, q search.Query, f search.Filter, limit int) iter.Seq2[search.Result, error] {
			return a.results(ctx, q, f, limit, search.Watch{})
		},
		Ours: ours.InProject,
	})
}

// namesOf returns what sessions of the project bear in their headers (one name each) that the session with header h is of, which
// goes on in dir: what a person's search in dir would go by, if that is still the project, and what h bears itself. But the path
// that the project has left is its name only as long as nothing else stands there.
func namesOf(h session.Header, dir string) []string {
	here, own := ProjectOf(dir), projectOf(h)
	names := []string{h.ProjectID}
	if (store.Query{Projects: here.Names}).InProject(h) {
		names = append(names, here.Names...)
	}
	if here.ID == h.ProjectID && here.ID != "" && !slices.Contains(here.Names, own) {
		if _, err := os.Lstat(own); !errors.Is(err, fs.ErrNotExist) {
			return names
		}
	}
	return append(names, own)
}

// projectOf is the project that a session belongs to.
func projectOf(h session.Header) string {
	if h.Project != "" {
		return h.Project
	}
	return h.Cwd
}

// titleOf returns the title of a session; "" if it has none or cannot be read.
func (a *App) titleOf(ctx context.Context, id session.ID) string {
	st, err := a.Store.Stat(ctx, id)
	if err != nil || st.Title != "" || st.State != store.StateOK && st.State != store.StateTorn {
		return st.Title
	}
	ins, err := a.Inspect(ctx, id, nil)
	if err != nil {
		return ""
	}
	defer ins.Close()
	title, _ := ins.Title()
	return title
}

// ParseSince reads a point in time before now: how long ago (90m, 12h, 3d, 2w), a day (2026-11-30, local time), or a time as in
// RFC 3339.
func ParseSince(s string, now time.Time) (int64, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t.UnixMilli(), nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, s, now.Location()); err == nil {
		return t.UnixMilli(), nil
	}
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour}
	if n := len(s); n > 1 {
		count, err := strconv.Atoi(s[:n-1])
		unit := units[strings.ToLower(s[n-1:])]
		if err == nil && unit > 0 && count >= 0 && count <= int(100*365*24*time.Hour/unit) {
			return now.Add(-time.Duration(count) * unit).UnixMilli(), nil
		}
	}
	return 0, &UsageError{"--since " + s, "it is no time", "give how long ago (90m, 12h, 3d, 2w), a day (2026-11-30) or a time (2026-11-30T18:00:00Z)"}
}

// SearchFields returns the fields that names mean.
func SearchFields(names []string) ([]search.Field, error) {
	var out []search.Field
	for _, n := range names {
		if !slices.Contains(search.Fields(), search.Field(n)) {
			return nil, &UsageError{"--in " + n, "no such field", fmt.Sprintf("one of %s", join(search.Fields()))}
		}
		out = append(out, search.Field(n))
	}
	return out, nil
}

// SessionKinds returns the kinds that names mean.
func SessionKinds(names []string) ([]session.SessionKind, error) {
	all := []session.SessionKind{session.KindRoot, session.KindFork, session.KindSubagent, session.KindHeadless, session.KindImported}
	var out []session.SessionKind
	for _, n := range names {
		if !slices.Contains(all, session.SessionKind(n)) {
			return nil, &UsageError{"--kind " + n, "no such kind of session", fmt.Sprintf("one of %s", join(all))}
		}
		out = append(out, session.SessionKind(n))
	}
	return out, nil
}

func join[T ~string](list []T) string {
	s := make([]string, len(list))
	for i, v := range list {
		s[i] = string(v)
	}
	return strings.Join(s, ", ")
}
