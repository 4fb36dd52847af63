package agent_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/session"
)

// coder is a model with an encoding.
type coder struct {
	*model
	err error
}

func (c coder) Provider(string) (llm.Provider, error) { return c, nil }
func (c coder) EncodingName() string                  { return "test/1" }
func (c coder) Encode(req llm.Request) ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	req.Body = nil
	return json.Marshal(req, json.Deterministic(true))
}

// What is sent is logged, and saved, before it is sent; with no sync of its own; and the log yields it again
// also when input came while the request was made.
func TestSentIsLoggedFirst(t *testing.T) {
	run := func(encode bool, check func(w *world, s *session.Session, req llm.Request)) int {
		var a *agent.Agent
		var w *world
		look := func(_ context.Context, req llm.Request, yield func(llm.Chunk, error) bool) {
			if check != nil {
				check(w, a.Session(), req)
			}
			says("fine")(t.Context(), req, yield)
		}
		w = newWorld(t, nil, func(o *agent.Options) {
			if encode {
				o.Models = coder{o.Models.(*model), nil}
			}
			o.Hooks.Pressure = append(o.Hooks.Pressure, func(ctx context.Context, in agent.PressureInput) (bool, error) {
				if in.Turn == 2 && in.Step == 1 { // behind the view, before it is logged
					_, err := in.Session.Append(session.Draft{Type: "test/note", Data: struct{}{}})
					return false, err
				}
				return false, nil
			})
		}, fails(llm.CodeServer), look, look)
		a = w.create("s-1111")
		w.say(a, "one")
		w.say(a, "two")
		return w.st.flushes
	}
	var bodies []string
	flushes := run(true, func(w *world, s *session.Session, req llm.Request) {
		at := s.Len() - 1
		ev, err := s.Events().At(at)
		if err != nil || ev.Type != agent.TypeSent || !ev.Ignorable {
			t.Fatalf("the request was sent after %+v, %v", ev, err)
		}
		if w.st.syncedTo() <= at {
			t.Error("it was sent before that was saved")
		}
		d, err := session.DecodeData[agent.SentEvent](ev)
		if err != nil {
			t.Fatal(err)
		}
		want := d
		want.Sum(req.Body)
		if d != want || d.Encoding != "test/1" {
			t.Errorf("logged %+v, sent %+v", d, want)
		}
		if len(bodies) == 1 && d.At != at-1 {
			t.Errorf("the second request was made of %d events of %d", d.At, at)
		}
		// From the log alone.
		prefix := session.Sub(s.Events(), d.At)
		reg, err := session.NewRegistry(agent.Kinds(), []session.Kind{{Type: "test/note", Owner: "test"}})
		if err != nil {
			t.Fatal(err)
		}
		st, err := session.Fold(s.Header(), reg, prefix)
		if err != nil {
			t.Fatal(err)
		}
		items, err := session.ProjectAll(st, prefix)
		if err != nil {
			t.Fatal(err)
		}
		hev, err := prefix.At(st.RequestHeader())
		if err != nil {
			t.Fatal(err)
		}
		h, err := session.DecodeData[session.RequestHeader](hev)
		if err != nil {
			t.Fatal(err)
		}
		again, err := new(agent.Rebuilder).Request(h.Header, items, st)
		if err != nil {
			t.Fatal(err)
		}
		body, err := coder{}.Encode(again)
		if err != nil || string(body) != string(req.Body) {
			t.Errorf("made again: %s, %v\nsent: %s", body, err, req.Body)
		}
		bodies = append(bodies, string(body))
	})
	if len(bodies) != 2 || bodies[0] == bodies[1] {
		t.Errorf("%d bodies: %q", len(bodies), bodies)
	}
	if plain := run(false, nil); flushes != plain {
		t.Errorf("%d syncs, without the record %d", flushes, plain)
	}
}

// A request that cannot be made is the turn's failure, and nothing is sent.
func TestRequestThatCannotBeMade(t *testing.T) {
	w := newWorld(t, nil, func(o *agent.Options) {
		o.Models = coder{o.Models.(*model), fmt.Errorf("wrapped: %w", llm.Errorf(llm.CodeInvalidRequest, "the image is gone"))}
	}, says("never"))
	a := w.create("s-1111")
	if _, err := a.Followup(w.ctx, agent.Text("hi")); err != nil {
		t.Fatal(err)
	}
	w.idle(a)
	end := a.Status().LastEnd
	if end == nil || end.Reason.Error == nil || end.Reason.Error.Code != string(llm.CodeInvalidRequest) || end.Reason.Error.Message != "the image is gone" {
		t.Errorf("it ended with %+v", end)
	}
	if n := len(w.model.sent()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestSentCheck(t *testing.T) {
	reg, err := session.NewRegistry(agent.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	k, _ := reg.Lookup(agent.TypeSent)
	var good agent.SentEvent
	good.Turn, good.Step = 1, 1
	good.Sum([]byte("x"))
	for name, c := range map[string]struct {
		change func(*agent.SentEvent)
		ok     bool
	}{
		"good":      {func(*agent.SentEvent) {}, true},
		"no turn":   {func(s *agent.SentEvent) { s.Turn = 0 }, false},
		"no hash":   {func(s *agent.SentEvent) { s.SHA256 = "abc" }, false},
		"bytes < 0": {func(s *agent.SentEvent) { s.Bytes = -1 }, false},
		"at < 0":    {func(s *agent.SentEvent) { s.At = -1 }, false},
	} {
		s := good
		c.change(&s)
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Check(raw); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
