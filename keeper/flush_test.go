package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/live"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func startWith(st store.Store, opt keeper.Options) process {
	lv := live.New()
	return process{keeper.New(st, lv, opt), lv}
}

// Written at once, without a flush; a flush of what is synced asks nobody.
func TestWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFake(t)
		k := start(st)
		h := create(t, k, "abcd")
		put(t, h.Session(), titled("x"))
		synctest.Wait()
		same(t, "without a flush", stored(t, st, "abcd"), "title")
		if st.count("flush") != 0 || h.Synced() != 0 {
			t.Error("synced without being asked")
		}
		if u := h.Unsaved(); len(u) != 1 {
			t.Errorf("written is not synced: %v", u)
		}
		was, grown := h.Durable()
		select {
		case <-grown:
			t.Error("grown without a sync")
		default:
		}
		flush(t, h)
		<-grown
		if now, _ := h.Durable(); was != 0 || now != 1 {
			t.Errorf("durable up to %d, then %d", was, now)
		}
		if h.Synced() != 1 || h.Unsaved() != nil {
			t.Errorf("synced %d, unsaved %v", h.Synced(), h.Unsaved())
		}
		n := st.count("append") + st.count("flush")
		for range 10 {
			flush(t, h)
		}
		if got := st.count("append") + st.count("flush"); got != n {
			t.Errorf("%d calls for flushes of nothing", got-n)
		}
		dispose(t, h)
		if got := st.count("append") + st.count("flush"); got != n {
			t.Errorf("%d calls to dispose of what is saved", got-n)
		}
	})
}

// What arrives during a write forms the next batch; appends never wait for it; flushes share.
func TestBatchesAndSharedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFake(t)
		k := start(st)
		h := create(t, k, "abcd")
		slow := make(chan struct{})
		st.setHook(func(op string, _ session.ID, _ []session.Event) error {
			if op == "append" {
				<-slow
			}
			return nil
		})
		var batches []int
		st.onWrite(func(_ session.ID, evs []session.Event) { batches = append(batches, len(evs)) })
		put(t, h.Session(), titled("1"))
		synctest.Wait()
		var wg sync.WaitGroup
		for i := range 50 { // none of these may block
			put(t, h.Session(), titled(fmt.Sprint(i)))
			wg.Go(func() { flush(t, h) })
		}
		synctest.Wait()
		close(slow)
		wg.Wait()
		if len(batches) != 2 || batches[0] != 1 || batches[1] != 50 {
			t.Errorf("batches %v, want 1 and 50", batches)
		}
		// One flush may have come in with the first batch; the other 50 targets share at most two syncs.
		if n := st.count("flush"); n > 2 {
			t.Errorf("%d syncs for 50 flushes", n)
		}
		dispose(t, h)
	})
}

// A flush is nil only when everything accepted before it is synced, whoever else appends and flushes.
func TestFlushIsABarrier(t *testing.T) {
	st := newFake(t)
	k := start(st)
	var fails atomic.Int64
	st.setHook(func(op string, _ session.ID, _ []session.Event) error {
		if n := fails.Add(1); n%7 == 3 { // syncs and writes fail now and then
			return fmt.Errorf("%s failed (%d)", op, n)
		}
		return nil
	})
	h := create(t, k, "abcd")
	var wg sync.WaitGroup
	var acked atomic.Int64
	for g := range 8 {
		wg.Go(func() {
			for i := range 60 {
				ev, err := h.Session().Append(titled(fmt.Sprint(g, i)))
				if err != nil {
					t.Error(err)
					return
				}
				switch err := h.Flush(t.Context()); {
				case err == nil:
					acked.Add(1)
					if got := st.syncedTo("abcd"); got <= ev.Seq { // what a crash now would leave
						t.Errorf("seq %d is acknowledged, synced is %d", ev.Seq, got)
					}
				case !errors.Is(err, store.ErrNotSaved):
					t.Errorf("err %v", err)
				}
			}
		})
	}
	wg.Wait()
	st.setHook(nil)
	dispose(t, h)
	if acked.Load() == 0 {
		t.Error("nothing was ever acknowledged")
	}
	got := stored(t, st, "abcd")
	if len(got) != 480 {
		t.Errorf("%d stored", len(got))
	}
	for i, ev := range got {
		if ev.Seq != session.Seq(i) {
			t.Fatalf("seq %d at %d", ev.Seq, i)
		}
	}
}

func TestFailureIsVisibleAndRetried(t *testing.T) {
	for _, op := range []string{"append", "flush"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := newFake(t)
				k := start(st)
				down := errors.New("disk full")
				fail := func(what string, _ session.ID, _ []session.Event) error {
					if what == op {
						return down
					}
					return nil
				}
				st.setHook(fail)
				h := create(t, k, "abcd") // the first write of all fails
				put(t, h.Session(), titled("1"), titled("2"))
				err := h.Flush(t.Context())
				var ns *store.NotSavedError
				if !errors.As(err, &ns) || !errors.Is(err, down) || ns.ID != "abcd" || ns.Path != "the store" {
					t.Fatalf("flush: %v", err)
				}
				if !errors.Is(h.Saved(), store.ErrNotSaved) || len(h.Unsaved()) != 2 || h.Synced() != 0 {
					t.Errorf("saved %v, unsaved %d", h.Saved(), len(h.Unsaved()))
				}
				// No spinning: a failure is tried again by an event or a flush only.
				synctest.Wait()
				n := st.count(op)
				synctest.Wait()
				if st.count(op) != n {
					t.Error("it spins")
				}
				// A failed flush keeps session, lease and events.
				if err := h.Dispose(t.Context()); !errors.Is(err, store.ErrNotSaved) {
					t.Errorf("dispose: %v", err)
				}
				if _, ok := k.Get("abcd"); !ok || k.lv.Phase("abcd") == "" || len(h.Unsaved()) != 2 {
					t.Error("a failed dispose forgot something")
				}
				if _, err := k.Create(t.Context(), header("abcd"), session.Seed{}); !errors.Is(err, store.ErrExists) {
					t.Errorf("the id is free: %v", err)
				}
				if _, err := h.Session().Append(titled("3")); !errors.Is(err, session.ErrDisposed) {
					t.Errorf("admission goes on after dispose: %v", err)
				}
				if err := k.Close(t.Context()); !errors.Is(err, store.ErrNotSaved) {
					t.Errorf("close: %v", err)
				}
				st.setHook(nil)
				if err := k.Close(t.Context()); err != nil {
					t.Errorf("close, disk free again: %v", err)
				}
				same(t, "stored", stored(t, st, "abcd"), "title title")
				dispose(t, h)

				// Retried by the next event alone.
				k = start(st)
				h = resume(t, k, "abcd")
				st.setHook(fail)
				put(t, h.Session(), titled("3"))
				if err := h.Flush(t.Context()); !errors.Is(err, store.ErrNotSaved) {
					t.Fatalf("flush: %v", err)
				}
				st.setHook(nil)
				put(t, h.Session(), titled("4"))
				synctest.Wait()
				if h.Saved() != nil || h.Synced() != 5 {
					t.Errorf("after the next event: %v, synced %d", h.Saved(), h.Synced())
				}
				same(t, "stored", stored(t, st, "abcd"), "title title | title title")
				dispose(t, h)
			})
		})
	}
}

// A write that took effect and then failed is handed over again; events are neither lost nor doubled.
func TestWrittenButFailed(t *testing.T) {
	st := newFake(t)
	k := start(st)
	n := 0
	st.after = func(string, session.ID) error {
		if n++; n%2 == 1 {
			return errors.New("short write")
		}
		return nil
	}
	h := create(t, k, "abcd")
	for i := range 20 {
		put(t, h.Session(), titled(fmt.Sprint(i)))
		for h.Flush(t.Context()) != nil {
		}
	}
	dispose(t, h)
	got := stored(t, st, "abcd")
	if len(got) != 20 {
		t.Errorf("%d stored", len(got))
	}
}

func TestCancelledFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFake(t)
		k := start(st)
		slow := make(chan struct{})
		st.setHook(func(string, session.ID, []session.Event) error { <-slow; return nil })
		h := create(t, k, "abcd")
		put(t, h.Session(), titled("x"))
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error, 1)
		go func() { got <- h.Flush(ctx) }()
		synctest.Wait()
		why := errors.New("the user left")
		cancel(why)
		if err := <-got; !errors.Is(err, why) {
			t.Errorf("err %v", err)
		}
		if err := h.Dispose(ctx); !errors.Is(err, why) {
			t.Errorf("dispose: %v", err)
		}
		stop, end := context.WithCancelCause(t.Context())
		go func() { got <- h.Dispose(stop) }()
		synctest.Wait()
		// Operations on one id are done one after the other; who waits can leave.
		ctx2, cancel2 := context.WithCancelCause(t.Context())
		go func() { _, err := k.Resume(ctx2, "abcd"); got <- err }()
		synctest.Wait()
		cancel2(why)
		if err := <-got; !errors.Is(err, why) {
			t.Errorf("resume while it is disposed: %v", err)
		}
		end(why)
		if err := <-got; !errors.Is(err, why) {
			t.Errorf("dispose: %v", err)
		}
		close(slow)
		synctest.Wait()
		same(t, "saving went on", stored(t, st, "abcd"), "title")
		if h.Synced() != 1 {
			t.Errorf("synced %d", h.Synced())
		}
		dispose(t, h)
	})
}

func TestQueueLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFake(t)
		opt := options()
		opt.QueueEvents, opt.QueueBytes = 10, 10_000
		k := startWith(st, opt)
		down := errors.New("down")
		st.setHook(func(string, session.ID, []session.Event) error { return down })
		h := create(t, k, "abcd")
		for i := range 9 {
			put(t, h.Session(), titled(fmt.Sprint(i)))
		}
		synctest.Wait()
		if h.Full() {
			t.Error("full with 9 of 10")
		}
		put(t, h.Session(), titled("10"))
		if !h.Full() {
			t.Error("not full with 10 of 10")
		}
		put(t, h.Session(), titled("11")) // appending is never refused
		st.setHook(nil)
		flush(t, h)
		if h.Full() {
			t.Error("full when all is saved")
		}
		st.setHook(func(string, session.ID, []session.Event) error { return down })
		put(t, h.Session(), titled(string(make([]rune, 3_000))))
		synctest.Wait()
		if !h.Full() {
			t.Error("not full by bytes")
		}
		st.setHook(nil)
		// While writing succeeds, events that only wait for a sync do not count.
		put(t, h.Session(), titled("x"))
		synctest.Wait()
		for i := range 20 {
			put(t, h.Session(), titled(fmt.Sprint(i)))
			synctest.Wait()
		}
		if h.Full() {
			t.Error("full although everything is written")
		}
		dispose(t, h)
	})
}

// Without a flush from anybody memory stays bounded: the drainer syncs by itself and gives back.
func TestMemoryIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFake(t)
		k := start(st)
		h := create(t, k, "abcd")
		for i := range 5000 {
			put(t, h.Session(), titled(fmt.Sprint(i)))
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if n := st.count("flush"); n < 3 || n > 6 {
			t.Errorf("%d syncs for 5000 events that nobody flushed", n)
		}
		if n := len(h.Unsaved()); n > 1100 {
			t.Errorf("%d events held", n)
		}
		if n := st.count("stored"); n != st.count("flush") {
			t.Errorf("memory is given back %d times at %d syncs", n, st.count("flush"))
		}
		flush(t, h)
		n := st.count("stored")
		for range 10 { // a little is kept: old events that are read again soon
			put(t, h.Session(), titled("x"))
			flush(t, h)
		}
		if got := st.count("stored"); got != n {
			t.Errorf("given back %d times for 10 small events", got-n)
		}
		if got := events(t, h.Session().Events()); len(got) != 5010 {
			t.Errorf("%d events readable", len(got))
		}
		dispose(t, h)
	})
}

// Who takes a session out of the registry himself does not keep its lease from being released.
func TestDisposedElsewhere(t *testing.T) {
	st := newFake(t)
	k := start(st)
	h := create(t, k, "abcd")
	put(t, h.Session(), titled("x"))
	if err := k.lv.Dispose(t.Context(), h.Session(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Resume(t.Context(), "abcd"); !errors.Is(err, store.ErrBusy) {
		t.Errorf("resume of what is attached: %v", err)
	}
	dispose(t, h)
	dispose(t, resume(t, k, "abcd"))
	same(t, "stored", stored(t, st, "abcd"), "title")
}

func TestAbandon(t *testing.T) {
	st := newFake(t)
	crash(t, st, "abcd")
	k := start(st)
	h := resume(t, k, "abcd")
	if lost, err := h.Abandon(t.Context()); err != nil || lost != nil {
		t.Errorf("nothing but pending: %v %v", lost, err)
	}
	h = resume(t, k, "abcd")
	st.setHook(func(string, session.ID, []session.Event) error { return errors.New("down") })
	put(t, h.Session(), titled("x"))
	if err := h.Dispose(t.Context()); !errors.Is(err, store.ErrNotSaved) {
		t.Fatal(err)
	}
	lost, err := h.Abandon(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "unsaved", lost, "result /step /turn | title")
	if again, err := h.Abandon(t.Context()); err != nil || again != nil {
		t.Errorf("twice: %v %v", again, err)
	}
	if err := h.Flush(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("flush of what is abandoned: %v", err)
	}
	st.setHook(nil)
	dispose(t, resume(t, k, "abcd"))
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := k.Resume(t.Context(), "abcd"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("resume after close: %v", err)
	}
}

// Of sessions that never rest none keeps the processor: who was served lets the others go first.
func TestServedInTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const sessions, turns = 4, 50
	k := start(newFake(t))
	var mu sync.Mutex
	var order []int
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range sessions {
		h := create(t, k, session.ID(fmt.Sprintf("id-%04d", i)))
		wg.Go(func() {
			<-begin
			for range turns {
				put(t, h.Session(), titled("x"))
				flush(t, h)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			}
		})
	}
	close(begin)
	wg.Wait()
	others := 0
	for i := 1; i < len(order); i++ {
		if order[i] != order[i-1] {
			others++
		}
	}
	if others < len(order)/4 {
		t.Errorf("of %d turns %d came behind one of another session", len(order), others)
	}
}
