package session

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/message"
)

func surfaceSeqs(st State) []Seq {
	var out []Seq
	for _, n := range st.Surface() {
		out = append(out, n.Seq)
	}
	return out
}

func note(text string, op SurfaceOp, cites ...Seq) Draft {
	d := Draft{Type: TypeUserMessage, Data: message.User("", text), Op: op}
	if len(cites) > 0 {
		d.Sources = Cite(cites...)
	}
	return d
}

// Each rule of the surface refuses what breaks it, and a refused event changes nothing.
func TestSurfaceRules(t *testing.T) {
	hide := func(op SurfaceOp, cites ...Seq) Draft {
		return Draft{Type: TypeHide, Data: Hide{}, Op: op, Sources: Cite(cites...)}
	}
	restore := func(q Seq) Draft { return Draft{Type: TypeRestore, Data: struct{}{}, Op: Restore(q)} }
	s := fresh(t, Seed{})
	s.env.Validators = nil
	put(t, s, note("0", Append()), note("1", Append()), note("2", Append()), note("3", Append()))
	put(t, s, note("4", Replace(1, 2), 1, 2))
	if got := surfaceSeqs(s.State()); !slices.Equal(got, []Seq{0, 4, 3}) {
		t.Fatalf("surface %v", got)
	}
	for _, tc := range []struct {
		name string
		d    Draft
		why  string
	}{
		{"a surface type without an operation", Draft{Type: TypeUserMessage, Data: message.User("", "x")}, "needs a surfaceOp"},
		{"a log type with an operation", Draft{Type: TypeTitle, Data: Title{}, Op: Append()}, "a log type carries neither"},
		{"a log type with citations", Draft{Type: TypeTitle, Data: Title{}, Sources: Cite(0)}, "a log type carries neither"},
		{"an empty citation on a user message", Draft{Type: TypeUserMessage, Data: message.User("", "x"), Op: Append(), Sources: Sources{}}, "only on assistant/message"},
		{"a control type appended", Draft{Type: TypeHide, Data: Hide{}, Op: Append()}, "cannot be appended"},
		{"start not on the surface", note("x", Replace(1, 3), 1, 2, 3), "start 1 is not on the surface"},
		{"end not on the surface", note("x", Replace(0, 9), 0), "end 9 is not on the surface"},
		{"start behind end by position", note("x", Replace(3, 4), 3, 4), "start 3 stands behind end 4"},
		{"a hidden event is not cited", note("x", Replace(4, 3), 3), "hidden event 4 is not cited"},
		{"a citation twice", note("x", Replace(4, 3), 3, 4, 3), "cites 3 twice"},
		{"a citation of itself", note("x", Replace(4, 3), 3, 4, 5), "below the event's own seq"},
		{"restore by another type", Draft{Type: TypeHide, Data: Hide{}, Op: Restore(4)}, "only surface/restore"},
		{"replace by a restore", Draft{Type: TypeRestore, Data: struct{}{}, Op: Replace(0, 0), Sources: Cite(0)}, "carries the operation restore"},
		{"restore of an appended event", restore(0), "not a replacement or hide"},
		{"restore of what is not there", restore(1), "not a replacement or hide"},
		{"a result that replaces something else", Draft{Type: TypeToolResult, Op: Replace(0, 0), Sources: Cite(0),
			Data: ToolResult{Turn: 1, Step: 1, Message: message.Result("r", "c", false)}}, "exactly one other tool/result"},
		{"an undeclared type", Draft{Type: "no/such", Data: struct{}{}}, "no package declared"},
		{"an undeclared type on the surface", Draft{Type: "no/such", Data: struct{}{}, Ignorable: true, Op: Append()}, "a log type carries neither"},
		{"a lost record by anybody", Draft{Type: TypeLost, Data: Lost{}, Op: Append()}, "only a session's constructor"},
		{"a wrong shape", Draft{Type: TypeTurnStart, Data: TurnStart{0}}, "turn must be"},
	} {
		before, n := s.State(), s.Len()
		_, err := s.Append(tc.d)
		var rej *RejectedError
		if !errors.As(err, &rej) || !strings.Contains(err.Error(), tc.why) || rej.Seq != n || rej.Type != tc.d.Type {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.why)
		}
		if s.Len() != n || !slices.Equal(surfaceSeqs(s.State()), surfaceSeqs(before)) || s.State().Generation() != before.Generation() {
			t.Errorf("%s: the refused event changed something", tc.name)
		}
	}
	// By position: 4 stands before 3.
	put(t, s, note("5", Replace(4, 3), 3, 4))
	put(t, s, hide(Replace(0, 5), 0, 5))
	if got := surfaceSeqs(s.State()); !slices.Equal(got, []Seq{6}) || s.State().Surface()[0].Hidden != 2 {
		t.Fatalf("surface %v", got)
	}
	if m, err := s.Messages(); err != nil || len(m) != 0 {
		t.Errorf("a hide made messages: %v %v", m, err)
	}
	put(t, s, restore(6), restore(5), restore(4))
	if got := surfaceSeqs(s.State()); !slices.Equal(got, []Seq{0, 1, 2, 3}) {
		t.Errorf("after restoring all: %v", got)
	}
}

// Over a log with lost records a replace whose range is not found hides what it cites.
func TestSurfaceBends(t *testing.T) {
	b := &builder{t: t}
	for range 4 {
		b.user("x")
	}
	b.add(TypeLost, Lost{}, Append()) // 4
	b.user("y")                       // 5
	load := func(d Draft) State {
		t.Helper()
		ev, err := d.Event(Seq(len(b.evs)), 1)
		if err != nil {
			t.Fatal(err)
		}
		c := &builder{t: t, evs: append(slices.Clip(b.evs), ev)}
		return c.state(Header{ID: "test"})
	}
	for _, tc := range []struct {
		name     string
		d        Draft
		want     []Seq
		problems int
	}{
		{"range not found: at the first cited", note("s", Replace(1, 99), 1, 3), []Seq{0, 6, 2, 4, 5}, 1},
		{"nothing cited is there: at the tail", note("s", Replace(98, 99), 77), []Seq{0, 1, 2, 3, 4, 5, 6}, 2},
		{"a lost node needs no citation", note("s", Replace(3, 5), 3, 5), []Seq{0, 1, 2, 6}, 0},
		{"a surface type without operation is appended", note("s", SurfaceOp{}), []Seq{0, 1, 2, 3, 4, 5, 6}, 1},
		{"a restore of nothing is ignored", Draft{Type: TypeRestore, Data: struct{}{}, Op: Restore(2)}, []Seq{0, 1, 2, 3, 4, 5}, 1},
		{"a hide without operation is ignored", Draft{Type: TypeHide, Data: struct{}{}}, []Seq{0, 1, 2, 3, 4, 5}, 1},
	} {
		st := load(tc.d)
		if got := surfaceSeqs(st); !slices.Equal(got, tc.want) || len(st.Problems()) != tc.problems {
			t.Errorf("%s: surface %v, want %v; problems %v", tc.name, got, tc.want, st.Problems())
		}
	}
	s := fresh(t, Seed{Prefix: b.evs})
	s.env.Validators = nil
	put(t, s, note("s", Replace(3, 5), 3, 5)) // the strict rule knows lost nodes too
}

// A tool/result replaces one other, and only the content inside may differ.
func TestResultReplacement(t *testing.T) {
	old := ToolResult{Turn: 1, Step: 1, Meta: []byte(`{"n":1.50}`), Error: &ErrorInfo{Code: "X"},
		Message: message.Result("r", "c1", true, message.TextBlock("long"))}
	for _, tc := range []struct {
		name   string
		change func(r *ToolResult)
		ok     bool
	}{
		{"content", func(r *ToolResult) {
			r.Message.Content[0].Content = []message.Block{message.TextBlock("short"), message.TextBlock("two")}
		}, true},
		{"no content", func(r *ToolResult) { r.Message.Content[0].Content = nil }, true},
		{"nothing", func(r *ToolResult) {}, true},
		{"step", func(r *ToolResult) { r.Step = 2 }, false},
		{"id", func(r *ToolResult) { r.Message.ID = "r2" }, false},
		{"call", func(r *ToolResult) { r.Message.Content[0].ToolCallID = "c2" }, false},
		{"isError", func(r *ToolResult) { r.Message.Content[0].IsError = false }, false},
		{"error", func(r *ToolResult) { r.Error = nil }, false},
		{"meta", func(r *ToolResult) { r.Meta = []byte(`{"n":1.5}`) }, false},
		{"source", func(r *ToolResult) { r.Message.Source.CallID = "c2" }, false},
	} {
		s := fresh(t, Seed{})
		put(t, s, turnDrafts(1, "c1")...)
		q := put(t, s, Draft{Type: TypeToolResult, Op: Append(), Data: old})[0].Seq
		r := old
		r.Message = r.Message.Clone()
		tc.change(&r)
		d := Draft{Type: TypeToolResult, Op: Replace(q, q), Sources: Cite(q), Data: r}
		n := s.Len()
		_, err := s.Append(d)
		if tc.ok != (err == nil) || err != nil && (!errors.Is(err, ErrRejected) || s.Len() != n) {
			t.Errorf("%s: %v, want accepted: %t", tc.name, err, tc.ok)
		}
		if err != nil {
			continue
		}
		// A replacement is replaced in turn, also one of the same batch.
		next := d
		next.Op, next.Sources = Replace(q+1, q+1), Cite(q+1)
		third := d
		third.Op, third.Sources = Replace(q+2, q+2), Cite(q+2)
		put(t, s, next, third)
		if len(s.State().OpenCalls()) != 0 {
			t.Errorf("%s: a replacement changed what is open", tc.name)
		}
	}
}

// Undo takes the whole turn, also results whose content was replaced later, and leaves a summary; redo
// brings back what was there.
func TestUndoWithReplacements(t *testing.T) {
	s := fresh(t, Seed{})
	put(t, s, turnDrafts(1, "c1")...)
	r := ToolResult{Turn: 1, Step: 1, Message: message.Result("r", "c1", false, message.TextBlock("long"))}
	q := put(t, s, Draft{Type: TypeToolResult, Op: Append(), Data: r})[0].Seq
	put(t, s, Draft{Type: TypeStepEnd, Data: StepRef{1, 1}}, Draft{Type: TypeTurnEnd, Data: TurnEnd{1, Reason{Kind: ReasonCompleted}}})
	put(t, s, Draft{Type: TypeTurnStart, Data: TurnStart{2}}, note("second", Append()), note("third", Append()))
	third := s.Len() - 1
	put(t, s, Draft{Type: TypeTurnEnd, Data: TurnEnd{2, Reason{Kind: ReasonCompleted}}})
	r.Message = r.Message.Clone()
	r.Message.Content[0].Content = []message.Block{message.TextBlock("short")}
	put(t, s, Draft{Type: TypeToolResult, Op: Replace(q, q), Sources: Cite(q), Data: r})
	put(t, s, note("summary of the third", Replace(third, third), third))

	undo := func() int {
		t.Helper()
		var n int
		if _, err := s.AppendFunc(func(st State) (d []Draft, err error) { d, n, err = st.UndoDrafts(); return d, err }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	redo := func() int {
		t.Helper()
		var n int
		if _, err := s.AppendFunc(func(st State) (d []Draft, err error) { d, n, err = st.RedoDrafts(s.prefixForTest()); return d, err }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	texts := func() []string {
		t.Helper()
		m, err := s.Messages()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, m := range m {
			if txt := m.PlainText(); txt != "" {
				out = append(out, txt)
			}
		}
		return out
	}
	all := []string{"hi", "short", "second", "summary of the third"}
	if d := cmp.Diff(all, texts()); d != "" {
		t.Fatal(d)
	}
	for _, n := range []int{2, 1} {
		if got := undo(); got != n {
			t.Errorf("undid turn %d, want %d", got, n)
		}
	}
	if d := cmp.Diff([]string{"summary of the third"}, texts()); d != "" {
		t.Error(d)
	}
	if _, _, err := s.State().UndoDrafts(); !errors.Is(err, ErrNothing) {
		t.Errorf("a third undo: %v", err)
	}
	for _, n := range []int{1, 2} {
		if got := redo(); got != n {
			t.Errorf("redid turn %d, want %d", got, n)
		}
	}
	if d := cmp.Diff(all, texts()); d != "" {
		t.Error(d)
	}
	if _, _, err := s.State().RedoDrafts(s.Events()); !errors.Is(err, ErrNothing) {
		t.Errorf("a third redo: %v", err)
	}
	put(t, s, Draft{Type: TypeTurnStart, Data: TurnStart{3}})
	if _, _, err := s.State().UndoDrafts(); !errors.Is(err, ErrOpenTurn) {
		t.Errorf("undo in a turn: %v", err)
	}
}

// Citations cost n log n: a summary of 200 000 single events is checked at once (a quadratic check takes minutes).
func TestManyCitations(t *testing.T) {
	const n = 200_000
	seqs := make([]Seq, n)
	for i := range seqs {
		seqs[i] = Seq(2 * (n - 1 - i)) // descending: nothing merges
	}
	src := Cite(seqs...)
	if err := src.check(2 * n); err != nil {
		t.Fatal(err)
	}
	idx := src.index()
	for i := range n {
		if !idx.has(Seq(2*i)) || idx.has(Seq(2*i+1)) {
			t.Fatalf("has(%d) is wrong", i)
		}
	}
	if err := append(slices.Clip(src), Span{0, 0}).check(2 * n); err == nil {
		t.Error("a citation twice is not seen")
	}
	if idx := (Sources{{5, 9}, {1, 7}, {3, 3}}).index(); !idx.has(8) || !idx.has(1) || idx.has(0) || idx.has(10) {
		t.Error("overlapping spans")
	}
}
