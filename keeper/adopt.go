package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Adopt attaches a session that was built without this keeper; one that is not in the live registry is
// published there. A session that is attached already gives its handle.
//
// If the session is stored, the stored log must be a beginning of the live one, with the same cwd: then the
// rest is written (pending while the boundary is all there is) and a torn tail is left behind, without
// closers: the live session will write its real ends. Else the error is ErrExists, and the stored session is
// as it was. If the lease is held by a Claim, the claim is taken over, and the stored header counts. If it is
// not stored, it is created with the session's header.
func (k *Keeper) Adopt(ctx context.Context, s *session.Session) (*Handle, error) {
	unlock, err := k.begin(ctx, s.ID())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s.Disposed() {
		return nil, fmt.Errorf("keeper: adopting session %s: %w", s.ID(), session.ErrDisposed)
	}
	k.mu.Lock()
	h, claim := k.handles[s.ID()], k.claims[s.ID()]
	k.mu.Unlock()
	switch {
	case h != nil && h.sess == s:
		return h, nil
	case h != nil:
		return nil, &store.ExistsError{ID: s.ID(), Detail: "another session with this id is live here"}
	case claim != nil:
		return k.claimed(claim, s)
	}

	if known, ok := k.lv.Get(s.ID()); ok && known == s {
		w, n, err := k.leaseFor(ctx, s)
		if err != nil {
			return nil, err
		}
		h, err := k.attach(s, w, n, k.foldingOf(s, w, n))
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		h.follow()
		return h, nil
	}
	place, err := k.lv.Reserve(s.ID())
	if err != nil {
		return nil, &store.ExistsError{ID: s.ID(), Detail: err.Error()}
	}
	defer place.Release()
	w, n, err := k.leaseFor(ctx, s)
	if err != nil {
		return nil, err
	}
	return k.publish(place, s, w, n, k.foldingOf(s, w, n))
}

// claimed gives a session the lease that was taken for it.
func (k *Keeper) claimed(c *Claim, s *session.Session) (*Handle, error) {
	snap := c.w.Opened()
	if err := k.begins(snap, s); err != nil {
		return nil, err
	}
	if !c.take() {
		return nil, &store.ExistsError{ID: s.ID(), Detail: "its claim was released meanwhile"}
	}
	defer c.place.Release()
	return k.publish(c.place, s, c.w, snap.Pos.Next, k.foldingOf(s, c.w, snap.Pos.Next))
}

// leaseFor takes the lease of a session's stored log, or creates it; n is the length of what is stored.
func (k *Keeper) leaseFor(ctx context.Context, s *session.Session) (w store.Writer, n session.Seq, err error) {
	w, err = k.st.Open(ctx, s.ID())
	if errors.Is(err, store.ErrNotFound) {
		w, err = k.st.Create(ctx, s.Header())
		return w, 0, err
	}
	if err != nil {
		return nil, 0, err
	}
	snap := w.Opened()
	err = k.begins(snap, s)
	if err == nil && snap.Header.Cwd != s.Header().Cwd {
		err = &store.ExistsError{ID: s.ID(), Detail: fmt.Sprintf("the stored session belongs to %s, the live one to %s", snap.Header.Cwd, s.Header().Cwd)}
	}
	if err != nil {
		return nil, 0, errors.Join(err, w.Close())
	}
	return w, snap.Pos.Next, nil
}

// begins checks that the stored log is a beginning of what s may show: by link, and where links differ event
// by event. (The link of a record behind a lost one cannot be computed; and a person wants to know where two
// logs part.) What is pending in s is not part of it: nobody can have stored it.
func (k *Keeper) begins(snap *store.Snapshot, s *session.Session) error {
	n, head := snap.Prefix.Len(), s.Head()
	live := session.Sub(s.Events(), head)
	if n > live.Len() {
		return &store.ExistsError{ID: s.ID(), Detail: fmt.Sprintf("%d events are stored, the live session has %d", n, live.Len())}
	}
	// Behind the stored log there may be marks for records that a loss of power took. The next life's first
	// batch begins with them: a session that was built without them cannot go on here.
	all := s.Events()
	for _, mark := range snap.Lost {
		if ev, err := all.At(mark.Seq); err != nil || !equal(ev, mark) {
			return &store.ExistsError{ID: s.ID(), Detail: fmt.Sprintf(
				"its storage lost event %d, which the live session was not built over: resume it instead", mark.Seq)}
		}
	}
	if k.opt.Link != nil {
		link, err := chain(k.opt.Link, live, n)
		if err != nil {
			return err
		}
		if link == snap.Pos.Link {
			return nil
		}
	}
	at, err := parting(snap.Prefix, live, 0, n)
	if err != nil {
		return err
	}
	if at < n {
		return &store.ExistsError{ID: s.ID(), Detail: fmt.Sprintf("the stored log differs from the live session at seq %d", at)}
	}
	return nil
}

func chain(link func(session.Link, session.Event) (session.Link, error), p session.Prefix, n session.Seq) (l session.Link, err error) {
	for ev, err := range p.Range(0, n) {
		if err != nil {
			return l, err
		}
		if l, err = link(l, ev); err != nil {
			return l, err
		}
	}
	return l, nil
}

// parting returns the first seq in [from, to) at which two logs differ, or to.
func parting(a, b session.Prefix, from, to session.Seq) (session.Seq, error) {
	for x, err := range a.Range(from, to) {
		if err != nil {
			return from, err
		}
		y, err := b.At(x.Seq)
		if err != nil {
			return x.Seq, err
		}
		if !equal(x, y) {
			return x.Seq, nil
		}
	}
	return to, nil
}

// equal compares what a record holds: the bytes of data are exact, so no meaning of JSON is involved.
func equal(a, b session.Event) bool {
	return a.Seq == b.Seq && a.Time == b.Time && a.Type == b.Type && a.Op == b.Op && a.Ignorable == b.Ignorable &&
		(a.Sources == nil) == (b.Sources == nil) && slices.Equal(a.Sources, b.Sources) &&
		bytes.Equal(a.Extra, b.Extra) && bytes.Equal(a.Data, b.Data)
}
