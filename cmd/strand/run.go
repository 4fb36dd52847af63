package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

type runFlags struct {
	workFlags
	session   string
	last, new bool
	output    string
	headless  bool
}

// workFlags are those of every command that may call a model.
type workFlags struct {
	model, script, approve string
	maxSteps               int
	alone                  bool
	takeOver               bool
	allow, deny            []string // rules of approval
}

func (o *workFlags) register(cmd *cobra.Command, c *cli, approve string) {
	o.registerModel(cmd, c)
	f := cmd.Flags()
	f.StringVar(&c.cwd, "cwd", "", "work in `DIR` (default: the session's, for a new one the working directory)")
	f.StringVar(&o.approve, "approve", "", "which calls run: ask, auto-edit, never-ask or yolo (default: the session's, else "+approve+")")
	f.StringArrayVar(&o.allow, "allow", nil, "let the calls of a tool run unasked: `TOOL[:PREFIX]`, e.g. 'bash:git status'; kept by the session")
	if f.Lookup("deny") == nil { // of approve: the answer
		f.StringArrayVar(&o.deny, "deny", nil, "never let calls of a tool run: `TOOL[:PREFIX]`; kept by the session")
	}
	f.BoolVar(&o.alone, "no-subagents", false, "do not offer the tool that hands work to subagents")
	f.IntVar(&o.maxSteps, "max-steps", 0, "end a turn after `N` steps (0 = as configured, else 50)")
	_ = cmd.RegisterFlagCompletionFunc("approve", cobra.FixedCompletions([]string{"ask", "auto-edit", "never-ask", "yolo"}, cobra.ShellCompDirectiveNoFileComp))
}

// registerModel adds the flags of every command that calls a model.
func (o *workFlags) registerModel(cmd *cobra.Command, c *cli) {
	f := cmd.Flags()
	f.StringVar(&o.script, "script", "", "`FILE` of replies that plays the model, one JSON object per line")
	f.StringVar(&o.model, "model", "", "`PROVIDER/MODEL` to ask (default: the session's, else the configured one; strand config shows it)")
	f.BoolVar(&o.takeOver, "take-over", false, "if another process holds the session, ask it to stop, save and let go, for at most 10 s")
}

// options checks the flags and reads the script: everything that can be wrong before anything is opened.
func (o *workFlags) options(ctx context.Context, c *cli, fresh bool) (app.WorkOptions, error) {
	var w app.WorkOptions
	var approve tool.Policy
	var err error
	if o.maxSteps < 0 {
		return w, &app.UsageError{What: "--max-steps", Why: "it is below 0", Hint: "0 means the default"}
	}
	if o.approve != "" {
		if approve, err = tool.ParsePolicy(o.approve); err != nil {
			return w, &app.UsageError{What: "--approve " + o.approve, Why: "there is no such policy", Hint: "it is one of ask, auto-edit, never-ask, yolo"}
		}
	}
	rules, err := app.Rules(o.allow, o.deny)
	if err != nil {
		return w, err
	}
	cwd := ""
	if fresh || c.cwd != "" {
		if cwd, err = app.CheckCwd(c.cwd); err != nil {
			return w, err
		}
	}
	w, err = app.CheckRun(ctx, o.script, o.model, c.config, cwd)
	w.Here, _ = os.Getwd() // one that is gone says nothing
	w.Approve, w.Rules, w.Cwd, w.MaxSteps, w.TakeOver = approve, rules, cwd, o.maxSteps, o.takeOver
	w.NoSubagents = o.alone
	return w, err
}

func (c *cli) runCmd() *cobra.Command {
	var o runFlags
	cmd := &cobra.Command{
		Use:   "run PROMPT",
		Short: "Give an agent one prompt and wait until it is done",
		Long: "Begins a session (or goes on with one), gives the agent a prompt and waits until nothing is owed. PROMPT -\n" +
			"is read from standard input. The prompt is saved before anything is done with it.\n\n" +
			"--output text prints what the agent says; json prints one object when it is done; stream-json prints every\n" +
			"event once it is saved, and the text as it comes as {\"type\":\"delta\"}.",
		Example: "  strand run --script replies.jsonl --approve auto-edit \"fix the tests\"\n" +
			"  strand run --script more.jsonl --continue \"go on\"\n" +
			"  git diff | strand run --script review.jsonl --output json -",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%d arguments came, and PROMPT is one: put it in quotes", len(args))
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			return c.runPrompt(cmd.Context(), o, args[0])
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.session, "session", "", "go on with the session `ID`")
	f.BoolVar(&o.last, "continue", false, "go on with the session of this project that was last worked on")
	f.BoolVar(&o.new, "new", false, "begin a session (the default)")
	f.StringVar(&o.output, "output", "", "`FORM` of the answer: text, json or stream-json (default text, with --json json)")
	f.BoolVar(&o.headless, "headless", false, "a program asks, not a person: lists hide the session")
	o.register(cmd, c, "never-ask")
	cmd.MarkFlagsMutuallyExclusive("session", "continue", "new")
	_ = cmd.RegisterFlagCompletionFunc("session", func(cmd *cobra.Command, _ []string, s string) ([]string, cobra.ShellCompDirective) {
		return c.completeID(cmd, nil, s)
	})
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json", "stream-json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// form reads --output, and makes errors JSON if the answer is.
func (c *cli) form(output string) (string, error) {
	switch {
	case output == "" && c.json:
		output = "json"
	case output == "":
		output = "text"
	case output != "text" && output != "json" && output != "stream-json":
		return "", &app.UsageError{What: "--output " + output, Why: "there is no such form", Hint: "it is one of text, json, stream-json"}
	}
	c.json = c.json || output != "text"
	return output, nil
}

func (c *cli) runPrompt(ctx context.Context, o runFlags, prompt string) error {
	var err error
	if o.output, err = c.form(o.output); err != nil {
		return err
	}
	if o.last {
		o.session = app.Last
	}
	if o.headless && o.session != "" {
		return &app.UsageError{What: "--headless", Why: "a session has its kind from its beginning", Hint: "leave it out, or begin a new session"}
	}
	w, err := o.options(ctx, c, o.session == "")
	if err != nil {
		return err
	}
	w.Default, w.Wake = tool.PolicyNeverAsk, true
	if o.headless {
		w.Kind = session.KindHeadless
	}
	if prompt == "-" {
		b, err := io.ReadAll(c.in)
		if err != nil {
			return err
		}
		prompt = string(b)
	}
	if prompt = c.text("PROMPT", prompt); strings.TrimSpace(prompt) == "" {
		return &app.UsageError{What: "PROMPT", Why: "it is empty", Hint: "say what is to be done"}
	}
	a, err := c.open()
	if err != nil {
		return err
	}
	defer a.Close()
	defer c.report(a)
	if o.session != "" {
		if w.Session, err = c.resolve(ctx, a, o.session); err != nil {
			return err
		}
	}
	work, err := a.Begin(ctx, w)
	if err != nil {
		return err
	}
	return c.toIdle(ctx, work, o.output, func(ctx context.Context) error {
		_, err := work.Agent.Followup(ctx, agent.Text(prompt))
		return err
	})
}

// lastWait is how long a second signal lets saving take.
const lastWait = 3 * time.Second

// toIdle begins something, shows what happens until nothing is owed or only a person can go on, and lets the
// session go.
func (c *cli) toIdle(ctx context.Context, work *app.Work, output string, begin func(context.Context) error) error {
	ag := work.Agent
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var once sync.Once
	restore := c.onSignal(func(sig os.Signal) {
		if sig == syscall.SIGPIPE { // nobody reads on; more of them may come, none is a person's
			ag.Cancel(causeOf(sig))
			return
		}
		first := false
		once.Do(func() { first = true })
		if !first || !ag.Cancel(causeOf(sig)) {
			leave()
		}
	})
	defer restore()

	spin := c.newSpinner()
	show := c.shower(output, work, spin)
	finish := work.Watch(show)
	spin.wait("waiting for %s", "the model")
	err := begin(ctx)
	if err == nil {
		if err = work.WhenQuiet(ctx); err != nil && ctx.Err() != nil {
			err = errCancelled
		}
	}
	summary, serr := work.Summary()
	outcome := work.Outcome()
	finish()
	spin.stop()
	closing := context.WithoutCancel(ctx)
	if ctx.Err() != nil {
		var stop context.CancelFunc
		closing, stop = context.WithTimeout(closing, lastWait)
		defer stop()
	}
	cerr := work.Close(closing)
	if cerr != nil {
		return cerr // not saved: nothing else counts
	}
	if err != nil {
		return err
	}
	if serr != nil {
		return serr
	}
	if output == "json" {
		if err := c.object(summary); err != nil {
			return err
		}
	}
	if output == "text" {
		c.hint("session %s, tokens %s; go on with strand run --continue", summary.SessionID, summary.Usage)
	}
	return outcome
}

// observes makes what the command writes without an agent be told of. A configuration that cannot be read is no reason
// not to do it.
func (c *cli) observes(a *app.App) {
	cfg, err := app.LoadConfig(c.config, "")
	if err != nil {
		c.note("telemetry is off: %v", err)
		return
	}
	a.Observe(cfg)
}

// lastReport is how long a receiver of telemetry is waited for at the end.
const lastReport = 2 * time.Second

// report sends what telemetry is left. A receiver that does not answer is waited for a moment, and a signal ends that.
func (c *cli) report(a *app.App) {
	if !a.Observed() {
		return
	}
	_ = c.out.Flush() // who reads the answer does not wait for this; a failure is told at the end
	ctx, leave := context.WithTimeout(context.Background(), lastReport)
	defer leave()
	defer c.onSignal(func(os.Signal) { leave() })()
	if line := a.Report(ctx); line != "" {
		c.note("%s", line)
	}
}

var errCancelled = fmt.Errorf("stopped: %w", context.Canceled)

func causeOf(sig os.Signal) agent.CauseKind {
	if sig == os.Interrupt {
		return agent.CauseUser
	}
	return agent.CauseShutdown
}
