package index

import (
	"reflect"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
)

// What the index folds is what the session's own fold says, of logs of real lives and of garbage, also when it stops in
// the middle and goes on from what was written down.
func TestFactsAgreeWithTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h session.Header
		var evs session.Events
		if rapid.Bool().Draw(t, "garbage") {
			evs = sessiontest.Garbage(sessiontest.Drawn(t), rapid.IntRange(0, 60).Draw(t, "events"))
			h = session.Header{Format: session.Format, ID: "garbage", CreatedAt: 5, Kind: session.KindRoot,
				SeedLength: session.Seq(rapid.IntRange(0, len(evs)).Draw(t, "seed"))}
		} else {
			l := sessiontest.Live(t, rapid.IntRange(1, 60).Draw(t, "actions"))
			evs, h = l.Events(), l.S.Header()
		}
		reg := sessiontest.Registry()
		want, err := session.Fold(h, reg, evs)
		if err != nil {
			t.Fatal(err)
		}
		f, all := begun(h), hours{}
		stop := rapid.IntRange(0, len(evs)).Draw(t, "stop")
		for i, ev := range evs {
			if i == stop {
				text, err := json.Marshal(f)
				if err != nil {
					t.Fatal(err)
				}
				f = Facts{}
				if err := json.Unmarshal(text, &f); err != nil {
					t.Fatal(err)
				}
			}
			f.fold(h, reg, &ev, all)
		}
		_, open := want.Turn()
		got := []any{f.Next, f.Turns, f.Steps, f.ToolCalls, f.LastActivity, f.Title, f.Turn != session.None, len(f.Unknown)}
		for i, w := range []any{want.Next(), want.Turns(), want.Steps(), want.ToolCalls(), want.LastActivity(), want.Title().Title, open, len(want.Unknown())} {
			if got[i] != w {
				t.Fatalf("fact %d: %v, the state says %v\n%s", i, got[i], w, sessiontest.Dump(evs))
			}
		}
		total, own := want.Usage()
		gotTotal, gotOwn := f.Usage()
		if d := cmp.Diff([]*message.Usage{total, own}, []*message.Usage{gotTotal, gotOwn}); d != "" {
			t.Fatalf("usage: %s\n%s", d, sessiontest.Dump(evs))
		}
		if len(f.Spent) != len(want.Spent()) {
			t.Fatalf("%d models, want %d", len(f.Spent), len(want.Spent()))
		}
		for _, s := range want.Spent() { // the order is another one
			found := false
			for _, g := range f.Spent {
				found = found || reflect.DeepEqual(session.Spent(g), s)
			}
			if !found {
				t.Fatalf("%+v is not among %+v", s, f.Spent)
			}
		}
		var sum Hour
		for k, d := range all {
			if d.Hour != k.hour || d.ModelMS < 0 || d.ToolMS < 0 {
				t.Fatalf("hour %+v", d)
			}
			sum = sum.add(d)
		}
		if d := cmp.Diff(own, sum.Usage); d != "" {
			t.Fatalf("the hours do not sum up to what it spent itself: %s", d)
		}
	})
}
