package telemetry_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/redact"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/subagent"
	"github.com/strandline-dev/strandline/telemetry"
	"github.com/strandline-dev/strandline/telemetry/otlptest"
)

func registry(t testing.TB) *session.Registry {
	t.Helper()
	reg, err := session.NewRegistry(agent.Kinds(), subagent.Kinds(), compact.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// start begins telemetry for a receiver; change may alter the options.
func start(t testing.TB, url string, change func(*telemetry.Options)) *telemetry.Telemetry {
	t.Helper()
	to := func(signal string) telemetry.Target { return telemetry.Target{URL: url + "/v1/" + signal} }
	o := telemetry.Options{
		Traces: to("traces"), Metrics: to("metrics"), Logs: to("logs"),
		Service: "strandline", Version: "1", Instance: t.Name(), Registry: registry(t), Client: &http.Client{Transport: &http.Transport{}},
		Redact: func(s string) string { s, _ = redact.Redactor{}.Text(s); return s },
	}
	if change != nil {
		change(&o)
	}
	tel, err := telemetry.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whatever the test did with it
		over, end := context.WithCancel(context.Background())
		end()
		tel.Close(over)
	})
	return tel
}

// durable is a keeper that a test plays.
type durable struct {
	mu    sync.Mutex
	seq   session.Seq
	grown chan struct{}
}

const everything = session.Seq(1 << 40)

func syncedUpTo(n session.Seq) *durable { return &durable{seq: n, grown: make(chan struct{})} }

func (d *durable) Durable() (session.Seq, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seq, d.grown
}

func (d *durable) grow(n session.Seq) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seq = n
	close(d.grown)
	d.grown = make(chan struct{})
}

// life is a session with a clock of its own: each event comes 10 ms after the one before.
type life struct {
	t   testing.TB
	s   *session.Session
	mu  sync.Mutex
	now int64
}

func newLife(t testing.TB, h session.Header, seed session.Seed) *life {
	t.Helper()
	l := &life{t: t, now: 1_700_000_000_000 + 100_000*int64(seedLen(seed))}
	h.Format, h.CreatedAt = session.Format, 1
	if h.Kind == "" {
		h.Kind = session.KindRoot
	}
	s, err := session.New(h, seed, session.Env{Registry: registry(t), Now: func() int64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.now += 10
		return l.now
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.s = s
	return l
}

func seedLen(s session.Seed) session.Seq {
	if s.Prefix == nil {
		return 0
	}
	return s.Prefix.Len() + session.Seq(len(s.Repair))
}

func (l *life) add(typ string, data any) session.Event {
	l.t.Helper()
	d := session.Draft{Type: typ, Data: data}
	if k, _ := registry(l.t).Lookup(typ); k.Class == session.ClassSurface {
		d.Op = session.Append()
	}
	ev, err := l.s.Append(d)
	if err != nil {
		l.t.Fatal(err)
	}
	return ev
}

func raw(format string, args ...any) jsontext.Value {
	return jsontext.Value(fmt.Sprintf(format, args...))
}

func user(id, text string) message.Message {
	return message.Message{ID: id, Role: message.RoleUser, Content: []message.Block{message.TextBlock(text)}, Source: message.Source{Kind: message.SourceUser}}
}

func answer(turn, step int, usage *message.Usage, blocks ...message.Block) session.AssistantMessage {
	return session.AssistantMessage{Turn: turn, Step: step, Usage: usage, ResponseID: "resp-1", Message: message.Message{
		ID: fmt.Sprintf("a-%d-%d", turn, step), Role: message.RoleAssistant, Content: blocks,
		Source: message.Source{Kind: message.SourceModel, Provider: "openai", Model: "gpt-5"},
	}}
}

func resultOf(call string) message.Message {
	return message.Result("r-"+call, call, true, message.TextBlock(prompt))
}

const (
	prompt = "please look into the velvet submarine"
	secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ"
)

func ptr[T any](v T) *T { return &v }

// turn is a whole turn with a call that fails, a question, a child, a retry and a compaction.
func (l *life) turn(n int) {
	l.add(session.TypeTurnStart, session.TurnStart{Turn: n})
	l.add(session.TypeStepStart, session.StepRef{Turn: n, Step: 1})
	l.add(session.TypeUserMessage, user(fmt.Sprint("u", n), prompt+" "+secret))
	l.add(session.TypeRequestHeader, raw(`{"header":{"config":{"provider":"openai","model":"gpt-5","maxOutputTokens":900,"temperature":0.5}},"reason":"initial"}`))
	l.add(agent.TypeRetry, agent.RetryEvent{Turn: n, Step: 1, Attempt: 1, Code: "RATE_LIMITED", Message: prompt, DelayMs: 5})
	l.add(session.TypeAssistantChunk, raw(`{"turn":%d,"step":1,"chunk":{"text":%q}}`, n, prompt))
	l.add(session.TypeAssistantMessage, answer(n, 1, &message.Usage{InputTokens: 10, CacheReadTokens: ptr(int64(90)), CacheWriteTokens: ptr(int64(3)), OutputTokens: 7},
		message.CallBlock("c1", "bash", `{"command":"`+prompt+`"}`), message.CallBlock("c2", "task", `{}`)))
	l.add(session.TypeToolCall, session.ToolCall{Turn: n, Step: 1, CallID: "c1", Name: "bash", Arguments: `{"command":"` + prompt + ` ` + secret + `"}`})
	l.add(session.TypeToolResult, session.ToolResult{Turn: n, Step: 1, Message: message.Result("r1", "c1", true, message.TextBlock(prompt)),
		Error: &session.ErrorInfo{Name: "ToolError", Code: "EXIT", Message: prompt}})
	l.add(session.TypeToolCall, session.ToolCall{Turn: n, Step: 1, CallID: "c2", Name: "task", Arguments: `{}`})
	l.add(subagent.TypeStart, subagent.Start{ChildID: "kid-1", Mode: subagent.ModeSpawn, Description: prompt, Turn: n, Step: 1, CallID: "c2", Depth: 1, LimitMs: 1000})
	l.add(subagent.TypeEnd, subagent.End{ChildID: "kid-1", Outcome: subagent.OutcomeCompleted, Events: 3, Usage: &message.Usage{InputTokens: 1000, OutputTokens: 1000}})
	l.add(session.TypeToolResult, session.ToolResult{Turn: n, Step: 1, Message: message.Result("r2", "c2", false, message.TextBlock(prompt))})
	l.add(session.TypeStepEnd, session.StepRef{Turn: n, Step: 1})
	l.add(session.TypeStepStart, session.StepRef{Turn: n, Step: 2})
	l.add(compact.TypeStart, compact.Start{CompactionID: fmt.Sprint("k", n), Turn: &n, Cause: compact.CausePressure})
	l.add(compact.TypeSummary, compact.Summary{CompactionID: fmt.Sprint("k", n), Summary: []message.Block{message.TextBlock(prompt)}, Provider: "openai", Model: "gpt-5-mini",
		Usage: &message.Usage{InputTokens: 40, OutputTokens: 4}})
	l.add(compact.TypeEnd, compact.End{CompactionID: fmt.Sprint("k", n), Turn: &n, Outcome: compact.Done, Before: ptr(int64(100)), After: ptr(int64(20))})
	l.add(session.TypeAssistantMessage, answer(n, 2, &message.Usage{InputTokens: 20, OutputTokens: 2}, message.TextBlock(prompt)))
	l.add(session.TypeStepEnd, session.StepRef{Turn: n, Step: 2})
	l.add(session.TypeTurnEnd, session.TurnEnd{Turn: n, Reason: session.Reason{Kind: session.ReasonMaxTokens}})
}

// closed ends telemetry and wants all of it to have arrived.
func closed(t testing.TB, tel *telemetry.Telemetry) {
	t.Helper()
	if lost := tel.Close(context.Background()); lost.Items != 0 || lost.Of == 0 {
		t.Errorf("lost %+v", lost)
	}
}

// seqs are the seqs of the records of a session, in the order of their arrival.
func seqs(r *otlptest.Receiver, id string) (out []string) {
	for _, rec := range r.Records() {
		if rec.Attrs["gen_ai.conversation.id"] == id {
			out = append(out, rec.Attrs["strandline.event.seq"])
		}
	}
	return out
}

func from(first, n session.Seq) (out []string) {
	for q := first; q < n; q++ {
		out = append(out, q.String())
	}
	return out
}

func find(t testing.TB, spans []otlptest.Span, name string) otlptest.Span {
	t.Helper()
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no span %q", name)
	return otlptest.Span{}
}

// tree draws the spans of a trace with what tells them apart.
func tree(spans []otlptest.Span, parent string, depth int, b *strings.Builder) {
	for _, s := range spans {
		if s.Parent != parent {
			continue
		}
		fmt.Fprintf(b, "%s%s %d+%d", strings.Repeat("  ", depth), s.Name, s.Start-1_700_000_000_000, s.End-s.Start)
		for _, k := range []string{"error.type", "gen_ai.response.finish_reasons", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "strandline.outcome", "strandline.turn.reason", "strandline.partial"} {
			if v, ok := s.Attrs[k]; ok {
				fmt.Fprintf(b, " %s=%s", k[strings.LastIndexByte(k, '.')+1:], v)
			}
		}
		b.WriteByte('\n')
		tree(spans, s.ID, depth+1, b)
	}
}

func TestOneTurn(t *testing.T) {
	r := otlptest.New(t)
	tel := start(t, r.URL, nil)
	l := newLife(t, session.Header{ID: "root-1"}, session.Seed{})
	f := tel.Follow(l.s, syncedUpTo(everything))
	l.turn(1)
	f.NotSaved()
	f.End()
	closed(t, tel)

	var b strings.Builder
	tree(r.Spans(), "", 0, &b)
	const want = `invoke_agent strandline 10+200
  turn 1 10+200 reason=max-tokens
    step 1 20+120
      chat gpt-5 40+10 type=RATE_LIMITED
      chat gpt-5 55+15 finish_reasons=tool_calls input_tokens=103 output_tokens=7
      execute_tool bash 80+10 type=EXIT
      execute_tool task 100+30
        subagent 110+10 outcome=completed
    step 2 150+50
      compaction 160+20 input_tokens=40 output_tokens=4 outcome=done
      chat gpt-5 180+10 finish_reasons=length input_tokens=20 output_tokens=2
`
	if got := b.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, want := seqs(r, "root-1"), from(0, l.s.Len()); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("records %v\nwant    %v", got, want)
	}
	for i, rec := range r.Records() {
		ev, err := l.s.At(session.Seq(i))
		if err != nil || rec.Time != ev.Time || rec.Attrs["strandline.event.type"] != ev.Type || rec.Name != "strandline.session.event" || rec.Trace != r.Spans()[0].Trace {
			t.Errorf("record %d: %+v, want %v (%v)", i, rec, ev, err)
		}
	}
	chat := find(t, r.Spans(), "chat gpt-5")
	if chat.Kind != "SPAN_KIND_CLIENT" || chat.Attrs["gen_ai.provider.name"] != "openai" || chat.Attrs["gen_ai.request.max_tokens"] != "900" || chat.Attrs["gen_ai.request.temperature"] != "0.5" {
		t.Errorf("%+v", chat)
	}
	for name, want := range map[string]float64{
		"gen_ai.client.token.usage": 103 + 7 + 20 + 2 + 40 + 4, "strandline.turns": 1, "strandline.tool.calls": 2, "strandline.compactions": 1,
		"strandline.not_saved": 1, "gen_ai.client.operation.duration": 0.035, "strandline.tool.duration": 0.04,
	} {
		sum := 0.0
		for _, p := range r.Metric(name) {
			sum += p.Value
		}
		if d := sum - want; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s: %v, want %v", name, sum, want)
		}
	}
	if res := r.Resource(); res["service.name"] != "strandline" || res["service.instance.id"] != t.Name() || res["telemetry.sdk.name"] != "opentelemetry" {
		t.Errorf("resource %v", res)
	}
	doc, err := os.ReadFile("../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range r.Names() {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/telemetry.md does not tell of %s", name)
		}
	}
	if out := r.Raw(); strings.Contains(out, "velvet") || strings.Contains(out, "sk-proj") {
		t.Error("content leaves unasked")
	}
}

func TestContentWhenAskedFor(t *testing.T) {
	r := otlptest.New(t)
	tel := start(t, r.URL, func(o *telemetry.Options) { o.Content = true })
	l := newLife(t, session.Header{ID: "root-1"}, session.Seed{})
	f := tel.Follow(l.s, syncedUpTo(everything))
	l.turn(1)
	f.End()
	closed(t, tel)
	out := r.Raw()
	if !strings.Contains(out, "velvet") || !strings.Contains(out, "[redacted:") || strings.Contains(out, "sk-proj") {
		t.Errorf("%d bytes: the prompt is there: %v, the secret is there: %v", len(out), strings.Contains(out, "velvet"), strings.Contains(out, "sk-proj"))
	}
	bash := find(t, r.Spans(), "execute_tool bash")
	if !strings.Contains(bash.Attrs["gen_ai.tool.call.arguments"], "velvet") || !strings.Contains(bash.Attrs["gen_ai.tool.call.result"], "velvet") {
		t.Errorf("%+v", bash)
	}
	// Without a redactor nothing of it leaves, whatever was asked for.
	r = otlptest.New(t)
	tel = start(t, r.URL, func(o *telemetry.Options) { o.Content, o.Redact = true, nil })
	l = newLife(t, session.Header{ID: "root-1"}, session.Seed{})
	f = tel.Follow(l.s, syncedUpTo(everything))
	l.turn(1)
	f.End()
	closed(t, tel)
	if out := r.Raw(); strings.Contains(out, "velvet") {
		t.Error("content leaves without a redactor")
	}
}

// A life that goes on exports the boundary and what follows: not the seed, not its closers. One that writes
// nothing exports nothing.
func TestResume(t *testing.T) {
	one := newLife(t, session.Header{ID: "root-1"}, session.Seed{})
	one.turn(1)
	one.add(session.TypeTurnStart, session.TurnStart{Turn: 2})
	stored := session.Events(events(t, one.s))
	closers, err := session.Closers(one.s.Header(), registry(t), stored)
	if err != nil || len(closers) != 1 {
		t.Fatal(closers, err)
	}
	seed := session.Seed{Prefix: stored, Repair: closers}

	r := otlptest.New(t)
	tel := start(t, r.URL, nil)
	two := newLife(t, session.Header{ID: "root-1"}, seed)
	tel.Follow(two.s, syncedUpTo(everything)).End()
	if lost := tel.Close(context.Background()); lost.Of != 0 || r.Raw() != "" {
		t.Errorf("looking exports: %+v", lost)
	}

	tel = start(t, r.URL, nil)
	three := newLife(t, session.Header{ID: "root-1"}, seed)
	f := tel.Follow(three.s, syncedUpTo(everything))
	three.turn(3)
	f.End()
	closed(t, tel)
	first := stored.Len() + 1
	if got, want := seqs(r, "root-1"), from(first, three.s.Len()); three.s.FirstLiveSeq() != first || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("records %v\nwant    %v", got, want)
	}
	if r.Records()[0].Attrs["strandline.event.type"] != session.TypeInherited {
		t.Errorf("%+v", r.Records()[0])
	}
	for _, s := range r.Spans() {
		if s.Name == "turn 1" || s.Name == "turn 2" {
			t.Errorf("an old turn is told again: %+v", s)
		}
	}
}

func events(t testing.TB, s *session.Session) (out []session.Event) {
	t.Helper()
	for ev, err := range s.Events().Range(0, s.Len()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ev)
	}
	return out
}

// A child's own trace links to the span that its parent has of it; nobody told either of the other.
func TestChildLinksToItsParent(t *testing.T) {
	r := otlptest.New(t)
	tel := start(t, r.URL, nil)
	parent, kid := newLife(t, session.Header{ID: "root-1"}, session.Seed{}), newLife(t, session.Header{ID: "kid-1", Kind: session.KindSubagent, Depth: 1,
		Parent: &session.Parent{ID: "root-1", Seq: session.None}}, session.Seed{})
	f, g := tel.Follow(parent.s, syncedUpTo(everything)), tel.Follow(kid.s, syncedUpTo(everything))
	parent.turn(1)
	kid.add(session.TypeTurnStart, session.TurnStart{Turn: 1})
	kid.add(session.TypeTurnEnd, session.TurnEnd{Turn: 1, Reason: session.Reason{Kind: session.ReasonError, Error: &session.ErrorInfo{Code: "AUTH", Message: prompt}}})
	f.End()
	g.End()
	closed(t, tel)
	in := find(t, r.Spans(), "subagent")
	for _, s := range r.Spans() {
		if s.Attrs["gen_ai.conversation.id"] == "kid-1" && s.Parent == "" {
			if len(s.Links) != 1 || s.Links[0] != in.Trace+":"+in.ID || s.Trace == in.Trace {
				t.Errorf("%+v\nlinks not to %+v", s, in)
			}
			return
		}
	}
	t.Error("the child has no span")
}

// What is not synced is not told: a later life may write something else there.
func TestOnlyWhatIsSynced(t *testing.T) {
	r := otlptest.New(t)
	tel := start(t, r.URL, nil)
	l := newLife(t, session.Header{ID: "root-1"}, session.Seed{})
	d := syncedUpTo(0)
	f := tel.Follow(l.s, d)
	l.turn(1)
	d.grow(5)
	f.Pull()
	l.s.Dispose()
	f.End()
	closed(t, tel)
	if got, want := seqs(r, "root-1"), from(0, 5); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("records %v\nwant    %v", got, want)
	}
	for _, s := range r.Spans() {
		if strings.HasPrefix(s.Name, "turn") && s.Attrs["strandline.partial"] != "true" {
			t.Errorf("%+v", s)
		}
	}
}

// Whatever is appended and synced when, every event is told once, in order.
func TestEveryEventOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := otlptest.New(t)
		tel := start(t, r.URL, func(o *telemetry.Options) { o.Traces.URL, o.Metrics.URL = "", "" })
		l := newLife(t, session.Header{ID: "root-1"}, session.Seed{})
		d := syncedUpTo(0)
		f := tel.Follow(l.s, d)
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 2), 1, 30).Draw(rt, "steps") {
			if step == 0 {
				d.grow(l.s.Len())
				continue
			}
			for range step {
				l.add(session.TypeTitle, session.Title{Title: "t", Source: "user"})
			}
		}
		d.grow(l.s.Len())
		f.End()
		tel.Close(context.Background())
		if got, want := seqs(r, "root-1"), from(0, l.s.Len()); fmt.Sprint(got) != fmt.Sprint(want) {
			rt.Fatalf("records %v\nwant    %v", got, want)
		}
	})
}
