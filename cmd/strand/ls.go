package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/session"
)

// screenRows is how many sessions a terminal gets when nobody says how many.
const screenRows = 50

func (c *cli) lsCmd() *cobra.Command {
	var all, anyProject, trash bool
	var q app.ListQuery
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List sessions, last worked on first",
		Long: "Lists the sessions of this project (the git repository around the working directory with all its work trees,\n" +
			"else the directory itself; also when the folder was renamed), last worked on first. A session that cannot be read is a row with the reason.\n" +
			"With --json one object per line, and last {\"next\",\"hidden\",\"total\"}.",
		Example: "  strand ls\n  strand ls --any-project --limit 10\n  strand ls --title parser\n  strand ls --trash --any-project\n  strand ls --json | jq -r 'select(.activity==\"interrupted\") | .id'",
		Args:    cobra.NoArgs,
		RunE: c.does(func(cmd *cobra.Command, _ []string) (err error) {
			if q.Limit < 0 {
				return &app.UsageError{What: "--limit", Why: "it is below 0", Hint: "0 means no limit"}
			}
			if q.Projects, err = c.projects(anyProject); err != nil {
				return err
			}
			q.All = all
			if !cmd.Flags().Changed("limit") && c.outTerm && !c.json {
				q.Limit = screenRows
			}
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			if trash && q.Title != "" {
				return &app.UsageError{What: "--title", Why: "the trash is not looked through by title", Hint: "strand ls --trash lists it all"}
			}
			if trash {
				return c.lsTrash(cmd.Context(), a, q, anyProject)
			}
			spin := c.newSpinner()
			q.Progress = func(done, total int) { spin.wait("reading %d of %d sessions", done, total) }
			l, err := a.List(cmd.Context(), q)
			spin.stop()
			if err != nil {
				return err
			}
			if c.json {
				for _, r := range l.Rows {
					if err := c.object(r); err != nil {
						return err
					}
				}
				return c.object(l)
			}
			c.printList(l, anyProject)
			return nil
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "also those that programs made (subagents, headless runs)")
	f.BoolVar(&trash, "trash", false, "what is in the trash, of all kinds")
	f.BoolVar(&anyProject, "any-project", false, "of all projects")
	f.IntVar(&q.Limit, "limit", 0, "at most `N` (0 = all; on a terminal the default is 50)")
	f.StringVar(&q.Title, "title", "", "those whose title holds `TEXT`")
	f.StringVar(&q.Cursor, "cursor", "", "go on where a page ended (`NEXT` of its last line)")
	f.StringVar(&c.cwd, "project", "", "of the project that `DIR` belongs to")
	return cmd
}

func (c *cli) lsTrash(ctx context.Context, a *app.App, q app.ListQuery, anyProject bool) error {
	l, err := a.Trash(ctx, q)
	if err != nil {
		return err
	}
	if !c.json {
		c.printTrash(l, anyProject)
		return nil
	}
	for _, r := range l.Rows {
		if err := c.object(r); err != nil {
			return err
		}
	}
	return c.object(l)
}

func (c *cli) printList(l app.List, anyProject bool) {
	for _, r := range l.Rows {
		fmt.Fprintln(c.out, c.rowLine(r, anyProject))
		if n := len(r.Waiting); n > 0 {
			q := r.Waiting[0]
			more := ""
			if n > 1 {
				more = fmt.Sprintf(" (and %d more)", n-1)
			}
			fmt.Fprintf(c.out, "%-20s  %s\n", "", c.paint(yellow, fmt.Sprintf("since %s: may %s run?%s  strand approve %s", when(q.Since), brief.Clip(safeLine(q.Name+" "+q.Subject), 80), more, r.ID)))
		}
	}
	switch {
	case len(l.Rows) == 0 && anyProject:
		c.hint("no sessions yet; begin one with strand run")
	case len(l.Rows) == 0:
		c.hint("no sessions in this project yet; strand ls --any-project shows all")
	case l.Next != "":
		c.note("%d of %d; more with --limit 0, or --cursor %s", len(l.Rows), l.Total, l.Next)
	}
	if hidden := hiddenText(l.Hidden); hidden != "" {
		c.note("%s hidden; --all shows them", hidden)
	}
}

// hiddenText counts the sessions that a list leaves out; "": none.
func hiddenText(counts map[session.SessionKind]int) string {
	var hidden []string
	for k, n := range counts {
		if n > 0 {
			what := string(k)
			if k == session.KindSubagent && n > 1 {
				what += "s"
			}
			hidden = append(hidden, fmt.Sprintf("%d %s", n, what))
		}
	}
	slices.Sort(hidden)
	return strings.Join(hidden, ", ")
}

func (c *cli) rowLine(r app.Row, anyProject bool) string {
	if !r.Readable() {
		return fmt.Sprintf("%-20s  %s", r.ID, c.paint(red, safeLine(fmt.Sprintf("%s: %s", r.State, r.Reason))))
	}
	title := safeLine(r.Title)
	if title == "" {
		title = "(no title)"
	}
	state := ""
	switch {
	case r.Activity == app.ActivityRunning:
		state = c.paint(green, "running ")
	case r.Holder != nil:
		state = c.paint(green, "open ")
	case r.Activity == app.ActivityWaiting:
		state = c.paint(yellow, "waiting ")
	case r.Activity == app.ActivityInterrupted:
		state = c.paint(yellow, "interrupted ")
	}
	tail := ""
	if r.Kind != session.KindRoot {
		tail += " " + string(r.Kind)
	}
	if r.Parent != nil {
		tail += " of " + string(r.Parent.ID)
		if r.Parent.Seq != session.None { // of a subagent that began empty
			tail += fmt.Sprintf("@%d", r.Parent.Seq)
		}
	}
	if anyProject {
		tail += " " + r.Project
	}
	if tail != "" {
		tail = " " + safeLine(tail)
	}
	return fmt.Sprintf("%-20s  %s  %3s  %s%s%s", r.ID, when(r.LastActivity), turns(r.Turns), state, brief.Clip(title, 60), c.paint(dim, tail))
}

func turns(n int) string { return fmt.Sprintf("%dt", n) }

// when prints a time of a log in the user's zone. An imported log may not know its times.
func when(ms int64) string {
	if ms <= 0 {
		return "time unknown    "
	}
	return time.UnixMilli(ms).Local().Format("2006-01-02 15:04")
}

// projects returns the names of the project whose sessions are asked for, nil for any: what --project and
// --any-project say.
func (c *cli) projects(anyProject bool) ([]string, error) {
	if anyProject && c.cwd != "" {
		return nil, &app.UsageError{What: "--project", Why: "it contradicts --any-project", Hint: "give one of them"}
	}
	if anyProject {
		return nil, nil
	}
	cwd, err := app.CheckProject(c.cwd)
	if err != nil {
		return nil, err
	}
	return app.ProjectOf(cwd).Names, nil
}
