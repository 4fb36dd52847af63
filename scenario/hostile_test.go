package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLinksAndPipes puts what is no file into a store, in the place of what should be there. Nothing hangs, nothing
// outside the store is read as if it were in it, changed or removed, the session is one bad row, and the others are
// not harmed: commands for all sessions do their work.
func TestLinksAndPipes(t *testing.T) {
	segment := "00000000000000000000.jsonl"
	link := func(name string) func(*box, string) {
		return func(b *box, dir string) {
			at, to := filepath.Join(dir, name), filepath.Join(b.out, "elsewhere")
			if err := os.Rename(at, to); err != nil {
				b.t.Fatal(err)
			}
			if err := os.Symlink(to, at); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	pipe := func(name string) func(*box, string) {
		return func(b *box, dir string) {
			at := filepath.Join(dir, name)
			if err := os.RemoveAll(at); err != nil {
				b.t.Fatal(err)
			}
			if err := unix.Mkfifo(at, 0o600); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	for name, put := range map[string]func(b *box, dir string){
		"a link in the place of the session": link("."), "of the header": link("session.json"), "of the segment": link(segment),
		"a pipe in the place of the session": pipe("."), "a pipe for the header": pipe("session.json"), "a pipe for the segment": pipe(segment),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			id := b.run("one", []line{say("hello")}).SessionID
			other := b.run("two", []line{say("hello")}).SessionID
			put(b, filepath.Join(b.store, "sessions", id))
			before := snap(t, b.out)
			rows := b.list()
			if len(rows) != 2 || rows[0].ID != other || rows[0].State != "ok" || rows[1].State != "damaged" || !strings.Contains(rows[1].Reason, "not a file") {
				t.Errorf("the list: %+v", rows)
			}
			for _, args := range [][]string{{"doctor"}, {"store", "check"}, {"doctor", id}, {"show", id}, b.runArgs("no", []line{say("no")}, "--session", id)} {
				if r := b.strand(args...); r.code != 4 || strings.Contains(r.err, "file descriptor") {
					t.Errorf("want that it is damaged: %v", r)
				}
			}
			if strings.HasSuffix(name, "of the session") {
				if r := b.strand("show", id, "--events"); r.code != 4 || r.out != "" {
					t.Errorf("want that nothing is read: %v", r)
				}
				if r := b.strand("doctor", "--repair", id); r.code == 0 {
					t.Errorf("want that it cannot be repaired: %v", r)
				}
			}
			b.ok("store", "pack")
			b.ok("store", "sizes")
			b.ok("store")
			b.run("go on", []line{say("fine")}, "--session", other)
			b.ok("rm", id)
			b.ok("purge", "--yes", id)
			if d := before.diff(snap(t, b.out)); d != "" {
				t.Errorf("outside the store: %s", d)
			}
			b.ok("store", "collect")
		})
	}
}

// TestBlobIsNoFile puts something else in the place of a blob: whoever needs it is told, everybody else works.
func TestBlobIsNoFile(t *testing.T) {
	for name, put := range map[string]func(at string) error{
		"a link":      func(at string) error { return os.Symlink("/etc/passwd", at) },
		"a pipe":      func(at string) error { return unix.Mkfifo(at, 0o600) },
		"a directory": func(at string) error { return os.Mkdir(at, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			id := b.run("one", []line{say(strings.Repeat("long ", 10_000))}).SessionID
			blobs, err := filepath.Glob(filepath.Join(b.store, "blobs", "sha256", "*", "*"))
			if err != nil || len(blobs) == 0 {
				t.Fatal("no blob", err)
			}
			if err := os.Remove(blobs[0]); err != nil {
				t.Fatal(err)
			}
			if err := put(blobs[0]); err != nil {
				t.Fatal(err)
			}
			if r := b.strand("store", "check"); r.code != 4 {
				t.Errorf("want a bad blob: %v", r)
			}
			if r := b.strand("show", id, "--events"); strings.Contains(r.out, "root:") {
				t.Errorf("it was read: %v", r)
			}
			b.ok("store", "collect")
			b.ok("rm", id)
			b.ok("purge", "--yes", id)
		})
	}
}

// TestCollectAfterRepair: what a repair put aside, and called lost, does not keep every later collection from its work.
func TestCollectAfterRepair(t *testing.T) {
	b := newBox(t)
	id := b.run("one", []line{say("hello")}).SessionID
	b.run("two", []line{say("more")}, "--session", id)
	b.ok("store", "pack")
	packed, err := filepath.Glob(filepath.Join(b.store, "sessions", id, "*.zst"))
	if err != nil || len(packed) != 1 {
		t.Fatalf("packed: %q (%v)", packed, err)
	}
	text, err := os.ReadFile(packed[0])
	if err != nil {
		t.Fatal(err)
	}
	clear(text[len(text)/3 : len(text)/2])
	if err := os.WriteFile(packed[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := b.strand("store", "collect"); r.code != 4 {
		t.Errorf("before the repair it may name anything: %v", r)
	}
	b.ok("doctor", "--repair", id)
	b.ok("store", "collect")
}
