package subagent_test

import (
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
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
