package session

import (
	"slices"

	"github.com/strandline-dev/strandline/message"
)

// claim is a message that the open turn took from the queue and has not logged yet.
type claim struct {
	target Target
	msg    message.Message
}

// Queue returns the accepted input that waits in a queue, in order.
func (s State) Queue(t Target) []message.Message {
	if t == NextStep {
		return slices.Clip(s.nextStep)
	}
	return slices.Clip(s.nextTurn)
}

func (s *State) queue(t Target) *[]message.Message {
	if t == NextStep {
		return &s.nextStep
	}
	return &s.nextTurn
}

// foldInbox edits a queue. What a removal takes out inside an open turn is claimed by that turn, unless
// it says withdrawn. Positions beyond the queue are clipped.
func (s *State) foldInbox(ev *Event) {
	if ev.Seq < s.header.OwnFrom() {
		return
	}
	var in InboxSpliced
	if !decodeInto(s, ev, &in) {
		return
	}
	q := s.queue(in.Target)
	i := min(max(in.Start, 0), len(*q))
	j := min(i+max(in.RemovedCount, 0), len(*q))
	if i != in.Start || j-i != in.RemovedCount {
		s.problem(ev.Seq, "order", "inbox/spliced reaches beyond the queue; clipped")
	}
	if s.turnSeq != None && in.Outcome != OutcomeWithdrawn {
		for _, m := range (*q)[i:j] {
			s.claimed = append(slices.Clip(s.claimed), claim{in.Target, m})
		}
	}
	*q = slices.Concat((*q)[:i], in.Inserted, (*q)[j:])
}

// consume drops the claim on a message that is logged now.
func (s *State) consume(id string) {
	if id == "" {
		return
	}
	if i := slices.IndexFunc(s.claimed, func(c claim) bool { return c.msg.ID == id }); i >= 0 {
		s.claimed = slices.Delete(slices.Clone(s.claimed), i, i+1)
	}
}

// endClaims settles the claims of a turn that ends. An interrupted turn gives back what it did not log:
// each message returns to the head of its queue. Any other end consumes them.
func (s *State) endClaims(interrupted bool) {
	claims := s.claimed
	s.claimed = nil
	if !interrupted {
		return
	}
	for _, t := range []Target{NextTurn, NextStep} {
		var back []message.Message
		for _, c := range claims {
			if c.target == t {
				back = append(back, c.msg)
			}
		}
		if len(back) > 0 {
			q := s.queue(t)
			*q = slices.Concat(back, *q)
		}
	}
}
