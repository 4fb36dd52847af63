package search_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/search/searchtest"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
)

// TestTextsFromTheMiddle: what is searched of an event does not depend on where somebody began to read.
func TestTextsFromTheMiddle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events, _ := searchtest.Events(t, "session", 0, 20)
		p := session.Events(events)
		read := func(from session.Seq) (all [][]search.Text) {
			var n search.Names
			for ev := range p.Range(from, p.Len()) {
				texts, err := n.Texts(ev, p, from)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, texts)
			}
			return all
		}
		whole := read(0)
		from := session.Seq(rapid.IntRange(0, 20).Draw(t, "from"))
		if d := cmp.Diff(whole[from:], read(from), cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
	})
}

// TestTextsAreTotal over logs that nobody should have written.
func TestTextsAreTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := sessiontest.Garbage(sessiontest.Drawn(t), 30)
		var n search.Names
		for _, ev := range p {
			if texts, err := n.Texts(ev, p, 0); err != nil || len(texts) > 0 && !search.Searched(ev.Type) {
				t.Fatalf("%v, %v", texts, err)
			}
		}
	})
}

// TestTexts: what is searched, and what only repeats it.
func TestTexts(t *testing.T) {
	ev := func(typ, data string) session.Event { return session.Event{Type: typ, Data: []byte(data)} }
	replaced := ev(session.TypeToolResult, `{"message":{"role":"user","content":[{"type":"tool-result","toolCallId":"c1","content":[{"type":"text","text":"short"}]}]}}`)
	replaced.Op = session.Replace(1, 1)
	var n search.Names
	for _, c := range []struct {
		ev   session.Event
		want []search.Text
	}{
		{ev(session.TypeUserMessage, `{"role":"user","content":[{"type":"text","text":"hello"},{"type":"image","url":"data:xyz"}],"source":{"kind":"user"}}`),
			[]search.Text{{Field: search.FieldHuman, Text: "hello"}}},
		{ev(session.TypeUserMessage, `{"role":"user","content":[{"type":"text","text":"hello"}],"source":{"kind":"plugin","plugin":"x"}}`), nil},
		{ev(session.TypeAssistantMessage, `{"message":{"role":"assistant","content":[{"type":"reasoning","text":"hm"},{"type":"text","text":"so"},`+
			`{"type":"tool-call","id":"c1","name":"bash","arguments":"{\"command\":\"a\\nb \\u4e2d\",\"list\":[1,true,{\"deep\":null}]}"},{"type":"tool-call","id":"c2","name":"edit","arguments":"{\"broken"}]}}`),
			[]search.Text{
				{search.FieldReasoning, "", "hm"}, {search.FieldAssistant, "", "so"},
				{search.FieldTool, "bash", "bash"}, {search.FieldArguments, "bash", "command: a\nb 中\nlist: 1\ntrue\ndeep: null"},
				{search.FieldTool, "edit", "edit"}, {search.FieldArguments, "edit", `{"broken`},
			}},
		{ev(session.TypeToolCall, `{"callId":"c1","name":"bash","arguments":"again"}`), nil},
		{ev(session.TypeToolResult, `{"message":{"role":"user","content":[{"type":"tool-result","toolCallId":"c1","content":[{"type":"text","text":"out"},{"type":"text","text":"err"}]}]}}`),
			[]search.Text{{search.FieldResult, "bash", "out\nerr"}}},
		{replaced, nil},
		{ev(session.TypeAssistantChunk, `{"chunk":{"text":"so"}}`), nil},
		{ev(session.TypeTitle, `{"title":"a name","source":"user"}`), []search.Text{{Field: search.FieldTitle, Text: "a name"}}},
		{ev(session.TypeInboxSpliced, `{"inserted":[`+`{"role":"user","content":[{"type":"text","text":"hello"}]}]}`), nil},
	} {
		got, err := n.Texts(c.ev, session.Events{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.ev.Type, d)
		}
	}
}
