package compact_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// A compaction adds four events, and what it replaced can be brought back; another one then is right.
func TestDone(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.fill(10)
	before := w.view()
	rep := w.compact()
	if rep.Outcome != compact.Done || rep.After >= rep.Before || w.types() != "start summary replacement end:done" {
		t.Fatalf("%+v %s", rep, w.types())
	}
	after := w.view()
	if len(after) >= len(before) || !strings.Contains(after[0].PlainText(), "short") || after[0].Source.Plugin != compact.Plugin {
		t.Errorf("%d messages of %d, first %q", len(after), len(before), after[0].PlainText())
	}
	kept := after[1:]
	if d := cmp.Diff(before[len(before)-len(kept):], kept); d != "" {
		t.Errorf("the kept part changed: %s", d)
	}
	// The request replayed the head, and one instruction.
	req := w.model.asked[0]
	n := len(req.Messages) - 1
	if req.System != "be good" || req.Purpose != llm.PurposeCompaction || cmp.Diff(before[:n], req.Messages[:n]) != "" || n+len(kept) != len(before) {
		t.Errorf("asked with %d messages of %d, %d kept", n, len(before), len(kept))
	}
	if compact.PurposeOf(req) != llm.PurposeCompaction || compact.PurposeOf(llm.Request{Messages: before}) != "" {
		t.Error("the purpose cannot be told")
	}
	// Its usage is counted.
	if total, _ := w.s.State().Usage(); total.OutputTokens != 10+7 {
		t.Errorf("usage %+v", total)
	}
	node, _, err := w.c.Undo(w.s)
	if err != nil || node != rep.End-1 {
		t.Fatal(node, err)
	}
	if d := cmp.Diff(before, w.view()); d != "" {
		t.Errorf("undo: %s", d)
	}
	if _, _, err := w.c.Undo(w.s); !errors.Is(err, compact.ErrNoCompaction) {
		t.Errorf("%v", err)
	}
	if rep := w.compact(); rep.Outcome != compact.Done || cmp.Diff(len(after), len(w.view())) != "" {
		t.Errorf("%+v", rep)
	}
	// The next begins from the effective view: what the first kept is in its input.
	w.fill(6)
	effective := w.view()
	w.model.play = says("shorter")
	w.compact()
	if req := w.model.asked[2]; cmp.Diff(effective[:len(req.Messages)-1], req.Messages[:len(req.Messages)-1]) != "" || req.Messages[0].Source.Plugin != compact.Plugin {
		t.Error("the second compaction did not begin from the effective view")
	}
	// Two undos, newest first.
	for range 2 {
		if _, _, err := w.c.Undo(w.s); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.view(); cmp.Diff(before, got[:len(before)]) != "" {
		t.Error("both undone, and the beginning is not what it was")
	}
}

// Whatever a model does instead of writing a summary, the view stays and the session can be compacted at once.
func TestBadSummaries(t *testing.T) {
	var late func()
	call := func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
		_ = yield(llm.Chunk{Type: llm.ChunkTextDelta, Text: "let me look"}, nil) &&
			yield(llm.Chunk{Type: llm.ChunkToolCallDelta, Index: 1, ID: "c", Name: "look", Arguments: "{}"}, nil) &&
			yield(llm.Chunk{Type: llm.ChunkFinish, Finish: llm.FinishToolCalls}, nil)
	}
	for name, c := range map[string]struct {
		play    func(context.Context, llm.Request, func(llm.Chunk, error) bool)
		outcome compact.Outcome
		code    string
	}{
		"fails": {func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
			yield(llm.Chunk{}, &llm.Error{Code: llm.CodeRateLimit, Status: 429, Message: "later"})
		}, compact.Failed, "RATE_LIMIT"},
		"hangs": {func(ctx context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
			late()
			<-ctx.Done()
			yield(llm.Chunk{}, ctx.Err())
		}, compact.Failed, "TIMEOUT"},
		"says nothing": {says(""), compact.Failed, "EMPTY_RESPONSE"},
		"blank":        {says(" \n "), compact.Failed, "EMPTY_RESPONSE"},
		"says more":    {says(strings.Repeat("blah ", 3000)), compact.NoGain, ""},
		"does not end": {func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
			for yield(llm.Chunk{Type: llm.ChunkTextDelta, Text: strings.Repeat("blah ", 100)}, nil) {
			}
		}, compact.NoGain, ""},
		"calls tools": {call, compact.Failed, "MALFORMED_RESPONSE"},
		"is cut":      {ends("the beginning of", llm.FinishLength), compact.Failed, "MALFORMED_RESPONSE"},
		"is filtered": {ends("the beginning of", llm.FinishContentFilter), compact.Failed, "MALFORMED_RESPONSE"},
		"stops halfway": {func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
			yield(llm.Chunk{Type: llm.ChunkTextDelta, Text: "x"}, nil)
		}, compact.Failed, "STREAM_CLOSED"},
		"crashes": {func(context.Context, llm.Request, func(llm.Chunk, error) bool) { panic("oh") }, compact.Failed, "INTERNAL"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, session.Seed{})
			w.fill(10)
			before := w.view()
			late = func() { w.late() }
			w.model.play = c.play
			rep := w.compact()
			if rep.Outcome != c.outcome || w.types() != "start end:"+string(c.outcome) {
				t.Fatalf("%+v: %s", rep, w.types())
			}
			ev, _ := w.s.At(rep.End)
			if d, _ := session.DecodeData[compact.End](ev); c.code != "" && (d.Error == nil || d.Error.Code != c.code) || c.code == "" && d.Error != nil {
				t.Errorf("%s", ev.Data)
			}
			if d := cmp.Diff(before, w.view()); d != "" {
				t.Errorf("the view changed: %s", d)
			}
			w.model.play = says("fine")
			if rep := w.compact(); rep.Outcome != compact.Done {
				t.Errorf("%+v", rep)
			}
		})
	}
}

// There is one compaction at a time, and who comes second is told since when it runs.
func TestOneAtATime(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.fill(10)
	in, out := make(chan struct{}), make(chan struct{})
	w.model.play = func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool) {
		close(in)
		<-out
		says("fine")(ctx, req, yield)
	}
	done := make(chan error)
	go func() { _, err := w.c.Compact(context.Background(), w.job, ""); done <- err }()
	<-in
	_, err := w.c.Compact(context.Background(), w.job, "")
	var busy *compact.BusyError
	if !errors.Is(err, compact.ErrCompacting) || !errors.As(err, &busy) || busy.Since == 0 || busy.Seq == session.None {
		t.Errorf("%v", err)
	}
	if _, _, err := w.c.Undo(w.s); !errors.Is(err, compact.ErrCompacting) {
		t.Errorf("undo: %v", err)
	}
	if changed, err := w.c.Pressure(context.Background(), w.job, true); changed || err != nil {
		t.Errorf("pressure: %v %v", changed, err)
	}
	if b := w.s.State().Brackets(w.s.FirstLiveSeq()); b[len(b)-1].State != session.BracketLive {
		t.Errorf("%+v", b)
	}
	close(out)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if w.types() != "start summary replacement end:done" {
		t.Error(w.types())
	}
}

// A cancelled compaction ends; so does one whose start cannot be saved, and no request is sent then.
func TestCancelledAndNotSaved(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.fill(10)
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := errors.New("stopped")
	w.model.play = func(ctx context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
		cancel(stopped)
		<-ctx.Done()
		yield(llm.Chunk{}, ctx.Err())
	}
	if rep, err := w.c.Compact(ctx, w.job, ""); err != stopped || rep.Outcome != compact.Failed || w.types() != "start end:failed" {
		t.Errorf("%+v %v %s", rep, err, w.types())
	}
	w.fail = errors.New("disk full")
	asked := w.model.count()
	if rep, err := w.c.Compact(context.Background(), w.job, ""); err != w.fail || rep.Outcome != compact.Failed || w.model.count() != asked {
		t.Errorf("%+v %v", rep, err)
	}
	w.fail = nil
	w.model.play = says("fine")
	w.compact()
	if w.types() != "start end:failed start end:failed start summary replacement end:done" {
		t.Error(w.types())
	}
}

// A surface that changed while the model wrote is not replaced.
func TestSpanChanged(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.fill(10)
	w.model.play = func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool) {
		st := w.s.State()
		drafts, _, err := st.UndoDrafts()
		if err != nil {
			t.Error(err)
		}
		w.put(drafts...)
		says("fine")(ctx, req, yield)
	}
	if rep := w.compact(); rep.Outcome != compact.Failed || w.types() != "start end:failed" {
		t.Errorf("%+v %s", rep, w.types())
	}
}

// Input that is accepted meanwhile lies between start and end and changes nothing.
func TestInputMeanwhile(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.fill(10)
	w.model.play = func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool) {
		w.put(session.Draft{Type: session.TypeInboxSpliced, Data: session.InboxSpliced{Target: session.NextTurn, Inserted: []message.Message{message.User("q", "and then?")}}})
		says("fine")(ctx, req, yield)
	}
	if rep := w.compact(); rep.Outcome != compact.Done || len(w.s.State().Queue(session.NextTurn)) != 1 {
		t.Errorf("%+v", rep)
	}
}

// The end of a run could not be written: the next start writes it first.
func TestOrphanOfThisLife(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.fill(10)
	w.put(session.Draft{Type: compact.TypeStart, Data: compact.Start{CompactionID: "lost"}})
	w.compact()
	if w.types() != "start end:failed start summary replacement end:done" {
		t.Error(w.types())
	}
	for _, b := range w.s.State().Brackets(w.s.FirstLiveSeq()) {
		if b.State != session.BracketClosed {
			t.Errorf("%+v", b)
		}
	}
}

// What cannot be compacted says so, and nothing is written.
func TestNothing(t *testing.T) {
	for name, fill := range map[string]func(*world){
		"empty": func(*world) {},
		"one prompt": func(w *world) {
			w.put(session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: 1}}, session.Draft{Type: session.TypeStepStart, Data: session.StepRef{Turn: 1, Step: 1}},
				session.Draft{Type: session.TypeUserMessage, Data: message.User("u", "hi"), Op: session.Append()})
		},
		"a summary and one unit": func(w *world) {
			w.fill(10)
			w.compact()
			for len(w.view()) > 2 {
				if _, err := w.c.Compact(context.Background(), w.job, ""); err != nil {
					break
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, session.Seed{})
			fill(w)
			n := w.s.Len()
			if _, err := w.c.Compact(context.Background(), w.job, ""); !errors.Is(err, compact.ErrNothing) {
				t.Errorf("%v", err)
			}
			if w.s.Len() != n {
				t.Error("something was written")
			}
		})
	}
}

// Beside a system prompt and tools that are many times as long, a conversation is still compacted when a person asks.
func TestSmallBesideItsRequest(t *testing.T) {
	for _, window := range []int{0, 200_000} {
		w := newWorld(t, session.Seed{})
		w.job.Head.System, w.job.Window = strings.Repeat("Be careful. ", 4000), window
		w.fill(6)
		if rep := w.compact(); rep.Outcome != compact.Done || rep.After >= rep.Before {
			t.Errorf("window %d: %+v", window, rep)
		}
	}
}

// The planner cuts where calls keep their results, keeps the newest unit, and never takes what waits.
func TestSelect(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.put(session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: 1}}, session.Draft{Type: session.TypeStepStart, Data: session.StepRef{Turn: 1, Step: 1}},
		session.Draft{Type: session.TypeUserMessage, Op: session.Append(), Data: message.Message{ID: "p", Role: message.RoleUser, Content: []message.Block{message.TextBlock("rules")}, Source: message.Source{Kind: message.SourcePlugin, Plugin: "agents-md"}}},
		session.Draft{Type: session.TypeStepEnd, Data: session.StepRef{Turn: 1, Step: 1}})
	w.step(1, 2, "go", "looking", "a", "b", "c")
	w.step(1, 3, "", "again", strings.Repeat("x", 4000))
	items, st, _ := w.s.Surface()
	for _, c := range []struct {
		tail     int64
		from, to int
	}{{1, 1, 6}, {1500, 1, 6}, {1010, 1, 6}, {1100, 1, 2}, {1 << 40, 1, 2}} {
		p := compact.Select(items, st, []string{"agents-md"}, c.tail, 0)
		if c.tail < 1100 && (p.From != c.from || p.To != c.to) || p.From != 1 {
			t.Errorf("tail %d: %+v", c.tail, p)
		}
	}
	// What the harness says behind the newest unit is not taken for it.
	w.put(session.Draft{Type: session.TypeUserMessage, Op: session.Append(), Data: message.Message{ID: "n", Role: message.RoleUser, Content: []message.Block{message.TextBlock("two children run")}, Source: message.Source{Kind: message.SourcePlugin, Plugin: "subagent"}}})
	items, st, _ = w.s.Surface()
	if p := compact.Select(items, st, []string{"agents-md"}, 1, 0); p.To != 6 {
		t.Errorf("the newest unit would go: %+v", p)
	}
	// A call that is pending stays, and everything behind it.
	w.put(session.Draft{Type: session.TypeStepStart, Data: session.StepRef{Turn: 1, Step: 4}}, session.Draft{Type: session.TypeAssistantMessage, Op: session.Append(), Data: session.AssistantMessage{
		Turn: 1, Step: 4, Message: message.Message{ID: "a4", Role: message.RoleAssistant, Content: []message.Block{message.CallBlock("q", "rm", "{}")}}}},
		session.Draft{Type: session.TypeApprovalAsked, Data: session.ApprovalAsked{AskID: "k", CallID: "q", Turn: 1, Step: 4, Name: "rm"}})
	items, st, _ = w.s.Surface()
	if p := compact.Select(items, st, nil, 0, 0); p.To != len(items)-1 {
		t.Errorf("%+v of %d", p, len(items))
	}
	w.put(session.Draft{Type: session.TypeUserMessage, Op: session.Append(), Data: message.User("s", "stated again")})
	items, st, _ = w.s.Surface()
	if p := compact.Select(items, st, nil, 0, 0); p.To != len(items)-2 {
		t.Errorf("the call that waits would go: %+v of %d", p, len(items))
	}
	if p := compact.Select(items, st, nil, 0, 20); p.To != 2 {
		t.Errorf("bounded: %+v", p)
	}
	if p := compact.Select(items, st, nil, 0, 1); !p.Empty() {
		t.Errorf("bounded too tightly: %+v", p)
	}
}

// The pruner cuts old results in the middle, once, and changes nothing else.
func TestPrune(t *testing.T) {
	set := compact.Settings{PruneOver: 400, PruneHead: 100, PruneTail: 50}
	w := worldOf(t, header("s-1111"), session.Seed{}, set)
	big := strings.Repeat("日本", 100) + strings.Repeat("x", 4000) + "END"
	w.turn("go", "ok", big, "small")
	w.turn("go", "ok", big)
	before := w.view()
	w.job.Window = 1900
	changed, err := w.c.Pressure(context.Background(), w.job, false)
	if err != nil || !changed || w.types() != "prune" || w.model.count() != 0 {
		t.Fatalf("%v %v %s %v", changed, err, w.types(), w.notes)
	}
	after := w.view()
	var diff []int
	for i := range before {
		if !cmp.Equal(before[i], after[i]) {
			diff = append(diff, i)
		}
	}
	text := after[2].PlainText()
	if !slices.Equal(diff, []int{2}) || !strings.HasPrefix(text, strings.Repeat("日本", 50)) || !strings.HasSuffix(text, "xEND") || len([]rune(text)) > 400 {
		t.Errorf("%v %q", diff, text)
	}
	items, _, _ := w.s.Surface()
	if d, err := compact.PruneDrafts(items, 3, set, nil, "", w.s.At); err != nil || len(d) != 0 {
		t.Errorf("pruned again: %v %v", d, err)
	}
	again, _, _, ok := compact.Shorten(after[2].Content[0].Content, set)
	if ok || !cmp.Equal(again, after[2].Content[0].Content) {
		t.Error("not idempotent")
	}
}

func TestSettings(t *testing.T) {
	if err := compact.Defaults.Check(); err != nil {
		t.Error(err)
	}
	for _, s := range []compact.Settings{{Threshold: 2}, {Tail: 0.9}, {PruneOver: 100}, {SummaryTokens: 1}, {Growth: 3},
		{Threshold: math.NaN()}, {Tail: math.NaN()}, {Growth: math.NaN()}, {Threshold: math.Inf(1)}, {PruneHead: math.MaxInt}, {PruneTail: math.MaxInt}} {
		if s.Check() == nil {
			t.Errorf("%+v", s)
		}
	}
}

// A compaction after one that was undone is made of the originals, and can be undone as well.
func TestAfterUndo(t *testing.T) {
	w := newWorld(t, session.Seed{})
	w.fill(10)
	w.model.play = says("the first summary")
	w.compact()
	w.turn("behind it", "fine")
	if _, _, err := w.c.Undo(w.s); err != nil {
		t.Fatal(err)
	}
	whole := w.view()
	w.model.play = says("the second summary")
	w.compact()
	told := ""
	for _, m := range w.model.asked[1].Messages {
		told += m.PlainText()
	}
	shown := ""
	for _, m := range w.view() {
		shown += m.PlainText()
	}
	for i := range 10 {
		if n := strings.Count(told+shown, fmt.Sprintf("question %d ", i)); n != 1 {
			t.Errorf("question %d is told or shown %d times", i, n)
		}
	}
	if strings.Contains(told+shown, "the first summary") || !strings.Contains(shown, "the second summary") || !strings.Contains(shown, "behind it") {
		t.Errorf("told %.300s, shown %s", told, shown)
	}
	if _, _, err := w.c.Undo(w.s); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(whole, w.view()); d != "" {
		t.Error(d)
	}
	if _, _, err := w.c.Undo(w.s); !errors.Is(err, compact.ErrNoCompaction) {
		t.Errorf("a third undo: %v", err)
	}
}
