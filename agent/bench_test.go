package agent_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

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
	s, err := session.New(h, seed, session.Env{Registry: reg, Now: func() int64 { return 1 }})
	return held{s}, err
}

// instant asks for a tool as long as steps are left, then ends the turn.
type instant struct{ left int }

func (*instant) Name() string { return "fake" }

func (m *instant) Provider(string) (llm.Provider, error) { return m, nil }

func (m *instant) Stream(context.Context, llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		m.left--
		c := llm.Chunk{Type: llm.ChunkTextDelta, Text: "done"}
		if m.left > 0 {
			c = llm.Chunk{Type: llm.ChunkToolCallDelta, ID: fmt.Sprintf("call%d", m.left), Name: "look", Arguments: `{"path":"main.go"}`}
		}
		_ = yield(c, nil) && yield(llm.Chunk{Type: llm.ChunkFinish, Usage: &message.Usage{InputTokens: 1, OutputTokens: 1}}, nil)
	}
}

// history is a seed of n events: turns of one answer each.
func history(tb testing.TB, n int) session.Seed {
	tb.Helper()
	var evs session.Events
	add := func(typ string, op session.SurfaceOp, data any) {
		raw, err := json.Marshal(data)
		if err != nil {
			tb.Fatal(err)
		}
		evs = append(evs, session.Event{Seq: session.Seq(len(evs)), Time: 1, Type: typ, Op: op, Data: raw})
	}
	for turn := 1; len(evs) < n; turn++ {
		add(session.TypeTurnStart, session.SurfaceOp{}, session.TurnStart{Turn: turn})
		add(session.TypeStepStart, session.SurfaceOp{}, session.StepRef{Turn: turn, Step: 1})
		add(session.TypeUserMessage, session.Append(), message.User(fmt.Sprintf("u%d", turn), "what does this file do, and why is it so long?"))
		add(session.TypeAssistantMessage, session.Append(), session.AssistantMessage{Turn: turn, Step: 1, Message: message.Message{
			ID: fmt.Sprintf("a%d", turn), Role: message.RoleAssistant, Content: []message.Block{message.TextBlock("it holds the fold; it is long because the fold is one thing")}}})
		add(session.TypeStepEnd, session.SurfaceOp{}, session.StepRef{Turn: turn, Step: 1})
		add(session.TypeTurnEnd, session.SurfaceOp{}, session.TurnEnd{Turn: turn, Reason: session.Reason{Kind: session.ReasonCompleted}})
	}
	return session.Seed{Prefix: evs}
}

// BenchmarkStep is the loop's own cost of one step with one tool call: no sync, a model that answers at
// once. It must not grow with the history. The first step of a life, which reads the surface, is not in it.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set, err := tool.NewSet(echo("look"))
			if err != nil {
				b.Fatal(err)
			}
			m := &instant{}
			ids := 0
			agents, err := agent.New(agent.Options{
				Sessions: inMemory{}, Models: m, Default: agent.Route{Provider: "fake", Model: "m"}, Policy: tool.PolicyYolo,
				Equip:    func(context.Context, *session.Session) (agent.Kit, error) { return agent.Kit{Tools: set}, nil },
				MaxSteps: 1 << 30, MaxTurnTokens: -1,
				Now: time.Now, NewID: func() string { ids++; return fmt.Sprint("id", ids) }, Rand: func() float64 { return 0 },
				Sleep: func(context.Context, time.Duration) error { return nil },
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			a, err := agents.Create(ctx, agent.Spec{Header: head("s-bench"), Seed: history(b, n)})
			if err != nil {
				b.Fatal(err)
			}
			run := func(steps int) {
				m.left = steps
				if _, err := a.Followup(ctx, agent.Text("go")); err != nil {
					b.Fatal(err)
				}
				if err := a.WhenIdle(ctx); err != nil {
					b.Fatal(err)
				}
			}
			run(1)
			b.ReportAllocs()
			b.ResetTimer()
			run(b.N)
			b.StopTimer()
			if err := agents.Close(ctx); err != nil {
				b.Fatal(err)
			}
		})
	}
}
