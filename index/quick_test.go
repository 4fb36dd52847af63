package index

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// watched counts the calls that a store makes below sessions/, and lets a test stop one.
type watched struct {
	calls atomic.Int64
	hook  atomic.Pointer[func(c *vfs.Call, do func() error) error]
}

func (w *watched) fs() vfs.FS {
	return vfs.Around(noSync, func(c *vfs.Call, do func() error) error {
		if strings.Contains(c.Name, "sessions") {
			w.calls.Add(1)
		}
		if f := w.hook.Load(); f != nil {
			return (*f)(c, do)
		}
		return do()
	})
}

// quickIndex is an index of w, over a store of its own that is watched, with a clock of its own.
func (w *world) quickIndex(path string, watch *watched, clock *atomic.Int64) *Index {
	st, err := filestore.Open(w.root, filestore.Options{FS: watch.fs(), Rand: rand.Reader, Now: func() time.Time { return time.Now().Add(time.Hour) }})
	w.ok(err)
	w.t.Cleanup(func() { st.Close() })
	x := Open(Options{Path: path, Store: st, Registry: sessiontest.Registry(), Warn: func(err error) { w.t.Log("warning:", err) },
		Now: func() time.Time { return time.Unix(clock.Load(), 0) }})
	w.t.Cleanup(func() { x.Close() })
	return x
}

// tick returns when a change would have another time than all before: the stores of these tests take any change for settled.
func (w *world) tick() {
	w.t.Helper()
	if _, err := os.Stat(w.root); err != nil {
		return // not a store of files
	}
	probe := filepath.Join(w.root, "probe")
	var first int64
	for {
		w.ok(os.WriteFile(probe, []byte("x"), 0o600))
		info, err := os.Lstat(probe)
		w.ok(err)
		_, changed, ok := vfs.Identity(info)
		if !ok && (runtime.GOOS == "linux" || runtime.GOOS == "darwin") {
			w.t.Fatal("a file without a time of its last change")
		}
		if !ok {
			w.t.Skip("no times of changes on this platform")
		}
		if first == 0 {
			first = changed
		}
		if changed > first {
			return
		}
	}
}

// Whatever two programs do with sessions, and whatever becomes of their announcements: a list that glances is the list that
// is made without an index.
func TestGlanceTellsTheTruth(t *testing.T) {
	w := newWorld(t, 41)
	w.held = true
	stores := []store.Store{w.st, w.handle()}
	open := map[session.ID]store.Writer{}
	defer func() {
		for _, wr := range open {
			wr.Close()
		}
	}()
	var trash []session.ID
	var watch watched
	var clock atomic.Int64
	clock.Store(1_000_000)
	x, quick, again := w.quickIndex(w.path(), &watch, &clock), 0, 0
	for step := range 100 {
		st := stores[w.rng.IntN(2)]
		free := slices.DeleteFunc(slices.Clone(w.ids), func(id session.ID) bool { return open[id] != nil })
		pick := func(ids []session.ID) session.ID { return ids[w.rng.IntN(len(ids))] }
		what := w.rng.IntN(14)
		switch {
		case len(free) < 3 || what == 0:
			w.create(session.ID(fmt.Sprintf("s-%04d", w.n)), 1+w.rng.IntN(5))
		case what == 1 && len(open) < 3:
			id := pick(free)
			wr, err := st.Open(t.Context(), id)
			w.ok(err)
			open[id] = wr
		case what <= 5 && len(open) > 0: // one that is open for long
			id := pick(slices.Sorted(maps.Keys(open)))
			wr := open[id]
			next := wr.Opened().Pos.Next
			if live, err := w.st.Stat(t.Context(), id); err == nil {
				next = live.Pos.Next
			}
			_, err := wr.Append(t.Context(), w.events(next, 1+w.rng.IntN(3)))
			w.ok(err)
		case what == 6 && len(open) > 0:
			id := pick(slices.Sorted(maps.Keys(open)))
			w.ok(open[id].Close())
			delete(open, id)
		case what == 7:
			id := pick(free)
			w.ok(st.(store.Remover).Trash(t.Context(), id))
			w.ids = slices.DeleteFunc(w.ids, func(o session.ID) bool { return o == id })
			trash = append(trash, id)
		case what == 8 && len(trash) > 0:
			id := pick(trash)
			w.ok(st.(store.Remover).Restore(t.Context(), id))
			w.ids, trash = append(w.ids, id), slices.DeleteFunc(trash, func(o session.ID) bool { return o == id })
		case what == 9:
			child := session.ID(fmt.Sprintf("f-%04d", w.n))
			_, err := store.Fork(t.Context(), st, pick(w.ids), store.ForkOptions{Child: child, Now: 5, Registry: sessiontest.Registry()})
			if !errors.Is(err, session.ErrOpenTurn) && !errors.Is(err, session.ErrBoundary) {
				w.ok(err)
				w.n++
				w.ids = append(w.ids, child)
			}
		case what == 10:
			_, err := st.(store.Packer).Pack(t.Context(), pick(free))
			w.ok(err)
		case what == 11: // of one who was killed
			w.ok(os.WriteFile(filepath.Join(w.root, "live", string(pick(free))+".json"), []byte("{}\n"), 0o600))
		case what == 12 && len(open) > 0: // somebody tidies up
			id := pick(slices.Sorted(maps.Keys(open)))
			if err := os.Remove(filepath.Join(w.root, "live", string(id)+".json")); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		default:
			w.grow(pick(free), 1+w.rng.IntN(3))
		}
		w.tick()
		if step%20 == 19 {
			clock.Add(int64(w.rng.IntN(40)))
		}
		for range 1 + w.rng.IntN(2) {
			if _, ok, err := x.glance(t.Context()); err != nil {
				t.Fatal(err)
			} else if ok {
				quick++
			}
			q := queries[w.rng.IntN(len(queries))]
			q.Limit = max(q.Limit, 2)
			w.same(x, q)
			w.same(x, Query{Limit: 1000})
		}
		if step%3 == 0 {
			y := w.quickIndex(w.path(), &watch, &clock)
			if _, ok, err := y.glance(t.Context()); err != nil {
				t.Fatal(err)
			} else if ok {
				again++
			}
			w.same(y, Query{Limit: 1000})
			w.ok(y.Close())
		}
	}
	if quick < 12 || again < 8 {
		t.Errorf("only %d answers glanced, and %d of a process that had just begun", quick, again)
	}
}

// A glance costs the same however many sessions there are.
func TestGlanceIsFlat(t *testing.T) {
	took := map[int]int64{}
	for _, n := range []int{10, 150} {
		w := newWorld(t, 42)
		for i := range n {
			wr, err := w.st.Create(t.Context(), session.Header{Format: session.Format, ID: session.ID(fmt.Sprintf("session-%04d", i)), CreatedAt: 5, Cwd: "/w", Kind: session.KindRoot})
			w.ok(err)
			_, err = wr.Append(t.Context(), []session.Event{said(0, int64(1000+i), "a")})
			w.ok(err)
			w.ok(wr.Close())
		}
		wr, err := w.st.Open(t.Context(), "session-0003")
		w.ok(err)
		defer wr.Close()
		w.tick()
		var watch watched
		var clock atomic.Int64
		x := w.quickIndex(w.path(), &watch, &clock)
		for range 2 {
			before := watch.calls.Load()
			_, err := x.List(t.Context(), Query{Limit: 5}, nil)
			w.ok(err)
			took[n] = watch.calls.Load() - before
		}
	}
	if took[10] != took[150] || took[10] == 0 {
		t.Errorf("calls of a list, by sessions: %v", took)
	}
}

// What others do to the files of a session in place is seen at once where it is shown, and moves the row in time.
func TestChangedInPlace(t *testing.T) {
	w := newWorld(t, 43)
	for i := range 4 {
		id := session.ID(fmt.Sprintf("session-%04d", i))
		wr, err := w.st.Create(t.Context(), session.Header{Format: session.Format, ID: id, CreatedAt: 5, Cwd: "/w", Kind: session.KindRoot})
		w.ok(err)
		_, err = wr.Append(t.Context(), []session.Event{said(0, int64(1000+i), "a"), said(1, int64(2000+i), "b")})
		w.ok(err)
		w.ok(wr.Close())
	}
	w.tick()
	var watch watched
	var clock atomic.Int64
	x := w.quickIndex(w.path(), &watch, &clock)
	shown := func(limit int) (ids []session.ID, states []store.State) {
		page, err := x.List(t.Context(), Query{Limit: limit}, nil)
		w.ok(err)
		for _, r := range page.Rows {
			ids, states = append(ids, r.ID), append(states, r.State)
		}
		return ids, states
	}
	cutLast := func(id session.ID) { // an older copy, in place
		names, err := filepath.Glob(filepath.Join(w.root, "sessions", string(id), "*.jsonl"))
		w.ok(err)
		b, err := os.ReadFile(names[0])
		w.ok(err)
		at := strings.LastIndexByte(strings.TrimSuffix(string(b), "\n"), '\n') + 1
		w.ok(os.Truncate(names[0], int64(at)))
	}
	one, err := filepath.Glob(filepath.Join(w.root, "sessions", "session-0001", "*.jsonl"))
	w.ok(err)
	name := one[0]
	whole, err := os.ReadFile(name)
	w.ok(err)
	if ids, _ := shown(2); !slices.Equal(ids, []session.ID{"session-0003", "session-0002"}) {
		t.Fatal(ids)
	}
	cutLast("session-0003") // shown: it is not the newest any more
	if ids, _ := shown(2); !slices.Equal(ids, []session.ID{"session-0002", "session-0001"}) {
		t.Error(ids)
	}
	names, err := filepath.Glob(filepath.Join(w.root, "sessions", "session-0002", "*.jsonl"))
	w.ok(err)
	w.ok(flipAt(w.rng, names[0], 1)) // the first byte
	if _, states := shown(2); states[0] != store.StateDamaged {
		t.Error(states)
	}
	// A writer that cannot announce itself is found by what it holds.
	w.ok(os.RemoveAll(filepath.Join(w.root, "live")))
	shown(1)
	wr, err := w.st.Open(t.Context(), "session-0000")
	w.ok(err)
	defer wr.Close()
	for i := range 2 {
		_, err = wr.Append(t.Context(), []session.Event{said(session.Seq(2+i), int64(9000+i), "c")})
		w.ok(err)
		w.tick()
		if i == 0 {
			clock.Add(int64(wholeEvery/time.Second) + 1)
		}
		page, err := x.List(t.Context(), Query{Limit: 1}, nil)
		w.ok(err)
		if r := page.Rows[0]; r.ID != "session-0000" || r.LastActivity != int64(9000+i) {
			t.Error(i, r.ID, r.LastActivity)
		}
	}
	w.ok(os.Mkdir(filepath.Join(w.root, "live"), 0o700)) // without it a glance is never enough
	w.tick()
	cutLast("session-0001")
	order := func(limit int, want ...session.ID) {
		t.Helper()
		if ids, _ := shown(limit); !slices.Equal(ids, want) {
			t.Error(ids)
		}
	}
	order(4, "session-0000", "session-0002", "session-0003", "session-0001")
	w.ok(os.WriteFile(name, whole, 0o600)) // behind the page it comes back to what it was
	order(3, "session-0000", "session-0002", "session-0003")
	clock.Add(int64(wholeEvery/time.Second) + 1)
	order(3, "session-0000", "session-0002", "session-0001")
	cutLast("session-0001")
	clock.Add(-1000) // a clock that was put back tells nothing
	order(3, "session-0000", "session-0002", "session-0003")
}

// A process that lists often looks at all sessions in the background; that ends with it.
func TestLooksInTheBackground(t *testing.T) {
	w := newWorld(t, 44)
	for i := range 5 {
		w.create(session.ID(fmt.Sprintf("session-%04d", i)), 2)
	}
	w.tick()
	var watch watched
	var clock atomic.Int64
	x := w.quickIndex(w.path(), &watch, &clock)
	w.same(x, Query{Limit: 3})
	begun, goOn, done := make(chan struct{}), make(chan struct{}), atomic.Bool{}
	var once sync.Once
	hook := func(c *vfs.Call, do func() error) error {
		if c.Op == vfs.OpReadDir && filepath.Base(c.Name) == "sessions" {
			once.Do(func() { close(begun) })
			<-goOn
			defer done.Store(true)
		}
		return do()
	}
	watch.hook.Store(&hook)
	clock.Add(int64(wholeEvery/time.Second) - 5)
	for range 3 { // it answers while that goes on
		page, err := x.List(t.Context(), Query{Limit: 3}, nil)
		w.ok(err)
		if len(page.Rows) != 3 {
			t.Error(page)
		}
	}
	<-begun
	closed := make(chan bool)
	go func() {
		w.ok(x.Close())
		closed <- done.Load()
	}()
	close(goOn)
	if !<-closed {
		t.Error("closed before what it does in the background had ended")
	}
}

// Whoever read a log does not write that over what was seen of the log since.
func TestCommitAfterALaterLook(t *testing.T) {
	w := newWorld(t, 45)
	w.create("session-0001", 3)
	x := w.index(w.path())
	w.same(x, Query{})
	ctx := t.Context()
	was, ok, err := x.fresh(ctx, "session-0001")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	old, add, err := x.read(ctx, "session-0001", was)
	w.ok(err)
	w.grow("session-0001", 2)
	if _, _, err := x.fresh(ctx, "session-0001"); err != nil { // another one looks
		t.Fatal(err)
	}
	if _, ok := x.commit(ctx, "session-0001", was, old, add); ok {
		t.Error("it was written")
	}
	w.same(x, Query{})
}

// A look that began earlier and comes later, as one in the background may, does not overwrite what was seen since.
func TestOvertakenLook(t *testing.T) {
	w := newWorld(t, 46)
	for i := range 3 {
		w.create(session.ID(fmt.Sprintf("session-%04d", i)), 2)
	}
	x := w.index(w.path())
	w.same(x, Query{})
	ctx, id := t.Context(), session.ID("session-0000")
	x.mu.Lock()
	known, n := map[session.ID]head{id: x.shelf.heads[id]}, x.begin()
	x.mu.Unlock()
	w.grow(id, 1)
	marks, err := x.marks(ctx, []session.ID{id}, known)
	w.ok(err)
	slow, err := x.stats(ctx, []finding{{mark: marks[0], base: known[id].mark.Stamp, look: n}})
	w.ok(err)
	w.grow(id, 2)
	if _, _, err := x.fresh(ctx, id); err != nil { // another one looks
		t.Fatal(err)
	}
	want := w.now(x, id)
	if got := x.saw(ctx, slow)[id]; got != want || w.now(x, id) != want {
		t.Errorf("%+v, and on the shelf %+v; want %+v", got, w.now(x, id), want)
	}
	w.same(x, Query{})
}

// A session that goes to the trash while a list is made is not in it, nor is it called damaged.
func TestGoneWhileListed(t *testing.T) {
	w := newWorld(t, 47)
	for i := range 3 {
		w.create(session.ID(fmt.Sprintf("session-%04d", i)), 2)
	}
	x := w.index(w.path())
	ctx, id := t.Context(), session.ID("session-0001")
	s, err := x.lookAtAll(ctx, nil)
	w.ok(err)
	var keys []key
	for id, h := range s.heads {
		keys = append(keys, key{h.activity, id})
	}
	w.ok(w.st.(store.Remover).Trash(ctx, id))
	rows := map[session.ID]Row{}
	w.ok(x.rows(ctx, s, keys, rows, nil))
	if r, ok := rows[id]; ok || len(rows) != len(keys)-1 {
		t.Errorf("%d rows of %d, and of the one that is gone: %+v", len(rows), len(keys), r)
	}
	if r, ok, err := x.Row(ctx, id); ok || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// now returns what the shelf has of a session.
func (w *world) now(x *Index, id session.ID) head {
	x.mu.Lock()
	defer x.mu.Unlock()
	h, ok := x.shelf.heads[id]
	if !ok {
		w.t.Fatalf("%s is not on the shelf", id)
	}
	return h
}
