package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func (c *cli) rmCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rm ID..",
		Short: "Move sessions to the trash",
		Long: "Moves sessions to the trash, where strand restore finds them again; nothing is ever deleted by itself, however\n" +
			"old it is. Forks that begin with a session are named, and stay whole. A session that somebody holds is not\n" +
			"moved: exit code 3. One that fails does not stop the others.\n" +
			"With --json one object per session: {\"id\",\"title\",\"forks\":[{\"id\",\"trashed\",\"from\",\"to\",\"bytes\"}],\"done\",\"error\"}.",
		Example: "  strand rm last\n  strand rm 7f3k 9q2m --json\n  strand ls --trash",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: c.completeID,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			r := &removing{c: c, what: "rm", of: len(args)}
			for _, id := range r.find(args, func(arg string) (session.ID, error) { return c.resolve(cmd.Context(), a, arg) }) {
				list, err := a.Removals(cmd.Context(), []session.ID{id}, false)
				if err == nil {
					if !c.json {
						c.printHeirs(list[0], "reads them in the trash")
					}
					err = a.Remove(cmd.Context(), list, func(rm app.Removal) error {
						return r.report(rm, "in the trash (strand restore "+string(id)+" brings it back)")
					})
				} else {
					err = r.report(failedRemoval(string(id), err), "")
				}
				if err != nil {
					return err
				}
			}
			return r.err()
		}),
	}
}

func (c *cli) restoreCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "restore ID..",
		Short:   "Take sessions out of the trash",
		Long:    "Takes sessions out of the trash. They are what they were, at the place in the list that they had.",
		Example: "  strand ls --trash\n  strand restore 7f3k",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: c.completeTrash,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			r := &removing{c: c, what: "restore", of: len(args)}
			ids := r.find(args, func(arg string) (session.ID, error) { return a.InTrash(cmd.Context(), arg) })
			if err := a.Restore(cmd.Context(), ids, func(rm app.Removal) error { return r.report(rm, "restored") }); err != nil {
				return err
			}
			return r.err()
		}),
	}
}

func (c *cli) purgeCmd() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge ID..",
		Short: "Delete sessions in the trash for good",
		Long: "Deletes sessions that are in the trash for good: their logs, the long values and images that no other session\n" +
			"needs, and everything derived of them. Before that it names what stays, and for whom: the events that forks\n" +
			"begin with, and shared values. It asks at a terminal; elsewhere --yes is needed, and without it nothing is\n" +
			"done (exit code 2). An id is never used again.\n" +
			"With --json one object per session: {\"id\",\"title\",\"forks\":[{\"id\",\"trashed\",\"from\",\"to\",\"bytes\"}],\n" +
			"\"blobs\":[{\"name\",\"bytes\",\"by\":[ID]}],\"bytes\",\"done\",\"error\"}.",
		Example: "  strand rm 7f3k && strand purge 7f3k\n  strand ls --trash --any-project --json | jq -r '.id // empty' | xargs strand purge --yes",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: c.completeTrash,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			r := &removing{c: c, what: "purge", of: len(args)}
			ids := r.find(args, func(arg string) (session.ID, error) { return a.InTrash(cmd.Context(), arg) })
			if len(ids) == 0 {
				return r.err()
			}
			spin := c.newSpinner()
			spin.wait("looking for what others need")
			list, err := a.Removals(cmd.Context(), ids, true)
			spin.stop()
			if err != nil {
				return err
			}
			if !c.json {
				for _, rm := range list {
					c.printPlan(rm)
				}
			}
			if !yes {
				if c.json {
					for _, rm := range list {
						if err := c.object(rm); err != nil {
							return err
						}
					}
				}
				if err := c.confirm(len(list)); err != nil {
					return err
				}
			}
			spin = c.newSpinner()
			spin.wait("deleting")
			defer spin.stop()
			err = a.Purge(cmd.Context(), list, func(rm app.Removal) error {
				var err error
				spin.print(false, func() { err = r.report(rm, "deleted for good ("+bytesText(rm.Bytes)+")") })
				return err
			})
			if err != nil {
				return err
			}
			return r.err()
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// confirm asks a person whether n sessions are to be deleted.
func (c *cli) confirm(n int) error {
	refused := &app.UsageError{What: "purge", Why: "nobody is there to ask", Hint: "nothing was deleted; give --yes to delete without a question"}
	if c.json || !c.errTerm || !isTerminal(c.in) {
		return refused
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(c.err, "delete %s for good? [y/N] ", plural(n, "session"))
	line, err := bufio.NewReader(c.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	if err != nil {
		fmt.Fprintln(c.err)
	}
	return &failure{exit: exitFailed, code: "cancelled", what: "purge", why: "not confirmed", hint: "nothing was deleted"}
}

// removing is a command that does something to several sessions, each for itself.
type removing struct {
	c      *cli
	what   string
	of     int
	failed []*failure
}

func failedRemoval(arg string, err error) app.Removal {
	s := err.Error()
	return app.Removal{ID: session.ID(arg), Forks: []app.Heir{}, Err: err, Error: &s}
}

// find returns the sessions that args name, each once; what names none is reported.
func (r *removing) find(args []string, one func(string) (session.ID, error)) []session.ID {
	var ids []session.ID
	seen := map[session.ID]bool{}
	for _, arg := range args {
		id, err := one(arg)
		if err != nil {
			_ = r.report(failedRemoval(arg, err), "") // an error of the output stays in the writer
			continue
		}
		if seen[id] {
			r.of--
			continue
		}
		seen[id] = true
		ids = append(ids, id)
	}
	return ids
}

// report tells what became of one session.
func (r *removing) report(rm app.Removal, done string) error {
	c := r.c
	if rm.Err != nil {
		f := explain(r.what+" "+string(rm.ID), rm.Err)
		r.failed = append(r.failed, f)
		if r.of > 1 || c.json {
			if err := c.out.Flush(); err != nil {
				return err
			}
		}
		if r.of > 1 && !c.json {
			f.print(c.err, false)
		}
	}
	if c.json {
		return c.object(rm)
	}
	if rm.Err == nil {
		fmt.Fprintf(c.out, "%s  %s  %s\n", rm.ID, titleOf(rm.Title), c.paint(dim, done))
	}
	if rm.Note != "" && rm.Done != "" {
		c.note("%s: %s", rm.ID, rm.Note)
	}
	return nil
}

// err is what the command ends with: the one failure, or that there were several.
func (r *removing) err() error {
	switch len(r.failed) {
	case 0:
		return nil
	case 1:
		if r.of == 1 || r.c.json {
			return r.failed[0]
		}
	}
	exit := r.failed[0].exit
	for _, f := range r.failed {
		if f.exit != exit {
			exit = exitFailed
		}
	}
	return &failure{exit: exit, code: "failed", what: r.what, why: fmt.Sprintf("%d of %s failed", len(r.failed), plural(r.of, "session")),
		hint: linesAbove(len(r.failed), r.of, "the others are done")}
}

// linesAbove is the hint of a command of which some parts failed; rest says what became of the others, if there are any.
func linesAbove(failed, of int, rest string) string {
	if failed == of {
		return "the lines above say why"
	}
	return "the lines above say why; " + rest
}

func titleOf(title string) string {
	if title = safeLine(title); title != "" {
		return brief.Clip(title, 60)
	}
	return "(no title)"
}

// printPlan names what a purge deletes and what it leaves.
func (c *cli) printPlan(rm app.Removal) {
	fmt.Fprintf(c.out, "%s  %s\n", rm.ID, titleOf(rm.Title))
	c.printHeirs(rm, "keeps them ("+"%s)")
	switch {
	case rm.Note != "":
		fmt.Fprintf(c.out, "  %s\n", c.paint(yellow, safeLine(rm.Note)))
	case len(rm.Blobs) > 0:
		var n int64
		by := map[session.ID]bool{}
		var names []string
		for _, b := range rm.Blobs {
			n += b.Bytes
			for _, id := range b.By {
				if !by[id] {
					by[id] = true
					names = append(names, string(id))
				}
			}
		}
		if len(names) > 4 {
			names = append(names[:4], fmt.Sprintf("and %d more", len(names)-4))
		}
		fmt.Fprintf(c.out, "  %s stay (%s): needed by %s\n", plural(len(rm.Blobs), "long value"), bytesText(n), strings.Join(names, ", "))
	}
}

// printHeirs names the forks that begin with events of a session. how says what they do; %s in it is a size.
func (c *cli) printHeirs(rm app.Removal, how string) {
	for _, h := range rm.Forks {
		does := how
		if strings.Contains(does, "%s") {
			does = fmt.Sprintf(does, bytesText(h.Bytes))
		}
		where := ""
		if h.Trashed {
			where = ", in the trash itself,"
		}
		fmt.Fprintf(c.out, "  fork %s%s begins with its events %d to %d and %s\n", h.ID, where, h.From, h.To, does)
	}
}

// printTrash prints what is in the trash.
func (c *cli) printTrash(l app.TrashList, anyProject bool) {
	for _, r := range l.Rows {
		if r.State != store.StateOK && r.State != store.StateTorn {
			fmt.Fprintf(c.out, "%-20s  %s\n", r.ID, c.paint(red, safeLine(fmt.Sprintf("%s: %s", r.State, r.Reason))))
			continue
		}
		tail := ""
		if r.Kind != session.KindRoot {
			tail += " " + safeLine(string(r.Kind))
		}
		if anyProject {
			tail += " " + safeLine(r.Project)
		}
		fmt.Fprintf(c.out, "%-20s  %s  %s  %s%s\n", r.ID, when(r.LastActivity), bytesText(r.Bytes), titleOf(r.Title), c.paint(dim, tail))
	}
	switch {
	case len(l.Rows) == 0:
		c.hint("nothing of this is in the trash")
	case l.Next != "":
		c.note("%d of %d; more with --limit 0, or --cursor %s", len(l.Rows), l.Total, l.Next)
	}
}

// completeTrash offers what is in the trash to the shell.
func (c *cli) completeTrash(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	a, err := c.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer a.Close()
	l, err := a.Trash(cmd.Context(), app.ListQuery{Limit: 30})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, r := range l.Rows {
		if strings.HasPrefix(string(r.ID), toComplete) {
			out = append(out, string(r.ID)+"\t"+safeLine(r.Title))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// explainGone finds the words for what is not there any more, or not in the trash; false if err is nothing of that.
func explainGone(f *failure, err error) bool {
	var notFound *store.NotFoundError
	var notTrashed *store.NotTrashedError
	var exists *store.ExistsError
	switch {
	case errors.As(err, &notTrashed):
		f.code, f.why = "not-trashed", notTrashed.Error()
		f.hint = fmt.Sprintf("move it there with strand rm %s", notTrashed.ID)
		if strings.HasPrefix(f.what, "restore") {
			f.hint = "there is nothing to restore"
		}
	case errors.As(err, &notFound) && notFound.Trashed:
		f.exit, f.code, f.why = exitNotFound, "trashed", notFound.Error()
		f.hint = fmt.Sprintf("strand restore %s brings it back", notFound.ID)
	case errors.As(err, &notFound) && notFound.Purged:
		f.exit, f.code, f.why, f.hint = exitNotFound, "purged", notFound.Error(), "strand ls --any-project lists what there is"
	case errors.As(err, &exists) && exists.Deleted:
		f.code, f.why = "exists", exists.Error()
		if f.hint = "it cannot be made again"; !exists.Purged {
			f.hint = fmt.Sprintf("strand restore %s brings it back", exists.ID)
		}
	default:
		return false
	}
	return true
}
