package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/session"
)

func (c *cli) tailCmd() *cobra.Command {
	var last int
	var from int64
	var events bool
	cmd := &cobra.Command{
		Use:   "tail ID",
		Short: "Follow a session that another process writes",
		Long: "Shows the last events of a session and then each new one once it is written, until Ctrl-C. It goes on when the\n" +
			"writer ends, is killed, or another one takes the session up. Nothing is touched.",
		Example: "  strand tail last\n  strand tail 7f3k -n 100\n  strand tail 7f3k --from 0 --events | jq .type",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: c.completeID,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			if last < 0 {
				return &app.UsageError{What: "-n", Why: "it is below 0", Hint: "give the number of events to begin with"}
			}
			var begin *session.Seq
			if cmd.Flags().Changed("from") {
				if from < 0 {
					return &app.UsageError{What: "--from", Why: "a seq is 0 or more", Hint: "see strand show ID --stat for the number of events"}
				}
				begin = (*session.Seq)(&from)
			}
			ctx := cmd.Context()
			return c.withSession(ctx, args[0], func(a *app.App, id session.ID) error {
				t, err := a.Tail(ctx, id, begin, last)
				if err != nil {
					return err
				}
				defer t.Close()
				show := &tailer{c: c, events: events}
				for {
					news, err := t.Next(ctx)
					if ctx.Err() != nil {
						show.endLine()
						return c.out.Flush()
					}
					if err != nil {
						return err
					}
					if err := show.news(news); err != nil {
						return err
					}
				}
			})
		}),
	}
	f := cmd.Flags()
	f.IntVarP(&last, "last", "n", 20, "begin with the last `N` events")
	f.Int64Var(&from, "from", 0, "begin with the event `SEQ`")
	f.BoolVar(&events, "events", false, "the events as they are stored, one JSON object per line")
	cmd.MarkFlagsMutuallyExclusive("last", "from")
	return cmd
}

// tailer shows what a tail tells.
type tailer struct {
	c      *cli
	events bool
	buf    []byte

	told   bool // who writes
	wrote  bool // somebody did
	turn   int
	step   int
	stream string // text of that step that was shown as it came
	inLine bool
}

func (t *tailer) news(n app.TailNews) error {
	if len(n.Events) == 0 {
		t.endLine()
		if err := t.c.out.Flush(); err != nil {
			return err
		}
		t.writer(n.Holder)
		return nil
	}
	for _, ev := range n.Events {
		if err := t.event(ev); err != nil {
			return err
		}
	}
	return t.c.out.Flush()
}

// writer tells who writes the session, when that is news.
func (t *tailer) writer(h *app.Holder) {
	switch {
	case h != nil && h.PID != 0:
		t.c.note("written by %s (pid %d on %s)", h.Program, h.PID, h.Host)
	case h != nil:
		t.c.note("somebody writes it")
	case t.wrote:
		t.c.note("the writer is gone; waiting, Ctrl-C ends")
	case !t.told:
		t.c.note("nobody writes it now; waiting, Ctrl-C ends")
	}
	t.told, t.wrote = true, h != nil
}

func (t *tailer) event(ev app.TailEvent) error {
	if t.events {
		t.buf = app.AppendEvent(t.buf[:0], ev.Event)
		return t.c.line(t.buf)
	}
	if t.c.json {
		for _, e := range ev.Entries {
			if err := t.c.object(e); err != nil {
				return err
			}
		}
		return nil
	}
	if ev.Text != "" {
		t.delta(ev)
	}
	for _, e := range ev.Entries {
		t.entry(e)
	}
	return nil
}

// delta shows text as it comes.
func (t *tailer) delta(ev app.TailEvent) {
	if t.stream == "" || t.turn != ev.Turn || t.step != ev.Step {
		t.endLine()
		t.turn, t.step, t.stream = ev.Turn, ev.Step, ""
		fmt.Fprintf(t.c.out, "\n%s\n  ", t.c.paint(green, fmt.Sprintf("[%d] assistant", ev.Seq)))
	}
	t.say(ev.Text)
}

func (t *tailer) say(text string) {
	t.stream += text
	t.inLine = true
	fmt.Fprint(t.c.out, strings.ReplaceAll(safe(text), "\n", "\n  "))
}

// entry shows what was not shown as it came.
func (t *tailer) entry(e app.Entry) {
	if e.Kind == app.EntryAssistant && t.stream != "" {
		if rest, ok := strings.CutPrefix(t.stream, e.Text); ok { // one of several parts
			t.stream = rest
			return
		}
		if rest, ok := strings.CutPrefix(e.Text, t.stream); ok {
			t.say(rest)
			t.endLine()
			t.stream = ""
			return
		}
	}
	t.endLine()
	t.stream = ""
	t.c.printEntry(e)
}

func (t *tailer) endLine() {
	if t.inLine {
		t.inLine = false
		fmt.Fprintln(t.c.out)
	}
}
