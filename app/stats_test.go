package app_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/session"
)

// TestDayOfAZone: a day ends where its zone says, which is within an hour of Greenwich for many.
func TestDayOfAZone(t *testing.T) {
	for _, zone := range []time.Duration{0, 5*time.Hour + 30*time.Minute, 5*time.Hour + 45*time.Minute, -3*time.Hour - 30*time.Minute} {
		a, in := open(t), time.FixedZone("there", int(zone.Seconds()))
		midnight := time.Date(2026, 11, 30, 0, 0, 0, 0, in)
		h := session.Header{Format: 1, ID: "days", CreatedAt: 1, Kind: session.KindRoot, Cwd: "/p", Project: "/p"}
		taker := a.Store.(interface {
			Take(context.Context, session.Header, iter.Seq2[session.Event, error]) error
		})
		if err := taker.Take(t.Context(), h, func(yield func(session.Event, error) bool) {
			for i, minutes := range []int{-20, -5, 5, 20, 25} {
				at := midnight.Add(time.Duration(minutes) * time.Minute).UnixMilli()
				turn := session.Event{Seq: session.Seq(2 * i), Time: at, Type: session.TypeTurnStart, Data: jsontext.Value(fmt.Sprintf(`{"turn":%d}`, i+1))}
				end := session.Event{Seq: turn.Seq + 1, Time: at, Type: session.TypeTurnEnd,
					Data: jsontext.Value(fmt.Sprintf(`{"turn":%d,"reason":{"kind":"completed"}}`, i+1))}
				if !yield(turn, nil) || !yield(end, nil) {
					return
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		q := app.StatsQuery{Zone: in, Prices: func(string, string) (llm.Price, bool) { return llm.Price{}, false }}
		for since, want := range map[int64]string{0: "2026-11-29 2, 2026-11-30 3, ", midnight.UnixMilli(): "2026-11-30 3, "} {
			q.Since = since
			st, err := a.Stats(t.Context(), q, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, g := range st.Groups {
				if g.By == "day" {
					got += fmt.Sprintf("%s %d, ", g.Key, g.Turns)
				}
			}
			if got != want {
				t.Errorf("zone %v, since %d: turns by day %q, not %q", zone, since, got, want)
			}
		}
	}
}
