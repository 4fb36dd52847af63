package session_test

import (
	"testing"

	"github.com/strandline-dev/strandline/bench"
	"github.com/strandline-dev/strandline/session"
)

// stored is so many events on a disk that nobody reads.
type stored struct {
	session.Events
	n session.Seq
}

func (p stored) Len() session.Seq { return p.n }

// BenchmarkAccept is what one event of a turn of the usual mix costs before it is in memory, in a session that gives
// its events away after each turn.
func BenchmarkAccept(b *testing.B) {
	turn := bench.Turn(1)
	s, err := session.New(session.Header{ID: "abcd"}, session.Seed{}, session.Env{Now: func() int64 { return 1 }})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, d := range turn {
			if _, err := s.Append(d); err != nil {
				b.Fatal(err)
			}
		}
		s.Settle(stored{n: s.Len()})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/bench.TurnEvents, "ns/event")
}
