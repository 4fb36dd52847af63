package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/config"
)

func (c *cli) configCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show what is configured, and where it comes from",
		Long: "Shows every value that is in force and its origin. Keys are never shown.\n\n" +
			"The user's file (see above its path with strand config) may hold:\n\n" +
			"  model = \"openai/gpt-5\"        # PROVIDER/MODEL for new sessions\n" +
			"  approval = \"ask\"             # ask, auto-edit, never-ask or yolo\n" +
			"  max_steps = 50               # of one turn\n" +
			"  title = \"model\"              # who is asked once for a session's title: its model, or PROVIDER/MODEL (default: nobody)\n" +
			"  subagents = true             # agents may hand work to subagents\n" +
			"  [providers.mine]             # openai, deepseek, openrouter and ollama are built in\n" +
			"  kind = \"openai\"              # speaks OpenAI's chat completions\n" +
			"  base_url = \"http://localhost:8000/v1\"\n" +
			"  key_env = \"MY_KEY\"           # or key = \"..\", or neither\n" +
			"  idle_timeout = \"10m\"         # how long it may say nothing (default 5m)\n" +
			"  dialect = \"vllm\"             # generic, openai, deepseek, openrouter, ollama, vllm, llama.cpp\n" +
			"  [models.\"mine/some-model\"]\n" +
			"  context_window = 131072      # tokens; known models need none\n" +
			"  price_input = 0.5            # US dollars for a million tokens; also price_output, price_cache_read, ..write\n" +
			"  [models.\"mine/some-model\".compaction]  # or [compaction] for all models\n" +
			"  auto = true                  # compact when the view nears the window\n" +
			"  threshold = 0.8              # from this share of it; tail = 0.16 of it stays as it is; growth = 0.1\n" +
			"  timeout = \"5m\"              # of a summary; summary_tokens = 8192; attempts = 2\n" +
			"  prune_over = 8192            # signs of an old result, of which prune_head = 4096 and prune_tail = 1024 stay\n" +
			"  [telemetry]                  # OpenTelemetry by OTLP over HTTP; off unless there is an endpoint\n" +
			"  endpoint = \"http://localhost:4318\"  # OTEL_EXPORTER_OTLP_ENDPOINT and the other OTEL_* variables count more\n" +
			"  headers = { authorization = \"Bearer ..\" }\n" +
			"  content = false              # what people, models and tools said leaves, too, redacted\n\n" +
			"A project's file, " + app.ProjectConfig + " at its root, comes with whatever is checked out. It may hold model (of a provider\n" +
			"that your own file names or uses), max_steps (it can only be lower) and approval (it can only be stricter: ask or\n" +
			"never-ask). Anything else in it is an error. Flags count more than both files.",
		Example: "  strand config\n  strand config --json --config other.toml",
		Args:    cobra.NoArgs,
		RunE: c.does(func(*cobra.Command, []string) error {
			cfg, err := app.LoadConfig(c.config, "")
			if err != nil {
				return err
			}
			if c.json {
				notes := cfg.Notes
				if notes == nil {
					notes = []string{}
				}
				return c.object(struct {
					Files    []config.File    `json:"files"`
					Settings []config.Setting `json:"settings"`
					Notes    []string         `json:"notes"`
				}{cfg.Files, cfg.Settings(), notes})
			}
			for _, f := range cfg.Files {
				found := "not there"
				if f.Found {
					found = "read"
				}
				fmt.Fprintf(c.out, "%s file  %s  (%s)\n", f.Role, safeLine(f.Path), found)
			}
			fmt.Fprintln(c.out)
			w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
			for _, s := range cfg.Settings() {
				value, origin := safeLine(s.Value), safeLine(s.Origin)
				if value == "" {
					value = "not set"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", safeLine(s.Key), value, origin)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			for _, n := range cfg.Notes {
				c.note("%s", n)
			}
			return nil
		}),
	}
	return cmd
}
