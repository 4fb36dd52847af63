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
	"github.com/strandline-dev/strandline/tool"
)

type approveFlags struct {
	workFlags
	refuse, cancel, noRun bool
	reason, output        string
}

func (c *cli) approveCmd() *cobra.Command {
	var o approveFlags
	cmd := &cobra.Command{
		Use:   "approve ID [CALL]",
		Short: "Answer a call that waits for a person",
		Long: "Allows a call that waits for a person's word, or refuses it with --deny, and goes on with the turn once\n" +
			"nothing is open any more, as run does. Without CALL it answers the only call that waits; when several wait it\n" +
			"lists them. CALL is the id of a call, or of a question. The first answer wins.\n\n" +
			"An answer is saved before anything is run: with --no-run, or if this command dies, the next run goes on with\n" +
			"it. Exit 8: the turn failed, or waits again.",
		Example: "  strand approve last --script replies.jsonl\n  strand approve 7f3k call_2 --deny --reason \"use the test database\"\n" +
			"  strand approve 7f3k call_1 --no-run\n  strand approve 7f3k --cancel",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: c.completeCall,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			return c.approve(cmd.Context(), o, args)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&o.refuse, "deny", false, "refuse the call: the model is told so")
	f.StringVar(&o.reason, "reason", "", "`TEXT` for the model, why")
	f.BoolVar(&o.cancel, "cancel", false, "end the turn that waits: nothing of it is run any more")
	f.BoolVar(&o.noRun, "no-run", false, "only record the answer")
	f.StringVar(&o.output, "output", "", "`FORM` of what follows: text, json or stream-json (default text, with --json json)")
	o.register(cmd, c, "ask")
	cmd.MarkFlagsMutuallyExclusive("deny", "cancel")
	cmd.MarkFlagsMutuallyExclusive("deny", "allow")
	cmd.MarkFlagsMutuallyExclusive("cancel", "no-run")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json", "stream-json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *cli) approve(ctx context.Context, o approveFlags, args []string) error {
	output, err := c.form(o.output)
	if err != nil {
		return err
	}
	if o.cancel && len(args) > 1 {
		return &app.UsageError{What: "--cancel", Why: "it ends the whole turn, not one call", Hint: "leave CALL out, or refuse the call with --deny"}
	}
	rules, err := app.Rules(o.allow, nil)
	if err != nil {
		return err
	}
	return c.withSession(ctx, args[0], func(a *app.App, id session.ID) error {
		if o.cancel {
			c.observes(a)
			turn, err := a.CancelTurn(ctx, id)
			if err != nil {
				return err
			}
			if c.json {
				return c.object(struct {
					SessionID session.ID `json:"sessionId"`
					Turn      int        `json:"turn"`
					Reason    string     `json:"reason"`
				}{id, turn, session.ReasonAborted})
			}
			fmt.Fprintf(c.out, "turn %d cancelled\n", turn)
			return nil
		}
		ans := app.Answer{Deny: o.refuse, Reason: o.reason, Rules: rules}
		if len(args) > 1 {
			ans.Call = args[1]
		}
		var w app.WorkOptions
		if !o.noRun {
			// Nothing is recorded if what then happens cannot: but no model is needed to answer one of several.
			if w, err = o.options(ctx, c, false); err == nil {
				err = a.CheckModel(ctx, id, w)
			}
			if no := (*app.ModelError)(nil); errors.As(err, &no) {
				if o.noRun, err = c.othersOpen(ctx, a, id, ans); err == nil && !o.noRun {
					err = &app.ModelError{Code: no.Code, What: no.What, Why: "the turn goes on after this answer: " + no.Why, Hint: no.Hint + ", or only record the answer with --no-run"}
				}
			}
			if err != nil {
				return err
			}
		}
		if w.Config != nil {
			a.Observe(w.Config)
		} else {
			c.observes(a)
		}
		done, err := a.Answer(ctx, id, ans)
		if several := (*app.SeveralWaitError)(nil); errors.As(err, &several) {
			c.list(several.Questions)
		}
		if err != nil {
			return err
		}
		if o.noRun || len(done.Waiting) > 0 && len(rules) == 0 {
			return c.answered(done)
		}
		w.Session, w.Default, w.Wake = id, tool.PolicyAsk, true
		work, err := a.Begin(ctx, w)
		if err != nil {
			return fmt.Errorf("the answer is saved, but going on failed: %w", err)
		}
		return c.toIdle(ctx, work, output, work.Agent.Kick)
	})
}

// othersOpen reports whether the turn cannot go on yet once this is answered.
func (c *cli) othersOpen(ctx context.Context, a *app.App, id session.ID, ans app.Answer) (bool, error) {
	ins, err := a.Inspect(ctx, id, nil)
	if err != nil {
		return false, err
	}
	defer ins.Close()
	if _, err := ins.Choose(ans.Call); err != nil {
		return true, nil // Answer says what is wrong
	}
	return len(ins.Questions()) > 1 && len(ans.Rules) == 0, nil
}

// answered tells what was recorded, when nothing is run.
func (c *cli) answered(done app.Answered) error {
	if c.json {
		return c.object(done)
	}
	what := map[string]string{session.VerdictAllow: "allowed", session.VerdictDeny: "refused"}[done.Verdict]
	fmt.Fprintf(c.out, "%s %s: %s\n", safeLine(done.Name), safeLine(done.CallID), what)
	if len(done.Waiting) > 0 {
		fmt.Fprintln(c.out, "still waiting:")
		c.list(done.Waiting)
		return nil
	}
	c.hint("go on with strand run --session %s", done.SessionID)
	return nil
}

// list prints the calls that wait.
func (c *cli) list(qs []app.Question) {
	for _, q := range qs {
		if c.json {
			_ = c.object(q) // an error stays in the writer and is reported at the end
			continue
		}
		c.printQuestion(q)
	}
}

// printQuestion shows a call that waits, with all that would be done: nothing of it is cut off, control
// characters are shown as what they are.
func (c *cli) printQuestion(q app.Question) {
	id := q.CallID
	if q.CallID == "" {
		id = q.AskID
	}
	fmt.Fprintf(c.out, "%s %s  %s\n", c.paint(yellow, safeLine(q.Name)), safeLine(id), c.paint(dim, "since "+when(q.Since)))
	if q.Subject != "" {
		fmt.Fprintf(c.out, "  %s\n", strings.ReplaceAll(brief.Visible(q.Subject), "\n", "\n  "))
	}
}

// completeCall offers sessions, and then the calls that wait in one.
func (c *cli) completeCall(cmd *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return c.completeID(cmd, args, s)
	}
	var out []string
	err := c.withSession(cmd.Context(), args[0], func(a *app.App, id session.ID) error {
		ins, err := a.Inspect(cmd.Context(), id, nil)
		if err != nil {
			return err
		}
		defer ins.Close()
		for _, q := range ins.Questions() {
			if strings.HasPrefix(q.CallID, s) {
				out = append(out, q.CallID+"\t"+oneLine(q.Name+" "+q.Subject))
			}
		}
		return nil
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
