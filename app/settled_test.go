package app_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// What stat, the list and a fork say of a session while others write it. On a disk in memory, somebody looks, and
// between any two of the file calls of that look the steps of a case are taken. What is said must be what a quiet
// look would have said before the first step, or behind one of them.

// stage is a disk in memory and the processes that use it.
type stage struct {
	t    *testing.T
	disk *vfs.Mem
	reg  *session.Registry
	all  map[string]*hand
}

func newStage(t *testing.T) *stage {
	reg, err := session.NewRegistry(work)
	if err != nil {
		t.Fatal(err)
	}
	g := &stage{t: t, disk: vfs.NewMem(vfs.MemOptions{}), reg: reg, all: map[string]*hand{}}
	p := g.disk.Process()
	if err := errors.Join(p.Mkdir("/top"), p.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *stage) end() {
	for _, h := range g.all {
		if h.p.Killed() {
			continue
		}
		if err := h.st.Close(); err != nil {
			g.t.Error(err)
		}
	}
}

func (g *stage) store(name string, fsys vfs.FS, segment int64) *filestore.Store {
	g.t.Helper()
	st, err := filestore.Open("/top/store", filestore.Options{
		Now: func() time.Time { return time.UnixMilli(1_700_000_000_000) }, Rand: rand.Reader, Host: "host", Program: name, PID: len(g.all) + 1,
		ProcessStart: "1", FS: fsys, SegmentBytes: segment,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return st
}

// hand is a process, and the session that it holds.
type hand struct {
	g    *stage
	p    *vfs.Process
	st   *filestore.Store
	w    store.Writer
	s    *session.Session
	next session.Seq
}

// of returns the process called so. One with an r in its name makes a segment of each batch, one with a q cannot
// announce itself.
func (g *stage) of(name string) *hand {
	if h := g.all[name]; h != nil {
		return h
	}
	h := &hand{g: g, p: g.disk.Process()}
	var fsys vfs.FS = h.p
	size := int64(0)
	if strings.Contains(name, "r") {
		size = 1
	}
	if strings.Contains(name, "q") {
		fsys = vfs.Around(fsys, func(c *vfs.Call, do func() error) error {
			if c.Op == vfs.OpCreate && strings.Contains(c.Name, "/live/") {
				return os.ErrPermission
			}
			return do()
		})
	}
	h.st = g.store(name, fsys, size)
	g.all[name] = h
	return h
}

func (h *hand) must(err error) {
	h.g.t.Helper()
	if err != nil {
		h.g.t.Fatal(err)
	}
}

// open takes the session, or makes it.
func (h *hand) open(id session.ID) *hand {
	h.g.t.Helper()
	w, err := h.st.Open(h.g.t.Context(), id)
	var seed session.Seed
	hdr := session.Header{Format: session.Format, ID: id, CreatedAt: 1_700_000_000_000, Kind: session.KindRoot, Cwd: "/w"}
	if errors.Is(err, store.ErrNotFound) {
		w, err = h.st.Create(h.g.t.Context(), hdr)
	} else if err == nil {
		hdr = w.Header()
		seed, err = store.Load(w.Opened(), h.g.reg)
	}
	h.must(err)
	h.w = w
	h.s, err = session.New(hdr, seed, session.Env{Registry: h.g.reg, Now: func() int64 { return 1_700_000_000_000 }})
	h.must(err)
	h.next = h.s.Head()
	return h
}

// put writes drafts, in one batch.
func (h *hand) put(drafts ...session.Draft) *hand {
	h.g.t.Helper()
	_, err := h.s.AppendAll(nil, drafts...)
	h.must(err)
	evs, _, err := h.s.From(h.next)
	h.must(err)
	pos, err := h.w.Append(h.g.t.Context(), evs)
	h.must(err)
	h.next = pos.Next
	_, err = h.w.Flush(h.g.t.Context())
	h.must(err)
	return h
}

func (h *hand) leave() { h.g.t.Helper(); h.must(h.w.Close()) }
func (h *hand) die()   { h.p.Kill() }

// fork makes a fork of the last legal cut.
func (h *hand) fork(of, id session.ID) {
	h.g.t.Helper()
	_, err := store.Fork(h.g.t.Context(), h.st, of, store.ForkOptions{Child: id, Registry: h.g.reg})
	h.must(err)
}

var (
	begins = session.Draft{Type: "work/start", Data: struct{}{}}
	ends   = session.Draft{Type: "work/end", Data: struct{}{}}
	other  = session.Draft{Type: session.TypeTodoWrite, Data: session.TodoWrite{}}
)

// asking is an open turn in which the model asked for a call of each name.
func asking(turn int, names ...string) []session.Draft {
	m := message.Message{ID: fmt.Sprint("m", turn), Role: message.RoleAssistant, Source: message.Source{Kind: message.SourceModel, Provider: "p", Model: "m"}}
	out := []session.Draft{
		{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: turn}},
		{Type: session.TypeStepStart, Data: session.StepRef{Turn: turn, Step: 1}},
	}
	for _, n := range names {
		m.Content = append(m.Content, message.CallBlock("c-"+n, n, "{}"))
	}
	return append(out, session.Draft{Type: session.TypeAssistantMessage, Op: session.Append(), Data: session.AssistantMessage{Turn: turn, Step: 1, Message: m}})
}

func started(turn int, name string) session.Draft {
	return session.Draft{Type: session.TypeToolCall, Data: session.ToolCall{Turn: turn, Step: 1, CallID: "c-" + name, Name: name, Arguments: "{}"}}
}

func returned(turn int, name string) session.Draft {
	return session.Draft{Type: session.TypeToolResult, Op: session.Append(), Data: session.ToolResult{Turn: turn, Step: 1,
		Message: message.Result("r-"+name, "c-"+name, false, message.TextBlock("ok"))}}
}

func asked(turn int, name string) session.Draft {
	return session.Draft{Type: session.TypeApprovalAsked, Data: session.ApprovalAsked{AskID: "a-" + name, Turn: turn, Step: 1, CallID: "c-" + name, Name: name}}
}

func decided(name string) session.Draft {
	return session.Draft{Type: session.TypeApprovalDecided, Data: session.ApprovalDecided{AskID: "a-" + name, CallID: "c-" + name, Verdict: session.VerdictAllow, By: session.ByUser}}
}

func turnEnds(turn int) []session.Draft {
	return []session.Draft{{Type: session.TypeStepEnd, Data: session.StepRef{Turn: turn, Step: 1}},
		{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: turn, Reason: session.Reason{Kind: session.ReasonCompleted}}}}
}

// look is a way to look: it says in a line what it saw.
type look func(a *app.App, id session.ID) (string, error)

func holderName(h *app.Holder) string {
	switch {
	case h == nil:
		return "nobody"
	case h.Program == "":
		return "somebody"
	}
	return h.Program
}

// stated says what show --stat tells: who holds it, base and events, activity, brackets and calls.
func stated(a *app.App, id session.ID) (string, error) {
	ins, err := a.Inspect(context.Background(), id, nil)
	if err != nil {
		return "", err
	}
	defer ins.Close()
	r, err := ins.Report()
	if err != nil {
		return "", err
	}
	out := fmt.Sprintf("%s %d/%d %s", holderName(r.Holder), r.Base, r.Events, r.Activity)
	for _, b := range r.Brackets {
		if b.Type == "work/start" {
			out += fmt.Sprintf(" %d:%s", b.Seq, b.State)
		}
	}
	for _, c := range r.OpenCalls {
		out += fmt.Sprintf(" %s:%s", c.Name, c.State)
	}
	return out, nil
}

// listed says what the list tells.
func listed(a *app.App, id session.ID) (string, error) {
	l, err := a.List(context.Background(), app.ListQuery{All: true})
	if err != nil {
		return "", err
	}
	for _, r := range l.Rows {
		if r.ID == id {
			return fmt.Sprintf("%s %d %s %s", holderName(r.Holder), r.Events, r.Activity, r.State), nil
		}
	}
	return "not listed", nil
}

// forked says where a fork is cut that nobody said where to, and what it adds.
func forked(a *app.App, id session.ID) (string, error) {
	h, err := store.Fork(context.Background(), a.Store, id, store.ForkOptions{Child: app.NewID(), Registry: a.Registry})
	if err != nil {
		return "", err
	}
	st, err := a.Store.Stat(context.Background(), h.ID)
	return fmt.Sprintf("cut at %d, %d events", h.Parent.Seq, st.Pos.Next), err
}

// settled is one case: what is done before anybody looks, the steps that others take meanwhile, and what stat tells
// before the first and behind each.
type settled struct {
	name  string
	setup func(*stage)
	steps []func(*stage)
	want  []string
}

func steps(s ...func(*stage)) []func(*stage) { return s }

const seen = session.ID("seen")

var settledCases = []settled{
	{"another holder, what was open is closed",
		func(g *stage) { g.of("a").open(seen).put(begins) },
		steps(func(g *stage) { g.of("a").put(ends) }, func(g *stage) { g.of("a").leave(); g.of("b").open(seen).put(other) }),
		[]string{"a 0/1 idle 0:live", "a 0/2 idle 0:closed", "b 2/4 idle 0:closed"}},
	{"another holder, what was open is left",
		func(g *stage) { g.of("a").open(seen).put(begins) },
		steps(func(g *stage) { g.of("a").die(); g.of("b").open(seen) }, func(g *stage) { g.of("b").put(other) }),
		[]string{"a 0/1 idle 0:live", "b 1/1 idle 0:dead", "b 1/3 idle 0:dead"}},
	{"nobody, then a holder",
		func(g *stage) { g.of("a").open(seen).put(begins).die() },
		steps(func(g *stage) { g.of("b").open(seen) }, func(g *stage) { g.of("b").put(begins) }),
		[]string{"nobody 1/1 idle 0:dead", "b 1/1 idle 0:dead", "b 1/3 idle 0:dead 2:live"}},
	{"a holder, then nobody",
		func(g *stage) { g.of("a").open(seen).put(begins) },
		steps(func(g *stage) { g.of("a").put(ends) }, func(g *stage) { g.of("a").leave() }),
		[]string{"a 0/1 idle 0:live", "a 0/2 idle 0:closed", "nobody 2/2 idle 0:closed"}},
	{"a holder that dies",
		func(g *stage) { g.of("a").open(seen).put(begins) },
		steps(func(g *stage) { g.of("a").die() }),
		[]string{"a 0/1 idle 0:live", "nobody 1/1 idle 0:dead"}},
	{"the same process, another life",
		func(g *stage) { g.of("a").open(seen).put(begins) },
		steps(func(g *stage) { g.of("a").put(ends).leave() }, func(g *stage) { g.of("a").open(seen).put(begins) }),
		[]string{"a 0/1 idle 0:live", "nobody 2/2 idle 0:closed", "a 2/4 idle 0:closed 3:live"}},
	{"one comes and goes",
		func(g *stage) { g.of("a").open(seen).put(other).leave() },
		steps(func(g *stage) { g.of("b").open(seen).put(begins) }, func(g *stage) { g.of("b").put(ends).leave() }),
		[]string{"nobody 1/1 idle", "b 1/3 idle 2:live", "nobody 4/4 idle 2:closed"}},
	{"a holder that rolls",
		func(g *stage) { g.of("r").open(seen).put(begins) },
		steps(func(g *stage) { g.of("r").put(other) }, func(g *stage) { g.of("r").put(other).put(begins) }),
		[]string{"r 0/1 idle 0:live", "r 0/2 idle 0:live", "r 0/4 idle 0:live 3:live"}},
	{"a holder of several segments, behind another life",
		func(g *stage) {
			g.of("r").open(seen).put(begins).put(other).leave()
			g.of("ar").open(seen).put(begins).put(other).put(begins)
		},
		steps(func(g *stage) { g.of("ar").put(other) }, func(g *stage) { g.of("ar").leave() }),
		[]string{"ar 2/6 idle 0:dead 3:live 5:live", "ar 2/7 idle 0:dead 3:live 5:live", "nobody 7/7 idle 0:dead 3:dead 5:dead"}},
	{"a holder of several segments, that dies",
		func(g *stage) { g.of("r").open(seen).put(begins).put(other).put(begins) },
		steps(func(g *stage) { g.of("r").die() }, func(g *stage) { g.of("b").open(seen).put(other) }),
		[]string{"r 0/3 idle 0:live 2:live", "nobody 3/3 idle 0:dead 2:dead", "b 3/5 idle 0:dead 2:dead"}},
	{"its first segment comes",
		func(g *stage) { g.of("a").open(seen).put(begins).die(); g.of("b").open(seen) },
		steps(func(g *stage) { g.of("b").put(begins) }, func(g *stage) { g.of("b").put(ends) }),
		[]string{"b 1/1 idle 0:dead", "b 1/3 idle 0:dead 2:live", "b 1/4 idle 0:dead 2:closed"}},
	{"the first segment of all",
		func(g *stage) { g.of("a").open(seen).put(other) },
		steps(func(g *stage) { g.of("a").put(begins) }, func(g *stage) { g.of("a").put(ends).leave() }),
		[]string{"a 0/1 idle", "a 0/2 idle 1:live", "nobody 3/3 idle 1:closed"}},
	{"inherited, while the parent runs it",
		func(g *stage) { g.of("a").open("parent").put(begins); g.of("b").fork("parent", seen) },
		steps(func(g *stage) { g.of("a").put(ends).put(begins) }, func(g *stage) { g.of("a").die() }),
		[]string{"nobody 2/2 idle 0:dead", "nobody 2/2 idle 0:dead", "nobody 2/2 idle 0:dead"}},
	{"inherited, and one of its own",
		func(g *stage) { g.of("a").open("parent").put(begins); g.of("b").fork("parent", seen) },
		steps(func(g *stage) { g.of("b").open(seen).put(begins) }, func(g *stage) { g.of("a").put(ends); g.of("b").put(ends) }),
		[]string{"nobody 2/2 idle 0:dead", "b 2/3 idle 0:dead 2:live", "b 2/4 idle 0:dead 2:closed"}},
	{"packed, then held",
		func(g *stage) {
			for range 2 {
				g.of("ar").open(seen).put(begins).put(other).leave()
			}
		},
		steps(func(g *stage) {
			_, err := g.of("p").st.Pack(g.t.Context(), seen)
			g.of("p").must(err)
		}, func(g *stage) { g.of("b").open(seen).put(begins) }),
		[]string{"nobody 5/5 idle 0:dead 3:dead", "nobody 5/5 idle 0:dead 3:dead", "b 5/7 idle 0:dead 3:dead 6:live"}},
	{"calls of a holder that dies",
		func(g *stage) {
			g.of("a").open(seen).put(append(asking(1, "ran", "not", "waits"), started(1, "ran"), asked(1, "waits"))...)
		},
		steps(func(g *stage) { g.of("a").die() }, func(g *stage) { g.of("b").open(seen).put(other) }),
		[]string{"a 0/5 waiting ran:running not:not-started waits:waiting", "nobody 5/5 waiting ran:unknown not:not-started waits:waiting",
			"b 5/9 waiting waits:waiting"}},
	{"a turn that the next life ends",
		func(g *stage) { g.of("a").open(seen).put(append(asking(1, "ran"), started(1, "ran"))...) },
		steps(func(g *stage) { g.of("a").die(); g.of("b").open(seen) }, func(g *stage) { g.of("b").put(other) }),
		[]string{"a 0/4 running ran:running", "b 4/4 interrupted ran:unknown", "b 4/9 idle"}},
	{"a turn that the next life takes up",
		func(g *stage) {
			g.of("a").open(seen).put(append(asking(1, "waits"), asked(1, "waits"))...).die()
			g.of("b").open(seen)
		},
		steps(func(g *stage) { g.of("b").put(decided("waits"), started(1, "waits")) }, func(g *stage) { g.of("b").put(returned(1, "waits")) }),
		[]string{"b 4/4 waiting waits:waiting", "b 4/7 running waits:running", "b 4/8 running"}},
	{"a turn that ends",
		func(g *stage) { g.of("a").open(seen).put(append(asking(1, "ran"), started(1, "ran"))...) },
		steps(func(g *stage) { g.of("a").put(returned(1, "ran")) }, func(g *stage) { g.of("a").put(turnEnds(1)...).leave() }),
		[]string{"a 0/4 running ran:running", "a 0/5 running", "nobody 7/7 idle"}},
	{"holders that say nothing of themselves",
		func(g *stage) { g.of("q").open(seen).put(begins) },
		steps(func(g *stage) { g.of("q").put(ends).leave() }, func(g *stage) { g.of("aq").open(seen).put(other) }),
		[]string{"somebody 0/1 idle 0:live", "nobody 2/2 idle 0:closed", "somebody 2/4 idle 0:closed"}},
	{"holders of several segments that say nothing of themselves",
		func(g *stage) { g.of("rq").open(seen).put(begins).put(other) },
		steps(func(g *stage) { g.of("rq").leave() }, func(g *stage) { g.of("arq").open(seen).put(begins).put(other) }),
		[]string{"somebody 0/2 idle 0:live", "nobody 2/2 idle 0:dead", "somebody 2/5 idle 0:dead 3:live"}},
}

// quiet is what a look says behind the first n steps.
func (c settled) quiet(t *testing.T, how look, n int) string {
	g := newStage(t)
	defer g.end()
	c.setup(g)
	for _, step := range c.steps[:n] {
		step(g)
	}
	said, err := how(&app.App{Store: g.of("z").st, Registry: g.reg}, seen)
	if err != nil {
		return err.Error()
	}
	return said
}

// play looks, and takes step i before the file call at[i]. It returns what was said, how many steps were taken
// meanwhile, and the number of calls.
func (c settled) play(t *testing.T, how look, writes bool, at []int) (said string, taken, calls int) {
	g := newStage(t)
	defer g.end()
	c.setup(g)
	for _, name := range []string{"a", "b"} { // whoever comes later is there: a look counts only what it changes itself
		g.of(name)
	}
	var mu sync.Mutex
	st := g.store("reader", vfs.Around(g.disk.Process(), func(call *vfs.Call, do func() error) error {
		mu.Lock()
		defer mu.Unlock()
		calls++
		for ; taken < len(at) && at[taken] <= calls; taken++ {
			c.steps[taken](g)
		}
		before := g.disk.Changes()
		err := do()
		if !writes && (g.disk.Changes() != before || call.Op == vfs.OpLock) {
			t.Errorf("a reader changes something: %s %s", call.Op, call.Name)
		}
		return err
	}), 0)
	said, err := how(&app.App{Store: st, Registry: g.reg}, seen)
	if err != nil {
		said = err.Error()
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	return said, taken, calls
}

// TestSettled takes the steps of each case between all calls of a look. By default the second step is taken at some
// distances from the first, and lists and forks are looked at in some places only; STRANDLINE_STAT_ALL tries all.
func TestSettled(t *testing.T) {
	all := os.Getenv("STRANDLINE_STAT_ALL") != ""
	for _, c := range settledCases {
		t.Run(c.name, func(t *testing.T) {
			for name, how := range map[string]look{"stat": stated, "ls": listed, "fork": forked} {
				stride := map[string]int{"stat": 1, "ls": 5, "fork": 11}[name]
				if all {
					stride = 1
				}
				var quiet []string
				for n := range len(c.steps) + 1 {
					said := c.quiet(t, how, n)
					if quiet = append(quiet, said); name == "stat" && said != c.want[n] {
						t.Errorf("behind %d steps: %s, want %s", n, said, c.want[n])
					}
				}
				_, _, calls := c.play(t, how, name == "fork", nil)
				runs := 0
				try := func(at ...int) {
					runs++
					said, taken, _ := c.play(t, how, name == "fork", at)
					if !slices.Contains(quiet[:taken+1], said) {
						t.Errorf("%s with steps before calls %v of %d: %s\nwant one of\n%s", name, at, calls, said, strings.Join(quiet[:taken+1], "\n"))
					}
				}
				for k := 1; k <= calls && !t.Failed(); k += stride {
					if len(c.steps) == 1 {
						try(k)
						continue
					}
					for d := 0; d <= 2*calls; {
						try(k, k+d)
						if d += 1; !all {
							d *= 4
						}
					}
				}
				t.Logf("%s: %d calls, %d runs", name, calls, runs)
			}
		})
	}
}
