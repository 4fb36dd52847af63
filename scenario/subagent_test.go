package scenario

import (
	"context"
	"io"
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

// Subagents that live are stated again, in the harness's own words, behind a compaction; their own logs and that of the
// parent can be followed meanwhile.
func TestSubagentsAreStatedAgain(t *testing.T) {
	b := newBox(t)
	lines := []line{
		say(strings.Repeat("well ", 400)), say(strings.Repeat("so be it ", 400)),
		use(call{"task", map[string]any{"prompt": "count the grains", "background": true, "name": "a", "description": "grains"}}),
		{Purpose: "subagent/a", ToolCalls: []call{bash("echo one >> " + b.file("one"))}},
		{Purpose: "subagent/a", Hang: true},
		say("it runs"), summary(say("they talked")), say("still at it"),
	}
	cmd := b.command(context.Background(), "chat", "--script", b.script(lines...), "--cwd", b.ws, "--approve", "yolo")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := startCmd(t, cmd)
	write := func(text string) {
		t.Helper()
		if _, err := io.WriteString(in, text); err != nil {
			t.Fatal(err)
		}
	}
	write("first\nsecond\ndelegate\n")
	p.until("it runs")
	id := decodeLines[child](t, b.ok("ls", "--json", "--project", b.ws).out)[0].ID
	kid := b.children(id)[0].ID
	ofChild, ofParent := b.start("tail", kid, "--from", "0", "--events"), b.start("tail", id, "--from", "0", "--events")
	ofChild.until("count the grains")
	ofChild.until("echo one")
	ofParent.until(`"childId":"` + kid + `"`)
	write("/compact\nand now?\n")
	p.until("still at it")
	ofParent.until(`"compact/end"`)
	stated := ofParent.until("Your subagents that are not done yet")
	if !strings.Contains(stated, kid+": runs (grains)") {
		t.Errorf("stated: %s", stated)
	}
	ofParent.until("still at it")
	if text := b.viewText(id); strings.Contains(text, "so be it so be it") || strings.Count(text, kid+": runs (grains)") != 1 {
		t.Errorf("the view: %.3000s", text)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.errs)
	}
	ofChild.until(`"turn/end"`)
	ofParent.until(`"subagent/end"`)
	for _, f := range []*proc{ofChild, ofParent} {
		_ = f.cmd.Process.Signal(os.Interrupt)
		if code := f.wait(); code != 0 {
			t.Errorf("tail: exit code %d: %s", code, f.errs)
		}
	}
}

// A subagent whose lock another process holds runs there: its parent does not settle it, until it is let go.
func TestSubagentHeldElsewhere(t *testing.T) {
	b := newBox(t)
	lines := []line{
		use(call{"task", map[string]any{"prompt": "first", "name": "a"}}),
		{Purpose: "subagent/a", ToolCalls: []call{bash("echo one >> " + b.file("one"))}},
		{Purpose: "subagent/a", Hang: true},
	}
	p := b.start("run", "delegate", "--script", b.script(lines...), "--cwd", b.ws, "--approve", "yolo", "--output", "stream-json")
	p.until(`"type":"subagent/start"`)
	for deadline := time.Now().Add(patience); ; {
		if text, err := os.ReadFile(b.file("one")); err == nil && len(text) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the subagent does not work")
		}
		spin(1_000_000)
	}
	p.kill()
	p.wait()
	id := decodeLines[child](t, b.ok("ls", "--json", "--project", b.ws).out)[0].ID
	kid := b.children(id)[0].ID
	holder := b.start("run", "finish it", "--session", kid, "--output", "stream-json", "--cwd", b.ws, "--script", b.script(line{Purpose: "subagent/a", Hang: true}))
	holder.until(`"type":"step/start"`)
	b.ok("run", "go on", "--session", id, "--script", b.script(say("I see")), "--approve", "yolo")
	if c := b.children(id); c[0].Outcome != "" {
		t.Fatalf("settled while another process runs it: %+v", c)
	}
	_ = holder.cmd.Process.Signal(os.Interrupt)
	holder.wait()
	b.ok("run", "and now?", "--session", id, "--script", b.script(say("yes")), "--approve", "yolo")
	if c := b.children(id); c[0].Outcome != "cancelled" {
		t.Errorf("%+v", c)
	}
}
