package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/demo"
	"github.com/strandline-dev/strandline/session"
)

func (c *cli) demoCmd() *cobra.Command {
	var o demo.Options
	var child, part, id string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See an agent survive kill -9",
		Long: "Needs no key and no network. An agent with real tools works in a temporary directory, is killed in the middle\n" +
			"of a tool call, picked up by a new process and finishes its task; then it is killed while it is compacted,\n" +
			"compacted at once by the next process, and forked. Everything that is printed was\n" +
			"checked; exit code 0 means that all of it held.",
		Example: "  strand demo\n  strand demo --keep --json",
		Args:    cobra.NoArgs,
		RunE: c.does(func(cmd *cobra.Command, _ []string) error {
			if child != "" {
				return demo.Child(cmd.Context(), child, demo.Part(part), session.ID(id), os.Stdout)
			}
			n := 0
			o.Command = demoChild
			o.Tell = func(cl demo.Claim) {
				if n++; !c.json && !c.quiet {
					fmt.Fprintf(c.out, "%s %s\n", c.paint(green, fmt.Sprintf("%d.", n)), strings.ReplaceAll(cl.Text, "\n", "\n   "))
					c.out.Flush()
				}
			}
			acc, err := demo.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if c.json {
				return c.object(acc)
			}
			fmt.Fprintf(c.out, "All of this was checked, in %.1f s.\n", float64(acc.Millis)/1000)
			if acc.Dir != "" {
				fmt.Fprintf(c.out, "Look around: strand ls --any-project --store %s/store\n", acc.Dir)
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&o.Keep, "keep", false, "leave the temporary directory, to look around in it")
	f.StringVar(&child, "child", "", "")
	f.StringVar(&id, "session", "", "")
	f.StringVar(&part, "part", "", "")
	_ = f.MarkHidden("child")
	_ = f.MarkHidden("part")
	_ = f.MarkHidden("session")
	return cmd
}

// demoChild starts this program again.
func demoChild(ctx context.Context, dir string, part demo.Part, id session.ID) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"demo", "--child", dir, "--part", string(part)}
	if id != "" {
		args = append(args, "--session", string(id))
	}
	return exec.CommandContext(ctx, exe, args...), nil
}
