package view_test

import (
	"fmt"
	"testing"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/view"
)

// history is a log of n surface items: steps with two calls each.
func history(n int) ([]session.Item, session.State) {
	st := session.NewState(session.Header{ID: "bench"}, nil)
	items := make([]session.Item, 0, n+4)
	for s := 0; len(items) < n; s++ {
		items = append(items, step(s, session.Seq(len(items)))...)
	}
	return items[:n:n], st
}

func step(s int, seq session.Seq) []session.Item {
	a, b := fmt.Sprintf("a%d", s), fmt.Sprintf("b%d", s)
	text := "The quick brown fox jumps over the lazy dog, again and again, until the page is full."
	return []session.Item{
		{Seq: seq, Type: session.TypeAssistantMessage, Turn: 1, Step: s, Message: message.Message{Role: message.RoleAssistant,
			Content: []message.Block{message.TextBlock(text), message.CallBlock(a, "read", "{}"), message.CallBlock(b, "read", "{}")},
			Source:  message.Source{Kind: message.SourceModel, Provider: provider}}},
		{Seq: seq + 1, Type: session.TypeToolResult, Turn: 1, Step: s, Message: message.Result("r"+a, a, false, message.TextBlock(text))},
		{Seq: seq + 2, Type: session.TypeToolResult, Turn: 1, Step: s, Message: message.Result("r"+b, b, false, message.TextBlock(text))},
	}
}

// BenchmarkStep is the view of one more step over a history of n items: flat with a Builder.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("builder/%d", n), func(b *testing.B) {
			items, st := history(n)
			bld := view.NewBuilder(view.Options{Provider: provider})
			bld.Update(items, st)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				b.StopTimer()
				items = append(items, step(n+i, session.Seq(len(items)))...)
				b.StartTimer()
				bld.Update(items, st)
			}
		})
	}
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("build/%d", n), func(b *testing.B) {
			items, st := history(n)
			b.ReportAllocs()
			for b.Loop() {
				view.Build(items, st, provider)
			}
		})
	}
}
