// Package live is the registry of the sessions that live in this process: who is here, who is being made,
// who is going. It does no I/O; package keeper makes its sessions durable.
//
// An id moves through four states. Reserve takes it; Publish tells the observers that the session is
// created, each of which may veto, and makes it visible; Dispose stops it, tells the observers and frees the
// id. A reservation that fails, at whatever point, frees its id. An observer sees "disposed" for exactly the
// sessions for which it saw "created" without refusing, and a session's events only between the two.
//
// One rule about locks: no observer is called under a lock. An observer may use the registry for any id,
// with one exception: it must not wait for the end of the operation that calls it. Dispose of the very
// session that is being announced is refused (*TakenError); Dispose of the very session that is being
// disposed would wait for itself.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/strandline-dev/strandline/session"
)

// ErrTaken matches *TakenError, ErrVetoed matches *VetoError, ErrNotLive says that no such session lives here.
var (
	ErrTaken   = errors.New("session id is taken in this process")
	ErrVetoed  = errors.New("session was vetoed")
	ErrNotLive = errors.New("session is not live in this process")
)

// Phase is where an id stands.
type Phase string

// The phases of an id that is in use.
const (
	Reserved   Phase = "reserved"
	Announcing Phase = "announcing"
	Live       Phase = "live"
	Disposing  Phase = "disposing"
)

// TakenError says that an id is in use, and how far it is.
type TakenError struct {
	ID    session.ID
	Phase Phase
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("session %s is in use in this process (%s)", e.ID, e.Phase)
}

// Is matches ErrTaken.
func (e *TakenError) Is(t error) bool { return t == ErrTaken }

// VetoError says that an observer refused a session. Its id is free again.
type VetoError struct {
	ID    session.ID
	Cause error
}

func (e *VetoError) Error() string { return fmt.Sprintf("session %s was vetoed: %v", e.ID, e.Cause) }

// Unwrap returns the observer's error.
func (e *VetoError) Unwrap() error { return e.Cause }

// Is matches ErrVetoed.
func (e *VetoError) Is(t error) bool { return t == ErrVetoed }

// Observer follows the sessions of a registry. Both fields may be nil.
type Observer struct {
	// Created is told of a session before it is visible. from is the first seq of the in-process feed:
	// neither the seed nor the boundary is in it. An error vetoes the session.
	Created func(s *session.Session, from session.Seq) error
	// Disposed is told that a session has ended: it accepts no more events, or another observer refused it
	// and nobody will see it.
	Disposed func(s *session.Session)
}

// Registry holds the live sessions of a process. The zero value is not usable; see New. All methods are
// safe for concurrent use.
type Registry struct {
	mu        sync.Mutex
	entries   map[session.ID]*entry // guarded by mu
	observers []*Observer           // guarded by mu; replaced, never changed in place
	births    uint64                // guarded by mu
}

type entry struct {
	phase Phase            // guarded by Registry.mu
	sess  *session.Session // set when announced
	told  []*Observer      // saw Created without refusing, in order
	birth uint64           // order of publication
	done  chan struct{}    // closed when the id is free
}

// New returns an empty registry.
func New(observers ...Observer) *Registry {
	r := &Registry{entries: make(map[session.ID]*entry)}
	for _, o := range observers {
		r.observers = append(r.observers, &o)
	}
	return r
}

// Observe adds an observer for the sessions published from now on. stop takes it out again; it is still told
// of the disposal of sessions whose creation it saw.
func (r *Registry) Observe(o Observer) (stop func()) {
	p := &o
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observers = append(r.observers[:len(r.observers):len(r.observers)], p)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		kept := make([]*Observer, 0, len(r.observers))
		for _, q := range r.observers {
			if q != p {
				kept = append(kept, q)
			}
		}
		r.observers = kept
	}
}

// Reservation is an id that nobody else can take. It ends by Publish or by Release.
type Reservation struct {
	r  *Registry
	id session.ID
	e  *entry
}

// Reserve takes an id, or fails with *TakenError.
func (r *Registry) Reserve(id session.ID) (*Reservation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[id]; ok {
		return nil, &TakenError{ID: id, Phase: e.phase}
	}
	e := &entry{phase: Reserved, done: make(chan struct{})}
	r.entries[id] = e
	return &Reservation{r: r, id: id, e: e}, nil
}

// Release frees the id unless the session was published. Idempotent, so it can be deferred.
func (v *Reservation) Release() {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	if v.e.phase == Reserved && v.r.entries[v.id] == v.e {
		v.r.free(v.id, v.e)
	}
}

// free removes an entry; r.mu is held.
func (r *Registry) free(id session.ID, e *entry) {
	delete(r.entries, id)
	close(e.done)
}

// Publish announces s once to the observers, in the order of their registration, and makes it visible to Get
// and All. If one refuses, those told before it are told of the disposal in reverse order, the id is free
// again and the error is a *VetoError; the session itself is left to the caller. If Publish panics out of an
// observer, the same is done first.
func (v *Reservation) Publish(s *session.Session) (err error) {
	if s.ID() != v.id {
		return fmt.Errorf("live: session %s published under the reservation of %s", s.ID(), v.id)
	}
	r, e := v.r, v.e
	r.mu.Lock()
	if e.phase != Reserved || r.entries[v.id] != e {
		r.mu.Unlock()
		return fmt.Errorf("live: the reservation of session %s has ended", v.id)
	}
	e.phase, e.sess = Announcing, s
	observers := r.observers
	r.mu.Unlock()

	published := false
	defer func() {
		if published {
			return
		}
		tellDisposed(s, e.told)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.free(v.id, e)
	}()
	from := s.Len()
	for _, o := range observers {
		if o.Created != nil {
			if err := o.Created(s, from); err != nil {
				return &VetoError{ID: v.id, Cause: err}
			}
		}
		e.told = append(e.told, o)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.births++
	e.phase, e.birth = Live, r.births
	published = true
	return nil
}

func tellDisposed(s *session.Session, told []*Observer) {
	for i := len(told) - 1; i >= 0; i-- {
		if f := told[i].Disposed; f != nil {
			f(s)
		}
	}
}

// Get returns the live session with an id. A session that is being announced or disposed is not live.
func (r *Registry) Get(id session.ID) (*session.Session, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[id]; ok && e.phase == Live {
		return e.sess, true
	}
	return nil, false
}

// Phase tells where an id stands, "" if it is free.
func (r *Registry) Phase(id session.ID) Phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[id]; ok {
		return e.phase
	}
	return ""
}

// All returns the live sessions in the order of their publication.
func (r *Registry) All() []*session.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	es := make([]*entry, 0, len(r.entries))
	for _, e := range r.entries {
		if e.phase == Live {
			es = append(es, e)
		}
	}
	return ordered(es)
}

// Dispose ends a live session: it accepts no more events, then release (if not nil) lets go of what is held
// for it, then the observers are told, in reverse order, and then the id is free. A second caller waits for
// the first and gets nil. Errors: ErrNotLive; *TakenError while the session is being made; context.Cause
// when ctx ends while waiting; what release returned, which does not stop the disposal.
func (r *Registry) Dispose(ctx context.Context, s *session.Session, release func() error) error {
	r.mu.Lock()
	e, ok := r.entries[s.ID()]
	switch {
	case !ok || e.sess != s:
		r.mu.Unlock()
		return fmt.Errorf("session %s: %w", s.ID(), ErrNotLive)
	case e.phase == Disposing:
		r.mu.Unlock()
		select {
		case <-e.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case e.phase != Live:
		r.mu.Unlock()
		return &TakenError{ID: s.ID(), Phase: e.phase}
	}
	e.phase = Disposing
	r.mu.Unlock()

	defer func() { // also when a callback panics: an id is never wedged
		r.mu.Lock()
		defer r.mu.Unlock()
		r.free(s.ID(), e)
	}()
	s.Dispose()
	var err error
	if release != nil {
		err = release()
	}
	tellDisposed(s, e.told)
	return err
}

func ordered(es []*entry) []*session.Session {
	slices.SortFunc(es, func(a, b *entry) int { return cmp.Compare(a.birth, b.birth) })
	out := make([]*session.Session, len(es))
	for i, e := range es {
		out[i] = e.sess
	}
	return out
}
