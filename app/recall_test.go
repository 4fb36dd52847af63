package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/tool"
)

// What an agent finds is of its project, under all the names that it has had, and of no other one.
func TestRecallKnowsTheProject(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	before, after := filepath.Join(base, "old"), filepath.Join(base, "new")
	mkdir := func(dir string) Project {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return ProjectOf(dir)
	}
	p := mkdir(before)
	if p.ID == "" {
		t.Skip("this file system does not tell when a directory was made")
	}
	a, err := Open(Options{Store: filepath.Join(base, "store")})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	put := func(id session.ID, h session.Header) session.Header {
		data, err := json.Marshal(message.User("m", "the walrus"))
		h.Format, h.ID, h.Kind = session.Format, id, session.KindRoot
		ev := session.Event{Time: 1, Type: session.TypeUserMessage, Data: data, Op: session.Append()}
		if err = errors.Join(err, a.Store.(store.Taker).Take(t.Context(), h, func(yield func(session.Event, error) bool) { yield(ev, nil) })); err != nil {
			t.Fatal(err)
		}
		return h
	}
	self := put("self-0001", session.Header{Cwd: before, Project: before, ProjectID: p.ID})
	put("before-01", session.Header{Cwd: before, Project: before, ProjectID: p.ID})
	put("imported-1", session.Header{Cwd: before})
	put("stranger", session.Header{Cwd: base, Project: base, ProjectID: ProjectOf(base).ID})
	sees := func(h session.Header, dir string) []session.ID {
		def := a.recall(h, dir)
		seen := []session.ID{}
		rows, err := a.Store.(store.Lister).List(t.Context(), store.Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows.Rows {
			args, _ := json.Marshal(map[string]any{"session": r.ID, "seq": 0})
			_, err := def.Run(context.Background(), tool.Call{Name: def.Name, Arguments: jsontext.Value(args)})
			if err == nil {
				seen = append(seen, r.ID)
			}
		}
		slices.Sort(seen)
		return seen
	}
	check := func(what string, h session.Header, dir string, want ...session.ID) {
		t.Helper()
		if got := sees(h, dir); !slices.Equal(got, want) {
			t.Errorf("%s: it sees %v, not %v", what, got, want)
		}
	}
	check("in its place", self, before, "before-01", "imported-1")
	if err := os.Rename(before, after); err != nil {
		t.Fatal(err)
	}
	q := ProjectOf(after)
	later := put("later-001", session.Header{Cwd: after, Project: q.Root, ProjectID: q.ID})
	put("imported-2", session.Header{Cwd: after})
	check("moved", self, after, "before-01", "imported-1", "imported-2", "later-001")
	check("begun in the new place", later, after, "before-01", "imported-2", "self-0001")
	other := mkdir(before)
	put("other-001", session.Header{Cwd: before, Project: other.Root, ProjectID: other.ID})
	check("another project stands where it was", self, after, "before-01", "imported-2", "later-001")
	check("begun in the new place, another one in the old", later, after, "before-01", "imported-2", "self-0001")
}
