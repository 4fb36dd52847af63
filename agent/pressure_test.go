package agent_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// hideAll takes everything off the surface but its last node.
func hideAll(s *session.Session) (bool, error) {
	st := s.State()
	var seqs []session.Seq
	for _, n := range st.Surface()[:st.SurfaceLen()-1] {
		seqs = append(seqs, n.Seq)
	}
	_, err := s.Append(session.Draft{Type: session.TypeHide, Data: session.Hide{Reason: "trim"},
		Op: session.Replace(seqs[0], seqs[len(seqs)-1]), Sources: session.Cite(seqs...)})
	return true, err
}

func restating(o *agent.Options) {
	o.ReadFile = func(path string) ([]byte, error) {
		if path == "/work/AGENTS.md" {
			return []byte("be brief"), nil
		}
		return nil, fs.ErrNotExist
	}
	o.Hooks.Restate = append(o.Hooks.Restate, func(context.Context, *session.Session) ([]message.Message, error) {
		return []message.Message{{Role: message.RoleUser, Content: []message.Block{message.TextBlock("two children run")},
			Source: message.Source{Kind: message.SourcePlugin, Plugin: "children"}}}, nil
	})
}

// What was taken off the surface and must not be lost is stated again at once, before the request goes out.
func TestRestate(t *testing.T) {
	asked := 0
	w := newWorld(t, nil, func(o *agent.Options) {
		restating(o)
		equip(echo("look"))(o)
		o.Hooks.Pressure = append(o.Hooks.Pressure, func(_ context.Context, in agent.PressureInput) (bool, error) {
			if asked++; asked != 2 {
				return false, nil
			}
			return hideAll(in.Session)
		})
	}, calls(use("c1", "look")), says("done"))
	a := w.create("s-1111")
	w.say(a, "go")
	has(t, a.Session(), "tool/result c1", "surface/hide", "user/message Instructions of this project, from its AGENTS.md files. Where two disagree, the last one holds.", "user/message two children run", "assistant/message done", "turn/end completed")
	if got := w.model.sent()[1].Messages; len(got) != 2 {
		t.Errorf("%d messages were sent", len(got))
	}
}

// Relieve works between turns, states again what was lost, and says what would be sent.
func TestRelieve(t *testing.T) {
	w := newWorld(t, nil, restating, says("1"), says("2"))
	a := w.create("s-1111")
	w.say(a, "one")
	w.say(a, "two")
	err := a.Relieve(w.ctx, func(_ context.Context, in agent.PressureInput) (bool, error) {
		if in.Turn != 0 || len(in.Request.Messages) != 5 || in.ContextWindow != 1000 {
			t.Errorf("saw %+v", in)
		}
		return hideAll(in.Session)
	})
	if err != nil {
		t.Fatal(err)
	}
	has(t, a.Session(), "turn/end completed", "surface/hide", "user/message two children run")
	if n := count(t, a.Session(), session.TypeTurnStart); n != 2 {
		t.Errorf("%d turns", n)
	}
	sentinel := errors.New("no")
	if err := a.Relieve(w.ctx, func(context.Context, agent.PressureInput) (bool, error) { return false, sentinel }); !errors.Is(err, sentinel) {
		t.Errorf("%v", err)
	}
}

// What a hook spends on a model counts towards the turn's budget, once.
func TestPressureIsCounted(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*agent.Options)
		want string
	}{
		"tokens":   {func(o *agent.Options) { o.MaxTurnTokens = 1000 }, "turn/end limit"},
		"cost":     {func(o *agent.Options) { o.MaxTurnCost = 100 }, "turn/end limit"},
		"no limit": {func(o *agent.Options) {}, "turn/end completed"},
		"below":    {func(o *agent.Options) { o.MaxTurnTokens = 1100 }, "turn/end completed"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			w := newWorld(t, nil, func(o *agent.Options) {
				equip(echo("look"))(o)
				c.set(o)
				o.Hooks.Pressure = append(o.Hooks.Pressure, func(_ context.Context, in agent.PressureInput) (bool, error) {
					if asked++; asked != 1 {
						return false, nil
					}
					_, err := in.Session.Append(session.Draft{Type: "test/spent", Data: map[string]any{"usage": message.Usage{InputTokens: 990, OutputTokens: 10}}})
					return false, err
				})
			}, calls(use("c1", "look")), calls(use("c2", "look")), says("done"))
			a := w.create("s-1111")
			w.say(a, "go")
			has(t, a.Session(), c.want)
			if limited := c.want == "turn/end limit"; limited != (count(t, a.Session(), session.TypeToolCall) == 1) {
				t.Errorf("%d calls ran", count(t, a.Session(), session.TypeToolCall))
			}
		})
	}
}
