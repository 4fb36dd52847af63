package subagent_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/live"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/subagent"
	"github.com/strandline-dev/strandline/tool"
	"github.com/strandline-dev/strandline/view/viewtest"
)

// kept is agent.Sessions over a keeper, as the application wires it.
type kept struct{ k *keeper.Keeper }

func handle(h *keeper.Handle, err error) (agent.Handle, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (s kept) Create(ctx context.Context, h session.Header, seed session.Seed) (agent.Handle, error) {
	return handle(s.k.Create(ctx, h, seed))
}

func (s kept) Resume(ctx context.Context, id session.ID) (agent.Handle, error) {
	return handle(s.k.Resume(ctx, id))
}

func (s kept) Restore(ctx context.Context, id session.ID) (agent.Handle, bool, error) {
	h, err := s.Resume(ctx, id)
	return h, err == nil, err
}

func (s kept) Fork(ctx context.Context, source session.ID, o agent.ForkOptions) (session.Header, error) {
	return s.k.Fork(ctx, source, store.ForkOptions{At: o.At, Child: o.Child, Kind: o.Kind, Depth: o.Depth})
}

// reply is what the fake model does for one request.
type reply func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool)

func answers(finish llm.FinishReason, blocks ...message.Block) reply {
	return func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
		for i, b := range blocks {
			c := llm.Chunk{Type: llm.ChunkTextDelta, Index: i, Text: b.Text}
			if b.Type == message.ToolCall {
				c = llm.Chunk{Type: llm.ChunkToolCallDelta, Index: i, ID: b.ID, Name: b.Name, Arguments: b.Arguments}
			}
			if !yield(c, nil) {
				return
			}
		}
		yield(llm.Chunk{Type: llm.ChunkFinish, Finish: finish, Usage: &message.Usage{InputTokens: 10, OutputTokens: 5}}, nil)
	}
}

func says(text string) reply { return answers(llm.FinishStop, message.TextBlock(text)) }

func calls(blocks ...message.Block) reply { return answers(llm.FinishToolCalls, blocks...) }

// task calls the tool; args is JSON without braces.
func task(id, args string) message.Block { return message.CallBlock(id, "task", "{"+args+"}") }

// after answers r once ready is closed, or fails with the request's end.
func after(ready <-chan struct{}, r reply) reply {
	return func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool) {
		select {
		case <-ready:
			r(ctx, req, yield)
		case <-ctx.Done():
			yield(llm.Chunk{}, llm.AsError(ctx, ctx.Err()))
		}
	}
}

// begun closes started and goes on with r.
func begun(started chan<- struct{}, r reply) reply {
	return func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool) {
		close(started)
		r(ctx, req, yield)
	}
}

// model plays replies by the purpose of the request, and refuses views that are not legal.
type model struct {
	t testing.TB

	mu       sync.Mutex
	replies  map[string][]reply // by purpose; guarded by mu
	requests []llm.Request      // guarded by mu
}

func (m *model) Name() string { return "fake" }

func (m *model) Provider(string) (llm.Provider, error) { return m, nil }

func (m *model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		if err := viewtest.Check(req.Messages, "fake"); err != nil {
			m.t.Errorf("an illegal view was sent: %v", err)
		}
		m.mu.Lock()
		m.requests = append(m.requests, req)
		list := m.replies[req.Purpose]
		if len(list) == 0 {
			m.mu.Unlock()
			yield(llm.Chunk{}, llm.Errorf(llm.CodeInvalidRequest, "no reply is left for %s", req.Purpose))
			return
		}
		m.replies[req.Purpose] = list[1:]
		m.mu.Unlock()
		list[0](ctx, req, yield)
	}
}

// sent returns the requests of a purpose.
func (m *model) sent(purpose string) []llm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []llm.Request
	for _, r := range m.requests {
		if r.Purpose == purpose {
			out = append(out, r)
		}
	}
	return out
}

// world is one process.
type world struct {
	t     testing.TB
	mem   *memstore.Memory
	st    *memstore.Store
	k     *keeper.Keeper
	d     *subagent.Delegation
	model *model
	ctx   context.Context
	reg   *session.Registry

	mu  sync.Mutex
	ids map[string]int // by prefix
	now int64
}

type setup struct {
	mem     *memstore.Memory
	prefix  string // of ids
	opt     subagent.Options
	agents  func(*agent.Options)
	replies map[string][]reply
	tools   []tool.Definition
}

func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	if s.mem == nil {
		s.mem = new(memstore.Memory)
	}
	w := &world{t: t, mem: s.mem, now: 1000, ids: map[string]int{}, model: &model{t: t, replies: s.replies}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.ctx = ctx
	w.st = s.mem.Open(memstore.Options{Now: func() time.Time { return time.UnixMilli(w.tick()) }, Program: "test", PID: 1})
	var err error
	if w.reg, err = session.NewRegistry(agent.Kinds(), subagent.Kinds(), []session.Kind{
		{Type: "test/start", Owner: "test", Opens: "test"}, {Type: "test/end", Owner: "test", Closes: "test"}}); err != nil {
		t.Fatal(err)
	}
	w.k = keeper.New(w.st, live.New(), keeper.Options{
		Now: w.tick, NewID: func() session.ID { return session.ID(w.id("fork")) }, Registry: w.reg,
		Validators: []session.Validator{session.Relational},
	})
	tools, err := tool.NewSet(s.tools...)
	if err != nil {
		t.Fatal(err)
	}
	ao := agent.Options{
		Sessions: kept{w.k}, Models: w.model, Default: agent.Route{Provider: "fake", Model: "m1"}, Policy: tool.PolicyYolo,
		Equip: func(context.Context, *session.Session) (agent.Kit, error) { return agent.Kit{Tools: tools}, nil },
		Now:   func() time.Time { return time.UnixMilli(w.tick()) }, NewID: func() string { return w.id("m") }, Rand: func() float64 { return 0.5 },
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}
	if s.agents != nil {
		s.agents(&ao)
	}
	if s.prefix == "" {
		s.prefix = "child"
	}
	s.opt.NewID, s.opt.Now = func() session.ID { return session.ID(w.id(s.prefix)) }, w.tick
	if w.d, err = subagent.New(ao, s.opt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		w.close()
	})
	return w
}

// close ends the process in good order.
func (w *world) close() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, err := range []error{w.d.Close(ctx), w.k.Close(ctx)} {
		if err != nil && !errors.Is(err, store.ErrFenced) && !errors.Is(err, store.ErrClosed) && !errors.Is(err, session.ErrDisposed) {
			w.t.Errorf("close: %v", err)
		}
	}
	w.st.Close()
}

func (w *world) tick() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now++
	return w.now
}

func (w *world) id(prefix string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids[prefix]++
	return fmt.Sprintf("%s-%d", prefix, w.ids[prefix])
}

func head(id session.ID) session.Header {
	return session.Header{Format: session.Format, ID: id, CreatedAt: 1, Kind: session.KindRoot, Cwd: "/work/project"}
}

func (w *world) create(id session.ID) *agent.Agent {
	w.t.Helper()
	a, err := w.d.Agents().Create(w.ctx, agent.Spec{Header: head(id)})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) resume(id session.ID) *agent.Agent {
	w.t.Helper()
	a, err := w.d.Agents().Resume(w.ctx, id, agent.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) followup(a *agent.Agent, text string) {
	w.t.Helper()
	if _, err := a.Followup(w.ctx, agent.Text(text)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) idle(a *agent.Agent) {
	w.t.Helper()
	if err := a.WhenIdle(w.ctx); err != nil {
		w.t.Fatalf("not idle: %v\n%s", err, shape(w.t, a.Session().Events()))
	}
}

func (w *world) quiet(a *agent.Agent) {
	w.t.Helper()
	if err := w.d.WhenQuiet(w.ctx, a); err != nil {
		w.t.Fatalf("not quiet: %v\n%s", err, shape(w.t, a.Session().Events()))
	}
}

func (w *world) say(a *agent.Agent, text string) {
	w.t.Helper()
	w.followup(a, text)
	w.idle(a)
}

// wait waits for a channel.
func (w *world) wait(c <-chan struct{}) {
	w.t.Helper()
	select {
	case <-c:
	case <-w.ctx.Done():
		w.t.Fatal("it does not happen")
	}
}

// until waits until a session's log holds a line.
func (w *world) until(s *session.Session, line string) {
	w.t.Helper()
	for {
		_, more, err := s.From(s.Head())
		if err != nil {
			w.t.Fatal(err)
		}
		if strings.Contains(shape(w.t, s.Events()), line+"\n") {
			return
		}
		select {
		case <-more:
		case <-w.ctx.Done():
			w.t.Fatalf("no %q:\n%s", line, shape(w.t, s.Events()))
		}
	}
}

// stored reads what the store has of a session.
func (w *world) stored(id session.ID) (session.Header, session.Events) {
	w.t.Helper()
	snap, err := w.st.Read(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	defer snap.Close()
	return snap.Header, read(w.t, snap.Prefix)
}

func read(t testing.TB, p session.Prefix) session.Events {
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

// shape writes a log as one line per event.
func shape(t testing.TB, p session.Prefix) string {
	t.Helper()
	var b strings.Builder
	for _, ev := range read(t, p) {
		b.WriteString(ev.Type)
		switch ev.Type {
		case session.TypeTurnEnd:
			d, _ := session.DecodeData[session.TurnEnd](ev)
			b.WriteString(" " + d.Reason.Kind)
			if d.Reason.Cause != "" {
				b.WriteString(" " + d.Reason.Cause)
			}
		case session.TypeUserMessage:
			d, _ := message.Decode(ev.Data)
			b.WriteString(" " + strings.ReplaceAll(d.PlainText(), "\n", "|"))
		case session.TypeAssistantMessage:
			d, _ := session.DecodeData[session.AssistantMessage](ev)
			for _, bl := range d.Message.Content {
				b.WriteString(" " + bl.Text + bl.ID)
			}
		case session.TypeToolCall:
			d, _ := session.DecodeData[session.ToolCall](ev)
			b.WriteString(" " + d.CallID)
		case session.TypeToolResult:
			d, _ := session.DecodeData[session.ToolResult](ev)
			b.WriteString(" " + session.ResultCallID(ev))
			if d.Error != nil {
				b.WriteString(" " + d.Error.Code)
			} else {
				b.WriteString(" " + strings.ReplaceAll(d.Message.PlainText(), "\n", "|"))
			}
		case session.TypeApprovalDecided:
			d, _ := session.DecodeData[session.ApprovalDecided](ev)
			b.WriteString(" " + d.Verdict + " " + d.By)
		case subagent.TypeStart:
			d, _ := session.DecodeData[subagent.Start](ev)
			b.WriteString(" " + string(d.ChildID))
		case subagent.TypeEnd:
			d, _ := session.DecodeData[subagent.End](ev)
			b.WriteString(" " + string(d.ChildID) + " " + string(d.Outcome))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// has fails unless the log holds these lines, in this order (others may stand between).
func has(t testing.TB, p session.Prefix, lines ...string) {
	t.Helper()
	whole := shape(t, p)
	rest := strings.Split(whole, "\n")
	for _, want := range lines {
		found := -1
		for i, l := range rest {
			if l == want {
				found = i
				break
			}
		}
		if found < 0 {
			t.Fatalf("the log lacks %q at its place:\n%s", want, whole)
		}
		rest = rest[found+1:]
	}
}

// count counts the lines of a log that begin so.
func count(t testing.TB, p session.Prefix, begin string) int {
	t.Helper()
	n := 0
	for _, l := range strings.Split(shape(t, p), "\n") {
		if strings.HasPrefix(l, begin) {
			n++
		}
	}
	return n
}

// medium is what is left of a medium on which the sessions end as cuts say: what a crash leaves.
func medium(t testing.TB, w *world, cuts map[session.ID]session.Seq) *memstore.Memory {
	t.Helper()
	ctx := context.Background()
	page, err := w.st.List(ctx, store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	mem := new(memstore.Memory)
	st := mem.Open(memstore.Options{Now: time.Now, Program: "before", PID: 1})
	defer st.Close()
	for fork := range 2 { // sources before their forks
		for _, row := range page.Rows {
			h, evs := w.stored(row.ID)
			if (h.SeedLength > 0) != (fork == 1) {
				continue
			}
			if n, ok := cuts[row.ID]; ok {
				if n < 0 {
					continue
				}
				evs = evs[:min(max(n, h.SeedLength), session.Seq(len(evs)))]
			}
			if h.SeedLength > 0 {
				if err := st.CreateFork(ctx, h, evs[h.SeedLength:]); err != nil {
					t.Fatal(err)
				}
				continue
			}
			wr, err := st.Create(ctx, h)
			if err != nil {
				t.Fatal(err)
			}
			if len(evs) > 0 {
				if _, err := wr.Append(ctx, evs); err != nil {
					t.Fatal(err)
				}
			}
			if err := wr.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return mem
}

func simple(name string, run func(ctx context.Context, c tool.Call) (tool.Result, error)) tool.Definition {
	return tool.Definition{Name: name, Parameters: jsontext.Value(`{"type":"object"}`), Run: run}
}

func echo(name string) tool.Definition {
	return simple(name, func(context.Context, tool.Call) (tool.Result, error) { return tool.Text(name + " ran"), nil })
}
