package app_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/llm/script"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

const replies = `{"text":"I write.","reasoning":"Hm <&>  é","toolCalls":[{"name":"write","arguments":{"path":"a.txt","content":"a"}},{"name":"read","arguments":{"path":"none.txt"}}]}
{"error":{"code":"SERVER","status":500}}
{"text":"broken JSON","toolCalls":[{"name":"write","arguments":"{\"path\":"}]}
{"text":"done","finish":"length"}
{"text":"again"}
{"text":"and again"}
`

// talk runs turns of a session, each in a life of its own.
func talk(t *testing.T, a *app.App, id session.ID, route agent.Route, prompts ...string) session.ID {
	t.Helper()
	s, err := script.Parse("test", strings.NewReader(replies))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, p := range prompts {
		w, err := a.Begin(t.Context(), app.WorkOptions{Session: id, Script: s, Route: route, Cwd: dir, Approve: tool.PolicyYolo, Default: tool.PolicyYolo})
		if err != nil {
			t.Fatal(err)
		}
		id = w.Agent.ID()
		if _, err := w.Agent.Followup(t.Context(), agent.Text(p)); err != nil {
			t.Fatal(err)
		}
		if err := w.Agent.WhenIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

func check(t *testing.T, a *app.App, id session.ID) app.Health {
	t.Helper()
	h, err := a.Doctor(t.Context(), id)
	if err == nil {
		err = a.CheckRequests(t.Context(), &h)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Every request of a session can be made again: over retries, lives, another model, undo and forks.
func TestRequestsMadeAgain(t *testing.T) {
	a := open(t)
	id := talk(t, a, "", agent.Route{}, "one")
	id = talk(t, a, id, agent.Route{Provider: "other", Model: "m"}, "two", "three")
	if _, err := a.Undo(t.Context(), id, false); err != nil {
		t.Fatal(err)
	}
	id = talk(t, a, id, agent.Route{}, "four")
	h := check(t, a, id)
	if h.Requests.Checked < 10 || h.Requests.Changed != 0 || h.Requests.Unchecked != 0 || len(h.Problems) != 0 {
		t.Errorf("%+v %+v", h.Requests, h.Problems)
	}
	f, err := a.Fork(t.Context(), id, nil)
	if err != nil {
		t.Fatal(err)
	}
	talk(t, a, f.ID, agent.Route{}, "five")
	forked := check(t, a, f.ID)
	if forked.Requests.Checked <= h.Requests.Checked || forked.Requests.Changed != 0 {
		t.Errorf("%+v %+v", forked.Requests, forked.Problems)
	}
}

// A log whose view is not what was sent is found, and where: here the words of one message are others now,
// which is what a change of the view looks like from outside.
func TestChangedViewIsFound(t *testing.T) {
	a := open(t)
	id := talk(t, a, "", agent.Route{}, "one", "two")
	snap, err := a.Store.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	var events []session.Event
	var requests, after int
	changed := session.None
	for ev, err := range snap.Prefix.Range(0, snap.Prefix.Len()) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case ev.Type == session.TypeToolResult && changed == session.None:
			ev.Data = []byte(strings.Replace(string(ev.Data), "Created a.txt", "created a.txt", 1))
			changed = ev.Seq
		case ev.Type == agent.TypeSent:
			requests++
			if changed != session.None {
				after++
			}
		}
		events = append(events, ev)
	}
	if after == 0 || after == requests {
		t.Fatalf("%d of %d requests are behind the change", after, requests)
	}
	other, err := app.Open(app.Options{Store: filepath.Join(t.TempDir(), "store"), Kinds: [][]session.Kind{work}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	w, err := other.Store.Create(t.Context(), snap.Header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h := check(t, other, id)
	if h.Requests.Checked != requests || h.Requests.Changed != after {
		t.Errorf("%+v; want %d of %d changed", h.Requests, after, requests)
	}
	for _, p := range h.Problems {
		if p.Kind != app.ProblemRequest || p.Seq < changed {
			t.Errorf("%+v", p)
		}
	}
	if err := h.Err(); err == nil || !strings.Contains(err.Error(), "cannot be made again") {
		t.Errorf("%v", err)
	}
}
