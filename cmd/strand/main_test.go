package main_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/strandline-dev/strandline/app"
)

var update = flag.Bool("update", false, "write the golden files of the scripts anew")

// strand is the program under test, built once: what is tested is what is shipped.
var strand string

// raceVar asks, if it is not empty, for a program that the race detector watches. It makes each start of
// the command several times slower, and what it could see is watched in process by the packages' own tests.
const raceVar = "STRANDLINE_RACE_COMMAND"

func TestMain(m *testing.M) {
	flag.Parse()
	if signal.Ignored(syscall.SIGHUP) { // under nohup: a child would inherit that, and what is tested is not that
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "strand-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // other users run it, too
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		strand = filepath.Join(dir, "strand")
		args := []string{"build", "-o", strand}
		if os.Getenv(raceVar) != "" {
			args = append(args, "-race", "-gcflags=modernc.org/sqlite/lib=-race=false") // as ./check does
		}
		build := exec.Command("go", append(args, ".")...)
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "building strand:", err)
			return 1
		}
		return m.Run()
	}())
}

// TestScripts runs testdata/*.txtar. Beside the commands of testscript there are:
//
//	rc N strand ARGS..   runs strand and wants the exit code N
//	norm STREAM          writes the last stdout or stderr, normalised, to the file out
//	last NAME [TEXT]     sets $NAME to the first id in the last stdout, behind TEXT
//	seal DIR             remembers every byte below DIR
//	sealed DIR           nothing below DIR has changed since, but an index
//	lines N              the last stdout has N lines
//	spoil DIR            changes a byte in the middle of the first file of DIR
//	kinds TYPE..         the last stdout, of stream-json or --events, begins with these types
func TestScripts(t *testing.T) {
	var seals sync.Map // by directory: scripts run side by side
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(strand)+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("STRANDLINE_HOME", filepath.Join(e.WorkDir, "store"))
			e.Setenv("TZ", "UTC")
			e.Setenv(app.EnvCheckFolds, "1")
			return torn(e)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"rc": func(ts *testscript.TestScript, neg bool, args []string) {
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				got := 0
				if err := ts.Exec(args[1], args[2:]...); err != nil {
					var exit *exec.ExitError
					if !errors.As(err, &exit) {
						ts.Fatalf("%v", err)
					}
					got = exit.ExitCode()
				}
				if got != want {
					ts.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
				}
			},
			"norm": func(ts *testscript.TestScript, neg bool, args []string) {
				text := normal(ts.ReadFile(args[0]), ts.Getenv("WORK"))
				ts.Check(os.WriteFile(ts.MkAbs("out"), []byte(text), 0o644))
			},
			"last": func(ts *testscript.TestScript, neg bool, args []string) {
				text := ts.ReadFile("stdout")
				if len(args) > 1 {
					_, text, _ = strings.Cut(text, args[1])
				}
				m := idPattern.FindString(text)
				if m == "" {
					ts.Fatalf("no id in %q", ts.ReadFile("stdout"))
				}
				ts.Setenv(args[0], m)
			},
			"seal": func(ts *testscript.TestScript, neg bool, args []string) {
				seals.Store(ts.MkAbs(args[0]), tree(ts, ts.MkAbs(args[0])))
			},
			"sealed": func(ts *testscript.TestScript, neg bool, args []string) {
				dir := ts.MkAbs(args[0])
				was, _ := seals.Load(dir)
				if d := cmp.Diff(was, any(tree(ts, dir))); d != "" {
					ts.Fatalf("%s has changed:\n%s", args[0], d)
				}
			},
			"spoil": func(ts *testscript.TestScript, neg bool, args []string) {
				list, err := os.ReadDir(ts.MkAbs(args[0]))
				ts.Check(err)
				path := filepath.Join(ts.MkAbs(args[0]), list[0].Name())
				b, err := os.ReadFile(path)
				ts.Check(err)
				b[len(b)/2] ^= 1
				ts.Check(os.WriteFile(path, b, 0o600))
			},
			"lines": func(ts *testscript.TestScript, neg bool, args []string) {
				if n := strings.Count(ts.ReadFile("stdout"), "\n"); strconv.Itoa(n) != args[0] {
					ts.Fatalf("%d lines, want %s:\n%s", n, args[0], ts.ReadFile("stdout"))
				}
			},
			"kinds": func(ts *testscript.TestScript, neg bool, args []string) {
				var got []string
				for _, m := range typePattern.FindAllStringSubmatch(ts.ReadFile("stdout"), len(args)) {
					got = append(got, m[1])
				}
				if d := cmp.Diff(args, got); d != "" {
					ts.Fatalf("types (-want +got):\n%s", d)
				}
			},
			"damage": damage,
			"newer":  newer,
		},
	})
}

var (
	idPattern   = regexp.MustCompile(`\b[0-9a-hjkmnp-tv-z]{20}\b`)
	typePattern = regexp.MustCompile(`(?m)^\{(?:"seq":\d+,"time":\d+,)?"type":"([^"]+)"`)
	noise       = []struct {
		re *regexp.Regexp
		to string
	}{
		{regexp.MustCompile(`\b1[0-9]{12}\b`), "MILLIS"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d`), "TIME"},
		{regexp.MustCompile(`,"projectId":"[^"]*"`), ""},  // not every file system has one
		{regexp.MustCompile(`,"(model|tool)Ms":\d+`), ""}, // not told where it is nothing
		{regexp.MustCompile(`"bytes":\d+`), `"bytes":N`},
		{regexp.MustCompile(`"link":"[^"]{16}"`), `"link":"LINK"`},
		{regexp.MustCompile(`"go":"[^"]*","os":"[^"]*","arch":"[^"]*"`), `"go":GO`},
	}
)

// normal replaces what differs from run to run: ids by their order of appearance, times, sizes, places.
func normal(s, workDir string) string {
	s = strings.ReplaceAll(s, workDir, "$WORK")
	ids := map[string]string{}
	s = idPattern.ReplaceAllStringFunc(s, func(id string) string {
		if !strings.ContainsAny(id, "0123456789") { // 20 letters are a word
			return id
		}
		if ids[id] == "" {
			ids[id] = fmt.Sprintf("ID%d", len(ids)+1)
		}
		return ids[id]
	})
	for _, n := range noise {
		s = n.re.ReplaceAllString(s, n.to)
	}
	return s
}

// tree is every name, mode and byte below dir; "" if it is not there.
func tree(ts *testscript.TestScript, dir string) string {
	s, err := treeOf(dir)
	ts.Check(err)
	return s
}

func treeOf(dir string) (string, error) {
	var out strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.HasPrefix(d.Name(), "index.db") { // derived: whoever lists writes it
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s %v", p, info.Mode())
		if d.Type().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %s", bytes.TrimSpace(b))
		}
		out.WriteByte('\n')
		return nil
	})
	return out.String(), err
}
