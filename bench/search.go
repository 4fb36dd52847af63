package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/index"
	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
)

// searches measures the index of a search beside a scan of the same logs.
func (r *run) searches(ctx context.Context) error {
	for _, n := range r.Messages {
		if err := r.search(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// sessionMessages is how many messages each session has that is searched.
const sessionMessages = 200

func (r *run) search(ctx context.Context, n int) error {
	root := filepath.Join(r.root, fmt.Sprintf("search-%d", n))
	defer os.RemoveAll(root)
	lex := newLexicon(20_000)
	// A turn has three messages and 5,500 bytes, as conversation counts them.
	part := Part{max(n/sessionMessages, 1), sessionMessages / 3 * 5500, session.KindRoot, lex.text}
	if err := Populate(ctx, root, "/bench", []Part{part}, nil); err != nil {
		return err
	}
	logs, err := dirBytes(filepath.Join(root, "sessions"))
	if err != nil {
		return err
	}
	st, err := filestore.Open(root, filestore.Options{Now: time.Now, Rand: rand.Reader})
	if err != nil {
		return err
	}
	defer st.Close()
	path := filepath.Join(root, "index.db")
	open := func() *index.Index {
		return index.Open(index.Options{Path: path, Store: st, Registry: session.Core(), Now: time.Now})
	}
	const page = 20
	find := func(x *index.Index, query string) (time.Duration, error) {
		q, err := search.Parse(query)
		begin := time.Now()
		for _, e := range x.Search(ctx, q, search.Filter{}, page, search.Watch{}) {
			if err == nil {
				err = e
			}
		}
		return time.Since(begin), err
	}
	scan := func(query string) (time.Duration, error) {
		q, err := search.Parse(query)
		begin := time.Now()
		for _, e := range search.Scan(ctx, st, q, search.Filter{}, page, search.Watch{}) {
			if err == nil {
				err = e
			}
		}
		return time.Since(begin), err
	}
	took, err := scan(lex.word(500))
	if err != nil {
		return err
	}
	row := func(what string, v float64, unit string, raw float64, note string) {
		r.emit(Row{Work: what, Size: n, Value: v, Unit: unit, Raw: raw, Note: note})
	}
	x := open()
	defer func() { x.Close() }()
	first, err := find(x, lex.word(500))
	if err != nil {
		return err
	}
	row("search, no index yet: all is taken in", ms(first), "ms", ms(took), fmt.Sprintf("raw: a scan of the same logs, %.0f MB", float64(logs)/1e6))
	for range 2 { // directories that are younger than two seconds are not believed
		time.Sleep(time.Second) // for that reason alone
		if _, err := find(x, lex.word(500)); err != nil {
			return err
		}
	}
	for _, c := range lex.queries() {
		var all []time.Duration
		for _, q := range c.queries {
			took, err := find(x, q)
			if err != nil {
				return err
			}
			all = append(all, took)
		}
		row("search, newest 20, "+c.what+", p50", quantile(all, 0.5)/1e3, "ms", ms(took), "")
		row("search, newest 20, "+c.what+", p99", quantile(all, 0.99)/1e3, "ms", ms(took), fmt.Sprintf("of %d queries", len(all)))
	}
	if err := x.Close(); err != nil {
		return err
	}
	var opened []time.Duration
	for range 5 {
		x = open()
		t, err := find(x, lex.word(700))
		if err != nil {
			return err
		}
		opened = append(opened, t)
		if err := x.Close(); err != nil {
			return err
		}
	}
	row("search, index just opened, p50", quantile(opened, 0.5)/1e3, "ms", ms(took), "verifies the whole index; without the start of the process")
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	row("search, bytes of index per byte of log", float64(info.Size())/float64(logs), "", 0, "")
	return nil
}

// lexicon is a vocabulary whose words are as frequent as those of a language: the n-th about 1/n as often as the first.
type lexicon struct {
	words []string
	cum   []float64
}

func newLexicon(n int) *lexicon {
	rng := mrand.New(mrand.NewPCG(uint64(n), 11))
	const cons, vow = "bcdfghklmnprstvw", "aeiou"
	l := &lexicon{}
	seen := map[string]bool{}
	sum := 0.0
	for i := 0; len(l.words) < n; i++ {
		var b strings.Builder
		for range 1 + min(len(l.words)/60, 1) + rng.IntN(3) { // frequent words are short
			b.WriteByte(cons[rng.IntN(len(cons))])
			b.WriteByte(vow[rng.IntN(len(vow))])
			if rng.IntN(3) == 0 {
				b.WriteByte(cons[rng.IntN(len(cons))])
			}
		}
		if w := b.String(); !seen[w] {
			seen[w] = true
			l.words = append(l.words, w)
			sum += 1 / (float64(len(l.words)) + 2.7)
			l.cum = append(l.cum, sum)
		}
	}
	return l
}

func (l *lexicon) word(rank int) string { return l.words[rank] }

// text returns n words.
func (l *lexicon) text(rng *mrand.Rand, n int) string {
	var b strings.Builder
	for range n {
		at := rng.Float64() * l.cum[len(l.cum)-1]
		i, _ := slices.BinarySearch(l.cum, at)
		b.WriteString(l.words[i])
		b.WriteByte(' ')
	}
	return b.String()
}

type queryClass struct {
	what    string
	queries []string
}

// queries are what is asked: each class 100 times.
func (l *lexicon) queries() []queryClass {
	rng := mrand.New(mrand.NewPCG(5, 13))
	const each = 100
	make := func(what string, f func() string) queryClass {
		c := queryClass{what: what}
		for range each {
			c.queries = append(c.queries, f())
		}
		return c
	}
	between := func(from, to int) string { return l.words[from+rng.IntN(to-from)] }
	n := len(l.words)
	return []queryClass{
		make("one of the 50 most frequent words", func() string { return between(0, 50) }),
		make("a word of rank 100 to 2,000", func() string { return between(100, 2000) }),
		make("a rare word", func() string { return between(n/2, n) }),
		make("two frequent words", func() string { return between(0, 50) + " " + between(0, 50) }),
		make("a frequent and a rare word", func() string { return between(0, 50) + " " + between(n/2, n) }),
		make("a phrase of two frequent words", func() string { return `"` + between(0, 50) + " " + between(0, 50) + `"` }),
		make("the beginning of a word", func() string { return between(100, 2000)[:3] + "*" }),
		make("a part of a word", func() string { w := between(100, 2000); return "*" + w[1:] + "*" }),
		make("three signs within words", func() string { return "*" + between(100, 2000)[:3] + "*" }),
		make("a word that nobody said", func() string { return between(0, n) + "qx" }),
	}
}
