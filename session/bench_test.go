package session

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
)

// realLog is a log of about n events with the mix of a coding session: mostly chunks, and for each step a
// message, two calls, their starts and results.
func realLog(tb testing.TB, n int) Events {
	tb.Helper()
	var out Events
	add := func(typ string, op SurfaceOp, data any) {
		ev, err := Draft{Type: typ, Op: op, Data: data}.Event(Seq(len(out)), int64(1700000000000+len(out)))
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, ev)
	}
	chunk := jsontext.Value(`{"type":"text-delta","text":"` + string(make200()) + `"}`)
	for turn := 1; len(out) < n; turn++ {
		add(TypeTurnStart, SurfaceOp{}, TurnStart{turn})
		add(TypeUserMessage, Append(), message.User(fmt.Sprintf("u%d", turn), "please look at this"))
		for step := 1; step <= 8; step++ {
			add(TypeStepStart, SurfaceOp{}, StepRef{turn, step})
			for range 30 {
				add(TypeAssistantChunk, SurfaceOp{}, AssistantChunk{turn, step, chunk})
			}
			a, b := fmt.Sprintf("call_%d_%da", turn, step), fmt.Sprintf("call_%d_%db", turn, step)
			add(TypeAssistantMessage, Append(), AssistantMessage{
				Turn: turn, Step: step, Usage: &message.Usage{InputTokens: 1000, OutputTokens: 50},
				Message: message.Message{ID: a + "m", Role: message.RoleAssistant, Content: []message.Block{
					message.TextBlock(string(make200())), message.CallBlock(a, "bash", `{"command":"ls -la"}`), message.CallBlock(b, "read", `{"path":"x.go"}`)}},
			})
			for _, id := range []string{a, b} {
				add(TypeToolCall, SurfaceOp{}, ToolCall{turn, step, id, "bash", `{"command":"ls -la"}`})
			}
			for _, id := range []string{a, b} {
				add(TypeToolResult, Append(), ToolResult{Turn: turn, Step: step, Message: message.Result(id+"r", id, false, message.TextBlock(string(make200())))})
			}
			add(TypeStepEnd, SurfaceOp{}, StepRef{turn, step})
		}
		add(TypeTurnEnd, SurfaceOp{}, TurnEnd{turn, Reason{Kind: ReasonCompleted}})
	}
	return out[:n:n]
}

func make200() []byte {
	b := make([]byte, 200)
	for i := range b {
		b[i] = "the quick brown fox "[i%20]
	}
	return b
}

func BenchmarkFold(b *testing.B) {
	p := realLog(b, 100_000)
	reg := Core()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Fold(Header{ID: "test"}, reg, p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(p)), "ns/event")
}
