package index

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/search/searchtest"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// keysOf runs a search to its end.
func keysOf(t testing.TB, results func(context.Context, search.Query, search.Filter, int) ([]search.Result, error), query string, f search.Filter, limit int) []string {
	t.Helper()
	q, err := search.Parse(query)
	if err != nil {
		return []string{"no query"}
	}
	rs, err := results(context.Background(), q, f, limit)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, r := range rs {
		out = append(out, fmt.Sprint(r.Key, " ", r.Type, " ", r.Header.ID, " ", r.Field, " ", r.Tool, " ", r.Score, " ", r.Snippet.Marked("<", ">")))
	}
	return out
}

// all returns what the index finds, and what a scan finds.
func both(x *Index, st store.Store) (indexed, scanned func(context.Context, search.Query, search.Filter, int) ([]search.Result, error)) {
	gather := func(seq func(func(search.Result, error) bool)) (out []search.Result, err error) {
		for r, err := range seq {
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
		return out, nil
	}
	return func(ctx context.Context, q search.Query, f search.Filter, limit int) ([]search.Result, error) {
			return gather(x.Search(ctx, q, f, limit, search.Watch{}))
		}, func(ctx context.Context, q search.Query, f search.Filter, limit int) ([]search.Result, error) {
			return gather(search.Scan(ctx, st, q, f, limit, search.Watch{}))
		}
}

// ranked returns what a search finds in pages, ranked.
func ranked(t testing.TB, results func(context.Context, search.Query, search.Filter, int) ([]search.Result, error), query string, f search.Filter, limit int) (out []string) {
	t.Helper()
	q, err := search.Parse(query)
	if err != nil {
		return []string{"no query"}
	}
	for at := (search.Place{After: f.After}); ; {
		page, next, err := search.Ranked(at, limit, func(after search.Key, limit int) iter.Seq2[search.Result, error] {
			return func(yield func(search.Result, error) bool) {
				f.After = after
				rs, err := results(context.Background(), q, f, limit)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rs {
					if !yield(r, nil) {
						return
					}
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			out = append(out, fmt.Sprint(r.Score, " ", r.Key))
		}
		if at = next; at == (search.Place{}) {
			return out
		}
	}
}

// same compares the index with a scan over many queries, filters and limits.
func same(t testing.TB, x *Index, st store.Store, seed, n int) {
	t.Helper()
	indexed, scanned := both(x, st)
	found := 0
	for i := range n {
		query := rapid.Custom(searchtest.Query).Example(seed*1000 + i)
		f, limit := search.Filter{}, 0
		switch i % 6 {
		case 1:
			limit = 2
		case 2:
			f.Tool = "bash"
		case 3:
			f.Include = func(h session.Header) bool { return h.Project == "/one" }
		case 4:
			f.Since = 1_700_000_004_000
		case 5:
			if all := keysOf(t, scanned, query, search.Filter{}, 0); len(all) > 1 {
				q, _ := search.Parse(query)
				rs, _ := scanned(context.Background(), q, search.Filter{}, 0)
				f.After = rs[len(rs)/2].Key
			}
		}
		want, got := keysOf(t, scanned, query, f, limit), keysOf(t, indexed, query, f, limit)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("seed %d, %q, %+v, limit %d: %s", seed, query, f, limit, d)
		}
		want, got = ranked(t, scanned, query, f, 3), ranked(t, indexed, query, f, 3)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("seed %d, %q, %+v, ranked: %s", seed, query, f, d)
		}
		found += len(want)
	}
	if found == 0 && n > 50 {
		t.Fatal("nothing was ever found: the queries are of no use")
	}
}

func memory(t testing.TB) *memstore.Store {
	st := memstore.New(memstore.Options{Now: time.Now})
	t.Cleanup(func() { st.Close() })
	return st
}

func indexOf(t testing.TB, st store.Store, path string, lag int) *Index {
	x := Open(Options{Path: path, Store: st, Registry: session.Core(), Lag: lag, Warn: func(err error) { t.Log("warned:", err) }})
	t.Cleanup(func() { x.Close() })
	return x
}

// fill puts sessions into a store, the same for the same seed.
func fill(t testing.TB, st store.Store, seed, n int) {
	rapid.Custom(func(t *rapid.T) int { return len(searchtest.Fill(context.Background(), t, st, n)) }).Example(seed)
	rows, err := search.All(context.Background(), st)
	if err != nil || len(rows) == 0 {
		t.Fatal(rows, err)
	}
}

// TestSearchEqualsScan: over texts in many scripts, and queries that nobody would type.
func TestSearchEqualsScan(t *testing.T) {
	for seed := range 2 {
		var st store.Store = memory(t)
		if seed == 1 {
			st = newWorld(t, 1).st // files
		}
		fill(t, st, seed, 12)
		x := indexOf(t, st, filepath.Join(t.TempDir(), "index.db"), -1)
		same(t, x, st, seed, 54)
		var docs int
		if err := x.db.QueryRow("SELECT count(*) FROM docs").Scan(&docs); err != nil || docs == 0 {
			t.Fatalf("the tables answered nothing: %d rows, %v", docs, err)
		}
		again := indexOf(t, st, filepath.Join(filepath.Dir(x.opt.Path), "index.db"), -1)
		same(t, again, st, seed, 6)
		if x.thrown+again.thrown > 0 {
			t.Fatal("a file that nothing happened to was thrown away")
		}
	}
}

// TestSearchGrows: what comes later is found at once, whether the tables have taken it in or not; what goes is gone at once,
// and what comes back is there.
func TestSearchGrows(t *testing.T) {
	ctx := context.Background()
	for seed, lag := range []int{-1, 5, 1 << 30} {
		st := memory(t)
		fill(t, st, seed, 6)
		path := filepath.Join(t.TempDir(), "index.db")
		x := indexOf(t, st, path, lag)
		same(t, x, st, seed, 6)
		rows, err := search.All(ctx, st)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			switch i % 3 {
			case 0:
				if err := st.Trash(ctx, r.ID); err != nil {
					t.Fatal(err)
				}
			default:
				w, err := st.Open(ctx, r.ID)
				if err != nil {
					t.Fatal(err)
				}
				var more []session.Event
				rapid.Custom(func(t *rapid.T) int {
					more, _ = searchtest.Events(t, r.ID, w.Opened().Pos.Next, 4)
					return 0
				}).Example(seed + i)
				if _, err := w.Append(ctx, more); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Flush(ctx); err != nil {
					t.Fatal(err)
				}
				w.Close()
			}
			same(t, x, st, seed+i, 6)
		}
		for i, r := range rows {
			if i%3 == 0 {
				if i%2 == 0 {
					st.Restore(ctx, r.ID)
				} else {
					st.Purge(ctx, []session.ID{r.ID})
				}
				same(t, x, st, seed+i, 6)
			}
		}
		again := indexOf(t, st, path, lag) // another process
		same(t, again, st, seed, 6)
		if x.thrown+again.thrown > 0 {
			t.Fatal("a file that nothing happened to was thrown away")
		}
	}
}

// withSecret is a store in which one session says a word, the path of an index, and whether its file holds the word.
func withSecret(t *testing.T) (st *memstore.Store, path string, holds func() bool) {
	st, path = memory(t), filepath.Join(t.TempDir(), "index.db")
	fill(t, st, 3, 3)
	data, _ := json.Marshal(message.User("m", "secretword"))
	ev := session.Event{Time: 1, Type: session.TypeUserMessage, Op: session.Append(), Data: data}
	if err := st.Take(t.Context(), session.Header{Format: session.Format, ID: "secret-1", Kind: session.KindRoot}, func(yield func(session.Event, error) bool) {
		yield(ev, nil)
	}); err != nil {
		t.Fatal(err)
	}
	return st, path, func() (found bool) {
		for _, suffix := range []string{"", "-wal"} {
			b, _ := os.ReadFile(path + suffix)
			found = found || bytes.Contains(b, []byte("ecretword"))
		}
		return found
	}
}

// TestEraseLeavesNoWord: of a session that was deleted for good no word is in the file.
func TestEraseLeavesNoWord(t *testing.T) {
	ctx := context.Background()
	st, path, holds := withSecret(t)
	x := indexOf(t, st, path, -1)
	same(t, x, st, 3, 6)
	if !holds() {
		t.Fatal("the word is not in the file to begin with")
	}
	if err := st.Trash(ctx, "secret-1"); err != nil {
		t.Fatal(err)
	}
	st.Purge(ctx, []session.ID{"secret-1"})
	x.Erase(ctx, "secret-1")
	if holds() {
		t.Fatal("the word is still in the file")
	}
	same(t, x, st, 3, 6)
}

// TestForgottenLeavesNoTitle: nor is its title in the file, though the search never knew it and another process has the file open.
func TestForgottenLeavesNoTitle(t *testing.T) {
	ctx := context.Background()
	st, path, holds := withSecret(t)
	x, other := indexOf(t, st, path, 0), indexOf(t, st, path, 0)
	for _, x := range []*Index{x, other} {
		if _, err := x.List(ctx, Query{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !holds() {
		t.Fatal("the title is not in the file to begin with")
	}
	if err := st.Trash(ctx, "secret-1"); err != nil {
		t.Fatal(err)
	}
	x.Forget(ctx, "secret-1")
	st.Purge(ctx, []session.ID{"secret-1"})
	x.Forget(ctx, "secret-1")
	x.Erase(ctx, "secret-1")
	if holds() {
		t.Fatal("the title is still in the file")
	}
}

// TestSumKnowsEveryTable: no change of what an answer depends on leaves the sum as it was.
func TestSumKnowsEveryTable(t *testing.T) {
	ctx := context.Background()
	st := memory(t)
	fill(t, st, 1, 8)
	x := indexOf(t, st, filepath.Join(t.TempDir(), "index.db"), -1)
	same(t, x, st, 1, 6)
	sum := func(change string) (n int64) {
		undo := errors.New("undo")
		err := x.transact(ctx, func(tx *sql.Tx) error {
			res, err := tx.ExecContext(ctx, change)
			if err != nil {
				return err
			}
			if rows, _ := res.RowsAffected(); rows == 0 {
				return errors.New("nothing was changed")
			}
			if n, err = tablesSum(ctx, tx); err != nil {
				return err
			}
			return undo
		})
		if !errors.Is(err, undo) {
			t.Fatalf("%s: %v", change, err)
		}
		return n
	}
	was := sum("UPDATE state SET v = 1 WHERE name = 'sum'") // which is no part of it
	for _, change := range []string{
		"UPDATE words_data SET block = block || x'00' WHERE id = (SELECT max(id) FROM words_data)",
		"UPDATE grams_data SET id = id + 1 WHERE id = (SELECT max(id) FROM grams_data)",
		"UPDATE words_idx SET pgno = pgno + 2", "DELETE FROM grams_idx", "UPDATE docs SET seq = seq + 1", "UPDATE docs SET n = seq, seq = n",
		"UPDATE docs SET tool = tool || 'x'", "UPDATE covers SET id = id || 'x'", "UPDATE covers SET cover = x''", "UPDATE state SET v = v + 1 WHERE name = 'spill'",
	} {
		if sum(change) == was {
			t.Errorf("%s: the sum is the same", change)
		}
	}
}

// TestSearchOverDamage: whatever becomes of the file, what is found is the same.
func TestSearchOverDamage(t *testing.T) {
	st := memory(t)
	fill(t, st, 1, 8)
	path := filepath.Join(t.TempDir(), "index.db")
	x := indexOf(t, st, path, -1)
	same(t, x, st, 1, 6)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	harm := map[string]func(){
		"deleted":   func() { os.Remove(path) },
		"empty":     func() { os.WriteFile(path, nil, 0o600) },
		"cut":       func() { os.WriteFile(path, whole[:len(whole)/2], 0o600) },
		"no file":   func() { os.Remove(path); os.Mkdir(path, 0o700) },
		"something": func() { os.RemoveAll(path); os.WriteFile(path, []byte("not a database"), 0o600) },
	}
	for i := range 10 { // one byte anywhere
		harm[fmt.Sprint("flip ", i)] = func() {
			b := slices.Clone(whole)
			b[(i*2+1)*len(b)/20] ^= 1 << (i % 8)
			os.WriteFile(path, b, 0o600)
		}
	}
	for name, f := range harm {
		t.Run(name, func(t *testing.T) {
			os.RemoveAll(path)
			os.Remove(path + "-wal")
			os.Remove(path + "-shm")
			os.WriteFile(path, whole, 0o600)
			f()
			same(t, indexOf(t, st, path, -1), st, 1, 6)
		})
	}
}

// TestSearchAsBefore: what a search found out of all sessions is used again, and only until something changed: a session, by
// this process or another one, or what the tables know of one.
func TestSearchAsBefore(t *testing.T) {
	w := newWorld(t, 53)
	var watch watched
	var clock atomic.Int64
	clock.Store(1_000_000)
	x, other := w.quickIndex(w.path(), &watch, &clock), w.index(w.path())
	x.opt.Lag, other.opt.Lag = -1, -1
	indexed, scanned := both(x, w.st)
	theirs, _ := both(other, w.st)
	w.create("open", 5)
	wr, err := w.st.Open(t.Context(), "open")
	w.ok(err)
	defer wr.Close()
	w.ids = w.ids[:len(w.ids)-1] // nobody else touches it
	next, again := session.Seq(5), 0
	for step := range 24 {
		switch {
		case step%8 == 3: // a glance sees it
			_, err := wr.Append(t.Context(), []session.Event{said(next, 1_700_000_000_000, "answer")})
			w.ok(err)
			next++
		case step%8 == 5: // the sessions are as they were, the tables are not
			other.Erase(t.Context(), w.ids[0])
		case step%8 == 7: // the other one takes in what x does not know yet
			w.create(session.ID(fmt.Sprintf("s-%04d", w.n)), 5)
			keysOf(t, theirs, "answer", search.Filter{}, 0)
		case step%2 == 1:
			w.change()
		}
		w.tick()
		for i, f := range []search.Filter{{}, {Include: func(h session.Header) bool { return h.Kind == session.KindRoot }}, {}} {
			before := x.planned
			want, got := keysOf(t, scanned, "answer", f, 0), keysOf(t, indexed, "answer", f, 0)
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("step %d, search %d: %s", step, i, d)
			}
			if before.plan != nil && x.planned == before {
				again++
			}
		}
	}
	if again < 24 {
		t.Errorf("a plan was used again %d times", again)
	}
}
