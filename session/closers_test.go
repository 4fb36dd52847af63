package session

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/strandline-dev/strandline/message"
)

// builder writes stored events, valid or not.
type builder struct {
	t   *testing.T
	evs Events
}

func (b *builder) add(typ string, data any, op ...SurfaceOp) Seq {
	b.t.Helper()
	d := Draft{Type: typ, Data: data}
	if len(op) > 0 {
		d.Op = op[0]
		if op[0].Kind == OpReplace {
			for q := op[0].Start; q <= op[0].End; q++ {
				d.Sources = append(d.Sources, Span{q, q})
			}
		}
	}
	ev, err := d.Event(Seq(len(b.evs)), int64(1000+len(b.evs)))
	if err != nil {
		b.t.Fatal(err)
	}
	b.evs = append(b.evs, ev)
	return ev.Seq
}

func (b *builder) turn(n int)    { b.add(TypeTurnStart, TurnStart{n}) }
func (b *builder) step(t, n int) { b.add(TypeStepStart, StepRef{t, n}) }
func (b *builder) endStep(t, n int) {
	b.add(TypeStepEnd, StepRef{t, n})
}
func (b *builder) endTurn(n int) { b.add(TypeTurnEnd, TurnEnd{n, Reason{Kind: ReasonCompleted}}) }
func (b *builder) user(text string) Seq {
	return b.add(TypeUserMessage, message.User(fmt.Sprintf("u%d", len(b.evs)), text), Append())
}

func (b *builder) asks(t, n int, ids ...string) Seq {
	m := message.Message{ID: fmt.Sprintf("a%d", len(b.evs)), Role: message.RoleAssistant}
	for _, id := range ids {
		m.Content = append(m.Content, message.CallBlock(id, "bash", "{}"))
	}
	return b.add(TypeAssistantMessage, AssistantMessage{Turn: t, Step: n, Message: m}, Append())
}
func (b *builder) started(t, n int, id string) Seq {
	return b.add(TypeToolCall, ToolCall{t, n, id, "bash", "{}"})
}
func (b *builder) result(t, n int, id string) Seq {
	return b.add(TypeToolResult, ToolResult{Turn: t, Step: n, Message: message.Result(fmt.Sprintf("r%d", len(b.evs)), id, false, message.TextBlock("ok"))}, Append())
}
func (b *builder) asked(t, n int, ask, id string) Seq {
	return b.add(TypeApprovalAsked, ApprovalAsked{AskID: ask, Turn: t, Step: n, CallID: id, Name: "bash"})
}

func (b *builder) state(h Header) State {
	b.t.Helper()
	st, err := Fold(h, Core(), b.evs)
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

// short renders closers: results as "code call@assistant/index", the rest by type.
func short(t *testing.T, evs []Event) []string {
	t.Helper()
	var out []string
	for _, ev := range evs {
		s := ev.Type
		if ev.Type == TypeToolResult {
			r, err := DecodeData[ToolResult](ev)
			if err != nil {
				t.Fatal(err)
			}
			a, i, ok := MissingFor(r.Message.ID, r.Error.Code)
			if !ok {
				t.Errorf("a closer does not name its call: %s", ev.Data)
			}
			s = fmt.Sprintf("%s %s@%d/%d", r.Error.Code, ResultCallID(ev), a, i)
			for q := range ev.Sources.All() {
				s += fmt.Sprintf(" cites %d", q)
			}
		}
		out = append(out, s)
	}
	return out
}

// The table of spec 2.6, row by row, and the cases between its rows.
func TestClosersTable(t *testing.T) {
	const end, endStep = TypeTurnEnd, TypeStepEnd
	for _, tc := range []struct {
		name string
		log  func(b *builder)
		want []string
	}{
		{"nothing", func(b *builder) {}, nil},
		{"a balanced tail", func(b *builder) { b.turn(1); b.step(1, 1); b.endStep(1, 1); b.endTurn(1) }, nil},
		{"only between-turn events", func(b *builder) { b.user("x"); b.add(TypeTitle, Title{"t", "user"}) }, nil},
		{"turn/start", func(b *builder) { b.turn(1) }, []string{end}},
		{"an open step", func(b *builder) { b.turn(1); b.step(1, 1) }, []string{endStep, end}},
		{"a closed step", func(b *builder) { b.turn(1); b.step(1, 1); b.endStep(1, 1) }, []string{end}},
		{"asked, no tool/call", func(b *builder) { b.turn(1); b.step(1, 1); b.asks(1, 1, "c") },
			[]string{"TOOL_NOT_STARTED c@2/0", endStep, end}},
		{"tool/call, no result", func(b *builder) { b.turn(1); b.step(1, 1); b.asks(1, 1, "c"); b.started(1, 1, "c") },
			[]string{"TOOL_OUTCOME_UNKNOWN c@2/0 cites 3", endStep, end}},
		{"some of several answered, in request order", func(b *builder) {
			b.turn(1)
			b.step(1, 1)
			b.asks(1, 1, "c1", "c2", "c3", "c4")
			b.started(1, 1, "c4")
			b.started(1, 1, "c2")
			b.started(1, 1, "c1")
			b.result(1, 1, "c2")
		}, []string{"TOOL_OUTCOME_UNKNOWN c1@2/0 cites 5", "TOOL_NOT_STARTED c3@2/2", "TOOL_OUTCOME_UNKNOWN c4@2/3 cites 3", endStep, end}},
		{"a call that waits for approval", func(b *builder) {
			b.turn(1)
			b.step(1, 1)
			b.asks(1, 1, "c1", "c2", "c3")
			b.started(1, 1, "c1")
			b.asked(1, 1, "q", "c2")
		}, []string{"TOOL_OUTCOME_UNKNOWN c1@2/0 cites 3", "TOOL_NOT_STARTED c3@2/2"}},
		{"an answer that nobody carried out", func(b *builder) {
			b.turn(1)
			b.step(1, 1)
			b.asks(1, 1, "c1", "c2")
			b.asked(1, 1, "q", "c1")
			b.add(TypeApprovalDecided, ApprovalDecided{AskID: "q", CallID: "c1", Verdict: VerdictAllow, By: ByUser})
		}, []string{"TOOL_NOT_STARTED c2@2/1"}},
		{"a question that a cancelled turn decided", func(b *builder) {
			b.turn(1)
			b.step(1, 1)
			b.asks(1, 1, "c1")
			b.asked(1, 1, "q", "c1")
			b.add(TypeApprovalDecided, ApprovalDecided{AskID: "q", CallID: "c1", Verdict: VerdictDeny, By: ByCancel})
		}, []string{"TOOL_NOT_STARTED c1@2/0", endStep, end}},
		{"an approval decided by nobody knows whom", func(b *builder) {
			b.turn(1)
			b.step(1, 1)
			b.asks(1, 1, "c1")
			b.asked(1, 1, "q", "c1")
			b.add(TypeApprovalDecided, ApprovalDecided{AskID: "q", CallID: "c1", Verdict: VerdictAllow})
		}, []string{"TOOL_NOT_STARTED c1@2/0", endStep, end}},
		{"an approval of a call that started anyway", func(b *builder) {
			b.turn(1)
			b.step(1, 1)
			b.asks(1, 1, "c1")
			b.asked(1, 1, "q", "c1")
			b.started(1, 1, "c1")
		}, []string{"TOOL_OUTCOME_UNKNOWN c1@2/0 cites 4", endStep, end}},
		{"a call left open in a closed step", func(b *builder) { b.turn(1); b.step(1, 1); b.asks(1, 1, "c"); b.endStep(1, 1) },
			[]string{end}},
		{"a call left open in a closed turn", func(b *builder) { b.turn(1); b.step(1, 1); b.asks(1, 1, "c"); b.endTurn(1) }, nil},
		{"a call left open in a turn that the next one cut off", func(b *builder) {
			b.turn(1)
			b.step(1, 1)
			b.asks(1, 1, "c")
			b.turn(2)
		}, []string{end}},
		{"repeated ids in one step", func(b *builder) {
			b.turn(1)
			b.step(1, 1)
			b.asks(1, 1, "c", "c")
			b.asks(1, 1, "c")
			b.started(1, 1, "c")
			b.result(1, 1, "c")
		}, []string{"TOOL_NOT_STARTED c@2/1", "TOOL_NOT_STARTED c@3/0", endStep, end}},
		{"a second result settles no other call", func(b *builder) {
			b.asks(1, 1, "c")
			b.turn(2)
			b.step(2, 1)
			b.asks(2, 1, "c", "d")
			b.result(2, 1, "c")
			b.result(2, 1, "c")
		}, []string{"TOOL_NOT_STARTED d@3/1", endStep, end}},
		{"a lost record may have been a start", func(b *builder) {
			b.turn(1)
			b.step(1, 1)
			b.asks(1, 1, "c1")
			b.add(TypeLost, Lost{}, Append())
			b.asks(1, 1, "c2")
		}, []string{"TOOL_OUTCOME_UNKNOWN c1@2/0", "TOOL_NOT_STARTED c2@4/0", endStep, end}},
		{"a lost record may have been the answer to a question", func(b *builder) {
			b.turn(1)
			b.step(1, 1)
			b.asks(1, 1, "c1")
			b.asked(1, 1, "q", "c1")
			b.add(TypeLost, Lost{}, Append())
		}, []string{"TOOL_OUTCOME_UNKNOWN c1@2/0", endStep, end}},
		{"brackets of packages", func(b *builder) { b.turn(1); b.add("compact-like/start", struct{}{}) }, []string{end}},
		{"a name written with escapes", func(b *builder) {
			b.turn(1)
			b.step(1, 1)
			b.add(TypeAssistantMessage, []byte(`{"turn":1,"step":1,"m\u0065ssage":{"role":"assistant","content":[{"type":"tool\u002dcall","\u0069d":"c","name":"n"}]}}`), Append())
		}, []string{"TOOL_NOT_STARTED c@2/0", endStep, end}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &builder{t: t}
			tc.log(b)
			st := b.state(Header{ID: "test"})
			closers := st.Closers()
			if d := cmp.Diff(tc.want, short(t, closers), cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("(-want +got)\n%s", d)
			}
			for i, c := range closers {
				if c.Seq != Seq(len(b.evs)+i) || c.Time != b.evs[len(b.evs)-1].Time {
					t.Errorf("closer %d: seq %d, time %d", i, c.Seq, c.Time)
				}
				if err := st.Apply(c); err != nil {
					t.Fatal(err)
				}
			}
			if again := st.Closers(); len(again) > 0 {
				t.Errorf("again: %v", short(t, again))
			}
		})
	}
}

// Closing repeated ids settles the calls that the closers name, also those of which only a later one is closed.
func TestCloserNamesItsCall(t *testing.T) {
	b := &builder{t: t}
	b.turn(1)
	b.step(1, 1)
	a := b.asks(1, 1, "c", "c", "c")
	st := b.state(Header{ID: "test"})
	c := st.OpenCalls()[1]
	b.add(TypeToolResult, ToolResult{Turn: 1, Step: 1, Message: MissingResult(c, CodeOutcomeUnknown), Error: &ErrorInfo{Code: CodeOutcomeUnknown}}, Append())
	var left []int
	for _, c := range b.state(Header{ID: "test"}).OpenCalls() {
		if c.Assistant != a {
			t.Errorf("call of %d", c.Assistant)
		}
		left = append(left, c.Index)
	}
	if !slices.Equal(left, []int{0, 2}) {
		t.Errorf("left open: %v, want 0 and 2", left)
	}
}

// A parked turn survives, its question is asked again, and a fork of it is closed and asks nothing.
func TestParked(t *testing.T) {
	b := &builder{t: t}
	b.turn(1)
	b.step(1, 1)
	b.asks(1, 1, "c1", "c2")
	b.asked(1, 1, "q2", "c2")
	b.asked(1, 1, "q1", "c1")
	b.add(TypeInboxSpliced, InboxSpliced{Target: NextTurn, Inserted: []message.Message{message.User("w", "waits")}})
	st := b.state(Header{ID: "test"})
	if !st.Parked() || len(st.Closers()) != 0 {
		t.Fatalf("parked %t, closers %v", st.Parked(), st.Closers())
	}
	again := fresh(t, Seed{Prefix: b.evs, Repair: st.Closers()}).State()
	var asks []string
	for _, a := range again.Asks() {
		asks = append(asks, a.AskID)
	}
	if !again.Parked() || !slices.Equal(asks, []string{"q2", "q1"}) || len(again.Queue(NextTurn)) != 1 {
		t.Errorf("next life: parked %t, asks %v, queue %v", again.Parked(), asks, again.Queue(NextTurn))
	}
	for _, br := range again.Brackets(again.Next()) {
		if br.State != BracketWaiting {
			t.Errorf("%s at %d is %s, want waiting", br.Name, br.Open, br.State)
		}
	}
	if err := CheckCut(b.evs, 3, false); err == nil {
		t.Error("a parked turn may be cut inside")
	}
	child := Header{ID: "child", Kind: KindFork, SeedLength: st.Next(), Parent: &Parent{ID: "test", Seq: st.Next() - 1}}
	forked, err := st.ForkTo(child)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]State{"ForkTo": forked, "Fold": b.state(child)} {
		got := short(t, f.Closers())
		want := []string{"TOOL_NOT_STARTED c1@2/0", "TOOL_NOT_STARTED c2@2/1", TypeStepEnd, TypeTurnEnd}
		if len(f.Asks()) != 0 || f.Parked() || len(f.Queue(NextTurn)) != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: asks %v, parked %t, queue %v, closers %v", name, f.Asks(), f.Parked(), f.Queue(NextTurn), got)
		}
		for _, br := range f.Brackets(f.Next()) {
			if br.State != BracketDead {
				t.Errorf("%s: %s at %d is %s in a fork, want dead", name, br.Name, br.Open, br.State)
			}
		}
	}
	// Decided, the step goes on; the answer to a question that is moot changes nothing.
	b.add(TypeApprovalDecided, ApprovalDecided{AskID: "q2", CallID: "c2", Verdict: VerdictDeny})
	b.add(TypeApprovalDecided, ApprovalDecided{AskID: "q1", CallID: "c1", Verdict: VerdictAllow})
	if st := b.state(Header{ID: "test"}); st.Parked() || len(st.Asks()) != 0 || st.Code(st.OpenCalls()[0]) != CodeNotStarted {
		t.Errorf("decided: %v", st.Asks())
	}
	// A seed's state must have been folded for the session that is made over it.
	if _, err := New(child, Seed{Prefix: b.evs, State: &st}, Env{Now: tick()}); err == nil {
		t.Error("New takes the state of another session")
	}
}

// Two calls of one message may have one id: a question names its call by place. A question of an old log names it
// by id alone, and means each call of its step that has it.
func TestQuestionsNameTheirCalls(t *testing.T) {
	for _, old := range []bool{false, true} {
		b := &builder{t: t}
		b.turn(1)
		b.step(1, 1)
		at := b.asks(1, 1, "same", "same")
		for i, q := range []string{"q1", "q2"} {
			a := ApprovalAsked{AskID: q, Turn: 1, Step: 1, CallID: "same", Name: "bash", Subject: "rm " + q}
			if !old {
				a.Assistant, a.Index = &at, i
			}
			b.add(TypeApprovalAsked, a)
		}
		b.add(TypeApprovalDecided, ApprovalDecided{AskID: "q2", CallID: "same", Verdict: VerdictDeny, By: ByUser, Reason: "no"})
		st := b.state(Header{ID: "test"})
		asks, calls := st.Asks(), st.OpenCalls()
		if len(asks) != 1 || asks[0].AskID != "q1" || asks[0].Subject != "rm q1" || len(calls) != 2 || !st.Parked() || len(st.Closers()) != 0 {
			t.Fatalf("old %t: asks %+v, calls %+v", old, asks, calls)
		}
		if old {
			continue
		}
		first, _ := st.AskAbout(calls[0])
		second, ok := st.AskAbout(calls[1])
		if !st.Waiting(calls[0]) || st.Answered(calls[0]) || first.AskID != "q1" || first.Verdict != "" {
			t.Errorf("the first call: %+v", first)
		}
		if !ok || st.Waiting(calls[1]) || !st.Answered(calls[1]) || second.AskID != "q2" || second.Verdict != VerdictDeny || second.Why != "no" {
			t.Errorf("the second call: %+v", second)
		}
	}
}
