package session

import (
	"errors"
	"fmt"
)

// ErrNothing says that there is no turn to undo or redo.
var ErrNothing = errors.New("nothing to undo or redo")

// UndoDrafts returns the drafts that hide the last visible turn of s, for AppendFunc. Originals stay in the
// log. What stands on the surface for other turns (a summary made inside the turn) stays there: each
// unbroken run of the turn's own events is hidden by one surface/hide. A result whose content was replaced
// later is its turn's own. ErrOpenTurn while a turn is open, ErrNothing if no turn is visible.
func (s State) UndoDrafts() ([]Draft, int, error) {
	if s.turnSeq != None {
		return nil, 0, fmt.Errorf("session: cannot undo while a turn runs: %w", ErrOpenTurn)
	}
	end := s.next
	starts := s.turnStarts.all()
	for t := len(starts) - 1; t >= 0; t-- {
		start := starts[t]
		var drafts []Draft
		var run []Seq
		flush := func() {
			if len(run) > 0 {
				drafts = append(drafts, Draft{
					Type: TypeHide, Data: Hide{Reason: "undo", Turn: t + 1},
					Op: Replace(run[0], run[len(run)-1]), Sources: Cite(run...),
				})
				run = nil
			}
		}
		for _, n := range s.surf.nodes.all() {
			if q := n.origin(); start <= q && q < end {
				run = append(run, n.seq())
			} else {
				flush()
			}
		}
		flush()
		if len(drafts) > 0 {
			return drafts, t + 1, nil
		}
		end = start
	}
	return nil, 0, fmt.Errorf("session: no turn is visible: %w", ErrNothing)
}

// origin returns the seq that says to which turn a node belongs: its own, that of the first version for a
// result whose content was replaced, None for what stands for several nodes.
func (n node) origin() Seq {
	for n.hide != nil {
		if !n.has(flagResult) || n.hide.n != 1 {
			return None
		}
		n = n.hide.nodes()[0]
	}
	return n.seq()
}

// RedoDrafts returns the drafts that take back the newest undo whose hides are on the surface. p holds the
// log of s.
func (s State) RedoDrafts(p Prefix) ([]Draft, int, error) {
	if s.turnSeq != None {
		return nil, 0, fmt.Errorf("session: cannot redo while a turn runs: %w", ErrOpenTurn)
	}
	type undone struct {
		seq  Seq
		turn int
	}
	var hides []undone
	newest := undone{seq: None}
	for _, n := range s.surf.nodes.all() {
		if !n.has(flagHide) {
			continue
		}
		ev, err := p.At(n.seq())
		if err != nil {
			return nil, 0, err
		}
		h, err := DecodeData[Hide](ev)
		if err != nil || h.Reason != "undo" {
			continue
		}
		u := undone{n.seq(), h.Turn}
		hides = append(hides, u)
		if u.seq > newest.seq {
			newest = u
		}
	}
	if newest.seq == None {
		return nil, 0, fmt.Errorf("session: no undone turn is left: %w", ErrNothing)
	}
	var drafts []Draft
	for _, u := range hides {
		if u.turn == newest.turn {
			drafts = append(drafts, Draft{Type: TypeRestore, Data: struct{}{}, Op: Restore(u.seq)})
		}
	}
	return drafts, newest.turn, nil
}
