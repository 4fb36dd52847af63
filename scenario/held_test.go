package scenario

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/session"
)

// checkBusy tries to write a held session through the command and holds the answer against what is promised.
func checkBusy(b *box, id string, pid int, program string) {
	t := b.t
	t.Helper()
	before := b.scripts
	script := b.script(say("never said"))
	for _, args := range [][]string{
		{"run", "let me in", "--session", id, "--script", script, "--cwd", b.ws},
		{"title", id, "let me in"},
		{"approve", id, "--no-run"},
	} {
		r := b.strand(append(args, "--json")...)
		if r.code != 3 {
			t.Errorf("want exit code 3 (busy): %v", r)
			continue
		}
		host, _ := os.Hostname()
		first, rest, _ := strings.Cut(r.err, "\n")
		for _, s := range []string{"strand: ", id, strconv.Itoa(pid), host, program} {
			if !strings.Contains(first, s) {
				t.Errorf("the answer does not say %q: %s", s, first)
			}
		}
		if !regexp.MustCompile(`since \d{4}-\d\d-\d\d`).MatchString(first) {
			t.Errorf("the answer does not say since when: %s", first)
		}
		for _, way := range []string{"follow", "take", "fork"} {
			if !strings.Contains(first, way) {
				t.Errorf("the answer does not offer to %s: %s", way, first)
			}
		}
		if e := decode[struct {
			Error struct {
				Code    string `json:"code"`
				Message string `json:"message"`
				Hint    string `json:"hint"`
			} `json:"error"`
		}](t, rest); e.Error.Code != "busy" || e.Error.Message == "" || e.Error.Hint == "" {
			t.Errorf("as JSON the error is %+v", e)
		}
		if r.out != "" {
			t.Errorf("it printed %q", r.out)
		}
		t.Logf("%s answered after %v", args[0], r.took)
	}
	b.scripts = before + 1
}

// holder is a run that holds its session: its tool waits at a gate.
type holder struct {
	*box
	p         *proc
	id        string
	gate      string
	toolGroup int
}

// newHolder starts a run of which the first call is done and the second waits.
func newHolder(b *box, after ...line) *holder {
	b.t.Helper()
	known := b.sessionIDs()
	said, gate := b.fifo("said"), b.fifo("gate")
	first := use(bash("echo first"))
	second := use(bash("echo $$ > " + said + "; read x < " + gate + "; echo through the gate"))
	h := &holder{box: b, gate: gate}
	h.p = b.start(b.runArgs("hold it", append([]line{first, second}, after...), "--output", "stream-json")...)
	h.toolGroup = b.hear(said)
	for _, id := range b.sessionIDs() {
		if !slices.Contains(known, id) {
			h.id = id
		}
	}
	b.t.Cleanup(func() { _ = syscall.Kill(-h.toolGroup, syscall.SIGKILL) })
	return h
}

// open lets the tool go on.
func (h *holder) open() {
	h.t.Helper()
	if err := os.WriteFile(h.gate, []byte("go\n"), 0); err != nil {
		h.t.Fatal(err)
	}
}

// TestHeldSession: a second process is refused and told who writes; reading works; the death of the holder
// lets the next one in.
func TestHeldSession(t *testing.T) {
	b := newBox(t)
	h := newHolder(b, say("done"))
	pid := h.p.cmd.Process.Pid
	checkBusy(b, h.id, pid, "strand")

	rows := b.list()
	if len(rows) != 1 || rows[0].Activity != "running" || rows[0].Holder == nil || rows[0].Holder.PID != pid {
		t.Errorf("the list shows %+v, want it running, held by %d", rows, pid)
	}
	st := b.stat(h.id)
	if len(st.OpenCalls) != 1 || st.OpenCalls[0].State != "running" || st.Activity != "running" {
		t.Errorf("stat shows %+v, want one running call", st)
	}
	if err := checkView(b.view(h.id)); err != nil {
		t.Errorf("the view of a running session is not legal: %v", err)
	}
	b.ok("show", h.id)
	if n := len(strings.Split(strings.TrimSpace(b.ok("show", h.id, "--events").out), "\n")); int64(n) != st.Events {
		t.Errorf("%d events are shown, stat says %d", n, st.Events)
	}
	b.ok("doctor", h.id)
	fork := decode[forkResult](t, b.ok("fork", h.id, "--json", "--at", strconv.FormatInt(lastCut(b.log(h.id)), 10)).out)
	if fork.ID == "" || fork.ID == h.id {
		t.Errorf("the fork of a held session is %+v", fork)
	}

	h.p.kill()
	h.p.wait()
	_ = syscall.Kill(-h.toolGroup, syscall.SIGKILL)
	if r := b.list(); slices.ContainsFunc(r, func(r row) bool { return r.Holder != nil }) {
		t.Errorf("the list shows a dead holder: %+v", r)
	}
	if st := b.stat(h.id); len(st.OpenCalls) != 1 || st.OpenCalls[0].State != "unknown" || st.Activity != "interrupted" {
		t.Errorf("after the holder's death stat shows %+v", st)
	}
	if r := b.run("next", []line{say("I am in")}, "--session", h.id); r.Text != "I am in" {
		t.Errorf("the next writer got %+v", r)
	}
}

// forkResult is what `fork --json` prints.
type forkResult struct {
	ID     string `json:"id"`
	Parent string `json:"parent"`
	Seq    int64  `json:"seq"`
}

// lastCut is the last seq at which no turn is open.
func lastCut(l storedLog) int64 {
	cut := int64(-1)
	open := false
	for _, e := range l.recs {
		switch e.Type {
		case session.TypeTurnStart:
			open = true
		case session.TypeTurnEnd:
			open = false
		}
		if !open {
			cut = e.Seq
		}
	}
	return cut
}

// replace puts a copy of a file or directory at its place: the same name and bytes, another inode.
func replace(t testing.TB, path string) {
	t.Helper()
	old := path + ".old"
	if err := os.Rename(path, old); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(old)
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() {
		copyTree(t, old, path)
	} else {
		text, err := os.ReadFile(old)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(old); err != nil {
		t.Fatal(err)
	}
}

// TestPausedWriter stops a writer, takes its lock away from under it, lets another process try, and wakes
// it: nobody is damaged, and what it still holds is kept in a fork that it names.
func TestPausedWriter(t *testing.T) {
	for _, swapped := range []string{"session.json", "session directory"} {
		t.Run(swapped, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			h := newHolder(b, say("done"))
			dir := filepath.Join(b.store, "sessions", h.id)
			if err := h.p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			before := b.log(h.id)
			h.open() // the result waits for a process that sleeps
			path := dir
			if swapped == "session.json" {
				path = filepath.Join(dir, "session.json")
			}
			replace(t, path)
			r := b.strand(b.runArgs("let me in", []line{say("I am in"), say("I am in")}, "--session", h.id, "--output", "json")...)
			switch {
			case swapped == "session.json" && r.code != 3:
				t.Errorf("a living writer holds the last segment, whatever became of session.json; want exit code 3: %v", r)
			case swapped != "session.json" && r.code != 0:
				t.Errorf("the other writer found a free session: %v", r)
			}
			between := b.log(h.id)

			if err := h.p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			code := h.p.wait()
			said := h.p.errs.String()
			if code <= 0 {
				t.Errorf("the woken writer ended with exit code %d: %s", code, said)
			}
			// What it acknowledged is in the log; the log is what the other made of it.
			after := b.log(h.id)
			for i, e := range between.recs {
				if after.recs[i].event != e.event {
					t.Errorf("record %d was\n%s\nand is\n%s", i, e.event, after.recs[i].event)
				}
			}
			if swapped != "session.json" && len(after.recs) != len(between.recs) {
				t.Errorf("the woken writer added %d records to a log that it had lost", len(after.recs)-len(between.recs))
			}
			printed := printedEvents(t, h.p.seen)
			for seq, want := range printed {
				if seq >= int64(len(after.recs)) || after.recs[seq].event != want {
					t.Errorf("seq %d was acknowledged and is not in the log: %s", seq, want)
				}
			}
			if len(printed) > len(before.recs) {
				t.Errorf("it acknowledged %d events, %d were stored when it was stopped", len(printed), len(before.recs))
			}
			b.doctor(h.id)
			if err := checkView(b.view(h.id)); err != nil {
				t.Error(err)
			}

			// Nothing that it held is lost: what is not in the log is in a fork that it names.
			going := []string{h.id}
			if swapped != "session.json" || !strings.Contains(b.ok("show", h.id, "--events").out, "through the gate") {
				fork := keptIn(b, h.id, said)
				kept := b.ok("show", fork, "--events").out
				if !strings.Contains(kept, "through the gate\\n") {
					t.Errorf("the fork does not hold what was not saved:\n%s", clip(kept))
				}
				if err := checkView(b.view(fork)); err != nil {
					t.Errorf("the fork's view is not legal: %v", err)
				}
				for i, l := range strings.Split(kept, "\n")[:len(before.recs)] {
					if l != before.recs[i].event {
						t.Errorf("the fork's event %d is %s", i, l)
					}
				}
				b.doctor(fork)
				going = append(going, fork)
			}
			for _, id := range going {
				if r := b.run("next", []line{say("fine"), say("fine")}, "--session", id); r.Text != "fine" {
					t.Errorf("%s goes on with %+v", id, r)
				}
			}
		})
	}
}

// TestIdleWriter is the race for a file's name: a holder that has written nothing yet is stopped, its lock is
// swapped, another one works, and the first wakes and gets input.
func TestIdleWriter(t *testing.T) {
	b := newBox(t)
	id := b.run("first", []line{say("one")}).SessionID
	cmd := b.command(context.Background(), "chat", id, "--script", b.script(say("never saved")), "--approve", "yolo")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := startCmd(t, cmd)
	for n := 0; b.stat(id).Holder == nil; n++ {
		if n == 1000 {
			t.Fatalf("the chat does not open the session: %s", p.errs)
		}
	}
	checkBusy(b, id, cmd.Process.Pid, "strand")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(b.store, "sessions", id, "session.json"))
	if r := b.run("second", []line{say("two")}, "--session", id); r.Text != "two" {
		t.Errorf("the other writer got %+v", r)
	}
	between := b.log(id)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "what I typed\n"); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	code := p.wait()
	said := p.errs.String() + strings.Join(p.seen, "\n")
	if code <= 0 {
		t.Errorf("the woken chat ended with exit code %d: %s", code, said)
	}
	if after := b.log(id); len(after.recs) != len(between.recs) {
		t.Errorf("the woken chat added %d records to a log that another one has", len(after.recs)-len(between.recs))
	}
	fork := keptIn(b, id, said)
	if kept := b.ok("show", fork, "--events").out; !strings.Contains(kept, "what I typed") || strings.Contains(kept, `"two"`) {
		t.Errorf("the fork does not hold what was typed, or holds the other's work:\n%s", clip(kept))
	}
	b.doctor(id)
	b.doctor(fork)
	for _, s := range []string{id, fork} {
		if r := b.run("next", []line{say("fine"), say("fine")}, "--session", s); r.Text != "fine" {
			t.Errorf("%s goes on with %+v", s, r)
		}
	}
}

// keptIn returns the session, beside id, that a message names.
func keptIn(b *box, id, said string) string {
	b.t.Helper()
	forks := slices.DeleteFunc(b.sessionIDs(), func(other string) bool { return other == id || !strings.Contains(said, other) })
	if len(forks) != 1 || !strings.Contains(said, "fork") {
		b.t.Fatalf("it names no fork of the sessions %q: %s", b.sessionIDs(), said)
	}
	return forks[0]
}

// printedEvents are the events that a run printed as committed.
func printedEvents(t testing.TB, lines []string) map[int64]string {
	t.Helper()
	out := map[int64]string{}
	for _, l := range lines {
		if e := decode[struct {
			Seq *int64 `json:"seq"`
		}](t, l); e.Seq != nil {
			out[*e.Seq] = l
		}
	}
	return out
}
