package agent_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
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
	"github.com/strandline-dev/strandline/tool"
	"github.com/strandline-dev/strandline/view/viewtest"
)

// kept is agent.Sessions over a keeper, as the application wires it.
type kept struct{ k *keeper.Keeper }

func (s kept) Create(ctx context.Context, h session.Header, seed session.Seed) (agent.Handle, error) {
	return handle(s.k.Create(ctx, h, seed))
}

func (s kept) Resume(ctx context.Context, id session.ID) (agent.Handle, error) {
	return handle(s.k.Resume(ctx, id))
}

func (s kept) Restore(ctx context.Context, id session.ID) (agent.Handle, bool, error) {
	h, err := s.Resume(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, nil
	}
	return h, err == nil, err
}

func (s kept) Fork(ctx context.Context, source session.ID, opt agent.ForkOptions) (session.Header, error) {
	return s.k.Fork(ctx, source, store.ForkOptions{At: opt.At, Child: opt.Child, Kind: opt.Kind, Depth: opt.Depth})
}

func handle(h *keeper.Handle, err error) (agent.Handle, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

// flaky is a store whose writes can be made to fail, and that tells when something was synced.
type flaky struct {
	*memstore.Store
	mu      sync.Mutex
	failing error
	plan    func(op int) error // decides about the op-th write or sync; nil: failing does
	ops     int
	synced  func(session.Prefix) // told what is synced, each time
	next    session.Seq          // synced up to here
	flushes int
}

func (f *flaky) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failing = err
}

// op is called with mu held.
func (f *flaky) op() error {
	f.ops++
	if f.plan != nil && f.failing == nil {
		return f.plan(f.ops)
	}
	return f.failing
}

func (f *flaky) syncedTo() session.Seq {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next
}

func (f *flaky) Create(ctx context.Context, h session.Header) (store.Writer, error) {
	w, err := f.Store.Create(ctx, h)
	return &flakyWriter{w, f}, err
}

func (f *flaky) Open(ctx context.Context, id session.ID) (store.Writer, error) {
	w, err := f.Store.Open(ctx, id)
	return &flakyWriter{w, f}, err
}

type flakyWriter struct {
	store.Writer
	f *flaky
}

func (w *flakyWriter) Append(ctx context.Context, evs []session.Event) (store.Pos, error) {
	w.f.mu.Lock()
	err := w.f.op()
	w.f.mu.Unlock()
	if err != nil {
		return store.Pos{}, err
	}
	return w.Writer.Append(ctx, evs)
}

func (w *flakyWriter) Flush(ctx context.Context) (store.Pos, error) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if err := w.f.op(); err != nil {
		return store.Pos{}, err
	}
	pos, err := w.Writer.Flush(ctx)
	w.f.flushes++
	w.f.next = pos.Next
	if w.f.synced != nil && err == nil {
		w.f.synced(w.Writer.Stored())
	}
	return pos, err
}

// reply is what the fake model does for one request.
type reply func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool)

func says(text string) reply { return answers(llm.FinishStop, message.TextBlock(text)) }

func calls(blocks ...message.Block) reply { return answers(llm.FinishToolCalls, blocks...) }

func answers(finish llm.FinishReason, blocks ...message.Block) reply {
	return func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
		if emit(yield, blocks...) {
			yield(llm.Chunk{Type: llm.ChunkFinish, Finish: finish, ResponseID: "resp", Usage: &message.Usage{InputTokens: 10, OutputTokens: 5}}, nil)
		}
	}
}

func emit(yield func(llm.Chunk, error) bool, blocks ...message.Block) bool {
	for i, b := range blocks {
		c := llm.Chunk{Type: llm.ChunkTextDelta, Index: i, Text: b.Text}
		switch b.Type {
		case message.ToolCall:
			c = llm.Chunk{Type: llm.ChunkToolCallDelta, Index: i, ID: b.ID, Name: b.Name, Arguments: b.Arguments}
		case message.Reasoning:
			c.Type = llm.ChunkReasoningDelta
		}
		if !yield(c, nil) {
			return false
		}
	}
	return true
}

func fails(code llm.Code, blocks ...message.Block) reply {
	return func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
		if emit(yield, blocks...) {
			yield(llm.Chunk{}, &llm.Error{Code: code, Message: "as told"})
		}
	}
}

// hangs sends blocks, closes started, and then waits for the end of the request.
func hangs(started chan<- struct{}, blocks ...message.Block) reply {
	return func(ctx context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
		if !emit(yield, blocks...) {
			return
		}
		close(started)
		<-ctx.Done()
		yield(llm.Chunk{}, llm.AsError(ctx, ctx.Err()))
	}
}

// model is a provider that plays replies, and refuses to be sent a view that is not legal.
type model struct {
	t    testing.TB
	name string

	mu        sync.Mutex
	replies   []reply
	otherwise reply // when replies are used up; nil: an error
	requests  []llm.Request
}

func (m *model) Name() string { return m.name }

func (m *model) ModelInfo(string) (llm.ModelInfo, bool) {
	return llm.ModelInfo{ContextWindow: 1000, Price: &llm.Price{Input: 1e5, Output: 2e5}}, true
}

func (m *model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		if err := viewtest.Check(req.Messages, m.name); err != nil {
			m.t.Errorf("an illegal view was sent: %v", err)
		}
		m.mu.Lock()
		m.requests = append(m.requests, req)
		r := m.otherwise
		if len(m.replies) > 0 {
			r, m.replies = m.replies[0], m.replies[1:]
		}
		m.mu.Unlock()
		if r == nil {
			yield(llm.Chunk{}, llm.Errorf(llm.CodeInvalidRequest, "no reply is left"))
			return
		}
		r(ctx, req, yield)
	}
}

func (m *model) sent() []llm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

func (m *model) Provider(name string) (llm.Provider, error) {
	if name != m.name && name != "other" {
		return nil, fmt.Errorf("no provider %q", name)
	}
	return m, nil
}

// world is one process: store, keeper, registry of agents, model.
type world struct {
	t      testing.TB
	mem    *memstore.Memory
	st     *flaky
	k      *keeper.Keeper
	agents *agent.Agents
	model  *model
	opts   agent.Options
	ctx    context.Context

	mu    sync.Mutex
	ids   int
	now   int64
	slept []time.Duration
}

// newWorld starts a process on mem (nil: a new one). set may change the options.
func newWorld(t testing.TB, mem *memstore.Memory, set func(*agent.Options), replies ...reply) *world {
	t.Helper()
	if mem == nil {
		mem = new(memstore.Memory)
	}
	w := &world{t: t, mem: mem, now: 1000, model: &model{t: t, name: "fake", replies: replies}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.ctx = ctx
	w.st = &flaky{Store: mem.Open(memstore.Options{Now: func() time.Time { return time.UnixMilli(w.tick()) }, Program: "test", PID: 1})}
	kinds := append(agent.Kinds(), session.Kind{Type: "test/note", Owner: "test"}, session.Kind{Type: "test/spent", Owner: "test", Usage: true})
	reg, err := session.NewRegistry(kinds)
	if err != nil {
		t.Fatal(err)
	}
	w.k = keeper.New(w.st, live.New(), keeper.Options{
		Now: w.tick, NewID: func() session.ID { return session.ID("fork-" + w.id()) }, Registry: reg,
		Validators: []session.Validator{session.Relational}, Path: "/the/store",
	})
	w.opts = agent.Options{
		Sessions: kept{w.k}, Models: w.model, Default: agent.Route{Provider: "fake", Model: "m1"}, Policy: tool.PolicyYolo,
		Now: func() time.Time { return time.UnixMilli(w.tick()) }, NewID: w.id, Rand: func() float64 { return 0.5 },
		Sleep: func(ctx context.Context, d time.Duration) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.slept = append(w.slept, d)
			return ctx.Err()
		},
	}
	if set != nil {
		set(&w.opts)
	}
	if w.agents, err = agent.New(w.opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.st.fail(nil)
		cancel()
		// A property test makes many worlds and closes them at its end: their own time may be over.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := w.agents.Close(ctx); err != nil && !errors.Is(err, store.ErrFenced) {
			t.Errorf("close: %v", err)
		}
		if err := w.k.Close(ctx); err != nil && !errors.Is(err, store.ErrFenced) {
			t.Errorf("keeper: %v", err)
		}
		w.st.Store.Close()
	})
	return w
}

func (w *world) tick() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now++
	return w.now
}

// later lets the clock go on.
func (w *world) later(ms int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now += ms
}

func (w *world) id() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return fmt.Sprintf("id%p-%d", w, w.ids)
}

func head(id session.ID) session.Header {
	return session.Header{Format: session.Format, ID: id, CreatedAt: 1, Kind: session.KindRoot, Cwd: "/work/project"}
}

func (w *world) create(id session.ID) *agent.Agent {
	w.t.Helper()
	a, err := w.agents.Create(w.ctx, agent.Spec{Header: head(id)})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) resume(id session.ID) *agent.Agent {
	w.t.Helper()
	a, err := w.agents.Resume(w.ctx, id, agent.Config{})
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
		w.t.Fatalf("not idle: %v\n%s", err, shape(w.t, a.Session()))
	}
}

func (w *world) say(a *agent.Agent, text string) {
	w.t.Helper()
	w.followup(a, text)
	w.idle(a)
}

// events reads the log of a live session, the pending prefix included.
func events(t testing.TB, s *session.Session) []session.Event {
	t.Helper()
	return read(t, s.Events())
}

func read(t testing.TB, p session.Prefix) []session.Event {
	t.Helper()
	var out []session.Event
	for ev, err := range p.Range(0, p.Len()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ev)
	}
	return out
}

// stored reads what the store has.
func (w *world) stored(id session.ID) []session.Event {
	w.t.Helper()
	snap, err := w.st.Read(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	defer snap.Close()
	return read(w.t, snap.Prefix)
}

// shape writes a log as one line per event: its type, and what tells it apart.
func shape(t testing.TB, s *session.Session) string { return shapeOf(t, events(t, s)) }

func shapeOf(t testing.TB, evs []session.Event) string {
	t.Helper()
	var b strings.Builder
	for _, ev := range evs {
		b.WriteString(ev.Type)
		switch ev.Type {
		case session.TypeTurnEnd:
			d, _ := session.DecodeData[session.TurnEnd](ev)
			b.WriteString(" " + d.Reason.Kind)
			if d.Reason.Cause != "" {
				b.WriteString(" " + d.Reason.Cause)
			}
			if d.Reason.Error != nil {
				b.WriteString(" " + d.Reason.Error.Code)
			}
		case session.TypeUserMessage:
			d, _ := message.Decode(ev.Data)
			b.WriteString(" " + d.PlainText())
		case session.TypeAssistantMessage:
			d, _ := session.DecodeData[session.AssistantMessage](ev)
			for _, bl := range d.Message.Content {
				b.WriteString(" " + bl.Text + bl.ID)
			}
			if d.Interrupted {
				b.WriteString(" interrupted")
			}
		case session.TypeToolCall:
			d, _ := session.DecodeData[session.ToolCall](ev)
			b.WriteString(" " + d.CallID)
		case session.TypeToolResult:
			d, _ := session.DecodeData[session.ToolResult](ev)
			b.WriteString(" " + session.ResultCallID(ev))
			if d.Error != nil {
				b.WriteString(" " + d.Error.Code)
			}
		case session.TypeInboxSpliced:
			d, _ := session.DecodeData[session.InboxSpliced](ev)
			fmt.Fprintf(&b, " %s +%d -%d", d.Target, len(d.Inserted), d.RemovedCount)
		case session.TypeRequestHeader:
			d, _ := session.DecodeData[session.RequestHeader](ev)
			b.WriteString(" " + d.Reason)
		case session.TypeApprovalDecided:
			d, _ := session.DecodeData[session.ApprovalDecided](ev)
			b.WriteString(" " + d.Verdict + " " + d.By)
		case session.TypeTitle:
			d, _ := session.DecodeData[session.Title](ev)
			b.WriteString(" " + d.Title)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// has fails unless the log holds these lines, in this order (others may stand between).
func has(t testing.TB, s *session.Session, lines ...string) {
	t.Helper()
	rest := strings.Split(shape(t, s), "\n")
	for _, want := range lines {
		i := slices.Index(rest, want)
		if i < 0 {
			t.Fatalf("the log lacks %q at its place:\n%s", want, shape(t, s))
		}
		rest = rest[i+1:]
	}
}

func count(t testing.TB, s *session.Session, typ string) int {
	t.Helper()
	n := 0
	for _, ev := range events(t, s) {
		if ev.Type == typ {
			n++
		}
	}
	return n
}

func equip(defs ...tool.Definition) func(*agent.Options) {
	return func(o *agent.Options) {
		set, err := tool.NewSet(defs...)
		if err != nil {
			panic(err)
		}
		o.Equip = func(context.Context, *session.Session) (agent.Kit, error) { return agent.Kit{Tools: set}, nil }
	}
}

func simple(name string, run func(ctx context.Context, c tool.Call) (tool.Result, error)) tool.Definition {
	return tool.Definition{Name: name, Parameters: jsontext.Value(`{"type":"object"}`), Run: run}
}

func echo(name string) tool.Definition {
	return simple(name, func(_ context.Context, c tool.Call) (tool.Result, error) { return tool.Text(name + " ran"), nil })
}

func use(id, name string) message.Block { return message.CallBlock(id, name, "{}") }

// untilLog waits until the log holds a line.
func (w *world) untilLog(a *agent.Agent, line string) {
	w.t.Helper()
	for {
		_, more, err := a.Session().From(a.Session().Head())
		if err != nil {
			w.t.Fatal(err)
		}
		if strings.Contains(shape(w.t, a.Session()), line+"\n") {
			return
		}
		select {
		case <-more:
		case <-w.ctx.Done():
			w.t.Fatalf("no %q:\n%s", line, shape(w.t, a.Session()))
		}
	}
}

// copyOf is the medium of a machine on which only these events of a session are left.
func copyOf(t testing.TB, h session.Header, evs []session.Event) *memstore.Memory {
	t.Helper()
	mem := new(memstore.Memory)
	st := mem.Open(memstore.Options{Now: time.Now, Program: "before", PID: 1})
	defer st.Close()
	w, err := st.Create(context.Background(), h)
	if err != nil {
		t.Fatal(err)
	}
	if len(evs) > 0 {
		if _, err := w.Append(context.Background(), evs); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return mem
}
