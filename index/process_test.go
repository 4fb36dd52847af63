package index

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
	"github.com/strandline-dev/strandline/store"
)

// childVar holds the store that a child of this test writes to.
const childVar = "STRANDLINE_INDEX_CHILD"

// roundsVar asks for more rounds of each writer of TestTwoWriteOneLists: with -race, on a busy machine, 40 take a minute.
const roundsVar = "STRANDLINE_INDEX_ROUNDS"

func TestMain(m *testing.M) {
	root := os.Getenv(childVar)
	if root == "" {
		os.Exit(m.Run())
	}
	if err := writes(root, os.Args[1], len(os.Args) > 2); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// openReal opens a store with the machine's clock.
func openReal(root string) (*filestore.Store, error) {
	return filestore.Open(root, filestore.Options{FS: noSync, Rand: rand.Reader, Now: time.Now})
}

// said is a log's event in which a person says text.
func said(seq session.Seq, at int64, text string) session.Event {
	return session.Event{Seq: seq, Time: at, Type: session.TypeUserMessage, Op: session.Append(), Data: jsontext.Value(fmt.Sprintf(
		`{"id":"u%d","role":"user","content":[{"type":"text","text":%q}],"source":{"kind":"user"}}`, seq, text))}
}

// writes makes, grows, forks and throws away sessions, for each line of its input once, and brings an index up to it. It prints
// a line after each. Whoever purges deletes for good what he throws away, often, and says of what on that line.
func writes(root, name string, purges bool) error {
	ctx := context.Background()
	st, err := openReal(root)
	if err != nil {
		return err
	}
	defer st.Close()
	x := Open(Options{Path: filepath.Join(root, "index.db"), Store: st, Registry: sessiontest.Registry()})
	defer x.Close()
	seed, _ := strconv.ParseUint(name, 10, 64)
	rng := mrand.New(mrand.NewPCG(seed, 7))
	var mine []session.ID
	at := int64(1_800_000_000_000) // later than all that is there, and later each time
	in := bufio.NewScanner(os.Stdin)
	for n := 0; in.Scan(); n++ {
		at += 1000
		id := session.ID(fmt.Sprintf("writer-%s-%05d", name, n))
		purged := session.ID("")
		grow := len(mine) > 3 && rng.IntN(8) > 0
		if grow {
			id = mine[rng.IntN(len(mine))]
		}
		switch {
		case grow && (n%19 == 0 || purges && n%4 == 0):
			if err := st.Trash(ctx, id); err != nil {
				return err
			}
			if purges {
				for _, p := range st.Purge(ctx, []session.ID{id}) {
					if p.Err != nil {
						return p.Err
					}
				}
				x.Forget(ctx, id)
				x.Erase(ctx, id)
				purged = id
			}
			mine = slices.DeleteFunc(mine, func(m session.ID) bool { return m == id })
		case grow && n%7 == 0:
			child := session.ID(fmt.Sprintf("writer-%s-%05d", name, n))
			if _, err := store.Fork(ctx, st, id, store.ForkOptions{Child: child, Now: at, Registry: sessiontest.Registry()}); err != nil {
				return err
			}
			mine = append(mine, child)
		default:
			var w store.Writer
			if grow {
				w, err = st.Open(ctx, id)
			} else {
				w, err = st.Create(ctx, session.Header{Format: session.Format, ID: id, CreatedAt: at, Cwd: "/w", Kind: session.KindRoot})
				mine = append(mine, id)
			}
			if err != nil {
				return err
			}
			next := session.Seq(0)
			if grow {
				next = w.Opened().Pos.Next
			}
			if _, err := w.Append(ctx, []session.Event{said(next, at, fmt.Sprintf("new words of %s in round %d", name, n))}); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
		}
		if err := x.Update(ctx, id); err != nil {
			return err
		}
		fmt.Println(n, purged)
	}
	return in.Err()
}

// While two processes write and bring the index up to it, another one lists and searches: what nobody touches is in each list
// exactly once, nothing is there twice, and in the end all is as the logs say.
func TestTwoWriteOneLists(t *testing.T) {
	rounds := 12
	if n, err := strconv.Atoi(os.Getenv(roundsVar)); err == nil {
		rounds = n
	}
	w := &world{t: t, root: filepath.Join(t.TempDir(), "store"), rng: mrand.New(mrand.NewPCG(31, 1))}
	st, err := openReal(w.root)
	w.ok(err)
	t.Cleanup(func() { st.Close() })
	w.st = st
	old := map[session.ID]bool{}
	for i := range 20 {
		id := session.ID(fmt.Sprintf("old-%04d", i))
		wr, err := st.Create(t.Context(), session.Header{Format: session.Format, ID: id, CreatedAt: 5, Cwd: "/w", Kind: session.KindRoot})
		w.ok(err)
		_, err = wr.Append(t.Context(), []session.Event{said(0, 1_700_000_000_000+int64(i/2), "the needle of this session")})
		w.ok(err)
		w.ok(wr.Close())
		old[id] = true
	}
	self, err := os.Executable()
	w.ok(err)
	type child struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Scanner
		err bytes.Buffer
	}
	var children [2]child
	for i := range children {
		c := &children[i]
		c.cmd = exec.CommandContext(t.Context(), self, strconv.Itoa(i))
		c.cmd.Env = append(os.Environ(), childVar+"="+w.root)
		c.cmd.Stderr = &c.err
		c.in, err = c.cmd.StdinPipe()
		w.ok(err)
		out, err := c.cmd.StdoutPipe()
		w.ok(err)
		c.out = bufio.NewScanner(out)
		w.ok(c.cmd.Start())
	}
	const ahead = 4 // rounds that a writer may be ahead of the lists
	done := make(chan error, len(children))
	turns := [2]chan struct{}{make(chan struct{}, ahead), make(chan struct{}, ahead)}
	for i := range children {
		go func() {
			c := &children[i]
			for range turns[i] {
				if _, err := io.WriteString(c.in, "\n"); err != nil || !c.out.Scan() {
					break
				}
			}
			for range turns[i] { // it ended before its time
			}
			done <- cmp.Or(c.in.Close(), c.cmd.Wait())
		}()
	}
	x := w.index(w.path())
	find := func(by func(q search.Query) func(func(search.Result, error) bool), text string) []search.Key {
		q, err := search.Parse(text)
		w.ok(err)
		var keys []search.Key
		for r, err := range by(q) {
			w.ok(err)
			keys = append(keys, r.Key)
		}
		return keys
	}
	indexed := func(q search.Query) func(func(search.Result, error) bool) {
		return x.Search(t.Context(), q, search.Filter{}, 0, search.Watch{})
	}
	scanned := func(q search.Query) func(func(search.Result, error) bool) {
		return search.Scan(t.Context(), st, q, search.Filter{}, 0, search.Watch{})
	}
	for round := range rounds {
		for i := range turns {
			turns[i] <- struct{}{}
		}
		seen := map[session.ID]int{}
		q := Query{Limit: 7}
		for {
			page, err := x.List(t.Context(), q, nil)
			w.ok(err)
			for _, r := range page.Rows {
				seen[r.ID]++
				if r.State != store.StateOK && r.State != store.StateTorn {
					t.Errorf("round %d: %s is %s: %s", round, r.ID, r.State, r.Reason)
				}
			}
			if page.Total < len(old) {
				t.Errorf("round %d: only %d rows", round, page.Total)
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		for id, n := range seen {
			if n > 1 {
				t.Errorf("round %d: %s is there %d times", round, id, n)
			}
		}
		for id := range old {
			if seen[id] != 1 {
				t.Errorf("round %d: %s is there %d times", round, id, seen[id])
			}
		}
		if round%4 == 0 {
			if got := find(indexed, "needle"); len(got) != len(old) {
				t.Errorf("round %d: %d found, want %d", round, len(got), len(old))
			}
		}
		if t.Failed() {
			break
		}
	}
	for i := range turns {
		close(turns[i])
	}
	for range children {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for i := range children {
		if s := children[i].err.String(); s != "" {
			t.Error(s)
		}
	}
	for _, q := range []Query{{}, {ByCreation: true, Limit: 9}} {
		w.same(x, q)
		w.same(w.index(""), q)
	}
	if d := gocmp.Diff(find(scanned, "words"), find(indexed, "words")); d != "" {
		t.Error("the search is another one than without an index:", d)
	}
}
