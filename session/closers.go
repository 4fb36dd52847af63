package session

// Closers returns the ends that the writer of the log in s could not write: nothing for a balanced log;
// else, for the open turn, an error result for each pending call in the order of asking, the step/end and
// the turn/end with reason "interrupted". A turn with a call that waits for a person, or that a person has
// answered and nobody carried out, is parked, not interrupted: its other pending calls get their results, and its
// step and turn stay open. All closers
// carry the last stored event's time; their seqs continue the log. Brackets of packages are never closed
// here. The result applies to s strictly, and Closers of what follows is empty.
func (s State) Closers() []Event {
	if s.turnSeq == None {
		return nil
	}
	var out []Event
	add := func(typ string, op SurfaceOp, src Sources, data any) {
		ev, err := Draft{Type: typ, Data: data, Op: op, Sources: src}.Event(s.next+Seq(len(out)), s.lastTime)
		if err != nil {
			return // an id in a foreign log that no record could hold: the view covers the call
		}
		out = append(out, ev)
	}
	parked := s.Parked()
	for _, c := range s.calls {
		if c.ID == "" || s.held(c) {
			continue
		}
		code := s.Code(c)
		var src Sources
		if c.Started != None {
			src = Cite(c.Started)
		}
		add(TypeToolResult, Append(), src, ToolResult{
			Turn: max(c.Turn, 1), Step: max(c.Step, 1),
			Message: MissingResult(c, code),
			Error:   &ErrorInfo{Name: "Interrupted", Code: code},
		})
	}
	if parked {
		return out
	}
	if s.stepSeq != None {
		add(TypeStepEnd, SurfaceOp{}, nil, StepRef{max(s.turn, 1), max(s.step, 1)})
	}
	add(TypeTurnEnd, SurfaceOp{}, nil, TurnEnd{Turn: max(s.turn, 1), Reason: Reason{Kind: ReasonInterrupted}})
	return out
}

// Closers folds p and returns its closers. It fails only when p does.
func Closers(h Header, reg *Registry, p Prefix) ([]Event, error) {
	s, err := Fold(h, reg, p)
	if err != nil {
		return nil, err
	}
	return s.Closers(), nil
}
