//go:build unix

package main_test

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const waits = `{"toolCalls":[{"name":"bash","arguments":{"command":"echo $$ > pid; until [ -e go ]; do sleep 0.01; done"}}]}` + "\n" + hang

// await waits until a file of the working directory has content.
func (p *place) await(name string) string {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if b, err := os.ReadFile(p.work + "/" + name); err == nil && len(b) > 0 {
			return strings.TrimSpace(string(b))
		}
		time.Sleep(time.Millisecond)
	}
	p.t.Fatalf("%s never came", name)
	return ""
}

func (p *place) wantClosed() {
	p.t.Helper()
	if h := p.strand(0, "doctor", "--json").out; !strings.Contains(h, `"problems":[],"brackets":[],"openCalls":[],"notes":[]`) {
		p.t.Errorf("the log is not closed: %s", h)
	}
}

// A terminal that is closed ends a run as Ctrl-C does: the command that a tool runs is ended, the log is closed.
func TestHangUp(t *testing.T) {
	p := newPlace(t)
	w := p.start("run", "--script", p.file("s.jsonl", waits), "--approve", "yolo", "go")
	pid := p.await("pid")
	if err := w.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, code := w.end(); code != 1 {
		t.Errorf("exit code %d, want 1; stderr %q", code, w.err.String())
	}
	if n, err := strconv.Atoi(pid); err != nil || syscall.Kill(n, 0) == nil {
		t.Errorf("the command of the tool still runs (pid %q, %v)", pid, err)
	}
	p.wantClosed()
}

// A reader that goes away ends a run as cleanly: it is not killed by the pipe in the middle of its work.
func TestReaderGone(t *testing.T) {
	p := newPlace(t)
	w := p.start("run", "--script", p.file("s.jsonl", waits), "--approve", "yolo", "--output", "stream-json", "go")
	w.until(`"tool/call"`)
	p.await("pid")
	w.out.Close()
	p.file("go", "")
	if err := w.cmd.Wait(); err == nil || w.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit code 1; stderr %q", err, w.err.String())
	}
	if n := strings.Count(w.err.String(), "\n"); n > 2 { // the failure as a line and as an object
		t.Errorf("%d lines on stderr: %s", n, w.err.String())
	}
	p.wantClosed()
}

// Who asks a chat to end wants the session, also while a turn runs.
func TestChatTerminated(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		p := newPlace(t)
		cmd := p.command("chat", "--script", p.file("s.jsonl", hang))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill() }()
		if _, err := in.Write([]byte("hello\n")); err != nil {
			t.Fatal(err)
		}
		p.awaitEvent(`"type":"assistant/chunk"`, `"type":"request/header"`)
		_ = cmd.Process.Signal(sig)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", sig, err)
		}
		p.wantClosed()
	}
}

// TestStraySIGPIPE: the signal also comes of a connection that the other side has dropped. As long as somebody reads
// what is printed, it is no reason to stop.
func TestStraySIGPIPE(t *testing.T) {
	p := newPlace(t)
	script := p.file("s.jsonl", `{"toolCalls":[{"name":"bash","arguments":{"command":"kill -PIPE $PPID; echo did"}}]}
{"text":"fine"}
`)
	if r := p.strand(0, "run", "--script", script, "--approve", "yolo", "go"); r.out != "fine\n" || r.errOut != "" {
		t.Errorf("stdout: %s\nstderr: %s", r.out, r.errOut)
	}
}
