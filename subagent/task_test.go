package subagent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/subagent"
)

// A spawned child begins empty, is told the prompt, and its last message is the result of the call.
func TestSpawn(t *testing.T) {
	w := newWorld(t, setup{replies: map[string][]reply{
		"turn":     {says("hello"), calls(task("c1", `"prompt":"count the files","description":"count files"`)), says("there are 7")},
		"subagent": {says("7 files")},
	}})
	a := w.create("root")
	w.say(a, "hi")
	w.say(a, "how many files?")
	has(t, a.Session().Events(), "tool/call c1", "subagent/start child-1", "tool/result c1 7 files", "subagent/end child-1 completed", "assistant/message there are 7")
	h, log := w.stored("child-1")
	if h.Kind != session.KindSubagent || h.Parent == nil || h.Parent.ID != "root" || h.Depth != 1 || h.SeedLength != 0 || h.Cwd != "/work/project" {
		t.Errorf("header %+v", h)
	}
	has(t, log, "subagent/profile", "session/title", "turn/start", "assistant/message 7 files", "turn/end completed")
	req := w.model.sent("subagent")[0]
	if n := len(req.Messages); n != 1 || !strings.HasSuffix(req.Messages[0].PlainText(), "count the files") || req.Messages[0].Source.Plugin != subagent.Plugin {
		t.Errorf("the child was asked %d messages: %+v", n, req.Messages)
	}
	if count(t, log, "session/inherited") != 0 {
		t.Error("an empty seed has no boundary")
	}
	if _, here := w.d.Agents().Get("child-1"); here {
		t.Error("the child is still held")
	}
}

// A forked child sees what was said up to the last turn/end, by pointer, and not the turn that asks.
func TestFork(t *testing.T) {
	w := newWorld(t, setup{replies: map[string][]reply{
		"turn":     {says("the secret is 42"), calls(task("c1", `"prompt":"what is the secret?","mode":"fork"`)), says("done")},
		"subagent": {says("42")},
	}})
	a := w.create("root")
	w.say(a, "tell me a secret")
	cut := a.Session().Len() - 1
	w.say(a, "now ask a subagent")
	has(t, a.Session().Events(), "subagent/start child-1", "tool/result c1 42", "subagent/end child-1 completed")
	h, log := w.stored("child-1")
	if h.Parent.Seq != cut || h.SeedLength != cut+1 || h.Kind != session.KindSubagent || h.Depth != 1 {
		t.Errorf("cut at %d: %+v", cut, h)
	}
	if log[cut].Type != session.TypeTurnEnd || log[cut+1].Type != session.TypeInherited {
		t.Errorf("around the cut: %s, %s", log[cut].Type, log[cut+1].Type)
	}
	req := w.model.sent("subagent")[0]
	var texts []string
	for _, m := range req.Messages {
		texts = append(texts, m.PlainText())
	}
	if len(texts) != 3 || texts[1] != "the secret is 42" || !strings.HasSuffix(texts[2], "what is the secret?") {
		t.Errorf("the child saw %q", texts)
	}
	has(t, log, "turn/start", "turn/end completed", "session/inherited", "subagent/profile", "turn/start")
	if d, err := session.DecodeData[session.TurnStart](log[slices.IndexFunc(log, func(ev session.Event) bool { return ev.Seq > cut && ev.Type == session.TypeTurnStart })]); err != nil || d.Turn != 2 {
		t.Errorf("turn numbers do not continue: %+v", d)
	}
	// The inherited part is not counted again.
	prices := func(string, string) (llm.Price, bool) { return llm.Price{Input: 1, Output: 2}, true }
	tree, err := subagent.TreeOf(w.ctx, "root", prices, w.look)
	if err != nil || tree.Children != 1 || tree.Usage == nil || tree.Usage.InputTokens != 40 || tree.Usage.OutputTokens != 20 ||
		tree.USD == nil || *tree.USD != (llm.Price{Input: 1, Output: 2}).Cost(*tree.Usage) {
		t.Errorf("%+v %+v %v", tree, tree.Usage, err)
	}
	// Nor is a session counted that only the log says is a child.
	strange := func(ctx ctxT, id session.ID) (session.State, session.Prefix, func() error, error) {
		st, log, free, err := w.look(ctx, id)
		if id == "child-1" {
			st = session.NewState(session.Header{ID: id}, nil)
		}
		return st, log, free, err
	}
	ended := tree.Usage
	if tree, err := subagent.TreeOf(w.ctx, "root", prices, strange); err != nil || tree.Missing != 1 || tree.Usage.InputTokens != ended.InputTokens || tree.Unpriced != 0 {
		t.Errorf("with a session that is not its own: %+v %+v %v", tree, tree.Usage, err)
	}
}

// An answer is never the parent's: a forked child that says nothing has none.
func TestNoAnswer(t *testing.T) {
	w := newWorld(t, setup{replies: map[string][]reply{
		"turn": {says("from the parent"), calls(task("c1", `"prompt":"say nothing","mode":"fork"`)), says("done")},
		"subagent": {func(_ ctxT, _ llm.Request, yield func(llm.Chunk, error) bool) {
			yield(llm.Chunk{}, llm.Errorf(llm.CodeAuth, "no"))
		}},
	}})
	a := w.create("root")
	w.say(a, "one")
	w.say(a, "two")
	has(t, a.Session().Events(), "tool/result c1 TASK_FAILED", "subagent/end child-1 failed", "assistant/message done")
	if text := resultText(t, a.Session().Events(), "c1"); strings.Contains(text, "from the parent") || !strings.Contains(text, "AUTH") {
		t.Errorf("result %q", text)
	}
}

// Children of one step run side by side.
func TestParallel(t *testing.T) {
	one, two := make(chan struct{}), make(chan struct{})
	w := newWorld(t, setup{replies: map[string][]reply{
		"turn":         {calls(task("c1", `"prompt":"a","name":"one"`), task("c2", `"prompt":"b","name":"two"`)), says("both")},
		"subagent/one": {begun(one, after(two, says("first")))},
		"subagent/two": {begun(two, after(one, says("second")))},
	}})
	a := w.create("root")
	w.say(a, "go")
	if r := resultText(t, a.Session().Events(), "c1"); r != "first" {
		t.Errorf("c1: %q", r)
	}
	if r := resultText(t, a.Session().Events(), "c2"); r != "second" {
		t.Errorf("c2: %q", r)
	}
}

// A background child leaves its parent alone and is told of once, by a message; Wake begins a turn for it.
func TestBackground(t *testing.T) {
	ready := make(chan struct{})
	w := newWorld(t, setup{opt: subagent.Options{Wake: true}, replies: map[string][]reply{
		"turn":     {calls(task("c1", `"prompt":"slow","background":true,"description":"slow work"`)), says("it works"), says("now it is done")},
		"subagent": {after(ready, says("slow answer"))},
	}})
	a := w.create("root")
	w.say(a, "go")
	has(t, a.Session().Events(), "subagent/start child-1", "tool/result c1 Subagent child-1 works in the background. You get its answer as a message when it is done.", "assistant/message it works", "turn/end completed")
	if text := restated(t, w, a); !strings.Contains(text, "child-1: runs (slow work)") {
		t.Errorf("stated %q", text)
	}
	close(ready)
	w.quiet(a)
	has(t, a.Session().Events(), "assistant/message it works", "turn/end completed", "inbox/spliced", "subagent/end child-1 completed", "turn/start",
		"user/message Subagent child-1 (slow work) is done. Its answer:||slow answer", "assistant/message now it is done")
	if n := count(t, a.Session().Events(), "user/message Subagent"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if text := restated(t, w, a); text != "" {
		t.Errorf("stated %q", text)
	}
}

// wait takes the answers of background children: then no message comes. list and cancel do what they say.
func TestWaitListCancel(t *testing.T) {
	ready := make(chan struct{})
	w := newWorld(t, setup{replies: map[string][]reply{
		"turn": {calls(task("c1", `"prompt":"x","name":"a","background":true`), task("c2", `"prompt":"y","name":"b","background":true`)),
			calls(task("c3", `"action":"list"`)),
			calls(task("c4", `"action":"cancel","ids":["child-1"]`)),
			func(ctx ctxT, req llm.Request, yield func(llm.Chunk, error) bool) {
				close(ready)
				calls(task("c5", `"action":"wait"`))(ctx, req, yield)
			},
			calls(task("c6", `"action":"wait"`), task("c7", `"action":"cancel","ids":["nobody"]`)),
			says("done")},
		"subagent/a": {after(ready, says("A"))},
		"subagent/b": {after(ready, says("B"))},
	}})
	a := w.create("root")
	w.say(a, "go")
	log := a.Session().Events()
	var ids []string
	for _, ev := range read(t, log) {
		if ev.Type == subagent.TypeStart {
			d, _ := session.DecodeData[subagent.Start](ev)
			ids = append(ids, string(d.ChildID))
		}
	}
	if text := resultText(t, log, "c3"); strings.Count(text, ": runs") != 2 || !strings.Contains(text, ids[0]) {
		t.Errorf("list: %q", text)
	}
	if text := resultText(t, log, "c4"); !strings.Contains(text, "did not finish: cancelled (parent)") {
		t.Errorf("cancel: %q", text)
	}
	if text := resultText(t, log, "c5"); text != "A" && text != "B" && !strings.HasPrefix(text, "No subagent is at work") { // it may have come as a message just before
		t.Errorf("wait: %q", text)
	}
	if text := resultText(t, log, "c6"); !strings.HasPrefix(text, "No subagent is at work") {
		t.Errorf("wait for nobody: %q", text)
	}
	has(t, log, "tool/result c7 TASK_UNKNOWN")
	for _, id := range ids {
		if ends, told := toldOf(t, log, session.ID(id)); ends != 1 || told != 1 {
			t.Errorf("%s: %d ends, told of %d times\n%s", id, ends, told, shape(t, log))
		}
	}
}

func TestLimits(t *testing.T) {
	forever := make(chan struct{})
	w := newWorld(t, setup{opt: subagent.Options{MaxDepth: 1, MaxLiving: 1, MaxTotal: 2}, replies: map[string][]reply{
		"turn": {calls(task("c1", `"prompt":"x","background":true,"name":"a"`)), calls(task("c2", `"prompt":"too many"`)),
			calls(task("c3", `"action":"cancel"`)), calls(task("c4", `"prompt":"second"`)), calls(task("c5", `"prompt":"third"`)),
			calls(task("c6", `"prompt":" "`), task("c7", `"prompt":"x","tools":["rm"]`)), says("done")},
		"subagent/a": {after(forever, says("never"))},
		"subagent":   {calls(message.CallBlock("d1", "task", `{"prompt":"deeper"}`)), says("too deep")},
	}})
	a := w.create("root")
	w.say(a, "go")
	has(t, a.Session().Events(), "tool/result c2 TASK_LIMIT", "tool/result c4 too deep", "tool/result c5 TASK_LIMIT")
	has(t, a.Session().Events(), "tool/result c6 INVALID_ARGS")
	has(t, a.Session().Events(), "tool/result c7 INVALID_ARGS")
	if n := count(t, a.Session().Events(), "subagent/start"); n != 2 {
		t.Errorf("%d children", n)
	}
	// A child at the limit of depth has no such tool, in any life.
	child := w.resume("child-3")
	for _, req := range w.model.sent("subagent") {
		if slices.ContainsFunc(req.Tools, func(s llm.ToolSpec) bool { return s.Name == "task" }) {
			t.Error("a child at the limit has the tool")
		}
	}
	if child.Session().Header().Depth != 1 {
		t.Errorf("depth %d after a resume", child.Session().Header().Depth)
	}
}

// Who cancels the parent cancels its children, with the cause "parent": those that it waits for and the others.
func TestCancel(t *testing.T) {
	forever := make(chan struct{})
	one, two := make(chan struct{}), make(chan struct{})
	w := newWorld(t, setup{replies: map[string][]reply{
		"turn": {calls(task("c1", `"prompt":"x","name":"a","background":true`)), says("ok"), calls(task("c2", `"prompt":"y","name":"b"`)),
			says("go on")},
		"subagent/a": {begun(one, after(forever, says("never")))},
		"subagent/b": {begun(two, answers(llm.FinishStop, message.TextBlock("half"))), after(forever, says("never"))},
	}})
	w.model.replies["subagent/b"] = []reply{func(ctx ctxT, _ llm.Request, yield func(llm.Chunk, error) bool) {
		yield(llm.Chunk{Type: llm.ChunkTextDelta, Text: "half an answer"}, nil)
		close(two)
		<-ctx.Done()
		yield(llm.Chunk{}, llm.AsError(ctx, ctx.Err()))
	}}
	a := w.create("root")
	w.say(a, "first")
	w.followup(a, "second")
	w.wait(one)
	w.wait(two)
	if !a.Cancel(agent.CauseUser) {
		t.Fatal("nothing to cancel")
	}
	w.quiet(a)
	log := a.Session().Events()
	if text := resultText(t, log, "c2"); !strings.Contains(text, "half an answer") || !strings.Contains(text, "cancelled") {
		t.Errorf("result %q", text)
	}
	if n := count(t, log, "subagent/end"); n != 2 {
		t.Errorf("%d ends\n%s", n, shape(t, log))
	}
	for _, ev := range read(t, log) {
		if ev.Type == subagent.TypeEnd {
			d, _ := session.DecodeData[subagent.End](ev)
			_, child := w.stored(d.ChildID)
			has(t, child, "turn/end aborted parent")
			if d.Outcome != subagent.OutcomeCancelled {
				t.Errorf("%+v", d)
			}
		}
	}
	w.say(a, "third")
	if n := count(t, a.Session().Events(), "user/message Subagent"); n != 1 {
		t.Errorf("told %d times of the one in the background\n%s", n, shape(t, a.Session().Events()))
	}
}

// A child has as long as it was given.
func TestTimeLimit(t *testing.T) {
	forever := make(chan struct{})
	w := newWorld(t, setup{opt: subagent.Options{Limit: 1}, replies: map[string][]reply{
		"turn":     {calls(task("c1", `"prompt":"x"`)), says("done")},
		"subagent": {after(forever, says("never"))},
	}})
	a := w.create("root")
	w.say(a, "go")
	has(t, a.Session().Events(), "tool/result c1 TASK_FAILED", "subagent/end child-1 timeout")
	_, log := w.stored("child-1")
	has(t, log, "turn/end aborted timeout")
}

// A persona and a tool filter hold in the child, for its own children, and in its next life.
func TestProfile(t *testing.T) {
	w := newWorld(t, setup{tools: tools("read", "write"), replies: map[string][]reply{
		"turn": {calls(task("c1", `"prompt":"x","persona":"You are strict.","tools":["read","task"],"name":"rev"`)), says("done")},
		"subagent/rev": {calls(message.CallBlock("d0", "write", "{}"), message.CallBlock("d1", "task", `{"prompt":"y","name":"deep"}`),
			message.CallBlock("d2", "task", `{"prompt":"y","tools":["write"]}`)), says("r")},
		"subagent/deep": {calls(message.CallBlock("e1", "write", "{}"), message.CallBlock("e2", "read", "{}")), says("s")},
	}})
	a := w.create("root")
	w.say(a, "go")
	req := w.model.sent("subagent/rev")[0]
	if !strings.HasSuffix(req.System, "\n\nYou are strict.") || !strings.HasPrefix(req.System, agent.SystemPrompt) {
		t.Errorf("system %q", req.System)
	}
	if len(req.Tools) != 2 {
		t.Errorf("%d tools", len(req.Tools))
	}
	_, log := w.stored("child-1")
	has(t, log, "tool/result d0 UNKNOWN_TOOL", "subagent/start child-2")
	has(t, log, "tool/result d2 INVALID_ARGS")
	_, log = w.stored("child-2")
	has(t, log, "tool/result e1 UNKNOWN_TOOL", "tool/result e2 read ran")
	// The next life of the child has the same.
	w.model.mu.Lock()
	w.model.replies["subagent/rev"] = []reply{calls(message.CallBlock("d9", "write", "{}")), says("again")}
	w.model.mu.Unlock()
	child := w.resume("child-1")
	w.say(child, "more")
	has(t, child.Session().Events(), "tool/result d9 UNKNOWN_TOOL")
	if req := w.model.sent("subagent/rev"); !strings.HasSuffix(req[len(req)-1].System, "\n\nYou are strict.") {
		t.Error("the persona is forgotten")
	}
}
