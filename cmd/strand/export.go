package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/export"
	"github.com/strandline-dev/strandline/session"
)

func (c *cli) exportCmd() *cobra.Command {
	var o app.ExportOptions
	var file string
	cmd := &cobra.Command{
		Use:   "export ID",
		Short: "Write a session as one file",
		Long: "Writes a session to standard output, or into a new file with -o. jsonl is the log itself, forks with all that\n" +
			"they inherit: strand import --from native takes it in. markdown is for people, and so is html: one page that\n" +
			"a browser shows without the network, with the images in it. openai is the list of messages that the model sees,\n" +
			"in the form of the chat completions API.\n\n" +
			"Credentials of common forms (keys of services, private keys, passwords that are assigned) are replaced by\n" +
			"[redacted:..]. Only with --no-redact the log comes back byte for byte.",
		Example: "  strand export last --format markdown -o session.md\n  strand export last --format html -o session.html\n  strand export 7f3k --no-redact -o session.jsonl\n  strand export last --format openai | jq length",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: c.completeID,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			return c.withSession(cmd.Context(), args[0], func(a *app.App, id session.ID) error {
				var rep export.Report
				write := func(w io.Writer) (err error) {
					rep, err = a.Export(cmd.Context(), id, o, w)
					return err
				}
				var err error
				if file == "" {
					if err = write(c.out); err == nil {
						err = c.out.Flush()
					}
				} else {
					err = app.WriteFile(file, write)
				}
				if err != nil {
					return err
				}
				return c.exported(id, rep)
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.Format, "format", app.FormatJSONL, "`FORMAT`: jsonl, markdown, html or openai")
	f.BoolVar(&o.View, "view", false, "what the model sees, instead of the log")
	f.BoolVar(&o.NoRedact, "no-redact", false, "leave credentials in")
	f.StringVarP(&file, "output", "o", "", "write a new `FILE`, never over another one")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(app.Formats(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// exported tells what a reader of the export has to know. One that is not whole is a failure, though written.
func (c *cli) exported(id session.ID, rep export.Report) error {
	if rep.Redacted > 0 {
		c.note("%d credentials were replaced; --no-redact keeps them", rep.Redacted)
	}
	if n := len(rep.MissingBlobs); n > 0 {
		c.note("%d attachments are not in the store: %s ..", n, rep.MissingBlobs[0])
	}
	if rep.Incomplete == "" {
		return nil
	}
	return &failure{exit: exitDamaged, code: "incomplete", what: "export " + string(id), why: rep.Incomplete,
		hint: "what can be read was written; strand doctor " + string(id) + " says more"}
}
