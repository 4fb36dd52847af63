package agent_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// titler serves requests for titles; all others go to the model of the test.
type titler struct {
	agent.Models
	title reply
	asked chan llm.Request
}

func (m *titler) Provider(name string) (llm.Provider, error) {
	p, err := m.Models.Provider(name)
	return titled{p, m}, err
}

type titled struct {
	llm.Provider
	m *titler
}

func (p titled) Unwrap() llm.Provider { return p.Provider }

func (p titled) EncodingName() string { return "test/1" }

func (p titled) Encode(req llm.Request) ([]byte, error) {
	return []byte(req.Messages[0].PlainText() + req.Model), nil
}

func (p titled) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	if req.Purpose != llm.PurposeTitle {
		return p.Provider.Stream(ctx, req)
	}
	p.m.asked <- req
	return func(yield func(llm.Chunk, error) bool) { p.m.title(ctx, req, yield) }
}

// entitled lets titles be answered with title. Nothing is slept: a wait ends with its context.
func entitled(title reply, set ...func(*agent.Options)) (*titler, func(*agent.Options)) {
	m := &titler{title: title, asked: make(chan llm.Request, 100)}
	return m, func(o *agent.Options) {
		m.Models, o.Models = o.Models, m
		o.Titles = &agent.Titles{Route: agent.Route{Provider: "other", Model: "small"}, Grace: time.Hour}
		o.Sleep = func(ctx context.Context, _ time.Duration) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		for _, f := range set {
			f(o)
		}
	}
}

func (m *titler) requests() (out []llm.Request) {
	for {
		select {
		case r := <-m.asked:
			out = append(out, r)
		default:
			return out
		}
	}
}

// titles lists what the log says of titles.
func titles(evs []session.Event) (out []string) {
	for _, ev := range evs {
		switch ev.Type {
		case session.TypeTitle:
			d, _ := session.DecodeData[session.Title](ev)
			out = append(out, d.Source+": "+d.Title)
		case agent.TypeTitleAsked:
			out = append(out, "asked")
		case agent.TypeSent:
			if d, _ := session.DecodeData[agent.SentEvent](ev); d.Purpose != "" {
				out = append(out, "sent")
			}
		case agent.TypeTitleAnswered:
			d, _ := session.DecodeData[agent.TitleAnswered](ev)
			line := strings.TrimSpace("answered " + d.Code)
			if d.Usage == nil {
				line += " untold"
			}
			out = append(out, line)
		}
	}
	return out
}

func TestTitleByModel(t *testing.T) {
	long := strings.Repeat("very ", 500) + "long"
	fallback := "fallback: what is wrong with the parser?"
	for name, c := range map[string]struct {
		title reply
		want  []string
	}{
		"a title":        {says("The parser's fault"), []string{"answered", "provider: The parser's fault"}},
		"dressed up":     {says("\n  Title: **\"The\u202e parser\"**.\nand more"), []string{"answered", "provider: The parser"}},
		"too long":       {says(long[:1000]), []string{"answered", "provider: very very very very very very very very very very very very…"}},
		"never ending":   {says(long + long), []string{"answered MALFORMED_RESPONSE untold"}},
		"nothing":        {says(" \u200b\n\"\""), []string{"answered EMPTY_RESPONSE"}},
		"only thoughts":  {answers(llm.FinishLength, message.Block{Type: message.Reasoning, Text: "hm"}), []string{"answered EMPTY_RESPONSE"}},
		"a failure":      {fails(llm.CodeServer), []string{"answered SERVER untold"}},
		"a crash":        {func(context.Context, llm.Request, func(llm.Chunk, error) bool) { panic("no") }, []string{"answered MALFORMED_RESPONSE untold"}},
		"a tool instead": {calls(use("c1", "bash")), []string{"answered EMPTY_RESPONSE"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, set := entitled(c.title)
			w := newWorld(t, nil, set, says("hello"), says("again"))
			a := w.create("sess-1")
			w.say(a, "what is wrong with the parser?")
			w.say(a, "and now?")
			activity := a.Session().State().LastActivity()
			if err := a.Dispose(w.ctx); err != nil {
				t.Fatal(err)
			}
			want := append([]string{fallback, "asked", "sent"}, c.want...)
			evs := w.stored("sess-1")
			if got := titles(evs); !slices.Equal(got, want) {
				t.Errorf("the log says %q, want %q\n%s", got, want, shapeOf(t, evs))
			}
			st := a.Session().State()
			if st.LastActivity() != activity {
				t.Error("a title moved the session in the list")
			}
			told := int64(20)
			if !strings.Contains(strings.Join(c.want, " "), "untold") {
				told = 30
			}
			if total, _ := st.Usage(); total.InputTokens != told {
				t.Errorf("the session used %d tokens, want %d: a title costs too", total.InputTokens, told)
			}
			reqs := m.requests()
			if len(reqs) != 1 || reqs[0].Model != "small" || !agent.IsTitle(reqs[0]) || len(reqs[0].Tools) > 0 {
				t.Fatalf("asked %+v", reqs)
			}
			if text := reqs[0].Messages[0].PlainText(); !strings.Contains(text, "what is wrong") || !strings.Contains(text, "hello") || strings.Contains(text, "and now") {
				t.Errorf("the model was told %q", text)
			}
		})
	}
}

// Whoever has a title from elsewhere, or no person, is not asked about.
func TestTitleNotAsked(t *testing.T) {
	parent := func(h session.Header) session.Header {
		h.Kind = session.KindFork
		return h
	}
	for name, c := range map[string]struct {
		head    func(session.Header) session.Header
		replies []reply
		before  func(w *world, a *agent.Agent)
		set     func(*agent.Options)
	}{
		"headless": {head: func(h session.Header) session.Header { h.Kind = session.KindHeadless; return h }},
		"subagent": {head: func(h session.Header) session.Header { h.Kind = session.KindSubagent; return h }},
		"fork":     {head: parent},
		"failed":   {replies: []reply{fails(llm.CodeAuth)}},
		"off":      {set: func(o *agent.Options) { o.Titles = nil }},
		"no model": {set: func(o *agent.Options) { o.Titles = &agent.Titles{Route: agent.Route{Provider: "nobody", Model: "m"}} }},
		"titled by the user in the turn": {set: func(o *agent.Options) {
			o.Hooks.TurnStart = []func(context.Context, *agent.Agent){func(ctx context.Context, a *agent.Agent) {
				if err := a.SetTitle(ctx, "mine"); err != nil {
					panic(err)
				}
			}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m, set := entitled(says("no"), func(o *agent.Options) {
				if c.set != nil {
					c.set(o)
				}
			})
			replies := c.replies
			if replies == nil {
				replies = []reply{says("hello")}
			}
			w := newWorld(t, nil, set, replies...)
			h := head("sess-1")
			if c.head != nil {
				h = c.head(h)
			}
			a, err := w.agents.Create(w.ctx, agent.Spec{Header: h})
			if err != nil {
				t.Fatal(err)
			}
			w.say(a, "hi")
			if err := a.Dispose(w.ctx); err != nil {
				t.Fatal(err)
			}
			if got := titles(w.stored("sess-1")); len(m.requests()) != 0 || len(got) != 1 {
				t.Errorf("it was asked: %q", got)
			}
		})
	}
}

// A turn that failed is none to be named after: the first one that is completed is, also in a later life. From then on nobody
// asks again.
func TestTitleFirstCompleted(t *testing.T) {
	m, set := entitled(says("a name"))
	w := newWorld(t, nil, set, fails(llm.CodeAuth))
	a := w.create("sess-1")
	w.say(a, "first")
	if err := a.Dispose(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.model.replies = []reply{says("yes"), says("more")}
	for i, want := range []int{1, 0} {
		a = w.resume("sess-1")
		w.say(a, "again")
		if err := a.Dispose(w.ctx); err != nil {
			t.Fatal(err)
		}
		if got := len(m.requests()); got != want {
			t.Errorf("life %d asked %d times, want %d", i+2, got, want)
		}
	}
	if got := titles(w.stored("sess-1")); got[len(got)-1] != "provider: a name" {
		t.Errorf("the log says %q", got)
	}
}

// Nothing waits for a title: not the turn's end, not the next turn; an exit as long as the grace. What a person calls the
// session meanwhile stays.
func TestTitleMeanwhile(t *testing.T) {
	started := make(chan struct{})
	var open chan struct{}
	slow := func(ctx context.Context, req llm.Request, yield func(llm.Chunk, error) bool) {
		close(started)
		select {
		case <-open:
			says("by the model")(ctx, req, yield)
		case <-ctx.Done():
			yield(llm.Chunk{}, llm.AsError(ctx, ctx.Err()))
		}
	}
	for name, c := range map[string]struct {
		over bool // the grace, before the answer comes
		late bool // the time for the answer is over
		user bool // a person names the session
		want []string
	}{
		"answered in the grace": {want: []string{"asked", "sent", "answered", "provider: by the model"}},
		"named by the user":     {user: true, want: []string{"asked", "sent", "user: mine", "answered"}},
		"the grace is over":     {over: true, want: []string{"asked", "sent", "answered ABORTED untold"}},
		"no answer in time":     {late: true, want: []string{"asked", "sent", "answered TIMEOUT untold"}},
		"named, and no answer":  {user: true, over: true, want: []string{"asked", "sent", "user: mine", "answered ABORTED untold"}},
	} {
		t.Run(name, func(t *testing.T) {
			started, open = make(chan struct{}), make(chan struct{})
			_, set := entitled(slow, func(o *agent.Options) {
				wait := o.Sleep
				o.Sleep = func(ctx context.Context, d time.Duration) error {
					switch {
					case d == time.Hour && c.over:
						return nil
					case d == time.Hour && !c.late:
						close(open) // the answer comes while somebody waits for it
					case d == 30*time.Second && c.late:
						<-started
						return nil
					}
					return wait(ctx, d)
				}
			})
			w := newWorld(t, nil, set, says("hello"), says("again"))
			a := w.create("sess-1")
			w.say(a, "hi")
			<-started
			if evs := w.stored("sess-1"); !slices.Contains(titles(evs), "sent") {
				t.Errorf("a request was sent before that was saved: %q", titles(evs))
			}
			if c.user {
				if err := a.SetTitle(w.ctx, "mine"); err != nil {
					t.Fatal(err)
				}
			}
			w.say(a, "and while it is asked")
			if err := a.Dispose(w.ctx); err != nil {
				t.Fatal(err)
			}
			if got := titles(w.stored("sess-1")); !slices.Equal(got[1:], c.want) {
				t.Errorf("the log says %q, want %q", got[1:], c.want)
			}
		})
	}
}

// A log of every length at which a kill may have left it: the session goes on, has a title, and is asked about at most once.
func TestTitleKilled(t *testing.T) {
	_, set := entitled(says("by the model"))
	w := newWorld(t, nil, set, says("hello"))
	a := w.create("sess-1")
	w.say(a, "hi there")
	if err := a.Dispose(w.ctx); err != nil {
		t.Fatal(err)
	}
	evs := w.stored("sess-1")
	for n := 1; n <= len(evs); n++ {
		m, set := entitled(says("by another life"))
		w := newWorld(t, copyOf(t, head("sess-1"), evs[:n]), set, says("again"), says("and again"))
		a := w.resume("sess-1")
		w.say(a, "go on")
		if err := a.Dispose(w.ctx); err != nil {
			t.Fatal(err)
		}
		log := w.stored("sess-1")
		asked := 0
		for _, ev := range log {
			if ev.Type == agent.TypeTitleAsked {
				asked++
			}
		}
		ended := slices.ContainsFunc(evs[:n], func(ev session.Event) bool { return ev.Type == session.TypeTurnEnd })
		if want := !ended; (len(m.requests()) == 1) != want || asked > 1 {
			t.Errorf("killed behind %d events (%s): asked %d times\n%s", n, evs[n-1].Type, asked, shapeOf(t, log))
		}
		if st := a.Session().State(); st.Title().Title == "" {
			t.Errorf("killed behind %d events (%s): no title\n%s", n, evs[n-1].Type, shapeOf(t, log))
		}
	}
}

// A log that cannot be saved sends nothing.
func TestTitleNotSaved(t *testing.T) {
	m, set := entitled(says("no"), func(o *agent.Options) {
		o.Titles.Grace = 0
	})
	w := newWorld(t, nil, set, says("hello"))
	a := w.create("sess-1")
	full := errors.New("full")
	w.st.mu.Lock()
	w.st.synced = func(p session.Prefix) {
		ev, err := p.At(p.Len() - 1)
		if err == nil && ev.Type == session.TypeTurnEnd {
			w.st.failing = full // synced is called with mu held
		}
	}
	w.st.mu.Unlock()
	w.say(a, "hi")
	if err := a.Dispose(w.ctx); err == nil {
		t.Error("what cannot be saved was let go")
	}
	if len(m.requests()) != 0 {
		t.Error("a request was sent that is not in the log")
	}
	w.st.mu.Lock()
	w.st.synced, w.st.failing = nil, nil
	w.st.mu.Unlock()
	if err := a.Dispose(w.ctx); err != nil {
		t.Error(err)
	}
}
