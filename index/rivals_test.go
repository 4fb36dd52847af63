package index

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
)

// While two processes write, fork, throw away and purge, two others search over the same file: nothing that was purged before a search
// began is in its answer, no event is there twice, all are in order, and whenever the writers rest both find what the logs say.
func TestTwoSearchTwoWrite(t *testing.T) {
	rounds := 24
	if n, err := strconv.Atoi(os.Getenv(roundsVar)); err == nil {
		rounds = n
	}
	root := filepath.Join(t.TempDir(), "store")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	q, err := search.Parse("words")
	if err != nil {
		t.Fatal(err)
	}
	type child struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Scanner
		err strings.Builder
	}
	var writers [2]child
	var searchers [2]*Index
	for i := range writers {
		st, err := openReal(root)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		searchers[i] = Open(Options{Path: filepath.Join(root, "index.db"), Store: st, Registry: sessiontest.Registry(), Lag: -1,
			Warn: func(err error) { t.Log("warned:", err) }})
		t.Cleanup(func() { searchers[i].Close() })
		c := &writers[i]
		c.cmd = exec.CommandContext(t.Context(), self, strconv.Itoa(i), "purges")
		c.cmd.Env = append(os.Environ(), childVar+"="+root)
		c.cmd.Stderr = &c.err
		if c.in, err = c.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := c.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		c.out = bufio.NewScanner(out)
		if err := c.cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	purged := map[session.ID]bool{}
	searched, seen := 0, 0
	keys := func(x *Index) (keys []string) {
		mu.Lock()
		gone := make(map[session.ID]bool, len(purged))
		for id := range purged {
			gone[id] = true
		}
		mu.Unlock()
		last := search.Key{}
		for r, err := range x.Search(t.Context(), q, search.Filter{}, 0, search.Watch{}) {
			if err != nil {
				t.Error(err)
				return nil
			}
			if gone[r.ID] {
				t.Errorf("%s was purged, and %v is found", r.ID, r.Key)
			}
			if last != (search.Key{}) && last.Compare(r.Key) >= 0 {
				t.Errorf("%v comes behind %v", r.Key, last)
			}
			last = r.Key
			keys = append(keys, r.Key.String())
		}
		mu.Lock()
		searched, seen = searched+1, seen+len(keys)
		mu.Unlock()
		return keys
	}
	const batch = 6 // rounds until the writers rest
	for done := 0; done < rounds && !t.Failed(); done += batch {
		var writing, searching sync.WaitGroup
		rest := make(chan struct{})
		for i := range writers {
			c := &writers[i]
			writing.Go(func() {
				for range batch {
					if _, err := io.WriteString(c.in, "\n"); err != nil || !c.out.Scan() {
						t.Errorf("writer %d ended: %v %s", i, err, c.out.Text())
						return
					}
					if _, id, _ := strings.Cut(c.out.Text(), " "); id != "" {
						mu.Lock()
						purged[session.ID(id)] = true
						mu.Unlock()
					}
				}
			})
			searching.Go(func() {
				for {
					keys(searchers[i])
					select {
					case <-rest:
						return
					default:
					}
				}
			})
		}
		writing.Wait()
		close(rest)
		searching.Wait()
		var want []string
		for r, err := range search.Scan(t.Context(), searchers[0].opt.Store, q, search.Filter{}, 0, search.Watch{}) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, r.Key.String())
		}
		for i, x := range searchers {
			if d := cmp.Diff(want, keys(x)); d != "" {
				t.Errorf("after %d rounds searcher %d does not find what the logs say: %s", done+batch, i, d)
			}
		}
	}
	for i := range writers {
		c := &writers[i]
		if err := c.in.Close(); err != nil {
			t.Error(err)
		}
		if err := c.cmd.Wait(); err != nil || c.err.String() != "" {
			t.Error(err, c.err.String())
		}
	}
	for i, x := range searchers { // answers do not depend on it
		if x.thrown > 0 {
			t.Logf("searcher %d threw the file away %d times", i, x.thrown)
		}
	}
	if len(purged) == 0 || seen == 0 {
		t.Error(len(purged), "purged,", seen, "found: nothing was tried")
	}
	t.Log(searched, "searches found", seen, "events;", len(purged), "sessions were purged")
}
