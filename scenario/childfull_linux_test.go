package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The disk is full while a subagent works, and stays full until the end. What neither of the two could save is kept
// in a file outside the store, one each, and both are named.
func TestDiskFullInSubagent(t *testing.T) {
	b, _ := smallDisk(newBox(t), 256<<10)
	lines := []line{
		use(call{"task", map[string]any{"prompt": "fill it", "name": "a"}}),
		{Purpose: "subagent/a", ToolCalls: []call{bash("cat /dev/zero > " + filepath.Join(filepath.Dir(b.store), "fill") + " 2>&1; head -c 15000 /dev/urandom | base64 -w 76")}},
		{Purpose: "subagent/a", Text: "it was much"},
		say(strings.Repeat("so it was ", 10_000)), // more than what the child failed to write gives back
	}
	r := b.strand("run", "go", "--script", b.script(lines...), "--cwd", b.ws, "--approve", "yolo")
	if r.code != 6 || strings.Contains(r.err, "not saved: not saved") {
		t.Fatal(r)
	}
	ids := b.sessionIDs()
	if len(ids) != 2 {
		t.Fatalf("sessions %q: %v", ids, r)
	}
	for _, id := range ids {
		_, name, ok := strings.Cut(r.err, "that of session "+id+" in ")
		if !ok {
			t.Fatalf("nothing is said to be kept of %s: %v", id, r)
		}
		name = strings.TrimRight(strings.Fields(name)[0], ",")
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), `"type":"turn/end"`) {
			t.Errorf("kept of %s: %v\n%.500s", id, err, text)
		}
		// What is stored and what is kept make the whole log.
		stored, first := strings.Count(b.ok("show", id, "--events").out, "\n"), 0
		if _, err := fmt.Sscanf(string(text), `{"seq":%d,`, &first); err != nil || first > stored {
			t.Errorf("of %s stored are %d events, kept is %.60s", id, stored, text)
		}
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}
