package keeper_test

import (
	"errors"
	"testing"

	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/live"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// The six ways in which a session is constructed, and where each puts the boundary.

const crashed = "turn step user model call"
const repaired = crashed + " result /step /turn"

// crash leaves a session in the store as a killed process does: an open turn, no lease.
func crash(t *testing.T, st store.Store, id session.ID) {
	t.Helper()
	k := start(st)
	h := create(t, k, id)
	put(t, h.Session(), openTurn(1)...)
	flush(t, h)
	if lost, err := h.Abandon(t.Context()); err != nil || len(lost) != 0 {
		t.Fatal(lost, err)
	}
	same(t, "after the crash", stored(t, st, id), crashed)
}

func TestResume(t *testing.T) {
	st := newFake(t)
	crash(t, st, "abcd")
	writes := st.count("append") + st.count("flush")

	k := start(st)
	h := resume(t, k, "abcd")
	s := h.Session()
	if s.FirstLiveSeq() != 8 || s.Len() != 9 || s.Head() != 5 {
		t.Errorf("first live %d, len %d, head %d; want 8, 9, 5", s.FirstLiveSeq(), s.Len(), s.Head())
	}
	// Looking never writes: a flush, a vetoed append and a dispose of what is only pending.
	flush(t, h)
	if _, err := s.Append(session.Draft{Type: "no/such", Data: struct{}{}}); !errors.Is(err, session.ErrRejected) {
		t.Fatal(err)
	}
	flush(t, h)
	if h.Unsaved() != nil || h.Saved() != nil || h.Full() {
		t.Errorf("pending counts as unsaved: %v %v", h.Unsaved(), h.Saved())
	}
	dispose(t, h)
	if n := st.count("append") + st.count("flush"); n != writes {
		t.Errorf("resume and dispose made %d calls of the store", n-writes)
	}
	same(t, "after resume and dispose", stored(t, st, "abcd"), crashed)

	// The pending prefix goes with the first event, in one batch.
	h = resume(t, k, "abcd")
	st.onWrite(func(_ session.ID, evs []session.Event) { same(t, "first batch", evs, "result /step /turn | title") })
	put(t, h.Session(), titled("x"))
	flush(t, h)
	st.onWrite(nil)
	same(t, "after work", stored(t, st, "abcd"), repaired+" | title")
	dispose(t, h)

	// A log that ends in the boundary gets no second one. (Such a log is what a fork leaves.)
	child, err := k.Fork(t.Context(), "abcd", store.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h = resume(t, k, child.ID)
		if n, first := h.Session().Len(), h.Session().FirstLiveSeq(); n != 11 || first != 11 {
			t.Errorf("len %d, first live %d: want 11, 11", n, first)
		}
		dispose(t, h)
	}
	same(t, "reopened fork", stored(t, st, child.ID), repaired+" | title |")
}

func TestResumeNeverCreates(t *testing.T) {
	st := newFake(t)
	k := start(st)
	if _, err := k.Resume(t.Context(), "nope"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("err %v", err)
	}
	// restore-or-create: only "not found" leads to create, and the id is free for it.
	h := create(t, k, "nope")
	if len(events(t, h.Session().Events())) != 0 {
		t.Error("an empty session has events")
	}
	var busy *store.BusyError
	if _, err := k.Resume(t.Context(), "nope"); !errors.As(err, &busy) || busy.Holder == nil || busy.Holder.Program != "me" || busy.Holder.SessionID != "nope" {
		t.Errorf("resume of what is live here: %v", err)
	}
	put(t, h.Session(), titled("x"))
	flush(t, h)
	if _, err := k.Resume(t.Context(), "nope"); !errors.As(err, &busy) || busy.Holder.Program != "test" {
		t.Errorf("the store knows its holder: %v", err)
	}
	if _, err := k.Create(t.Context(), header("nope"), session.Seed{}); !errors.Is(err, store.ErrExists) {
		t.Errorf("create of what is live: %v", err)
	}
	// Another process of the same store: create never resumes.
	other := start(st)
	if _, err := other.Create(t.Context(), header("nope"), session.Seed{}); !errors.Is(err, store.ErrExists) {
		t.Errorf("create of what is stored: %v", err)
	}
	if _, err := other.Resume(t.Context(), "nope"); !errors.Is(err, store.ErrBusy) {
		t.Errorf("resume of what another holds: %v", err)
	}
	if other.lv.Phase("nope") != "" {
		t.Error("a failed open keeps the id")
	}
	dispose(t, h)
	dispose(t, resume(t, other, "nope"))
}

func TestCreateLeavesNothing(t *testing.T) {
	st := newFake(t)
	k := start(st)
	h := create(t, k, "abcd")
	flush(t, h)
	dispose(t, h)
	dispose(t, h)
	if got := stored(t, st, "abcd"); got != nil || st.count("append")+st.count("flush") != 0 {
		t.Errorf("an abandoned session left %v", got)
	}
	h = create(t, k, "abcd")
	put(t, h.Session(), titled("x"))
	dispose(t, h)
	same(t, "fresh session", stored(t, st, "abcd"), "title") // an empty seed has no boundary
	if _, err := h.Session().Append(titled("y")); !errors.Is(err, session.ErrDisposed) {
		t.Errorf("append after dispose: %v", err)
	}
}

func TestCreateWithSeed(t *testing.T) {
	st := newFake(t)
	k := start(st)
	var seed session.Events
	src := create(t, k, "source")
	put(t, src.Session(), openTurn(1)...)
	for range 700 { // more than From gives at once
		put(t, src.Session(), titled("x"))
	}
	seed = events(t, src.Session().Events())

	h, err := k.Create(t.Context(), header("abcd"), session.Seed{Prefix: seed})
	if err != nil {
		t.Fatal(err)
	}
	if h.Session().FirstLiveSeq() != 705 || h.Session().Len() != 706 {
		t.Errorf("first live %d, len %d", h.Session().FirstLiveSeq(), h.Session().Len())
	}
	flush(t, h)
	if h.Unsaved() != nil || h.Full() {
		t.Error("a seed counts as unsaved before anything was accepted")
	}
	if stored(t, st, "abcd") != nil {
		t.Error("a seed is stored before anything was accepted")
	}
	batches := 0
	st.onWrite(func(id session.ID, evs []session.Event) {
		if id == "abcd" {
			if batches++; batches == 1 && len(evs) != 707 {
				t.Errorf("the first batch has %d events, want seed, boundary and event: 707", len(evs))
			}
		}
	})
	put(t, h.Session(), titled("y"))
	flush(t, h)
	got := stored(t, st, "abcd")
	if len(got) != 707 {
		t.Fatalf("%d stored", len(got))
	}
	same(t, "its end", got[704:], "title | title") // no closers: the seed is taken as it is
}

func TestForkCold(t *testing.T) {
	st := newFake(t)
	crash(t, st, "abcd")
	before := stored(t, st, "abcd")
	k := start(st)
	h, err := k.Fork(t.Context(), "abcd", store.ForkOptions{Child: "child"})
	if err != nil {
		t.Fatal(err)
	}
	// The child is on disk, with closers and boundary; the source is untouched.
	same(t, "child", stored(t, st, "child"), repaired+" |")
	if h.SeedLength != 5 || h.Parent.ID != "abcd" || h.Kind != session.KindFork || h.CreatedAt == 0 {
		t.Errorf("header %+v", h)
	}
	same(t, "source", stored(t, st, "abcd"), short(before))
	c := resume(t, k, "child")
	if c.Session().FirstLiveSeq() != 9 || c.Session().Len() != 9 {
		t.Errorf("first live %d, len %d: reopening added something", c.Session().FirstLiveSeq(), c.Session().Len())
	}
	if _, err := k.Fork(t.Context(), "abcd", store.ForkOptions{Child: "child"}); !errors.Is(err, store.ErrExists) {
		t.Errorf("a taken child: %v", err)
	}
	if _, err := k.Fork(t.Context(), "nope", store.ForkOptions{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no source: %v", err)
	}
}

func TestForkLive(t *testing.T) {
	st := newFake(t)
	k := start(st)
	h := create(t, k, "abcd")
	fork := func(at ...session.Seq) (session.Header, error) {
		opt := store.ForkOptions{}
		if len(at) > 0 {
			opt.At = &at[0]
		}
		return k.Fork(t.Context(), "abcd", opt)
	}
	if _, err := fork(); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("fork of what is not stored: %v", err)
	}
	// The first turn runs: the last legal cut is before it, and the child has its lineage only.
	put(t, h.Session(), openTurn(1)...)
	c, err := fork()
	if err != nil {
		t.Fatal(err)
	}
	if c.SeedLength != 0 || c.Parent == nil || len(stored(t, st, c.ID)) != 0 {
		t.Errorf("child of nothing: %+v", c)
	}
	var open *session.OpenTurnError
	if _, err := fork(4); !errors.As(err, &open) {
		t.Errorf("cut at the end of a running turn: %v", err)
	}
	if _, err := fork(5); !errors.Is(err, session.ErrBoundary) {
		t.Errorf("cut at what is not there: %v", err)
	}
	put(t, h.Session(), endTurn(1)...)
	put(t, h.Session(), titled("x"))
	put(t, h.Session(), openTurn(2)...)
	c, err = fork()
	if err != nil {
		t.Fatal(err)
	}
	same(t, "child", stored(t, st, c.ID), repaired+" title |")
	if st.syncedTo("abcd") < 9 {
		t.Errorf("the source is synced to %d only", st.syncedTo("abcd"))
	}
	sub, err := k.Fork(t.Context(), "abcd", store.ForkOptions{Child: "sub-1", Kind: session.KindSubagent, Depth: 2})
	if err != nil || sub.ID != "sub-1" || sub.Kind != session.KindSubagent || sub.Depth != 2 || sub.SeedLength != 9 {
		t.Errorf("%+v %v", sub, err)
	}
	for _, opt := range []store.ForkOptions{{Child: "of-sub", Depth: 1}, {Child: "of-sub-cold"}} { // depth cannot be lowered
		if c, err := k.Fork(t.Context(), "sub-1", opt); err != nil || c.Depth != 2 {
			t.Errorf("fork of a child: %+v %v", c, err)
		}
	}
	if c, err = fork(7); err != nil || c.SeedLength != 8 {
		t.Errorf("%+v %v", c, err)
	}
	// A bad cut of a taken child: the child comes first.
	bad := session.Seq(99)
	if _, err := k.Fork(t.Context(), "abcd", store.ForkOptions{Child: c.ID, At: &bad}); !errors.Is(err, store.ErrExists) {
		t.Errorf("order of errors: %v", err)
	}
	create(t, k, "unborn")
	if _, err := k.Fork(t.Context(), "abcd", store.ForkOptions{Child: "unborn", At: &bad}); !errors.Is(err, store.ErrExists) {
		t.Errorf("a child that is being created: %v", err)
	}
	if _, err := k.Fork(t.Context(), "abcd", store.ForkOptions{Child: "abcd", At: &bad}); !errors.Is(err, store.ErrExists) {
		t.Errorf("a child that is live: %v", err)
	}
	// A source that cannot be saved cannot be forked behind what is saved.
	down := errors.New("down")
	st.setHook(func(op string, _ session.ID, _ []session.Event) error {
		if op != "fork" {
			return down
		}
		return nil
	})
	put(t, h.Session(), endTurn(2)...)
	if _, err := fork(); !errors.Is(err, store.ErrNotSaved) || !errors.Is(err, down) {
		t.Errorf("fork of what is not saved: %v", err)
	}
	if _, err := fork(8); err != nil {
		t.Errorf("fork below what is synced: %v", err)
	}
}

// A life that has only its pending prefix shows none of it: a fork is that of the stored log.
func TestForkPending(t *testing.T) {
	st := newFake(t)
	crash(t, st, "abcd")
	k := start(st)
	h := resume(t, k, "abcd")
	c, err := k.Fork(t.Context(), "abcd", store.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c.SeedLength != 5 {
		t.Errorf("cut %d names what is pending", c.SeedLength-1)
	}
	same(t, "child", stored(t, st, c.ID), repaired+" |")
	at := session.Seq(7)
	if _, err := k.Fork(t.Context(), "abcd", store.ForkOptions{At: &at}); !errors.Is(err, session.ErrBoundary) {
		t.Errorf("a pending seq was cut at: %v", err)
	}
	same(t, "source", stored(t, st, "abcd"), crashed)
	dispose(t, h)
}

func TestVetoLeavesNothing(t *testing.T) {
	st := newFake(t)
	k := start(st)
	no := errors.New("no")
	stop := k.lv.Observe(live.Observer{Created: func(s *session.Session, _ session.Seq) error {
		if _, ok := k.Get(s.ID()); !ok {
			t.Error("announced without a handle")
		}
		put(t, s, titled("an observer's")) // not stored before everybody agreed
		return nil
	}})
	stop2 := k.lv.Observe(live.Observer{Created: func(*session.Session, session.Seq) error { return no }})
	if _, err := k.Create(t.Context(), header("abcd"), session.Seed{}); !errors.Is(err, no) || !errors.Is(err, live.ErrVetoed) {
		t.Fatalf("err %v", err)
	}
	if _, ok := k.Get("abcd"); ok || stored(t, st, "abcd") != nil || k.lv.Phase("abcd") != "" {
		t.Error("a vetoed session left something")
	}
	stop2()
	h := create(t, k, "abcd")
	flush(t, h)
	same(t, "with the observer's event", stored(t, st, "abcd"), "title")
	stop()
	dispose(t, h)
	crash(t, st, "efgh")
	k.lv.Observe(live.Observer{Created: func(*session.Session, session.Seq) error { return no }})
	if _, err := k.Resume(t.Context(), "efgh"); !errors.Is(err, no) {
		t.Errorf("err %v", err)
	}
	dispose(t, resume(t, start(st), "efgh")) // the lease is free
	same(t, "vetoed resume", stored(t, st, "efgh"), crashed)
}

func TestUnknownTypeIsNotResumed(t *testing.T) {
	st := newFake(t)
	reg, err := session.NewRegistry([]session.Kind{{Type: "other/thing", Owner: "other"}})
	if err != nil {
		t.Fatal(err)
	}
	opt := options()
	opt.Registry = reg
	lv := live.New()
	k := process{keeper.New(st, lv, opt), lv}
	h := create(t, k, "abcd")
	put(t, h.Session(), session.Draft{Type: "other/thing", Data: struct{}{}})
	dispose(t, h)
	var un *store.UnsupportedError
	plain := start(st)
	if _, err := plain.Resume(t.Context(), "abcd"); !errors.As(err, &un) {
		t.Errorf("err %v", err)
	}
	if plain.lv.Phase("abcd") != "" {
		t.Error("the id is kept")
	}
	dispose(t, resume(t, k, "abcd"))
}
