package store

import (
	"context"
	"errors"
	"iter"

	"github.com/strandline-dev/strandline/session"
)

// CopyOptions says what to fork into another store, and how.
type CopyOptions struct {
	ForkOptions
	Tool string // what the child's header says made the session that it was copied from
	// Carry, if it is not nil, is called with each event before it is stored: what the event names beside its data,
	// in blobs, must be in the other store then.
	Carry func(ctx context.Context, ev session.Event) error
}

// ForkTo makes a child of a stored session in another store. There it is a session by itself: what it shares with
// its source is copied, and its header tells the lineage as that of an import, without a pointer. The source is
// only read; it may be live, and its store one that cannot be written to. All or nothing, in bounded memory.
//
// Errors are those of Fork; ErrExists and those of a store that cannot be written concern the other store.
func ForkTo(ctx context.Context, from Store, source session.ID, to Store, opt CopyOptions) (session.Header, error) {
	taker, ok := to.(Taker)
	if !ok {
		return session.Header{}, errors.New("store: the other store cannot take in sessions")
	}
	if _, err := to.Stat(ctx, opt.Child); err == nil {
		return session.Header{}, &ExistsError{ID: opt.Child}
	} else if !errors.Is(err, ErrNotFound) {
		return session.Header{}, err
	}
	snap, cut, err := cutOf(ctx, from, source, opt.ForkOptions)
	if err != nil {
		return session.Header{}, err
	}
	defer snap.Close()
	h := session.Header{
		Format: session.Format, ID: opt.Child, CreatedAt: opt.Now, Kind: session.KindImported,
		Cwd: snap.Header.Cwd, Project: snap.Header.Project, ProjectID: snap.Header.ProjectID, Depth: max(snap.Header.Depth, opt.Depth),
		Imported: &session.Imported{Tool: opt.Tool, Events: cut + 1, Parent: string(source), SeedLength: cut + 1},
	}
	if opt.Kind != "" {
		h.Kind = opt.Kind
	}
	own, err := childEvents(h, snap.Prefix, cut+1, opt.ForkOptions)
	if err != nil {
		return session.Header{}, err
	}
	return h, taker.Take(ctx, h, copied(ctx, snap.Prefix, cut+1, own, opt.Carry))
}

// copied yields the first n events of p, and own behind them.
func copied(ctx context.Context, p session.Prefix, n session.Seq, own []session.Event, carry func(context.Context, session.Event) error) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) {
		for ev, err := range p.Range(0, n) {
			if err == nil {
				err = context.Cause(ctx)
			}
			if err == nil && carry != nil {
				err = carry(ctx, ev)
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
		for _, ev := range own {
			if !yield(ev, nil) {
				return
			}
		}
	}
}
