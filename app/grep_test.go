package app_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// place is an event with what is searched of it.
type place struct {
	at    string
	texts []string
}

func (p place) ascii() bool {
	for _, t := range p.texts {
		for i := range len(t) {
			if t[i] >= 0x80 {
				return false
			}
		}
	}
	return true
}

// A search of real sessions finds what reading all logs finds, and of simple words what grep finds in their texts.
func TestSearchEqualsGrep(t *testing.T) {
	corpus := ""
	for _, up := range []string{"../..", "../../.."} {
		if dir := filepath.Join(up, "shared", "corpus"); corpus == "" {
			if _, err := os.Stat(dir); err == nil {
				corpus = dir
			}
		}
	}
	if corpus == "" {
		t.Skip("the corpus is not here")
	}
	a := open(t)
	plan, err := a.PlanImport(t.Context(), []string{corpus}, app.FromAuto, false)
	if err != nil {
		t.Fatal(err)
	}
	imported := 0
	if err := a.Import(t.Context(), plan, nil, func(i app.Imported) error {
		if i.Error == nil {
			imported++
		}
		return nil
	}); err != nil || imported == 0 {
		t.Fatal(imported, err)
	}
	page, err := a.Store.(store.Lister).List(t.Context(), store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var places []place
	for _, target := range search.Targets(page.Rows) {
		var names search.Names
		if err := search.Each(t.Context(), a.Store, target, func(p session.Prefix, ev session.Event) error {
			texts, err := names.Texts(ev, p, target.From)
			pl := place{at: fmt.Sprint(target.Header.ID, " ", ev.Seq)}
			for _, x := range texts {
				pl.texts = append(pl.texts, strings.Clone(x.Text))
			}
			places = append(places, pl)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	found := func(query string) (at, lines []string) {
		at, lines = []string{}, []string{}
		end, err := a.Search(t.Context(), app.SearchQuery{Text: query}, nil, func(m app.Match) error {
			at = append(at, fmt.Sprint(m.ID, " ", m.Seq))
			lines = append(lines, fmt.Sprint(m.Time, " ", m.ID, " ", m.Seq, " ", m.Field, " ", m.Tool, " ", m.Snippet))
			return nil
		})
		if err != nil || len(end.Incomplete) > 0 {
			t.Fatalf("%q: %v, %v", query, end.Incomplete, err)
		}
		return at, lines
	}
	scanned := func(query string) []string {
		lines := []string{}
		q, err := search.Parse(query)
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range search.Scan(t.Context(), a.Store, q, search.Filter{}, 0, search.Watch{}) {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprint(r.Time, " ", r.ID, " ", r.Seq, " ", r.Field, " ", r.Tool, " ", r.Snippet.Marked("«", "»")))
		}
		return lines
	}
	rng := rand.New(rand.NewPCG(1, 2))
	simple, signs := regexp.MustCompile(`\b[A-Za-z]{3,12}\b`), regexp.MustCompile(`\S+`)
	from := func(of *regexp.Regexp) []string { // some adjacent parts of a text
		for {
			p := places[rng.IntN(len(places))]
			if len(p.texts) == 0 {
				continue
			}
			text := p.texts[rng.IntN(len(p.texts))]
			if len(text) > 20_000 {
				text = strings.ToValidUTF8(text[:20_000], "")
			}
			if all := of.FindAllString(text, -1); len(all) > 2 {
				i := rng.IntN(len(all) - 2)
				return all[i : i+3]
			}
		}
	}
	for range 60 {
		word := from(simple)[0]
		const part = `[\p{L}\p{N}\p{M}\p{Cf}\p{Co}]`
		re := regexp.MustCompile(`(?i)` + word)
		edge := regexp.MustCompile(part)
		var want []string
		loose := map[string]bool{} // where folding may find more than grep
		for _, p := range places {
			loose[p.at] = !p.ascii()
			for _, text := range p.texts {
				hit := slices.ContainsFunc(re.FindAllStringIndex(text, -1), func(h []int) bool {
					before, after := []rune(text[max(h[0]-4, 0):h[0]]), []rune(text[h[1]:min(h[1]+4, len(text))])
					return (len(before) == 0 || !edge.MatchString(string(before[len(before)-1]))) && (len(after) == 0 || !edge.MatchString(string(after[0])))
				})
				if hit {
					want = append(want, p.at)
					break
				}
			}
		}
		got, _ := found(word)
		got = slices.DeleteFunc(got, func(at string) bool { return loose[at] && !slices.Contains(want, at) })
		slices.Sort(got)
		slices.Sort(want)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: grep (-) and search (+) differ: %s", word, d)
		}
	}
	hits := 0
	for i := range 14 {
		w := from(signs)
		query := w[0]
		switch part := []rune(strings.Trim(w[1], `"*`)); i % 7 {
		case 1:
			query = `"` + strings.ReplaceAll(strings.Join(w, " "), `"`, " ") + `"`
		case 2:
			query = "*" + string(part[len(part)/4:len(part)-len(part)/4]) + "*"
		case 3:
			query = string(part[:len(part)/2+len(part)%2]) + "*"
		case 4:
			query = w[0] + " " + w[2]
		case 5:
			query = "*" + string(part[len(part)/2:])
		case 6:
			query = strings.Repeat("q", 1+rng.IntN(3)) + string(rune('a'+rng.IntN(26))) + "*" // perhaps nowhere
		}
		if _, err := search.Parse(query); err != nil {
			continue
		}
		want := scanned(query)
		_, got := found(query)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q: a scan (-) and the index (+) differ: %s", query, d)
		}
		hits += len(want)
	}
	if hits == 0 {
		t.Error("nothing was ever found")
	}
}
