package tool

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/message"
)

// DefaultLimit is how much text of a result goes to the model, in bytes.
const DefaultLimit = 32 << 10

// Spill keeps a text that is too large for the model and returns a name for it, and what gives it up: release is
// called once if nothing that names it will be recorded. It may be nil.
type Spill func(ctx context.Context, text string) (ref string, release func(), err error)

// limit cuts the text of r to about n bytes. Several text blocks are joined when they have to be cut;
// other blocks stay as they are and follow.
func limit(ctx context.Context, r Result, n int, spill Spill) Result {
	if n <= 0 {
		n = DefaultLimit
	}
	r = validText(r)
	total := 0
	for _, b := range r.Content {
		if b.Type == message.Text {
			total += len(b.Text)
		}
	}
	if total <= n {
		return r
	}
	var texts []string
	var rest []message.Block
	for _, b := range r.Content {
		if b.Type == message.Text {
			texts = append(texts, b.Text)
		} else {
			rest = append(rest, b)
		}
	}
	full := strings.Join(texts, "\n")
	kept := "the rest was not kept"
	if spill != nil {
		if ref, release, err := spill(ctx, full); err != nil {
			kept = "the rest could not be kept"
		} else {
			kept, r.release = "the full text is kept as "+ref, release
		}
	}
	r.Content = append([]message.Block{message.TextBlock(Cut(full, n, kept))}, rest...)
	return r
}

// Cut returns s when it has at most n bytes, else its head and tail, n bytes together, with a line
// between them that says how much is missing, and note. It cuts between runes.
func Cut(s string, n int, note string) string {
	if len(s) <= n {
		return s
	}
	head := runeStart(s, n/2)
	tail := len(s) - (n - n/2)
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	if note != "" {
		note = "; " + note
	}
	return fmt.Sprintf("%s\n\n[... %d of %d bytes are left out here%s. Ask for less, or for a part, to see them ...]\n\n%s",
		s[:head], tail-head, len(s), note, s[tail:])
}

// runeStart returns the last place at or before n where a rune of s starts.
func runeStart(s string, n int) int {
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}

func marshal(v any) (jsontext.Value, error) {
	return json.Marshal(v, json.Deterministic(true))
}
