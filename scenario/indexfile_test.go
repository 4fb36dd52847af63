package scenario

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

func init() { children["hold"] = holdFile }

// holdFile holds an SQLite file as args say until its input ends; it says when it does.
func holdFile(args []string) error {
	db, err := sql.Open("sqlite", "file:"+args[0])
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, s := range args[1:] {
		if _, err := db.Exec(s); err != nil {
			return err
		}
	}
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// sqliteDo makes or changes an SQLite file.
func sqliteDo(name string, statements ...string) error {
	db, err := sql.Open("sqlite", "file:"+name)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			return err
		}
	}
	return nil
}

// indexed is a box with sessions, of which the commands that use an index give known answers.
type indexed struct {
	*box
	id   string
	uid  int // who runs them, 0: the test's own
	want map[string]string
}

// questions are what is asked of an index.
func (b *indexed) questions() map[string][]string {
	return map[string][]string{
		"ls":     {"ls", "--any-project", "--json"},
		"search": {"search", "velvet", "--any-project", "--json"},
		"ranked": {"search", "--rank", "submarine", "--any-project", "--json"},
		"stats":  {"stats", "--any-project", "--json"},
		"stat":   {"show", b.id, "--stat", "--json"},
		"last":   {"show", "last", "--json"},
	}
}

func (b *indexed) ask(args []string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := b.command(ctx, args...)
	cmd.Dir = b.ws // "last" is of the project there
	if b.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(b.uid), Gid: uint32(b.uid)}}
	}
	return b.finish(ctx, cmd)
}

func newIndexed(b *box) *indexed {
	x := &indexed{box: b}
	for i := range 3 {
		x.id = b.run(fmt.Sprintf("velvet %d", i), []line{use(bash("echo submarine")), {Text: "yellow submarine", Usage: &usage{10, 5}}}).SessionID
	}
	b.ok("fork", x.id)
	x.learn()
	return x
}

// learn takes the answers of an index that is whole as the right ones.
func (b *indexed) learn() {
	b.want = map[string]string{}
	for name, args := range b.questions() {
		r := b.ask(args)
		if r.code != 0 || r.err != "" && name != "last" {
			b.t.Fatalf("%s: %v", name, r)
		}
		b.want[name] = r.out
	}
}

// answers asks everything and compares: the answers are the same, and one line at most says why they took longer.
func (b *indexed) answers(what string) {
	b.t.Helper()
	var all sync.WaitGroup
	for name, args := range b.questions() {
		all.Go(func() {
			r := b.ask(args)
			if r.code != 0 || r.out != b.want[name] || strings.Count(r.err, "lists and searches take longer") > 1 {
				b.t.Errorf("%s, %s: %v\nwant %s", what, name, r, clip(b.want[name]))
			}
			if r.took > time.Second {
				b.t.Logf("%s, %s: %v", what, name, r.took.Round(time.Millisecond))
			}
		})
	}
	all.Wait()
}

// Whatever stands in the place of the index's file, or beside it, every command answers right: nothing is read or written
// through it elsewhere, and nothing hangs.
func TestIndexFileAttacked(t *testing.T) {
	b := newIndexed(newBox(t))
	name := filepath.Join(b.store, "index.db")
	elsewhere := b.file("elsewhere")
	mine := []byte("what somebody else wrote\n")
	foreign := func(at string) error {
		return sqliteDo(at, "CREATE TABLE heads(a)", "INSERT INTO heads VALUES('mine')", "PRAGMA user_version = 5")
	}
	link := func(behind string, target []byte) func() error {
		return func() error {
			if target != nil {
				if err := os.WriteFile(elsewhere, target, 0o600); err != nil {
					return err
				}
			}
			return os.Symlink(elsewhere, name+behind)
		}
	}
	cases := []struct {
		name   string
		keep   bool // the index's own file stays, the attack is beside it
		attack func() error
	}{
		{name: "an empty directory", attack: func() error { return os.Mkdir(name, 0o700) }},
		{name: "a directory with a file", attack: func() error {
			return cmpOr(os.Mkdir(name, 0o700), os.WriteFile(filepath.Join(name, "mine"), mine, 0o600))
		}},
		{name: "a FIFO", attack: func() error { return syscall.Mkfifo(name, 0o600) }},
		{name: "a link to nothing", attack: link("", nil)},
		{name: "a link to a text", attack: link("", mine)},
		{name: "a link to a database", attack: func() error {
			return cmpOr(foreign(elsewhere), os.Symlink(elsewhere, name))
		}},
		{name: "a text", attack: func() error { return os.WriteFile(name, mine, 0o600) }},
		{name: "zero bytes", attack: func() error { return os.WriteFile(name, nil, 0o600) }},
		{name: "a terabyte of nothing", attack: func() error {
			return cmpOr(os.WriteFile(name, nil, 0o600), os.Truncate(name, 1<<40))
		}},
		{name: "as long as a terabyte", keep: true, attack: func() error { return os.Truncate(name, 1<<40) }},
		{name: "a database of somebody else", attack: func() error { return foreign(name) }},
		{name: "a log that is a directory", keep: true, attack: func() error {
			return cmpOr(os.Mkdir(name+"-wal", 0o700), os.WriteFile(name+"-wal/mine", mine, 0o600))
		}},
		{name: "a log that is a FIFO", keep: true, attack: func() error { return syscall.Mkfifo(name+"-wal", 0o600) }},
		{name: "a log that is a link", keep: true, attack: link("-wal", mine)},
		{name: "shared memory that is a link", keep: true, attack: link("-shm", mine)},
		{name: "a journal that is a link", keep: true, attack: link("-journal", mine)},
	}
	for _, runs := range []bool{false, true} { // what runs changes the answers
		for _, c := range cases {
			_ = os.Remove(elsewhere)
			for _, behind := range []string{"", "-wal", "-shm", "-journal"} {
				if behind == "" && c.keep {
					continue
				}
				if err := os.RemoveAll(name + behind); err != nil {
					t.Fatal(err)
				}
			}
			if c.keep {
				b.ok("ls", "--any-project")
				for _, behind := range []string{"-wal", "-shm", "-journal"} {
					_ = os.RemoveAll(name + behind)
				}
			}
			if err := c.attack(); err != nil {
				t.Fatal(c.name, err)
			}
			before, missing := os.ReadFile(elsewhere)
			if !runs {
				b.answers(c.name)
			} else if r := b.strand(b.runArgs("velvet too", []line{say("the answer")})...); r.code != 0 || !strings.Contains(r.out, "the answer") {
				t.Errorf("%s, run: %v", c.name, r)
			}
			if after, err := os.ReadFile(elsewhere); string(after) != string(before) || (err == nil) != (missing == nil) {
				t.Errorf("%s: what the link leads to was %q (%v), is %q (%v)", c.name, clip(string(before)), missing, clip(string(after)), err)
			}
		}
	}
}

// cmpOr returns the first error.
func cmpOr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Another process holds the file for long: each command waits for it once, and answers.
func TestIndexHeldByProcess(t *testing.T) {
	for what, statements := range map[string][]string{
		"for writing": {"BEGIN EXCLUSIVE"},
		"for itself":  {"PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "CREATE TABLE mine(a)"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newIndexed(newBox(t))
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe, append([]string{filepath.Join(b.store, "index.db")}, statements...)...)
			cmd.Env = append(os.Environ(), childVar+"=hold")
			cmd.Stderr = os.Stderr
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = in.Close(), cmd.Wait() }()
			if said, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(said, err)
			}
			b.answers("held " + what)
			r := b.strand(b.runArgs("velvet too", []line{say("the answer")})...)
			if r.code != 0 || !strings.Contains(r.out, "the answer") {
				t.Errorf("run: %v", r)
			}
			t.Logf("run: %v", r.took.Round(time.Millisecond))
		})
	}
}

// The file may be read and not written, or is another user's.
func TestIndexOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: giving files away needs root")
	}
	const uid = 65534
	b := newIndexed(newBox(t))
	name := filepath.Join(b.store, "index.db")
	for _, dir := range []string{b.dir, b.store, b.ws, b.out} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	own(t, b.store, uid)
	own(t, b.ws, uid)
	b.uid = uid
	for _, c := range []struct {
		name  string
		owner int
		mode  os.FileMode
	}{{"read-only", uid, 0o400}, {"no rights", uid, 0}, {"another's", 0, 0o600}, {"another's to read", 0, 0o644}} {
		if err := cmpOr(os.Chown(name, c.owner, c.owner), os.Chmod(name, c.mode)); err != nil {
			t.Fatal(err)
		}
		b.answers(c.name)
		if r := b.ask(b.runArgs("velvet too", []line{say("the answer")})); r.code != 0 || !strings.Contains(r.out, "the answer") {
			t.Errorf("%s, run: %v", c.name, r)
		}
		for _, behind := range []string{"", "-wal", "-shm"} {
			_ = os.Remove(name + behind)
		}
		b.learn()
	}
}
