package scenario

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// dirVar names the directory in which boxes are made.
const dirVar = "STRANDLINE_SCENARIO_DIR"

// patience is how long a child may take before a test calls it hung. No outcome depends on it.
const patience = 2 * time.Minute

// box is a fresh place for one scenario: a store, a workspace, and a directory outside both.
type box struct {
	t                   testing.TB
	dir, store, ws, out string
	tmp                 string // of the processes: what they keep there goes with the box
	scripts             int
}

// newBox makes a box on a file system in memory, if there is one: what is killed and read again needs no
// disk that syncs. dirVar names another place.
func newBox(t testing.TB) *box {
	t.Helper()
	parent := os.Getenv(dirVar)
	if info, err := os.Stat("/dev/shm"); parent == "" && err == nil && info.IsDir() {
		parent = "/dev/shm"
	}
	dir, err := os.MkdirTemp(parent, "strand-box-")
	if err != nil {
		dir = t.TempDir()
	}
	var b *box
	t.Cleanup(func() {
		b.readEverything()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	b = &box{t: t, dir: dir, tmp: t.TempDir()}
	if err := os.Chmod(b.tmp, 0o777); err != nil { // some run as another user
		t.Fatal(err)
	}
	b.store, b.ws, b.out = filepath.Join(b.dir, "store"), filepath.Join(b.dir, "ws"), filepath.Join(b.dir, "out")
	for _, d := range []string{b.ws, b.out} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// withStore is the same box with another store directory.
func (b *box) withStore(dir string) *box {
	c := *b
	c.store = dir
	return &c
}

// line is one reply of a scripted model.
type line struct {
	Text      string `json:"text,omitzero"`
	Reasoning string `json:"reasoning,omitzero"`
	ToolCalls []call `json:"toolCalls,omitzero"`
	DelayMs   int    `json:"delayMs,omitzero"`
	ChunkMs   int    `json:"chunkMs,omitzero"`
	Hang      bool   `json:"hang,omitzero"`
	Purpose   string `json:"purpose,omitzero"`
	Usage     *usage `json:"usage,omitzero"`

	Fault     string   `json:"fault,omitzero"`
	Error     *failure `json:"error,omitzero"`
	HeadersMs int      `json:"headersMs,omitzero"`
	PingMs    int      `json:"pingMs,omitzero"`
}

type usage struct {
	InputTokens  int `json:"inputTokens"`
	OutputTokens int `json:"outputTokens"`
}

// failure is an error of a model service.
type failure struct {
	Code         string `json:"code,omitzero"`
	Status       int    `json:"status,omitzero"`
	Message      string `json:"message,omitzero"`
	RetryAfterMs int    `json:"retryAfterMs,omitzero"`
	InStream     bool   `json:"inStream,omitzero"`
	HTML         bool   `json:"html,omitzero"`
}

type call struct {
	Name      string `json:"name"`
	Arguments any    `json:"arguments"`
}

func say(text string) line { return line{Text: text} }

func use(calls ...call) line { return line{ToolCalls: calls} }

func bash(command string) call { return call{"bash", map[string]string{"command": command}} }

func write(path, content string) call {
	return call{"write", map[string]string{"path": path, "content": content}}
}

func read(path string) call { return call{"read", map[string]string{"path": path}} }

// script writes a script file and returns its name.
func (b *box) script(lines ...line) string {
	b.t.Helper()
	var buf bytes.Buffer
	for _, l := range lines {
		j, err := json.Marshal(l)
		if err != nil {
			b.t.Fatal(err)
		}
		buf.Write(append(j, '\n'))
	}
	b.scripts++
	name := filepath.Join(b.dir, fmt.Sprintf("script-%d.jsonl", b.scripts))
	if err := os.WriteFile(name, buf.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return name
}

// result is what a finished command left.
type result struct {
	args     []string
	out, err string
	code     int // -1: killed
	took     time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("strand %s\nexit %d after %v\nstdout: %s\nstderr: %s", strings.Join(r.args, " "), r.code, r.took,
		clip(r.out), clip(r.err))
}

func clip(s string) string {
	if len(s) > 3000 {
		return s[:1500] + "\n[..]\n" + s[len(s)-1500:]
	}
	return s
}

func (b *box) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, append(args, "--store", b.store)...)
	cmd.Dir = b.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "TMPDIR=" + b.tmp, "LANG=C.UTF-8"}
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// strand runs the command to its end.
func (b *box) strand(args ...string) result { return b.strandIn("", args...) }

// strandIn is strand with something to read on stdin.
func (b *box) strandIn(stdin string, args ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := b.command(ctx, args...)
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	return b.finish(ctx, cmd)
}

func (b *box) finish(ctx context.Context, cmd *exec.Cmd) result {
	b.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err := cmd.Run()
	r := result{args: cmd.Args[1:], out: out.String(), err: errs.String(), took: time.Since(start)}
	if cmd.ProcessState == nil {
		b.t.Fatalf("cannot start %v: %v", cmd.Args, err)
	}
	r.code = cmd.ProcessState.ExitCode()
	if ctx.Err() != nil {
		b.t.Fatalf("the command hangs: %v", r)
	}
	if strings.Contains(r.err, "goroutine ") || strings.Contains(r.err, "panic:") {
		b.t.Errorf("the command panicked: %v", r)
	}
	return r
}

// ok is strand for a command that must succeed.
func (b *box) ok(args ...string) result {
	b.t.Helper()
	r := b.strand(args...)
	if r.code != 0 {
		b.t.Fatalf("want success: %v", r)
	}
	return r
}

// runResult is what `run --output json` prints.
type runResult struct {
	SessionID string         `json:"sessionId"`
	Turn      int            `json:"turn"`
	Reason    jsontext.Value `json:"reason"`
	Text      string         `json:"text"`
	Steps     int            `json:"steps"`
	ToolCalls int            `json:"toolCalls"`
	FirstSeq  int64          `json:"firstSeq"`
	LastSeq   int64          `json:"lastSeq"`
}

// run runs one prompt to its end and wants it to succeed.
func (b *box) run(prompt string, lines []line, args ...string) runResult {
	b.t.Helper()
	r := b.ok(b.runArgs(prompt, lines, append([]string{"--output", "json"}, args...)...)...)
	return decode[runResult](b.t, r.out)
}

func (b *box) runArgs(prompt string, lines []line, args ...string) []string {
	b.t.Helper()
	return append([]string{"run", prompt, "--script", b.script(lines...), "--cwd", b.ws, "--approve", "yolo"}, args...)
}

func decode[T any](t testing.TB, s string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("not the JSON that was promised: %v\n%s", err, clip(s))
	}
	return v
}

func decodeLines[T any](t testing.TB, s string) []T {
	t.Helper()
	var out []T
	for l := range strings.Lines(s) {
		out = append(out, decode[T](t, l))
	}
	return out
}

// proc is a running command whose output is read line by line.
type proc struct {
	t      testing.TB
	cmd    *exec.Cmd
	lines  chan string // whole lines; closed at the end of the output
	errs   *bytes.Buffer
	killed atomic.Bool
	timer  *time.Timer
	seen   []string
}

// start starts the command.
func (b *box) start(args ...string) *proc {
	b.t.Helper()
	return startCmd(b.t, b.command(context.Background(), args...))
}

func startCmd(t testing.TB, cmd *exec.Cmd) *proc {
	t.Helper()
	p := &proc{t: t, cmd: cmd, lines: make(chan string, 1<<16), errs: &bytes.Buffer{}}
	if cmd.Stderr == nil { // else whoever set it reads it
		cmd.Stderr = p.errs
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		in := bufio.NewReader(out)
		for {
			l, err := in.ReadString('\n')
			if err == nil {
				p.lines <- strings.TrimSuffix(l, "\n")
				continue
			}
			_, _ = io.Copy(io.Discard, out)
			close(p.lines)
			return
		}
	}()
	p.timer = time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			p.kill()
			p.wait()
		}
	})
	return p
}

// next returns the next line of output, false at its end.
func (p *proc) next() (string, bool) {
	l, ok := <-p.lines
	if ok {
		p.seen = append(p.seen, l)
	}
	return l, ok
}

// until reads lines up to one that contains text.
func (p *proc) until(text string) string {
	p.t.Helper()
	for {
		l, ok := p.next()
		if !ok {
			code := p.wait()
			p.t.Fatalf("the output of %v ended (exit %d) before %q came:\n%s\nstderr: %s", p.cmd.Args, code, text,
				clip(strings.Join(p.seen, "\n")), clip(p.errs.String()))
		}
		if strings.Contains(l, text) {
			return l
		}
	}
}

func (p *proc) kill() {
	p.killed.Store(true)
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
}

// wait drains the output, waits for the end and returns the exit code, -1 for a death by signal.
func (p *proc) wait() int {
	for {
		if _, ok := p.next(); !ok {
			break
		}
	}
	_ = p.cmd.Wait()
	p.timer.Stop()
	return p.cmd.ProcessState.ExitCode()
}

// spin burns n rounds: a delay that is not a time.
func spin(n int) {
	x := uint64(1)
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}

var sink atomic.Uint64

// copyTree copies a directory of files.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// snapshot is what lies below a directory: for each file and directory its mode, size, mtime and hash. The index of a
// store is left out: it is derived, and whoever lists writes it.
type snapshot map[string]string

func snap(t testing.TB, dir string) snapshot {
	t.Helper()
	out := snapshot{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if strings.HasPrefix(d.Name(), "index.db") {
			return nil
		}
		s := fmt.Sprintf("%v %d", info.Mode(), info.ModTime().UnixNano())
		if rel == "." {
			s = info.Mode().String()
		}
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			s += fmt.Sprintf(" %d %x", len(data), sha256.Sum256(data))
		}
		out[rel] = s
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return out
}

// diff tells what changed from s to u, "" if nothing did.
func (s snapshot) diff(u snapshot) string {
	var b strings.Builder
	for k, v := range s {
		switch w, ok := u[k]; {
		case !ok:
			fmt.Fprintf(&b, "gone: %s (%s)\n", k, v)
		case v != w:
			fmt.Fprintf(&b, "changed: %s\n  from %s\n  to   %s\n", k, v, w)
		}
	}
	for k, v := range u {
		if _, ok := s[k]; !ok {
			fmt.Fprintf(&b, "new: %s (%s)\n", k, v)
		}
	}
	return b.String()
}

// only keeps the entries below one of the prefixes.
func (s snapshot) only(prefixes ...string) snapshot {
	out := snapshot{}
	for k, v := range s {
		for _, p := range prefixes {
			if k == p || strings.HasPrefix(k, p+"/") {
				out[k] = v
			}
		}
	}
	return out
}
