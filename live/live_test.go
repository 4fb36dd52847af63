package live_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/strandline-dev/strandline/live"
	"github.com/strandline-dev/strandline/session"
)

func fresh(t testing.TB, id session.ID, seed session.Seed) *session.Session {
	t.Helper()
	h := session.Header{Format: session.Format, ID: id, Kind: session.KindRoot, CreatedAt: 1}
	s, err := session.New(h, seed, session.Env{Now: func() int64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func publish(t testing.TB, r *live.Registry, s *session.Session) {
	t.Helper()
	place, err := r.Reserve(s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := place.Publish(s); err != nil {
		t.Fatal(err)
	}
}

func title(t testing.TB, s *session.Session) session.Event {
	t.Helper()
	ev, err := s.Append(session.Draft{Type: session.TypeTitle, Data: session.Title{Title: "t", Source: "user"}})
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

func TestReservationFreesItself(t *testing.T) {
	r := live.New()
	place, err := r.Reserve("abcd")
	if err != nil {
		t.Fatal(err)
	}
	var taken *live.TakenError
	if _, err := r.Reserve("abcd"); !errors.As(err, &taken) || taken.Phase != live.Reserved {
		t.Fatalf("a second reservation: %v", err)
	}
	if _, ok := r.Get("abcd"); ok || len(r.All()) != 0 {
		t.Error("a reservation is visible")
	}
	place.Release()
	place.Release()
	if r.Phase("abcd") != "" {
		t.Errorf("phase %q after Release", r.Phase("abcd"))
	}
	// An old reservation does not free its successor, and publishes nothing.
	second, err := r.Reserve("abcd")
	if err != nil {
		t.Fatal(err)
	}
	place.Release()
	if err := place.Publish(fresh(t, "abcd", session.Seed{})); err == nil {
		t.Error("an ended reservation was published")
	}
	if r.Phase("abcd") != live.Reserved {
		t.Errorf("phase %q: an old reservation freed its successor", r.Phase("abcd"))
	}
	if err := second.Publish(fresh(t, "other", session.Seed{})); err == nil {
		t.Error("published under another id")
	}
	if err := second.Publish(fresh(t, "abcd", session.Seed{})); err != nil {
		t.Error(err)
	}
	second.Release()
	if _, ok := r.Get("abcd"); !ok {
		t.Error("Release after Publish took the session out")
	}
}

func TestVetoRollsBack(t *testing.T) {
	var log []string
	note := func(name string, refuse error) live.Observer {
		return live.Observer{
			Created: func(s *session.Session, _ session.Seq) error {
				log = append(log, name+" created "+string(s.ID()))
				return refuse
			},
			Disposed: func(s *session.Session) { log = append(log, name+" disposed "+string(s.ID())) },
		}
	}
	no := errors.New("no")
	r := live.New(note("a", nil), live.Observer{}, note("b", nil))
	stop := r.Observe(note("c", no))
	place, _ := r.Reserve("abcd")
	s := fresh(t, "abcd", session.Seed{})
	err := place.Publish(s)
	var veto *live.VetoError
	if !errors.As(err, &veto) || !errors.Is(err, no) || !errors.Is(err, live.ErrVetoed) {
		t.Fatalf("err %v", err)
	}
	want := []string{"a created abcd", "b created abcd", "c created abcd", "b disposed abcd", "a disposed abcd"}
	if !slices.Equal(log, want) {
		t.Errorf("log %v\nwant %v", log, want)
	}
	if r.Phase("abcd") != "" || s.Disposed() {
		t.Errorf("phase %q, disposed %v: the id must be free and the session the caller's", r.Phase("abcd"), s.Disposed())
	}
	stop()
	log = nil
	publish(t, r, s)
	late := r.Observe(note("d", nil))
	if err := r.Dispose(t.Context(), s, func() error { log = append(log, "release"); return no }); !errors.Is(err, no) {
		t.Errorf("dispose: %v", err)
	}
	late()
	want = []string{"a created abcd", "b created abcd", "release", "b disposed abcd", "a disposed abcd"}
	if !slices.Equal(log, want) {
		t.Errorf("log %v\nwant %v", log, want)
	}
}

func TestPanickingObserverWedgesNothing(t *testing.T) {
	disposed := 0
	r := live.New(live.Observer{Disposed: func(*session.Session) { disposed++ }},
		live.Observer{Created: func(*session.Session, session.Seq) error { panic("boom") }})
	place, _ := r.Reserve("abcd")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = place.Publish(fresh(t, "abcd", session.Seed{}))
	}()
	if r.Phase("abcd") != "" || disposed != 1 {
		t.Errorf("phase %q, %d told of the end", r.Phase("abcd"), disposed)
	}
}

// The feed holds what is accepted between created and disposed: not the seed, not the boundary.
func TestFeed(t *testing.T) {
	seed := session.Events{title(t, fresh(t, "abcd", session.Seed{}))}
	s := fresh(t, "abcd", session.Seed{Prefix: seed})
	var from session.Seq
	var atEnd error
	r := live.New(live.Observer{
		Created: func(_ *session.Session, f session.Seq) error { from = f; return nil },
		Disposed: func(s *session.Session) {
			_, atEnd = s.Append(session.Draft{Type: session.TypeTitle, Data: struct{}{}})
		},
	})
	publish(t, r, s)
	if got, ok := r.Get("abcd"); !ok || got != s {
		t.Fatal("not live")
	}
	ev := title(t, s)
	evs, _, err := s.From(from)
	if err != nil || len(evs) != 1 || evs[0].Seq != ev.Seq || from != 2 {
		t.Errorf("feed from %d: %v %v", from, evs, err)
	}
	if err := r.Dispose(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(atEnd, session.ErrDisposed) {
		t.Errorf("an observer of the end could append: %v", atEnd)
	}
	if err := r.Dispose(t.Context(), s, nil); !errors.Is(err, live.ErrNotLive) {
		t.Errorf("disposing what is gone: %v", err)
	}
}

// An id is reusable only when the disposal is complete; who disposes at the same time waits for that.
func TestDisposeIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := live.New()
		s := fresh(t, "abcd", session.Seed{})
		publish(t, r, s)
		hold := make(chan struct{})
		released := 0
		first := make(chan error, 1)
		go func() { first <- r.Dispose(t.Context(), s, func() error { released++; <-hold; return nil }) }()
		synctest.Wait()
		if _, ok := r.Get("abcd"); ok {
			t.Error("live while it is disposed")
		}
		var taken *live.TakenError
		if _, err := r.Reserve("abcd"); !errors.As(err, &taken) || taken.Phase != live.Disposing {
			t.Errorf("the id is free before the disposal is complete: %v", err)
		}
		second := make(chan error, 1)
		go func() { second <- r.Dispose(t.Context(), s, func() error { released++; return nil }) }()
		gone, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		cancel(why)
		if err := r.Dispose(gone, s, nil); !errors.Is(err, why) {
			t.Errorf("cancelled wait: %v", err)
		}
		synctest.Wait()
		select {
		case <-second:
			t.Error("the second caller did not wait")
		default:
		}
		close(hold)
		if err := errors.Join(<-first, <-second); err != nil || released != 1 {
			t.Errorf("err %v, released %d times", err, released)
		}
		if _, err := r.Reserve("abcd"); err != nil {
			t.Errorf("after the disposal: %v", err)
		}
	})
}

// Observers may use the registry; the one thing they must not do is refused.
func TestObserversMayCallBack(t *testing.T) {
	r := live.New()
	other := fresh(t, "other", session.Seed{})
	publish(t, r, other)
	var inside error
	r.Observe(live.Observer{
		Created: func(s *session.Session, _ session.Seq) error {
			if _, ok := r.Get(s.ID()); ok {
				t.Error("visible before all observers agreed")
			}
			inside = r.Dispose(t.Context(), s, nil)
			_, err := r.Reserve("third")
			return err
		},
		Disposed: func(*session.Session) { r.All() },
	})
	s := fresh(t, "abcd", session.Seed{})
	publish(t, r, s)
	if !errors.Is(inside, live.ErrTaken) {
		t.Errorf("disposing what is being announced: %v", inside)
	}
	if all := r.All(); len(all) != 2 || all[0] != other || all[1] != s {
		t.Errorf("All is not in the order of publication: %v", all)
	}
	if err := r.Dispose(t.Context(), s, nil); err != nil {
		t.Error(err)
	}
}

func TestConcurrent(t *testing.T) {
	var mu sync.Mutex
	balance := map[session.ID]int{}
	r := live.New(live.Observer{
		Created: func(s *session.Session, _ session.Seq) error {
			mu.Lock()
			defer mu.Unlock()
			if balance[s.ID()]++; balance[s.ID()] != 1 {
				t.Errorf("%s is live %d times", s.ID(), balance[s.ID()])
			}
			return nil
		},
		Disposed: func(s *session.Session) { mu.Lock(); balance[s.ID()]--; mu.Unlock() },
	})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				id := session.ID(fmt.Sprintf("id-%02d", (g+i)%5))
				place, err := r.Reserve(id)
				if err != nil {
					if s, ok := r.Get(id); ok {
						_ = r.Dispose(context.Background(), s, nil)
					}
					continue
				}
				if err := place.Publish(fresh(t, id, session.Seed{})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, s := range r.All() {
		if err := r.Dispose(t.Context(), s, nil); err != nil {
			t.Error(err)
		}
	}
	for id, n := range balance {
		if n != 0 || r.Phase(id) != "" {
			t.Errorf("%s: balance %d, phase %q", id, n, r.Phase(id))
		}
	}
}
