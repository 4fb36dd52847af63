package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var listTests = []test{
	{"Empty", listEmpty},
	{"Order", listOrder},
	{"Rows", listRows},
	{"Filters", listFilters},
	{"Pages", listPages},
	{"PagesWhileChanging", listChanging},
	{"BadCursor", listBadCursor},
	{"LookingIsNotTouching", listLooking},
	{"Match", listMatch},
}

func (s *suite) list(q store.Query) store.Page {
	s.Helper()
	page, err := s.lister().List(s.ctx, q)
	s.ok(err)
	return page
}

func ids(rows []store.Stat) string {
	var out []string
	for _, r := range rows {
		out = append(out, string(r.ID))
	}
	return strings.Join(out, " ")
}

// population makes n sessions with activity times that tie, in several kinds and projects. It
// returns them as rows, newest first.
func (s *suite) population(n int) []store.Stat {
	s.Helper()
	s.lister()
	kinds := []session.SessionKind{session.KindRoot, session.KindSubagent, session.KindRoot, session.KindHeadless}
	var rows []store.Stat
	for i := range n {
		h := header(session.ID(fmt.Sprintf("pop-%03d", i*7919%1000)))
		h.CreatedAt = 1000 + int64(i*31%n)/3
		h.Kind = kinds[i%len(kinds)]
		switch i % 3 {
		case 0:
			h.Project, h.Cwd = "alpha", "/a"
		case 1:
			h.Project, h.Cwd = "", "alpha"
		default:
			h.Project, h.Cwd = "beta", "/b"
			if i%2 == 0 {
				h.ProjectID = "dir:7"
			}
		}
		ev := user(0, "hello")
		ev.Time = 5000 + int64(i*17%n)/4
		w := s.createWith(h, ev)
		if i%2 == 0 {
			s.flush(w)
		}
		s.ok(w.Close())
		rows = append(rows, store.Stat{ID: h.ID, Header: h, LastActivity: ev.Time})
	}
	sortRows(rows, false)
	return rows
}

func sortRows(rows []store.Stat, byCreation bool) {
	slices.SortFunc(rows, func(a, b store.Stat) int {
		if byCreation {
			return cmp.Or(cmp.Compare(b.Header.CreatedAt, a.Header.CreatedAt), cmp.Compare(a.ID, b.ID))
		}
		return cmp.Or(cmp.Compare(b.LastActivity, a.LastActivity), cmp.Compare(a.ID, b.ID))
	})
}

func listEmpty(s *suite) {
	page := s.list(store.Query{Limit: 5})
	if len(page.Rows) != 0 || page.Next != "" || page.Total != 0 || len(page.Hidden) != 0 {
		s.Fatalf("%+v", page)
	}
}

func listOrder(s *suite) {
	rows := s.population(30)
	for _, by := range []bool{false, true} {
		sortRows(rows, by)
		check := func(what string) {
			s.Helper()
			page := s.list(store.Query{ByCreation: by})
			if got := ids(page.Rows); got != ids(rows) || page.Total != 30 || page.Next != "" {
				s.Fatalf("%s, by creation %v:\n%s, want\n%s (total %d, next %q)", what, by, got, ids(rows), page.Total, page.Next)
			}
		}
		check("at first")
		check("again")
		if s.Reopen != nil {
			s.reopen()
			check("in the next process")
		}
	}
	// New activity brings a session to the front; anything else does not.
	old := rows[len(rows)-1].ID
	w := s.open(old)
	quiet := title(1, "renamed", "user")
	s.append(w, quiet)
	sortRows(rows, false)
	if got := ids(s.list(store.Query{}).Rows); got != ids(rows) {
		s.Fatalf("a title moved a session:\n%s, want\n%s", got, ids(rows))
	}
	ev := user(2, "news")
	ev.Time = 9999
	s.append(w, ev)
	for i := range rows {
		if rows[i].ID == old {
			rows[i].LastActivity = 9999
		}
	}
	sortRows(rows, false)
	if got := ids(s.list(store.Query{}).Rows); got != ids(rows) {
		s.Fatalf("after new activity:\n%s, want\n%s", got, ids(rows))
	}
}

// A row says what Stat says.
func listRows(s *suite) {
	s.population(8)
	w := s.create("held", talk(0, 5)...)
	s.append(w, title(5, "the title", "user"))
	for _, row := range s.list(store.Query{}).Rows {
		st := s.stat(row.ID)
		if row.Title == "" || st.Title == "" { // known or not
			row.Title, st.Title = "", ""
		}
		if (row.Holder == nil) != (st.Holder == nil) || (row.Holder != nil) != (row.ID == "held") {
			s.Fatalf("%s: holder %+v in the list, %+v in Stat", row.ID, row.Holder, st.Holder)
		}
		s.statsEqual(row, st)
	}
}

func listFilters(s *suite) {
	rows := s.population(36)
	root := []session.SessionKind{session.KindRoot}
	for _, q := range []store.Query{
		{Projects: []string{"alpha"}}, {Projects: []string{"beta"}}, {Projects: []string{"gamma"}}, {Projects: []string{"/b"}}, {Kinds: root}, {Kinds: []session.SessionKind{}},
		{Kinds: []session.SessionKind{session.KindHeadless, session.KindSubagent}}, {Kinds: root, Projects: []string{"alpha"}},
		{Projects: []string{"dir:7"}}, {Projects: []string{"dir:7", "/nowhere", "alpha"}}, {Projects: []string{""}}, {Projects: []string{}},
		{Kinds: root, Projects: []string{"alpha"}, Limit: 2}, {Kinds: []session.SessionKind{session.KindImported}},
	} {
		var want []store.Stat
		hidden := map[session.SessionKind]int{}
		for _, r := range rows {
			switch {
			case q.Projects != nil && !slices.ContainsFunc(q.Projects, func(name string) bool {
				return name != "" && (name == cmp.Or(r.Header.Project, r.Header.Cwd) || name == r.Header.ProjectID)
			}):
			case q.Kinds != nil && !slices.Contains(q.Kinds, r.Header.Kind):
				hidden[r.Header.Kind]++
			default:
				want = append(want, r)
			}
		}
		page := s.list(q)
		if page.Total != len(want) {
			s.Errorf("%+v: total %d, want %d", q, page.Total, len(want))
		}
		if q.Limit > 0 {
			want = want[:q.Limit]
		}
		if got := ids(page.Rows); got != ids(want) {
			s.Errorf("%+v:\n%s, want\n%s", q, got, ids(want))
		}
		if !maps.Equal(page.Hidden, hidden) {
			s.Errorf("%+v: hidden %v, want %v", q, page.Hidden, hidden)
		}
	}
}

func listPages(s *suite) {
	rows := s.population(41)
	for _, by := range []bool{false, true} {
		sortRows(rows, by)
		for _, limit := range []int{1, 2, 5, 40, 41, 42} {
			var got []store.Stat
			q := store.Query{ByCreation: by, Limit: limit}
			for n := 0; ; n++ {
				page := s.list(q)
				got = append(got, page.Rows...)
				if page.Total != 41 || len(page.Rows) > limit || n > 41 {
					s.Fatalf("page %d of %d: %d rows, total %d", n, limit, len(page.Rows), page.Total)
				}
				if q.Cursor = page.Next; q.Cursor == "" {
					break
				}
				if len(page.Rows) == 0 {
					s.Fatalf("an empty page %d that says there is more", n)
				}
			}
			if ids(got) != ids(rows) {
				s.Fatalf("pages of %d, by creation %v:\n%s, want\n%s", limit, by, ids(got), ids(rows))
			}
		}
	}
}

// While sessions come and move, what does not move is seen exactly once.
func listChanging(s *suite) {
	rows := s.population(40)
	seen := map[session.ID]int{}
	moved := map[session.ID]bool{}
	q := store.Query{Limit: 3}
	for n := 0; ; n++ {
		page := s.list(q)
		for _, r := range page.Rows {
			seen[r.ID]++
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
		// The session that the cursor stands on, and one far behind it, get new activity.
		for _, id := range []session.ID{page.Rows[len(page.Rows)-1].ID, rows[len(rows)-1-n].ID} {
			if moved[id] {
				continue
			}
			moved[id] = true
			w := s.open(id)
			ev := user(1, "news")
			ev.Time = 10000 + int64(n)
			s.append(w, ev)
			s.ok(w.Close())
		}
		ev := user(0, "new")
		ev.Time = 20000
		s.ok(s.createWith(header(session.ID(fmt.Sprintf("new-%02d", n))), ev).Close())
	}
	for _, r := range rows {
		switch n := seen[r.ID]; {
		case !moved[r.ID] && n != 1:
			s.Errorf("%s did not move and was seen %d times", r.ID, n)
		case n > 1:
			s.Errorf("%s was seen %d times", r.ID, n)
		}
	}
}

func listBadCursor(s *suite) {
	s.population(3)
	for _, c := range []string{"?", "AAAA", "0", "e30", strings.Repeat("x", 1000)} {
		if page, err := s.lister().List(s.ctx, store.Query{Cursor: c}); err == nil {
			s.Errorf("cursor %q gives %d rows", c, len(page.Rows))
		}
	}
}

func listLooking(s *suite) {
	rows := s.population(12)
	stats := map[session.ID]store.Stat{}
	for _, r := range rows {
		stats[r.ID] = s.stat(r.ID)
	}
	for range 2 {
		s.list(store.Query{})
		for _, r := range rows {
			snap, err := s.st.Read(s.ctx, r.ID)
			s.ok(err)
			for _, err := range snap.Prefix.Range(0, snap.Prefix.Len()) {
				s.ok(err)
			}
			s.ok(snap.Close())
			s.ok(s.open(r.ID).Close())
			s.statsEqual(s.stat(r.ID), stats[r.ID])
		}
	}
	if got := ids(s.list(store.Query{}).Rows); got != ids(rows) {
		s.Fatalf("looking changed the order:\n%s, want\n%s", got, ids(rows))
	}
}

func listMatch(s *suite) {
	l := s.lister()
	for _, id := range []session.ID{"abcd1", "abcd2", "abce1", "abcd"} {
		s.stored(id, talk(0, 1)...)
	}
	for _, tt := range []struct {
		prefix string
		limit  int
		want   int
	}{{"abcd", 10, 3}, {"abcd", 2, 2}, {"abcd1", 10, 1}, {"abc", 10, 4}, {"", 10, 4}, {"x", 10, 0}, {"abcd12", 10, 0}, {"../", 10, 0}, {"*", 10, 0}} {
		got, err := l.Match(s.ctx, tt.prefix, tt.limit)
		s.ok(err)
		if len(got) != tt.want {
			s.Errorf("Match(%q, %d) = %v, want %d", tt.prefix, tt.limit, got, tt.want)
		}
		for _, id := range got {
			if !strings.HasPrefix(string(id), tt.prefix) {
				s.Errorf("Match(%q) gives %s", tt.prefix, id)
			}
		}
	}
}
