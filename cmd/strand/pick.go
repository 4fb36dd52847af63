package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// pickRows is how many sessions are offered at once.
const pickRows = 20

// picker offers the sessions of the project to a chat. Looking writes nothing.
type picker struct {
	shown []session.ID // by number, from 1
	first bool         // the next line is a choice: the chat began with the list
}

// sessions shows the sessions of the project that this one is of, or goes on in the one that arg names: by its number in the list that was
// shown last, by its id or the beginning of it, or by words of its title. Words that fit several show these.
func (t *chat) sessions(ctx context.Context, arg string) error {
	if arg == "" {
		return t.offer(ctx, nil)
	}
	if n, err := strconv.Atoi(arg); err == nil && n >= 1 && n <= len(t.pick.shown) {
		return t.goInto(ctx, t.pick.shown[n-1])
	}
	words := strings.Fields(search.Fold(arg))
	if len(words) == 1 {
		id, _, err := t.a.Resolve(ctx, arg, app.Project{})
		if err == nil && arg != app.Last {
			return t.goInto(ctx, id)
		}
		if _, several := errors.AsType[*app.AmbiguousError](err); several {
			return err
		}
	}
	return t.offer(ctx, words)
}

// offer lists the sessions whose titles have all words in them. With words that fit one alone it goes on in that.
func (t *chat) offer(ctx context.Context, words []string) error {
	h := t.work.Agent.Session().Header()
	q := app.ListQuery{Projects: app.ProjectOf(cmp.Or(h.Project, h.Cwd)).Names, Limit: pickRows}
	if len(words) > 0 {
		q.Title, q.Limit = words[0], 0
	}
	l, err := t.a.List(ctx, q)
	if err != nil {
		return err
	}
	rows := slices.DeleteFunc(l.Rows, func(r app.Row) bool {
		title := search.Fold(r.Title)
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(title, w) })
	})
	switch {
	case len(words) > 0 && len(rows) == 0:
		return &app.UsageError{What: "/sessions " + strings.Join(words, " "), Why: "no session of this project is called so", Hint: "/sessions lists them; strand search finds what was said"}
	case len(words) > 0 && len(rows) == 1:
		return t.goInto(ctx, rows[0].ID)
	case len(words) > 0:
		l.Total = len(rows)
	}
	rows = rows[:min(len(rows), pickRows)]
	t.pick.shown = nil
	t.spin.print(false, func() {
		for i, r := range rows {
			t.pick.shown = append(t.pick.shown, r.ID)
			fmt.Fprintln(t.c.out, t.c.pickLine(i+1, r, r.ID == t.work.Agent.ID(), time.Now()))
		}
		t.c.out.Flush()
		if len(rows) == 0 {
			t.c.hint("no sessions in this project yet; strand ls --any-project shows all")
		}
		if l.Total > len(rows) {
			t.c.note("%d of %d; words of a title show fewer: /sessions WORDS", len(rows), l.Total)
		}
		if hidden := hiddenText(l.Hidden); hidden != "" {
			t.c.note("%s hidden; strand ls --all shows them", hidden)
		}
		switch {
		case t.pick.first:
			t.c.hint("a number, an id or words of a title choose; an empty line begins a new session")
		case len(rows) > 0:
			t.c.hint("/sessions NUMBER goes on there, and so do an id or words of its title")
		}
	})
	return nil
}

// goInto goes on in another session as it is: what this chat was told of models and approval was said of another.
func (t *chat) goInto(ctx context.Context, id session.ID) error {
	t.pick.first = false
	if id == t.work.Agent.ID() {
		t.tell("you are in it")
		return nil
	}
	opt := app.WorkOptions{
		Session: id, Script: t.opt.Script, Config: t.opt.Config, Here: t.opt.Here, Default: t.opt.Default,
		NoSubagents: t.opt.NoSubagents, MaxSteps: t.opt.MaxSteps,
	}
	left := t.work.Agent
	switch err := t.goTo(ctx, opt); {
	case errors.Is(err, store.ErrBusy): // the other one is: this one goes on
		t.spin.print(false, func() { explain("", err).print(t.c.err, false) })
		return nil
	case err != nil:
		return err
	}
	t.opt = opt
	st := t.work.Agent.Session().State()
	title := cmp.Or(safeLine(st.Title().Title), "(no title)")
	if left.Session().Head() > 0 {
		t.tell("left %s", left.ID())
	}
	t.tell("now in %s, %s, %s", id, turns(st.Turns()), title)
	return t.takeUp(ctx)
}

// choice takes the line of a person who was offered the list at the beginning.
func (t *chat) choice(ctx context.Context, line string) error {
	if line == "" {
		t.pick.first = false
		t.tell("a new session")
		return nil
	}
	return t.sessions(ctx, line)
}

// pickLine is a row of the list of a chat.
func (c *cli) pickLine(n int, r app.Row, here bool, now time.Time) string {
	mark := " "
	if here {
		mark = "*"
	}
	if !r.Readable() {
		return fmt.Sprintf("%s%3d  %s  %s", mark, n, c.paint(red, safeLine(fmt.Sprintf("%s: %s", r.State, r.Reason))), c.paint(dim, string(r.ID)))
	}
	state := string(r.Activity)
	if r.Activity == app.ActivityIdle {
		if state = ""; r.Holder != nil {
			state = "open"
		}
	}
	if state != "" {
		state = " (" + state + ")"
	}
	return fmt.Sprintf("%s%3d  %6s  %s%s  %s", mark, n, age(r.LastActivity, now), brief.Clip(cmp.Or(safeLine(r.Title), "(no title)"), 60), state, c.paint(dim, string(r.ID)))
}

// age is how long ago a time of a log was. An imported log may not know its times.
func age(ms int64, now time.Time) string {
	d := now.Sub(time.UnixMilli(ms))
	switch {
	case ms <= 0:
		return "?"
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
