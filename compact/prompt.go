package compact

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/view"
)

// instructions are what the model is asked, by number: a number that was used never changes its text, so that an
// old request can be made again.
var instructions = map[int]string{1: instructionHead + ` The conversation above is about to be replaced by a summary, to make room. Write that summary now: whoever goes on has your text, what comes after, and nothing else of it.

Do not call any tool and do not answer the conversation. Write plain text, in the language of the conversation, under these headings:

1. What the user wants: every request and every later change of mind, their own words where they matter, rules and preferences that they stated.
2. Where things stand: what was done, what was found out, decisions and their reasons.
3. Files, commands, names, numbers and errors that will be needed again, exactly as they are.
4. What failed or must not be repeated, and why.
5. What is left to do, and the very next step.

If the conversation begins with an earlier summary, carry over all of it that still holds. Leave out pleasantries and what is obsolete. Say what is unknown; invent nothing.`}

const (
	instruction     = 1 // the one in use
	instructionHead = "[Request of the harness, not of the user.]"
)

// PurposeOf tells by its text what a request is for: a model service that plays a script sees nothing else of it.
func PurposeOf(req llm.Request) string {
	if n := len(req.Messages); n > 0 {
		if m := req.Messages[n-1]; m.Role == message.RoleUser && strings.HasPrefix(m.PlainText(), instructionHead) {
			return llm.PurposeCompaction
		}
	}
	return ""
}

// Request returns the request for a summary that a compaction began with: that of the turn, as far as the end of the
// selected span, cut if the start says so, and one instruction. head is the turn's request without messages, items are the surface when the
// request was made and st is the state that it was folded from.
func Request(provider string, head llm.Request, items []session.Item, st session.State, start Start) (llm.Request, error) {
	text, ok := instructions[start.Instruction]
	if !ok || start.Range == nil {
		return llm.Request{}, fmt.Errorf("this version has no instruction %d", start.Instruction)
	}
	to := -1
	for i, it := range items {
		if it.Seq == start.Range.End {
			to = i + 1
		}
	}
	if to < 0 {
		return llm.Request{}, fmt.Errorf("seq %d is not on the surface", start.Range.End)
	}
	req := head
	req.Purpose, req.Body, req.MaxOutputTokens = llm.PurposeCompaction, nil, start.MaxTokens
	told := view.Build(items[:to], st, provider).Messages
	if start.Fit > 0 {
		told = fit(told, start.Fit)
	}
	req.Messages = append(told, message.Message{
		ID: "instruction-" + start.CompactionID, Role: message.RoleUser, Content: []message.Block{message.TextBlock(text)},
		Source: message.Source{Kind: message.SourcePlugin, Plugin: Plugin},
	})
	return req, nil
}

const (
	frameHead = "[The earlier part of this conversation was replaced by the summary below, to make room. It is established background: go on from it and from the messages that follow, without mentioning it.]\n\n<summary>\n"
	frameTail = "\n</summary>"
)

// frameTokens is what a replacement has beside its summary.
func frameTokens() int64 { return meter.Message(frame("", "", "")) }

// frame is the message that stands for what was compacted.
func frame(id, compactionID, summary string) message.Message {
	extra, _ := json.Marshal(map[string]string{"compactionId": compactionID}) // text always can be
	return message.Message{
		ID: id, Role: message.RoleUser, Content: []message.Block{message.TextBlock(frameHead + summary + frameTail)},
		Source: message.Source{Kind: message.SourcePlugin, Plugin: Plugin, Extra: extra},
	}
}
