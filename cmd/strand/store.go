package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/store"
)

func (c *cli) storeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Say what the store holds; pack, collect, check",
		Long: "Says where the store is and what it holds: sessions by kind and state, segments and packed ones, blobs, the\n" +
			"trash, bytes kept aside, temporary files, and whether locks work. It changes and creates nothing.\n\n" +
			"With --json one object: {\"root\",\"format\",\"store\",\"bad\",\"writable\",\"readOnly\",\"locks\",\"noLocks\",\"sessions\",\"kinds\",\n" +
			"\"states\",\"held\",\"segments\":{\"n\",\"bytes\"},\"packed\",\"blobs\",\"badBlobs\",\"trash\",\"aside\",\"litter\"}.",
		Example: "  strand store\n  strand store --json | jq .blobs.bytes\n  strand store sizes\n  strand store pack\n  strand store collect --dry-run\n  strand store check",
		Args:    cobra.NoArgs,
		RunE: c.does(func(cmd *cobra.Command, _ []string) error {
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			f, err := a.Facts(cmd.Context())
			if err != nil {
				return err
			}
			if c.json {
				return c.object(f)
			}
			c.printFacts(f)
			return nil
		}),
	}
	cmd.AddCommand(c.sizesCmd(), c.packCmd(), c.collectCmd(), c.checkCmd())
	return cmd
}

func (c *cli) printFacts(f app.StoreFacts) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(c.out, "%-10s %s\n", name, safeLine(fmt.Sprintf(format, args...)))
	}
	amount := func(name string, a store.Amount, one, more string) {
		if a.N > 0 {
			line(name, "%d, %s%s", a.N, bytesText(a.Bytes), more)
		} else if one != "" {
			line(name, "%s", one)
		}
	}
	line("store", "%s", f.Root)
	if f.Bad != "" {
		line("damaged", "%s; strand doctor --repair", f.Bad)
	} else if f.Format == 0 {
		line("", "nothing was ever stored here")
	} else {
		line("format", "%d, id %s", f.Format, f.Store)
	}
	if !f.Writable {
		line("read-only", "%s", f.ReadOnly)
	}
	if !f.Locks && f.Format != 0 {
		line("locks", "%s", f.NoLocks)
	}
	line("sessions", "%d%s", f.Sessions, parts(f.Kinds))
	if f.Sessions > 0 {
		line("states", "%s", strings.Trim(parts(f.States), " ()"))
	}
	if f.Held > 0 {
		line("held", "%d are written to now", f.Held)
	}
	amount("segments", f.Segments, "none", "")
	amount("packed", f.Packed, "", " of them")
	amount("blobs", f.Blobs, "none", "")
	amount("bad blobs", f.BadBlobs, "", ", put aside")
	amount("trash", f.Trash, "", "")
	amount("aside", f.Aside, "", " of no record or damaged, kept")
	amount("temporary", f.Litter, "", ", of writers at work or dead ones")
}

// parts lists the counts of m, the biggest names first in the alphabet.
func parts[K ~string](m map[K]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%d %s", m[k], k))
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, ", ") + ")"
}

// bytesText is a size for a person.
func bytesText(n int64) string {
	v, unit := float64(n), 0
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[unit])
}

func (c *cli) sizesCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "sizes",
		Short: "Say what each session takes, the largest first",
		Long: "Says for each session, those in the trash included, how much its own files take, how much the blobs that only it\n" +
			"needs (a purge and a collection would free both), and how much the blobs that others need too. It reads every session.\n\n" +
			"With --json one line per session: {\"id\",\"trash\",\"own\",\"alone\":{\"n\",\"bytes\"},\"shared\":{\"n\",\"bytes\"},\"unread\"}.",
		Example: "  strand store sizes\n  strand store sizes --json | jq -s 'map(.own)|add'",
		Args:    cobra.NoArgs,
		RunE: c.does(func(cmd *cobra.Command, _ []string) error {
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			spin := c.newSpinner()
			defer spin.stop()
			rows, err := a.Sizes(cmd.Context(), func(i, n int) { spin.wait("measuring session %d of %d", i, n) })
			if err != nil {
				return err
			}
			if c.json {
				for _, r := range rows {
					if err := c.object(r); err != nil {
						return err
					}
				}
				return nil
			}
			spin.print(false, func() {
				if len(rows) > 0 {
					fmt.Fprintf(c.out, "%-20s  %12s  %18s  %18s\n", "session", "own files", "blobs of its own", "shared blobs")
				}
				for _, r := range rows {
					note := ""
					if r.Trash {
						note = "  in the trash"
					}
					if r.Unread != "" {
						note += "  not wholly read: " + safeLine(r.Unread)
					}
					fmt.Fprintf(c.out, "%-20s  %12s  %18s  %18s%s\n", r.ID, bytesText(r.Own), bytesText(r.Alone.Bytes), bytesText(r.Shared.Bytes), note)
				}
			})
			return nil
		}),
	}
}

func (c *cli) packCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "pack [ID..]",
		Short: "Join and compress what ended writers left (all sessions when none is named)",
		Long: "Joins the segments of sessions that nobody writes and compresses them. Events, sums and links stay as they are,\n" +
			"and everything reads packed sessions as it reads others. A session that somebody writes is left alone and named; so is\n" +
			"a damaged one. Interrupting it at any moment harms nothing; the next packing goes on.\n\n" +
			"With --json one line per session: {\"id\",\"segmentsBefore\",\"segmentsAfter\",\"bytesBefore\",\"bytesAfter\",\"aside\"}, or\n" +
			"{\"id\",\"skipped\":\"busy|damaged|unsupported\",\"reason\"}. Exit code 3 or 4 if a session that was named could not be packed, 1 if one failed.",
		Example:           "  strand store pack\n  strand store pack last\n  strand store pack --json | jq -s 'map(.bytesBefore-.bytesAfter)|add'",
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
			var before, after int64
			var skipped, failed error
			done := 0
			for i, id := range ids {
				spin.wait("packing %d of %d", i+1, len(ids))
				p, err := a.Pack(cmd.Context(), id)
				why := ""
				switch {
				case err == nil:
				case errors.Is(err, store.ErrReadOnly):
					return err // so are the others
				case errors.Is(err, store.ErrNotFound) && len(args) == 0:
					continue // deleted meanwhile
				case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrFenced):
					why = "busy"
				case errors.Is(err, store.ErrDamaged):
					why = "damaged"
				case errors.Is(err, store.ErrUnsupported):
					why = "unsupported"
				case cmd.Context().Err() != nil, errors.Is(err, store.ErrReadOnly):
					return err
				default: // of this one; the others are not harmed
					why, failed = "failed", err
				}
				if why != "" {
					if skipped == nil {
						skipped = err
					}
					if c.json {
						err = c.object(struct {
							ID      string `json:"id"`
							Skipped string `json:"skipped"`
							Reason  string `json:"reason"`
						}{string(id), why, oneLine(err.Error())})
						if err != nil {
							return err
						}
						continue
					}
					spin.print(false, func() { fmt.Fprintf(c.out, "%s  %s, left as it is\n", id, why) })
					continue
				}
				done++
				before, after = before+p.BytesBefore, after+p.BytesAfter
				if c.json {
					if err := c.object(p); err != nil {
						return err
					}
				} else if p.Before != p.After || p.BytesBefore != p.BytesAfter {
					spin.print(false, func() {
						fmt.Fprintf(c.out, "%s  %d segments to %d, %s to %s\n", id, p.Before, p.After, bytesText(p.BytesBefore), bytesText(p.BytesAfter))
					})
				}
			}
			if !c.json {
				spin.print(false, func() {
					fmt.Fprintf(c.out, "%d sessions: %s, were %s\n", done, bytesText(after), bytesText(before))
				})
			}
			if len(args) > 0 {
				return skipped
			}
			return failed
		}),
	}
}

func (c *cli) checkCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Verify every session and every blob",
		Long: "Verifies every sum and link of every session, and the bytes of every blob, also of those that nothing names. It\n" +
			"changes nothing. Exit code 4 if anything is damaged, missing or unsupported.\n\n" +
			"With --json one line per session that has a problem, as strand doctor prints it, and last\n" +
			"{\"sessions\",\"badSessions\",\"blobs\",\"badBlobs\":[name..]}.",
		Example: "  strand store check\n  strand store check --json | tail -n 1",
		Args:    cobra.NoArgs,
		RunE: c.does(func(cmd *cobra.Command, _ []string) error {
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			spin := c.newSpinner()
			defer spin.stop()
			r, err := a.CheckStore(cmd.Context(), func(what string, i, n int) {
				if n == 0 {
					spin.wait("verifying %s %d", what, i)
				} else {
					spin.wait("verifying %s %d of %d", what, i, n)
				}
			}, func(h app.Health) error {
				if c.json {
					return c.object(h)
				}
				spin.print(false, func() { c.printHealth(h) })
				return nil
			})
			if err != nil {
				return err
			}
			if c.json {
				if err := c.object(r); err != nil {
					return err
				}
			} else {
				spin.print(false, func() {
					for _, name := range r.BadBlobs {
						fmt.Fprintf(c.out, "%s %s\n", c.paint(red, "bad blob:"), name)
					}
					fmt.Fprintf(c.out, "%s verified, %d with problems; %s, %d bad\n", plural(r.Sessions, "session"), r.BadSessions, plural(r.Blobs, "blob"), len(r.BadBlobs))
				})
			}
			if r.BadSessions > 0 || len(r.BadBlobs) > 0 {
				return &failure{exit: exitDamaged, code: "damaged", what: "store check",
					why:  fmt.Sprintf("%d of %d sessions and %d of %d blobs have problems", r.BadSessions, r.Sessions, len(r.BadBlobs), r.Blobs),
					hint: "the others are not harmed; strand doctor ID says more of a session"}
			}
			return nil
		}),
	}
}

func (c *cli) collectCmd() *cobra.Command {
	dryRun := false
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Remove values that no session names any more",
		Long: "Removes blobs (long texts, images) that nothing in the store names: no session, in the trash or not, no bytes that were\n" +
			"set aside, no other blob. If a session cannot be read as it was written nothing is removed, as it may name anything,\n" +
			"and the exit code is 4. Temporary files of processes that died go too. Writers go on meanwhile.\n\n" +
			"With --json one object: {\"removed\":{\"n\",\"bytes\"},\"kept\",\"unsure\",\"unread\":[{\"where\",\"why\"}],\"litter\":{\"n\",\"bytes\"},\"dryRun\"}.",
		Example: "  strand store collect --dry-run\n  strand store collect",
		Args:    cobra.NoArgs,
		RunE: c.does(func(cmd *cobra.Command, _ []string) error {
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			spin := c.newSpinner()
			defer spin.stop()
			spin.wait("waiting for writers")
			r, err := a.Collect(cmd.Context(), dryRun, func(i, n int) { spin.wait("reading session %d of %d", i, n) })
			if errors.Is(err, store.ErrBusy) {
				return &failure{exit: exitBusy, code: "busy", what: "store collect", why: "a session has put a value and not yet written what names it",
					hint: "try again when its turn has ended (strand ls shows who runs)"}
			}
			if err != nil {
				return err
			}
			if c.json {
				if err := c.object(r); err != nil {
					return err
				}
			} else {
				verb := "removed"
				if dryRun {
					verb = "would be removed"
				}
				spin.print(false, func() {
					fmt.Fprintf(c.out, "%d blobs, %s, %s; %d, %s, are named\n", r.Removed.N, bytesText(r.Removed.Bytes), verb, r.Kept.N, bytesText(r.Kept.Bytes))
					if r.Litter.N > 0 {
						fmt.Fprintf(c.out, "%d temporary files of processes that died, %s, %s\n", r.Litter.N, bytesText(r.Litter.Bytes), verb)
					}
				})
			}
			if len(r.Unread) > 0 {
				u := r.Unread[0]
				return &failure{exit: exitDamaged, code: "damaged", what: "store collect",
					why:  fmt.Sprintf("%d places cannot be read and may name anything, first %s (%s): %d unnamed blobs, %s, stay", len(r.Unread), u.Where, oneLine(u.Why), r.Unsure.N, bytesText(r.Unsure.Bytes)),
					hint: "strand doctor says what is wrong with them"}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be removed")
	return cmd
}
