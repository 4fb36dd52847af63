package index

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// noSync is the machine's file system without its syncs, which cost most of a test.
var noSync = vfs.Around(vfs.OS(), func(c *vfs.Call, do func() error) error {
	switch c.Op {
	case vfs.OpSync, vfs.OpSyncData, vfs.OpSyncDir:
		return nil
	}
	return do()
})

// world is a store that a test changes, with a clock of its own: directories are settled at once.
type world struct {
	t    testing.TB
	root string
	st   store.Store
	rng  *mrand.Rand
	n    int
	ids  []session.ID
	held bool // sessions are written while they are listed: who does is asked of them, and in no list of an index
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, root: filepath.Join(t.TempDir(), "store"), rng: mrand.New(mrand.NewPCG(seed, 1))}
	w.st = w.handle()
	return w
}

func (w *world) handle() store.Store {
	st, err := filestore.Open(w.root, filestore.Options{FS: noSync, Rand: rand.Reader,
		Now: func() time.Time { return time.Now().Add(time.Hour) }})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { st.Close() })
	return st
}

func (w *world) index(path string) *Index {
	x := Open(Options{Path: path, Store: w.st, Registry: sessiontest.Registry(), Now: time.Now, Warn: func(err error) { w.t.Log("warning:", err) }})
	w.t.Cleanup(func() { x.Close() })
	return x
}

func (w *world) path() string { return filepath.Join(w.root, "index.db") }

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// events are n events of a conversation from seq first on.
func (w *world) events(first session.Seq, n int) []session.Event {
	var evs []session.Event
	add := func(typ string, op session.SurfaceOp, data string) {
		w.n++
		evs = append(evs, session.Event{Seq: first + session.Seq(len(evs)), Time: 1_700_000_000_000 + int64(w.rng.IntN(5_000))*60_000, Type: typ, Op: op, Data: jsontext.Value(data)})
	}
	for len(evs) < n {
		switch w.rng.IntN(6) {
		case 0:
			add(session.TypeTurnStart, session.SurfaceOp{}, fmt.Sprintf(`{"turn":%d}`, w.n))
		case 1:
			add(session.TypeTurnEnd, session.SurfaceOp{}, fmt.Sprintf(`{"turn":%d,"reason":{"kind":"completed"}}`, w.n))
		case 2:
			add(session.TypeUserMessage, session.Append(), fmt.Sprintf(`{"id":"u%d","role":"user","content":[{"type":"text","text":"question %d"}],"source":{"kind":"user"}}`, w.n, w.n))
		case 3:
			add(session.TypeTitle, session.SurfaceOp{}, fmt.Sprintf(`{"title":"title %d","source":"model"}`, w.n))
		default:
			add(session.TypeAssistantMessage, session.Append(), fmt.Sprintf(`{"turn":1,"step":1,"message":{"id":"a%d","role":"assistant","content":[{"type":"text","text":"answer"}],"source":{"kind":"model","provider":"p","model":"m%d"}},"usage":{"inputTokens":%d,"outputTokens":3}}`, w.n, w.rng.IntN(3), w.n))
		}
	}
	return evs
}

// create stores a session.
func (w *world) create(id session.ID, n int) {
	h := session.Header{Format: session.Format, ID: id, CreatedAt: 1_600_000_000_000 + int64(w.rng.IntN(20)), Cwd: "/w",
		Kind: []session.SessionKind{session.KindRoot, session.KindSubagent}[w.rng.IntN(2)], Project: []string{"", "/p"}[w.rng.IntN(2)], ProjectID: []string{"", "dir:1"}[w.rng.IntN(2)]}
	wr, err := w.st.Create(w.t.Context(), h)
	w.ok(err)
	_, err = wr.Append(w.t.Context(), w.events(0, n))
	w.ok(err)
	w.ok(wr.Close())
	w.ids = append(w.ids, id)
}

// grow appends to a session.
func (w *world) grow(id session.ID, n int) {
	wr, err := w.st.Open(w.t.Context(), id)
	w.ok(err)
	_, err = wr.Append(w.t.Context(), w.events(wr.Opened().Pos.Next, n))
	w.ok(err)
	w.ok(wr.Close())
}

// change does something to the store.
func (w *world) change() {
	defer w.tick()
	if len(w.ids) < 5 || w.rng.IntN(4) == 0 {
		w.create(session.ID(fmt.Sprintf("s-%04d", w.n)), 1+w.rng.IntN(10))
		return
	}
	i := w.rng.IntN(len(w.ids))
	id := w.ids[i]
	switch w.rng.IntN(6) {
	case 0:
		w.ok(w.st.(store.Remover).Trash(w.t.Context(), id))
		w.ids = append(w.ids[:i], w.ids[i+1:]...)
	case 1:
		child := session.ID(fmt.Sprintf("f-%04d", w.n))
		_, err := store.Fork(w.t.Context(), w.st, id, store.ForkOptions{Child: child, Now: 5, Registry: sessiontest.Registry()})
		if errors.Is(err, session.ErrOpenTurn) || errors.Is(err, session.ErrBoundary) {
			return
		}
		w.ok(err)
		w.n++
		w.ids = append(w.ids, child)
	default:
		w.grow(id, 1+w.rng.IntN(4))
	}
}

// rows are what a list must show, from the store and the fold alone.
func (w *world) rows(q Query) Page {
	sq := store.Query{Projects: q.Projects, Kinds: q.Kinds, ByCreation: q.ByCreation, Limit: q.Limit, Cursor: q.Cursor}
	page, err := w.st.(store.Lister).List(w.t.Context(), sq)
	w.ok(err)
	out := Page{Next: page.Next, Total: page.Total, Hidden: page.Hidden}
	if out.Hidden == nil {
		out.Hidden = map[session.SessionKind]int{}
	}
	for _, st := range page.Rows {
		r := Row{Stat: st}
		if whole(st) {
			snap, err := w.st.Read(w.t.Context(), st.ID)
			w.ok(err)
			s, err := session.Fold(snap.Header, sessiontest.Registry(), snap.Prefix)
			w.ok(err)
			r.LastActivity = s.LastActivity()
			r.Facts = &Facts{Next: s.Next(), Turns: s.Turns(), Title: s.Title().Title}
			w.ok(snap.Close())
		}
		out.Rows = append(out.Rows, r)
	}
	return out
}

// same compares a page of the index with what it must be.
func (w *world) same(x *Index, q Query) {
	w.t.Helper()
	got, err := x.List(w.t.Context(), q, nil)
	w.ok(err)
	for i, r := range got.Rows {
		if r.Facts != nil {
			got.Rows[i].Facts = &Facts{Next: r.Facts.Next, Turns: r.Facts.Turns, Title: r.Facts.Title}
		}
		got.Rows[i].Stat.Title, got.Rows[i].Held = "", false
	}
	want := w.rows(q)
	for i := range want.Rows {
		want.Rows[i].Stat.Title = ""
	}
	for _, p := range []*Page{&want, &got} {
		for i := range p.Rows {
			if w.held {
				p.Rows[i].Holder, p.Rows[i].Base = nil, 0
			}
		}
	}
	if _, files := w.st.(*filestore.Store); !files && got.Next != "" && want.Next != "" {
		got.Next = want.Next // each store has cursors of its own
	}
	if d := cmp.Diff(want, got); d != "" {
		w.t.Fatalf("the list is another one than without an index: %s", d)
	}
}

var queries = []Query{{}, {Limit: 3}, {ByCreation: true, Limit: 4}, {Kinds: []session.SessionKind{session.KindRoot}}, {Projects: []string{"/p"}, Limit: 2}, {Projects: []string{"dir:1", "/q"}}}

// An index that lives on, one that is opened again and one that begins anew say what the store says.
func TestList(t *testing.T) {
	w := newWorld(t, 1)
	lives := w.index(w.path())
	for range 60 {
		for range 1 + w.rng.IntN(3) {
			w.change()
		}
		q := queries[w.rng.IntN(len(queries))]
		w.same(lives, q)
		again := w.index(w.path())
		w.same(again, q)
		w.ok(again.Close())
	}
	for _, q := range queries {
		w.same(w.index(""), q)
		w.same(lives, q)
	}
}

// What is done to the file between two lists, or while an index has it open, changes nothing but the time.
func TestMutilated(t *testing.T) {
	w := newWorld(t, 2)
	for range 30 {
		w.change()
	}
	flip := func(b []byte) []byte {
		for range 1 + w.rng.IntN(8) {
			b[w.rng.IntN(len(b))] ^= 1 << w.rng.IntN(8)
		}
		return b
	}
	whats := map[string]func(path string){
		"deleted": func(p string) { w.ok(os.Remove(p)) },
		"garbage": func(p string) {
			w.ok(os.WriteFile(p, []byte("not a database, and long enough to be read as a header of one........................................................................."), 0o600))
		},
		"empty":    func(p string) { w.ok(os.Truncate(p, 0)) },
		"a folder": func(p string) { w.ok(os.Remove(p)); w.ok(os.Mkdir(p, 0o700)) },
		"another version": func(p string) {
			b, err := os.ReadFile(p)
			w.ok(err)
			b[63]++
			w.ok(os.WriteFile(p, b, 0o600))
		},
	}
	names := []string{"deleted", "garbage", "empty", "a folder", "another version"}
	for i := range 5 {
		name := fmt.Sprintf("flipped %d", i)
		names = append(names, name)
		whats[name] = func(p string) {
			b, err := os.ReadFile(p)
			w.ok(err)
			w.ok(os.WriteFile(p, flip(b), 0o600))
		}
		name = fmt.Sprintf("cut %d", i)
		names = append(names, name)
		whats[name] = func(p string) {
			info, err := os.Stat(p)
			w.ok(err)
			w.ok(os.Truncate(p, w.rng.Int64N(info.Size())))
		}
	}
	lives := w.index(w.path())
	w.same(lives, Query{})
	for _, name := range names {
		// Closed, so that everything is in the file itself.
		w.ok(lives.Close())
		lives = w.index(w.path())
		w.same(lives, Query{})
		if _, err := os.Stat(w.path()); err != nil { // the damage done last was found only now
			w.same(lives, Query{})
		}
		open := w.rng.IntN(2) == 0
		if !open {
			w.ok(lives.Close())
		}
		whats[name](w.path())
		w.change()
		t.Log(name, "open:", open)
		if open {
			w.same(lives, Query{})
		} else {
			lives = w.index(w.path())
		}
		w.same(lives, Query{})
		w.same(lives, queries[w.rng.IntN(len(queries))])
	}
}

// A store without files has an index too.
func TestMemory(t *testing.T) {
	w := newWorld(t, 3)
	w.st = memstore.New(memstore.Options{Now: time.Now})
	x := w.index("")
	for range 40 {
		w.change()
		w.same(x, queries[w.rng.IntN(len(queries))])
	}
}

// What cannot be read is a row with its reason, and harms no other one.
func TestBadSessions(t *testing.T) {
	w := newWorld(t, 4)
	for range 12 {
		w.change()
	}
	dir := filepath.Join(w.root, "sessions")
	w.ok(os.WriteFile(filepath.Join(dir, "bad-file"), nil, 0o600))
	w.ok(os.Mkdir(filepath.Join(dir, "bad-empty"), 0o700))
	w.ok(os.Mkdir(filepath.Join(dir, "bad-header"), 0o700))
	w.ok(os.WriteFile(filepath.Join(dir, "bad-header", "session.json"), []byte("{}\n"), 0o600))
	for range 2 {
		x := w.index(w.path())
		for _, q := range queries {
			w.same(x, q)
			w.same(x, q)
		}
		w.ok(x.Close())
	}
}

// Looking makes no store.
func TestNothingIsMade(t *testing.T) {
	w := newWorld(t, 5)
	x := w.index(w.path())
	w.same(x, Query{})
	if _, err := os.Stat(w.root); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestCancelled(t *testing.T) {
	w := newWorld(t, 6)
	w.create("session-one", 3)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := w.index(w.path()).List(ctx, Query{}, nil); !errors.Is(err, why) {
		t.Fatal(err)
	}
}

// A path is taken as the working directory has it, also a single name.
func TestRelativePath(t *testing.T) {
	w := newWorld(t, 1)
	w.create("abcd", 3)
	t.Chdir(w.root)
	w.same(w.index("index.db"), Query{})
	again := Open(Options{Path: "index.db", Store: w.st, Registry: sessiontest.Registry(), Now: time.Now, Warn: func(err error) { t.Errorf("warned: %v", err) }})
	defer again.Close()
	w.same(again, Query{})
	if info, err := os.Stat(w.path()); err != nil || info.Size() == 0 {
		t.Errorf("the file holds nothing: %v", err)
	}
}
