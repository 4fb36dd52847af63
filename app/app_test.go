package app_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var work = []session.Kind{
	{Type: "work/start", Owner: "work", Opens: "work"},
	{Type: "work/end", Owner: "work", Closes: "work"},
}

func open(t *testing.T) *app.App {
	t.Helper()
	a, err := app.Open(app.Options{Store: filepath.Join(t.TempDir(), "store"), Kinds: [][]session.Kind{work}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// life writes drafts as one life of a session and leaves the writer open.
func life(t *testing.T, a *app.App, h session.Header, drafts ...session.Draft) store.Writer {
	t.Helper()
	w, err := a.Store.Open(t.Context(), h.ID)
	var seed session.Seed
	if errors.Is(err, store.ErrNotFound) {
		w, err = a.Store.Create(t.Context(), h)
	} else if err == nil {
		seed, err = store.Load(w.Opened(), a.Registry)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.New(h, seed, session.Env{Registry: a.Registry, Now: app.Now})
	if err != nil {
		t.Fatal(err)
	}
	if len(drafts) == 0 {
		return w
	}
	from := s.Head()
	if _, err := s.AppendAll(nil, drafts...); err != nil {
		t.Fatal(err)
	}
	var events []session.Event
	for ev, err := range s.Events().Range(from, s.Len()) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
	}
	if _, err := w.Append(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func header(id, project string) session.Header {
	return session.Header{Format: 1, ID: session.ID(id), CreatedAt: app.Now(), Kind: session.KindRoot, Cwd: project, Project: project}
}

func d(typ string, data any) session.Draft { return session.Draft{Type: typ, Data: data} }

func said(turn, step int, blocks ...message.Block) session.Draft {
	return session.Draft{Type: session.TypeAssistantMessage, Op: session.Append(), Data: session.AssistantMessage{
		Turn: turn, Step: step, Message: message.Message{Role: message.RoleAssistant, Content: blocks},
	}}
}

func begun(calls ...message.Block) []session.Draft {
	return []session.Draft{
		d("work/start", jsontext.Value(`{}`)),
		d(session.TypeTurnStart, session.TurnStart{Turn: 1}), d(session.TypeStepStart, session.StepRef{Turn: 1, Step: 1}),
		said(1, 1, calls...),
		d(session.TypeToolCall, session.ToolCall{Turn: 1, Step: 1, CallID: "c1", Name: "bash", Arguments: "{}"}),
	}
}

func inspect(t *testing.T, a *app.App, id session.ID, at ...session.Seq) *app.Inspection {
	t.Helper()
	var p *session.Seq
	if len(at) > 0 {
		p = &at[0]
	}
	ins, err := a.Inspect(t.Context(), id, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ins.Close() })
	return ins
}

// The same open bracket and calls are live under their writer, dead without it, dead for the next writer, and
// live again when looked at as they were then.
func TestOpenThings(t *testing.T) {
	a := open(t)
	h := header("aaaa", "/p")
	check := func(when string, ins *app.Inspection, activity app.Activity, bracket session.BracketState, calls ...app.CallState) {
		t.Helper()
		if got := ins.Activity(); got != activity {
			t.Errorf("%s: activity %s, want %s", when, got, activity)
		}
		if got := ins.Brackets(); len(got) == 0 || got[0].State != bracket {
			t.Errorf("%s: brackets %v, want %s", when, got, bracket)
		}
		got := ins.OpenCalls()
		if len(got) != len(calls) {
			t.Fatalf("%s: calls %v, want %v", when, got, calls)
		}
		for i := range calls {
			if got[i].State != calls[i] {
				t.Errorf("%s: call %d is %s, want %s", when, i, got[i].State, calls[i])
			}
		}
	}
	w := life(t, a, h, begun(message.CallBlock("c1", "bash", "{}"), message.CallBlock("c2", "bash", "{}"))...)
	check("held", inspect(t, a, "aaaa"), app.ActivityRunning, session.BracketLive, app.CallRunning, app.CallNotStarted)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	check("left", inspect(t, a, "aaaa"), app.ActivityInterrupted, session.BracketDead, app.CallUnknown, app.CallNotStarted)

	w = life(t, a, h) // picked up, nothing written
	check("picked up", inspect(t, a, "aaaa"), app.ActivityInterrupted, session.BracketDead, app.CallUnknown, app.CallNotStarted)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w = life(t, a, h, d("work/start", jsontext.Value(`{}`)))
	ins := inspect(t, a, "aaaa")
	check("gone on with", ins, app.ActivityIdle, session.BracketDead)
	if b := ins.Brackets(); len(b) != 2 || b[1].State != session.BracketLive {
		t.Errorf("the new bracket: %v", b)
	}
	if r, err := ins.Report(); err != nil || r.FirstLiveSeq == nil || *r.FirstLiveSeq != ins.State.LastBoundary() || r.Base != 5 {
		t.Errorf("report: %+v", r)
	}
	check("then", inspect(t, a, "aaaa", 4), app.ActivityRunning, session.BracketLive, app.CallRunning, app.CallNotStarted)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	health, err := a.Doctor(t.Context(), "aaaa")
	if err != nil || health.Err() != nil || health.VerifiedTo != ins.State.Next()-1 {
		t.Errorf("health: %+v, %v", health, err)
	}
	dead := 0
	for _, n := range health.Notes {
		if n.Kind == "dead-bracket" {
			dead++
		}
	}
	if dead != 2 {
		t.Errorf("%d dead brackets are noted, want 2: %v", dead, health.Notes)
	}
}

func TestResolve(t *testing.T) {
	a := open(t)
	for _, id := range []string{"abcd1", "abcd2", "abxy1", "other"} {
		h := header(id, "/p")
		if id == "other" {
			h.Kind = session.KindHeadless
		}
		if err := life(t, a, h, begun(message.CallBlock("c1", "bash", "{}"))...).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(a.Root, "sessions", "zzzz"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ arg, want string }{
		{"abcd1", "abcd1"}, {"abxy", "abxy1"}, {"abcd2", "abcd2"}, {"zzzz", "zzzz"},
	} {
		if id, _, err := a.Resolve(t.Context(), c.arg, app.Project{Names: []string{"/p"}}); err != nil || string(id) != c.want {
			t.Errorf("%s: %s, %v", c.arg, id, err)
		}
	}
	for _, arg := range []string{"abx", "nope", "ABXY", "", "../p"} {
		if _, _, err := a.Resolve(t.Context(), arg, app.Project{Names: []string{"/p"}}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%q: %v", arg, err)
		}
	}
	var ambiguous *app.AmbiguousError
	if _, _, err := a.Resolve(t.Context(), "abcd", app.Project{Names: []string{"/p"}}); !errors.As(err, &ambiguous) || len(ambiguous.IDs) != 2 {
		t.Errorf("abcd: %v", err)
	}
	f, err := a.Fork(t.Context(), "abxy1", nil) // as active as its parent, but made later
	if err != nil {
		t.Fatal(err)
	}
	id, skipped, err := a.Resolve(t.Context(), app.Last, app.Project{Names: []string{"/p"}})
	if err != nil || id != f.ID {
		t.Errorf("last: %s, %v", id, err)
	}
	names := ""
	for _, s := range skipped {
		names += string(s.ID) + " " + s.Reason + ";"
	}
	if !strings.Contains(names, "other of kind headless") {
		t.Errorf("skipped: %s", names)
	}
	if _, _, err := a.Resolve(t.Context(), app.Last, app.Project{Names: []string{"/elsewhere"}}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("last of another project: %v", err)
	}
}
