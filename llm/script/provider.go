package script

import (
	"context"
	"iter"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
)

// Options is what a Provider needs beside its script. The zero value is usable.
type Options struct {
	Name          string // default "script"
	ContextWindow int    // tokens, told for every model; 0 = unknown

	// Sleep waits for d or the end of ctx, whose error it returns. Without it delays take no time.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Provider plays a script.
type Provider struct {
	script *Script
	opts   Options
}

var (
	_ llm.Provider = (*Provider)(nil)
	_ llm.Catalog  = (*Provider)(nil)
	_ llm.Encoder  = (*Provider)(nil)
)

// New returns a provider that plays s. Providers of one script share its place.
func New(s *Script, o Options) *Provider {
	if o.Name == "" {
		o.Name = "script"
	}
	if o.Sleep == nil {
		o.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	}
	return &Provider{s, o}
}

// Name returns the provider's name.
func (p *Provider) Name() string { return p.opts.Name }

// ModelInfo returns the same for every model.
func (p *Provider) ModelInfo(string) (llm.ModelInfo, bool) {
	return llm.ModelInfo{ContextWindow: p.opts.ContextWindow}, p.opts.ContextWindow > 0
}

// EncodingName names the form of Encode.
func (p *Provider) EncodingName() string { return EncodingName }

// EncodingName is the form of the bodies of every Provider of this package.
const EncodingName = "script/1"

// Encode returns the request as JSON: there is no wire, but there is something to compare.
func (p *Provider) Encode(req llm.Request) ([]byte, error) {
	return json.Marshal(struct {
		Model           string            `json:"model"`
		System          string            `json:"system,omitzero"`
		Tools           []llm.ToolSpec    `json:"tools,omitzero"`
		Messages        []message.Message `json:"messages"`
		MaxOutputTokens int               `json:"maxOutputTokens,omitzero"`
		Temperature     *float64          `json:"temperature,omitzero"`
		Reasoning       string            `json:"reasoning,omitzero"`
	}{req.Model, req.System, req.Tools, req.Messages, req.MaxOutputTokens, req.Temperature, req.Reasoning},
		json.Deterministic(true))
}

// Stream plays the next line that serves the request. A line is used up when the range begins, also
// when it fails or is left early.
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(llm.Chunk{}, llm.AsError(ctx, err))
			return
		}
		line, err := p.script.Next(req.Purpose)
		if err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		s := &stream{ctx: ctx, yield: yield, sleep: p.opts.Sleep}
		s.play(line.Fill(req))
	}
}

// stream is the state of one reply being played; each method reports whether to go on.
type stream struct {
	ctx   context.Context
	yield func(llm.Chunk, error) bool
	sleep func(context.Context, time.Duration) error
	pause time.Duration // between chunks
	begun bool
}

func (s *stream) play(r Reply) {
	if d := r.HeadersMs + r.DelayMs; d > 0 && !s.wait(time.Duration(d)*time.Millisecond) {
		return
	}
	s.pause = time.Duration(r.ChunkMs) * time.Millisecond
	if !s.content(r) {
		return
	}
	if r.Usage != nil && !s.send(llm.Chunk{Type: llm.ChunkUsage, Usage: r.Usage}) {
		return
	}
	switch err := r.failure(); {
	case err != nil:
		s.yield(llm.Chunk{}, err)
	case r.Hang || r.Fault == FaultStall:
		<-s.ctx.Done()
		s.yield(llm.Chunk{}, llm.AsError(s.ctx, s.ctx.Err()))
	default:
		s.send(llm.Chunk{Type: llm.ChunkFinish, Finish: r.Finish})
	}
}

// failure returns the error that the line ends with, or nil.
func (l Line) failure() error {
	if e := l.Error; e != nil {
		text := e.Message
		if text == "" {
			text = "the script says so"
		}
		return &llm.Error{Code: e.Code, Status: e.Status, Message: text,
			RetryAfter: time.Duration(e.RetryAfterMs) * time.Millisecond}
	}
	switch l.Fault {
	case FaultReset:
		return llm.Errorf(llm.CodeTransport, "the script resets the connection")
	case FaultHalfEvent:
		return llm.Errorf(llm.CodeStreamClosed, "the script ends in the middle of an event")
	case FaultMalformed:
		return llm.Errorf(llm.CodeMalformedResponse, "the script sends what is not JSON")
	case FaultNoEnd:
		return llm.Errorf(llm.CodeStreamClosed, "the script ends without a terminator")
	case FaultCut:
		return llm.Errorf(llm.CodeStreamClosed, "the script's body ends in the middle of an event")
	case FaultWrongType:
		return llm.Errorf(llm.CodeMalformedResponse, "the script sends a web page")
	}
	return nil
}

func (s *stream) content(r Reply) bool {
	index := 0
	text := func(kind message.BlockType, delta llm.ChunkType, body string) bool {
		if body == "" {
			return true
		}
		if !s.send(llm.Chunk{Type: llm.ChunkBlockStart, Index: index, BlockType: kind}) {
			return false
		}
		for part := range s.pieces(body) {
			if !s.send(llm.Chunk{Type: delta, Index: index, Text: part}) {
				return false
			}
		}
		index++
		return s.send(llm.Chunk{Type: llm.ChunkBlockEnd, Index: index - 1})
	}
	if !text(message.Reasoning, llm.ChunkReasoningDelta, r.Reasoning) || !text(message.Text, llm.ChunkTextDelta, r.Text) {
		return false
	}
	for _, c := range r.Calls {
		if !s.send(llm.Chunk{Type: llm.ChunkBlockStart, Index: index, BlockType: message.ToolCall, ID: c.ID, Name: c.Name}) {
			return false
		}
		for part := range s.pieces(c.Arguments) {
			if !s.send(llm.Chunk{Type: llm.ChunkToolCallDelta, Index: index, Arguments: part}) {
				return false
			}
		}
		if !s.send(llm.Chunk{Type: llm.ChunkBlockEnd, Index: index}) {
			return false
		}
		index++
	}
	return true
}

// send yields a chunk, a pause after the one before it.
func (s *stream) send(c llm.Chunk) bool {
	if s.begun && s.pause > 0 && !s.wait(s.pause) {
		return false
	}
	if err := s.ctx.Err(); err != nil {
		s.yield(llm.Chunk{}, llm.AsError(s.ctx, err))
		return false
	}
	s.begun = true
	return s.yield(c, nil)
}

func (s *stream) wait(d time.Duration) bool {
	if err := s.sleep(s.ctx, d); err != nil {
		s.yield(llm.Chunk{}, llm.AsError(s.ctx, err))
		return false
	}
	return true
}

// maxPiece is the longest delta of a reply without pauses, in bytes.
const maxPiece = 1 << 10

// pieces cuts a text into deltas, between runes: words when there are pauses, else large parts.
func (s *stream) pieces(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for text != "" {
			n := min(len(text), maxPiece)
			if s.pause > 0 {
				if i := strings.IndexFunc(text[:n], unicode.IsSpace); i >= 0 {
					_, size := utf8.DecodeRuneInString(text[i:])
					n = i + size
				}
			}
			for n < len(text) && !utf8.RuneStart(text[n]) {
				n++
			}
			if !yield(text[:n]) {
				return
			}
			text = text[n:]
		}
	}
}
