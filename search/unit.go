package search

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// class says what a rune is to a text.
type class uint8

const (
	gap      class = iota // between words
	letter                // part of a word
	single                // a word by itself: of a script that is written without spaces, or a symbol
	follower              // belongs to what stands before it: marks, invisible signs
)

// unspaced are the scripts whose words are not told apart by spaces: each of their signs is a word.
var unspaced = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
	unicode.Tai_Le, unicode.New_Tai_Lue, unicode.Tai_Tham,
}

func classOf(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return letter
		}
		return gap
	case 0x4e00 <= r && r <= 0x9fff, 0x3041 <= r && r <= 0x3096, 0x30a1 <= r && r <= 0x30fa: // the common ones first
		return single
	case 0xc0 <= r && r <= 0x24f && r != '×' && r != '÷', 0x400 <= r && r <= 0x481:
		return letter
	case r == utf8.RuneError:
		return gap
	case unicode.Is(unicode.M, r), unicode.Is(unicode.Cf, r), r == 'ﾞ', r == 'ﾟ':
		return follower
	case r == 'ー', r == 'ｰ', unicode.In(r, unspaced...), unicode.Is(unicode.So, r):
		return single
	case unicode.IsLetter(r), unicode.IsNumber(r), unicode.Is(unicode.Co, r):
		return letter
	}
	return gap
}

// Unit is a word of a text: a run of letters and digits, or one sign of a script that is written without spaces, or
// one symbol, with the marks on it.
type Unit struct {
	Folded     string // what is compared; valid only until the next unit
	Start, End int    // in bytes, of the text
	single     bool
}

// Units calls f with the words of text, in order, until f returns false.
func Units(text string, f func(Unit) bool) {
	var buf []byte
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		c := classOf(r)
		if c == gap {
			i += n
			continue
		}
		u := Unit{Start: i, single: c == single}
		plain := r < utf8.RuneSelf
		i += n
		for i < len(text) {
			r, n := utf8.DecodeRuneInString(text[i:])
			if next := classOf(r); next != follower && (u.single || next != letter) {
				break
			}
			plain = plain && r < utf8.RuneSelf
			i += n
		}
		u.End = i
		if plain {
			u.Folded, buf = lower(text[u.Start:u.End], buf)
		} else {
			u.Folded = fold(text[u.Start:u.End])
		}
		if u.Folded != "" && !f(u) {
			return
		}
	}
}

// lower returns the ASCII word s in lower case. buf is used for it.
func lower(s string, buf []byte) (string, []byte) {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			buf = append(buf[:0], s...)
			for ; i < len(buf); i++ {
				if 'A' <= buf[i] && buf[i] <= 'Z' {
					buf[i] += 'a' - 'A'
				}
			}
			return string(buf), buf
		}
	}
	return s, buf
}

// fold makes equal what people take for the same word: compatibility forms (full width, ligatures), accents and
// other marks of Latin, Greek and Cyrillic letters, points of Arabic and Hebrew, upper and lower case (Unicode's simple
// folding, and ß as ss). Marks that make another letter (as in Indic and Japanese scripts) stay. The result holds
// letters, numbers, symbols and marks only, and is in the normal form C.
func fold(s string) string { return folded(s, false) }

// Fold folds a whole text as its words are folded. What parts them stays.
func Fold(text string) string { return folded(text, true) }

func folded(s string, gaps bool) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range norm.NFKD.String(s) {
		switch {
		case dropped(r), !gaps && classOf(r) == gap, unicode.Is(unicode.Cf, r):
		case r == 'ß', r == 'ẞ':
			b.WriteString("ss")
		default:
			b.WriteRune(foldRune(r))
		}
	}
	return norm.NFC.String(b.String())
}

// dropped are the marks that people leave out when they search.
func dropped(r rune) bool {
	switch {
	case 0x300 <= r && r <= 0x36f: // accents
	case 0x591 <= r && r <= 0x5c7: // Hebrew points
	case 0x610 <= r && r <= 0x61a, r == 0x640, 0x64b <= r && r <= 0x65f, r == 0x670: // Arabic vowels, the stretched line
	case 0xfe00 <= r && r <= 0xfe0f, 0xe0100 <= r && r <= 0xe01ef: // variation selectors
	default:
		return false
	}
	return true
}

// foldRune returns the same rune for all that differ in case only.
func foldRune(r rune) rune {
	least := r
	for n := unicode.SimpleFold(r); n != r; n = unicode.SimpleFold(n) {
		least = min(least, n)
	}
	if 'A' <= least && least <= 'Z' {
		least += 'a' - 'A'
	}
	return least
}
