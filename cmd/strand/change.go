package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/session"
)

func (c *cli) forkCmd() *cobra.Command {
	var at int64
	var to string
	cmd := &cobra.Command{
		Use:   "fork ID",
		Short: "Make a fork: a new session that goes on from this one",
		Long: "Makes a new session that shares what ID holds up to a seq and goes on for itself. It costs the same at any\n" +
			"length and works while another process writes ID. Without --at it is cut at the end, or before the turn that runs.\n\n" +
			"With --to the fork is made in another store: what it shares is copied, this store is only read, and it may be one\n" +
			"that cannot be written to.",
		Example: "  strand fork last\n  strand fork 7f3k --at 41 --json\n  strand --store /mnt/backup fork 7f3k --to ~/sessions",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: c.completeID,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			return c.withSession(cmd.Context(), args[0], func(a *app.App, id session.ID) error {
				var cut *session.Seq
				if cmd.Flags().Changed("at") {
					cut = (*session.Seq)(&at)
				}
				f, err := c.fork(cmd.Context(), a, id, cut, to)
				if err != nil {
					return err
				}
				if c.json {
					return c.object(f)
				}
				fmt.Fprintln(c.out, f.ID)
				in := ""
				if f.Store != "" {
					in = "--store " + f.Store + " "
				}
				c.hint("fork of %s at %d; go on with strand run %s--session %s", f.Parent, f.Seq, in, f.ID)
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "make it in the store `DIR`, with a copy of what it shares")
	cmd.Flags().Int64Var(&at, "at", -1, "last `SEQ` that the fork shares")
	return cmd
}

func (c *cli) fork(ctx context.Context, a *app.App, id session.ID, at *session.Seq, to string) (app.Forked, error) {
	if to == "" {
		return a.Fork(ctx, id, at)
	}
	spin := c.newSpinner()
	defer spin.stop()
	spin.wait("copying %s", id)
	return a.ForkTo(ctx, id, at, to)
}

func (c *cli) undoCmd() *cobra.Command {
	var redo bool
	cmd := &cobra.Command{
		Use:   "undo ID",
		Short: "Hide the last turn from the model",
		Long:  "Hides the last visible turn; nothing is deleted: the log keeps it and --redo brings it back. Files that tools\nchanged stay as they are.",
		Example: "  strand undo last\n" +
			"  strand undo last --redo",
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeID,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			return c.withSession(cmd.Context(), args[0], func(a *app.App, id session.ID) error {
				c.observes(a)
				u, err := a.Undo(cmd.Context(), id, redo)
				if err != nil {
					return err
				}
				if c.json {
					return c.object(u)
				}
				what := "undone"
				if redo {
					what = "restored"
				}
				fmt.Fprintf(c.out, "turn %d %s\n", u.Turn, what)
				return nil
			})
		}),
	}
	cmd.Flags().BoolVar(&redo, "redo", false, "bring the turn back that was undone last")
	return cmd
}

func (c *cli) titleCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "title ID [TEXT]",
		Short:   "Read or set a session's title",
		Example: "  strand title last\n  strand title last \"fix the parser\"",
		Args:    cobra.RangeArgs(1, 2), ValidArgsFunction: c.completeID,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			return c.withSession(cmd.Context(), args[0], func(a *app.App, id session.ID) error {
				var t app.Title
				var err error
				if len(args) == 2 {
					c.observes(a)
					t, err = a.SetTitle(cmd.Context(), id, c.text("TEXT", args[1]))
				} else {
					t, err = a.Title(cmd.Context(), id)
				}
				if err != nil {
					return err
				}
				if c.json {
					return c.object(t)
				}
				fmt.Fprintln(c.out, safeLine(t.Title))
				return nil
			})
		}),
	}
}
