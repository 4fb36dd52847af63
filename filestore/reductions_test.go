package filestore

import (
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/vfs"
)

// What makes the states of the explorer fewer is held against an exploration without it.

// compared explores s as it is, and without reductions, and compares what is left in the end: the names, the files, who
// acknowledged what, and how each process ended. It returns the worlds in which an invariant was broken.
func compared(t *testing.T, s *script, every bool) (less, more *world) {
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	a, b := newExplorer(t, s), newExplorer(t, s)
	b.plain, b.every, b.base = true, every, a.base
	b.reset()
	began := cpu()
	x := a.explore()
	half := cpu()
	y := b.explore()
	if a.failed == nil && b.failed == nil && !maps.Equal(a.ends, b.ends) {
		t.Errorf("%s: %d outcomes, and %d others without reductions", s.name, len(a.ends), len(b.ends))
	}
	t.Logf("%s: %d outcomes of %d states, %v; without reductions of %d, %v", s.name, len(a.ends), x.states, half-began, y.states, cpu()-half)
	return a.failed, b.failed
}

// TestReductions compares scripts, the wide ones too with STRANDLINE_EXPLORE=long.
func TestReductions(t *testing.T) {
	oneAtATime(t)
	compare := func(s script, every bool) {
		t.Run(s.name, func(t *testing.T) {
			if less, more := compared(t, &s, every); less != nil || more != nil {
				t.Error("an invariant was broken; TestExplore says more")
			}
		})
	}
	for _, s := range scripts {
		if !s.wide || os.Getenv("STRANDLINE_EXPLORE") == "long" {
			compare(s, false)
		}
	}
	two := processes{living(1), living(1)}
	compare(script{name: "short lives, no lock", lives: two, locks: noLock, deaths: 2, stored: 2}, false)
	// Each schedule, though its states were met before.
	compare(script{name: "each schedule of two lives", lives: two, deaths: 2, stored: 2}, true)
	compare(script{name: "each schedule of two lives, no lock, two switches", lives: two, locks: noLock, stored: 2, switches: 2}, true)
	compare(script{name: "each schedule of life and reader, two switches", lives: processes{living(1), reading(1)}, deaths: 1, stored: 2, switches: 2}, true)
}

// TestReductionsHideNothing lets the disk answer wrong, so that an invariant breaks: that is found with reductions as it is
// without.
func TestReductionsHideNothing(t *testing.T) {
	oneAtATime(t)
	granted := func(c call, r *answer) { r.ok = r.ok || c.op == vfs.OpLock }
	claims := func(c call, r *answer) {
		if c.op == vfs.OpReadDir && c.name == subjectDir {
			r.names = slices.DeleteFunc(slices.Clone(r.names), func(name string) bool { return strings.HasPrefix(name, newSegment) })
		}
	}
	same := func(c call, r *answer) {
		if c.op == vfs.OpStat || c.op == vfs.OpFileStat || c.op == vfs.OpOpen {
			r.key = "it"
		}
	}
	short, long := processes{living(1), living(1)}, processes{living(1, 1), living(1)}
	for _, s := range []script{
		{name: "every lock is granted", lives: short, fault: granted, deaths: 2},
		{name: "every lock is granted, no lease", lives: short, fault: granted, locks: noLease},
		{name: "claims are not listed, no lock", lives: long, fault: claims, locks: noLock},
		{name: "every file is the same, no lease", lives: long, fault: same, locks: noLease},
		{name: "every file is the same, no lock", lives: short, fault: same, locks: noLock},
	} {
		s.stored = 2
		t.Run(s.name, func(t *testing.T) {
			less, more := compared(t, &s, false)
			if less == nil || more == nil {
				t.Errorf("with reductions %v, without %v", less, more)
				return
			}
			t.Log(less.wrong)
		})
	}
}

// TestExplorerDisk runs schedules at random, on the explorer's disk and on vfs.Mem, which must answer the same.
func TestExplorerDisk(t *testing.T) {
	oneAtATime(t)
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			e := newExplorer(t, &s)
			for seed := range uint64(20) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				w := e.start(true)
				w.tracing = true
				for w.wrong == "" && w.ready() {
					if cs := w.choices(); len(cs) > 0 {
						w.take(cs[rnd.IntN(len(cs))])
					}
				}
				if got, want := w.mem.Names(), w.disk.all()[1:]; w.wrong == "" && !slices.Equal(got, want) {
					w.fail("the disks differ: the explorer's has %v, the other %v", want, got)
				}
				if w.wrong == "" {
					e.end(w)
				}
				if w.wrong != "" {
					t.Fatalf("seed %d: %s\nthe schedule:\n  %s", seed, w.wrong, strings.Join(w.trace, "\n  "))
				}
			}
		})
	}
}
