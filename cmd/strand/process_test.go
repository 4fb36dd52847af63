//go:build unix

package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/app"
)

// place is a fresh store and working directory.
type place struct {
	t           *testing.T
	store, work string
}

func newPlace(t *testing.T) *place {
	dir := t.TempDir()
	p := &place{t, filepath.Join(dir, "store"), filepath.Join(dir, "work")}
	if err := os.Mkdir(p.work, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

// file writes a file into the working directory and returns its path.
func (p *place) file(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.work, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// env keeps the configuration of whoever runs the tests out of them.
func (p *place) env() []string {
	return []string{"STRANDLINE_HOME=" + p.store, "HOME=" + filepath.Dir(p.store), "XDG_CONFIG_HOME=", app.EnvCheckFolds + "=1"}
}

func (p *place) command(args ...string) *exec.Cmd {
	cmd := exec.Command(strand, args...)
	cmd.Dir = p.work
	cmd.Env = append(os.Environ(), p.env()...)
	return cmd
}

// result is what a command printed and how it ended.
type result struct {
	code        int
	out, errOut string
	took        time.Duration
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	begun := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String(), time.Since(begun)}
}

// strand runs the program and wants an exit code.
func (p *place) strand(code int, args ...string) result {
	p.t.Helper()
	r := finish(p.t, p.command(args...))
	if r.code != code {
		p.t.Fatalf("strand %s: exit code %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), r.code, code, r.out, r.errOut)
	}
	return r
}

// worker is a strand that runs in the background, read line by line.
type worker struct {
	t   *testing.T
	cmd *exec.Cmd
	out io.ReadCloser
	in  *bufio.Reader
	err bytes.Buffer
}

func (p *place) start(args ...string) *worker {
	p.t.Helper()
	w := &worker{t: p.t, cmd: p.command(args...)}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	w.out, w.in = out, bufio.NewReader(out)
	w.cmd.Stderr = &w.err
	if err := w.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	})
	return w
}

// line returns the next line, "" at the end of the output.
func (w *worker) line() string {
	s, err := w.in.ReadString('\n')
	if err != nil && err != io.EOF {
		w.t.Fatal(err)
	}
	return s
}

// until reads lines up to one that has all of the texts in it.
func (w *worker) until(texts ...string) []string {
	w.t.Helper()
	var lines []string
	for {
		s := w.line()
		if s == "" {
			w.t.Fatalf("the output ended before %q came\nstderr: %s", texts, w.err.String())
		}
		lines = append(lines, s)
		all := true
		for _, text := range texts {
			all = all && strings.Contains(s, text)
		}
		if all {
			return lines
		}
	}
}

// end reads what is left and returns the exit code.
func (w *worker) end() (rest string, code int) {
	b, _ := io.ReadAll(w.in)
	_ = w.cmd.Wait()
	return string(b), w.cmd.ProcessState.ExitCode()
}

var (
	seqPattern     = regexp.MustCompile(`^\{"seq":(\d+),`)
	sessionPattern = regexp.MustCompile(`"(?:sessionId|id)":"([0-9a-hjkmnp-tv-z]{20})"`)
)

// newSession runs one turn and returns the session's id.
func (p *place) newSession() string {
	p.t.Helper()
	r := p.strand(0, "run", "--script", p.file("fine.jsonl", `{"text":"Fine."}`), "--json", "hello")
	return sessionPattern.FindStringSubmatch(r.out)[1]
}

const hang = `{"text":"I begin.","hang":true}`

// A held session: whoever else wants to write is told at once who has it and what can be done; reading and
// forking work; when the holder dies the next one gets in.
func TestHeldSession(t *testing.T) {
	p := newPlace(t)
	id := p.newSession()
	holder := p.start("run", "--script", p.file("hang.jsonl", hang), "--session", id, "--output", "stream-json", "hold it")
	holder.until(`"type":"delta"`, "I begin.")
	fine := p.file("fine.jsonl", `{"text":"Fine."}`)

	for _, args := range [][]string{
		{"run", "--script", fine, "--session", id, "me too"},
		{"run", "--script", fine, "--continue", "me too"},
		{"chat", id, "--script", fine},
		{"undo", id},
		{"title", id, "mine"},
	} {
		r := p.strand(3, append(args, "--no-color")...)
		host, _ := os.Hostname()
		for _, want := range []string{fmt.Sprintf("pid %d on %s, since 2", holder.cmd.Process.Pid, host), "held by strand ", "strand tail " + id, "strand fork " + id, "take it over", "--take-over"} {
			if !strings.Contains(r.errOut, want) {
				t.Errorf("strand %s: stderr lacks %q: %s", args[0], want, r.errOut)
			}
		}
		if n := strings.Count(r.errOut, "\n"); n != 1 {
			t.Errorf("strand %s: %d lines of error, want 1: %s", args[0], n, r.errOut)
		}
		t.Logf("refused %s after %v", args[0], r.took)
	}
	r := p.strand(3, "run", "--script", fine, "--session", id, "--json", "me too")
	if !strings.Contains(r.errOut, fmt.Sprintf(`"holder":{"pid":%d,`, holder.cmd.Process.Pid)) {
		t.Errorf("the error object does not name the holder: %s", r.errOut)
	}

	row := p.strand(0, "ls", "--json").out
	if !strings.Contains(row, `"activity":"running"`) || !strings.Contains(row, fmt.Sprintf(`"holder":{"pid":%d,`, holder.cmd.Process.Pid)) {
		t.Errorf("the list does not say who works: %s", row)
	}
	p.strand(0, "show", id)
	p.strand(0, "doctor", id)
	fork := strings.TrimSpace(p.strand(0, "fork", id).out)
	p.strand(0, "run", "--script", fine, "--session", fork, "in the fork")

	if err := holder.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	holder.end()
	stat := p.strand(0, "show", id, "--stat", "--json").out
	if !strings.Contains(stat, `"activity":"interrupted"`) || !strings.Contains(stat, `"holder":null`) {
		t.Errorf("after the holder's death: %s", stat)
	}
	p.strand(0, "run", "--script", fine, "--session", id, "my turn")
}

// The first SIGINT or SIGTERM ends the turn, whatever it is doing, and leaves a clean log.
func TestInterrupted(t *testing.T) {
	for _, c := range []struct {
		name, script, ready string
		sig                 syscall.Signal
		want                []string // in the log
	}{
		{"a model that hangs", hang, `"text":"I begin."`, syscall.SIGINT,
			[]string{`"interrupted":true`, `"reason":{"kind":"aborted","cause":"user"}`}},
		{"a model that hangs, by SIGTERM", hang, `"text":"I begin."`, syscall.SIGTERM,
			[]string{`"interrupted":true`, `"reason":{"kind":"aborted","cause":"shutdown"}`}},
		{"a tool that runs", `{"toolCalls":[{"name":"bash","arguments":{"command":"exec sleep 600"}},{"name":"write","arguments":{"path":"never","content":"x"}}]}`, `"type":"tool/call"`, syscall.SIGINT,
			[]string{`"ABORTED"`, `"reason":{"kind":"aborted","cause":"user"}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t)
			w := p.start("run", "--script", p.file("s.jsonl", c.script+"\n"), "--approve", "yolo", "--output", "stream-json", "work")
			lines := w.until(c.ready)
			if err := w.cmd.Process.Signal(c.sig); err != nil {
				t.Fatal(err)
			}
			rest, code := w.end()
			if code != 1 || !strings.Contains(w.err.String(), "aborted") {
				t.Errorf("exit code %d, stderr %s", code, w.err.String())
			}
			id := sessionPattern.FindStringSubmatch(p.strand(0, "ls", "--json").out)[1]
			log := p.strand(0, "show", id, "--events").out
			for _, want := range c.want {
				if !strings.Contains(log, want) {
					t.Errorf("the log lacks %s:\n%s", want, log)
				}
			}
			var streamed strings.Builder
			for _, s := range append(lines, strings.SplitAfter(rest, "\n")...) {
				if !strings.HasPrefix(s, `{"type":"delta"`) {
					streamed.WriteString(s)
				}
			}
			if streamed.String() != log {
				t.Errorf("streamed is not what is stored:\n%s\n--\n%s", streamed.String(), log)
			}
			health := p.strand(0, "doctor", id, "--json").out
			if !strings.Contains(health, `"problems":[],"brackets":[],"openCalls":[],"notes":[]`) {
				t.Errorf("the log is not clean: %s", health)
			}
			if _, err := os.Stat(filepath.Join(p.work, "never")); err == nil {
				t.Error("a call that had not started was run")
			}
			p.strand(0, "run", "--script", p.file("fine.jsonl", `{"text":"Fine."}`), "--session", id, "go on")
		})
	}
}

// A chat: Ctrl-C stops what runs, and a second one leaves.
func TestChatInterrupted(t *testing.T) {
	p := newPlace(t)
	// A command that runs is proof that the first reply was taken: the next one is the next turn's.
	runs, _, _ := strings.Cut(waits, "\n")
	cmd := p.command("chat", "--approve", "yolo", "--script", p.file("s.jsonl", runs+"\n"+`{"text":"Fine."}`))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	notes, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	await := func(in *bufio.Reader, want string) {
		t.Helper()
		for {
			s, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("no %q: %v", want, err)
			}
			if strings.Contains(s, want) {
				return
			}
		}
	}
	fmt.Fprintln(in, "hello")
	p.await("pid")
	_ = cmd.Process.Signal(os.Interrupt)
	p.awaitEvent(`"reason":{"kind":"aborted","cause":"user"}`)
	fmt.Fprintln(in, "again")
	lines := bufio.NewReader(out)
	await(lines, "Fine.")
	p.awaitEvent(`"turn":2,"reason":{"kind":"completed"}`) // before it Ctrl-C would stop the turn
	_ = cmd.Process.Signal(os.Interrupt)
	await(bufio.NewReader(notes), "Ctrl-C again leaves")
	_ = cmd.Process.Signal(os.Interrupt)
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(rest), "session ") {
		t.Errorf("no id on leaving: %q", rest)
	}
	if h := p.strand(0, "doctor", "last", "--json").out; !strings.Contains(h, `"problems":[],"brackets":[],"openCalls":[],"notes":[]`) {
		t.Errorf("the log is not clean: %s", h)
	}
}

// awaitEvent reads the newest session again and again until its events have one of the texts.
func (p *place) awaitEvent(texts ...string) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.t.Context(), time.Minute)
	defer stop()
	for ctx.Err() == nil {
		r := finish(p.t, p.command("show", "last", "--events"))
		for _, text := range texts {
			if strings.Contains(r.out, text) {
				return
			}
		}
	}
	p.t.Fatalf("the session never had any of %q", texts)
}

// A store that belongs to somebody else: reading works and creates nothing; writing fails with one line.
func TestReadOnlyStore(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs to run the program as another user")
	}
	p := newPlace(t)
	id := p.newSession()
	chmodAll(t, filepath.Dir(p.store), 0o755, 0o644)
	fine := p.file("fine.jsonl", `{"text":"Fine."}`)
	before, err := treeOf(p.store)
	if err != nil {
		t.Fatal(err)
	}
	as := func(code int, args ...string) result {
		t.Helper()
		cmd := p.command(args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		r := finish(t, cmd)
		if r.code != code {
			t.Fatalf("strand %s: exit code %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), r.code, code, r.out, r.errOut)
		}
		return r
	}
	if row := as(0, "ls", "--json").out; !strings.Contains(row, id) || !strings.Contains(row, `"state":"ok"`) {
		t.Errorf("list: %s", row)
	}
	as(0, "show", id)
	as(0, "show", id, "--stat")
	as(0, "doctor", id)
	for _, args := range [][]string{
		{"run", "--script", fine, "--session", id, "go on"},
		{"run", "--script", fine, "begin"},
		{"undo", id},
		{"title", id, "mine"},
		{"fork", id},
	} {
		r := as(1, args...)
		if !strings.Contains(r.errOut, "permission denied") || !strings.Contains(r.errOut, "--store DIR") || strings.Count(r.errOut, "\n") != 1 {
			t.Errorf("strand %s: stderr: %s", args[0], r.errOut)
		}
	}
	if after, err := treeOf(p.store); err != nil || after != before {
		t.Errorf("the store has changed (%v)", err)
	}
}

// A home of somebody else, as under sudo or in a container: there is no config then, and a note says so. A config
// file that is in reach and unreadable is an error: what it forbids would be lost.
func TestHomeOutOfReach(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs to run the program as another user")
	}
	p := newPlace(t)
	chmodAll(t, filepath.Dir(p.store), 0o777, 0o644)
	home := filepath.Join(p.work, "home")
	dir := filepath.Join(home, ".config", "strandline")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(file, []byte("approval = \"ask\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	as := func(args ...string) result {
		t.Helper()
		cmd := p.command(args...)
		cmd.Env = append(cmd.Env, "HOME="+home, "XDG_CONFIG_HOME=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		return finish(t, cmd)
	}
	fine := p.file("fine.jsonl", `{"text":"Fine."}`)
	if r := as("run", "--script", fine, "begin"); r.code != 2 || !strings.Contains(r.errOut, "config.toml: it cannot be read") {
		t.Errorf("an unreadable file: exit code %d, stderr: %s", r.code, r.errOut)
	}
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if r := as("config"); r.code != 0 || strings.Count(r.errOut, "\n") != 1 || !strings.Contains(r.errOut, "may not be entered") {
		t.Errorf("config: exit code %d, stderr: %s", r.code, r.errOut)
	}
	if r := as("run", "--script", fine, "begin"); r.code != 0 || !strings.Contains(r.out, "Fine.") {
		t.Errorf("run: exit code %d, stdout: %s, stderr: %s", r.code, r.out, r.errOut)
	}
	if r := as("run", "--config", file, "--script", fine, "begin"); r.code != 2 {
		t.Errorf("a file that was named: exit code %d, stderr: %s", r.code, r.errOut)
	}
}

func chmodAll(t *testing.T, dir string, dirMode, fileMode os.FileMode) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.Chmod(path, dirMode)
		}
		return os.Chmod(path, fileMode)
	})
	for up := filepath.Dir(dir); err == nil && up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		err = os.Chmod(up, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A store that can no longer be written: exit code 6, and what could not be saved is in a file outside that the
// error names. A limit on the size of files ends the segment, and the directory takes no new one.
func TestNotSaved(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs to run the program as another user")
	}
	p := newPlace(t)
	tmp := filepath.Join(p.work, "tmp")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	script := p.file("s.jsonl", `{"toolCalls":[{"name":"bash","arguments":{"command":"chmod 500 ../store/sessions/*"}}]}
{"text":"`+strings.Repeat("many words ", 550)+`"}
`)
	chmodAll(t, filepath.Dir(p.store), 0o777, 0o644)
	cmd := exec.Command("sh", "-c", `ulimit -f 32; exec "$@"`, "sh", strand, "run", "--script", script, "--approve", "yolo", "--json", "go")
	cmd.Dir = p.work
	cmd.Env = append(append(os.Environ(), p.env()...), "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	r := finish(t, cmd)
	if r.code != 6 || !strings.Contains(r.errOut, "not saved") {
		t.Fatalf("exit code %d, want 6\nstdout: %s\nstderr: %s", r.code, r.out, r.errOut)
	}
	t.Log(r.errOut)
	chmodAll(t, p.store, 0o777, 0o666)
	id := sessionPattern.FindStringSubmatch(p.strand(0, "ls", "--json").out)[1]
	kept, err := filepath.Glob(filepath.Join(tmp, "strand-unsaved-"+id+"-*.jsonl"))
	if err != nil || len(kept) != 1 || !strings.Contains(r.errOut, "kept in "+kept[0]) {
		t.Fatalf("kept %v (%v)", kept, err)
	}
	stored := p.strand(0, "show", id, "--events").out
	missing, err := os.ReadFile(kept[0])
	if err != nil || !bytes.Contains(missing, []byte("many words")) || strings.Contains(stored, "many words ") && strings.Contains(stored, `"type":"turn/end"`) {
		t.Errorf("the file does not hold what was not saved (%v): %.200s", err, missing)
	}
	// What is stored and what is kept make the whole log.
	first, err := strconv.Atoi(seqPattern.FindStringSubmatch(string(missing))[1])
	if err != nil || first > strings.Count(stored, "\n") || !strings.Contains(string(missing), `"type":"turn/end"`) {
		t.Errorf("stored are %d events, kept is from seq %d:\n%.300s", strings.Count(stored, "\n"), first, missing)
	}
	p.strand(0, "doctor", id)
	p.strand(0, "run", "--script", p.file("fine.jsonl", `{"text":"Fine."}`), "--session", id, "go on")
}

// A compaction behind a loss of power tells of itself alone, and not what the life before had said and is saved again.
func TestCompactTellsOfItself(t *testing.T) {
	p := newPlace(t)
	script := p.file("s.jsonl", fmt.Sprintf(`{"text":%q}`, strings.Repeat("word ", 3000)))
	p.strand(0, "run", "--script", script, "one")
	p.strand(0, "run", "--script", script, "--continue", "two")
	segments, err := filepath.Glob(filepath.Join(p.store, "sessions", "*", "0*.jsonl"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	last := segments[len(segments)-1]
	log, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	// The first record that no mark says to be on disk; what is behind it is whole. Where the marks are depends on the machine.
	mark := 0
	for _, m := range regexp.MustCompile(`"synced":(\d+)`).FindAllSubmatch(log, -1) {
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		mark = max(mark, n)
	}
	begin := bytes.Index(log, fmt.Appendf(nil, `{"seq":%d,`, mark+1))
	if begin < 0 {
		t.Fatalf("no record above the mark %d", mark)
	}
	log[begin+bytes.IndexByte(log[begin:], '\n')/2] ^= 1
	if err := os.WriteFile(last, log, 0o600); err != nil {
		t.Fatal(err)
	}
	r := p.strand(0, "compact", "last", "--json", "--script", p.file("sum.jsonl", `{"purpose":"compaction","text":"all that was said"}`))
	if !strings.HasPrefix(r.out, `{"outcome":`) || strings.Count(r.out, "\n") != 1 {
		t.Errorf("not one object: %.300q", r.out)
	}
	if log := p.strand(0, "show", "last", "--events").out; !strings.Contains(log, `"type":"session/lost"`) {
		t.Error("no record was lost")
	}
}
