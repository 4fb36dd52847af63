package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// call is one call of the step on its way to a result. It belongs to the goroutine that works on it.
type call struct {
	assistant session.Seq
	index     int
	block     message.Block // the tool-call
	prep      tool.Prepared
	askID     string   // "": nobody was asked
	mark      gateMark // under which the question was put
	decided   bool     // an earlier life has the answer
	settled   bool     // has its result
}

// runCalls brings the calls of a step to their results. First all of them are prepared and decided, so that
// a person sees all questions at once; what may not run has its result then. The others run in the order of
// asking: neighbours that are safe in parallel overlap, every other one is a barrier.
//
// When the turn is cancelled or saving fails, what runs is waited for, and what was not started is left to
// turn.end.
func (t *turn) runCalls(calls []*call) error {
	asked := false
	gate := t.a.gate()
	for _, c := range calls {
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		ask, err := t.settleOrAsk(gate, c)
		if err != nil {
			return err
		}
		asked = asked || ask
	}
	if asked {
		// A question is durable before a person sees it.
		if err := t.save(); err != nil {
			return err
		}
		for _, c := range calls {
			if c.askID != "" && !c.settled && !c.decided {
				t.a.feed.push(Notice{Kind: NoticeAsk, Turn: t.n, Step: t.step, AskID: c.askID, CallID: c.block.ID,
					Name: c.block.Name, Text: c.prep.Subject()})
			}
		}
	}
	p := &pool{turn: t, slots: make(chan struct{}, t.a.opts.Parallel)}
	for i := 0; i < len(calls); {
		j := i + 1
		for parallel(calls[i]) && j < len(calls) && parallel(calls[j]) {
			j++
		}
		if err := p.run(calls[i:j]); err != nil {
			return err
		}
		i = j
	}
	return nil
}

func parallel(c *call) bool { return c.settled || c.prep.Definition().Parallel }

func (a *Agent) gate() tool.Gate {
	st := a.s.State()
	return tool.Gate{Hooks: a.kit.Hooks, Guards: a.kit.Guards, Rules: slices.Concat(a.kit.Rules, a.rules(st)), Policy: a.policy(st)}
}

// gateMark tells whether policy or rules changed since a question was put. Rules are only ever added.
type gateMark struct {
	policy tool.Policy
	rules  int
}

func markOf(g tool.Gate) gateMark { return gateMark{g.Policy, len(g.Rules)} }

// settleOrAsk decides about a call: it gets the result of one that may not run, or a question, or nothing
// because it may run.
func (t *turn) settleOrAsk(gate tool.Gate, c *call) (asked bool, err error) {
	prep, bad := t.a.kit.Tools.Prepare(c.block.ID, c.block.Name, c.block.Arguments)
	var verdict tool.Verdict
	if bad == nil {
		c.prep, c.mark = prep, markOf(gate)
		if c.decided {
			// The answer stands, whatever the policy is now; only what a hook, a guard or a rule denies is denied.
			gate.Policy = tool.PolicyAsk
			if verdict = gate.Before(t.ctx, prep); verdict.Action != tool.Deny {
				return false, nil
			}
			return false, t.result(c, session.None, tool.Denied(prep.Name(), verdict))
		}
		verdict = gate.Before(t.ctx, prep)
		if verdict.Action == tool.Ask && c.askID != "" {
			return true, nil // asked by an earlier life, asked again
		}
	}
	if c.askID != "" && !c.decided { // the question is moot: the policy decides, or there is no such tool any more
		d := session.ApprovalDecided{Verdict: session.VerdictAllow, By: session.ByPolicy, Reason: verdict.Reason}
		if bad != nil || verdict.Action == tool.Deny {
			d.Verdict = session.VerdictDeny
		}
		if err := t.a.decide(c.askID, d); err != nil && !errors.Is(err, ErrAnswered) {
			return false, err
		}
		if bad == nil && verdict.Action == tool.Allow {
			return false, nil // the answer is in Agent.answers, as a person's would be
		}
	}
	switch {
	case bad != nil:
		return false, t.result(c, session.None, *bad)
	case verdict.Action == tool.Deny:
		return false, t.result(c, session.None, tool.Denied(prep.Name(), verdict))
	case verdict.Action != tool.Ask:
		return false, nil
	}
	c.askID = "ask-" + t.a.opts.NewID()
	_, err = t.a.s.Append(session.Draft{Type: session.TypeApprovalAsked, Data: session.ApprovalAsked{
		AskID: c.askID, Turn: t.n, Step: t.step, CallID: c.block.ID, Name: c.block.Name,
		Subject: validText(prep.Subject()), Reason: validText(verdict.Reason), Assistant: &c.assistant, Index: c.index,
	}})
	return true, err
}

// resumeCalls takes up the calls of a parked step: those that wait for a person, or were answered before
// anybody was here to carry the answer out. The others have their results from the closers.
func (t *turn) resumeCalls() error {
	st := t.a.s.State()
	var calls []*call
	for _, c := range st.OpenCalls() {
		if !c.Pending || c.Started != session.None {
			continue
		}
		ev, err := t.a.s.At(c.Assistant)
		if err != nil {
			return err
		}
		asked, err := session.DecodeData[session.AssistantMessage](ev)
		if err != nil {
			return err
		}
		q, _ := st.AskAbout(c)
		if q.Verdict != "" {
			t.a.mu.Lock()
			t.a.answers[q.AskID] = session.ApprovalDecided{AskID: q.AskID, CallID: q.CallID, Verdict: q.Verdict, By: q.By, Reason: q.Why}
			t.a.mu.Unlock()
		}
		calls = append(calls, &call{assistant: c.Assistant, index: c.Index, block: asked.Message.Calls()[c.Index],
			askID: q.AskID, decided: q.Verdict != ""})
	}
	return t.runCalls(calls)
}

// pool runs calls of one step.
type pool struct {
	*turn
	slots chan struct{}

	mu     sync.Mutex
	err    error // guarded by mu: the first failure of the log; nothing is started after it
	active int   // guarded by mu: calls that are worked on and do not wait for a person
	asking int   // guarded by mu: calls that do
}

// count notes that a call begins or stops to be worked on, or to wait for a person. The agent waits for a person
// when nothing else is done.
func (p *pool) count(active, asking int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active += active
	p.asking += asking
	if p.active == 0 && p.asking > 0 {
		p.a.setState(StateWaiting)
	} else {
		p.a.setState(StateRunning)
	}
}

func (p *pool) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *pool) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// run runs a group of calls that may overlap and returns when all of them are done.
func (p *pool) run(group []*call) error {
	var wg sync.WaitGroup
	for _, c := range group {
		if c.settled {
			continue
		}
		wg.Add(1)
		p.count(1, 0)
		go func() {
			defer wg.Done()
			defer p.count(-1, 0)
			defer func() {
				if v := recover(); v != nil {
					p.fail(fmt.Errorf("the loop crashed at the call %s: %v", c.block.ID, v))
				}
			}()
			if err := p.one(c); err != nil {
				p.fail(err)
			}
		}()
	}
	wg.Wait()
	if err := p.failed(); err != nil {
		return err
	}
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return nil
}

// one brings one call from its permission to its result. Without a result it is left to turn.end.
func (p *pool) one(c *call) error {
	if c.askID != "" {
		allowed, err := p.await(c)
		if err != nil || !allowed {
			return err
		}
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	if err := p.failed(); err != nil {
		return err
	}
	a := p.a
	if v := p.a.gate().Guard(p.ctx, c.prep); v.Action == tool.Deny {
		return p.result(c, session.None, tool.Denied(c.block.Name, v))
	}
	started, err := a.s.Append(session.Draft{Type: session.TypeToolCall, Data: session.ToolCall{
		Turn: p.n, Step: p.step, CallID: c.block.ID, Name: c.block.Name, Arguments: c.block.Arguments,
	}})
	if err != nil {
		return err
	}
	if err := p.save(); err != nil {
		code, text := tool.CodeAborted, "The call was cancelled before it started; nothing was run."
		if errors.Is(err, ErrNotSaved) {
			code, text = CodeNotSaved, "The session's log could not be saved, so the call was not run."
		}
		return errors.Join(err, p.result(c, started.Seq, tool.Failure(code, "%s", text)))
	}
	a.feed.push(Notice{Kind: NoticeToolStart, Turn: p.n, Step: p.step, CallID: c.block.ID, Name: c.block.Name, Text: c.prep.Subject()})
	r := c.prep.Run(p.ctx, tool.RunOptions{
		Key: a.s.State().IdempotencyKey(c.assistant, c.index),
		Progress: func(line string) {
			a.feed.push(Notice{Kind: NoticeProgress, Turn: p.n, Step: p.step, CallID: c.block.ID, Name: c.block.Name, Text: line})
		},
		Waiting: func(on bool) {
			if on {
				p.count(-1, 1)
			} else {
				p.count(1, -1)
			}
		},
		Hooks: a.kit.Hooks, Limit: a.opts.ResultLimit, Spill: a.kit.Spill,
	})
	a.feed.push(Notice{Kind: NoticeToolEnd, Turn: p.n, Step: p.step, CallID: c.block.ID, Name: c.block.Name, Code: r.Code})
	return p.result(c, started.Seq, r)
}

// await waits for the answer to a call's question. A denied call gets its result.
func (p *pool) await(c *call) (allowed bool, err error) {
	a := p.a
	for {
		a.mu.Lock()
		d, ok := a.answers[c.askID]
		answered := a.answered
		a.mu.Unlock()
		if ok {
			if d.Verdict == session.VerdictAllow {
				return true, nil
			}
			reason := d.Reason
			if reason == "" && d.By == session.ByUser {
				reason = "the user said no"
			}
			return false, p.result(c, session.None, tool.Denied(c.block.Name, tool.Verdict{Action: tool.Deny, Reason: reason}))
		}
		if gate := p.a.gate(); markOf(gate) != c.mark {
			c.mark = markOf(gate)
			if err := a.reconsider(p.ctx, c.askID, c.prep, gate); err != nil {
				return false, err
			}
			continue
		}
		p.count(-1, 1)
		select {
		case <-answered:
			p.count(1, -1)
		case <-p.ctx.Done():
			p.count(1, -1)
			return false, context.Cause(p.ctx)
		}
	}
}

// reconsider decides an open question by a policy or rules that changed meanwhile, if they do not ask.
func (a *Agent) reconsider(ctx context.Context, askID string, prep tool.Prepared, gate tool.Gate) error {
	v := gate.Before(ctx, prep)
	d := session.ApprovalDecided{By: session.ByPolicy, Reason: v.Reason}
	switch v.Action {
	case tool.Allow:
		d.Verdict = session.VerdictAllow
	case tool.Deny:
		d.Verdict = session.VerdictDeny
	default:
		return nil
	}
	if err := a.decide(askID, d); err != nil && !errors.Is(err, ErrAnswered) {
		return err
	}
	return nil
}

// result logs the result of a call, with the events that the tool wants before it, adjacent. started is the
// seq of its tool/call, None if it did not start. What a tool wrote that no log can hold is left out.
func (t *turn) result(c *call, started session.Seq, r tool.Result) error {
	recorded := false
	defer func() {
		if !recorded {
			r.Drop()
		}
	}()
	id := fmt.Sprintf("result-%d-%d-%d-%d", t.n, t.step, c.assistant, c.index)
	out := session.ToolResult{Turn: t.n, Step: t.step, Message: message.Result(id, c.block.ID, r.IsError, r.Content...), Meta: r.Meta}
	if r.IsError {
		out.Error = &session.ErrorInfo{Name: "ToolError", Code: validText(r.Code)}
	}
	draft := session.Draft{Type: session.TypeToolResult, Data: out, Op: session.Append()}
	if started != session.None {
		draft.Sources = session.Cite(started)
	}
	_, err := t.a.s.AppendAll(nil, slices.Concat(drafts(r.Records), []session.Draft{draft}, drafts(r.Closing))...)
	if errors.Is(err, session.ErrRejected) {
		out.Meta = nil
		draft.Data = out
		_, err = t.a.s.Append(draft)
	}
	recorded = err == nil
	if errors.Is(err, session.ErrRejected) {
		code, text := CodeBadResult, "The tool ran, but its result cannot be recorded: "+validText(err.Error())
		out.Message = message.Result(id, c.block.ID, true, message.TextBlock(text))
		out.Error = &session.ErrorInfo{Name: "ToolError", Code: code}
		draft.Data = out
		_, err = t.a.s.Append(draft)
	}
	if err == nil {
		c.settled = true
	}
	return err
}

func drafts(recs []tool.Record) []session.Draft {
	out := make([]session.Draft, 0, len(recs))
	for _, rec := range recs {
		out = append(out, session.Draft{Type: rec.Type, Data: rec.Data})
	}
	return out
}

// CodeBadResult is the code of a result that took the place of one that no log can hold.
const CodeBadResult = "BAD_RESULT"
