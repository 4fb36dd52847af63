package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// What is written and not synced is held in memory too, so that a failed sync can be made good; behind these
// limits the drainer syncs without being asked. Memory is given back when this much of it is synced.
const (
	syncEvents  = 1024
	settleBytes = 8 << 10
)

// follow begins to write: what is accepted already and what comes. Nothing is written before a session is
// published, so that a veto leaves nothing behind.
func (h *Handle) follow() {
	h.sess.Notify(h.kick)
	h.kick()
}

// kick is called after each append. While a drainer has yet to look it sees what was appended before, too, and who
// appends does not contend with it.
func (h *Handle) kick() {
	if h.kicked.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead == nil && h.hasAccepted() {
		h.kicked.Store(true)
		h.start()
	}
}

// start makes sure that there is a drainer; h.mu is held.
func (h *Handle) start() {
	if h.drainer == nil && !h.stopped {
		h.drainer = make(chan struct{})
		go h.drain(h.drainer)
	}
}

// wait stops new drainers and returns when the one at work has ended.
func (h *Handle) wait(ctx context.Context) error {
	h.mu.Lock()
	h.stopped = true
	d := h.drainer
	h.mu.Unlock()
	if d == nil {
		return nil
	}
	select {
	case <-d:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *Handle) stop() { _ = h.wait(context.Background()) }

// drain is the only goroutine that calls Append and Flush of the writer. It ends when it has nothing to do.
func (h *Handle) drain(done chan struct{}) {
	defer close(done)
	for {
		h.mu.Lock()
		if !h.kicked.Load() && len(h.waiters) == 0 {
			h.drainer = nil
			h.mu.Unlock()
			return
		}
		h.kicked.Store(false) // before it reads: what was accepted so far is read
		ws := h.waiters
		h.waiters = nil
		dead, over, saved := h.dead != nil, h.over, h.saved
		h.mu.Unlock()
		switch {
		case over:
			answer(ws, saved)
			continue
		case dead:
			h.lost(ws)
			continue
		}
		ws, err := h.round(ws)
		h.finish(ws, err)
	}
}

// round writes what there is and, if somebody waits for it, syncs. It returns the flushes that it served.
func (h *Handle) round(ws []*waiter) ([]*waiter, error) {
	var target session.Seq
	for _, w := range ws {
		target = max(target, w.target)
	}
	for {
		evs, err := h.batch()
		if err != nil {
			return ws, err
		}
		if len(evs) == 0 {
			break
		}
		if err := h.write(evs); err != nil {
			return ws, err
		}
		if h.next >= target && len(ws) > 0 {
			break // what was accepted meanwhile has kicked: it comes after the sync
		}
	}
	h.mu.Lock()
	later := h.waiters[:0]
	for _, w := range h.waiters { // who came meanwhile shares the sync
		if w.target <= h.next {
			ws = append(ws, w)
		} else {
			later = append(later, w)
		}
	}
	h.waiters = later
	want := len(ws) > 0 || h.saved != nil || h.next-h.synced >= syncEvents
	h.mu.Unlock()
	if !want {
		return ws, nil
	}
	return ws, h.sync()
}

// batch returns the events from next on. The first of a life is whole: a log must not end in the pending
// prefix, nor in half a seed.
func (h *Handle) batch() ([]session.Event, error) {
	h.mu.Lock()
	accepted := h.hasAccepted()
	h.mu.Unlock()
	if !accepted {
		return nil, nil
	}
	evs, _, err := h.sess.From(h.next)
	for err == nil && len(evs) > 0 && h.next+session.Seq(len(evs)) <= h.pendingEnd {
		var more []session.Event
		more, _, err = h.sess.From(h.next + session.Seq(len(evs)))
		evs = append(evs, more...)
	}
	return evs, err
}

func (h *Handle) write(evs []session.Event) error {
	want := evs[len(evs)-1].Seq + 1
	pos, err := h.w.Append(context.Background(), evs)
	if err == nil && pos.Next != want {
		err = fmt.Errorf("the store has written up to seq %d, not %d", pos.Next, want)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		// A driver that has to begin again further back shows it by what it says is stored.
		h.next = max(h.synced, min(h.next, h.w.Stored().Len()))
		return err
	}
	h.next = want
	for _, ev := range evs {
		h.unsettled += size(ev)
		h.fold.bytes += size(ev)
	}
	return nil
}

// sync makes everything written durable. After a failure all of it counts as not written: the events are
// still in memory and are handed over again.
func (h *Handle) sync() error {
	if h.next == h.synced {
		return nil
	}
	pos, err := h.w.Flush(context.Background())
	if err == nil && pos.Next < h.next {
		err = fmt.Errorf("the store has synced up to seq %d, not %d", pos.Next, h.next)
	}
	h.mu.Lock()
	if err != nil {
		h.next = h.synced
	} else {
		h.synced = h.next
		if h.grown != nil {
			close(h.grown)
			h.grown = nil
		}
	}
	h.mu.Unlock()
	if err == nil && h.unsettled >= settleBytes {
		h.sess.Settle(h.w.Stored())
		h.unsettled = 0
	}
	if err == nil {
		h.checkpoint(pos)
	}
	return err
}

// finish records how a round went and answers those who waited for it.
func (h *Handle) finish(ws []*waiter, err error) {
	if err != nil && (errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrExists)) {
		h.mu.Lock()
		h.dead = err
		h.mu.Unlock()
		h.lost(ws)
		return
	}
	if err != nil {
		err = h.notSaved(err)
	}
	h.mu.Lock()
	h.saved = err
	h.mu.Unlock()
	answer(ws, err)
}

func answer(ws []*waiter, err error) {
	for _, w := range ws {
		w.done <- err
	}
}

func (h *Handle) notSaved(cause error) error {
	if n, ok := errors.AsType[*store.NotSavedError](cause); ok {
		return n
	}
	return &store.NotSavedError{ID: h.header.ID, Path: h.k.opt.Path, Cause: cause}
}
