package bench

import (
	"context"
	"os"
	"testing"

	"github.com/strandline-dev/strandline/session"
)

// The generator makes what a well-behaved loop would write: the strict fold and the order checks accept it.
func TestGeneratedTurnsAreValid(t *testing.T) {
	s, err := session.New(session.Header{Format: 1, ID: "bench-gen", Kind: session.KindRoot},
		session.Seed{}, session.Env{Now: now, Validators: []session.Validator{session.Relational}})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		turn := Turn(n)
		if len(turn) != TurnEvents {
			t.Fatalf("turn %d has %d events", n, len(turn))
		}
		for _, d := range turn {
			if _, err := s.Append(d); err != nil {
				t.Fatal(err)
			}
		}
	}
	if st := s.State(); st.Turns() != 3 || st.ToolCalls() != 12 || len(st.Problems()) > 0 {
		t.Errorf("%d turns, %d calls, problems %v", st.Turns(), st.ToolCalls(), st.Problems())
	}
}

// Every measurement runs to its end and leaves nothing behind; what it measured is not judged here.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]bool{}
	err := Run(context.Background(), Options{
		Dir: dir, Sizes: []int{1000}, Turns: 10, Sessions: []int{60}, Messages: []int{400},
		Emit: func(r Row) {
			if r.Value <= 0 {
				t.Errorf("%s: %v %s", r.Work, r.Value, r.Unit)
			}
			seen[r.Work] = true
			t.Logf("%+v", r)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) < 10 {
		t.Errorf("only %d rows", len(seen))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// BenchmarkAccept is the price of accepting an event, without storage.
func BenchmarkAccept(b *testing.B) {
	var drafts []session.Draft
	for n := 1; n <= 50; n++ {
		drafts = append(drafts, Turn(n)...)
	}
	b.ReportAllocs()
	i := len(drafts)
	var s *session.Session
	for b.Loop() {
		if i == len(drafts) {
			i = 0
			var err error
			if s, err = session.New(session.Header{Format: 1, ID: "bench-accept", Kind: session.KindRoot}, session.Seed{}, session.Env{Now: now}); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := s.Append(drafts[i]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
