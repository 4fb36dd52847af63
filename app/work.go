package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/config"
	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/script"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/subagent"
	"github.com/strandline-dev/strandline/tool"
	"github.com/strandline-dev/strandline/tool/builtin"
)

// WorkOptions says whose work begins and how.
type WorkOptions struct {
	Session session.ID          // a stored session that goes on; "" begins a new one
	Kind    session.SessionKind // of a new session; "" = root
	Script  *script.Script      // plays the model, whichever it is; nil: it is called
	Config  *config.Config      // nil: nothing is configured
	Route   agent.Route         // zero: what the session says, else the script or what is configured
	Cwd     string              // absolute; "": what the session says
	// Here is where the person is, absolute: if the session's directory is gone, and this is the project that it was in
	// under another name, the session goes on in its directory's new place. "": it does not.
	Here     string
	Approve  tool.Policy // "": what the session says, else Default
	Default  tool.Policy // where the configuration says nothing else
	Rules    []tool.Rule // of approval, added to those of the session
	TakeOver bool        // asks whoever holds Session to let it go
	// NoSubagents leaves out the tool that hands work on.
	NoSubagents bool
	// Wake begins a turn when a subagent that works in the background is done: nobody sits there to begin one.
	Wake bool
	// MaxSteps is how many steps a turn may have; 0: what is configured.
	MaxSteps int
}

// Work is an agent at work on one session. Close it.
type Work struct {
	Agent *agent.Agent
	First session.Seq // the first event that this life may write: what is below it was stored before
	app   *App
	// compactor makes the view smaller, by itself and when asked.
	compactor *compact.Compactor
	opts      WorkOptions
	k         *keeper.Keeper
	d         *subagent.Delegation
	h         *keeper.Handle
	told      session.Seq // what a watcher was told; used by one watch at a time
	free      func()      // lets the connections to the model go
	feeder    *feeder     // of the index
}

// idleModel is how long a model may say nothing before its request is given up, unless the configuration says.
const idleModel = 5 * time.Minute

// Begin opens or makes a session and an agent for it. A new session is not stored before its first accepted
// input; opening a stored one writes nothing. Errors are those of the store (*store.BusyError names the
// holder), *TakeOverError, *UsageError for a directory that is gone and *ModelError when no model can be called.
func (a *App) Begin(ctx context.Context, o WorkOptions) (*Work, error) {
	m, free := a.newModels(context.WithoutCancel(ctx), o)
	if o.Session == "" {
		if err := m.check(m.routeOf(o, session.Settings{})); err != nil {
			return nil, err
		}
		if o.Script == nil {
			o.Route = m.routeOf(o, session.Settings{}) // written down, whatever is configured when it goes on
		}
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = o.Config.Steps()
	}
	k := a.newKeeper()
	compactor := newCompactor(o.Config)
	a.Observe(o.Config)
	d, err := subagent.New(agent.Options{
		Sessions: sessions{k, &a.exports},
		Models:   m,
		Default:  m.route(),
		Policy:   o.Config.Policy(o.Default),
		Equip: func(_ context.Context, s *session.Session) (agent.Kit, error) {
			return a.equip(s, placeOf(s, o))
		},
		ReadFile: readContext,
		MaxSteps: o.MaxSteps,
		Titles:   titles(o),
		Hooks:    agent.Hooks{Pressure: []func(context.Context, agent.PressureInput) (bool, error){pressure(compactor)}},
		Now:      time.Now,
		NewID:    func() string { return string(NewID()) },
		Sleep:    sleep,
		Rand:     rand.Float64,
	}, delegation(o))
	if err != nil {
		return nil, err
	}
	agents := d.Agents()
	w := &Work{app: a, k: k, d: d, free: free, compactor: compactor, opts: o}
	cfg := agent.Config{Route: o.Route, Policy: o.Approve, Rules: o.Rules}
	if o.Session != "" {
		if o.TakeOver { // nobody's work is ended for what cannot go on
			if err := a.CheckModel(ctx, o.Session, o); err != nil {
				return nil, err
			}
		}
		err = a.takingOver(ctx, o.TakeOver, func() (err error) {
			w.Agent, err = agents.Resume(ctx, o.Session, cfg)
			return err
		})
	} else {
		kind := o.Kind
		if kind == "" {
			kind = session.KindRoot
		}
		p := ProjectOf(o.Cwd)
		w.Agent, err = agents.Create(ctx, agent.Spec{Config: cfg, Header: session.Header{
			Format: session.Format, ID: NewID(), CreatedAt: Now(), Kind: kind, Cwd: o.Cwd, Project: p.Root, ProjectID: p.ID,
		}})
	}
	if err != nil {
		return nil, err
	}
	w.First = w.Agent.Session().Head()
	w.told = w.First
	w.h, _ = k.Get(w.Agent.ID())
	if err = m.check(m.routeOf(o, w.Agent.Session().State().Settings())); err == nil {
		err = w.moveTo(placeOf(w.Agent.Session(), o))
	}
	if err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	w.feeder = w.feed(ctx)
	return w, nil
}

// moveTo records that a stored session goes on in another directory. It is saved together with the input that
// follows.
func (w *Work) moveTo(dir string) error {
	s := w.Agent.Session()
	if dir == "" || dir == cwdOf(s.Header(), s.State()) {
		return nil
	}
	_, err := s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		set := st.Settings()
		set.Cwd = dir
		return []session.Draft{{Type: session.TypeSettings, Data: set}}, nil
	})
	return err
}

func cwdOf(h session.Header, st session.State) string {
	if d := st.Settings().Cwd; d != "" {
		return d
	}
	return h.Cwd
}

// placeOf returns the directory in which s goes on: the one that was asked for, or its own in its new place; "": its own.
func placeOf(s *session.Session, o WorkOptions) string {
	h, dir := s.Header(), cwdOf(s.Header(), s.State())
	if o.Cwd != "" || o.Here == "" || h.ProjectID == "" {
		return o.Cwd
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	inside, err := filepath.Rel(h.Project, canonical(dir))
	p := ProjectOf(o.Here)
	if err != nil || !filepath.IsLocal(inside) || p.ID != h.ProjectID {
		return ""
	}
	place := filepath.Join(p.Root, inside)
	if _, err := absDir(place); err != nil {
		return ""
	}
	return place
}

// equip makes the tools of a session, for its working directory or another one.
func (a *App) equip(s *session.Session, dir string) (agent.Kit, error) {
	if dir == "" {
		dir = cwdOf(s.Header(), s.State())
	}
	if dir == "" {
		return agent.Kit{}, &UsageError{"--cwd", "the session has no directory: it was imported without one", "say where to go on with --cwd DIR"}
	}
	if _, err := absDir(dir); err != nil {
		return agent.Kit{}, &UsageError{"--cwd", fmt.Sprintf("the session's directory %s: %v", dir, err), "say where to go on with --cwd DIR"}
	}
	defs, err := builtin.New(builtin.Options{Root: dir, Env: os.Environ()})
	if err != nil {
		return agent.Kit{}, err
	}
	set, err := tool.NewSet(append(defs, a.recall(s.Header(), dir))...)
	if err != nil {
		return agent.Kit{}, err
	}
	kit := agent.Kit{Tools: set}
	if b, ok := a.Store.(store.Blobs); ok {
		kit.Spill = func(ctx context.Context, text string) (string, func(), error) {
			name, err := b.PutBlob(ctx, []byte(text))
			return name, func() { b.ReleaseBlob(name) }, err
		}
	}
	return kit, nil
}

// Watcher is told what happens, one call at a time. Both fields may be nil.
type Watcher struct {
	Event  func(session.Event) // each event once it is synced, in order
	Notice func(agent.Notice)  // what a person wants to see at once
}

// Watch tells watch what happens: the events that no watch was told before, and notices from now on. What it
// returns waits until everything accepted so far was told, and ends it; call it before Close and before another
// Watch.
func (w *Work) Watch(watch Watcher) (finish func()) {
	var mu sync.Mutex
	ctx, stop := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	sub := w.Agent.Subscribe(4096)
	if watch.Notice != nil {
		tasks.Go(func() {
			for {
				n, err := sub.Next(ctx)
				if err != nil {
					return
				}
				mu.Lock()
				watch.Notice(n)
				mu.Unlock()
			}
		})
	}
	if watch.Event != nil {
		tasks.Go(func() {
			w.follow(ctx, func(ev session.Event) {
				mu.Lock()
				defer mu.Unlock()
				watch.Event(ev)
			})
		})
	}
	return func() {
		stop()
		sub.Close()
		tasks.Wait()
	}
}

// follow hands over events as they are synced. After the end of ctx it hands over what is accepted already, if
// that can be synced.
func (w *Work) follow(ctx context.Context, f func(session.Event)) {
	s := w.Agent.Session()
	for {
		events, more, err := s.From(w.told)
		if err != nil {
			return
		}
		if len(events) == 0 {
			if ctx.Err() != nil {
				return
			}
			select {
			case <-more:
			case <-ctx.Done():
			}
			continue
		}
		if err := w.h.Flush(context.Background()); err != nil {
			if ctx.Err() != nil {
				return
			}
			select { // not saved: the next event, or whoever flushes next, tries again
			case <-more:
			case <-ctx.Done():
			}
		}
		synced := w.h.Synced()
		for _, ev := range events {
			if ev.Seq < synced {
				f(ev)
				w.told = ev.Seq + 1
			}
		}
	}
}

// Close saves, lets the session go and frees everything; what telemetry is left is App.Report's. If it cannot be saved the error is
// *UnsavedError, and what is missing was put into a file outside the store.
func (w *Work) Close(ctx context.Context) error {
	if w.Agent == nil {
		return nil
	}
	defer w.free()
	defer w.feeder.close(ctx, w.wrote())
	err := w.Agent.Dispose(ctx) // its subagents stop with it
	if err != nil && w.h != nil {
		err = w.app.rescue(w.h, err)
	}
	for _, a := range w.d.Agents().All() { // a subagent that could not be saved
		if left := a.Dispose(ctx); left != nil {
			if h, ok := w.k.Get(a.ID()); ok {
				left = w.app.rescue(h, left)
			}
			err = errors.Join(err, left)
		}
	}
	return errors.Join(err, w.d.Close(ctx))
}

// Summary is what a run has to tell. Its keys are a contract.
type Summary struct {
	SessionID session.ID  `json:"sessionId"`
	Turn      int         `json:"turn"`
	Reason    string      `json:"reason"`
	Text      string      `json:"text"`
	Usage     Usage       `json:"usage"`
	Steps     int         `json:"steps"`
	ToolCalls int         `json:"toolCalls"`
	FirstSeq  session.Seq `json:"firstSeq"`
	LastSeq   session.Seq `json:"lastSeq"`
}

// ReasonWaiting is the reason of a Summary when the turn waits for a person.
const ReasonWaiting = "waiting"

// Summary tells what this life did so far.
func (w *Work) Summary() (Summary, error) {
	s := w.Agent.Session()
	events := s.Events()
	out := Summary{SessionID: s.ID(), FirstSeq: w.First, LastSeq: events.Len() - 1}
	out.Turn, _ = s.State().Turn()
	for ev, err := range events.Range(w.First, events.Len()) {
		if err != nil {
			return out, err
		}
		if u, _, _, ok := w.app.Registry.UsageOf(ev); ok {
			out.Usage.add(&u)
		}
		switch ev.Type {
		case session.TypeStepStart:
			out.Steps++
		case session.TypeToolCall:
			out.ToolCalls++
		case session.TypeTurnEnd:
			if d, err := session.DecodeData[session.TurnEnd](ev); err == nil && ev.Seq >= s.FirstLiveSeq() {
				out.Reason = d.Reason.Kind
			}
		case session.TypeAssistantMessage:
			d, err := session.DecodeData[session.AssistantMessage](ev)
			if err != nil {
				return out, err
			}
			if text := d.Message.PlainText(); text != "" {
				out.Text = text
			}
		}
	}
	if len(w.Asks()) > 0 {
		out.Reason = ReasonWaiting
	}
	return out, nil
}

// Outcome returns nil if the last turn of this life ended well, else a *TurnError.
func (w *Work) Outcome() error {
	st := w.Agent.Status()
	e := &TurnError{Session: w.Agent.ID(), Turn: st.Turn}
	if waits := w.Asks(); len(waits) > 0 {
		who := waits[0].Agent
		e.Code, e.Why = ReasonWaiting, waitText(questions(who.Session().State()))
		if who != w.Agent {
			e.Why = "its subagent " + string(who.ID()) + " " + e.Why
		}
		call := ""
		if len(who.Status().Asks) > 1 {
			call = " CALL"
		}
		e.Hint = fmt.Sprintf("answer with strand approve %s%s (--deny refuses, --cancel ends the turn), or in strand chat %s", who.ID(), call, w.Agent.ID())
		return e
	}
	if st.LastEnd == nil {
		return nil
	}
	r := st.LastEnd.Reason
	e.Turn, e.Code, e.Why = st.LastEnd.Turn, r.Kind, ReasonText(r)
	goOn := fmt.Sprintf("go on with strand run --session %s", w.Agent.ID())
	switch r.Kind {
	case session.ReasonCompleted:
		return nil
	case session.ReasonAborted:
		e.Cancelled, e.Hint = true, goOn
	case session.ReasonLimit:
		e.Hint = "--max-steps N allows more; " + goOn
	case session.ReasonMaxTokens:
		e.Hint = "the answer is not whole; " + goOn
	case session.ReasonError:
		e.Hint = goOn
		if r.Error != nil {
			e.Why = r.Error.Message
			if r.Error.Code != "" {
				e.Code = r.Error.Code
			}
			if e.Code == store.CodeDamaged { // nobody can go on with it as it is
				e.Hint = fmt.Sprintf("strand doctor %s says where; strand doctor --repair %s makes it writable again", w.Agent.ID(), w.Agent.ID())
			}
			if first := remedies[llm.Code(e.Code)]; first != "" {
				e.Hint = first + ", then " + goOn
			}
		}
	default:
		e.Hint = goOn
	}
	return e
}

// remedies are what a person can do about a failure before the next try.
var remedies = map[llm.Code]string{
	llm.CodeAuth:              "strand config shows where the key comes from: set the right one",
	llm.CodeMissingCredential: "strand config shows where the key is looked for: set it",
	llm.CodeQuota:             "pay the service, or name another model with --model",
	llm.CodeContextWindow:     "make the conversation smaller with strand compact (again, if once is not enough), name a model that takes more with --model, or take the last turn back with strand undo",
	llm.CodeTransport:         "see whether the service runs and strand config has its address",
}

// sessions is the durable side of the agents: a keeper, and what follows its sessions.
type sessions struct {
	k *keeper.Keeper
	x *exports
}

func (s sessions) Create(ctx context.Context, h session.Header, seed session.Seed) (agent.Handle, error) {
	return s.follows(s.k.Create(ctx, h, seed))
}

func (s sessions) Resume(ctx context.Context, id session.ID) (agent.Handle, error) {
	return s.follows(s.k.Resume(ctx, id))
}

func (s sessions) follows(h *keeper.Handle, err error) (agent.Handle, error) {
	if err != nil {
		return nil, err
	}
	return s.x.follow(h), nil
}

func (s sessions) Restore(ctx context.Context, id session.ID) (agent.Handle, bool, error) {
	h, err := s.Resume(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, nil
	}
	return h, err == nil, err
}

func (s sessions) Fork(ctx context.Context, source session.ID, o agent.ForkOptions) (session.Header, error) {
	return s.k.Fork(ctx, source, store.ForkOptions{At: o.At, Child: o.Child, Kind: o.Kind, Depth: o.Depth})
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxContext bounds a project's instructions, in bytes: more of them would not fit a model anyway.
const maxContext = 256 << 10

// openFile opens a file to read it. It does not wait, as for the writer of a pipe: look at what it is.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
}

// readContext reads a file of project instructions (AGENTS.md).
func readContext(path string) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !fi.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file: %w", path, os.ErrNotExist)
	case fi.Size() > maxContext:
		return nil, fmt.Errorf("%s has %d bytes: at most %d are read", path, fi.Size(), maxContext)
	}
	b := make([]byte, fi.Size())
	n, err := f.ReadAt(b, 0)
	if n == len(b) {
		err = nil
	}
	return b[:n], err
}

// CheckRun looks at what can be wrong with a run before anything is opened: the script is parsed, the route is
// read and the configuration in dir (the working directory when empty) is loaded.
func CheckRun(ctx context.Context, scriptFile, model, configFile, dir string) (o WorkOptions, err error) {
	if o.Config, err = LoadConfig(configFile, dir); err != nil {
		return o, err
	}
	if model != "" {
		if o.Route, err = ParseModel("--model", model); err != nil {
			return o, err
		}
	}
	if scriptFile == "" {
		return o, nil
	}
	if o.Script, err = loadScript(ctx, scriptFile); err != nil {
		if ctx.Err() != nil {
			return o, context.Cause(ctx)
		}
		return o, &UsageError{"--script", strings.TrimPrefix(err.Error(), "script: "), "a script has one reply per line: {\"text\":\"..\"}"}
	}
	return o, nil
}

// loadScript reads a script, or gives up at the end of ctx: the file may be a pipe that nobody writes. Its goroutine
// then stays in the read and ends with the process.
func loadScript(ctx context.Context, path string) (*script.Script, error) {
	type result struct {
		s   *script.Script
		err error
	}
	done := make(chan result, 1)
	go func() {
		s, err := script.Load(path)
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		return r.s, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ParseModel reads PROVIDER/MODEL, which was given with what. Its error is a *UsageError.
func ParseModel(what, s string) (agent.Route, error) {
	r, ok := parseRoute(s)
	if !ok {
		return r, &UsageError{what + " " + s, "it is not of the form PROVIDER/MODEL", "for example " + what + " openai/gpt-5"}
	}
	return r, nil
}

func parseRoute(s string) (agent.Route, bool) {
	provider, model, ok := cutRoute(s)
	return agent.Route{Provider: provider, Model: model}, ok
}

func cutRoute(s string) (provider, model string, ok bool) {
	provider, model, ok = strings.Cut(s, "/")
	return provider, model, ok && provider != "" && model != ""
}
