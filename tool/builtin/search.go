package builtin

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/tool"
)

// shown returns the name of a file of the area as the model may use it again.
func (p *place) shown(w *workspace, rel string) string {
	return w.display(filepath.Join(p.area.real, filepath.FromSlash(rel)))
}

// below returns rel as seen from the place itself.
func (p *place) below(rel string) string {
	start := filepath.ToSlash(p.rel)
	switch {
	case start == ".":
		return rel
	case start == rel:
		return path.Base(rel)
	}
	return strings.TrimPrefix(rel, start+"/")
}

func globTool(w *workspace) tool.Definition {
	return tool.Definition{
		Name:    "glob",
		Aliases: globAliases,
		Description: "Finds files of the workspace by name: * matches within one directory, ** any directories, {a,b} either, [a-z] a range. " +
			"A pattern without / is looked for at every depth. Sorted by path. Leaves out .git and what .gitignore excludes.",
		Parameters: jsontext.Value(`{"type":"object","properties":{` +
			`"pattern":{"type":"string","minLength":1,"description":"For example **/*.go or src/*.{ts,tsx}"},` +
			`"path":{"type":"string","description":"Directory to search, to which the pattern is relative (default: the workspace)"},` +
			`"ignored":{"type":"boolean","description":"Also find what .gitignore excludes (default false)"}},` +
			`"required":["pattern"],"additionalProperties":false}`),
		Parallel: true, ReadOnly: true, Idempotent: true, Timeout: fileTimeout,
		Subject: pathSubject(w),
		Run: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			var a struct {
				Pattern string `json:"pattern"`
				Path    string `json:"path"`
				Ignored bool   `json:"ignored"`
			}
			if err := c.Decode(&a); err != nil {
				return tool.Result{}, err
			}
			match, err := globMatcher(a.Pattern)
			if err != nil {
				return tool.Result{}, err
			}
			p, err := w.find(a.Path)
			if err != nil {
				return tool.Result{}, err
			}
			defer p.close()
			out := &listing{what: "files", limit: 1000}
			err = walker{p, a.Ignored}.walk(ctx, func(rel string) bool {
				if match(p.below(rel)) {
					out.add(p.shown(w, rel))
				}
				return true
			})
			if err != nil {
				return tool.Result{}, err
			}
			if out.lines == 0 {
				return tool.Text("No file matches " + a.Pattern + "."), nil
			}
			return out.result(), nil
		},
	}
}

func globMatcher(pattern string) (func(string) bool, error) {
	pattern = strings.TrimPrefix(filepath.ToSlash(pattern), "./")
	if !doublestar.ValidatePattern(pattern) {
		return nil, tool.Errorf(tool.CodeInvalidArgs, "the pattern %q is not valid", pattern)
	}
	if !strings.Contains(pattern, "/") {
		pattern = "**/" + pattern
	}
	return func(name string) bool { return doublestar.MatchUnvalidated(pattern, name) }, nil
}

func grepTool(w *workspace) tool.Definition {
	return tool.Definition{
		Name:    "grep",
		Aliases: grepAliases,
		Description: "Searches the text files of the workspace, line by line, for a regular expression (RE2 syntax: no back references, no look-around). " +
			"Shows path:line: text, sorted by path. Leaves out .git, binary files and what .gitignore excludes.",
		Parameters: jsontext.Value(`{"type":"object","properties":{` +
			`"pattern":{"type":"string","minLength":1,"description":"Regular expression"},` +
			`"path":{"type":"string","description":"File or directory to search (default: the workspace)"},` +
			`"glob":{"type":"string","description":"Only files whose path matches, for example *.go"},` +
			`"ignoreCase":{"type":"boolean"},` +
			`"context":{"type":"integer","minimum":0,"maximum":20,"description":"Lines to show before and after each match (default 0)"},` +
			`"filesOnly":{"type":"boolean","description":"Show only the paths of files with a match"},` +
			`"limit":{"type":"integer","minimum":1,"maximum":1000,"description":"The most matches to show (default 200)"},` +
			`"ignored":{"type":"boolean","description":"Also search what .gitignore excludes (default false)"}},` +
			`"required":["pattern"],"additionalProperties":false}`),
		Parallel: true, ReadOnly: true, Idempotent: true, Timeout: fileTimeout,
		Subject: pathSubject(w),
		Run: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			g := grep{w: w, Limit: 200}
			if err := c.Decode(&g); err != nil {
				return tool.Result{}, err
			}
			return g.run(ctx)
		},
	}
}

// grep is one search: its arguments and what it found so far.
type grep struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path"`
	Glob       string `json:"glob"`
	IgnoreCase bool   `json:"ignoreCase"`
	Context    int    `json:"context"`
	FilesOnly  bool   `json:"filesOnly"`
	Limit      int    `json:"limit"`
	Ignored    bool   `json:"ignored"`

	w       *workspace
	p       *place
	re      *regexp.Regexp
	out     listing
	matches int
	skipped int // files too large or not readable
}

func (g *grep) run(ctx context.Context) (tool.Result, error) {
	pattern := g.Pattern
	if g.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	var err error
	if g.re, err = regexp.Compile(pattern); err != nil {
		return tool.Result{}, tool.Errorf(tool.CodeInvalidArgs, "the pattern is not valid: %w", err)
	}
	match := func(string) bool { return true }
	if g.Glob != "" {
		if match, err = globMatcher(g.Glob); err != nil {
			return tool.Result{}, err
		}
	}
	if g.p, err = g.w.find(g.Path); err != nil {
		return tool.Result{}, err
	}
	defer g.p.close()
	full := false
	err = walker{g.p, g.Ignored}.walk(ctx, func(rel string) bool {
		if match(g.p.below(rel)) {
			full = !g.file(ctx, rel)
		}
		return !full && ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return tool.Result{}, err
	}
	if g.matches == 0 {
		g.out.out.WriteString("No line matches.\n")
	}
	if full {
		g.out.out.WriteString("[there may be more; make the pattern, the path or the glob narrower, or raise the limit]\n")
	}
	if g.skipped > 0 {
		fmt.Fprintf(&g.out.out, "[%s too large or not readable]\n", plural(g.skipped, "file"))
	}
	return tool.Text(g.out.out.String()), nil
}

// file searches one file and reports whether there is room for more.
func (g *grep) file(ctx context.Context, rel string) bool {
	q := *g.p
	q.rel = filepath.FromSlash(rel)
	data, _, err := q.readWhole()
	if err != nil {
		if _, coded := err.(*tool.Error); !coded { // a coded error is a binary file, or one that vanished
			g.skipped++
		}
		return true
	}
	name := g.p.shown(g.w, rel)
	if g.FilesOnly {
		for line := range bytes.Lines(data) {
			if g.re.Match(trimEnd(line)) {
				return g.hit(name)
			}
		}
		return true
	}
	var before []string // the last lines that did not match, for context
	after, last, number := 0, 0, 0
	for raw := range bytes.Lines(data) {
		number++
		if number%4096 == 0 && ctx.Err() != nil {
			return false
		}
		line := trimEnd(raw)
		switch {
		case g.re.Match(line):
			if last > 0 && g.Context > 0 && number-len(before) > last+1 && !g.out.add("--") {
				return false
			}
			for i, b := range before {
				if !g.out.add(fmt.Sprintf("%s-%d- %s", name, number-len(before)+i, b)) {
					return false
				}
			}
			before = before[:0]
			if !g.hit(fmt.Sprintf("%s:%d: %s", name, number, clipLine(string(line), 500))) {
				return false
			}
			after, last = g.Context, number
		case after > 0:
			after--
			last = number
			if !g.out.add(fmt.Sprintf("%s-%d- %s", name, number, clipLine(string(line), 500))) {
				return false
			}
		case g.Context > 0:
			if len(before) == g.Context {
				before = append(before[:0], before[1:]...)
			}
			before = append(before, clipLine(string(line), 500))
		}
	}
	return true
}

// hit adds a line for a match and reports whether there is room for more.
func (g *grep) hit(line string) bool {
	if g.matches == g.Limit || !g.out.add(line) {
		return false
	}
	g.matches++
	return true
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
