//go:build linux || darwin

package keeper_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// A process is stopped (SIGSTOP) at each call that it makes to have two events written and acknowledged, and where it is about to
// say that they are. Meanwhile another process goes on with the session; the files that carry the locks are
// made anew for that. Then the first wakes up.

const stoppedEnv = "STRANDLINE_KEEPER_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(stoppedEnv) == "" {
		os.Exit(m.Run())
	}
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			os.Exit(0)
		}
		if err := stopping(in, strings.Fields(line)); err != nil {
			fmt.Println("failed", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		fmt.Println("end")
	}
}

// unsynced is the machine's file system without its syncs: nobody loses power here.
func unsynced() vfs.FS {
	return vfs.Around(vfs.OS(), func(c *vfs.Call, do func() error) error {
		switch c.Op {
		case vfs.OpSync, vfs.OpSyncData, vfs.OpSyncDir:
			return nil
		}
		return do()
	})
}

// stopping is the life of the process that is stopped: before its at-th call, or, if it makes less, before it
// acknowledges. It tells what it believes: the calls (at 0), its events, how many are acknowledged, how it ended.
func stopping(in *bufio.Reader, args []string) error {
	ctx := context.Background()
	root, stage := args[0], args[1]
	at, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	armed, stopped, calls := false, false, 0 // used by one goroutine at a time: the drainer's calls lie within the flush
	stop := func() {
		stopped = true
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		in.ReadString('\n') // the signal may take effect a little later
	}
	o := filestore.Options{Now: time.Now, Rand: rand.Reader, Host: "here", Program: "stopped", PID: os.Getpid()}
	if stage == "roll" {
		o.SegmentBytes = 100
	}
	o.FS = vfs.Around(unsynced(), func(c *vfs.Call, do func() error) error {
		if armed {
			calls++
			if calls == at {
				stop()
			}
			if at == 0 {
				what := filepath.Base(c.Name)
				if strings.HasPrefix(what, ".seg-") {
					what = "its file"
				}
				fmt.Println("call", c.Op, what)
			}
		}
		return do()
	})
	st, err := filestore.Open(root, o)
	if err != nil {
		return err
	}
	defer st.Close()
	h, err := start(st).Resume(ctx, "abcd")
	if err != nil {
		return err
	}
	s, acked := h.Session(), session.Seq(0)
	save := func(titles ...string) error {
		for _, title := range titles[1:] {
			if _, err := s.AppendAll(nil, titled(titles[0]), titled(title)); err != nil {
				return err
			}
		}
		if err := h.Flush(ctx); err != nil {
			return err
		}
		acked = s.Len()
		return nil
	}
	if stage != "first" {
		if err := save("early", "earlier"); err != nil {
			return err
		}
	}
	before := acked
	armed = true
	err = save("one", "two")
	armed = false
	if !stopped && at > 0 {
		stop()
	}
	if err == nil {
		err = save("three", "four")
	}
	for ev, err := range s.Events().Range(0, s.Len()) {
		if err != nil {
			return err
		}
		fmt.Println("event", ev.Seq, string(ev.Data))
	}
	fmt.Println("acked", before, acked)
	var fenced *store.FencedError
	switch {
	case errors.As(err, &fenced):
		fmt.Println("fenced", fenced.SavedAs)
		err = nil
	case err == nil:
		fmt.Println("ok")
	}
	if derr := h.Dispose(ctx); derr != nil && !errors.Is(derr, store.ErrFenced) {
		err = errors.Join(err, derr)
	}
	return err
}

// sleeper is the process that is stopped.
type sleeper struct {
	cmd *exec.Cmd
	in  interface{ Write([]byte) (int, error) }
	out *bufio.Scanner
}

func startSleeper(t *testing.T) *sleeper {
	t.Helper()
	c := &sleeper{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), stoppedEnv+"=1")
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		c.in, err = c.cmd.StdinPipe()
	}
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	return c
}

// begin returns when the process is stopped at that call.
func (c *sleeper) begin(t *testing.T, root, stage string, at int) {
	t.Helper()
	fmt.Fprintln(c.in, root, stage, at)
	if at == 0 {
		return
	}
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(c.cmd.Process.Pid, &ws, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || !ws.Stopped() {
			t.Fatalf("the process did not stop: %v, %v", err, ws)
		}
		return
	}
}

func (c *sleeper) wake() {
	c.cmd.Process.Signal(syscall.SIGCONT)
	fmt.Fprintln(c.in, "go on")
}

// told is what it said in the end.
type told struct {
	calls         []string
	events        []string
	before, acked int // events that were acknowledged before it slept, and at all
	fenced        bool
	savedAs       session.ID
}

func (c *sleeper) tells(t *testing.T) (r told) {
	t.Helper()
	for c.out.Scan() {
		what, rest, _ := strings.Cut(c.out.Text(), " ")
		switch what {
		case "call":
			r.calls = append(r.calls, rest)
		case "event":
			seq, data, _ := strings.Cut(rest, " ")
			if seq != fmt.Sprint(len(r.events)) {
				t.Fatalf("event %s is the %d-th", seq, len(r.events))
			}
			r.events = append(r.events, data)
		case "acked":
			fmt.Sscan(rest, &r.before, &r.acked)
		case "fenced":
			r.fenced, r.savedAs = true, session.ID(rest)
		case "failed":
			t.Errorf("the process that slept: %s", rest)
		case "end":
			return r
		}
	}
	t.Fatal("the process that slept is gone")
	return r
}

// others are what another process does meanwhile. Each returns what it has to do when the first is awake again.
var others = []struct {
	name  string
	apart bool // it makes the files anew, so the first one must find that it is not the owner any more
	do    func(t *testing.T, st *filestore.Store, dir string) (then func())
}{
	{"appends", true, func(t *testing.T, st *filestore.Store, dir string) func() {
		w := force(t, st, dir)
		more(t, w, "theirs")
		return func() {
			more(t, w, "still theirs") // nobody was hurt
			w.Close()
		}
	}},
	{"forks", false, func(t *testing.T, st *filestore.Store, dir string) func() {
		if _, err := start(st).Fork(t.Context(), "abcd", store.ForkOptions{Child: "fork"}); err != nil {
			t.Fatal(err)
		}
		want := stored(t, st, "fork")
		return func() { whole(t, st, "fork", texts(want)) }
	}},
	{"repairs", true, func(t *testing.T, st *filestore.Store, dir string) func() {
		list, _ := filepath.Glob(filepath.Join(dir, "*.json*"))
		for _, f := range list {
			copyOver(t, f)
		}
		first := filepath.Join(dir, "00000000000000000000.jsonl")
		b, err := os.ReadFile(first)
		if err == nil {
			err = os.WriteFile(first, []byte(strings.Replace(string(b), `"first":0`, `"first":9`, 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := st.Repair(t.Context(), "abcd", false); err != nil || rep.Damage == nil || rep.Lost != nil {
			t.Fatalf("repair: %+v %v", rep, err)
		}
		return func() {}
	}},
	{"packs", true, func(t *testing.T, st *filestore.Store, dir string) func() {
		force(t, st, dir).Close()
		if p, err := st.Pack(t.Context(), "abcd"); err != nil || p.After >= p.Before {
			t.Fatalf("pack: %+v %v", p, err)
		}
		return func() {}
	}},
	{"appends and packs", true, func(t *testing.T, st *filestore.Store, dir string) func() {
		w := force(t, st, dir)
		more(t, w, "theirs")
		w.Close()
		if p, err := st.Pack(t.Context(), "abcd"); err != nil || p.After >= p.Before {
			t.Fatalf("pack: %+v %v", p, err)
		}
		return func() {}
	}},
}

// oldSegments are there when the first process begins.
const oldSegments = 3

// force opens the session, with as many files made anew as it takes.
func force(t *testing.T, st *filestore.Store, dir string) store.Writer {
	t.Helper()
	if _, err := st.Open(t.Context(), "abcd"); !errors.Is(err, store.ErrBusy) {
		t.Fatalf("open while the first has it: %v", err)
	}
	copyOver(t, filepath.Join(dir, "session.json"))
	if list, _ := filepath.Glob(filepath.Join(dir, "*.jsonl")); len(list) > oldSegments { // the first one has locked its own
		for _, f := range list {
			copyOver(t, f)
		}
	}
	w, err := st.Open(t.Context(), "abcd")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// more appends an event and has it acknowledged.
func more(t *testing.T, w store.Writer, title string) {
	t.Helper()
	n := w.Stored().Len()
	ev := session.Event{Seq: n, Time: 1, Type: session.TypeTitle, Data: []byte(fmt.Sprintf(`{"title":%q,"source":"user"}`, title))}
	_, err := w.Append(t.Context(), []session.Event{ev})
	if err == nil {
		_, err = w.Flush(t.Context())
	}
	if err != nil {
		t.Errorf("who went on: %v", err)
	}
}

func texts(evs []session.Event) (out []string) {
	for _, ev := range evs {
		out = append(out, string(ev.Data))
	}
	return out
}

// whole checks that a session is healthy and begins with want, and returns its events.
func whole(t *testing.T, st *filestore.Store, id session.ID, want []string) []string {
	t.Helper()
	v, err := st.Verify(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if len(v.Damage) > 0 || v.Lost != nil {
		t.Errorf("%s: damage %+v, lost %v", id, v.Damage, v.Lost)
	}
	got := texts(stored(t, st, id))
	for i, text := range want {
		if i >= len(got) || got[i] != text {
			t.Errorf("%s does not have event %d, %s, but has %d: %q", id, i, text, len(got), got[min(i, len(got)):])
			break
		}
	}
	return got
}

// TestStopped tries every point, each with who appends meanwhile and, in turn, one who does something else; with
// STRANDLINE_STOPS=all with everybody.
func TestStopped(t *testing.T) {
	base := t.TempDir()
	st := files(t, base, unsynced())
	crash(t, st, "abcd")
	for range oldSegments - 1 { // so that there is something to pack
		k := start(st)
		h := resume(t, k, "abcd")
		put(t, h.Session(), titled("old"))
		dispose(t, h)
	}
	c := startSleeper(t)
	root := func() string {
		dir := filepath.Join(t.TempDir(), "s")
		if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cases, fenced, saved := 0, 0, 0
	for _, stage := range []string{"first", "later", "roll"} {
		c.begin(t, root(), stage, 0)
		calls := c.tells(t).calls
		if len(calls) < 5 {
			t.Fatalf("%s: %q", stage, calls)
		}
		for at := 1; at <= len(calls)+1; at++ {
			point := "the acknowledgement"
			if at <= len(calls) {
				point = calls[at-1]
			}
			for i, other := range others {
				if i > 0 && i != 1+at%(len(others)-1) && os.Getenv("STRANDLINE_STOPS") != "all" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d %s/%s", stage, at, point, other.name), func(t *testing.T) {
					root := root()
					st := files(t, root, unsynced())
					c.begin(t, root, stage, at)
					then := other.do(t, st, filepath.Join(root, "sessions", "abcd"))
					acked := texts(stored(t, st, "abcd"))
					c.wake()
					r := c.tells(t)
					then()
					if r.fenced != other.apart {
						t.Errorf("fenced: %v", r.fenced)
					}
					if other.name != "forks" {
						whole(t, st, "abcd", acked) // what the other found and wrote
					}
					log := whole(t, st, "abcd", r.events[:r.acked])
					if !r.fenced && r.acked != len(r.events) {
						t.Errorf("%d of %d acknowledged", r.acked, len(r.events))
					}
					in := log
					if r.savedAs != "" {
						saved++
						in = whole(t, st, r.savedAs, nil)
					}
					for seq, text := range r.events {
						if seq >= len(in) || in[seq] != text {
							t.Errorf("event %d, %s, is neither in the log nor in the fork (%q)", seq, text, r.savedAs)
						}
					}
					cases++
					if r.fenced {
						fenced++
					}
				})
				if t.Failed() {
					return
				}
			}
		}
	}
	if saved == 0 {
		t.Error("nobody had anything to save")
	}
	t.Logf("%d cases, %d fenced, %d of them saved a fork", cases, fenced, saved)
}
