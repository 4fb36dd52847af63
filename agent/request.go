package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// header is the part of a request that stays the same from step to step, and its form in the log.
type header struct {
	route  Route
	prov   llm.Provider
	window int
	price  *llm.Price
	req    llm.Request // without messages
	body   session.HeaderBody
	raw    []byte // body as logged
}

// config is the JSON of a header's config.
type config struct {
	Provider        string   `json:"provider"`
	Model           string   `json:"model"`
	MaxOutputTokens int      `json:"maxOutputTokens,omitzero"`
	Temperature     *float64 `json:"temperature,omitzero"`
	Reasoning       string   `json:"reasoning,omitzero"`
}

func (r *runner) makeHeader(route Route) (*header, error) {
	a := r.a
	if route.Model == "" {
		return nil, &llm.Error{Code: llm.CodeInvalidRequest, Message: "no model is configured for this session; name one as PROVIDER/MODEL"}
	}
	prov, err := a.opts.Models.Provider(route.Provider)
	if err != nil {
		var own *llm.Error
		if errors.As(err, &own) {
			return nil, own
		}
		return nil, &llm.Error{Code: llm.CodeInvalidRequest, Message: err.Error(), Err: err}
	}
	h := &header{route: route, prov: prov}
	if cat, ok := llm.Find[llm.Catalog](prov); ok {
		if info, ok := cat.ModelInfo(route.Model); ok {
			h.window, h.price = info.ContextWindow, info.Price
		}
	}
	h.body.System = a.opts.System(a.s.Header())
	if a.kit.System != "" {
		h.body.System = strings.TrimPrefix(h.body.System+"\n\n"+a.kit.System, "\n\n")
	}
	if h.body.Config, err = marshal(config{route.Provider, route.Model, a.opts.MaxOutputTokens, a.opts.Temperature, a.opts.Reasoning}); err != nil {
		return nil, err
	}
	var tools []llm.ToolSpec
	for _, s := range a.kit.Tools.Specs() {
		tools = append(tools, llm.ToolSpec(s))
	}
	if len(tools) > 0 {
		if h.body.Tools, err = marshal(tools); err != nil {
			return nil, err
		}
	}
	// The request is made of what is logged, so that it can be made again.
	if _, h.req, err = ReadHeader(h.body); err != nil {
		return nil, err
	}
	if a.kit.Purpose != "" {
		h.req.Purpose = a.kit.Purpose
	}
	h.raw, err = marshal(h.body)
	return h, err
}

func marshal(v any) (jsontext.Value, error) { return json.Marshal(v, json.Deterministic(true)) }

// putHeader logs the request's header when it is the first of this life or has changed, and the context
// when that has changed.
func (t *turn) putHeader() error {
	route := t.a.route(t.a.s.State())
	last := t.header
	if last == nil || last.route != route {
		h, err := t.makeHeader(route)
		if err != nil {
			return err
		}
		t.header = h
	}
	h := t.header
	_, err := t.a.s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		var drafts []session.Draft
		reason := ""
		switch {
		case !t.headerIn && st.RequestHeader() == session.None:
			reason = "initial"
		case !t.headerIn:
			reason = "resume"
		case last != h && !bytes.Equal(last.raw, h.raw):
			reason = "change"
		}
		if reason != "" {
			drafts = append(drafts, session.Draft{Type: session.TypeRequestHeader, Data: session.RequestHeader{Header: h.body, Reason: reason}})
		}
		ctx := session.RequestContext{Provider: route.Provider, Model: route.Model, ContextWindow: h.window}
		if ctx != st.RequestContext() {
			drafts = append(drafts, session.Draft{Type: session.TypeRequestContext, Data: ctx})
		}
		return drafts, nil
	})
	if err == nil {
		t.headerIn = true
	}
	return err
}

// build makes the request from the log.
func (t *turn) build() (llm.Request, error) {
	items, st, err := t.a.s.Surface()
	if err != nil {
		return llm.Request{}, err
	}
	t.at = st.Next()
	return t.view.fill(t.header.route.Provider, t.header.req, items, st), nil
}

// ask asks the model and runs the calls of its answer. more says that the answer asked for tools.
func (t *turn) ask() (more bool, err error) {
	if err := t.putHeader(); err != nil {
		return false, err
	}
	overflowed := false
	for attempt := 1; ; attempt++ {
		req, err := t.build()
		if err != nil {
			return false, err
		}
		if req, _, err = t.pressure(req, false); err != nil {
			return false, err
		}
		if err := t.putSent(&req); err != nil {
			return false, err
		}
		if err := t.save(); err != nil {
			return false, err
		}
		t.a.setState(StateRunning)
		ans, fail := t.stream(req)
		if fail == nil {
			return t.answered(ans)
		}
		if t.ctx.Err() != nil || ans.fatal {
			return false, fail
		}
		failed := llm.AsError(t.ctx, fail)
		if failed.Code == llm.CodeContextWindow && !overflowed {
			overflowed = true
			_, changed, err := t.pressure(req, true)
			if err != nil {
				return false, err
			}
			if changed {
				continue
			}
		}
		if !failed.Retryable() || attempt >= t.a.opts.Retry.Attempts {
			return false, failed
		}
		if err := t.backOff(attempt, failed); err != nil {
			return false, err
		}
	}
}

// backOff logs a failed attempt and waits before the next.
func (t *turn) backOff(attempt int, failed *llm.Error) error {
	o := t.a.opts.Retry
	delay := o.Max
	if n := attempt - 1; n < 30 && o.Base<<n < o.Max && o.Base<<n > 0 {
		delay = o.Base << n
	}
	delay -= time64(t.a.opts.Rand()/2, delay)
	if failed.RetryAfter > 0 {
		delay = min(max(delay, failed.RetryAfter), o.AfterMax)
	}
	if _, err := t.a.s.Append(session.Draft{Type: TypeRetry, Data: RetryEvent{
		Turn: t.n, Step: t.step, Attempt: attempt, Code: failed.Code, Status: failed.Status,
		Message: validText(failed.Message), DelayMs: delay.Milliseconds(),
	}}); err != nil {
		return err
	}
	t.a.setState(StateRetrying)
	t.a.feed.push(Notice{Kind: NoticeRetry, Turn: t.n, Step: t.step, Code: string(failed.Code), Text: failed.Message, Attempt: attempt, Delay: delay})
	if err := t.a.opts.Sleep(t.ctx, delay); err != nil {
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		return fmt.Errorf("waiting before the next attempt: %w", err)
	}
	return nil
}

func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// answered runs the calls of an answer and says how the turn goes on.
func (t *turn) answered(ans answer) (more bool, err error) {
	switch ans.finish {
	case llm.FinishLength:
		return false, endWith(session.ReasonMaxTokens, "")
	case llm.FinishContentFilter:
		return false, endWith(session.ReasonBlocked, "the provider's content filter ended the answer")
	}
	if len(ans.calls) == 0 {
		return false, nil
	}
	calls := make([]*call, len(ans.calls))
	for i, b := range ans.calls {
		calls[i] = &call{assistant: ans.seq, index: i, block: b}
	}
	return true, t.runCalls(calls)
}

// uniqueCalls makes the ids of the calls in one message usable for pairing: never empty, never twice.
func uniqueCalls(content []message.Block, turn, step int) []message.Block {
	seen := make(map[string]bool)
	n := 0
	for i, b := range content {
		if b.Type != message.ToolCall {
			continue
		}
		n++
		id := b.ID
		if id == "" {
			id = fmt.Sprintf("call-%d-%d-%d", turn, step, n)
		}
		for k := 2; seen[id]; k++ {
			id = fmt.Sprintf("%s-%d", b.ID, k)
		}
		seen[id] = true
		content[i].ID = id
	}
	return content
}
