package subagent_test

import (
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/subagent"
	"github.com/strandline-dev/strandline/tool"
)

// What a log says of others gives no right to them: a session that is named as a child, and is none, is neither
// read nor run.
func TestForeignChild(t *testing.T) {
	for name, c := range map[string]struct {
		replies []reply
		shape   string // of the end of the other's log
	}{
		"answered":           {[]reply{says("the secret")}, "turn/end completed"},
		"waits for a person": {[]reply{calls(message.CallBlock("b", "risky", "{}"))}, "approval/asked"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{
				agents: func(o *agent.Options) { o.Policy = tool.PolicyAsk }, tools: tools("risky"),
				replies: map[string][]reply{"turn": append(c.replies, says("fine"))},
			})
			other := w.create("other")
			w.followup(other, "a question")
			w.until(other.Session(), c.shape)
			w.quiet(other)
			if err := other.Dispose(w.ctx); err != nil {
				t.Fatal(err)
			}
			_, before := w.stored("other")
			a := w.create("root")
			if _, err := a.Session().AppendAll(nil, session.Draft{Type: subagent.TypeStart, Data: subagent.Start{ChildID: "other", Mode: subagent.ModeSpawn, Depth: 1}}); err != nil {
				t.Fatal(err)
			}
			w.say(a, "go")
			has(t, a.Session().Events(), "subagent/start other", "subagent/end other failed")
			for _, m := range w.model.sent("turn")[1].Messages {
				if strings.Contains(m.PlainText(), "secret") {
					t.Errorf("the model was told %q", m.PlainText())
				}
			}
			if _, after := w.stored("other"); len(after) != len(before) {
				t.Errorf("the other session has %d events, not %d", len(after), len(before))
			}
		})
	}
}

// A time limit that no clock knows is the longest there is.
func TestEndlessLimit(t *testing.T) {
	for _, seconds := range []string{"9223372036854775807", "9223372037", "18446744073"} {
		w := newWorld(t, setup{replies: map[string][]reply{
			"turn":     {calls(task("c1", `"prompt":"x","timeoutSeconds":`+seconds)), says("done")},
			"subagent": {says("42")},
		}})
		a := w.create("root")
		w.say(a, "go")
		has(t, a.Session().Events(), "tool/result c1 42", "subagent/end child-1 completed")
		ev, _ := a.Session().At(subagent.Brackets(a.Session().State())[0].Open)
		if d, _ := session.DecodeData[subagent.Start](ev); d.LimitMs != 4*3600*1000 {
			t.Errorf("%s seconds: %s", seconds, ev.Data)
		}
	}
}

// A fork child does not see what a person has taken from the parent's model since the last turn.
func TestForkAfterUndo(t *testing.T) {
	w := newWorld(t, setup{replies: map[string][]reply{
		"turn":     {says("fine"), says("the secret is 42"), calls(task("c1", `"prompt":"well?","mode":"fork"`)), says("done")},
		"subagent": {says("what?")},
	}})
	a := w.create("root")
	w.say(a, "hello")
	w.say(a, "tell me a secret")
	if _, err := a.Session().AppendFunc(func(st session.State) ([]session.Draft, error) {
		drafts, _, err := st.UndoDrafts()
		return drafts, err
	}); err != nil {
		t.Fatal(err)
	}
	w.say(a, "now ask a subagent")
	var texts []string
	for _, m := range w.model.sent("subagent")[0].Messages {
		texts = append(texts, m.PlainText())
	}
	if len(texts) != 3 || texts[0] != "hello" || texts[1] != "fine" {
		t.Errorf("the child saw %q", texts)
	}
}

// Of a child whose log was deleted nobody says that it did nothing.
func TestDeletedChild(t *testing.T) {
	w := newWorld(t, setup{replies: map[string][]reply{"turn": {says("fine")}}})
	a := w.create("root")
	if _, err := a.Session().AppendAll(nil, session.Draft{Type: subagent.TypeStart, Data: subagent.Start{ChildID: "child-9", Mode: subagent.ModeSpawn, Depth: 1}}); err != nil {
		t.Fatal(err)
	}
	w.say(a, "go")
	has(t, a.Session().Events(), "subagent/end child-9 interrupted")
	if text := w.model.sent("turn")[0].Messages[0].PlainText(); !strings.Contains(text, "or its log was deleted") {
		t.Errorf("the model was told %q", text)
	}
}

// A fork that a person makes of a subagent goes on under its limits: depth, tools and approval, and so do forks of that.
// One that is cut before the subagent was told anything is the parent's history and has none but the depth.
func TestForkOfChild(t *testing.T) {
	for _, mode := range []string{"spawn", "fork"} {
		t.Run(mode, func(t *testing.T) {
			never := func(o *agent.Options) { o.Policy = tool.PolicyNeverAsk }
			w := newWorld(t, setup{agents: never, tools: tools("read", "risky"), replies: map[string][]reply{
				"turn":     {says("hello"), calls(task("c1", `"prompt":"x","persona":"You are strict.","mode":"`+mode+`","tools":["read","risky"]`)), says("done")},
				"subagent": {says("fine")},
			}})
			a := w.create("root")
			w.say(a, "hi")
			w.say(a, "go")
			if err := a.Dispose(w.ctx); err != nil {
				t.Fatal(err)
			}
			limited := func(id session.ID) {
				t.Helper()
				w.model.mu.Lock()
				w.model.replies["turn"] = []reply{calls(message.CallBlock("e1", "risky", "{}"), message.CallBlock("e2", "task", `{"prompt":"y"}`)), says("so be it")}
				w.model.mu.Unlock()
				f, err := w.d.Agents().Resume(w.ctx, id, agent.Config{Policy: tool.PolicyYolo})
				if err != nil {
					t.Fatal(err)
				}
				if h := f.Session().Header(); h.Depth != 1 || h.Kind != session.KindFork {
					t.Errorf("%s: %+v", id, h)
				}
				if p := f.InForce().Policy; p != tool.PolicyNeverAsk {
					t.Errorf("%s: in force: %s", id, p)
				}
				w.say(f, "try")
				has(t, f.Session().Events(), "tool/result e1 DENIED", "tool/result e2 UNKNOWN_TOOL")
				sent := w.model.sent("turn")
				if !strings.HasSuffix(sent[len(sent)-1].System, "You are strict.") {
					t.Errorf("%s: system %q", id, sent[len(sent)-1].System)
				}
				if err := f.Dispose(w.ctx); err != nil {
					t.Fatal(err)
				}
			}
			first, err := w.k.Fork(w.ctx, "child-1", store.ForkOptions{})
			if err != nil {
				t.Fatal(err)
			}
			limited(first.ID)
			second, err := store.Fork(w.ctx, w.st, first.ID, store.ForkOptions{Child: "second", Now: 1})
			if err != nil {
				t.Fatal(err)
			}
			limited(second.ID)
			// Copied into a store of its own it tells no lineage; its log and its depth do.
			copied, err := store.ForkTo(w.ctx, w.st, "second", w.st, store.CopyOptions{ForkOptions: store.ForkOptions{Child: "copied", Now: 1, Kind: session.KindFork}, Tool: "test"})
			if err != nil {
				t.Fatal(err)
			}
			limited(copied.ID)
			if mode == "spawn" {
				return
			}
			_, log := w.stored("child-1")
			cut := session.None
			for _, ev := range log {
				if ev.Type == session.TypeTurnEnd {
					cut = ev.Seq
					break
				}
			}
			early, err := w.k.Fork(w.ctx, "child-1", store.ForkOptions{At: &cut, Child: "early"})
			if err != nil {
				t.Fatal(err)
			}
			f, err := w.d.Agents().Resume(w.ctx, early.ID, agent.Config{Policy: tool.PolicyYolo})
			if err != nil {
				t.Fatal(err)
			}
			if p := f.InForce().Policy; p != tool.PolicyYolo || early.Depth != 1 {
				t.Errorf("early: in force %s at depth %d", p, early.Depth)
			}
		})
	}
}
