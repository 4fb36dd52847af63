package view_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/view"
	"github.com/strandline-dev/strandline/view/viewtest"
)

const provider = "acme"

// log builds stored events.
type log struct {
	t      *testing.T
	events session.Events
}

func (l *log) add(typ string, op session.SurfaceOp, src session.Sources, data any) session.Seq {
	l.t.Helper()
	ev, err := session.Draft{Type: typ, Op: op, Sources: src, Data: data}.Event(session.Seq(len(l.events)), 1000)
	if err != nil {
		l.t.Fatal(err)
	}
	l.events = append(l.events, ev)
	return ev.Seq
}

func (l *log) turn(n int) {
	l.add(session.TypeTurnStart, session.SurfaceOp{}, nil, session.TurnStart{Turn: n})
}
func (l *log) step(t, n int) {
	l.add(session.TypeStepStart, session.SurfaceOp{}, nil, session.StepRef{Turn: t, Step: n})
}
func (l *log) endStep(t, n int) {
	l.add(session.TypeStepEnd, session.SurfaceOp{}, nil, session.StepRef{Turn: t, Step: n})
}
func (l *log) endTurn(n int, kind string) {
	l.add(session.TypeTurnEnd, session.SurfaceOp{}, nil, session.TurnEnd{Turn: n, Reason: session.Reason{Kind: kind}})
}
func (l *log) user(text string) session.Seq {
	return l.add(session.TypeUserMessage, session.Append(), nil, message.User(fmt.Sprintf("u%d", len(l.events)), text))
}

func (l *log) assistant(t, n int, blocks ...message.Block) session.Seq {
	return l.add(session.TypeAssistantMessage, session.Append(), nil, session.AssistantMessage{Turn: t, Step: n, Message: message.Message{
		ID: fmt.Sprintf("a%d", len(l.events)), Role: message.RoleAssistant, Content: blocks,
		Source: message.Source{Kind: message.SourceModel, Provider: provider, Model: "m"},
	}})
}

func (l *log) asks(t, n int, ids ...string) session.Seq {
	var blocks []message.Block
	for _, id := range ids {
		blocks = append(blocks, message.CallBlock(id, "bash", "{}"))
	}
	return l.assistant(t, n, blocks...)
}
func (l *log) started(t, n int, id string) session.Seq {
	return l.add(session.TypeToolCall, session.SurfaceOp{}, nil, session.ToolCall{Turn: t, Step: n, CallID: id, Name: "bash", Arguments: "{}"})
}
func (l *log) result(t, n int, id, text string) session.Seq {
	return l.add(session.TypeToolResult, session.Append(), nil, session.ToolResult{Turn: t, Step: n,
		Message: message.Result(fmt.Sprintf("r%d", len(l.events)), id, false, message.TextBlock(text))})
}

// build folds the log, checks the view strictly, and returns it.
func (l *log) build() view.View {
	l.t.Helper()
	h := session.Header{Format: 1, ID: "test", Kind: session.KindRoot}
	st, err := session.Fold(h, session.Core(), l.events)
	if err != nil {
		l.t.Fatal(err)
	}
	items, err := session.ProjectAll(st, l.events)
	if err != nil {
		l.t.Fatal(err)
	}
	v := view.Build(items, st, provider)
	if err := viewtest.Check(v.Messages, provider); err != nil {
		l.t.Fatal(err)
	}
	return v
}

// short renders a view in one line per message.
func short(v view.View) []string {
	var out []string
	for _, m := range v.Messages {
		var parts []string
		for _, b := range m.Content {
			switch b.Type {
			case message.ToolCall:
				parts = append(parts, "call "+b.ID)
			case message.ToolResult:
				text := m.PlainText()
				if b.IsError {
					text = "error: " + strings.Join(strings.Fields(text)[:6], " ")
				}
				parts = append(parts, "result "+b.ToolCallID+" "+text)
			default:
				parts = append(parts, b.Text)
			}
		}
		out = append(out, string(m.Role)+": "+strings.Join(parts, ", "))
	}
	return out
}

func notes(v view.View) []string {
	var out []string
	for _, n := range v.Notes {
		s := fmt.Sprintf("%s %d", n.Kind, n.Seq)
		if n.Code != "" {
			s += " " + n.Code
		}
		out = append(out, s)
	}
	return out
}

const (
	notStarted = "error: This call was interrupted before it"
	unknown    = "error: This call was started and then"
	waiting    = "error: This call waits for a person's"
)

func TestRules(t *testing.T) {
	for _, tc := range []struct {
		name  string
		log   func(l *log)
		want  []string
		notes []string
	}{
		{"three calls, two results, the turn ended in an error", func(l *log) {
			l.turn(1)
			l.step(1, 1)
			l.user("go")
			l.asks(1, 1, "c1", "c2", "c3")
			for _, c := range []string{"c1", "c2", "c3"} {
				l.started(1, 1, c)
			}
			l.result(1, 1, "c3", "three")
			l.result(1, 1, "c1", "one")
			l.endStep(1, 1)
			l.endTurn(1, session.ReasonError)
			l.turn(2)
			l.user("go on")
		}, []string{"user: go", "assistant: call c1, call c2, call c3", "user: result c1 one", "user: result c2 " + unknown,
			"user: result c3 three", "user: go on"},
			[]string{"missing-result 3 TOOL_OUTCOME_UNKNOWN"}},
		{"a duplicate and a stranger", func(l *log) {
			l.turn(1)
			l.step(1, 1)
			l.asks(1, 1, "c1")
			l.result(1, 1, "c1", "one")
			l.result(1, 1, "c1", "again")
			l.result(1, 1, "c9", "who?")
		}, []string{"assistant: call c1", "user: result c1 one"}, []string{"duplicate 4", "stranger 5"}},
		{"a repeated id", func(l *log) {
			l.turn(1)
			l.step(1, 1)
			l.asks(1, 1, "c1")
			l.step(1, 2)
			l.asks(1, 2, "c1", "c1")
			l.result(1, 2, "c1", "two")
			l.result(1, 1, "c1", "one")
			l.result(1, 2, "c1", "three")
		}, []string{"assistant: call c1", "user: result c1 one", "assistant: call c1-4-0, call c1-4-1",
			"user: result c1-4-0 two", "user: result c1-4-1 three"},
			[]string{"renamed-id 4", "renamed-id 4", "moved-result 6"}},
		{"a late result of a step that knows the id no more goes to the nearest open call", func(l *log) {
			l.asks(1, 1, "c1")
			l.asks(1, 2, "c1")
			l.result(2, 5, "c1", "late")
		}, []string{"assistant: call c1", "user: result c1 " + notStarted, "assistant: call c1-1-0", "user: result c1-1-0 late"},
			[]string{"renamed-id 1", "missing-result 0 TOOL_NOT_STARTED"}},
		{"a result ahead of its call", func(l *log) {
			l.result(1, 1, "c1", "early")
			l.asks(1, 1, "c1")
		}, []string{"assistant: call c1", "user: result c1 early"}, []string{"moved-result 0"}},
		{"something between a call and its result", func(l *log) {
			l.turn(1)
			l.asks(1, 1, "c1")
			l.user("steer")
			l.result(1, 1, "c1", "one")
		}, []string{"assistant: call c1", "user: result c1 one", "user: steer"}, []string{"moved-result 3"}},
		{"a call that waits", func(l *log) {
			l.turn(1)
			l.step(1, 1)
			l.asks(1, 1, "c1")
			l.add(session.TypeApprovalAsked, session.SurfaceOp{}, nil, session.ApprovalAsked{AskID: "q", Turn: 1, Step: 1, CallID: "c1"})
		}, []string{"assistant: call c1", "user: result c1 " + waiting}, []string{"missing-result 2 TOOL_WAITING_FOR_APPROVAL"}},
		{"a hidden result counts as unknown", func(l *log) {
			l.asks(1, 1, "c1")
			r := l.result(1, 1, "c1", "one")
			l.add(session.TypeHide, session.Replace(r, r), session.Cite(r), session.Hide{})
		}, []string{"assistant: call c1", "user: result c1 " + unknown}, []string{"missing-result 0 TOOL_OUTCOME_UNKNOWN"}},
		{"a closer of a hidden call belongs to nobody else", func(l *log) {
			l.asks(1, 1, "c1")
			a := l.asks(1, 1, "c1")
			l.add(session.TypeHide, session.Replace(a, a), session.Cite(a), session.Hide{})
			c := session.Call{Assistant: a, ID: "c1", Turn: 1, Step: 1}
			l.add(session.TypeToolResult, session.Append(), nil, session.ToolResult{Turn: 1, Step: 1,
				Message: session.MissingResult(c, session.CodeOutcomeUnknown), Error: &session.ErrorInfo{Code: session.CodeOutcomeUnknown}})
		}, []string{"assistant: call c1", "user: result c1 " + notStarted}, []string{"stranger 3", "missing-result 0 TOOL_NOT_STARTED"}},
		{"lost records", func(l *log) {
			l.user("a")
			l.add(session.TypeLost, session.Append(), nil, session.Lost{})
			l.assistant(1, 1)
			l.add(session.TypeLost, session.Append(), nil, session.Lost{})
			l.user("b")
			l.add(session.TypeLost, session.Append(), nil, session.Lost{})
		}, []string{"user: a", "user: [2 records of this conversation were lost in storage here. What they said is missing.]", "user: b",
			"user: [1 record of this conversation was lost in storage here. What it said is missing.]"},
			[]string{"lost-records 1", "lost-records 5"}},
		{"blocks that cannot stand where they are", func(l *log) {
			l.add(session.TypeUserMessage, session.Append(), nil, message.Message{Role: "system", Content: []message.Block{
				message.CallBlock("x", "y", "{}"), message.ResultBlock("x", false), message.TextBlock(""), message.TextBlock("a\x00b")}})
			l.assistant(1, 1, message.ResultBlock("x", false))
			l.add(session.TypeUserMessage, session.Append(), nil, message.Message{Role: "user", Content: []message.Block{
				{Type: message.Image}, {Type: message.Image, Blob: "b", MediaType: "image/tiff"}, {Type: message.Image, Blob: "b", MediaType: "image/png"}}})
		}, []string{"user: a\uFFFDb", "user: [an image was left out: it has no content], [an image was left out: its type is not one that can be sent], "},
			[]string{"misplaced 0", "misplaced 0", "replaced-text 0", "misplaced 1", "refused-media 2", "refused-media 2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &log{t: t}
			tc.log(l)
			v := l.build()
			if diff := cmp.Diff(tc.want, short(v)); diff != "" {
				t.Errorf("view (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tc.notes, notes(v), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("notes (-want +got)\n%s", diff)
			}
		})
	}
}
