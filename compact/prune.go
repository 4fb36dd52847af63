package compact

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// markerRunes bounds the length of a marker.
const markerRunes = 200

// Shorten returns the blocks of a result with each text of more than PruneOver runes cut to its head and tail, and
// the runes before and after. It is idempotent: what it cut is short enough. ok: something was cut.
func Shorten(content []message.Block, s Settings) (out []message.Block, before, after int, ok bool) {
	s = s.Or(Defaults)
	out = content
	for i, b := range content {
		n := utf8.RuneCountInString(b.Text)
		before += n
		after += n
		if b.Type != message.Text || n <= s.PruneOver {
			continue
		}
		marker := fmt.Sprintf("\n[.. %d signs were taken out here to save room; the log of the session has them. Call the tool again if they matter. ..]\n",
			n-s.PruneHead-s.PruneTail)
		text := b.Text[:runeIndex(b.Text, s.PruneHead)] + marker + b.Text[runeIndex(b.Text, n-s.PruneTail):]
		if utf8.RuneCountInString(text) > s.PruneOver {
			continue // the numbers leave no room for the marker
		}
		if !ok {
			out, ok = slices.Clone(content), true
		}
		out[i].Text = text
		after += utf8.RuneCountInString(text) - n
	}
	return out, before, after, ok
}

// runeIndex is the byte position of rune n.
func runeIndex(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// PruneDrafts returns the drafts that shorten the results among the first n items of the surface: for each a
// compact/prune and the result that replaces it. at reads an event of the log.
func PruneDrafts(items []session.Item, n int, s Settings, turn *int, pruning string, at func(session.Seq) (session.Event, error)) ([]session.Draft, error) {
	var drafts []session.Draft
	for _, it := range items[:min(n, len(items))] {
		if it.Type != session.TypeToolResult {
			continue
		}
		cut := false
		var p Prune
		for _, b := range it.Message.Content {
			_, before, after, ok := Shorten(b.Content, s)
			cut = cut || ok
			p.Runes += before
			p.Kept += after
		}
		if !cut {
			continue
		}
		ev, err := at(it.Seq)
		if err != nil {
			return nil, err
		}
		r, err := session.DecodeData[session.ToolResult](ev)
		if err != nil {
			continue // a stored result that cannot be read says nothing to the model either
		}
		r.Message = r.Message.Clone()
		for i := range r.Message.Content {
			r.Message.Content[i].Content, _, _, _ = Shorten(r.Message.Content[i].Content, s)
		}
		p.Seq, p.Turn, p.Pruning = it.Seq, turn, pruning
		drafts = append(drafts,
			session.Draft{Type: TypePrune, Data: p},
			session.Draft{Type: session.TypeToolResult, Data: r, Op: session.Replace(it.Seq, it.Seq), Sources: session.Cite(it.Seq)})
	}
	return drafts, nil
}
