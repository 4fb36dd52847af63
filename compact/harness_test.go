package compact_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"

	"time"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/view"
	"github.com/strandline-dev/strandline/view/viewtest"
	"pgregory.net/rapid"
)

func registry(t rapid.TB) *session.Registry {
	t.Helper()
	reg, err := session.NewRegistry(agent.Kinds(), compact.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// world is one session in memory with a model that plays a function.
type world struct {
	late  func() // what happens when the time of the summary is over
	t     rapid.TB
	s     *session.Session
	c     *compact.Compactor
	job   compact.Job
	model *model
	ids   int
	notes []string
	saves int
	fail  error // of saving
}

type model struct {
	mu    sync.Mutex
	play  func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool)
	asked []llm.Request
}

func (m *model) Name() string { return "fake" }

func (m *model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		m.mu.Lock()
		m.asked = append(m.asked, req)
		play := m.play
		m.mu.Unlock()
		play(ctx, req, yield)
	}
}

func (m *model) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.asked)
}

func says(text string) func(context.Context, llm.Request, func(llm.Chunk, error) bool) {
	return ends(text, llm.FinishStop)
}

func ends(text string, finish llm.FinishReason) func(context.Context, llm.Request, func(llm.Chunk, error) bool) {
	return func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
		if text != "" && !yield(llm.Chunk{Type: llm.ChunkTextDelta, Text: text}, nil) {
			return
		}
		if !yield(llm.Chunk{Type: llm.ChunkUsage, Usage: &message.Usage{InputTokens: 70, OutputTokens: 7}}, nil) {
			return
		}
		yield(llm.Chunk{Type: llm.ChunkFinish, Finish: finish, ResponseID: "r"}, nil)
	}
}

func env(t rapid.TB) session.Env {
	now := int64(1000)
	var mu sync.Mutex
	return session.Env{Registry: registry(t), Validators: []session.Validator{session.Relational}, Now: func() int64 {
		mu.Lock()
		defer mu.Unlock()
		now++
		return now
	}}
}

func header(id session.ID) session.Header {
	return session.Header{Format: session.Format, ID: id, CreatedAt: 1000, Kind: session.KindRoot, Cwd: "/work"}
}

func newWorld(t rapid.TB, seed session.Seed) *world {
	return worldOf(t, header("s-1111"), seed, compact.Settings{})
}

func worldOf(t rapid.TB, h session.Header, seed session.Seed, set compact.Settings) *world {
	t.Helper()
	s, err := session.New(h, seed, env(t))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, s: s, model: &model{play: says("short")}}
	w.c = compact.New(compact.Options{
		NewID:    func() string { w.ids++; return fmt.Sprintf("%s-c%d-%d", h.ID, s.Len(), w.ids) },
		After:    func(_ time.Duration, f func()) func() bool { w.late = f; return func() bool { return true } },
		Settings: func(string, string) compact.Settings { return set },
		Restated: []string{"agents-md"},
	})
	w.job = compact.Job{
		Session: s, Provider: w.model, Window: 1000, Head: llm.Request{Model: "m", System: "be good"},
		Flush: func(context.Context) error { w.saves++; return w.fail },
		Remark: func(text string) {
			w.notes = append(w.notes, text)
		},
	}
	return w
}

func (w *world) put(drafts ...session.Draft) {
	w.t.Helper()
	if _, err := w.s.AppendAll(nil, drafts...); err != nil {
		w.t.Fatal(err)
	}
}

// turn appends a whole turn: a prompt, tools calls if there are any, and an answer.
func (w *world) turn(prompt, answer string, results ...string) {
	w.t.Helper()
	n, _ := w.s.State().Turn()
	n++
	w.put(session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: n}})
	w.step(n, 1, prompt, answer, results...)
	w.put(session.Draft{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: n, Reason: session.Reason{Kind: session.ReasonCompleted}}})
}

func (w *world) step(n, step int, prompt, answer string, results ...string) {
	w.t.Helper()
	w.put(session.Draft{Type: session.TypeStepStart, Data: session.StepRef{Turn: n, Step: step}})
	if prompt != "" {
		w.put(session.Draft{Type: session.TypeUserMessage, Data: message.User(fmt.Sprintf("u%d-%d", n, w.s.Len()), prompt), Op: session.Append()})
	}
	blocks := []message.Block{message.TextBlock(answer)}
	for i := range results {
		blocks = append(blocks, message.CallBlock(fmt.Sprintf("c%d", i), "look", "{}"))
	}
	w.put(session.Draft{Type: session.TypeAssistantMessage, Op: session.Append(), Data: session.AssistantMessage{
		Turn: n, Step: step, Message: message.Message{ID: fmt.Sprintf("a%d-%d", n, step), Role: message.RoleAssistant, Content: blocks, Source: message.Source{Kind: message.SourceModel, Provider: "fake", Model: "m"}},
		Usage: &message.Usage{InputTokens: 1, OutputTokens: 1},
	}})
	for i, r := range results {
		id := fmt.Sprintf("c%d", i)
		w.put(session.Draft{Type: session.TypeToolCall, Data: session.ToolCall{Turn: n, Step: step, CallID: id, Name: "look", Arguments: "{}"}},
			session.Draft{Type: session.TypeToolResult, Op: session.Append(), Data: session.ToolResult{Turn: n, Step: step, Message: message.Result(fmt.Sprintf("r%d-%d-%d", n, step, i), id, false, message.TextBlock(r))}})
	}
	w.put(session.Draft{Type: session.TypeStepEnd, Data: session.StepRef{Turn: n, Step: step}})
}

func (w *world) fill(turns int) {
	for i := range turns {
		w.turn(fmt.Sprintf("question %d %s", i, strings.Repeat("word ", 30)), fmt.Sprintf("answer %d %s", i, strings.Repeat("text ", 30)))
	}
}

// view is what would be sent, legal or the test fails.
func (w *world) view() []message.Message { return viewOf(w.t, w.s) }

func viewOf(t rapid.TB, s *session.Session) []message.Message {
	t.Helper()
	items, st, err := s.Surface()
	if err != nil {
		t.Fatal(err)
	}
	v := view.Build(items, st, "fake").Messages
	if err := viewtest.Check(v, "fake"); err != nil {
		t.Fatal(err)
	}
	return v
}

func events(t rapid.TB, p session.Prefix) session.Events {
	t.Helper()
	var out session.Events
	for ev, err := range p.Range(0, p.Len()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ev)
	}
	return out
}

// types are the types of the compaction's own events in the log, and of the boundaries.
func (w *world) types() string {
	var out []string
	for _, ev := range events(w.t, w.s.Events()) {
		switch {
		case ev.Type == compact.TypeEnd:
			d, err := session.DecodeData[compact.End](ev)
			if err != nil {
				w.t.Fatal(err)
			}
			out = append(out, "end:"+string(d.Outcome))
		case strings.HasPrefix(ev.Type, "compact/"):
			out = append(out, strings.TrimPrefix(ev.Type, "compact/"))
		case ev.Type == session.TypeInherited:
			out = append(out, "|")
		case ev.Op.Kind == session.OpReplace && ev.Type == session.TypeUserMessage:
			out = append(out, "replacement")
		case ev.Type == session.TypeRestore:
			out = append(out, "restore")
		}
	}
	return strings.Join(out, " ")
}

func (w *world) compact() compact.Report {
	w.t.Helper()
	rep, err := w.c.Compact(context.Background(), w.job, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return rep
}
