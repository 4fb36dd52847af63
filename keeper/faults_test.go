package keeper_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Every call that a life makes of the file system fails once, fails after it took effect, and fails from then
// on for a while: nothing
// that was acknowledged is lost, nothing is stored twice, and when the disk is well again everything gets in.
func TestFilesFaults(t *testing.T) {
	for n := 1; ; n++ {
		hits := faultyLife(t, n, 1, false)
		faultyLife(t, n, 1, true)
		faultyLife(t, n, 5, false)
		if t.Failed() || hits < n {
			t.Logf("%d calls", hits)
			return
		}
	}
}

func faultyLife(t *testing.T, nth, times int, after bool) (hits int) {
	t.Helper()
	root := t.TempDir()
	down := errors.New("the disk fails")
	var count atomic.Int64
	var armed atomic.Bool
	fsys := vfs.Around(vfs.OS(), func(c *vfs.Call, do func() error) error {
		if !armed.Load() {
			return do()
		}
		n := int(count.Add(1))
		if n < nth || n >= nth+times {
			return do()
		}
		if after {
			_ = do()
		}
		return down
	})
	st := files(t, root, fsys)
	k := start(st)
	h, err := k.Create(t.Context(), header("abcd"), session.Seed{})
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	acked := session.Seq(0)
	for i := range 4 {
		put(t, h.Session(), titled(fmt.Sprint(i)), titled("and"))
		switch err := h.Flush(t.Context()); {
		case err == nil:
			acked = h.Session().Len()
		case !errors.Is(err, store.ErrNotSaved) && !errors.Is(err, store.ErrReadOnly):
			t.Errorf("call %d: %v", nth, err)
		}
		snap, err := files(t, root, nil).Read(t.Context(), "abcd")
		switch {
		case errors.Is(err, store.ErrNotFound) && acked == 0:
			continue
		case err != nil:
			t.Errorf("call %d: %v", nth, err)
			continue
		}
		if snap.Prefix.Len() < acked || len(snap.Damage) > 0 {
			t.Errorf("call %d: %d acknowledged, %d readable, damage %v", nth, acked, snap.Prefix.Len(), snap.Damage)
		}
		snap.Close()
	}
	for range 10 { // the disk is well after times failures
		if err = h.Dispose(t.Context()); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("call %d: not saved in the end: %v", nth, err)
		_, _ = h.Abandon(t.Context())
		return int(count.Load())
	}
	same(t, fmt.Sprintf("call %d", nth), stored(t, files(t, root, nil), "abcd"), "title title title title title title title title")
	return int(count.Load())
}

// The same for a life that resumes. When the resume itself fails no lock is left behind and no byte was changed.
func TestResumeFaults(t *testing.T) {
	for n := 1; ; n++ {
		hits := max(resumeFaulty(t, n, 1, false), resumeFaulty(t, n, 1, true), resumeFaulty(t, n, 4, false))
		if t.Failed() || hits < n {
			t.Logf("%d calls", hits)
			return
		}
	}
}

func resumeFaulty(t *testing.T, nth, times int, after bool) int {
	t.Helper()
	root := t.TempDir()
	crash(t, files(t, root, nil), "abcd")
	down := errors.New("the disk fails")
	var count atomic.Int64
	st := files(t, root, vfs.Around(vfs.OS(), func(c *vfs.Call, do func() error) error {
		n := int(count.Add(1))
		if n < nth || n >= nth+times {
			return do()
		}
		if after {
			_ = do()
		}
		return down
	}))
	k := start(st)
	at := fmt.Sprintf("call %d, %d times, after %v", nth, times, after)
	sessions := filepath.Join(root, "sessions")
	before := tree(t, sessions)
	h, err := k.Resume(t.Context(), "abcd")
	if err != nil {
		if d := tree(t, sessions); d != before {
			t.Errorf("%s: a failed resume wrote:\n%s", at, d)
		}
		if h, err = start(files(t, root, nil)).Resume(t.Context(), "abcd"); err != nil {
			t.Errorf("%s: a failed resume keeps others out: %v", at, err)
			return 0
		}
		dispose(t, h)
		return int(count.Load())
	}
	put(t, h.Session(), titled("on"))
	acked := h.Flush(t.Context()) == nil
	if acked {
		got := stored(t, files(t, root, nil), "abcd")
		same(t, at, got, repaired+" | title")
	}
	for range 10 {
		if err = h.Dispose(t.Context()); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("%s: not saved in the end: %v", at, err)
		_, _ = h.Abandon(t.Context())
		return 0
	}
	same(t, at, stored(t, files(t, root, nil), "abcd"), repaired+" | title")
	dispose(t, resume(t, start(files(t, root, nil)), "abcd"))
	return int(count.Load())
}
