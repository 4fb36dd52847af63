package main_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal starts the command on a terminal of its own. The returned function types keys once text was shown behind what
// was waited for before.
func (p *place) terminal(args ...string) (after func(text, keys string)) {
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
	t.Cleanup(func() {
		stuck.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
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
	}
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
	after := p.terminal("chat", "--script", script)
	after("> ", "one\n")
	after("word end", "two\n")
	after("word end", "/compact\n")
	after("compacting", "\x03")
	after("compaction stopped", "and now?\n")
	after("still here", "/compact\n")
	after("compacted: about", "/quit\n")
	after("session ", "")
}
