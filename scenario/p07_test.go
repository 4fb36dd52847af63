package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/session"
)

// compacted is what `compact --json` prints.
type compacted struct {
	Outcome  string `json:"outcome"`
	Before   *int64 `json:"before"`
	After    *int64 `json:"after"`
	StartSeq *int64 `json:"startSeq"`
	EndSeq   *int64 `json:"endSeq"`
}

func summary(l line) line {
	l.Purpose = "compaction"
	return l
}

// longTalk is a session of that many messages, made without the command.
func (b *box) longTalk(id string, messages int) {
	b.t.Helper()
	a, err := createAuthor(b.store, id, b.ws, time.Now().Add(-time.Hour).UnixMilli())
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range messages / 2 {
		if err := a.say(fmt.Sprintf("question %d: %s", i, strings.Repeat("why ", 20)), fmt.Sprintf("answer %d: %s", i, strings.Repeat("because ", 20))); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := a.close(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) compactArgs(id string, lines ...line) []string {
	return []string{"compact", id, "--json", "--script", b.script(lines...)}
}

func (b *box) viewText(id string) string { return b.ok("show", id, "--view", "script", "--json").out }

// bracketStates are the states of the session's compactions, the oldest first.
func (b *box) bracketStates(id string) (out []string) {
	for _, br := range b.stat(id).Brackets {
		if br.Type == compact.TypeStart {
			out = append(out, br.State)
		}
	}
	return out
}

// compactsAtOnce compacts, takes that back, and wants the view of before.
func (b *box) compactsAtOnce(id, before string) {
	t := b.t
	t.Helper()
	r := b.ok(b.compactArgs(id, summary(say("what was said so far")))...)
	c := decode[compacted](t, r.out)
	if c.Outcome != "done" || *c.After >= *c.Before || *c.EndSeq <= *c.StartSeq {
		t.Errorf("%s", r.out)
	}
	if ms := b.view(id); checkView(ms) != nil || len(ms) > 100 || !strings.Contains(ms[0].PlainText(), "what was said so far") {
		t.Errorf("%d messages: %v", len(ms), checkView(ms))
	}
	b.requestsDoctor(id)
	if r := b.ok("compact", id, "--undo", "--json"); decode[compacted](t, r.out).Outcome != "undone" {
		t.Errorf("%s", r.out)
	}
	if b.viewText(id) != before {
		t.Error("the view after the undo is not the one before")
	}
}

// TestP07_KilledDuringCompaction kills `strand compact` while the model writes, and cuts the log of one that is done
// at every record. Reopening needs nothing, the view is that of before, and the next compaction begins at once.
func TestP07_KilledDuringCompaction(t *testing.T) {
	const id = "long-talk"
	b := newBox(t)
	b.longTalk(id, 300)
	before := b.viewText(id)

	t.Run("killed", func(t *testing.T) {
		for name, l := range map[string]line{
			"before the first word": {Hang: true},
			"among its words":       {Text: strings.Repeat("so far ", 400), ChunkMs: 20},
			"before the last word":  {Text: "so far", Hang: true},
		} {
			t.Run(name, func(t *testing.T) {
				b := *b
				b.t = t
				dead := len(b.bracketStates(id))
				p := b.start(b.compactArgs(id, summary(l))...)
				// Another process sees it run.
				for slices.Index(b.bracketStates(id), "live") < 0 {
					if p.cmd.ProcessState != nil {
						t.Fatalf("it ended: %s", p.errs)
					}
				}
				if got := b.bracketStates(id); len(got) != dead+1 || got[dead] != "live" {
					t.Errorf("%v", got)
				}
				p.kill()
				p.wait()
				r := b.ok("show", id, "--view", "script", "--json")
				t.Logf("shown within %v", r.took.Round(time.Millisecond))
				if r.out != before {
					t.Error("the view is not that of before")
				}
				if got := b.bracketStates(id); got[dead] != "dead" || slices.Contains(got, "live") {
					t.Errorf("%v", got)
				}
				if d := b.diagnose(id, 0); len(d.notes("dead-bracket")) == 0 || !strings.Contains(d.notes("dead-bracket")[0].Detail, "ended with its writer") {
					t.Errorf("%+v", d.Notes)
				}
				b.compactsAtOnce(id, before)
			})
		}
	})

	t.Run("answers", func(t *testing.T) {
		config := filepath.Join(b.dir, "quick.toml")
		if err := os.WriteFile(config, []byte("[compaction]\ntimeout = \"100ms\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, l := range map[string]line{
			"429":        {Error: &failure{Code: "RATE_LIMIT", Status: 429}},
			"empty":      {},
			"not at all": {Hang: true},
			"a call":     use(bash("true")),
		} {
			t.Run(name, func(t *testing.T) {
				b := *b
				b.t = t
				r := b.strand(append(b.compactArgs(id, summary(l)), "--config", config)...)
				if r.code != 8 || !strings.Contains(r.err, "compaction-failed") {
					t.Errorf("%v", r)
				}
				if got := b.bracketStates(id); got[len(got)-1] != "closed" || b.viewText(id) != before {
					t.Errorf("%v", got)
				}
				b.compactsAtOnce(id, before)
			})
		}
		t.Run("longer than it was", func(t *testing.T) {
			r := b.ok(b.compactArgs(id, summary(say(strings.Repeat("because of this and that ", 5000))))...)
			if decode[compacted](t, r.out).Outcome != "no-gain" || b.viewText(id) != before {
				t.Errorf("%v", r)
			}
		})
	})

	t.Run("cut at every record", func(t *testing.T) {
		done := newBox(t)
		copyTree(t, b.store, done.store)
		done.ok(done.compactArgs(id, summary(say("the new view")))...)
		after := done.viewText(id)
		whole := done.log(id)
		for keep := len(b.log(id).recs) + 1; keep <= len(whole.recs); keep++ {
			last := whole.recs[keep-1].Type
			t.Run(fmt.Sprintf("%d %s", keep, strings.ReplaceAll(last, "/", "-")), func(t *testing.T) {
				c := newBox(t)
				copyTree(t, done.store, c.store)
				cutLog(t, c, whole, id, keep, 0)
				switch got := c.viewText(id); {
				case got == before && last != session.TypeUserMessage && last != compact.TypeEnd:
				case got == after && (last == session.TypeUserMessage || last == compact.TypeEnd):
				default:
					t.Errorf("behind %s the view is neither that of before nor the new one", last)
				}
				if slices.Contains(c.bracketStates(id), "live") {
					t.Error("a compaction is said to run")
				}
				for range 2 { // reopened twice without work
					if r := c.strandIn("", "chat", id, "--script", c.script(say("unused"))); r.code != 0 {
						t.Errorf("%v", r)
					}
				}
				if n := len(c.log(id).recs); n != keep {
					t.Errorf("looking wrote %d records", n-keep)
				}
				for _, args := range [][]string{{"compact", id, "--undo"}, {"title", id, "t"}} { // with and without something to undo
					c.strand(args...)
				}
				c.compactsAtOnce(id, before)
				// A fork of the middle is free as well.
				f := decode[struct {
					ID string `json:"id"`
				}](t, c.ok("fork", id, "--at", fmt.Sprint(keep-1), "--json").out)
				if slices.Contains(c.bracketStates(f.ID), "live") || checkView(c.view(f.ID)) != nil {
					t.Error("the fork is not free")
				}
				c.ok(c.compactArgs(f.ID, summary(say("of the fork")))...)
			})
		}
	})
}

// TestCompactByOthers: on a held session, one that is not there, an open turn.
func TestCompactRefused(t *testing.T) {
	b := newBox(t)
	if r := b.strand("compact", "no-such-session", "--script", b.script()); r.code != 5 {
		t.Errorf("%v", r)
	}
	id := b.run("hi", []line{say("hello")}).SessionID
	still := snap(t, b.store).only("sessions")
	r := b.ok(b.compactArgs(id)...)
	if decode[compacted](t, r.out).Outcome != "nothing" {
		t.Errorf("%v", r)
	}
	if d := still.diff(snap(t, b.store).only("sessions")); d != "" {
		t.Errorf("nothing to compact, and it wrote:\n%s", d)
	}
	if r := b.strand("compact", id, "--undo"); r.code != 1 || !strings.Contains(r.err, "no compaction is left to undo") {
		t.Errorf("%v", r)
	}
	p := b.start(b.runArgs("wait", []line{{Hang: true}}, "--session", id, "--output", "stream-json")...)
	p.until(`"type":"step/start"`)
	if r := b.strand(b.compactArgs(id, summary(say("no")))...); r.code != 3 {
		t.Errorf("%v", r)
	}
	p.kill()
	p.wait()
}

// Ctrl-C ends a compaction: the log says so, the view stays, and what was typed meanwhile runs.
func TestCompactInterrupted(t *testing.T) {
	const id = "stopped-talk"
	b := newBox(t)
	b.longTalk(id, 40)
	before := b.viewText(id)
	p := b.start(b.compactArgs(id, summary(line{Hang: true}))...)
	for slices.Index(b.bracketStates(id), "live") < 0 {
		if p.cmd.ProcessState != nil {
			t.Fatal(p.errs)
		}
	}
	// Meanwhile nobody else gets in.
	if r := b.strand(b.compactArgs(id, summary(say("no")))...); r.code != 3 {
		t.Errorf("%v", r)
	}
	_ = p.cmd.Process.Signal(os.Interrupt)
	if code := p.wait(); code != 1 {
		t.Errorf("exit code %d: %s", code, p.errs)
	}
	if got := b.bracketStates(id); len(got) != 1 || got[0] != "closed" || b.viewText(id) != before {
		t.Errorf("%v", got)
	}
	l := b.log(id)
	if e := l.recs[len(l.recs)-1]; e.Type != compact.TypeEnd || !strings.Contains(e.whole(t), `"code":"ABORTED"`) {
		t.Errorf("the log ends with %s", e.event)
	}
	r := b.strandIn("/compact\nand then?\n", "chat", id, "--script", b.script(summary(say("all of it")), say("then this")))
	if r.code != 0 || !strings.Contains(r.out, "compacted: about") || !strings.Contains(r.out, "then this") {
		t.Errorf("%v", r)
	}
}

// What a run tells of its tokens holds those of a compaction that it took, and so does the session's total.
func TestCompactionIsCounted(t *testing.T) {
	const id = "counted-talk"
	b := newBox(t)
	b.longTalk(id, 40)
	sum, answer := summary(say("all of it")), say("ok")
	sum.Usage, answer.Usage = &usage{500, 7}, &usage{10, 1}
	r := b.ok(b.runArgs("go", []line{{Error: &failure{Code: "CONTEXT_WINDOW_EXCEEDED"}}, sum, answer}, "--session", id, "--output", "json")...)
	type told struct {
		Usage usage `json:"usage"`
	}
	if u := decode[told](t, r.out).Usage; u != (usage{510, 8}) {
		t.Errorf("the run tells %+v", u)
	}
	totals := func(what, id string) {
		t.Helper()
		if u := decode[told](t, b.ok("show", id, "--stat", "--json").out).Usage; u != (usage{510, 8}) {
			t.Errorf("%s: the session tells %+v", what, u)
		}
	}
	totals("compacted", id)
	b.ok("compact", id, "--undo") // what was spent stays spent
	totals("undone", id)
	totals("forked", decode[forked](t, b.ok("fork", id, "--json").out).ID)
	b.ok(b.compactArgs(id, summary(say("again")))...)
	totals("compacted again, by one that tells nothing", id)
}

// Two processes ask for a compaction at the same moment: whoever comes second is told that the session is held, and
// nothing is broken.
func TestCompactRace(t *testing.T) {
	const id = "raced-talk"
	b := newBox(t)
	b.longTalk(id, 40)
	for round := range 3 {
		slow := summary(say(fmt.Sprintf("summary %d", round)))
		slow.DelayMs = 150
		var procs []*proc
		for range 2 {
			procs = append(procs, b.start(b.compactArgs(id, slow)...))
		}
		done := 0
		for _, p := range procs {
			switch code := p.wait(); {
			case code == 0:
				done++
			case code != 3 || !strings.Contains(p.errs.String(), "held by"):
				t.Errorf("exit code %d: %s", code, p.errs)
			}
		}
		if done == 0 {
			t.Error("both were refused")
		}
		for _, st := range b.bracketStates(id) {
			if st != "closed" {
				t.Errorf("round %d: %v", round, b.bracketStates(id))
			}
		}
		if err := checkView(b.view(id)); err != nil {
			t.Error(err)
		}
		b.ok(b.runArgs(strings.Repeat("more to say ", 400), []line{say("yes")}, "--session", id)...)
	}
	b.doctor(id)
}
