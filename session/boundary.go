package session

import (
	"bytes"
	"slices"
)

// A package that owns a bracket cannot tell a dead opening event from a live one by the event alone:
// "the writer died while compacting" and "a compaction is running now" are the same bytes. The boundary
// tells them apart. Constructing a session over a seed that is not empty appends one session/inherited
// (New does it, nobody else); an opening event below the last boundary is dead, whatever ended its life.
// The boundary says nothing about other processes: that is what the store's lock is for.

// Inherited reports whether the stored event at seq was written by an earlier life: whether a boundary
// lies behind it. It scans from the tail. A log without a boundary reports nothing as inherited.
func Inherited(p Prefix, seq Seq) (bool, error) {
	for q := p.Len() - 1; q > seq; q-- {
		ev, err := p.At(q)
		if err != nil {
			return false, err
		}
		if ev.Type == TypeInherited {
			return true, nil
		}
	}
	return false, nil
}

// Bracket is a pair of events that a package owns; Close is None while it is open.
type Bracket struct {
	Type        string // of the opening event
	Name        string // the bracket's name, as declared
	Key         string // the raw JSON of the pairing member, "" if there is none
	Open, Close Seq
	outlives    bool
}

// BracketState is how a bracket is to be read.
type BracketState string

// The states of a bracket: closed; open and running; open and left behind by a dead writer; open over
// the end of lives, as declared (a question to a person).
const (
	BracketClosed  BracketState = "closed"
	BracketLive    BracketState = "live"
	BracketDead    BracketState = "dead"
	BracketWaiting BracketState = "waiting"
)

// BracketStatus is a bracket and its state.
type BracketStatus struct {
	Bracket
	State BracketState
}

// Brackets returns all brackets of the log by their opening seq, judged by base: an open one below base
// is dead, one at or above it runs. In process base is FirstLiveSeq; for an outside reader it is the base
// of the holder that the store names, and Next when nobody holds the session. A bracket that may outlive
// its life waits, unless it is not this session's own; a question whose call needs no answer does not.
func (s State) Brackets(base Seq) []BracketStatus {
	out := make([]BracketStatus, 0, len(s.open)+s.closed.len())
	for _, b := range s.closed.all() {
		out = append(out, BracketStatus{b, BracketClosed})
	}
	for _, b := range s.open {
		st := BracketLive
		switch {
		case b.outlives && b.Open >= s.header.OwnFrom() && !s.moot(b):
			st = BracketWaiting
		case b.Open < base:
			st = BracketDead
		}
		out = append(out, BracketStatus{b, st})
	}
	slices.SortFunc(out, func(a, b BracketStatus) int { return int(a.Open - b.Open) })
	return out
}

// moot reports whether b is a question whose call needs no answer any more: its step ended undecided.
func (s State) moot(b Bracket) bool {
	return b.Type == TypeApprovalAsked && !slices.ContainsFunc(s.Asks(), func(a Ask) bool { return a.Seq == b.Open })
}

// OpenBracket returns the newest open bracket called name at or above base: the one that is live there.
func (s State) OpenBracket(name string, base Seq) (Bracket, bool) {
	for i := len(s.open) - 1; i >= 0; i-- {
		if b := s.open[i]; b.Name == name && b.Open >= base {
			return b, true
		}
	}
	return Bracket{}, false
}

// LastClosed returns the brackets called name that were closed last, the newest first, at most n of them.
func (s State) LastClosed(name string, n int) []Bracket {
	var out []Bracket
	for i := s.closed.len() - 1; i >= 0 && len(out) < n; i-- {
		if b := s.closed.at(i); b.Name == name {
			out = append(out, b)
		}
	}
	return out
}

// foldBracket opens or closes. A closing event takes the newest open one with its key; one without a
// partner closes nothing.
func (s *State) foldBracket(ev *Event, k *Kind) {
	var key []byte
	if k.Key != "" {
		key, _ = Field(ev.Data, k.Key)
	}
	if k.Opens != "" {
		s.open = append(s.open, Bracket{
			Type: ev.Type, Name: k.Opens, Key: string(bytes.Clone(key)), Open: ev.Seq, Close: None, outlives: k.Outlives,
		})
		return
	}
	for i := len(s.open) - 1; i >= 0; i-- {
		if b := s.open[i]; b.Name == k.Closes && (k.Key == "" || b.Key == string(key)) {
			s.open = slices.Delete(slices.Clone(s.open), i, i+1)
			b.Close = ev.Seq
			s.closed.add(b)
			return
		}
	}
	s.problem(ev.Seq, "order", "closes a bracket "+k.Closes+" that is not open")
}
