package search_test

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// TestScores: the better answer has the higher score.
func TestScores(t *testing.T) {
	human := func(s string) []search.Text { return []search.Text{{Field: search.FieldHuman, Text: s}} }
	long := strings.Repeat("something else ", 1000)
	for _, c := range []struct {
		why, query    string
		better, worse []search.Text
	}{
		{"a title", "fox", []search.Text{{Field: search.FieldTitle, Text: "the fox"}}, human("the fox")},
		{"a person", "fox", human("the fox"), []search.Text{{Field: search.FieldAssistant, Text: "the fox"}}},
		{"an answer", "fox", []search.Text{{Field: search.FieldAssistant, Text: "fox"}}, []search.Text{{Field: search.FieldResult, Text: "fox"}}},
		{"short", "fox", human("the fox"), human("the fox " + long)},
		{"often", "fox", human("fox, fox and fox"), human("fox, dog and dog")},
		{"in one text", "fox dog", human("fox dog"), append(human("fox"), human("dog")...)},
		{"a phrase rather than a word", `"red fox" dog`, append(human("red fox"), search.Text{Field: search.FieldResult, Text: "dog"}),
			append(human("dog"), search.Text{Field: search.FieldResult, Text: "red fox"})},
	} {
		q, err := search.Parse(c.query)
		if err != nil {
			t.Fatal(err)
		}
		of := func(texts []search.Text) int64 {
			r, ok := search.Examine(q, search.Filter{}, session.Header{ID: "abcd"}, session.Event{}, texts)
			if !ok || r.Score <= 0 {
				t.Fatalf("%s: %v, %d", c.why, ok, r.Score)
			}
			return r.Score
		}
		if a, b := of(c.better), of(c.worse); a <= b {
			t.Errorf("%s: %d, and for what is worse %d", c.why, a, b)
		}
	}
}

// TestScoreIsAsDocumented: one by hand.
func TestScoreIsAsDocumented(t *testing.T) {
	q, _ := search.Parse(`"red fox" dog`)
	texts := []search.Text{{Field: search.FieldHuman, Text: "red fox, dog, dog" + strings.Repeat(" ", 983)}}
	r, _ := search.Examine(q, search.Filter{}, session.Header{ID: "abcd"}, session.Event{}, texts)
	if want := int64(3 * (2*1000*1*2000/(2*2000+1000) + 1*1000*2*2000/(3*2000+1000))); r.Score != want {
		t.Errorf("%d, not %d", r.Score, want)
	}
}

// TestRankedPages: pages show each result that is there all the while once, the best of each window first; what comes meanwhile and
// is newer is in none of them, and what goes changes nothing for the rest.
func TestRankedPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 3, search.RankWindow - 1, search.RankWindow, search.RankWindow + 1, 2*search.RankWindow + 7}).Draw(t, "n")
		spread := rapid.Int64Range(1, 20).Draw(t, "scores")
		seed := rapid.Int64Range(0, 1000).Draw(t, "seed")
		var all []search.Result
		for i := range n {
			k := search.Key{Time: int64(i / 3), ID: session.ID(fmt.Sprint("abcd-", i%2)), Seq: session.Seq(i)}
			all = append(all, search.Result{Key: k, Score: (int64(i)*7919 + seed) % 1009 % spread})
		}
		inOrder := func(a, b search.Result) int { return a.Compare(b.Key) }
		slices.SortFunc(all, inOrder)
		var want []search.Key // window by window
		for w := range slices.Chunk(all, search.RankWindow) {
			w = slices.Clone(w)
			slices.SortStableFunc(w, func(a, b search.Result) int { return cmp.Compare(b.Score, a.Score) })
			want = append(want, keys(w)...)
		}
		limit := rapid.SampledFrom([]int{0, 1, 7, 50, 150, search.RankWindow, 500}).Draw(t, "limit")
		if n > 10 && limit == 1 {
			limit = 30
		}
		there := slices.Clone(all)
		gone := map[search.Key]bool{}
		results := func(after search.Key, limit int) iter.Seq2[search.Result, error] {
			return func(yield func(search.Result, error) bool) {
				for _, r := range there {
					if after != (search.Key{}) && after.Compare(r.Key) >= 0 {
						continue
					}
					if !yield(r, nil) {
						return
					}
					if limit--; limit == 0 {
						return
					}
				}
			}
		}
		var got []search.Key
		for at := (search.Place{}); ; {
			page, next, err := search.Ranked(at, limit, results)
			if err != nil || limit > 0 && len(page) > limit || len(page) > search.RankWindow || len(page) == 0 && n > 0 && len(got) < n-len(gone) {
				t.Fatalf("%d results, %v", len(page), err)
			}
			got = append(got, keys(page)...)
			if next == (search.Place{}) {
				break
			}
			if at, err = search.ParsePlace(next.String()); err != nil || at != next {
				t.Fatalf("%q is read as %+v, %v", next, at, err)
			}
			there = append(there, search.Result{Key: search.Key{Time: 1 << 40, ID: "later", Seq: session.Seq(len(got))}, Score: 1 << 40})
			slices.SortFunc(there, inOrder)
			if len(there) > 0 && rapid.Bool().Draw(t, "goes") { // one of those that were not shown, or a stretch of them
				from := rapid.IntRange(0, len(there)-1).Draw(t, "which")
				to := min(len(there), from+rapid.SampledFrom([]int{1, 1, 300}).Draw(t, "how many"))
				for _, r := range there[from:to] {
					gone[r.Key] = true
				}
				there = slices.Delete(there, from, to)
			}
		}
		seen := map[search.Key]bool{}
		for _, k := range got {
			if seen[k] || k.ID == "later" {
				t.Fatalf("%v is shown twice, or came later", k)
			}
			seen[k] = true
		}
		want = slices.DeleteFunc(want, func(k search.Key) bool { return gone[k] && !seen[k] })
		// Where a window lost some before it was begun the next one reaches further: then only what is found is compared.
		if len(gone) > 0 {
			slices.SortFunc(want, search.Key.Compare)
			slices.SortFunc(got, search.Key.Compare)
		}
		if d := gocmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestPlaces(t *testing.T) {
	key := "5.7.abcd"
	for _, s := range []string{"1/2", "x/" + key + "/" + key + "/" + key, "1/" + key + "/" + key, "1/" + key + "//" + key, "1/" + key + "/" + key + "/" + key + "/", "/"} {
		if p, err := search.ParsePlace(s); !errors.Is(err, store.ErrCursor) {
			t.Errorf("%q: %v, %v", s, p, err)
		}
	}
	s := "1/" + key + "/" + key + "/" + key
	if _, err := search.ParseKey(s); !errors.Is(err, store.ErrCursor) {
		t.Errorf("a place passes for a key: %v", err)
	}
	why := errors.New("why")
	_, _, err := search.Ranked(search.Place{}, 0, func(search.Key, int) iter.Seq2[search.Result, error] {
		return func(yield func(search.Result, error) bool) { yield(search.Result{}, why) }
	})
	if err != why {
		t.Errorf("%v", err)
	}
}
