package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal starts the command on a terminal of its own. The returned function types keys once text was shown behind what
// was waited for before; kill ends the command as kill -9 does.
func (p *place) terminal(args ...string) (after func(text, keys string), kill func()) {
	t := p.t
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer tty.Close()
	cmd := p.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(cmd.Env, "TERM=xterm")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	end := sync.OnceFunc(func() {
		stuck.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	shown, buf := "", make([]byte, 4096)
	return func(text, keys string) {
		t.Helper()
		for !strings.Contains(shown, text) {
			n, err := master.Read(buf)
			if err != nil {
				t.Fatalf("%v before %q came: %q", err, text, shown)
			}
			shown += string(buf[:n])
		}
		_, shown, _ = strings.Cut(shown, text)
		if _, err := master.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}, end
}

// A compaction that a person asks for in a chat shows that it lives, and Ctrl-C stops it; the chat goes on.
func TestChatShowsCompaction(t *testing.T) {
	p := newPlace(t)
	words := strings.Repeat("word ", 400) + "end"
	script := p.file("s.jsonl", fmt.Sprintf(`{"text":%q}
{"text":%q}
{"purpose":"compaction","hang":true}
{"text":"still here"}
{"purpose":"compaction","text":"all that was said"}
`, words, words))
	after, _ := p.terminal("chat", "--script", script)
	after("> ", "one\n")
	after("word end", "two\n")
	after("word end", "/compact\n")
	after("compacting", "\x03")
	after("compaction stopped", "and now?\n")
	after("still here", "/compact\n")
	after("compacted: about", "/quit\n")
	after("session ", "")
}

// untilGo is a call that runs until the file "go" is there.
const untilGo = `{"toolCalls":[{"name":"bash","arguments":{"command":"until [ -e go ]; do sleep 0.02; done"}}]}`

// What a person types while a turn runs steers it, has a turn of its own if they say so, or is a command that works at
// once or waits; what they typed before a question is no answer to it.
func TestChatSteers(t *testing.T) {
	p := newPlace(t)
	script := p.file("s.jsonl", untilGo+`
{"text":"Heard {{last_user}}.","toolCalls":[{"name":"write","arguments":{"path":"asked","content":"x"}}]}
{"text":"Then not."}
{"text":"Now {{last_user}}."}
{"text":"Other model."}
`)
	after, _ := p.terminal("chat", "--script", script, "--approve", "ask", "--allow", "bash")
	after("> ", "begin\n")
	after("· bash", "yes also\n")
	after("saved; the agent gets it with its next step", "/later a story\n")
	after("saved; it has a turn of its own", "/title mine\n")
	after("title: mine", "/undo\n")
	after("/undo waits until the turn is over", "/frob\n")
	after("there is no such command here", "/later\n")
	after("nothing follows it", "/model other/one\n")
	after("model: other/one", "y\n")
	after("saved; the agent gets it", "")
	p.file("go", "")
	after("Heard y.", "")
	after("may write run?", "yes do it\n")
	after("y stands alone", "no, wait\n")
	after("y runs it, n refuses it", "n not now\n")
	after("Then not.", "")
	after("Now a story.", "")
	after("turn 2 undone", "and on\n")
	after("Other model.", "/quit\n")
	after("session ", "")
	if _, err := os.Stat(filepath.Join(p.work, "asked")); err == nil {
		t.Error("what was typed before the question ran the call")
	}
	log := p.strand(0, "show", "last", "--events").out
	for text, want := range map[string]int{"yes also": 1, "a story": 1, "y": 1, "begin": 1, "and on": 1} {
		if n := given(log, text); n != want {
			t.Errorf("the agent got %q %d times, want %d", text, n, want)
		}
	}
	for _, want := range []string{`"type":"turn/start","data":{"turn":3}`, `"model":"one"`} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in the log", want)
		}
	}
	if strings.Contains(log, `"data":{"turn":4}`) {
		t.Error("steering began a turn")
	}
}

// given is how often an agent was given a text.
func given(log, text string) (n int) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"type":"user/message"`) && strings.Contains(line, fmt.Sprintf(`"text":%q`, text)) {
			n++
		}
	}
	return n
}

// A line that was said to be saved is given to the agent once, whatever becomes of the process.
func TestSteeringSurvives(t *testing.T) {
	p := newPlace(t)
	script := p.file("s.jsonl", untilGo)
	after, kill := p.terminal("chat", "--script", script, "--approve", "yolo")
	after("> ", "begin\n")
	after("· bash", "mind the gap\n")
	after("saved; the agent gets it", "/later tell a story\n")
	after("saved; it has a turn of its own", "")
	kill()
	p.file("go", "")
	p.strand(0, "compact", "last", "--script", script) // begins nothing of it
	after, _ = p.terminal("chat", "last", "--script", p.file("next.jsonl", `{"text":"A story."}
{"text":"Going on."}
`))
	after("2 of what you said before waits", "go on\n")
	after("A story.", "")
	after("Going on.", "/quit\n")
	after("session ", "")
	p.strand(0, "run", "--continue", "--script", p.file("more.jsonl", `{"text":"Fine."}`), "more")
	log := p.strand(0, "show", "last", "--events").out
	for _, text := range []string{"mind the gap", "tell a story", "go on", "more"} {
		if n := given(log, text); n != 1 {
			t.Errorf("the agent got %q %d times", text, n)
		}
	}
	p.strand(0, "doctor", "last")
}

// From a pipe each line has a turn of its own.
func TestPipedLinesHaveTurns(t *testing.T) {
	p := newPlace(t)
	cmd := p.command("chat", "--script", p.file("s.jsonl", `{"toolCalls":[{"name":"ls","arguments":{}}]}
{"text":"One."}
{"text":"Two."}
`))
	cmd.Stdin = strings.NewReader("one\ntwo\n")
	if r := finish(t, cmd); r.code != 0 || !strings.HasPrefix(r.out, "One.\nTwo.\n") {
		t.Fatalf("exit code %d: %s%s", r.code, r.out, r.errOut)
	}
	if log := p.strand(0, "show", "last", "--events").out; strings.Count(log, `"type":"turn/start"`) != 2 {
		t.Error("not a turn for each line")
	}
}

// The sessions of a project are chosen by number, id or words, at the beginning of a chat and in it; one that somebody
// holds is not gone to.
func TestChatPicks(t *testing.T) {
	p := newPlace(t)
	p.strand(2, "chat", "--pick", "--script", p.file("s.jsonl", `{"text":"Fine."}`)) // no terminal
	var ids []string
	for _, words := range []string{"mend the roof", "mend the boat", "paint the door"} {
		r := p.strand(0, "run", "--script", "s.jsonl", "--json", words)
		ids = append(ids, sessionPattern.FindStringSubmatch(r.out)[1])
	}
	p.strand(0, "run", "--script", "s.jsonl", "--headless", "by a program")
	holder, release := p.terminal("chat", ids[1], "--script", "s.jsonl")
	holder("> ", "/title the boat\n")
	holder("title: the boat", "")

	after, _ := p.terminal("chat", "--pick", "--script", "s.jsonl")
	after("paint the door", "")
	after("the boat", "")
	after("mend the roof", "")
	after("1 headless hidden", "")
	after("an empty line begins a new session", "nothing like it\n")
	after("no session of this project is called so", "/sessions the\n")
	after("mend the roof", "roof\n")
	after("now in "+ids[0], "/sessions\n")
	after("*", "/sessions boat\n")
	after("held", "hello\n")
	after("Fine.", "/sessions "+ids[2][:6]+"\n")
	after("left "+ids[0], "/sessions door\n")
	after("you are in it", "/quit\n")
	after("session "+ids[2], "")
	release()

	after, _ = p.terminal("chat", "--pick", "--script", "s.jsonl")
	after("an empty line begins a new session", "\n")
	after("a new session", "/sessions 9\n")
	after("no session of this project is called so", "/quit\n")
	if n := len(strings.Split(strings.TrimSpace(p.strand(0, "ls", "--all", "--json").out), "\n")); n != 5 {
		t.Errorf("the list has %d lines: a chat without a word made a session", n)
	}
}
