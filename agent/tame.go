package agent

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// tame makes what a model service said acceptable to the log, so that nonsense beside an answer never costs the
// answer: counts that are none become unknown (or 0 where the log has to have one), and data that no log could
// give back is left out. Texts and calls are valid already.
func tame(r *llm.Reply) {
	if r.Usage != nil {
		u := *r.Usage
		u.InputTokens, u.OutputTokens = max(u.InputTokens, 0), max(u.OutputTokens, 0)
		if u.InputTokens > maxCount {
			u.InputTokens = 0
		}
		if u.OutputTokens > maxCount {
			u.OutputTokens = 0
		}
		for _, n := range []**int64{&u.CacheReadTokens, &u.CacheWriteTokens, &u.ReasoningTokens} {
			if *n != nil && (**n < 0 || **n > maxCount) {
				*n = nil
			}
		}
		u.Extra = storable(u.Extra)
		r.Usage = &u
	}
	r.ResponseID = validText(r.ResponseID)
	r.ReplayState = storable(r.ReplayState)
	r.Content = slices.Clone(r.Content)
	for i := range r.Content {
		tameBlock(&r.Content[i])
	}
}

func tameBlock(b *message.Block) {
	for _, s := range []*string{(*string)(&b.Type), &b.Text, &b.Signature, &b.Blob, &b.URL, &b.MediaType, &b.ID, &b.Name, &b.Arguments, &b.ToolCallID} {
		*s = validText(*s)
	}
	b.Extra = storable(b.Extra)
	b.Content = slices.Clone(b.Content)
	for i := range b.Content {
		tameBlock(&b.Content[i])
	}
}

// maxCount is more tokens than anybody was ever billed for. Sums of such counts stay exact.
const maxCount = 1 << 40

// storable returns v if an event can hold it, else nothing.
func storable(v jsontext.Value) jsontext.Value {
	if len(v) == 0 {
		return nil
	}
	if _, err := session.CheckData([]byte(strings.Join([]string{`{"v":`, string(v), `}`}, ""))); err != nil {
		return nil
	}
	return v
}
