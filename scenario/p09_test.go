package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/llm"
)

// limited is a config file that gives the model of the scripts, and that of a service, a context window.
func (b *box) limited(tokens int, more string) string {
	b.t.Helper()
	name := filepath.Join(b.dir, fmt.Sprintf("limit-%d.toml", tokens))
	text := fmt.Sprintf("[models.\"script/script\"]\ncontext_window = %d\n%s\n", tokens, more)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return name
}

// summaries counts the requests for a summary that a session made.
func (b *box) summaries(id string) (n int) {
	for _, r := range b.log(id).recs {
		if r.Type == "request/sent" {
			if d := data[struct {
				Purpose string `json:"purpose"`
			}](b.t, r); d.Purpose == llm.PurposeCompaction {
				n++
			}
		}
	}
	return n
}

// turns runs that many prompts of about words*1.5 tokens in one chat and returns what it printed.
func (b *box) turns(id string, n, words int, config string, lines ...line) result {
	b.t.Helper()
	var in strings.Builder
	for i := range n {
		fmt.Fprintf(&in, "prompt %d %s\n", i, strings.Repeat("word ", words))
	}
	args := []string{"chat", "--script", b.script(lines...), "--config", config, "--cwd", b.ws}
	if id != "" {
		args = append(args, id)
	}
	r := b.strandIn(in.String(), args...)
	if r.code != 0 {
		b.t.Fatal(r)
	}
	return r
}

// TestP09_CompactionThatCannotHelp: a fixed part that fills the window, summaries that are longer than their source,
// and the case that is as it should be.
func TestP09_CompactionThatCannotHelp(t *testing.T) {
	t.Run("the fixed part fills the window", func(t *testing.T) {
		b := newBox(t)
		rules := strings.Repeat("Never do what is not asked for. ", 1000) // 8,000 tokens, with tools and prompt about 9,500
		if err := os.WriteFile(filepath.Join(b.ws, "AGENTS.md"), []byte(rules), 0o644); err != nil {
			t.Fatal(err)
		}
		config := b.limited(10_000, "")
		r := b.ok(b.runArgs("hi", []line{say("hello")}, "--config", config)...)
		id := b.sessionIDs()[0]
		if strings.TrimSpace(r.out) != "hello" || b.summaries(id) != 0 {
			t.Errorf("%v", r)
		}
		if n := strings.Count(r.err, "tokens of a context window of 10000: compaction cannot help"); n != 1 {
			t.Errorf("said %d times: %v", n, r)
		}
		r = b.turns(id, 3, 5, config, say("1"), say("2"), say("3"))
		if n := strings.Count(r.err, "compaction cannot help"); n != 1 || b.summaries(id) != 0 {
			t.Errorf("said %d times in three turns, %d summaries", n, b.summaries(id))
		}
		// With a larger window there is nothing to say.
		r = b.ok(b.runArgs("and now", []line{say("fine")}, "--config", b.limited(100_000, ""), "--session", id)...)
		if strings.TrimSpace(r.out) != "fine" || strings.Contains(r.err, "compaction") {
			t.Errorf("%v", r)
		}
	})

	t.Run("summaries longer than their source", func(t *testing.T) {
		b := newBox(t)
		lines := []line{summary(say(strings.Repeat("and furthermore ", 9000))), summary(say(strings.Repeat("and besides that ", 9000)))}
		for i := range 20 {
			lines = append(lines, say(fmt.Sprintf("answer %d", i)))
		}
		config := b.limited(10_000, "")
		r := b.turns("", 14, 500, config, lines...) // some 630 tokens each
		id := b.sessionIDs()[0]
		if n := b.summaries(id); n < 1 || n > 2 || strings.Count(r.err, "no gain") != n {
			t.Errorf("%d summaries: %s", n, r.err)
		}
		if n := b.log(id).count("turn/end"); n != 14 || checkView(b.view(id)) != nil {
			t.Errorf("%d turns, %v", n, checkView(b.view(id)))
		}
		for _, s := range b.bracketStates(id) {
			if s != "closed" {
				t.Errorf("%v", b.bracketStates(id))
			}
		}
		b.ok(b.runArgs("and now", []line{say("fine")}, "--config", b.limited(100_000, ""), "--session", id)...)
	})

	t.Run("once", func(t *testing.T) {
		b := newBox(t)
		config := b.limited(10_000, "")
		lines := []line{summary(say("all that was said")), summary(say("all that was said, and more"))}
		for i := range 40 {
			// The service tells usages; the last one before the compaction is far above the threshold.
			lines = append(lines, line{Text: fmt.Sprintf("answer %d", i), Usage: &usage{1500 + 600*(i%14), 5}})
		}
		r := b.turns("", 13, 480, config, lines...)
		id := b.sessionIDs()[0]
		if n := b.summaries(id); n != 1 || strings.Count(r.err, "compacted: about") != 1 {
			t.Fatalf("%d summaries: %s", n, r.err)
		}
		if got := b.log(id).count(compact.TypeEnd); got != 1 {
			t.Errorf("%d ends", got)
		}
		b.requestsDoctor(id)
	})
}

// A compaction over HTTP: the request that is recorded is the one that was sent, by pressure and by hand, and a
// service that refuses a request as too long gets a shorter one.
func TestCompactOverHTTP(t *testing.T) {
	b := newBox(t)
	var lines []line
	lines = append(lines, summary(say("all that was said")), summary(say("by hand")), summary(say("when it was too long")))
	for i := range 12 {
		lines = append(lines, say(fmt.Sprintf("answer %d %s", i, strings.Repeat("because ", 300))))
	}
	lines = append(lines, line{Error: &failure{Code: "CONTEXT_WINDOW_EXCEEDED"}}, say("after all"))
	s := b.serve(lines, "127.0.0.1:0", "[models.\"fake/m\"]\ncontext_window = 8000\n")
	defer s.stop(t)
	var in strings.Builder
	for i := range 12 {
		fmt.Fprintf(&in, "prompt %d\n", i)
	}
	r := b.strandIn(in.String(), "chat", "--model", "fake/m", "--config", s.config, "--cwd", b.ws)
	id := b.sessionIDs()[0]
	if r.code != 0 || b.summaries(id) != 1 || strings.Count(r.err, "compacted: about") != 1 {
		t.Fatalf("%d summaries: %v", b.summaries(id), r)
	}
	if c := decode[compacted](t, b.ok("compact", id, "--config", s.config, "--json").out); c.Outcome != "done" {
		t.Errorf("%+v", c)
	}
	r = b.ok(b.wireArgs(s, "one more "+strings.Repeat("word ", 100), "--session", id)...)
	if b.summaries(id) != 3 || !strings.Contains(r.out, "after all") {
		t.Errorf("%d summaries: %v", b.summaries(id), r)
	}
	if err := checkViewFor("fake", b.viewFor("fake", id)); err != nil {
		t.Error(err)
	}
	b.requestsDoctor(id)
	// What was recorded of the requests is what came.
	came := map[string]bool{}
	for _, a := range s.requests(t) {
		came[a.SHA256] = true
	}
	for _, e := range b.log(id).recs {
		if e.Type == "request/sent" && !came[data[struct {
			SHA256 string `json:"sha256"`
		}](t, e).SHA256] {
			t.Errorf("a request is recorded that never came: %s", e.event)
		}
	}
}

// A first prompt of three times the window is refused; the session goes on nevertheless, after one summary of what of it
// can be told, and its log keeps every word.
func TestPromptLargerThanTheWindow(t *testing.T) {
	b := newBox(t)
	config := b.limited(10_000, "")
	prompt := "BEGIN " + strings.Repeat("wordy ", 20_000) + "END"
	r := b.strandIn(prompt, "run", "-", "--script", b.script(line{Error: &failure{Code: "CONTEXT_WINDOW_EXCEEDED"}}), "--config", config, "--cwd", b.ws)
	if r.code != 8 {
		t.Fatal(r)
	}
	id := b.sessionIDs()[0]
	r = b.ok(b.runArgs("go on", []line{summary(say("somebody said wordy a lot")), say("well")}, "--config", config, "--session", id)...)
	if strings.TrimSpace(r.out) != "well" || b.summaries(id) != 1 || strings.Count(r.err, "more than the model takes at once") != 1 {
		t.Errorf("%d summaries: %v", b.summaries(id), r)
	}
	if len(b.viewText(id)) > 10_000 || checkView(b.view(id)) != nil {
		t.Errorf("view: %.2000s", b.viewText(id))
	}
	if !strings.Contains(b.ok("show", id, "--events").out, prompt) {
		t.Error("the prompt is not in the log any more")
	}
	b.requestsDoctor(id)
	if c := decode[compacted](t, b.ok("compact", id, "--undo", "--json").out); *c.After < 25_000 {
		t.Errorf("after undo: %+v", c)
	}
}
