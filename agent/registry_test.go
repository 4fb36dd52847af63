package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// killed is a medium on which a session was left in the middle of a turn.
func killed(t *testing.T) *memstore.Memory {
	t.Helper()
	w := newWorld(t, nil, equip(echo("look")), calls(use("c1", "look")), says("done"))
	a := w.create("s-1111")
	w.say(a, "hi")
	evs := events(t, a.Session())
	for i, ev := range evs {
		if ev.Type == session.TypeToolCall {
			return copyOf(t, a.Session().Header(), evs[:i+1])
		}
	}
	t.Fatal("no call")
	return nil
}

// Four ways to construct a session over what is stored, each through the registry: the boundary is there
// once, a plain reopen adds nothing, and opening without work writes nothing.
func TestPaths(t *testing.T) {
	cases := map[string]struct {
		open   func(*world) (*agent.Agent, error)
		source agent.StartSource
		writes bool // a fork is a deliberate write
	}{
		"resume": {func(w *world) (*agent.Agent, error) { return w.agents.Resume(w.ctx, "s-1111", agent.Config{}) }, agent.SourceResume, false},
		"restore-or-create": {func(w *world) (*agent.Agent, error) {
			a, created, err := w.agents.Start(w.ctx, agent.Spec{Header: head("s-1111")})
			if created {
				w.t.Error("a stored session was created")
			}
			return a, err
		}, agent.SourceResume, false},
		"fork": {func(w *world) (*agent.Agent, error) {
			return w.agents.Fork(w.ctx, "s-1111", agent.ForkOptions{Child: "s-child"}, agent.Config{})
		}, agent.SourceStartup, true},
		"subagent fork": {func(w *world) (*agent.Agent, error) {
			return w.agents.Fork(w.ctx, "s-1111", agent.ForkOptions{Child: "s-child", Kind: session.KindSubagent, Depth: 1}, agent.Config{})
		}, agent.SourceStartup, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var sources []agent.StartSource
			w := newWorld(t, killed(t), func(o *agent.Options) {
				equip(echo("look"))(o)
				o.Hooks.SessionStart = append(o.Hooks.SessionStart, func(_ context.Context, _ *agent.Agent, s agent.StartSource) error {
					sources = append(sources, s)
					return nil
				})
			}, says("fine"))
			parent := shapeOf(t, w.stored("s-1111"))
			a, err := c.open(w)
			if err != nil {
				t.Fatal(err)
			}
			id := a.ID()
			has(t, a.Session(), "tool/call c1", "tool/result c1 TOOL_OUTCOME_UNKNOWN", "step/end", "turn/end interrupted", "session/inherited")
			if first := a.Session().FirstLiveSeq(); first < 12 {
				t.Errorf("FirstLiveSeq %d", first)
			}
			if len(sources) != 1 || sources[0] != c.source {
				t.Errorf("SessionStart %v, want %v", sources, c.source)
			}
			for range 2 {
				if err := a.Kick(w.ctx); err != nil { // nothing is owed
					t.Fatal(err)
				}
				w.idle(a)
				if err := a.Dispose(w.ctx); err != nil {
					t.Fatal(err)
				}
				if a, err = w.agents.Resume(w.ctx, id, agent.Config{}); err != nil {
					t.Fatal(err)
				}
				if n := count(t, a.Session(), session.TypeInherited); n != 1 {
					t.Errorf("%d boundaries", n)
				}
			}
			if got := shapeOf(t, w.stored("s-1111")); got != parent {
				t.Errorf("opening wrote:\n%s", got)
			}
			if c.writes {
				has(t, a.Session(), "session/inherited")
				if h := a.Session().Header(); h.Parent == nil || h.Parent.ID != "s-1111" {
					t.Errorf("lineage %+v", h.Parent)
				}
			}
			w.say(a, "go on")
			has(t, a.Session(), "session/inherited", "turn/start", "user/message go on", "request/header resume", "assistant/message fine", "turn/end completed")
			if n := count(t, a.Session(), session.TypeToolCall); n != 1 {
				t.Errorf("the call ran again")
			}
		})
	}
}

func TestStart(t *testing.T) {
	t.Run("nothing stored", func(t *testing.T) {
		w := newWorld(t, nil, nil, says("fine"))
		a, created, err := w.agents.Start(w.ctx, agent.Spec{Header: head("s-1111")})
		if err != nil || !created {
			t.Fatalf("created %t, %v", created, err)
		}
		w.say(a, "hi")
		if a.Session().FirstLiveSeq() != 0 || count(t, a.Session(), session.TypeInherited) != 0 {
			t.Error("a fresh session has a boundary")
		}
	})
	t.Run("held by another process", func(t *testing.T) {
		w := newWorld(t, nil, nil, says("fine"))
		w.say(w.create("s-1111"), "hi")
		w2 := newWorld(t, w.mem, nil)
		_, _, err := w2.agents.Start(w2.ctx, agent.Spec{Header: head("s-1111")})
		if !errors.Is(err, store.ErrBusy) {
			t.Errorf("%v", err)
		}
		if _, err := w.agents.Resume(w.ctx, "s-1111", agent.Config{}); !errors.Is(err, store.ErrBusy) {
			t.Errorf("resuming what lives here: %v", err)
		}
		if _, err := w2.agents.Create(w2.ctx, agent.Spec{Header: head("s-1111")}); !errors.Is(err, store.ErrExists) {
			t.Errorf("creating what is stored: %v", err)
		}
		if _, err := w2.agents.Resume(w2.ctx, "s-none", agent.Config{}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("resuming nothing: %v", err)
		}
	})
	t.Run("of several processes one wins", func(t *testing.T) {
		mem := new(memstore.Memory)
		var wg sync.WaitGroup
		var mu sync.Mutex
		acknowledged := 0
		for range 4 {
			w := newWorld(t, mem, nil, says("fine"))
			wg.Add(1)
			go func() {
				defer wg.Done()
				a, _, err := w.agents.Start(w.ctx, agent.Spec{Header: head("s-1111")})
				if err != nil {
					if !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrExists) {
						t.Error(err)
					}
					return
				}
				if _, err := a.Followup(w.ctx, agent.Text("hi")); err == nil {
					mu.Lock()
					acknowledged++
					mu.Unlock()
				}
			}()
		}
		wg.Wait()
		if acknowledged != 1 {
			t.Errorf("%d were acknowledged", acknowledged)
		}
	})
}

func TestFor(t *testing.T) {
	var starts int
	var mu sync.Mutex
	w := newWorld(t, killed(t), func(o *agent.Options) {
		o.Hooks.SessionStart = append(o.Hooks.SessionStart, func(context.Context, *agent.Agent, agent.StartSource) error {
			mu.Lock()
			defer mu.Unlock()
			starts++
			return nil
		})
	})
	for round := range 20 {
		var wg sync.WaitGroup
		got := make([]*agent.Agent, 8)
		for i := range got {
			wg.Add(1)
			go func() {
				defer wg.Done()
				a, err := w.agents.For(w.ctx, "s-1111", agent.Config{})
				if err != nil {
					t.Error(err)
				}
				got[i] = a
			}()
		}
		wg.Wait()
		for _, a := range got {
			if a != got[0] {
				t.Fatal("two agents of one session")
			}
		}
		if starts != round+1 {
			t.Fatalf("%d resumes in round %d", starts, round)
		}
		// Disposing while others ask: they get the old one, or wait and get a new one.
		go got[0].Dispose(w.ctx)
		a, err := w.agents.For(w.ctx, "s-1111", agent.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Dispose(w.ctx); err != nil {
			t.Fatal(err)
		}
		if err := got[0].Dispose(w.ctx); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		starts = round + 1
		mu.Unlock()
	}
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := w.agents.For(ctx, "s-1111", agent.Config{}); err == nil {
		if a, ok := w.agents.Get("s-1111"); !ok || a == nil {
			t.Error("no agent and no error")
		}
	}
	if _, err := w.agents.For(w.ctx, "s-none", agent.Config{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// A failure at any point of the publication frees the id and leaves nothing.
func TestUnwind(t *testing.T) {
	boom := errors.New("boom")
	closed := 0
	on := map[string]func(*agent.Options){
		"equip": func(o *agent.Options) {
			o.Equip = func(context.Context, *session.Session) (agent.Kit, error) { return agent.Kit{}, boom }
		},
		"equip panics": func(o *agent.Options) {
			o.Equip = func(context.Context, *session.Session) (agent.Kit, error) { panic(boom) }
		},
		"announce": func(o *agent.Options) {
			o.Hooks.Announce = append(o.Hooks.Announce, func(context.Context, *agent.Agent) error { return boom })
		},
		"session start": func(o *agent.Options) {
			o.Equip = func(context.Context, *session.Session) (agent.Kit, error) {
				return agent.Kit{Close: func() error { closed++; return nil }}, nil
			}
			o.Hooks.SessionStart = append(o.Hooks.SessionStart, func(context.Context, *agent.Agent, agent.StartSource) error { return boom })
		},
	}
	for name, set := range on {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, killed(t), set)
			for range 2 { // the second try meets a free id
				_, err := w.agents.Create(w.ctx, agent.Spec{Header: head("s-fresh")})
				if err == nil || !strings.Contains(err.Error(), "boom") {
					t.Fatalf("%v", err)
				}
				if _, err = w.agents.Resume(w.ctx, "s-1111", agent.Config{}); err == nil || !strings.Contains(err.Error(), "boom") {
					t.Fatalf("%v", err)
				}
				if len(w.agents.All()) != 0 {
					t.Fatal("something was published")
				}
			}
			if _, err := w.st.Stat(w.ctx, "s-fresh"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%v", err)
			}
		})
	}
	if closed != 4 {
		t.Errorf("the tools were closed %d times, want 4", closed)
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w := newWorld(t, nil, func(o *agent.Options) {
			o.Hooks.SessionStart = append(o.Hooks.SessionStart, func(context.Context, *agent.Agent, agent.StartSource) error { cancel(); return nil })
		})
		if _, err := w.agents.Create(ctx, agent.Spec{Header: head("s-1111")}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if len(w.agents.All()) != 0 {
			t.Error("published")
		}
	})
	t.Run("closed", func(t *testing.T) {
		w := newWorld(t, killed(t), nil)
		w.resume("s-1111")
		if err := w.agents.Close(w.ctx); err != nil {
			t.Fatal(err)
		}
		if len(w.agents.All()) != 0 {
			t.Error("agents are left")
		}
		for _, err := range []error{
			func() error { _, err := w.agents.Resume(w.ctx, "s-1111", agent.Config{}); return err }(),
			func() error { _, err := w.agents.For(w.ctx, "s-1111", agent.Config{}); return err }(),
		} {
			if !errors.Is(err, agent.ErrDisposed) {
				t.Errorf("%v", err)
			}
		}
	})
}

// A bare create takes its seed as it is: the loop closes the open turn before it begins another.
func TestBareSeed(t *testing.T) {
	w := newWorld(t, nil, equip(echo("look")), says("fine"))
	src := newWorld(t, nil, equip(echo("look")), calls(use("c1", "look")), says("done"))
	b := src.create("s-seed")
	src.say(b, "hi")
	var cut session.Events
	for _, ev := range events(t, b.Session()) {
		cut = append(cut, ev)
		if ev.Type == session.TypeToolCall {
			break
		}
	}
	a, err := w.agents.Create(w.ctx, agent.Spec{Header: head("s-1111"), Seed: session.Seed{Prefix: cut}})
	if err != nil {
		t.Fatal(err)
	}
	w.say(a, "go on")
	has(t, a.Session(), "tool/call c1", "session/inherited", "tool/result c1 TOOL_OUTCOME_UNKNOWN", "step/end", "turn/end interrupted", "turn/start", "user/message go on", "turn/end completed")
}

func TestExclusive(t *testing.T) {
	w := newWorld(t, nil, nil, says("fine"))
	a := w.create("s-1111")
	in, out := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		done <- a.Exclusive(w.ctx, func(ctx context.Context) error { close(in); <-out; return ctx.Err() })
	}()
	<-in
	w.followup(a, "meanwhile")
	if err := a.Exclusive(w.ctx, func(context.Context) error { return nil }); !errors.Is(err, agent.ErrRunning) {
		t.Errorf("%v", err)
	}
	if count(t, a.Session(), session.TypeTurnStart) != 0 {
		t.Error("a turn began inside")
	}
	close(out)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.idle(a)
	has(t, a.Session(), "user/message meanwhile", "turn/end completed")
	err := a.Exclusive(w.ctx, func(ctx context.Context) error { a.Cancel(agent.CauseUser); <-ctx.Done(); return context.Cause(ctx) })
	var c *agent.CancelError
	if !errors.As(err, &c) || c.Kind != agent.CauseUser {
		t.Errorf("%v", err)
	}
}

// What waits since an earlier life is no work that came meanwhile: whoever only compacts does not begin it.
func TestExclusiveBeginsNothing(t *testing.T) {
	w := newWorld(t, nil, nil, says("1"), says("2"))
	a := w.create("s-1111")
	if _, err := a.Session().Append(session.Draft{Type: session.TypeInboxSpliced, Data: session.InboxSpliced{
		Target: session.NextTurn, Inserted: []message.Message{message.User("m1", "of an earlier life")},
	}}); err != nil {
		t.Fatal(err)
	}
	if err := a.Exclusive(w.ctx, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	w.idle(a)
	if n := count(t, a.Session(), session.TypeTurnStart); n != 0 {
		t.Fatalf("%d turns began", n)
	}
	if err := a.Exclusive(w.ctx, func(context.Context) error { w.followup(a, "now"); return nil }); err != nil {
		t.Fatal(err)
	}
	w.idle(a)
	has(t, a.Session(), "user/message of an earlier life", "assistant/message 1", "turn/end completed", "user/message now", "assistant/message 2", "turn/end completed")
}
