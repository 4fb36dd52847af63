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

// A working directory that no session could name, or that is gone, is told in words that lead on.
func TestOddPlaces(t *testing.T) {
	p := newPlace(t)
	script := p.file("s.jsonl", `{"text":"fine"}`)
	odd := filepath.Join(p.work, "c\xffd")
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Skip("no such names here: ", err)
	}
	for _, args := range [][]string{{"run", "--script", script, "--cwd", odd, "hi"}, {"run", "--script", script, "hi"}} {
		cmd := p.command(args...)
		cmd.Dir = odd
		if r := finish(t, cmd); r.code != 2 || !strings.Contains(r.errOut, "its path is not UTF-8") {
			t.Errorf("%q: exit code %d, %s", args, r.code, r.errOut)
		}
	}
	gone := func(args ...string) result {
		cmd := p.command("-c", `mkdir gone && cd gone && rmdir ../gone && exec "$0" "$@"`, strand)
		cmd.Args = append(cmd.Args, args...)
		cmd.Path, cmd.Args[0] = "/bin/sh", "sh"
		return finish(t, cmd)
	}
	for _, tt := range []struct {
		code int
		says string
		args []string
	}{
		{2, "give an id", []string{"show", "last"}},
		{2, "--any-project", []string{"ls"}},
		{0, "", []string{"ls", "--any-project"}},
		{2, "--cwd", []string{"run", "--script", script, "hi"}},
		{0, "", []string{"run", "--script", script, "--cwd", p.work, "hi"}},
		{0, "", []string{"doctor"}},
	} {
		if r := gone(tt.args...); r.code != tt.code || !strings.Contains(r.errOut, tt.says) {
			t.Errorf("%q: exit code %d, %s", tt.args, r.code, r.errOut)
		}
	}
}

// Instructions that are no text file are left out; none of them holds a run up.
func TestOddInstructions(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"a pipe without a writer": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link to a device":      func(path string) error { return os.Symlink("/dev/zero", path) },
		"a directory":             func(path string) error { return os.Mkdir(path, 0o700) },
		"a link to nothing":       func(path string) error { return os.Symlink("nowhere", path) },
		"bytes":                   func(path string) error { return os.WriteFile(path, []byte("a\xff\x00b"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			if err := place(filepath.Join(p.work, "AGENTS.md")); err != nil {
				t.Skip(err)
			}
			cmd := p.command("run", "--script", p.file("s.jsonl", `{"text":"fine"}`), "hi")
			late := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
			defer late.Stop()
			if r := finish(t, cmd); r.code != 0 || r.out != "fine\n" {
				t.Errorf("exit code %d\n%s%s", r.code, r.out, r.errOut)
			}
		})
	}
}
