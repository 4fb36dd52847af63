package filestore

import (
	"sync"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// A child whose parent is held here shares the parent's index of what it inherits, and has the log that a scan finds:
// also while the parent goes on, and one that was forked in the middle of the parent's last segment.
func TestChildrenShareTheIndex(t *testing.T) {
	s, other := openStore(t, t.TempDir(), nil), (*Store)(nil)
	ctx := t.Context()
	newStored(t, s, "root", 2000)
	w := must[store.Writer](t)(s.Open(ctx, "root"))
	defer w.Close()
	var next session.Seq = 2000
	grow := func() {
		mustAppend(t, w, events(next, 300))
		next += 300
		mustFlush(t, w)
	}
	grow()
	other = openStore(t, s.root, nil) // holds nothing
	var group sync.WaitGroup
	for i, at := range []session.Seq{1, 700, 1999, 2000, 2299} {
		id := session.ID([]string{"c-0000", "c-0001", "c-0002", "c-0003", "c-0004"}[i])
		if _, err := store.Fork(ctx, s, "root", store.ForkOptions{At: &at, Child: id, Now: 1}); err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			c, err := s.Open(ctx, id)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			v := c.Opened().Prefix.(*view)
			g := &v.segs[v.find(at)]
			if parent := w.(*writer).Stored().(*view); len(g.marks) > 0 && &g.marks[0] != &parent.segs[parent.find(at)].marks[0] {
				t.Errorf("%s has an index of its own", id)
			}
			if m, stop := g.at(at); stop-m.off > 2*markBytes {
				t.Errorf("%s: %d bytes are read for its last inherited record", id, stop-m.off)
			}
			snap, err := other.Read(ctx, id)
			if err != nil {
				t.Error(err)
				return
			}
			defer snap.Close()
			if c.Opened().Pos != snap.Pos {
				t.Errorf("%s: opened at %v, a scan finds %v", id, c.Opened().Pos, snap.Pos)
			}
			wantEvents(t, collect(t, v), collect(t, snap.Prefix))
		})
		grow()
	}
	group.Wait()
}
