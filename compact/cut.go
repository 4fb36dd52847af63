package compact

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/meter"
)

// fit returns messages of at most most tokens, estimated: long texts lose their middle, all beyond the same length, and
// where that is not enough images give way to a word. It is for a request for a summary whose span has no end that
// the model has room for: nobody could ever sum up such a span whole. The messages themselves stay as they are.
func fit(ms []message.Message, most int64) []message.Message {
	longest := 0
	eachText(ms, func(s string) { longest = max(longest, utf8.RuneCountInString(s)) })
	var out []message.Message
	for _, images := range []bool{true, false} {
		low, high := 0, longest // a bound that fits, as far as any does; one that may not
		for low < high {
			mid := (low + high + 1) / 2
			if meter.Messages(shortened(ms, mid, images)) <= most {
				low = mid
			} else {
				high = mid - 1
			}
		}
		if out = shortened(ms, low, images); meter.Messages(out) <= most {
			break
		}
	}
	return out
}

// eachText calls f with every text that shortened may cut.
func eachText(ms []message.Message, f func(string)) {
	var walk func([]message.Block)
	walk = func(bs []message.Block) {
		for _, b := range bs {
			f(b.Text)
			f(b.Arguments)
			walk(b.Content)
		}
	}
	for _, m := range ms {
		walk(m.Content)
	}
}

// shortened returns messages whose texts have n runes and a marker at most.
func shortened(ms []message.Message, n int, images bool) []message.Message {
	out := slices.Clone(ms)
	for i := range out {
		blocks, cut := shortBlocks(out[i].Content, n, images)
		if cut {
			out[i].Content = blocks
			out[i].Source.ReplayState = nil // it tells the whole
		}
	}
	return out
}

func shortBlocks(bs []message.Block, n int, images bool) (out []message.Block, cut bool) {
	out = bs
	for i, b := range bs {
		was, did := b, false
		switch b.Type {
		case message.Image:
			if did = !images; did {
				b = message.TextBlock("[an image is left out here]")
			}
		case message.ToolCall:
			if left := utf8.RuneCountInString(b.Arguments); left > n+markerRunes {
				b.Arguments, did = fmt.Sprintf(`{"leftOut":"%d signs"}`, left), true
			}
		case message.ToolResult:
			b.Content, did = shortBlocks(b.Content, n, images)
		case message.Reasoning:
			if text, ok := shortText(b.Text, n); ok { // what signs it signs all of it
				b, did = message.TextBlock(text), true
			}
		default:
			b.Text, did = shortText(b.Text, n)
		}
		if !did {
			continue
		}
		if !cut {
			out, cut = slices.Clone(bs), true
		}
		b.Extra = was.Extra
		out[i] = b
	}
	return out, cut
}

// shortText keeps about three quarters of n runes from the head of a text, and a quarter from its end.
func shortText(s string, n int) (string, bool) {
	size := utf8.RuneCountInString(s)
	if size <= n+markerRunes {
		return s, false
	}
	tail := n / 4
	return fmt.Sprintf("%s\n[.. %d signs are left out here: all of it is more than can be read at once ..]\n%s",
		s[:runeIndex(s, n-tail)], size-n, s[runeIndex(s, size-tail):]), true
}
