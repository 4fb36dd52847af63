package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Inspection is a session as it is stored now, or as it was at a seq, seen from outside: no lease is taken
// and nothing is written. Close it.
type Inspection struct {
	Snap   *store.Snapshot
	Stat   store.Stat
	State  session.State  // folded over Prefix
	Prefix session.Prefix // of Snap, cut where it was asked for
	// Base is the seq below which an open bracket is dead: that of the holder, or the length of the log
	// when nobody holds it. For the past it is the last boundary: whoever wrote an event was alive then.
	Base session.Seq
}

// Inspect reads a session behind its checkpoint, if there is one: earlier events are read when they are asked for, and
// only then damage is met there (a *store.DamagedError; see InspectWhole). at, if not nil, is the last event to be
// looked at.
func (a *App) Inspect(ctx context.Context, id session.ID, at *session.Seq) (*Inspection, error) {
	return a.inspectBy(ctx, id, at, func(ctx context.Context, id session.ID) (*store.Snapshot, error) {
		snap, err := store.ReadTail(ctx, a.Store, id)
		if err == nil && checkFold() {
			if err := store.CheckFold(snap, a.Registry); err != nil && !errors.Is(err, store.ErrDamaged) {
				return nil, errors.Join(err, snap.Close())
			}
		}
		return snap, err
	})
}

// InspectWhole is Inspect of a log that is read whole; of a damaged one also what is behind the damage, with a mark for
// each event that is missing.
func (a *App) InspectWhole(ctx context.Context, id session.ID, at *session.Seq) (*Inspection, error) {
	return a.inspectBy(ctx, id, at, a.Store.Read)
}

func (a *App) inspectBy(ctx context.Context, id session.ID, at *session.Seq, read func(context.Context, session.ID) (*store.Snapshot, error)) (*Inspection, error) {
	snap, stat, err := store.ReadSettled(ctx, a.Store, id, read)
	if err != nil {
		return nil, err
	}
	var ins *Inspection
	if len(snap.Damage) == 0 {
		if ins, err = a.inspect(snap, stat, at); !errors.Is(err, store.ErrDamaged) {
			return ins, err
		}
		// Found only now, because it lies beside the log: a value that one event needs.
	}
	if snap, stat, err = a.salvage(ctx, id, snap, stat); err != nil {
		return nil, err
	}
	return a.inspect(snap, stat, at)
}

// salvage takes the place of before, a snapshot of a damaged session, which is closed.
func (a *App) salvage(ctx context.Context, id session.ID, before *store.Snapshot, stat store.Stat) (*store.Snapshot, store.Stat, error) {
	r, ok := a.Store.(store.Repairer)
	if !ok {
		return before, stat, nil
	}
	if err := before.Close(); err != nil {
		return nil, stat, err
	}
	return store.ReadSettled(ctx, a.Store, id, r.Salvage)
}

// inspect makes an inspection of snap, which is closed if that fails.
func (a *App) inspect(snap *store.Snapshot, stat store.Stat, at *session.Seq) (*Inspection, error) {
	prefix := snap.Prefix
	if at != nil {
		if n := prefix.Len(); *at < 0 || *at >= n {
			_ = snap.Close()
			return nil, &UsageError{fmt.Sprintf("--at %d", *at), fmt.Sprintf("the session has %d events", n), fmt.Sprintf("give a seq from 0 to %d", n-1)}
		}
		prefix = session.Sub(prefix, *at+1)
	}
	ins, err := a.inspection(snap, stat, prefix)
	if err != nil {
		_ = snap.Close()
	}
	return ins, err
}

// inspection folds prefix, which is snap's or the beginning of it.
func (a *App) inspection(snap *store.Snapshot, stat store.Stat, prefix session.Prefix) (*Inspection, error) {
	st, err := store.FoldTo(snap, a.Registry, prefix.Len())
	if err != nil {
		return nil, fmt.Errorf("reading session %s: %w", stat.ID, err)
	}
	ins := &Inspection{Snap: snap, Stat: stat, Prefix: prefix, State: st}
	if ins.Base = stat.LiveBase(st.Next()); prefix.Len() < snap.Prefix.Len() {
		ins.Base = max(st.LastBoundary(), 0)
	}
	return ins, nil
}

// Behind reports whether something of the log was not read yet, because a checkpoint stands for it.
func (i *Inspection) Behind() bool { return i.Snap.Nearest != nil }

// Close frees what the inspection holds on to.
func (i *Inspection) Close() error { return i.Snap.Close() }

// Title returns the session's title, or else one made of what a person said first; "" if nobody said anything. An error
// is one of reading the log.
func (i *Inspection) Title() (string, error) {
	if t := i.State.Title().Title; t != "" {
		return t, nil
	}
	for ev, err := range i.Prefix.Range(0, i.Prefix.Len()) {
		if err != nil {
			return "", err
		}
		if ev.Type == session.TypeUserMessage && ev.Op.Kind == session.OpAppend {
			if words := brief.Title(session.Project(ev).Message); words != "" {
				return words, nil
			}
		}
	}
	return "", nil
}

// running reports whether the holder works on the open turn: whether it has written anything, for the first that a
// life writes ends a turn of another's that it does not take up.
func (i *Inspection) running() bool { return i.Base < i.State.Next() }

// Activity says what the session does now.
func (i *Inspection) Activity() Activity {
	_, open := i.State.Turn()
	switch {
	case !open:
		return ActivityIdle
	case len(i.State.Asks()) > 0:
		return ActivityWaiting
	case i.running():
		return ActivityRunning
	default:
		return ActivityInterrupted
	}
}

// Bracket is a bracket as stat and doctor tell it.
type Bracket struct {
	Type  string               `json:"type"`
	Seq   session.Seq          `json:"seq"`
	Close *session.Seq         `json:"close,omitzero"`
	State session.BracketState `json:"state"`
}

// Brackets returns all brackets of the log.
func (i *Inspection) Brackets() []Bracket {
	out := []Bracket{}
	for _, b := range i.State.Brackets(i.Base) {
		o := Bracket{Type: b.Type, Seq: b.Open, State: b.State}
		if b.Close != session.None {
			o.Close = &b.Close
		}
		out = append(out, o)
	}
	return out
}

// CallState says how a call without a result is to be read.
type CallState string

// The states of an open call.
const (
	CallRunning    CallState = "running"
	CallUnknown    CallState = "unknown" // it was started; its outcome is not known
	CallNotStarted CallState = "not-started"
	CallWaiting    CallState = "waiting" // for a person
)

// OpenCall is a call without a result. Seq is its tool/call, or the assistant message where none is recorded.
type OpenCall struct {
	Seq    session.Seq `json:"seq"`
	Name   string      `json:"name"`
	State  CallState   `json:"state"`
	CallID string      `json:"callId"`
	Key    string      `json:"idempotencyKey"`
}

// OpenCalls returns the calls without a result.
func (i *Inspection) OpenCalls() []OpenCall {
	out := []OpenCall{}
	for _, c := range i.State.OpenCalls() {
		o := OpenCall{Seq: c.Started, Name: c.Name, CallID: c.ID, Key: i.State.IdempotencyKey(c.Assistant, c.Index)}
		switch {
		case c.Started == session.None && i.State.Waiting(c):
			o.State = CallWaiting
		case c.Started == session.None:
			o.State = CallNotStarted
		case c.Pending && c.Started >= i.Base:
			o.State = CallRunning
		default:
			o.State = CallUnknown
		}
		if c.Started == session.None {
			o.Seq = c.Assistant
		}
		out = append(out, o)
	}
	return out
}

// Stat is what `show --stat` tells.
type Stat struct {
	ID           session.ID     `json:"id"`
	Header       session.Header `json:"header"`
	Title        string         `json:"title"`
	Events       session.Seq    `json:"events"`
	FirstLiveSeq *session.Seq   `json:"firstLiveSeq"` // of the last boundary
	Turns        int            `json:"turns"`
	Steps        int            `json:"steps"`
	ToolCalls    int            `json:"toolCalls"`
	Surface      int            `json:"surface"`
	Usage        Usage          `json:"usage"`
	OwnUsage     Usage          `json:"ownUsage"` // without the part that a fork shares with its parent
	State        store.State    `json:"state"`
	Reason       string         `json:"reason"`
	Activity     Activity       `json:"activity"`
	LastActivity int64          `json:"lastActivity"`
	Brackets     []Bracket      `json:"brackets"`
	OpenCalls    []OpenCall     `json:"openCalls"`
	Base         session.Seq    `json:"base"`
	Waiting      []Question     `json:"waiting"` // for a person
	Boundaries   []session.Seq  `json:"boundaries"`
	Holder       *Holder        `json:"holder"`
	Children     []Child        `json:"children,omitempty"` // subagents, in the order of their starts
	Lineage      *Lineage       `json:"lineage,omitzero"`   // of an imported session

	// Totals fills these in. What is "own" is without what the session inherited, as in OwnUsage, and so are the times:
	// summed over sessions they are what Stats says.
	Cost         *Cost `json:"cost,omitzero"`    // of Usage
	OwnCost      *Cost `json:"ownCost,omitzero"` // of OwnUsage
	OwnSteps     *int  `json:"ownSteps,omitzero"`
	OwnToolCalls *int  `json:"ownToolCalls,omitzero"`
	Times
	Gauge *Gauge `json:"gauge,omitzero"` // nil: nothing was asked of a model yet
	Tree  *Tree  `json:"tree,omitzero"`
}

// Report returns the facts of the session. An error is one of reading its log; of a log that is known to be damaged there
// is none, and what cannot be read is missing.
func (i *Inspection) Report() (Stat, error) {
	title, err := i.Title()
	if err != nil && i.Err() == nil {
		return Stat{}, err
	}
	s := Stat{
		ID: i.Stat.ID, Header: i.Snap.Header, Title: title, Events: i.State.Next(), Turns: i.State.Turns(),
		Steps: i.State.Steps(), ToolCalls: i.State.ToolCalls(),
		Surface: i.State.SurfaceLen(), State: i.Stat.State, Reason: i.Stat.Reason, Activity: i.Activity(),
		LastActivity: i.State.LastActivity(), Brackets: i.Brackets(), OpenCalls: i.OpenCalls(), Base: i.Base,
		Waiting: i.Questions(), Boundaries: i.State.Boundaries(), Holder: HolderOf(i.Stat.Holder),
	}
	s.Children = i.Children()
	total, own := i.State.Usage()
	s.Usage, s.OwnUsage = Usage{total}, Usage{own}
	if b := i.State.LastBoundary(); b != session.None {
		s.FirstLiveSeq = &b
	}
	if len(i.Snap.Damage) > 0 && s.State != store.StateDamaged {
		s.State, s.Reason = store.StateDamaged, i.Snap.Damage[0].Detail
	}
	if types := i.State.Unknown(); len(types) > 0 && s.State != store.StateDamaged && s.State != store.StateUnsupported {
		s.State, s.Reason = store.StateUnsupported, (&session.UnsupportedError{Types: types}).Reason()
	}
	return s, nil
}

// Err returns why the session cannot be trusted whole or written to: *store.DamagedError,
// *store.UnsupportedError, or nil.
func (i *Inspection) Err() error {
	if len(i.Snap.Damage) > 0 {
		return &store.DamagedError{ID: i.Stat.ID, Ranges: i.Snap.Damage}
	}
	if i.Snap.Unsupported != "" {
		return &store.UnsupportedError{ID: i.Stat.ID, Detail: i.Snap.Unsupported}
	}
	return nil
}

// chainLen is the length of a record's last member, closing brace and line end: `,"chain":"` + 22 + `"}` + LF.
const chainLen = len(`,"chain":"`) + 22 + len("\"}\n")

// AppendEvent appends the stored JSON form of ev without its chain: one line, without a line end.
func AppendEvent(dst []byte, ev session.Event) []byte {
	dst, _ = record.Append(dst, ev, session.Link{}, session.None)
	return append(dst[:len(dst)-chainLen], '}')
}
