// Package keeper makes live sessions durable without ever blocking an append.
//
// A session accepts events in memory. The keeper follows it by a cursor and brings what was accepted to the
// store: written as soon as possible, synced when somebody flushes. A session that is attached to a keeper
// has a Handle; that is where to flush, to ask whether everything is saved, and to let go.
//
// How it works. Each handle has one position, next, up to which the store has written. An append wakes the
// handle's drainer, a goroutine that exists only while there is something to write: it takes everything from
// next on as one batch, writes it, and looks again; what was accepted meanwhile is the next batch. A flush
// leaves a waiter with the drainer; all waiters that are there when the write is done share one sync. An idle
// session costs no goroutine and holds only events that are not synced, and a few more.
//
// What never happens. The pending prefix of a life (closers and boundary) is not written alone: the first
// write of a life holds it together with the first accepted event, so resume-then-quit leaves the store as it
// was. A failed write loses nothing and passes nothing: the events stay in order in the session, the handle
// says "not saved", and the next event or flush tries again. An error never poisons the queue.
//
// Fencing. If another life got there first, this one ends: the session accepts no more events, what it still
// holds is saved as a fork at the last common seq, and Saved, Flush and Dispose return a *store.FencedError
// that names the fork.
//
// Lock order: the id lock of the keeper, Handle.mu, the session's own lock. No store call is made under
// Handle.mu. Observers of the live registry are called under the id lock: they must not wait for an operation
// of the keeper on the same id.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/strandline-dev/strandline/live"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Options are what a Keeper needs from outside.
type Options struct {
	Now        func() int64        // Unix milliseconds; required
	NewID      func() session.ID   // for forks without a chosen id; required
	Registry   *session.Registry   // nil: the core vocabulary
	Validators []session.Validator // for the sessions made here
	// Link returns the link of the record of ev behind a record with link prev. With it adoption compares
	// the stored log by one value and reads it only to say where two logs differ; nil: event by event.
	Link func(prev session.Link, ev session.Event) (session.Link, error)
	// CheckFold is asked whenever a session is opened behind a checkpoint: whether to hold it to a fold of the whole
	// log, and not to open the session if they differ. Nil: never.
	CheckFold func() bool
	// Holder is this process, for ErrBusy answers when the store does not name it.
	Holder store.Holder
	// Path is what a person knows the store by, for "not saved" answers.
	Path string
	// QueueEvents and QueueBytes are the limits of what may wait to be saved; 0: 16,384 events, 64 MiB.
	QueueEvents int
	QueueBytes  int64
}

// The limits that stand in for zero Options.
const (
	DefaultQueueEvents = 16384
	DefaultQueueBytes  = 64 << 20
)

// Keeper attaches live sessions to a store. All methods are safe for concurrent use; operations on one id
// are done one after the other, those on different ids in parallel.
type Keeper struct {
	st  store.Store
	lv  *live.Registry
	opt Options

	mu      sync.Mutex
	closed  bool                   // guarded by mu
	handles map[session.ID]*Handle // guarded by mu
	claims  map[session.ID]*Claim  // guarded by mu
	locks   map[session.ID]*idLock // guarded by mu
	shared  *inherited             // guarded by mu: of the subagents that were opened last; never changed, only replaced
}

// idLock serialises the operations on one id; it exists while somebody holds it or waits.
type idLock struct {
	token chan struct{}
	users int // guarded by Keeper.mu
}

// New returns a keeper of the sessions in lv. It panics without a clock or a source of ids: that is a
// mistake in the program.
func New(st store.Store, lv *live.Registry, opt Options) *Keeper {
	if opt.Now == nil || opt.NewID == nil {
		panic("keeper: Options.Now and Options.NewID are required")
	}
	if opt.Registry == nil {
		opt.Registry = session.Core()
	}
	if opt.QueueEvents == 0 {
		opt.QueueEvents = DefaultQueueEvents
	}
	if opt.QueueBytes == 0 {
		opt.QueueBytes = DefaultQueueBytes
	}
	return &Keeper{
		st: st, lv: lv, opt: opt,
		handles: make(map[session.ID]*Handle),
		claims:  make(map[session.ID]*Claim),
		locks:   make(map[session.ID]*idLock),
	}
}

// Store returns the store that the keeper writes to.
func (k *Keeper) Store() store.Store { return k.st }

// Get returns the handle of a session that is attached here.
func (k *Keeper) Get(id session.ID) (*Handle, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h, ok := k.handles[id]
	return h, ok
}

// Handles returns all handles, in no order.
func (k *Keeper) Handles() []*Handle {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]*Handle, 0, len(k.handles))
	for _, h := range k.handles {
		out = append(out, h)
	}
	return out
}

// lock takes the id lock; it fails with context.Cause.
func (k *Keeper) lock(ctx context.Context, id session.ID) (unlock func(), err error) {
	k.mu.Lock()
	l, ok := k.locks[id]
	if !ok {
		l = &idLock{token: make(chan struct{}, 1)}
		k.locks[id] = l
	}
	l.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.locks, id)
		}
	}
	if err := context.Cause(ctx); err != nil {
		leave()
		return nil, err
	}
	select {
	case l.token <- struct{}{}:
		return func() { <-l.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// begin takes the id lock for an operation that attaches something.
func (k *Keeper) begin(ctx context.Context, id session.ID) (unlock func(), err error) {
	k.mu.Lock()
	closed := k.closed
	k.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("keeper: %w", store.ErrClosed)
	}
	return k.lock(ctx, id)
}

// busy says that this process holds the session itself.
func (k *Keeper) busy(ctx context.Context, id session.ID) error {
	holder := k.opt.Holder
	holder.SessionID = id
	if st, err := k.st.Stat(ctx, id); err == nil && st.Holder != nil {
		holder = *st.Holder
	}
	return &store.BusyError{ID: id, Holder: &holder}
}

// closers bounds how many sessions are disposed at the same time by Close; the store bounds the syncs.
const closers = 64

// Close saves and disposes of every session, releases every claim and returns the joined errors. From its
// first call on nothing new is attached. Sessions that could not be saved stay, with their leases and their
// events: call it again, or Abandon them. It does not close the store.
func (k *Keeper) Close(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	var handles []*Handle
	for _, h := range k.handles {
		handles = append(handles, h)
	}
	var claims []*Claim
	for _, c := range k.claims {
		claims = append(claims, c)
	}
	k.mu.Unlock()

	errs := make([]error, len(handles)+len(claims))
	var wg sync.WaitGroup
	slots := make(chan struct{}, closers)
	for i, h := range handles {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = h.Dispose(ctx)
		})
	}
	for i, c := range claims {
		errs[len(handles)+i] = c.Release()
	}
	wg.Wait()
	return errors.Join(slices.Clip(errs)...)
}
