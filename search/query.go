package search

import (
	"fmt"
	"strings"
)

// The most that a query may hold: what is longer is no question, and costs each text its length.
const (
	MaxQueryBytes = 4 << 10
	maxUnits      = 256
)

// QueryError says why something is no query.
type QueryError struct{ Why, Hint string }

func (e *QueryError) Error() string { return e.Why + "; " + e.Hint }

// Query is what is looked for: events in whose texts every term is found. The zero Query finds nothing.
type Query struct {
	text  string
	terms []Term
}

// String returns the query as it was typed.
func (q Query) String() string { return q.text }

// Terms returns the terms; they are shared and must not be changed.
func (q Query) Terms() []Term { return q.terms }

// Term is a run of words that have to follow each other in one text, whatever stands between them that is no word.
type Term struct {
	Words []string // folded
	// OpenLeft: the first word may begin before what was asked for; OpenRight: the last one may go on behind it.
	// Neither is set for a word that is one sign of a script without spaces: there every run of signs is found.
	OpenLeft, OpenRight bool
}

// Parse reads a query.
//
//	word           the whole word, in any case, with or without accents
//	"two words"    these words behind each other; so do path/to.go and snake_case, and a run of signs of a script
//	               that is written without spaces
//	begin*         words that begin so
//	*middle*       words that contain it; *end: words that end so
//
// Terms are separated by white space and all have to be found in the texts of one event, in any order. Everything else is
// separation, as in texts; a quote that is not closed ends with the query. Nothing else has a meaning: there are no operators.
func Parse(text string) (Query, error) {
	if len(text) > MaxQueryBytes {
		return Query{}, &QueryError{fmt.Sprintf("it has %d bytes, the most is %d", len(text), MaxQueryBytes), "look for a part of it"}
	}
	q := Query{text: text}
	n := 0
	for _, chunk := range chunks(text) {
		if t, ok := parseTerm(chunk); ok {
			q.terms = append(q.terms, t)
			n += len(t.Words)
		}
	}
	switch {
	case n == 0:
		return Query{}, &QueryError{"there is no word in it", "give a word, a \"phrase\" or the beginning of a word and *"}
	case n > maxUnits:
		return Query{}, &QueryError{fmt.Sprintf("it has %d words, the most is %d", n, maxUnits), "look for a part of it"}
	}
	return q, nil
}

// chunks splits text at white space that is not quoted. The quotes stay.
func chunks(text string) []string {
	var out []string
	var b strings.Builder
	quoted := false
	flush := func() {
		if b.Len() > 0 {
			out = append(out, b.String())
			b.Reset()
		}
	}
	for _, r := range text {
		switch {
		case r == '"':
			quoted = !quoted
			b.WriteRune(r)
			if !quoted {
				continue
			}
		case !quoted && (r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == '\v' || r == '\f' || r == 0x85 || r == 0xa0 || r == 0x3000):
			flush()
		default:
			b.WriteRune(r)
		}
	}
	flush()
	return out
}

// parseTerm reads one chunk; not ok: there is no word in it.
func parseTerm(chunk string) (Term, bool) {
	var t Term
	var first, last bool // written without spaces
	Units(chunk, func(u Unit) bool {
		if len(t.Words) == 0 {
			first = u.single
		}
		last = u.single
		t.Words = append(t.Words, strings.Clone(u.Folded))
		return true
	})
	if len(t.Words) == 0 {
		return t, false
	}
	left := chunk[:len(chunk)-len(strings.TrimLeft(chunk, `"*`))]
	right := chunk[len(strings.TrimRight(chunk, `"*`)):]
	t.OpenLeft = !first && strings.Contains(left, "*")
	t.OpenRight = !last && strings.Contains(right, "*")
	return t, true
}

// Hit is a place in a text where a term was found. It covers whole words.
type Hit struct {
	Term       int // index in Terms
	Start, End int // in bytes
}

// maxHits is how many places of a term Match tells of in one text: enough to mark them.
const maxHits = 16

// Match returns where the terms of q are in text: of each the first places, in the order in which they end. It is what
// decides, whoever proposes the text.
func Match(q Query, text string) []Hit {
	if len(q.terms) == 0 {
		return nil
	}
	type begun struct{ start, next int }
	open := make([][]begun, len(q.terms)) // phrases that are being followed
	count := make([]int, len(q.terms))
	full := 0
	var hits []Hit
	Units(text, func(u Unit) bool {
		for i, t := range q.terms {
			if count[i] == maxHits {
				continue
			}
			kept := open[i][:0]
			found := -1
			for _, b := range open[i] {
				switch {
				case !t.fits(b.next, u.Folded):
				case b.next+1 == len(t.Words):
					found = b.start
				default:
					kept = append(kept, begun{b.start, b.next + 1})
				}
			}
			if t.fits(0, u.Folded) {
				if len(t.Words) == 1 {
					found = u.Start
				} else {
					kept = append(kept, begun{u.Start, 1})
				}
			}
			open[i] = kept
			if found >= 0 {
				hits = append(hits, Hit{i, found, u.End})
				if count[i]++; count[i] == maxHits {
					full++
				}
			}
		}
		return full < len(q.terms)
	})
	return hits
}

// fits reports whether word can stand for the i-th word of the term.
func (t Term) fits(i int, word string) bool {
	w := t.Words[i]
	left := t.OpenLeft && i == 0
	right := t.OpenRight && i == len(t.Words)-1
	switch {
	case left && right:
		return strings.Contains(word, w)
	case left:
		return strings.HasSuffix(word, w)
	case right:
		return strings.HasPrefix(word, w)
	}
	return word == w
}

// Found is where the terms are in the texts of an event: Found[i] are the hits in texts[i]. Nil if one of them is in none.
func Found(q Query, texts []Text) [][]Hit {
	out := make([][]Hit, len(texts))
	have := make([]bool, len(q.terms))
	n := 0
	for i, t := range texts {
		out[i] = Match(q, t.Text)
		for _, h := range out[i] {
			if !have[h.Term] {
				have[h.Term] = true
				n++
			}
		}
	}
	if n == 0 || n < len(q.terms) {
		return nil
	}
	return out
}
