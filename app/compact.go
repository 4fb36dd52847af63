package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/config"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/catalog"
	"github.com/strandline-dev/strandline/meter"
	"github.com/strandline-dev/strandline/session"
)

// newCompactor returns what makes views smaller, with the numbers of cfg.
func newCompactor(cfg *config.Config) *compact.Compactor {
	return compact.New(compact.Options{
		NewID: func() string { return string(NewID()) },
		After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop },
		Settings: func(provider, model string) compact.Settings {
			return compactSettings(cfg.CompactionOf(provider, model))
		},
		Restated: restated,
	})
}

// restated are the source plugins of messages that are stated again when a compaction took them off the surface.
var restated = []string{agent.PluginProject}

func compactSettings(c config.Compaction) compact.Settings {
	return compact.Settings{
		Off: c.Auto.IsSet() && !c.Auto.V, Threshold: c.Threshold.V, Tail: c.Tail.V, Growth: c.Growth.V,
		PruneOver: c.PruneOver.V, PruneHead: c.PruneHead.V, PruneTail: c.PruneTail.V,
		Timeout: c.Timeout.V, SummaryTokens: c.SummaryTokens.V, Attempts: c.Attempts.V,
	}
}

// checkCompaction holds the numbers of a configuration against each other.
func checkCompaction(path string, cfg *config.Config) error {
	check := func(key string, c config.Compaction) error {
		if err := compactSettings(c).Check(); err != nil {
			return &config.Error{Path: path, Key: key, Why: err.Error(), Hint: "see strand help config"}
		}
		return nil
	}
	if err := check("compaction", cfg.Compaction); err != nil {
		return err
	}
	for _, name := range cfg.ModelNames() {
		provider, model, _ := cutRoute(name)
		if err := check("models."+name+".compaction", cfg.CompactionOf(provider, model)); err != nil {
			return err
		}
	}
	return nil
}

// modelInfo is what is known about a model: what is configured, then what the catalogue says.
func modelInfo(table *catalog.Catalog, cfg *config.Config, provider, model string) llm.ModelInfo {
	info, _ := table.Model(provider, model)
	m := cfg.Models(provider)[model]
	if m.ContextWindow.IsSet() {
		info.ContextWindow = m.ContextWindow.V
	}
	if m.MaxOutputTokens.IsSet() {
		info.MaxOutputTokens = m.MaxOutputTokens.V
	}
	if p := m.Price; p.IsSet() {
		info.Price = &llm.Price{Input: p.V.Input, Output: p.V.Output, CacheRead: p.V.CacheRead, CacheWrite: p.V.CacheWrite}
	}
	return info
}

// Prices tells what models cost: as configured, else as the catalogue says.
func (a *App) Prices(cfg *config.Config) meter.Prices {
	return func(provider, model string) (llm.Price, bool) {
		if i := modelInfo(a.catalog, cfg, provider, model); i.Price != nil {
			return *i.Price, true
		}
		return llm.Price{}, false
	}
}

// cataloged is a provider about whose models something is known.
type cataloged struct {
	llm.Provider
	info func(model string) llm.ModelInfo
}

func (c cataloged) Unwrap() llm.Provider { return c.Provider }

func (c cataloged) ModelInfo(model string) (llm.ModelInfo, bool) {
	i := c.info(model)
	return i, i != llm.ModelInfo{}
}

// job is a session under pressure, for the compactor.
func job(in agent.PressureInput) compact.Job {
	return compact.Job{
		Session: in.Session, Turn: in.Turn, Provider: in.Provider, Window: in.ContextWindow, Head: in.Request,
		Flush: in.Flush, Sent: in.Sent, Tell: in.Tell, Remark: in.Remark,
	}
}

// pressure fits a compactor to the loop.
func pressure(c *compact.Compactor) func(context.Context, agent.PressureInput) (bool, error) {
	return func(ctx context.Context, in agent.PressureInput) (bool, error) {
		return c.Pressure(ctx, job(in), in.Overflow)
	}
}

// Compacted is what became of a compaction. Its keys are a contract.
type Compacted struct {
	Outcome  string       `json:"outcome"` // done, no-gain, failed, nothing; undone; preview
	Before   *int64       `json:"before"`  // tokens of what would be sent, nil: unknown
	After    *int64       `json:"after"`
	StartSeq *session.Seq `json:"startSeq"`
	EndSeq   *session.Seq `json:"endSeq"`
	// Of a preview: the span that would go, and how much of what it is.
	Span     *compact.Range `json:"span,omitzero"`
	Messages int            `json:"messages,omitzero"`
	Tokens   int64          `json:"tokens,omitzero"`
	Window   int            `json:"window,omitzero"`

	Err error `json:"-"` // why it failed
}

// The outcomes that are none of a compaction's own.
const (
	OutcomeNothing = "nothing"
	OutcomeUndone  = "undone"
	OutcomePreview = "preview"
)

// Compact makes the session's view smaller, in the place of a turn: agent.ErrRunning, session.ErrOpenTurn. Input
// that is accepted meanwhile waits and then runs. A compaction that failed is told in the result.
func (w *Work) Compact(ctx context.Context) (out Compacted, err error) {
	s := w.Agent.Session()
	items, st, err := s.Surface()
	if err != nil {
		return out, err
	}
	if out, err = w.app.preview(items, st, s.Events(), w.opts); err != nil {
		return out, err
	}
	if _, open := st.Turn(); !open && out.Outcome == OutcomeNothing { // and nothing is written
		return out, nil
	}
	err = w.Agent.Relieve(ctx, func(ctx context.Context, in agent.PressureInput) (bool, error) {
		rep, err := w.compactor.Compact(ctx, job(in), "")
		if errors.Is(err, compact.ErrNothing) {
			out.Outcome = OutcomeNothing
			return false, nil
		}
		if rep.Start != session.None || err == nil {
			out = Compacted{Outcome: string(rep.Outcome), Before: &rep.Before, After: &rep.After, StartSeq: &rep.Start, EndSeq: &rep.End, Err: rep.Err}
		}
		return rep.Outcome == compact.Done && err == nil, err
	})
	return out, err
}

// CompactionError is a compaction that failed; the view is as it was.
type CompactionError struct {
	ID  session.ID
	Err error
}

func (e *CompactionError) Error() string { return fmt.Sprintf("no summary: %v", e.Err) }

// Unwrap returns the cause.
func (e *CompactionError) Unwrap() error { return e.Err }

// UndoCompaction takes back the newest compaction on the surface of a stored session.
func (a *App) UndoCompaction(ctx context.Context, id session.ID) (out Compacted, err error) {
	err = a.change(ctx, id, func(s *session.Session) error {
		before, err := a.estimate(s)
		if err != nil {
			return err
		}
		_, seq, err := newCompactor(nil).Undo(s)
		if err != nil {
			return err
		}
		after, err := a.estimate(s)
		out = Compacted{Outcome: OutcomeUndone, Before: &before, After: &after, StartSeq: &seq, EndSeq: &seq}
		return err
	})
	return out, err
}

// estimate is how many tokens the session's view has, with the request header that was logged last.
func (a *App) estimate(s *session.Session) (int64, error) {
	items, st, err := s.Surface()
	if err != nil {
		return 0, err
	}
	_, req, err := requestOf(items, st, s.Events())
	return meter.Request(req), err
}

// requestOf is what would be sent, as far as the log alone says.
func requestOf(items []session.Item, st session.State, p session.Prefix) (provider string, req llm.Request, err error) {
	var body session.HeaderBody
	if at := st.RequestHeader(); at != session.None {
		ev, err := p.At(at)
		if err != nil {
			return "", req, err
		}
		h, err := session.DecodeData[session.RequestHeader](ev)
		if err == nil {
			body = h.Header
		}
	}
	if len(body.Config) == 0 {
		body.Config = []byte(`{}`)
	}
	provider, _, err = agent.ReadHeader(body)
	if err != nil {
		return "", req, err
	}
	req, err = new(agent.Rebuilder).Request(body, items, st)
	return provider, req, err
}

// PreviewCompaction tells what Compact would take off the surface. It reads only.
func (a *App) PreviewCompaction(ctx context.Context, id session.ID, o WorkOptions) (Compacted, error) {
	ins, err := a.Inspect(ctx, id, nil)
	if err != nil {
		return Compacted{}, err
	}
	defer ins.Close()
	if err := ins.Err(); err != nil {
		return Compacted{}, err
	}
	items, err := session.ProjectAll(ins.State, ins.Prefix)
	if err != nil {
		return Compacted{}, err
	}
	return a.preview(items, ins.State, ins.Prefix, o)
}

// preview is PreviewCompaction of a log that is open.
func (a *App) preview(items []session.Item, st session.State, p session.Prefix, o WorkOptions) (Compacted, error) {
	provider, req, err := requestOf(items, st, p)
	if err != nil {
		return Compacted{}, err
	}
	r := models{script: o.Script, cfg: o.Config}.routeOf(o, st.Settings())
	window := modelInfo(a.catalog, o.Config, r.Provider, r.Model).ContextWindow
	v := compact.View(provider, req, items, st, p, compactSettings(o.Config.CompactionOf(r.Provider, r.Model)))
	plan := v.Plan(window, restated)
	out := Compacted{Outcome: OutcomePreview, Before: &v.Tokens, Window: window}
	if plan.Empty() {
		out.Outcome, out.After = OutcomeNothing, out.Before
		return out, nil
	}
	left := v.Tokens - plan.Tokens
	out.After = &left
	out.Span = &compact.Range{Start: items[plan.From].Seq, End: items[plan.To-1].Seq}
	out.Messages, out.Tokens = plan.To-plan.From, plan.Tokens
	return out, nil
}
