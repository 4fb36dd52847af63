//go:build unix

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

// counted is what show --stat, ls and stats tell of the same sessions; each fills what it has.
type counted struct {
	ID           string           `json:"id"`
	Kind         string           `json:"kind"`
	Turns        int              `json:"turns"`
	Steps        int              `json:"steps"`
	ToolCalls    int              `json:"toolCalls"`
	Usage        map[string]int64 `json:"usage"`
	OwnUsage     map[string]int64 `json:"ownUsage"`
	Cost         cost             `json:"cost"`
	OwnCost      cost             `json:"ownCost"`
	OwnSteps     *int             `json:"ownSteps"`
	OwnToolCalls *int             `json:"ownToolCalls"`
	ModelMS      int64            `json:"modelMs"`
	ToolMS       int64            `json:"toolMs"`
	Tree         *counted         `json:"tree"`
	Total        *counted         `json:"total"`
	Children     any              `json:"children"`
}

type cost struct {
	USD      *float64 `json:"usd"`
	Unpriced int64    `json:"unpriced"`
}

func counts(t *testing.T, out string) (all []counted) {
	t.Helper()
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, `{"next"`) { // the list's end
			break
		}
		var c counted
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, c)
	}
	return all
}

// What show --stat says of sessions with tools, a subagent, a compaction and a fork is what the list says of them, and what
// they did themselves sums up to the statistics; so it is without an index, and with one.
func TestCountsAgree(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	because := strings.Repeat("because ", 60)
	first := p.file("first.jsonl", `{"delayMs":20,"toolCalls":[{"name":"bash","arguments":{"command":"sleep 0.05"}},{"name":"write","arguments":{"path":"a","content":"x"}}],"usage":{"inputTokens":10,"cacheReadTokens":4,"outputTokens":5}}
{"toolCalls":[{"name":"task","arguments":{"prompt":"count"}}],"usage":{"inputTokens":20,"outputTokens":6}}
{"purpose":"subagent","delayMs":20,"toolCalls":[{"name":"bash","arguments":{"command":"sleep 0.03"}}],"usage":{"inputTokens":3,"outputTokens":1}}
{"purpose":"subagent","text":"7","usage":{"inputTokens":4,"outputTokens":2}}
{"text":"There are 7.","usage":{"inputTokens":30,"outputTokens":7}}
`)
	more := p.file("more.jsonl", fmt.Sprintf(`{"text":"%[1]s","usage":{"inputTokens":40,"outputTokens":8}}
`, because))
	in := "--approve=yolo"
	p.strand(0, "run", "--script", first, in, "how many?")
	id := counts(t, p.strand(0, "ls", "--json").out)[0].ID
	for range 4 {
		p.strand(0, "run", "--script", more, in, "--session", id, "why? "+because)
	}
	p.strand(0, "compact", id, "--script", p.file("sum.jsonl", `{"purpose":"compaction","text":"all was well","usage":{"inputTokens":50,"outputTokens":9}}`+"\n"))
	fork := counts(t, p.strand(0, "fork", id, "--json").out)[0].ID
	silent := counts(t, p.strand(0, "fork", id, "--json").out)[0].ID
	p.strand(0, "run", "--script", first, in, "--session", fork, "and now?")

	rows := counts(t, p.strand(0, "ls", "--all", "--json").out)
	if len(rows) != 5 {
		t.Fatalf("%+v", rows)
	}
	all := counts(t, p.strand(0, "stats", "--json").out)
	total := *all[len(all)-1].Total
	sum := counted{OwnUsage: map[string]int64{}}
	var unpriced int64
	told, shown := map[string]counted{}, map[string]string{}
	for _, row := range rows {
		shown[row.ID] = p.strand(0, "show", row.ID, "--stat", "--json").out
		s := counts(t, shown[row.ID])[0]
		told[row.ID] = s
		got := []any{s.Turns, s.Steps, s.ToolCalls, s.Usage, s.OwnUsage}
		if d := cmp.Diff([]any{row.Turns, row.Steps, row.ToolCalls, row.Usage, row.OwnUsage}, got); d != "" {
			t.Errorf("%s %s: show is not what the list says: %s", row.Kind, row.ID, d)
		}
		if s.OwnSteps == nil || s.OwnToolCalls == nil {
			t.Fatalf("%+v", s)
		}
		sum.Steps, sum.ToolCalls = sum.Steps+*s.OwnSteps, sum.ToolCalls+*s.OwnToolCalls
		sum.ModelMS, sum.ToolMS = sum.ModelMS+s.ModelMS, sum.ToolMS+s.ToolMS
		for bucket, n := range s.OwnUsage {
			sum.OwnUsage[bucket] += n
		}
		unpriced += s.OwnCost.Unpriced
	}
	want := []any{total.Steps, total.ToolCalls, total.Usage, total.ModelMS, total.ToolMS, total.Cost.Unpriced}
	if d := cmp.Diff(want, []any{sum.Steps, sum.ToolCalls, sum.OwnUsage, sum.ModelMS, sum.ToolMS, unpriced}); d != "" {
		t.Errorf("what they did themselves is not what the statistics say: %s", d)
	}
	root, of, none := told[id], told[fork], told[silent]
	if *root.OwnSteps != 7 || *root.OwnToolCalls != 3 || root.ModelMS < 20 || root.ToolMS < 50 || root.Usage["inputTokens"] != 270 {
		t.Errorf("the root: %+v", root)
	}
	if root.Tree == nil || root.Tree.Steps != 9 || root.Tree.ToolCalls != 4 || root.Tree.Usage["inputTokens"] != 277 ||
		root.Tree.ModelMS < root.ModelMS+20 || root.Tree.ToolMS < root.ToolMS+30 {
		t.Errorf("with its subagent: %+v", root.Tree)
	}
	if of.Steps != 10 || *of.OwnSteps != 3 || *of.OwnToolCalls != 3 || of.Tree == nil || of.Tree.Steps != 12 || of.Tree.ToolCalls != 7 { // the inherited subagent is the root's
		t.Errorf("the fork: %+v %+v", of, of.Tree)
	}
	if none.Steps != 7 || *none.OwnSteps != 0 || *none.OwnToolCalls != 0 || len(none.OwnUsage) != 0 || none.ModelMS != 0 {
		t.Errorf("a fork that did nothing: %+v", none)
	}
	if mine, _, _ := strings.Cut(shown[silent], `"tree"`); strings.Contains(mine, `Ms"`) {
		t.Errorf("a time that nobody measured is told: %s", mine)
	}
	if out := p.strand(0, "show", id, "--stat").out; !strings.Contains(out, "\nwork         7 steps, 3 tool calls; model ") { // how long depends on the machine
		t.Errorf("%s", out)
	}
	index := filepath.Join(p.store, "index.db")
	for _, err := range []error{os.RemoveAll(index), os.RemoveAll(index + "-wal"), os.RemoveAll(index + "-shm"), os.Mkdir(index, 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, which := range []string{id, fork} {
		if out := p.strand(0, "show", which, "--stat", "--json").out; out != shown[which] {
			t.Errorf("without an index\n%s\nwith one\n%s", out, shown[which])
		}
	}
}
