package subagent_test

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/subagent"
	"github.com/strandline-dev/strandline/tool"
)

// flushed makes sure that everything accepted is stored: what a kill at this moment leaves.
func (w *world) flushed() {
	w.t.Helper()
	for _, h := range w.k.Handles() {
		if err := h.Flush(w.ctx); err != nil {
			w.t.Fatal(err)
		}
	}
}

// Killed while one child is waited for and one works in the background: the next life says so of both, once, with
// its first turn and not before.
func TestKilledWithChildren(t *testing.T) {
	forever := make(chan struct{})
	one, two := make(chan struct{}), make(chan struct{})
	w := newWorld(t, setup{replies: map[string][]reply{
		"turn":       {calls(task("c1", `"prompt":"x","name":"a","background":true`)), calls(task("c2", `"prompt":"y","name":"b"`))},
		"subagent/a": {calls(message.CallBlock("e1", "task", `{"action":"list"}`)), begun(one, after(forever, says("never")))},
		"subagent/b": {begun(two, after(forever, says("never")))},
	}})
	a := w.create("root")
	w.followup(a, "go")
	w.wait(one)
	w.wait(two)
	w.flushed()
	mem := medium(t, w, nil)

	w2 := newWorld(t, setup{mem: mem, prefix: "later", replies: map[string][]reply{"turn": {says("I see"), says("yes")}}})
	_, before := w2.stored("root")
	a2 := w2.resume("root")
	if err := a2.Dispose(w2.ctx); err != nil {
		t.Fatal(err)
	}
	if _, after := w2.stored("root"); len(after) != len(before) {
		t.Fatal("opening a session wrote to it")
	}
	a2 = w2.resume("root")
	w2.say(a2, "go on")
	log := a2.Session().Events()
	has(t, log, "tool/result c2 TOOL_OUTCOME_UNKNOWN", "turn/end interrupted", "session/inherited", "inbox/spliced", "subagent/end child-1 interrupted", "subagent/end child-2 interrupted", "turn/start",
		"user/message Subagent child-1 did not finish: interrupted (its process died).", "user/message Subagent child-2 did not finish: interrupted (its process died).", "user/message go on", "assistant/message I see")
	w2.say(a2, "and now?")
	if n := count(t, a2.Session().Events(), "subagent/end"); n != 2 {
		t.Errorf("%d ends", n)
	}
	_, child := w2.stored("child-1")
	if child[len(child)-1].Type == session.TypeTurnEnd {
		t.Error("the child's log was written to by looking at it")
	}
}

// A child waits for a person and the process is killed. The next life asks again through the parent; the answer
// reaches the parent as a message.
func TestKilledWhileChildWaits(t *testing.T) {
	ask := func(o *agent.Options) { o.Policy = tool.PolicyAsk }
	w := newWorld(t, setup{agents: ask, tools: tools("risky"), replies: map[string][]reply{
		"turn":     {calls(task("c1", `"prompt":"x"`))},
		"subagent": {calls(message.CallBlock("e1", "risky", "{}"))},
	}})
	a := w.create("root")
	w.followup(a, "go")
	w.quiet(a)
	if st := a.Status().State; st != agent.StateWaiting {
		t.Errorf("the parent is %s while its child waits for a person", st)
	}
	if qs := w.d.Questions("root"); len(qs) != 1 || qs[0].Child.ID() != "child-1" || qs[0].CallID != "e1" {
		t.Fatalf("questions %+v", qs)
	}
	w.flushed()
	mem := medium(t, w, nil)

	w2 := newWorld(t, setup{mem: mem, agents: ask, tools: tools("risky"), prefix: "later", replies: map[string][]reply{
		"turn":     {says("waiting"), says("thanks")},
		"subagent": {says("risky done")},
	}})
	a2 := w2.resume("root")
	w2.say(a2, "go on")
	if n := count(t, a2.Session().Events(), "subagent/end"); n != 0 {
		t.Fatal("a child that waits is settled")
	}
	if text := restated(t, w2, a2); !strings.Contains(text, "child-1: waits for a person") {
		t.Errorf("stated %q", text)
	}
	w2.quiet(a2)
	qs := w2.d.Questions("root")
	if len(qs) != 1 {
		t.Fatalf("questions %+v", qs)
	}
	if err := qs[0].Child.Answer(w2.ctx, qs[0].AskID, session.VerdictAllow, ""); err != nil {
		t.Fatal(err)
	}
	w2.until(a2.Session(), "subagent/end child-1 completed")
	w2.say(a2, "and?")
	has(t, a2.Session().Events(), "tool/result c1 TOOL_OUTCOME_UNKNOWN", "subagent/end child-1 completed", "user/message Subagent child-1 is done. Its answer:||risky done", "assistant/message thanks")
	_, child := w2.stored("child-1")
	has(t, child, "session/inherited", "approval/decided allow user", "tool/result e1 risky ran", "assistant/message risky done")
}

// A process ends in good order while a child waits: the call says so, the child stays parked, and whoever answers
// it by its own id lets the parent's next life know.
func TestLeftWhileChildWaits(t *testing.T) {
	ask := func(o *agent.Options) { o.Policy = tool.PolicyAsk }
	w := newWorld(t, setup{agents: ask, tools: tools("risky"), replies: map[string][]reply{
		"turn":     {calls(task("c1", `"prompt":"x"`))},
		"subagent": {calls(message.CallBlock("e1", "risky", "{}"))},
	}})
	a := w.create("root")
	w.followup(a, "go")
	w.quiet(a)
	if err := a.Dispose(w.ctx); err != nil {
		t.Fatal(err)
	}
	_, log := w.stored("root")
	has(t, log, "tool/result c1 TASK_WAITING", "turn/end aborted shutdown")
	if n := count(t, log, "subagent/end"); n != 0 {
		t.Error("a child that waits is settled")
	}
	_, child := w.stored("child-1")
	if n := count(t, child, "approval/decided") + count(t, child, "turn/end"); n != 0 {
		t.Errorf("the child is not parked:\n%s", shape(t, child))
	}
	w.model.mu.Lock()
	w.model.replies = map[string][]reply{"subagent": {says("risky done")}, "turn": {says("fine")}}
	w.model.mu.Unlock()
	c := w.resume("child-1")
	q := c.Session().State().Asks()[0]
	if err := c.Answer(w.ctx, q.AskID, session.VerdictDeny, ""); err != nil {
		t.Fatal(err)
	}
	w.idle(c)
	if err := c.Dispose(w.ctx); err != nil {
		t.Fatal(err)
	}
	a = w.resume("root")
	w.say(a, "well?")
	has(t, a.Session().Events(), "subagent/end child-1 completed", "user/message Subagent child-1 is done. Its answer:||risky done", "user/message well?")
}

// A child whose lock is held by another process runs there and stays what it is, until it is let go.
func TestHeldElsewhere(t *testing.T) {
	forever, one := make(chan struct{}), make(chan struct{})
	w := newWorld(t, setup{replies: map[string][]reply{
		"turn":     {calls(task("c1", `"prompt":"x","background":true`)), says("ok")},
		"subagent": {begun(one, after(forever, says("never")))},
	}})
	a := w.create("root")
	w.say(a, "go")
	w.wait(one)
	w.flushed()
	mem := medium(t, w, nil)
	other := newWorld(t, setup{mem: mem, prefix: "other", replies: map[string][]reply{"subagent": {says("from elsewhere")}}})
	held := other.resume("child-1")

	w2 := newWorld(t, setup{mem: mem, prefix: "later", replies: map[string][]reply{"turn": {calls(task("c2", `"action":"list"`)), says("I see"), says("yes")}}})
	a2 := w2.resume("root")
	w2.say(a2, "go on")
	if text := resultText(t, a2.Session().Events(), "c2"); text != "- child-1: is not run by this process" {
		t.Errorf("list %q", text)
	}
	if n := count(t, a2.Session().Events(), "subagent/end"); n != 0 {
		t.Fatal("a child that another process holds is settled")
	}
	other.say(held, "finish it")
	if err := held.Dispose(other.ctx); err != nil {
		t.Fatal(err)
	}
	w2.say(a2, "and now?")
	has(t, a2.Session().Events(), "subagent/end child-1 completed", "user/message Subagent child-1 is done. Its answer:||from elsewhere", "user/message and now?")
}

// shutting fails to open one session, as long as it is told to.
type shutting struct {
	agent.Sessions
	id  session.ID
	err *error
}

func (s shutting) Resume(ctx context.Context, id session.ID) (agent.Handle, error) {
	if id == s.id && *s.err != nil {
		return nil, *s.err
	}
	return s.Sessions.Resume(ctx, id)
}

// A child whose log cannot be opened for the moment is not settled by that: it is said, once, and tried again before each
// turn, until it can be.
func TestChildCannotBeOpened(t *testing.T) {
	for name, failure := range map[string]error{
		"medium":     &os.PathError{Op: "read", Path: "/store/child-1", Err: syscall.EIO},
		"full":       &os.PathError{Op: "create", Path: "/store/child-1", Err: syscall.ENOSPC},
		"permission": fs.ErrPermission,
		"read-only":  &store.ReadOnlyError{Path: "/store", Cause: syscall.EROFS},
		"damaged":    &store.DamagedError{ID: "child-1"},
		"newer":      &store.UnsupportedError{ID: "child-1", Detail: "format 9"},
	} {
		t.Run(name, func(t *testing.T) {
			forever, one := make(chan struct{}), make(chan struct{})
			w := newWorld(t, setup{replies: map[string][]reply{
				"turn":     {calls(task("c1", `"prompt":"x","background":true`)), says("ok")},
				"subagent": {begun(one, after(forever, says("never")))},
			}})
			a := w.create("root")
			w.say(a, "go")
			w.wait(one)
			w.flushed()
			now := failure
			w2 := newWorld(t, setup{mem: medium(t, w, nil), prefix: "later", agents: func(o *agent.Options) { o.Sessions = shutting{o.Sessions, "child-1", &now} },
				replies: map[string][]reply{"turn": {calls(task("c2", `"action":"list"`)), says("I see"), says("still"), says("at last")}}})
			a2 := w2.resume("root")
			sub := a2.Subscribe(0)
			defer sub.Close()
			w2.say(a2, "go on")
			w2.say(a2, "and now?")
			if n := count(t, a2.Session().Events(), "subagent/end"); n != 0 {
				t.Fatal("it is settled")
			}
			if text := resultText(t, a2.Session().Events(), "c2"); !strings.HasPrefix(text, "- child-1: its log cannot be opened now: ") {
				t.Errorf("list %q", text)
			}
			now = nil
			w2.say(a2, "once more")
			has(t, a2.Session().Events(), "turn/end completed", "subagent/end child-1 interrupted", "user/message once more")
			if n := count(t, a2.Session().Events(), "subagent/end"); n != 1 {
				t.Errorf("%d ends", n)
			}
			said := 0
			for n := range drained(w2, sub) {
				if n.Kind == agent.NoticeRemark && strings.Contains(n.Text, "child-1 ended cannot be seen now: ") {
					said++
				}
			}
			if said != 1 {
				t.Errorf("said %d times", said)
			}
		})
	}
}

// drained yields the notices that came so far.
func drained(w *world, sub *agent.Subscription) iter.Seq[agent.Notice] {
	return func(yield func(agent.Notice) bool) {
		sub.Close()
		for {
			n, err := sub.Next(w.ctx)
			if err != nil || !yield(n) {
				return
			}
		}
	}
}

// A child can never do more than its parent: not by what it records, not by what a later life is told.
func TestNoYoloIsGained(t *testing.T) {
	auto := func(o *agent.Options) { o.Policy = tool.PolicyNeverAsk }
	w := newWorld(t, setup{agents: auto, tools: tools("risky"), replies: map[string][]reply{
		"turn":     {calls(task("c1", `"prompt":"x"`)), says("done")},
		"subagent": {calls(message.CallBlock("e1", "risky", "{}")), says("denied"), calls(message.CallBlock("e2", "risky", "{}")), says("denied again")},
	}})
	a := w.create("root")
	w.say(a, "go")
	if err := a.Dispose(w.ctx); err != nil {
		t.Fatal(err)
	}
	c, err := w.d.Agents().Resume(w.ctx, "child-1", agent.Config{Policy: tool.PolicyYolo})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetPolicy(w.ctx, tool.PolicyYolo); err != nil {
		t.Fatal(err)
	}
	w.say(c, "try again")
	has(t, c.Session().Events(), "tool/result e1 DENIED", "approval/policy", "tool/result e2 DENIED")
	if p := c.InForce().Policy; p != tool.PolicyNeverAsk {
		t.Errorf("in force: %s", p)
	}
}

// A bracket that the parent holds open is dead in a child that was forked meanwhile, and alive in the parent.
func TestBracketOfTheParent(t *testing.T) {
	w := newWorld(t, setup{replies: map[string][]reply{
		"turn":     {says("one"), calls(task("c1", `"prompt":"x","mode":"fork"`)), says("two")},
		"subagent": {says("answer")},
	}})
	a := w.create("root")
	if _, err := a.Session().Append(session.Draft{Type: "test/start", Data: map[string]int{}}); err != nil {
		t.Fatal(err)
	}
	w.say(a, "go")
	w.say(a, "on")
	if _, open := a.Session().State().OpenBracket("test", a.Session().FirstLiveSeq()); !open {
		t.Error("the parent's bracket is not live any more")
	}
	h, log := w.stored("child-1")
	st, err := session.Fold(h, w.reg, log)
	if err != nil {
		t.Fatal(err)
	}
	dead := 0
	for _, b := range st.Brackets(st.LastBoundary()) {
		if b.Type == "test/start" && b.State == session.BracketDead {
			dead++
		}
	}
	if in, err := session.Inherited(log, 0); dead != 1 || !in || err != nil {
		t.Errorf("%d dead, inherited %v, %v", dead, in, err)
	}
	c := w.resume("child-1")
	if _, open := c.Session().State().OpenBracket("test", c.Session().FirstLiveSeq()); open {
		t.Error("the parent's bracket is live in the child")
	}
}

// toldOf counts how often a parent's log tells how a child ended.
func toldOf(t testing.TB, p session.Prefix, id session.ID) (ends, told int) {
	t.Helper()
	for _, ev := range read(t, p) {
		switch ev.Type {
		case subagent.TypeEnd:
			if d, _ := session.DecodeData[subagent.End](ev); d.ChildID == id {
				ends++
			}
		case session.TypeInboxSpliced:
			d, _ := session.DecodeData[session.InboxSpliced](ev)
			for _, m := range d.Inserted {
				if m.ID == "subagent-"+string(id) {
					told++
				}
			}
		case session.TypeToolResult:
			d, _ := session.DecodeData[session.ToolResult](ev)
			var m struct {
				Subagents []struct {
					ID      string `json:"id"`
					Outcome string `json:"outcome"`
				} `json:"subagents"`
			}
			if len(d.Meta) > 0 && json.Unmarshal(d.Meta, &m) == nil {
				for _, s := range m.Subagents {
					if s.ID == string(id) && s.Outcome != "" {
						told++
					}
				}
			}
		}
	}
	return ends, told
}

// Random work, killed at random records, over several lives: each child that was begun has one terminal state and
// its parent is told of it once.
func TestOneTerminalState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const lives = 3
		more := func(life int) map[string][]reply {
			r := map[string][]reply{}
			for turn := range 3 {
				var blocks []message.Block
				for i := range rapid.IntRange(0, 3).Draw(rt, "tasks") {
					args := fmt.Sprintf(`"prompt":"p","background":%v`, rapid.Bool().Draw(rt, "background"))
					switch {
					case rapid.Bool().Draw(rt, "fork"):
						args += `,"mode":"fork"`
					case rapid.IntRange(0, 5).Draw(rt, "other") == 0:
						args = `"action":"wait","timeoutSeconds":5`
					}
					blocks = append(blocks, task(fmt.Sprintf("c%d-%d-%d", life, turn, i), args))
				}
				if blocks != nil {
					r["turn"] = append(r["turn"], calls(blocks...))
				}
				r["turn"] = append(r["turn"], says("ok"))
			}
			for range 9 {
				next := says("answer")
				if rapid.IntRange(0, 3).Draw(rt, "fails") == 0 {
					next = func(_ ctxT, _ llm.Request, yield func(llm.Chunk, error) bool) {
						yield(llm.Chunk{}, llm.Errorf(llm.CodeAuth, "no"))
					}
				}
				r["subagent"] = append(r["subagent"], next)
			}
			return r
		}
		var s setup
		for life := range lives {
			s.prefix, s.replies, s.opt.Wake = fmt.Sprintf("life%d", life), more(life), life == lives-1
			w := newWorld(t, s)
			var a *agent.Agent
			if life == 0 {
				a = w.create("root")
			} else if _, err := w.st.Stat(w.ctx, "root"); err == nil {
				a = w.resume("root")
			} else {
				a = w.create("root")
			}
			for range rapid.IntRange(1, 2).Draw(rt, "inputs") {
				w.say(a, "go")
			}
			w.quiet(a)
			if life == lives-1 {
				for _, ev := range read(t, a.Session().Events()) {
					if ev.Type != subagent.TypeStart {
						continue
					}
					d, _ := session.DecodeData[subagent.Start](ev)
					if ends, told := toldOf(t, a.Session().Events(), d.ChildID); ends != 1 || told != 1 {
						rt.Errorf("%s has %d ends and was told of %d times:\n%s", d.ChildID, ends, told, shape(t, a.Session().Events()))
					}
				}
				w.close()
				return
			}
			w.flushed()
			// The machine stops: of each log a beginning is left, and no child without the start that was saved before it.
			cuts := map[session.ID]session.Seq{}
			_, log := w.stored("root")
			cut := session.Seq(rapid.IntRange(1, len(log)).Draw(rt, "cut"))
			cuts["root"] = cut
			begun := map[session.ID]bool{}
			for _, ev := range log[:cut] {
				if ev.Type == subagent.TypeStart {
					d, _ := session.DecodeData[subagent.Start](ev)
					begun[d.ChildID] = true
				}
			}
			page, err := w.st.List(w.ctx, store.Query{Kinds: []session.SessionKind{session.KindSubagent}})
			if err != nil {
				rt.Fatal(err)
			}
			for _, row := range page.Rows {
				ended, told := toldOf(t, log[:cut], row.ID)
				switch h, evs := w.stored(row.ID); {
				case !begun[row.ID] || h.SeedLength > cut:
					cuts[row.ID] = -1
				case ended+told == 0: // what the parent knows was saved before it knew
					cuts[row.ID] = session.Seq(rapid.IntRange(int(h.SeedLength)-1, len(evs)).Draw(rt, "child cut"))
					if cuts[row.ID] == h.SeedLength && h.SeedLength > 0 {
						cuts[row.ID]++ // a fork is stored with its boundary, or not at all
					}
				}
			}
			s.mem = medium(t, w, cuts)
			w.close()
		}
	})
}

// A question that was taken up, or asked beside a call that still runs, outlives the end of the process, whenever that
// comes.
func TestQuestionOutlivesItsProcess(t *testing.T) {
	ask := func(o *agent.Options) { o.Policy = tool.PolicyAsk }
	run, stay := make(chan struct{}), make(chan struct{})
	slow := simple("slow", func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		close(run)
		select {
		case <-ctx.Done():
		case <-stay:
		}
		return tool.Result{}, ctx.Err()
	})
	slow.ReadOnly = true
	slow.Parallel = true
	w := newWorld(t, setup{agents: ask, tools: append(tools("risky"), slow), replies: map[string][]reply{
		"turn":     {calls(task("c1", `"prompt":"x"`))},
		"subagent": {calls(message.CallBlock("e0", "slow", "{}"), message.CallBlock("e1", "risky", "{}"))},
	}})
	a := w.create("root")
	w.followup(a, "go")
	w.wait(run)
	child, ok := w.d.Agents().Get("child-1")
	if !ok {
		t.Fatal("no child")
	}
	w.until(child.Session(), "approval/asked")
	if err := a.Dispose(w.ctx); err != nil {
		t.Fatal(err)
	}
	kept := func() {
		t.Helper()
		_, log := w.stored("child-1")
		if n := count(t, log, "approval/decided") + count(t, log, "turn/end"); n != 0 {
			t.Fatalf("the question is gone:\n%s", shape(t, log))
		}
	}
	kept()
	for range 20 { // at some moment of taking it up
		a = w.resume("root")
		w.d.TakeUp(w.ctx, a)
		if w.d.Living("root") != 1 {
			t.Fatal("it is not taken up")
		}
		if err := a.Dispose(w.ctx); err != nil {
			t.Fatal(err)
		}
		kept()
	}
}
