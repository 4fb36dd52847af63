package brief

import (
	"strconv"
	"strings"
)

// Visible writes out what in a text does something to its reader's screen, or hides from the reader (Hostile), as \u202e and
// the like. Line ends, tabs and all that writing needs stay.
func Visible(s string) string {
	bad := func(r rune) bool { return Hostile(r) || r == '\uFFFD' }
	if strings.IndexFunc(s, bad) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if bad(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Hostile reports whether a rune does something to a terminal, or hides from a reader. Joiners and the marks
// of right-to-left scripts are needed to write and are not.
func Hostile(r rune) bool {
	switch {
	case r < 0x20:
		return r != '\n' && r != '\t'
	case r >= 0x7f && r < 0xa0: // delete and C1
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // reorder what follows
		return true
	case r >= 0x2028 && r <= 0x2029, r == 0x200b, r >= 0x2060 && r <= 0x2064, r == 0xfeff: // separate, or are not seen
		return true
	}
	return r >= 0xe0000 && r <= 0xe007f // tags: text that nobody sees
}
