package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/bench"
)

func (c *cli) benchCmd() *cobra.Command {
	var o bench.Options
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure storage and loop beside their physical limits",
		Long: "Measures appends, loads, forks, steps, starts, lists and searches on generated sessions. Each row that has a physical limit\n" +
			"stands beside it, measured in the same run: a raw write and fdatasync of the same bytes, a read of the same\n" +
			"file. On a shared machine the ratio counts, not the time. Works in a temporary directory that is removed.",
		Example: "  strand bench\n  strand bench --json --sizes 1000,10000,100000,1000000 --dir /var/tmp\n  strand bench --search --messages 10000,100000",
		Args:    cobra.NoArgs,
		RunE: c.does(func(cmd *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			spin := c.newSpinner()
			defer spin.stop()
			o.Binary = exe
			o.Begin = func(what string) { spin.wait("measuring %s", what) }
			o.Emit = func(r bench.Row) {
				spin.print(false, func() { c.printRow(r) })
			}
			return bench.Run(cmd.Context(), o)
		}),
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.Sizes, "sizes", []int{1_000, 10_000, 100_000}, "lengths of the histories, in events")
	f.IntSliceVar(&o.Sessions, "sessions", []int{1_000, 10_000}, "sizes of the stores that are listed")
	f.BoolVar(&o.List, "list", false, "measure lists only")
	f.IntSliceVar(&o.Messages, "messages", []int{10_000}, "sizes of the stores that are searched")
	f.BoolVar(&o.Search, "search", false, "measure searches only")
	f.IntVar(&o.Turns, "turns", 200, "turns per append measurement")
	f.StringVar(&o.Dir, "dir", "", "where to work (default the system's temporary directory)")
	cmd.MarkFlagsMutuallyExclusive("list", "search")
	return cmd
}

func (c *cli) printRow(r bench.Row) {
	defer c.out.Flush()
	if c.json {
		_ = c.object(r) // plain numbers and text
		return
	}
	size, limit := "", ""
	if r.Size > 0 {
		size = fmt.Sprint(r.Size)
	}
	if r.Raw > 0 {
		limit = fmt.Sprintf("limit %.4g, ratio %.2f", r.Raw, r.Ratio)
	}
	fmt.Fprintf(c.out, "%-62s %8s %12.4g %-9s %-30s %s\n", r.Work, size, r.Value, r.Unit, limit, r.Note)
}
