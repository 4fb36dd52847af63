package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/session"
)

// turn begins something and shows what the agent does until it is idle. Questions are put to the person, one
// after the other, in the order of asking.
func (t *chat) turn(ctx context.Context, begin func(context.Context) error) error {
	ag := t.work.Agent
	asked := make(chan struct{}, 1) // that there may be something to ask; the session says what
	show := t.c.shower("text", t.work, t.spin)
	print := show.Notice
	failed := agent.Notice{} // how the turn before ended, if a person should know
	show.Notice = func(n agent.Notice) {
		print(n)
		switch {
		case n.Kind == agent.NoticeAsk:
			select {
			case asked <- struct{}{}:
			default:
			}
		case n.Child != "":
		case n.Kind == agent.NoticeTurnEnd:
			t.keys.stopping.Store(false) // another Ctrl-C is for the next turn
			failed = n
		case n.Kind == agent.NoticeStatus && n.State == agent.StateRunning:
			if failed.Turn > 0 && failed.Code != session.ReasonCompleted && failed.Code != session.ReasonAborted {
				t.spin.print(false, func() { t.c.note("turn %d: %s: %s", failed.Turn, failed.Code, failed.Text) })
			}
			failed = agent.Notice{}
		}
	}
	finish := t.work.Watch(show)
	defer finish()
	t.spin.print(false, func() {}) // the person's line end moved the cursor
	t.spin.wait("waiting for the model")
	defer t.spin.wait("")
	if err := begin(ctx); err != nil {
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	var waits sync.WaitGroup
	defer waits.Wait()
	defer stop()
	whenIdle := func() <-chan struct{} {
		idle := make(chan struct{})
		waits.Go(func() {
			defer close(idle)
			_ = ag.WhenIdle(waiting) // fails only with waiting
		})
		return idle
	}
	idle, lines := whenIdle(), t.lines
	if !t.steers {
		lines = nil
	}
	for {
		select {
		case <-idle:
			if t.more && ctx.Err() == nil { // what was accepted meanwhile may have begun another turn
				t.more, idle = false, whenIdle()
				continue
			}
			return ended(t.work)
		case <-asked:
			if err := t.askAll(ctx, idle); err != nil {
				return err
			}
		case line, ok := <-lines:
			if !ok {
				lines = nil // the end of the input is met again when the turn is over
			} else if err := t.meanwhile(ctx, line); err != nil {
				return err
			}
		}
	}
}

// askAll puts all open questions to the person, those of subagents too, until idle; nil: until none is left.
func (t *chat) askAll(ctx context.Context, idle <-chan struct{}) error {
	for {
		select {
		case <-idle:
			return nil
		default:
		}
		asks := t.work.Asks()
		if len(asks) == 0 {
			return nil
		}
		if err := t.ask(ctx, idle, asks[0], len(asks)); err != nil {
			return err
		}
	}
}

const askHelp = `y          run it, this once
n [TEXT]   refuse it; TEXT tells the model why
a          always run exactly this without asking, in this session and its forks
a PREFIX   always run what begins with PREFIX, e.g. "a git status"
Ctrl-C     stop the turn: nothing that waits is run
Ctrl-D     leave; the question is asked again next time`

// ask puts a question to the person until it is answered, or until the turn that asked is over.
func (t *chat) ask(ctx context.Context, idle <-chan struct{}, q app.Ask, open int) error {
	whole := true
	number := t.asked.Add(1)
	print := func() bool {
		if !slices.ContainsFunc(t.work.Asks(), func(o app.Ask) bool { return o.AskID == q.AskID }) {
			return false // the turn was stopped, or a rule decided meanwhile
		}
		if whole { // all of it: what is cut off is not decided on
			text := brief.Visible(q.Subject)
			end := " "
			if strings.Contains(text, "\n") {
				text, end = "\n  "+strings.ReplaceAll(text, "\n", "\n  "), "\n"
			}
			who := ""
			if q.Agent != t.work.Agent {
				who = fmt.Sprintf("subagent %s: ", q.Agent.ID())
			}
			fmt.Fprint(t.c.out, t.c.paint(yellow, fmt.Sprintf("%smay %s run? %s", who, safeLine(q.Name), text)), end)
			if open > 1 {
				fmt.Fprintf(t.c.out, "(%d more wait) ", open-1)
			}
		}
		fmt.Fprint(t.c.out, t.c.paint(yellow, "[y/n/a/?] "))
		t.c.out.Flush()
		return true
	}
	for ; ; whole = false {
		t.spin.question(print)
		select {
		case <-ctx.Done():
			t.spin.answered(false)
			return context.Cause(ctx)
		case <-idle:
			t.spin.answered(false)
			return nil
		case line, ok := <-t.lines:
			t.spin.answered(ok)
			if !ok {
				return errQuit // the question stays open and is asked again
			}
			if !t.answers(line, number) {
				if idle == nil {
					t.later = append(t.later, line.text)
				} else if err := t.meanwhile(ctx, line); err != nil {
					return err
				}
				continue
			}
			again, err := t.answer(ctx, q, strings.TrimSpace(line.text))
			if errors.Is(err, agent.ErrAnswered) {
				return nil // the turn was stopped, or a rule decided meanwhile
			}
			if err != nil || !again {
				return err
			}
		}
	}
}

// answer does what the person says; again: the question is still open.
func (t *chat) answer(ctx context.Context, q app.Ask, line string) (again bool, err error) {
	word, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch word = strings.ToLower(word); {
	case rest != "" && (word == "y" || word == "yes"):
		t.tell("y stands alone: it runs exactly what is asked; n TEXT refuses it and tells the model why")
		return true, nil
	}
	switch word {
	case "y", "yes":
		return false, q.Agent.Answer(ctx, q.AskID, session.VerdictAllow, "")
	case "n", "no":
		return false, q.Agent.Answer(ctx, q.AskID, session.VerdictDeny, rest)
	case "a", "always":
		rule, err := q.Agent.AllowAlways(ctx, q.AskID, rest)
		if errors.Is(err, agent.ErrNoRule) {
			t.tell("no rule allows that: it does not begin so, or a shell would run more than one plain command; answer y for this once")
			return true, nil
		}
		if err == nil {
			t.tell("from now on allowed: %s", safeLine(rule.String()))
		}
		return false, err
	case "/quit", "/exit":
		return false, errQuit
	case "?", "h", "help", "/help":
		t.tell("%s", askHelp)
	default:
		t.tell("y runs it, n refuses it, ? says more")
	}
	return true, nil
}
