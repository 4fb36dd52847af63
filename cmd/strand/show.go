package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

type showFlags struct {
	events, stat bool
	view         string
	from, to, at int64
}

func (c *cli) showCmd() *cobra.Command {
	var o showFlags
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a session: transcript, events, view or facts",
		Long: "Shows a session without touching it. The transcript has the messages as they were appended, hidden ones\n" +
			"marked. --at shows everything as it was right after that event.\n" +
			"--stat counts what the log holds; with --json also what the session did itself, without what it inherited (own..),\n" +
			"and together with its subagents (tree). modelMs and toolMs are of what was done itself. What is unknown is left out.",
		Example: "  strand show last\n  strand show 7f3k --events --from 100\n  strand show 7f3k --stat --json\n  strand show 7f3k --view openai --at 41",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: c.completeID,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return c.withSession(cmd.Context(), args[0], func(a *app.App, id session.ID) error {
				var at *session.Seq
				if cmd.Flags().Changed("at") {
					at = (*session.Seq)(&o.at)
				}
				inspect := a.InspectWhole
				if o.stat || o.view != "" {
					inspect = a.Inspect
				}
				ins, err := inspect(cmd.Context(), id, at)
				if err != nil {
					return err
				}
				err = c.show(cmd.Context(), a, ins, o)
				if errors.Is(err, store.ErrDamaged) && ins.Behind() { // met only now: nothing was shown yet
					_ = ins.Close()
					if ins, err = a.InspectWhole(cmd.Context(), id, at); err != nil {
						return err
					}
					err = c.show(cmd.Context(), a, ins, o)
				}
				defer ins.Close()
				if err != nil {
					return err
				}
				if err := c.out.Flush(); err != nil {
					return err
				}
				if types := ins.State.Unknown(); len(types) > 0 {
					c.note("it can be read, not gone on with: %s", (&session.UnsupportedError{Types: types}).Reason())
				}
				return ins.Err()
			})
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&o.events, "events", false, "the events as they are stored, one JSON object per line")
	f.StringVar(&o.view, "view", "", "the messages as they would be sent to `PROVIDER`, as JSON")
	f.BoolVar(&o.stat, "stat", false, "the facts: size, turns, work and time, usage, brackets, open calls, boundaries")
	f.Int64Var(&o.from, "from", 0, "first `SEQ` of transcript or events")
	f.Int64Var(&o.to, "to", -1, "last `SEQ` of transcript or events")
	f.Int64Var(&o.at, "at", -1, "as it was right after the event `SEQ`")
	cmd.MarkFlagsMutuallyExclusive("events", "view", "stat")
	return cmd
}

func (o showFlags) check() error {
	switch {
	case o.from < 0:
		return &app.UsageError{What: "--from", Why: "a seq is 0 or more", Hint: "see strand show ID --stat for the number of events"}
	case o.to < -1 || o.to >= 0 && o.to < o.from:
		return &app.UsageError{What: "--to", Why: "it lies before --from", Hint: "give the last seq that you want"}
	}
	return nil
}

func (c *cli) show(ctx context.Context, a *app.App, ins *app.Inspection, o showFlags) error {
	from, to := session.Seq(o.from), ins.Prefix.Len()
	if o.to >= 0 {
		to = min(to, session.Seq(o.to)+1)
	}
	switch {
	case o.events:
		var buf []byte
		for ev, err := range ins.Prefix.Range(min(from, to), to) {
			if err != nil {
				return err
			}
			buf = app.AppendEvent(buf[:0], ev)
			if err := c.line(buf); err != nil {
				return err
			}
		}
		return nil
	case o.view != "":
		messages, err := ins.View(o.view)
		if err != nil {
			return err
		}
		return c.object(messages)
	}
	if o.stat || !c.json && ins.Snap.Header.ID != "" { // without a header there is nothing to show
		report, err := ins.Report()
		if err != nil {
			return err
		}
		if report.Lineage, err = a.Lineage(ctx, ins); err != nil {
			return err
		}
		if o.stat {
			cfg, err := app.LoadConfig(c.config, ins.Snap.Header.Cwd)
			if err != nil && c.config != "" {
				return err // else looking does not depend on it: what the catalogue knows is said
			}
			if err := a.Totals(ctx, ins, cfg, &report); err != nil {
				return err
			}
		}
		switch {
		case o.stat && c.json:
			return c.object(report)
		case o.stat:
			c.printStat(report)
			return nil
		}
		c.printHead(report)
	}
	for e, err := range ins.Transcript(min(from, to), to, a.Registry) {
		if err != nil {
			return err
		}
		if c.json {
			if err := c.object(e); err != nil {
				return err
			}
			continue
		}
		c.printEntry(e)
	}
	if !c.json {
		c.printTail(ins)
	}
	return nil
}

func (c *cli) printHead(s app.Stat) {
	title := safeLine(s.Title)
	if title == "" {
		title = "(no title)"
	}
	fmt.Fprintln(c.out, c.paint(bold, title))
	line := fmt.Sprintf("%s · %s · %s · %s", s.ID, s.Header.Kind, when(s.Header.CreatedAt), s.Header.Cwd)
	if p := s.Header.Parent; p != nil {
		line += fmt.Sprintf(" · fork of %s at %d", p.ID, p.Seq)
	}
	fmt.Fprintln(c.out, c.paint(dim, safeLine(line)))
	if l := s.Lineage.String(); l != "" {
		fmt.Fprintln(c.out, c.paint(dim, safeLine(l)))
	}
}

// resultLines is how many lines of a tool's result a transcript shows.
const resultLines = 12

func (c *cli) printEntry(e app.Entry) {
	text := strings.TrimRight(safe(e.Text), "\n")
	head, style := "", ""
	switch e.Kind {
	case app.EntryNote:
		fmt.Fprintf(c.out, "\n%s\n", c.paint(dim, fmt.Sprintf("[%d] -- %s --", e.Seq, oneLine(text))))
		return
	case app.EntryUser:
		head, style = "you", cyan
	case app.EntryContext:
		head, style, text = "context from "+safeLine(e.Name), dim, cutLines(text, resultLines)
	case app.EntryReasoning:
		head, style, text = "thinking", dim, cutLines(text, resultLines)
	case app.EntryAssistant:
		head, style = safeLine(e.Name), green
		if head == "" {
			head = "assistant"
		}
	case app.EntryCall:
		head, style, text = "calls "+brief.Clip(safeLine(e.Name), nameSigns), yellow, cutLines(text, resultLines)
	case app.EntryResult:
		head, style, text = "result of "+brief.Clip(safeLine(e.Name), nameSigns), yellow, cutLines(text, resultLines)
		if e.Error != "" {
			head, style = head+" ("+safeLine(e.Error)+")", red
		}
	}
	if e.Hidden {
		head += " (hidden)"
	}
	fmt.Fprintf(c.out, "\n%s\n", c.paint(style, fmt.Sprintf("[%d] %s", e.Seq, head)))
	if text == "" {
		return
	}
	text = "  " + strings.ReplaceAll(text, "\n", "\n  ")
	if e.Hidden {
		text = c.paint(dim, text)
	}
	fmt.Fprintln(c.out, text)
}

// How much a transcript shows of one line of what people did not write, and of the name of a tool.
const (
	lineSigns = 2000
	nameSigns = 80
)

// cutLines keeps the first n lines and says how many follow. Lines that are too long are cut, too.
func cutLines(s string, n int) string {
	lines := strings.Split(s, "\n")
	more := ""
	if len(lines) > n+1 {
		more = fmt.Sprintf("\n… %d more lines", len(lines)-n)
		lines = lines[:n]
	}
	for i, line := range lines {
		if len(line) > lineSigns { // bytes: never fewer than signs
			lines[i] = brief.Clip(line, lineSigns)
		}
	}
	return strings.Join(lines, "\n") + more
}

// printTail says what is open at the end of the session.
func (c *cli) printTail(ins *app.Inspection) {
	qs := ins.Questions()
	for _, o := range ins.OpenCalls() {
		if o.State == app.CallWaiting {
			continue // told below
		}
		fmt.Fprintf(c.out, "\n%s\n", c.paint(yellow, fmt.Sprintf("[%d] %s has no result: %s", o.Seq, safeLine(o.Name), callText(o.State))))
	}
	for _, m := range ins.Queue() {
		fmt.Fprintf(c.out, "\n%s\n", c.paint(yellow, "waiting to be worked on: "+brief.Clip(safeLine(m.PlainText()), 200)))
	}
	if len(qs) > 0 {
		fmt.Fprintln(c.out, "\n"+c.paint(yellow, "waits for a person:"))
		c.list(qs)
		call := ""
		if len(qs) > 1 {
			call = " CALL"
		}
		fmt.Fprintf(c.out, "%s\n", c.paint(yellow, fmt.Sprintf("answer with strand approve %s%s, or with --deny", ins.Stat.ID, call)))
	}
	if s := ins.Activity(); s != app.ActivityIdle {
		turn, _ := ins.State.Turn()
		fmt.Fprintf(c.out, "\n%s\n", c.paint(yellow, fmt.Sprintf("turn %d is open: %s", turn, s)))
	}
}

func callText(s app.CallState) string {
	switch s {
	case app.CallRunning:
		return "it runs now"
	case app.CallUnknown:
		return "it was started, its outcome is not known; it is not run again by itself"
	case app.CallWaiting:
		return "it waits for a person's approval"
	}
	return "it was not started"
}

func (c *cli) printStat(s app.Stat) {
	c.printHead(s)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(c.out, "%-12s %s\n", name, safeLine(fmt.Sprintf(format, args...)))
	}
	row("state", "%s %s", s.State, s.Reason)
	row("activity", "%s, last at %s", s.Activity, when(s.LastActivity))
	row("events", "%d in %s; %d on the surface", s.Events, plural(s.Turns, "turn"), s.Surface)
	row("work", "%s, %s%s", plural(s.Steps, "step"), plural(s.ToolCalls, "tool call"), timesText(s.Times))
	row("tokens", "%s%s", s.Usage, costText(s.Usage, s.Cost))
	if t := s.Tree; t != nil && t.Children > 0 {
		missing := ""
		if t.Missing > 0 {
			missing = fmt.Sprintf(" (%d cannot be read)", t.Missing)
		}
		row("all together", "%s%s; with %s%s", t.Usage, costText(t.Usage, &t.Cost), plural(t.Children, "subagent"), missing)
	}
	if g := s.Gauge; g != nil && g.Window > 0 {
		row("context", "%d of %d tokens, %d %%", g.Tokens, g.Window, 100*g.Tokens/int64(g.Window))
	} else if g != nil {
		row("context", "%d tokens", g.Tokens)
	}
	if s.Holder != nil {
		row("held by", "%s (pid %d on %s, since %s), base %d", s.Holder.Program, s.Holder.PID, s.Holder.Host, s.Holder.Since, s.Base)
	}
	if len(s.Boundaries) > 0 {
		row("picked up at", "%v", s.Boundaries)
	}
	for _, q := range s.Waiting {
		row("waiting", "%s %s since %s: %s", q.Name, q.CallID, when(q.Since), q.Subject)
	}
	for _, b := range s.Brackets {
		row("bracket", "%s at %d: %s", b.Type, b.Seq, b.State)
	}
	for _, o := range s.OpenCalls {
		row("open call", "%s at %d: %s", o.Name, o.Seq, callText(o.State))
	}
}

// timesText is how long the work of a line took; empty if nothing was measured.
func timesText(t app.Times) string {
	sep, text := "; ", ""
	for _, p := range []struct {
		who string
		ms  int64
	}{{"model", t.ModelMS}, {"tools", t.ToolMS}} {
		if p.ms > 0 {
			text, sep = text+sep+p.who+" "+seconds(p.ms), ", "
		}
	}
	return text
}

// costText is what u cost, for a line; empty if nothing was told.
func costText(u app.Usage, c *app.Cost) string {
	switch {
	case u.Told == nil || c == nil:
		return ""
	case c.USD == nil:
		return "; price unknown"
	case c.Unpriced > 0:
		return fmt.Sprintf("; $%.4f, and %d tokens whose price is unknown", *c.USD, c.Unpriced)
	}
	return fmt.Sprintf("; $%.4f", *c.USD)
}
