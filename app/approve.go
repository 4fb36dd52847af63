package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// Question is a call that waits for a person.
type Question struct {
	CallID  string      `json:"callId"`
	AskID   string      `json:"askId"` // names the question also when the model gave two calls one id
	Name    string      `json:"name"`
	Subject string      `json:"subject"` // what would be done: the command, the path
	Since   int64       `json:"since"`   // Unix milliseconds
	Seq     session.Seq `json:"seq"`     // of the question
	Turn    int         `json:"turn"`
}

// questions returns what is open, in the order of asking; never nil.
func questions(st session.State) []Question {
	out := []Question{}
	for _, q := range st.Asks() {
		out = append(out, Question{q.CallID, q.AskID, q.Name, q.Subject, q.Time, q.Seq, q.Turn})
	}
	return out
}

// Questions returns the calls that wait for a person, in the order of asking.
func (i *Inspection) Questions() []Question { return questions(i.State) }

// waitText says what waits, for one line.
func waitText(qs []Question) string {
	var what []string
	for _, q := range qs {
		what = append(what, strings.TrimSpace(fmt.Sprintf("%s (call %s) %s", q.Name, q.CallID, brief.Clip(strings.Join(strings.Fields(q.Subject), " "), 200))))
	}
	if len(qs) == 1 {
		return "waits for a person's approval: " + what[0]
	}
	return fmt.Sprintf("%d calls wait for a person's approval: %s", len(qs), strings.Join(what, "; "))
}

// Choose finds the question that an answer to call ("": the only one) is about. Errors are those of App.Answer.
func (i *Inspection) Choose(call string) (Question, error) {
	return choose(i.Stat.ID, call, i.Questions(), i.Prefix)
}

// Answer says how to answer which call.
type Answer struct {
	Call   string // the id of the call or of the question; "": the only one that waits
	Deny   bool
	Reason string
	Rules  []tool.Rule // added to those of the session together with the answer
}

// Answered is what became of an answer. Waiting is what is still open.
type Answered struct {
	SessionID session.ID `json:"sessionId"`
	CallID    string     `json:"callId"`
	AskID     string     `json:"askId"`
	Name      string     `json:"name"`
	Verdict   string     `json:"verdict"`
	Waiting   []Question `json:"waiting"`
}

// ErrNothingWaits says that no call of a session waits for a person.
var ErrNothingWaits = errors.New("no call waits for a person")

// SeveralWaitError says that an answer does not tell which call it means.
type SeveralWaitError struct {
	ID        session.ID
	Questions []Question
}

func (e *SeveralWaitError) Error() string {
	return fmt.Sprintf("%d calls wait for a person", len(e.Questions))
}

// AnsweredError says that somebody else was first.
type AnsweredError struct {
	Call    string
	Verdict string
	By      string
	At      int64 // Unix milliseconds
}

func (e *AnsweredError) Error() string {
	return fmt.Sprintf("the call %s was answered before: %s, by %s", e.Call, e.Verdict, e.By)
}

// NoCallError says that nobody asked about a call.
type NoCallError struct {
	ID   session.ID
	Call string
}

func (e *NoCallError) Error() string {
	return fmt.Sprintf("no call %q of session %s waits or waited for a person", e.Call, e.ID)
}

// Answer records an answer to a call that waits. When it returns the answer is synced, and the session is let go:
// nothing is run. Whoever works on the session next carries it out (Begin, Agent.Kick). Errors: *store.BusyError
// while another process has the session, ErrNothingWaits, *SeveralWaitError, *AnsweredError, *NoCallError.
func (a *App) Answer(ctx context.Context, id session.ID, ans Answer) (Answered, error) {
	out := Answered{SessionID: id, Verdict: session.VerdictAllow}
	if ans.Deny {
		out.Verdict = session.VerdictDeny
	}
	err := a.change(ctx, id, func(s *session.Session) error {
		log := s.Events()
		_, err := s.AppendFunc(func(st session.State) ([]session.Draft, error) {
			q, err := choose(id, ans.Call, questions(st), log)
			if err != nil {
				return nil, err
			}
			out.CallID, out.AskID, out.Name = q.CallID, q.AskID, q.Name
			var drafts []session.Draft
			if d, ok := agent.AddRules(st, ans.Rules); ok {
				drafts = append(drafts, d)
			}
			return append(drafts, session.Draft{Type: session.TypeApprovalDecided, Data: session.ApprovalDecided{
				AskID: q.AskID, CallID: q.CallID, Verdict: out.Verdict, By: session.ByUser, Reason: ans.Reason,
			}}), nil
		})
		out.Waiting = questions(s.State())
		return err
	})
	return out, err
}

// choose finds the question that call names.
func choose(id session.ID, call string, open []Question, log session.Prefix) (Question, error) {
	if call == "" {
		switch len(open) {
		case 0:
			return Question{}, ErrNothingWaits
		case 1:
			return open[0], nil
		}
		return Question{}, &SeveralWaitError{id, open}
	}
	var named []Question
	for _, q := range open {
		if q.AskID == call {
			return q, nil
		}
		if q.CallID == call {
			named = append(named, q)
		}
	}
	switch len(named) {
	case 0:
		return Question{}, whatBecameOf(id, call, log)
	case 1:
		return named[0], nil
	}
	return Question{}, &SeveralWaitError{id, named}
}

// whatBecameOf says why a call does not wait: it was answered, it was settled otherwise, or nobody asked.
func whatBecameOf(id session.ID, call string, log session.Prefix) error {
	asked := map[string]bool{}
	var last error = &NoCallError{id, call}
	for ev, err := range log.Range(0, log.Len()) {
		if err != nil {
			return err
		}
		switch ev.Type {
		case session.TypeApprovalAsked:
			if q, err := session.DecodeData[session.ApprovalAsked](ev); err == nil && (q.CallID == call || q.AskID == call) {
				asked[q.AskID] = true
				last = &AnsweredError{Call: call, Verdict: "without an answer", By: "the end of its turn", At: ev.Time}
			}
		case session.TypeApprovalDecided:
			if d, err := session.DecodeData[session.ApprovalDecided](ev); err == nil && asked[d.AskID] {
				last = &AnsweredError{Call: call, Verdict: d.Verdict, By: d.By, At: ev.Time}
			}
		}
	}
	return last
}

// CancelTurn ends a turn that waits for a person, or that nobody finished: its questions are denied, what did not
// start is said to be so. It returns the number of the turn. ErrNothingWaits if no turn is open.
func (a *App) CancelTurn(ctx context.Context, id session.ID) (turn int, err error) {
	err = a.change(ctx, id, func(s *session.Session) error {
		_, err := s.AppendFunc(func(st session.State) ([]session.Draft, error) {
			drafts := agent.CancelParked(st)
			if drafts == nil {
				return nil, ErrNothingWaits
			}
			turn, _ = st.Turn()
			return drafts, nil
		})
		return err
	})
	return turn, err
}

// Rules reads approval rules in their short form, TOOL or TOOL:PREFIX, as command lines and configuration files
// give them.
func Rules(allow, deny []string) ([]tool.Rule, error) {
	var out []tool.Rule
	for _, l := range []struct {
		flag   string
		action tool.Action
		list   []string
	}{{"--allow", tool.Allow, allow}, {"--deny", tool.Deny, deny}} {
		for _, s := range l.list {
			r, err := tool.ParseRule(l.action, s)
			if err != nil {
				return nil, &UsageError{l.flag + " " + s, err.Error(), "for example " + l.flag + " 'bash:git status'"}
			}
			out = append(out, r)
		}
	}
	return out, nil
}
