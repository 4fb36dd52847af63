package filestore

import (
	"errors"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// A sync fails, the system takes what it could not write for clean, and the life dies before it goes on elsewhere. The
// next sync of the same file, through another descriptor, succeeds, and the next life builds on what only memory holds.
// What loss of power then takes is damage, said as such; nothing else is gone, and a repair makes the session writable.
func TestDroppedByTheDead(t *testing.T) {
	m := newDisk(t, scenario{setup: stored(10)})
	p := m.Process()
	dead := vfs.Around(vfs.Fault(p, vfs.Rule{K: 2, Drop: true, Match: func(c vfs.Call) bool { return c.Op == vfs.OpSyncData }}),
		func(c *vfs.Call, do func() error) error {
			err := do()
			if c.Op == vfs.OpSyncData && err != nil {
				p.Kill()
			}
			return err
		})
	w := must[store.Writer](t)(memStore(t, dead, 0, 2).Open(t.Context(), subject))
	mustAppend(t, w, events(10, 2))
	mustFlush(t, w)
	mustAppend(t, w, events(12, 3))
	if _, err := w.Flush(t.Context()); err == nil {
		t.Fatal("it did not die")
	}
	q := m.Process()
	w = must[store.Writer](t)(memStore(t, q, 0, 3).Open(t.Context(), subject))
	mustAppend(t, w, by("later", 15, 3))
	mustFlush(t, w)
	q.Kill()

	s := memStore(t, m.Crash(vfs.Lost).Process(), 0, 4)
	if _, err := s.Open(t.Context(), subject); !errors.Is(err, store.ErrDamaged) {
		t.Fatalf("opened: %v", err)
	}
	rep := must[store.Repair](t)(s.Repair(t.Context(), subject, false))
	if n := store.Records(rep.Lost); n != 3 {
		t.Fatalf("%d are lost: %+v", n, rep)
	}
	got, snap := readEvents(t, s, subject)
	if len(snap.Damage) > 0 || len(got) != 18 {
		t.Fatalf("%d events, damage %+v", len(got), snap.Damage)
	}
	want := append(events(0, 12), append(got[12:15:15], by("later", 15, 3)...)...)
	wantEvents(t, got, want)
	for _, ev := range got[12:15] {
		if ev.Type != session.TypeLost {
			t.Errorf("%d is %s", ev.Seq, ev.Type)
		}
	}
}
