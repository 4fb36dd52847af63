package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// runner is what the goroutine that runs turns remembers between them. Nothing in it is needed for a correct
// view: a new life begins with an empty one.
type runner struct {
	a *Agent

	view     Rebuilder
	header   *header
	headerIn bool // this life has logged a request/header
	context  projectContext
}

// turn is one turn being run.
type turn struct {
	*runner
	ctx     context.Context
	n, step int
	input   []message.Message // claimed from the next-turn queue, not logged yet
	tokens  int64
	cost    float64
	at      session.Seq // how much of the log the last request was made of
}

// ending is an error that ends a turn for a reason.
type ending struct{ reason session.Reason }

func (e *ending) Error() string { return "turn ends: " + e.reason.Kind }

func endWith(kind, detail string) error {
	return &ending{session.Reason{Kind: kind, Detail: detail}}
}

// errNoTurn says that there is nothing to end.
var errNoTurn = errors.New("no turn")

// turn runs the open turn, or the next one, to its end. It always returns with no turn open, except for
// one that waits for a person while the agent is disposed, and except when the log takes no more events.
func (r *runner) turn(ctx context.Context) {
	t := &turn{runner: r, ctx: ctx}
	err := t.guarded()
	if err == errNoTurn {
		return
	}
	defer func() {
		r.a.mu.Lock()
		defer r.a.mu.Unlock()
		clear(r.a.answers)
	}()
	end, err := t.end(t.reason(err))
	if err != nil {
		// The session takes no events any more (disposed, fenced, read-only): nothing can be run in it.
		failed := &NotSavedError{ID: r.a.s.ID(), Err: err}
		r.a.mu.Lock()
		r.a.notSaved = failed
		r.a.mu.Unlock()
		r.a.feed.push(Notice{Kind: NoticeNotSaved, Err: failed})
		return
	}
	_ = r.a.save(context.WithoutCancel(ctx)) // a failure stops the agent and is told there
	if end != nil {
		r.a.mu.Lock()
		r.a.lastEnd = end
		r.a.mu.Unlock()
		detail := end.Reason.Detail + end.Reason.Cause
		if end.Reason.Error != nil {
			detail = end.Reason.Error.Message
		}
		r.a.feed.push(Notice{Kind: NoticeTurnEnd, Turn: end.Turn, Code: end.Reason.Kind, Text: detail})
		for _, hook := range r.a.opts.Hooks.TurnEnd {
			_ = protect("turn-end hook", func() error { hook(r.a, *end); return nil })
		}
		r.a.entitle(*end)
	}
}

func (t *turn) guarded() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the loop crashed: %v", v)
		}
	}()
	return t.drive()
}

func (t *turn) drive() error {
	a := t.a
	// Everything before this turn is synced before it begins. Not under the turn's context: a turn that is
	// cancelled before it began is begun, and ended as cancelled, so that its input does not wait for another.
	if err := a.save(context.WithoutCancel(t.ctx)); err != nil && t.ctx.Err() == nil {
		return errNoTurn
	}
	for _, hook := range a.opts.Hooks.TurnStart {
		_ = protect("turn-start hook", func() error { hook(t.ctx, a); return nil })
	}
	parked, err := t.open()
	if err != nil {
		return err
	}
	owed := parked
	for {
		if parked {
			parked = false
			if err := t.resumeCalls(); err != nil {
				return err
			}
		} else {
			more, err := t.doStep(owed)
			if err != nil {
				return err
			}
			owed = more
		}
		again, err := t.endStep(owed)
		if err != nil || !again {
			return err
		}
	}
}

// open begins a turn and claims its input, or takes up the parked one. An open turn that nobody runs and
// that waits for nobody is closed: it comes from a seed without closers.
func (t *turn) open() (parked bool, err error) {
	a := t.a
	a.mu.Lock()
	parked, a.parked = a.parked, false
	cfg := a.cfg
	a.mu.Unlock()
	_, err = a.s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		var drafts []session.Draft
		n, open := st.Turn()
		if open && parked {
			t.n = n
			t.step, _ = st.Step()
			return overrides(cfg, st), nil
		}
		if open {
			for _, ev := range st.Closers() {
				drafts = append(drafts, session.Draft{Type: ev.Type, Data: ev.Data, Op: ev.Op, Sources: ev.Sources})
			}
			return drafts, errIf(len(drafts) == 0, "agent: turn %d is open and cannot be closed", n)
		}
		drafts = append(overrides(cfg, st), session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: n + 1}})
		var claim []session.Draft
		t.input, claim = a.claimable(st, session.NextTurn, 1)
		if next, _ := a.claimable(st, session.NextStep, 1); len(t.input) == 0 && len(next) == 0 {
			return nil, nil
		}
		drafts = append(drafts, claim...)
		t.n = n + 1
		return drafts, nil
	})
	if err == nil && t.n == 0 {
		err = errNoTurn
	}
	return parked, err
}

func errIf(cond bool, format string, args ...any) error {
	if cond {
		return fmt.Errorf(format, args...)
	}
	return nil
}

// doStep runs one step up to its last result. owed says that the step before asked for tools. more says that
// this one did.
func (t *turn) doStep(owed bool) (more bool, err error) {
	a := t.a
	if t.step > 0 {
		switch o := a.opts; {
		case t.step >= o.MaxSteps:
			return false, endWith(session.ReasonLimit, fmt.Sprintf("%d steps", o.MaxSteps))
		case o.MaxTurnTokens > 0 && t.tokens >= o.MaxTurnTokens:
			return false, endWith(session.ReasonLimit, fmt.Sprintf("%d tokens", o.MaxTurnTokens))
		case o.MaxTurnCost > 0 && t.cost >= o.MaxTurnCost:
			return false, endWith(session.ReasonLimit, fmt.Sprintf("%.2f US dollars", o.MaxTurnCost))
		}
		if err := t.save(); err != nil {
			return false, err
		}
	}
	msgs, err := t.claimInput()
	if err != nil {
		return false, err
	}
	if t.ctx.Err() == nil {
		in := &StepInput{Session: a.s, Turn: t.n, Step: t.step + 1, Messages: msgs}
		for _, hook := range a.opts.Hooks.PreStep {
			err := protect("pre-step hook", func() error { return hook(t.ctx, in) })
			var crashed *hookError
			if errors.As(err, &crashed) {
				return false, err
			} else if err != nil && t.ctx.Err() == nil {
				return false, endWith(session.ReasonBlocked, err.Error())
			}
		}
		if msgs = in.Messages; len(msgs) == 0 && !owed {
			return false, endWith(session.ReasonCompleted, "")
		}
	}
	if err := t.enter(msgs); err != nil {
		return false, err
	}
	if t.ctx.Err() != nil {
		return false, context.Cause(t.ctx)
	}
	return t.ask()
}

// claimInput takes the next-step queue. Injected context comes before the turn's own message, what a person
// said meanwhile behind it.
func (t *turn) claimInput() ([]message.Message, error) {
	var queue []message.Message
	_, err := t.a.s.AppendFunc(func(st session.State) (drafts []session.Draft, err error) {
		queue, drafts = t.a.claimable(st, session.NextStep, -1)
		return drafts, nil
	})
	if err != nil {
		return nil, err
	}
	var before, after []message.Message
	for _, m := range queue {
		if m.Source.Kind == message.SourceUser {
			after = append(after, m)
		} else {
			before = append(before, m)
		}
	}
	msgs := slices.Concat(before, t.input, after)
	t.input = nil
	return msgs, nil
}

// enter opens the step and logs what enters it.
func (t *turn) enter(msgs []message.Message) error {
	a := t.a
	first := t.step == 0
	t.step++
	if first && a.opts.ReadFile != nil && t.ctx.Err() == nil {
		m, ok, err := t.context.message(a)
		if err != nil {
			return err
		}
		if ok {
			msgs = slices.Concat([]message.Message{m}, msgs)
		}
	}
	_, err := a.s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		drafts := []session.Draft{{Type: session.TypeStepStart, Data: session.StepRef{Turn: t.n, Step: t.step}}}
		title := st.Title().Title
		for _, m := range msgs {
			drafts = append(drafts, session.Draft{Type: session.TypeUserMessage, Data: m, Op: session.Append()})
			if title == "" && m.Source.Kind == message.SourceUser {
				if title = brief.Title(m); title != "" {
					drafts = append(drafts, session.Draft{Type: session.TypeTitle, Data: session.Title{Title: title, Source: "fallback"}})
				}
			}
		}
		return drafts, nil
	})
	return err
}

// endStep closes the step and, when nothing is owed, the turn: that no input came for a next step, and the
// end, are one append.
func (t *turn) endStep(owed bool) (again bool, err error) {
	if t.ctx.Err() != nil {
		return false, context.Cause(t.ctx)
	}
	_, err = t.a.s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		next, _ := t.a.claimable(st, session.NextStep, 1)
		again = owed || len(next) > 0
		drafts := []session.Draft{{Type: session.TypeStepEnd, Data: session.StepRef{Turn: t.n, Step: t.step}}}
		if !again {
			drafts = append(drafts, turnEnd(t.n, session.Reason{Kind: session.ReasonCompleted}))
		}
		return drafts, nil
	})
	return again && err == nil, err
}

func turnEnd(n int, r session.Reason) session.Draft {
	return session.Draft{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: n, Reason: r}}
}

// save is the checkpoint inside a turn.
func (t *turn) save() error { return t.a.save(t.ctx) }

// reason says why the turn ends with err.
func (t *turn) reason(err error) session.Reason {
	var planned *ending
	var failed *llm.Error
	fail := func(name, code, text string, status int) session.Reason {
		return session.Reason{Kind: session.ReasonError, Error: &session.ErrorInfo{Name: name, Code: code, Message: validText(text), Status: status}}
	}
	var hook *hookError
	var coded interface { // of the store: damage
		error
		Code() string
	}
	switch {
	case err == nil:
		return session.Reason{Kind: session.ReasonCompleted}
	case errors.As(err, &planned):
		return planned.reason
	case errors.Is(err, ErrNotSaved):
		return fail("NotSaved", CodeNotSaved, err.Error(), 0)
	case t.ctx.Err() != nil:
		cause := CauseShutdown
		var c *CancelError
		if errors.As(context.Cause(t.ctx), &c) {
			cause = c.Kind
		}
		return session.Reason{Kind: session.ReasonAborted, Cause: string(cause)}
	case errors.As(err, &failed):
		return fail("ModelError", string(failed.Code), failed.Message, failed.Status)
	case errors.As(err, &hook):
		return fail("HookFailed", "HOOK_FAILED", err.Error(), 0)
	case errors.As(err, &coded):
		return fail("LoopFailed", coded.Code(), err.Error(), 0)
	}
	return fail("LoopFailed", "INTERNAL", err.Error(), 0)
}

// CodeNotSaved is the code of results and turns that ended because the log could not be synced.
const CodeNotSaved = "NOT_SAVED"

// end closes whatever the log shows as open: open questions, calls without a result, step and turn. It looks
// at nothing else, so it is right after every failure, and it does nothing when nothing is open. A turn that
// waits for a person stays open when the agent is only disposed: the next life asks again.
func (t *turn) end(why session.Reason) (*session.TurnEnd, error) {
	var end *session.TurnEnd
	_, err := t.a.s.AppendFunc(func(st session.State) (drafts []session.Draft, _ error) {
		drafts, end = closing(st, why)
		return drafts, nil
	})
	if err != nil {
		return nil, err
	}
	if end == nil && t.n > 0 { // endStep has closed it
		if n, open := t.a.s.State().Turn(); n == t.n && !open {
			end = &session.TurnEnd{Turn: n, Reason: why}
		}
	}
	return end, nil
}

// CancelParked returns the events that end the open turn of a log that nobody runs, as a person's cancellation of
// it does: every open question is denied, every call that did not start gets a result that says so. Nil: no turn is open.
func CancelParked(st session.State) []session.Draft {
	drafts, _ := closing(st, session.Reason{Kind: session.ReasonAborted, Cause: string(CauseUser)})
	return drafts
}

// closing returns what end appends: nothing without an open turn.
func closing(st session.State, why session.Reason) (drafts []session.Draft, end *session.TurnEnd) {
	n, open := st.Turn()
	if !open {
		return nil, nil
	}
	calls := st.OpenCalls()
	park := why.Kind == session.ReasonAborted && why.Cause == string(CauseShutdown) &&
		st.Parked()
	for _, q := range st.Asks() {
		if q.Turn == n && !park {
			drafts = append(drafts, session.Draft{Type: session.TypeApprovalDecided, Data: session.ApprovalDecided{
				AskID: q.AskID, CallID: q.CallID, Verdict: session.VerdictDeny, By: session.ByCancel, Reason: "the turn ended",
			}})
		}
	}
	for _, c := range calls {
		if !c.Pending || park && (st.Waiting(c) || st.Answered(c)) {
			continue
		}
		drafts = append(drafts, missing(c, why))
	}
	if park {
		return drafts, nil
	}
	if step, open := st.Step(); open {
		drafts = append(drafts, session.Draft{Type: session.TypeStepEnd, Data: session.StepRef{Turn: n, Step: step}})
	}
	return append(drafts, turnEnd(n, why)), &session.TurnEnd{Turn: n, Reason: why}
}

// missing is the result of a call that the turn's end leaves without one.
func missing(c session.Call, why session.Reason) session.Draft {
	code := session.CodeNotStarted
	var src session.Sources
	if c.Started != session.None {
		code, src = session.CodeOutcomeUnknown, session.Cite(c.Started)
	}
	msg := session.MissingResult(c, code)
	if code == session.CodeNotStarted {
		text := ""
		switch {
		case why.Kind == session.ReasonAborted:
			text = "The turn was cancelled before this call started. It did not run."
		case why.Kind == session.ReasonMaxTokens:
			text = "The answer was cut off at its token limit, so this call was not started. Ask for it again."
		case why.Error != nil && why.Error.Code == CodeNotSaved:
			text = "This call was not started, because the session's log could not be saved. It did not run."
		}
		if text != "" {
			msg.Content[0].Content = []message.Block{message.TextBlock(text)}
		}
	}
	return session.Draft{Type: session.TypeToolResult, Op: session.Append(), Sources: src, Data: session.ToolResult{
		Turn: c.Turn, Step: c.Step, Message: msg, Error: &session.ErrorInfo{Name: "Interrupted", Code: code},
	}}
}
