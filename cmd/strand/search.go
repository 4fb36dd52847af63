package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/search"
)

// foundRows is how many matches a page of a search has when nobody says how many.
const foundRows = 50

func (c *cli) searchCmd() *cobra.Command {
	var q app.SearchQuery
	var anyProject bool
	var since string
	var kinds, in []string
	cmd := &cobra.Command{
		Use:   "search QUERY",
		Short: "Find words in sessions, newest first",
		Long: "Finds words in what people and models said, in the names, arguments and results of tool calls and in titles, in the\n" +
			"sessions of this project, newest first. What was undone or compacted away is found too.\n\n" +
			"Words are found whole, in any case, with or without accents, and all of them have to be in one event. \"two words\" in\n" +
			"quotes follow each other; begin* finds words that begin so, *middle* words that contain it. Of scripts that are written without\n" +
			"spaces every run of signs is found.\n\n" +
			"With --rank the best of the newest 200 matches come first: titles and what people said before the rest, short texts before long ones.\n\n" +
			"With --json one object per line, and last {\"next\",\"incomplete\"}.",
		Example: "  strand search race condition\n  strand search '\"connection refused\" retry*' --any-project --since 7d\n  strand search '*Handler*' --tool edit\n  strand search --rank deadlock\n  strand search migration --in human,title --json | jq -r .id",
		Args:    cobra.MinimumNArgs(1),
		RunE: c.does(func(cmd *cobra.Command, args []string) (err error) {
			if q.Limit < 0 {
				return &app.UsageError{What: "--limit", Why: "it is below 0", Hint: "0 means no limit"}
			}
			if q.Projects, err = c.projects(anyProject); err != nil {
				return err
			}
			if since != "" {
				if q.Since, err = app.ParseSince(since, time.Now()); err != nil {
					return err
				}
			}
			if q.Kinds, err = app.SessionKinds(kinds); err != nil {
				return err
			}
			if q.Fields, err = app.SearchFields(in); err != nil {
				return err
			}
			q.Text = strings.Join(args, " ")
			return c.search(cmd, q)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&c.cwd, "project", "", "in the project that `DIR` belongs to")
	f.BoolVar(&anyProject, "any-project", false, "in all projects")
	f.StringSliceVar(&kinds, "kind", nil, "only in sessions of this `KIND` (root, fork, subagent, headless, imported)")
	f.StringSliceVar(&in, "in", nil, "only in this `FIELD` (human, assistant, reasoning, tool, arguments, result, title)")
	f.StringVar(&q.Tool, "tool", "", "only in the calls and results of the tool `NAME`")
	f.StringVar(&since, "since", "", "only of this `TIME` and later: 12h, 3d, 2026-11-30")
	f.IntVar(&q.Limit, "limit", foundRows, "at most `N` (0 = all; with --rank the rest of the 200)")
	f.BoolVar(&q.Rank, "rank", false, "the best of the newest 200 first")
	f.StringVar(&q.Cursor, "cursor", "", "go on where a page ended (`NEXT` of its last line)")
	return cmd
}

func (c *cli) search(cmd *cobra.Command, q app.SearchQuery) error {
	a, err := c.open()
	if err != nil {
		return err
	}
	defer a.Close()
	spin := c.newSpinner()
	defer spin.stop()
	n := 0
	end, err := a.Search(cmd.Context(), q,
		func(done, total int) { spin.wait("searching session %d of %d", min(done+1, total), total) },
		func(m app.Match) error {
			n++
			if c.json {
				return c.object(m)
			}
			spin.print(false, func() {
				c.printMatch(m, q.Projects == nil)
				if c.outTerm { // a full buffer ends anywhere, and the line of the spinner would take the rest's place
					_ = c.out.Flush() // an error stays in the writer and is reported at the end
				}
			})
			return nil
		})
	if err != nil {
		return err
	}
	if c.json {
		err = c.object(end)
	}
	spin.print(false, func() { c.searchNotes(end, q, n) })
	return err
}

// searchNotes tells what a search of n matches leaves to tell.
func (c *cli) searchNotes(end app.SearchEnd, q app.SearchQuery, n int) {
	for i, t := range end.Incomplete {
		if i == 3 {
			c.note("%d more sessions could not be searched whole; strand doctor looks at all", len(end.Incomplete)-i)
			break
		}
		c.note("session %s could not be searched whole: %s", t.ID, t.Reason)
	}
	switch {
	case c.json:
	case end.Next != "":
		rank := ""
		if q.Rank {
			rank = "--rank "
		}
		c.note("more with %s--cursor %s", rank, end.Next)
	case n == 0 && q.Projects != nil:
		c.hint("nothing found in this project; --any-project searches all")
	case n == 0:
		c.hint("nothing found")
	}
	if n > 0 {
		c.hint("strand show ID --from SEQ shows the place")
	}
}

// printMatch shows a match in two lines: where, and what.
func (c *cli) printMatch(m app.Match, anyProject bool) {
	what := string(m.Field)
	switch m.Field {
	case search.FieldTool, search.FieldArguments:
		what = "call of " + brief.Clip(m.Tool, nameSigns)
	case search.FieldResult:
		what = strings.TrimSuffix("result of "+brief.Clip(m.Tool, nameSigns), " of ")
	}
	head := fmt.Sprintf("%s --from %d  %s  %s", m.ID, m.Seq, when(m.Time), safeLine(what))
	more := safeLine(m.Title)
	if anyProject {
		more = safeLine(m.Project + "  " + more)
	}
	fmt.Fprintf(c.out, "%s  %s\n", c.paint(cyan, head), c.paint(dim, brief.Clip(more, 100)))
	text := m.Snippet
	if c.outTerm && c.colours() {
		text = m.Marks.Marked("\x1b["+bold+"m", "\x1b[0m") // the snippet holds no control signs
	} else {
		text = safeLine(text)
	}
	fmt.Fprintf(c.out, "    %s\n", text)
}
