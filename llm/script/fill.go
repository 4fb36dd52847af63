package script

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
)

const (
	lastToolResult = "{{last_tool_result}}"
	lastUser       = "{{last_user}}"
)

// Reply is a line made ready for one request: templates filled in, calls with ids and raw arguments.
type Reply struct {
	Line
	Calls []message.Block // of type tool-call
}

// Fill makes the reply to req of a line. It is pure.
func (l Line) Fill(req llm.Request) Reply {
	r := Reply{Line: l}
	values := map[string]string{}
	value := func(template string) string {
		v, ok := values[template]
		if !ok {
			if template == lastUser {
				v = findLastUser(req.Messages)
			} else {
				v = findLastToolResult(req.Messages)
			}
			values[template] = v
		}
		return v
	}
	fill := func(s string, escape func(string) string) string {
		var out strings.Builder
		for {
			at, template := nextTemplate(s)
			if at < 0 {
				break
			}
			out.WriteString(s[:at])
			out.WriteString(escape(value(template)))
			s = s[at+len(template):]
		}
		if out.Len() == 0 {
			return s
		}
		out.WriteString(s)
		return out.String()
	}
	plain := func(s string) string { return s }
	r.Text = fill(l.Text, plain)
	r.Reasoning = fill(l.Reasoning, plain)
	ids := newIDs(l, req.Messages)
	for i, c := range l.ToolCalls {
		raw := string(c.Arguments)
		if c.Arguments.Kind() == '"' {
			// The literal was checked when the script was read.
			_ = json.Unmarshal(c.Arguments, &raw)
		}
		// A template stands inside a string: "{{" is not JSON anywhere else.
		raw = fill(raw, escapeJSON)
		id := c.ID
		if id == "" {
			id = ids(i)
		}
		r.Calls = append(r.Calls, message.CallBlock(id, c.Name, raw))
	}
	return r
}

func nextTemplate(s string) (int, string) {
	a, b := strings.Index(s, lastToolResult), strings.Index(s, lastUser)
	switch {
	case a < 0 && b < 0:
		return -1, ""
	case a < 0 || b >= 0 && b < a:
		return b, lastUser
	}
	return a, lastToolResult
}

func escapeJSON(s string) string {
	quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil || len(quoted) < 2 {
		return ""
	}
	return string(quoted[1 : len(quoted)-1])
}

// findLastUser returns the text of the last message that a person wrote; where the source is not told
// (over a wire), of the last user message that has a text of its own.
func findLastUser(ms []message.Message) string {
	for i := len(ms) - 1; i >= 0; i-- {
		m := ms[i]
		if m.Role != message.RoleUser || m.Source.Kind != message.SourceUser && m.Source.Kind != "" {
			continue
		}
		var texts []string
		for _, b := range m.Content {
			if b.Type == message.Text && b.Text != "" {
				texts = append(texts, b.Text)
			}
		}
		if len(texts) > 0 {
			return strings.Join(texts, "\n")
		}
	}
	return ""
}

func findLastToolResult(ms []message.Message) string {
	for i := len(ms) - 1; i >= 0; i-- {
		for j := len(ms[i].Content) - 1; j >= 0; j-- {
			if b := ms[i].Content[j]; b.Type == message.ToolResult {
				return message.Message{Content: []message.Block{b}}.PlainText()
			}
		}
	}
	return ""
}

// newIDs returns a maker of call ids that are new in the conversation, also when another process plays
// the same script in the same session: they follow from the ids and the end of the conversation.
func newIDs(l Line, ms []message.Message) func(i int) string {
	taken := map[string]bool{}
	h := sha256.New()
	fmt.Fprintf(h, "%d %d\n", l.Number, len(ms))
	for i, m := range ms {
		fmt.Fprintf(h, "%q %q %d\n", m.ID, m.Role, len(m.Content))
		for _, b := range m.Content {
			if b.ID != "" || b.ToolCallID != "" {
				taken[b.ID] = true
				fmt.Fprintf(h, "%q %q\n", b.ID, b.ToolCallID)
			}
			if i >= len(ms)-2 {
				fmt.Fprintf(h, "%q\n", b.Text)
			}
		}
	}
	for _, c := range l.ToolCalls {
		taken[c.ID] = true
	}
	sum := hex.EncodeToString(h.Sum(nil)[:6])
	return func(i int) string {
		id := fmt.Sprintf("call_%s_%d", sum, i)
		for n := 2; taken[id]; n++ {
			id = fmt.Sprintf("call_%s_%d_%d", sum, i, n)
		}
		taken[id] = true
		return id
	}
}
