package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/session"
)

func (c *cli) doctorCmd() *cobra.Command {
	requests := false
	cmd := &cobra.Command{
		Use:   "doctor [ID..]",
		Short: "Verify sessions and say what is open or bent",
		Long: "Verifies every sum and link of the sessions (all of the store when none is named) and tells what a person\n" +
			"should know: brackets and calls that are open, results without a call, what a dead writer left. It only\n" +
			"reports. Exit code 4 means that something is damaged, missing or unsupported; notes are exit code 0.\n\n" +
			"--requests makes every request that was sent to a model again, from the log alone, and compares it with\n" +
			"what was recorded of it: a difference means that this version would send something else than was sent then.",
		Example:           "  strand doctor last\n  strand doctor --json | jq -c 'select(.problems != [])'",
		ValidArgsFunction: c.completeID,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			ids, err := c.patients(cmd, a, args)
			if err != nil {
				return err
			}
			spin := c.newSpinner()
			defer spin.stop()
			var bad error
			ill := 0
			for i, id := range ids {
				spin.wait("verifying %d of %d", i+1, len(ids))
				h, err := a.Doctor(cmd.Context(), id)
				if err == nil && requests {
					err = a.CheckRequests(cmd.Context(), &h)
				}
				if err != nil {
					return err
				}
				if err := h.Err(); err != nil {
					ill++
					bad = err
				}
				if c.json {
					if err := c.object(h); err != nil {
						return err
					}
				} else {
					spin.print(false, func() { c.printHealth(h) })
				}
			}
			if ill > 1 {
				bad = &failure{exit: exitDamaged, code: "damaged", what: "doctor", why: fmt.Sprintf("%d of %d sessions are damaged or unsupported", ill, len(ids)),
					hint: "the lines above name them; the others are not harmed"}
			} else if ill == 1 {
				bad = &failure{exit: exitDamaged, code: "damaged", what: "doctor", why: bad.Error(), hint: "the bytes are kept as they are; what can be read is shown by strand show"}
			}
			return bad
		}),
	}
	cmd.Flags().BoolVar(&requests, "requests", false, "make every request again from the log and compare")
	return cmd
}

// patients are the sessions that are named, or all.
func (c *cli) patients(cmd *cobra.Command, a *app.App, args []string) ([]session.ID, error) {
	var ids []session.ID
	if len(args) == 0 {
		return a.AllIDs(cmd.Context())
	}
	for _, arg := range args {
		id, err := c.resolve(cmd.Context(), a, arg)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (c *cli) printHealth(h app.Health) {
	state := c.paint(green, string(h.State))
	if len(h.Problems) > 0 {
		state = c.paint(red, string(h.State))
	}
	fmt.Fprintf(c.out, "%s  %s  verified to %d\n", h.ID, state, h.VerifiedTo)
	for _, p := range h.Problems {
		at := ""
		if p.File != "" {
			at = " " + safeLine(fmt.Sprintf("(%s at byte %d, %d bytes)", p.File, p.Offset, p.Bytes))
		}
		fmt.Fprintf(c.out, "  %s %s%s\n", c.paint(red, p.Kind+":"), safeLine(p.Detail), at)
	}
	if r := h.Requests; r != nil {
		fmt.Fprintf(c.out, "  requests: %d made again, %d of them changed, %d in a form of another version\n", r.Checked, r.Changed, r.Unchecked)
	}
	for _, b := range h.Brackets {
		if b.State != session.BracketClosed {
			fmt.Fprintf(c.out, "  bracket %s at %d: %s\n", b.Type, b.Seq, b.State)
		}
	}
	for _, o := range h.OpenCalls {
		fmt.Fprintf(c.out, "  open call %s at %d: %s\n", safeLine(o.Name), o.Seq, callText(o.State))
	}
	for _, n := range h.Notes {
		if n.Kind != "open-call" && n.Kind != "dead-bracket" {
			fmt.Fprintf(c.out, "  note: %s at %d: %s\n", n.Kind, n.Seq, safeLine(n.Detail))
		}
	}
}
