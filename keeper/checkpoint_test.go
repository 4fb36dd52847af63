package keeper_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// folds is a file store that notes what checkpoints it is given.
type folds struct {
	*filestore.Store
	mu    sync.Mutex
	put   []session.Seq
	block chan struct{} // if not nil each waits for it
	fail  error
}

func (f *folds) PutCheckpoint(ctx context.Context, id session.ID, c store.Checkpoint) error {
	f.mu.Lock()
	f.put = append(f.put, c.Pos.Next)
	block, fail := f.block, f.fail
	f.mu.Unlock()
	if block != nil {
		<-block
	}
	if fail != nil {
		return fail
	}
	return f.Store.PutCheckpoint(ctx, id, c)
}

func (f *folds) seqs() []session.Seq {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.put)
}

func titles(n int) []session.Draft {
	return slices.Repeat([]session.Draft{titled("again")}, n)
}

// A life leaves checkpoints behind it: some on its way and one at its end, of what is synced; the next life begins
// there and reads the rest. Looking makes none.
func TestCheckpoints(t *testing.T) {
	st := &folds{Store: files(t, t.TempDir(), vfs.OS())}
	k := start(st)
	h := create(t, k, "folded")
	put(t, h.Session(), titles(1000)...)
	flush(t, h)
	if got := st.seqs(); len(got) > 0 {
		t.Errorf("checkpoints of a short log: %v", got)
	}
	put(t, h.Session(), titles(100)...)
	flush(t, h)
	put(t, h.Session(), titles(300)...)
	if err := h.Dispose(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := st.seqs(); !slices.Equal(got, []session.Seq{1100, 1400}) {
		t.Errorf("checkpoints at %v", got)
	}

	opt := options()
	checked := 0
	opt.CheckFold = func() bool { checked++; return true }
	k = startWith(st, opt)
	h = resume(t, k, "folded")
	if n := h.Session().State().Next(); n != 1401 || checked != 1 {
		t.Errorf("resumed with %d events, %d checks", n, checked)
	}
	if err := h.Dispose(t.Context()); err != nil {
		t.Fatal(err)
	}
	h = resume(t, k, "folded")
	put(t, h.Session(), titles(100)...)
	if err := h.Dispose(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := st.seqs(); len(got) != 2 {
		t.Errorf("after looking and a little work there are checkpoints at %v", got)
	}

	// One that is not the fold of its log is found by the check.
	h = resume(t, k, "folded")
	put(t, h.Session(), titles(1)...)
	flush(t, h)
	at := h.Synced()
	wrong, err := session.Fold(header("folded"), nil, session.Sub(h.Session().Events(), at-1))
	if err != nil {
		t.Fatal(err)
	}
	wrong.Load(session.Event{Seq: at - 1, Type: session.TypeTitle, Data: []byte(`{"title":"never","source":"user"}`)})
	data, err := wrong.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	link, err := st.LinkAt(t.Context(), "folded", at-1)
	if err == nil {
		err = st.Store.PutCheckpoint(t.Context(), "folded", store.Checkpoint{Pos: store.Pos{Next: at, Link: link}, Data: data})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Dispose(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Resume(t.Context(), "folded"); !errors.Is(err, store.ErrWrongCheckpoint) {
		t.Errorf("behind a wrong checkpoint: %v", err)
	}
	whole, err := st.Verify(t.Context(), "folded")
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	if seqs, err := store.WrongCheckpoints(t.Context(), st, whole, nil); err != nil || !slices.Equal(seqs, []session.Seq{at}) {
		t.Errorf("wrong checkpoints: %v, %v", seqs, err)
	}
	resume(t, k, "folded")
}

// A checkpoint that takes for ever delays no append and no flush, one that fails is no matter; the end of a life waits
// for what is on its way.
func TestCheckpointIsOffTheHotPath(t *testing.T) {
	st := &folds{Store: files(t, t.TempDir(), vfs.OS()), block: make(chan struct{}), fail: errors.New("no room")}
	k := start(st)
	h := create(t, k, "folded")
	for range 3 {
		put(t, h.Session(), titles(1100)...)
		flush(t, h)
	}
	if err := h.Saved(); err != nil {
		t.Error(err)
	}
	if got := st.seqs(); len(got) > 1 {
		t.Errorf("%v are on their way at a time", got)
	}
	done := make(chan error)
	go func() { done <- h.Dispose(context.Background()) }()
	select {
	case err := <-done:
		t.Fatalf("the session was let go with a checkpoint on its way: %v", err)
	case st.block <- struct{}{}:
	}
	close(st.block)
	if err := <-done; err != nil {
		t.Error(err)
	}
	h = resume(t, k, "folded")
	if n := h.Session().Len(); n != 3301 {
		t.Errorf("%d events", n)
	}
}
