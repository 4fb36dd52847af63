// Package message defines what is said between a person, a model and its tools: messages made of
// blocks, and the usage a provider reports. It knows nothing of events, sessions or providers.
//
// Values of this package are plain data. A Message taken from a session is shared and must not be
// changed; copy it first (Clone).
package message

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Role says on whose side of the conversation a message stands.
type Role string

// The roles. A tool result is a message of RoleUser whose Source is SourceTool.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Message is one entry of a conversation. The JSON form is the one stored in events (spec 2.2).
type Message struct {
	ID      string  `json:"id,omitzero"`
	Role    Role    `json:"role"`
	Content []Block `json:"content"`
	Source  Source  `json:"source,omitzero"`

	// Extra holds members that this version does not know; they are kept and written back.
	Extra jsontext.Value `json:",embed"`
}

// SourceKind tells who made a message.
type SourceKind string

// The source kinds. Human prompts are SourceUser; injected context and summaries are SourcePlugin.
const (
	SourceUser   SourceKind = "user"
	SourcePlugin SourceKind = "plugin"
	SourceModel  SourceKind = "model"
	SourceTool   SourceKind = "tool"
)

// Source is the origin of a message.
type Source struct {
	Kind        SourceKind     `json:"kind,omitzero"`
	Plugin      string         `json:"plugin,omitzero"`
	Provider    string         `json:"provider,omitzero"`
	Model       string         `json:"model,omitzero"`
	ReplayState jsontext.Value `json:"replayState,omitzero"` // provider-bound; only sent back to Provider
	CallID      string         `json:"callId,omitzero"`

	Extra jsontext.Value `json:",embed"`
}

// IsZero reports whether s says nothing.
func (s Source) IsZero() bool {
	return s.Kind == "" && s.Plugin == "" && s.Provider == "" && s.Model == "" &&
		len(s.ReplayState) == 0 && s.CallID == "" && len(s.Extra) == 0
}

// BlockType is the kind of a block; the set is open and unknown kinds are kept.
type BlockType string

// The block kinds that this version understands.
const (
	Text       BlockType = "text"
	Reasoning  BlockType = "reasoning"
	Image      BlockType = "image"
	ToolCall   BlockType = "tool-call"
	ToolResult BlockType = "tool-result"
)

// Block is one part of a message. Which fields mean something depends on Type.
type Block struct {
	Type BlockType `json:"type"`

	Text      string `json:"text,omitzero"`      // Text, Reasoning
	Signature string `json:"signature,omitzero"` // Reasoning; bound to the provider that made it

	Blob      string `json:"blob,omitzero"` // Image: a blob's name ..
	URL       string `json:"url,omitzero"`  // .. or a URL (data: included)
	MediaType string `json:"mediaType,omitzero"`

	ID        string `json:"id,omitzero"`        // ToolCall
	Name      string `json:"name,omitzero"`      // ToolCall
	Arguments string `json:"arguments,omitzero"` // ToolCall: the raw text that the model wrote

	ToolCallID string  `json:"toolCallId,omitzero"` // ToolResult
	Content    []Block `json:"content,omitzero"`    // ToolResult
	IsError    bool    `json:"isError,omitzero"`    // ToolResult

	Extra jsontext.Value `json:",embed"` // members this version does not know; kept
}

// TextBlock returns a text block.
func TextBlock(s string) Block { return Block{Type: Text, Text: s} }

// CallBlock returns a tool-call block; arguments is the raw text of a JSON object.
func CallBlock(id, name, arguments string) Block {
	return Block{Type: ToolCall, ID: id, Name: name, Arguments: arguments}
}

// ResultBlock returns a tool-result block.
func ResultBlock(callID string, isError bool, content ...Block) Block {
	return Block{Type: ToolResult, ToolCallID: callID, IsError: isError, Content: content}
}

// User returns a human's message.
func User(id, text string) Message {
	return Message{ID: id, Role: RoleUser, Content: []Block{TextBlock(text)}, Source: Source{Kind: SourceUser}}
}

// Result returns the message of a tool's result: exactly one tool-result block.
func Result(id, callID string, isError bool, content ...Block) Message {
	return Message{
		ID: id, Role: RoleUser,
		Content: []Block{ResultBlock(callID, isError, content...)},
		Source:  Source{Kind: SourceTool, CallID: callID},
	}
}

// Calls returns the tool-call blocks of m in order.
func (m Message) Calls() []Block {
	var calls []Block
	for _, b := range m.Content {
		if b.Type == ToolCall {
			calls = append(calls, b)
		}
	}
	return calls
}

// PlainText joins the text blocks of m, and of a tool result's content, with newlines.
func (m Message) PlainText() string { return plainText(m.Content) }

func plainText(blocks []Block) string {
	var out string
	for _, b := range blocks {
		s := ""
		switch b.Type {
		case Text:
			s = b.Text
		case ToolResult:
			s = plainText(b.Content)
		}
		if s == "" {
			continue
		}
		if out != "" {
			out += "\n"
		}
		out += s
	}
	return out
}

// Clone returns a copy that shares no slice with m.
func (m Message) Clone() Message {
	m.Content = cloneBlocks(m.Content)
	m.Extra = m.Extra.Clone()
	m.Source.ReplayState = m.Source.ReplayState.Clone()
	m.Source.Extra = m.Source.Extra.Clone()
	return m
}

func cloneBlocks(bs []Block) []Block {
	if bs == nil {
		return nil
	}
	out := make([]Block, len(bs))
	for i, b := range bs {
		b.Content = cloneBlocks(b.Content)
		b.Extra = b.Extra.Clone()
		out[i] = b
	}
	return out
}

// Decode reads a message from its JSON form.
func Decode(v jsontext.Value) (Message, error) {
	var m Message
	if err := json.Unmarshal(v, &m); err != nil {
		return Message{}, fmt.Errorf("message: %w", err)
	}
	return m, nil
}

// Usage counts tokens; the counts are disjoint, except that ReasoningTokens is a part of OutputTokens.
// A nil pointer means "unknown", which is not zero.
type Usage struct {
	InputTokens      int64  `json:"inputTokens"` // uncached
	CacheReadTokens  *int64 `json:"cacheReadTokens,omitzero"`
	CacheWriteTokens *int64 `json:"cacheWriteTokens,omitzero"`
	OutputTokens     int64  `json:"outputTokens"`
	ReasoningTokens  *int64 `json:"reasoningTokens,omitzero"`

	Extra jsontext.Value `json:",embed"`
}

// Add returns the sum of u and v; a count unknown in both stays unknown. Extra is dropped.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		InputTokens:      u.InputTokens + v.InputTokens,
		CacheReadTokens:  addKnown(u.CacheReadTokens, v.CacheReadTokens),
		CacheWriteTokens: addKnown(u.CacheWriteTokens, v.CacheWriteTokens),
		OutputTokens:     u.OutputTokens + v.OutputTokens,
		ReasoningTokens:  addKnown(u.ReasoningTokens, v.ReasoningTokens),
	}
}

func addKnown(a, b *int64) *int64 {
	if a == nil && b == nil {
		return nil
	}
	var n int64
	if a != nil {
		n += *a
	}
	if b != nil {
		n += *b
	}
	return &n
}
