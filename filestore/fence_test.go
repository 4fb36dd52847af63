package filestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// gate stops the first call that matches until it is opened.
type gate struct {
	match   func(vfs.Call) bool
	armed   atomic.Bool
	reached chan struct{}
	open    chan struct{}
}

func newGate(match func(vfs.Call) bool) *gate {
	return &gate{match: match, reached: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) fs() vfs.FS {
	return vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		if g.match(*c) && g.armed.CompareAndSwap(true, false) {
			close(g.reached)
			<-g.open
		}
		return do()
	})
}

func by(who string, first session.Seq, n int) []session.Event {
	evs := events(first, n)
	for i := range evs {
		evs[i].Data = jsontext.Value(fmt.Sprintf(`{"by":%q,"seq":%d}`, who, evs[i].Seq))
	}
	return evs
}

// A writer stops between its write and its look (or before its sync, or before its write). Meanwhile
// session.json and the segments are replaced by copies, and another opens, appends and flushes.
func TestPausedWriter(t *testing.T) {
	stops := map[string]func(vfs.Call) bool{
		"before the look":  func(c vfs.Call) bool { return c.Op == vfs.OpReadDir },
		"within the look":  func(c vfs.Call) bool { return c.Op == vfs.OpStat && strings.HasSuffix(c.Name, segSuffix) },
		"before the sync":  func(c vfs.Call) bool { return c.Op == vfs.OpSyncData },
		"before the write": func(c vfs.Call) bool { return c.Op == vfs.OpWrite },
	}
	for name, match := range stops {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			g := newGate(match)
			s1, s2 := openStore(t, root, g.fs()), openStore(t, root, nil)
			old := must[store.Writer](t)(s1.Create(t.Context(), testHeader(subject)))
			mustAppend(t, old, events(0, 5))
			mustFlush(t, old)

			g.armed.Store(true)
			done := make(chan error, 1)
			go func() {
				_, err := old.Append(t.Context(), by("old", 5, 3))
				if err == nil {
					_, err = old.Flush(t.Context())
				}
				done <- err
			}()
			<-g.reached
			if _, err := s2.Open(t.Context(), subject); !errors.Is(err, store.ErrBusy) {
				t.Fatalf("while the first holds it: %v", err)
			}
			// Without its session.json the segment's lock still keeps others out.
			path := filepath.Join(s2.dir(subject), headerName)
			b, _ := os.ReadFile(path)
			os.Remove(path)
			os.WriteFile(path, b, 0o600)
			if _, err := s2.Open(t.Context(), subject); !errors.Is(err, store.ErrBusy) {
				t.Fatalf("with a new session.json: %v", err)
			}
			swapFiles(t, s2.dir(subject))
			young, err := s2.Open(t.Context(), subject)
			if err != nil {
				t.Fatal(err)
			}
			n := young.Opened().Pos.Next
			mustAppend(t, young, by("young", n, 2))
			if pos := mustFlush(t, young); pos.Next != n+2 {
				t.Fatal(pos)
			}
			close(g.open)
			err = <-done
			var fe *store.FencedError
			if !errors.As(err, &fe) || fe.At.Next != 5 {
				t.Fatalf("the paused writer: %v", err)
			}
			if _, err := old.Append(t.Context(), by("old", 8, 1)); !errors.Is(err, store.ErrFenced) {
				t.Fatalf("again: %v", err)
			}
			old.Close()
			mustAppend(t, young, by("young", n+2, 1))
			mustFlush(t, young)
			got, _ := readEvents(t, s2, subject)
			if d := cmp.Diff(by("young", n, 3), got[n:]); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// noLocks grants every lock on the files that match, as if they did not work and nobody had noticed.
type noLocks struct {
	vfs.FS
	match func(name string) bool
}

func (f noLocks) OpenFile(name string, mode vfs.Mode) (vfs.File, error) {
	file, err := f.FS.OpenFile(name, mode)
	if err == nil && f.match(name) {
		return unlocked{file}, nil
	}
	return file, err
}

type unlocked struct{ vfs.File }

func (unlocked) TryLock(bool) (bool, error) { return true, nil }

// rivals are writers of one session that all believe to own it.
type rivals struct {
	root           string
	mu             sync.Mutex
	acked          map[session.Seq]string
	winners        map[string]bool
	fenced, busy   int
	withoutLocksOn func(name string) bool
}

func newRivals(t *testing.T, withoutLocksOn func(string) bool) *rivals {
	r := &rivals{root: t.TempDir(), acked: map[session.Seq]string{}, winners: map[string]bool{}, withoutLocksOn: withoutLocksOn}
	newStored(t, openStore(t, r.root, nil), subject, 3)
	return r
}

// store returns a store whose calls are now and then overtaken by others'.
func (r *rivals) store(t *testing.T) *Store {
	o := testOptions()
	o.SegmentBytes = 900
	o.FS = noLocks{vfs.Around(unsynced, func(_ *vfs.Call, do func() error) error {
		for range rand.IntN(4) { // the global one: a scan makes calls side by side
			runtime.Gosched()
		}
		return do()
	}), r.withoutLocksOn}
	s := openWith(t, r.root, o)
	s.locks = true // it believes so
	return s
}

// write is what one life does.
func (r *rivals) write(t *testing.T, w store.Writer, who string, rnd *rand.Rand, batches int) {
	next := w.Opened().Pos.Next
	for range batches {
		var pos store.Pos
		evs := by(who, next, 1+rnd.IntN(3))
		err := store.ErrNotSaved
		for errors.Is(err, store.ErrNotSaved) { // a rival takes away temporary names
			if _, err = w.Append(t.Context(), evs); err == nil {
				pos, err = w.Flush(t.Context())
			}
		}
		r.mu.Lock()
		for ; err == nil && next < pos.Next; next++ {
			if other := r.acked[next]; other != "" {
				t.Errorf("seq %d was acknowledged by %s and by %s", next, other, who)
			}
			r.acked[next] = who
			r.winners[who] = true
		}
		if errors.Is(err, store.ErrFenced) {
			r.fenced++
		} else if err != nil {
			t.Errorf("%s: %v", who, err)
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (r *rivals) check(t *testing.T) {
	t.Helper()
	got, snap := readEvents(t, openStore(t, r.root, nil), subject)
	if len(snap.Damage) > 0 {
		t.Errorf("damage: %+v", snap.Damage)
	}
	for seq, who := range r.acked {
		if int(seq) >= len(got) || !strings.Contains(string(got[seq].Data), fmt.Sprintf("%q", who)) {
			t.Errorf("seq %d, acknowledged by %s, is not in the log of %d", seq, who, len(got))
		}
	}
}

// The lease does not work; only the locks on segments, the links and the looks keep writers apart.
func TestManyWithoutLease(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	fenced, busy, both := 0, 0, 0
	for round := range rounds {
		r := newRivals(t, func(name string) bool { return filepath.Base(name) == headerName })
		var wg sync.WaitGroup
		for i := range 3 {
			rnd := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			s := r.store(t)
			wg.Go(func() {
				for n := range 4 {
					w, err := s.Open(t.Context(), subject)
					if errors.Is(err, store.ErrBusy) {
						r.mu.Lock()
						r.busy++
						r.mu.Unlock()
						continue
					}
					if err != nil {
						t.Errorf("open: %v", err)
						return
					}
					r.write(t, w, fmt.Sprintf("life %d of %d", n, i), rnd, 1+rnd.IntN(5))
					w.Close()
				}
			})
		}
		wg.Wait()
		r.check(t)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
		fenced, busy = fenced+r.fenced, busy+r.busy
		if len(r.winners) > 1 {
			both++
		}
	}
	if fenced == 0 || both == 0 {
		t.Errorf("they never met: %d fenced, %d rounds with two winners", fenced, both)
	}
	t.Logf("%d fenced, %d busy, %d rounds with more than one winner", fenced, busy, both)
}

// No lock works at all: of two at most one acknowledges a seq.
func TestTwoWithoutLocks(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 30
	}
	fenced, both := 0, 0
	for round := range rounds {
		r := newRivals(t, func(string) bool { return true })
		rnd := rand.New(rand.NewPCG(uint64(round), 2)) // the young one's
		old, err := r.store(t).Open(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		lead := round % 4 // batches before the other comes
		var wg sync.WaitGroup
		begin := make(chan struct{})
		wg.Go(func() {
			if lead > 0 {
				evs := by("old", 3, lead)
				mustAppend(t, old, evs)
				for q := range mustFlush(t, old).Next - 3 {
					r.acked[3+q] = "old"
				}
			}
			close(begin)
			// From here on the two run side by side.
			next := session.Seq(3 + lead)
			for range 6 {
				if _, err = old.Append(t.Context(), by("old", next, 1)); err == nil {
					_, err = old.Flush(t.Context())
				}
				if errors.Is(err, store.ErrNotSaved) {
					continue
				}
				r.mu.Lock()
				if err == nil {
					if other := r.acked[next]; other != "" {
						t.Errorf("seq %d was acknowledged by %s and by old", next, other)
					}
					r.acked[next], r.winners["old"] = "old", true
				} else if errors.Is(err, store.ErrFenced) {
					r.fenced++
				} else {
					t.Errorf("old: %v", err)
				}
				r.mu.Unlock()
				if err != nil {
					return
				}
				next++
			}
		})
		wg.Go(func() {
			<-begin
			for range rnd.IntN(2000) {
				runtime.Gosched()
			}
			young, err := r.store(t).Open(t.Context(), subject)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			r.write(t, young, "young", rnd, 4)
		})
		wg.Wait()
		r.check(t)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
		fenced += r.fenced
		if r.winners["young"] {
			both++
		}
	}
	if fenced == 0 || both == 0 {
		t.Errorf("they never met: %d fenced, young won %d times", fenced, both)
	}
	t.Logf("%d fenced in %d rounds, young won %d times", fenced, rounds, both)
}

// The two orders in which a look and a link can fall, without any lock: the link first, then the look
// sees it; the write and look first, then whoever links sees that the segment before has grown.
func TestLookAndLink(t *testing.T) {
	all := func(string) bool { return true }
	pair := func(t *testing.T, oldFS, youngFS vfs.FS) (old, young store.Writer, s *Store) {
		root := t.TempDir()
		newStored(t, openStore(t, root, nil), subject, 3)
		var w [2]store.Writer
		for i, fs := range []vfs.FS{oldFS, youngFS} {
			s = openStore(t, root, noLocks{fs, all})
			s.locks = true // it believes so
			w[i] = must[store.Writer](t)(s.Open(t.Context(), subject))
			if i == 0 {
				mustAppend(t, w[0], by("old", 3, 1))
				mustFlush(t, w[0])
			}
		}
		return w[0], w[1], s
	}
	t.Run("link, then look", func(t *testing.T) {
		g := newGate(func(c vfs.Call) bool { return c.Op == vfs.OpWrite })
		old, young, s := pair(t, g.fs(), unsynced)
		g.armed.Store(true)
		done := make(chan error, 1)
		go func() {
			_, err := old.Append(context.Background(), by("old", 4, 2))
			if err == nil {
				_, err = old.Flush(context.Background())
			}
			done <- err
		}()
		<-g.reached
		mustAppend(t, young, by("young", 4, 1))
		mustFlush(t, young)
		close(g.open)
		if err := <-done; !errors.Is(err, store.ErrFenced) {
			t.Fatalf("old: %v", err)
		}
		got, _ := readEvents(t, s, subject)
		wantEvents(t, got[4:], by("young", 4, 1))
	})
	t.Run("look, then link", func(t *testing.T) {
		g := newGate(func(c vfs.Call) bool { return c.Op == vfs.OpLink })
		old, young, s := pair(t, unsynced, g.fs())
		g.armed.Store(true)
		done := make(chan error, 1)
		go func() {
			_, err := young.Append(context.Background(), by("young", 4, 2))
			done <- err
		}()
		<-g.reached
		mustAppend(t, old, by("old", 4, 1))
		mustFlush(t, old)
		close(g.open)
		if err := <-done; !errors.Is(err, store.ErrFenced) {
			t.Fatalf("young: %v", err)
		}
		mustAppend(t, old, by("old", 5, 1))
		mustFlush(t, old)
		got, _ := readEvents(t, s, subject)
		wantEvents(t, got[3:], by("old", 3, 3))
	})
}

// Of many that create one id exactly one wins; the others' answers say so.
func TestCreatorsRace(t *testing.T) {
	root := t.TempDir()
	var wins atomic.Int32
	var wg sync.WaitGroup
	var creators []store.Writer
	for range 8 {
		creators = append(creators, must[store.Writer](t)(openStore(t, root, nil).Create(t.Context(), testHeader(subject))))
	}
	for _, w := range creators {
		wg.Go(func() {
			_, err := w.Append(t.Context(), events(0, 2))
			switch {
			case err == nil:
				wins.Add(1)
			case !errors.Is(err, store.ErrExists):
				t.Errorf("loser: %v", err)
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Fatalf("%d winners", wins.Load())
	}
	list, err := os.ReadDir(filepath.Join(root, "sessions"))
	if err != nil || len(list) != 1 {
		t.Fatalf("left behind: %v %v", list, err)
	}
}
