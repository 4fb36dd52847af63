package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/session"
)

func (c *cli) compactCmd() *cobra.Command {
	var o workFlags
	var preview, undo bool
	cmd := &cobra.Command{
		Use:   "compact ID",
		Short: "Replace the older part of what the model sees by a summary",
		Long: "Asks the model for a summary of the older part of a session and shows it that instead. Nothing is deleted: the\n" +
			"log keeps every word, and --undo brings the originals back. A compaction also begins by itself when the view\n" +
			"nears the model's context window; strand help config has the numbers.\n\n" +
			"Outcomes: done; no-gain (the summary was no smaller: nothing changed); nothing (there is only the newest part,\n" +
			"which is kept); undone. One that fails changes nothing and exits with 8.",
		Example: "  strand compact last --preview\n  strand compact last --model openai/gpt-5\n  strand compact last --undo",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: c.completeID,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			w, err := o.options(cmd.Context(), c, false)
			if err != nil {
				return err
			}
			return c.withSession(cmd.Context(), args[0], func(a *app.App, id session.ID) error {
				w.Session = id
				switch {
				case preview:
					out, err := a.PreviewCompaction(cmd.Context(), id, w)
					if err != nil {
						return err
					}
					return c.compacted(id, out)
				case undo:
					a.Observe(w.Config)
					out, err := a.UndoCompaction(cmd.Context(), id)
					if err != nil {
						return err
					}
					return c.compacted(id, out)
				}
				work, err := a.Begin(cmd.Context(), w)
				if err != nil {
					return err
				}
				return c.compactNow(cmd.Context(), work)
			})
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&preview, "preview", false, "say what would go, and change nothing")
	f.StringVar(&c.cwd, "cwd", "", "the session goes on in `DIR` (default: in its own)")
	f.BoolVar(&undo, "undo", false, "take the newest compaction back")
	o.registerModel(cmd, c)
	cmd.MarkFlagsMutuallyExclusive("preview", "undo")
	return cmd
}

// compactNow compacts, shows that it lives, and lets the session go. Ctrl-C ends the compaction, which is told in
// the log.
func (c *cli) compactNow(ctx context.Context, work *app.Work) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	ag := work.Agent
	restore := c.onSignal(func(sig os.Signal) {
		if !ag.Cancel(causeOf(sig)) {
			leave()
		}
	})
	defer restore()
	spin := c.newSpinner()
	show := c.shower("text", work, spin)
	show.Event = nil // what the life before said, and this one saves again behind a loss, is no answer to this command
	finish := work.Watch(show)
	spin.wait("compacting")
	out, err := work.Compact(ctx)
	finish()
	spin.stop()
	closing, stop := context.WithoutCancel(ctx), func() {}
	if ctx.Err() != nil {
		closing, stop = context.WithTimeout(closing, lastWait)
	}
	defer stop()
	cerr := work.Close(closing)
	if cerr != nil {
		return cerr
	}
	var cancelled *agent.CancelError
	switch {
	case errors.As(err, &cancelled) || ctx.Err() != nil:
		return errCancelled
	case err != nil:
		return err
	case out.Outcome == string(compact.Failed):
		return &app.CompactionError{ID: ag.ID(), Err: out.Err}
	}
	return c.compacted(ag.ID(), out)
}

// compacted prints an outcome.
func (c *cli) compacted(id session.ID, out app.Compacted) error {
	if c.json {
		return c.object(out)
	}
	fmt.Fprintln(c.out, outcomeText(out))
	switch out.Outcome {
	case string(compact.Done):
		c.hint("the log keeps everything; strand compact %s --undo brings the originals back", id)
	case app.OutcomePreview:
		c.hint("strand compact %s does it; nothing was changed", id)
	}
	return nil
}

func outcomeText(out app.Compacted) string {
	switch out.Outcome {
	case string(compact.Done):
		return fmt.Sprintf("compacted: about %d tokens became %d", *out.Before, *out.After)
	case string(compact.NoGain):
		return fmt.Sprintf("no gain: the summary is no smaller than what it would replace; the view stays at about %d tokens", *out.Before)
	case app.OutcomeNothing:
		return "nothing to compact: there is no more than the newest part, which is kept"
	case app.OutcomeUndone:
		return fmt.Sprintf("the newest compaction is undone: about %d tokens became %d", *out.Before, *out.After)
	case app.OutcomePreview:
		of := "of a context window that is not known"
		if out.Window > 0 {
			of = fmt.Sprintf("of a context window of %d", out.Window)
		}
		return fmt.Sprintf("%d messages (seq %d to %d) with about %d of %d tokens %s would be replaced by a summary",
			out.Messages, out.Span.Start, out.Span.End, out.Tokens, *out.Before, of)
	}
	return out.Outcome
}

// compact is /compact in a chat.
func (t *chat) compact(ctx context.Context) error {
	if t.work.Agent.Session().Head() == 0 {
		return nothingSaid("/compact")
	}
	finish := t.work.Watch(t.c.shower("text", t.work, t.spin))
	t.spin.print(false, func() {}) // the person's line end moved the cursor
	t.spin.wait("compacting")
	out, err := t.work.Compact(ctx)
	t.spin.wait("")
	finish()
	var cancelled *agent.CancelError
	switch {
	case errors.As(err, &cancelled):
		t.tell("compaction stopped; the view stays as it was")
		return nil
	case err != nil:
		return err
	case out.Outcome == string(compact.Failed):
		return &app.CompactionError{ID: t.work.Agent.ID(), Err: out.Err}
	}
	t.tell("%s", outcomeText(out))
	return nil
}

// compactionFailure explains the errors of a compaction; false: err is none.
func compactionFailure(f *failure, err error) bool {
	var failed *app.CompactionError
	var busy *compact.BusyError
	switch {
	case errors.As(err, &failed):
		f.exit, f.code, f.what = exitTurn, "compaction-failed", "compaction"
		f.why, f.hint = failed.Error(), "nothing changed; try again, or with another model: --model PROVIDER/MODEL"
	case errors.As(err, &busy):
		f.exit, f.code, f.why, f.hint = exitBusy, "compacting", busy.Error(), "wait until it ends, or stop it with Ctrl-C where it runs"
		if busy.Since > 0 {
			f.why = fmt.Sprintf("a compaction is running since %s", time.UnixMilli(busy.Since).Format(time.DateTime))
		}
	case errors.Is(err, compact.ErrNoCompaction):
		f.code, f.why, f.hint = "nothing", compact.ErrNoCompaction.Error(), "strand show --stat says what was compacted"
	case errors.Is(err, agent.ErrRunning):
		f.exit, f.code, f.why, f.hint = exitBusy, "running", "the agent is at work", "wait until it is idle"
	default:
		return false
	}
	return true
}
