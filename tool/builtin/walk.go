package builtin

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/strandline-dev/strandline/tool"
)

// listing collects lines up to what one result holds, and counts the rest.
type listing struct {
	what  string // what a line stands for, in the plural
	limit int    // 0 = only by size
	out   strings.Builder
	lines int
	over  int
}

// add takes a line and reports whether there was room for it.
func (l *listing) add(line string) bool {
	line = clipLine(line, maxLineBytes)
	if l.over > 0 || l.limit > 0 && l.lines == l.limit || l.out.Len()+len(line) > maxBytes {
		l.over++
		return false
	}
	l.out.WriteString(line)
	l.out.WriteByte('\n')
	l.lines++
	return true
}

func (l *listing) result() tool.Result {
	if l.over > 0 {
		fmt.Fprintf(&l.out, "[%d more %s are not shown; ask for less]\n", l.over, l.what)
	}
	return tool.Text(l.out.String())
}

func sortEntries(entries []fs.DirEntry) {
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return filepath.Join(dir, name)
}

// walker visits the regular files below a place in the order of their names. It does not follow links,
// and leaves out .git and, unless all is set, what .gitignore files from the area down exclude.
type walker struct {
	p   *place
	all bool
}

// walk calls visit with each file's path inside the area, with slashes, until it returns false.
func (w walker) walk(ctx context.Context, visit func(rel string) bool) error {
	fi, err := w.p.stat()
	if err != nil {
		return err
	}
	start := filepath.ToSlash(w.p.rel)
	if fi.Mode().IsRegular() {
		visit(start)
		return nil
	}
	if !fi.IsDir() {
		return tool.Errorf(CodeNotText, "%s is neither a file nor a directory", w.p.name)
	}
	var rules ignores
	if !w.all && start != "." {
		// The rules of the directories above hold here too; the place itself was asked for by name.
		dir := "."
		for e := range strings.SplitSeq(start, "/") {
			rules = rules.with(w.p, dir)
			dir = path.Join(dir, e)
		}
	}
	_, err = w.dir(ctx, start, rules, visit)
	return err
}

func (w walker) dir(ctx context.Context, dir string, rules ignores, visit func(string) bool) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	f, err := w.p.root.Open(filepath.FromSlash(dir))
	if err != nil {
		return true, nil // vanished or not readable: the rest is still of use
	}
	entries, _ := f.ReadDir(-1)
	f.Close()
	sortEntries(entries)
	if !w.all {
		rules = rules.with(w.p, dir)
	}
	for i, e := range entries {
		if i%256 == 255 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		rel := path.Join(dir, e.Name())
		if e.Name() == ".git" || !w.all && rules.exclude(rel, e.IsDir()) {
			continue
		}
		switch {
		case e.IsDir():
			if more, err := w.dir(ctx, rel, rules, visit); !more || err != nil {
				return false, err
			}
		case e.Type().IsRegular():
			if !visit(rel) {
				return false, nil
			}
		}
	}
	return true, nil
}

// ignores is the rules of .gitignore files, in order; the last that fits decides.
type ignores []ignore

type ignore struct {
	base    string // directory of the file that has the rule
	pattern string // relative to base
	negate  bool
	dirOnly bool
}

// with returns the rules with those of the directory added. It does not change is.
func (is ignores) with(p *place, dir string) ignores {
	q := *p
	q.rel = filepath.FromSlash(path.Join(dir, ".gitignore"))
	if _, err := q.root.Lstat(q.rel); err != nil {
		return is
	}
	data, _, err := q.readWhole()
	if err != nil {
		return is
	}
	out := slices.Clip(is)
	for line := range strings.SplitSeq(string(data), "\n") {
		if r, ok := parseIgnore(dir, line); ok {
			out = append(out, r)
		}
	}
	return out
}

func parseIgnore(dir, line string) (ignore, bool) {
	line = strings.TrimSuffix(line, "\r")
	if !strings.HasSuffix(line, `\ `) {
		line = strings.TrimRight(line, " \t")
	}
	r := ignore{base: dir}
	if line == "" || line[0] == '#' {
		return r, false
	}
	if line[0] == '!' {
		r.negate, line = true, line[1:]
	}
	if rest, ok := strings.CutSuffix(line, "/"); ok {
		r.dirOnly, line = true, rest
	}
	if strings.Contains(line, "/") {
		line = strings.TrimPrefix(line, "/")
	} else {
		line = "**/" + line
	}
	// Braces are ordinary characters to git.
	r.pattern = strings.NewReplacer("{", `\{`, "}", `\}`).Replace(line)
	return r, line != "" && doublestar.ValidatePattern(r.pattern)
}

func (is ignores) exclude(rel string, isDir bool) bool {
	for i := len(is) - 1; i >= 0; i-- {
		r := is[i]
		if r.dirOnly && !isDir {
			continue
		}
		sub := rel
		if r.base != "." {
			sub = strings.TrimPrefix(rel, r.base+"/")
		}
		if doublestar.MatchUnvalidated(r.pattern, sub) {
			return !r.negate
		}
	}
	return false
}
