package keeper_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/live"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// alone builds a session without a keeper.
func alone(t testing.TB, h session.Header, seed session.Seed) *session.Session {
	t.Helper()
	s, err := session.New(h, seed, session.Env{Now: counter(5000)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAdoptNotStored(t *testing.T) {
	st := newFake(t)
	k := start(st)
	s := alone(t, header("abcd"), session.Seed{})
	put(t, s, openTurn(1)...)
	h, err := k.Adopt(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := k.Adopt(t.Context(), s); err != nil || again != h {
		t.Errorf("adopting twice: %v", err)
	}
	if got, ok := k.lv.Get("abcd"); !ok || got != s {
		t.Error("not published")
	}
	put(t, s, endTurn(1)...)
	dispose(t, h)
	same(t, "began empty, attached late: no boundary", stored(t, st, "abcd"), repaired)
}

func TestAdoptStored(t *testing.T) {
	for name, noLink := range map[string]bool{"by link": false, "by event": true} {
		t.Run(name, func(t *testing.T) {
			st := newFake(t)
			crash(t, st, "abcd")
			opt := options()
			if noLink {
				opt.Link = nil
			}
			k := startWith(st, opt)
			seed := session.Events(stored(t, st, "abcd"))
			s := alone(t, header("abcd"), session.Seed{Prefix: seed})
			if s.FirstLiveSeq() != 5 {
				t.Fatalf("first live %d", s.FirstLiveSeq())
			}
			h, err := k.Adopt(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			flush(t, h)
			dispose(t, h)
			same(t, "only the boundary: nothing is written", stored(t, st, "abcd"), crashed)

			// With real ends: the suffix, boundary first; no closers, the live session writes its own.
			s = alone(t, header("abcd"), session.Seed{Prefix: seed})
			put(t, s, endTurn(1)...)
			place, err := k.lv.Reserve("abcd") // it is live already
			if err != nil {
				t.Fatal(err)
			}
			if err := place.Publish(s); err != nil {
				t.Fatal(err)
			}
			if h, err = k.Adopt(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			flush(t, h)
			same(t, "stored", stored(t, st, "abcd"), crashed+" | result /step /turn")
			if h.Unsaved() != nil {
				t.Errorf("unsaved %v", h.Unsaved())
			}
			put(t, s, titled("x"))
			dispose(t, h)
			same(t, "stored", stored(t, st, "abcd"), crashed+" | result /step /turn title")
		})
	}
}

// The stored log may be shorter than the seed: the writer before died with a torn tail.
func TestAdoptShorterStored(t *testing.T) {
	st := newFake(t)
	k := start(st)
	h := create(t, k, "abcd")
	put(t, h.Session(), openTurn(1)...)
	put(t, h.Session(), endTurn(1)...)
	seed := session.Events(events(t, h.Session().Events()))
	w, err := st.Store.Create(t.Context(), header("other"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), seed[:5]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s := alone(t, header("other"), session.Seed{Prefix: seed})
	if h, err = k.Adopt(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	flush(t, h)
	same(t, "nothing was accepted yet", stored(t, st, "other"), crashed)
	st.onWrite(func(id session.ID, evs []session.Event) {
		if id == "other" {
			same(t, "batch", evs, "result /step /turn | title")
		}
	})
	put(t, s, titled("x"))
	dispose(t, h)
	same(t, "stored", stored(t, st, "other"), repaired+" | title")
}

func TestAdoptMismatch(t *testing.T) {
	st := newFake(t)
	crash(t, st, "abcd")
	was := stored(t, st, "abcd")
	seed := session.Events(was)
	otherData := append(session.Events{}, seed...)
	otherData[2].Data = []byte(`{"id":"u1","role":"user","content":[{"type":"text","text":"ho"}],"source":{"kind":"user"}}`)
	moved := header("abcd")
	moved.Cwd = "/elsewhere"
	cases := []struct {
		name string
		s    *session.Session
		says string
	}{
		{"empty", alone(t, header("abcd"), session.Seed{}), "5 events are stored, the live session has 0"},
		{"shorter", alone(t, header("abcd"), session.Seed{Prefix: seed[:4]}), "5 events are stored, the live session has 4"},
		{"other data", alone(t, header("abcd"), session.Seed{Prefix: otherData}), "differs from the live session at seq 2"},
		{"other cwd", alone(t, moved, session.Seed{Prefix: seed}), "belongs to /w, the live one to /elsewhere"},
	}
	short := alone(t, header("abcd"), session.Seed{Prefix: seed[:4]})
	put(t, short, titled("its own way"))
	cases = append(cases, struct {
		name string
		s    *session.Session
		says string
	}{"own way", short, "differs from the live session at seq 4"})
	for _, c := range cases {
		k := start(st)
		_, err := k.Adopt(t.Context(), c.s)
		var exists *store.ExistsError
		if !errors.As(err, &exists) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, ok := k.Get("abcd"); ok || k.lv.Phase("abcd") != "" || c.s.Disposed() {
			t.Errorf("%s: a refused adoption left something", c.name)
		}
	}
	same(t, "the stored session is as it was", stored(t, st, "abcd"), crashed)
	k := start(st)
	dispose(t, resume(t, k, "abcd")) // and its lease is free

	h := resume(t, k, "abcd")
	if _, err := k.Adopt(t.Context(), alone(t, header("abcd"), session.Seed{Prefix: seed})); !errors.Is(err, store.ErrExists) {
		t.Errorf("another session with the id of a live one: %v", err)
	}
	if _, err := start(st).Adopt(t.Context(), alone(t, header("abcd"), session.Seed{Prefix: seed})); !errors.Is(err, store.ErrBusy) {
		t.Errorf("held elsewhere: %v", err)
	}
	dispose(t, h)
	gone := alone(t, header("abcd"), session.Seed{Prefix: seed})
	gone.Dispose()
	if _, err := k.Adopt(t.Context(), gone); !errors.Is(err, session.ErrDisposed) {
		t.Errorf("adopting what has ended: %v", err)
	}
}

// A log with a lost record has links that cannot be computed from its events: they are compared then.
func TestAdoptOverLost(t *testing.T) {
	st := newFake(t)
	k := startWith(st, options())
	h := create(t, k, "abcd")
	put(t, h.Session(), titled("a"), titled("b"))
	dispose(t, h)
	opt := options()
	opt.Link = func(prev session.Link, _ session.Event) (session.Link, error) { prev[0]++; return prev, nil } // never right
	k = startWith(st, opt)
	s := alone(t, header("abcd"), session.Seed{Prefix: session.Events(stored(t, st, "abcd"))})
	h, err := k.Adopt(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	dispose(t, h)
}

// Marks for lost records come first in the pending prefix; who was not built over them cannot go on.
func TestLostMarks(t *testing.T) {
	st := newFake(t)
	crash(t, st, "abcd")
	st.lost = []session.Event{{Seq: 5, Time: 1, Type: session.TypeLost, Op: session.Append(), Data: []byte(`{"offset":10,"bytes":20}`)}}
	k := start(st)
	seed := session.Events(stored(t, st, "abcd"))
	s := alone(t, header("abcd"), session.Seed{Prefix: seed})
	put(t, s, endTurn(1)...)
	if _, err := k.Adopt(t.Context(), s); !errors.Is(err, store.ErrExists) || !strings.Contains(err.Error(), "lost event 5") {
		t.Errorf("adopted over a lost record: %v", err)
	}
	c, err := k.Open(t.Context(), "abcd")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := store.Load(c.Snapshot(), session.Core())
	if err != nil {
		t.Fatal(err)
	}
	h, err := k.Adopt(t.Context(), alone(t, header("abcd"), loaded))
	if err != nil {
		t.Fatal(err)
	}
	dispose(t, h)
	same(t, "nothing accepted", stored(t, st, "abcd"), crashed)
	h = resume(t, k, "abcd")
	put(t, h.Session(), titled("x"))
	dispose(t, h)
	same(t, "stored", stored(t, st, "abcd"), crashed+" lost result /step /turn | title")
}

func TestClaim(t *testing.T) {
	st := newFake(t)
	crash(t, st, "abcd")
	k := start(st)
	c, err := k.Open(t.Context(), "abcd")
	if err != nil {
		t.Fatal(err)
	}
	// The lease is held and the id is taken.
	if _, err := k.Resume(t.Context(), "abcd"); !errors.Is(err, store.ErrBusy) {
		t.Errorf("resume: %v", err)
	}
	if _, err := k.Open(t.Context(), "abcd"); !errors.Is(err, store.ErrBusy) {
		t.Errorf("open: %v", err)
	}
	seed, err := store.Load(c.Snapshot(), session.Core())
	if err != nil {
		t.Fatal(err)
	}
	// A session that does not fit leaves the claim as it is.
	if _, err := k.Adopt(t.Context(), alone(t, header("abcd"), session.Seed{})); !errors.Is(err, store.ErrExists) {
		t.Errorf("a stranger took the claim: %v", err)
	}
	// The stored header wins.
	mine := header("abcd")
	mine.Cwd, mine.CreatedAt = "/elsewhere", 99
	s := alone(t, mine, seed)
	h, err := k.Adopt(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if h.Header().Cwd != "/w" || h.Header().CreatedAt != 1 {
		t.Errorf("header %+v", h.Header())
	}
	if err := c.Release(); err != nil { // too late: it is the session's
		t.Error(err)
	}
	put(t, s, titled("x"))
	flush(t, h)
	same(t, "stored", stored(t, st, "abcd"), repaired+" | title")
	dispose(t, h)

	c, err = k.Open(t.Context(), "abcd")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Release(), c.Release()); err != nil {
		t.Error(err)
	}
	dispose(t, resume(t, k, "abcd"))
	if _, err := k.Open(t.Context(), "nope"); !errors.Is(err, store.ErrNotFound) || k.lv.Phase("nope") != "" {
		t.Errorf("open of nothing: %v", err)
	}
	// Close gives claims back.
	if _, err = k.Open(t.Context(), "abcd"); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	dispose(t, resume(t, start(st), "abcd"))
}

func TestAdoptVetoed(t *testing.T) {
	st := newFake(t)
	k := start(st)
	no := errors.New("no")
	k.lv.Observe(live.Observer{Created: func(*session.Session, session.Seq) error { return no }})
	s := alone(t, header("abcd"), session.Seed{})
	put(t, s, titled("x"))
	if _, err := k.Adopt(t.Context(), s); !errors.Is(err, no) {
		t.Fatal(err)
	}
	if stored(t, st, "abcd") != nil || s.Disposed() {
		t.Error("a vetoed adoption wrote, or ended the caller's session")
	}
	put(t, s, titled("y")) // nobody follows it any more
	if st.count("append") != 0 {
		t.Error("written after the veto")
	}
}
