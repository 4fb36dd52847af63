package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var _ store.Marker = (*Store)(nil)

// Marks returns where each log ends: nothing else of one can change.
func (s *Store) Marks(ctx context.Context, ids []session.ID, _ func(session.ID) store.Mark) ([]store.Mark, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mem.mu.Unlock()
	if ids == nil {
		ids = slices.Sorted(maps.Keys(s.mem.logs))
	}
	marks := []store.Mark{}
	for _, id := range ids {
		if l := s.mem.logs[id]; l != nil {
			marks = append(marks, store.Mark{ID: id, Stamp: fmt.Sprintf("%d.%s", l.pos.Next, l.pos.Link), Held: s.mem.held[id] != nil})
		}
	}
	return marks, nil
}
