package scenario

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestP11_ReadOnlyStore: what cannot be written is read as ever, nothing comes into being in it, and who wants to go
// on is told in one sentence why not, and how.
func TestP11_ReadOnlyStore(t *testing.T) {
	root := os.Getuid() == 0
	t.Run("permission", func(t *testing.T) {
		uid := 0
		if root {
			uid = 65534
		}
		readOnlyStore(t, uid, "permission denied", func(b *box) {
			if root {
				readable(b, "")
				return
			}
			seal(t, b.store)
		})
	})
	t.Run("mount", func(t *testing.T) {
		if !root {
			t.Skip("skipped: a mount needs root")
		}
		readOnlyStore(t, 0, "read-only file system", func(b *box) {
			if out, err := exec.Command("mount", "--bind", b.store, b.store).CombinedOutput(); err != nil {
				t.Skipf("skipped: no mount here: %v %s", err, out)
			}
			t.Cleanup(func() {
				if out, err := exec.Command("umount", b.store).CombinedOutput(); err != nil {
					t.Errorf("umount: %v %s", err, out)
				}
			})
			if out, err := exec.Command("mount", "-o", "remount,ro,bind", b.store).CombinedOutput(); err != nil {
				t.Skipf("skipped: no read-only mount here: %v %s", err, out)
			}
		})
	})
}

// seal takes the permission to write from everything below dir, and gives it back in the end.
func seal(t *testing.T, dir string) {
	var dirs []string
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			dirs = append(dirs, p)
			return nil
		}
		return os.Chmod(p, 0o400)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, d := range dirs {
			_ = os.Chmod(d, 0o700)
		}
	})
	for _, d := range dirs {
		if err := os.Chmod(d, 0o500); err != nil {
			t.Fatal(err)
		}
	}
}

func readOnlyStore(t *testing.T, uid int, cause string, lock func(*box)) {
	b := newBox(t)
	first := b.run("count", []line{use(bash("seq 1 20000")), say("counted")})
	b.run("and again", []line{say("again")}, "--session", first.SessionID)
	other := b.run("another one", []line{say("yes")}).SessionID
	id := first.SessionID
	view := b.ok("show", id, "--view", "script").out
	for _, dir := range []string{b.dir, b.ws} { // another user must be able to come here
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(b.out, 0o777); err != nil {
		t.Fatal(err)
	}
	script := b.script(say("more"))
	lock(b)
	before := snap(t, b.store)
	as := func(b *box, args ...string) result { return b.as(uid, append(args, "--store", b.store)...) }
	for _, args := range [][]string{
		{"ls", "--any-project"}, {"ls", "--any-project", "--json"}, {"ls", "--trash", "--any-project"}, {"show", id}, {"show", id, "--stat"},
		{"show", id, "--events"}, {"show", id, "--view", "script"}, {"export", id}, {"export", id, "--format", "markdown"}, {"doctor"}, {"store"},
		{"title", id},
	} {
		r := as(b, args...)
		if r.code != 0 || r.out == "" && args[0] != "ls" || r.err != "" && args[0] != "ls" {
			t.Errorf("looking: %v", r)
		}
		if strings.Contains(args[len(args)-1], "json") && strings.Count(r.out, "\n") != 3 {
			t.Errorf("not two rows: %v", r)
		}
	}
	if v := as(b, "show", id, "--view", "script").out; v != view {
		t.Errorf("the view is another one: %s", clip(v))
	}
	for _, args := range [][]string{
		{"run", "go on", "--session", id, "--script", script, "--cwd", b.ws},
		{"run", "go on", "--session", id, "--script", script, "--cwd", b.ws, "--take-over"},
		{"chat", id, "--script", script},
		{"undo", id}, {"title", id, "new"}, {"fork", id}, {"compact", id, "--script", script}, {"rm", id},
	} {
		r := as(b, args...)
		if strings.Contains(r.err, "unknown flag: --take-over") {
			continue
		}
		if r.code != 1 || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, cause) || !strings.Contains(r.err, "strand fork "+id+" --to DIR") && args[0] != "rm" {
			t.Errorf("no sentence that names cause and way on: %v", r)
		}
	}
	if d := before.diff(snap(t, b.store)); d != "" {
		t.Errorf("the store changed:\n%s", d)
	}

	to := b.withStore(filepath.Join(b.out, "writable"))
	fork := decode[forkResult](t, mustAs(t, as(b, "fork", id, "--to", to.store, "--json")).out)
	if fork.Parent != id {
		t.Errorf("the fork is of %s", fork.Parent)
	}
	if v := mustAs(t, as(to, "show", fork.ID, "--view", "script")).out; v != view {
		t.Errorf("the fork has another view: %s", clip(v))
	}
	r := mustAs(t, as(to, "run", "go on", "--session", fork.ID, "--script", script, "--cwd", b.ws, "--output", "json"))
	if got := decode[runResult](t, r.out); got.Turn != 3 || got.Text != "more" {
		t.Errorf("the fork goes on with %+v", got)
	}
	mustAs(t, as(to, "doctor"))
	if r := as(to, "show", other); r.code != 5 {
		t.Errorf("more than the fork came over: %v", r)
	}
	if d := before.diff(snap(t, b.store)); d != "" {
		t.Errorf("the fork changed the store:\n%s", d)
	}
}

func mustAs(t *testing.T, r result) result {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("want success: %v", r)
	}
	return r
}
