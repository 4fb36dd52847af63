package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/bench"
	"github.com/strandline-dev/strandline/session"
)

// manyVar asks for the store of the scenario in full: 5,000 sessions with 2.5 GB, and 10,000 subagents.
const manyVar = "STRANDLINE_MANY_SESSIONS"

// TestP14_FiveThousandSessions: a store of many sessions is listed in pages that repeat and miss nothing, with few files
// open, whatever became of its index. Times are logged, not judged.
func TestP14_FiveThousandSessions(t *testing.T) {
	b := newBox(t)
	parts := []bench.Part{{Sessions: 180, Bytes: 4_000}, {Sessions: 3, Bytes: 200_000}, {Sessions: 300, Bytes: 1_000, Kind: session.KindSubagent}}
	if os.Getenv(manyVar) != "" {
		parts = []bench.Part{{Sessions: 4900, Bytes: 20_000}, {Sessions: 80, Bytes: 5_000_000}, {Sessions: 20, Bytes: 100_000_000}, {Sessions: 10_000, Bytes: 2_000, Kind: session.KindSubagent}}
	}
	roots, children := 0, 0
	for i := range parts {
		if parts[i].Kind == "" {
			parts[i].Kind = session.KindRoot
			roots += parts[i].Sessions
		} else {
			children += parts[i].Sessions
		}
	}
	if err := bench.Populate(t.Context(), b.store, b.ws, parts, nil); err != nil {
		t.Fatal(err)
	}
	// list runs ls, of which nothing may have more than 256 files open.
	list := func(what string, args ...string) ([]row, lastLine) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
		defer cancel()
		args = append([]string{"-c", `ulimit -n 256 && exec "$@"`, "sh", program, "--store", b.store, "ls", "--json", "--any-project"}, args...)
		cmd := exec.CommandContext(ctx, "sh", args...)
		cmd.Env = b.command(ctx).Env
		cmd.Dir = b.ws
		begin := time.Now()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		memory := int64(0)
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			memory = u.Maxrss // in KB on Linux
		}
		t.Logf("%s: %v, %d MB", what, time.Since(begin).Round(time.Millisecond), memory>>10)
		text := strings.TrimSuffix(string(out), "\n")
		at := strings.LastIndexByte(text, '\n') + 1
		var last lastLine
		if err := json.Unmarshal([]byte(text[at:]), &last); err != nil {
			t.Fatal(err)
		}
		return decodeRows(t, string(out)), last
	}
	page := []string{"--limit", "50"}
	list("the first page, without an index", page...)
	_, last := list("the second time", page...)
	if last.Total != roots || last.Hidden["subagent"] != children {
		t.Fatalf("%d sessions and %v hidden, want %d and %d subagents", last.Total, last.Hidden, roots, children)
	}
	all, _ := list("all in one page")
	if len(all) != roots {
		t.Fatalf("%d rows, want %d", len(all), roots)
	}
	list("all in one page again")

	// Someone who knows nothing of an index writes to the oldest session: it is the first row at once.
	oldest := all[len(all)-1].ID
	dir := filepath.Join(b.store, "sessions", oldest)
	b.appendActivity(oldest)
	rows, _ := list("after one session changed", page...)
	if rows[0].ID != oldest {
		t.Fatalf("%s was worked on last, the list begins with %s (%s)", oldest, rows[0].ID, dir)
	}
	want, _ := list("all, for the order")

	spoil := []struct {
		what string
		do   func(name string) error
	}{
		{"as it is", func(string) error { return nil }},
		{"deleted", os.Remove},
		{"truncated", func(name string) error { return os.Truncate(name, 5000) }},
		{"flipped", func(name string) error {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			for i := 200; i < len(text); i += 4001 {
				text[i] ^= 4
			}
			return os.WriteFile(name, text, 0o600)
		}},
	}
	for n, sp := range spoil {
		cursor, got := "", []row{}
		for i := 0; ; i++ {
			if i == 1 { // between two pages
				if err := sp.do(filepath.Join(b.store, "index.db")); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"--limit", fmt.Sprint(max(roots/5, 1))}
			if cursor != "" {
				args = append(args, "--cursor", cursor)
			}
			rows, last := list(fmt.Sprintf("page %d, index %s", i, sp.what), args...)
			got = append(got, rows...)
			if cursor = last.Next; cursor == "" || i > 6 {
				break
			}
		}
		if !slices.Equal(ids(got), ids(want)) {
			t.Fatalf("%d %s: the pages have %d rows in another order than the list of %d", n, sp.what, len(got), len(want))
		}
	}
}

type lastLine struct {
	Next   string         `json:"next"`
	Hidden map[string]int `json:"hidden"`
	Total  int            `json:"total"`
}

// appendActivity lets a person say something in a session, past the command.
func (b *box) appendActivity(id string) {
	b.t.Helper()
	st, err := openStore(b.store)
	if err != nil {
		b.t.Fatal(err)
	}
	defer st.Close()
	w, err := st.Open(b.t.Context(), session.ID(id))
	if err != nil {
		b.t.Fatal(err)
	}
	defer w.Close()
	d := userSays("u-late", "and another thing")
	data, err := json.Marshal(d.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	ev := session.Event{Seq: w.Opened().Pos.Next, Time: time.Now().UnixMilli(), Type: d.Type, Op: d.Op, Data: data}
	if _, err := w.Append(b.t.Context(), []session.Event{ev}); err != nil {
		b.t.Fatal(err)
	}
}
