package openai

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
)

// Encode returns the body of a request. What stays the same comes first and the messages last, in order:
// the bodies of one conversation share everything up to what is new, which is what a cache of prefixes
// needs. The error is that of a blob that cannot be read.
//
// What the wire cannot carry is bent, always in the same way: an image in a tool's result follows in a
// message of its own; the arguments of a call that are no JSON object become one that holds the text; a
// name or an id that services refuse is spelled as they allow. A session must not get stuck on it.
func (e Encoding) Encode(req llm.Request) ([]byte, error) {
	w := &writer{e: e, model: req.Model, b: make([]byte, 0, 4<<10+size(req))}
	w.raw(`{"model":`)
	w.str(req.Model)
	w.raw(`,"stream":true,"stream_options":{"include_usage":true}`)
	if req.MaxOutputTokens > 0 {
		w.raw(`,"` + e.habits.maxTokens + `":`)
		w.b = strconv.AppendInt(w.b, int64(req.MaxOutputTokens), 10)
	}
	if req.Temperature != nil {
		t, err := json.Marshal(*req.Temperature)
		if err != nil {
			return nil, llm.Errorf(llm.CodeInvalidRequest, "the temperature is not a number")
		}
		w.raw(`,"temperature":` + string(t))
	}
	switch {
	case req.Reasoning == "":
	case e.habits.effortObject:
		w.raw(`,"reasoning":{"effort":`)
		w.str(req.Reasoning)
		w.raw(`}`)
	default:
		w.raw(`,"reasoning_effort":`)
		w.str(req.Reasoning)
	}
	if err := w.tools(req.Tools); err != nil {
		return nil, err
	}
	w.raw(`,"messages":[`)
	if req.System != "" {
		w.next()
		w.raw(`{"role":"system","content":`)
		w.str(req.System)
		w.raw(`}`)
	}
	for _, m := range req.Messages {
		if err := w.message(m); err != nil {
			return nil, err
		}
	}
	if err := w.held(); err != nil {
		return nil, err
	}
	w.raw(`]}`)
	return w.b, nil
}

// size estimates the body, so that a long one is not copied as it grows.
func size(req llm.Request) int {
	n := len(req.System)
	for _, t := range req.Tools {
		n += len(t.Description) + len(t.Parameters) + 100
	}
	for _, m := range req.Messages {
		for _, b := range m.Content {
			n += len(b.Text) + len(b.Arguments) + len(b.URL) + 100
			for _, c := range b.Content {
				n += len(c.Text) + 20
			}
		}
	}
	return n + n/8
}

// writer appends one body.
type writer struct {
	e     Encoding
	model string
	b     []byte
	any   bool            // a message was written
	late  []message.Block // images of results; they follow the last result of their message
}

func (w *writer) raw(s string) { w.b = append(w.b, s...) }

// str appends a JSON string. Text that is not valid Unicode is replaced, which is all that can be wrong.
func (w *writer) str(s string) { w.b, _ = jsontext.AppendQuote(w.b, s) }

func (w *writer) next() {
	if w.any {
		w.b = append(w.b, ',')
	}
	w.any = true
}

func (w *writer) tools(specs []llm.ToolSpec) error {
	if len(specs) == 0 {
		return nil
	}
	w.raw(`,"tools":[`)
	for i, t := range specs {
		if i > 0 {
			w.raw(`,`)
		}
		w.raw(`{"type":"function","function":{"name":`)
		w.str(toolName(t.Name))
		if t.Description != "" {
			w.raw(`,"description":`)
			w.str(t.Description)
		}
		w.raw(`,"parameters":`)
		if len(t.Parameters) == 0 {
			w.raw(`{"type":"object","properties":{}}`)
		} else {
			schema := t.Parameters.Clone()
			if err := schema.Compact(); err != nil {
				return llm.Errorf(llm.CodeInvalidRequest, "the schema of tool %s is not JSON", t.Name)
			}
			w.b = append(w.b, schema...)
		}
		w.raw(`}}`)
	}
	w.raw(`]`)
	return nil
}

// message appends the messages that m becomes: none, one, or more for results with other blocks.
func (w *writer) message(m message.Message) error {
	if m.Role == message.RoleAssistant {
		if err := w.held(); err != nil {
			return err
		}
		w.assistant(m)
		return nil
	}
	var rest []message.Block
	for _, b := range m.Content {
		if b.Type == message.ToolResult {
			w.result(b)
		} else {
			rest = append(rest, b)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	if err := w.held(); err != nil {
		return err
	}
	return w.user(rest)
}

// held appends the images that results had, once no further result can follow.
func (w *writer) held() error {
	if len(w.late) == 0 {
		return nil
	}
	blocks := append([]message.Block{message.TextBlock("The images of the tool results above, in their order:")}, w.late...)
	w.late = nil
	return w.user(blocks)
}

func (w *writer) result(b message.Block) {
	var texts []string
	for _, c := range b.Content {
		switch c.Type {
		case message.Text:
			texts = append(texts, c.Text)
		case message.Image:
			texts = append(texts, "[an image; it follows the results]")
			w.late = append(w.late, c)
		}
	}
	w.next()
	w.raw(`{"role":"tool","tool_call_id":`)
	w.str(callID(b.ToolCallID))
	w.raw(`,"content":`)
	w.str(strings.Join(texts, "\n"))
	w.raw(`}`)
}

func (w *writer) user(blocks []message.Block) error {
	images := false
	var texts []string
	for _, b := range blocks {
		images = images || b.Type == message.Image
		if b.Type == message.Text && b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	if !images {
		if len(texts) == 0 {
			return nil
		}
		w.next()
		// A string and not parts: some services know nothing else.
		w.raw(`{"role":"user","content":`)
		w.str(strings.Join(texts, "\n\n"))
		w.raw(`}`)
		return nil
	}
	w.next()
	w.raw(`{"role":"user","content":[`)
	first := true
	part := func() {
		if !first {
			w.raw(`,`)
		}
		first = false
	}
	for _, b := range blocks {
		switch {
		case b.Type == message.Text && b.Text != "":
			part()
			w.raw(`{"type":"text","text":`)
			w.str(b.Text)
			w.raw(`}`)
		case b.Type == message.Image:
			part()
			w.raw(`{"type":"image_url","image_url":{"url":`)
			if err := w.image(b); err != nil {
				return err
			}
			w.raw(`}}`)
		}
	}
	w.raw(`]}`)
	return nil
}

func (w *writer) image(b message.Block) error {
	if b.Blob == "" {
		w.str(b.URL)
		return nil
	}
	if w.e.blobs == nil {
		return llm.Errorf(llm.CodeInvalidRequest, "the image %s is kept as a blob, and this store has none", b.Blob)
	}
	data, err := w.e.blobs(b.Blob)
	if err != nil {
		return llm.Errorf(llm.CodeInvalidRequest, "the image %s cannot be read: %w", b.Blob, err)
	}
	w.str("data:" + b.MediaType + ";base64,")
	w.b = base64.StdEncoding.AppendEncode(w.b[:len(w.b)-1], data)
	w.raw(`"`)
	return nil
}

func (w *writer) assistant(m message.Message) {
	var text, reasoning []string
	var calls []message.Block
	for _, b := range m.Content {
		switch b.Type {
		case message.Text:
			text = append(text, b.Text)
		case message.Reasoning:
			reasoning = append(reasoning, b.Text)
		case message.ToolCall:
			calls = append(calls, b)
		}
	}
	h := w.e.habits
	thought := ""
	if h.reasoning != "" {
		thought = strings.Join(reasoning, "\n")
	}
	details := w.details(m.Source)
	if len(text) == 0 && len(calls) == 0 && thought == "" && details == nil {
		return // nothing of it can be said here
	}
	w.next()
	w.raw(`{"role":"assistant","content":`)
	if len(text) == 0 && len(calls) > 0 {
		w.raw(`null`)
	} else {
		w.str(strings.Join(text, "\n\n"))
	}
	switch {
	case details != nil:
		w.raw(`,"reasoning_details":`)
		w.b = append(w.b, details...)
	case thought != "", h.needsReasoning && len(calls) > 0:
		w.raw(`,"` + h.reasoning + `":`)
		w.str(thought)
	}
	for i, c := range calls {
		w.raw([2]string{`,{"id":`, `,"tool_calls":[{"id":`}[b2i(i == 0)])
		w.str(callID(c.ID))
		w.raw(`,"type":"function","function":{"name":`)
		w.str(toolName(c.Name))
		w.raw(`,"arguments":`)
		w.str(arguments(c.Arguments))
		w.raw(`}}`)
	}
	if len(calls) > 0 {
		w.raw(`]`)
	}
	w.raw(`}`)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// replay is what a message keeps for the service that made it, in message.Source.ReplayState.
type replay struct {
	Details []jsontext.Value `json:"reasoning_details,omitzero"`
}

// details returns the reasoning as the service told it, if it goes back: they are signed for one model.
func (w *writer) details(s message.Source) jsontext.Value {
	if !w.e.habits.details || len(s.ReplayState) == 0 || s.Model != w.model {
		return nil
	}
	var r replay
	if json.Unmarshal(s.ReplayState, &r) != nil || len(r.Details) == 0 {
		return nil
	}
	v, err := json.Marshal(r.Details)
	if err != nil {
		return nil
	}
	return v
}

// maxName and maxID are the longest tool name and call id that services take.
const (
	maxName = 64
	maxID   = 40
)

// toolName spells a name with the signs that services allow.
func toolName(s string) string {
	ok := func(r rune) bool {
		return r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	clean := strings.Map(func(r rune) rune {
		if ok(r) {
			return r
		}
		return '_'
	}, s)
	if clean == "" {
		return "unnamed"
	}
	return clean[:min(len(clean), maxName)]
}

// callID shortens the ids that other services made and this wire refuses.
func callID(s string) string {
	if len(s) <= maxID {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "call_" + hex.EncodeToString(sum[:16])
}

// arguments returns a JSON object: services refuse a history in which a model wrote none.
func arguments(s string) string {
	if v := jsontext.Value(s); v.IsValid() && v.Kind() == '{' {
		return s
	}
	if strings.TrimSpace(s) == "" {
		return "{}"
	}
	quoted, _ := jsontext.AppendQuote(nil, s)
	return fmt.Sprintf(`{"invalid_arguments":%s}`, quoted)
}
