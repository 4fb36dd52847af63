package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/live"
	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// fake is a store in memory that counts, fails and waits as told, and that holds its caller to the seam's
// contract: one Append or Flush at a time, contiguous batches, and everything above the last synced seq
// handed over again after a failed sync.
type fake struct {
	*memstore.Store
	t testing.TB

	mu     sync.Mutex
	calls  map[string]int
	synced map[session.ID]session.Seq
	// hook is called before an append ("append"), a flush ("flush") or a fork ("fork") without mu; an error
	// fails the call. wrote is called for each batch that got in.
	hook  func(op string, id session.ID, evs []session.Event) error
	after func(op string, id session.ID) error // fails a call after it took effect
	wrote func(id session.ID, evs []session.Event)
	lost  []session.Event // what Opened says that a loss of power took
}

func newFake(t testing.TB) *fake {
	st := memstore.New(memstore.Options{Now: func() time.Time { return time.Unix(1, 0) }, Program: "test", Host: "here", PID: 7})
	return &fake{Store: st, t: t, calls: map[string]int{}, synced: map[session.ID]session.Seq{}}
}

func (f *fake) before(op string, id session.ID, evs []session.Event) error {
	f.mu.Lock()
	f.calls[op]++
	hook := f.hook
	f.mu.Unlock()
	if hook != nil {
		return hook(op, id, evs)
	}
	return nil
}

func (f *fake) setHook(hook func(op string, id session.ID, evs []session.Event) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

func (f *fake) onWrite(wrote func(id session.ID, evs []session.Event)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrote = wrote
}

func (f *fake) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *fake) syncedTo(id session.ID) session.Seq {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.synced[id]
}

func (f *fake) Create(ctx context.Context, h session.Header) (store.Writer, error) {
	return f.writer(f.Store.Create(ctx, h))
}

func (f *fake) Open(ctx context.Context, id session.ID) (store.Writer, error) {
	return f.writer(f.Store.Open(ctx, id))
}

func (f *fake) writer(w store.Writer, err error) (store.Writer, error) {
	if err != nil {
		return nil, err
	}
	n := w.Opened().Pos.Next
	return &fakeWriter{Writer: w, f: f, next: n, synced: n}, nil
}

func (f *fake) CreateFork(ctx context.Context, h session.Header, own []session.Event) error {
	if err := f.before("fork", h.ID, own); err != nil {
		return err
	}
	return f.Store.CreateFork(ctx, h, own)
}

type fakeWriter struct {
	store.Writer
	f            *fake
	busy         sync.Mutex
	next, synced session.Seq
}

func (w *fakeWriter) Opened() *store.Snapshot {
	snap := *w.Writer.Opened()
	snap.Lost = w.f.lost
	return &snap
}

func (w *fakeWriter) Stored() session.Prefix {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.f.calls["stored"]++
	return w.Writer.Stored()
}

func (w *fakeWriter) Append(ctx context.Context, evs []session.Event) (store.Pos, error) {
	if !w.busy.TryLock() {
		w.f.t.Error("two calls of one writer at a time")
		return store.Pos{}, errors.New("busy")
	}
	defer w.busy.Unlock()
	id := w.Header().ID
	if len(evs) == 0 || evs[0].Seq > w.next {
		w.f.t.Errorf("a batch of %d events where %d is due", len(evs), w.next)
	}
	if err := w.f.before("append", id, evs); err != nil {
		return store.Pos{}, err
	}
	pos, err := w.Writer.Append(ctx, evs)
	if err != nil {
		return pos, err
	}
	w.f.mu.Lock()
	after, wrote := w.f.after, w.f.wrote
	w.f.mu.Unlock()
	if after != nil {
		if err := after("append", id); err != nil {
			return store.Pos{}, err
		}
	}
	w.next = evs[len(evs)-1].Seq + 1
	if wrote != nil {
		wrote(id, evs)
	}
	return pos, nil
}

func (w *fakeWriter) Flush(ctx context.Context) (store.Pos, error) {
	if !w.busy.TryLock() {
		w.f.t.Error("two calls of one writer at a time")
		return store.Pos{}, errors.New("busy")
	}
	defer w.busy.Unlock()
	id := w.Header().ID
	err := w.f.before("flush", id, nil)
	if err == nil {
		_, err = w.Writer.Flush(ctx)
	}
	if err != nil {
		w.next = w.synced
		return store.Pos{}, err
	}
	w.synced = w.next
	w.f.mu.Lock()
	w.f.synced[id] = w.synced
	w.f.mu.Unlock()
	return store.Pos{Next: w.synced}, nil
}

// link is the chain of the store.
func link(prev session.Link, ev session.Event) (session.Link, error) {
	var err error
	ev.Data, err = record.Externalize(ev.Data, record.BlobLimit, func(raw []byte) (string, error) { return record.BlobName(raw), nil })
	_, l := record.Append(nil, ev, prev, session.None)
	return l, err
}

// bench is one process: a store handle, a registry and a keeper.
type process struct {
	*keeper.Keeper
	lv *live.Registry
}

func counter(start int64) func() int64 {
	var mu sync.Mutex
	return func() int64 {
		mu.Lock()
		defer mu.Unlock()
		start++
		return start
	}
}

func options() keeper.Options {
	ids := counter(0)
	return keeper.Options{
		Now: counter(1000), Link: link, Path: "the store", Holder: store.Holder{Program: "me", PID: 1},
		NewID:      func() session.ID { return session.ID(fmt.Sprintf("made-%04d", ids())) },
		Validators: []session.Validator{session.Relational},
	}
}

func start(st store.Store) process {
	lv := live.New()
	return process{keeper.New(st, lv, options()), lv}
}

func header(id session.ID) session.Header {
	return session.Header{Format: session.Format, ID: id, Kind: session.KindRoot, CreatedAt: 1, Cwd: "/w"}
}

func create(t testing.TB, k process, id session.ID) *keeper.Handle {
	t.Helper()
	h, err := k.Create(t.Context(), header(id), session.Seed{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func resume(t testing.TB, k process, id session.ID) *keeper.Handle {
	t.Helper()
	h, err := k.Resume(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func put(t testing.TB, s *session.Session, ds ...session.Draft) []session.Event {
	t.Helper()
	evs, err := s.AppendAll(nil, ds...)
	if err != nil {
		t.Fatal(err)
	}
	return evs
}

func titled(s string) session.Draft {
	return session.Draft{Type: session.TypeTitle, Data: session.Title{Title: s, Source: "user"}}
}

// openTurn is a turn that a crash leaves open: a tool call has started.
func openTurn(n int) []session.Draft {
	call := fmt.Sprintf("c%d", n)
	return []session.Draft{
		{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: n}},
		{Type: session.TypeStepStart, Data: session.StepRef{Turn: n, Step: 1}},
		{Type: session.TypeUserMessage, Data: message.User(fmt.Sprintf("u%d", n), "hi"), Op: session.Append()},
		{Type: session.TypeAssistantMessage, Op: session.Append(), Data: session.AssistantMessage{Turn: n, Step: 1, Message: message.Message{
			Role: message.RoleAssistant, Content: []message.Block{message.CallBlock(call, "bash", "{}")}}}},
		{Type: session.TypeToolCall, Data: session.ToolCall{Turn: n, Step: 1, CallID: call, Name: "bash", Arguments: "{}"}},
	}
}

func endTurn(n int) []session.Draft {
	call := fmt.Sprintf("c%d", n)
	return []session.Draft{
		{Type: session.TypeToolResult, Op: session.Append(), Data: session.ToolResult{Turn: n, Step: 1,
			Message: message.Result("r"+call, call, false, message.TextBlock("ok"))}},
		{Type: session.TypeStepEnd, Data: session.StepRef{Turn: n, Step: 1}},
		{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: n, Reason: session.Reason{Kind: session.ReasonCompleted}}},
	}
}

func flush(t testing.TB, h *keeper.Handle) {
	t.Helper()
	if err := h.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func dispose(t testing.TB, h *keeper.Handle) {
	t.Helper()
	if err := h.Dispose(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func events(t testing.TB, p session.Prefix) []session.Event {
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

// stored returns what the store has of a session, nil if it has none.
func stored(t testing.TB, st store.Store, id session.ID) []session.Event {
	t.Helper()
	snap, err := st.Read(context.Background(), id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	return events(t, snap.Prefix)
}

// short names the types of events, for comparison.
func short(evs []session.Event) string {
	names := map[string]string{
		session.TypeTurnStart: "turn", session.TypeTurnEnd: "/turn", session.TypeStepStart: "step", session.TypeStepEnd: "/step",
		session.TypeUserMessage: "user", session.TypeAssistantMessage: "model", session.TypeToolCall: "call", session.TypeToolResult: "result",
		session.TypeInherited: "|", session.TypeTitle: "title", session.TypeLost: "lost",
	}
	out := ""
	for i, ev := range evs {
		if i > 0 {
			out += " "
		}
		if n, ok := names[ev.Type]; ok {
			out += n
		} else {
			out += ev.Type
		}
	}
	return out
}

func same(t testing.TB, what string, got []session.Event, want string) {
	t.Helper()
	if s := short(got); s != want {
		t.Errorf("%s:\n got %s\nwant %s", what, s, want)
	}
}
