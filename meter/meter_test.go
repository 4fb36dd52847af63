package meter_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
	"github.com/strandline-dev/strandline/view"
)

// log is a session that is written by hand.
type log struct {
	t rapid.TB
	s *session.Session
	b *view.Builder
}

func newLog(t rapid.TB, h session.Header, seed session.Seed) *log {
	t.Helper()
	n := int64(0)
	s, err := session.New(h, seed, session.Env{Registry: sessiontest.Registry(), Now: func() int64 { n++; return n }})
	if err != nil {
		t.Fatal(err)
	}
	return &log{t, s, view.NewBuilder(view.Options{Provider: "p"})}
}

func (l *log) put(typ string, data any, op session.SurfaceOp, src ...session.Seq) session.Seq {
	l.t.Helper()
	d := session.Draft{Type: typ, Data: data, Op: op}
	if len(src) > 0 {
		d.Sources = session.Cite(src...)
	}
	ev, err := l.s.Append(d)
	if err != nil {
		l.t.Fatal(err)
	}
	return ev.Seq
}

func (l *log) header(model string) {
	l.put(session.TypeRequestHeader, session.RequestHeader{Header: session.HeaderBody{Config: []byte(fmt.Sprintf(`{"provider":"p","model":%q}`, model))}, Reason: "initial"}, session.SurfaceOp{})
}

func (l *log) user(text string) {
	l.put(session.TypeUserMessage, message.User(fmt.Sprintf("u%d", l.s.Len()), text), session.Append())
}

func (l *log) answer(provider, model string, u *message.Usage, blocks ...message.Block) session.Seq {
	return l.put(session.TypeAssistantMessage, session.AssistantMessage{Turn: 1, Step: 1, Usage: u, Message: message.Message{
		ID: fmt.Sprintf("a%d", l.s.Len()), Role: message.RoleAssistant, Content: blocks, Source: message.Source{Kind: message.SourceModel, Provider: provider, Model: model}}}, session.Append())
}

func (l *log) gauge(req llm.Request) meter.Gauge {
	l.t.Helper()
	items, st, err := l.s.Surface()
	if err != nil {
		l.t.Fatal(err)
	}
	req.Messages = l.b.Update(items, st).Messages
	return meter.Measure(req, st, l.s.Events())
}

func head(id session.ID) session.Header {
	return session.Header{Format: session.Format, ID: id, Kind: session.KindRoot, CreatedAt: 1}
}

func told(in, out int64) *message.Usage { return &message.Usage{InputTokens: in, OutputTokens: out} }

// The gauge begins at what was told as long as header and view go on, and is estimated when they do not.
func TestMeasure(t *testing.T) {
	l := newLog(t, head("s-1111"), session.Seed{})
	l.header("m")
	l.user("abcdefgh")
	if g := l.gauge(llm.Request{System: "abcd"}); g != (meter.Gauge{Tokens: 1 + 4 + 2}) {
		t.Errorf("nothing was told: %+v", g)
	}
	read := int64(30)
	l.answer("p", "m", &message.Usage{InputTokens: 100, CacheReadTokens: &read, OutputTokens: 20}, message.TextBlock("hello"))
	l.user("日本語 ok")
	if g := l.gauge(llm.Request{}); g != (meter.Gauge{Tokens: 150 + 4 + 3 + 1, Told: 150}) {
		t.Errorf("told: %+v", g)
	}
	l.header("m") // a new life says the same again
	if g := l.gauge(llm.Request{}); g.Told != 150 {
		t.Errorf("the same header: %+v", g)
	}
	reasoning := int64(15)
	l.answer("p", "m", &message.Usage{InputTokens: 160, OutputTokens: 20, ReasoningTokens: &reasoning}, message.TextBlock("hello"))
	if g := l.gauge(llm.Request{}); g.Tokens != 165 {
		t.Errorf("reasoning that is not sent back counts: %+v", g)
	}
	l.answer("p", "m", &message.Usage{}, message.TextBlock("hello"))
	if g := l.gauge(llm.Request{}); g.Told != 0 || g.Tokens <= 0 {
		t.Errorf("a usage of nothing is believed: %+v", g)
	}
	l.answer("p", "m", told(200, 5), message.TextBlock("hello"))
	l.header("other")
	if g := l.gauge(llm.Request{}); g.Told != 0 {
		t.Errorf("another header: %+v", g)
	}
	last := l.answer("p", "other", told(300, 5), message.TextBlock("hello"))
	if g := l.gauge(llm.Request{}); g.Told != 305 {
		t.Errorf("%+v", g)
	}
	hide := l.put(session.TypeHide, session.Hide{Reason: "trim"}, session.Replace(1, 1), 1)
	if g := l.gauge(llm.Request{}); g.Told != 0 {
		t.Errorf("an old figure for another view: %+v", g)
	}
	l.put(session.TypeRestore, struct{}{}, session.Restore(hide))
	if g := l.gauge(llm.Request{}); g.Told != 0 || g.Tokens < 10 {
		t.Errorf("%+v of %d", g, last)
	}
}

// said is one message of a recorded conversation.
type said struct {
	role, text, result string // result: the call that the text answers
	calls              []message.Block
	usage              *message.Usage
	cut                bool
}

func corpus(t *testing.T, name string) []byte {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if raw, err := os.ReadFile(filepath.Join(dir, "shared", "corpus", name)); err == nil {
			return raw
		}
		dir = filepath.Dir(dir)
	}
	t.Skip("skipped: there are no recorded conversations beside the repository")
	return nil
}

func chatCompletions(t *testing.T) (out []said) {
	var rec struct {
		Messages []struct {
			Role, Content string
			ToolCallID    string `json:"tool_call_id"`
			ToolCalls     []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
			Extra struct {
				Response struct {
					Usage struct {
						Prompt int64 `json:"prompt_tokens"`
						Answer int64 `json:"completion_tokens"`
					}
				}
			}
		}
	}
	if err := json.Unmarshal(corpus(t, "chat-completions/mini_deepseek_tools_196k.json"), &rec); err != nil {
		t.Fatal(err)
	}
	for _, m := range rec.Messages {
		s := said{role: m.Role, text: m.Content, result: m.ToolCallID}
		if m.Role == "assistant" {
			s.usage = told(m.Extra.Response.Usage.Prompt, m.Extra.Response.Usage.Answer)
		}
		for _, c := range m.ToolCalls {
			s.calls = append(s.calls, message.CallBlock(c.ID, c.Function.Name, c.Function.Arguments))
		}
		out = append(out, s)
	}
	return out
}

func pi(t *testing.T) (out []said) {
	for line := range bytes.Lines(corpus(t, "pi/large-session_v1.jsonl")) {
		var rec struct {
			Message struct {
				Role, ToolCallID, StopReason string
				Content                      []struct {
					Type, Text, ID, Name string
					Arguments            json.RawMessage
				}
				Usage struct{ Input, Output, CacheRead, CacheWrite int64 }
			}
		}
		if err := json.Unmarshal(line, &rec); err != nil || rec.Message.Role == "" {
			continue
		}
		m := rec.Message
		s := said{role: m.Role, result: m.ToolCallID, cut: m.StopReason == "error" || m.StopReason == "aborted"}
		for _, b := range m.Content {
			s.text += b.Text
			if b.Type == "toolCall" {
				s.calls = append(s.calls, message.CallBlock(b.ID, b.Name, string(b.Arguments)))
			}
		}
		if u := m.Usage; u.Output > 0 {
			s.usage = &message.Usage{InputTokens: u.Input, OutputTokens: u.Output, CacheReadTokens: &u.CacheRead, CacheWriteTokens: &u.CacheWrite}
		}
		out = append(out, s)
	}
	return out
}

// On recorded conversations the gauge is within 10 % of what the service counted.
func TestRecordedConversations(t *testing.T) {
	for name, read := range map[string]func(*testing.T) []said{"chat completions": chatCompletions, "pi": pi} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, head("s-1111"), session.Seed{})
			l.header("m")
			req := llm.Request{}
			var off []float64
			for _, m := range read(t) {
				switch {
				case m.role == "system":
					req.System = m.text
				case m.role == "user":
					l.user(m.text)
				case m.result != "":
					l.put(session.TypeToolResult, session.ToolResult{Turn: 1, Step: 1, Message: message.Result(fmt.Sprintf("r%d", l.s.Len()), m.result, false, message.TextBlock(m.text))}, session.Append())
				case m.role == "assistant":
					// The first request has nothing to begin at: its tools are not in the record.
					if g := l.gauge(req); g.Told > 0 && m.usage != nil {
						counted := meter.Tokens(*m.usage) - m.usage.OutputTokens
						off = append(off, math.Abs(float64(g.Tokens-counted))/float64(counted))
					}
					blocks := m.calls
					if m.text != "" {
						blocks = append([]message.Block{message.TextBlock(m.text)}, blocks...)
					}
					l.put(session.TypeAssistantMessage, session.AssistantMessage{Turn: 1, Step: 1, Usage: m.usage, Interrupted: m.cut, Message: message.Message{
						ID: fmt.Sprintf("a%d", l.s.Len()), Role: message.RoleAssistant, Content: append([]message.Block{}, blocks...), Source: message.Source{Kind: message.SourceModel, Provider: "p", Model: "m"}}}, session.Append())
				}
			}
			slices.Sort(off)
			within := sort.SearchFloat64s(off, 0.1)
			t.Logf("%d requests: off by %.2f %% in the middle, %.1f %% at most, %d within 10 %%", len(off), 100*off[len(off)/2], 100*off[len(off)-1], within)
			if len(off) < 30 || within < len(off)*98/100 {
				t.Errorf("%d of %d requests are within 10 %%", within, len(off))
			}
		})
	}
}

// The totals of any log equal a sum over its answers, after every resume and fork; a tree counts what is shared once.
func TestTotals(t *testing.T) {
	price := llm.Price{Input: 2, Output: 10, CacheRead: 1, CacheWrite: 3}
	prices := func(_, model string) (llm.Price, bool) { return price, model != "unpriced" }
	rapid.Check(t, func(t *rapid.T) {
		var in, out, unpriced int64 // of the tree, by hand
		fill := func(l *log, n int) {
			for range n {
				model := rapid.SampledFrom([]string{"m", "m", "other", "unpriced"}).Draw(t, "model")
				u := told(rapid.Int64Range(0, 1000).Draw(t, "in"), rapid.Int64Range(0, 100).Draw(t, "out"))
				l.answer("p", model, u, message.TextBlock("x"))
				in, out = in+u.InputTokens, out+u.OutputTokens
				if model == "unpriced" {
					unpriced += u.InputTokens + u.OutputTokens
				}
				if rapid.IntRange(0, 4).Draw(t, "silent") == 0 {
					l.answer("p", model, nil, message.TextBlock("x"))
				}
			}
		}
		root := newLog(t, head("s-1111"), session.Seed{})
		if c := meter.Total(root.s.State(), prices); c.Usage != nil || c.USD != nil {
			t.Fatalf("unknown is not zero: %+v", c)
		}
		fill(root, rapid.IntRange(1, 6).Draw(t, "first"))
		var tree []session.State
		for i := range rapid.IntRange(0, 3).Draw(t, "forks") {
			evs := sessiontest.All(t, root.s.Events())
			h := head(session.ID(fmt.Sprintf("fork-%d", i)))
			h.Kind, h.SeedLength = session.KindFork, evs.Len()
			h.Parent = &session.Parent{ID: "s-1111", Seq: evs.Len() - 1, Spans: []session.OriginSpan{{ID: "s-1111", End: evs.Len()}}}
			child := newLog(t, h, session.Seed{Prefix: evs})
			fill(child, rapid.IntRange(0, 4).Draw(t, "of the fork"))
			tree = append(tree, child.s.State())
			fill(root, rapid.IntRange(0, 3).Draw(t, "more"))
		}
		again := newLog(t, head("s-1111"), session.Seed{Prefix: sessiontest.All(t, root.s.Events())}) // a resume
		c := meter.Total(again.s.State(), prices)
		for _, st := range tree {
			c.AddOwn(prices, st)
		}
		if c.Usage.InputTokens != in || c.Usage.OutputTokens != out || c.Unpriced != unpriced {
			t.Fatalf("%+v, want %d in, %d out, %d without a price", c, in, out, unpriced)
		}
		var own session.State = again.s.State()
		sum := meter.Total(own, prices)
		var byHand float64
		for _, ev := range sessiontest.All(t, again.s.Events()) {
			if ev.Type != session.TypeAssistantMessage {
				continue
			}
			a, err := session.DecodeData[session.AssistantMessage](ev)
			if err != nil {
				t.Fatal(err)
			}
			if a.Usage != nil && a.Message.Source.Model != "unpriced" {
				byHand += price.Cost(*a.Usage)
			}
		}
		if got := 0.0; sum.USD != nil {
			got = *sum.USD
			if d := got - byHand; d > 1e-9 || d < -1e-9 {
				t.Fatalf("%v US dollars, want %v", got, byHand)
			}
		}
	})
}
