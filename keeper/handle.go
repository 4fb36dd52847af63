package keeper

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Handle is a session that is attached to the store. All methods are safe for concurrent use.
type Handle struct {
	k      *Keeper
	sess   *session.Session
	w      store.Writer
	header session.Header
	// pendingEnd is the length of the log before the first accepted event of this life: what is below is
	// written together with that event, or not at all.
	pendingEnd session.Seq

	mu       sync.Mutex
	accepted bool          // guarded by mu: something was accepted; stays true
	next     session.Seq   // guarded by mu: written up to here; moved by the drainer only
	synced   session.Seq   // guarded by mu: synced up to here; moved by the drainer only
	saved    error         // guarded by mu: why not everything is saved
	dead     error         // guarded by mu: another life has the session; no more writes
	over     bool          // guarded by mu: dead, and nothing is left to do about it
	waiters  []*waiter     // guarded by mu: flushes that the drainer has not taken yet
	drainer  chan struct{} // guarded by mu: closed when the drainer ends; nil: there is none
	stopped  bool          // guarded by mu: no drainer is started any more
	gone     bool          // guarded by mu: the lease is released
	grown    chan struct{} // guarded by mu: closed when synced moves; nil: nobody asked

	kicked atomic.Bool // something was accepted since the drainer looked; changed under mu

	unsettled int // owned by the drainer: bytes written since memory was given back
	fold      folding
}

// waiter is a flush that waits until everything below target is synced.
type waiter struct {
	target session.Seq
	done   chan error // buffered
}

func newHandle(k *Keeper, s *session.Session, w store.Writer, next session.Seq, f folding) *Handle {
	h := &Handle{k: k, sess: s, w: w, header: w.Header(), next: next, synced: next, fold: f}
	h.pendingEnd = s.FirstLiveSeq()
	// Only the constructor writes a boundary, so one that stands there is pending.
	if ev, err := s.At(h.pendingEnd); err == nil && ev.Type == session.TypeInherited {
		h.pendingEnd++
	}
	return h
}

// hasAccepted reports whether there is anything to write; h.mu is held.
func (h *Handle) hasAccepted() bool {
	if !h.accepted {
		h.accepted = h.sess.Len() > h.pendingEnd
	}
	return h.accepted
}

// Session returns the session.
func (h *Handle) Session() *session.Session { return h.sess }

// Header returns the stored header.
func (h *Handle) Header() session.Header { return h.header }

// Torn is what a dead writer left behind the last good record, nil if nothing.
func (h *Handle) Torn() *store.Range {
	if o := h.w.Opened(); o != nil {
		return o.Torn
	}
	return nil
}

// repaired tells the log as it was read from what a repair made of it, or of what it begins with.
func (h *Handle) repaired() string {
	if o := h.w.Opened(); o != nil {
		return o.Repaired
	}
	return ""
}

// Synced is the seq below which everything survives loss of power.
func (h *Handle) Synced() session.Seq {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.synced
}

// Durable is Synced, with a channel that is closed when it has moved: for a cursor that may only tell of what no later
// life can take back.
func (h *Handle) Durable() (session.Seq, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.grown == nil {
		h.grown = make(chan struct{})
	}
	return h.synced, h.grown
}

// Saved returns nil while writing succeeds, else what stands in the way now: a *store.NotSavedError (saving
// is tried again with the next event and at each flush), or, for good, a *store.FencedError or
// *store.ExistsError: then the session accepts no more events.
func (h *Handle) Saved() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.saved
}

// Full reports whether so much waits to be written that no more work should be begun. Appending still succeeds.
func (h *Handle) Full() bool {
	h.mu.Lock()
	from := h.next
	ok := h.hasAccepted()
	h.mu.Unlock()
	if !ok {
		return false
	}
	if h.sess.Head()-from >= session.Seq(h.k.opt.QueueEvents) {
		return true
	}
	bytes := int64(0)
	for _, ev := range h.from(from) {
		bytes += int64(size(ev))
	}
	return bytes >= h.k.opt.QueueBytes
}

// size is about what an event costs in memory.
func size(ev session.Event) int { return len(ev.Data) + len(ev.Extra) + 160 }

// Unsaved returns the accepted events that are not known to be synced, the pending prefix before them
// included; nil if there are none, or if a fork has them.
func (h *Handle) Unsaved() []session.Event {
	h.mu.Lock()
	from, ok := h.synced, h.hasAccepted() && !(h.over && errors.Is(h.dead, store.ErrFenced))
	h.mu.Unlock()
	if !ok {
		return nil
	}
	return h.from(from)
}

// from returns all events from seq on, as far as they can be read: unsynced ones are in memory.
func (h *Handle) from(seq session.Seq) []session.Event {
	var out []session.Event
	for {
		evs, _, err := h.sess.From(seq)
		if err != nil || len(evs) == 0 {
			return out
		}
		if out == nil {
			out = evs
		} else {
			out = append(out, evs...)
		}
		seq += session.Seq(len(evs))
	}
}

// Flush returns nil when everything accepted before the call is synced; concurrent callers share a write and
// a sync, and if nothing was accepted since the last sync the store is not asked. It tries again what failed
// before. Errors: *store.NotSavedError (nothing is lost: call again), *store.FencedError,
// *store.ExistsError, store.ErrClosed. When ctx ends the error is context.Cause; saving goes on.
func (h *Handle) Flush(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	var target session.Seq
	if h.hasAccepted() {
		target = h.sess.Head()
	}
	switch {
	case h.over:
		defer h.mu.Unlock()
		return h.saved
	case h.dead == nil && target <= h.synced:
		h.mu.Unlock()
		return nil
	case h.stopped:
		h.mu.Unlock()
		return fmt.Errorf("keeper: session %s: %w", h.header.ID, store.ErrClosed)
	}
	w := &waiter{target: target, done: make(chan error, 1)}
	h.waiters = append(h.waiters, w)
	h.start()
	h.mu.Unlock()
	select {
	case err := <-w.done:
		// Who is answered runs at once, in the time of who answered: sessions that never rest would each keep a processor for
		// some turns, and let all others wait. So whoever was served lets those go first who are ready.
		runtime.Gosched()
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Dispose stops admission, saves, releases the lease and forgets the session; then its id may be used again.
// If saving fails, session, lease and events are kept, the error is the one of Flush and Dispose may be
// called again (or Abandon). A session that was fenced is let go once its events are in a fork; the error
// names it. Disposing again is nil.
func (h *Handle) Dispose(ctx context.Context) error {
	unlock, err := h.k.lock(ctx, h.header.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if h.isGone() {
		return nil
	}
	h.sess.Dispose()
	err = h.Flush(ctx)
	if err != nil && !h.isOver() {
		return err
	}
	return errors.Join(err, h.release(ctx))
}

// Abandon is for a process on its way out: it releases the lease without saving, forgets the session and
// returns what was not saved, so that it can be written somewhere else. ctx bounds the wait for a write that
// is under way.
func (h *Handle) Abandon(ctx context.Context) ([]session.Event, error) {
	unlock, err := h.k.lock(ctx, h.header.ID)
	if err != nil {
		return h.Unsaved(), err
	}
	defer unlock()
	if h.isGone() {
		return nil, nil
	}
	h.sess.Dispose()
	if err := h.wait(ctx); err != nil {
		return h.Unsaved(), err
	}
	unsaved := h.Unsaved()
	return unsaved, h.release(ctx)
}

func (h *Handle) isGone() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// isOver reports that there is nothing left to save here: another life has the session.
func (h *Handle) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

// release ends the drainer and the writer and frees the id. The id lock is held, the session disposed.
func (h *Handle) release(ctx context.Context) error {
	letGo := func() error {
		err := h.k.detach(h, h.w)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.gone = true
		return err
	}
	err := h.k.lv.Dispose(context.WithoutCancel(ctx), h.sess, letGo)
	if h.isGone() {
		return err
	}
	return letGo() // somebody else takes it, or has taken it, out of the registry
}
