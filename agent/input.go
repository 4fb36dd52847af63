package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// Text returns a human's message of one text, without an id.
func Text(s string) message.Message { return message.User("", s) }

// Followup accepts m as the input of a turn of its own and wakes the agent. It returns m's id when m is
// synced, not when the turn ran. An error means that m was not accepted: nobody will work on it.
func (a *Agent) Followup(ctx context.Context, m message.Message) (id string, err error) {
	return a.accept(ctx, session.NextTurn, m, true)
}

// Steer is Followup for the next step of the turn that runs; without one it begins a turn.
func (a *Agent) Steer(ctx context.Context, m message.Message) (id string, err error) {
	return a.accept(ctx, session.NextStep, m, true)
}

// Inject is Steer without waking the agent: m joins the next step, whenever that comes.
func (a *Agent) Inject(ctx context.Context, m message.Message) (id string, err error) {
	return a.accept(ctx, session.NextStep, m, false)
}

func (a *Agent) accept(ctx context.Context, target session.Target, m message.Message, wake bool) (string, error) {
	if err := a.admitted(); err != nil {
		return "", err
	}
	m = m.Clone()
	def(&m.ID, a.opts.NewID())
	def(&m.Role, message.RoleUser)
	if m.Source.IsZero() {
		m.Source.Kind = message.SourceUser
	}
	switch {
	case m.Role != message.RoleUser:
		return "", fmt.Errorf("agent: input has the role %q, want user", m.Role)
	case len(m.Content) == 0:
		return "", errors.New("agent: the input is empty")
	}
	if a.h.Full() { // too much is unsaved already: first that, then more
		if err := a.save(ctx); err != nil {
			return "", err
		}
	}
	settle := a.accepting(m.ID)
	_, err := a.s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		return []session.Draft{{Type: session.TypeInboxSpliced, Data: session.InboxSpliced{
			Target: target, Start: len(st.Queue(target)), Inserted: []message.Message{m},
		}}}, nil
	})
	if err == nil {
		if err = a.save(ctx); err != nil {
			a.withdraw(target, m.ID)
		}
	}
	settle()
	if err != nil {
		return "", err
	}
	if wake {
		a.wake()
	}
	return m.ID, nil
}

// accepting keeps the message with an id from being claimed until the returned function is called: what is
// not acknowledged yet, and may have to be withdrawn, is not worked on.
func (a *Agent) accepting(id string) (settle func()) {
	a.inbox.Lock()
	defer a.inbox.Unlock()
	a.unsettled[id]++
	return func() {
		a.inbox.Lock()
		defer a.inbox.Unlock()
		if a.unsettled[id]--; a.unsettled[id] == 0 {
			delete(a.unsettled, id)
		}
	}
}

// claimable returns the acknowledged messages of a queue, at most n of them (negative: all), and the drafts that claim them.
func (a *Agent) claimable(st session.State, target session.Target, n int) (msgs []message.Message, drafts []session.Draft) {
	a.inbox.Lock()
	defer a.inbox.Unlock()
	start := 0 // of the run that is being claimed, as the queue is after the claims before it
	run := 0
	flush := func() {
		if run > 0 {
			drafts = append(drafts, session.Draft{Type: session.TypeInboxSpliced, Data: session.InboxSpliced{
				Target: target, Start: start, RemovedCount: run, Inserted: []message.Message{}, Outcome: session.OutcomeClaimed,
			}})
		}
		run = 0
	}
	for _, m := range st.Queue(target) {
		if len(msgs) == n {
			break
		}
		if a.unsettled[m.ID] > 0 {
			flush()
			start++
			continue
		}
		msgs = append(msgs, m)
		run++
	}
	flush()
	return msgs, drafts
}

// withdraw takes a message out of its queue again.
func (a *Agent) withdraw(target session.Target, id string) {
	// It fails only when the session takes no events any more: then nobody works on the message either.
	_, _ = a.s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		i := slices.IndexFunc(st.Queue(target), func(m message.Message) bool { return m.ID == id })
		if i < 0 {
			return nil, nil
		}
		return []session.Draft{{Type: session.TypeInboxSpliced, Data: session.InboxSpliced{
			Target: target, Start: i, RemovedCount: 1, Inserted: []message.Message{}, Outcome: session.OutcomeWithdrawn,
		}}}, nil
	})
}

// write appends what build returns and saves it. A *NotSavedError means that it is in memory only, so far.
func (a *Agent) write(ctx context.Context, build func(session.State) ([]session.Draft, error)) error {
	if err := a.admitted(); err != nil {
		return err
	}
	if _, err := a.s.AppendFunc(build); err != nil {
		return err
	}
	return a.save(ctx)
}

// SetTitle gives the session a title of the user's.
func (a *Agent) SetTitle(ctx context.Context, title string) error {
	return a.write(ctx, func(session.State) ([]session.Draft, error) {
		return []session.Draft{{Type: session.TypeTitle, Data: session.Title{Title: title, Source: sourceUser}}}, nil
	})
}

// SetRoute changes the model from the next request on, for this life and later ones.
func (a *Agent) SetRoute(ctx context.Context, r Route) error {
	if _, err := a.opts.Models.Provider(r.Provider); err != nil {
		return err
	}
	a.mu.Lock()
	a.cfg.Route = Route{} // from here on the session says it
	a.mu.Unlock()
	return a.write(ctx, func(st session.State) ([]session.Draft, error) {
		set := st.Settings()
		set.Provider, set.Model = r.Provider, r.Model
		return []session.Draft{{Type: session.TypeSettings, Data: set}}, nil
	})
}

// SetPolicy changes the approval policy for this life and later ones. Open questions that the new policy does
// not ask are decided by it.
func (a *Agent) SetPolicy(ctx context.Context, p tool.Policy) error {
	if _, err := tool.ParsePolicy(string(p)); err != nil {
		return err
	}
	a.mu.Lock()
	a.cfg.Policy = ""
	a.mu.Unlock()
	err := a.write(ctx, func(session.State) ([]session.Draft, error) {
		return []session.Draft{{Type: session.TypeApprovalPolicy, Data: session.ApprovalPolicy{Policy: string(p)}}}, nil
	})
	if err != nil {
		return err
	}
	if err := a.reconsiderAll(ctx); err != nil {
		return err
	}
	a.signalAnswer()
	if p != tool.PolicyAsk {
		a.wake() // a turn parked by an earlier life may go on now
	}
	return nil
}

// settings returns the draft of the settings that cfg changes, nil if it changes none.
func settings(cfg Config, st session.State) *session.Draft {
	set := st.Settings()
	changed := false
	if cfg.Route != (Route{}) && cfg.Route != (Route{set.Provider, set.Model}) {
		set.Provider, set.Model = cfg.Route.Provider, cfg.Route.Model
		changed = true
	}
	if rules := addRules(set.Rules, cfg.Rules); len(rules) > len(set.Rules) {
		set.Rules = rules
		changed = true
	}
	if !changed {
		return nil
	}
	return &session.Draft{Type: session.TypeSettings, Data: set}
}

// overrides returns the drafts that make this life's configuration the session's own.
func overrides(cfg Config, st session.State) []session.Draft {
	var drafts []session.Draft
	if set := settings(cfg, st); set != nil {
		drafts = append(drafts, *set)
	}
	if cfg.Policy != "" && string(cfg.Policy) != st.ApprovalPolicy() {
		drafts = append(drafts, session.Draft{Type: session.TypeApprovalPolicy, Data: session.ApprovalPolicy{Policy: string(cfg.Policy)}})
	}
	return drafts
}

// Answer decides an open question, named by its ask id or its call id. It returns when the answer is synced
// and wakes the agent. The first answer wins: ErrAnswered for every other, and for a question that nobody asked.
func (a *Agent) Answer(ctx context.Context, id string, verdict, reason string) error {
	if err := a.decide(id, session.ApprovalDecided{Verdict: verdict, By: session.ByUser, Reason: reason}); err != nil {
		return err
	}
	if err := a.save(ctx); err != nil {
		return err
	}
	a.wake()
	return nil
}

// decide records an answer and tells the runner.
func (a *Agent) decide(id string, d session.ApprovalDecided) error {
	return a.decideWith(id, d, func(session.State, session.Ask) []session.Draft { return nil })
}

// decideWith is decide with further events, right before the answer.
func (a *Agent) decideWith(id string, d session.ApprovalDecided, before func(session.State, session.Ask) []session.Draft) error {
	if err := a.admitted(); err != nil {
		return err
	}
	_, err := a.s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		q, ok := findAsk(st.Asks(), id)
		if !ok {
			return nil, notOpen(id)
		}
		d.AskID, d.CallID = q.AskID, q.CallID
		return append(before(st, q), session.Draft{Type: session.TypeApprovalDecided, Data: d}), nil
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.answers[d.AskID] = d
	a.mu.Unlock()
	a.feed.push(Notice{Kind: NoticeAnswered, AskID: d.AskID, CallID: d.CallID, Code: d.Verdict})
	a.signalAnswer()
	return nil
}

// signalAnswer wakes the calls that wait for an answer.
func (a *Agent) signalAnswer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.answered)
	a.answered = make(chan struct{})
}

// Undo hides the last visible turn from the model and returns its number; Redo takes that back. Nothing is
// deleted. session.ErrOpenTurn while a turn is open, session.ErrNothing when there is none.
func (a *Agent) Undo(ctx context.Context) (turn int, err error) {
	err = a.write(ctx, func(st session.State) ([]session.Draft, error) {
		drafts, n, err := st.UndoDrafts()
		turn = n
		return drafts, err
	})
	return turn, err
}

// Redo takes back the newest Undo and returns the turn's number.
func (a *Agent) Redo(ctx context.Context) (turn int, err error) {
	errMoved := errors.New("the log moved on")
	for {
		log := a.s.Events() // taken outside: the session cannot be asked while it appends
		err = a.write(ctx, func(st session.State) ([]session.Draft, error) {
			if st.Next() != log.Len() {
				return nil, errMoved
			}
			drafts, n, err := st.RedoDrafts(log)
			turn = n
			return drafts, err
		})
		if !errors.Is(err, errMoved) {
			return turn, err
		}
	}
}
