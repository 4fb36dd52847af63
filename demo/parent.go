package demo

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Claim is something that the demonstration shows, checked.
type Claim struct {
	Name string        `json:"claim"`
	Text string        `json:"text"` // for a person
	Seqs []session.Seq `json:"seqs"` // the events that it is about
}

// Account is what the demonstration showed. All of it is true: what does not hold is an error instead.
type Account struct {
	OK      bool       `json:"ok"`
	Session session.ID `json:"session"`
	Fork    session.ID `json:"fork"`
	Claims  []Claim    `json:"claims"`
	Dir     string     `json:"dir,omitzero"` // where everything is, if it was kept
	Millis  int64      `json:"ms"`
}

// Options say how the demonstration runs.
type Options struct {
	// Command starts this program as a child that calls Child with a directory, a part and an id, which may be "".
	Command func(ctx context.Context, dir string, part Part, id session.ID) (*exec.Cmd, error)
	Keep    bool        // leave the directory
	Tell    func(Claim) // called with each claim when it is proven; may be nil
}

// Run runs the demonstration. It cleans up after itself, also after an error.
func Run(ctx context.Context, o Options) (_ *Account, err error) {
	begun := time.Now()
	dir, err := os.MkdirTemp("", "strand-demo-")
	if err != nil {
		return nil, err
	}
	r := &run{o: o, dir: dir, out: &Account{Claims: []Claim{}}}
	if o.Keep {
		r.out.Dir = dir
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	defer r.endDeployment()
	if err := prepare(dir); err != nil {
		return nil, err
	}
	if r.a, err = app.Open(app.Options{Store: filepath.Join(dir, storeDir), Kinds: [][]session.Kind{Kinds()}}); err != nil {
		return nil, err
	}
	defer r.a.Close()
	for _, step := range []func(context.Context) error{r.killed, r.left, r.goesOn, r.killedCompacting, r.compacts, r.forks, r.healthy} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r.out.OK, r.out.Millis = true, time.Since(begun).Milliseconds()
	return r.out, nil
}

// run is one demonstration on its way.
type run struct {
	o     Options
	dir   string
	a     *app.App
	out   *Account
	acked []report // events that the killed child said were safe
	call  session.Seq
	start session.Seq // of the killed child's bracket
	end   session.Seq // stored events after the kill
	view  []byte      // before the compaction
}

func (r *run) claim(name string, seqs []session.Seq, format string, args ...any) {
	c := Claim{name, fmt.Sprintf(format, args...), seqs}
	r.out.Claims = append(r.out.Claims, c)
	if r.o.Tell != nil {
		r.o.Tell(c)
	}
}

// must is the check of a claim.
func must(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("this does not hold: "+format, args...)
}

// child starts this program again and hands its reports to each until that returns false. It returns when the
// child has ended: by itself, or killed because each said so.
func (r *run) child(ctx context.Context, part Part, each func(report, *os.Process) (bool, error)) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	cmd, err := r.o.Command(ctx, r.dir, part, r.out.Session)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	more, err := true, error(nil)
	in := bufio.NewReader(out)
	for more && err == nil {
		var line []byte
		if line, err = in.ReadBytes('\n'); err != nil {
			break
		}
		var p report
		if err = json.Unmarshal(line, &p); err == nil {
			more, err = each(p, cmd.Process)
		}
	}
	if !more || err != nil && !errors.Is(err, io.EOF) {
		_ = cmd.Process.Kill()
	}
	rest, _ := io.ReadAll(in) // reports that were on their way
	for line := range bytes.Lines(rest) {
		var p report
		if !more && err == nil && json.Unmarshal(line, &p) == nil && p.Seq >= 0 {
			r.acked = append(r.acked, p)
		}
	}
	werr := cmd.Wait()
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case more && werr != nil:
		return fmt.Errorf("the child failed: %w: %s", werr, strings.TrimSpace(said.String()))
	case !more && cmd.ProcessState.Success():
		return errors.New("the child ended before it was killed")
	}
	return nil
}

// killed: the first child works and is killed while a tool runs.
func (r *run) killed(ctx context.Context) error {
	var pid int
	var live *app.Inspection
	defer func() {
		if live != nil {
			live.Close()
		}
	}()
	r.call, r.start = session.None, session.None
	err := r.child(ctx, PartWork, func(p report, proc *os.Process) (bool, error) {
		switch {
		case p.Session != "":
			r.out.Session, pid = p.Session, proc.Pid
		case p.Seq >= 0:
			r.acked = append(r.acked, p)
			switch {
			case p.Type == TypeStart:
				r.start = p.Seq
			case p.Type == session.TypeToolCall:
				r.call = p.Seq // the last one is the deployment
			}
		case strings.Contains(p.Shown, deploying):
			var err error
			live, err = r.a.Inspect(ctx, r.out.Session, nil) // the child holds it and works
			return false, err
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if live == nil {
		return errors.New("the child never got to its deployment")
	}
	calls, brackets := live.OpenCalls(), live.Brackets()
	if err := errors.Join(
		must(live.Stat.Holder != nil && live.Stat.Holder.PID == pid, "the holder is named as pid %d", pid),
		must(len(calls) == 1 && calls[0].State == app.CallRunning && calls[0].Seq == r.call, "one call runs, of seq %d: %v", r.call, calls),
		must(len(brackets) == 1 && brackets[0].State == session.BracketLive && brackets[0].Seq == r.start, "the bracket of seq %d is live: %v", r.start, brackets),
	); err != nil {
		return err
	}
	r.claim("running", []session.Seq{r.start, r.call},
		"A child process (pid %d) began session %s, opened the bracket demo/start (seq %d), fixed a file and started to deploy (seq %d).\n"+
			"While it worked, another process could see: held by pid %d, bracket live, call running.", pid, r.out.Session, r.start, r.call, pid)
	return nil
}

// left: what the killed process left behind, seen without touching it.
func (r *run) left(ctx context.Context) error {
	hash, err := hashTree(filepath.Join(r.dir, storeDir, "sessions"))
	if err != nil {
		return err
	}
	ins, err := r.a.Inspect(ctx, r.out.Session, nil)
	if err != nil {
		return err
	}
	defer ins.Close()
	r.end = ins.State.Next()
	for _, p := range r.acked {
		ev, err := ins.Prefix.At(p.Seq)
		if err != nil {
			return fmt.Errorf("the event of seq %d was reported as safe and is gone: %w", p.Seq, err)
		}
		if err := must(string(app.AppendEvent(nil, ev)) == p.Event, "the event of seq %d is what it was", p.Seq); err != nil {
			return err
		}
	}
	r.claim("kept", []session.Seq{0, r.end - 1},
		"Then it was killed with SIGKILL. Its log has %d events; all %d that it had reported as safe are there, byte for byte.", r.end, len(r.acked))

	calls, brackets := ins.OpenCalls(), ins.Brackets()
	view, err := ins.View("script")
	if err != nil {
		return err
	}
	last := view[len(view)-1]
	if err := errors.Join(
		must(ins.Stat.Holder == nil, "nobody holds the session"),
		must(len(brackets) == 1 && brackets[0].State == session.BracketDead, "the bracket is dead: %v", brackets),
		must(len(calls) == 1 && calls[0].State == app.CallUnknown, "the call's outcome is unknown: %v", calls),
		must(strings.Contains(last.PlainText(), "outcome is not known"), "the model is told so: %q", last.PlainText()),
	); err != nil {
		return err
	}
	r.claim("judged", []session.Seq{r.start, r.call},
		"The same bytes now read: the bracket of seq %d is dead, for nobody holds its session; the call of seq %d was started and its outcome is unknown.", r.start, r.call)

	if _, err := r.a.List(ctx, app.ListQuery{}); err != nil {
		return err
	}
	again, err := hashTree(filepath.Join(r.dir, storeDir, "sessions"))
	if err := errors.Join(err, must(hash == again, "looking changed no byte")); err != nil {
		return err
	}
	r.claim("untouched", nil, "Looking at all this changed no byte of the store.")
	return nil
}

// goesOn: a new process picks the session up and finishes.
func (r *run) goesOn(ctx context.Context) error {
	var found report
	done := false
	err := r.child(ctx, PartGoOn, func(p report, _ *os.Process) (bool, error) {
		if p.Session != "" {
			found = p
		}
		done = done || p.Done
		return true, nil
	})
	if err != nil {
		return err
	}
	ins, err := r.a.Inspect(ctx, r.out.Session, nil)
	if err != nil {
		return err
	}
	defer ins.Close()
	boundary, result, err := r.pickup(ins)
	if err != nil {
		return err
	}
	brackets := ins.Brackets()
	deploys, derr := os.ReadFile(filepath.Join(r.dir, workDir, deployLog))
	script, serr := os.ReadFile(filepath.Join(r.dir, workDir, scriptName))
	if err := errors.Join(derr, serr,
		must(done, "the second child finished"),
		must(found.Bracket == session.BracketDead && found.FirstLive == boundary, "it found a dead bracket below its first seq %d: %+v", boundary, found),
		must(string(deploys) == "v1\n", "the deployment happened once: %q", deploys),
		must(string(script) == after, "the file is fixed: %q", script),
		must(len(ins.OpenCalls()) == 0, "no call is open"),
		must(len(brackets) == 2 && brackets[0].State == session.BracketDead && brackets[1].State == session.BracketClosed, "the old bracket is dead, the new one closed: %v", brackets),
	); err != nil {
		return err
	}
	r.claim("resumed", []session.Seq{result, boundary},
		"A new process picked it up at once. The call got its result in the log (seq %d, TOOL_OUTCOME_UNKNOWN) and was not run again;\n"+
			"the boundary session/inherited (seq %d) tells this life from the one before, so the old bracket locks nobody out.", result, boundary)
	r.claim("finished", []session.Seq{brackets[1].Seq, *brackets[1].Close},
		"The agent looked first (deploys.log has one line), finished the task in a bracket of its own (seq %d to %d), and ended its turn.", brackets[1].Seq, *brackets[1].Close)
	return nil
}

// pickup finds the boundary and the result that the interrupted call got.
func (r *run) pickup(ins *app.Inspection) (boundary, result session.Seq, err error) {
	boundary, result = ins.State.LastBoundary(), session.None
	for ev, err := range ins.Prefix.Range(r.end, ins.Prefix.Len()) {
		if err != nil {
			return boundary, result, err
		}
		switch it := session.Project(ev); {
		case it.Code == session.CodeOutcomeUnknown && ev.Seq < boundary:
			result = ev.Seq
			err = must(ev.Sources.Has(r.call), "the result cites the call of seq %d", r.call)
		case ev.Type == session.TypeToolCall:
			d, derr := session.DecodeData[session.ToolCall](ev)
			err = errors.Join(derr, must(!strings.Contains(d.Arguments, pidFile), "the deployment was not started again"))
		}
		if err != nil {
			return boundary, result, err
		}
	}
	return boundary, result, must(result != session.None && boundary >= r.end, "there is a result and a boundary behind seq %d", r.end)
}

// forks: a fork is a pointer.
func (r *run) forks(ctx context.Context) error {
	dir := filepath.Join(r.dir, storeDir, "sessions")
	hash, err := hashTree(filepath.Join(dir, string(r.out.Session)))
	if err != nil {
		return err
	}
	f, err := r.a.Fork(ctx, r.out.Session, nil)
	if err != nil {
		return err
	}
	r.out.Fork = f.ID
	again, err := hashTree(filepath.Join(dir, string(r.out.Session)))
	if err != nil {
		return err
	}
	parent, err := r.a.Inspect(ctx, r.out.Session, nil)
	if err != nil {
		return err
	}
	defer parent.Close()
	child, err := r.a.Inspect(ctx, f.ID, nil)
	if err != nil {
		return err
	}
	defer child.Close()
	a, err1 := parent.View("script")
	b, err2 := child.View("script")
	ja, err3 := json.Marshal(a)
	jb, err4 := json.Marshal(b)
	size := child.Stat.Bytes
	if err := errors.Join(err1, err2, err3, err4,
		must(hash == again, "the fork changed no byte of its parent"),
		must(bytes.Equal(ja, jb), "the model sees the same in both"),
		must(child.State.LastBoundary() == f.Seq+1, "the fork begins with a boundary at seq %d", f.Seq+1),
		must(size < 8<<10 && size < parent.Stat.Bytes, "the fork needs few bytes: %d", size),
	); err != nil {
		return err
	}
	r.claim("forked", []session.Seq{f.Seq, f.Seq + 1},
		"Fork %s shares everything up to seq %d and goes on for itself from seq %d; it takes %d bytes, its parent %d, and the parent was not touched.",
		f.ID, f.Seq, f.Seq+1, size, parent.Stat.Bytes)
	return nil
}

// healthy: every sum and link is right.
func (r *run) healthy(ctx context.Context) error {
	for _, id := range []session.ID{r.out.Session, r.out.Fork} {
		h, err := r.a.Doctor(ctx, id)
		if err := errors.Join(err, h.Err(), must(h.State == store.StateOK || h.State == store.StateTorn, "%s is healthy: %s", id, h.State)); err != nil {
			return err
		}
	}
	r.claim("healthy", nil, "Every sum and every link of both sessions is right.")
	return nil
}

// hashTree returns one value for the names and bytes of all files below dir.
func hashTree(dir string) (string, error) {
	var lines []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(d.Name(), "index.db") { // derived
			return err
		}
		b, err := os.ReadFile(p)
		lines = append(lines, fmt.Sprintf("%s %x", p, sha256.Sum256(b)))
		return err
	})
	slices.Sort(lines)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(lines, "\n")))), err
}
