package filestore

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// mutant is a fault put into the code: the tests named must find it. A row whose text is no longer in its file
// fails, so that the table follows the code.
type mutant struct {
	name string
	file string // below the module's root
	old  string // exactly once in the file
	new  string
	more [2]string // another old and new in the same file
	run  string    // the tests of this package that find it
	want string    // a regular expression: what they say
	ci   bool      // tried by default; the others with STRANDLINE_MUTANTS=all, or by name
}

var mutants = []mutant{
	{name: "no file sync at flush", ci: true, file: "filestore/writer.go",
		old: "return w.s.sync(h.f.SyncData) }", new: "return nil }",
		run: "TestCrashes/append-flush", want: "only .* events are left|damage"},
	{name: "no file sync before the name", file: "filestore/prepare.go",
		old: "if err = s.sync(f.Sync); err == nil {", new: "if err == nil {",
		run: "TestCrashes/first-commit", want: "only .* events are left|damage|cannot be read"},
	{name: "no sync of a new session's files", file: "filestore/segment.go",
		old: "if err = s.sync(seg.Sync); err != nil {", new: "if err != nil {",
		run: "TestCrashes/create", want: "only .* events are left|damage"},
	{name: "no directory sync", ci: true, file: "filestore/layout.go",
		old: "return s.sync(func() error { return s.fs.SyncDir(name) })", new: "return nil",
		run: "TestCrashes/(create|first-commit)", want: "no session subject|only .* events are left"},
	{name: "sum unchecked", file: "record/parse.go",
		old: "if string(sum[:]) != string(line[len(line)-2-sumLen:len(line)-2]) {", new: "if _ = sum; false {",
		run: "TestBitFlips", want: "damage_test.go"},
	{name: "link unchecked", file: "record/line.go",
		old: "return l, string(t[:]) == string(r.linkText())", new: "_ = t\n\treturn l, true",
		run: "TestForeignRecord", want: "of another log"},
	{name: "link unchecked by who follows", file: "filestore/watch.go",
		old: "if calc, ok = raw.CheckLink(link); !ok && lost && isLink {", new: "if calc, ok = raw.CheckLink(link); !ok && (lost || !lost) && isLink {",
		run: "TestUnlinkedIsNotFollowed", want: "events differ"},
	{name: "acknowledged before written", file: "filestore/writer.go",
		old: "	if err != nil || n < len(text) {\n		w.broken = true", new: "	if false && n > 0 {\n		w.broken = err == nil",
		run: "TestEveryCallFails/append-flush", want: "only .* events are left|damage"},
	{name: "no look after the write", file: "filestore/writer.go",
		old: "	if !w.looked {", new: "	if false {",
		run: "TestPausedWriter/before_the_sync", want: "fence_test.go"},
	{name: "an opener without the shared lock on the last segment", file: "filestore/lease.go",
		old: "ok, err := f.TryLock(false)", new: "ok, err := true, error(nil)",
		run: "TestHeldByItsSegment", want: "opened beside a life"},
	{name: "what was read is not what was locked", file: "filestore/lease.go",
		old: "if w.tail == nil && last == \"\" || w.tail != nil && w.tail.path == last {", new: "if _ = last; true {",
		run: "TestExplore$/(two_lives,_no_lease|two_lives,_no_lock)$", want: "the schedule"},
	{name: "what was read has grown before the link", file: "filestore/segment.go",
		old: "case now.Size() != w.tailSize:", new: "case now == nil:",
		run: "TestExplore$/(two_lives,_no_lease|two_lives,_no_lock)$", want: "the schedule"},
	{name: "a segment locked after its link", file: "filestore/segment.go",
		old: "f, err := w.s.writeTemp(a.tmp, a.text, true)", new: "f, err := w.s.writeTemp(a.tmp, a.text, false)",
		more: [2]string{"	if err := s.syncDir(w.dir); err != nil {\n		return err\n	}\n	if a.roll {",
			"	if err := s.syncDir(w.dir); err != nil {\n		return err\n	}\n	a.file.f.TryLock(true)\n	if a.roll {"},
		run: "TestTraces/first-commit", want: `lock sessions/subject/\.seg`},
	{name: "packed before its name is synced", file: "filestore/join.go",
		old: "	if err := s.syncDir(j.dir); err != nil {\n		return none, link, err\n	}\n	if _, err := s.settle(j.dir, j.keep",
		new: "	if _, err := s.settle(j.dir, j.keep",
		run: "TestCrashes/pack", want: "only .* events are left|damage"},
	{name: "sync retried on the same descriptor", ci: true, file: "filestore/writer.go",
		old: "return w.s.sync(h.f.SyncData) }",
		new: "\n	if err := w.s.sync(h.f.SyncData); err == nil {\n		return nil\n	}\n	return w.s.sync(h.f.SyncData)\n}",
		run: "TestEveryCallFails/append-flush", want: "only .* events are left|damage"},
	{name: "a file of an earlier life written to", file: "filestore/writer.go",
		old: "	w.syncTail()\n	if w.tailBad {\n		again",
		new: "	if w.tail != nil {\n		if _, err := w.tail.f.Write(text); err != nil {\n			return err\n		}\n	}\n	w.syncTail()\n	if w.tailBad {\n		again",
		run: "TestCrashes/first-commit", want: "bad file descriptor"},
	{name: "the life before is not synced", file: "filestore/writer.go",
		old: "if w.tailSafe || w.tailBad {", new: "if true {",
		run: "TestCrashes/first-commit-unsynced-tail", want: "only .* events are left|damage"},
	{name: "the session's name is not synced by who goes on", file: "filestore/writer.go",
		old: "	if err := w.s.syncDir(filepath.Dir(w.dir)); err != nil {", new: "	if err := error(nil); err != nil && filepath.Base(\"\") != \"\" {",
		run: "TestCrashes/create", want: "no session subject"},
	{name: "the name of the segment before is not synced", file: "filestore/writer.go",
		old: "	if err := w.s.syncDir(w.dir); err != nil {", new: "	if err := error(nil); err != nil {",
		run: "TestCrashes/first-commit", want: "records are missing"},
	{name: "a directory that is there is taken for durable", file: "filestore/prepare.go",
		old: "if there && (durable || up == dir) {", new: "if there && (durable || !durable) {",
		run: "TestEveryCallFails/(create|blob)", want: "no session subject|is gone"},
	{name: "a blob's name is not synced", file: "filestore/blob.go",
		old: "return name, s.syncDir(dir)", new: "return name, nil",
		run: "TestCrashes/blob", want: "is gone"},
	{name: "a fork of what is not synced", file: "filestore/fork.go",
		old: "if err := s.sync(f.SyncData); err != nil {", new: "if err != nil {",
		run: "TestCrashes/fork-unsynced", want: "child"},
}

// TestMutants puts each fault of the table into a copy of the code and runs the tests that must find it. The code
// itself has no switch for that: the compiler is given another file in the place of one.
func TestMutants(t *testing.T) {
	what := os.Getenv("STRANDLINE_MUTANTS")
	if testing.Short() {
		t.Skip("compiles the package again and again")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Fatal(err)
		}
		with := text
		for _, e := range [][2]string{{m.old, m.new}, m.more} {
			if e[0] == "" {
				continue
			}
			if n := bytes.Count(with, []byte(e[0])); n != 1 {
				t.Errorf("%s: %q is %d times in %s", m.name, e[0], n, m.file)
			}
			with = bytes.Replace(with, []byte(e[0]), []byte(e[1]), 1)
		}
		if !(what == "" && m.ci || what == "all" || what != "" && strings.Contains(m.name, what)) {
			continue
		}
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			dir := t.TempDir()
			changed := filepath.Join(dir, filepath.Base(m.file))
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): changed}})
			if err == nil {
				err = os.WriteFile(changed, with, 0o600)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-vet=off", "-count=1",
				"-timeout=1m", "-run", m.run, ".")
			cmd.Env = append(os.Environ(), "STRANDLINE_CRASH_SEEDS=8") // every call: one way of losing what is not synced may be one that does not matter
			out, err := cmd.CombinedOutput()
			found := regexp.MustCompile(m.want).FindString(string(out))
			switch {
			case err == nil:
				t.Errorf("nobody noticed:\n%s", out)
			case !bytes.Contains(out, []byte("--- FAIL")) || found == "":
				t.Errorf("it failed for another reason:\n%s", out)
			default:
				t.Logf("found: %.300s", firstFailure(string(out)))
			}
		})
	}
}

// firstFailure returns the first line of a test's output that is no heading.
func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "---") && line != "" {
			return line
		}
	}
	return out
}
