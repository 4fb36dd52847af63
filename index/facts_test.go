package index

import (
	"reflect"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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
			if d.Quarter != k.quarter || d.ModelMS < 0 || d.ToolMS < 0 {
				t.Fatalf("hour %+v", d)
			}
			sum = sum.add(d)
		}
		if d := cmp.Diff(own, sum.Usage); d != "" {
			t.Fatalf("the hours do not sum up to what it spent itself: %s", d)
		}
	})
}

// What is begun counts for the model that is asked, or answers, although the log names it later.
func TestWhoWorked(t *testing.T) {
	const hour = 4 * QuarterMS
	ev := func(at int64, typ, data string) session.Event {
		return session.Event{Time: at, Type: typ, Data: jsontext.Value(data)}
	}
	asks := func(at int64, model string) session.Event {
		return ev(at, session.TypeRequestContext, `{"provider":"p","model":"`+model+`"}`)
	}
	answers := func(at int64, model string) session.Event {
		e := ev(at, session.TypeAssistantMessage, `{"turn":1,"step":1,"message":{"id":"a","role":"assistant","content":[{"type":"text","text":"answer"}],"source":{"kind":"model","provider":"p","model":"`+model+`"}},"usage":{"inputTokens":1}}`)
		e.Op = session.Append()
		return e
	}
	turn, step := ev(0, session.TypeTurnStart, `{"turn":1}`), ev(hour, session.TypeStepStart, `{"turn":1,"step":1}`)
	call := ev(hour, session.TypeToolCall, `{"turn":1,"step":1,"callId":"c","name":"t"}`)
	end := ev(hour, session.TypeTurnEnd, `{"turn":1,"reason":{"kind":"completed"}}`)
	one := &message.Usage{InputTokens: 1}
	for name, c := range map[string]struct {
		evs    []session.Event
		shared int
		want   []Hour
	}{
		"the first step": {[]session.Event{turn, step, asks(hour, "a")}, 0, []Hour{
			{Quarter: 0, Provider: "p", Model: "a", Turns: 1}, {Quarter: 4, Provider: "p", Model: "a", Steps: 1}}},
		"a change": {[]session.Event{turn, step, asks(hour, "a"), answers(hour, "a"), call, step, asks(hour, "b"), answers(hour, "b"), end}, 0, []Hour{
			{Quarter: 0, Provider: "p", Model: "a", Turns: 1}, {Quarter: 4, Provider: "p", Model: "a", Steps: 1, Calls: 1, Usage: one},
			{Quarter: 4, Provider: "p", Model: "b", Steps: 1, Usage: one}}},
		"who answers has another name": {[]session.Event{turn, step, asks(hour, "a"), answers(hour, "a-1"), call, step, answers(hour, "a-1")}, 0, []Hour{
			{Quarter: 0, Provider: "p", Model: "a-1", Turns: 1}, {Quarter: 4, Provider: "p", Model: "a-1", Steps: 2, Calls: 1, Usage: &message.Usage{InputTokens: 2}}}},
		"nobody was ever named": {[]session.Event{turn, step, end}, 0, []Hour{{Quarter: 0, Turns: 1}, {Quarter: 4, Steps: 1}}},
		"what was inherited stays where it is": {[]session.Event{turn, step, asks(hour, "a"), answers(hour, "x"), end, turn, step}, 4, []Hour{
			{Quarter: 0, Provider: "p", Model: "a", Turns: 1}, {Quarter: 4, Provider: "p", Model: "a", Steps: 1}}},
	} {
		h := session.Header{Format: session.Format, ID: "s", SeedLength: session.Seq(c.shared)}
		f, all := begun(h), hours{}
		for i, ev := range c.evs {
			ev.Seq = session.Seq(i)
			f.fold(h, sessiontest.Registry(), &ev, all)
		}
		if d := cmp.Diff(c.want, all.rows()); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
