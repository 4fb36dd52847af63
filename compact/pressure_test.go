package compact_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
)

func (w *world) pressure(overflow bool) bool {
	w.t.Helper()
	changed, err := w.c.Pressure(context.Background(), w.job, overflow)
	if err != nil {
		w.t.Fatal(err)
	}
	return changed
}

// said counts the remarks that hold text.
func (w *world) said(text string) (n int) {
	for _, note := range w.notes {
		if strings.Contains(note, text) {
			n++
		}
	}
	return n
}

// Below the threshold nothing happens; above it one compaction does, and none again before the view has grown.
func TestThreshold(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.fill(8) // about 80 tokens a turn
	if w.pressure(false) || w.s.State().Next() != w.s.Len() || w.types() != "" {
		t.Fatalf("compacted below the threshold: %s", w.types())
	}
	w.fill(3)
	if !w.pressure(false) || w.model.count() != 1 || w.said("compacted") != 1 {
		t.Fatalf("%s %v", w.types(), w.notes)
	}
	for range 3 {
		if w.pressure(false) {
			t.Error("compacted again")
		}
	}
	// The usage of an answer from before says nothing about the view now.
	w.fill(1)
	if w.pressure(false) || w.model.count() != 1 {
		t.Error("compacted again by an old figure")
	}
	w.fill(9)
	if !w.pressure(false) || w.model.count() != 2 {
		t.Errorf("not compacted when the view had grown: %s", w.types())
	}
	w.job.Window = 0
	w.fill(20)
	if w.pressure(false) {
		t.Error("compacted without a window")
	}
}

// What the provider told of the view as it is counts, whatever the estimate says.
func TestToldUsage(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.fill(6)
	w.put(session.Draft{Type: session.TypeRequestHeader, Data: session.RequestHeader{Header: session.HeaderBody{Config: []byte(`{"provider":"fake","model":"m"}`)}, Reason: "initial"}})
	answer := func(in int64) {
		n, _ := w.s.State().Turn()
		w.put(session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: n + 1}}, session.Draft{Type: session.TypeStepStart, Data: session.StepRef{Turn: n + 1, Step: 1}},
			session.Draft{Type: session.TypeAssistantMessage, Op: session.Append(), Data: session.AssistantMessage{Turn: n + 1, Step: 1, Usage: &message.Usage{InputTokens: in, OutputTokens: 5},
				Message: message.Message{ID: "big", Role: message.RoleAssistant, Content: []message.Block{message.TextBlock("ok")}, Source: message.Source{Kind: message.SourceModel, Provider: "fake", Model: "m"}}}},
			session.Draft{Type: session.TypeStepEnd, Data: session.StepRef{Turn: n + 1, Step: 1}}, session.Draft{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: n + 1, Reason: session.Reason{Kind: session.ReasonCompleted}}})
	}
	answer(700)
	if w.pressure(false) {
		t.Error("compacted below")
	}
	answer(900)
	if !w.pressure(false) {
		t.Error("not compacted above")
	}
	if w.pressure(false) {
		t.Error("compacted by a figure from before")
	}
}

// A summary that does not help is tried, said, and not tried again.
func TestNoGain(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.model.play = says(strings.Repeat("blah ", 2000))
	w.fill(11)
	before := w.view()
	for range 5 {
		if w.pressure(false) {
			t.Error("the surface is said to have changed")
		}
	}
	if w.model.count() != 1 || w.said("no gain") != 1 || w.types() != "start end:no-gain" || cmp.Diff(before, w.view()) != "" {
		t.Errorf("%d requests, %v, %s", w.model.count(), w.notes, w.types())
	}
	w.fill(1)
	if w.pressure(false) || w.model.count() != 1 {
		t.Error("tried again before the view had grown")
	}
	w.fill(2)
	if w.pressure(false); w.model.count() != 2 {
		t.Error("not tried when the view had grown")
	}
	// One that did not help after another is tried ever more rarely.
	w.fill(4)
	if w.pressure(false); w.model.count() != 2 {
		t.Error("tried a third time after so little")
	}
	w.fill(4)
	if w.pressure(false); w.model.count() != 3 {
		t.Error("never tried again")
	}
	// A new life is held to the same.
	next := worldOf(t, header("s-1111"), session.Seed{Prefix: events(t, w.s.Events())}, compact.Settings{})
	if next.pressure(false); next.model.count() != 0 {
		t.Error("a new life tries at once")
	}
}

// At most two in a row without a completed answer between them, also when a service refuses each request.
func TestTwoInARow(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.fill(30)
	w.model.play = func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
		yield(llm.Chunk{}, llm.Errorf(llm.CodeServer, "down"))
	}
	for range 6 {
		w.pressure(true)
	}
	if w.model.count() != 2 || w.types() != "start end:failed start end:failed" {
		t.Errorf("%d requests: %s", w.model.count(), w.types())
	}
	w.fill(1)
	w.model.play = says("fine")
	if !w.pressure(true) || w.model.count() != 3 {
		t.Error("an answer does not count")
	}
}

// A service that refuses a request as too long is believed, also when the window is not known.
func TestOverflow(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.job.Window = 0
	w.fill(10)
	if !w.pressure(true) || w.types() != "start summary replacement end:done" {
		t.Errorf("%s", w.types())
	}
	ev, _ := w.s.At(w.s.State().LastClosed(compact.Bracket, 1)[0].Open)
	if d, _ := session.DecodeData[compact.Start](ev); d.Cause != compact.CauseOverflow {
		t.Errorf("%s", ev.Data)
	}
}

// Where the fixed part alone is above the threshold no compaction begins, and that is said once, with its size.
func TestFixedPart(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.put(session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: 1}}, session.Draft{Type: session.TypeStepStart, Data: session.StepRef{Turn: 1, Step: 1}},
		session.Draft{Type: session.TypeUserMessage, Op: session.Append(), Data: message.Message{ID: "p", Role: message.RoleUser, Content: []message.Block{message.TextBlock(strings.Repeat("rule", 700))}, Source: message.Source{Kind: message.SourcePlugin, Plugin: "agents-md"}}},
		session.Draft{Type: session.TypeStepEnd, Data: session.StepRef{Turn: 1, Step: 1}}, session.Draft{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: 1, Reason: session.Reason{Kind: session.ReasonCompleted}}})
	w.job.Head.System = strings.Repeat("word", 250)
	w.fill(3)
	for range 3 {
		if w.pressure(false) {
			t.Error("compacted")
		}
	}
	if w.model.count() != 0 || len(w.notes) != 1 || w.said("954 tokens of a context window of 1000") != 1 {
		t.Errorf("%d requests, %v", w.model.count(), w.notes)
	}
	w.job.Window = 100_000
	if w.pressure(false) || len(w.notes) != 1 {
		t.Error("a larger window does not help")
	}
}

// Off means off, but for who asks.
func TestOff(t *testing.T) {
	w := worldOf(t, header("s-1111"), session.Seed{}, compact.Settings{Off: true})
	w.fill(20)
	if w.pressure(false) || w.pressure(true) || w.compact().Outcome != compact.Done {
		t.Error(w.types())
	}
}

// takes plays a service that takes no more than most tokens.
func takes(most int64, text string) func(context.Context, llm.Request, func(llm.Chunk, error) bool) {
	return func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool) {
		if n := meter.Request(req); n > most {
			yield(llm.Chunk{}, llm.Errorf(llm.CodeContextWindow, "%d tokens are too many", n))
			return
		}
		says(text)(ctx, req, yield)
	}
}

// A window that is not known, or not what is said of it, does not wedge a session: what a service refused as too long
// is not sent again as long.
func TestRefusedAsTooLong(t *testing.T) {
	for name, window := range map[string]int{"unknown": 0, "said to be larger": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, session.Seed{})
			w.job.Window = window
			w.fill(40)
			whole := meter.Messages(w.view())
			w.model.play = takes(whole/5, "short")
			// By itself it is tried twice, and the second time with half.
			for range 4 {
				if _, err := w.c.Pressure(context.Background(), w.job, true); err != nil {
					t.Fatal(err)
				}
			}
			if w.types() != "start end:failed start end:failed" {
				t.Fatal(w.types())
			}
			first, second := meter.Messages(w.model.asked[0].Messages), meter.Messages(w.model.asked[1].Messages)
			if second > first*2/3 {
				t.Errorf("%d tokens were refused and %d sent next", first, second)
			}
			// Another model is not held to it.
			w.job.Head.Model = "larger"
			l := w.model.play
			w.model.play = says(strings.Repeat("no shorter ", 10000))
			w.compact()
			if n := meter.Messages(w.model.asked[2].Messages); n < first {
				t.Errorf("%d tokens for another model, %d before", n, first)
			}
			w.job.Head.Model, w.model.play = "m", l
			// A person's goes on until it fits.
			if rep := w.compact(); rep.Outcome != compact.Done || rep.Err != nil || meter.Messages(w.view()) > whole/5 {
				t.Fatalf("%+v: %d tokens of %d are left: %s", rep, meter.Messages(w.view()), whole, w.types())
			}
			if n := strings.Count(w.types(), "end:failed"); n > 4 {
				t.Errorf("%d requests were refused: %s", n, w.types())
			}
		})
	}
}

// A session that is several times too long for its model can be sent again after one asking; one summary alone has no
// room for all that is too much.
func TestManualFarAboveTheWindow(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.fill(60)
	whole := meter.Messages(w.view())
	w.job.Window = int(whole/5 + meter.Fixed(w.job.Head))
	w.model.play = takes(int64(w.job.Window), "short")
	rep := w.compact()
	if left := meter.Messages(w.view()); rep.Outcome != compact.Done || rep.Err != nil || left > int64(w.job.Window)*8/10 || left != rep.After-meter.Fixed(w.job.Head) {
		t.Errorf("%+v: %d tokens of %d are left, the window has %d: %s", rep, left, whole, w.job.Window, w.types())
	}
	if rep.Before < whole || w.model.count() < 3 {
		t.Errorf("%+v after %d summaries", rep, w.model.count())
	}
	// What can be made no smaller is tried once, and what was reached stays.
	w = newWorld(t, session.Seed{})
	w.fill(60)
	w.job.Window = int(whole/5 + meter.Fixed(w.job.Head))
	first := true
	w.model.play = func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool) {
		text := strings.Repeat("no shorter ", 1<<16)
		if first {
			first, text = false, "short"
		}
		says(text)(ctx, req, yield)
	}
	if rep := w.compact(); rep.Outcome != compact.Done || rep.Err != nil || w.types() != "start summary replacement end:done start end:no-gain" || w.said("still too long") != 1 {
		t.Errorf("%+v: %s", rep, w.types())
	}
}

// A service that refuses whatever it is asked is asked a few times only.
func TestRefusedAlways(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.job.Window = 0
	w.fill(40)
	before := w.view()
	w.model.play = takes(0, "")
	if rep := w.compact(); rep.Outcome != compact.Failed || rep.Err == nil || w.model.count() > 9 || cmp.Diff(before, w.view()) != "" {
		t.Errorf("%+v after %d requests", rep, w.model.count())
	}
}

// What a person asks to be made smaller is, also where all of it would fit the tail that stays otherwise.
func TestManualFarBelowTheWindow(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.job.Window = 1 << 20
	w.fill(20)
	before := meter.Messages(w.view())
	if rep := w.compact(); rep.Outcome != compact.Done || meter.Messages(w.view()) > before/2 {
		t.Errorf("%+v: %d tokens of %d are left", rep, meter.Messages(w.view()), before)
	}
}
