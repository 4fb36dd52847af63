// Command strand runs agents whose only source of truth is an append-only session log. It is made for
// people first, and for scripts with --json.
//
// This package holds flags, text and exit codes; what is done stands in package app. Everything that is
// printed on stdout is the answer; notes, progress and errors go to stderr.
package main

import (
	"context"
	"os"
)

func main() { os.Exit(run(os.Args[1:])) }

// run carries out one command line and returns the exit code.
func run(args []string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := newCLI(os.Stdin, os.Stdout, os.Stderr)
	defer c.trap(cancel)()
	return c.execute(ctx, args)
}
