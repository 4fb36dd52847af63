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
	"github.com/strandline-dev/strandline/tool"
)

// held is a session without a store: what is left is the loop.
type held struct{ s *session.Session }

func (h held) Session() *session.Session     { return h.s }
func (held) Flush(context.Context) error     { return nil }
func (held) Saved() error                    { return nil }
func (held) Full() bool                      { return false }
func (h held) Dispose(context.Context) error { h.s.Dispose(); return nil }

type inMemory struct{ agent.Sessions }

func (inMemory) Create(_ context.Context, h session.Header, seed session.Seed) (agent.Handle, error) {
	reg, err := session.NewRegistry(agent.Kinds())
	if err != nil {
		return nil, err
	}
	s, err := session.New(h, seed, session.Env{Registry: reg, Now: now})
	return held{s}, err
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

// steps measures the loop's own cost of a step with one tool call over histories of growing length: no sync,
// a model and a tool that answer at once.
func (r *run) steps(ctx context.Context) error {
	look, err := tool.NewSet(tool.Definition{
		Name: "look", ReadOnly: true,
		Run: func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("seen"), nil },
	})
	if err != nil {
		return err
	}
	for _, size := range r.Sizes {
		model := &instant{}
		agents, err := agent.New(agent.Options{
			Sessions: inMemory{}, Models: model, Default: agent.Route{Provider: "bench", Model: "bench"}, Policy: tool.PolicyYolo,
			Equip:    func(context.Context, *session.Session) (agent.Kit, error) { return agent.Kit{Tools: look}, nil },
			MaxSteps: 1 << 30, MaxTurnTokens: -1,
			Now: time.Now, NewID: func() string { return string(r.id()) }, Rand: func() float64 { return 0 },
			Sleep: func(context.Context, time.Duration) error { return nil },
		})
		if err != nil {
			return err
		}
		var log session.Events
		for n := 1; len(log) < size; n++ {
			log = append(log, Events(n)...)
		}
		a, err := agents.Create(ctx, agent.Spec{Header: r.header(), Seed: session.Seed{Prefix: log}})
		if err != nil {
			return err
		}
		turn := func(steps int) (time.Duration, error) {
			model.left = steps
			begin := time.Now()
			if _, err := a.Followup(ctx, agent.Text("go")); err != nil {
				return 0, err
			}
			return time.Since(begin), a.WhenIdle(ctx)
		}
		if _, err := turn(1); err != nil { // the first request of a life reads the surface
			return err
		}
		const steps = 500
		begin := time.Now()
		if _, err := turn(steps); err != nil {
			return err
		}
		took := time.Since(begin)
		r.emit(Row{Work: "loop overhead per step", Size: size, Value: ms(took) / steps, Unit: "ms",
			Note: fmt.Sprintf("one tool call, no sync; the view has %d messages", a.Session().State().SurfaceLen())})
		if err := agents.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}
