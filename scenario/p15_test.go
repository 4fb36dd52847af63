package scenario

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/session"
)

// fifo makes a named pipe outside the workspace.
func (b *box) fifo(name string) string {
	b.t.Helper()
	p := filepath.Join(b.out, name)
	if err := syscall.Mkfifo(p, 0o600); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// hear waits for a tool to say something into a fifo and returns what it said: its process group.
func (b *box) hear(fifo string) int {
	b.t.Helper()
	text, err := os.ReadFile(fifo) // blocks until somebody opens it for writing
	if err != nil {
		b.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		b.t.Fatalf("the tool said %q", text)
	}
	return pid
}

// TestP15_NeverTwice kills a run whose tool appends one line to a file outside, before the line, after it,
// and after the result was stored.
func TestP15_NeverTwice(t *testing.T) {
	for _, at := range []string{"before the line", "after the line", "after the result"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			neverTwice(newBox(t), at)
		})
	}
}

func neverTwice(b *box, at string) {
	t := b.t
	said, gate := b.fifo("said"), b.fifo("gate")
	trace, key := filepath.Join(b.out, "trace"), filepath.Join(b.out, "key")
	command := "echo $STRANDLINE_IDEMPOTENCY_KEY > " + key + "; "
	appendLine, wait := "echo line >> "+trace+"; ", "echo $$ > "+said+"; read x < "+gate+"; "
	switch at {
	case "before the line":
		command += wait + appendLine
	case "after the line":
		command += appendLine + wait
	default:
		command += appendLine
	}
	command += "echo the real result"
	p := b.start(b.runArgs("do it", []line{use(bash(command)), {Hang: true}}, "--output", "stream-json")...)
	if at == "after the result" {
		// The event is committed before the next request, in which the model hangs.
		p.until(`"type":"tool/result"`)
		p.kill()
		p.wait()
	} else {
		group := b.hear(said)
		p.kill()
		p.wait()
		_ = syscall.Kill(-group, syscall.SIGKILL) // "kill" in the middle of the tool's work ends the tool as well
	}
	id := b.sessionIDs()[0]
	lines := func() string {
		text, err := os.ReadFile(trace)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
	want := "line\n"
	if at == "before the line" {
		want = ""
	}
	if got := lines(); got != want {
		t.Fatalf("the file outside is %q after the kill, want %q", got, want)
	}
	open := b.log(id).openCalls(t)
	st := b.stat(id)
	keyBefore, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if at == "after the result" {
		if len(open) != 0 || len(st.OpenCalls) != 0 {
			t.Errorf("the result is stored, and the open calls are %+v, told as %+v", open, st.OpenCalls)
		}
	} else {
		if len(open) != 1 || open[0].started < 0 {
			t.Fatalf("open calls: %+v, want one that was started", open)
		}
		if len(st.OpenCalls) != 1 || st.OpenCalls[0].State != "unknown" || st.OpenCalls[0].Name != "bash" ||
			st.OpenCalls[0].Key != strings.TrimSpace(string(keyBefore)) {
			t.Errorf("open calls are told as %+v, want bash, unknown, key %s", st.OpenCalls, keyBefore)
		}
		// A person is shown what it was.
		shown := b.ok("show", id).out
		for _, s := range []string{"bash", filepath.Base(trace), "outcome is not known"} {
			if !strings.Contains(shown, s) {
				t.Errorf("the transcript does not show %q:\n%s", s, shown)
			}
		}
	}

	res := b.run("go on", []line{say("I saw: {{last_tool_result}}")}, "--session", id)
	if got := lines(); got != want {
		t.Errorf("the file outside is %q after the resume, want %q", got, want)
	}
	text := "its outcome is not known"
	if at == "after the result" {
		text = "the real result"
	}
	if !strings.Contains(res.Text, text) {
		t.Errorf("the model was told %q, want %q", res.Text, text)
	}
	l := b.log(id)
	for call, n := range l.results(t) {
		if n != 1 {
			t.Errorf("call %s has %d results", call, n)
		}
	}
	ms := b.view(id)
	if err := checkView(ms); err != nil {
		t.Errorf("the view is not legal: %v", err)
	}
	for _, c := range ms[1].Calls() {
		if c.Name != "bash" || !strings.Contains(c.Arguments, filepath.Base(trace)) {
			t.Errorf("the view shows the call as %+v", c)
		}
	}
	// The key names the call by its place, which nothing changes.
	for _, e := range l.recs {
		if e.Type == session.TypeAssistantMessage && len(data[session.AssistantMessage](t, e).Message.Calls()) == 1 {
			if k := strings.TrimSpace(string(keyBefore)); !strings.Contains(k, id) || !strings.Contains(k, strconv.FormatInt(e.Seq, 10)) {
				t.Errorf("the tool was given the key %q, the call is in %s at seq %d", k, id, e.Seq)
			}
		}
	}
	// A new call of the model is a new call, with a key of its own.
	again := "echo $STRANDLINE_IDEMPOTENCY_KEY > " + key + "; " + appendLine
	b.run("again", []line{use(bash(again)), say("done")}, "--session", id)
	if got := lines(); got != want+"line\n" {
		t.Errorf("the file outside is %q after a new call, want %q", got, want+"line\n")
	}
	if keyAfter, _ := os.ReadFile(key); string(keyAfter) == string(keyBefore) {
		t.Errorf("a new call has the old key %q", keyAfter)
	}
}
