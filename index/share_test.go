package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
	"github.com/strandline-dev/strandline/store"
)

// fork makes a fork of id, at a cut of its own where seq is one.
func (w *world) fork(id, child session.ID, at *session.Seq) bool {
	w.t.Helper()
	_, err := store.Fork(w.t.Context(), w.st, id, store.ForkOptions{Child: child, At: at, Now: 5, Registry: sessiontest.Registry()})
	if errors.Is(err, session.ErrOpenTurn) || errors.Is(err, session.ErrBoundary) {
		return false
	}
	w.ok(err)
	w.ids = append(w.ids, child)
	return true
}

// In whatever order a tree of forks becomes known, and whatever of it was known before, the facts of each and what it
// did by the hour are those of a fold of its whole log.
func TestSharedFacts(t *testing.T) {
	shared := 0
	for seed := range uint64(6) {
		w := newWorld(t, 100+seed)
		x := w.index(w.path())
		x.shares.stride = 4
		w.create("session-root", 20+w.rng.IntN(30))
		for n := range 14 {
			id := w.ids[w.rng.IntN(len(w.ids))]
			snap, err := w.st.Read(t.Context(), id)
			w.ok(err)
			at := session.Seq(w.rng.Int64N(int64(snap.Prefix.Len())))
			w.ok(snap.Close())
			if child := session.ID(fmt.Sprintf("fork-%02d", n)); w.rng.IntN(3) == 0 {
				w.fork(id, child, nil)
			} else if w.fork(id, child, &at) && w.rng.IntN(2) == 0 {
				w.grow(child, 1+w.rng.IntN(12))
			}
			if w.rng.IntN(3) == 0 {
				w.grow(id, 1+w.rng.IntN(6))
			}
			if w.rng.IntN(3) == 0 {
				w.ok(x.Update(t.Context(), w.ids[w.rng.IntN(len(w.ids))]))
			}
			if w.rng.IntN(6) == 0 { // another process has nothing in its memory
				w.ok(x.Close())
				x = w.index(w.path())
				x.shares.stride = 4
			}
		}
		for _, i := range w.rng.Perm(len(w.ids)) {
			id := w.ids[i]
			snap, err := w.st.Read(t.Context(), id)
			w.ok(err)
			if x.inherited(t.Context(), snap.Header) != nil {
				shared++
			}
			row, ok, err := x.Row(t.Context(), id)
			if w.ok(err); !ok || row.State != store.StateOK {
				t.Fatalf("%s: %+v", id, row)
			}
			want, all := begun(snap.Header), hours{}
			for ev, err := range snap.Prefix.Range(0, snap.Prefix.Len()) {
				w.ok(err)
				want.fold(snap.Header, sessiontest.Registry(), &ev, all)
				want.Last = digest(ev)
			}
			if d := cmp.Diff(want, *row.Facts); d != "" {
				t.Fatalf("seed %d: the facts of %s: %s", seed, id, d)
			}
			got, err := x.HoursOf(t.Context(), id, snap.Header, snap.Prefix)
			w.ok(err)
			if d := cmp.Diff(all.rows(), got); d != "" {
				t.Fatalf("seed %d: the hours of %s: %s", seed, id, d)
			}
			w.ok(snap.Close())
		}
	}
	if shared < 30 {
		t.Errorf("only %d sessions began with what was known", shared)
	}
}

// The first list of many forks of one long session folds what they share about once, not once for each: also where they
// are cut at other places, and where another process knew the session that they come from.
func TestForksFoldedOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one session at a time, else several begin with nothing
	const length, forks = 2_000, 10
	for _, known := range []bool{false, true} {
		w := newWorld(t, 31)
		w.create("session-root", length)
		if x := w.index(w.path()); known {
			w.ok(x.Update(t.Context(), "session-root"))
			w.ok(x.Close())
		}
		for n := 0; len(w.ids) <= forks; n++ {
			at := session.Seq(length - 1)
			if !known {
				at = session.Seq(length/2 + w.rng.IntN(length/2))
			}
			if !w.fork("session-root", session.ID(fmt.Sprintf("fork-%03d", n)), &at) { // a turn is open there
				w.grow("session-root", 1)
			}
		}
		counts := &counting{Store: w.st.(*filestore.Store)}
		x := Open(Options{Path: w.path(), Store: counts, Registry: sessiontest.Registry()})
		x.shares.stride = 128
		w.same(x, Query{})
		w.ok(x.Close())
		folded, most := counts.n.Load(), int64(2*length+forks*200)
		if known {
			most = forks * 200
		}
		if t.Logf("known %v: %d events are folded for %d forks of %d", known, folded, forks, length); folded > most {
			t.Errorf("%d events are folded, want at most %d", folded, most)
		}
	}
}

// counting is a store that counts the events that are folded.
type counting struct {
	*filestore.Store
	n atomic.Int64
}

func (c *counting) counted(snap *store.Snapshot, err error) (*store.Snapshot, error) {
	if snap != nil {
		snap.Prefix = lending{snap.Prefix, &c.n}
	}
	return snap, err
}

func (c *counting) Read(ctx context.Context, id session.ID) (*store.Snapshot, error) {
	return c.counted(c.Store.Read(ctx, id))
}

func (c *counting) Peek(ctx context.Context, id session.ID) (*store.Snapshot, error) {
	return c.counted(c.Store.Peek(ctx, id))
}

type lending struct {
	session.Prefix
	n *atomic.Int64
}

func (l lending) Lend(from, to session.Seq, f func(session.Event)) error {
	return session.Lend(l.Prefix, from, to, func(ev session.Event) {
		l.n.Add(1)
		f(ev)
	})
}

// What was known before the shared part was damaged does not count any more.
func TestSharedThenDamaged(t *testing.T) {
	w := newWorld(t, 32)
	w.create("session-root", 200)
	x := w.index(w.path())
	x.shares.stride = 16
	w.ok(x.Update(t.Context(), "session-root"))
	for n := 0; len(w.ids) < 2; n++ {
		if !w.fork("session-root", session.ID(fmt.Sprintf("fork-%03d", n)), nil) {
			w.grow("session-root", 1)
		}
	}
	var names []string
	w.ok(filepath.WalkDir(w.root, func(p string, d fs.DirEntry, err error) error {
		if strings.Contains(p, "session-root") && strings.HasSuffix(p, ".jsonl") {
			names = append(names, p)
		}
		return err
	}))
	text, err := os.ReadFile(names[0])
	w.ok(err)
	text[len(text)/2] ^= 1
	w.ok(os.WriteFile(names[0], text, 0o600))
	row, _, err := x.Row(t.Context(), w.ids[1])
	if w.ok(err); row.State != store.StateDamaged {
		t.Errorf("the fork of a damaged session is %s", row.State)
	}
}
