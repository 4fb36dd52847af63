package keeper_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Random lives of one session on a store that fails at random: what was acknowledged is stored, in order,
// after every one of them; every stored log has one boundary per life that wrote over something; and a life
// that accepted nothing has changed nothing.
func TestRandomLives(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		st := newFake(t)
		var failing atomic.Bool
		var n atomic.Int64
		st.setHook(func(string, session.ID, []session.Event) error {
			if n.Add(1)%2 == 0 && failing.Load() {
				return errors.New("down")
			}
			return nil
		})
		var acked []session.Event
		for life := range rapid.IntRange(1, 5).Draw(rt, "lives") {
			k := start(st)
			var h *keeper.Handle
			var err error
			if h, err = k.Resume(t.Context(), "abcd"); errors.Is(err, store.ErrNotFound) {
				h, err = k.Create(t.Context(), header("abcd"), session.Seed{})
			}
			if err != nil {
				rt.Fatal(err)
			}
			before := stored(t, st, "abcd")
			turns, _ := h.Session().State().Turn()
			open, worked := false, false
			for range rapid.IntRange(0, 8).Draw(rt, "steps") {
				switch rapid.IntRange(0, 4).Draw(rt, "op") {
				case 0, 1:
					worked = true
					if open = !open; open {
						turns++
						put(t, h.Session(), openTurn(turns)...)
					} else {
						put(t, h.Session(), endTurn(turns)...)
					}
				case 2:
					if h.Flush(t.Context()) == nil && worked {
						acked = events(t, h.Session().Events())
					}
				case 3:
					_ = h.Flush(t.Context())
					h.Full()
					h.Unsaved()
				case 4:
					failing.Store(!failing.Load())
					runtime.Gosched()
				}
			}
			if rapid.Bool().Draw(rt, "clean end") {
				failing.Store(false)
				if err := h.Dispose(t.Context()); err != nil {
					rt.Fatal(err)
				}
				if worked {
					acked = events(t, session.Events(stored(t, st, "abcd")))
					if session.Seq(len(acked)) != h.Session().Len() {
						rt.Fatalf("disposed with %d of %d events", len(acked), h.Session().Len())
					}
				}
			} else {
				lost, err := h.Abandon(t.Context())
				if err != nil {
					rt.Fatal(err)
				}
				if got := len(stored(t, st, "abcd")); worked && got+len(lost) < int(h.Session().Len()) {
					rt.Fatalf("%d stored, %d handed back, %d accepted", got, len(lost), h.Session().Len())
				}
			}
			got := stored(t, st, "abcd")
			if !worked && len(got) != len(before) {
				rt.Fatalf("life %d did nothing and changed the log from %d to %d events", life, len(before), len(got))
			}
			if len(got) < len(acked) {
				rt.Fatalf("%d stored, %d acknowledged", len(got), len(acked))
			}
			for i, ev := range acked {
				if got[i].Seq != ev.Seq || got[i].Time != ev.Time || string(got[i].Data) != string(ev.Data) {
					rt.Fatalf("seq %d is another event than the acknowledged one", i)
				}
			}
			if len(got) > 0 && got[len(got)-1].Type == session.TypeInherited {
				rt.Fatal("a pending prefix was written alone")
			}
			// What is stored always loads and is valid by the strict rules once closed.
			state, err := session.Fold(header("abcd"), session.Core(), session.Events(got))
			if err != nil || len(state.Problems()) > 0 {
				rt.Fatalf("%v %v", err, state.Problems())
			}
		}
	})
}

// An idle session costs no goroutine, and what is disposed leaves nothing: a bubble ends only when all
// goroutines that were started in it have ended.
func TestThousandsOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFake(t)
		k := start(st)
		goroutines := runtime.NumGoroutine()
		const n = 2000
		hs := make([]*keeper.Handle, n)
		for i := range hs {
			hs[i] = create(t, k, session.ID(fmt.Sprintf("id-%05d", i)))
			put(t, hs[i].Session(), titled("x"))
		}
		synctest.Wait()
		if g := runtime.NumGoroutine(); g > goroutines+n/10 { // others of the test binary come and go
			t.Errorf("%d idle sessions cost %d goroutines", n, g-goroutines)
		}
		var wg sync.WaitGroup
		for i, h := range hs {
			wg.Go(func() {
				put(t, h.Session(), titled("y"))
				if i%2 == 0 {
					dispose(t, h)
				}
			})
		}
		wg.Wait()
		if err := k.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if a, b, c := k.Sizes(); a+b+c != 0 || len(k.lv.All()) != 0 {
			t.Errorf("left behind: %d handles, %d claims, %d locks, %d live", a, b, c, len(k.lv.All()))
		}
		for i := range hs {
			if got := stored(t, st, session.ID(fmt.Sprintf("id-%05d", i))); len(got) != 2 {
				t.Fatalf("session %d has %d events", i, len(got))
			}
		}
	})
}

// Many callers work on few ids: at most one life of each, whatever they do.
func TestSameIDs(t *testing.T) {
	st := newFake(t)
	k := start(st)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				id := session.ID(fmt.Sprintf("id-%d", (i+g)%3))
				h, err := k.Resume(t.Context(), id)
				if errors.Is(err, store.ErrNotFound) {
					h, err = k.Create(t.Context(), header(id), session.Seed{})
				}
				switch {
				case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrExists):
					if _, err := k.Fork(t.Context(), id, store.ForkOptions{}); err != nil && !errors.Is(err, store.ErrNotFound) {
						t.Error(err)
					}
					if h, ok := k.Get(id); ok {
						if err := h.Flush(t.Context()); err != nil && !errors.Is(err, store.ErrClosed) {
							t.Error(err)
						}
					}
				case err != nil:
					t.Error(err)
				default:
					put(t, h.Session(), titled("x"))
					dispose(t, h)
				}
			}
		})
	}
	wg.Wait()
	for i := range 3 {
		id := session.ID(fmt.Sprintf("id-%d", i))
		got := stored(t, st, id)
		titles := 0
		for _, ev := range got {
			if ev.Type == session.TypeTitle {
				titles++
			}
		}
		if titles == 0 || len(got) != 2*titles-1 {
			t.Errorf("%s: %d titles in %d events: each life but the first has one boundary", id, titles, len(got))
		}
	}
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
