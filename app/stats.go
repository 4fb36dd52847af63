package app

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/strandline-dev/strandline/index"
	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// StatsQuery says what is summed up.
type StatsQuery struct {
	Projects []string // the names of one project (Project.Names); nil = any
	Since    int64    // Unix milliseconds, to the quarter of an hour; 0: all
	Zone     *time.Location
	Prices   meter.Prices
}

// Done sums up what sessions did, without what they inherited: what they share with others counts once.
type Done struct {
	Sessions  int   `json:"sessions"` // that did something of it
	Turns     int   `json:"turns"`    // that began
	Steps     int   `json:"steps"`
	ToolCalls int   `json:"toolCalls"`
	Usage     Usage `json:"usage"`
	Untold    int   `json:"untold,omitzero"` // steps of sessions in which a model told no tokens: Usage is without them
	Cost      Cost  `json:"cost"`
	ModelMS   int64 `json:"modelMs"` // as in Times
	ToolMS    int64 `json:"toolMs"`

	cost meter.Cost
	last session.ID
}

// Group is a sum by one thing.
type Group struct {
	By  string `json:"by"` // day, project or model
	Key string `json:"key"`
	Done
}

// Stats are sums over sessions.
type Stats struct {
	Groups     []Group `json:"-"` // days oldest first, then projects and models, those that worked most first
	Total      Done    `json:"total"`
	Unreadable int     `json:"unreadable"` // sessions whose logs could not be read at all: they are in no sum
	// Partial are the sessions that are damaged: what of them can be read is in the sums, newest first.
	Partial []session.ID `json:"partial,omitzero"`
}

func (d *Done) add(id session.ID, h index.Hour, told bool, prices meter.Prices) {
	if d.last != id {
		d.Sessions, d.last = d.Sessions+1, id
	}
	d.Turns, d.Steps, d.ToolCalls = d.Turns+h.Turns, d.Steps+h.Steps, d.ToolCalls+h.Calls
	d.ModelMS, d.ToolMS = d.ModelMS+h.ModelMS, d.ToolMS+h.ToolMS
	if h.Usage != nil {
		d.cost.Add(prices, h.Provider, h.Model, *h.Usage)
	}
	if !told {
		d.Untold += h.Steps
	}
	d.Usage, d.Cost = Usage{d.cost.Usage}, costOf(d.cost)
}

// Stats sums up what the sessions of q did, subagents and those of programs included. It comes from
// the index, which reads what it does not know: progress, if not nil, is told of that.
func (a *App) Stats(ctx context.Context, q StatsQuery, progress func(done, all int)) (Stats, error) {
	var out Stats
	sums := map[[2]string]*Done{}
	paths := map[string]string{} // of a project with an id: its newest path
	err := a.idx().Hours(ctx, index.Query{Projects: q.Projects}, progress, func(w index.Worked) error {
		if w.Facts == nil {
			out.Unreadable++
			return nil
		}
		if w.State == store.StateDamaged {
			out.Partial = append(out.Partial, w.ID)
		}
		h := w.Header
		project := cmp.Or(h.Project, h.Cwd)
		if id := h.ProjectID; id != "" {
			if paths[id] == "" {
				paths[id] = project
			}
			project = paths[id]
		}
		told := map[string]bool{} // the models that told tokens
		for _, hour := range w.Hours {
			told[modelOf(hour)] = told[modelOf(hour)] || hour.Usage != nil
		}
		for _, hour := range w.Hours {
			if (hour.Quarter+1)*index.QuarterMS <= q.Since {
				continue
			}
			day := time.UnixMilli(hour.Quarter * index.QuarterMS).In(q.Zone).Format(time.DateOnly)
			model := modelOf(hour)
			for _, key := range [][2]string{{"day", day}, {"project", project}, {"model", model}} {
				if sums[key] == nil {
					sums[key] = &Done{}
				}
				sums[key].add(w.ID, hour, told[model], q.Prices)
			}
			out.Total.add(w.ID, hour, told[model], q.Prices)
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	for key, d := range sums {
		out.Groups = append(out.Groups, Group{key[0], key[1], *d})
	}
	slices.SortFunc(out.Groups, func(a, b Group) int {
		order := cmp.Compare(slices.Index(groupings, a.By), slices.Index(groupings, b.By))
		if a.By == "day" {
			return cmp.Or(order, cmp.Compare(a.Key, b.Key))
		}
		return cmp.Or(order, cmp.Compare(b.Steps, a.Steps), cmp.Compare(a.Key, b.Key))
	})
	return out, nil
}

var groupings = []string{"day", "project", "model"}

func modelOf(h index.Hour) string {
	if h.Model == "" {
		return "unknown"
	}
	return h.Provider + "/" + h.Model
}
