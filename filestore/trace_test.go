package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

var update = flag.Bool("update", false, "write the golden files")

// counter is randomness that repeats.
type counter struct{ n uint32 }

func (c *counter) Read(b []byte) (int, error) {
	c.n++
	clear(b)
	binary.BigEndian.PutUint32(b[max(0, len(b)-4):], c.n)
	return len(b), nil
}

// scenario is an operation whose durability protocol is golden, and which the fault tests break at
// every call.
type scenario struct {
	name  string
	roll  int64 // SegmentBytes
	setup func(t testing.TB, s *Store)
	run   func(ctx context.Context, s *Store) (acked session.Seq, err error)
}

const subject = session.ID("subject")

// life opens (or creates) the session and appends and flushes batches of n, or only appends if n is
// negative. What is not saved is tried again, twice.
func life(ctx context.Context, s *Store, create bool, from session.Seq, batches ...int) (acked session.Seq, err error) {
	var w store.Writer
	if create {
		w, err = s.Create(ctx, testHeader(subject))
	} else {
		w, err = s.Open(ctx, subject)
	}
	acked = session.None
	if err != nil {
		return acked, err
	}
	defer w.Close()
	for _, n := range batches {
		flush := n > 0
		n = max(n, -n)
		var pos store.Pos
		for try := range 3 {
			if pos, err = w.Append(ctx, events(from, n)); err == nil && flush {
				pos, err = w.Flush(ctx)
			}
			if !errors.Is(err, store.ErrNotSaved) || try == 2 {
				break
			}
		}
		if err != nil {
			return acked, err
		}
		from += session.Seq(n)
		if flush {
			acked = pos.Next - 1
		}
	}
	return acked, w.Close()
}

func forkHeader(ctx context.Context, s *Store, id session.ID, cut session.Seq) (session.Header, error) {
	h := testHeader(id)
	h.Kind, h.SeedLength = session.KindFork, cut+1
	link, err := s.LinkAt(ctx, subject, cut)
	h.Parent = &session.Parent{ID: subject, Seq: cut, Link: link, Spans: []session.OriginSpan{{ID: subject, End: cut + 1}}}
	return h, err
}

var scenarios = []scenario{
	{name: "create", run: func(ctx context.Context, s *Store) (session.Seq, error) {
		return life(ctx, s, true, 0, 3)
	}},
	{name: "first-commit", setup: stored(10), run: func(ctx context.Context, s *Store) (session.Seq, error) {
		return life(ctx, s, false, 10, 3)
	}},
	{name: "append-flush", setup: stored(10), run: func(ctx context.Context, s *Store) (session.Seq, error) {
		return life(ctx, s, false, 10, 1, 5, 5)
	}},
	{name: "roll", setup: stored(10), roll: 1500, run: func(ctx context.Context, s *Store) (session.Seq, error) {
		return life(ctx, s, false, 10, 2, -3, 5, -5, -3, 1)
	}},
	{name: "fork", setup: stored(10), run: func(ctx context.Context, s *Store) (session.Seq, error) {
		h, err := forkHeader(ctx, s, "child", 6)
		if err == nil {
			err = s.CreateFork(ctx, h, events(7, 2))
		}
		return session.None, err
	}},
	{name: "open-read-close", setup: stored(10), run: func(ctx context.Context, s *Store) (session.Seq, error) {
		snap, err := s.Read(ctx, subject)
		if err != nil {
			return session.None, err
		}
		for _, err := range snap.Prefix.Range(0, snap.Prefix.Len()) {
			if err != nil {
				return session.None, err
			}
		}
		if err := snap.Close(); err != nil {
			return session.None, err
		}
		return life(ctx, s, false, 10)
	}},
	{name: "stat-list", setup: stored(10), run: func(ctx context.Context, s *Store) (session.Seq, error) {
		if _, err := s.Stat(ctx, subject); err != nil {
			return session.None, err
		}
		_, err := s.List(ctx, store.Query{})
		return session.None, err
	}},
}

func stored(n int) func(testing.TB, *Store) {
	return func(t testing.TB, s *Store) { newStored(t, s, subject, n) }
}

var nonces = regexp.MustCompile(`[0-9a-f]{24}`)

func TestTraces(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "store")
			o := testOptions()
			o.PID, o.Rand = 1, &counter{}
			if sc.setup != nil {
				sc.setup(t, openWith(t, root, o))
			}
			var out bytes.Buffer
			o.SegmentBytes = sc.roll
			o.FS = vfs.Trace(vfs.OS(), &out, func(name string) string {
				rel, err := filepath.Rel(root, name)
				if err != nil || strings.HasPrefix(rel, "..") {
					return "(above)"
				}
				return nonces.ReplaceAllString(rel, "N")
			})
			if _, err := sc.run(t.Context(), openWith(t, root, o)); err != nil {
				t.Fatal(err)
			}
			golden(t, "trace-"+sc.name+".txt", out.Bytes())
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Fatalf("%s (run with -update if the change is meant):\n%s", path, d)
	}
}

// TestFormatExample keeps the worked example of docs/format.md what the code writes.
func TestFormatExample(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	ctx := t.Context()
	w := must[store.Writer](t)(s.Create(ctx, testHeader("example")))
	mustAppend(t, w, events(0, 2))
	mustFlush(t, w)
	mustAppend(t, w, events(2, 1))
	w.Close()
	seg, err := os.ReadFile(filepath.Join(s.dir("example"), segmentName(0)))
	if err != nil {
		t.Fatal(err)
	}
	head, err := os.ReadFile(filepath.Join(s.dir("example"), headerName))
	if err != nil {
		t.Fatal(err)
	}
	const path = "../docs/format.md"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- example:segment -->\n", "<!-- /example -->"
	before, rest, ok1 := strings.Cut(string(doc), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no example", path)
	}
	want := fmt.Sprintf("```\n%s```\n\nand its `session.json`:\n\n```\n%s```\n", seg, head)
	if old == want {
		return
	}
	if !*update {
		t.Fatalf("%s: the example is not what is written (run with -update):\n%s", path, cmp.Diff(old, want))
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
