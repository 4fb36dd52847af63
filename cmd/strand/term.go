package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// styles of text on a terminal.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// paint colours s when stdout may be coloured.
func (c *cli) paint(style, s string) string { return paintIf(c.outTerm && c.colours(), style, s) }

// paintErr colours s when stderr may be coloured.
func (c *cli) paintErr(style, s string) string { return paintIf(c.errTerm && c.colours(), style, s) }

func (c *cli) colours() bool {
	return !c.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func paintIf(on bool, style, s string) string {
	if !on || s == "" {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

// safe makes text from a log harmless for a terminal: what would move the cursor, change the terminal or make
// the reader see another order than the text has is shown as a placeholder. Line ends and tabs stay.
func safe(s string) string {
	return strings.Map(func(r rune) rune {
		if hostile(r) {
			return '\uFFFD'
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// visible is safe for a text that a person decides on: what safe would hide is written out.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if hostile(r) || r == '\uFFFD' {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// escaped is JSON with what is hostile in its strings escaped: the value is the same.
func escaped(b []byte) []byte {
	if bytes.IndexFunc(b, hostile) < 0 {
		return b
	}
	out := make([]byte, 0, len(b)+64)
	for _, r := range string(b) {
		switch {
		case !hostile(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// hostile reports whether a rune does something to a terminal, or hides from a reader. Joiners and the marks
// of right-to-left scripts are needed to write and stay.
func hostile(r rune) bool {
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

// safeLine is safe for a text that has to stay on one line.
func safeLine(s string) string { return oneLine(safe(s)) }
