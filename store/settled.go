package store

import (
	"context"
	"errors"

	"github.com/strandline-dev/strandline/session"
)

// ReadSettled reads a log together with what its holder says of it, so that LiveBase of the two is exact. It looks at the
// holder, reads, and looks again, and begins again if meanwhile the holder has changed and the log with it: a
// bracket that a life closed before it ended would otherwise pass for one that it left open. It goes on until ctx
// ends, as every new try takes a whole life that came and wrote. read is what reads, Read for example. The
// caller closes the snapshot.
func ReadSettled(ctx context.Context, r Reader, id session.ID, read func(context.Context, session.ID) (*Snapshot, error)) (*Snapshot, Stat, error) {
	before, err := r.Stat(ctx, id)
	for err == nil {
		var snap *Snapshot
		if snap, err = read(ctx, id); err != nil {
			return nil, before, err
		}
		var after Stat
		if after, err = r.Stat(ctx, id); err != nil {
			return nil, after, errors.Join(err, snap.Close())
		}
		if sameLife(before, after) || snap.Pos == after.Pos {
			return snap, after, nil
		}
		if err = errors.Join(snap.Close(), context.Cause(ctx)); err == nil {
			before = after
		}
	}
	return nil, before, err
}

// sameLife reports whether two looks saw the same life, or both of them none. A life that is not announced is known
// by its first segment: no other one begins there.
func sameLife(a, b Stat) bool {
	switch {
	case a.Holder == nil || b.Holder == nil:
		return a.Holder == b.Holder && a.Pos == b.Pos // else one may have come and gone
	case a.Holder.Nonce == "" && b.Holder.Nonce == "":
		return a.Base == b.Base
	}
	return a.Holder.Nonce == b.Holder.Nonce
}

// LiveBase returns the seq from which on what is open in a log runs, where s was read together with the log's
// first n events (see ReadSettled): what the holder has written. n if nobody holds the session, or its holder has
// written nothing: all of it is dead.
func (s Stat) LiveBase(n session.Seq) session.Seq {
	if s.Holder == nil || s.Base >= s.Pos.Next {
		return n
	}
	return min(s.Base, n)
}
