package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
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

// scenario is an operation whose durability protocol is golden, and which the harness of crash_test.go kills and
// breaks at every call. Before it there is no subject, or (setup) the events 0 to 9, all but perhaps the last of
// them synced.
type scenario struct {
	name  string
	roll  int64 // SegmentBytes
	setup func(t testing.TB, s *Store)
	disk  func(t testing.TB, m *vfs.Mem) // what happens to the disk after setup
	block int                            // of the disk; 0: 64
	run   func(ctx context.Context, s *Store, log []session.Event) (acked session.Seq, err error)

	thorough bool // in a short run recoveries are killed at a third of their calls, not at a thirteenth
	every    int  // in a short run one of so many crashes is tried, and fewer of the failures; 0: all crashes
	shuffled bool // segments are read side by side: the order of the calls is not golden

	// All that can ever be read is a prefix of this log, which may ask for the disk before; nil: 40 events.
	log func(t testing.TB, m *vfs.Mem) []session.Event
	// How many events are surely there before; 0: 10.
	stored int
	// also says what else is wrong, and brings to its end what was interrupted; nil: nothing.
	also func(ctx context.Context, s *Store, w wanted) error
}

func (sc *scenario) full(t testing.TB, m *vfs.Mem) []session.Event {
	if sc.log == nil {
		return events(0, 40)
	}
	return sc.log(t, m)
}

func (sc *scenario) synced() int {
	if sc.stored == 0 {
		return 10
	}
	return sc.stored
}

const subject = session.ID("subject")

var nonces = regexp.MustCompile(`[0-9a-f]{24}`)

func TestTraces(t *testing.T) {
	for _, sc := range scenarios {
		if sc.shuffled {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			var out bytes.Buffer
			m := newDisk(t, sc)
			fsys := traced(m.Process(), memRoot, &out)
			if _, err := sc.run(t.Context(), memStore(t, fsys, sc.roll, 2), sc.full(t, m.Clone())); err != nil {
				t.Fatal(err)
			}
			golden(t, "trace-"+sc.name+".txt", out.Bytes())
		})
	}
}

// traced is a file system whose calls are written to out.
func traced(base vfs.FS, root string, out io.Writer) vfs.FS {
	return vfs.Trace(base, out, func(name string) string {
		rel, err := filepath.Rel(root, name)
		if err != nil || strings.HasPrefix(rel, "..") {
			return "(above)"
		}
		return nonces.ReplaceAllString(rel, "N")
	})
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
