package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/tool"
)

const chatHelp = `/undo      hide the last turn from the model      /redo   bring it back
/compact   replace the older part of what the model sees by a summary
/title T   give the session a title               /fork   go on in a fork of this session
/model M   ask another model from now on (PROVIDER/MODEL); without M: which it is
/sessions  list this project's sessions; with a number, an id or words of a title: go on there
/later T   T has a turn of its own, after those that run or wait
/quit      leave (also Ctrl-D)                    Ctrl-C  stop what runs; twice: leave

On a terminal, a line that you type while a turn runs steers it: it is saved, and the agent gets it with its next step
(if you stop the turn first, in a turn of its own). /later, /title, /model and /help work at once then, the other
commands when the turn is over. From a pipe each line has its turn, one after the other.

A call that waits for you: y runs it, n refuses it (n TEXT says why), a allows it always (a PREFIX: everything that
begins so), ? explains, Ctrl-C stops the turn. Leaving keeps the question for the next time.`

func (c *cli) chatCmd() *cobra.Command {
	var o workFlags
	var pick bool
	cmd := &cobra.Command{
		Use:   "chat [ID]",
		Short: "Talk to an agent, line by line",
		Long: "Begins a session (or goes on with ID) and reads prompts from standard input, one per line. Nothing is stored\n" +
			"before the first prompt.\n\n" + chatHelp,
		Example: "  strand chat --script replies.jsonl\n  strand chat last --script more.jsonl\n  strand chat --pick",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: c.completeID,
		RunE: c.does(func(cmd *cobra.Command, args []string) error {
			if c.json {
				return &app.UsageError{What: "--json", Why: "a chat is for people", Hint: "use strand run --output stream-json"}
			}
			switch {
			case pick && len(args) > 0:
				return &app.UsageError{What: "--pick", Why: "a session is named already", Hint: "leave one of them out"}
			case pick && !isTerminal(c.in):
				return &app.UsageError{What: "--pick", Why: "nobody sits at a terminal to choose", Hint: "name the session: strand ls lists them, strand chat ID goes on"}
			}
			w, err := o.options(cmd.Context(), c, len(args) == 0)
			if err != nil {
				return err
			}
			w.Default = tool.PolicyAsk
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			defer c.report(a)
			if len(args) == 1 {
				if w.Session, err = c.resolve(cmd.Context(), a, args[0]); err != nil {
					return err
				}
			}
			work, err := a.Begin(cmd.Context(), w)
			if err != nil {
				return err
			}
			return (&chat{c: c, a: a, opt: w, work: work, pick: picker{first: pick}}).run(cmd.Context())
		}),
	}
	o.register(cmd, c, "ask")
	cmd.Flags().BoolVar(&pick, "pick", false, "choose from the sessions of this project, or begin a new one")
	return cmd
}

// chat is a conversation with one agent at a time.
type chat struct {
	c    *cli
	a    *app.App
	opt  app.WorkOptions
	work *app.Work

	lines <-chan typed
	spin  *spinner
	agent atomic.Pointer[agent.Agent] // for signals
	keys  ctrlC

	steers bool          // a person types: lines that come while a turn runs are for it
	asked  atomic.Uint64 // questions shown so far
	more   bool          // input was accepted while a turn ran
	later  []string      // lines that wait until the turn is over
	pick   picker
}

var errQuit = errors.New("quit")

// run reads lines until the end of the input, /quit or a second Ctrl-C.
func (t *chat) run(ctx context.Context) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	restore := t.c.onSignal(func(sig os.Signal) {
		switch {
		case t.keys.again():
			leave()
		case sig != os.Interrupt: // asked to end, or nobody is there any more
			t.agent.Load().Cancel(causeOf(sig))
			leave()
		case t.agent.Load().Cancel(causeOf(sig)):
			t.keys.stopping.Store(true)
		default:
			t.keys.idle.Store(true)
			t.spin.print(false, func() { t.c.note("Ctrl-C again leaves") })
		}
	})
	defer restore()
	if t.spin = t.c.newSpinner(); t.spin == nil {
		t.spin = &spinner{mute: true}
	}
	t.steers = isTerminal(t.c.in)
	t.spin.typedUnder(t.steers)
	defer t.spin.stop()
	t.agent.Store(t.work.Agent)
	t.lines = t.readLines(ctx, t.c.in)
	err := t.takeUp(ctx)
	if err == nil && t.pick.first {
		err = t.told(t.offer(ctx, nil))
	}
	if err == nil {
		err = t.loop(ctx)
	}
	if errors.Is(err, errQuit) || ctx.Err() != nil {
		err = nil
	}
	ag := t.work.Agent
	stored := ag.Session().Head() > 0
	cerr := t.work.Close(context.WithoutCancel(ctx))
	if cerr != nil {
		return cerr
	}
	if stored && !t.c.quiet {
		fmt.Fprintf(t.c.out, "session %s\n", ag.ID())
	}
	return err
}

// ctrlC remembers the last press of Ctrl-C: a second one leaves. One that stopped a turn counts until that
// turn is over, one that found nothing to stop until the next line; so a press at the very end of a turn is
// never forgotten.
type ctrlC struct{ stopping, idle atomic.Bool }

func (k *ctrlC) again() bool { return k.stopping.Load() || k.idle.Load() }

func (t *chat) loop(ctx context.Context) error {
	for {
		line, ok, err := t.next(ctx)
		if err != nil {
			return err
		}
		if !ok || ctx.Err() != nil {
			return nil
		}
		t.keys.idle.Store(false)
		t.keys.stopping.Store(false)
		err = t.line(ctx, strings.TrimSpace(t.c.text("the line", line)))
		if ctx.Err() != nil {
			return nil
		}
		if err = t.told(err); err != nil {
			return err
		}
		t.keys.stopping.Store(false)
	}
}

// next returns the person's next line; ok is false at the end of them. Subagents that ask meanwhile come first.
func (t *chat) next(ctx context.Context) (line string, ok bool, err error) {
	asked := make(chan struct{}, 1)
	finish := t.work.Watch(app.Watcher{Notice: func(n agent.Notice) {
		if n.Kind == agent.NoticeAsk {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	}})
	defer finish()
	for {
		if err := t.told(t.askAll(ctx, nil)); err != nil {
			return "", false, err
		}
		t.prompt()
		if len(t.later) > 0 {
			line, t.later = t.later[0], t.later[1:]
			t.tell("%s", safeLine(line))
			return line, true, nil
		}
		select {
		case <-ctx.Done():
			return "", false, nil
		case line, ok := <-t.lines:
			return line.text, ok, nil
		case <-asked:
		}
	}
}

// takeUp goes on with what an earlier life left waiting, before anything else: the turn, and subagents.
func (t *chat) takeUp(ctx context.Context) error {
	if t.work.Agent.Session().State().Parked() {
		return t.told(t.turn(ctx, t.work.Agent.Kick))
	}
	if n := t.work.Agent.Status().Queued; n > 0 && t.steers {
		t.spin.print(false, func() { t.c.note("%d of what you said before waits still: the agent gets it with your next line", n) })
	}
	t.work.TakeUp(ctx)
	return nil
}

// told shows an error that the chat goes on after, and returns the others.
func (t *chat) told(err error) error {
	if err == nil || errors.Is(err, errQuit) {
		return err
	}
	f := explain("", err)
	// What is not saved is kept, and saved with the next line if there is room by then. Who was fenced has nothing to
	// go on with.
	if f.exit == exitBusy || f.exit == exitNotSaved && (errors.Is(err, store.ErrFenced) || !errors.Is(err, store.ErrNotSaved)) {
		return err
	}
	t.spin.print(false, func() { f.print(t.c.err, false) })
	return nil
}

// prompt asks for a line, if a person sits there.
func (t *chat) prompt() {
	if t.c.outTerm {
		t.spin.print(true, func() {
			fmt.Fprint(t.c.out, t.c.paint(bold, "> "))
			t.c.out.Flush()
		})
	}
}

func (t *chat) line(ctx context.Context, line string) error {
	ag := t.work.Agent
	if t.pick.first && !strings.HasPrefix(line, "/") {
		return t.choice(ctx, line)
	}
	cmd, arg, _ := strings.Cut(line, " ")
	if cmd == "/later" { // nothing runs: it is like any other
		if line = strings.TrimSpace(arg); line == "" {
			return nothingLater()
		}
	}
	switch _, known := commands[cmd]; {
	case line == "":
		return nil
	case cmd == "/later" || !strings.HasPrefix(line, "/"):
		return t.turn(ctx, func(ctx context.Context) error {
			_, err := ag.Followup(ctx, agent.Text(line))
			return err
		})
	case !known:
		return &app.UsageError{What: cmd, Why: "there is no such command here", Hint: "/help lists them"}
	}
	switch cmd {
	case "/quit", "/exit":
		return errQuit
	case "/help":
		t.tell("%s", chatHelp)
	case "/undo", "/redo":
		f, what := ag.Undo, "undone"
		if cmd == "/redo" {
			f, what = ag.Redo, "restored"
		}
		turn, err := f(ctx)
		if err != nil {
			return err
		}
		t.tell("turn %d %s", turn, what)
	case "/compact":
		return t.compact(ctx)
	case "/title":
		if arg = strings.TrimSpace(arg); arg == "" {
			t.tell("%s", safeLine(ag.Session().State().Title().Title))
			return nil
		}
		if ag.Session().Head() == 0 {
			return nothingSaid(cmd)
		}
		if err := ag.SetTitle(ctx, arg); err != nil {
			return err
		}
		t.tell("title: %s", safeLine(arg))
	case "/model":
		return t.model(ctx, strings.TrimSpace(arg))
	case "/fork":
		return t.fork(ctx)
	case "/sessions":
		return t.sessions(ctx, strings.TrimSpace(arg))
	}
	return nil
}

func (t *chat) tell(format string, args ...any) {
	t.spin.print(false, func() {
		fmt.Fprintln(t.c.out, safe(fmt.Sprintf(format, args...)))
		t.c.out.Flush()
	})
}

func nothingSaid(cmd string) error {
	return &app.UsageError{What: cmd, Why: "nothing was said yet", Hint: "begin with a prompt"}
}

// fork goes on in a fork; this session is saved and let go.
func (t *chat) fork(ctx context.Context) error {
	if t.work.Agent.Session().Head() == 0 {
		return nothingSaid("/fork")
	}
	f, err := t.a.Fork(ctx, t.work.Agent.ID(), nil)
	if err != nil {
		return err
	}
	opt := t.opt
	opt.Session, opt.Cwd = f.ID, ""
	if err := t.goTo(ctx, opt); err != nil {
		return err
	}
	t.tell("now in %s, a fork of %s at %d", f.ID, f.Parent, f.Seq)
	return nil
}

// goTo goes on with other work; what was at work is saved and let go.
func (t *chat) goTo(ctx context.Context, opt app.WorkOptions) error {
	next, err := t.a.Begin(ctx, opt)
	if err != nil {
		return err
	}
	err = t.work.Close(context.WithoutCancel(ctx))
	if err != nil {
		return errors.Join(err, next.Close(context.WithoutCancel(ctx)))
	}
	t.work = next
	t.agent.Store(next.Agent)
	return nil
}

// ended returns how the turn ended if a person should know: a turn that they stopped is none of it.
func ended(w *app.Work) error {
	err := w.Outcome()
	var turn *app.TurnError
	if errors.As(err, &turn) && turn.Cancelled {
		return nil
	}
	return err
}
