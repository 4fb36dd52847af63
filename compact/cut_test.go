package compact_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/view/viewtest"
)

// unanswered is a turn that ended without an answer: what a service refuses as too long leaves this.
func (w *world) unanswered(m message.Message) {
	w.t.Helper()
	n, _ := w.s.State().Turn()
	n++
	w.put(session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: n}}, session.Draft{Type: session.TypeStepStart, Data: session.StepRef{Turn: n, Step: 1}},
		session.Draft{Type: session.TypeUserMessage, Data: m, Op: session.Append()}, session.Draft{Type: session.TypeStepEnd, Data: session.StepRef{Turn: n, Step: 1}},
		session.Draft{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: n, Reason: session.Reason{Kind: session.ReasonError}}})
}

// A message that no request has room for wedges nothing: a summary is made of what of it can be told, and the log keeps
// it. First alone, then behind a summary, then where the service takes less than is said of it.
func TestMessageLargerThanTheWindow(t *testing.T) {
	giant := func(id string) message.Message {
		return message.User(id, "BEGIN "+strings.Repeat("long words ", 1100)+"END") // three windows
	}
	w := newWorld(t, session.Seed{})
	w.model.play = takes(1000, "short")
	w.unanswered(giant("big-1"))
	log := events(t, w.s.Events())
	if w.pressure(false); w.types() != "" {
		t.Errorf("the newest message was compacted: %s", w.types())
	}
	w.unanswered(message.User("next", "go on"))
	if !w.pressure(false) || w.types() != "start summary replacement end:done" || w.said("without the middle") != 1 {
		t.Fatalf("%s %v", w.types(), w.notes)
	}
	asked := w.model.asked[0]
	if n := meter.Request(asked); n > 1000 || n < 400 {
		t.Errorf("the request has about %d tokens", n)
	}
	if text := asked.Messages[0].PlainText(); !strings.HasPrefix(text, "BEGIN ") || !strings.HasSuffix(text, "END") || !strings.Contains(text, "signs are left out here") {
		t.Errorf("told: %.100s", text)
	}
	if d := cmp.Diff(log, events(t, w.s.Events())[:len(log)]); d != "" {
		t.Error(d)
	}
	w.unanswered(giant("big-2"))
	w.turn("and now?", "well")
	if !w.pressure(false) || w.model.count() != 2 || !strings.Contains(w.model.asked[1].Messages[0].PlainText(), "short") {
		t.Errorf("behind a summary: %s %v", w.types(), w.notes)
	}
	if n := meter.Messages(w.view()); n > 200 {
		t.Errorf("%d tokens are left", n)
	}
	// What stands in the log is enough to make the request again.
	for _, ev := range events(t, w.s.Events()) {
		if ev.Type == compact.TypeStart {
			if start, err := session.DecodeData[compact.Start](ev); err != nil || start.Fit == 0 || start.Tokens != start.Fit {
				t.Errorf("%+v, %v", start, err)
			}
		}
	}

	w = newWorld(t, session.Seed{})
	w.job.Window = 0
	w.model.play = takes(600, "short")
	w.unanswered(giant("big-1"))
	w.turn("and now?", "well")
	if rep := w.compact(); rep.Outcome != compact.Done || w.model.count() > 8 {
		t.Errorf("unknown window: %+v %s", rep, w.types())
	}
}

// A unit of calls and results, too.
func TestUnitLargerThanTheWindow(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.model.play = takes(1000, "short")
	w.turn("look", "looking", strings.Repeat("r ", 2000), strings.Repeat("é", 3000), "small")
	w.turn("and now?", "well")
	w.compact()
	if strings.Contains(w.types(), "failed") {
		t.Fatal(w.types())
	}
	for _, req := range w.model.asked {
		if err := viewtest.Check(req.Messages, "fake"); err != nil {
			t.Error(err)
		}
	}
	last := w.model.asked[len(w.model.asked)-1]
	if results := last.Messages[len(last.Messages)-2].Content; !cmp.Equal(results[len(results)-1].Content, []message.Block{message.TextBlock("small")}) {
		t.Errorf("a short result was cut: %v", results)
	}
}

// Whatever a span is made of, its request fits, is legal and is the same each time it is made.
func TestFitProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(r, session.Seed{})
		text := func(name string) string {
			return strings.Repeat(rapid.SampledFrom([]string{"a ", "日本", "\u00e9", "\U0001F600"}).Draw(r, name), rapid.IntRange(0, 6000).Draw(r, name+" size"))
		}
		var content []message.Block
		for range rapid.IntRange(0, 3).Draw(r, "texts") {
			content = append(content, message.TextBlock(text("text")))
		}
		for range rapid.IntRange(0, 3).Draw(r, "images") {
			content = append(content, message.Block{Type: message.Image, URL: "https://example.test/i.png", MediaType: "image/png"})
		}
		w.unanswered(message.Message{ID: "u", Role: message.RoleUser, Content: append(content, message.TextBlock("x")), Source: message.Source{Kind: message.SourceUser}})
		w.unanswered(message.User("v", "go on"))
		most := int64(rapid.IntRange(600, 3000).Draw(r, "most"))
		w.job.Window = int(most)
		w.model.play = func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool) {
			says("s")(ctx, req, yield)
		}
		if _, err := w.c.Compact(context.Background(), w.job, ""); err != nil && err != compact.ErrNothing {
			r.Fatal(err)
		}
		for _, req := range w.model.asked {
			if n := meter.Request(req); n > most {
				r.Fatalf("%d tokens for a window of %d", n, most)
			}
			if err := viewtest.Check(req.Messages, "fake"); err != nil {
				r.Fatal(err)
			}
		}
		items, st, err := w.s.Surface()
		if err != nil {
			r.Fatal(err)
		}
		start := compact.Start{CompactionID: "c", Instruction: 1, Fit: most / 2, Range: &compact.Range{Start: items[0].Seq, End: items[0].Seq}}
		var made [2]string
		for i := range made {
			req, err := compact.Request("fake", w.job.Head, items, st, start)
			if err != nil {
				r.Fatal(err)
			}
			made[i] = fmt.Sprint(req.Messages)
		}
		if made[0] != made[1] {
			r.Fatal("two requests of the same start differ")
		}
	})
}
