package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// whatsWrong counts the events of got that are not those of want: those of others, and marks.
func whatsWrong(got, want []session.Event) (other, marks int) {
	for i, ev := range got {
		switch {
		case ev.Type == session.TypeLost:
			marks++
		case i >= len(want) || !same(ev, want[i]):
			other++
		}
	}
	return other, marks
}

// A fork that was made by a clock that was set back is not older than what it begins with: it still proves that its parent was cut off, and
// what the parent has left of that is still the fork's.
func TestForkAfterTheClockWasSetBack(t *testing.T) {
	k := newKin(t)
	at := session.Seq(21)
	h := must[session.Header](t)(store.Fork(t.Context(), k.s, subject, store.ForkOptions{At: &at, Child: "late", Now: 1}))
	if err := os.RemoveAll(k.s.dir("child")); err != nil { // it would prove that, too
		t.Fatal(err)
	}
	os.RemoveAll(k.s.dir("grandchild"))
	k.cut(t)
	rep := must[store.Repair](t)(k.s.Repair(t.Context(), subject, false))
	got, snap := readEvents(t, k.s, "late")
	other, marks := whatsWrong(got[:22], k.logs[subject])
	if store.Records(rep.Lost) != 5 || len(snap.Damage) > 0 || other > 0 || marks != 5 {
		t.Fatalf("%+v: lost %v; the fork has %d other events and %d marks, damage %v", h, rep.Lost, other, marks, snap.Damage)
	}
}

// cut leaves 17 events of the subject.
func (k *kin) cut(t *testing.T) {
	t.Helper()
	path := filepath.Join(k.s.dir(subject), segmentName(10))
	b, n := must[[]byte](t)(os.ReadFile(path)), 0
	for i, c := range b {
		if c == '\n' {
			n++
		}
		if n == 8 {
			if err := os.WriteFile(path, b[:i+1], 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

// Where the trail tells what was forked no clock matters. Of a fork without one this is what a clock may do that is set back, and no more than
// that ("Clocks" in docs/format.md): what a parent wrote behind a cut is told from what its fork begins with by time alone, where the
// record at the fork point is gone.
func TestClockSetBack(t *testing.T) {
	older := func(t *testing.T, k *kin) { // than the events from 13 on, which it begins with
		k.rewrite(t, func(h *session.Header) { h.CreatedAt = k.logs[subject][12].Time })
	}
	for name, c := range map[string]struct {
		prepare            func(t *testing.T, k *kin)
		marks              int // of each fork, when all is repaired
		otherTold, byTimes int // the events of others and the marks of each fork that has no trail
	}{
		"before the fork, and nothing is damaged": {older, 0, 0, 0},
		"before the fork, and a record is bad": {func(t *testing.T, k *kin) {
			older(t, k)
			if err := flipAt(filepath.Join(k.s.dir(subject), segmentName(10)), 1200); err != nil {
				t.Fatal(err)
			}
		}, 1, 0, 1},
		"before the fork, and its parent was cut off": {func(t *testing.T, k *kin) { older(t, k); k.cut(t) }, 5, 0, 9}, // 13..21; up to 16 its parent still has them
		// The record at the fork point is there: its link tells.
		"behind the fork, and its parent went on to the fork point":      {func(t *testing.T, k *kin) { k.goOnAt(t, 5, 0) }, 5, 0, 22},
		"behind the fork, and its parent went on far behind the fork":    {func(t *testing.T, k *kin) { k.goOnAt(t, 30, 0) }, 5, 0, 22},
		"behind the fork, and its parent went on to below the fork":      {func(t *testing.T, k *kin) { k.goOnAt(t, 3, 0) }, 5, 3, 2},
		"behind the fork, and what its parent has at that point was bad": {func(t *testing.T, k *kin) { k.goOnAt(t, 9, 0); k.hurtForkPoint(t) }, 5, 4, 1},
	} {
		for _, trail := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, trail %v", name, trail), func(t *testing.T) {
				k := newKin(t)
				wantOther, wantMarks := 0, c.marks
				if !trail {
					k.forget(t)
					wantOther, wantMarks = c.otherTold, c.byTimes
				}
				c.prepare(t, k)
				before, _ := readEvents(t, k.s, subject)
				for _, id := range []session.ID{"child", "grandchild"} {
					if wantOther > 0 {
						continue
					}
					got, _ := readEvents(t, k.s, id)
					wantMended(t, "read before the repair", got, k.logs[id])
					sal := must[*store.Snapshot](t)(k.s.Salvage(t.Context(), id))
					wantMended(t, "shown before the repair", collect(t, sal.Prefix), k.logs[id])
					sal.Close()
				}
				for _, id := range []session.ID{subject, "child", "grandchild"} {
					must[store.Repair](t)(k.s.Repair(t.Context(), id, false))
				}
				for _, id := range []session.ID{"child", "grandchild"} {
					got, snap := readEvents(t, k.s, id)
					if other, marks := whatsWrong(got, k.logs[id]); other != wantOther || marks != wantMarks || len(snap.Damage) > 0 {
						t.Errorf("%s: %d other events and %d marks, want %d and %d; damage %v", id, other, marks, wantOther, wantMarks, snap.Damage)
					}
				}
				after, _ := readEvents(t, k.s, subject)
				wantEvents(t, after[:len(before)], before) // whatever its forks take for theirs
			})
		}
	}
}
