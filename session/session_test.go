package session

import (
	"errors"
	"testing"

	"github.com/strandline-dev/strandline/message"
)

// tick is a clock for tests: it counts.
func tick() func() int64 {
	n := int64(1000)
	return func() int64 { n++; return n }
}

func fresh(t *testing.T, seed Seed) *Session {
	t.Helper()
	s, err := New(Header{Format: 1, ID: "test", Kind: KindRoot, CreatedAt: 1}, seed, Env{Now: tick(), Validators: []Validator{Relational}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *Session, ds ...Draft) []Event {
	t.Helper()
	evs, err := s.AppendAll(nil, ds...)
	if err != nil {
		t.Fatal(err)
	}
	return evs
}

func turnDrafts(turn int, callID string) []Draft {
	return []Draft{
		{Type: TypeTurnStart, Data: TurnStart{turn}},
		{Type: TypeStepStart, Data: StepRef{turn, 1}},
		{Type: TypeUserMessage, Data: message.User("u1", "hi"), Op: Append()},
		{Type: TypeAssistantMessage, Op: Append(), Data: AssistantMessage{Turn: turn, Step: 1, Message: message.Message{
			Role: message.RoleAssistant, Content: []message.Block{message.CallBlock(callID, "bash", "{}")}}}},
		{Type: TypeToolCall, Data: ToolCall{Turn: turn, Step: 1, CallID: callID, Name: "bash", Arguments: "{}"}},
	}
}

func all(t *testing.T, s *Session) Events {
	t.Helper()
	var out Events
	p := s.Events()
	for ev, err := range p.Range(0, p.Len()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ev)
	}
	return out
}

// A killed turn gets its closers, one boundary, and nothing on the outside until something is accepted.
func TestPendingPrefix(t *testing.T) {
	s := fresh(t, Seed{})
	put(t, s, turnDrafts(1, "c1")...)
	stored := all(t, s)
	closers, err := Closers(s.Header(), Core(), stored)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, c := range closers {
		types = append(types, c.Type)
	}
	if len(types) != 3 || types[0] != TypeToolResult || types[1] != TypeStepEnd || types[2] != TypeTurnEnd {
		t.Fatalf("closers %v", types)
	}
	again := fresh(t, Seed{Prefix: stored, Repair: closers})
	if got := again.FirstLiveSeq(); got != 8 {
		t.Errorf("FirstLiveSeq %d, want 8", got)
	}
	if again.Len() != 9 || again.Head() != 5 {
		t.Errorf("len %d head %d, want 9 and 5", again.Len(), again.Head())
	}
	if evs, _, _ := again.From(5); len(evs) != 0 {
		t.Errorf("the pending prefix is visible: %v", evs)
	}
	if _, err := again.Append(Draft{Type: TypeInherited, Data: struct{}{}}); !errors.Is(err, ErrRejected) {
		t.Errorf("anybody may write a boundary: %v", err)
	}
	put(t, again, Draft{Type: TypeTitle, Data: Title{"x", "user"}})
	if evs, _, _ := again.From(5); len(evs) != 5 || evs[3].Type != TypeInherited {
		t.Errorf("after the first event: %d events", len(evs))
	}
	// A plain reopen of what ends in a boundary adds nothing.
	third := fresh(t, Seed{Prefix: all(t, again)[:9]})
	if third.Len() != 9 {
		t.Errorf("a second boundary was added: len %d", third.Len())
	}
}

func TestRejectedChangesNothing(t *testing.T) {
	s := fresh(t, Seed{})
	put(t, s, turnDrafts(1, "c1")...)
	before := s.Len()
	_, err := s.AppendAll(nil, Draft{Type: TypeTitle, Data: Title{"x", "user"}}, Draft{Type: "no/such", Data: struct{}{}})
	if !errors.Is(err, ErrRejected) || s.Len() != before || s.State().Title().Title != "" {
		t.Errorf("err %v, len %d (was %d), title %q", err, s.Len(), before, s.State().Title().Title)
	}
}

func TestUndoRedo(t *testing.T) {
	s := fresh(t, Seed{})
	put(t, s, turnDrafts(1, "c1")...)
	put(t, s, Draft{Type: TypeToolResult, Op: Append(), Data: ToolResult{Turn: 1, Step: 1, Message: message.Result("r", "c1", false, message.TextBlock("ok"))}},
		Draft{Type: TypeStepEnd, Data: StepRef{1, 1}}, Draft{Type: TypeTurnEnd, Data: TurnEnd{1, Reason{Kind: ReasonCompleted}}})
	before, _ := s.Messages()
	if _, err := s.AppendFunc(func(st State) ([]Draft, error) { d, _, err := st.UndoDrafts(); return d, err }); err != nil {
		t.Fatal(err)
	}
	if m, _ := s.Messages(); len(m) != 0 {
		t.Errorf("%d messages after undo", len(m))
	}
	if _, err := s.AppendFunc(func(st State) ([]Draft, error) { d, _, err := st.RedoDrafts(s.prefixForTest()); return d, err }); err != nil {
		t.Fatal(err)
	}
	if m, _ := s.Messages(); len(m) != len(before) {
		t.Errorf("%d messages after redo, want %d", len(m), len(before))
	}
}

// prefixForTest reads the log inside AppendFunc, where Events would lock twice.
func (s *Session) prefixForTest() Prefix { return joined{s.prefix, s.tail} }
