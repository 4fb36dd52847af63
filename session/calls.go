package session

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/message"
)

// Call is a tool call without a result. It is identified by its assistant message and its index in it:
// ids are the model's and may repeat.
type Call struct {
	Assistant Seq // the assistant/message that asked
	Index     int // among the tool-call blocks of that message
	ID, Name  string
	Turn      int
	Step      int
	Started   Seq  // its tool/call, None if none was recorded
	Pending   bool // its step is still open: the loop owes it a result
}

// Ask is a question to a person that is not decided.
type Ask struct {
	Seq    Seq
	AskID  string
	CallID string
	Turn   int
	Step   int
	Name   string
}

// The codes and texts of results that a log lacks. Closers write them and the view supplies them, so
// that committing closers changes no view.
const (
	CodeNotStarted     = "TOOL_NOT_STARTED"
	CodeOutcomeUnknown = "TOOL_OUTCOME_UNKNOWN"
	CodeWaiting        = "TOOL_WAITING_FOR_APPROVAL"

	textNotStarted = "This call was interrupted before it was recorded as started. It had no effect; you may ask for it again."
	textUnknown    = "This call was started and then interrupted: its outcome is not known. It is not run again by itself. " +
		"Repeat it only if it is read-only or idempotent; otherwise check the outside state first, or ask."
	textWaiting = "This call waits for a person's approval and has not run."
)

// Code returns why c has no result: CodeNotStarted, CodeOutcomeUnknown or CodeWaiting.
func (s State) Code(c Call) string {
	switch {
	case c.Started != None:
		return CodeOutcomeUnknown
	case s.Waiting(c):
		return CodeWaiting
	default:
		return CodeNotStarted
	}
}

// MissingResult returns the message that stands for the result that c lacks, with the given code. Its
// id derives from the call's place, so that the view and a closer agree on it.
func MissingResult(c Call, code string) message.Message {
	text := textUnknown
	switch code {
	case CodeNotStarted:
		text = textNotStarted
	case CodeWaiting:
		text = textWaiting
	}
	id := fmt.Sprintf("result-%d-%d-%d-%d", c.Turn, c.Step, c.Assistant, c.Index)
	return message.Result(id, c.ID, true, message.TextBlock(text))
}

// OpenCalls returns the calls without a result, in the order of asking. Pending ones belong to the open
// step; the others were left open in a step or turn that was closed.
func (s State) OpenCalls() []Call { return slices.Clip(s.calls) }

// Asks returns the open questions of this session, in the order of asking.
func (s State) Asks() []Ask { return slices.Clip(s.asked) }

// Waiting reports whether c is pending and waits for an answer.
func (s State) Waiting(c Call) bool {
	if !c.Pending {
		return false
	}
	for _, a := range s.asked {
		if a.CallID == c.ID && a.Turn == c.Turn && a.Step == c.Step {
			return true
		}
	}
	return false
}

// Parked reports whether the open turn waits for a person: such a turn is not interrupted by a crash.
func (s State) Parked() bool {
	if s.turnSeq == None {
		return false
	}
	return slices.ContainsFunc(s.calls, s.Waiting)
}

// IdempotencyKey names a call for the outside world: it is the same in every life and in every fork.
func (s State) IdempotencyKey(assistant Seq, index int) string {
	return fmt.Sprintf("%s/%d/%d", s.header.Origin(assistant), assistant, index)
}

// asking remembers all calls of the latest step that asked for any, so that a second result of one of
// them is known as a duplicate and not taken for the result of an older call with the same id.
type asking struct {
	turn, step int
	ids        []string
}

// foldAssistant notes the calls that a message asks for, and its usage. Only messages that hold the
// text of a tool-call block are decoded.
func (s *State) foldAssistant(ev Event) {
	if u, ok := Field(ev.Data, "usage"); ok && len(u) > 2 {
		s.foldUsage(ev, u)
	}
	if ev.Op.Kind == OpReplace || !bytes.Contains(ev.Data, []byte(`"tool-call"`)) {
		return
	}
	var a AssistantMessage
	if err := json.Unmarshal(ev.Data, &a); err != nil {
		s.problem(ev.Seq, "shape", err.Error())
		return
	}
	if a.Turn != s.asking.turn || a.Step != s.asking.step {
		s.asking = asking{turn: a.Turn, step: a.Step}
	}
	for i, b := range a.Message.Calls() {
		s.asking.ids = append(slices.Clip(s.asking.ids), b.ID)
		s.calls = append(s.calls, Call{
			Assistant: ev.Seq, Index: i, ID: b.ID, Name: b.Name, Turn: a.Turn, Step: a.Step,
			Started: None, Pending: s.turnSeq != None,
		})
	}
}

// findCall returns the index of the call that a tool/call or tool/result with these numbers belongs to:
// the one with the id in its own turn and step (the first without a started mark when starting), else
// the nearest earlier one with the id; -1 for a stranger.
func (s *State) findCall(id string, turn, step int, starting bool) int {
	nearest := -1
	for i, c := range s.calls {
		if c.ID != id || starting && c.Started != None {
			continue
		}
		if c.Turn == turn && c.Step == step {
			return i
		}
		nearest = i
	}
	if turn == s.asking.turn && step == s.asking.step && slices.Contains(s.asking.ids, id) {
		return -1 // settled already
	}
	return nearest
}

func (s *State) foldStarted(ev Event) {
	turn, _ := fieldInt(ev.Data, "turn")
	step, _ := fieldInt(ev.Data, "step")
	i := s.findCall(fieldString(ev.Data, "callId"), turn, step, true)
	if i < 0 {
		s.problem(ev.Seq, "order", "tool/call for a call that nobody asked for")
		return
	}
	s.calls = slices.Clone(s.calls)
	s.calls[i].Started = ev.Seq
}

func (s *State) foldResult(ev Event) {
	turn, _ := fieldInt(ev.Data, "turn")
	step, _ := fieldInt(ev.Data, "step")
	i := s.findCall(ResultCallID(ev), turn, step, false)
	if i < 0 {
		return // a duplicate or a stranger: the view tells which
	}
	s.calls = slices.Delete(slices.Clone(s.calls), i, i+1)
}

// ResultCallID returns the call id that a tool/result answers, "" if it names none.
func ResultCallID(ev Event) string {
	msg, _ := Field(ev.Data, "message")
	if content, ok := Field(msg, "content"); ok && len(content) > 2 {
		if id := fieldString(content[1:], "toolCallId"); id != "" {
			return id
		}
	}
	src, _ := Field(msg, "source")
	return fieldString(src, "callId")
}

// settlePending is what the end of a step or turn does: what is still open is no longer owed.
func (s *State) settlePending() {
	if !slices.ContainsFunc(s.calls, func(c Call) bool { return c.Pending }) {
		return
	}
	s.calls = slices.Clone(s.calls)
	for i := range s.calls {
		s.calls[i].Pending = false
	}
}

// foldAsked notes a question. Questions below OwnFrom are another session's: a fork does not inherit
// what its parent asked.
func (s *State) foldAsked(ev Event) {
	if ev.Seq < s.header.OwnFrom() {
		return
	}
	var a ApprovalAsked
	if !decodeInto(s, ev, &a) {
		return
	}
	s.asked = append(s.asked, Ask{Seq: ev.Seq, AskID: a.AskID, CallID: a.CallID, Turn: a.Turn, Step: a.Step, Name: a.Name})
}

func (s *State) foldDecided(ev Event) {
	id := fieldString(ev.Data, "askId")
	if i := slices.IndexFunc(s.asked, func(a Ask) bool { return a.AskID == id }); i >= 0 {
		s.asked = slices.Delete(slices.Clone(s.asked), i, i+1)
	}
}
