package llm

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/message"
)

// Reply is the whole answer to a request.
type Reply struct {
	Content     []message.Block
	Usage       *message.Usage // nil = the provider did not say
	Finish      FinishReason
	ResponseID  string
	ReplayState jsontext.Value
}

// Assembler makes an answer of the chunks of one stream. The zero value is ready. It is not safe for
// concurrent use.
type Assembler struct {
	blocks []*building // in the order in which they were opened
	reply  Reply
	done   bool
}

type building struct {
	index int
	block message.Block
	text  strings.Builder // of Text or Arguments, by the block's type
	ended bool
}

// Add takes the next chunk. A chunk that cannot follow the ones before it is a MALFORMED_RESPONSE.
func (a *Assembler) Add(c Chunk) error {
	if a.done {
		return Errorf(CodeMalformedResponse, "a %s chunk came after the end of the answer", c.Type)
	}
	switch c.Type {
	case ChunkBlockStart:
		b := a.find(c.Index)
		if b != nil && !b.ended {
			return Errorf(CodeMalformedResponse, "block %d was started twice", c.Index)
		}
		b = a.open(c.Index, c.BlockType)
		b.block.ID, b.block.Name = c.ID, c.Name
		b.text.WriteString(c.Text)
		b.text.WriteString(c.Arguments)
		return nil
	case ChunkTextDelta:
		return a.delta(c, message.Text, c.Text)
	case ChunkReasoningDelta:
		return a.delta(c, message.Reasoning, c.Text)
	case ChunkToolCallDelta:
		return a.delta(c, message.ToolCall, c.Arguments)
	case ChunkBlockEnd:
		b := a.find(c.Index)
		if b == nil || b.ended {
			if c.Block == nil {
				return Errorf(CodeMalformedResponse, "block %d ended without a start", c.Index)
			}
			b = a.open(c.Index, c.Block.Type)
		}
		b.ended = true
		if c.Block != nil {
			b.block = *c.Block
			b.text.Reset()
			b.text.WriteString(c.Block.Text)
			if c.Block.Type == message.ToolCall {
				b.text.Reset()
				b.text.WriteString(c.Block.Arguments)
			}
		}
		return nil
	case ChunkUsage:
		if c.Usage != nil {
			a.setUsage(c.Usage)
		}
		return nil
	case ChunkFinish:
		a.done = true
		if c.Usage != nil {
			a.setUsage(c.Usage)
		}
		a.reply.Finish, a.reply.ResponseID, a.reply.ReplayState = c.Finish, c.ResponseID, c.ReplayState
		return nil
	}
	return Errorf(CodeMalformedResponse, "unknown chunk type %q", c.Type)
}

func (a *Assembler) setUsage(u *message.Usage) {
	own := *u
	a.reply.Usage = &own
}

func (a *Assembler) find(index int) *building {
	for i := len(a.blocks) - 1; i >= 0; i-- {
		if a.blocks[i].index == index {
			return a.blocks[i]
		}
	}
	return nil
}

func (a *Assembler) open(index int, t message.BlockType) *building {
	b := &building{index: index, block: message.Block{Type: t}}
	a.blocks = append(a.blocks, b)
	return b
}

func (a *Assembler) delta(c Chunk, t message.BlockType, text string) error {
	b := a.find(c.Index)
	switch {
	case b == nil:
		b = a.open(c.Index, t)
	case b.ended:
		return Errorf(CodeMalformedResponse, "a %s came for block %d, which had ended", c.Type, c.Index)
	case b.block.Type != t:
		return Errorf(CodeMalformedResponse, "a %s came for block %d, which is %q", c.Type, c.Index, b.block.Type)
	}
	if c.ID != "" {
		b.block.ID = c.ID
	}
	if c.Name != "" {
		b.block.Name = c.Name
	}
	b.text.WriteString(text)
	return nil
}

func (b *building) build() message.Block {
	out := b.block
	switch out.Type {
	case message.ToolCall:
		out.Arguments = valid(b.text.String())
		out.ID, out.Name = valid(out.ID), valid(out.Name)
	case message.Text, message.Reasoning:
		out.Text = valid(b.text.String())
	}
	return out
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Message returns the whole answer; the finish closes what was still open. Blocks without content are
// left out. The error is STREAM_CLOSED when no finish came, EMPTY_RESPONSE when the model stopped
// without text and without a call, MALFORMED_RESPONSE when a call has no name; the Reply beside it
// holds what there is (usage is owed for it all the same).
func (a *Assembler) Message() (Reply, error) {
	r := a.reply
	visible := false
	for _, b := range a.blocks {
		block := b.build()
		switch block.Type {
		case message.Text:
			if block.Text == "" && len(block.Extra) == 0 {
				continue
			}
			visible = visible || strings.TrimSpace(block.Text) != ""
		case message.Reasoning:
			if block.Text == "" && block.Signature == "" && len(block.Extra) == 0 {
				continue
			}
		case message.ToolCall:
			if block.Name == "" {
				return r, Errorf(CodeMalformedResponse, "the model made a tool call without a name")
			}
			visible = true
		default:
			visible = true
		}
		r.Content = append(r.Content, block)
	}
	switch {
	case !a.done:
		return r, Errorf(CodeStreamClosed, "the answer ended before it was complete")
	case !visible && (r.Finish == FinishStop || r.Finish == FinishToolCalls || r.Finish == ""):
		return r, Errorf(CodeEmptyResponse, "the model answered with nothing")
	}
	return r, nil
}

// Partial returns what is worth keeping of a stream that was cancelled: its visible text so far, and
// the usage if it was told. Calls are dropped, whole or half: none of them was or will be run.
func (a *Assembler) Partial() Reply {
	r := Reply{Usage: a.reply.Usage, ResponseID: a.reply.ResponseID}
	for _, b := range a.blocks {
		if b.block.Type != message.Text {
			continue
		}
		if block := b.build(); strings.TrimSpace(block.Text) != "" {
			r.Content = append(r.Content, block)
		}
	}
	return r
}
