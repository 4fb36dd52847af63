package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/demo"
	"github.com/strandline-dev/strandline/session"
)

// cli is one invocation: its streams and the global flags.
type cli struct {
	in      *os.File
	out     *bufio.Writer // flushed at the end, and by whoever streams
	err     io.Writer
	outTerm bool // stdout is a terminal
	errTerm bool
	signals interrupts

	store   string
	config  string
	json    bool
	quiet   bool
	noColor bool
	cwd     string // of commands that have --cwd or --project
}

func newCLI(in, out, errw *os.File) *cli {
	return &cli{in: in, out: bufio.NewWriter(out), err: errw, outTerm: isTerminal(out), errTerm: isTerminal(errw)}
}

// failed marks an error of a command's own work: anything else that cobra returns is a wrong use.
type failed struct {
	what string
	err  error
}

func (f *failed) Error() string { return f.err.Error() }
func (f *failed) Unwrap() error { return f.err }

func (c *cli) execute(ctx context.Context, args []string) int {
	root := c.root()
	root.SetArgs(args)
	root.SetOut(c.out)
	root.SetErr(c.err)
	err := root.ExecuteContext(ctx)
	if ferr := c.out.Flush(); err == nil && errors.Is(ferr, syscall.EPIPE) {
		return exitFailed // who reads no more wants no message
	} else if err == nil && ferr != nil {
		err = &failed{"output", ferr}
	}
	if err == nil {
		return exitOK
	}
	var f *failed
	var fail *failure
	if errors.As(err, &f) {
		fail = explain(f.what, f.err)
	} else {
		first, _, _ := strings.Cut(err.Error(), "\n")
		fail = &failure{exit: exitUsage, code: "usage", why: first, hint: "see strand help"}
		c.json = c.json || slices.Contains(args, "--json") // the flags may not have been read
	}
	fail.print(c.err, c.json)
	return fail.exit
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "strand",
		Short: "Agents whose sessions survive",
		Long: "strand runs agents in a terminal and keeps every session in an append-only log: it survives kill -9,\n" +
			"can be resumed, forked and undone, and looking at it never changes it.\n\n" +
			"An ID is a full id, the beginning of one (4 signs or more), or \"last\".",
		Example:       "  strand demo\n  strand run --script replies.jsonl --approve auto-edit \"fix the tests\"\n  strand run --continue --script more.jsonl \"go on\"\n  strand ls",
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	p := root.PersistentFlags()
	p.StringVar(&c.store, "store", "", "`DIR` of the store (default $STRANDLINE_HOME, else the user's data directory)")
	p.StringVar(&c.config, "config", "", "read `FILE` instead of the user's config file")
	p.BoolVar(&c.json, "json", false, "answers and errors as JSON")
	p.BoolVarP(&c.quiet, "quiet", "q", false, "no notes, no progress")
	p.BoolVar(&c.noColor, "no-color", false, "no colours on a terminal (also NO_COLOR)")
	root.AddCommand(c.statsCmd(), c.demoCmd(), c.runCmd(), c.chatCmd(), c.lsCmd(), c.searchCmd(), c.showCmd(), c.tailCmd(), c.forkCmd(), c.undoCmd(), c.compactCmd(), c.titleCmd(), c.rmCmd(), c.restoreCmd(), c.purgeCmd(), c.importCmd(), c.doctorCmd(), c.configCmd(), c.benchCmd(), c.approveCmd(), c.exportCmd(), c.fakeLLMCmd(), c.versionCmd())
	root.AddCommand(c.storeCmd())
	root.SetHelpCommand(c.helpCmd(root))
	return root
}

// helpCmd is cobra's, but that it refuses what is no command.
func (c *cli) helpCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about a command", Example: "  strand help run",
		RunE: func(cmd *cobra.Command, args []string) error {
			sub, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("unknown command %q", strings.Join(args, " "))
			}
			sub.InitDefaultHelpFlag()
			return sub.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if len(args) == 0 {
				for _, s := range root.Commands() {
					if s.IsAvailableCommand() {
						names = append(names, s.Name()+"\t"+s.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// does wraps the work of a command: its errors are failures, not wrong use.
func (c *cli) does(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := noEmptyFlags(cmd)
		if err == nil {
			err = f(cmd, args)
		}
		if err != nil {
			what := cmd.Name()
			if len(args) > 0 && strings.Contains(cmd.Use, " ID") {
				what += " " + args[0]
			}
			return &failed{what, err}
		}
		return nil
	}
}

// noEmptyFlags refuses a flag that was given without a value: --session "$ID" with an unset variable must not begin
// another session, and --store "$DIR" not work in the user's own store.
func noEmptyFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && f.Name != "cursor" { // the first page has an empty one
			err = &app.UsageError{What: "--" + f.Name, Why: "it is empty", Hint: "give it a value, or leave it out"}
		}
	})
	return err
}

// text is what a person typed as the log takes it: valid UTF-8.
func (c *cli) text(what, s string) string {
	if utf8.ValidString(s) {
		return s
	}
	c.note("%s holds bytes that are not UTF-8; each run of them is saved as \uFFFD", what)
	return strings.ToValidUTF8(s, "\uFFFD")
}

// open opens the store.
func (c *cli) open() (*app.App, error) {
	return app.Open(app.Options{Store: c.store, Kinds: [][]session.Kind{demo.Kinds()}, Warn: func(err error) {
		c.remark("%v; lists and searches take longer", err)
	}})
}

// withSession opens the store and finds the session that arg names.
func (c *cli) withSession(ctx context.Context, arg string, f func(a *app.App, id session.ID) error) error {
	a, err := c.open()
	if err != nil {
		return err
	}
	defer a.Close()
	defer c.report(a)
	id, err := c.resolve(ctx, a, arg)
	if err != nil {
		return err
	}
	return f(a, id)
}

func (c *cli) resolve(ctx context.Context, a *app.App, arg string) (session.ID, error) {
	var project app.Project
	if arg == app.Last {
		cwd, err := app.CheckCwd(c.cwd)
		if err != nil && c.cwd == "" {
			return "", &app.UsageError{What: app.Last, Why: "it is looked for in the project of the working directory, which cannot be used",
				Hint: "give an id (strand ls --any-project lists them), or go to another directory"}
		}
		if err != nil {
			return "", err
		}
		project = app.ProjectOf(cwd)
	}
	id, skipped, err := a.Resolve(ctx, arg, project)
	if len(skipped) > 0 {
		var s []string
		for i, sk := range skipped {
			if i == 3 {
				s = append(s, fmt.Sprintf("and %d more", len(skipped)-i))
				break
			}
			s = append(s, fmt.Sprintf("%s (%s)", sk.ID, sk.Reason))
		}
		is, which := string(id), "newer ones"
		if err != nil {
			is, which = "none of this project's sessions", "those"
		}
		c.note("%s is %s; %s passed over: %s", app.Last, is, which, strings.Join(s, ", "))
	}
	return id, err
}

// note tells something worth knowing on stderr, behind what was printed before: a full buffer ends anywhere, and the rest of a
// line must not come after the note.
func (c *cli) note(format string, args ...any) {
	if !c.quiet {
		_ = c.out.Flush() // an error stays in the writer and is reported at the end
	}
	c.remark(format, args...)
}

// remark is note for those who may not touch what is printed: they are not of the goroutine that prints.
func (c *cli) remark(format string, args ...any) {
	if !c.quiet {
		fmt.Fprintln(c.err, "strand: note: "+safeLine(fmt.Sprintf(format, args...)))
	}
}

// hint tells a person at a terminal what they can do next.
func (c *cli) hint(format string, args ...any) {
	if c.errTerm && !c.json {
		c.note(format, args...)
	}
}

// object prints v as one line of JSON.
func (c *cli) object(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.line(b)
}

// line prints a line of JSON. What would act on a terminal is escaped there, as JSON leaves C1 controls and marks of direction
// alone; the value is the same.
func (c *cli) line(b []byte) error {
	if c.outTerm {
		b = escaped(b)
	}
	c.out.Write(b)
	return c.out.WriteByte('\n') // it knows of an error before
}

// completeID offers the ids of this project's sessions to the shell.
func (c *cli) completeID(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a, err := c.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer a.Close()
	cwd, err := app.CheckCwd("")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	l, err := a.List(cmd.Context(), app.ListQuery{Projects: app.ProjectOf(cwd).Names, Limit: 30})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	out := []string{app.Last}
	for _, r := range l.Rows {
		if strings.HasPrefix(string(r.ID), toComplete) {
			out = append(out, string(r.ID)+"\t"+safeLine(r.Title))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
