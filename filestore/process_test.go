package filestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

const childEnv = "STRANDLINE_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		if err := child(what, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if benchRoot != "" {
		os.RemoveAll(benchRoot)
	}
	os.Exit(code)
}

// child holds the session of the store at root and appends until it is killed, or ("paced") once for
// each byte of its input. It prints each acknowledged seq.
func child(what, root string) error {
	if what == "pack" || what == "collect" {
		return killChild(what, root)
	}
	if what == "removal" {
		return dieAt(root)
	}
	if what == "history" {
		return historian()
	}
	o := testOptions()
	o.PID, o.Program, o.SegmentBytes = os.Getpid(), "child", 20000
	s, err := Open(root, o)
	if err != nil {
		return err
	}
	ctx := context.Background()
	w, err := s.Open(ctx, subject)
	if err != nil {
		return err
	}
	next := w.Opened().Pos.Next
	if what == "idle" {
		fmt.Println(next)
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	for n := 1; ; n = n%7 + 1 {
		if what == "paced" {
			if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
				return err
			}
		}
		if _, err := w.Append(ctx, events(next, n)); err != nil {
			return err
		}
		pos, err := w.Flush(ctx)
		if err != nil {
			return err
		}
		next = pos.Next
		fmt.Println(next)
	}
}

type proc struct {
	cmd *exec.Cmd
	out *bufio.Scanner
	in  io.WriteCloser
}

func startChild(t *testing.T, what, root string) *proc {
	t.Helper()
	cmd := exec.Command(os.Args[0], root)
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &proc{cmd, bufio.NewScanner(out), in}
	t.Cleanup(func() { p.kill() })
	return p
}

func (p *proc) kill() {
	p.cmd.Process.Kill()
	for p.out.Scan() {
	}
	p.cmd.Wait()
}

// step makes a paced child append, and returns what it acknowledged.
func (p *proc) step(t *testing.T) session.Seq {
	t.Helper()
	if _, err := p.in.Write([]byte{'.'}); err != nil {
		t.Fatal(err)
	}
	return p.next(t)
}

// next returns what the child acknowledged last.
func (p *proc) next(t *testing.T) session.Seq {
	t.Helper()
	if !p.out.Scan() {
		t.Fatal("the child said nothing")
	}
	n, err := strconv.Atoi(strings.TrimSpace(p.out.Text()))
	if err != nil {
		t.Fatal(err)
	}
	return session.Seq(n)
}

// P6: another process holds the session.
func TestTwoProcesses(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	newStored(t, s, subject, 10)
	p := startChild(t, "paced", root)
	p.step(t)
	for range 20 {
		_, err := s.Open(t.Context(), subject)
		var busy *store.BusyError
		if !errors.As(err, &busy) || busy.Holder == nil || busy.Holder.PID != p.cmd.Process.Pid || busy.Holder.Program != "child" {
			t.Fatalf("open: %v", err)
		}
		acked := p.step(t)
		if _, err := p.in.Write([]byte("...")); err != nil { // it goes on while we look
			t.Fatal(err)
		}
		got, snap := readEvents(t, s, subject)
		if session.Seq(len(got)) < acked || len(snap.Damage) > 0 || snap.Torn != nil || snap.Lost != nil {
			t.Fatalf("%d events of %d acknowledged: %+v", len(got), acked, snap)
		}
		wantEvents(t, got, events(0, len(got)))
		st := must[store.Stat](t)(s.Stat(t.Context(), subject))
		if st.Holder == nil || st.Holder.PID != p.cmd.Process.Pid || st.Base != 10 || st.Pos.Next < acked {
			t.Fatalf("stat: %+v", st)
		}
		// A fork of the live session, from here.
		h, err := forkHeader(t.Context(), s, session.ID(fmt.Sprint("fork-", acked)), acked-1)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CreateFork(t.Context(), h, events(acked, 1)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			p.next(t)
		}
	}
	p.kill()
	w, err := s.Open(t.Context(), subject)
	if err != nil {
		t.Fatalf("after the holder's death: %v", err)
	}
	n := w.Opened().Pos.Next
	mustAppend(t, w, events(n, 3))
	mustFlush(t, w)
	wantEvents(t, collect(t, w.Stored()), events(0, int(n)+3))
}

// A holder that has written nothing makes every open bracket dead.
func TestIdleHolder(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	newStored(t, s, subject, 10)
	before := tree(t, root)
	p := startChild(t, "idle", root)
	p.next(t)
	st := must[store.Stat](t)(s.Stat(t.Context(), subject))
	if st.Holder == nil || st.Holder.PID != p.cmd.Process.Pid || st.Base != 10 {
		t.Fatalf("stat: %+v", st)
	}
	if _, err := s.Open(t.Context(), subject); !errors.Is(err, store.ErrBusy) {
		t.Fatal(err)
	}
	p.kill()
	st = must[store.Stat](t)(s.Stat(t.Context(), subject))
	if st.Holder != nil { // its announcement is still there: nobody believes it
		t.Fatalf("stat after its death: %+v", st)
	}
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	w.Close()
	after := tree(t, root)
	for name := range after {
		if before[name] != after[name] {
			t.Fatalf("%s changed: %s, was %s", name, after[name], before[name])
		}
	}
}

// SIGKILL at random moments: what was acknowledged is there, and the next opens at once.
func TestKilled(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	if n, err := strconv.Atoi(os.Getenv("STRANDLINE_KILLS")); err == nil {
		rounds = n
	}
	var root string
	var s *Store
	for round := range rounds {
		if round%20 == 0 { // else the log grows and grows
			root = t.TempDir()
			s = openStore(t, root, nil)
			newStored(t, s, subject, 1)
		}
		p := startChild(t, "append", root)
		acked := session.Seq(0)
		for range 1 + round%5 {
			acked = p.next(t)
		}
		for range round % 7 * 3000 { // a moment that is not always the same
			os.Getppid()
		}
		p.cmd.Process.Kill()
		for p.out.Scan() {
			n, _ := strconv.Atoi(strings.TrimSpace(p.out.Text()))
			acked = max(acked, session.Seq(n))
		}
		p.cmd.Wait()
		start := time.Now()
		w, err := s.Open(t.Context(), subject)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		t.Logf("round %d: opened %d events in %v, torn %v", round, w.Opened().Pos.Next, time.Since(start), w.Opened().Torn != nil)
		got := collect(t, w.Opened().Prefix)
		if session.Seq(len(got)) < acked || w.Opened().Lost != nil {
			t.Fatalf("round %d: %d events, %d were acknowledged", round, len(got), acked)
		}
		wantEvents(t, got, events(0, len(got)))
		w.Close()
	}
}
