package session_test

import (
	"testing"

	"github.com/strandline-dev/strandline/bench"
	"github.com/strandline-dev/strandline/session"
)

// BenchmarkAccept is what one event of a turn of the usual mix costs before it is in memory.
func BenchmarkAccept(b *testing.B) {
	turn := bench.Turn(1)
	env := session.Env{Registry: session.Core(), Now: func() int64 { return 1 }}
	b.ReportAllocs()
	for b.Loop() {
		s, err := session.New(session.Header{ID: "abcd"}, session.Seed{}, env)
		if err != nil {
			b.Fatal(err)
		}
		for _, d := range turn {
			if _, err := s.Append(d); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/bench.TurnEvents, "ns/event")
}
