package session

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Seq is a position in a log, from 0. It is the only order there is: Time is for people.
type Seq int64

// None is the Seq of nothing.
const None Seq = -1

// String returns the decimal form.
func (s Seq) String() string { return strconv.FormatInt(int64(s), 10) }

// ID names a session. It is opaque: ids are compared for equality only.
type ID string

// Link is the chain value after a record: it proves the order and completeness of all records up to
// it and serves as the revision token of a log (docs/format.md says how it is computed). The zero
// Link is the link before the first record.
type Link [12]byte

// String returns the 16 characters of base64url that stand in a record.
func (l Link) String() string { return base64.RawURLEncoding.EncodeToString(l[:]) }

// ParseLink reads what String wrote.
func ParseLink(s string) (Link, error) {
	var l Link
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(l) {
		return l, fmt.Errorf("session: %q is not a link (want 16 characters of base64url)", s)
	}
	copy(l[:], b)
	return l, nil
}

// MarshalText and UnmarshalText make Link usable in JSON.
func (l Link) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (l *Link) UnmarshalText(b []byte) error {
	v, err := ParseLink(string(b))
	*l = v
	return err
}

// Event is one entry of a log. An accepted event is immutable: its slices are shared and must not be
// written to.
type Event struct {
	Seq  Seq
	Time int64 // Unix milliseconds when accepted; may go backwards
	Type string

	Op        SurfaceOp // zero: none
	Sources   Sources   // earlier seqs that this event was made from; nil: member absent
	Ignorable bool      // a reader that does not know Type may resume over the event

	// Extra holds optional members of the envelope that this version does not know, as the raw text
	// of `"name":value` pairs joined by commas (no braces). They follow the known optional members.
	Extra []byte

	// Data is a compact JSON object: no white space between tokens; numbers and escapes as accepted.
	Data jsontext.Value
}

// OpKind is the kind of a SurfaceOp.
type OpKind uint8

// The kinds of surface operation.
const (
	OpNone OpKind = iota
	OpAppend
	OpReplace
	OpRestore
)

// SurfaceOp says what an event does to the surface: "append", {"op":"replace","start":s,"end":e} or
// {"op":"restore","node":r}.
type SurfaceOp struct {
	Kind       OpKind
	Start, End Seq // OpReplace: the first and last node, by position on the surface, both included
	Node       Seq // OpRestore
}

// Append, Replace and Restore construct the three operations.
func Append() SurfaceOp { return SurfaceOp{Kind: OpAppend} }

// Replace returns the operation that splices out start..end (by position) and stands there instead.
func Replace(start, end Seq) SurfaceOp { return SurfaceOp{Kind: OpReplace, Start: start, End: end} }

// Restore returns the operation that takes back the replacement or hide at node.
func Restore(node Seq) SurfaceOp { return SurfaceOp{Kind: OpRestore, Node: node} }

// Span is a run of seqs, First to Last, both included.
type Span struct{ First, Last Seq }

// Sources is the list of sourceEventSeqs. Its text form keeps the way it was written: a Span of one
// seq is a number, a longer one a [first,last] pair. A non-nil empty list is written as [].
type Sources []Span

// Cite returns Sources for seqs, merging ascending runs of three and more.
func Cite(seqs ...Seq) Sources {
	out := make(Sources, 0, 4)
	for i := 0; i < len(seqs); {
		j := i
		for j+1 < len(seqs) && seqs[j+1] == seqs[j]+1 {
			j++
		}
		if j-i >= 2 {
			out = append(out, Span{seqs[i], seqs[j]})
		} else {
			for k := i; k <= j; k++ {
				out = append(out, Span{seqs[k], seqs[k]})
			}
		}
		i = j + 1
	}
	return out
}

// All yields each cited seq.
func (s Sources) All() iter.Seq[Seq] {
	return func(yield func(Seq) bool) {
		for _, sp := range s {
			for q := sp.First; q <= sp.Last; q++ {
				if !yield(q) {
					return
				}
			}
		}
	}
}

// Has reports whether seq is cited.
func (s Sources) Has(seq Seq) bool {
	for _, sp := range s {
		if sp.First <= seq && seq <= sp.Last {
			return true
		}
	}
	return false
}

// size is an upper bound of the text's length.
func (s Sources) size() int { return 36 * len(s) }

// check holds the rules that can be seen in the event alone: each cited seq is unique and below own.
func (s Sources) check(own Seq) error {
	for _, sp := range s {
		if sp.First < 0 || sp.Last < sp.First || sp.Last >= own {
			return fmt.Errorf("sourceEventSeqs %d..%d: each must be below the event's own seq %d", sp.First, sp.Last, own)
		}
	}
	sorted := s
	if !s.ascending() {
		sorted = slices.SortedFunc(slices.Values(s), bySpan)
	}
	for i := 1; i < len(sorted); i++ {
		if sorted[i].First <= sorted[i-1].Last {
			return fmt.Errorf("sourceEventSeqs cites %d twice", sorted[i].First)
		}
	}
	return nil
}

func bySpan(a, b Span) int { return cmp.Compare(a.First, b.First) }

func (s Sources) ascending() bool {
	return slices.IsSortedFunc(s, bySpan)
}

// citations answers Has in logarithmic time, for operations that ask for many nodes.
type citations []Span

// index returns s in order and without overlaps, whatever a stored log says.
func (s Sources) index() citations {
	sorted := slices.Clone(s)
	slices.SortFunc(sorted, bySpan)
	out := sorted[:0]
	for _, sp := range sorted {
		if n := len(out); n > 0 && sp.First <= out[n-1].Last {
			out[n-1].Last = max(out[n-1].Last, sp.Last)
			continue
		}
		out = append(out, sp)
	}
	return citations(out)
}

func (c citations) has(seq Seq) bool {
	i, found := slices.BinarySearchFunc(c, seq, func(sp Span, q Seq) int { return cmp.Compare(sp.First, q) })
	return found || i > 0 && seq <= c[i-1].Last
}

// Prefix is a history by reference: a stored log, a parent's first n events, or a slice. Nothing
// above it asks for all events at once. At and Range fail only when the storage behind them does;
// a seq outside [0,Len) is an error that wraps ErrRange. Safe for concurrent use.
type Prefix interface {
	Len() Seq
	At(seq Seq) (Event, error)
	// Range yields the events from..to-1 in order. It stops after the first error.
	Range(from, to Seq) iter.Seq2[Event, error]
}

// Lender is a Prefix that can lend its events: what f gets is valid until f returns, and costs no copy.
// A fold keeps little of what it sees; it asks for this.
type Lender interface {
	Prefix
	// Lend calls f with the events from..to-1 in order. Errors as for Range.
	Lend(from, to Seq, f func(Event)) error
}

// Lend calls f with the events from..to-1 of p, which are valid until f returns.
func Lend(p Prefix, from, to Seq, f func(Event)) error {
	switch p := p.(type) {
	case Lender:
		return p.Lend(from, to, f)
	case sub:
		return Lend(p.p, from, min(to, p.n), f)
	}
	for ev, err := range p.Range(from, to) {
		if err != nil {
			return err
		}
		f(ev)
	}
	return nil
}

// Events is a Prefix in memory: event i must have Seq i.
type Events []Event

// Len returns the number of events.
func (e Events) Len() Seq { return Seq(len(e)) }

// At returns the event at seq.
func (e Events) At(seq Seq) (Event, error) {
	if seq < 0 || seq >= Seq(len(e)) {
		return Event{}, fmt.Errorf("session: seq %d of %d: %w", seq, len(e), ErrRange)
	}
	return e[seq], nil
}

// Range yields the events from..to-1.
func (e Events) Range(from, to Seq) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for q := from; q < to; q++ {
			ev, err := e.At(q)
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// Sub returns the first n events of p, all of p if it has no more.
func Sub(p Prefix, n Seq) Prefix {
	if n >= p.Len() {
		return p
	}
	return sub{p, n}
}

type sub struct {
	p Prefix
	n Seq
}

func (s sub) Len() Seq { return s.n }

func (s sub) At(seq Seq) (Event, error) {
	if seq >= s.n {
		return Event{}, fmt.Errorf("session: seq %d of %d: %w", seq, s.n, ErrRange)
	}
	return s.p.At(seq)
}

func (s sub) Range(from, to Seq) iter.Seq2[Event, error] {
	if to <= s.n || from >= to {
		return s.p.Range(from, to)
	}
	return func(yield func(Event, error) bool) {
		for ev, err := range s.p.Range(from, s.n) {
			if !yield(ev, err) || err != nil {
				return
			}
		}
		yield(s.At(max(from, s.n)))
	}
}

// joined is a prefix and the events that follow it.
type joined struct {
	p    Prefix
	tail []Event
}

func (j joined) Len() Seq { return j.p.Len() + Seq(len(j.tail)) }

func (j joined) At(seq Seq) (Event, error) {
	n := j.p.Len()
	if seq < n {
		return j.p.At(seq)
	}
	if seq >= j.Len() {
		return Event{}, fmt.Errorf("session: seq %d of %d: %w", seq, j.Len(), ErrRange)
	}
	return j.tail[seq-n], nil
}

func (j joined) Range(from, to Seq) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		n := j.p.Len()
		if from < n {
			for ev, err := range j.p.Range(from, min(to, n)) {
				if !yield(ev, err) || err != nil {
					return
				}
			}
		}
		for q := max(from, n); q < to; q++ {
			ev, err := j.At(q)
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// Join returns p followed by more; the seqs of more must continue p.
func Join(p Prefix, more []Event) Prefix {
	if len(more) == 0 {
		return p
	}
	return joined{p, more[:len(more):len(more)]}
}
