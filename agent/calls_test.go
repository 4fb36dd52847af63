package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

func TestCallOutcomes(t *testing.T) {
	strict := echo("strict")
	strict.Parameters = jsontext.Value(`{"type":"object","required":["x"]}`)
	set, err := tool.NewSet(echo("good"), strict,
		simple("fails", func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, errors.New("no") }),
		simple("panics", func(context.Context, tool.Call) (tool.Result, error) { panic("oh") }),
		simple("notes", func(context.Context, tool.Call) (tool.Result, error) {
			r := tool.Text("noted")
			r.Records = []tool.Record{{Type: "test/note", Data: jsontext.Value(`{"a":1}`)}, {Type: "test/note", Data: jsontext.Value(`{"a":2}`)}}
			return r, nil
		}),
		simple("unwritable", func(context.Context, tool.Call) (tool.Result, error) {
			r := tool.Text("done")
			r.Meta = jsontext.Value(`{"a":1,"a":2}`)
			r.Records = []tool.Record{{Type: "nobody/knows", Data: jsontext.Value(`{}`)}}
			return r, nil
		}),
		simple("bad-block", func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{Content: []message.Block{{Type: "x", Extra: jsontext.Value(`{"n":1e999}`)}}}, nil
		}),
		echo("denied"), echo("guarded"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, nil, func(o *agent.Options) {
		o.Equip = func(context.Context, *session.Session) (agent.Kit, error) {
			return agent.Kit{Tools: set,
				Rules: []tool.Rule{{Tool: "denied", Action: tool.Deny}},
				Guards: []tool.Guard{func(_ context.Context, p tool.Prepared) tool.Verdict {
					if p.Name() == "guarded" {
						return tool.Verdict{Action: tool.Deny, Reason: "never"}
					}
					return tool.Verdict{}
				}}}, nil
		}
	}, calls(use("c1", "good"), use("c2", "strict"), use("c3", "unknown"), use("c4", "fails"), use("c5", "panics"), use("c6", "notes"),
		use("c7", "unwritable"), use("c8", "denied"), use("c9", "guarded"), use("c10", "bad-block"), use("c1", "good"), use("", "good")), says("done"))
	a := w.create("s-1111")
	w.say(a, "go")
	got := shape(t, a.Session())
	for _, line := range []string{
		"tool/result c1\n", "tool/result c2 INVALID_ARGS\n", "tool/result c3 UNKNOWN_TOOL\n", "tool/result c4 TOOL_FAILED\n", "tool/result c5 PANIC\n",
		"test/note\ntest/note\ntool/result c6\n", "tool/result c7\n", "tool/result c8 DENIED\n", "tool/result c9 DENIED\n", "tool/result c10 BAD_RESULT\n",
		"tool/result c1-2\n", "tool/result call-1-1-12\n",
	} {
		if strings.Count(got, line) != 1 {
			t.Errorf("%d times %q", strings.Count(got, line), line)
		}
	}
	for _, id := range []string{"c2", "c3", "c8", "c9"} {
		if strings.Contains(got, "tool/call "+id+"\n") {
			t.Errorf("%s has a tool/call", id)
		}
	}
	has(t, a.Session(), "assistant/message done", "turn/end completed")
	if t.Failed() {
		t.Log(got)
	}
}

// Neighbours that are safe in parallel overlap, every other call waits for those before it and is waited
// for; the pool bounds how many overlap; keys are those of the calls' places.
func TestParallel(t *testing.T) {
	var mu sync.Mutex
	var order, keys []string
	running, most := 0, 0
	meet := make(chan struct{}) // two parallel bodies meet here, or the test hangs
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, s)
	}
	enter := func(d int) {
		mu.Lock()
		defer mu.Unlock()
		running += d
		most = max(most, running)
	}
	par := simple("par", func(ctx context.Context, c tool.Call) (tool.Result, error) {
		enter(1)
		defer enter(-1)
		mu.Lock()
		keys = append(keys, c.IdempotencyKey)
		mu.Unlock()
		select {
		case meet <- struct{}{}:
		case <-meet:
		case <-ctx.Done():
			return tool.Result{}, ctx.Err()
		}
		note("par")
		return tool.Text("ok"), nil
	})
	par.Parallel = true
	single := simple("single", func(context.Context, tool.Call) (tool.Result, error) {
		mu.Lock()
		if running > 0 {
			order = append(order, "overlap!")
		}
		mu.Unlock()
		note("single")
		return tool.Text("ok"), nil
	})
	w := newWorld(t, nil, func(o *agent.Options) { equip(par, single)(o); o.Parallel = 2 },
		calls(use("a", "par"), use("b", "par"), use("c", "par"), use("d", "par"), use("e", "single"), use("f", "par"), use("g", "par")), says("done"))
	a := w.create("s-1111")
	w.say(a, "go")
	want := []string{"par", "par", "par", "par", "single", "par", "par"}
	if !slices.Equal(order, want) {
		t.Errorf("order %v", order)
	}
	if most != 2 {
		t.Errorf("%d bodies overlapped, want 2", most)
	}
	var asked session.Seq
	for _, ev := range events(t, a.Session()) {
		if ev.Type == session.TypeAssistantMessage {
			asked = ev.Seq
			break
		}
	}
	slices.Sort(keys)
	if want := fmt.Sprintf("s-1111/%d/0", asked); keys[0] != want {
		t.Errorf("key %q, want %q", keys[0], want)
	}
	if len(slices.Compact(keys)) != 6 {
		t.Errorf("keys are not unique: %v", keys)
	}
}

// asking is a world with the policy ask, a tool that needs it, and one that does not.
func asking(ran *[]string, more ...tool.Definition) func(*agent.Options) {
	var mu sync.Mutex
	body := func(_ context.Context, c tool.Call) (tool.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		*ran = append(*ran, c.ID+" "+c.IdempotencyKey)
		return tool.Text("ran"), nil
	}
	risky, safe := simple("risky", body), simple("safe", body)
	safe.ReadOnly, safe.Parallel, risky.Parallel = true, true, true
	return func(o *agent.Options) {
		equip(append(more, risky, safe)...)(o)
		o.Policy = tool.PolicyAsk
	}
}

// untilAsked waits until the agent waits for a person with n questions.
func (w *world) untilAsked(a *agent.Agent, n int) []session.Ask {
	w.t.Helper()
	sub := a.Subscribe(0)
	defer sub.Close()
	for {
		if st := a.Status(); st.State == agent.StateWaiting && len(st.Asks) == n {
			return st.Asks
		}
		if _, err := sub.Next(w.ctx); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestApproval(t *testing.T) {
	start := func(t *testing.T) (*world, *agent.Agent, *[]string) {
		ran := new([]string)
		w := newWorld(t, nil, asking(ran), calls(use("c1", "risky"), use("c2", "safe"), use("c3", "risky")), says("done"))
		a := w.create("s-1111")
		w.followup(a, "go")
		w.untilAsked(a, 2)
		w.untilLog(a, "tool/result c2")
		return w, a, ran
	}
	t.Run("answered", func(t *testing.T) {
		w, a, ran := start(t)
		if err := a.Answer(w.ctx, "c3", session.VerdictDeny, "too risky"); err != nil {
			t.Fatal(err)
		}
		if err := a.Answer(w.ctx, "c3", session.VerdictAllow, ""); !errors.Is(err, agent.ErrAnswered) {
			t.Errorf("a second answer: %v", err)
		}
		ask := w.untilAsked(a, 1)[0]
		if err := a.Answer(w.ctx, ask.AskID, session.VerdictAllow, ""); err != nil {
			t.Fatal(err)
		}
		w.idle(a)
		has(t, a.Session(), "approval/asked", "approval/asked", "tool/result c2", "approval/decided deny user", "approval/decided allow user", "tool/call c1", "tool/result c1", "turn/end completed")
		has(t, a.Session(), "tool/result c3 DENIED")
		if len(*ran) != 2 {
			t.Errorf("ran %v", *ran)
		}
	})
	for policy, code := range map[tool.Policy]string{tool.PolicyYolo: "", tool.PolicyNeverAsk: " DENIED"} {
		t.Run(string(policy), func(t *testing.T) {
			w, a, _ := start(t)
			if err := a.SetPolicy(w.ctx, policy); err != nil {
				t.Fatal(err)
			}
			w.idle(a)
			has(t, a.Session(), "approval/policy", "turn/end completed")
			has(t, a.Session(), "tool/result c1"+code)
			has(t, a.Session(), "tool/result c3"+code)
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		w, a, ran := start(t)
		if !a.Cancel(agent.CauseUser) {
			t.Fatal("nothing was cancelled")
		}
		w.idle(a)
		has(t, a.Session(), "approval/decided deny cancel", "approval/decided deny cancel", "tool/result c1 TOOL_NOT_STARTED", "tool/result c3 TOOL_NOT_STARTED", "step/end", "turn/end aborted user")
		if len(*ran) != 1 {
			t.Errorf("ran %v", *ran)
		}
	})
}

// A turn that waits for a person outlives the process, whether it is killed or leaves in order.
func TestParked(t *testing.T) {
	for _, kill := range []bool{false, true} {
		park := func(t *testing.T) (*world, *[]string) {
			ran := new([]string)
			w := newWorld(t, nil, asking(ran), calls(use("c1", "risky"), use("c2", "safe")))
			a := w.create("s-1111")
			w.followup(a, "go")
			w.untilAsked(a, 1)
			w.untilLog(a, "tool/result c2")
			if kill {
				w = newWorld(t, copyOf(t, a.Session().Header(), events(t, a.Session())), asking(ran), says("done"), says("more"))
			} else {
				if err := a.Dispose(w.ctx); err != nil {
					t.Fatal(err)
				}
				w = newWorld(t, w.mem, asking(ran), says("done"), says("more"))
			}
			return w, ran
		}
		name := map[bool]string{true: "killed", false: "left"}[kill]
		t.Run(name+" and answered", func(t *testing.T) {
			w, ran := park(t)
			a := w.resume("s-1111")
			if st := a.Status(); st.State != agent.StateWaiting || len(st.Asks) != 1 || !st.Open {
				t.Fatalf("status %+v", st)
			}
			before := len(w.stored("s-1111"))
			w.followup(a, "and then more")
			w.untilAsked(a, 1)
			if before == len(w.stored("s-1111")) {
				t.Error("input was not stored")
			}
			if err := a.Answer(w.ctx, "c1", session.VerdictAllow, ""); err != nil {
				t.Fatal(err)
			}
			w.idle(a)
			has(t, a.Session(), "session/inherited", "approval/decided allow user", "tool/call c1", "tool/result c1", "step/end", "step/start", "assistant/message done", "turn/end completed",
				"user/message and then more", "assistant/message more", "turn/end completed")
			if len(*ran) != 2 {
				t.Errorf("ran %v", *ran)
			}
		})
		t.Run(name+" and answered before anything runs", func(t *testing.T) {
			w, ran := park(t)
			a := w.resume("s-1111")
			if err := a.Answer(w.ctx, "c1", session.VerdictAllow, ""); err != nil {
				t.Fatal(err)
			}
			w.idle(a)
			has(t, a.Session(), "tool/call c1", "tool/result c1", "assistant/message done", "turn/end completed")
			if len(*ran) != 2 {
				t.Errorf("ran %v", *ran)
			}
		})
		t.Run(name+" and decided by the policy", func(t *testing.T) {
			w, _ := park(t)
			a, err := w.agents.Resume(w.ctx, "s-1111", agent.Config{Policy: tool.PolicyNeverAsk})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Kick(w.ctx); err != nil {
				t.Fatal(err)
			}
			w.idle(a)
			has(t, a.Session(), "approval/policy", "approval/decided deny policy", "tool/result c1 DENIED", "assistant/message done", "turn/end completed")
		})
		t.Run(name+" and cancelled", func(t *testing.T) {
			w, _ := park(t)
			a := w.resume("s-1111")
			if !a.Cancel(agent.CauseUser) {
				t.Fatal("nothing to cancel")
			}
			w.idle(a)
			has(t, a.Session(), "approval/decided deny cancel", "tool/result c1 TOOL_NOT_STARTED", "turn/end aborted user")
			w.say(a, "hi")
			has(t, a.Session(), "assistant/message done", "turn/end completed")
		})
		t.Run(name+" and left alone", func(t *testing.T) {
			w, _ := park(t)
			before := shapeOf(t, w.stored("s-1111"))
			for range 2 {
				a := w.resume("s-1111")
				if err := a.Dispose(w.ctx); err != nil {
					t.Fatal(err)
				}
			}
			if got := shapeOf(t, w.stored("s-1111")); got != before {
				t.Errorf("looking wrote:\n%s", got)
			}
		})
	}
}

// A body that ends late is judged by what it says: only a success is replaced.
func TestCancelTools(t *testing.T) {
	started := make(chan struct{}, 2)
	wait := func(err error) func(ctx context.Context, c tool.Call) (tool.Result, error) {
		return func(ctx context.Context, c tool.Call) (tool.Result, error) {
			started <- struct{}{}
			<-ctx.Done()
			var cause *agent.CancelError
			if !errors.As(context.Cause(ctx), &cause) || cause.Kind != agent.CauseUser {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			if err != nil {
				r := tool.Failure("OWN_CODE", "failed by itself")
				return r, nil
			}
			return tool.Text("late"), nil
		}
	}
	ok, bad := simple("ok", wait(nil)), simple("bad", wait(errors.New("x")))
	ok.Parallel, bad.Parallel = true, true
	w := newWorld(t, nil, equip(ok, bad, echo("next")), calls(use("c1", "ok"), use("c2", "bad"), use("c3", "next")), says("fine"))
	a := w.create("s-1111")
	w.followup(a, "go")
	<-started
	<-started
	a.Cancel(agent.CauseUser)
	a.Cancel(agent.CauseParent) // the first cause wins
	w.idle(a)
	has(t, a.Session(), "tool/result c3 TOOL_NOT_STARTED", "step/end", "turn/end aborted user")
	has(t, a.Session(), "tool/result c1 ABORTED")
	has(t, a.Session(), "tool/result c2 OWN_CODE")
	w.say(a, "again")
	has(t, a.Session(), "assistant/message fine", "turn/end completed")
}

func TestCancel(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		w := newWorld(t, nil, nil, says("fine"))
		a := w.create("s-1111")
		if a.Cancel(agent.CauseUser) {
			t.Error("an idle agent was cancelled")
		}
		w.say(a, "hi")
		has(t, a.Session(), "turn/end completed")
		a.Cancel(agent.CauseUser)
		if n := len(events(t, a.Session())); n != int(a.Session().Len()) || count(t, a.Session(), session.TypeTurnEnd) != 1 {
			t.Error("an idle cancel wrote")
		}
	})
	for _, c := range []struct {
		name   string
		blocks []message.Block
		want   []string
		chunks int
	}{
		{"before the first word", nil, []string{"request/header initial", "request/context", "step/end", "turn/end aborted user"}, 0},
		{"amid the text", []message.Block{message.TextBlock("so far"), message.CallBlock("c1", "look", `{"ha`)}, []string{"assistant/message so far interrupted", "step/end", "turn/end aborted user"}, 2},
		{"amid a call", []message.Block{message.CallBlock("c1", "look", `{"ha`)}, []string{"step/end", "turn/end aborted user"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			started := make(chan struct{})
			w := newWorld(t, nil, equip(echo("look")), hangs(started, c.blocks...), says("fine"))
			a := w.create("s-1111")
			w.followup(a, "hi")
			<-started
			a.Cancel(agent.CauseUser)
			w.idle(a)
			has(t, a.Session(), c.want...)
			w.say(a, "again")
			has(t, a.Session(), "user/message again", "assistant/message fine", "turn/end completed")
		})
	}
	t.Run("between attempts", func(t *testing.T) {
		var a *agent.Agent
		w := newWorld(t, nil, func(o *agent.Options) {
			sleep := o.Sleep
			o.Sleep = func(ctx context.Context, d time.Duration) error { a.Cancel(agent.CauseUser); return sleep(ctx, d) }
		}, fails(llm.CodeServer))
		a = w.create("s-1111")
		w.say(a, "hi")
		has(t, a.Session(), "llm/retry", "step/end", "turn/end aborted user")
	})
	t.Run("in a hook", func(t *testing.T) {
		var a *agent.Agent
		w := newWorld(t, nil, func(o *agent.Options) {
			o.Hooks.PreStep = append(o.Hooks.PreStep, func(ctx context.Context, _ *agent.StepInput) error {
				a.Cancel(agent.CauseUser)
				return ctx.Err()
			})
		})
		a = w.create("s-1111")
		w.say(a, "hi")
		has(t, a.Session(), "step/start", "user/message hi", "step/end", "turn/end aborted user")
	})
	t.Run("with more queued", func(t *testing.T) {
		started := make(chan struct{})
		w := newWorld(t, nil, nil, hangs(started), says("fine"))
		a := w.create("s-1111")
		w.followup(a, "hi")
		w.followup(a, "next")
		<-started
		a.Cancel(agent.CauseUser)
		w.idle(a)
		has(t, a.Session(), "turn/end aborted user", "user/message next", "assistant/message fine", "turn/end completed")
	})
	t.Run("the wait for the disk", func(t *testing.T) {
		w := newWorld(t, nil, nil, says("fine"))
		a := w.create("s-1111")
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		if _, err := a.Followup(ctx, agent.Text("hi")); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		w.say(a, "there")
		if got := shape(t, a.Session()); strings.Contains(got, "user/message hi") || a.Status().NotSaved != nil {
			t.Errorf("refused input ran:\n%s", got)
		}
	})
	t.Run("by leaving", func(t *testing.T) {
		started := make(chan struct{})
		w := newWorld(t, nil, nil, hangs(started, message.TextBlock("so far")))
		a := w.create("s-1111")
		w.followup(a, "hi")
		w.followup(a, "later")
		<-started
		if err := a.Dispose(w.ctx); err != nil {
			t.Fatal(err)
		}
		if got := shapeOf(t, w.stored("s-1111")); !strings.HasSuffix(got, "assistant/message so far interrupted\nstep/end\nturn/end aborted shutdown\n") {
			t.Errorf("log:\n%s", got)
		}
		if _, err := a.Followup(w.ctx, agent.Text("x")); !errors.Is(err, agent.ErrDisposed) {
			t.Errorf("input after the end: %v", err)
		}
		// What was queued is picked up when work starts, not before.
		w2 := newWorld(t, w.mem, nil, says("at last"))
		b := w2.resume("s-1111")
		w2.idle(b)
		if len(w2.model.sent()) != 0 || b.Status().Queued != 1 {
			t.Fatal("opening started work")
		}
		if err := b.Kick(w2.ctx); err != nil {
			t.Fatal(err)
		}
		w2.idle(b)
		has(t, b.Session(), "session/inherited", "user/message later", "assistant/message at last", "turn/end completed")
	})
}
