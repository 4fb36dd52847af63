// Command strand runs agents whose only source of truth is an append-only session log. It is made for
// people first, and for scripts with --json.
//
// This package holds flags, text and exit codes; what is done stands in package app. Everything that is
// printed on stdout is the answer; notes, progress and errors go to stderr.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:])) }

// run carries out one command line and returns the exit code. The first SIGINT or SIGTERM ends the
// context, and with it the turn, cleanly; a second one is left to who asked for it (chat), else it ends
// the process as usual.
func run(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	c := newCLI(os.Stdin, os.Stdout, os.Stderr)
	c.signals, c.cancel = signals, cancel
	return c.execute(ctx, args)
}
