package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func (c *cli) doctorCmd() *cobra.Command {
	requests, repair, dryRun := false, false, false
	cmd := &cobra.Command{
		Use:   "doctor [ID..]",
		Short: "Verify sessions, say what is open or bent, repair what is damaged",
		Long: "Verifies every sum and link of the sessions (all of the store when none is named) and tells what a person\n" +
			"should know: brackets and calls that are open, results without a call, what a dead writer left. It only\n" +
			"reports. Exit code 4 means that something is damaged, missing or unsupported; notes are exit code 0.\n\n" +
			"--repair makes damaged sessions writable again: each event that is gone gets a mark in its place, which the\n" +
			"model sees as a notice; every other event keeps its bytes; the damaged files stay, byte for byte, and are named.\n" +
			"With --dry-run it only says what it would do. Without an ID it also makes a strandline.json anew that cannot be read.\n\n" +
			"--requests makes every request that was sent to a model again, from the log alone, and compares it with\n" +
			"what was recorded of it: a difference means that this version would send something else than was sent then.",
		Example:           "  strand doctor last\n  strand doctor --json | jq -c 'select(.problems != [])'\n  strand doctor --repair --dry-run 7f3k\n  strand doctor --repair 7f3k",
		ValidArgsFunction: c.completeID,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			if dryRun && !repair {
				return &app.UsageError{What: "--dry-run", Why: "it says what --repair would do", Hint: "give both, or neither"}
			}
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			sick := false
			if len(args) == 0 {
				if sick, err = c.doctorStore(cmd.Context(), a, repair, dryRun); err != nil {
					return err
				}
			}
			ids, err := c.patients(cmd, a, args)
			if err == nil && repair {
				ids, err = a.RepairOrder(cmd.Context(), ids)
			}
			if err != nil {
				return err
			}
			spin := c.newSpinner()
			defer spin.stop()
			var bad, refused error
			ill, odd := 0, 0         // sessions with problems; of them those that are only not understood
			var planned []session.ID // they would be repaired before those that follow
			for i, id := range ids {
				spin.wait("verifying %d of %d", i+1, len(ids))
				var done *app.Repair
				var failed error
				if repair {
					done = new(app.Repair)
					if dryRun {
						*done, failed = a.PlanRepair(cmd.Context(), id, planned)
					} else {
						*done, failed = a.Repair(cmd.Context(), id)
					}
					if cause := context.Cause(cmd.Context()); cause != nil {
						return cause
					}
					planned = append(planned, id)
				}
				h, err := a.Doctor(cmd.Context(), id)
				if err == nil && requests {
					err = a.CheckRequests(cmd.Context(), &h)
				}
				if err != nil {
					return err
				}
				h.Repair = done
				if err := h.Err(); err != nil {
					ill++
					bad = err
					if h.State == store.StateUnsupported {
						odd++
					}
				}
				switch owner, isOwner := errors.AsType[*app.OwnerError](failed); {
				case errors.Is(failed, store.ErrReadOnly):
					refused = failed
				case failed == nil, errors.Is(failed, store.ErrUnsupported): // the report says that
				case isOwner:
					refused = owner
				case errors.Is(failed, store.ErrDamaged):
					refused = &failure{exit: exitDamaged, code: "damaged", what: "doctor", why: failed.Error(),
						hint: "what was lost is not in this store: put the file back from a copy of it, or move the session's directory away"}
				default:
					refused = failed
				}
				if c.json {
					if err := c.object(h); err != nil {
						return err
					}
				} else {
					spin.print(false, func() { c.printHealth(h) })
				}
			}
			switch {
			case refused != nil:
				return refused
			case sick:
				return &failure{exit: exitDamaged, code: "damaged", what: "doctor", why: "the store's strandline.json is damaged or gone",
					hint: "no session is harmed; strand doctor --repair makes it anew"}
			case ill > 1:
				return &failure{exit: exitDamaged, code: "damaged", what: "doctor", why: fmt.Sprintf("%d of %d sessions are damaged or unsupported", ill, len(ids)),
					hint: "the lines above name them; the others are not harmed; strand doctor --repair ID makes one writable again"}
			case ill == 1 && odd == 1:
				return &failure{exit: exitDamaged, code: "damaged", what: "doctor", why: bad.Error(),
					hint: "there is nothing to repair: use a program that knows what this one does not; strand show shows what can be read"}
			case ill == 1:
				return &failure{exit: exitDamaged, code: "damaged", what: "doctor", why: bad.Error(),
					hint: "the bytes are kept as they are; strand show shows what can be read, strand doctor --repair makes it writable again"}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&requests, "requests", false, "make every request again from the log and compare")
	cmd.Flags().BoolVar(&repair, "repair", false, "make damaged sessions writable again; nothing is thrown away")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "with --repair: say what it would do")
	return cmd
}

// doctorStore tells what is wrong with the store as such, and whether it still is.
func (c *cli) doctorStore(ctx context.Context, a *app.App, repair, dryRun bool) (bool, error) {
	h, err := a.DoctorStore(ctx, repair, dryRun)
	if h == nil || err != nil {
		return false, err
	}
	if c.json {
		return len(h.Problems) > 0, c.object(h)
	}
	for _, p := range h.Problems {
		fmt.Fprintf(c.out, "%s  %s\n", safeLine(h.Store), c.paint(red, safeLine(p.Detail)))
	}
	if r := h.Repair; r != nil && r.DryRun {
		fmt.Fprintf(c.out, "  repair would set it aside, if it is there, and make a new one\n")
	} else if r != nil {
		fmt.Fprintf(c.out, "%s  repaired: new file %s\n", safeLine(h.Store), safeLine(strings.Join(r.Written, ", ")))
		for _, f := range r.Kept {
			fmt.Fprintf(c.out, "  damaged bytes kept: %s\n", safeLine(f))
		}
	}
	return len(h.Problems) > 0, nil
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
	c.printRepair(h.Repair)
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

func (c *cli) printRepair(r *app.Repair) {
	if r == nil || !r.Needed {
		return
	}
	verb, has := "repaired:", "have"
	if r.DryRun {
		verb, has = "repair would:", "would get"
	}
	fmt.Fprintf(c.out, "  %s %d lost events %s a mark in their place", c.paint(bold, verb), r.Count, has)
	for i, s := range r.Lost {
		if i == 4 {
			fmt.Fprintf(c.out, ", and %d more places", len(r.Lost)-i)
			break
		}
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(c.out, "%s%d", sep, s.First)
		if s.Last > s.First {
			fmt.Fprintf(c.out, "-%d", s.Last)
		}
	}
	fmt.Fprintln(c.out)
	if n := store.Records(r.Found); n > 0 {
		fmt.Fprintf(c.out, "    %d events stood elsewhere in its files and are proven by their links\n", n)
	}
	for _, f := range r.Kept {
		fmt.Fprintf(c.out, "    damaged bytes kept: %s\n", safeLine(f))
	}
	for _, f := range r.Written {
		fmt.Fprintf(c.out, "    new file: %s\n", safeLine(f))
	}
	for _, g := range r.Guessed {
		fmt.Fprintf(c.out, "    header: %s\n", safeLine(g))
	}
}
