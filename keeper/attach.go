package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/strandline-dev/strandline/live"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// env is what sessions made here are constructed with.
func (k *Keeper) env() session.Env {
	return session.Env{Registry: k.opt.Registry, Now: k.opt.Now, Validators: k.opt.Validators}
}

// Create makes a session over a seed, which may be empty, and never resumes one. Nothing is stored before
// the first accepted event; seed, boundary and that event then go in one batch. Errors: ErrExists if the id
// is stored or held, *live.VetoError, ErrReadOnly and whatever else the store refuses with. After an error
// the id is free and nothing is left.
func (k *Keeper) Create(ctx context.Context, h session.Header, seed session.Seed) (*Handle, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	unlock, err := k.begin(ctx, h.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	place, err := k.lv.Reserve(h.ID)
	if err != nil {
		return nil, &store.ExistsError{ID: h.ID, Detail: err.Error()}
	}
	defer place.Release()
	w, err := k.st.Create(ctx, h)
	if err != nil {
		return nil, err
	}
	s, err := session.New(h, seed, k.env())
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	handle, err := k.publish(place, s, w, 0, k.foldingOf(s, w, 0))
	if err != nil {
		s.Dispose()
	}
	return handle, err
}

// Resume opens a stored session for work and never creates one: its events by reference, closers for a turn
// that its last writer could not end, and the boundary. Nothing is written. Errors: ErrNotFound; *BusyError
// if another process holds it or it is live here (then with this process as holder); *DamagedError;
// *UnsupportedError; *ReadOnlyError; *live.VetoError.
func (k *Keeper) Resume(ctx context.Context, id session.ID) (*Handle, error) {
	unlock, err := k.begin(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	place, err := k.reserve(ctx, id)
	if err != nil {
		return nil, err
	}
	defer place.Release()
	w, err := k.st.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	s, err := k.build(w)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	h, err := k.publish(place, s, w, w.Opened().Pos.Next, newFolding(k.st, w))
	if err != nil {
		s.Dispose()
	}
	return h, err
}

// build constructs the session of a writer that was opened.
func (k *Keeper) build(w store.Writer) (*session.Session, error) {
	seed, err := k.load(w.Opened())
	if err != nil {
		return nil, err
	}
	if u := seed.State.Unknown(); len(u) > 0 {
		unknown := &session.UnsupportedError{Types: u}
		return nil, &store.UnsupportedError{
			ID: w.Header().ID, Detail: unknown.Reason(), Cause: unknown,
		}
	}
	return session.New(w.Header(), seed, k.env())
}

// inherited is the folded state of what the children of one cut share.
type inherited struct {
	link     session.Link
	repaired string
	state    session.State
}

// load is store.Load. Subagents that were forked at the same place share the state of what they inherit: the first
// folds it, for the others it is a clone, which costs nothing that grows with the history. What their parent has read
// for its own requests, if it is live here, they need not read again.
func (k *Keeper) load(snap *store.Snapshot) (session.Seed, error) {
	h := snap.Header
	if k.opt.CheckFold != nil && k.opt.CheckFold() {
		if err := store.CheckFold(snap, k.opt.Registry); err != nil {
			return session.Seed{}, err
		}
	}
	if h.Kind != session.KindSubagent || h.SeedLength == 0 || len(snap.Damage) > 0 || snap.Prefix.Len() < h.SeedLength {
		return store.Load(snap, k.opt.Registry)
	}
	k.mu.Lock()
	known := k.shared
	k.mu.Unlock()
	if known == nil || known.link != h.Parent.Link || known.repaired != snap.Repaired || known.state.Next() != h.SeedLength {
		st, err := store.FoldTo(snap, k.opt.Registry, h.SeedLength)
		if err != nil {
			return store.Load(snap, k.opt.Registry) // it says what is wrong
		}
		known = &inherited{h.Parent.Link, snap.Repaired, st}
		k.mu.Lock()
		k.shared = known
		k.mu.Unlock()
	}
	st, err := known.state.ForkTo(h)
	if err != nil {
		return session.Seed{}, err
	}
	seed, err := store.LoadFrom(snap, st)
	if parent, ok := k.Get(h.Parent.ID); ok && err == nil && parent.repaired() == snap.Repaired {
		seed.Items = parent.sess.Projected(h.SeedLength)
	}
	return seed, err
}

// reserve takes the id among the live sessions, or says that this process holds it.
func (k *Keeper) reserve(ctx context.Context, id session.ID) (*live.Reservation, error) {
	k.mu.Lock()
	_, kept := k.handles[id] // a session that could not be saved may have left the registry
	k.mu.Unlock()
	if kept {
		return nil, k.busy(ctx, id)
	}
	place, err := k.lv.Reserve(id)
	if err != nil {
		return nil, k.busy(ctx, id)
	}
	return place, nil
}

// publish attaches a session to its writer and announces it; on failure the writer is let go, with nothing
// written. next is the length of what is stored. The id lock is held.
func (k *Keeper) publish(place *live.Reservation, s *session.Session, w store.Writer, next session.Seq, f folding) (_ *Handle, err error) {
	h, err := k.attach(s, w, next, f)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	published := false
	defer func() {
		if !published { // also if an observer panics
			err = errors.Join(err, k.detach(h, w))
		}
	}()
	if err = place.Publish(s); err != nil {
		return nil, err
	}
	published = true
	h.follow()
	return h, nil
}

// attach makes the handle. The id lock is held.
func (k *Keeper) attach(s *session.Session, w store.Writer, next session.Seq, f folding) (*Handle, error) {
	h := newHandle(k, s, w, next, f)
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil, fmt.Errorf("keeper: %w", store.ErrClosed)
	}
	k.handles[s.ID()] = h
	k.mu.Unlock()
	return h, nil
}

// detach undoes attach and ends the writer.
func (k *Keeper) detach(h *Handle, w store.Writer) error {
	h.sess.Notify(nil)
	h.stop()
	h.lastFold()
	err := w.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.handles[h.header.ID] == h {
		delete(k.handles, h.header.ID)
	}
	return err
}

// Claim is a stored session that was opened for writing and has no session yet: the lease is held. Build the
// session from Snapshot and hand it to Adopt, or Release it.
type Claim struct {
	k     *Keeper
	w     store.Writer
	place *live.Reservation
	once  sync.Once
	err   error
}

// Open takes the lease of a stored session for somebody who builds the session himself. Errors as for Resume.
func (k *Keeper) Open(ctx context.Context, id session.ID) (*Claim, error) {
	unlock, err := k.begin(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	place, err := k.reserve(ctx, id)
	if err != nil {
		return nil, err
	}
	w, err := k.st.Open(ctx, id)
	if err != nil {
		place.Release()
		return nil, err
	}
	c := &Claim{k: k, w: w, place: place}
	k.mu.Lock()
	closed := k.closed
	if !closed {
		k.claims[id] = c
	}
	k.mu.Unlock()
	if closed {
		return nil, errors.Join(fmt.Errorf("keeper: %w", store.ErrClosed), c.Release())
	}
	return c, nil
}

// Header returns the stored header: the one that counts, whatever header the session is built with.
func (c *Claim) Header() session.Header { return c.w.Header() }

// Snapshot is what was stored when the lease was taken, readable until the lease ends.
func (c *Claim) Snapshot() *store.Snapshot { return c.w.Opened() }

// Release gives the lease back, unless Adopt has taken it over. Idempotent.
func (c *Claim) Release() error {
	if !c.take() {
		return c.err
	}
	c.once.Do(func() {
		c.err = c.w.Close()
		c.place.Release()
	})
	return c.err
}

// take removes the claim from the keeper; false if somebody else did.
func (c *Claim) take() bool {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	id := c.w.Header().ID
	if c.k.claims[id] != c {
		return false
	}
	delete(c.k.claims, id)
	return true
}
