package scenario

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/session"
)

// TestStatOfTheHeld asks, through the command, what an open turn and an open compaction are while their owner lives,
// sleeps, is gone or is followed by another, and while what names the owner is not what it was. Each answer comes at once.
func TestStatOfTheHeld(t *testing.T) {
	type where struct {
		*box
		id  string
		p   *proc                      // who holds it
		end func()                     // of a life that writes nothing
		say func(st statResult) string // what the turn is, or each compaction
	}
	begins := map[string]func(w *where){ // by a new process
		"turn": func(w *where) {
			w.say = func(st statResult) string { return st.Activity }
			w.p = w.start(w.runArgs("wait", []line{{Hang: true}}, "--session", w.id, "--output", "stream-json")...)
			w.p.until(`"type":"` + session.TypeStepStart + `"`)
		},
		"compaction": func(w *where) {
			w.say = func(st statResult) string {
				var out []string
				for _, b := range st.Brackets {
					out = append(out, b.State)
				}
				return strings.Join(out, " ")
			}
			n := len(w.stat(w.id).Brackets)
			w.p = w.start(w.compactArgs(w.id, summary(line{Hang: true}))...)
			for i := 0; len(w.stat(w.id).Brackets) == n; i++ {
				if i == 1000 {
					w.t.Fatalf("no compaction begins: %s", w.p.errs)
				}
			}
		},
	}
	live := func(w *where) string { return filepath.Join(w.store, "live", w.id+".json") }
	kill := func(w *where) { w.p.kill(); w.p.wait() }
	const nobody, named, unnamed = "nobody", "named", "unnamed"
	steps := []struct {
		name             string
		do               func(w *where) // nil: begin
		turn, compaction string
		holder           string
	}{
		{"begun", nil, "running", "live", named},
		{"its owner sleeps", func(w *where) { _ = w.p.cmd.Process.Signal(syscall.SIGSTOP) }, "running", "live", named},
		{"the announcement is gone", func(w *where) { _ = os.Remove(live(w)) }, "running", "live", unnamed},
		{"garbage in its place", func(w *where) { w.put(live(w), "no announcement\n") }, "running", "live", unnamed},
		{"another's in its place", func(w *where) { w.put(live(w), `{"nonce":"1","pid":1,"sessionId":"`+w.id+`"}`+"\n") }, "running", "live", unnamed},
		{"session.json is another file", func(w *where) { replace(w.t, filepath.Join(w.store, "sessions", w.id, "session.json")) }, "running", "live", unnamed},
		{"its owner is killed", kill, "interrupted", "dead", nobody},
		{"a life that has written nothing", func(w *where) {
			cmd := w.command(context.Background(), "chat", w.id, "--script", w.script(), "--approve", "yolo")
			in, err := cmd.StdinPipe()
			if err != nil {
				w.t.Fatal(err)
			}
			p := startCmd(w.t, cmd)
			for i := 0; w.stat(w.id).Holder == nil; i++ {
				if i == 1000 {
					w.t.Fatalf("the chat does not open the session: %s", p.errs)
				}
			}
			w.end = func() { _ = in.Close(); p.wait() }
		}, "interrupted", "dead", named},
		{"that is gone", func(w *where) { w.end() }, "interrupted", "dead", nobody},
		{"one of a new life", nil, "running", "dead live", named},
		{"a fork of it", func(w *where) {
			w.id = decode[forkResult](w.t, w.ok("fork", w.id, "--json").out).ID
		}, "idle", "dead dead", nobody}, // the turn is not in it: it is open
	}
	for name, begin := range begins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &where{box: newBox(t), id: "held-" + name}
			w.longTalk(w.id, 40)
			for _, step := range steps {
				if step.do == nil {
					begin(w)
				} else {
					step.do(w)
				}
				st := w.stat(w.id)
				holder := nobody
				if st.Holder != nil {
					holder = unnamed
					if decode[struct {
						PID int `json:"pid"`
					}](t, string(*st.Holder)).PID == w.p.cmd.Process.Pid || strings.Contains(step.name, "written nothing") {
						holder = named
					}
				}
				want := step.turn
				if name == "compaction" {
					want = step.compaction
				}
				if got := w.say(st); got != want || holder != step.holder {
					t.Errorf("%s: %s, held by %s (base %d of %d); want %s, %s", step.name, got, holder, st.Base, st.Events, want, step.holder)
				}
			}
			kill(w)
		})
	}
}
