package keeper_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// takeOver lets another life write at the end of a session that h believes to hold.
func takeOver(t *testing.T, st *fake, id session.ID, n int) *keeper.Handle {
	t.Helper()
	st.Memory().DropLease(id)
	other := start(st)
	h := resume(t, other, id)
	for range n {
		put(t, h.Session(), titled("the other's"))
	}
	flush(t, h)
	return h
}

func TestFencedSavesAFork(t *testing.T) {
	st := newFake(t)
	k := start(st)
	h := create(t, k, "abcd")
	put(t, h.Session(), openTurn(1)...)
	put(t, h.Session(), endTurn(1)...)
	flush(t, h)
	takeOver(t, st, "abcd", 3)

	put(t, h.Session(), openTurn(2)...)
	err := h.Flush(t.Context())
	var f *store.FencedError
	if !errors.As(err, &f) || f.SavedAs == "" {
		t.Fatalf("err %v", err)
	}
	if !errors.Is(h.Saved(), store.ErrFenced) || h.Unsaved() != nil {
		t.Errorf("saved %v, unsaved %v", h.Saved(), h.Unsaved())
	}
	if _, err := h.Session().Append(titled("x")); !errors.Is(err, session.ErrDisposed) {
		t.Errorf("a fenced session accepts: %v", err)
	}
	same(t, "the session is the other's", stored(t, st, "abcd"), repaired+" | title title title")
	same(t, "the fork has this life's events", stored(t, st, f.SavedAs), repaired+" "+crashed)
	stat, err := st.Stat(t.Context(), f.SavedAs)
	if err != nil {
		t.Fatal(err)
	}
	if p := stat.Header.Parent; p == nil || p.ID != "abcd" || p.Seq != 7 || stat.Header.Cwd != "/w" || stat.Header.Kind != session.KindFork {
		t.Errorf("header %+v", stat.Header)
	}
	n := st.count("append") + st.count("fork")
	if h.Flush(t.Context()) == nil || st.count("append")+st.count("fork") != n {
		t.Error("a fenced life writes, or forks again")
	}
	if err := h.Dispose(t.Context()); !errors.As(err, &f) || f.SavedAs == "" {
		t.Errorf("dispose: %v", err)
	}
	if _, ok := k.Get("abcd"); ok || k.lv.Phase("abcd") != "" {
		t.Error("not forgotten")
	}
	// The fork goes on as any session does: its open turn is repaired, its brackets are dead.
	c := resume(t, k, f.SavedAs)
	same(t, "resumed fork", events(t, c.Session().Events()), repaired+" "+repaired+" |")
	dispose(t, c)
}

// What is accepted while the write is under way that meets the fence is in the fork too, and there is one.
func TestFencedWhileAppending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFake(t)
		k := start(st)
		h := create(t, k, "abcd")
		put(t, h.Session(), titled("1"))
		flush(t, h)
		takeOver(t, st, "abcd", 1)
		slow := make(chan struct{})
		st.setHook(func(op string, _ session.ID, _ []session.Event) error {
			if op == "append" {
				<-slow
			}
			return nil
		})
		put(t, h.Session(), titled("2"))
		synctest.Wait()
		put(t, h.Session(), titled("3"))
		close(slow)
		synctest.Wait()
		var f *store.FencedError
		if err := h.Saved(); !errors.As(err, &f) || st.count("fork") != 1 {
			t.Fatalf("%v, %d forks", err, st.count("fork"))
		}
		same(t, "fork", stored(t, st, f.SavedAs), "title title title")
		if err := h.Dispose(t.Context()); !errors.Is(err, store.ErrFenced) {
			t.Error(err)
		}
	})
}

// Fenced with nothing but the pending prefix written by the other: own closers and boundary go along.
func TestFencedFirstWrite(t *testing.T) {
	st := newFake(t)
	crash(t, st, "abcd")
	k := start(st)
	h := resume(t, k, "abcd")
	takeOver(t, st, "abcd", 1)
	put(t, h.Session(), titled("mine"))
	var f *store.FencedError
	if err := h.Flush(t.Context()); !errors.As(err, &f) {
		t.Fatalf("err %v", err)
	}
	// The closers are equal in both lives: the logs part at the boundary, whose time differs.
	got := stored(t, st, f.SavedAs)
	same(t, "fork", got, repaired+" | title")
	stat, err := st.Stat(t.Context(), f.SavedAs)
	if err != nil || stat.Header.SeedLength < 5 {
		t.Errorf("header %+v %v", stat.Header, err)
	}
	if err := h.Dispose(t.Context()); !errors.Is(err, store.ErrFenced) {
		t.Error(err)
	}
}

func TestFencedBeforeAnything(t *testing.T) {
	st := newFake(t)
	k := start(st)
	h := create(t, k, "abcd")
	st.Memory().DropLease("abcd")
	other := start(st)
	o := create(t, other, "abcd")
	put(t, o.Session(), titled("the other's"))
	flush(t, o)
	put(t, h.Session(), openTurn(1)...)
	var f *store.FencedError
	if err := h.Flush(t.Context()); !errors.As(err, &f) || f.SavedAs == "" {
		t.Fatalf("err %v", err)
	}
	same(t, "fork", stored(t, st, f.SavedAs), crashed)
	same(t, "session", stored(t, st, "abcd"), "title")
	if err := h.Dispose(t.Context()); !errors.Is(err, store.ErrFenced) {
		t.Error(err)
	}
}

// While the fork cannot be made the events are kept, and it is tried again.
func TestFencedForkFails(t *testing.T) {
	st := newFake(t)
	k := start(st)
	h := create(t, k, "abcd")
	put(t, h.Session(), titled("1"))
	flush(t, h)
	takeOver(t, st, "abcd", 1)
	full := errors.New("disk full")
	st.setHook(func(op string, _ session.ID, _ []session.Event) error {
		if op == "fork" {
			return full
		}
		return nil
	})
	put(t, h.Session(), titled("2"))
	for range 2 {
		err := h.Dispose(t.Context())
		if !errors.Is(err, store.ErrNotSaved) || !errors.Is(err, store.ErrFenced) || !errors.Is(err, full) {
			t.Fatalf("err %v", err)
		}
		if u := h.Unsaved(); len(u) != 1 {
			t.Errorf("unsaved %v", u)
		}
	}
	st.setHook(nil)
	var f *store.FencedError
	if err := h.Dispose(t.Context()); !errors.As(err, &f) || f.SavedAs == "" || errors.Is(err, store.ErrNotSaved) {
		t.Fatalf("err %v", err)
	}
	same(t, "fork", stored(t, st, f.SavedAs), "title title")
}

// A fence that is met while nothing is unsaved makes no fork.
func TestFencedAtFlushOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFake(t)
		k := start(st)
		h := create(t, k, "abcd")
		put(t, h.Session(), titled("1"), titled("2"))
		synctest.Wait() // written, not synced
		takeOver(t, st, "abcd", 1)
		var f *store.FencedError
		if err := h.Flush(t.Context()); !errors.As(err, &f) || f.SavedAs != "" {
			t.Errorf("err %v", err)
		}
		if st.count("fork") != 0 {
			t.Error("an empty fork")
		}
		if err := h.Dispose(t.Context()); !errors.Is(err, store.ErrFenced) {
			t.Error(err)
		}
	})
}

// The loser of a race for an id learns that it exists; it can be let go.
func TestExistsAtFirstWrite(t *testing.T) {
	st := newFake(t)
	k := start(st)
	st.setHook(func(op string, id session.ID, _ []session.Event) error {
		return &store.ExistsError{ID: id}
	})
	h := create(t, k, "abcd")
	put(t, h.Session(), titled("1"))
	if err := h.Flush(t.Context()); !errors.Is(err, store.ErrExists) {
		t.Errorf("err %v", err)
	}
	if u := h.Unsaved(); len(u) != 1 {
		t.Errorf("unsaved %v", u)
	}
	if err := h.Dispose(t.Context()); !errors.Is(err, store.ErrExists) {
		t.Errorf("err %v", err)
	}
	if _, ok := k.Get("abcd"); ok {
		t.Error("not forgotten")
	}
}
