package compact_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func afterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// history is a session that is talked to, compacted, forked, killed and resumed at random.
type history struct {
	*world
	r     *rapid.T
	words int
	asked map[string]string                 // what a compaction was told, by its id
	cut   map[string]bool                   // of them, those whose request had no room for all
	views map[session.Seq][]message.Message // what was shown when the log ended at a closed turn or behind a change
	lives int
}

func (h *history) open(evs session.Events, id session.ID) {
	seed := session.Seed{Prefix: evs}
	if len(evs) > 0 {
		st, err := session.Fold(header(id), registry(h.r), evs)
		if err != nil {
			h.r.Fatal(err)
		}
		seed.Repair = st.Closers()
	}
	old := h.world
	h.lives++
	h.world = worldOf(h.r, header(id), seed, compact.Settings{Timeout: time.Minute})
	h.world.ids = h.lives * 1000
	if old == nil {
		return
	}
	if d := cmp.Diff(h.viewAt(evs, id), h.view()); d != "" {
		h.r.Fatalf("the view after a restart: %s", d)
	}
}

func (h *history) viewAt(evs session.Events, id session.ID) []message.Message {
	s, err := session.New(header(id), session.Seed{Prefix: evs}, env(h.r))
	if err != nil {
		h.r.Fatal(err)
	}
	return viewOf(h.r, s)
}

func (h *history) word() string {
	h.words++
	return fmt.Sprintf("<w%d>", h.words)
}

func (h *history) talk() {
	var results []string
	for range rapid.IntRange(0, 2).Draw(h.r, "calls") {
		results = append(results, h.word()+strings.Repeat(" r", rapid.IntRange(0, 200).Draw(h.r, "size")))
	}
	h.turn(h.word()+strings.Repeat(" q", rapid.IntRange(0, 200).Draw(h.r, "size")), h.word()+strings.Repeat(" a", rapid.IntRange(0, 200).Draw(h.r, "size")), results...)
}

// openTurn begins a turn and leaves it in the middle.
func (h *history) openTurn() {
	n, _ := h.s.State().Turn()
	n++
	h.put(session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: n}}, session.Draft{Type: session.TypeStepStart, Data: session.StepRef{Turn: n, Step: 1}},
		session.Draft{Type: session.TypeUserMessage, Data: message.User(fmt.Sprintf("u-%d", h.s.Len()), h.word()), Op: session.Append()},
		session.Draft{Type: session.TypeAssistantMessage, Op: session.Append(), Data: session.AssistantMessage{Turn: n, Step: 1, Message: message.Message{ID: fmt.Sprintf("o%d", n), Role: message.RoleAssistant,
			Content: []message.Block{message.TextBlock(h.word()), message.CallBlock("open", "look", "{}")}, Source: message.Source{Kind: message.SourceModel, Provider: "fake", Model: "m"}}}})
	h.job.Turn = n
}

func (h *history) endTurn() {
	st := h.s.State()
	if _, open := st.Turn(); !open {
		return
	}
	for _, ev := range st.Closers() {
		h.put(session.Draft{Type: ev.Type, Data: ev.Data, Op: ev.Op, Sources: ev.Sources})
	}
	h.job.Turn = 0
}

func (h *history) answers() {
	switch rapid.IntRange(0, 5).Draw(h.r, "answer") {
	case 0:
		h.model.play = says("")
	case 1:
		h.model.play = says(strings.Repeat("blah ", 3000))
	case 2:
		h.model.play = func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
			yield(llm.Chunk{}, llm.Errorf(llm.CodeServer, "down"))
		}
	default:
		h.model.play = says("summary")
	}
}

func (h *history) act() {
	switch rapid.IntRange(0, 9).Draw(h.r, "act") {
	case 0, 1, 2:
		h.endTurn()
		h.talk()
	case 3:
		h.endTurn()
		h.openTurn()
	case 4, 5:
		h.answers()
		if _, err := h.c.Compact(context.Background(), h.job, ""); err != nil && err != compact.ErrNothing {
			h.r.Fatal(err)
		}
	case 6:
		h.answers()
		if _, err := h.c.Pressure(context.Background(), h.job, rapid.Bool().Draw(h.r, "overflow")); err != nil {
			h.r.Fatal(err)
		}
	case 7:
		h.endTurn()
		_, _, _ = h.c.Undo(h.s)
	case 8: // killed: what is stored is any prefix; a fork at its end is the same log under another id
		evs := events(h.r, h.s.Events())
		if len(evs) == 0 {
			return
		}
		cut := rapid.IntRange(max(1, len(evs)-12), len(evs)).Draw(h.r, "cut")
		h.note()
		h.open(evs[:cut:cut], h.s.ID())
		maps.DeleteFunc(h.views, func(at session.Seq, _ []message.Message) bool { return int(at) >= cut })
	case 9:
		evs := events(h.r, h.s.Events())
		st := h.s.State()
		if _, open := st.Turn(); open {
			return
		}
		h.note()
		h.open(evs, session.ID(fmt.Sprintf("fork-%d", h.lives)))
	}
	h.note()
}

// note keeps what the model was told.
func (h *history) note() {
	for _, req := range h.model.asked {
		last := req.Messages[len(req.Messages)-1]
		var text strings.Builder
		for _, m := range req.Messages {
			text.WriteString(m.PlainText())
		}
		h.asked[strings.TrimPrefix(last.ID, "instruction-")] = text.String()
	}
	h.model.asked = nil
}

// check holds the log against what is promised.
func (h *history) check() {
	view := h.view()
	if last := h.s.Len() - 1; last >= 0 {
		if ev, err := h.s.At(last); err == nil && (ev.Type == session.TypeTurnEnd || ev.Type == compact.TypeEnd || ev.Type == session.TypeRestore) && h.job.Turn == 0 {
			h.views[last] = view
		}
	}
	var text strings.Builder
	for _, m := range view {
		text.WriteString(m.PlainText())
	}
	for _, ev := range events(h.r, h.s.Events()) {
		if ev.Type == compact.TypeStart {
			if d, err := session.DecodeData[compact.Start](ev); err == nil && d.Fit > 0 {
				h.cut[d.CompactionID] = true
			}
		}
	}
	live := 0
	for _, b := range h.s.State().Brackets(h.s.FirstLiveSeq()) {
		if b.State == session.BracketLive {
			live++
		}
	}
	if live > 0 {
		h.r.Fatalf("%d brackets are live between two acts", live)
	}
	// Every word is on the surface, or was told to the model for exactly one of the summaries that stand for it.
	evs := events(h.r, h.s.Events())
	var walk func(seq session.Seq, above []string)
	words := 0
	walk = func(seq session.Seq, above []string) {
		ev := evs[seq]
		if ev.Op.Kind == session.OpReplace && ev.Type == session.TypeUserMessage {
			d, err := session.DecodeData[compact.Summary](evs[seq-1])
			if err != nil {
				h.r.Fatal(err)
			}
			for _, q := range d.ShadowedSeqs {
				walk(q, append(slices.Clone(above), d.CompactionID))
			}
			return
		}
		for _, w := range strings.SplitAfter(string(ev.Data), ">") {
			i := strings.Index(w, "<w")
			if i < 0 || !strings.HasSuffix(w, ">") {
				continue
			}
			w = w[i:]
			words++
			told := 0
			for i, id := range above {
				switch {
				case !h.cut[id]:
					told += strings.Count(h.asked[id], w)
				case i == len(above)-1:
					told++ // its span has it; which texts lose their middle is another test's
				}
			}
			switch shown := strings.Count(text.String(), w); {
			case len(above) == 0 && shown != 1:
				h.r.Fatalf("%s of seq %d is shown %d times", w, seq, shown)
			case len(above) > 0 && (shown != 0 || told != 1):
				h.r.Fatalf("%s of seq %d: shown %d times, in the input of %d summaries of %v", w, seq, shown, told, above)
			}
		}
	}
	for _, n := range h.s.State().Surface() {
		walk(n.Seq, nil)
	}
	inLog := 0
	for _, ev := range evs {
		if ev.Op.Kind == session.OpAppend {
			inLog += strings.Count(string(ev.Data), "<w")
		}
	}
	if words != inLog {
		h.r.Fatalf("%d words are in the log, %d are on the surface or below it", inLog, words)
	}
}

// forks forks the log wherever a view of it was kept: the fork shows the same.
func (h *history) forks() {
	if h.s.Len() == 0 {
		return
	}
	st := newStored(h.r, header("forked"), events(h.r, h.s.Events()))
	for at, want := range h.views {
		f, err := st.k.Fork(context.Background(), "forked", store.ForkOptions{At: &at})
		if err != nil {
			h.r.Fatalf("fork at %d: %v", at, err)
		}
		child, leave := st.resume(f.ID)
		if d := cmp.Diff(want, viewOf(h.r, child)); d != "" {
			h.r.Fatalf("a fork at %d: %s", at, d)
		}
		leave()
	}
}

// TestHistories is the promise of the package over random logs: compactions that go well and badly, undos, kills at any
// event, resumes and forks.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := &history{r: r, asked: map[string]string{}, cut: map[string]bool{}}
		h.views = map[session.Seq][]message.Message{}
		h.open(nil, "s-1111")
		for range rapid.IntRange(3, 16).Draw(r, "acts") {
			h.act()
			h.check()
		}
		h.forks()
	})
}
