package scenario

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestChildOutlivesTheHarness: what a tool left in the background runs on when the harness is killed. It has none
// of the harness's descriptors, so the session opens at once.
func TestChildOutlivesTheHarness(t *testing.T) {
	b := newBox(t)
	said, gate := b.fifo("said"), b.fifo("gate")
	p := b.start(b.runArgs("leave something", []line{
		use(bash("echo first")),
		use(bash("sleep 600 >/dev/null 2>&1 & echo $! > " + said + "; read x < " + gate)),
	}, "--output", "stream-json")...)
	child := b.hear(said)
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	p.kill()
	p.wait()
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the child is gone, so this shows nothing: %v", err)
	}
	if runtime.GOOS == "linux" {
		fds, err := filepath.Glob("/proc/" + strconv.Itoa(child) + "/fd/*")
		if err != nil || len(fds) == 0 {
			t.Fatalf("the child's descriptors cannot be listed: %v", err)
		}
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); strings.HasPrefix(to, b.store) {
				t.Errorf("the child has %s open", to)
			}
		}
	}
	id := b.sessionIDs()[0]
	if st := b.stat(id); st.Holder != nil {
		t.Errorf("the session is held by %+v", st.Holder)
	}
	if r := b.run("next", []line{say("I am in")}, "--session", id); r.Text != "I am in" {
		t.Errorf("the next writer got %+v", r)
	}
	if err := syscall.Kill(child, 0); err != nil {
		t.Errorf("the child did not live as long: %v", err)
	}
}
