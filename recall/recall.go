// Package recall is the tool session_search: an agent finds what was said and done in the past sessions of its project.
//
// It sees what a person's search would show of these sessions and nothing else: not its own session (that it has before it),
// not other projects, not the trash. A project that was moved or renamed is one under all its names. What it must not see and what does not exist look the same. It reads only, and
// credentials are replaced before anything gets into the log again.
package recall

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/redact"
	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/tool"
)

// Options says for whom and in what the tool searches.
type Options struct {
	Store store.Store
	// Search yields at most limit results (0: no limit) that come behind f.After, newest first.
	Search func(ctx context.Context, q search.Query, f search.Filter, limit int) iter.Seq2[search.Result, error]
	Self   session.ID                // the session that asks
	Ours   func(session.Header) bool // whether a session is of the same project
	Title  func(ctx context.Context, id session.ID) string
	Now    func() time.Time
}

// orderBest is the order that does not go by time.
const orderBest = "best"

const (
	defaultLimit = 10
	maxLimit     = 50
	maxTitle     = 100      // in runes
	maxText      = 16 << 10 // of an event that is shown
	timeout      = time.Minute
)

// codeNotFound is the code of every event that cannot be shown, whatever the reason.
const codeNotFound = "NOT_FOUND"

var parameters = jsontext.Value(fmt.Sprintf(`{"type":"object","properties":{`+
	`"query":{"type":"string","description":"Words that all have to be in one message, call or result. Whole words, in any case; \"two words\" in double quotes follow each other, begin* stands for words that begin so, *middle* for words that contain it"},`+
	`"days":{"type":"integer","minimum":1,"description":"Only what is not older than this"},`+
	`"tool":{"type":"string","description":"Only calls and results of this tool"},`+
	`"order":{"type":"string","enum":["newest","best"],"description":"newest (the default) first, or best: what answers the query best first, among the newest %d places"},`+
	`"limit":{"type":"integer","minimum":1,"maximum":%d,"description":"The most to show (default %d)"},`+
	`"session":{"type":"string","description":"With seq and instead of query: the session of a place to be shown"},`+
	`"seq":{"type":"integer","minimum":0,"description":"The number of the place in that session"}},`+
	`"additionalProperties":false}`, search.RankWindow, maxLimit, defaultLimit))

// Definition returns the tool.
func Definition(o Options) tool.Definition {
	return tool.Definition{
		Name: "session_search",
		Description: "Searches the past sessions of this project: what people and agents said there, tool calls and their results, titles. " +
			"Use it when the user speaks of earlier work, or to see how something was done or decided. With query it shows where the words were found, " +
			"newest first or best first, each place with its session and seq; with session and seq it shows the text of that place. This session is left out.",
		Parameters: parameters,
		Aliases:    map[string]string{"q": "query", "pattern": "query", "session_id": "session", "id": "session"},
		ReadOnly:   true, Idempotent: true, Parallel: true, Timeout: timeout,
		Run: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			var a struct {
				Query   string `json:"query"`
				Days    int    `json:"days"`
				Tool    string `json:"tool"`
				Order   string `json:"order"`
				Limit   int    `json:"limit"`
				Session string `json:"session"`
				Seq     *int   `json:"seq"`
			}
			if err := c.Decode(&a); err != nil {
				return tool.Result{}, err
			}
			var text string
			var err error
			switch {
			case a.Query != "" && a.Session == "" && a.Seq == nil:
				f := search.Filter{Tool: a.Tool, Include: o.sees}
				if a.Days > 0 {
					f.Since = o.Now().AddDate(0, 0, -a.Days).UnixMilli()
				}
				if a.Limit == 0 {
					a.Limit = defaultLimit
				}
				text, err = o.find(ctx, a.Query, f, a.Limit, a.Order == orderBest)
			case a.Query == "" && a.Session != "" && a.Seq != nil:
				text, err = o.show(ctx, session.ID(a.Session), session.Seq(*a.Seq))
			default:
				return tool.Result{}, tool.Errorf(tool.CodeInvalidArgs, "give either query, or session and seq")
			}
			if err != nil {
				return tool.Result{}, err
			}
			text, _ = redact.Redactor{}.Text(text)
			return tool.Text(text), nil
		},
	}
}

// sees reports whether a session may be looked at.
func (o Options) sees(h session.Header) bool { return h.ID != o.Self && o.Ours(h) }

func (o Options) find(ctx context.Context, query string, f search.Filter, limit int, best bool) (string, error) {
	q, err := search.Parse(query)
	if err != nil {
		var bad *search.QueryError
		if errors.As(err, &bad) {
			return "", tool.Errorf(tool.CodeInvalidArgs, "the query: %w", err)
		}
		return "", err
	}
	found, more, err := o.page(ctx, q, f, limit, best)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "Nothing was found in the past sessions of this project.", nil
	}
	var b strings.Builder
	for _, r := range found {
		what := string(r.Field)
		if r.Tool != "" {
			what += " of " + r.Tool
		}
		fmt.Fprintf(&b, "session %s seq %d, %s, %s", r.ID, r.Seq, time.UnixMilli(r.Time).UTC().Format("2006-01-02 15:04 UTC"), what)
		if title := o.Title(ctx, r.ID); title != "" {
			fmt.Fprintf(&b, ", in %q", brief.Clip(title, maxTitle))
		}
		fmt.Fprintf(&b, ":\n  %s\n", r.Snippet.Marked("«", "»"))
	}
	if more {
		b.WriteString("There is more; narrow the query to see it.\n")
	}
	return b.String(), nil
}

// page returns the first limit results, newest first or best first, and whether there are more.
func (o Options) page(ctx context.Context, q search.Query, f search.Filter, limit int, best bool) ([]search.Result, bool, error) {
	if best {
		page, next, err := search.Ranked(search.Place{}, limit, func(after search.Key, limit int) iter.Seq2[search.Result, error] {
			f.After = after
			return o.Search(ctx, q, f, limit)
		})
		return page, next != search.Place{}, err
	}
	var page []search.Result
	for r, err := range o.Search(ctx, q, f, limit+1) {
		if err != nil {
			return nil, false, err
		}
		if len(page) == limit {
			return page, true, nil
		}
		page = append(page, r)
	}
	return page, false, nil
}

// show returns the texts of one event.
func (o Options) show(ctx context.Context, id session.ID, seq session.Seq) (string, error) {
	none := tool.Errorf(codeNotFound, "there is no such place in the past sessions of this project; take session and seq from what a query found")
	if session.ValidID(id) != nil {
		return "", none
	}
	st, err := o.Store.Stat(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && (st.Header.ID == "" || !o.sees(st.Header)) {
		return "", none
	}
	if err != nil {
		return "", err
	}
	var b strings.Builder
	var names search.Names
	err = search.Each(ctx, o.Store, search.Target{Header: st.Header, From: seq, To: seq + 1}, func(p session.Prefix, ev session.Event) error {
		texts, err := names.Texts(ev, p, seq)
		for _, t := range texts {
			fmt.Fprintf(&b, "%s:\n%s\n", strings.TrimSpace(string(t.Field)+" "+t.Tool), t.Text)
		}
		return err
	})
	switch {
	case err != nil && !errors.Is(err, store.ErrDamaged): // damage elsewhere in the log is no matter
		return "", err
	case b.Len() == 0:
		return "", none
	}
	text := b.String()
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + fmt.Sprintf("\n… %d more bytes", len(text)-maxText)
	}
	return text, nil
}
