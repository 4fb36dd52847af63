package export

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
)

// OpenAI writes messages, which are a legal view, as the list of messages of the chat completions API: one JSON
// array. system comes first, "" for none. Images that lie in the store go along as data URLs. Reasoning has no
// place in that form and is left out. Every message has passed the Redactor.
func OpenAI(ctx context.Context, w io.Writer, src Source, system string, messages []message.Message) (Report, error) {
	o := lister{ctx: ctx, w: w, src: src}
	if system != "" {
		o.put(chatMessage{Role: "system", Content: system})
	}
	for _, m := range messages {
		o.message(m)
	}
	return o.end()
}

// Messages writes messages in the stored form, one JSON object per line: the view as this program's own.
func Messages(ctx context.Context, w io.Writer, src Source, messages []message.Message) (Report, error) {
	rep := Report{Incomplete: incomplete(src.Snap)}
	for _, m := range messages {
		if err := done(ctx); err != nil {
			return rep, err
		}
		m, n, err := src.message(m)
		rep.Redacted += n
		if err != nil {
			return rep, err
		}
		b, err := json.Marshal(m)
		if err != nil {
			return rep, err
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return rep, err
		}
		rep.Events++
	}
	return rep, nil
}

// message redacts m.
func (s Source) message(m message.Message) (message.Message, int, error) {
	if s.Redact == nil {
		return m, 0, nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return m, 0, fmt.Errorf("export: message %s: %w", m.ID, err)
	}
	v, n := s.Redact.JSON(b)
	if n == 0 {
		return m, 0, nil
	}
	m, err = message.Decode(v)
	return m, n, err
}

// The chat completions form.
type (
	chatMessage struct {
		Role       string     `json:"role"`
		Content    any        `json:"content"` // string, []chatPart or nil
		ToolCalls  []chatCall `json:"tool_calls,omitempty"`
		ToolCallID string     `json:"tool_call_id,omitzero"`
	}
	chatPart struct {
		Type  string     `json:"type"`
		Text  string     `json:"text,omitzero"`
		Image *chatImage `json:"image_url,omitzero"`
	}
	chatImage struct {
		URL string `json:"url"`
	}
	chatCall struct {
		ID       string       `json:"id"`
		Type     string       `json:"type"`
		Function chatFunction `json:"function"`
	}
	chatFunction struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
)

// lister writes a JSON array, one element per line. The first failure stands.
type lister struct {
	ctx context.Context
	w   io.Writer
	src Source
	rep Report
	any bool
	err error
}

func (o *lister) put(m chatMessage) {
	if o.err == nil {
		o.err = done(o.ctx)
	}
	if o.err != nil {
		return
	}
	b, err := json.Marshal(m)
	if err != nil {
		o.err = err
		return
	}
	if o.src.Redact != nil {
		v, n := o.src.Redact.JSON(b)
		b, o.rep.Redacted = v, o.rep.Redacted+n
	}
	lead := ",\n"
	if !o.any {
		lead = "[\n"
	}
	o.any = true
	o.rep.Events++
	_, o.err = o.w.Write(append([]byte(lead), b...))
}

func (o *lister) end() (Report, error) {
	o.rep.Incomplete = incomplete(o.src.Snap)
	if o.err == nil {
		tail := "\n]\n"
		if !o.any {
			tail = "[]\n"
		}
		_, o.err = io.WriteString(o.w, tail)
	}
	return o.rep, o.err
}

// message writes m: a message that holds results becomes one of role tool for each, and what stands beside them
// one of its own role.
func (o *lister) message(m message.Message) {
	out := chatMessage{Role: string(m.Role)}
	var parts []chatPart
	for _, b := range m.Content {
		switch b.Type {
		case message.ToolCall:
			out.ToolCalls = append(out.ToolCalls, chatCall{b.ID, "function", chatFunction{b.Name, b.Arguments}})
		case message.ToolResult:
			text, images := "", []chatPart(nil)
			for _, p := range o.parts(b.Content) {
				if p.Image != nil {
					images = append(images, p)
				} else {
					text += p.Text
				}
			}
			o.put(chatMessage{Role: "tool", ToolCallID: b.ToolCallID, Content: text})
			parts = append(parts, images...)
		default:
			parts = append(parts, o.parts([]message.Block{b})...)
		}
	}
	switch {
	case len(parts) == 0 && len(out.ToolCalls) == 0:
		return
	case len(parts) == 1 && parts[0].Image == nil:
		out.Content = parts[0].Text
	case len(parts) > 0:
		out.Content = parts
	}
	o.put(out)
}

func (o *lister) parts(blocks []message.Block) []chatPart {
	var out []chatPart
	for _, b := range blocks {
		switch b.Type {
		case message.Text:
			if b.Text != "" {
				out = append(out, chatPart{Type: "text", Text: b.Text})
			}
		case message.Image:
			if url := o.image(b); url != "" {
				out = append(out, chatPart{Type: "image_url", Image: &chatImage{url}})
			} else {
				out = append(out, chatPart{Type: "text", Text: "[an image that is not there any more]"})
			}
		}
	}
	return out
}

// image returns the URL of an image, "" if the store does not have it.
func (o *lister) image(b message.Block) string {
	if b.Blob == "" {
		return b.URL
	}
	if o.err != nil {
		return ""
	}
	content, ok, err := o.src.attached(o.ctx, b.Blob, &o.rep)
	o.err = err
	if !ok {
		return ""
	}
	return "data:" + b.MediaType + ";base64," + base64.StdEncoding.EncodeToString(content)
}

// indented returns v for a reader, if it is JSON.
func indented(v string) (string, bool) {
	j := jsontext.Value(bytes.Clone([]byte(v)))
	if !j.IsValid() || j.Kind() != '{' {
		return v, false
	}
	if err := j.Indent(jsontext.WithIndent("  ")); err != nil {
		return v, false
	}
	return string(j), true
}
