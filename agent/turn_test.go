package agent_test

import (
	"testing"

	"github.com/strandline-dev/strandline/session"
)

// The log of one turn with two parallel calls and a plain turn after it, whole.
func TestTurnShape(t *testing.T) {
	w := newWorld(t, nil, equip(echo("look")), calls(use("c1", "look"), use("c2", "look")), says("done"), says("again"))
	a := w.create("s-shape")
	w.say(a, "do it")
	w.say(a, "and more")
	want := `inbox/spliced next-turn +1 -0
turn/start
inbox/spliced next-turn +0 -1
step/start
user/message do it
session/title do it
request/header initial
request/context
assistant/chunk
assistant/chunk
assistant/message c1 c2
tool/call c1
tool/result c1
tool/call c2
tool/result c2
step/end
step/start
assistant/chunk
assistant/message done
step/end
turn/end completed
inbox/spliced next-turn +1 -0
turn/start
inbox/spliced next-turn +0 -1
step/start
user/message and more
assistant/chunk
assistant/message again
step/end
turn/end completed
`
	if got := shape(t, a.Session()); got != want {
		t.Errorf("log:\n%s\nwant:\n%s", got, want)
	}
	if got := shapeOf(t, w.stored("s-shape")); got != want {
		t.Errorf("the store lacks a part:\n%s", got)
	}
	for _, ev := range events(t, a.Session()) {
		if ev.Type == session.TypeAssistantMessage && len(ev.Sources) == 0 || ev.Type == session.TypeToolResult && len(ev.Sources) != 1 {
			t.Errorf("%s at %d cites %v", ev.Type, ev.Seq, ev.Sources)
		}
	}
}
