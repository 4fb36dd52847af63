package agent

import (
	"context"
	"sync"
	"time"

	"github.com/strandline-dev/strandline/session"
)

// NoticeKind is the kind of a Notice.
type NoticeKind string

// The kinds. Text deltas, reasoning deltas, progress and upkeep may be dropped when a reader is slow; the others
// are kept as long as there is room for them. None of them is a fact: facts come from Session.From.
const (
	NoticeText      NoticeKind = "text"       // Text: a delta of the answer
	NoticeReasoning NoticeKind = "reasoning"  // Text: a delta of the model's reasoning
	NoticeProgress  NoticeKind = "progress"   // CallID, Name, Text: a line of a running tool
	NoticeToolStart NoticeKind = "tool-start" // CallID, Name, Text: the subject; the body starts now
	NoticeToolEnd   NoticeKind = "tool-end"   // CallID, Name, Code: "" for success
	NoticeAsk       NoticeKind = "ask"        // AskID, CallID, Name, Text: the subject: a person is asked (again)
	NoticeAnswered  NoticeKind = "answered"   // AskID, CallID, Code: the verdict
	NoticeRetry     NoticeKind = "retry"      // Code, Text, Attempt, Delay; deltas of this step are void
	NoticeStatus    NoticeKind = "status"     // State
	NoticeNotSaved  NoticeKind = "not-saved"  // Err names the path
	NoticeSaved     NoticeKind = "saved"      // saving works again
	NoticeTurnEnd   NoticeKind = "turn-end"   // Code: the reason's kind, Text: its detail
	NoticeUpkeep    NoticeKind = "upkeep"     // Text: what is done to the session meanwhile; "": nothing any more
	NoticeRemark    NoticeKind = "remark"     // Text: worth knowing
)

func (k NoticeKind) droppable() bool {
	return k == NoticeText || k == NoticeReasoning || k == NoticeProgress || k == NoticeUpkeep
}

// Notice is something that a front end may show at once. Which fields are set depends on Kind.
type Notice struct {
	Kind       NoticeKind
	Child      session.ID // whose notice it is, if not the agent's own
	Turn, Step int
	Text       string
	CallID     string
	Name       string
	AskID      string
	Code       string
	Attempt    int
	Delay      time.Duration
	State      State
	Err        error
}

// feed hands notices to subscribers without ever waiting for one.
type feed struct {
	mu     sync.Mutex
	subs   map[*Subscription]struct{} // guarded by mu
	closed bool                       // guarded by mu
}

// Subscription is one reader's place in a feed. Close it when done.
type Subscription struct {
	feed *feed
	max  int

	mu      sync.Mutex
	queue   []Notice // guarded by mu
	dropped int      // guarded by mu
	closed  bool     // guarded by mu
	signal  chan struct{}
}

// Subscribe returns a subscription to the agent's live notices, holding up to buffer (0: 1024) of them.
func (a *Agent) Subscribe(buffer int) *Subscription {
	if buffer <= 0 {
		buffer = 1024
	}
	s := &Subscription{feed: &a.feed, max: buffer, signal: make(chan struct{}, 1)}
	a.feed.mu.Lock()
	defer a.feed.mu.Unlock()
	if a.feed.closed {
		s.closed = true
		s.wake()
		return s
	}
	if a.feed.subs == nil {
		a.feed.subs = make(map[*Subscription]struct{})
	}
	a.feed.subs[s] = struct{}{}
	return s
}

func (f *feed) push(n Notice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		s.push(n)
	}
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for s := range f.subs {
		s.end()
	}
	f.subs = nil
}

func (s *Subscription) push(n Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= s.max {
		s.dropped++
		if n.Kind.droppable() {
			return
		}
		// Make room: the oldest delta, else the oldest notice.
		drop := 0
		for i, q := range s.queue {
			if q.Kind.droppable() {
				drop = i
				break
			}
		}
		s.queue = append(s.queue[:drop], s.queue[drop+1:]...)
	}
	s.queue = append(s.queue, n)
	s.wake()
}

func (s *Subscription) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

func (s *Subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake()
}

// Next returns the next notice. It waits for one until ctx ends; after the agent is disposed or the
// subscription closed, and everything was read, it returns ErrDisposed. One goroutine reads at a time.
func (s *Subscription) Next(ctx context.Context) (Notice, error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			n := s.queue[0]
			s.queue = s.queue[1:]
			s.mu.Unlock()
			return n, nil
		}
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return Notice{}, ErrDisposed
		}
		select {
		case <-s.signal:
		case <-ctx.Done():
			return Notice{}, context.Cause(ctx)
		}
	}
}

// Dropped is the number of notices that did not fit so far.
func (s *Subscription) Dropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Close ends the subscription. Idempotent.
func (s *Subscription) Close() {
	s.feed.mu.Lock()
	delete(s.feed.subs, s)
	s.feed.mu.Unlock()
	s.end()
}

// State is what an agent does at the moment.
type State string

// The states.
const (
	StateIdle     State = "idle"
	StateRunning  State = "running"
	StateWaiting  State = "waiting"   // a person is asked
	StateRetrying State = "retrying"  // a request failed and will be tried again
	StateNotSaved State = "not-saved" // stopped until saving works again
	StateDisposed State = "disposed"
)

// Status is a snapshot of an agent.
type Status struct {
	State      State
	Turn, Step int              // of the open turn, or of the last one
	Open       bool             // a turn is open (running or parked)
	Queued     int              // accepted messages that wait
	Asks       []session.Ask    // open questions, in the order of asking
	NotSaved   error            // why saving fails, nil if it does not
	LastEnd    *session.TurnEnd // how the last turn of this life ended; nil before
}
