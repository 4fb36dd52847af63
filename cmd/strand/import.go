package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
)

func (c *cli) importCmd() *cobra.Command {
	var from string
	var repair bool
	cmd := &cobra.Command{
		Use:   "import PATH..",
		Short: "Import session files of other programs, or exported ones",
		Long: "Makes a session of each file; directories are walked, and files in them that hold no session are passed over.\n" +
			"A file is known by its content. It is only read. The same file again gives the same session and writes nothing;\n" +
			"one that has grown makes a new session. What has no meaning here is kept as a note and counted. One bad file\n" +
			"does not stop the rest: the exit code is 1 then.\n\n" +
			"An exported session whose records do not fit together (some are missing, stand there twice, or are damaged) is\n" +
			"refused. With --repair what is good of it becomes a session of its own: each missing event is marked, and the\n" +
			"report says what was passed over.",
		Example: "  strand import ~/.dsh/sessions\n  strand import --from dsh session.jsonl.zstd --json\n  strand import exported.jsonl\n  strand import --repair exported.jsonl",
		Args:    cobra.MinimumNArgs(1),
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			spin := c.newSpinner()
			defer spin.stop()
			spin.wait("looking for session files")
			plan, err := a.PlanImport(cmd.Context(), args, from, repair)
			if err != nil {
				return err
			}
			bad := 0
			err = a.Import(cmd.Context(), plan,
				func(i int) { spin.wait("importing %d of %d", i+1, len(plan.Files)) },
				func(r app.Imported) error {
					if r.Err != nil {
						bad++
					}
					if c.json {
						return c.object(r)
					}
					spin.print(false, func() { c.printImported(r) })
					return nil
				})
			spin.print(false, func() {
				if plan.Skipped > 0 {
					c.note("%s passed over: no session files", plural(plan.Skipped, "file"))
				}
			})
			switch {
			case err != nil:
				return err
			case len(plan.Files) == 0:
				return &failure{exit: exitFailed, code: "nothing", what: "import", why: "no session files found", hint: "name a file, or a directory that holds some"}
			case bad > 0:
				return &failure{exit: exitFailed, code: "failed", what: "import", why: fmt.Sprintf("%d of %s could not be imported", bad, plural(len(plan.Files), "file")),
					hint: linesAbove(bad, len(plan.Files), "the others are stored")}
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&from, "from", app.FromAuto, "`FORMAT` of the files: "+strings.Join(app.ImportFormats(), ", "))
	cmd.Flags().BoolVar(&repair, "repair", false, "take in what is good of an exported session that does not fit, with marks")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(app.ImportFormats(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// printImported tells a person what became of a file: one line, and one more for what is not as it was.
func (c *cli) printImported(r app.Imported) {
	path := safeLine(r.Path)
	if r.Err != nil {
		fmt.Fprintf(c.out, "%-20s  %s: %s\n", c.paint(red, "not imported"), path, safeLine(oneLine(r.Err.Error())))
		return
	}
	fmt.Fprintf(c.out, "%s  %6d events  %s  %s", r.ID, r.Events, r.Tool, path)
	switch {
	case r.Existing:
		fmt.Fprintf(c.out, " %s", c.paint(dim, "(here already)"))
	case r.Older != "":
		fmt.Fprintf(c.out, " %s", c.paint(dim, "(goes on from "+string(r.Older)+")"))
	}
	fmt.Fprintln(c.out)
	if f := r.Fidelity; f != nil && !r.Existing && len(f.Dropped) > 0 {
		var s []string
		for i, d := range f.Dropped {
			if i == 4 {
				s = append(s, fmt.Sprintf("and %d more kinds", len(f.Dropped)-i))
				break
			}
			s = append(s, fmt.Sprintf("%d %s", d.Count, d.What))
		}
		fmt.Fprintf(c.out, "  %s\n", c.paint(dim, safeLine("without a meaning here: "+strings.Join(s, "; "))))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
