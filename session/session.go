package session

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
)

// Env is what a Session needs from outside.
type Env struct {
	Registry *Registry    // nil: Core()
	Now      func() int64 // Unix milliseconds; required
	// Validators may veto an event before it is accepted; they see the state before it.
	Validators []Validator
}

// Validator refuses an event by an error. It must not call the session.
type Validator func(s State, ev Event) error

// Seed is what a session is constructed over: what is stored, and what whoever opened it adds to it
// (marks for lost records and closers; nothing for adoption and a bare create).
type Seed struct {
	Prefix Prefix  // nil: empty
	Repair []Event // seqs continue Prefix
	State  *State  // Prefix and Repair folded; nil: New folds them

	// Items are the beginning of the projection of State's surface, if somebody has it already (Session.Projected
	// of the parent); they are shared and not read again.
	Items []Item
}

// Draft is an event to be accepted. Data is raw JSON (jsontext.Value, []byte) or a value to marshal.
type Draft struct {
	Type      string
	Data      any
	Op        SurfaceOp
	Sources   Sources
	Ignorable bool
}

// Session is the live log of one session in this process. All methods are safe for concurrent use and
// none blocks on I/O, except that old events are read through the seed's Prefix.
type Session struct {
	header Header
	env    Env
	first  Seq // FirstLiveSeq
	birth  Seq // length of the seed's Prefix: what was stored when the session was constructed

	mu       sync.Mutex
	prefix   Prefix        // guarded by mu: the stored part; replaced by Settle
	tail     []Event       // guarded by mu: the events from prefix.Len() on; append only, elements immutable
	settled  int           // guarded by mu: how many events left the tail last
	state    State         // guarded by mu
	accepted bool          // guarded by mu: something was accepted in this life
	disposed bool          // guarded by mu
	more     chan struct{} // guarded by mu: closed when there is more; nil: nobody asked
	notify   func()        // guarded by mu; called without it

	viewMu sync.Mutex // held while items are brought up to date; taken before mu
	items  []Item     // guarded by viewMu: projection of the surface
	gen    uint64     // guarded by viewMu: generation of items
}

// New constructs a session over a seed: the one place where a life begins. Over a seed that is not empty
// it appends session/inherited, unless the seed already ends in one. It adds nothing else and writes
// nothing: what it adds is pending until the first accepted event.
func New(h Header, seed Seed, env Env) (*Session, error) {
	if env.Registry == nil {
		env.Registry = Core()
	}
	if env.Now == nil {
		return nil, errors.New("session: Env.Now is required")
	}
	if seed.Prefix == nil {
		seed.Prefix = Events(nil)
	}
	s := &Session{header: h, env: env, prefix: seed.Prefix, birth: seed.Prefix.Len()}
	s.tail = slices.Clone(seed.Repair)
	s.first = s.birth + Seq(len(seed.Repair))
	if seed.State != nil {
		if seed.State.header.ID != h.ID {
			return nil, fmt.Errorf("session: the seed's state was folded for %s, not for %s: use State.ForkTo", seed.State.header.ID, h.ID)
		}
		s.state = seed.State.Clone()
		s.state.header, s.state.reg, s.state.recent = h, env.Registry, nil
	} else {
		st, err := Fold(h, env.Registry, seed.Prefix)
		if err != nil {
			return nil, fmt.Errorf("session: folding the seed: %w", err)
		}
		for _, ev := range seed.Repair {
			st.Load(ev)
		}
		s.state = st
	}
	if s.state.next != s.first {
		return nil, fmt.Errorf("session: the seed has %d events, its state says %d", s.first, s.state.next)
	}
	if s.first > 0 && s.state.lastType != TypeInherited {
		ev := Event{Seq: s.first, Time: env.Now(), Type: TypeInherited, Data: jsontext.Value(`{}`)}
		s.tail = append(s.tail, ev)
		s.state.Load(ev)
	}
	s.items = slices.Clip(seed.Items[:s.state.surf.agrees(seed.Items)])
	s.gen = s.state.surf.gen
	return s, nil
}

// ID returns the session's id.
func (s *Session) ID() ID { return s.header.ID }

// Header returns the session's header.
func (s *Session) Header() Header { return s.header }

// FirstLiveSeq is the length of the seed: an opening event below it was written by an earlier life.
func (s *Session) FirstLiveSeq() Seq { return s.first }

// Len is the number of events, the pending prefix included.
func (s *Session) Len() Seq {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.next
}

// Head is what the outside may see: the length of the stored seed until the first accepted event, then
// Len. Events at or above it must not be named by anything that outlives the process.
func (s *Session) Head() Seq {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head()
}

func (s *Session) head() Seq {
	if s.accepted {
		return s.state.next
	}
	return s.birth
}

// State returns the folded state as it is now, the pending prefix included.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Clone()
}

// Events returns all events, the pending prefix included, as they are now.
func (s *Session) Events() Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	return joined{s.prefix, slices.Clip(s.tail)}
}

// At returns one event, the pending prefix included.
func (s *Session) At(seq Seq) (Event, error) { return s.Events().At(seq) }

// Append accepts one event. Once it returns the event is immutable and has its seq; it is not yet on disk.
// Errors: *RejectedError, *UnsupportedError, ErrDisposed.
func (s *Session) Append(d Draft) (Event, error) {
	evs, err := s.appendTold(nil, []Draft{d})
	if err != nil {
		return Event{}, err
	}
	return evs[0], nil
}

// AppendAll accepts all drafts with adjacent seqs, or none. check, if not nil, sees the state as it is, in
// the same critical section: locks that live in the log are taken this way. It must not call the session.
func (s *Session) AppendAll(check func(State) error, drafts ...Draft) ([]Event, error) {
	if check == nil {
		return s.appendTold(nil, drafts)
	}
	return s.appendTold(func(st State) ([]Draft, error) { return nil, check(st) }, drafts)
}

// AppendFunc is AppendAll for drafts that depend on the state: build sees it and returns them. The first
// draft gets the seq State.Next. No drafts: nothing happens.
func (s *Session) AppendFunc(build func(State) ([]Draft, error)) ([]Event, error) {
	return s.appendTold(build, nil)
}

func (s *Session) appendTold(build func(State) ([]Draft, error), drafts []Draft) ([]Event, error) {
	var few [1]prepared
	ready := few[:0]
	for i := range drafts {
		ready = append(ready, s.prepare(&drafts[i]))
	}
	evs, notify, err := s.append(build, ready)
	if notify != nil {
		notify()
	}
	return evs, err
}

// Room for new events: first a little, so that a session that rests holds little, then as much as was given away at once
// when the tail was cut last. Events are wide: to grow by doubling copies as many as there are.
const (
	firstTail  = 16
	secondTail = 64
	mostTail   = 1024
)

// grown returns tail with room for one more event at least. Others may read the old one.
func (s *Session) grown(tail []Event) []Event {
	n := firstTail
	switch {
	case cap(tail) >= secondTail:
		n = max(2*cap(tail), min(s.settled, mostTail))
	case cap(tail) > 0:
		n = max(2*cap(tail), secondTail)
	}
	return append(make([]Event, 0, n), tail...)
}

// append accepts what is ready, and what build adds to it, under the lock; it returns who is to be told once the lock
// is free.
func (s *Session) append(build func(State) ([]Draft, error), ready []prepared) (_ []Event, notify func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.disposed {
		return nil, nil, fmt.Errorf("session %s: %w", s.header.ID, ErrDisposed)
	}
	if len(s.state.unknown) > 0 {
		return nil, nil, &UnsupportedError{Types: s.state.Unknown()}
	}
	if build != nil {
		drafts, err := build(s.state.Clone())
		if err != nil {
			return nil, nil, err
		}
		for i := range drafts {
			ready = append(ready, s.prepare(&drafts[i]))
		}
	}
	if len(ready) == 0 {
		return nil, nil, nil
	}
	tail, st := s.tail, &s.state
	if len(ready) > 1 {
		// A plain copy of the state: what a refused draft appended to a list lies behind the length of ours,
		// and lists are handed out clipped only. A single draft is refused before it changes anything.
		c := s.state
		st = &c
	}
	for i := range ready {
		if err := s.accept(st, &ready[i], tail); err != nil {
			return nil, nil, err
		}
		if len(tail) == cap(tail) {
			tail = s.grown(tail)
		}
		tail = append(tail, ready[i].ev)
	}
	evs := tail[len(s.tail):len(tail):len(tail)]
	if st != &s.state {
		s.state = *st
	}
	s.tail, s.accepted = tail, true
	s.signal()
	return evs, s.notify, nil
}

// signal wakes whoever waits on the channel of From.
func (s *Session) signal() {
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}

// Notify has f called after each accepted batch, by the goroutine that appended and with no lock held: f
// must not block. It is for the one that makes the session durable, so that an idle session costs no
// goroutine; everybody else waits on the channel of From. nil ends it.
func (s *Session) Notify(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notify = f
}

// fromBatch bounds what From reads from storage at once.
const fromBatch = 256

// From is the one way out: the events from seq on, as far as the outside may see them (Head), and a
// channel that is closed when there are more. Old events come in batches: call again while it returns any.
func (s *Session) From(seq Seq) ([]Event, <-chan struct{}, error) {
	s.mu.Lock()
	if s.more == nil {
		s.more = make(chan struct{})
	}
	head, more, prefix, tail := s.head(), s.more, s.prefix, slices.Clip(s.tail)
	s.mu.Unlock()
	switch stored := prefix.Len(); {
	case seq < 0:
		return nil, nil, fmt.Errorf("session: from seq %d: %w", seq, ErrRange)
	case seq >= head:
		return nil, more, nil
	case seq >= stored:
		return tail[seq-stored : head-stored : head-stored], more, nil
	default:
		to := min(stored, head, seq+fromBatch)
		out := make([]Event, 0, to-seq)
		for ev, err := range prefix.Range(seq, to) {
			if err != nil {
				return nil, nil, err
			}
			out = append(out, ev)
		}
		return out, more, nil
	}
}

// Settle replaces the stored part of the session by p, which holds the same events and maybe more of them:
// whoever makes the session durable calls it, so that memory holds what is not written yet and no more.
// The caller vouches that p stays readable as long as the session lives.
func (s *Session) Settle(p Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := p.Len() - s.prefix.Len()
	if n < 0 || n > Seq(len(s.tail)) || !s.accepted {
		return
	}
	s.prefix, s.settled = p, int(n)
	s.tail = slices.Clone(s.tail[n:])
}

// Surface returns the surface as items, in order. The slice is capped and its items are shared; it fails
// only when old events cannot be read.
func (s *Session) Surface() ([]Item, State, error) {
	s.viewMu.Lock()
	defer s.viewMu.Unlock()
	s.mu.Lock()
	st, events := s.state.Clone(), joined{s.prefix, slices.Clip(s.tail)}
	s.mu.Unlock()
	if st.surf.gen != s.gen {
		s.items, s.gen = s.rebuilt(st), st.surf.gen
	}
	items, err := projectFrom(st, events.At, s.items)
	s.items = items
	if err != nil {
		return nil, st, err
	}
	return slices.Clip(items), st, nil
}

// rebuilt keeps the longest common beginning of the old projection and the new surface: a replacement near
// the tail does not read everything again.
func (s *Session) rebuilt(st State) []Item {
	return slices.Clone(s.items[:st.surf.agrees(s.items)])
}

// Projected returns the beginning of the surface below seq, as far as it was read already: what a child that begins
// with the events below seq need not read again. The slice is capped and its items are shared.
func (s *Session) Projected(below Seq) []Item {
	s.viewMu.Lock()
	defer s.viewMu.Unlock()
	for i, it := range s.items {
		if it.Seq >= below {
			return s.items[:i:i]
		}
	}
	return slices.Clip(s.items)
}

// Messages returns the surface's messages, verbatim. The slice is the caller's; the messages are shared.
func (s *Session) Messages() ([]message.Message, error) {
	items, _, err := s.Surface()
	if err != nil {
		return nil, err
	}
	return Messages(items), nil
}

// Dispose ends the session: no event is accepted afterwards. Idempotent.
func (s *Session) Dispose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.disposed {
		s.disposed = true
		s.signal()
	}
}

// Disposed reports whether Dispose was called.
func (s *Session) Disposed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.disposed
}
