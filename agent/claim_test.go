package agent

import (
	"slices"
	"testing"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// Input that is not acknowledged yet stays where it is; the rest is claimed in order, and the claims leave
// exactly that behind.
func TestClaimable(t *testing.T) {
	for _, c := range []struct {
		queue, unsettled, want, left string
		n                            int
	}{
		{"", "", "", "", -1},
		{"abc", "", "abc", "", -1},
		{"abc", "", "a", "bc", 1},
		{"abc", "a", "b", "ac", 1},
		{"abc", "abc", "", "abc", -1},
		{"abcdef", "acf", "bde", "acf", -1},
		{"abcdef", "bce", "ad", "bcef", 2},
		{"abcd", "d", "abc", "d", -1},
	} {
		s, err := session.New(session.Header{Format: 1, ID: "test", Kind: session.KindRoot}, session.Seed{}, session.Env{Now: func() int64 { return 1 }})
		if err != nil {
			t.Fatal(err)
		}
		a := &Agent{unsettled: map[string]int{}}
		for _, id := range c.unsettled {
			a.accepting(string(id))
		}
		var in []message.Message
		for _, id := range c.queue {
			in = append(in, message.User(string(id), "x"))
		}
		if _, err := s.Append(session.Draft{Type: session.TypeInboxSpliced, Data: session.InboxSpliced{Target: session.NextStep, Inserted: in}}); err != nil {
			t.Fatal(err)
		}
		msgs, drafts := a.claimable(s.State(), session.NextStep, c.n)
		if _, err := s.AppendAll(nil, drafts...); err != nil {
			t.Fatal(err)
		}
		st := s.State()
		if got := ids(msgs); got != c.want {
			t.Errorf("%+v: claimed %q", c, got)
		}
		if got := ids(st.Queue(session.NextStep)); got != c.left {
			t.Errorf("%+v: left %q", c, got)
		}
		if p := st.Problems(); len(p) > 0 {
			t.Errorf("%+v: %v", c, p)
		}
	}
}

func ids(msgs []message.Message) string {
	var out []byte
	for m := range slices.Values(msgs) {
		out = append(out, m.ID...)
	}
	return string(out)
}
