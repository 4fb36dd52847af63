package keeper_test

import (
	"reflect"
	"testing"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// A subagent that shares the state of what it inherits has the state that its own log folds to.
func TestSharedState(t *testing.T) {
	st := newFake(t)
	k := start(st)
	h, err := k.Create(t.Context(), header("root"), session.Seed{})
	if err != nil {
		t.Fatal(err)
	}
	s := h.Session()
	add := func(s *session.Session, d session.Draft) {
		t.Helper()
		if _, err := s.Append(d); err != nil {
			t.Fatal(err)
		}
	}
	turn := func(s *session.Session, n int) {
		add(s, session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: n}})
		add(s, session.Draft{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: n, Reason: session.Reason{Kind: session.ReasonCompleted}}})
	}
	say := func(s *session.Session, id string) {
		add(s, session.Draft{Type: session.TypeUserMessage, Op: session.Append(), Data: message.User(id, "said in "+id)})
	}
	say(s, "early")
	add(s, session.Draft{Type: session.TypeTitle, Data: session.Title{Title: "one", Source: "fallback"}})
	for n := range 5 {
		turn(s, n+1)
	}
	say(s, "late")
	turn(s, 6)
	if err := h.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	read, _, err := s.Surface()
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []session.ID{"child-a", "child-b", "child-c"} {
		if i == 2 { // another cut
			last := s.State().SurfaceAt(1).Seq
			add(s, session.Draft{Type: session.TypeUserMessage, Op: session.Replace(last, last), Sources: session.Cite(last), Data: message.User("other", "instead")})
			turn(s, 7)
		}
		if _, err := k.Fork(t.Context(), "root", store.ForkOptions{Child: id, Kind: session.KindSubagent, Depth: 1}); err != nil {
			t.Fatal(err)
		}
		c, err := k.Resume(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		check := func() {
			t.Helper()
			got := c.Session().State()
			want, err := session.Fold(c.Header(), nil, c.Session().Events())
			if err != nil {
				t.Fatal(err)
			}
			items, _, err := c.Session().Surface()
			if err != nil {
				t.Fatal(err)
			}
			if again, err := session.ProjectAll(want, c.Session().Events()); err != nil || !reflect.DeepEqual(items, again) {
				t.Errorf("%s: %+v, its log projects to %+v, %v", id, items, again, err)
			}
			gotTotal, gotOwn := got.Usage()
			wantTotal, wantOwn := want.Usage()
			for _, p := range [][2]any{
				{got.Header(), want.Header()}, {got.Next(), want.Next()}, {got.Surface(), want.Surface()}, {got.Turns(), want.Turns()},
				{got.Title(), want.Title()}, {got.LastActivity(), want.LastActivity()}, {got.Boundaries(), want.Boundaries()},
				{gotTotal, wantTotal}, {gotOwn, wantOwn}, {len(got.Asks()), len(want.Asks())}, {len(got.Problems()), len(want.Problems())},
			} {
				if !reflect.DeepEqual(p[0], p[1]) {
					t.Errorf("%s: %+v, its log folds to %+v", id, p[0], p[1])
				}
			}
		}
		items, _, err := c.Session().Surface()
		if err != nil || len(items) != 2 {
			t.Fatal(items, err)
		}
		if &items[0].Message.Content[0] != &read[0].Message.Content[0] {
			t.Errorf("%s has read again what its parent had read", id)
		}
		if shares := &items[1].Message.Content[0] == &read[1].Message.Content[0]; shares != (i < 2) {
			t.Errorf("%s: shares what was replaced: %t", id, shares)
		}
		check()
		say(c.Session(), "own-"+string(id))
		n, _ := c.Session().State().Turn()
		turn(c.Session(), n+1)
		check()
	}
}
