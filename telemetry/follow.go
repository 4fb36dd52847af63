package telemetry

import (
	"context"
	"sync"

	"github.com/strandline-dev/strandline/session"
)

// Durable tells how much of a session is synced, and gives a channel that is closed when that has grown. A
// keeper.Handle does.
type Durable interface {
	Durable() (session.Seq, <-chan struct{})
}

// Follower is the cursor of one session. Its methods are safe for concurrent use.
type Follower struct {
	t *Telemetry
	s *session.Session
	d Durable

	over chan struct{}
	once sync.Once

	mu      sync.Mutex
	next    session.Seq     // guarded by mu: what Session.From was asked for so far
	waiting []session.Event // guarded by mu: accepted and not known to be synced; the session holds them, too

	fold *fold // owned by the follower's goroutine
}

// Follow begins to follow a session that begins to live, before anything is appended to it. End it, or close t. Nil
// follows nothing, and so does a closed t: its follower is nil, whose methods do nothing.
func (t *Telemetry) Follow(s *session.Session, d Durable) *Follower {
	if t == nil {
		return nil
	}
	f := &Follower{t: t, s: s, d: d, over: make(chan struct{}), next: s.FirstLiveSeq(), fold: newFold(t, s)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.followers[f] = true
	t.tasks.Go(func() {
		f.run()
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.followers, f)
	})
	return f
}

// run hands over events in order, each once it is synced. A fold that crashes follows no more; the session does not
// notice.
func (f *Follower) run() {
	defer func() {
		if recover() != nil {
			f.t.sent.crashed()
		}
	}()
	defer f.fold.close()
	for {
		more := f.pull()
		synced, grown := f.d.Durable()
		if f.tell(synced) {
			continue
		}
		select {
		case <-more:
		case <-grown:
		case <-f.over:
			f.pull()
			synced, _ := f.d.Durable()
			f.tell(synced)
			return
		}
	}
}

// pull takes what is accepted. It is called while a session lives, so that what is not synced yet need not be read
// from a store that is closed by then. The channel is closed when there is more.
func (f *Follower) pull() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		evs, more, err := f.s.From(f.next)
		if err != nil || len(evs) == 0 {
			return more // after an error nil: only End wakes it
		}
		f.waiting = append(f.waiting, evs...)
		f.next += session.Seq(len(evs))
	}
}

// tell folds what is synced and was not told.
func (f *Follower) tell(synced session.Seq) (any bool) {
	for {
		f.mu.Lock()
		if len(f.waiting) == 0 || f.waiting[0].Seq >= synced {
			f.mu.Unlock()
			return any
		}
		ev := f.waiting[0]
		f.waiting = f.waiting[1:]
		if len(f.waiting) == 0 {
			f.waiting = nil
		}
		f.mu.Unlock()
		f.fold.event(ev)
		any = true
	}
}

// Pull takes what was accepted so far. Call it before the session's store is closed.
func (f *Follower) Pull() {
	if f != nil {
		f.pull()
	}
}

// NotSaved counts that the session could not be saved. The log cannot tell that.
func (f *Follower) NotSaved() {
	if f != nil {
		f.t.meters.notSaved.Add(context.Background(), 1)
	}
}

// End ends the life: what is synced by now is told, the spans of what goes on in another life end here. It does not
// wait. Idempotent.
func (f *Follower) End() {
	if f != nil {
		f.once.Do(func() { close(f.over) })
	}
}
