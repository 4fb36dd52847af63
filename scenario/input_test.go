package scenario

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// badInput is a case of a command that must refuse: one clear line, the right exit code, nothing written.
type badInput struct {
	name string
	prep func(b *box, id string) // damages the store, before the snapshot
	args func(b *box, id string) []string
	uid  int // run as another user, if not 0
	code int
	say  []string // what the line must say
}

func runOn(b *box, id string, more ...string) []string {
	return append(b.runArgs("go on", []line{say("never said")}, "--session", id), more...)
}

// TestBadInput is the table of what people and disks do wrong.
func TestBadInput(t *testing.T) {
	none := func(*box, string) {}
	cases := []badInput{
		{name: "unknown id", prep: none, code: 5, say: []string{"nosuchsession", "strand ls"},
			args: func(b *box, _ string) []string { return runOn(b, "nosuchsession") }},
		{name: "unknown id, show", prep: none, code: 5, say: []string{"nosuchsession"},
			args: func(*box, string) []string { return []string{"show", "nosuchsession"} }},
		{name: "unknown id, fork", prep: none, code: 5, say: []string{"nosuchsession"},
			args: func(*box, string) []string { return []string{"fork", "nosuchsession"} }},
		{name: "id that is a path", prep: none, code: 5, say: []string{"../"},
			args: func(*box, string) []string { return []string{"show", "../sessions"} }},
		{name: "nothing to continue", prep: none, code: 5, say: []string{"no session"},
			args: func(b *box, _ string) []string {
				return []string{"run", "go on", "--continue", "--script", b.script(say("x")), "--cwd", b.out}
			}},
		{name: "damaged file, run", prep: flipInTheMiddle, code: 4, say: []string{"damaged", "byte", "doctor"},
			args: func(b *box, id string) []string { return runOn(b, id) }},
		{name: "damaged file, show", prep: flipInTheMiddle, code: 4, say: []string{"damaged", "byte"},
			args: func(_ *box, id string) []string { return []string{"show", id, "--events"} }},
		{name: "damaged file, title", prep: flipInTheMiddle, code: 4, say: []string{"damaged"},
			args: func(_ *box, id string) []string { return []string{"title", id, "new"} }},
		{name: "newer session format, run", prep: newerSession, code: 7, say: []string{"newer"},
			args: func(b *box, id string) []string { return runOn(b, id) }},
		{name: "newer store format, run", prep: newerStore, code: 7, say: []string{"newer"},
			args: func(b *box, id string) []string { return runOn(b, id) }},
		{name: "newer store format, new session", prep: newerStore, code: 7, say: []string{"newer"},
			args: func(b *box, _ string) []string { return b.runArgs("hello", []line{say("x")}) }},
		{name: "newer store format, fork", prep: newerStore, code: 7, say: []string{"newer"},
			args: func(_ *box, id string) []string { return []string{"fork", id} }},
		{name: "read-only store, run", prep: readable, uid: 65534, code: 1, say: []string{"cannot be written", "permission denied"},
			args: func(b *box, id string) []string { return runOn(b, id) }},
		{name: "read-only store, new session", prep: readable, uid: 65534, code: 1, say: []string{"cannot be written"},
			args: func(b *box, _ string) []string { return b.runArgs("hello", []line{say("x")}) }},
		{name: "read-only store, undo", prep: readable, uid: 65534, code: 1, say: []string{"cannot be written"},
			args: func(_ *box, id string) []string { return []string{"undo", id} }},
		{name: "no permission to make the store", prep: none, uid: 65534, code: 1, say: []string{"cannot be written", "permission denied"},
			args: func(b *box, _ string) []string {
				return append(b.runArgs("hello", []line{say("x")}), "--store", filepath.Join(b.dir, "another"))
			}},
		{name: "the store is a file", prep: none, code: 2, say: []string{"not a directory"},
			args: func(b *box, _ string) []string { return []string{"ls", "--store", b.script(say("x"))} }},
		{name: "malformed script", prep: none, code: 2, say: []string{"broken.jsonl:2"},
			args: func(b *box, _ string) []string {
				name := filepath.Join(b.dir, "broken.jsonl")
				if err := os.WriteFile(name, []byte("{\"text\":\"a\"}\n{\"text\":\n"), 0o644); err != nil {
					b.t.Fatal(err)
				}
				return []string{"run", "hello", "--script", name, "--cwd", b.ws}
			}},
		{name: "script with an unknown field", prep: none, code: 2, say: []string{"odd.jsonl:1", "txet"},
			args: func(b *box, _ string) []string {
				name := filepath.Join(b.dir, "odd.jsonl")
				if err := os.WriteFile(name, []byte("{\"txet\":\"a\"}\n"), 0o644); err != nil {
					b.t.Fatal(err)
				}
				return []string{"run", "hello", "--script", name, "--cwd", b.ws}
			}},
		{name: "no such script", prep: none, code: 2, say: []string{"nowhere.jsonl"},
			args: func(b *box, _ string) []string {
				return []string{"run", "hello", "--script", filepath.Join(b.dir, "nowhere.jsonl"), "--cwd", b.ws}
			}},
		{name: "missing cwd", prep: none, code: 2, say: []string{"--cwd"},
			args: func(b *box, _ string) []string {
				return []string{"run", "hello", "--script", b.script(say("x")), "--cwd", filepath.Join(b.dir, "gone")}
			}},
		{name: "missing cwd of a session", code: 2, say: []string{"--cwd"},
			prep: func(b *box, _ string) {
				if err := os.RemoveAll(b.ws); err != nil {
					b.t.Fatal(err)
				}
			},
			args: func(b *box, id string) []string {
				return []string{"run", "go on", "--session", id, "--script", b.script(say("x"))}
			}},
		{name: "cwd is a file", prep: none, code: 2, say: []string{"--cwd", "not a directory"},
			args: func(b *box, _ string) []string {
				s := b.script(say("x"))
				return []string{"run", "hello", "--script", s, "--cwd", s}
			}},
		{name: "unknown flag", prep: none, code: 2, say: []string{"--frobnicate"},
			args: func(b *box, id string) []string { return runOn(b, id, "--frobnicate") }},
		{name: "bad value of a flag", prep: none, code: 2, say: []string{"--max-steps"},
			args: func(b *box, id string) []string { return runOn(b, id, "--max-steps", "many") }},
		{name: "unknown output", prep: none, code: 2, say: []string{"--output"},
			args: func(b *box, id string) []string { return runOn(b, id, "--output", "xml") }},
		{name: "unknown policy", prep: none, code: 2, say: []string{"--approve"},
			args: func(b *box, id string) []string { return runOn(b, id, "--approve", "maybe") }},
		{name: "flags that contradict", prep: none, code: 2, say: []string{"continue", "session"},
			args: func(b *box, id string) []string { return runOn(b, id, "--continue") }},
		{name: "no prompt", prep: none, code: 2,
			args: func(b *box, id string) []string {
				return []string{"run", "--session", id, "--script", b.script(say("x"))}
			}},
		{name: "no model", prep: none, code: 2, say: []string{"--script"},
			args: func(b *box, id string) []string { return []string{"run", "hello", "--session", id} }},
		{name: "unknown command", prep: none, code: 2, say: []string{"frobnicate"},
			args: func(*box, string) []string { return []string{"frobnicate"} }},
		{name: "seq out of range", prep: none, code: 2, say: []string{"--at"},
			args: func(_ *box, id string) []string { return []string{"show", id, "--at", "99999"} }},
		{name: "fork at no event", prep: none, code: 2, say: []string{"99999"},
			args: func(_ *box, id string) []string { return []string{"fork", id, "--at", "99999"} }},
		{name: "fork inside a turn", prep: none, code: 2, say: []string{"turn"},
			args: func(_ *box, id string) []string { return []string{"fork", id, "--at", "3"} }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.uid != 0 && os.Getuid() != 0 {
				t.Skip("needs root to run the command as another user")
			}
			b := newBox(t)
			id := b.run("first", []line{use(write("a.txt", "alpha\n")), say("hello")}).SessionID
			b.run("second", []line{say("more"), say("more")}, "--session", id)
			if c.uid != 0 {
				chmod(b, b.dir, 0o755)
			}
			c.prep(b, id)
			args := c.args(b, id)
			before := snap(t, b.dir)
			r := b.as(c.uid, args...)
			if r.code != c.code {
				t.Errorf("want exit code %d: %v", c.code, r)
			}
			after := snap(t, b.dir)
			// Who opens a session announces it in live/ and takes that back: the folder's mtime moves.
			delete(before, "store/live")
			delete(after, "store/live")
			if d := before.diff(after); d != "" {
				t.Errorf("%v\nwrote:\n%s", r, d)
			}
			oneClearLine(t, r, c.say)
		})
	}
}

// TestScriptUsedUp: the turn fails, is recorded as failed, and the session goes on.
func TestScriptUsedUp(t *testing.T) {
	b := newBox(t)
	r := b.strand(b.runArgs("hello", []line{use(bash("true"))})...)
	if r.code != 8 {
		t.Errorf("want exit code 8: %v", r)
	}
	oneClearLine(t, r, []string{"used up", "script-1.jsonl"})
	id := b.sessionIDs()[0]
	if open := b.log(id).openTurn(); len(open) > 0 {
		t.Errorf("the failed turn is left open")
	}
	if err := checkView(b.view(id)); err != nil {
		t.Error(err)
	}
	if r := b.run("again", []line{say("fine")}, "--session", id); r.Text != "fine" {
		t.Errorf("the session goes on with %+v", r)
	}
}

// oneClearLine holds stderr against the form `strand: what: why; what you can do`.
func oneClearLine(t *testing.T, r result, say []string) {
	t.Helper()
	var lines []string
	for l := range strings.Lines(r.err) {
		if !strings.HasPrefix(l, "strand: note: ") {
			lines = append(lines, strings.TrimSuffix(l, "\n"))
		}
	}
	if len(lines) != 1 || !regexp.MustCompile(`^strand: .+; .+`).MatchString(lines[0]) {
		t.Errorf("want one line `strand: <what>: <why>; <what you can do>`: %v", r)
	}
	for _, s := range say {
		if !strings.Contains(r.err, s) {
			t.Errorf("the line does not say %q: %s", s, r.err)
		}
	}
	if strings.Contains(r.err, "Usage:") {
		t.Errorf("it prints the whole usage: %s", clip(r.err))
	}
}

// as runs the command as another user.
func (b *box) as(uid int, args ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := b.command(ctx, args...)
	if len(args) > 1 && args[len(args)-2] == "--store" {
		cmd.Args = cmd.Args[:len(cmd.Args)-2] // the case names a store of its own
	}
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return b.finish(ctx, cmd)
}

// flipInTheMiddle flips bits inside a record that is known to be synced.
func flipInTheMiddle(b *box, id string) {
	l := b.log(id)
	e := l.recs[4]
	text, err := os.ReadFile(e.file)
	if err != nil {
		b.t.Fatal(err)
	}
	text[(e.off+e.end)/2] ^= 0x04
	if err := os.WriteFile(e.file, text, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// newerSession gives the session a header of format 2, with a right sum.
func newerSession(b *box, id string) {
	name := filepath.Join(b.store, "sessions", id, "session.json")
	text, err := os.ReadFile(name)
	if err != nil {
		b.t.Fatal(err)
	}
	s := strings.Replace(string(text), `"format":1`, `"format":2`, 1)
	cut := strings.LastIndex(s, `,"sum"`)
	s = s[:cut] + `,"sum":"` + sum([]byte(s[:cut])) + "\"}\n"
	if err := os.WriteFile(name, []byte(s), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// newerStore says that the store is of format 2.
func newerStore(b *box, _ string) {
	name := filepath.Join(b.store, "strandline.json")
	text, err := os.ReadFile(name)
	if err != nil {
		b.t.Fatal(err)
	}
	s := strings.Replace(string(text), `"strandline":1`, `"strandline":2`, 1)
	if s == string(text) {
		b.t.Fatalf("no version in %s", text)
	}
	if err := os.WriteFile(name, []byte(s), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func chmod(b *box, name string, mode os.FileMode) {
	b.t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		b.t.Fatal(err)
	}
}

// readable lets others read the store.
func readable(b *box, _ string) {
	err := filepath.WalkDir(b.store, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(p, 0o755)
		}
		return os.Chmod(p, 0o644)
	})
	if err != nil {
		b.t.Fatal(err)
	}
}
