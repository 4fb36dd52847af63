package scenario

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/session"
)

// TestInterrupted: SIGINT and SIGTERM cancel the turn and leave a log in which everything is closed.
func TestInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			h := newHolder(b, say("never said"))
			if err := h.p.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := h.p.wait(); code != 1 {
				t.Errorf("want exit code 1, it is %d: %s", code, h.p.errs)
			}
			l := b.log(h.id)
			end := data[session.TurnEnd](t, l.recs[len(l.recs)-1])
			if l.recs[len(l.recs)-1].Type != session.TypeTurnEnd || end.Reason.Kind != session.ReasonAborted {
				t.Errorf("the log ends in %s", l.recs[len(l.recs)-1].event)
			}
			if open := l.openCalls(t); len(open) > 0 {
				t.Errorf("calls are left open: %+v", open)
			}
			if syscall.Kill(-h.toolGroup, 0) == nil {
				t.Error("the tool's processes are left running")
			}
			if st := b.stat(h.id); st.Activity != "idle" || st.Holder != nil {
				t.Errorf("stat says %+v", st)
			}
			if err := checkView(b.view(h.id)); err != nil {
				t.Error(err)
			}
			if r := b.run("next", []line{say("fine")}, "--session", h.id); r.Text != "fine" || len(b.log(h.id).openTurn()) > 0 {
				t.Errorf("it goes on with %+v", r)
			}
		})
	}
}

// TestKilledChanges kills the commands that make one small change - fork, undo, title - at a random moment
// of their short lives: the change is there or not, and nothing half of it.
func TestKilledChanges(t *testing.T) {
	c := &tally{n: map[string]int{}}
	t.Run("seeds", func(t *testing.T) {
		for seed := range 4 {
			t.Run(strconv.Itoa(seed), func(t *testing.T) {
				t.Parallel()
				killedChanges(newBox(t), rand.New(rand.NewPCG(uint64(seed), 13)), c)
			})
		}
	})
	t.Logf("\n%v", c)
}

func killedChanges(b *box, r *rand.Rand, c *tally) {
	t := b.t
	id := b.run("first", b.threeTurns()[1:4]).SessionID
	b.run("second", []line{say("more")}, "--session", id)
	for n := range 25 {
		before, sessions := b.log(id), b.sessionIDs()
		what := []string{"fork", "undo", "redo", "title"}[r.IntN(4)]
		args := map[string][]string{
			"fork": {"fork", id}, "undo": {"undo", id}, "redo": {"undo", id, "--redo"}, "title": {"title", id, "title " + strconv.Itoa(n)},
		}[what]
		p := b.start(args...)
		spin(r.IntN(10_000_000)) // about as long as the command takes
		p.kill()
		code := p.wait()
		switch code {
		case -1:
			c.add(what + ": killed")
		case 0:
			c.add(what + ": done")
		case 1: // nothing to undo or redo
			c.add(what + ": refused")
		default:
			t.Errorf("%s: exit code %d: %s", what, code, p.errs)
		}
		after := b.log(id)
		for i, e := range before.recs {
			if after.recs[i].event != e.event {
				t.Errorf("%s changed record %d", what, i)
			}
		}
		if code == 0 && what != "fork" && len(after.recs) == len(before.recs) {
			t.Errorf("%s was done and left nothing", what)
		}
		now := b.sessionIDs()
		if code == 0 && what == "fork" && len(now) != len(sessions)+1 {
			t.Errorf("the fork was made and is not there")
		}
		if code == -1 && len(now) > len(sessions) {
			c.add("fork: killed, and whole")
		}
		for _, row := range b.list() {
			if row.State != "ok" {
				t.Errorf("after a killed %s the list says %+v", what, row)
			}
		}
	}
	for _, s := range b.sessionIDs() {
		b.doctor(s)
		if err := checkView(b.view(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if res := b.run("next", []line{say("fine")}, "--session", s); !strings.HasPrefix(res.Text, "fine") {
			t.Errorf("%s goes on with %+v", s, res)
		}
	}
}
