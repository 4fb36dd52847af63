package keeper_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Another process repairs a session between two of its children: what the first folded is not what the second begins with.
func TestRepairedBetweenChildren(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	st := &folds{Store: files(t, dir, vfs.OS())}
	k := start(st)
	h := create(t, k, "root")
	put(t, h.Session(),
		titled("what will be damaged"),
		session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: 1}},
		session.Draft{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: 1, Reason: session.Reason{Kind: session.ReasonCompleted}}})
	flush(t, h)
	child := func(id session.ID) *session.Session {
		t.Helper()
		if _, err := k.Fork(ctx, "root", store.ForkOptions{Child: id, Kind: session.KindSubagent, Depth: 1}); err != nil {
			t.Fatal(err)
		}
		return resume(t, k, id).Session()
	}
	if got := child("first").State().Title(); got.Title == "" {
		t.Fatal("it has no title")
	}
	if err := h.Dispose(ctx); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sessions", "root", "00000000000000000000.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[bytes.Index(text, []byte("damaged"))] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := files(t, dir, vfs.OS()).Repair(ctx, "root", false); err != nil || len(r.Lost) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	s := child("second")
	want, err := session.Fold(s.Header(), nil, s.Events())
	if err != nil {
		t.Fatal(err)
	}
	if got := s.State(); !reflect.DeepEqual(got.Title(), want.Title()) {
		t.Errorf("the second child begins with %+v, its log folds to %+v", got.Title(), want.Title())
	}
}
