package app

import (
	"context"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/subagent"
)

// delegation is what agents may hand on.
func delegation(o WorkOptions) subagent.Options {
	d := subagent.Options{NewID: NewID, Now: Now, Wake: o.Wake}
	if o.NoSubagents || !o.Config.Delegates() {
		d.MaxDepth = -1
	}
	return d
}

// Ask is a question to a person, and whose it is: of the agent at work, or of one of its subagents.
type Ask struct {
	Agent *agent.Agent
	session.Ask
}

// Asks returns what waits for a person: the agent's own questions in the order of asking, then its subagents'.
func (w *Work) Asks() []Ask {
	var out []Ask
	for _, q := range w.Agent.Session().State().Asks() {
		out = append(out, Ask{w.Agent, q})
	}
	for _, q := range w.d.Questions(w.Agent.ID()) {
		out = append(out, Ask{q.Child, q.Ask})
	}
	return out
}

// Subagents returns how many subagents of the agent are at work in this process.
func (w *Work) Subagents() int { return w.d.Living(w.Agent.ID()) }

// TakeUp goes on with the subagents that an earlier life left waiting for a person: Asks has their questions then.
func (w *Work) TakeUp(ctx context.Context) { w.d.TakeUp(ctx, w.Agent) }

// WhenQuiet waits until nothing is done before a person says something: the agent and its subagents are idle, or
// all that is left to do waits for answers.
func (w *Work) WhenQuiet(ctx context.Context) error { return w.d.WhenQuiet(ctx, w.Agent) }

// Child is a subagent of a session, as the session's log tells of it.
type Child struct {
	ID          session.ID       `json:"id"`
	Seq         session.Seq      `json:"seq"` // of its start
	Mode        subagent.Mode    `json:"mode"`
	Description string           `json:"description,omitzero"`
	Background  bool             `json:"background,omitzero"`
	Outcome     subagent.Outcome `json:"outcome"` // "": not over, or the session was not told yet
}

// Children returns the subagents that the session has had itself, in the order of their starts.
func (i *Inspection) Children() []Child {
	var out []Child
	for _, b := range subagent.Brackets(i.State) {
		start, err := decodeAt[subagent.Start](i.Prefix, b.Open)
		if err != nil {
			continue // damage is told elsewhere
		}
		c := Child{ID: start.ChildID, Seq: b.Open, Mode: start.Mode, Description: start.Description, Background: start.Background}
		if b.Close != session.None {
			if end, err := decodeAt[subagent.End](i.Prefix, b.Close); err == nil {
				c.Outcome = end.Outcome
			}
		}
		out = append(out, c)
	}
	return out
}

func decodeAt[T any](p session.Prefix, seq session.Seq) (v T, err error) {
	ev, err := p.At(seq)
	if err != nil {
		return v, err
	}
	return session.DecodeData[T](ev)
}
