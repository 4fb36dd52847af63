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
	if o.NoSubagents {
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

// WhenQuiet waits until nothing is done before a person says something: the agent and its subagents are idle, or
// all that is left to do waits for answers.
func (w *Work) WhenQuiet(ctx context.Context) error { return w.d.WhenQuiet(ctx, w.Agent) }
