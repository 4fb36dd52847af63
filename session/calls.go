package session

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

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
	Doubt     bool // records were lost while it was pending: it may have been started
}

// Ask is a question to a person about a call that did not start.
type Ask struct {
	Seq       Seq
	Time      int64 // Unix milliseconds
	AskID     string
	CallID    string
	Turn      int
	Step      int
	Name      string
	Subject   string
	Assistant Seq // the call's place; None in old logs, which name it by CallID alone
	Index     int

	Verdict string // "": nobody decided yet
	By      string // who did: ByUser or ByPolicy
	Why     string // the reason that they gave
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
	case c.Started != None || c.Doubt:
		return CodeOutcomeUnknown
	case s.held(c):
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
	id := fmt.Sprintf("%s%d-%d-%d-%d", missingPrefix, c.Turn, c.Step, c.Assistant, c.Index)
	return message.Result(id, c.ID, true, message.TextBlock(text))
}

const missingPrefix = "result-"

// MissingFor is the inverse of MissingResult: it reads from the message id and the error code of a stored
// result which call it stands for. A closer's call is identified this way and not by its model-given id,
// which may repeat. ok is false for every other result.
func MissingFor(messageID, code string) (assistant Seq, index int, ok bool) {
	if code != CodeNotStarted && code != CodeOutcomeUnknown || !strings.HasPrefix(messageID, missingPrefix) {
		return None, 0, false
	}
	rest, last, ok := cutLast(messageID)
	_, before, ok2 := cutLast(rest)
	if !ok || !ok2 || before < 0 || last > math.MaxInt32 {
		return None, 0, false
	}
	return Seq(before), int(last), true
}

// cutLast cuts "x-12" into "x" and 12.
func cutLast(s string) (string, int64, bool) {
	i := strings.LastIndexByte(s, '-')
	if i < 0 {
		return s, 0, false
	}
	n, err := strconv.ParseInt(s[i+1:], 10, 64)
	return s[:i], n, err == nil && n >= 0
}

// OpenCalls returns the calls without a result, in the order of asking. Pending ones belong to the open
// step; the others were left open in a step or turn that was closed. The slice is the caller's.
func (s State) OpenCalls() []Call { return slices.Concat(s.left, s.calls) }

// Asks returns the open questions of this session, in the order of asking: those whose call still waits.
func (s State) Asks() []Ask {
	var out []Ask
	for _, a := range s.asked {
		if a.Verdict == "" && slices.ContainsFunc(s.calls, func(c Call) bool { return a.about(c) && unstarted(c) }) {
			out = append(out, a)
		}
	}
	return out
}

func (a Ask) about(c Call) bool {
	if a.Assistant != None {
		return a.Assistant == c.Assistant && a.Index == c.Index
	}
	return a.CallID == c.ID && a.Turn == c.Turn && a.Step == c.Step
}

func unstarted(c Call) bool { return c.Pending && c.Started == None && !c.Doubt }

// AskAbout returns the newest question about c, decided or not, as long as c is pending and was not started.
func (s State) AskAbout(c Call) (Ask, bool) {
	for _, a := range slices.Backward(s.asked) {
		if a.about(c) {
			return a, unstarted(c)
		}
	}
	return Ask{}, false
}

// Waiting reports whether c is pending, was not started, and waits for an answer.
func (s State) Waiting(c Call) bool {
	return unstarted(c) && slices.ContainsFunc(s.asked, func(a Ask) bool { return a.Verdict == "" && a.about(c) })
}

// Answered reports whether c is pending, was not started, and a person or a policy has decided about it: the
// answer is not lost with the process.
func (s State) Answered(c Call) bool {
	a, ok := s.AskAbout(c)
	return ok && a.Verdict != ""
}

func (s State) held(c Call) bool { _, ok := s.AskAbout(c); return ok }

// Parked reports whether the open turn waits for a person, or holds an answer that was not carried out yet:
// such a turn is not interrupted by a crash. The next life asks again what is open, and goes on.
func (s State) Parked() bool {
	return s.turnSeq != None && slices.ContainsFunc(s.calls, s.held)
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

// foldAssistant notes the calls that a message asks for, and its usage. It reads them from the bytes: this is
// the costliest event of a log, and the fold needs little of it.
func (s *State) foldAssistant(ev *Event) {
	var turn, step, msg, usage jsontext.Value
	eachMember(ev.Data, func(name, value []byte) {
		switch string(name) {
		case `"turn"`:
			turn = value
		case `"step"`:
			step = value
		case `"message"`:
			msg = value
		case `"usage"`:
			usage = value
		}
	})
	if len(usage) > 2 {
		source, _ := Field(msg, "source")
		if s.foldUsage(ev, usage, source) && ev.Op.Kind != OpReplace {
			s.answer = answer{ev.Seq, s.surf.gen, s.reqHeader}
		}
	}
	if ev.Op.Kind == OpReplace || !mayCall(msg) {
		return
	}
	t, n := atoi(turn), atoi(step)
	list := &s.left
	if s.turnSeq != None {
		list = &s.calls
	}
	content, _ := Field(msg, "content")
	index := 0
	eachElement(content, func(block []byte) {
		if !fieldIs(block, "type", string(message.ToolCall)) {
			return
		}
		if index == 0 && (t != s.asking.turn || n != s.asking.step) {
			s.asking = asking{turn: t, step: n}
		}
		c := Call{
			Assistant: ev.Seq, Index: index, ID: fieldString(block, "id"), Name: fieldString(block, "name"),
			Turn: t, Step: n, Started: None, Pending: s.turnSeq != None,
		}
		s.asking.ids = append(s.asking.ids, c.ID)
		*list = append(*list, c)
		index++
	})
}

// mayCall reports whether data can hold a tool-call block: the word, or an escape that may hide it.
func mayCall(data []byte) bool {
	return bytes.Contains(data, []byte(`"tool-call"`)) || bytes.Contains(data, []byte(`\u00`))
}

// findCall returns the list and index of the call that a tool/call or tool/result with these numbers belongs
// to: the first one with the id in its own turn and step (when starting: the first not started one), else
// the nearest earlier one with the id; nil for a stranger.
func (s *State) findCall(id string, turn, step int, starting bool) (*[]Call, int) {
	fits := func(c Call) bool { return c.ID == id && !(starting && c.Started != None) }
	lists := [...]*[]Call{&s.left, &s.calls}
	for _, list := range lists {
		for i, c := range *list {
			if c.Turn == turn && c.Step == step && fits(c) {
				return list, i
			}
		}
	}
	if turn == s.asking.turn && step == s.asking.step && slices.Contains(s.asking.ids, id) {
		return nil, -1 // settled already
	}
	for k := len(lists) - 1; k >= 0; k-- {
		for i := len(*lists[k]) - 1; i >= 0; i-- {
			if fits((*lists[k])[i]) {
				return lists[k], i
			}
		}
	}
	return nil, -1
}

func (s *State) foldStarted(ev *Event) {
	turn, _ := fieldInt(ev.Data, "turn")
	step, _ := fieldInt(ev.Data, "step")
	list, i := s.findCall(fieldString(ev.Data, "callId"), turn, step, true)
	if list == nil {
		s.problem(ev.Seq, "order", "tool/call for a call that nobody asked for")
		return
	}
	*list = slices.Clone(*list)
	(*list)[i].Started = ev.Seq
}

// foldResult settles a call. What settles none is a duplicate or a stranger: the view tells which.
func (s *State) foldResult(ev *Event) {
	list, i := s.answered(ev)
	if list != nil {
		*list = slices.Delete(slices.Clone(*list), i, i+1)
	}
}

// answered returns the list and index of the call that a result settles; nil: none. A closer names its call.
func (s *State) answered(ev *Event) (*[]Call, int) {
	var turn, step, msg, fault jsontext.Value
	eachMember(ev.Data, func(name, value []byte) {
		switch string(name) {
		case `"turn"`:
			turn = value
		case `"step"`:
			step = value
		case `"message"`:
			msg = value
		case `"error"`:
			fault = value
		}
	})
	if fault != nil {
		if assistant, index, ok := MissingFor(fieldString(msg, "id"), fieldString(fault, "code")); ok {
			for _, list := range [...]*[]Call{&s.left, &s.calls} {
				for i, c := range *list {
					if c.Assistant == assistant && c.Index == index {
						return list, i
					}
				}
			}
			return nil, -1
		}
	}
	return s.findCall(answers(msg), atoi(turn), atoi(step), false)
}

// ResultCallID returns the call id of the first tool-result block of a tool/result, "" if it names none.
func ResultCallID(ev Event) string {
	msg, _ := Field(ev.Data, "message")
	return answers(msg)
}

func answers(msg jsontext.Value) string {
	content, _ := Field(msg, "content")
	id, found := "", false
	eachElement(content, func(block []byte) {
		if !found && fieldIs(block, "type", string(message.ToolResult)) {
			id, found = fieldString(block, "toolCallId"), true
		}
	})
	return id
}

// settlePending is what the end of a step or turn does: what is still open is no longer owed, and what was
// asked about it is moot.
func (s *State) settlePending() {
	for _, c := range s.calls {
		c.Pending = false
		s.left = append(s.left, c)
	}
	s.calls, s.asked = nil, nil
}

// doubtPending is what a lost record does: it may have been the start of any pending call.
func (s *State) doubtPending() {
	s.calls = slices.Clone(s.calls)
	for i := range s.calls {
		s.calls[i].Doubt = true
	}
}

// foldAsked notes a question. Questions below OwnFrom are another session's: a fork does not inherit
// what its parent asked.
func (s *State) foldAsked(ev *Event) {
	if ev.Seq < s.header.OwnFrom() {
		return
	}
	var a ApprovalAsked
	if !decodeInto(s, ev, &a) {
		return
	}
	q := Ask{Seq: ev.Seq, Time: ev.Time, AskID: a.AskID, CallID: a.CallID, Turn: a.Turn, Step: a.Step, Name: a.Name,
		Subject: a.Subject, Assistant: None, Index: a.Index}
	if a.Assistant != nil {
		q.Assistant = *a.Assistant
	}
	s.asked = append(s.asked, q)
}

func (s *State) foldDecided(ev *Event) {
	id := fieldString(ev.Data, "askId")
	i := slices.IndexFunc(s.asked, func(a Ask) bool { return a.AskID == id && a.Verdict == "" })
	if i < 0 {
		return
	}
	s.asked = slices.Clone(s.asked)
	switch by := fieldString(ev.Data, "by"); by {
	case ByUser, ByPolicy:
		s.asked[i].Verdict, s.asked[i].By = VerdictDeny, by
		if fieldString(ev.Data, "verdict") == VerdictAllow {
			s.asked[i].Verdict = VerdictAllow
		}
		s.asked[i].Why = fieldString(ev.Data, "reason")
	default:
		s.asked = slices.Delete(s.asked, i, i+1)
	}
}
