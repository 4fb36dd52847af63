package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/view/viewtest"
)

// torn writes the file of a session whose writer died in a line.
func torn(e *testscript.Env) error {
	text := `{"type":"session","version":3,"id":"torn-1","createdAt":1700000000000,"cwd":"/nowhere"}
{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}
{"type":"user/message","seq":1,"time":1,"data":{"role":"user","content":[{"type":"text","text":"do it"}],"source":{"kind":"user"}},"surfaceOp":"append"}
{"type":"step/start","seq":2,"time":2,"data":{"turn":1,"step":1}}
{"type":"assistant/message","seq":3,"time":2,"data":{"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"tool-call","id":"c1","name":"bash","arguments":"{}"}],"source":{"kind":"model"}}},"surfaceOp":"append"}
{"type":"tool/call","seq":4,"time":3,"data":{"turn":1,"step":1,"callId":"c1","name":"bash","arguments":"{}"}}
{"type":"tool/res`
	for _, name := range []string{"torn.txt", "files/torn"} {
		p := filepath.Join(e.WorkDir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// TestImportCorpus imports every real file with the built program, looks at it, and goes on with it; what
// was cut off in the middle of a turn too.
func TestImportCorpus(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "corpus", "dsh")
	for up := 0; up < 3; up++ {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Join("..", dir)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Skip("there are no real files beside the repository")
	}
	p := newPlace(t)
	cut := filepath.Join(p.work, "cut.jsonl") // as it was while its first tool ran
	text, err := os.ReadFile(filepath.Join(dir, "jul07_live-mode-switching.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	i := strings.Index(string(text), `"type":"tool/call"`)
	i += strings.IndexByte(string(text[i:]), '\n') + 1
	if err := os.WriteFile(cut, text[:i], 0o600); err != nil {
		t.Fatal(err)
	}
	reply := filepath.Join(p.work, "more.jsonl")
	if err := os.WriteFile(reply, []byte(`{"text":"went on"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"import", "--json", cut}, files...)
	n := 0
	for line := range strings.Lines(p.strand(0, args...).out) {
		var r struct {
			Path, ID string
			Events   int
		}
		if err := json.Unmarshal([]byte(line), &r, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		n++
		legal := func(when string) {
			var messages []message.Message
			if err := json.Unmarshal([]byte(p.strand(0, "show", r.ID, "--view", "openai").out), &messages); err != nil {
				t.Fatal(err)
			}
			if err := viewtest.Check(messages, "openai"); err != nil {
				t.Errorf("%s: the view %s is not legal: %v", r.Path, when, err)
			}
		}
		legal("as imported")
		if out := p.strand(0, "run", "--session", r.ID, "--cwd", p.work, "--script", reply, "--json", "go on").out; !strings.Contains(out, `"reason":"completed","text":"went on"`) {
			t.Errorf("%s: %s", r.Path, out)
		}
		legal("after it went on")
		p.strand(0, "doctor", r.ID)
		if r.Path == cut {
			if ev := p.strand(0, "show", r.ID, "--events", "--from", "161").out; !strings.Contains(ev, "TOOL_OUTCOME_UNKNOWN") || strings.Count(ev, `"interrupted"`) != 1 {
				t.Errorf("the cut one went on without closers: %.600s", ev)
			}
		}
	}
	if n != len(files)+1 {
		t.Errorf("%d of %d files were told", n, len(files)+1)
	}
}
