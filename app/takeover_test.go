//go:build unix

package app

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

const held = session.ID("held-session")

// hold makes the session held, in a store that says of itself what o says.
func hold(t testing.TB, root string, o filestore.Options) store.Writer {
	t.Helper()
	o.Now, o.Rand, o.Program = time.Now, rand.Reader, "holder"
	st, err := filestore.Open(root, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	w, err := st.Create(context.Background(), session.Header{Format: session.Format, ID: held, CreatedAt: 1, Kind: session.KindRoot, Cwd: "/"})
	if err == nil {
		_, err = w.Append(context.Background(), []session.Event{{Time: 1, Type: session.TypeTitle, Data: jsontext.Value(`{"title":"t","source":"user"}`)}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestHolderChild is not a test: it is the process that holds the session, until it is ended.
func TestHolderChild(t *testing.T) {
	root := os.Getenv("STRANDLINE_TEST_HOLD")
	if root == "" {
		t.Skip("only as a child")
	}
	host, _ := os.Hostname()
	hold(t, root, filestore.Options{Host: host, PID: os.Getpid(), ProcessStart: processStart()})
	os.Stdout.WriteString("holding\n")
	time.Sleep(time.Hour) // until a signal
}

func child(t *testing.T, root string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHolderChild$")
	cmd.Env = append(os.Environ(), "STRANDLINE_TEST_HOLD="+root)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for in := bufio.NewScanner(out); in.Scan(); {
		if in.Text() == "holding" {
			return cmd
		}
	}
	t.Fatal("the child does not hold it")
	return nil
}

// take opens the session as --take-over does.
func take(t *testing.T, root string, letGo time.Duration) error {
	t.Helper()
	a, err := Open(Options{Store: root, LetGo: letGo})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	return a.takingOver(t.Context(), true, func() error {
		w, err := a.Store.Open(t.Context(), held)
		if err == nil {
			err = w.Close()
		}
		return err
	})
}

func TestTakeOver(t *testing.T) {
	t.Run("it lets go", func(t *testing.T) {
		root := t.TempDir()
		cmd := child(t, root)
		if err := take(t, root, time.Minute); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGTERM {
			t.Errorf("the holder ended with %v", cmd.ProcessState)
		}
	})
	t.Run("it is stopped", func(t *testing.T) {
		root := t.TempDir()
		cmd := child(t, root)
		_ = cmd.Process.Signal(syscall.SIGSTOP)
		err := take(t, root, 3*letGoLook)
		no, ok := errors.AsType[*TakeOverError](err)
		if !ok || !errors.Is(err, store.ErrBusy) || !strings.Contains(no.Why, "asked to let go 75ms ago and has not") || !strings.Contains(no.Hint, "kill -9 ") {
			t.Fatal(err)
		}
		_ = cmd.Process.Signal(syscall.SIGCONT) // and now it hears it
		_ = cmd.Wait()
		if err := take(t, root, time.Minute); err != nil {
			t.Error(err)
		}
	})
	host, _ := os.Hostname()
	for name, tt := range map[string]struct {
		o    func(pid int) filestore.Options
		says string
	}{
		"another host": {func(pid int) filestore.Options {
			return filestore.Options{Host: "elsewhere", PID: pid, ProcessStart: startOf(pid)}
		}, "another machine, elsewhere"},
		"its pid was re-used":  {func(pid int) filestore.Options { return filestore.Options{Host: host, PID: pid, ProcessStart: "17"} }, "is not the one that took it"},
		"it has no start mark": {func(pid int) filestore.Options { return filestore.Options{Host: host, PID: pid} }, "is not the one that took it"},
		"this process": {func(int) filestore.Options {
			return filestore.Options{Host: host, PID: os.Getpid(), ProcessStart: processStart()}
		}, "it is this process"},
	} {
		t.Run(name, func(t *testing.T) {
			bystander := exec.Command("sleep", "1000")
			if err := bystander.Start(); err != nil {
				t.Skip(err)
			}
			root := t.TempDir()
			w := hold(t, root, tt.o(bystander.Process.Pid))
			err := take(t, root, time.Minute)
			if !errors.Is(err, store.ErrBusy) || !strings.Contains(err.Error(), tt.says) {
				t.Error(err)
			}
			_ = bystander.Process.Kill()
			_ = bystander.Wait()
			if ws, ok := bystander.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
				t.Errorf("somebody else was sent a signal: %v", bystander.ProcessState)
			}
			w.Close()
			if err := take(t, root, time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
}
