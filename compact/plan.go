package compact

import (
	"slices"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
)

// Plan is the span of a surface that a compaction would replace, and what it would leave.
type Plan struct {
	From, To int   // positions on the surface, To not included; From == To: nothing can go
	Tokens   int64 // of the span, estimated
	Head     int64 // of all up to the end of the span: what a request for its summary tells
	Kept     int64 // of what stands behind it
	// Fit is what a request for its summary has to be cut to, in tokens, because nothing less than the span can be
	// told and the span is more than a request may have; 0: it is told whole.
	Fit int64
}

// Empty reports whether there is nothing to compact.
func (p Plan) Empty() bool { return p.From >= p.To }

// Select chooses the span: from the head, behind what is stated again anyway, up to where a tail of at most tail
// tokens begins. It cuts only where no call is separated from its result, never takes a call that is still pending,
// and leaves the newest whole unit always. most bounds the tokens up to the end of the span, so that the request
// that tells them fits; 0: no bound. items are the surface of the log that st was folded from. restated are the
// source plugins of messages that the harness states again by itself.
func Select(items []session.Item, st session.State, restated []string, tail, most int64) Plan {
	legal := cuts(items, st)
	again := func(it session.Item) bool {
		return it.Message.Source.Kind == message.SourcePlugin && slices.Contains(restated, it.Message.Source.Plugin)
	}
	sizes := make([]int64, len(items))
	var all int64
	for i, it := range items {
		sizes[i] = size(it)
		all += sizes[i]
	}
	var p Plan
	for p.From < len(items) && (again(items[p.From]) || sizes[p.From] == 0) {
		p.From++
	}
	newest := len(items) // position of the newest unit: what the harness says behind it (notices, what is stated again) is none
	for i := len(items) - 1; i >= 0; i-- {
		src := items[i].Message.Source
		if sizes[i] > 0 && (src.Kind != message.SourcePlugin || src.Plugin == Plugin) {
			newest = i
			break
		}
	}
	for newest > 0 && !legal[newest] {
		newest--
	}
	var head, told int64 // up to k; up to p.To
	worth := false       // a summary alone is not summarised again
	for k := 0; k <= newest && k <= len(items); k++ {
		if k > 0 {
			it := items[k-1]
			head += sizes[k-1]
			worth = worth || k > p.From && it.Message.Source.Plugin != Plugin && len(it.Message.Content) > 0
		}
		over := most > 0 && head > most
		if over && (most < leastFit || told > most/4) {
			break // what was taken so far is worth its summary, or so little can be told that it would be noise
		}
		if k > p.From && legal[k] && worth {
			p.To, told = k, head
			if over {
				p.Fit = most * fitPart / 100
				break
			}
		}
		if k > p.From && legal[k] && all-head <= tail {
			break
		}
	}
	if p.To <= p.From {
		return Plan{}
	}
	for i, n := range sizes {
		switch {
		case i >= p.To:
			p.Kept += n
			continue
		case i >= p.From:
			p.Tokens += n
		}
		p.Head += n
	}
	return p
}

const (
	// fitPart is the part of what a request may have, in percent, that one is cut to: an estimate of so much may be wrong.
	fitPart = 75
	// leastFit is the least that a cut request has to have room for, in tokens.
	leastFit = 64
)

func size(it session.Item) int64 {
	if len(it.Message.Content) == 0 {
		return 0
	}
	return meter.Message(it.Message)
}

// cuts tells for each position of the surface whether it can be cut before it: no call on the left has its result
// on the right, and none on the left is still pending.
func cuts(items []session.Item, st session.State) []bool {
	type id struct {
		call       string
		turn, step int
	}
	legal := make([]bool, len(items)+1)
	for i := range legal {
		legal[i] = true
	}
	bar := func(from, to int) { // no cut behind the item from and up to the item to
		for k := from + 1; k <= to; k++ {
			legal[k] = false
		}
	}
	asked := map[id][]int{} // unanswered calls, by the item that asked
	byID := map[string][]int{}
	at := map[session.Seq]int{}
	take := func(list []int) (int, []int) { return list[len(list)-1], list[:len(list)-1] }
	for i, it := range items {
		switch it.Type {
		case session.TypeAssistantMessage:
			at[it.Seq] = i
			for _, c := range it.Message.Calls() {
				k := id{c.ID, it.Turn, it.Step}
				asked[k] = append(asked[k], i)
				byID[c.ID] = append(byID[c.ID], i)
			}
		case session.TypeToolResult:
			for _, b := range it.Message.Content {
				k := id{b.ToolCallID, it.Turn, it.Step}
				from := -1
				if len(asked[k]) > 0 {
					from, asked[k] = take(asked[k])
				} else if len(byID[b.ToolCallID]) > 0 { // a result that came in another step: the nearest call
					from = byID[b.ToolCallID][len(byID[b.ToolCallID])-1]
				}
				if from >= 0 {
					bar(from, i)
				}
			}
		}
	}
	for _, c := range st.OpenCalls() {
		if i, ok := at[c.Assistant]; ok && c.Pending {
			bar(i, len(items))
		}
	}
	return legal
}

// restatedTokens is what the newest message of each restated plugin has: a part of what no compaction takes away.
func restatedTokens(items []session.Item, restated []string) (n int64) {
	for _, name := range restated {
		for _, it := range slices.Backward(items) {
			if it.Message.Source.Kind == message.SourcePlugin && it.Message.Source.Plugin == name {
				n += size(it)
				break
			}
		}
	}
	return n
}
