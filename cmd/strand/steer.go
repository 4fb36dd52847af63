package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/app"
)

// commands are those of a chat, and whether they work at once while a turn runs; the others wait for its end.
var commands = map[string]bool{
	"/help": true, "/later": true, "/title": true, "/model": true,
	"/undo": false, "/redo": false, "/compact": false, "/fork": false, "/sessions": false, "/quit": false, "/exit": false,
}

// typed is a line of the person, and how many questions they had seen when they ended it.
type typed struct {
	text  string
	after uint64
}

// answers reports whether a line may be the answer to a question. What a person typed before it was there is none; a
// program that writes into a pipe knows what will be asked.
func (t *chat) answers(l typed, question uint64) bool { return !t.steers || l.after >= question }

// ahead is how many lines a person may type before the chat has looked at the first.
const ahead = 1024

// readLines reads r until its end or the end of ctx. The goroutine stays in its last read: it ends with the process.
// What a person types is read at once, so that it is known what they had seen.
func (t *chat) readLines(ctx context.Context, r io.Reader) <-chan typed {
	room := 0
	if t.steers {
		room = ahead
	}
	out := make(chan typed, room)
	go func() {
		defer close(out)
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				got := typed{line, t.asked.Load()}
				t.spin.entered()
				select {
				case out <- got:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

// meanwhile takes a line that came while a turn runs. Text is for the turn, from its next step on; it is saved before
// that is said. What cannot be done meanwhile waits. The error is one that ends the chat.
func (t *chat) meanwhile(ctx context.Context, l typed) error {
	line := strings.TrimSpace(t.c.text("the line", l.text))
	cmd, arg, _ := strings.Cut(line, " ")
	arg = strings.TrimSpace(arg)
	ag, err := t.work.Agent, error(nil)
	switch now, known := commands[cmd]; {
	case line == "":
		t.spin.print(false, func() {})
	case !strings.HasPrefix(line, "/"):
		if _, err = ag.Steer(ctx, agent.Text(line)); err == nil {
			t.more = true
			t.aside("saved; the agent gets it with its next step")
		}
	case cmd == "/later" && arg == "":
		err = nothingLater()
	case cmd == "/later":
		if _, err = ag.Followup(ctx, agent.Text(arg)); err == nil {
			t.more = true
			t.aside("saved; it has a turn of its own, after this one")
		}
	case known && !now:
		t.later = append(t.later, line)
		t.aside("%s waits until the turn is over; Ctrl-C stops the turn", cmd)
	default:
		err = t.line(ctx, line)
	}
	return t.told(err)
}

// aside tells the person what became of their line.
func (t *chat) aside(format string, args ...any) {
	t.spin.print(false, func() {
		if !t.c.quiet {
			fmt.Fprintln(t.c.err, t.c.paintErr(dim, "· "+safeLine(fmt.Sprintf(format, args...))))
		}
	})
}

func nothingLater() error {
	return &app.UsageError{What: "/later", Why: "nothing follows it", Hint: "say what is to be done later: /later TEXT"}
}

// model shows the model that is asked, or changes it from the next request on. Before the first prompt nothing is
// stored of that, as of anything else.
func (t *chat) model(ctx context.Context, name string) error {
	ag := t.work.Agent
	if name != "" {
		r, err := app.ParseModel("/model", name)
		if err != nil {
			return err
		}
		opt := t.opt
		opt.Route = r
		if ag.Session().Head() == 0 {
			err = t.goTo(ctx, opt)
		} else {
			err = ag.SetRoute(ctx, r)
		}
		if err != nil {
			return err
		}
		t.opt = opt
	}
	r := t.work.Agent.InForce().Route
	t.tell("model: %s", safeLine(r.Provider+"/"+r.Model))
	return nil
}
