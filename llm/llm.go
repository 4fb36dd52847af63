// Package llm is the seam between the harness and the models: a request goes in, a stream of chunks
// comes out, and every failure has one of a few codes. It holds no SDK and no wire format; each
// driver lives in a package of its own and is wired by the application.
//
// A driver promises little and keeps it: chunks in order, a Finish chunk at the end of what
// succeeded, one *Error at the end of what did not, and nothing left running when the reader leaves.
// What all drivers need beside that is here once: Assembler turns chunks into an answer, Coalescer
// makes few records of many deltas, Watch ends a stream that has gone silent.
package llm

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/message"
)

// Provider runs requests against one model service. Its methods may be called concurrently.
type Provider interface {
	// Name is the provider's name as in PROVIDER/MODEL and in message.Source.Provider.
	Name() string

	// Stream runs one request when it is ranged over (once per range). The sequence yields chunks in
	// order and ends after a ChunkFinish; a failure is yielded once, as *Error with a zero Chunk, and
	// ends it. A stream that ends without either is STREAM_CLOSED. Leaving the range early, or the
	// end of ctx, ends the request; the range returns only when nothing of it runs any more.
	// Strings in chunks are valid UTF-8.
	Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error]
}

// Encoder is a capability of a Provider: the body of a request as bytes. Encode is pure, so that an
// old request can be rebuilt from the log and compared.
type Encoder interface {
	// Encode returns the body of a request. It does not look at Request.Body.
	Encode(req Request) ([]byte, error)
	// EncodingName names the form of the bodies: for one name the same request has the same bytes, in
	// every version of the program.
	EncodingName() string
}

// Catalog is a capability of a Provider: what is known about a model without asking the network.
type Catalog interface {
	// ModelInfo returns what is known about model; false when nothing is.
	ModelInfo(model string) (ModelInfo, bool)
}

// ModelInfo holds facts about a model. Zero and nil mean "unknown".
type ModelInfo struct {
	ContextWindow   int    // tokens of input and output together
	MaxOutputTokens int    // tokens
	Price           *Price // nil when unknown, which is not free
}

// Price is what a million tokens of each kind cost, in US dollars.
type Price struct {
	Input, Output, CacheRead, CacheWrite float64
}

// Cost is what u costs, in US dollars.
func (p Price) Cost(u message.Usage) float64 {
	n := func(v *int64) float64 {
		if v == nil {
			return 0
		}
		return float64(*v)
	}
	return (float64(u.InputTokens)*p.Input + n(u.CacheReadTokens)*p.CacheRead + n(u.CacheWriteTokens)*p.CacheWrite + float64(u.OutputTokens)*p.Output) / 1e6
}

// Find returns the first of p and the providers it wraps (by `Unwrap() Provider`) that has the
// capability T.
func Find[T any](p Provider) (T, bool) {
	for p != nil {
		if t, ok := p.(T); ok {
			return t, true
		}
		w, ok := p.(interface{ Unwrap() Provider })
		if !ok {
			break
		}
		p = w.Unwrap()
	}
	var zero T
	return zero, false
}

// Purposes of a request. An empty Purpose means PurposeTurn. The set is open.
const (
	PurposeTurn       = "turn"
	PurposeCompaction = "compaction"
	PurposeTitle      = "title"
	PurposeSubagent   = "subagent" // or subagent/NAME
)

// Request is one question to a model. It is shared and immutable: a provider changes neither it nor
// anything that it points to.
type Request struct {
	Purpose string // why it is asked; not sent
	Model   string // the provider's own name of the model
	System  string // instructions; "" for none

	Tools    []ToolSpec
	Messages []message.Message // legal for the provider: calls paired, ids unique, text valid

	MaxOutputTokens int      // 0 = the provider's default
	Temperature     *float64 // nil = the provider's default
	Reasoning       string   // effort in the provider's words, such as "low" or "high"; "" = its default

	// Body, if not nil, is what the provider's Encode returned for this request. It is sent as it is, so
	// that what was logged of it is what was sent.
	Body []byte
}

// ToolSpec is a tool as a model sees it.
type ToolSpec struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"` // a JSON Schema of type object
}

// ChunkType is the kind of a chunk.
type ChunkType string

// The chunk kinds. ChunkBlockStart and ChunkBlockEnd bracket the deltas of one block; a delta for an
// index that is not open opens it.
const (
	ChunkBlockStart     ChunkType = "block-start"     // Index, BlockType; ID and Name of a call
	ChunkTextDelta      ChunkType = "text-delta"      // Index, Text
	ChunkReasoningDelta ChunkType = "reasoning-delta" // Index, Text
	ChunkToolCallDelta  ChunkType = "tool-call-delta" // Index, Arguments; ID and Name when first known
	ChunkBlockEnd       ChunkType = "block-end"       // Index; Block when the whole is known better than by its deltas
	ChunkUsage          ChunkType = "usage"           // Usage so far; a later one replaces it
	ChunkFinish         ChunkType = "finish"          // Finish, ResponseID, ReplayState; the last chunk
)

// FinishReason tells why a model stopped.
type FinishReason string

// The finish reasons. A provider maps what it does not know to FinishOther.
const (
	FinishStop          FinishReason = "stop"
	FinishToolCalls     FinishReason = "tool-calls"
	FinishLength        FinishReason = "length"
	FinishContentFilter FinishReason = "content-filter"
	FinishOther         FinishReason = "other"
)

// Chunk is one step of a stream. The JSON form is the `chunk` of an assistant/chunk event.
type Chunk struct {
	Type      ChunkType         `json:"type"`
	Index     int               `json:"index,omitzero"` // of the block in the answer
	BlockType message.BlockType `json:"blockType,omitzero"`

	Text      string `json:"text,omitzero"`
	ID        string `json:"id,omitzero"`
	Name      string `json:"name,omitzero"`
	Arguments string `json:"arguments,omitzero"` // raw text, as the model writes it

	Block *message.Block `json:"block,omitzero"`
	Usage *message.Usage `json:"usage,omitzero"`

	Finish      FinishReason   `json:"finish,omitzero"`
	ResponseID  string         `json:"responseId,omitzero"`
	ReplayState jsontext.Value `json:"replayState,omitzero"` // for message.Source.ReplayState
}
