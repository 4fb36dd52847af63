package session

import (
	"errors"
	"fmt"
)

// Relational is a validator for tests and debug builds: it holds writers to the order of a well-behaved
// loop. Turns are numbered 1,2,3.. and do not nest, steps lie inside turns, a result follows the block that
// asked for it. It sees this life's events only; a stored log that breaks these rules still opens.
func Relational(s State, ev Event) error {
	turn, open := s.Turn()
	step, inStep := s.Step()
	switch ev.Type {
	case TypeTurnStart:
		d, err := DecodeData[TurnStart](ev)
		if err != nil {
			return err
		}
		if open {
			return fmt.Errorf("turn %d is still open", turn)
		}
		if d.Turn != turn+1 {
			return fmt.Errorf("turn %d follows turn %d", d.Turn, turn)
		}
	case TypeTurnEnd:
		d, err := DecodeData[TurnEnd](ev)
		if err != nil {
			return err
		}
		if !open || d.Turn != turn || inStep {
			return fmt.Errorf("end of turn %d, while turn %d is open: %t, inside a step: %t", d.Turn, turn, open, inStep)
		}
	case TypeStepStart:
		d, err := DecodeData[StepRef](ev)
		if err != nil {
			return err
		}
		if !open || inStep || d.Turn != turn || d.Step != step+1 {
			return fmt.Errorf("step %d of turn %d cannot begin here", d.Step, d.Turn)
		}
	case TypeStepEnd, TypeAssistantMessage, TypeAssistantChunk, TypeToolCall, TypeToolResult:
		t, _ := fieldInt(ev.Data, "turn")
		n, _ := fieldInt(ev.Data, "step")
		if ev.Op.Kind != OpReplace && (!inStep || t != turn || n != step) {
			return fmt.Errorf("step %d of turn %d is not open", n, t)
		}
		switch {
		case ev.Type == TypeToolCall:
			if list, _ := s.findCall(fieldString(ev.Data, "callId"), t, n, true); list != &s.calls {
				return errors.New("the open step did not ask for this call, or it was started")
			}
		case ev.Type == TypeToolResult && ev.Op.Kind == OpAppend:
			if list, _ := s.answered(&ev); list != &s.calls {
				return errors.New("the open step did not ask for the call of this result, or it has one")
			}
		case ev.Type == TypeStepEnd && len(s.calls) > 0:
			return fmt.Errorf("the call %s has no result yet", s.calls[0].ID)
		}
	}
	return nil
}
