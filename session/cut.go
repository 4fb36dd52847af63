package session

// A legal cut is a stored event at which no turn is open: what follows it may be another future. Both
// functions below look backwards and forwards only as far as the next turn boundary, so that a fork costs
// the same at any length.
//
// running says that somebody works on the open turn. An open turn that nobody runs may be cut at the
// stored end: its closers then belong to the child.

// LastCut returns the default cut of p: the last legal one, None for an empty log.
func LastCut(p Prefix, running bool) (Seq, error) {
	end := p.Len() - 1
	if !running {
		return end, nil
	}
	start, open, err := OpenTurnAt(p, end)
	if err != nil || !open {
		return end, err
	}
	return cutBefore(p, start)
}

// cutBefore returns the last legal cut before the turn that begins at start: turns that nobody ended may lie
// before it.
func cutBefore(p Prefix, start Seq) (Seq, error) {
	for {
		earlier, open, err := OpenTurnAt(p, start-1)
		if err != nil || !open {
			return start - 1, err
		}
		start = earlier
	}
}

// CheckCut reports whether p may be cut at seq: nil, *BoundaryError for a seq that is not stored, or
// *OpenTurnError, which names the nearest cuts.
func CheckCut(p Prefix, seq Seq, running bool) error {
	if seq < 0 || seq >= p.Len() {
		return &BoundaryError{At: seq, Len: p.Len()}
	}
	start, open, err := OpenTurnAt(p, seq)
	if err != nil || !open {
		return err
	}
	if seq == p.Len()-1 && !running {
		return nil
	}
	after := None
	for ev, err := range p.Range(seq+1, p.Len()) {
		if err != nil {
			return err
		}
		if ev.Type == TypeTurnEnd {
			after = ev.Seq
			break
		}
	}
	if after == None && !running {
		after = p.Len() - 1
	}
	before, err := cutBefore(p, start)
	if err != nil {
		return err
	}
	return &OpenTurnError{At: seq, Before: before, After: after}
}

// OpenTurnAt reports whether a turn is open at seq, and where it began.
func OpenTurnAt(p Prefix, seq Seq) (start Seq, open bool, err error) {
	for q := seq; q >= 0; q-- {
		ev, err := p.At(q)
		if err != nil {
			return None, false, err
		}
		switch ev.Type {
		case TypeTurnEnd:
			return None, false, nil
		case TypeTurnStart:
			return q, true, nil
		}
	}
	return None, false, nil
}

// LastActivityBefore returns the time of the last conversational event below end, or created if there is
// none. It scans from the tail.
func LastActivityBefore(p Prefix, end Seq, created int64) (int64, error) {
	for q := end - 1; q >= 0; q-- {
		ev, err := p.At(q)
		if err != nil {
			return 0, err
		}
		if IsActivity(ev) {
			return ev.Time, nil
		}
	}
	return created, nil
}
