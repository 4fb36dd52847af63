package filestore

import (
	"context"
	"slices"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// trial is a store above this one, in which repairs were made.
type trial struct {
	s    *Store
	done []session.ID
}

// PlanRepair says what Repair would do, and changes nothing: the repair is made, in a layer in memory above the files.
func (s *Store) PlanRepair(ctx context.Context, id session.ID, after []session.ID) (store.Repair, error) {
	r, err := s.patient(ctx, id)
	if err != nil {
		return store.Repair{}, err
	}
	defer r.leave()
	if err := r.idle(ctx); err != nil {
		return store.Repair{}, err
	}
	s.planning.Lock()
	defer s.planning.Unlock()
	try := s.trial
	s.trial = nil
	if try == nil || len(after) == 0 || !slices.Equal(try.done, after) {
		opt := s.opt
		opt.FS, opt.Rand = vfs.Layer(s.fs), (*shared)(s)
		above, err := Open(s.root, opt)
		if err != nil {
			return store.Repair{}, err
		}
		try = &trial{s: above}
		for _, other := range after {
			_, _ = above.Repair(ctx, other, false) // what it could not do it leaves
			if cause := context.Cause(ctx); cause != nil {
				return store.Repair{}, cause
			}
		}
	}
	rep, err := try.s.Repair(ctx, id, false)
	if context.Cause(ctx) == nil {
		s.trial = &trial{try.s, append(slices.Clone(after), id)}
	}
	return rep, err
}

// shared is the randomness of a Store.
type shared Store

func (s *shared) Read(b []byte) (int, error) {
	s.randMu.Lock()
	defer s.randMu.Unlock()
	return s.opt.Rand.Read(b)
}
