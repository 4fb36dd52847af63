package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// ErrNoRule says that no rule of a prefix can stand for a call: it does not fit, or a shell would run more than it
// says.
var ErrNoRule = errors.New("no such rule can allow this call")

// addRules returns the rules of a session with more added, each once.
func addRules(have []session.Rule, more []tool.Rule) []session.Rule {
	out := slices.Clip(have)
	for _, r := range more {
		kept := session.Rule{Tool: r.Tool, Prefix: r.Prefix, Action: string(r.Action), Reason: r.Reason}
		if !slices.Contains(out, kept) {
			out = append(out, kept)
		}
	}
	return out
}

// AddRules returns the event that adds rules to those of a session; ok is false if it has them all.
func AddRules(st session.State, rules []tool.Rule) (d session.Draft, ok bool) {
	p := settings(Config{Rules: rules}, st)
	if p == nil {
		return d, false
	}
	return *p, true
}

// rules returns the rules in force beside the kit's: those of the session and of this life, each once. One that
// this version does not understand denies: it may have been a denial.
func (a *Agent) rules(st session.State) []tool.Rule {
	a.mu.Lock()
	told := a.cfg.Rules
	a.mu.Unlock()
	var out []tool.Rule
	for _, k := range addRules(st.Settings().Rules, told) {
		r := tool.Rule{Tool: k.Tool, Prefix: k.Prefix, Action: tool.Action(k.Action), Reason: k.Reason}
		if r.Validate() != nil {
			r.Action, r.Reason = tool.Deny, fmt.Sprintf("the session has a rule that this version does not know (%s %q)", k.Action, k.Tool)
		}
		out = append(out, r)
	}
	return out
}

// AllowAlways answers an open question with yes, like Answer, and adds a rule that allows every later call of
// the tool whose subject begins with prefix ("": the whole subject of this one), in this life and later ones.
// Other open questions that the rule decides are decided by it. ErrNoRule, with nothing recorded, if the rule would
// not allow this call; ErrAnswered as Answer.
func (a *Agent) AllowAlways(ctx context.Context, id, prefix string) (tool.Rule, error) {
	rule, err := a.ruleFor(id, prefix)
	if err != nil {
		return rule, err
	}
	d := session.ApprovalDecided{Verdict: session.VerdictAllow, By: session.ByUser, Reason: "always: " + rule.String()}
	err = a.decideWith(id, d, func(st session.State, _ session.Ask) []session.Draft {
		set := st.Settings()
		set.Rules = addRules(set.Rules, []tool.Rule{rule})
		return []session.Draft{{Type: session.TypeSettings, Data: set}}
	})
	if err == nil {
		err = a.reconsiderAll(ctx)
	}
	if err == nil {
		err = a.save(ctx)
	}
	if err != nil {
		return rule, err
	}
	a.wake()
	return rule, nil
}

// ruleFor makes the rule that allows the call of a question, and tries it.
func (a *Agent) ruleFor(id, prefix string) (tool.Rule, error) {
	st := a.s.State()
	q, ok := findAsk(st.Asks(), id)
	if !ok {
		return tool.Rule{}, notOpen(id)
	}
	prep, ok, err := a.prepared(st, q)
	if err != nil {
		return tool.Rule{}, err
	}
	if !ok {
		return tool.Rule{}, fmt.Errorf("agent: %q: %w", id, ErrNoRule)
	}
	if prefix == "" {
		prefix = prep.Subject()
	}
	r := tool.Rule{Tool: prep.Name(), Prefix: prefix, Action: tool.Allow}
	if v := tool.Decide(tool.PolicyAsk, append(a.rules(st), r), prep); v.Action != tool.Allow {
		return r, fmt.Errorf("agent: %s: %w", r, ErrNoRule)
	}
	return r, nil
}

// prepared returns the call that a question is about; ok is false if there is none, or it is not valid any more.
func (a *Agent) prepared(st session.State, q session.Ask) (p tool.Prepared, ok bool, err error) {
	for _, c := range st.OpenCalls() {
		if about, ok := st.AskAbout(c); !ok || about.AskID != q.AskID {
			continue
		}
		ev, err := a.s.At(c.Assistant)
		if err != nil {
			return p, false, err
		}
		d, err := session.DecodeData[session.AssistantMessage](ev)
		if err != nil {
			return p, false, err
		}
		block := d.Message.Calls()[c.Index]
		p, bad := a.kit.Tools.Prepare(block.ID, block.Name, block.Arguments)
		return p, bad == nil, nil
	}
	return p, false, nil
}

// reconsiderAll decides the open questions that the policy and the rules, which just changed, do not ask. A turn
// that runs would do so too, but only when it comes to each call.
func (a *Agent) reconsiderAll(ctx context.Context) error {
	gate, st := a.gate(), a.s.State()
	for _, q := range st.Asks() {
		prep, ok, err := a.prepared(st, q)
		if err == nil && ok {
			err = a.reconsider(ctx, q.AskID, prep, gate)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// findAsk finds an open question by its own id or by that of its call.
func findAsk(asks []session.Ask, id string) (session.Ask, bool) {
	i := slices.IndexFunc(asks, func(q session.Ask) bool { return q.AskID == id })
	if i < 0 {
		i = slices.IndexFunc(asks, func(q session.Ask) bool { return q.CallID == id })
	}
	if i < 0 {
		return session.Ask{}, false
	}
	return asks[i], true
}

func notOpen(id string) error {
	return fmt.Errorf("agent: %q: %w: it was answered before, or nobody asked", id, ErrAnswered)
}
