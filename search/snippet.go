package search

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// How much a snippet shows, in signs.
const (
	snippetSigns  = 160
	snippetBefore = 48
	longestWord   = 64 // more of a word is cut
	snippetReach  = 4096
)

// Snippet is one line that shows a hit: without line ends, control and direction signs, and whole signs only.
type Snippet struct {
	Text  string
	Marks [][2]int // of Text, in bytes: where terms are, in order and apart
}

// Marked returns the text with open and end around each hit.
func (s Snippet) Marked(open, end string) string {
	var b strings.Builder
	at := 0
	for _, m := range s.Marks {
		b.WriteString(s.Text[at:m[0]] + open + s.Text[m[0]:m[1]] + end)
		at = m[1]
	}
	b.WriteString(s.Text[at:])
	return b.String()
}

// Snip returns the snippet around the first of hits, which lie in text.
func Snip(text string, hits []Hit) Snippet {
	if len(hits) == 0 {
		return snip(text, 0, nil)
	}
	first := hits[0]
	for _, h := range hits {
		if h.Start < first.Start {
			first = h
		}
	}
	return snip(text, backward(text, first.Start, snippetBefore), hits)
}

// backward returns where to begin so that about n signs stand before at: at a word's beginning if there is one.
func backward(text string, at, n int) int {
	from := at
	for range n {
		if from == 0 {
			return 0
		}
		_, size := utf8.DecodeLastRuneInString(text[:from])
		from -= size
	}
	for i := from; i < at; { // behind the next gap
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		if classOf(r) == gap {
			return i
		}
	}
	return from
}

// snip copies what can be shown from text, beginning at from, until there is enough, and marks hits.
func snip(text string, from int, hits []Hit) Snippet {
	marked := func(i int) bool {
		for _, h := range hits {
			if h.Start <= i && i < h.End {
				return true
			}
		}
		return false
	}
	var b strings.Builder
	var s Snippet
	if strings.TrimSpace(text[:from]) != "" {
		b.WriteString("…")
	}
	start := b.Len()
	space, mark := false, -1 // a gap that is not written yet; where the open mark begins
	unmark := func() {
		if mark >= 0 {
			s.Marks = append(s.Marks, [2]int{mark, b.Len()})
			mark = -1
		}
	}
	signs, word, seen := 0, 0, 0
	end := from
	for i, r := range text[from:] {
		if seen++; signs >= snippetSigns || seen > snippetReach {
			break
		}
		i += from
		end = i + utf8.RuneLen(r)
		if r == utf8.RuneError {
			end = i + 1
		}
		in := marked(i)
		if !in {
			unmark()
		}
		switch {
		case unicode.IsSpace(r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r):
			space, word = b.Len() > start, 0
			continue
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != '\u200d' && r != '\u200c' || r == utf8.RuneError:
			continue
		}
		if space {
			b.WriteByte(' ')
			signs++
			space = false
		}
		if word++; word == longestWord+1 {
			b.WriteString("…")
		}
		if word > longestWord {
			continue
		}
		if in && mark < 0 {
			mark = b.Len()
		}
		b.WriteRune(r)
		signs++
	}
	unmark()
	if strings.TrimSpace(text[end:]) != "" && !strings.HasSuffix(b.String(), "…") {
		b.WriteString("…")
	}
	s.Text = b.String()
	return s
}
