package search_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/search/searchtest"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func newStore() *memstore.Store { return memstore.New(memstore.Options{Now: time.Now}) }

func scan(t rapid.TB, st store.Store, query string, f search.Filter, limit int) []search.Result {
	t.Helper()
	q, err := search.Parse(query)
	if err != nil {
		return nil
	}
	var out []search.Result
	for r, err := range search.Scan(context.Background(), st, q, f, limit, search.Watch{}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func keys(rs []search.Result) []search.Key {
	var out []search.Key
	for _, r := range rs {
		out = append(out, r.Key)
	}
	return out
}

// plain decides in the most obvious way whether the texts hold what the query asks for.
func plain(q search.Query, texts []string) bool {
	for _, term := range q.Terms() {
		found := false
		for _, text := range texts {
			var words []string
			search.Units(text, func(u search.Unit) bool {
				words = append(words, strings.Clone(u.Folded))
				return true
			})
			for i := 0; i+len(term.Words) <= len(words); i++ {
				a, b := words[i:i+len(term.Words)], term.Words
				last := len(b) - 1
				ok := slices.Equal(a[min(1, last):last], b[min(1, last):last])
				for _, edge := range []int{0, last} {
					w := a[edge]
					if term.OpenLeft && edge == 0 {
						if at := strings.LastIndex(w, b[0]); at >= 0 && (last > 0 || !term.OpenRight) {
							w = w[at:]
						} else if at >= 0 {
							w = w[strings.Index(w, b[0]):]
						}
					}
					if term.OpenRight && edge == last && strings.HasPrefix(w, b[last]) {
						w = b[last]
					}
					ok = ok && w == b[edge]
				}
				found = found || ok
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// TestScanFindsExactly: a scan finds each event whose texts match once, under its owner, newest first; in pages as in one; and a
// page that goes on behind a cursor is right although sessions came meanwhile.
func TestScanFindsExactly(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		st := newStore()
		defer st.Close()
		docs := searchtest.Fill(ctx, t, st, 5)
		query := searchtest.Query(t)
		q, err := search.Parse(query)
		if err != nil {
			return
		}
		var want []search.Key
		for _, d := range docs {
			if plain(q, d.Texts) {
				want = append(want, search.Key{Time: d.Time, ID: d.ID, Seq: d.Seq})
			}
		}
		slices.SortFunc(want, search.Key.Compare)
		got := keys(scan(t, st, query, search.Filter{}, 0))
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%q: %s", query, d)
		}
		limit := rapid.IntRange(1, 3).Draw(t, "limit")
		var paged []search.Key
		f := search.Filter{}
		for i := 0; ; i++ {
			page := keys(scan(t, st, query, f, limit))
			if paged = append(paged, page...); len(page) < limit {
				break
			}
			if f.After, err = search.ParseKey(page[limit-1].String()); err != nil {
				t.Fatal(err)
			}
			h := session.Header{Format: session.Format, ID: session.ID(fmt.Sprintf("later-%d", i)), Kind: session.KindRoot}
			events, _ := searchtest.Events(t, h.ID, 0, 2)
			for i := range events {
				events[i].Time += 1 << 40
			}
			if err := st.Take(ctx, h, func(yield func(session.Event, error) bool) {
				_ = yield(events[0], nil) && yield(events[1], nil)
			}); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(want, paged); d != "" {
			t.Fatalf("%q in pages of %d: %s", query, limit, d)
		}
	})
}

// TestDeletedParents: a deleted session is not searched, but what forks still have of it is found once, under the oldest of them.
func TestDeletedParents(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		st := newStore()
		defer st.Close()
		searchtest.Fill(ctx, t, st, 6)
		rows, err := search.All(ctx, st)
		if err != nil {
			t.Fatal(err)
		}
		gone := map[session.ID]bool{}
		for _, r := range rows {
			if rapid.Bool().Draw(t, "rm") {
				if err := st.Trash(ctx, r.ID); err != nil {
					t.Fatal(err)
				}
				gone[r.ID] = true
			}
		}
		// What can be shown: every event of every listed log, by who logged it.
		type place struct {
			owner session.ID
			seq   session.Seq
		}
		want := map[place]bool{}
		q, _ := search.Parse("the")
		for _, r := range rows {
			if gone[r.ID] {
				continue
			}
			err := search.Each(ctx, st, search.Target{Header: r.Header, To: session.None}, func(p session.Prefix, ev session.Event) error {
				var n search.Names
				texts, err := n.Texts(ev, p, ev.Seq)
				if _, ok := search.Examine(q, search.Filter{}, r.Header, ev, texts); ok {
					want[place{r.Header.Origin(ev.Seq), ev.Seq}] = true
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		got := map[place]bool{}
		for _, r := range scan(t, st, "the", search.Filter{}, 0) {
			p := place{r.Header.Origin(r.Seq), r.Seq}
			if got[p] {
				t.Fatalf("%v is found twice", p)
			}
			if gone[r.ID] || !gone[p.owner] && r.ID != p.owner {
				t.Fatalf("%v is found under %s", p, r.ID)
			}
			got[p] = true
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestFilters(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		st := newStore()
		defer st.Close()
		searchtest.Fill(ctx, t, st, 4)
		all := scan(t, st, "t*", search.Filter{}, 0)
		for _, r := range scan(t, st, "t*", search.Filter{Tool: "bash"}, 0) {
			if r.Tool != "bash" || r.Field != search.FieldArguments && r.Field != search.FieldResult {
				t.Fatalf("%+v is not of bash", r)
			}
		}
		for _, r := range scan(t, st, "t*", search.Filter{Fields: []search.Field{search.FieldTitle}}, 0) {
			if r.Type != session.TypeTitle || r.Field != search.FieldTitle {
				t.Fatalf("%+v is no title", r)
			}
		}
		since := int64(1_700_000_003_000)
		want := slices.DeleteFunc(keys(all), func(k search.Key) bool { return k.Time < since })
		if d := cmp.Diff(want, keys(scan(t, st, "t*", search.Filter{Since: since}, 0))); len(want) > 0 && d != "" {
			t.Fatal(d)
		}
		one := func(h session.Header) bool { return h.Project == "/one" }
		for _, r := range scan(t, st, "t*", search.Filter{Include: one}, 0) {
			if r.Header.Project != "/one" {
				t.Fatalf("%+v is of another project", r)
			}
		}
	})
}

func TestCursors(t *testing.T) {
	for _, s := range []string{"x", "1.2", "1.2.", "1.-2.abcd", "1.2.AB/C", "a.2.abcd", "9999999999999999999.1.abcd", "1.2.abcd.e"} {
		if k, err := search.ParseKey(s); !errors.Is(err, store.ErrCursor) {
			t.Errorf("%q: %v, %v", s, k, err)
		}
	}
	k := search.Key{Time: -5, ID: "abcd_e-f", Seq: 7}
	if got, err := search.ParseKey(k.String()); err != nil || got != k {
		t.Errorf("%v, %v", got, err)
	}
}

// TestScanStops when it is told to, and says why.
func TestScanStops(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	q, _ := search.Parse("x")
	for _, err := range search.Scan(ctx, newStore(), q, search.Filter{}, 0, search.Watch{}) {
		if !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
	}
}
