package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/tool"
)

var errFull = errors.New("no space left on device")

// Whatever cannot be saved is not acted on, and the next message tries again.
func TestNotSaved(t *testing.T) {
	t.Run("the first input", func(t *testing.T) {
		w := newWorld(t, nil, nil, says("fine"))
		a := w.create("s-1111")
		w.st.fail(errFull)
		_, err := a.Followup(w.ctx, agent.Text("lost"))
		var saved *store.NotSavedError
		if !errors.Is(err, agent.ErrNotSaved) || !errors.As(err, &saved) || saved.Path != "/the/store" || !strings.Contains(err.Error(), "/the/store") {
			t.Fatalf("error %v", err)
		}
		w.idle(a)
		if st := a.Status(); st.State != agent.StateNotSaved || st.Queued != 0 || len(w.model.sent()) != 0 {
			t.Errorf("status %+v", st)
		}
		if err := a.Dispose(w.ctx); !errors.Is(err, store.ErrNotSaved) {
			t.Fatalf("dispose: %v", err)
		}
		w.st.fail(nil)
		if err := a.Dispose(w.ctx); err != nil {
			t.Fatalf("dispose again: %v", err)
		}
		if got := shapeOf(t, w.stored("s-1111")); got != "inbox/spliced next-turn +1 -0\ninbox/spliced next-turn +0 -1\n" {
			t.Errorf("log:\n%s", got)
		}
	})
	t.Run("and goes on", func(t *testing.T) {
		w := newWorld(t, nil, nil, says("fine"))
		a := w.create("s-1111")
		w.st.fail(errFull)
		if _, err := a.Followup(w.ctx, agent.Text("lost")); err == nil {
			t.Fatal("acknowledged")
		}
		w.st.fail(nil)
		w.say(a, "found")
		has(t, a.Session(), "user/message found", "assistant/message fine", "turn/end completed")
		if strings.Contains(shape(t, a.Session()), "user/message lost") {
			t.Error("input that was refused ran")
		}
	})
	t.Run("a request", func(t *testing.T) {
		var w *world
		var once sync.Once
		w = newWorld(t, nil, func(o *agent.Options) {
			o.Hooks.PreStep = append(o.Hooks.PreStep, func(context.Context, *agent.StepInput) error {
				once.Do(func() { w.st.fail(errFull) })
				return nil
			})
		}, says("fine"))
		a := w.create("s-1111")
		sub := a.Subscribe(0)
		w.followup(a, "hi")
		w.followup2(a, "next") // refused or queued, as it comes
		w.idle(a)
		has(t, a.Session(), "user/message hi", "step/end", "turn/end error NOT_SAVED")
		if len(w.model.sent()) != 0 {
			t.Fatal("a request was sent")
		}
		seen := false
		for !seen {
			n, err := sub.Next(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			seen = n.Kind == agent.NoticeNotSaved && strings.Contains(n.Err.Error(), "/the/store")
		}
		w.st.fail(nil)
		w.model.mu.Lock()
		w.model.otherwise = says("fine")
		w.model.mu.Unlock()
		w.say(a, "again")
		has(t, a.Session(), "turn/end error NOT_SAVED", "user/message again", "assistant/message fine", "turn/end completed")
	})
	t.Run("a body", func(t *testing.T) {
		var w *world
		ran := 0
		w = newWorld(t, nil, equip(simple("work", func(context.Context, tool.Call) (tool.Result, error) {
			ran++
			if ran == 2 {
				w.st.fail(errFull)
			}
			return tool.Text("ok"), nil
		})), calls(use("c1", "work"), use("c2", "work"), use("c3", "work"), use("c4", "work")), says("fine"))
		a := w.create("s-1111")
		w.say(a, "hi")
		has(t, a.Session(), "tool/result c2", "tool/call c3", "tool/result c3 NOT_SAVED", "tool/result c4 TOOL_NOT_STARTED", "step/end", "turn/end error NOT_SAVED")
		if ran != 2 {
			t.Errorf("%d bodies ran", ran)
		}
		if st := a.Status(); st.State != agent.StateNotSaved || st.NotSaved == nil {
			t.Errorf("status %+v", st)
		}
		w.st.fail(nil)
		w.say(a, "go on")
		has(t, a.Session(), "turn/end error NOT_SAVED", "user/message go on", "assistant/message fine", "turn/end completed")
		if got := shapeOf(t, w.stored("s-1111")); got != shape(t, a.Session()) {
			t.Errorf("the store has:\n%s", got)
		}
	})
	t.Run("another writer", func(t *testing.T) {
		started := make(chan struct{})
		w := newWorld(t, nil, nil, hangs(started))
		a := w.create("s-1111")
		w.followup(a, "hi")
		<-started
		w.mem.DropLease("s-1111")
		w2 := newWorld(t, w.mem, nil, says("mine now"))
		b := w2.resume("s-1111")
		w2.say(b, "taken")
		a.Cancel(agent.CauseUser)
		w.idle(a)
		if _, err := a.Followup(w.ctx, agent.Text("x")); err == nil {
			t.Error("input was acknowledged by a writer that lost its session")
		}
		if err := a.Dispose(w.ctx); !errors.Is(err, store.ErrFenced) {
			t.Errorf("dispose: %v", err)
		}
		if _, ok := w.agents.Get("s-1111"); ok {
			t.Error("the id is still taken")
		}
	})
}

// followup2 is a Followup that may be refused.
func (w *world) followup2(a *agent.Agent, text string) { _, _ = a.Followup(w.ctx, agent.Text(text)) }

// At the moment a request reaches the provider, and a body runs, everything accepted is synced.
func TestCheckpoints(t *testing.T) {
	var w *world
	var a *agent.Agent
	saved := func(what, last string) {
		live, stored := events(t, a.Session()), w.stored("s-1111")
		if got := w.st.syncedTo(); len(live) != int(got) {
			t.Errorf("%s: %d events are accepted, %d synced", what, len(live), got)
		}
		if got := stored[len(stored)-1].Type; got != last {
			t.Errorf("%s: the last stored event is %s, want %s", what, got, last)
		}
	}
	w = newWorld(t, nil, func(o *agent.Options) {
		equip(simple("work", func(context.Context, tool.Call) (tool.Result, error) {
			saved("body", session.TypeToolCall)
			return tool.Text("ok"), nil
		}))(o)
		o.Hooks.PreStep = append(o.Hooks.PreStep, func(_ context.Context, in *agent.StepInput) error {
			if in.Step == 2 {
				saved("step", session.TypeStepEnd)
			}
			return nil
		})
	}, func(ctx context.Context, r llm.Request, yield func(llm.Chunk, error) bool) {
		saved("request", session.TypeRequestContext)
		calls(use("c1", "work"))(ctx, r, yield)
	}, says("fine"))
	a = w.create("s-1111")
	w.say(a, "hi")
	saved("turn", session.TypeTurnEnd)
	if w.st.flushes > 6 {
		t.Errorf("%d syncs for a turn of two steps and a call", w.st.flushes)
	}
}
