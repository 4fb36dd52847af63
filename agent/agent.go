package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// Agent drives one session. Its methods are safe for concurrent use; what they wait for is said at each.
//
// One goroutine runs while there is work: turns, one after the other. It is started by whoever brings work
// and ends when nothing is owed. Lock order: Agent.mu, the session's lock, Agent.inbox; nothing is called
// back under Agent.mu.
type Agent struct {
	opts *Options
	h    Handle
	s    *session.Session
	kit  Kit
	feed feed

	life context.Context // ends when the agent is disposed
	kill context.CancelCauseFunc
	wg   sync.WaitGroup // the runner

	mu       sync.Mutex
	cfg      Config                             // guarded by mu
	running  bool                               // guarded by mu: the runner exists, or Exclusive holds its place
	idle     chan struct{}                      // guarded by mu: closed while not running
	want     bool                               // guarded by mu: next-step input alone is reason enough for a turn
	closed   bool                               // guarded by mu: no more work is admitted
	notSaved error                              // guarded by mu: stopped until a flush succeeds
	state    State                              // guarded by mu
	moved    chan struct{}                      // guarded by mu: closed and replaced when state changes inside a turn
	lastEnd  *session.TurnEnd                   // guarded by mu
	ctx      context.Context                    // guarded by mu: of the turn that runs or is about to; nil between
	cancel   context.CancelCauseFunc            // guarded by mu: of ctx
	answered chan struct{}                      // guarded by mu: closed and replaced at each answer and policy change
	answers  map[string]session.ApprovalDecided // guarded by mu: given in this life, by ask id
	release  func()                             // takes the agent out of its registry; set before it is published
	disposal *disposal                          // guarded by mu
	parked   bool                               // guarded by mu: the open turn waits since an earlier life; not taken up yet

	inbox     sync.Mutex     // a leaf: it may be taken under the session's lock
	unsettled map[string]int // guarded by inbox: ids of input that is not acknowledged yet

	run      runner   // owned by the goroutine that runs
	entitled bool     // owned by the goroutine that runs: this life has looked whether to ask for a title
	title    *titling // guarded by mu: nil until it is asked for
}

// disposal is one attempt to dispose, shared by all callers that come while it runs.
type disposal struct {
	done chan struct{}
	err  error
}

func newAgent(opts *Options, h Handle, kit Kit, cfg Config) *Agent {
	a := &Agent{
		opts: opts, h: h, s: h.Session(), kit: kit, cfg: cfg, state: StateIdle,
		idle: make(chan struct{}), answered: make(chan struct{}), moved: make(chan struct{}), answers: make(map[string]session.ApprovalDecided),
		unsettled: make(map[string]int),
	}
	close(a.idle)
	a.life, a.kill = context.WithCancelCause(context.Background())
	a.run.a = a
	a.parked = a.s.State().Parked()
	return a
}

// ID is the id of the agent and of its session.
func (a *Agent) ID() session.ID { return a.s.ID() }

// Session returns the live log: facts come from its From cursor. Write to it through the agent only.
func (a *Agent) Session() *session.Session { return a.s }

// Status returns what the agent does now.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := a.s.State()
	out := Status{State: a.state, Asks: st.Asks(), NotSaved: a.notSaved, LastEnd: a.lastEnd,
		Queued: len(st.Queue(session.NextTurn)) + len(st.Queue(session.NextStep))}
	out.Turn, out.Open = st.Turn()
	out.Step, _ = st.Step()
	if !a.running && !a.closed {
		switch {
		case a.notSaved != nil:
			out.State = StateNotSaved
		case a.parked:
			out.State = StateWaiting
		}
	}
	return out
}

// Kick starts what is owed, if anything is: queued input of an earlier life, a turn that was stopped, a
// question that a policy decides. It returns once the log is saved, not when the work is done.
func (a *Agent) Kick(ctx context.Context) error {
	if err := a.admitted(); err != nil {
		return err
	}
	if err := a.save(ctx); err != nil {
		return err
	}
	a.wake()
	return nil
}

// WhenIdle waits until nothing runs. A turn that waits for a person in this life counts as running; one that
// was parked by an earlier life and not taken up yet does not.
func (a *Agent) WhenIdle(ctx context.Context) error {
	for {
		a.mu.Lock()
		idle, running := a.idle, a.running
		a.mu.Unlock()
		if !running {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// WhenQuiet waits until nothing is done here before a person says something: nothing runs, or all that is left
// to do waits for answers.
func (a *Agent) WhenQuiet(ctx context.Context) error {
	for {
		a.mu.Lock()
		quiet := !a.running || a.state == StateWaiting
		idle, moved := a.idle, a.moved
		a.mu.Unlock()
		if quiet {
			return nil
		}
		select {
		case <-idle:
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Cancel ends the turn that runs, or is parked, and reports whether there was one. The first cause wins.
// It does not wait; use WhenIdle. Without a turn nothing happens, now or later.
func (a *Agent) Cancel(cause CauseKind) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return false
	case a.cancel != nil:
		a.cancel(&CancelError{cause})
		return true
	case !a.running && a.parked:
		a.begin()
		a.cancel(&CancelError{cause})
		return true
	}
	return false
}

// Exclusive runs f in the place of a turn: only when nothing runs and no turn is open. Input that is
// accepted meanwhile waits and then runs; what waits since an earlier life goes on waiting. Cancel ends f's context. ErrRunning, session.ErrOpenTurn.
func (a *Agent) Exclusive(ctx context.Context, f func(ctx context.Context) error) error {
	a.mu.Lock()
	switch _, open := a.s.State().Turn(); {
	case a.closed:
		a.mu.Unlock()
		return ErrDisposed
	case a.running:
		a.mu.Unlock()
		return ErrRunning
	case open:
		a.mu.Unlock()
		return fmt.Errorf("agent: the last turn is not finished: %w", session.ErrOpenTurn)
	}
	a.reserve()
	own := a.ctx
	a.mu.Unlock()
	defer a.wg.Done()
	defer func() { // also when f panics, which is the caller's to see
		a.mu.Lock()
		defer a.mu.Unlock()
		a.running = false
		a.dropContext()
		close(a.idle)
		a.state = StateIdle
		if a.want { // somebody brought work meanwhile; what an earlier life left is not begun by this
			a.beginIfOwed()
		}
	}()
	both, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(own, func() { stop(context.Cause(own)) })()
	return f(both)
}

// wake admits next-step input as a reason to run, and starts the runner if something is owed.
func (a *Agent) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.want = true
	a.beginIfOwed()
}

// beginIfOwed is called with mu held.
func (a *Agent) beginIfOwed() {
	if !a.running && !a.closed && a.notSaved == nil && a.owed(a.s.State()) {
		a.begin()
	}
}

// owed reports whether there is work. Called with mu held.
func (a *Agent) owed(st session.State) bool {
	if _, open := st.Turn(); open {
		return true
	}
	turns, _ := a.claimable(st, session.NextTurn, 1)
	steps, _ := a.claimable(st, session.NextStep, 1)
	return len(turns) > 0 || a.want && len(steps) > 0
}

// reserve takes the runner's place. Called with mu held, while not running.
func (a *Agent) reserve() {
	a.running = true
	a.idle = make(chan struct{})
	a.state = StateRunning
	a.wg.Add(1)
	a.freshContext()
}

// begin starts the runner. Called with mu held, while not running and not closed.
func (a *Agent) begin() {
	a.reserve()
	go func() {
		defer a.wg.Done()
		for left := false; ; {
			ctx, ok := a.next(left)
			if !ok {
				return
			}
			a.run.turn(ctx)
			a.mu.Lock()
			a.dropContext()
			left = a.s.State().Parked() // only a shutdown leaves a turn so: it is taken up when somebody asks for that
			a.parked = left
			a.mu.Unlock()
		}
	}()
}

// next gives the runner its next turn's context, or ends it. The decision and the end are one step: work
// that comes later finds no runner and starts one. left: the turn that it had was left waiting.
func (a *Agent) next(left bool) (context.Context, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := a.s.State()
	cancelled := a.ctx != nil && a.ctx.Err() != nil // a parked turn is ended also when saving fails
	if a.closed || left || a.notSaved != nil && !cancelled || !a.owed(st) {
		a.running = false
		a.dropContext()
		a.state = StateIdle
		close(a.idle)
		a.feed.push(Notice{Kind: NoticeStatus, State: a.state})
		return nil, false
	}
	if a.ctx == nil {
		a.freshContext()
	}
	if _, open := st.Turn(); !open {
		a.want = false
	}
	a.state = StateRunning
	a.feed.push(Notice{Kind: NoticeStatus, State: a.state})
	return a.ctx, true
}

func (a *Agent) freshContext() { a.ctx, a.cancel = context.WithCancelCause(a.life) }

// dropContext forgets the turn's context: a cancellation that comes later is none of the next turn's.
func (a *Agent) dropContext() {
	if a.cancel != nil {
		a.cancel(nil)
	}
	a.ctx, a.cancel = nil, nil
}

func (a *Agent) setState(s State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != s && a.running {
		a.state = s
		close(a.moved)
		a.moved = make(chan struct{})
		a.feed.push(Notice{Kind: NoticeStatus, State: s})
	}
}

func (a *Agent) admitted() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return fmt.Errorf("agent %s: %w", a.s.ID(), ErrDisposed)
	}
	return nil
}

// save is the checkpoint: it returns once everything accepted is synced. A failure stops the agent until a
// later call succeeds.
func (a *Agent) save(ctx context.Context) error {
	err := a.h.Flush(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.notSaved
	if err == nil {
		a.notSaved = nil
		if was != nil {
			a.feed.push(Notice{Kind: NoticeSaved})
		}
		return nil
	}
	failed := &NotSavedError{ID: a.s.ID(), Err: err}
	a.notSaved = failed
	a.feed.push(Notice{Kind: NoticeNotSaved, Err: failed})
	return failed
}

// Dispose stops admission, cancels the turn (CauseShutdown; a turn that waits for a person stays parked),
// waits for what runs, saves and lets the session go; the id is free when it returns nil. All callers of one
// attempt share its outcome. After an error (not saved) everything is still held and Dispose may be called
// again. The end of ctx ends the wait, not the disposal.
func (a *Agent) Dispose(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	d := a.disposal
	if d == nil {
		d = &disposal{done: make(chan struct{})}
		a.disposal = d
		go a.dispose(context.WithoutCancel(ctx), d)
	}
	a.mu.Unlock()
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dispose owns one attempt. Its goroutine ends with the attempt: the callers of Dispose wait for it.
func (a *Agent) dispose(ctx context.Context, d *disposal) {
	a.kill(&CancelError{CauseShutdown})
	a.wg.Wait()
	a.untitle(ctx)
	for _, hook := range a.opts.Hooks.Disposing {
		_ = protect("disposing hook", func() error { hook(ctx, a); return nil }) // it must not keep the session from being saved
	}
	gone := true
	if d.err = a.h.Dispose(ctx); d.err != nil {
		// Either it is held still, because it cannot be saved, or it is gone and the error says something else
		// (another writer has it): disposing again tells.
		gone = a.h.Dispose(ctx) == nil
		if gone && a.h.Saved() == nil {
			d.err = nil
		}
	}
	if gone {
		if a.kit.Close != nil {
			d.err = errors.Join(d.err, protect("closing the tools", a.kit.Close))
		}
		a.feed.push(Notice{Kind: NoticeStatus, State: StateDisposed})
		a.feed.close()
		a.mu.Lock()
		a.state = StateDisposed
		a.mu.Unlock()
		a.release()
	} else {
		a.mu.Lock()
		a.disposal = nil // the next caller tries again
		a.mu.Unlock()
	}
	close(d.done)
}

// policy returns the approval policy in force: what this life was told, what the session recorded, the default;
// never a looser one than the kit's limit.
func (a *Agent) policy(st session.State) tool.Policy {
	a.mu.Lock()
	told := a.cfg.Policy
	a.mu.Unlock()
	policy := a.opts.Policy
	for _, p := range []string{string(told), st.ApprovalPolicy(), st.Settings().Approval} {
		if got, err := tool.ParsePolicy(p); err == nil {
			policy = got
			break
		}
	}
	if a.kit.Limit != nil {
		policy = tool.Stricter(policy, a.kit.Limit())
	}
	return policy
}

// InForce returns what the agent works under now: model, approval policy and rules.
func (a *Agent) InForce() Config {
	st := a.s.State()
	return Config{Route: a.route(st), Policy: a.policy(st), Rules: a.rules(st)}
}

// Flush returns when everything accepted before is saved; else the agent is stopped as after any failed save.
func (a *Agent) Flush(ctx context.Context) error { return a.save(ctx) }

// Tell puts a notice into the agent's feed: of what others do on its behalf.
func (a *Agent) Tell(n Notice) { a.feed.push(n) }

// route returns the model in force, in the same order.
func (a *Agent) route(st session.State) Route {
	a.mu.Lock()
	r := a.cfg.Route
	a.mu.Unlock()
	set := st.Settings()
	def(&r, Route{set.Provider, set.Model})
	def(&r, a.opts.Default)
	return r
}
