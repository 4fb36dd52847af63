package store

import (
	"fmt"

	"github.com/strandline-dev/strandline/session"
)

// Load folds a snapshot into the seed of a session: the stored events by reference, and as Repair what
// whoever opens a log adds to it - first the marks for records that a loss of power took, then the closers
// of a turn that its writer could not end. What a checkpoint stands for is not read. Nothing is written. A damaged
// snapshot gives *DamagedError.
func Load(snap *Snapshot, reg *session.Registry) (session.Seed, error) {
	st, ok := session.State{}, false
	if len(snap.Damage) == 0 {
		st, ok = snap.begin(reg, snap.Pos.Next)
	}
	if !ok {
		st = session.NewState(snap.Header, reg)
	}
	return LoadFrom(snap, st)
}

// LoadFrom is Load for somebody who knows the state of a beginning of the log already: st, which is changed.
func LoadFrom(snap *Snapshot, st session.State) (session.Seed, error) {
	if len(snap.Damage) > 0 {
		return session.Seed{}, &DamagedError{ID: snap.Header.ID, Ranges: snap.Damage}
	}
	if err := st.LoadAll(snap.Prefix); err != nil {
		return session.Seed{}, fmt.Errorf("store: loading session %s: %w", snap.Header.ID, err)
	}
	repair := append([]session.Event(nil), snap.Lost...)
	for _, ev := range repair {
		st.Load(ev)
	}
	closers := st.Closers()
	for _, ev := range closers {
		st.Load(ev)
	}
	return session.Seed{Prefix: snap.Prefix, Repair: append(repair, closers...), State: &st}, nil
}
