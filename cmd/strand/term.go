package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/brief"
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
		if brief.Hostile(r) {
			return '\uFFFD'
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// escaped is JSON with what is hostile in its strings escaped: the value is the same.
func escaped(b []byte) []byte {
	if bytes.IndexFunc(b, brief.Hostile) < 0 {
		return b
	}
	out := make([]byte, 0, len(b)+64)
	for _, r := range string(b) {
		switch {
		case !brief.Hostile(r):
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

// safeLine is safe for a text that has to stay on one line.
func safeLine(s string) string { return oneLine(safe(s)) }
