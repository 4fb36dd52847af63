package main

import (
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/meter"
)

func (c *cli) statsCmd() *cobra.Command {
	var anyProject bool
	var since string
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "What was done and spent, by day, project and model",
		Long: "Sums up the sessions of this project, subagents and headless ones included: turns, steps, tool calls, tokens, cost\n" +
			"and the time that models and tools took. What a fork shares with its parent counts once; what nobody told is\n" +
			"unknown and not zero. With --json one object per day, project and model, and last {\"total\",\"unreadable\"}, with\n" +
			"\"partial\" naming the sessions that are damaged, of which only a part is counted.",
		Example: "  strand stats\n  strand stats --any-project --since 30d\n  strand stats --json | jq -r 'select(.by==\"model\") | [.key,.usage.inputTokens] | @tsv'",
		Args:    cobra.NoArgs,
		RunE: c.does(func(cmd *cobra.Command, _ []string) (err error) {
			q := app.StatsQuery{Zone: time.Local}
			if q.Projects, err = c.projects(anyProject); err != nil {
				return err
			}
			if since != "" {
				var err error
				if q.Since, err = app.ParseSince(since, time.Now()); err != nil {
					return err
				}
			}
			cfg, err := app.LoadConfig(c.config, c.cwd)
			if err != nil {
				return err
			}
			a, err := c.open()
			if err != nil {
				return err
			}
			defer a.Close()
			q.Prices = a.Prices(cfg)
			spin := c.newSpinner()
			defer spin.stop()
			s, err := a.Stats(cmd.Context(), q, func(done, all int) { spin.wait("reading %d of %d sessions", done, all) })
			if err != nil {
				return err
			}
			spin.wait("")
			if !c.json {
				spin.print(false, func() { c.printStats(s, anyProject) })
				return nil
			}
			for _, g := range s.Groups {
				if err := c.object(g); err != nil {
					return err
				}
			}
			return c.object(s)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "", "only from `TIME` on: 12h, 3d, 2026-11-30")
	f.BoolVar(&anyProject, "any-project", false, "of all projects")
	f.StringVar(&c.cwd, "project", "", "of the project that `DIR` belongs to")
	return cmd
}

func (c *cli) printStats(s app.Stats, anyProject bool) {
	if len(s.Groups) == 0 {
		c.hint("nothing was done here yet; strand stats --any-project sums up all")
	}
	by, most := "", int64(0)
	for _, g := range s.Groups {
		if g.By == "project" && !anyProject {
			continue
		}
		if g.By != by {
			by, most = g.By, 0
			for _, o := range s.Groups {
				if o.By == by {
					most = max(most, spent(o.Done))
				}
			}
			fmt.Fprintln(c.out, c.paint(bold, fmt.Sprintf("%-32s %8s %5s %5s %5s %9s %9s %9s %7s %7s", by, "sessions", "turns", "steps", "calls", "in", "out", "cost", "model", "tools")))
		}
		c.statsLine(g.Key, g.Done, most)
	}
	c.statsLine("total", s.Total, 0)
	if s.Total.Untold > 0 {
		c.note("the tokens of %d of %d steps are not known and in no sum", s.Total.Untold, s.Total.Steps)
	}
	if s.Total.Cost.Unpriced > 0 {
		c.note("%d tokens are of models without a known price and in no cost", s.Total.Cost.Unpriced)
	}
	if s.Unreadable > 0 {
		c.note("%d sessions cannot be read and are in no sum; strand ls names them", s.Unreadable)
	}
	if n := len(s.Partial); n > 0 {
		var names []string
		for _, id := range s.Partial[:min(n, 3)] {
			names = append(names, string(id))
		}
		if n > 3 {
			names = append(names, fmt.Sprintf("and %d more", n-3))
		}
		c.note("damaged, and in the sums as far as they can be read: %s; strand doctor says where", strings.Join(names, ", "))
	}
}

// barWidth is what a terminal has left beside the numbers; 0 where there is none.
func (c *cli) barWidth() int {
	const numbers = 107
	if !c.outTerm {
		return 0
	}
	return min(widthOf(os.Stdout)-numbers, 30)
}

func (c *cli) statsLine(key string, d app.Done, most int64) {
	in, out, cost := "unknown", "unknown", "unknown"
	if u := d.Usage.Told; u != nil {
		in, out = fmt.Sprint(meter.Tokens(*u)-u.OutputTokens), fmt.Sprint(u.OutputTokens)
	}
	if d.Cost.USD != nil {
		cost = fmt.Sprintf("$%.4f", *d.Cost.USD)
	}
	key = brief.Clip(safeLine(key), 32)
	key += strings.Repeat(" ", max(32-utf8.RuneCountInString(key), 0))
	fmt.Fprintf(c.out, "%s %8d %5d %5d %5d %9s %9s %9s %7s %7s%s\n", key, d.Sessions, d.Turns, d.Steps, d.ToolCalls, in, out, cost,
		seconds(d.ModelMS), seconds(d.ToolMS), barOf(spent(d), most, c.barWidth()))
}

func seconds(ms int64) string { return fmt.Sprintf("%.1fs", float64(ms)/1000) }

// spent is what a bar shows: tokens.
func spent(d app.Done) int64 {
	if d.Usage.Told == nil {
		return 0
	}
	return meter.Tokens(*d.Usage.Told)
}

// barOf draws n of most in width cells, to an eighth of one.
func barOf(n, most int64, width int) string {
	if width <= 0 || most <= 0 || n <= 0 {
		return ""
	}
	eighths := max(1, int(float64(n)/float64(most)*float64(8*width)))
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return "  " + bar
}
