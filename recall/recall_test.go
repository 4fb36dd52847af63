package recall_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/recall"
	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/tool"
)

// put stores a session of one message.
func put(t *testing.T, st *memstore.Store, id session.ID, project, text string) {
	t.Helper()
	data, err := json.Marshal(message.User("m", text))
	if err != nil {
		t.Fatal(err)
	}
	h := session.Header{Format: session.Format, ID: id, Kind: session.KindRoot, Cwd: project, Project: project}
	ev := session.Event{Time: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMilli(), Type: session.TypeUserMessage, Data: data, Op: session.Append()}
	if err := st.Take(context.Background(), h, func(yield func(session.Event, error) bool) { yield(ev, nil) }); err != nil {
		t.Fatal(err)
	}
}

func call(t *testing.T, def tool.Definition, args string) string {
	t.Helper()
	if _, err := tool.NewSet(def); err != nil {
		t.Fatal(err)
	}
	r, err := def.Run(context.Background(), tool.Call{Name: def.Name, Arguments: jsontext.Value(args)})
	if err != nil {
		return "error: " + err.Error()
	}
	return message.Message{Content: r.Content}.PlainText()
}

func TestSessionSearch(t *testing.T) {
	st := memstore.New(memstore.Options{Now: time.Now})
	defer st.Close()
	put(t, st, "mine-0001", "/p", "the walrus of this session")
	put(t, st, "past-0001", "/p", "the walrus of a past session, password=hunter2")
	put(t, st, "past-0002", "/p", "another walrus")
	put(t, st, "trash-001", "/p", "a deleted walrus")
	put(t, st, "other-001", "/q", "a walrus of another project")
	if err := st.Trash(context.Background(), "trash-001"); err != nil {
		t.Fatal(err)
	}
	def := recall.Definition(recall.Options{
		Store: st, Self: "mine-0001",
		Search: func(ctx context.Context, q search.Query, f search.Filter, limit int) iter.Seq2[search.Result, error] {
			return search.Scan(ctx, store.Store(st), q, f, limit, search.Watch{})
		},
		Ours:  func(h session.Header) bool { return h.Project == "/p" },
		Title: func(_ context.Context, id session.ID) string { return "title of " + string(id) },
		Now:   func() time.Time { return time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC) },
	})
	got := call(t, def, `{"query":"walrus"}`)
	want := `session past-0001 seq 0, 2026-11-30 12:00 UTC, human, in "title of past-0001":
  the «walrus» of a past session, password=[redacted:secret]
session past-0002 seq 0, 2026-11-30 12:00 UTC, human, in "title of past-0002":
  another «walrus»
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := call(t, def, `{"query":"walrus","limit":1}`); !strings.Contains(got, "past-0001") || strings.Contains(got, "past-0002") || !strings.HasSuffix(got, "There is more; narrow the query to see it.\n") {
		t.Errorf("limit 1: %s", got)
	}
	// The best first: the shorter text, although the other one stands before it.
	best := call(t, def, `{"query":"walrus","order":"best"}`)
	if a, b := strings.Index(best, "past-0002"), strings.Index(best, "past-0001"); a < 0 || b < a || strings.Contains(best, "There is more") {
		t.Errorf("best first: %s", best)
	}
	if got := call(t, def, `{"query":"walrus","order":"best","limit":1}`); !strings.Contains(got, "past-0002") || strings.Contains(got, "past-0001") || !strings.HasSuffix(got, "There is more; narrow the query to see it.\n") {
		t.Errorf("the best alone: %s", got)
	}
	for _, hidden := range []string{"mine-0001", "trash-001", "other-001"} {
		if strings.Contains(best, hidden) {
			t.Errorf("best first shows %s", hidden)
		}
	}
	if got, want := call(t, def, `{"session":"past-0001","seq":0}`), "human:\nthe walrus of a past session, password=[redacted:secret]\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// What must not be seen and what does not exist look the same.
	none := call(t, def, `{"session":"nosuch-01","seq":0}`)
	for _, id := range []string{"mine-0001", "trash-001", "other-001", "../x", ""} {
		if got := call(t, def, fmt.Sprintf(`{"session":%q,"seq":0}`, id)); id != "" && got != none {
			t.Errorf("%s: %q, want %q", id, got, none)
		}
	}
	if got := call(t, def, `{"session":"past-0001","seq":7}`); got != none {
		t.Errorf("a seq that is not there: %q", got)
	}
	if a, b := call(t, def, `{"query":"deleted"}`), call(t, def, `{"query":"nonexistent"}`); a != b || a != "Nothing was found in the past sessions of this project." {
		t.Errorf("%q, %q", a, b)
	}
	for _, args := range []string{`{}`, `{"query":"x","session":"past-0001"}`, `{"query":"!?"}`, `{"session":"past-0001"}`} {
		if got := call(t, def, args); !strings.HasPrefix(got, "error: ") {
			t.Errorf("%s: %q", args, got)
		}
	}
	if got := call(t, def, `{"query":"walrus","days":1}`); !strings.Contains(got, "past-0002") {
		t.Errorf("within a day: %s", got)
	}
}
