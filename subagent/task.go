package subagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

const toolName = "task"

// args are the arguments of the tool.
type args struct {
	Action         string       `json:"action"`
	Prompt         string       `json:"prompt"`
	Description    string       `json:"description"`
	Mode           Mode         `json:"mode"`
	Background     bool         `json:"background"`
	Name           string       `json:"name"`
	Tools          []string     `json:"tools"`
	Persona        string       `json:"persona"`
	TimeoutSeconds int          `json:"timeoutSeconds"`
	IDs            []session.ID `json:"ids"`
}

// Definition returns the tool as the model is told of it; its body needs an agent.
func Definition() tool.Definition {
	return tool.Definition{
		Name: toolName, Description: description, Parameters: jsontext.Value(parameters),
		Aliases:  map[string]string{"task": "prompt", "instructions": "prompt", "timeout_seconds": "timeoutSeconds", "run_in_background": "background"},
		Parallel: true,
		ReadOnly: true, // it changes nothing itself: what a child does is decided call by call, under limits that are not looser
		Subject: func(raw jsontext.Value) string {
			var a args
			_ = json.Unmarshal(raw, &a) // the arguments have passed the schema
			switch {
			case a.Action != "" && a.Action != "start":
				return a.Action
			case a.Description != "":
				return a.Description
			}
			return clip(a.Prompt, 100)
		},
		Run: func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{}, errors.New("no agent is here to hand work on")
		},
	}
}

// task returns the tool of a session whose other tools are have.
func (d *Delegation) task(s *session.Session, have tool.Set) tool.Definition {
	def := Definition()
	def.Run = func(ctx context.Context, c tool.Call) (tool.Result, error) {
		var a args
		if err := c.Decode(&a); err != nil {
			return tool.Result{}, err
		}
		p, ok := d.agents.Get(s.ID())
		if !ok {
			return tool.Result{}, errors.New("this session has no agent any more")
		}
		switch a.Action {
		case "wait":
			return d.wait(ctx, p, c, a)
		case "list":
			text, err := d.list(p.Session())
			return tool.Text(text), err
		case "cancel":
			return d.cancel(ctx, p, c, a)
		}
		return d.start(ctx, p, c, a, have)
	}
	return def
}

// start makes a child and gives it its work.
func (d *Delegation) start(ctx context.Context, p *agent.Agent, c tool.Call, a args, have tool.Set) (tool.Result, error) {
	if strings.TrimSpace(a.Prompt) == "" {
		return tool.Result{}, tool.Errorf(tool.CodeInvalidArgs, "start needs a prompt; nothing was started")
	}
	for _, name := range a.Tools {
		if _, ok := have.Lookup(name); !ok && name != toolName {
			return tool.Result{}, tool.Errorf(tool.CodeInvalidArgs, "you have no tool %q to give; nothing was started", name)
		}
	}
	ch, profile, err := d.record(p, c, a, have)
	if err != nil {
		return tool.Result{}, err
	}
	if err := p.Flush(ctx); err == nil {
		err = d.make(ctx, ch, profile, a)
		if err != nil {
			return d.stillborn(ch, err), nil
		}
	} else {
		return d.stillborn(ch, err), nil
	}
	if a.Background {
		d.follow(ch)
		r := tool.Text(fmt.Sprintf("Subagent %s works in the background. You get its answer as a message when it is done.", ch.id))
		r.Meta = meta(ch.id, "")
		return r, nil
	}
	t := &taker{of: []*child{ch}, tell: c.Waiting}
	ch.taker = t
	d.follow(ch)
	return d.take(ctx, t, 0), nil
}

// record logs that a child is about to be made, if the limits allow it.
func (d *Delegation) record(p *agent.Agent, c tool.Call, a args, have tool.Set) (*child, Profile, error) {
	s := p.Session()
	h := s.Header()
	ch := &child{id: d.opt.NewID(), parent: p, limit: d.opt.Limit, done: make(chan struct{})}
	if a.TimeoutSeconds > 0 {
		ch.limit = d.atMost(int64(a.TimeoutSeconds), time.Second)
	}
	ch.start = Start{
		ChildID: ch.id, Mode: ModeSpawn, Name: a.Name, Description: strings.ToValidUTF8(clip(a.Description, 200), "\uFFFD"), Background: a.Background,
		CallID: c.ID, Depth: h.Depth + 1, LimitMs: ch.limit.Milliseconds(),
	}
	if a.Mode == ModeFork {
		cut, err := forkCut(s)
		if err != nil {
			return nil, Profile{}, err
		}
		ch.start.Mode = ModeFork
		if cut != session.None {
			n := int64(cut)
			ch.start.Cut = &n
		}
	}
	profile := Profile{Parent: s.ID(), Name: a.Name, Persona: a.Persona, Limit: p.InForce().Policy, Tools: a.Tools}
	if a.Tools == nil { // its own filter is its children's too
		mine, _, err := d.profile(s)
		if err != nil {
			return nil, profile, err
		}
		profile.Tools = mine.Tools
	}
	_, err := s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		all, open := brackets(st)
		switch {
		case ch.start.Depth > d.opt.MaxDepth:
			return nil, tool.Errorf(CodeLimit, "a subagent of depth %d cannot have subagents: %d is the most; do the work yourself", h.Depth, d.opt.MaxDepth)
		case open >= d.opt.MaxLiving:
			return nil, tool.Errorf(CodeLimit, "%d subagents are at work already, and that is the most; wait for one, or do the work yourself", open)
		case len(all) >= d.opt.MaxTotal:
			return nil, tool.Errorf(CodeLimit, "this session has had %d subagents, and that is the most; do the work yourself", len(all))
		}
		ch.start.Turn, _ = st.Turn()
		ch.start.Step, _ = st.Step()
		return []session.Draft{{Type: TypeStart, Data: ch.start}}, nil
	})
	return ch, profile, err
}

// atMost is n units, which a model or a log may have made up, and no more than MaxLimit.
func (d *Delegation) atMost(n int64, unit time.Duration) time.Duration {
	if n > int64(d.opt.MaxLimit/unit) {
		return d.opt.MaxLimit
	}
	return time.Duration(n) * unit
}

// forkCut returns the seq at which a fork of a session is cut: its last turn/end, None if it has none. If the
// surface was changed since (a turn was undone, the view compacted), all that stands before the open turn belongs to
// it: a child never sees what was taken from its parent's model.
func forkCut(s *session.Session) (session.Seq, error) {
	st, log := s.State(), s.Events()
	before := st.Next()
	if start := st.TurnStartSeq(); start != session.None {
		before = start
	}
	changed := false
	for q := before - 1; q >= 0; q-- {
		ev, err := log.At(q)
		switch {
		case err != nil:
			return session.None, err
		case ev.Type == session.TypeTurnEnd && changed:
			return before - 1, nil
		case ev.Type == session.TypeTurnEnd:
			return q, nil
		}
		changed = changed || ev.Op != (session.SurfaceOp{})
	}
	return session.None, nil
}

// make makes the child's session and agent, writes down what it may do, and gives it its work.
func (d *Delegation) make(ctx context.Context, ch *child, profile Profile, a args) error {
	d.mu.Lock()
	d.fresh[ch.id] = profile
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.fresh, ch.id)
	}()
	s := ch.parent.Session()
	cfg := ch.parent.InForce()
	var err error
	if ch.start.Cut != nil {
		at := session.Seq(*ch.start.Cut)
		ch.agent, err = d.agents.Fork(ctx, s.ID(), agent.ForkOptions{At: &at, Child: ch.id, Kind: session.KindSubagent, Depth: ch.start.Depth}, cfg)
	} else {
		h := s.Header()
		cwd := s.State().Settings().Cwd
		if cwd == "" {
			cwd = h.Cwd
		}
		now := d.opt.Now()
		ch.agent, err = d.agents.Create(ctx, agent.Spec{Config: cfg, Header: session.Header{
			Format: session.Format, ID: ch.id, CreatedAt: now, Kind: session.KindSubagent, Cwd: cwd, Project: h.Project, ProjectID: h.ProjectID,
			Depth: ch.start.Depth, Parent: &session.Parent{ID: s.ID(), Seq: session.None, Activity: now},
		}})
	}
	if err != nil {
		return err
	}
	drafts := []session.Draft{{Type: TypeProfile, Data: profile}}
	if ch.start.Description != "" {
		drafts = append(drafts, session.Draft{Type: session.TypeTitle, Data: session.Title{Title: ch.start.Description, Source: "fallback"}})
	}
	if _, err = ch.agent.Session().AppendAll(nil, drafts...); err == nil {
		_, err = ch.agent.Followup(ctx, message.Message{
			Role: message.RoleUser, Content: []message.Block{message.TextBlock(preface(ch.start) + strings.ToValidUTF8(a.Prompt, "\uFFFD"))},
			Source: message.Source{Kind: message.SourcePlugin, Plugin: Plugin},
		})
	}
	if err != nil {
		return errors.Join(err, ch.agent.Dispose(context.WithoutCancel(ctx)))
	}
	return nil
}

// preface says in the child's first message what it is. It stands there and not in the system prompt, so that a
// provider's cache of a fork's beginning holds.
func preface(s Start) string {
	if s.Cut != nil {
		return "You are now a subagent: what is above is the conversation of the agent that asks you, as far as it was when its present turn began. " +
			"Do only the following. Nobody reads along: your last message is your answer to that agent.\n\n"
	}
	return "You are a subagent: another agent asks you for the following. Nobody reads along: your last message is your answer to it.\n\n"
}

// stillborn is the result of a call whose child could not be made. Its end is logged with it.
func (d *Delegation) stillborn(ch *child, err error) tool.Result {
	e := ending{End: End{ChildID: ch.id, Outcome: OutcomeFailed, Detail: validText("it could not be started: " + err.Error())}}
	return result(CodeNotStarted, fmt.Sprintf("The subagent could not be started: %v", err), told{ch.start, e})
}

// take waits until the children of t are over, or ctx is, or patience (0: none) is, and returns the answers.
func (d *Delegation) take(ctx context.Context, t *taker, patience time.Duration) tool.Result {
	waited := ctx
	if patience > 0 {
		var stop context.CancelFunc
		waited, stop = context.WithTimeout(ctx, patience)
		defer stop()
	}
	for _, ch := range t.of {
		select {
		case <-ch.done:
			continue
		case <-waited.Done():
		}
		if ctx.Err() != nil { // the turn is cancelled, or the agent goes
			d.release(ctx, t)
			for _, ch := range t.of {
				if d.takes(ch, t) {
					<-ch.done
				}
			}
		} else {
			d.leave(t, func(*child) bool { return true })
		}
		break
	}
	var over []told
	var open []*child
	for _, ch := range t.of {
		d.mu.Lock()
		if ch.taker == t && ch.settled && ch.end != nil {
			over = append(over, told{ch.start, *ch.end})
		} else {
			open = append(open, ch)
		}
		d.mu.Unlock()
	}
	d.mu.Lock()
	if t.told {
		t.told = false
		t.tell(false)
	}
	d.mu.Unlock()
	return answers(over, open, len(t.of) == 1)
}

// release ends the work that a cancelled call waits for. A child that waits for a person when its parent's process
// ends is left to that: the parent is told by a message, one day.
func (d *Delegation) release(ctx context.Context, t *taker) {
	var c *agent.CancelError
	if errors.As(context.Cause(ctx), &c) && c.Kind == agent.CauseShutdown {
		d.leave(t, (*child).parked)
	}
	for _, ch := range t.of {
		if d.takes(ch, t) {
			ch.agent.Cancel(agent.CauseParent)
		}
	}
}

// takes reports whether t still takes the answer of ch.
func (d *Delegation) takes(ch *child, t *taker) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return ch.taker == t
}

// leave lets t wait no longer for those of its children, not settled yet, for which which is true.
func (d *Delegation) leave(t *taker, which func(*child) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ch := range t.of {
		if ch.taker == t && !ch.settled && which(ch) {
			ch.taker = nil
		}
	}
}

// wait takes the answers of children that work in the background.
func (d *Delegation) wait(ctx context.Context, p *agent.Agent, c tool.Call, a args) (tool.Result, error) {
	all, err := d.named(p, a.IDs)
	if err != nil {
		return tool.Result{}, err
	}
	t := &taker{tell: c.Waiting}
	d.mu.Lock()
	for _, ch := range all {
		if ch.taker == nil && !ch.settled {
			ch.taker = t
			t.of = append(t.of, ch)
		}
	}
	d.retell(t)
	d.mu.Unlock()
	if len(t.of) == 0 {
		return tool.Text("No subagent is at work for which nobody waits. The answers of those that are done came as messages or results."), nil
	}
	return d.take(ctx, t, d.atMost(int64(a.TimeoutSeconds), time.Second)), nil
}

// cancel ends children. Each tells how it ended as it would have otherwise.
func (d *Delegation) cancel(ctx context.Context, p *agent.Agent, c tool.Call, a args) (tool.Result, error) {
	all, err := d.named(p, a.IDs)
	if err != nil {
		return tool.Result{}, err
	}
	for _, ch := range all {
		ch.agent.Cancel(agent.CauseParent)
	}
	if len(all) == 0 {
		return tool.Text("No subagent is at work."), nil
	}
	return d.wait(ctx, p, c, args{IDs: a.IDs})
}

// named returns the living children with ids, all of them if there are none.
func (d *Delegation) named(p *agent.Agent, ids []session.ID) ([]*child, error) {
	all := d.childrenOf(p.ID())
	if len(ids) == 0 {
		return all, nil
	}
	had := Brackets(p.Session().State())
	var out []*child
	for _, id := range ids {
		i := slices.IndexFunc(all, func(ch *child) bool { return ch.id == id })
		known := slices.ContainsFunc(had, func(b session.Bracket) bool { return b.Key == key(id) })
		switch {
		case i >= 0:
			out = append(out, all[i])
		case !known:
			return nil, tool.Errorf(CodeUnknown, "%q is no subagent of this session; action list names them", id)
		}
	}
	return out, nil
}
