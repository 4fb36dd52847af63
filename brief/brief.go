// Package brief makes short texts of long ones, for one line of a list: the title of a session that has none, and what is cut
// to fit. What a reader sees as one sign is not cut in half: an emoji of several parts, a flag, a letter with its marks. And it
// knows which signs a reader must not meet raw.
package brief

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"

	"github.com/strandline-dev/strandline/message"
)

// maxTitle is the longest title that a message gives, in runes.
const maxTitle = 60

const (
	nonJoiner = '\u200c' // parts letters within a word, in Persian and Indic scripts
	joiner    = '\u200d' // makes one emoji of several, and shapes letters
)

// unspaced are scripts whose words follow each other without a space.
var unspaced = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

// Title makes a title of a human's first message, for a session that has none (TitleOf). It is "" when nothing readable is
// left, or nobody said it.
func Title(m message.Message) string {
	if m.Source.Kind != message.SourceUser {
		return ""
	}
	return TitleOf(m.PlainText())
}

// TitleOf makes a title of a text: one line of at most 60 runes without control and direction marks, cut at a word, or between
// two signs where that is none. It is "" when nothing readable is left. It reads no more of the text than it needs.
func TitleOf(text string) string {
	var out []rune
	fit := 0 // the end of the last word behind which there is room for the mark that something is missing
	for word := range words(text) {
		if len(out) < maxTitle {
			fit = len(out)
		}
		if len(out) > 0 {
			out = append(out, ' ')
		}
		if out = append(out, word...); len(out) > maxTitle {
			if fit > 0 && !unicode.In(out[maxTitle-1], unspaced...) {
				return string(out[:fit]) + "…"
			}
			break
		}
	}
	return Clip(string(out), maxTitle)
}

// words yields the words of a text without what is not seen; of a word that is longer than a title only its beginning, and
// nothing behind it. A word is good until the next one.
func words(text string) iter.Seq[[]rune] {
	return func(yield func([]rune) bool) {
		var word []rune
		var join rune // stands before the next rune of the word, if there is one
		for _, r := range text {
			switch {
			case unicode.IsSpace(r):
				if len(word) > 0 && !yield(word) {
					return
				}
				word, join = word[:0], 0
			case r == joiner, r == nonJoiner:
				join = r
			case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co), r == unicode.ReplacementChar: // Cf has the direction marks
			case len(word) == 0 && unicode.In(r, unicode.Mn, unicode.Me): // a mark on nothing
			default:
				if join != 0 && len(word) > 0 {
					word = append(word, join)
				}
				join = 0
				if word = append(word, r); len(word) > maxTitle {
					yield(word)
					return
				}
			}
		}
		if len(word) > 0 {
			yield(word)
		}
	}
}

// Clip shortens s to at most n runes, 1 or more, the last of which is then the mark that something is missing. It cuts between two signs; only a
// sign that is longer than that itself is cut.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	used, keep := 0, 0 // runes; bytes that leave room for the mark
	for sign := graphemes.FromString(s); sign.Next(); {
		if used += utf8.RuneCountInString(sign.Value()); used < n {
			keep = sign.End()
		}
		if used <= n {
			continue
		}
		if keep == 0 {
			keep = runes(s, n-1)
		}
		return strings.TrimRight(s[:keep], string([]rune{joiner, nonJoiner})) + "…"
	}
	return s
}

// runes returns how many bytes the first n runes of s have.
func runes(s string, n int) int {
	for i := range s {
		if n--; n < 0 {
			return i
		}
	}
	return len(s)
}
