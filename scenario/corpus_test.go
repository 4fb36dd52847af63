package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// corpusFiles are real session files of the harness that the vocabulary comes from. They are not part of the
// repository.
func corpusFiles(t *testing.T) []string {
	t.Helper()
	at, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for dir, up := at, 0; up < 6; dir, up = filepath.Dir(dir), up+1 {
		files, err := filepath.Glob(filepath.Join(dir, "shared", "corpus", "dsh", "*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) > 0 {
			return files
		}
	}
	t.Skip("there are no real files beside the repository")
	return nil
}

// cutAfter is the beginning of a session file as it was when its writer died behind the nth line that
// contains what; "" if it has fewer.
func cutAfter(text, what string, n int) string {
	end := 0
	for l := range strings.Lines(text) {
		end += len(l)
		if strings.Contains(l, what) {
			if n--; n == 0 {
				return text[:end]
			}
		}
	}
	return ""
}

// TestCorpusOverTheWire goes on with every real session, and with what each was when a tool of it ran, over
// HTTP against a service that refuses what a real one refuses. Each gets an answer that uses a tool, and one
// that ends.
func TestCorpusOverTheWire(t *testing.T) {
	files := corpusFiles(t)
	b := newBox(t)
	// Where the writer died: in the first call, in the last one, in an answer that was still coming.
	cuts := map[string]bool{} // file: a call has no result in it
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		n := strings.Count(text, `"type":"tool/call"`)
		for name, c := range map[string]string{
			"first-call": cutAfter(text, `"type":"tool/call"`, 1),
			"last-call":  cutAfter(text, `"type":"tool/call"`, max(n, 1)),
			"in-answer":  cutAfter(text, `"type":"assistant/chunk"`, 3),
		} {
			if c == "" || name == "last-call" && n == 1 {
				continue
			}
			path := filepath.Join(b.dir, name+"-"+filepath.Base(f))
			if err := os.WriteFile(path, []byte(c), 0o600); err != nil {
				t.Fatal(err)
			}
			cuts[path] = name != "in-answer"
		}
	}
	if !cuts[filepath.Join(b.dir, "first-call-jul07_live-mode-switching.jsonl")] {
		t.Error("no session was cut in its first call")
	}
	all := slices.Clone(files)
	for path := range cuts {
		all = append(all, path)
	}
	slices.Sort(all)

	var replies []line
	for range all {
		replies = append(replies, use(bash("echo $((6*7))")), say("it is {{last_tool_result}}"))
	}
	s := b.serve(replies, "127.0.0.1:0")
	results := decodeLines[struct {
		imported
		Path string `json:"path"`
	}](t, b.ok(append([]string{"import", "--json"}, all...)...).out)
	if len(results) != len(all) {
		t.Fatalf("%d of %d files were told", len(results), len(all))
	}
	told := 0
	ids := map[string]bool{}
	for _, r := range results {
		name := filepath.Base(r.Path)
		if r.Error != nil || r.ID == "" || ids[r.ID] {
			t.Fatalf("%s: %+v", name, r)
		}
		ids[r.ID] = true
		legal := func(when string) {
			t.Helper()
			if err := checkViewFor("openai", b.viewFor("openai", r.ID)); err != nil {
				t.Errorf("%s: the view %s is not legal: %v", name, when, err)
			}
		}
		legal("as imported")
		res := b.strand(b.wireArgs(s, "go on", "--session", r.ID, "--output", "json")...)
		b.noSecrets(res)
		if res.code != 0 {
			t.Errorf("%s: it does not go on: %v", name, res)
			told = len(s.requests(t))
			continue
		}
		if d := decode[runResult](t, res.out); d.SessionID != r.ID || strings.TrimSpace(d.Text) != "it is 42" || d.Steps != 2 || d.ToolCalls != 1 {
			t.Errorf("%s: %+v", name, d)
		}
		legal("after it went on")

		// The service took each request, and the second begins with the first.
		asked := s.requests(t)[told:]
		told += len(asked)
		if len(asked) != 2 {
			t.Errorf("%s: %d requests, want 2", name, len(asked))
		}
		(&wireLog{}).add(t, asked)
		if d := b.ok("doctor", r.ID, "--requests", "--json").out; !strings.Contains(d, `"requests":{"checked":2,"changed":0,"unchecked":0}`) {
			t.Errorf("%s: doctor --requests: %s", name, d)
		}
		b.requestsDoctor(r.ID)

		if open, cut := cuts[r.Path]; cut {
			added := b.ok("show", r.ID, "--events", "--from", strconv.Itoa(r.Events)).out
			if open != strings.Contains(added, "TOOL_OUTCOME_UNKNOWN") || strings.Count(added, `"interrupted"`) != 1 {
				t.Errorf("%s: it went on without the ends that its writer could not write: %s", name, clip(added))
			}
		}
	}
	s.stop(t)
}
