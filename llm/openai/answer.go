package openai

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
)

// answer turns events into chunks.
type answer struct {
	p     *Provider
	yield func(llm.Chunk, error) bool

	id      string
	finish  llm.FinishReason // "" until it is told
	details []map[string]jsontext.Value
	open    message.BlockType // of the block of text or reasoning that grows; "" = none
	index   int               // of that block
	next    int               // index of the next block
	calls   map[int]*toolCall // by the index that the service gave: the last that has it
	order   []*toolCall
}

type toolCall struct {
	index    int // of its block
	id, name string
}

func (a *answer) send(c llm.Chunk) error {
	if !a.yield(c, nil) {
		return errLeft
	}
	return nil
}

func (a *answer) event(ev event) error {
	if id := text(ev.ID); id != "" && a.id == "" {
		a.id = id
	}
	for _, c := range ev.Choices {
		if c.Index != 0 {
			continue
		}
		d := c.Delta
		if d == nil {
			d = c.Message
		}
		if d != nil {
			if err := a.delta(*d); err != nil {
				return err
			}
		}
		switch reason := text(c.FinishReason); reason {
		case "":
			if c.Message != nil {
				a.finish = llm.FinishStop
			}
		case "error", "abort", "insufficient_system_resource":
			return a.p.fail(llm.CodeServer, 0, "the service broke off ("+reason+")")
		default:
			a.finish = finishOf(reason)
		}
	}
	if u := ev.Usage.counts(); u != nil {
		return a.send(llm.Chunk{Type: llm.ChunkUsage, Usage: u})
	}
	return nil
}

func finishOf(reason string) llm.FinishReason {
	switch reason {
	case "stop", "eos", "eos_token", "end_turn", "stop_sequence", "COMPLETE", "STOP":
		return llm.FinishStop
	case "tool_calls", "function_call", "tool_use":
		return llm.FinishToolCalls
	case "length", "max_tokens", "model_length", "MAX_TOKENS":
		return llm.FinishLength
	case "content_filter", "safety", "SAFETY", "sensitive":
		return llm.FinishContentFilter
	}
	return llm.FinishOther
}

func (a *answer) delta(d delta) error {
	a.details = mergeDetails(a.details, d.Details)
	say, think := parts(d.Content)
	// Some send the same reasoning under both names.
	reasoning := text(d.ReasoningContent)
	if reasoning == "" {
		reasoning = text(d.Reasoning)
	}
	if err := a.grow(message.Reasoning, llm.ChunkReasoningDelta, reasoning+think); err != nil {
		return err
	}
	if err := a.grow(message.Text, llm.ChunkTextDelta, say+text(d.Refusal)); err != nil {
		return err
	}
	for _, t := range d.ToolCalls {
		if err := a.call(t); err != nil {
			return err
		}
	}
	return nil
}

// grow adds to the block of text or reasoning, which is a new one when the other kind came between.
func (a *answer) grow(kind message.BlockType, delta llm.ChunkType, s string) error {
	if s == "" {
		return nil
	}
	if a.open != kind {
		if err := a.close(); err != nil {
			return err
		}
		a.open, a.index = kind, a.next
		a.next++
		if err := a.send(llm.Chunk{Type: llm.ChunkBlockStart, Index: a.index, BlockType: kind}); err != nil {
			return err
		}
	}
	return a.send(llm.Chunk{Type: delta, Index: a.index, Text: s})
}

// close ends the block of text or reasoning, if one is open.
func (a *answer) close() error {
	if a.open == "" {
		return nil
	}
	a.open = ""
	return a.send(llm.Chunk{Type: llm.ChunkBlockEnd, Index: a.index})
}

// call adds to a tool call. Services differ in what names it: an index; an id, under an index that is
// always 0; nothing, and then a name begins a call.
func (a *answer) call(t toolDelta) error {
	id, name, args := text(t.ID), text(t.Function.Name), t.arguments()
	c := a.find(t, id, name)
	if c == nil {
		if err := a.close(); err != nil {
			return err
		}
		c = &toolCall{index: a.next, id: id, name: name}
		a.next++
		a.order = append(a.order, c)
		if t.Index != nil {
			a.calls[*t.Index] = c
		}
		if err := a.send(llm.Chunk{Type: llm.ChunkBlockStart, Index: c.index, BlockType: message.ToolCall, ID: id, Name: name}); err != nil {
			return err
		}
		id, name = "", ""
	}
	out := llm.Chunk{Type: llm.ChunkToolCallDelta, Index: c.index, Arguments: args}
	if c.id == "" && id != "" {
		c.id, out.ID = id, id
	}
	if c.name == "" && name != "" {
		c.name, out.Name = name, name
	}
	if out.Arguments == "" && out.ID == "" && out.Name == "" {
		return nil
	}
	return a.send(out)
}

// find returns the call that a delta adds to; nil: it begins one.
func (a *answer) find(t toolDelta, id, name string) *toolCall {
	if t.Index != nil {
		c := a.calls[*t.Index]
		if c != nil && id != "" && c.id != "" && id != c.id && name != "" {
			return nil
		}
		return c
	}
	if id != "" {
		for _, c := range a.order {
			if c.id == id {
				return c
			}
		}
	}
	if len(a.order) == 0 || name != "" || id != "" {
		return nil
	}
	return a.order[len(a.order)-1]
}

// end closes what is open and finishes the answer.
func (a *answer) end() error {
	if err := a.close(); err != nil {
		return err
	}
	for _, c := range a.order {
		if err := a.send(llm.Chunk{Type: llm.ChunkBlockEnd, Index: c.index}); err != nil {
			return err
		}
	}
	if a.finish == "" {
		a.finish = llm.FinishStop
	}
	if a.finish == llm.FinishStop && len(a.order) > 0 {
		a.finish = llm.FinishToolCalls
	}
	out := llm.Chunk{Type: llm.ChunkFinish, Finish: a.finish, ResponseID: a.id}
	if len(a.details) > 0 {
		state := struct {
			Details []map[string]jsontext.Value `json:"reasoning_details"`
		}{a.details}
		if raw, err := json.Marshal(state, json.Deterministic(true)); err == nil {
			out.ReplayState = raw
		}
	}
	return a.send(out)
}
