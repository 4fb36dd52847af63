package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// The log of one turn with two parallel calls and a plain turn after it, whole.
func TestTurnShape(t *testing.T) {
	w := newWorld(t, nil, equip(echo("look")), calls(use("c1", "look"), use("c2", "look")), says("done"), says("again"))
	a := w.create("s-shape")
	w.say(a, "do it")
	w.say(a, "and more")
	want := `inbox/spliced next-turn +1 -0
turn/start
inbox/spliced next-turn +0 -1
step/start
user/message do it
session/title do it
request/header initial
request/context
assistant/chunk
assistant/chunk
assistant/message c1 c2
tool/call c1
tool/result c1
tool/call c2
tool/result c2
step/end
step/start
assistant/chunk
assistant/message done
step/end
turn/end completed
inbox/spliced next-turn +1 -0
turn/start
inbox/spliced next-turn +0 -1
step/start
user/message and more
assistant/chunk
assistant/message again
step/end
turn/end completed
`
	if got := shape(t, a.Session()); got != want {
		t.Errorf("log:\n%s\nwant:\n%s", got, want)
	}
	if got := shapeOf(t, w.stored("s-shape")); got != want {
		t.Errorf("the store lacks a part:\n%s", got)
	}
	for _, ev := range events(t, a.Session()) {
		if ev.Type == session.TypeAssistantMessage && len(ev.Sources) == 0 || ev.Type == session.TypeToolResult && len(ev.Sources) != 1 {
			t.Errorf("%s at %d cites %v", ev.Type, ev.Seq, ev.Sources)
		}
	}
}

func TestInputs(t *testing.T) {
	t.Run("one next-turn message per turn", func(t *testing.T) {
		w := newWorld(t, nil, nil, says("1"), says("2"))
		a := w.create("s-1111")
		w.followup(a, "one")
		w.followup(a, "two")
		w.idle(a)
		has(t, a.Session(), "user/message one", "turn/end completed", "turn/start", "user/message two", "assistant/message 2", "turn/end completed")
	})
	t.Run("steer joins the next step, injected context before it", func(t *testing.T) {
		var w *world
		var a *agent.Agent
		w = newWorld(t, nil, equip(simple("work", func(ctx context.Context, c tool.Call) (tool.Result, error) {
			if _, err := a.Steer(ctx, agent.Text("faster")); err != nil {
				return tool.Result{}, err
			}
			m := agent.Text("a fact")
			m.Source = message.Source{Kind: message.SourcePlugin, Plugin: "facts"}
			_, err := a.Inject(ctx, m)
			return tool.Text("worked"), err
		})), calls(use("c1", "work")), says("done"))
		a = w.create("s-1111")
		w.say(a, "go")
		has(t, a.Session(), "tool/result c1", "step/end", "inbox/spliced next-step +0 -2", "step/start", "user/message a fact", "user/message faster", "assistant/message done", "turn/end completed")
		if n := count(t, a.Session(), session.TypeTurnStart); n != 1 {
			t.Errorf("%d turns", n)
		}
	})
	t.Run("steer while the last answer comes makes another step", func(t *testing.T) {
		var a *agent.Agent
		w := newWorld(t, nil, nil, func(ctx context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
			if _, err := a.Steer(ctx, agent.Text("wait")); err != nil {
				t.Error(err)
			}
			says("hello")(ctx, llm.Request{}, yield)
		}, says("waiting"))
		a = w.create("s-1111")
		w.say(a, "hi")
		has(t, a.Session(), "assistant/message hello", "step/end", "step/start", "user/message wait", "assistant/message waiting", "turn/end completed")
	})
	t.Run("inject does not wake, steer does", func(t *testing.T) {
		w := newWorld(t, nil, nil, says("ok"))
		a := w.create("s-1111")
		if _, err := a.Inject(w.ctx, agent.Text("quiet")); err != nil {
			t.Fatal(err)
		}
		w.idle(a)
		if n := count(t, a.Session(), session.TypeTurnStart); n != 0 {
			t.Fatalf("an injected message began a turn")
		}
		if _, err := a.Steer(w.ctx, agent.Text("loud")); err != nil {
			t.Fatal(err)
		}
		w.idle(a)
		has(t, a.Session(), "turn/start", "inbox/spliced next-step +0 -2", "step/start", "user/message quiet", "user/message loud", "turn/end completed")
	})
	t.Run("refused", func(t *testing.T) {
		w := newWorld(t, nil, nil)
		a := w.create("s-1111")
		for name, m := range map[string]message.Message{
			"empty": {}, "not Unicode": agent.Text("a\xff"), "an assistant's": {Role: message.RoleAssistant, Content: []message.Block{message.TextBlock("x")}},
		} {
			if _, err := a.Followup(w.ctx, m); err == nil {
				t.Errorf("%s input was accepted", name)
			}
		}
		if a.Session().Len() != 0 {
			t.Errorf("refused input left:\n%s", shape(t, a.Session()))
		}
	})
}

func TestPreStep(t *testing.T) {
	hook := func(f func(context.Context, *agent.StepInput) error) func(*agent.Options) {
		return func(o *agent.Options) { o.Hooks.PreStep = append(o.Hooks.PreStep, f) }
	}
	for _, c := range []struct {
		name     string
		hook     func(context.Context, *agent.StepInput) error
		end      string
		requests int
	}{
		{"rejects", func(context.Context, *agent.StepInput) error { return errors.New("not today") }, "turn/end blocked", 0},
		{"crashes", func(context.Context, *agent.StepInput) error { panic("oh") }, "turn/end error HOOK_FAILED", 0},
		{"drops everything", func(_ context.Context, in *agent.StepInput) error { in.Messages = nil; return nil }, "turn/end completed", 0},
		{"changes", func(_ context.Context, in *agent.StepInput) error {
			in.Messages = append(in.Messages, message.User("extra", "by the way"))
			return nil
		}, "turn/end completed", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil, hook(c.hook), says("ok"))
			a := w.create("s-1111")
			w.say(a, "hi")
			has(t, a.Session(), c.end)
			if n := len(w.model.sent()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			if st := a.Session().State(); len(st.Queue(session.NextTurn)) != 0 {
				t.Errorf("the input is queued again")
			}
		})
	}
}

func TestPressure(t *testing.T) {
	for name, c := range map[string]struct {
		hook func(context.Context, agent.PressureInput) (bool, error)
		end  string
	}{
		"fails":   {func(context.Context, agent.PressureInput) (bool, error) { return false, errors.New("cannot") }, "turn/end error INTERNAL"},
		"crashes": {func(context.Context, agent.PressureInput) (bool, error) { panic("oh") }, "turn/end error HOOK_FAILED"},
		"looks": {func(_ context.Context, in agent.PressureInput) (bool, error) {
			if in.ContextWindow != 1000 || len(in.Request.Messages) != 1 || in.Overflow {
				return false, fmt.Errorf("saw %+v", in)
			}
			return false, nil
		}, "turn/end completed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, func(o *agent.Options) { o.Hooks.Pressure = append(o.Hooks.Pressure, c.hook) }, says("ok"))
			a := w.create("s-1111")
			w.say(a, "hi")
			has(t, a.Session(), "user/message hi", "step/end", c.end)
		})
	}
}

func TestFinish(t *testing.T) {
	limited := func(o *agent.Options) {
		equip(echo("look"))(o)
		o.MaxSteps = 2
	}
	loop := func() []reply {
		return []reply{calls(use("c1", "look")), calls(use("c2", "look")), calls(use("c3", "look"))}
	}
	for _, c := range []struct {
		name    string
		set     func(*agent.Options)
		replies []reply
		want    []string
	}{
		{"max tokens", equip(echo("look")), []reply{answers(llm.FinishLength, message.TextBlock("half"), use("c1", "look"), message.CallBlock("c2", "look", `{"a`))},
			[]string{"assistant/message half c1", "tool/result c1 TOOL_NOT_STARTED", "step/end", "turn/end max-tokens"}},
		{"content filter", nil, []reply{answers(llm.FinishContentFilter, message.TextBlock("no"))}, []string{"assistant/message no", "turn/end blocked"}},
		{"step limit", limited, loop(), []string{"tool/result c2", "step/end", "turn/end limit"}},
		{"token budget", func(o *agent.Options) { equip(echo("look"))(o); o.MaxTurnTokens = 30 }, loop(), []string{"tool/result c2", "turn/end limit"}},
		{"cost budget", func(o *agent.Options) { equip(echo("look"))(o); o.MaxTurnCost = 1.5 }, loop(), []string{"tool/result c1", "turn/end limit"}},
		{"driver crashes", nil, []reply{func(context.Context, llm.Request, func(llm.Chunk, error) bool) { panic("oh") }}, []string{"step/end", "turn/end error MALFORMED_RESPONSE"}},
		{"no model", func(o *agent.Options) { o.Default = agent.Route{} }, nil, []string{"user/message hi", "step/end", "turn/end error INVALID_REQUEST"}},
		{"error", nil, []reply{fails(llm.CodeAuth)}, []string{"step/end", "turn/end error AUTH"}},
		{"other finish", nil, []reply{answers(llm.FinishOther, message.TextBlock("ok"))}, []string{"turn/end completed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil, c.set, c.replies...)
			a := w.create("s-1111")
			w.say(a, "hi")
			has(t, a.Session(), c.want...)
			if got := a.Status(); got.State != agent.StateIdle || got.LastEnd == nil || got.Open {
				t.Errorf("status %+v", got)
			}
			// And the session goes on.
			w.model.mu.Lock()
			w.model.replies = nil
			w.model.otherwise = says("fine")
			w.model.mu.Unlock()
			w.say(a, "again")
			if c.name != "no model" {
				has(t, a.Session(), "user/message again", "assistant/message fine", "turn/end completed")
			}
		})
	}
}

func TestRetry(t *testing.T) {
	retry := func(o *agent.Options) {
		o.Retry = agent.Retry{Attempts: 4, Base: time.Second, Max: 3 * time.Second, AfterMax: 20 * time.Second}
	}
	w := newWorld(t, nil, retry,
		fails(llm.CodeServer, message.TextBlock("rubbish")),
		func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
			yield(llm.Chunk{}, &llm.Error{Code: llm.CodeRateLimit, Status: 429, RetryAfter: time.Hour})
		},
		answers(llm.FinishStop), // an empty answer, with usage
		says("fine"))
	a := w.create("s-1111")
	sub := a.Subscribe(0)
	w.say(a, "hi")
	has(t, a.Session(), "assistant/chunk", "llm/retry", "llm/retry", "assistant/message", "llm/retry", "assistant/message fine", "turn/end completed")
	want := []time.Duration{750 * time.Millisecond, 20 * time.Second, 2250 * time.Millisecond}
	if !slices.Equal(w.slept, want) {
		t.Errorf("waited %v, want %v", w.slept, want)
	}
	for _, req := range w.model.sent() {
		if len(req.Messages) != 1 {
			t.Errorf("a request has %d messages: failed text reached it", len(req.Messages))
		}
	}
	if total, _ := a.Session().State().Usage(); total.InputTokens != 20 {
		t.Errorf("usage %+v: the failed answer's tokens are owed too", total)
	}
	w.say(a, "next")
	for _, m := range w.model.sent()[4].Messages {
		if strings.Contains(m.PlainText(), "rubbish") {
			t.Error("failed text reached a later request")
		}
	}
	var kinds []agent.NoticeKind
	for range 100 {
		n, err := sub.Next(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, n.Kind)
		if n.Kind == agent.NoticeTurnEnd {
			break
		}
	}
	if !slices.Contains(kinds, agent.NoticeRetry) {
		t.Errorf("no retry notice in %v", kinds)
	}
	t.Run("exhausted", func(t *testing.T) {
		w := newWorld(t, nil, retry)
		w.model.otherwise = fails(llm.CodeTimeout)
		a := w.create("s-1111")
		w.say(a, "hi")
		has(t, a.Session(), "llm/retry", "llm/retry", "llm/retry", "step/end", "turn/end error TIMEOUT")
		if n := len(w.model.sent()); n != 4 {
			t.Errorf("%d requests", n)
		}
	})
	t.Run("overflow", func(t *testing.T) {
		asked := 0
		w := newWorld(t, nil, func(o *agent.Options) {
			o.Hooks.Pressure = append(o.Hooks.Pressure, func(_ context.Context, in agent.PressureInput) (bool, error) {
				if !in.Overflow {
					return false, nil
				}
				asked++
				st := in.Session.State()
				n := st.SurfaceAt(0).Seq
				_, err := in.Session.Append(session.Draft{Type: session.TypeHide, Data: session.Hide{Reason: "trim"}, Op: session.Replace(n, n), Sources: session.Cite(n)})
				return true, err
			})
		}, says("1"), fails(llm.CodeContextWindow), says("2"), fails(llm.CodeContextWindow), fails(llm.CodeContextWindow))
		a := w.create("s-1111")
		w.say(a, "first")
		w.say(a, "second")
		has(t, a.Session(), "surface/hide", "assistant/message 2", "turn/end completed")
		w.say(a, "third")
		has(t, a.Session(), "user/message third", "turn/end error CONTEXT_WINDOW_EXCEEDED")
		if asked != 2 {
			t.Errorf("asked %d times", asked)
		}
	})
}

func TestHeader(t *testing.T) {
	mem := new(memstore.Memory)
	w := newWorld(t, mem, nil, says("1"), says("2"), says("3"))
	a := w.create("s-1111")
	w.say(a, "one")
	if err := a.SetRoute(w.ctx, agent.Route{Provider: "fake", Model: "m2"}); err != nil {
		t.Fatal(err)
	}
	w.say(a, "two")
	w.say(a, "three")
	if err := a.Dispose(w.ctx); err != nil {
		t.Fatal(err)
	}
	w2 := newWorld(t, mem, nil, says("4"), says("5"))
	b := w2.resume("s-1111")
	w2.say(b, "four")
	w2.say(b, "five")
	var reasons []string
	for _, ev := range events(t, b.Session()) {
		if ev.Type == session.TypeRequestHeader {
			h, _ := session.DecodeData[session.RequestHeader](ev)
			reasons = append(reasons, h.Reason)
		}
	}
	if want := []string{"initial", "change", "resume"}; !slices.Equal(reasons, want) {
		t.Errorf("headers %v, want %v", reasons, want)
	}
	if got := w2.model.sent()[0].Model; got != "m2" {
		t.Errorf("the model after the resume is %q: the route did not survive", got)
	}
	if n := count(t, b.Session(), session.TypeRequestContext); n != 2 {
		t.Errorf("%d request contexts", n)
	}
	// What the resume is told wins, and is recorded with the next turn.
	b.Dispose(w2.ctx)
	w3 := newWorld(t, mem, nil, says("6"))
	c, err := w3.agents.Resume(w3.ctx, "s-1111", agent.Config{Route: agent.Route{Provider: "fake", Model: "m3"}, Policy: tool.PolicyNeverAsk})
	if err != nil {
		t.Fatal(err)
	}
	w3.say(c, "six")
	if st := c.Session().State(); w3.model.sent()[0].Model != "m3" || st.Settings().Model != "m3" || st.ApprovalPolicy() != "never-ask" {
		t.Errorf("model %q, settings %+v, policy %q", w3.model.sent()[0].Model, st.Settings(), st.ApprovalPolicy())
	}
}

func TestTitleAndProject(t *testing.T) {
	files := map[string]string{"/work/AGENTS.md": "outer", "/work/project/AGENTS.md": "inner"}
	w := newWorld(t, nil, func(o *agent.Options) {
		o.ReadFile = func(p string) ([]byte, error) {
			if s, ok := files[p]; ok {
				return []byte(s), nil
			}
			return nil, fs.ErrNotExist
		}
	})
	w.model.otherwise = says("ok")
	a := w.create("s-1111")
	w.say(a, "fix \u202ethe\x00\n\n bug   in "+strings.Repeat("word ", 30))
	first := w.model.sent()[0].Messages
	if len(first) != 2 || first[0].Source.Plugin != agent.PluginProject {
		t.Fatalf("the first request has %+v", first)
	}
	text := first[0].PlainText()
	if i, j := strings.Index(text, "outer"), strings.Index(text, "inner"); i < 0 || j < i {
		t.Errorf("project context: %q", text)
	}
	title := a.Session().State().Title()
	if n := len([]rune(title.Title)); n > 60 || !strings.HasPrefix(title.Title, "fix the bug in word") || !strings.HasSuffix(title.Title, "word…") {
		t.Errorf("title %q", title.Title)
	}
	projects := func() int {
		msgs, err := a.Session().Messages()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, m := range msgs {
			if m.Source.Plugin == agent.PluginProject {
				n++
			}
		}
		return n
	}
	w.say(a, "two")
	if projects() != 1 {
		t.Errorf("unchanged context was stated again")
	}
	files["/work/project/AGENTS.md"] = "changed"
	w.say(a, "three")
	if projects() != 2 {
		t.Errorf("changed context was not stated")
	}
	for range 3 {
		if _, err := a.Undo(w.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if projects() != 0 {
		t.Fatal("undo left context")
	}
	w.say(a, "four")
	if projects() != 1 {
		t.Errorf("hidden context was not stated again")
	}
	if err := a.SetTitle(w.ctx, "mine"); err != nil {
		t.Fatal(err)
	}
	w.say(a, "five")
	if got := a.Session().State().Title().Title; got != "mine" || count(t, a.Session(), session.TypeTitle) != 2 {
		t.Errorf("title %q, %d events", got, count(t, a.Session(), session.TypeTitle))
	}
	if _, err := a.Undo(w.ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Redo(w.ctx); err != nil || n != 5 {
		t.Errorf("redo: turn %d, %v", n, err)
	}
	if _, err := a.Redo(w.ctx); err != nil { // turn 3 is the newest undo that is left
		t.Error(err)
	}
}

// What streams in is logged in pieces: each has no more than the bound and one delta, and together they are what came,
// also of a request that is cancelled in the middle.
func TestChunkBound(t *testing.T) {
	const deltas = 500
	for name, cut := range map[string]bool{"whole": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			var a *agent.Agent
			sent := strings.Builder{}
			w := newWorld(t, nil, func(o *agent.Options) { o.ChunkBytes, o.ChunkAge = 100, time.Hour },
				func(ctx context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
					for i := range deltas {
						if cut && i == deltas/2 {
							a.Cancel(agent.CauseUser)
							yield(llm.Chunk{}, llm.AsError(ctx, context.Canceled))
							return
						}
						text := fmt.Sprintf("delta %d ", i)
						sent.WriteString(text)
						if !yield(llm.Chunk{Type: llm.ChunkTextDelta, Text: text}, nil) {
							return
						}
					}
					yield(llm.Chunk{Type: llm.ChunkFinish, Finish: llm.FinishStop}, nil)
				})
			a = w.create("s-1111")
			w.say(a, "go")
			log, got, n := a.Session().Events(), strings.Builder{}, 0
			for ev, err := range log.Range(0, log.Len()) {
				if err != nil {
					t.Fatal(err)
				}
				if ev.Type != session.TypeAssistantChunk {
					continue
				}
				d, err := session.DecodeData[session.AssistantChunk](ev)
				var c llm.Chunk
				if err == nil {
					err = json.Unmarshal(d.Chunk, &c)
				}
				if err != nil || len(c.Text) > 100+len("delta 499 ") {
					t.Errorf("%v: a piece of %d bytes", err, len(c.Text))
				}
				got.WriteString(c.Text)
				n++
			}
			if got.String() != sent.String() {
				t.Errorf("%d bytes came, %d are in the log", sent.Len(), got.Len())
			}
			if most := sent.Len()/100 + 1; n > most {
				t.Errorf("%d events for %d bytes, want %d at most", n, sent.Len(), most)
			}
		})
	}
}

// A piece of what streams in is not older than its bound when it is logged: it goes with the first delta that comes then.
func TestChunkAge(t *testing.T) {
	now := time.Unix(1000, 0)
	var log func() []string
	w := newWorld(t, nil, func(o *agent.Options) {
		o.ChunkBytes, o.ChunkAge, o.Now = 1<<20, time.Second, func() time.Time { return now }
	}, func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
		for _, c := range []struct {
			after time.Duration
			text  string
			want  string // pieces in the log when the next delta comes
		}{
			{0, "a", ""},
			{999 * time.Millisecond, "b", ""},
			{time.Millisecond, "c", "abc"}, // a second after its first delta
			{time.Hour, "d", "abc"},        // a new piece is as old as its first delta
			{-time.Minute, "e", "abc"},     // a clock that goes back holds nothing for good: the end has the rest
			{time.Hour, "f", "abc def"},
			{0, "g", "abc def"},
		} {
			now = now.Add(c.after)
			if !yield(llm.Chunk{Type: llm.ChunkTextDelta, Text: c.text}, nil) {
				return
			}
			if got := strings.Join(log(), " "); got != c.want {
				t.Errorf("after %q the log has %q, want %q", c.text, got, c.want)
			}
		}
		yield(llm.Chunk{Type: llm.ChunkFinish, Finish: llm.FinishStop}, nil)
	})
	a := w.create("s-1111")
	log = func() (pieces []string) {
		for _, ev := range events(t, a.Session()) {
			if ev.Type != session.TypeAssistantChunk {
				continue
			}
			d, err := session.DecodeData[session.AssistantChunk](ev)
			var c llm.Chunk
			if err == nil {
				err = json.Unmarshal(d.Chunk, &c)
			}
			if err != nil {
				t.Error(err)
			}
			pieces = append(pieces, c.Text)
		}
		return pieces
	}
	w.say(a, "go")
	if got := strings.Join(log(), " "); got != "abc def g" {
		t.Errorf("the log has %q", got)
	}
}
