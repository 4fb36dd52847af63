//go:build unix

package main_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

const wireKey = "sk-never-in-a-log-4711"

// wired is a place with a model service that plays a script, and a configuration that names it.
type wired struct {
	*place
	record string
	all    bytes.Buffer // whatever the command printed
}

func newWired(t *testing.T, script string) *wired {
	t.Helper()
	w := &wired{place: newPlace(t)}
	w.record = filepath.Join(w.work, "..", "requests.jsonl")
	server := w.start("fake-llm", "--script", w.file("replies.jsonl", script), "--record", w.record)
	url := strings.TrimSpace(server.line())
	w.file("config.toml", fmt.Sprintf("model = \"fake/m\"\n[providers.fake]\nkind = \"openai\"\nbase_url = %q\nkey = %q\n", url, wireKey))
	if err := os.Chmod(filepath.Join(w.work, "config.toml"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.cmd.Process.Signal(syscall.SIGTERM)
		_ = server.cmd.Wait()
	})
	return w
}

// run runs a prompt over the wire.
func (w *wired) run(code int, args ...string) result {
	w.t.Helper()
	r := w.strand(code, append([]string{"run", "--config", "config.toml", "--approve", "yolo"}, args...)...)
	w.all.WriteString(r.out + r.errOut)
	return r
}

var sums = regexp.MustCompile(`"sha256":"([0-9a-f]{64})"`)

// checkLog wants that the log tells exactly what the service was sent, that it can be made again, and that
// the key is nowhere.
func (w *wired) checkLog() {
	t := w.t
	t.Helper()
	sums := func(text string) (out []string) {
		for _, m := range sums.FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
		return out
	}
	got, err := os.ReadFile(w.record)
	if err != nil {
		t.Fatal(err)
	}
	events := w.strand(0, "show", "last", "--events")
	if a, b := sums(string(got)), sums(events.out); len(a) == 0 || strings.Join(a, " ") != strings.Join(b, " ") {
		t.Errorf("the service was sent %q,\nthe log says %q", a, b)
	}
	doctor := w.strand(0, "doctor", "last", "--requests", "--json")
	if want := fmt.Sprintf(`"requests":{"checked":%d,"changed":0,"unchecked":0}`, len(sums(events.out))); !strings.Contains(doctor.out, want) {
		t.Errorf("doctor says %s", doctor.out)
	}
	w.all.WriteString(events.out + doctor.out + w.strand(0, "config", "--config", "config.toml").out)
	if strings.Contains(w.all.String(), wireKey) {
		t.Error("the key was printed")
	}
	err = filepath.WalkDir(w.store, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(wireKey)) {
			t.Errorf("the key is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A run over real HTTP with real tools, in two lives.
func TestOverTheWire(t *testing.T) {
	t.Parallel()
	w := newWired(t, `{"reasoning":"Two things.","text":"I begin.","toolCalls":[{"name":"write","arguments":{"path":"made.txt","content":"made\n"}},{"name":"bash","arguments":{"command":"echo $((6*7))"}}],"usage":{"inputTokens":100,"cacheReadTokens":60,"outputTokens":20}}
{"text":"The answer: {{last_tool_result}}"}
{"text":"Again."}
`)
	r := w.run(0, "--json", "do it")
	for _, want := range []string{`"reason":"completed"`, `The answer: 42`, `"steps":2`, `"toolCalls":2`} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %s in %s", want, r.out)
		}
	}
	if b, err := os.ReadFile(filepath.Join(w.work, "made.txt")); err != nil || string(b) != "made\n" {
		t.Errorf("%q %v", b, err)
	}
	if r := w.run(0, "--continue", "once more"); !strings.Contains(r.out, "Again.") {
		t.Error(r.out)
	}
	if stat := w.strand(0, "show", "last", "--stat", "--json").out; !strings.Contains(stat, `"inputTokens":100,"cacheReadTokens":60`) && !strings.Contains(stat, `"cacheReadTokens":60`) {
		t.Errorf("usage is lost: %s", stat)
	}
	w.checkLog()
}

// Each way to break a wire: what can be tried again is, what cannot is one line, and the session goes on.
func TestFaultsOverTheWire(t *testing.T) {
	for name, c := range map[string]struct {
		line  string
		retry bool
		code  string
		says  string
	}{
		"reset":               {`{"text":"half","fault":"reset"}`, true, "TRANSPORT", ""},
		"reset at once":       {`{"fault":"reset"}`, true, "TRANSPORT", ""},
		"half an event":       {`{"text":"half","fault":"half-event"}`, true, "STREAM_CLOSED", ""},
		"no terminator":       {`{"text":"half","fault":"no-end"}`, true, "STREAM_CLOSED", ""},
		"cut":                 {`{"text":"half","fault":"cut"}`, true, "STREAM_CLOSED", ""},
		"too fast":            {`{"error":{"code":"RATE_LIMIT","status":429,"retryAfterMs":10}}`, true, "RATE_LIMIT", ""},
		"too fast, no header": {`{"error":{"code":"RATE_LIMIT","status":429}}`, true, "RATE_LIMIT", ""},
		"broken inside":       {`{"error":{"code":"SERVER","status":503}}`, true, "SERVER", ""},
		"broken, a page":      {`{"error":{"code":"SERVER","status":502,"html":true}}`, true, "SERVER", ""},
		"broken in stream":    {`{"text":"half","error":{"code":"SERVER","status":500,"inStream":true}}`, true, "SERVER", ""},
		"empty":               {`{}`, true, "EMPTY_RESPONSE", ""},
		"malformed":           {`{"text":"half","fault":"malformed"}`, false, "MALFORMED_RESPONSE", "cannot be read"},
		"a web page":          {`{"fault":"wrong-type"}`, false, "MALFORMED_RESPONSE", "base URL"},
		"too long":            {`{"error":{"code":"CONTEXT_WINDOW_EXCEEDED","status":400}}`, false, "CONTEXT_WINDOW_EXCEEDED", ""},
		"wrong key":           {`{"error":{"code":"AUTH","status":401,"message":"Incorrect API key provided: ` + wireKey + `"}}`, false, "AUTH", "[redacted]"},
		"no money":            {`{"error":{"code":"QUOTA","status":402}}`, false, "QUOTA", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWired(t, c.line+"\n{\"text\":\"Fine.\"}\n{\"text\":\"Fine again.\"}\n")
			if c.retry {
				r := w.run(0, "--output", "stream-json", "go")
				if !strings.Contains(r.out, `"type":"llm/retry"`) || !strings.Contains(r.out, `"code":"`+c.code+`"`) {
					t.Errorf("no retry after %s: %s", c.code, r.out)
				}
			} else {
				r := w.run(8, "--json", "go")
				first, rest, _ := strings.Cut(r.errOut, "\n")
				if !strings.HasPrefix(first, "strand: turn 1: ") || !strings.Contains(first, c.says) || !strings.Contains(rest, `"code":"`+c.code+`"`) || strings.Count(r.errOut, "\n") != 2 {
					t.Errorf("said %s", r.errOut)
				}
			}
			if r := w.run(0, "--continue", "go on"); !strings.Contains(r.out, "Fine") {
				t.Errorf("it does not go on: %s %s", r.out, r.errOut)
			}
			w.checkLog()
		})
	}
}

// A service that falls silent is left at Ctrl-C: what it said is kept, and the session goes on.
func TestStallOverTheWire(t *testing.T) {
	t.Parallel()
	w := newWired(t, "{\"text\":\"I begin.\",\"fault\":\"stall\"}\n{\"text\":\"Fine.\"}\n")
	run := w.start("run", "--config", "config.toml", "--output", "stream-json", "go")
	for {
		line := run.line()
		if line == "" {
			t.Fatalf("nothing came: %s", run.err.String())
		}
		if strings.Contains(line, `"type":"delta"`) {
			break
		}
	}
	if err := run.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var rest strings.Builder
	for line := run.line(); line != ""; line = run.line() {
		rest.WriteString(line)
	}
	_ = run.cmd.Wait()
	if code := run.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(rest.String(), `"interrupted":true`) || !strings.Contains(rest.String(), `"kind":"aborted"`) {
		t.Errorf("exit code %d: %s %s", code, rest.String(), run.err.String())
	}
	if r := w.run(0, "--continue", "go on"); !strings.Contains(r.out, "Fine.") {
		t.Errorf("%s %s", r.out, r.errOut)
	}
	w.checkLog()
}
