package message

import (
	"strings"
	"unicode"
)

// maxTitle is the longest title that a message gives, in runes.
const maxTitle = 60

// Title makes a title of a human's first message, for a session that has none (TitleOf). It is "" when nothing readable is
// left, or nobody said it.
func (m Message) Title() string {
	if m.Source.Kind != SourceUser {
		return ""
	}
	return TitleOf(m.PlainText())
}

// TitleOf makes a title of a text: one line without control and direction marks, cut at a word. It is "" when nothing
// readable is left.
func TitleOf(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs), r == unicode.ReplacementChar:
			return -1 // Cf holds the direction marks and the invisible joiners
		}
		return r
	}, text)
	words := strings.Fields(text)
	var out []rune
	for _, w := range words {
		r := []rune(w)
		if len(out) > 0 {
			r = append([]rune{' '}, r...)
		}
		// One rune stays free for the mark that something is missing.
		if len(out)+len(r) > maxTitle-1 {
			if len(out)+len(r) == maxTitle && w == words[len(words)-1] {
				return string(append(out, r...))
			}
			if len(out) == 0 {
				out = r[:maxTitle-1]
			}
			return string(out) + "…"
		}
		out = append(out, r...)
	}
	return string(out)
}
