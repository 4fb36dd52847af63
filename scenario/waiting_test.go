package scenario

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// question is a call that waits, as ls and show tell it.
type question struct {
	CallID  string `json:"callId"`
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Since   int64  `json:"since"`
}

// waiting is a session that was killed while two calls waited for a person and one ran.
type waiting struct {
	*box
	id   string
	asks []question
}

// killedWaiting starts a turn of three calls: the first runs by a rule, the others have to be asked about. When the
// first runs, the process is killed.
func killedWaiting(b *box) *waiting {
	t := b.t
	t.Helper()
	said := filepath.Join(b.out, "said")
	if err := os.WriteFile(filepath.Join(b.ws, "busy.sh"), []byte("#!/bin/sh\necho $$ > "+said+".new && mv "+said+".new "+said+"\nexec sleep 300\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := b.script(use(bash("./busy.sh"), bash("echo one >> "+b.file("one")), bash("echo two >> "+b.file("two"))))
	p := b.start("run", "three calls", "--script", script, "--cwd", b.ws, "--approve", "ask", "--allow", "bash:./busy.sh", "--output", "stream-json")
	p.until(`"type":"tool/call"`)
	for deadline := time.Now().Add(patience); ; { // by progress: the tool says that it runs
		if text, err := os.ReadFile(said); err == nil {
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the tool does not run")
		}
		spin(1_000_000)
	}
	p.kill()
	p.wait()
	w := &waiting{box: b, id: b.sessionIDs()[0]}
	w.asks = w.row().Waiting
	if len(w.asks) != 2 || !strings.Contains(w.asks[0].Subject, "echo one") || !strings.Contains(w.asks[1].Subject, "echo two") || w.asks[0].Since == 0 {
		t.Fatalf("ls tells that %+v wait", w.asks)
	}
	if a := w.row().Activity; a != "waiting" {
		t.Errorf("ls says %q", a)
	}
	st := w.stat(w.id)
	var calls []string
	for _, c := range st.OpenCalls {
		calls = append(calls, c.State)
	}
	if got := strings.Join(calls, " "); got != "unknown waiting waiting" || st.Activity != "waiting" {
		t.Errorf("the open calls are %s, the session is %s", got, st.Activity)
	}
	shown := b.ok("show", w.id).out
	for _, s := range []string{"waits for a person:", "echo one", "echo two", "strand approve " + w.id + " CALL"} {
		if !strings.Contains(shown, s) {
			t.Errorf("show does not say %q:\n%s", s, shown)
		}
	}
	return w
}

type listed struct {
	ID       string     `json:"id"`
	Activity string     `json:"activity"`
	Waiting  []question `json:"waiting"`
}

func (b *box) file(name string) string { return filepath.Join(b.out, name) }

// row is the session in the list.
func (w *waiting) row() listed {
	w.t.Helper()
	for _, r := range decodeLines[listed](w.t, w.ok("ls", "--any-project", "--json").out) {
		if r.ID == w.id {
			return r
		}
	}
	w.t.Fatal("the list does not have the session")
	return listed{}
}

// ran tells how often each of the calls that were asked about ran.
func (w *waiting) ran() string {
	w.t.Helper()
	var out []string
	for _, name := range []string{"one", "two"} {
		text, err := os.ReadFile(w.file(name))
		if err != nil && !os.IsNotExist(err) {
			w.t.Fatal(err)
		}
		out = append(out, strconv.Itoa(strings.Count(string(text), "\n")))
	}
	return strings.Join(out, " ")
}

// decided returns the verdicts in the log, by the place of the question.
func (w *waiting) decided() string {
	w.t.Helper()
	l := w.log(w.id)
	verdict := map[string]string{}
	var asked []string
	for _, e := range l.recs {
		switch e.Type {
		case "approval/asked":
			asked = append(asked, data[struct {
				AskID string `json:"askId"`
			}](w.t, e).AskID)
		case "approval/decided":
			d := data[struct {
				AskID   string `json:"askId"`
				Verdict string `json:"verdict"`
				By      string `json:"by"`
			}](w.t, e)
			if verdict[d.AskID] != "" {
				w.t.Errorf("the question %s was decided twice", d.AskID)
			}
			verdict[d.AskID] = d.Verdict + " " + d.By
		}
	}
	var out []string
	for _, id := range asked {
		out = append(out, verdict[id])
	}
	for call, n := range l.results(w.t) {
		if n != 1 {
			w.t.Errorf("the call %s has %d results", call, n)
		}
	}
	if owed := l.openCalls(w.t); len(owed) != 0 {
		w.t.Errorf("calls are left open: %+v", owed)
	}
	return strings.Join(out, ", ")
}

// TestWaitingCalls: two calls wait, one runs, the process is killed; other commands answer, die and cancel.
func TestWaitingCalls(t *testing.T) {
	t.Run("answered in reverse order", func(t *testing.T) {
		t.Parallel()
		w := killedWaiting(newBox(t))
		one, two := w.asks[0].CallID, w.asks[1].CallID
		if r := w.strand("approve", w.id, two); r.code != 0 || !strings.Contains(r.out, "still waiting") {
			t.Errorf("the first answer: %v", r)
		}
		if r := w.strand("approve", w.id, two, "--deny"); r.code != 1 || !strings.Contains(r.err, "answered before: allow, by user") {
			t.Errorf("a second answer: %v", r)
		}
		if r := w.strand("approve", w.id, "call_nobody", "--no-run"); r.code != 5 {
			t.Errorf("an answer to nothing: %v", r)
		}
		if got := w.ran(); got != "0 0" {
			t.Errorf("ran %s before the last answer", got)
		}
		// The last answer goes on; it is killed when the allowed call is done and the model was asked.
		p := w.start("approve", w.id, one, "--deny", "--reason", "not that one", "--script", w.script(line{Hang: true}), "--output", "stream-json")
		p.until(`"type":"step/start"`)
		p.kill()
		p.wait()
		if got := w.ran(); got != "0 1" {
			t.Errorf("ran %s, want the allowed one once", got)
		}
		res := w.run("go on", []line{say("well: {{last_user}}")}, "--session", w.id)
		if res.Text != "well: go on" {
			t.Errorf("the next message: %+v", res)
		}
		if got := w.decided(); got != "deny user, allow user" {
			t.Errorf("decided: %s", got)
		}
		ms := w.view(w.id)
		if err := checkView(ms); err != nil {
			t.Error(err)
		}
		if text, _ := resultText(ms, one); !strings.Contains(text, "not that one") {
			t.Errorf("the denied call reads %q", text)
		}
		if got := w.ran(); got != "0 1" {
			t.Errorf("ran %s after all", got)
		}
	})
	t.Run("an answer outlives who recorded it", func(t *testing.T) {
		t.Parallel()
		w := killedWaiting(newBox(t))
		w.ok("approve", w.id, w.asks[1].CallID, "--no-run")
		w.ok("approve", w.id, w.asks[0].CallID, "--no-run")
		if r := w.row(); r.Activity != "interrupted" || len(r.Waiting) != 0 {
			t.Errorf("all is answered and nobody goes on: %+v", r)
		}
		if got := w.ran(); got != "0 0" {
			t.Errorf("ran %s without a run", got)
		}
		// Looking, and a second life that dies at once, lose nothing.
		w.ok("show", w.id)
		r := w.strand("run", "and this", "--session", w.id, "--script", w.script(say("carried out"), say("and that")), "--cwd", w.ws)
		if r.code != 0 || !strings.Contains(r.out, "carried out") || !strings.Contains(r.out, "and that") {
			t.Errorf("the next run: %v", r)
		}
		if got := w.ran(); got != "1 1" {
			t.Errorf("ran %s", got)
		}
		if got := w.decided(); got != "allow user, allow user" {
			t.Errorf("decided: %s", got)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		w := killedWaiting(newBox(t))
		w.ok("approve", w.id, "--cancel")
		if got := w.decided(); got != "deny cancel, deny cancel" {
			t.Errorf("decided: %s", got)
		}
		if res := w.run("hello", []line{say("hello too")}, "--session", w.id); res.Text != "hello too" {
			t.Errorf("the next message: %+v", res)
		}
		if got := w.ran(); got != "0 0" {
			t.Errorf("ran %s", got)
		}
	})
	t.Run("a policy that does not ask", func(t *testing.T) {
		t.Parallel()
		w := killedWaiting(newBox(t))
		r := w.strand("run", "hello", "--session", w.id, "--script", w.script(say("denied then"), say("hello too")), "--cwd", w.ws, "--approve", "never-ask")
		if r.code != 0 || !strings.Contains(r.out, "hello too") {
			t.Errorf("%v", r)
		}
		if got := w.decided(); got != "deny policy, deny policy" {
			t.Errorf("decided: %s", got)
		}
		if got := w.ran(); got != "0 0" {
			t.Errorf("ran %s", got)
		}
	})
}
