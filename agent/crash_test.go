package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/script"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// outside is the world that tools change: how often each call, by its key, did something.
type outside struct {
	mu   sync.Mutex
	runs map[string]int
	acks []string // texts of acknowledged input
}

func (o *outside) ran(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runs[key]++
}

func (o *outside) copy() (map[string]int, []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.runs), slices.Clone(o.acks)
}

// snapshot is what a loss of power leaves: the synced events, and what had happened outside when the next
// sync came (the worst moment).
type snapshot struct {
	events []session.Event
	runs   map[string]int
	acks   []string
}

func tools(o *outside) func(*agent.Options) {
	body := func(_ context.Context, c tool.Call) (tool.Result, error) {
		o.ran(c.IdempotencyKey)
		r := tool.Text("did it")
		r.Records = []tool.Record{{Type: "test/note", Data: []byte(`{}`)}}
		return r, nil
	}
	par, single := simple("par", body), simple("single", body)
	par.Parallel = true
	return equip(par, single)
}

// TestCrash kills a random piece of work at every one of its syncs and takes it up again: what was
// acknowledged is there and is worked on once, no body runs twice, what ran is not said to have not
// started, every view is legal (the model checks), and the next message works.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		out := &outside{runs: map[string]int{}}
		var replies []reply
		var inputs []string
		for turn := range rapid.IntRange(1, 3).Draw(rt, "turns") {
			inputs = append(inputs, fmt.Sprintf("input %d", turn))
			for step := range rapid.IntRange(0, 2).Draw(rt, "steps") {
				var blocks []message.Block
				for i := range rapid.IntRange(1, 4).Draw(rt, "calls") {
					name := rapid.SampledFrom([]string{"par", "single", "unknown"}).Draw(rt, "tool")
					id := fmt.Sprintf("c%d%d%d", turn, step, i)
					if rapid.IntRange(0, 9).Draw(rt, "id") == 0 {
						id = "same"
					}
					blocks = append(blocks, use(id, name))
				}
				replies = append(replies, calls(blocks...))
			}
			replies = append(replies, says(fmt.Sprintf("answer %d", turn)))
		}
		w := newWorld(t, nil, tools(out), replies...)
		var mu sync.Mutex
		var snaps []snapshot
		seal := func() { // what happened until now happened after the last sync
			if n := len(snaps); n > 0 {
				snaps[n-1].runs, snaps[n-1].acks = out.copy()
			}
		}
		w.st.synced = func(p session.Prefix) {
			mu.Lock()
			defer mu.Unlock()
			seal()
			snaps = append(snaps, snapshot{events: read(t, p)})
		}
		a := w.create("s-1111")
		for _, text := range inputs {
			w.followup(a, text)
			out.mu.Lock()
			out.acks = append(out.acks, text)
			out.mu.Unlock()
			if rapid.Bool().Draw(rt, "wait") {
				w.idle(a)
			}
		}
		w.idle(a)
		mu.Lock()
		defer mu.Unlock()
		seal()
		for i, s := range snaps {
			if err := takeUp(t, a.Session().Header(), s); err != nil {
				rt.Fatalf("killed after sync %d of %d: %v\nthe disk had:\n%s", i+1, len(snaps), err, shapeOf(t, s.events))
			}
		}
	})
}

// TestFailures lets a random window of writes and syncs fail under a piece of work: nothing is acknowledged,
// sent or run that is not synced, refused input never runs, and once saving works the log is whole.
func TestFailures(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		from := rapid.IntRange(1, 40).Draw(rt, "from")
		to := from + rapid.IntRange(0, 8).Draw(rt, "window")
		var w *world
		var mu sync.Mutex
		var ran []string
		body := func(_ context.Context, c tool.Call) (tool.Result, error) {
			stored := shapeOf(t, w.stored("s-1111")[:w.st.syncedTo()])
			mu.Lock()
			defer mu.Unlock()
			if !strings.Contains(stored, "tool/call "+c.ID+"\n") {
				rt.Errorf("%s runs before its start is synced", c.ID)
			}
			ran = append(ran, c.ID)
			return tool.Text("did it"), nil
		}
		par, single := simple("par", body), simple("single", body)
		par.Parallel = true
		w = newWorld(t, nil, equip(par, single))
		w.st.plan = func(op int) error {
			if from <= op && op < to {
				return errFull
			}
			return nil
		}
		n := 0
		w.model.otherwise = func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool) {
			n++
			last := req.Messages[len(req.Messages)-1]
			if last.Source.Kind == message.SourceUser && n%2 == 0 {
				calls(use(fmt.Sprintf("a%d", n), "par"), use(fmt.Sprintf("b%d", n), "par"), use(fmt.Sprintf("c%d", n), "single"))(ctx, req, yield)
				return
			}
			says("answer")(ctx, req, yield)
		}
		a := w.create("s-1111")
		acked := map[string]bool{}
		for i := range 8 {
			text := fmt.Sprintf("input %d", i)
			_, err := a.Followup(w.ctx, agent.Text(text))
			if err != nil && !errors.Is(err, agent.ErrNotSaved) {
				rt.Fatal(err)
			}
			acked[text] = err == nil
			if rapid.Bool().Draw(rt, "wait") {
				w.idle(a)
			}
		}
		w.idle(a)
		w.st.mu.Lock()
		w.st.plan = nil
		w.st.mu.Unlock()
		w.say(a, "the last")
		acked["the last"] = true
		log := shape(t, a.Session())
		for text, ok := range acked {
			if n := strings.Count(log, "user/message "+text+"\n"); ok && n != 1 || !ok && n != 0 {
				rt.Fatalf("%q, acknowledged: %t, is %d times in the log:\n%s", text, ok, n, log)
			}
		}
		if got := shapeOf(t, w.stored("s-1111")); got != log || !strings.HasSuffix(got, "turn/end completed\n") {
			rt.Fatalf("the store has:\n%s\nwant:\n%s", got, log)
		}
		slices.Sort(ran)
		if len(slices.Compact(slices.Clone(ran))) != len(ran) {
			rt.Fatalf("a body ran twice: %v", ran)
		}
	})
}

func takeUp(t *testing.T, h session.Header, s snapshot) error {
	after := &outside{runs: map[string]int{}}
	w := newWorld(t, copyOf(t, h, s.events), tools(after))
	w.model.otherwise = says("going on")
	a := w.resume(h.ID)
	w.say(a, "go on")
	log := shape(t, a.Session())
	for key, n := range s.runs {
		if n != 1 || after.runs[key] != 0 {
			return fmt.Errorf("the call %s ran %d times before and %d times after", key, n, after.runs[key])
		}
	}
	st := a.Session().State()
	started := map[string]bool{}
	calls := map[string]string{} // turn/step/id -> key
	for _, ev := range events(t, a.Session()) {
		switch ev.Type {
		case session.TypeAssistantMessage:
			d, err := session.DecodeData[session.AssistantMessage](ev)
			if err != nil {
				return err
			}
			for i, b := range d.Message.Calls() {
				calls[fmt.Sprintf("%d/%d/%s", d.Turn, d.Step, b.ID)] = st.IdempotencyKey(ev.Seq, i)
			}
		case session.TypeToolCall:
			d, err := session.DecodeData[session.ToolCall](ev)
			if err != nil {
				return err
			}
			started[calls[fmt.Sprintf("%d/%d/%s", d.Turn, d.Step, d.CallID)]] = true
		case session.TypeToolResult:
			d, err := session.DecodeData[session.ToolResult](ev)
			if err != nil {
				return err
			}
			key := calls[fmt.Sprintf("%d/%d/%s", d.Turn, d.Step, session.ResultCallID(ev))]
			if d.Error != nil && d.Error.Code == session.CodeNotStarted && s.runs[key] > 0 {
				return fmt.Errorf("the call %s ran and is said to have not started", key)
			}
		}
	}
	for key := range s.runs {
		if !started[key] {
			return fmt.Errorf("the call %s ran before its start was on disk", key)
		}
	}
	for _, text := range append(s.acks, "go on") {
		if n := strings.Count(log, "user/message "+text+"\n"); n != 1 {
			return fmt.Errorf("the acknowledged input %q is %d times in the log:\n%s", text, n, log)
		}
	}
	if !strings.HasSuffix(log, "turn/end completed\n") || len(st.OpenCalls()) > 0 {
		return fmt.Errorf("the session did not come to rest:\n%s", log)
	}
	return nil
}

// Many agents, with work, cancellation, questions and disposal at the same time, and nothing left behind.
func TestNothingIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("work", func(t *testing.T) {
		out := &outside{runs: map[string]int{}}
		w := newWorld(t, nil, func(o *agent.Options) { tools(out)(o); o.Policy = tool.PolicyAsk })
		w.model.otherwise = calls(use("c1", "par"), use("c2", "single"))
		var wg, readers sync.WaitGroup
		for i := range 12 {
			a := w.create(session.ID(fmt.Sprintf("s-%04d", i)))
			do := func(f func()) {
				wg.Add(1)
				go func() { defer wg.Done(); f() }()
			}
			do(func() {
				for range 5 {
					_, _ = a.Followup(w.ctx, agent.Text("hi"))
					_, _ = a.Steer(w.ctx, agent.Text("you"))
				}
			})
			sub := a.Subscribe(4)
			readers.Add(1)
			go func() {
				defer readers.Done()
				for { // until the agent is disposed
					n, err := sub.Next(w.ctx)
					if err != nil {
						return
					}
					if n.Kind == agent.NoticeAsk && i%3 > 0 {
						_ = a.Answer(w.ctx, n.AskID, session.VerdictAllow, "")
					}
				}
			}()
			do(func() {
				for range 5 {
					runtime.Gosched()
					a.Cancel(agent.CauseUser)
					_, _ = a.Undo(w.ctx)
					a.Status()
				}
				if i%2 == 0 {
					if err := a.Dispose(w.ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := w.agents.Close(w.ctx); err != nil {
			t.Fatal(err)
		}
		readers.Wait()
		for i := range 12 {
			id := session.ID(fmt.Sprintf("s-%04d", i))
			if _, err := w.st.Stat(w.ctx, id); err != nil {
				continue // disposed before its first input
			}
			st, err := session.Fold(head(id), session.Core(), session.Events(w.stored(id)))
			if err != nil {
				t.Fatal(err)
			}
			if _, open := st.Turn(); open && !st.Parked() {
				t.Errorf("%s was left with an open turn", id)
			}
		}
	})
	for range 200 { // ended goroutines may still be on their way out
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
}

// A reader that is slow loses deltas, never the end of a turn, and never holds up the loop.
func TestFeed(t *testing.T) {
	w := newWorld(t, nil, nil)
	text := message.TextBlock(strings.Repeat("x", 10))
	blocks := make([]message.Block, 500)
	for i := range blocks {
		blocks[i] = text
	}
	w.model.otherwise = calls(blocks...)
	a := w.create("s-1111")
	sub := a.Subscribe(8)
	w.say(a, "hi")
	if err := a.Dispose(w.ctx); err != nil {
		t.Fatal(err)
	}
	var kinds []agent.NoticeKind
	for {
		n, err := sub.Next(w.ctx)
		if err != nil {
			break
		}
		kinds = append(kinds, n.Kind)
	}
	if len(kinds) > 8 || !slices.Contains(kinds, agent.NoticeTurnEnd) || kinds[len(kinds)-1] != agent.NoticeStatus {
		t.Errorf("notices %v", kinds)
	}
	if sub.Dropped() < 490 {
		t.Errorf("dropped %d", sub.Dropped())
	}
	if _, err := a.Subscribe(0).Next(w.ctx); err == nil {
		t.Error("a disposed agent has news")
	}
}

// scripted is a Models of one script.
type scripted struct{ p *script.Provider }

func (s scripted) Provider(string) (llm.Provider, error) { return s.p, nil }

// TestEveryPrefix is scenario P1 at each record: three turns, the second with four tools in two steps. Every
// prefix of the log opens without a question, every view is legal, calls without a result are said to be
// not started or unknown, as recorded, and looking twice adds nothing.
func TestEveryPrefix(t *testing.T) {
	sc, err := script.Parse("p1", strings.NewReader(`{"text":"hello"}
{"text":"looking","reasoning":"hm","toolCalls":[{"name":"par"},{"name":"par"}]}
{"toolCalls":[{"name":"single"},{"name":"single"}]}
{"text":"done"}
{"text":"plain"}`))
	if err != nil {
		t.Fatal(err)
	}
	out := &outside{runs: map[string]int{}}
	w := newWorld(t, nil, func(o *agent.Options) {
		tools(out)(o)
		o.Models = scripted{script.New(sc, script.Options{Name: "fake"})}
	})
	a := w.create("s-1111")
	for _, text := range []string{"one", "two", "three"} {
		w.say(a, text)
	}
	has(t, a.Session(), "user/message three", "assistant/message plain", "turn/end completed")
	evs := events(t, a.Session())
	if n := count(t, a.Session(), session.TypeToolResult); n != 4 {
		t.Fatalf("%d results", n)
	}
	for n := 1; n <= len(evs); n++ {
		s := snapshot{events: evs[:n], runs: map[string]int{}}
		st, err := session.Fold(head("s-1111"), session.Core(), session.Events(evs[:n]))
		if err != nil {
			t.Fatal(err)
		}
		// What an earlier prefix had acknowledged is in this one, so the text's own splice tells.
		for i, ev := range evs[:n] {
			if d, err := session.DecodeData[session.InboxSpliced](ev); ev.Type == session.TypeInboxSpliced && err == nil && len(d.Inserted) > 0 {
				s.acks = append(s.acks, d.Inserted[0].PlainText())
			}
			if ev.Type == session.TypeToolCall {
				for _, c := range st.OpenCalls() {
					if c.Started == session.Seq(i) {
						s.runs[st.IdempotencyKey(c.Assistant, c.Index)] = 1
					}
				}
			}
		}
		if err := takeUp(t, head("s-1111"), s); err != nil {
			t.Fatalf("cut behind record %d (%s): %v", n, evs[n-1].Type, err)
		}
		w := newWorld(t, copyOf(t, head("s-1111"), evs[:n]), nil)
		for range 2 {
			if err := w.resume("s-1111").Dispose(w.ctx); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(w.stored("s-1111")); got != n {
			t.Fatalf("opening and closing wrote %d records behind record %d", got-n, n)
		}
	}
}
