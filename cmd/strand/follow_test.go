//go:build unix

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A tail shows what another process writes, as it comes, says when that one is gone, goes on with the next one, and
// ends well on Ctrl-C.
func TestTail(t *testing.T) {
	p := newPlace(t)
	p.strand(0, "run", "--script", p.file("a.jsonl", `{"text":"first answer"}`), "one")
	w := p.start("tail", "last", "--from", "0")
	w.until("first answer")
	p.strand(0, "run", "--continue", "--script", p.file("b.jsonl", `{"text":"second answer"}`), "two")
	w.until("second answer")
	events := p.start("tail", "last", "-n", "1", "--events")
	events.until(`"type":"turn/end"`)
	p.strand(0, "run", "--continue", "--script", p.file("c.jsonl", `{"text":"third answer"}`), "three")
	w.until("third answer")
	events.until(`"session/inherited"`)
	events.until(`third answer`)
	for _, w := range []*worker{w, events} {
		_ = w.cmd.Process.Signal(syscall.SIGINT)
		if rest, code := w.end(); code != 0 {
			t.Errorf("exit code %d; %s; stderr: %s", code, rest, w.err.String())
		}
	}
	said := w.err.String()
	if !strings.Contains(said, "nobody writes it now") && !strings.Contains(said, "the writer is gone; waiting, Ctrl-C ends") {
		t.Errorf("stderr: %s", said)
	}
	p.strand(5, "tail", "nothere")
	p.strand(2, "tail", "last", "-n", "-1")
	p.strand(2, "tail", "last", "--from", "-1")
}

// Who reads no further ends a tail without a word.
func TestTailIntoHead(t *testing.T) {
	p := newPlace(t)
	p.strand(0, "run", "--script", p.file("a.jsonl", `{"text":"first answer"}`), "one")
	w := p.start("tail", "last", "--from", "0", "--events")
	w.until(`"turn/end"`)
	w.out.Close()
	p.strand(0, "run", "--continue", "--script", p.file("b.jsonl", `{"text":"second answer"}`), "two")
	_ = w.cmd.Wait()
	if strings.Contains(w.err.String(), "broken") {
		t.Errorf("stderr: %s", w.err.String())
	}
}

// A question that waits in a chat is still open when the session was taken over.
func TestTakeOverKeepsQuestions(t *testing.T) {
	p := newPlace(t)
	cmd := p.command("chat", "--script", p.file("s.jsonl", `{"toolCalls":[{"name":"bash","arguments":{"command":"echo hi"}}]}`))
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
	p.awaitEvent(`"approval/asked"`)
	next := p.file("b.jsonl", `{"text":"fine"}`)
	r := p.strand(8, "run", "--continue", "--take-over", "--script", next, "--approve", "ask", "and now?")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the chat: %v", err)
	}
	if !strings.Contains(r.errOut, "approval") {
		t.Errorf("stderr: %s", r.errOut)
	}
	if ls := p.strand(0, "ls", "--json").out; !strings.Contains(ls, `"activity":"waiting"`) {
		t.Errorf("the question is gone: %s", ls)
	}
}

// A script that is a pipe which nobody writes does not hold a Ctrl-C up.
func TestScriptNobodyWrites(t *testing.T) {
	p := newPlace(t)
	fifo := filepath.Join(p.work, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	w := p.start("run", "--script", fifo, "hi")
	for { // until it has opened the pipe
		f, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			defer f.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	_ = w.cmd.Process.Signal(syscall.SIGINT)
	if _, code := w.end(); code != 1 {
		t.Errorf("exit code %d; stderr: %s", code, w.err.String())
	}
}
