package agent

import (
	"context"
	"fmt"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// pressure asks the hooks about the request. If they changed the surface, what must not be lost is stated again,
// and the request is built again.
func (t *turn) pressure(req llm.Request, overflow bool) (llm.Request, bool, error) {
	changed := false
	_, before := t.a.s.State().Usage()
	defer func() { // what hooks asked a model counts towards the turn's budget too
		_, after := t.a.s.State().Usage()
		tokens, cost := t.worth(after)
		wasTokens, wasCost := t.worth(before)
		t.tokens, t.cost = t.tokens+tokens-wasTokens, t.cost+cost-wasCost
	}()
	for _, hook := range t.a.opts.Hooks.Pressure {
		var did bool
		err := protect("pressure hook", func() (err error) { did, err = hook(t.ctx, t.pressureInput(req, overflow)); return err })
		if did {
			changed = true
			if err := t.restate(); err != nil {
				return req, changed, err
			}
		}
		if err != nil {
			return req, changed, err
		}
		if did {
			if req, err = t.build(); err != nil {
				return req, changed, err
			}
		}
	}
	return req, changed, nil
}

func (t *turn) pressureInput(req llm.Request, overflow bool) PressureInput {
	return PressureInput{
		Session: t.a.s, Turn: t.n, Step: t.step, Provider: t.header.prov, ContextWindow: t.header.window,
		Request: req, Overflow: overflow, Flush: t.a.save,
		Sent: func(req *llm.Request, at, of session.Seq) error {
			return t.a.logSent(t.ctx, t.header.prov, req, SentEvent{Turn: t.n, Step: t.step, At: at, Purpose: req.Purpose, Of: of})
		},
		Tell:   func(text string) { t.a.feed.push(Notice{Kind: NoticeUpkeep, Turn: t.n, Step: t.step, Text: text}) },
		Remark: func(text string) { t.a.feed.push(Notice{Kind: NoticeRemark, Turn: t.n, Step: t.step, Text: text}) },
	}
}

// restate logs what the model must still know after the surface lost something.
func (t *turn) restate() error {
	a := t.a
	var msgs []message.Message
	if a.opts.ReadFile != nil {
		m, ok, err := t.context.message(a)
		if err != nil {
			return err
		}
		if ok {
			msgs = append(msgs, m)
		}
	}
	for _, hook := range a.opts.Hooks.Restate {
		err := protect("restate hook", func() error {
			more, err := hook(t.ctx, a.s)
			msgs = append(msgs, more...)
			return err
		})
		if err != nil {
			return err
		}
	}
	var drafts []session.Draft
	for _, m := range msgs {
		if m.ID == "" {
			m.ID = a.opts.NewID()
		}
		if m.Source.Kind != message.SourcePlugin {
			return fmt.Errorf("agent: a restate hook returned a message of source %q, not of a plugin", m.Source.Kind)
		}
		drafts = append(drafts, session.Draft{Type: session.TypeUserMessage, Data: m, Op: session.Append()})
	}
	_, err := a.s.AppendAll(nil, drafts...)
	return err
}

// Relieve runs f in the place of a turn, as Exclusive does, with what a Pressure hook sees of the request that
// would be sent now. If f says that it changed the surface, what must not be lost is stated again. The log is
// saved when it returns nil.
func (a *Agent) Relieve(ctx context.Context, f func(ctx context.Context, in PressureInput) (changed bool, err error)) error {
	return a.Exclusive(ctx, func(ctx context.Context) error {
		t := &turn{runner: &a.run, ctx: ctx}
		if err := t.putHeader(); err != nil {
			return err
		}
		req, err := t.build()
		if err != nil {
			return err
		}
		changed, err := f(ctx, t.pressureInput(req, false))
		if changed {
			if err := t.restate(); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		return a.save(ctx)
	})
}
