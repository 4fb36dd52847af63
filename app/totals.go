package app

import (
	"context"
	"errors"

	"github.com/strandline-dev/strandline/config"
	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/subagent"
)

// Cost is what was paid. What is unknown is not zero.
type Cost struct {
	USD      *float64 `json:"usd"`               // nil: of no model is the price known
	Unpriced int64    `json:"unpriced,omitzero"` // tokens of models without a known price; not in USD
}

// Gauge is how full the model's window would be with the next request.
type Gauge struct {
	Tokens int64 `json:"tokens"`
	Told   int64 `json:"told"`            // of them, those that the provider counted itself
	Window int   `json:"window,omitzero"` // 0: not known
}

// Tree is what a session and its subagents used together; what they share counts once.
type Tree struct {
	Usage     Usage `json:"usage"`
	Cost      Cost  `json:"cost"`
	Steps     int   `json:"steps"`
	ToolCalls int   `json:"toolCalls"`
	Times
	Children int `json:"children"`
	Missing  int `json:"missing,omitzero"` // of them, those that cannot be read: the tokens that their ends told are counted
}

// Times is how long models and tools worked, in milliseconds; 0 is not told, for it means that nothing was measured.
type Times struct {
	ModelMS int64 `json:"modelMs,omitzero"` // from the beginning of steps to their answers
	ToolMS  int64 `json:"toolMs,omitzero"`  // from the starts of calls to their results; calls side by side count each
}

func costOf(c meter.Cost) Cost { return Cost{c.USD, c.Unpriced} }

// Totals adds to s, the report of ins, what the session and its tree cost and how full its window is: it reads the view
// and the logs of all subagents. Of a session as it was at an earlier seq there is no tree. cfg may be nil: then only
// what the catalogue knows is known.
func (a *App) Totals(ctx context.Context, ins *Inspection, cfg *config.Config, s *Stat) error {
	prices := a.Prices(cfg)
	var own meter.Cost
	own.AddOwn(prices, ins.State)
	s.Cost, s.OwnCost = new(costOf(meter.Total(ins.State, prices))), new(costOf(own))
	if ins.Err() != nil {
		return nil // the rest needs a whole log
	}
	idx := a.idx()
	done := map[session.ID]Done{}
	did := func(id session.ID, ins *Inspection) error {
		hours, err := idx.HoursOf(ctx, id, ins.Snap.Header, ins.Prefix)
		var sum Done
		for _, h := range hours {
			sum.add(id, h, true, prices)
		}
		done[id] = sum
		return err
	}
	if err := did(ins.Stat.ID, ins); err != nil {
		return err
	}
	mine := done[ins.Stat.ID]
	s.OwnSteps, s.OwnToolCalls, s.Times = &mine.Steps, &mine.ToolCalls, Times{mine.ModelMS, mine.ToolMS}
	items, err := session.ProjectAll(ins.State, ins.Prefix)
	if err != nil {
		return err
	}
	if _, req, err := requestOf(items, ins.State, ins.Prefix); err == nil && ins.State.RequestHeader() != session.None {
		g := meter.Measure(req, ins.State, ins.Prefix)
		at := ins.State.RequestContext()
		window := at.ContextWindow
		if window == 0 {
			window = modelInfo(a.catalog, cfg, at.Provider, at.Model).ContextWindow
		}
		s.Gauge = &Gauge{Tokens: g.Tokens, Told: g.Told, Window: window}
	}
	if ins.Prefix.Len() < ins.Snap.Prefix.Len() {
		return nil
	}
	t, err := subagent.TreeOf(ctx, ins.Stat.ID, prices, func(ctx context.Context, id session.ID) (session.State, session.Prefix, func() error, error) {
		if id == ins.Stat.ID {
			return ins.State, ins.Prefix, func() error { return nil }, nil
		}
		child, err := a.Inspect(ctx, id, nil)
		if err != nil {
			return session.State{}, nil, nil, err
		}
		if err := did(id, child); err != nil {
			return session.State{}, nil, nil, errors.Join(err, child.Close())
		}
		return child.State, child.Prefix, child.Close, nil
	})
	if err != nil {
		return err
	}
	s.Tree = &Tree{Usage: Usage{t.Usage}, Cost: costOf(t.Cost), Children: t.Children, Missing: t.Missing,
		Steps: s.Steps - mine.Steps, ToolCalls: s.ToolCalls - mine.ToolCalls} // what was inherited
	for _, id := range t.Sessions {
		d := done[id]
		s.Tree.Steps, s.Tree.ToolCalls = s.Tree.Steps+d.Steps, s.Tree.ToolCalls+d.ToolCalls
		s.Tree.ModelMS, s.Tree.ToolMS = s.Tree.ModelMS+d.ModelMS, s.Tree.ToolMS+d.ToolMS
	}
	return nil
}
