package bench

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/telemetry"
	"github.com/strandline-dev/strandline/tool"
)

// held is a session without a store: what is left is the loop.
type held struct{ s *session.Session }

func (h held) Session() *session.Session     { return h.s }
func (held) Flush(context.Context) error     { return nil }
func (held) Saved() error                    { return nil }
func (held) Full() bool                      { return false }
func (h held) Dispose(context.Context) error { h.s.Dispose(); return nil }

// Durable says that all of the session is synced.
func (h held) Durable() (session.Seq, <-chan struct{}) {
	for {
		n := h.s.Len()
		if more, grown, err := h.s.From(n); err != nil || len(more) == 0 {
			return n, grown
		}
	}
}

type inMemory struct {
	agent.Sessions
	told *telemetry.Telemetry // follows what is created; nil: nobody does
}

func (m inMemory) Create(_ context.Context, h session.Header, seed session.Seed) (agent.Handle, error) {
	reg, err := session.NewRegistry(agent.Kinds())
	if err != nil {
		return nil, err
	}
	s, err := session.New(h, seed, session.Env{Registry: reg, Now: now})
	if err != nil {
		return nil, err
	}
	m.told.Follow(s, held{s})
	return held{s}, nil
}

// instant is a model that answers at once and asks for a tool as long as steps are left.
type instant struct{ left int }

func (*instant) Name() string                            { return "bench" }
func (m *instant) Provider(string) (llm.Provider, error) { return m, nil }

func (m *instant) Stream(context.Context, llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		m.left--
		c := llm.Chunk{Type: llm.ChunkTextDelta, Text: "done"}
		if m.left > 0 {
			c = llm.Chunk{Type: llm.ChunkToolCallDelta, ID: fmt.Sprintf("call%d", m.left), Name: "look", Arguments: `{}`}
		}
		_ = yield(c, nil) && yield(llm.Chunk{Type: llm.ChunkFinish, Usage: &message.Usage{InputTokens: 1, OutputTokens: 1}}, nil)
	}
}

// looper is an agent with a model and a tool that answer at once, in a session without a store.
type looper struct {
	agents *agent.Agents
	a      *agent.Agent
	model  *instant
}

func (r *run) looper(ctx context.Context, log session.Events, told *telemetry.Telemetry) (*looper, error) {
	look, err := tool.NewSet(tool.Definition{
		Name: "look", ReadOnly: true,
		Run: func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("seen"), nil },
	})
	if err != nil {
		return nil, err
	}
	l := &looper{model: &instant{}}
	l.agents, err = agent.New(agent.Options{
		Sessions: inMemory{told: told}, Models: l.model, Default: agent.Route{Provider: "bench", Model: "bench"}, Policy: tool.PolicyYolo,
		Equip:    func(context.Context, *session.Session) (agent.Kit, error) { return agent.Kit{Tools: look}, nil },
		MaxSteps: 1 << 30, MaxTurnTokens: -1,
		Now: time.Now, NewID: func() string { return string(r.id()) }, Rand: func() float64 { return 0 },
		Sleep: func(context.Context, time.Duration) error { return nil },
	})
	if err != nil {
		return nil, err
	}
	if l.a, err = l.agents.Create(ctx, agent.Spec{Header: r.header(), Seed: session.Seed{Prefix: log}}); err != nil {
		return nil, err
	}
	return l, l.turn(ctx, 1) // the first request of a life reads the surface
}

// turn works through a turn of so many steps, with one tool call each.
func (l *looper) turn(ctx context.Context, steps int) error {
	l.model.left = steps
	if _, err := l.a.Followup(ctx, agent.Text("go")); err != nil {
		return err
	}
	return l.a.WhenIdle(ctx)
}

// turnSteps is how many steps a measured turn has.
const turnSteps = 500

// steps measures the loop's own cost of a step with one tool call over histories of growing length: no sync,
// a model and a tool that answer at once.
func (r *run) steps(ctx context.Context) error {
	for _, size := range r.Sizes {
		var log session.Events
		for n := 1; len(log) < size; n++ {
			log = append(log, Events(n)...)
		}
		l, err := r.looper(ctx, log, nil)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := l.turn(ctx, turnSteps); err != nil {
			return err
		}
		took := time.Since(begin)
		r.emit(Row{Work: "loop overhead per step", Size: size, Value: ms(took) / turnSteps, Unit: "ms",
			Note: fmt.Sprintf("one tool call, no sync; the view has %d messages", l.a.Session().State().SurfaceLen())})
		if err := l.agents.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}
