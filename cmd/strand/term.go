package main

import (
	"os"
	"strings"
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

// safe makes text from a log harmless for a terminal: control characters other than line ends and tabs
// are shown as a placeholder.
func safe(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, s)
}

// safeLine is safe for a text that has to stay on one line.
func safeLine(s string) string { return oneLine(safe(s)) }

// clip shortens s to n signs.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
