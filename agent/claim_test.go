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

func TestFallbackTitle(t *testing.T) {
	long := "0123456789012345678901234567890123456789012345678901234567890123456789"
	for in, want := range map[string]string{
		"fix the bug":                   "fix the bug",
		"  a\n\tb \u202e c\x00d \u200b": "a b cd",
		long:                            long[:59] + "…",
		"word " + long:                  "word…",
		"":                              "",
		"\u202e\u200f":                  "",
		long[:60]:                       long[:60],
		long[:55] + " abcd":             long[:55] + " abcd",
		long[:55] + " abcde":            long[:55] + "…",
	} {
		if got := fallbackTitle(message.User("u", in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if n := len([]rune(want)); n > maxTitle {
			t.Errorf("%q has %d runes", want, n)
		}
	}
}
