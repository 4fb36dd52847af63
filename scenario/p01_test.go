package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// threeTurns is the script of P1: the second turn calls four tools in two steps, the third is a plain answer.
func (b *box) threeTurns() []line {
	trace := filepath.Join(b.out, "trace")
	return []line{
		say("hello"),
		use(bash("echo one >> "+trace), write("a.txt", "alpha\n")),
		use(read("a.txt"), bash("echo two >> "+trace)),
		say("done"),
		say("plain answer"),
	}
}

// TestP1_EveryCrashPointLeavesAUsableSession cuts a finished log at every record and at every byte of its
// last three records, and goes on with each copy.
func TestP1_EveryCrashPointLeavesAUsableSession(t *testing.T) {
	t.Run("three lives", func(t *testing.T) {
		t.Parallel()
		b := newBox(t)
		s := b.threeTurns()
		id := b.run("first", s[:1]).SessionID
		b.run("second", s[1:4], "--session", id)
		b.run("third", s[4:], "--session", id)
		cutEverywhere(b, id, false)
	})
	t.Run("one life", func(t *testing.T) {
		t.Parallel()
		b := newBox(t)
		r := b.strandIn("first\nsecond\nthird\n", "chat", "--script", b.script(b.threeTurns()...), "--cwd", b.ws, "--approve", "yolo")
		if r.code != 0 {
			t.Fatal(r)
		}
		cutEverywhere(b, b.sessionIDs()[0], true)
	})
}

// cutEverywhere tries the cuts of a session's log: behind every record, and at every byte of the last three.
func cutEverywhere(b *box, id string, bytes bool) {
	t := b.t.(*testing.T)
	whole := b.log(id)
	if n := whole.count(session.TypeTurnEnd); n != 3 || whole.count(session.TypeToolResult) != 4 {
		t.Fatalf("the log has %d turns and %d results, want 3 and 4", n, whole.count(session.TypeToolResult))
	}
	type cut struct {
		keep int   // whole records that stay
		torn int64 // bytes of the next one that stay too
	}
	var cuts []cut
	for i := 1; i <= len(whole.recs); i++ {
		cuts = append(cuts, cut{i, 0})
	}
	if bytes {
		for i := len(whole.recs) - 3; i < len(whole.recs); i++ {
			for n := int64(1); n < whole.recs[i].end-whole.recs[i].off; n++ {
				cuts = append(cuts, cut{i, n})
			}
		}
	}
	var unknown, notStarted, torn atomic.Int64
	t.Run("cuts", func(t *testing.T) {
		for _, c := range cuts {
			t.Run(fmt.Sprintf("%d+%d", c.keep, c.torn), func(t *testing.T) {
				t.Parallel()
				cb := newBox(t)
				if err := os.CopyFS(cb.store, os.DirFS(b.store)); err != nil {
					t.Fatal(err)
				}
				cutLog(t, cb, whole, id, c.keep, c.torn)
				before := cb.log(id)
				if len(before.recs) != c.keep {
					t.Fatalf("the cut left %d records, want %d", len(before.recs), c.keep)
				}
				open := before.openCalls(t)
				for _, o := range open {
					if o.started >= 0 {
						unknown.Add(1)
					} else {
						notStarted.Add(1)
					}
				}
				if before.torn > 0 {
					torn.Add(1)
				}
				goOn(cb, id, before, open)
			})
		}
	})
	t.Logf("%d cuts: %d torn tails, %d calls of unknown outcome, %d not started", len(cuts), torn.Load(), unknown.Load(), notStarted.Load())
	if unknown.Load() == 0 || notStarted.Load() == 0 {
		t.Error("the cuts meet no unfinished calls")
	}
}

// cutLog removes what lies behind a place of the log.
func cutLog(t *testing.T, b *box, whole storedLog, id string, keep int, torn int64) {
	t.Helper()
	dir := filepath.Join(b.store, "sessions", id)
	last := whole.recs[keep-1]
	size := last.end
	if torn > 0 {
		next := whole.recs[keep]
		last, size = next, next.off+torn
	}
	name := filepath.Base(last.file)
	if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
		t.Fatal(err)
	}
	for _, s := range whole.segments {
		if s > name {
			if err := os.Remove(filepath.Join(dir, s)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// goOn resumes a cut session and holds it against P1.
func goOn(b *box, id string, before storedLog, open []owed) {
	t := b.t
	res := b.run("go on", []line{say("going on"), say("going on")}, "--session", id)
	if res.Text != "going on" || res.SessionID != id {
		t.Errorf("the run gave %+v", res)
	}
	after := b.log(id)
	for i, e := range before.recs {
		if after.recs[i].event != e.event {
			t.Errorf("record %d was\n%s\nand is\n%s", i, e.event, after.recs[i].event)
		}
	}
	ms := b.view(id)
	if err := checkView(ms); err != nil {
		t.Errorf("the view is not legal: %v", err)
	}
	for _, c := range open {
		text, ok := resultText(ms, c.id)
		want := "before it was recorded as started"
		if c.started >= 0 {
			want = "its outcome is not known"
		}
		if !ok || !strings.Contains(text, want) {
			t.Errorf("call %+v reads %q, want %q", c, text, want)
		}
	}
	if last := ms[len(ms)-1]; last.PlainText() != "going on" {
		t.Errorf("the view ends in %q", last.PlainText())
	}
	if !slices.ContainsFunc(ms, func(m message.Message) bool {
		return m.Role == message.RoleUser && strings.Contains(m.PlainText(), "go on")
	}) {
		t.Error("the new prompt is not in the view")
	}
	for id, n := range after.results(t) {
		if n != 1 {
			t.Errorf("call %s has %d results", id, n)
		}
	}
	still := snap(t, b.store).only("sessions")
	for range 2 {
		if r := b.strandIn("", "chat", id, "--script", b.script(say("unused"))); r.code != 0 {
			t.Errorf("open and leave: %v", r)
		}
	}
	if d := still.diff(snap(t, b.store).only("sessions")); d != "" {
		t.Errorf("open and leave changed the session:\n%s", d)
	}
}
