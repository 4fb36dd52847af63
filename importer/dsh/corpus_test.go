package dsh

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/view"
	"github.com/strandline-dev/strandline/view/viewtest"
)

// corpus returns the directory of real files, which is not part of the repository.
func corpus(t testing.TB) string {
	for dir, up := "..", 0; up < 6; up++ {
		p := filepath.Join(dir, "shared", "corpus", "dsh")
		if fi, err := os.Stat(p); err == nil && fi.IsDir() {
			return p
		}
		dir = filepath.Join(dir, "..")
	}
	t.Skip("there are no real files beside the repository")
	return ""
}

// read reads text and checks what holds for every file: the seqs are contiguous, the counts add up, each event is
// in the form that a log keeps, the log folds, is not read-only, and has a legal view at its end.
func read(t testing.TB, text []byte) (*importer.Log, []session.Event, session.State) {
	t.Helper()
	var events []session.Event
	l, err := Format{}.Read(context.Background(), bytes.NewReader(text), nil, func(ev session.Event) error {
		events = append(events, ev)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(events); l.Events != session.Seq(n) || l.Fidelity.Kept+l.Fidelity.Mapped+l.Fidelity.Notes != n {
		t.Fatalf("%d events were handed over; told are %d: %+v", n, l.Events, l.Fidelity)
	}
	for i, ev := range events {
		if ev.Seq != session.Seq(i) {
			t.Fatalf("event %d has seq %d", i, ev.Seq)
		}
		if data, err := session.CheckData(ev.Data); err != nil || !bytes.Equal(data, ev.Data) {
			t.Fatalf("event %d (%s): a log would not keep this: %v: %s", i, ev.Type, err, ev.Data)
		}
	}
	st := fold(t, events)
	if u := st.Unknown(); len(u) > 0 {
		t.Errorf("the session would be read-only: unknown types %v", u)
	}
	return l, events, st
}

func fold(t testing.TB, events []session.Event) session.State {
	t.Helper()
	reg, err := session.NewRegistry(compact.Kinds(), importer.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	st, err := session.Fold(session.Header{ID: "test", Imported: &session.Imported{Events: session.Seq(len(events))}}, reg, session.Events(events))
	if err != nil {
		t.Fatal(err)
	}
	items, err := session.ProjectAll(st, session.Events(events))
	if err != nil {
		t.Fatal(err)
	}
	for _, provider := range []string{"", "deepseek", "openai"} {
		if err := viewtest.Check(view.Build(items, st, provider).Messages, provider); err != nil {
			t.Errorf("the view for %q is not legal: %v", provider, err)
		}
	}
	return st
}

func counts(list []importer.Count) string {
	var s []string
	for _, c := range list {
		s = append(s, c.What)
	}
	return strings.Join(s, ", ")
}

// TestCorpus reads every real file. The numbers were counted in the files by other means.
func TestCorpus(t *testing.T) {
	dir := corpus(t)
	want := map[string]struct {
		events, notes, tail int
		turns, surface      int
		open                bool // the last turn is open
		dropped             string
	}{
		"aug12_compact-start_seqtime.jsonl":        {events: 31, turns: 1, surface: 4},
		"head_advanced-toolchain_child1.jsonl":     {events: 18, turns: 1, surface: 3},
		"head_advanced-toolchain_parent.jsonl":     {events: 74, turns: 1, surface: 12},
		"head_cancel-tool-calls.jsonl":             {events: 24, turns: 1, surface: 5},
		"head_compaction-recovery.jsonl":           {events: 31, turns: 1, surface: 4},
		"head_handshake_header_only.jsonl":         {},
		"head_max-tokens-continue.jsonl":           {events: 32, turns: 2, surface: 5},
		"head_parallel-tool-calls.jsonl":           {events: 32, turns: 1, surface: 6},
		"head_subagent-fork_child.jsonl":           {events: 99, turns: 2, surface: 6},
		"head_tool-outcome-unknown.jsonl":          {events: 24, turns: 2, surface: 5},
		"jul07_live-mode-switching.jsonl":          {events: 2211, turns: 9, surface: 46},
		"jul30_session-inherited_fork_child.jsonl": {events: 90, turns: 2, surface: 4},
		"jun20_v1_tool-call.jsonl":                 {events: 106, notes: 2, turns: 1, surface: 4, dropped: "usage rows"},
		"v3_malformed_torn_tail.jsonl":             {events: 10, notes: 2, tail: 85, turns: 1, surface: 2, open: true, dropped: "system prompt as a message: system/message"},
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			w, ok := want[f.Name()]
			if !ok {
				t.Fatal("no expectation for this file")
			}
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if !(Format{}).Sniff(text[:min(len(text), importer.SniffBytes)]) {
				t.Error("it is not recognised")
			}
			l, events, st := read(t, text)
			_, open := st.Turn()
			if len(events) != w.events || l.Fidelity.Notes != w.notes || int(l.Tail.Bytes) != w.tail ||
				st.Turns() != w.turns || st.SurfaceLen() != w.surface || open != w.open || counts(l.Fidelity.Dropped) != w.dropped {
				t.Errorf("%d events, %d notes, a tail of %d, %d turns, %d on the surface, open %v, dropped %q; want %+v",
					len(events), l.Fidelity.Notes, l.Tail.Bytes, st.Turns(), st.SurfaceLen(), open, counts(l.Fidelity.Dropped), w)
			}
			if p := st.Problems(); len(p) > 0 {
				t.Errorf("the fold had to bend: %v", p)
			}
			if len(l.Fidelity.Unknown) > 0 {
				t.Errorf("unknown types %v", l.Fidelity.Unknown)
			}
			for n := 0; n <= len(events); n += max(1, len(events)/60) { // every prefix of a log has a legal view
				fold(t, events[:n])
			}
		})
	}
}

func load(t *testing.T, name string) (*importer.Log, []session.Event, session.State) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(corpus(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, text)
}

// TestCorpusCompaction: the summary stands for what it replaced, in both vocabularies.
func TestCorpusCompaction(t *testing.T) {
	for _, name := range []string{"aug12_compact-start_seqtime.jsonl", "head_compaction-recovery.jsonl"} {
		_, events, st := load(t, name)
		i := slices.IndexFunc(events, func(ev session.Event) bool { return ev.Op.Kind == session.OpReplace })
		if i < 0 {
			t.Fatalf("%s: no replacement", name)
		}
		hidden := st.HiddenBy(session.Seq(i))
		if len(hidden) == 0 || hidden[0] != events[i].Op.Start || slices.ContainsFunc(st.Surface(), func(n session.Node) bool { return n.Seq == hidden[0] }) {
			t.Errorf("%s: the message at %d hides %v", name, i, hidden)
		}
		b := st.Brackets(st.Next())
		if len(b) != 1 || b[0].State != session.BracketClosed || b[0].Type != typeCompactStart {
			t.Errorf("%s: brackets %+v", name, b)
		}
		if j := slices.IndexFunc(events, func(ev session.Event) bool { return ev.Type == typeCompactSummary }); j < 0 || !bytes.Contains(events[j].Data, []byte(`"shadowedSeqs":[4]`)) {
			t.Errorf("%s: the summary lost its data", name)
		}
	}
}

// TestCorpusForks: the inherited part ends where the header says, packed rows counted as the events that they are.
func TestCorpusForks(t *testing.T) {
	for name, seed := range map[string]session.Seq{"jul30_session-inherited_fork_child.jsonl": 38, "head_subagent-fork_child.jsonl": 42} {
		l, _, st := load(t, name)
		if l.SeedLength != seed || l.Parent != "96cf59c9-b347-48b9-b234-a5200913ad05" || l.Depth != 1 {
			t.Errorf("%s: lineage %+v", name, l)
		}
		if b := st.Boundaries(); !slices.Equal(b, []session.Seq{seed}) {
			t.Errorf("%s: boundaries at %v, want %d", name, b, seed)
		}
	}
}

// TestCorpusUsage: usage that had rows of its own stands on the answers, once.
func TestCorpusUsage(t *testing.T) {
	_, _, st := load(t, "jun20_v1_tool-call.jsonl")
	total, _ := st.Usage()
	if total == nil || total.InputTokens == 0 || cmp.Compare(total.OutputTokens, 95) < 0 {
		t.Errorf("usage %+v", total)
	}
	_, events, _ := load(t, "jun20_v1_tool-call.jsonl")
	n := 0
	for _, ev := range events {
		if ev.Type == session.TypeAssistantMessage {
			if d, err := session.DecodeData[session.AssistantMessage](ev); err != nil || d.Usage == nil {
				t.Errorf("the answer at %d has no usage: %v", ev.Seq, err)
			}
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d answers", n)
	}
}
