package search

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// Field says what a text is.
type Field string

// The fields.
const (
	FieldHuman     Field = "human"
	FieldAssistant Field = "assistant"
	FieldReasoning Field = "reasoning"
	FieldTool      Field = "tool"      // the name in a call
	FieldArguments Field = "arguments" // names and values, each on a line
	FieldResult    Field = "result"
	FieldTitle     Field = "title"
)

// Fields lists all fields.
func Fields() []Field {
	return []Field{FieldHuman, FieldAssistant, FieldReasoning, FieldTool, FieldArguments, FieldResult, FieldTitle}
}

// Text is one searchable text of an event.
type Text struct {
	Field Field
	Tool  string // FieldTool, FieldArguments and FieldResult: its name; "" of a result whose call is not known
	Text  string
}

// Searched reports whether events of this type can have texts: those of other types need not be read.
func Searched(typ string) bool {
	switch typ {
	case session.TypeUserMessage, session.TypeAssistantMessage, session.TypeToolResult, session.TypeTitle:
		return true
	}
	return false
}

// Horizon is how many events behind a call its result is known to be of that tool.
const Horizon = 4096

// Names knows the tools of calls, for results name only the call. The zero Names knows none. The events of a log are shown
// to it in their order; it may begin in the middle.
type Names struct {
	calls  map[string]named
	next   session.Seq // when to forget
	looked bool        // at what lies before the first event that it was shown
}

type named struct {
	tool string
	at   session.Seq
}

// See remembers the calls of ev.
func (n *Names) See(ev session.Event) {
	if ev.Type == session.TypeAssistantMessage {
		n.see(ev.Seq, session.Project(ev).Message)
	}
}

func (n *Names) see(seq session.Seq, m message.Message) {
	if seq >= n.next { // what is told does not depend on when this is done
		for id, c := range n.calls {
			if seq-c.at > Horizon {
				delete(n.calls, id)
			}
		}
		n.next = seq + Horizon
	}
	for _, b := range m.Content {
		if b.Type == message.ToolCall {
			if n.calls == nil {
				n.calls = map[string]named{}
			}
			n.calls[strings.Clone(b.ID)] = named{strings.Clone(b.Name), seq}
		}
	}
}

// of returns the tool of the nearest call before seq with this id.
func (n *Names) of(id string, seq session.Seq) string {
	if c, ok := n.calls[id]; ok && seq-c.at <= Horizon {
		return c.tool
	}
	return ""
}

// Texts returns what of ev, an event of p, is searched, and does as See. from is where the caller began to read: what lies before is
// looked at when a result needs it. Errors are those of reading p.
func (n *Names) Texts(ev session.Event, p session.Prefix, from session.Seq) ([]Text, error) {
	if ev.Type == session.TypeToolResult && !n.looked {
		if err := n.lookBack(p, from); err != nil {
			return nil, err
		}
		n.looked = true
	}
	return n.texts(ev), nil
}

// lookBack sees the calls before from.
func (n *Names) lookBack(p session.Prefix, from session.Seq) error {
	var old Names
	for ev, err := range p.Range(max(from-Horizon, 0), from) {
		if err != nil {
			return err
		}
		old.See(ev)
	}
	if n.calls == nil {
		n.calls = old.calls
		return nil
	}
	for id, c := range old.calls {
		if _, later := n.calls[id]; !later {
			n.calls[id] = c
		}
	}
	return nil
}

// TextsOf is Texts for an event whose tool, if it is a result, is known.
func TextsOf(ev session.Event, tool string) []Text {
	var n Names
	out := n.texts(ev)
	if ev.Type == session.TypeToolResult {
		for i := range out {
			out[i].Tool = tool
		}
	}
	return out
}

// texts is total.
func (n *Names) texts(ev session.Event) []Text {
	var out []Text
	add := func(f Field, tool, text string) {
		if text != "" {
			out = append(out, Text{f, tool, text})
		}
	}
	switch ev.Type {
	case session.TypeTitle:
		if d, err := session.DecodeData[session.Title](ev); err == nil && d.Source != "fallback" { // that is the begin of a message
			add(FieldTitle, "", d.Title)
		}
	case session.TypeUserMessage:
		m := session.Project(ev).Message
		if m.Source.Kind == message.SourcePlugin {
			return nil
		}
		for _, b := range m.Content {
			if b.Type == message.Text {
				add(FieldHuman, "", b.Text)
			}
		}
	case session.TypeAssistantMessage:
		m := session.Project(ev).Message
		n.see(ev.Seq, m)
		for _, b := range m.Content {
			switch b.Type {
			case message.Text:
				add(FieldAssistant, "", b.Text)
			case message.Reasoning:
				add(FieldReasoning, "", b.Text)
			case message.ToolCall:
				add(FieldTool, b.Name, b.Name)
				add(FieldArguments, b.Name, argumentText(b.Arguments))
			}
		}
	case session.TypeToolResult:
		if ev.Op.Kind == session.OpReplace { // a shorter form of one that is searched
			return nil
		}
		for _, b := range session.Project(ev).Message.Content {
			if b.Type == message.ToolResult {
				add(FieldResult, n.of(b.ToolCallID, ev.Seq), message.Message{Content: b.Content}.PlainText())
			}
		}
	}
	return out
}

// argumentText returns the names and values of a JSON object, without the signs and escapes of JSON; what is no JSON as
// it is.
func argumentText(args string) string {
	dec := jsontext.NewDecoder(strings.NewReader(args), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var b strings.Builder
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			if dec.InputOffset() < int64(len(strings.TrimRight(args, " \t\r\n"))) {
				return args // broken: nothing of it is lost
			}
			return strings.TrimSuffix(b.String(), "\n")
		}
		switch tok.Kind() {
		case '{', '}', '[', ']':
			continue
		}
		b.WriteString(tok.String())
		if kind, n := dec.StackIndex(dec.StackDepth()); kind == '{' && n%2 == 1 {
			b.WriteString(": ")
		} else {
			b.WriteByte('\n')
		}
	}
}
