package scenario

import (
	"os"
	"strings"
	"testing"
	"time"
)

// child is a subagent as show --stat tells it.
type child struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
}

// children returns the subagents of a session.
func (b *box) children(id string) []child {
	b.t.Helper()
	return decode[struct {
		Children []child `json:"children"`
	}](b.t, b.ok("show", id, "--stat", "--json").out).Children
}

// The process is killed while one subagent is waited for and another works in the background. The next run says of
// each how it ended, once; nothing that a subagent did is done again, and looking changes nothing.
func TestKilledWithSubagents(t *testing.T) {
	b := newBox(t)
	lines := []line{
		use(call{"task", map[string]any{"prompt": "first", "background": true, "name": "a"}}, call{"task", map[string]any{"prompt": "second", "name": "b"}}),
		{Purpose: "subagent/a", ToolCalls: []call{bash("echo one >> " + b.file("one"))}},
		{Purpose: "subagent/b", ToolCalls: []call{bash("echo two >> " + b.file("two"))}},
		{Purpose: "subagent/a", Hang: true},
		{Purpose: "subagent/b", Hang: true},
	}
	p := b.start("run", "delegate", "--script", b.script(lines...), "--cwd", b.ws, "--approve", "yolo")
	for deadline := time.Now().Add(patience); ; { // by progress: both have done something
		one, err1 := os.ReadFile(b.file("one"))
		two, err2 := os.ReadFile(b.file("two"))
		if err1 == nil && err2 == nil && len(one) > 0 && len(two) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the subagents do not work")
		}
		spin(1_000_000)
	}
	p.kill()
	p.wait()
	id := decodeLines[child](t, b.ok("ls", "--json", "--project", b.ws).out)[0].ID // subagents are hidden
	before := snap(t, b.store)
	for _, c := range b.children(id) {
		if c.Outcome != "" {
			t.Errorf("%s is said to be over (%s)", c.ID, c.Outcome)
		}
		if !strings.Contains(b.ok("show", c.ID, "--stat", "--json").out, `"kind":"subagent"`) {
			t.Errorf("%s is no subagent", c.ID)
		}
	}
	if rows := b.ok("ls", "--all", "--project", b.ws).out; strings.Count(rows, "subagent of "+id) != 2 {
		t.Errorf("ls --all:\n%s", rows)
	}
	if d := before.diff(snap(t, b.store)); d != "" {
		t.Errorf("looking changed the store: %s", d)
	}
	b.ok("run", "go on", "--session", id, "--script", b.script(say("I see")), "--approve", "yolo")
	children := b.children(id)
	if len(children) != 2 {
		t.Fatalf("children %+v", children)
	}
	shown := b.ok("show", id).out
	for _, c := range children {
		if c.Outcome != "interrupted" {
			t.Errorf("%s: %q", c.ID, c.Outcome)
		}
		if n := strings.Count(shown, "Subagent "+c.ID+" did not finish: interrupted"); n != 1 {
			t.Errorf("told of %s %d times:\n%s", c.ID, n, shown)
		}
	}
	b.ok("run", "and?", "--session", id, "--script", b.script(say("yes")), "--approve", "yolo")
	for _, f := range []string{"one", "two"} {
		if text, _ := os.ReadFile(b.file(f)); strings.Count(string(text), "\n") != 1 {
			t.Errorf("%s was done %q", f, text)
		}
	}
	if n := strings.Count(b.ok("show", id, "--events").out, `"type":"subagent/end"`); n != 2 {
		t.Errorf("%d ends", n)
	}
}
