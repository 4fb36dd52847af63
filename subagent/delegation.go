package subagent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// Options bound delegation. NewID and Now are required; zero limits have safe defaults.
type Options struct {
	NewID func() session.ID // unique, at least 96 random bits
	Now   func() int64      // Unix milliseconds

	MaxDepth  int           // of delegation; 0: 3, negative: nobody gets the tool
	MaxLiving int           // children of one session at the same time; 0: 10
	MaxTotal  int           // children of one session ever; 0: 500
	Limit     time.Duration // how long a child may work when its call does not say; 0: 30 min
	MaxLimit  time.Duration // the most a call may ask for; 0: 4 h

	// Wake starts a turn of a parent that is idle when a background child of it ends; else the parent
	// learns of it with its next turn.
	Wake bool
}

// Delegation is the registry of the children that live in this process. All methods are safe for concurrent use.
//
// One goroutine follows each child to its end (run) and is the only one that settles it; Close waits for all of
// them. mu may be held when an agent is told something; nothing that takes it is called under an agent's lock.
type Delegation struct {
	agents *agent.Agents
	opt    Options
	wg     sync.WaitGroup

	mu     sync.Mutex
	fresh  map[session.ID]Profile // guarded by mu: of children that are being made
	living map[session.ID]*child  // guarded by mu
	shut   map[session.ID]string  // guarded by mu: why a child of an earlier life cannot be looked at; it is tried again
	moved  chan struct{}          // guarded by mu: closed and replaced when a child begins or ends to wait, or is over
}

// child is a child that lives in this process.
type child struct {
	id     session.ID
	start  Start
	parent *agent.Agent
	agent  *agent.Agent
	limit  time.Duration

	done chan struct{} // closed when the child was let go; what follows is fixed then

	waiting bool    // guarded by Delegation.mu: it waits for a person
	taker   *taker  // guarded by Delegation.mu: the call that waits for the answer; nil: nobody does
	end     *ending // guarded by Delegation.mu: how its log ends; nil: it is not over
	settled bool    // guarded by Delegation.mu: taker and end are what they will be
}

// taker is a call that waits for children.
type taker struct {
	of   []*child
	tell func(bool) // that the call waits for a person, or no longer
	told bool       // guarded by Delegation.mu
}

// New makes a registry of agents that can delegate: ao with the tool `task` in the kit of each session that is
// not too deep, and with the hooks that keep children and parents in step.
func New(ao agent.Options, o Options) (*Delegation, error) {
	if o.NewID == nil || o.Now == nil {
		return nil, errors.New("subagent: NewID and Now are required")
	}
	for p, v := range map[*int]int{&o.MaxDepth: 3, &o.MaxLiving: 10, &o.MaxTotal: 500} {
		if *p == 0 {
			*p = v
		}
	}
	if o.Limit == 0 {
		o.Limit = 30 * time.Minute
	}
	if o.MaxLimit == 0 {
		o.MaxLimit = 4 * time.Hour
	}
	d := &Delegation{opt: o, fresh: map[session.ID]Profile{}, shut: map[session.ID]string{}, living: map[session.ID]*child{}, moved: make(chan struct{})}
	equip := ao.Equip
	ao.Equip = func(ctx context.Context, s *session.Session) (agent.Kit, error) {
		var kit agent.Kit
		if equip != nil {
			var err error
			if kit, err = equip(ctx, s); err != nil {
				return kit, err
			}
		}
		return d.equip(s, kit)
	}
	ao.Hooks.TurnStart = append(slices.Clip(ao.Hooks.TurnStart), d.takeUp)
	ao.Hooks.TurnEnd = append(slices.Clip(ao.Hooks.TurnEnd), d.turnEnded)
	ao.Hooks.Disposing = append(slices.Clip(ao.Hooks.Disposing), d.disposing)
	ao.Hooks.Restate = append(slices.Clip(ao.Hooks.Restate), d.Restate)
	var err error
	d.agents, err = agent.New(ao)
	return d, err
}

// Agents is the registry: make and open sessions there.
func (d *Delegation) Agents() *agent.Agents { return d.agents }

// Close disposes of all agents, children included, as Agents.Close does, and waits for what followed them.
func (d *Delegation) Close(ctx context.Context) error {
	err := d.agents.Close(ctx)
	d.wg.Wait()
	return err
}

// equip adds to a kit what delegation means for a session: its own limits if it is a child, and the tool.
func (d *Delegation) equip(s *session.Session, kit agent.Kit) (agent.Kit, error) {
	h := s.Header()
	p, limited, err := d.profile(s)
	if err != nil {
		return kit, err
	}
	if limited {
		if p.Tools != nil {
			kit.Tools = kit.Tools.Filter(func(t tool.Definition) bool { return slices.Contains(p.Tools, t.Name) })
		}
		kit.System = strings.TrimPrefix(kit.System+"\n\n"+p.Persona, "\n\n")
		kit.Limit = func() tool.Policy { return p.Limit }
	}
	if h.Kind == session.KindSubagent {
		kit.Purpose = llm.PurposeSubagent
		if p.Name != "" {
			kit.Purpose += "/" + p.Name
		}
		kit.Limit = func() tool.Policy {
			if parent, ok := d.agents.Get(p.Parent); ok { // it lives here: what it may now counts too
				return tool.Stricter(p.Limit, parent.InForce().Policy)
			}
			return p.Limit
		}
	}
	if p.Tools != nil && !slices.Contains(p.Tools, toolName) {
		return kit, nil
	}
	if h.Depth >= d.opt.MaxDepth {
		return kit, nil
	}
	kit.Tools, err = kit.Tools.With(d.task(s, kit.Tools))
	return kit, err
}

// profile returns what a session may do: from its log, or from whoever is making it.
func (d *Delegation) profile(s *session.Session) (p Profile, limited bool, err error) {
	d.mu.Lock()
	p, limited = d.fresh[s.ID()]
	d.mu.Unlock()
	if limited {
		return p, true, nil
	}
	return ProfileOf(s.Header(), s.Events())
}

// strictest is what a child may do whose log does not say: it was killed before it was told.
var strictest = Profile{Tools: []string{}, Limit: tool.PolicyNeverAsk}

// ProfileOf reads from a log what its session may do. A child's profile stands at the beginning of its own events. A
// fork that a person makes of a child goes on under the child's: what it inherits holds it, as its depth does. limited
// is false for a session that nothing was handed to.
func ProfileOf(h session.Header, log session.Prefix) (p Profile, limited bool, err error) {
	if h.Kind == session.KindSubagent {
		p, limited, err = profileFrom(log, h.SeedLength)
		if err == nil && !limited {
			p, limited = strictest, true
		}
		return p, limited, err
	}
	if h.Depth == 0 {
		return p, false, nil
	}
	for _, seq := range begins(h) {
		if p, limited, err = profileFrom(log, seq); limited || err != nil {
			return p, limited, err
		}
	}
	// Of a copy from another store nothing says whose events begin where.
	for seq := log.Len() - 1; seq >= 0; seq-- {
		ev, err := log.At(seq)
		if err != nil {
			return p, false, err
		}
		if ev.Type == TypeProfile {
			p, err = session.DecodeData[Profile](ev)
			return p, true, err
		}
	}
	return p, false, nil
}

// begins are the seqs at which the own events of a session's ancestors begin, the nearest first.
func begins(h session.Header) []session.Seq {
	out := []session.Seq{0}
	if h.Parent != nil {
		for _, sp := range h.Parent.Spans {
			if sp.End < h.SeedLength {
				out = append(out, sp.End)
			}
		}
	}
	slices.Reverse(out)
	return out
}

// profileFrom looks for the profile at the beginning of a child's own events, before its first turn.
func profileFrom(log session.Prefix, seq session.Seq) (p Profile, ok bool, err error) {
	for ; seq < log.Len(); seq++ {
		ev, err := log.At(seq)
		if err != nil {
			return Profile{}, false, err
		}
		switch ev.Type {
		case TypeProfile:
			p, err = session.DecodeData[Profile](ev)
			return p, err == nil, err
		case session.TypeTurnStart:
			return Profile{}, false, nil
		}
	}
	return Profile{}, false, nil
}

// Brackets returns the brackets of the children that a session has had itself, in the order of their starts. One
// that is open stands for a child of whose end the session was not told.
func Brackets(st session.State) []session.Bracket {
	var all []session.Bracket
	for _, b := range st.Brackets(0) {
		if b.Type == TypeStart && b.Open >= st.Header().OwnFrom() {
			all = append(all, b.Bracket)
		}
	}
	return all
}

// brackets is Brackets, and how many of them are open.
func brackets(st session.State) (all []session.Bracket, open int) {
	all = Brackets(st)
	for _, b := range all {
		if b.Close == session.None {
			open++
		}
	}
	return all, open
}

// get returns the child with an id if it lives here.
func (d *Delegation) get(id session.ID) (*child, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ch, ok := d.living[id]
	return ch, ok
}

// childrenOf returns the children of a session that live here, in the order of their ids' making.
func (d *Delegation) childrenOf(parent session.ID) []*child {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*child
	for _, ch := range d.living {
		if ch.parent.ID() == parent {
			out = append(out, ch)
		}
	}
	slices.SortFunc(out, func(a, b *child) int { return strings.Compare(string(a.id), string(b.id)) })
	return out
}

// Living returns how many children of a session live here.
func (d *Delegation) Living(parent session.ID) int { return len(d.childrenOf(parent)) }

// signal wakes those who wait for a change. Called with mu held.
func (d *Delegation) signal() {
	close(d.moved)
	d.moved = make(chan struct{})
}

// follow begins to follow a child that has work.
func (d *Delegation) follow(ch *child) {
	d.mu.Lock()
	d.living[ch.id] = ch
	d.signal()
	d.mu.Unlock()
	d.wg.Add(1)
	go d.run(ch)
}

// run follows a child until nothing runs in it any more, and settles it.
func (d *Delegation) run(ch *child) {
	defer d.wg.Done()
	var feed sync.WaitGroup
	sub := ch.agent.Subscribe(0)
	d.setWaiting(ch, ch.agent.Status().State == agent.StateWaiting) // what comes after that is in the feed
	feed.Go(func() { d.forward(ch, sub) })
	for over := false; !over; {
		ctx, stop := context.WithTimeout(context.Background(), ch.limit)
		over = ch.agent.WhenIdle(ctx) == nil
		stop()
		if !over && ch.agent.Status().State != agent.StateWaiting { // a wait for a person takes as long as it takes
			ch.agent.Cancel(agent.CauseTimeout)
		}
	}
	sub.Close()
	feed.Wait()
	d.settle(ch)
}

// forward tells the parent's watchers what a person should know of a child, and its call whether the child waits.
func (d *Delegation) forward(ch *child, sub *agent.Subscription) {
	for {
		n, err := sub.Next(context.Background())
		if err != nil {
			return
		}
		switch n.Kind {
		case agent.NoticeStatus:
			d.setWaiting(ch, n.State == agent.StateWaiting)
		case agent.NoticeAsk, agent.NoticeAnswered, agent.NoticeToolStart, agent.NoticeRetry, agent.NoticeNotSaved:
			if n.Child == "" {
				n.Child = ch.id
			}
			ch.parent.Tell(n)
		}
	}
}

func (d *Delegation) setWaiting(ch *child, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ch.waiting == on {
		return
	}
	ch.waiting = on
	d.retell(ch.taker)
	d.signal()
}

// retell tells a call whether all that it still waits for waits for a person. Called with mu held.
func (d *Delegation) retell(t *taker) {
	if t == nil {
		return
	}
	on, some := true, false
	for _, ch := range t.of {
		if ch.taker == t && !ch.settled {
			on, some = on && ch.waiting, true
		}
	}
	if on = on && some; on != t.told {
		t.told = on
		t.tell(on)
	}
}

// settle lets a child go and tells its parent, once: through the call that waits, else by a message.
func (d *Delegation) settle(ch *child) {
	err := ch.agent.Dispose(context.Background()) // disposing notes how the log ends
	d.mu.Lock()
	end := ch.end
	if err != nil && end != nil {
		end.Outcome, end.Detail = OutcomeFailed, "its log could not be saved: "+err.Error()
	}
	ch.settled = true
	told := end == nil || ch.taker != nil
	d.retell(ch.taker)
	d.mu.Unlock()
	if !told {
		d.tell(ch.parent, ch.start, *end, false)
	}
	d.mu.Lock()
	delete(d.living, ch.id)
	d.signal()
	d.mu.Unlock()
	close(ch.done)
}

// disposing is the agents' hook: an agent has stopped, and its session still takes events. Its children stop
// with it; and if it is a child, this is where its log ends.
func (d *Delegation) disposing(_ context.Context, a *agent.Agent) {
	for _, ch := range d.childrenOf(a.ID()) {
		d.stop(ch)
	}
	for _, ch := range d.childrenOf(a.ID()) {
		<-ch.done
	}
	if ch, ok := d.get(a.ID()); ok && ch.agent == a {
		end, over, err := outcome(a.Session())
		d.mu.Lock()
		defer d.mu.Unlock()
		if err == nil && over { // what cannot be read now is asked again by the parent's next life
			ch.end = &end
		}
	}
}

// parked reports whether a child's turn outlives its process: a question is open, or an answer is not carried out. The log
// says so, also in the moment in which a turn of an earlier life is taken up, or another call still runs.
func (ch *child) parked() bool { return ch.agent.Session().State().Parked() }

// stop ends a child's work because its parent goes. One that waits for a person goes on waiting in its log.
func (d *Delegation) stop(ch *child) {
	if !ch.parked() {
		ch.agent.Cancel(agent.CauseParent)
		return
	}
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		_ = ch.agent.Dispose(context.Background()) // run shares this disposal and sees its error
	}()
}

// turnEnded is the agents' hook: who cancels an agent cancels its children.
func (d *Delegation) turnEnded(a *agent.Agent, end session.TurnEnd) {
	if end.Reason.Kind != session.ReasonAborted || end.Reason.Cause == string(agent.CauseShutdown) {
		return
	}
	d.CancelChildren(a.ID())
}

// CancelChildren cancels the children of a session that live here (cause "parent"), and reports how many there
// were. It does not wait.
func (d *Delegation) CancelChildren(parent session.ID) int {
	all := d.childrenOf(parent)
	for _, ch := range all {
		ch.agent.Cancel(agent.CauseParent)
	}
	return len(all)
}

// Question is a call of a child that waits for a person.
type Question struct {
	Child *agent.Agent
	session.Ask
}

// Questions returns what the children of a session, and theirs, ask a person: in the order of their ids, and
// for each in the order of asking.
func (d *Delegation) Questions(parent session.ID) []Question {
	var out []Question
	for _, ch := range d.childrenOf(parent) {
		for _, q := range ch.agent.Session().State().Asks() {
			out = append(out, Question{ch.agent, q})
		}
		out = append(out, d.Questions(ch.id)...)
	}
	return out
}

// WhenQuiet waits until nothing is done for a session before a person says something: its agent and the children
// that live here are idle, or all that is left to do waits for answers.
func (d *Delegation) WhenQuiet(ctx context.Context, a *agent.Agent) error {
	for {
		d.mu.Lock()
		moved := d.moved
		d.mu.Unlock()
		if err := a.WhenQuiet(ctx); err != nil {
			return err
		}
		busy := slices.ContainsFunc(d.childrenOf(a.ID()), func(ch *child) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return !ch.waiting
		})
		if !busy {
			select {
			case <-moved: // something changed while we looked
				continue
			default:
				return nil
			}
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Restate is the agents' hook for what a model must still know after something was taken off the surface: which
// children of the session are not over.
func (d *Delegation) Restate(_ context.Context, s *session.Session) ([]message.Message, error) {
	text, err := d.statement(s)
	if err != nil || text == "" {
		return nil, err
	}
	return []message.Message{{
		Role: message.RoleUser, Content: []message.Block{message.TextBlock(text)},
		Source: message.Source{Kind: message.SourcePlugin, Plugin: Plugin},
	}}, nil
}
