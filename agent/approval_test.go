package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// parkedBeside is a process behind one that was killed while c1 and c2 waited for a person and c3 ran.
func parkedBeside(t *testing.T, ran *[]string) *world {
	t.Helper()
	started, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	busy := simple("busy", func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		once.Do(func() { close(started) })
		<-hold
		return tool.Text("late"), nil
	})
	busy.ReadOnly, busy.Parallel = true, true
	w := newWorld(t, nil, asking(ran, busy), calls(use("c1", "risky"), use("c2", "risky"), use("c3", "busy")))
	a := w.create("s-1111")
	w.followup(a, "go")
	<-started
	w.untilLog(a, "tool/call c3")
	if st := a.Status(); st.State != agent.StateRunning || len(st.Asks) != 2 {
		t.Errorf("while something runs the agent does not wait: %v, %d questions", st.State, len(st.Asks))
	}
	w2 := newWorld(t, copyOf(t, a.Session().Header(), events(t, a.Session())), asking(ran, busy), says("done"), says("more"))
	close(hold)
	return w2
}

// Two calls wait, one runs, the process is killed; a day later they are answered in reverse order.
func TestAnsweredADayLater(t *testing.T) {
	var ran []string
	w := parkedBeside(t, &ran)
	w.later(24 * 60 * 60 * 1000)
	a := w.resume("s-1111")
	if st := a.Status(); st.State != agent.StateWaiting || len(st.Asks) != 2 || st.Asks[0].CallID != "c1" {
		t.Fatalf("%+v", st)
	}
	if err := a.Kick(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.untilAsked(a, 2)
	for _, ans := range []struct{ id, verdict string }{{"c2", session.VerdictAllow}, {"c1", session.VerdictDeny}} {
		if err := a.Answer(w.ctx, ans.id, ans.verdict, ""); err != nil {
			t.Fatal(err)
		}
		if err := a.Answer(w.ctx, ans.id, session.VerdictDeny, ""); !errors.Is(err, agent.ErrAnswered) {
			t.Errorf("a second answer to %s: %v", ans.id, err)
		}
	}
	w.idle(a)
	has(t, a.Session(), "tool/result c3 TOOL_OUTCOME_UNKNOWN", "session/inherited", "approval/decided allow user", "approval/decided deny user", "step/end", "assistant/message done", "turn/end completed")
	has(t, a.Session(), "tool/call c2", "tool/result c2")
	has(t, a.Session(), "tool/result c1 DENIED")
	if len(ran) != 1 || !strings.HasPrefix(ran[0], "c2 ") {
		t.Errorf("ran %v", ran)
	}
	evs := events(t, a.Session())
	if day := evs[len(evs)-1].Time - evs[0].Time; day < 24*60*60*1000 {
		t.Errorf("the clock went on by %d ms", day)
	}
}

// The same, cancelled: every question has its end, and the next message works.
func TestCancelledADayLater(t *testing.T) {
	var ran []string
	w := parkedBeside(t, &ran)
	w.later(24 * 60 * 60 * 1000)
	a := w.resume("s-1111")
	if !a.Cancel(agent.CauseUser) {
		t.Fatal("nothing to cancel")
	}
	w.idle(a)
	w.say(a, "hi")
	has(t, a.Session(), "approval/decided deny cancel", "approval/decided deny cancel", "turn/end aborted user", "user/message hi", "assistant/message done", "turn/end completed")
	if len(ran) != 0 || len(a.Status().Asks) != 0 {
		t.Errorf("ran %v, asks %v", ran, a.Status().Asks)
	}
}

// An answer that was recorded and not carried out survives every death, with and without other questions open.
func TestAnswerSurvives(t *testing.T) {
	for _, verdict := range []string{session.VerdictAllow, session.VerdictDeny} {
		var ran []string
		w := parkedBeside(t, &ran)
		evs := w.stored("s-1111")
		// What a program records that only answers.
		answer := func(evs []session.Event, call string) []session.Event {
			for _, ev := range evs {
				if ev.Type != session.TypeApprovalAsked {
					continue
				}
				q, err := session.DecodeData[session.ApprovalAsked](ev)
				if err != nil || q.CallID != call {
					continue
				}
				d, err := session.Draft{Type: session.TypeApprovalDecided, Data: session.ApprovalDecided{
					AskID: q.AskID, CallID: q.CallID, Verdict: verdict, By: session.ByUser, Reason: "because"}}.Event(session.Seq(len(evs)), ev.Time)
				if err != nil {
					t.Fatal(err)
				}
				return append(evs, d)
			}
			t.Fatal("no question about " + call)
			return nil
		}
		reopen := func(evs []session.Event) (*world, *agent.Agent) {
			w := newWorld(t, copyOf(t, head("s-1111"), evs), asking(&ran), says("done"))
			return w, w.resume("s-1111")
		}
		evs = answer(evs, "c2")
		_, a := reopen(evs)
		if st := a.Status(); len(st.Asks) != 1 || st.Asks[0].CallID != "c1" || st.State != agent.StateWaiting {
			t.Fatalf("one is answered: %+v", st)
		}
		// Cut at every event of the next life, until the answer was carried out.
		evs = answer(evs, "c1")
		w, a = reopen(evs)
		if err := a.Kick(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.idle(a)
		has(t, a.Session(), "assistant/message done", "turn/end completed")
		if verdict == session.VerdictDeny {
			has(t, a.Session(), "tool/result c1 DENIED")
			has(t, a.Session(), "tool/result c2 DENIED")
			if len(ran) != 0 {
				t.Errorf("ran %v", ran)
			}
			continue
		}
		if len(ran) != 2 {
			t.Errorf("ran %v", ran)
		}
		// A policy that would have denied it does not overrule an answer that was given.
		ran = nil
		w = newWorld(t, copyOf(t, head("s-1111"), evs), func(o *agent.Options) { asking(&ran)(o); o.Policy = tool.PolicyNeverAsk }, says("done"))
		a = w.resume("s-1111")
		if err := a.Kick(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.idle(a)
		if len(ran) != 2 {
			t.Errorf("under never-ask: ran %v", ran)
		}
		// A rule that denies it does.
		ran = nil
		w = newWorld(t, copyOf(t, head("s-1111"), evs), asking(&ran), says("done"))
		a, err := w.agents.Resume(w.ctx, "s-1111", agent.Config{Rules: []tool.Rule{{Tool: "risky", Action: tool.Deny}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Kick(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.idle(a)
		has(t, a.Session(), "tool/result c1 DENIED")
		if len(ran) != 0 {
			t.Errorf("against a rule: ran %v", ran)
		}
	}
}

// Two calls of one step may have one id: each has its own question and its own answer.
func TestOneIDTwoQuestions(t *testing.T) {
	for _, killed := range []bool{false, true} {
		var ran []string
		w := newWorld(t, nil, asking(&ran), calls(use("same", "risky"), message.CallBlock("same", "risky", `{ }`)), says("done"))
		a := w.create("s-1111")
		w.followup(a, "go")
		asks := w.untilAsked(a, 2)
		if killed {
			w = newWorld(t, copyOf(t, a.Session().Header(), events(t, a.Session())), asking(&ran), says("done"))
			a = w.resume("s-1111")
			if err := a.Kick(w.ctx); err != nil {
				t.Fatal(err)
			}
			w.untilAsked(a, 2)
		}
		if asks[0].Assistant != asks[1].Assistant || asks[0].Index != 0 || asks[1].Index != 1 {
			t.Fatalf("%+v", asks)
		}
		if err := a.Answer(w.ctx, asks[1].AskID, session.VerdictAllow, ""); err != nil {
			t.Fatal(err)
		}
		if left := w.untilAsked(a, 1); left[0].AskID != asks[0].AskID {
			t.Fatalf("left %+v", left)
		}
		if err := a.Answer(w.ctx, asks[0].AskID, session.VerdictDeny, ""); err != nil {
			t.Fatal(err)
		}
		w.idle(a)
		if len(ran) != 1 || !strings.HasSuffix(ran[0], "/1") {
			t.Errorf("killed %t: ran %v", killed, ran)
		}
		has(t, a.Session(), "tool/result same DENIED")
		has(t, a.Session(), "assistant/message done", "turn/end completed")
	}
}

func TestAllowAlways(t *testing.T) {
	var ran []string
	body := func(_ context.Context, c tool.Call) (tool.Result, error) {
		ran = append(ran, c.ID)
		return tool.Text("ran"), nil
	}
	sh := tool.Definition{Name: "sh", Command: true, Run: body, Subject: func(args jsontext.Value) string {
		var a struct{ Command string }
		_ = json.Unmarshal(args, &a, json.MatchCaseInsensitiveNames(true))
		return a.Command
	}}
	shell := func(id, command string) message.Block {
		return message.CallBlock(id, "sh", `{"command":"`+command+`"}`)
	}
	set := func(o *agent.Options) { equip(sh)(o); o.Policy = tool.PolicyAsk }
	w := newWorld(t, nil, set, calls(shell("c1", "git status -s"), shell("c2", "git status; rm x"), shell("c3", "git status")),
		says("done"), calls(shell("c4", "git status --long")), says("again"))
	a := w.create("s-1111")
	w.followup(a, "go")
	w.untilAsked(a, 3)
	if _, err := a.AllowAlways(w.ctx, "c2", ""); !errors.Is(err, agent.ErrNoRule) {
		t.Errorf("a rule for two commands: %v", err)
	}
	if _, err := a.AllowAlways(w.ctx, "c1", "git push"); !errors.Is(err, agent.ErrNoRule) {
		t.Errorf("a rule that does not fit: %v", err)
	}
	if n := len(w.untilAsked(a, 3)); n != 3 {
		t.Errorf("%d questions", n)
	}
	rule, err := a.AllowAlways(w.ctx, "c1", "git status")
	if err != nil || rule.String() != "sh:git status" {
		t.Fatal(rule, err)
	}
	if left := w.untilAsked(a, 1); left[0].CallID != "c2" {
		t.Errorf("left: %+v", left)
	}
	if err := a.Answer(w.ctx, "c2", session.VerdictDeny, ""); err != nil {
		t.Fatal(err)
	}
	w.idle(a)
	has(t, a.Session(), "session/settings", "approval/decided allow user", "approval/decided allow policy", "approval/decided deny user", "turn/end completed")
	// It holds in the next life.
	if err := a.Dispose(w.ctx); err != nil {
		t.Fatal(err)
	}
	a = w.resume("s-1111")
	w.say(a, "again")
	if strings.Join(ran, " ") != "c1 c3 c4" {
		t.Errorf("ran %v", ran)
	}
	if rules := a.Session().State().Settings().Rules; len(rules) != 1 {
		t.Errorf("rules %+v", rules)
	}
}

// Rules of a command line are the session's from its next turn on.
func TestRulesAreKept(t *testing.T) {
	var ran []string
	w := newWorld(t, nil, asking(&ran), calls(use("c1", "risky")), says("done"), calls(use("c2", "risky")), says("done"))
	a, err := w.agents.Create(w.ctx, agent.Spec{Header: head("s-1111"), Config: agent.Config{Rules: []tool.Rule{{Tool: "risky", Action: tool.Allow}}}})
	if err != nil {
		t.Fatal(err)
	}
	w.say(a, "go")
	if err := a.Dispose(w.ctx); err != nil {
		t.Fatal(err)
	}
	a, err = w.agents.Resume(w.ctx, "s-1111", agent.Config{Rules: []tool.Rule{{Tool: "risky", Action: tool.Allow}}})
	if err != nil {
		t.Fatal(err)
	}
	w.say(a, "go on")
	if len(ran) != 2 || count(t, a.Session(), session.TypeSettings) != 1 {
		t.Errorf("ran %v, %d settings", ran, count(t, a.Session(), session.TypeSettings))
	}
	// One that this version does not know denies.
	if _, err := a.Session().Append(session.Draft{Type: session.TypeSettings, Data: session.Settings{Rules: []session.Rule{{Tool: "risky", Action: "perhaps"}}}}); err != nil {
		t.Fatal(err)
	}
	if err := a.Dispose(w.ctx); err != nil {
		t.Fatal(err)
	}
	w = newWorld(t, w.mem, asking(&ran), calls(use("c3", "risky")), says("done"))
	a = w.resume("s-1111")
	w.say(a, "and now")
	has(t, a.Session(), "tool/result c3 DENIED")
}
