package main

import (
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/llm/fake"
)

func (c *cli) fakeLLMCmd() *cobra.Command {
	var o app.FakeOptions
	cmd := &cobra.Command{
		Use:   "fake-llm --script FILE",
		Short: "Serve a script as a model service on this machine",
		Long: "Plays a script over the wire of OpenAI's chat completions, checks each request as strictly as a real service\n" +
			"does, and breaks the connection where the script says so. It listens on the loopback only and needs no key.\n" +
			"The first line of its output is the base URL for a client's configuration; it serves until it is interrupted.\n\n" +
			"Each line of the script is one reply. After its content (text, reasoning, toolCalls) it may fail:\n" +
			"  {\"fault\":F}  reset, stall, half-event, malformed, no-end, cut, wrong-type\n" +
			"  {\"error\":{\"code\":\"RATE_LIMIT\",\"status\":429,\"retryAfterMs\":2000}}, with \"html\" for a proxy's page,\n" +
			"               with \"inStream\" for an error inside of a stream that began well\n" +
			"and be slow: headersMs, delayMs, chunkMs, and pingMs for keep-alive comments meanwhile.\n" +
			"A wire does not tell the purpose of a request; its text tells the harness's own: lines with \"purpose\":\"compaction\"\n" +
			"serve requests for a summary first. All others are taken for a turn's, a subagent's too.",
		Example: "  strand fake-llm --script replies.jsonl\n" +
			"  strand fake-llm --script replies.jsonl --listen 127.0.0.1:8080 --repeat --record requests.jsonl",
		Args: cobra.NoArgs,
		RunE: c.does(func(cmd *cobra.Command, _ []string) error {
			if o.Script == "" {
				return &app.UsageError{What: "--script", Why: "there is nothing to serve", Hint: "name a file with one reply per line: {\"text\":\"..\"}"}
			}
			var mu sync.Mutex
			o.Served = func(s fake.Served) {
				mu.Lock()
				defer mu.Unlock()
				left := ""
				if s.Left {
					left = " (the client left)"
				}
				switch {
				case s.Number == 0:
					c.remark("%s", s.What)
				case s.Line == 0:
					c.remark("request %d: %s", s.Number, s.What)
				default:
					c.remark("request %d: line %d: %s%s", s.Number, s.Line, s.What, left)
				}
			}
			f, err := app.OpenFakeLLM(cmd.Context(), o)
			if err != nil {
				return err
			}
			if c.json {
				err = c.object(struct {
					BaseURL string `json:"baseUrl"`
				}{f.BaseURL})
			} else {
				_, err = fmt.Fprintln(c.out, f.BaseURL)
			}
			if ferr := c.out.Flush(); err == nil {
				err = ferr
			}
			if err != nil {
				return err
			}
			return f.Serve(cmd.Context())
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.Script, "script", "", "`FILE` of replies, one JSON object per line")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:0", "`ADDRESS` of the loopback to listen on; port 0 chooses a free one")
	f.BoolVar(&o.Repeat, "repeat", false, "begin the script again when it is used up")
	f.StringVar(&o.Record, "record", "", "append each request to `FILE`, one JSON object per line; credentials are not recorded")
	return cmd
}
