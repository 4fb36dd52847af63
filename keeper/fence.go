package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// lost ends a life that another one has overtaken, and answers those who wait. Admission stops first, so that
// everything that was ever accepted is in the fork. It is called again, by a flush, until the fork is made.
func (h *Handle) lost(ws []*waiter) {
	h.sess.Dispose()
	h.mu.Lock()
	dead := h.dead
	h.mu.Unlock()

	err, done := dead, true
	if fenced, ok := errors.AsType[*store.FencedError](dead); ok {
		known := *fenced
		id, ferr := h.saveFork(context.Background())
		if ferr != nil {
			done = false
			err = h.notSaved(errors.Join(dead, fmt.Errorf("and keeping what it held in a fork failed: %w", ferr)))
		} else {
			known.SavedAs = id
			err = &known
		}
	}
	h.mu.Lock()
	h.saved, h.over = err, done
	h.mu.Unlock()
	answer(ws, err)
}

// saveFork saves what this life holds and the stored log does not as a fork at the last common seq. It
// returns "" if there is nothing. The child has this life's own events only: its boundary, if it stands
// there, and no other, because nothing of it is an earlier life's.
func (h *Handle) saveFork(ctx context.Context) (session.ID, error) {
	head := h.sess.Head()
	p := session.Sub(h.sess.Events(), head)
	common, err := h.common(ctx, p)
	if err != nil || common >= p.Len() {
		return "", err
	}
	f, ok := h.k.st.(store.Forker)
	if !ok {
		return "", errNoForks
	}
	child := childHeader(h.header, common-1, store.ForkOptions{Child: h.k.opt.NewID(), Now: h.k.opt.Now()})
	if common > 0 {
		if err := store.Trace(ctx, f, h.header, &child); err != nil {
			return "", err
		}
		last, err := p.At(common - 1)
		if err != nil {
			return "", err
		}
		child.CreatedAt = max(child.CreatedAt, last.Time) // as store.Fork does
	}
	if child.Parent.Activity, err = session.LastActivityBefore(p, common, child.CreatedAt); err != nil {
		return "", err
	}
	own := make([]session.Event, 0, p.Len()-common)
	for ev, err := range p.Range(common, p.Len()) {
		if err != nil {
			return "", err
		}
		own = append(own, ev)
	}
	if err := f.CreateFork(ctx, child, own); err != nil {
		return "", err
	}
	return child.ID, nil
}

// common returns the length of what the stored log and p have in common. Below synced they agree: no other
// life can have had those seqs.
func (h *Handle) common(ctx context.Context, p session.Prefix) (session.Seq, error) {
	from := h.Synced()
	snap, err := h.k.st.Read(ctx, h.header.ID)
	if errors.Is(err, store.ErrNotFound) && from == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer snap.Close()
	if n := snap.Prefix.Len(); n < from {
		return 0, &store.DamagedError{ID: h.header.ID, Ranges: []store.Range{{
			File: h.k.opt.Path, First: n, Last: from - 1, Detail: "synced events are not in the log any more",
		}}}
	}
	return parting(snap.Prefix, p, from, min(snap.Prefix.Len(), p.Len()))
}
