package search

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/strandline-dev/strandline/store"
)

// RankWindow is how many results, newest first, are ranked at a time: what ranks all would have to read all.
const RankWindow = 200

// half is for how many bytes of a text a hit in it counts half.
const half = 2000

// weight is how much a hit in a text of this field counts: what people said is what they remember.
func (f Field) weight() int64 {
	switch f {
	case FieldTitle:
		return 4
	case FieldHuman:
		return 3
	case FieldAssistant:
		return 2
	}
	return 1
}

// score tells how well an event answers q: it is that of its best text. It depends on q and texts alone, so that nobody who
// finds the same ranks it in another way, now or later; and it is a whole number, which every machine reckons alike.
func score(q Query, texts []Text, found [][]Hit) int64 {
	best := int64(0)
	count := make([]int64, len(q.terms))
	for i, hits := range found {
		clear(count)
		for _, h := range hits {
			count[h.Term]++
		}
		sum := int64(0)
		for t, n := range count { // each hit more adds less
			sum += int64(len(q.terms[t].Words)) * 1000 * n * half / ((n+1)*half + int64(len(texts[i].Text)))
		}
		best = max(best, texts[i].Field.weight()*sum)
	}
	return best
}

// byRank orders results best first, and newest first where they are equally good.
func byRank(a, b Result) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), a.Compare(b.Key))
}

// Place is where a page of ranked results begins. The zero Place is the beginning.
type Place struct {
	After Key   // the window lies behind it in the order of results,
	Last  Key   // and ends with this one; zero: it ends where there are RankWindow results, and nothing of it was shown
	Score int64 // what was shown of the window ranks no later than this score
	Shown Key   // and this result
}

// String returns what ParsePlace reads; "" for the zero Place. That of a window of which nothing was shown is that of its After.
func (p Place) String() string {
	if p.Last == (Key{}) {
		return p.After.String()
	}
	return fmt.Sprintf("%d/%s/%s/%s", p.Score, p.Shown, p.After, p.Last)
}

// ParsePlace reads a cursor; that of an order without ranks is one too. What is none is store.ErrCursor.
func ParsePlace(s string) (Place, error) {
	rank, keys, shown := strings.Cut(s, "/")
	if !shown {
		k, err := ParseKey(s)
		return Place{After: k}, err
	}
	p := Place{}
	into := []*Key{&p.Shown, &p.After, &p.Last}
	parts := strings.Split(keys, "/")
	n, err := strconv.ParseInt(rank, 10, 64)
	if err != nil || len(parts) != len(into) {
		return Place{}, fmt.Errorf("search: %q: %w", s, store.ErrCursor)
	}
	p.Score = n
	for i, part := range parts {
		if *into[i], err = ParseKey(part); err == nil && part == "" {
			err = fmt.Errorf("search: %q: %w", s, store.ErrCursor)
		}
		if err != nil {
			return Place{}, err
		}
	}
	return p, nil
}

// Ranked returns a page of at most limit results (0: the rest of the window), best first, and where the next page begins; the
// zero Place if that was all. Pages go through the newest RankWindow results, then through as many behind them, and so on: a page ends
// with its window. A window keeps its ends and a result its rank, so that pages neither repeat nor skip a result that is there all the while.
// results has to yield what comes behind after, newest first, and may stop at limit (0: no limit). Its first error ends it.
func Ranked(at Place, limit int, results func(after Key, limit int) iter.Seq2[Result, error]) ([]Result, Place, error) {
	most := 0
	if at.Last == (Key{}) {
		most = RankWindow + 1 // one more tells whether there is more
	}
	var page []Result
	next := at
	n, more := 0, false
	for r, err := range results(at.After, most) {
		if err != nil {
			return nil, Place{}, err
		}
		if at.Last == (Key{}) && n == RankWindow || at.Last != (Key{}) && at.Last.Compare(r.Key) < 0 {
			if more = len(page) > 0; more {
				break
			}
			at, n = Place{}, 0 // nothing is left of this window: here the next one begins
		}
		if n++; at.Last == (Key{}) {
			if n == 1 { // right before r: what is newer does not come into the window
				next.After = Key{r.Time, r.ID, r.Seq + 1}
			}
			next.Last = r.Key
		} else if byRank(r, Result{Key: at.Shown, Score: at.Score}) <= 0 {
			continue
		}
		page = append(page, r)
	}
	slices.SortFunc(page, byRank)
	if limit > 0 && len(page) > limit {
		page = page[:limit:limit]
		last := page[limit-1]
		next.Score, next.Shown = last.Score, last.Key
		return page, next, nil
	}
	if more {
		return page, Place{After: next.Last}, nil
	}
	return page, Place{}, nil
}
