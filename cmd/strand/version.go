package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/session"
)

func (c *cli) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  strand version --json",
		Args: cobra.NoArgs,
		RunE: c.does(func(*cobra.Command, []string) error {
			if c.json {
				return c.object(struct {
					Version string `json:"version"`
					Format  int    `json:"format"`
					Go      string `json:"go"`
					OS      string `json:"os"`
					Arch    string `json:"arch"`
				}{app.Version, session.Format, runtime.Version(), runtime.GOOS, runtime.GOARCH})
			}
			fmt.Fprintf(c.out, "strand %s (format %d, %s %s/%s)\n", app.Version, session.Format, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		}),
	}
}
