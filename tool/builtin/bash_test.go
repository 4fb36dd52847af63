//go:build unix

package builtin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/tool"
)

func quick(o *Options) { o.BashGrace = 200 * time.Millisecond }

func TestBashOutput(t *testing.T) {
	b := newBench(t, map[string]string{"f": "content\n"}, quick)
	want(t, b.ok("bash", args{"command": "cat f; echo err >&2"}), "content\nerr\n")
	want(t, b.ok("bash", args{"command": "pwd -P"}), realPath(t, b.root)+"\n")
	want(t, b.ok("bash", args{"command": "true"}), "(no output, exit code 0)")
	want(t, b.ok("bash", args{"command": "cat"}), "(no output, exit code 0)") // stdin is empty, not a terminal
	want(t, b.ok("bash", args{"command": `printf 'a\377b\0c'`}), "a\uFFFDb\uFFFDc")
	b.fails("bash", args{"command": "echo out; exit 3"}, CodeExit, "out\n[exit code 3]")
	b.fails("bash", args{"command": "exit 1"}, CodeExit, "[exit code 1]")
	b.fails("bash", args{"command": "kill -9 $$"}, CodeExit, "signal: killed")
	b.fails("bash", args{"command": "definitely-not-a-command"}, CodeExit, "[exit code 127]")
	r := b.run("bash", args{"command": "exit 3"})
	want(t, string(r.Meta), `{"bytes":0,"exitCode":3,"truncated":false}`)
}

func realPath(t *testing.T, path string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

// A command has a session of its own: no terminal of ours can be its terminal.
func TestBashHasNoTerminal(t *testing.T) {
	b := newBench(t, nil, quick)
	b.fails("bash", args{"command": "exec 3</dev/tty"}, CodeExit, "/dev/tty")
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc")
	}
	want(t, b.ok("bash", args{"command": `read -r _ _ _ _ group session _ < /proc/$$/stat; [ "$group" = $$ ] && [ "$session" = $$ ] && echo own`}), "own\n")
}

func TestBashEnvironment(t *testing.T) {
	b := newBench(t, nil, quick, func(o *Options) {
		o.Env = append(o.Env, "A_API_KEY=leak1", "GITHUB_TOKEN=leak2", "aws_secret_access_key=leak3", "DB_PASSWORD=leak4",
			"KEPT_TOKEN=kept", "TOKENIZER=plain")
		o.KeepEnv = []string{"KEPT_TOKEN"}
	})
	got := text(b.prepare("bash", args{"command": "env"}).Run(t.Context(), tool.RunOptions{Key: "key-7"}))
	if strings.Contains(got, "leak") {
		t.Errorf("a secret got through:\n%s", got)
	}
	for _, s := range []string{"KEPT_TOKEN=kept", "TOKENIZER=plain", "STRANDLINE_IDEMPOTENCY_KEY=key-7"} {
		if !strings.Contains(got, s+"\n") {
			t.Errorf("%s is missing", s)
		}
	}
}

func TestIsSecret(t *testing.T) {
	path := t.TempDir()
	for kv, want := range map[string]bool{
		"OPENAI_API_KEY=x": true, "API_KEY_OPENAI=x": true, "OPENAI_KEY=x": true, "GITLAB_PAT=x": true, "TOKEN_GH=x": true,
		"NPM_AUTH=x": true, "MY_PASS=x": true, "MYSQL_PWD=x": true, "BORG_PASSPHRASE=x": true, "passphrase=x": true, "JWT=x": true,
		"CREDENTIALS={}": true, "GOOGLE_CREDENTIALS={}": true, "SESSION_COOKIE=x": true, "GITHUBTOKEN=x": true, "AWS_ACCESS_KEY_ID=x": true,
		"AWS_SECRET_ACCESS_KEY=x": true, "SENTRY_DSN=https://x@y": true, "KEY=x": true, "PGPASSWORD=x": true,
		"DATABASE_URL=postgres://u:p@h/db": true, "HTTPS_PROXY=http://u:p@proxy:1": true, "SIGNING_KEY=" + path + "/no": true,

		"HTTPS_PROXY=http://proxy:1": false, "HOMEPAGE=https://u@h/": false, "PWD=x": false, "OLDPWD=x": false, "KEYBOARD=us": false,
		"TOKENIZERS_PARALLELISM=1": false, "MAX_TOKENS=5": false, "MONKEY=x": false, "PATH=/bin": false, "COMPASS=n": false, "AUTHOR=me": false,
		"SSH_AUTH_SOCK=" + path: false, "GOOGLE_APPLICATION_CREDENTIALS=" + path: false, "XAUTHORITY=" + path: false,
	} {
		name, value, _ := strings.Cut(kv, "=")
		if got := isSecret(name, value); got != want {
			t.Errorf("isSecret(%s) = %v", kv, got)
		}
	}
}

func TestBashWorkspaceGone(t *testing.T) {
	b := newBench(t, nil, quick)
	b.ok("bash", args{"command": `rm -r "$PWD"`})
	got := text(b.prepare("bash", args{"command": "pwd"}).Run(t.Context(), tool.RunOptions{}))
	if !strings.Contains(got, "the workspace "+b.root+" is gone") {
		t.Errorf("it says %q", got)
	}
}

// No descriptor of ours is open in a command.
func TestBashDescriptors(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("no /proc")
	}
	path := filepath.Join(t.TempDir(), "ours")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := newBench(t, nil, quick)
	if got := b.ok("bash", args{"command": "readlink /proc/$$/fd/*; true"}); strings.Contains(got, path) || !strings.HasPrefix(got, "/dev/null\npipe:") {
		t.Errorf("descriptors of the command:\n%s", got)
	}
}

func TestBashHugeOutput(t *testing.T) {
	b := newBench(t, nil, quick, func(o *Options) { o.BashOutput = 1 << 20 })
	var spilt string
	var shown int64
	r := b.prepare("bash", args{"command": "echo first; head -c 20000000 /dev/zero | tr '\\0' 'x'; echo; echo last"}).Run(t.Context(), tool.RunOptions{
		Progress: func(s string) { shown += int64(len(s)) },
		Spill:    func(_ context.Context, s string) (string, func(), error) { spilt = s; return "blob", nil, nil },
	})
	got := text(r)
	if r.IsError || len(got) > tool.DefaultLimit+300 || !strings.HasPrefix(got, "first\n") || !strings.HasSuffix(got, "last\n") {
		t.Errorf("%d bytes, error %v", len(got), r.IsError)
	}
	if len(spilt) > 1<<20+200 || !strings.Contains(spilt, "of 20000012 bytes of output are left out") {
		t.Errorf("spilt %d bytes", len(spilt))
	}
	if shown != 20000012 {
		t.Errorf("progress saw %d bytes", shown)
	}
}

// What capture keeps is the head and the tail of what went in, however it was cut into writes.
func TestCapture(t *testing.T) {
	for _, size := range []int{1, 3, 7, 10, 11, 64} {
		for total := range 60 {
			c := &capture{half: 10, progress: func(string) {}}
			var in []byte
			for i := range total {
				in = append(in, byte('a'+i%26))
			}
			for rest := in; len(rest) > 0; {
				n := min(size, len(rest))
				_, _ = c.Write(rest[:n])
				rest = rest[n:]
			}
			got, cut := c.text()
			if total <= 20 {
				if got != string(in) || cut {
					t.Fatalf("%d bytes by %d: %q", total, size, got)
				}
				continue
			}
			exp := fmt.Sprintf("%s\n[... %d of %d bytes of output are left out here ...]\n%s", in[:10], total-20, total, in[total-10:])
			if got != exp || !cut {
				t.Fatalf("%d bytes by %d: %q", total, size, got)
			}
			if cap(c.tail) > 64 {
				t.Fatalf("tail grew to %d", cap(c.tail))
			}
		}
	}
}

// started runs a command that writes "$$" and its children's pids into files, waits for the first
// progress line "ready", and then calls f.
func started(t *testing.T, b *bench, command string, f func(cancel context.CancelFunc)) tool.Result {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := b.prepare("bash", args{"command": command})
	var seen strings.Builder
	done := false
	return p.Run(ctx, tool.RunOptions{Progress: func(s string) {
		seen.WriteString(s)
		if !done && strings.Contains(seen.String(), "ready") {
			done = true
			f(cancel)
		}
	}})
}

func pidIn(t *testing.T, b *bench, name string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(b.file(name)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// gone waits until a process is dead (or a zombie that nobody reaped).
func gone(t *testing.T, pid int) {
	t.Helper()
	for range 500 {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d still lives", pid)
}

func TestBashCancelEndsTheGroup(t *testing.T) {
	b := newBench(t, nil, quick)
	// The child and the grandchild ignore SIGTERM; the shell does not.
	r := started(t, b, `(trap '' TERM; sleep 1000 & echo $! > grand; wait) & echo $! > child; while [ ! -s grand ]; do sleep 0.01; done; echo ready; wait`,
		func(cancel context.CancelFunc) { cancel() })
	if r.Code != tool.CodeAborted || !strings.Contains(text(r), "ready\n[cancelled") {
		t.Errorf("got %s %q", r.Code, text(r))
	}
	gone(t, pidIn(t, b, "child"))
	gone(t, pidIn(t, b, "grand"))
}

func TestBashCancelIsKindFirst(t *testing.T) {
	b := newBench(t, nil, func(o *Options) { o.BashGrace = time.Minute })
	r := started(t, b, `trap 'echo bye > cleaned; exit 0' TERM; echo ready; while :; do sleep 0.01; done`,
		func(cancel context.CancelFunc) { cancel() })
	if r.Code != tool.CodeAborted {
		t.Errorf("got %s %q", r.Code, text(r))
	}
	want(t, b.file("cleaned"), "bye\n")
}

func TestBashTimeLimit(t *testing.T) {
	b := newBench(t, nil, quick, func(o *Options) { o.BashTimeout = 300 * time.Millisecond })
	r := b.run("bash", args{"command": `trap '' TERM; echo $$ > pid; echo before; sleep 1000; sleep 1000`})
	if r.Code != tool.CodeTimeout || !strings.Contains(text(r), "before\n[stopped after its time limit of 300ms") {
		t.Errorf("got %s %q", r.Code, text(r))
	}
	gone(t, pidIn(t, b, "pid"))
}

// A process in the background that keeps the pipe does not keep the call.
func TestBashBackground(t *testing.T) {
	b := newBench(t, nil, quick)
	got := b.ok("bash", args{"command": `sleep 1000 & echo $! > pid; echo done`})
	pid := pidIn(t, b, "pid")
	defer gone(t, pid)
	defer syscall.Kill(pid, syscall.SIGKILL)
	want(t, got, "done\n[exit code 0; a background process still runs, its further output is lost]")
	if syscall.Kill(pid, 0) != nil {
		t.Error("the background process was ended")
	}
}

func TestBashIsNotFooledByPath(t *testing.T) {
	b := newBench(t, map[string]string{"bin/bash": "#!/bin/sh\necho fooled\n"}, func(o *Options) { o.Env = []string{"PATH=bin"} })
	want(t, b.ok("bash", args{"command": "echo real"}), "real\n")
}

func TestBashTextIsValid(t *testing.T) {
	b := newBench(t, nil, quick, func(o *Options) { o.BashOutput = 64 })
	got := b.ok("bash", args{"command": `for i in 1 2 3 4 5 6 7 8 9 10; do printf '日本語日本語'; done`})
	if !utf8.ValidString(got) || strings.Contains(got, "\xff") {
		t.Errorf("%q", got)
	}
}

func TestBashCancelledBeforeStart(t *testing.T) {
	b := newBench(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := b.prepare("bash", args{"command": "touch ran"}).Run(ctx, tool.RunOptions{})
	if r.Code != tool.CodeAborted {
		t.Errorf("got %s", r.Code)
	}
	if _, err := os.Stat(filepath.Join(b.root, "ran")); err == nil {
		t.Error("the command ran")
	}
}
