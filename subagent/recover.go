package subagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// takeUp is the agents' hook before a turn: the children of earlier lives that the parent was not told of are
// settled, or go on. Without an open bracket it costs nothing.
func (d *Delegation) takeUp(ctx context.Context, a *agent.Agent) { d.eachLeft(ctx, a, d.recover) }

// TakeUp goes on with the children of earlier lives that wait for a person, so that their questions can be asked before
// the first turn. Nothing is written by that: how others ended is told with the next turn. Not while a turn runs.
func (d *Delegation) TakeUp(ctx context.Context, a *agent.Agent) {
	d.eachLeft(ctx, a, func(ctx context.Context, p *agent.Agent, b session.Bracket, start Start) {
		child, err := d.agents.Resume(ctx, start.ChildID, agent.Config{})
		if err != nil {
			return // it is looked at again with the next turn, which says why
		}
		if !isChild(child.Session().Header(), p.ID()) || !child.Session().State().Parked() || !d.goOn(ctx, p, child, start) {
			_ = child.Dispose(context.WithoutCancel(ctx)) // nothing was written; if it cannot be let go, the end of the process does
		}
	})
}

// eachLeft calls f for each child that the parent was not told of and that does not live here.
func (d *Delegation) eachLeft(ctx context.Context, a *agent.Agent, f func(context.Context, *agent.Agent, session.Bracket, Start)) {
	st := a.Session().State()
	all, open := brackets(st)
	if open == 0 || ctx.Err() != nil {
		return
	}
	for _, b := range all {
		if b.Close != session.None {
			continue
		}
		ev, err := a.Session().At(b.Open)
		if err != nil {
			continue // it is asked again before the next turn
		}
		start, err := session.DecodeData[Start](ev)
		if err != nil {
			continue
		}
		if _, here := d.get(start.ChildID); !here {
			f(ctx, a, b, start)
		}
	}
}

// goOn runs a child on that waits for a person, or for somebody to carry an answer out.
func (d *Delegation) goOn(ctx context.Context, p, a *agent.Agent, start Start) bool {
	ch := &child{id: start.ChildID, start: start, parent: p, agent: a, limit: d.opt.Limit, done: make(chan struct{})}
	if start.LimitMs > 0 {
		ch.limit = d.atMost(start.LimitMs, time.Millisecond)
	}
	if err := a.Kick(ctx); err != nil {
		d.shutOut(p, start.ChildID, err)
		return false
	}
	d.follow(ch)
	return true
}

// recover looks at a child that does not live here. Only what stays true settles it: how its log ends, that there is
// none, that it is another's. A log that cannot be opened now - a medium that fails, no permission, damage that a repair
// may mend, a newer program's - is asked again before the next turn, and that is said.
func (d *Delegation) recover(ctx context.Context, p *agent.Agent, b session.Bracket, start Start) {
	known, err := wasTold(p.Session(), b, start.ChildID) // then the process died between the two records
	if err != nil {
		d.shutOut(p, start.ChildID, err)
		return
	}
	tell := func(e ending) { d.tell(p, start, e, known) }
	a, err := d.agents.Resume(ctx, start.ChildID, agent.Config{})
	switch {
	case errors.Is(err, store.ErrNotFound):
		const gone = "there is no log of it: it had not begun, or its log was deleted, and then nothing says what it did"
		tell(ending{End: End{ChildID: start.ChildID, Outcome: OutcomeInterrupted, Detail: gone}})
		return
	case errors.Is(err, store.ErrBusy), err != nil && ctx.Err() != nil:
		return // it runs, in another process; or nobody wants to know any more
	case err != nil:
		d.shutOut(p, start.ChildID, err)
		return
	}
	d.mu.Lock()
	delete(d.shut, start.ChildID)
	d.mu.Unlock()
	if !isChild(a.Session().Header(), p.ID()) { // an imported log, or one that somebody made, names what it likes
		if a.Dispose(context.WithoutCancel(ctx)) == nil {
			tell(ending{End: End{ChildID: start.ChildID, Outcome: OutcomeFailed, Detail: "it is no subagent of this session"}})
		}
		return
	}
	if a.Session().State().Parked() && d.goOn(ctx, p, a, start) {
		return
	}
	e, over, err := outcome(a.Session())
	if err != nil {
		d.shutOut(p, start.ChildID, err)
	}
	if lost := a.Dispose(context.WithoutCancel(ctx)); lost != nil || err != nil || !over {
		return
	}
	tell(e)
}

// shutOut notes why a child cannot be looked at, and says it once for each reason.
func (d *Delegation) shutOut(p *agent.Agent, id session.ID, err error) {
	why := validText(err.Error())
	d.mu.Lock()
	said := d.shut[id] == why
	d.shut[id] = why
	d.mu.Unlock()
	if !said {
		p.Tell(agent.Notice{Kind: agent.NoticeRemark, Text: fmt.Sprintf("how subagent %s ended cannot be seen now: %s; it is tried again before the next turn", id, why)})
	}
}

// isChild reports whether a session is a subagent of parent. Its own header says so: what a parent's log says of
// others gives it no right to read or to run them.
func isChild(h session.Header, parent session.ID) bool {
	return h.Kind == session.KindSubagent && h.Parent != nil && h.Parent.ID == parent
}

// wasTold reports whether a parent's log tells how a child ended, behind the child's start.
func wasTold(s *session.Session, b session.Bracket, id session.ID) (bool, error) {
	log := s.Events()
	for ev, err := range log.Range(b.Open+1, log.Len()) {
		if err != nil {
			return false, err
		}
		switch ev.Type {
		case session.TypeInboxSpliced:
			d, err := session.DecodeData[session.InboxSpliced](ev)
			if err == nil && slices.ContainsFunc(d.Inserted, func(m message.Message) bool { return m.ID == noticeID(id) }) {
				return true, nil
			}
		case session.TypeToolResult:
			d, err := session.DecodeData[session.ToolResult](ev)
			var m metaData
			if err != nil || len(d.Meta) == 0 || json.Unmarshal(d.Meta, &m) != nil {
				continue
			}
			if slices.ContainsFunc(m.Subagents, func(c mention) bool { return c.ID == id && c.Outcome != "" }) {
				return true, nil
			}
		}
	}
	return false, nil
}

func (d *Delegation) shutOf(id session.ID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shut[id]
}

// statement says which children of a session are not over; "" if all are.
func (d *Delegation) statement(s *session.Session) (string, error) {
	lines, err := d.lines(s, true)
	if err != nil || len(lines) == 0 {
		return "", err
	}
	return "Your subagents that are not done yet; you get the answer of each as a message:\n" + strings.Join(lines, "\n"), nil
}

// listed is how many ended children a list names.
const listed = 20

func (d *Delegation) list(s *session.Session) (string, error) {
	lines, err := d.lines(s, false)
	if err != nil {
		return "", err
	}
	if len(lines) == 0 {
		return "This session has had no subagents.", nil
	}
	return strings.Join(lines, "\n"), nil
}

// lines describes the children of a session, one a line: those that are not over, and unless living the last ones
// that are.
func (d *Delegation) lines(s *session.Session, living bool) ([]string, error) {
	all := Brackets(s.State())
	ended := 0
	var out []string
	for _, b := range slices.Backward(all) {
		if b.Close != session.None {
			if ended++; living || ended > listed {
				continue
			}
		}
		ev, err := s.At(b.Open)
		if err != nil {
			return nil, err
		}
		start, err := session.DecodeData[Start](ev)
		if err != nil {
			return nil, err
		}
		state := "runs"
		if b.Close != session.None {
			ev, err := s.At(b.Close)
			if err != nil {
				return nil, err
			}
			end, err := session.DecodeData[End](ev)
			if err != nil {
				return nil, err
			}
			state = string(end.Outcome)
		} else if ch, ok := d.get(start.ChildID); ok {
			if len(ch.agent.Session().State().Asks()) > 0 {
				state = "waits for a person's approval"
			}
		} else if why := d.shutOf(start.ChildID); why != "" {
			state = "its log cannot be opened now: " + clip(why, 200)
		} else {
			state = "is not run by this process"
		}
		line := fmt.Sprintf("- %s: %s", start.ChildID, state)
		if start.Description != "" {
			line += " (" + start.Description + ")"
		}
		out = append(out, line)
	}
	slices.Reverse(out)
	return out, nil
}
