package agent

import (
	"strings"
	"unicode"

	"github.com/strandline-dev/strandline/message"
)

// maxTitle is the longest fallback title, in runes.
const maxTitle = 60

// fallbackTitle makes a title of a human's first message: one line without control and direction marks,
// cut at a word. It is "" when nothing readable is left.
func fallbackTitle(m message.Message) string {
	text := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs), r == unicode.ReplacementChar:
			return -1 // Cf holds the direction marks and the invisible joiners
		}
		return r
	}, m.PlainText())
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
