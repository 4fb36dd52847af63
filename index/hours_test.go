package index

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
)

// What sessions did by the hour sums up to their own usage, whoever brought the index up to what was written.
func TestHours(t *testing.T) {
	w := newWorld(t, 11)
	x, other := w.index(w.path()), w.index(w.path())
	for round := range 25 {
		for range 1 + w.rng.IntN(4) {
			w.change()
		}
		who := x
		switch w.rng.IntN(4) {
		case 0:
			who = other
		case 1:
			w.same(other, Query{})
		case 2:
			if round%2 == 0 {
				w.ok(os.Remove(w.path()))
			}
		}
		if i := w.rng.IntN(len(w.ids)); w.rng.IntN(2) == 0 {
			w.ok(who.Update(t.Context(), w.ids[i]))
		}
		usage := map[session.ID]*message.Usage{}
		for _, id := range w.ids {
			snap, err := w.st.Read(t.Context(), id)
			w.ok(err)
			s, err := session.Fold(snap.Header, sessiontest.Registry(), snap.Prefix)
			w.ok(err)
			_, own := s.Usage()
			if own != nil {
				usage[id] = own
			}
			for _, asked := range []*Index{who, w.index("")} {
				rows, err := asked.HoursOf(t.Context(), id, snap.Header, snap.Prefix)
				w.ok(err)
				var sum Hour
				for _, h := range rows {
					sum = sum.add(h)
				}
				if d := cmp.Diff(own, sum.Usage); d != "" {
					t.Fatalf("round %d: hours of %s: %s", round, id, d)
				}
			}
			w.ok(snap.Close())
		}
		for _, asked := range []*Index{who, w.index("")} {
			got := map[session.ID]*message.Usage{}
			w.ok(asked.Hours(t.Context(), Query{}, nil, func(d Worked) error {
				var sum Hour
				for _, h := range d.Hours {
					sum = sum.add(h)
				}
				if sum.Usage != nil {
					got[d.ID] = sum.Usage
				}
				return nil
			}))
			if d := cmp.Diff(usage, got); d != "" {
				t.Fatalf("round %d: hours: %s", round, d)
			}
		}
	}
}
