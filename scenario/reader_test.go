package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/session"
)

// readerVar makes every box be read by the reader in another language when its test is over.
const readerVar = "STRANDLINE_READER"

// readerSays is a line of docs/reader.py.
type readerSays struct {
	ID     string   `json:"id"`
	OK     bool     `json:"ok"`
	Newer  bool     `json:"newer"`
	Why    string   `json:"why"`
	Events int64    `json:"events"`
	Lost   []int64  `json:"lost"`
	Notes  []string `json:"notes"`
}

// forked is what strand fork --json prints.
type forked struct {
	ID string `json:"id"`
}

// reader runs docs/reader.py; it skips the test where there is no Python.
func reader(t testing.TB, args ...string) (string, int) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: no python3 here, so docs/reader.py was not run")
	}
	script, err := filepath.Abs("../docs/reader.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, append([]string{script}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	code := cmd.ProcessState.ExitCode()
	if code > 1 || code < 0 || strings.Contains(errs.String(), "Traceback") {
		t.Fatalf("reader.py %v: %v\n%s", args, err, errs.String())
	}
	return string(out), code
}

func (b *box) readAll() map[string]readerSays {
	b.t.Helper()
	out, _ := reader(b.t, b.store)
	says := map[string]readerSays{}
	for _, r := range decodeLines[readerSays](b.t, out) {
		says[r.ID] = r
	}
	return says
}

// TestReaderInAnotherLanguage lets a reader that was written from docs/format.md alone read what the command makes:
// it finds every log in order, sees the events as the command shows them, and finds damage.
func TestReaderInAnotherLanguage(t *testing.T) {
	b := newBox(t)
	id := b.run("first", []line{use(write("a.txt", "alpha\n")), say("hello")}).SessionID
	b.run("big", []line{use(write("big.txt", strings.Repeat("a long line of text\n", 4000))), use(read("big.txt")), say("done")}, "--session", id)
	b.run(`"$$blob": is "$blob" a name`, []line{say("no")}, "--session", id)
	b.ok("title", id, "a title")
	fork := decode[forked](t, b.ok("fork", id, "--json").out).ID
	b.run("in the fork", []line{use(bash("echo hi")), say("yes")}, "--session", fork)
	b.ok("undo", fork)
	second := decode[forked](t, b.ok("fork", fork, "--json").out).ID
	b.run("further on", []line{say("far")}, "--session", second)
	hurtID := b.run("to be hurt", []line{say("one")}).SessionID
	b.run("more", []line{say("two")}, "--session", hurtID)
	kid := decode[forked](t, b.ok("fork", hurtID, "--json").out).ID

	agree := func(when string, ids ...string) {
		t.Helper()
		out, _ := reader(t, b.store, "--events")
		events := map[string]string{}
		var r readerSays
		for l := range strings.Lines(out) {
			if strings.HasPrefix(l, `{"seq":`) {
				events[r.ID] += l
			} else if r = decode[readerSays](t, l); !r.OK {
				t.Errorf("%s: %+v", when, r)
			}
		}
		for _, id := range ids {
			if want := b.ok("show", id, "--events").out; events[id] != want {
				t.Errorf("%s: %s: the reader sees\n%s\nthe command shows\n%s", when, id, clip(events[id]), clip(want))
			}
		}
	}
	agree("written", id, fork, second, hurtID, kid)

	file := filepath.Join(b.dir, "export.jsonl")
	b.ok("export", fork, "--no-redact", "-o", file)
	if out, code := reader(t, "--export", file); code != 0 {
		t.Errorf("the export: %s", out)
	}

	flipInTheMiddle(b, hurtID)
	says := b.readAll()
	if r := says[hurtID]; r.OK || !strings.Contains(r.Why, "byte") {
		t.Errorf("damage is not found: %+v", r)
	}
	if r := says[kid]; r.OK || !says[id].OK || !says[second].OK {
		t.Errorf("damage of an inherited part: %+v; the others: %v %v", r, says[id], says[second])
	}
	b.ok("doctor", "--repair")
	if r := b.readAll()[hurtID]; len(r.Lost) == 0 {
		t.Errorf("the marks of the repair are not seen: %+v", r)
	}
	b.run("after the repair", []line{say("three")}, "--session", hurtID)
	b.run("after the parent's repair", []line{say("four")}, "--session", kid)
	agree("repaired", id, fork, second, hurtID, kid)

	if _, err := exec.LookPath("zstd"); err != nil {
		t.Log("skipped: no zstd here, so packed segments were not read")
		return
	}
	for i := range 4 {
		b.run(fmt.Sprintf("turn %d", i), []line{say("more")}, "--session", id)
	}
	st, err := openStore(b.store)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{id, hurtID} {
		if p, err := st.Pack(t.Context(), session.ID(id)); err != nil || p.After >= p.Before {
			t.Fatalf("packing: %+v, %v", p, err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	agree("packed", id, fork, second, hurtID, kid)
}

// readEverything is run at the end of each box if readerVar asks for it: what is not in order must be what doctor
// calls so.
func (b *box) readEverything() {
	if os.Getenv(readerVar) == "" {
		return
	}
	if _, err := os.Stat(filepath.Join(b.store, "sessions")); err != nil {
		return
	}
	for id, r := range b.readAll() {
		if d := b.strand("doctor", id, "--json"); (d.code == 0) != r.OK && !strings.Contains(d.out, "unknown") {
			b.t.Errorf("%s: the reader says %+v, doctor %v", id, r, d)
		}
	}
}
