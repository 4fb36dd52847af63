package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/strandline-dev/strandline/session"
)

// Agents is the registry of the agents that live in this process. All methods are safe for concurrent use.
//
// An agent is published in this order: the session is reserved and announced (Sessions), the agent is
// reserved, announced (Hooks.Announce), told to start (Hooks.SessionStart) and returned. A failure at any
// point unwinds in reverse and frees the id; nothing was published then.
type Agents struct {
	opts Options

	life context.Context // of shared resumes; ends with Close
	kill context.CancelCauseFunc
	wg   sync.WaitGroup // creations and shared resumes under way

	mu      sync.Mutex
	closed  bool                    // guarded by mu
	agents  map[session.ID]*entry   // guarded by mu
	joining map[session.ID]*opening // guarded by mu: resumes that callers of For share
}

// entry is the place of one agent. agent is nil until it is published; gone is closed when the place is free.
type entry struct {
	agent *Agent
	gone  chan struct{}
}

// opening is one shared resume.
type opening struct {
	done    chan struct{}
	cancel  context.CancelCauseFunc
	waiters int // guarded by Agents.mu; when the last one leaves, the resume is cancelled
	agent   *Agent
	err     error
}

// New returns an empty registry. It fails when a required option is missing.
func New(opts Options) (*Agents, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Agents{opts: opts, agents: make(map[session.ID]*entry), joining: make(map[session.ID]*opening)}
	r.life, r.kill = context.WithCancelCause(context.Background())
	return r, nil
}

// Spec says what to create.
type Spec struct {
	Header session.Header
	Seed   session.Seed // mostly empty
	Config Config
}

// Create makes a session and its agent. It never resumes: an id that is in use or stored is an error of
// Sessions. Nothing is stored before the first input.
func (r *Agents) Create(ctx context.Context, spec Spec) (*Agent, error) {
	return r.publish(ctx, spec.Config, SourceStartup, func(ctx context.Context) (Handle, error) {
		return r.opts.Sessions.Create(ctx, spec.Header, spec.Seed)
	})
}

// Resume opens a stored session and makes its agent. It never creates. An id that lives here already is
// busy, as it is for every other process.
func (r *Agents) Resume(ctx context.Context, id session.ID, cfg Config) (*Agent, error) {
	return r.publish(ctx, cfg, SourceResume, func(ctx context.Context) (Handle, error) {
		return r.opts.Sessions.Resume(ctx, id)
	})
}

// Start is the configured start: it resumes the session of spec.Header.ID, and creates it only if it is not
// stored. Every other failure to open stands. created tells which it was.
func (r *Agents) Start(ctx context.Context, spec Spec) (a *Agent, created bool, err error) {
	errAbsent := errors.New("not stored")
	a, err = r.publish(ctx, spec.Config, SourceResume, func(ctx context.Context) (Handle, error) {
		h, found, err := r.opts.Sessions.Restore(ctx, spec.Header.ID)
		if err == nil && !found {
			err = errAbsent
		}
		return h, err
	})
	if err != errAbsent {
		return a, false, err
	}
	a, err = r.Create(ctx, spec)
	return a, err == nil, err
}

// Fork stores a fork of a session, live or not, and makes the child's agent.
func (r *Agents) Fork(ctx context.Context, source session.ID, opt ForkOptions, cfg Config) (*Agent, error) {
	h, err := r.opts.Sessions.Fork(ctx, source, opt)
	if err != nil {
		return nil, err
	}
	a, err := r.publish(ctx, cfg, SourceStartup, func(ctx context.Context) (Handle, error) {
		return r.opts.Sessions.Resume(ctx, h.ID)
	})
	if err != nil {
		return nil, fmt.Errorf("the fork is stored as %s but cannot be opened: %w", h.ID, err)
	}
	return a, nil
}

// Get returns the agent of id if it lives here.
func (r *Agents) Get(id session.ID) (*Agent, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.agents[id]; e != nil && e.agent != nil {
		return e.agent, true
	}
	return nil, false
}

// All returns the agents that live here, in no order.
func (r *Agents) All() []*Agent {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*Agent, 0, len(r.agents))
	for _, e := range r.agents {
		if e.agent != nil {
			out = append(out, e.agent)
		}
	}
	return out
}

// For returns the live agent of id, else resumes it: once, however many callers ask at the same time. cfg
// counts only for the caller that begins the resume. A caller whose ctx ends leaves; the resume is cancelled
// when the last one has left. An agent that is being disposed is waited for.
func (r *Agents) For(ctx context.Context, id session.ID, cfg Config) (*Agent, error) {
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, fmt.Errorf("agent: the registry is closed: %w", ErrDisposed)
		}
		e, o := r.agents[id], r.joining[id]
		switch {
		case o != nil: // first: the agent is in the registry before all of it is published
		case e != nil && e.agent != nil && e.agent.admitted() == nil:
			r.mu.Unlock()
			return e.agent, nil
		case e != nil:
			r.mu.Unlock()
			if err := wait(ctx, e.gone); err != nil {
				return nil, err
			}
			continue
		default:
			o = r.share(id, cfg)
		}
		o.waiters++
		r.mu.Unlock()
		err := wait(ctx, o.done)
		r.mu.Lock()
		o.waiters--
		if o.waiters == 0 && err != nil {
			o.cancel(err)
		}
		r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return o.agent, o.err
	}
}

// share begins a shared resume. Called with mu held.
func (r *Agents) share(id session.ID, cfg Config) *opening {
	ctx, cancel := context.WithCancelCause(r.life)
	o := &opening{done: make(chan struct{}), cancel: cancel}
	r.joining[id] = o
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		o.agent, o.err = r.Resume(ctx, id, cfg)
		cancel(nil)
		r.mu.Lock()
		delete(r.joining, id)
		r.mu.Unlock()
		close(o.done)
	}()
	return o
}

func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// publish makes an agent over the session that open gives.
func (r *Agents) publish(ctx context.Context, cfg Config, source StartSource, open func(context.Context) (Handle, error)) (_ *Agent, err error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.wg.Done()
	h, err := open(ctx)
	if err != nil {
		return nil, err
	}
	id := h.Session().ID()
	var undo []func() error // in reverse
	defer func() {
		if err == nil {
			return
		}
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()
	undo = append(undo, func() error { return h.Dispose(context.WithoutCancel(ctx)) })
	e, err := r.reserve(ctx, id)
	if err != nil {
		return nil, err
	}
	undo = append([]func() error{func() error { r.free(id, e); return nil }}, undo...) // freed last, when the session is
	var kit Kit
	if err := protect("equipping the agent", func() (err error) { kit, err = r.opts.Equip(ctx, h.Session()); return err }); err != nil {
		return nil, err
	}
	a := newAgent(&r.opts, h, kit, cfg)
	a.release = func() {
		r.free(id, e)
		for _, hook := range r.opts.Hooks.Disposed {
			_ = protect("disposed hook", func() error { hook(id); return nil }) // nobody is left to tell
		}
	}
	// From here on the agent unwinds itself: a hook may have brought work already.
	undo = []func() error{func() error {
		err := a.Dispose(context.WithoutCancel(ctx))
		if err != nil { // still held: Close finds it and tries again
			r.mu.Lock()
			e.agent = a
			r.mu.Unlock()
		}
		return err
	}}
	for _, hook := range r.opts.Hooks.Announce {
		if err := protect("announce hook", func() error { return hook(ctx, a) }); err != nil {
			return nil, err
		}
	}
	for _, hook := range r.opts.Hooks.SessionStart {
		if err := protect("session-start hook", func() error { return hook(ctx, a, source) }); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil { // a creation that is cancelled publishes nothing
		return nil, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("agent: the registry is closed: %w", ErrDisposed)
	}
	e.agent = a
	return a, nil
}

// enter admits a creation; Close waits for those that are under way.
func (r *Agents) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("agent: the registry is closed: %w", ErrDisposed)
	}
	r.wg.Add(1)
	return nil
}

// reserve takes the agent's place. The session is held exclusively, so that another agent can only be one
// that has let its session go and is about to leave: it is waited for.
func (r *Agents) reserve(ctx context.Context, id session.ID) (*entry, error) {
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, fmt.Errorf("agent: the registry is closed: %w", ErrDisposed)
		}
		old := r.agents[id]
		if old == nil {
			e := &entry{gone: make(chan struct{})}
			r.agents[id] = e
			r.mu.Unlock()
			return e, nil
		}
		agent := old.agent
		r.mu.Unlock()
		if agent == nil || agent.admitted() == nil {
			return nil, fmt.Errorf("agent %s: %w", id, ErrTaken)
		}
		if err := wait(ctx, old.gone); err != nil {
			return nil, err
		}
	}
}

func (r *Agents) free(id session.ID, e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agents[id] == e {
		delete(r.agents, id)
		close(e.gone)
	}
}

// Close disposes of all agents, several at a time, and returns the joined errors; after an error (not saved)
// it may be called again. Nothing can be created or resumed afterwards.
func (r *Agents) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.kill(&CancelError{CauseShutdown})
	r.wg.Wait()
	all := r.All()
	errs := make([]error, len(all))
	slots := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for i, a := range all {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			errs[i] = a.Dispose(ctx)
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}
