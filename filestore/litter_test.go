package filestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// sweepNow sweeps if nobody holds store.lock; a collector would wait.
func sweepNow(s *Store) (found store.Amount, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	lock, err := s.lockStore(ctx, true)
	if errors.Is(err, context.Canceled) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	defer lock.Close()
	return s.sweepLitter(context.Background(), false)
}

// litterOn lists what on a disk without processes should not be there.
func litterOn(m *vfs.Mem) []string {
	return slices.DeleteFunc(m.Names(), func(name string) bool {
		return !strings.Contains(name, "/.") && !strings.HasPrefix(name, memRoot+"/live/")
	})
}

// Whatever is killed before whatever call, and whether the power fails too or not: one sweep leaves nothing of it,
// and the session as it was.
func TestLitterOfTheDead(t *testing.T) {
	kinds := map[string]bool{}
	for _, sc := range scenarios {
		c := newCrashes(t, sc)
		m := c.base.Clone()
		calls := dyingAt(m, m.Process(), 0)
		if w := c.run(m, calls, true); w.err != nil {
			t.Fatal(w.err)
		}
		for _, k := range calls.points() {
			m := c.base.Clone()
			w := c.run(m, dyingAt(m, m.Process(), k), false)
			if k%2 == 0 {
				m = m.Crash(vfs.Survived)
			} else if k%3 == 0 {
				m = m.Crash(vfs.Random(uint64(k), .7))
			}
			m = m.Clone()
			at := fmt.Sprintf("%s, killed before call %d", sc.name, k)
			p := m.Process()
			s := memStore(t, p, sc.roll, 8)
			why, _ := s.unsound(t.Context(), subject, s.dir(subject))
			left := litterOn(m)
			kept := slices.DeleteFunc(slices.Clone(left), func(name string) bool {
				return why == "" || !strings.HasPrefix(filepath.Base(name), newSegment)
			})
			if len(left) == len(kept) {
				continue
			}
			lock := must[vfs.File](t)(s.lockStore(t.Context(), true))
			dry := must[store.Amount](t)(s.sweepLitter(t.Context(), true))
			if now := litterOn(m); !slices.Equal(now, left) {
				t.Fatalf("%s: only counted, but now there is %q, and was %q", at, now, left)
			}
			found := must[store.Amount](t)(s.sweepLitter(t.Context(), false))
			lock.Close()
			p.Kill()
			if now := litterOn(m); !slices.Equal(now, kept) || found.N == 0 || found != dry {
				t.Fatalf("%s: %q is left of %q; removed %+v, counted %+v", at, now, left, found, dry)
			}
			for _, name := range left {
				base := filepath.Base(name)
				switch cut := strings.IndexAny(base, "-"); {
				case cut > 0 && base[0] == '.':
					kinds[base[:cut]] = true
				case strings.HasPrefix(name, memRoot+"/live/"):
					kinds["live"] = true
				}
			}
			c.verify(m, w, at+", swept")
		}
	}
	for _, kind := range []string{".store", ".new", ".seg", ".blob", ".purge", ".give", "live"} {
		if !kinds[kind] {
			t.Errorf("nobody left a %s", kind)
		}
	}
}

// A sweep between any two calls of whatever lives finds nothing, and nobody misses anything.
func TestLitterOfTheLiving(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			c := newCrashes(t, sc)
			m := c.base.Clone()
			sweeps, life := 0, 100
			dead := m.Process() // what was left before is swept before
			if _, err := sweepNow(memStore(t, dead, sc.roll, life)); err != nil {
				t.Fatal(err)
			}
			dead.Kill()
			var busy atomic.Bool // scans side by side: one sweep at a time
			fsys := vfs.Around(m.Process(), func(call *vfs.Call, do func() error) error {
				if busy.CompareAndSwap(false, true) {
					defer busy.Store(false)
					life++
					p := m.Process()
					found, err := sweepNow(memStore(t, p, sc.roll, life))
					p.Kill()
					if err != nil || found.N > 0 {
						t.Errorf("before the call %s %s: removed %+v, %v; there is %q", call.Op, call.Name, found, err, litterOn(m))
					}
					sweeps++
				}
				return do()
			})
			w := c.run(m, fsys, true)
			if w.err != nil {
				t.Fatal(w.err)
			}
			if sweeps == 0 {
				t.Fatal("never swept")
			}
			c.verify(m, w, "swept all the time")
		})
	}
}
