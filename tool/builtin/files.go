package builtin

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/tool"
)

// What one result of read, ls, glob or grep holds at most. It stays below tool.DefaultLimit, so that
// a result ends at a line and says how to go on.
const (
	maxBytes     = 30 << 10
	maxLines     = 2000
	maxLineBytes = 2000
)

const fileTimeout = time.Minute

func readTool(w *workspace) tool.Definition {
	return tool.Definition{
		Name:    "read",
		Aliases: readAliases,
		Description: "Reads a text file of the workspace. Each line is shown after its number and a tab; neither is part of the file. " +
			"Shows up to 2000 lines or 30 KiB at a time and says how to go on. For directories use ls.",
		Parameters: jsontext.Value(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"File, relative to the workspace or absolute inside it"},` +
			`"offset":{"type":"integer","minimum":1,"description":"First line to show, from 1 (default 1)"},` +
			`"limit":{"type":"integer","minimum":1,"description":"How many lines to show (default and maximum 2000)"}},` +
			`"required":["path"],"additionalProperties":false}`),
		Parallel: true, ReadOnly: true, Idempotent: true, Timeout: fileTimeout,
		Subject: pathSubject(w),
		Run: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			a := struct {
				Path   string `json:"path"`
				Offset int    `json:"offset"`
				Limit  int    `json:"limit"`
			}{Offset: 1, Limit: maxLines}
			if err := c.Decode(&a); err != nil {
				return tool.Result{}, err
			}
			p, err := w.find(a.Path)
			if err != nil {
				return tool.Result{}, err
			}
			defer p.close()
			return p.read(ctx, a.Offset, min(a.Limit, maxLines))
		},
	}
}

func (p *place) read(ctx context.Context, offset, limit int) (tool.Result, error) {
	f, _, err := p.openFile()
	if err != nil {
		return tool.Result{}, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(&patient{ctx, f}, 64<<10)
	if head, _ := in.Peek(sniff); isBinary(head) {
		return tool.Result{}, p.binary()
	}
	var out strings.Builder
	number, shown := 0, 0
	for {
		if shown == limit || out.Len() >= maxBytes-maxLineBytes {
			if _, err := in.Peek(1); err == nil {
				fmt.Fprintf(&out, "[there is more; go on with offset %d]", number+1)
			}
			break
		}
		line, more, err := readLine(in, maxLineBytes)
		if err == io.EOF {
			break
		}
		if err != nil {
			return tool.Result{}, p.explain(err)
		}
		number++
		if number < offset {
			continue
		}
		fmt.Fprintf(&out, "%6d\t%s", number, line)
		if more > 0 {
			fmt.Fprintf(&out, " [... %d more bytes in this line]", more)
		}
		out.WriteByte('\n')
		shown++
	}
	switch {
	case number == 0:
		return tool.Text("(the file is empty)"), nil
	case shown == 0:
		return tool.Result{}, fmt.Errorf("%s has only %d lines; offset %d is behind its end", p.name, number, offset)
	}
	return tool.Text(out.String()), nil
}

// patient reads until ctx ends: one line can be as long as a disk.
type patient struct {
	ctx context.Context
	io.Reader
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.Reader.Read(b)
}

// readLine returns the next line without its end, valid UTF-8 and at most n bytes of it, and how many
// bytes of it are left out. A file that ends without a newline still has a last line.
func readLine(in *bufio.Reader, n int) (line string, more int, err error) {
	var buf []byte
	read := false
	for {
		part, err := in.ReadSlice('\n')
		read = read || len(part) > 0
		end := err == nil
		if end {
			part = bytes.TrimSuffix(part[:len(part)-1], []byte("\r"))
		}
		take := min(len(part), n-len(buf))
		buf = append(buf, part[:take]...)
		more += len(part) - take
		switch {
		case end, err == io.EOF && read:
			if more > 0 {
				for k := 0; k < utf8.UTFMax-1 && len(buf) > 0 && !utf8.FullRune(buf[lastRune(buf):]); k++ {
					buf, more = buf[:len(buf)-1], more+1
				}
			}
			return strings.ToValidUTF8(string(buf), "\uFFFD"), more, nil
		case err != bufio.ErrBufferFull:
			return "", 0, err
		}
	}
}

// lastRune returns where the last rune of b starts, whole or not.
func lastRune(b []byte) int {
	i := len(b) - 1
	for i > 0 && len(b)-i < utf8.UTFMax && !utf8.RuneStart(b[i]) {
		i--
	}
	return i
}

func edits(w *workspace) func(jsontext.Value) bool {
	return func(args jsontext.Value) bool {
		var a struct {
			Path string `json:"path"`
		}
		return json.Unmarshal(args, &a) == nil && w.editsInside(a.Path)
	}
}

func writeTool(w *workspace) tool.Definition {
	return tool.Definition{
		Name:    "write",
		Aliases: writeAliases,
		Description: "Writes a whole file of the workspace: creates it, with its directories, or replaces all of its content. " +
			"To change a part of a file use edit.",
		Parameters: jsontext.Value(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"File, relative to the workspace or absolute inside it"},` +
			`"content":{"type":"string","description":"The complete new content"}},` +
			`"required":["path","content"],"additionalProperties":false}`),
		Idempotent: true, Timeout: fileTimeout,
		Subject: pathSubject(w), Edits: edits(w),
		Run: func(_ context.Context, c tool.Call) (tool.Result, error) {
			var a struct {
				Path    string `json:"path"`
				Content string `json:"content"`
			}
			if err := c.Decode(&a); err != nil {
				return tool.Result{}, err
			}
			p, err := w.find(a.Path)
			if err != nil {
				return tool.Result{}, err
			}
			defer p.close()
			created, err := p.replace([]byte(a.Content))
			if err != nil {
				return tool.Result{}, err
			}
			verb := "Replaced"
			if created {
				verb = "Created"
			}
			r := tool.Text(fmt.Sprintf("%s %s (%d bytes, %d lines).", verb, p.name, len(a.Content), countLines(a.Content)))
			r.Meta = meta(map[string]any{"path": p.name, "bytes": len(a.Content), "created": created})
			return r, nil
		},
	}
}

func countLines(s string) int {
	n := strings.Count(s, "\n")
	if s != "" && !strings.HasSuffix(s, "\n") {
		n++
	}
	return n
}

func editTool(w *workspace) tool.Definition {
	return tool.Definition{
		Name:    "edit",
		Aliases: editAliases,
		Description: "Replaces a piece of text in a file of the workspace. oldString has to be exactly what the file holds, " +
			"white space included and without the line numbers of read, and has to occur once; give more lines around it to make it unique, or set replaceAll.",
		Parameters: jsontext.Value(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"File, relative to the workspace or absolute inside it"},` +
			`"oldString":{"type":"string","minLength":1,"description":"The text to replace"},` +
			`"newString":{"type":"string","description":"The text to put there; empty to delete"},` +
			`"replaceAll":{"type":"boolean","description":"Replace every occurrence (default false)"}},` +
			`"required":["path","oldString","newString"],"additionalProperties":false}`),
		Timeout: fileTimeout,
		Subject: pathSubject(w), Edits: edits(w),
		Run: func(_ context.Context, c tool.Call) (tool.Result, error) {
			var a struct {
				Path string `json:"path"`
				Old  string `json:"oldString"`
				New  string `json:"newString"`
				All  bool   `json:"replaceAll"`
			}
			if err := c.Decode(&a); err != nil {
				return tool.Result{}, err
			}
			if a.Old == a.New {
				return tool.Result{}, tool.Errorf(tool.CodeInvalidArgs, "oldString and newString are the same; nothing was changed")
			}
			p, err := w.find(a.Path)
			if err != nil {
				return tool.Result{}, err
			}
			defer p.close()
			return p.edit(a.Old, a.New, a.All)
		},
	}
}

func (p *place) edit(old, new string, all bool) (tool.Result, error) {
	data, _, err := p.readWhole()
	if err != nil {
		return tool.Result{}, err
	}
	text := string(data)
	n := strings.Count(text, old)
	if n == 0 && strings.Contains(text, "\r\n") && strings.Contains(old, "\n") && !strings.Contains(old, "\r") {
		// read shows lines without their ends, so the model cannot know of the other kind.
		old, new = strings.ReplaceAll(old, "\n", "\r\n"), strings.ReplaceAll(new, "\n", "\r\n")
		n = strings.Count(text, old)
	}
	switch {
	case n == 0:
		return tool.Result{}, tool.Errorf(CodeNoMatch, "oldString does not occur in %s; nothing was changed. %s", p.name, nearMiss(text, old))
	case n > 1 && !all:
		return tool.Result{}, tool.Errorf(CodeNoMatch, "oldString occurs %d times in %s (lines %s); nothing was changed. Give more of the text around the one you mean, or set replaceAll",
			n, p.name, occurrences(text, old))
	}
	if !strings.Contains(new, "\r") && strings.Contains(text, "\r\n") && strings.Count(text, "\r\n") == strings.Count(text, "\n") {
		new = strings.ReplaceAll(new, "\n", "\r\n") // all lines of the file end so, and its new ones do
	}
	first := strings.Index(text, old)
	text = strings.ReplaceAll(text, old, new)
	if _, err := p.replace([]byte(text)); err != nil {
		return tool.Result{}, err
	}
	r := tool.Text(fmt.Sprintf("Replaced %s in %s. It now reads:\n%s", plural(n, "occurrence"), p.name, around(text, first, len(new))))
	r.Meta = meta(map[string]any{"path": p.name, "replaced": n})
	return r, nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// nearMiss says why a text may not have been found.
func nearMiss(text, old string) string {
	want := fold(old)
	if want == "" {
		return "Read the file again and copy the text exactly"
	}
	lines, size := strings.Split(text, "\n"), strings.Count(strings.Trim(old, "\n"), "\n")+1
	if len(lines) <= 20_000 && size <= 200 {
		for i := range lines {
			if fold(strings.Join(lines[i:min(i+size, len(lines))], "\n")) == want {
				return fmt.Sprintf("Line %d has the same words with other white space: read it again and copy the text exactly", i+1)
			}
		}
	}
	head, _, _ := strings.Cut(strings.TrimSpace(old), "\n")
	if at := strings.Index(text, head); at >= 0 && head != "" && strings.TrimSpace(old) != head {
		return fmt.Sprintf("Its first line occurs in line %d, but what follows there is different: read the file again", lineOf(text, at))
	}
	return "Read the file again and copy the text exactly"
}

func fold(s string) string { return strings.Join(strings.Fields(s), " ") }

func lineOf(text string, at int) int { return strings.Count(text[:at], "\n") + 1 }

func occurrences(text, old string) string {
	var lines []string
	line, from := 1, 0
	for len(lines) < 10 {
		i := strings.Index(text[from:], old)
		if i < 0 {
			return strings.Join(lines, ", ")
		}
		line += strings.Count(text[from:from+i], "\n")
		lines = append(lines, fmt.Sprint(line))
		line += strings.Count(old, "\n")
		from += i + len(old)
	}
	return strings.Join(lines, ", ") + ", ..."
}

// around returns the numbered lines of a change with three lines before and after it.
func around(text string, at, size int) string {
	const context, most = 3, 40
	lines := strings.Split(text, "\n")
	if n := len(lines); lines[n-1] == "" {
		lines = lines[:n-1]
	}
	first := max(0, lineOf(text, at)-1-context)
	last := min(len(lines), lineOf(text, at+size)+context)
	var out strings.Builder
	for i := first; i < last; i++ {
		if i == first+most {
			out.WriteString("[...]\n")
			break
		}
		fmt.Fprintf(&out, "%6d\t%s\n", i+1, clipLine(strings.TrimSuffix(lines[i], "\r"), 200))
	}
	return out.String()
}

func clipLine(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + " [...]"
}

func lsTool(w *workspace) tool.Definition {
	return tool.Definition{
		Name:    "ls",
		Aliases: lsAliases,
		Description: "Lists a directory of the workspace: one name per line, sorted; directories end with /, links show their target, files their size in bytes. " +
			"Hidden files are listed.",
		Parameters: jsontext.Value(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"Directory, relative to the workspace or absolute inside it (default: the workspace)"}},` +
			`"additionalProperties":false}`),
		Parallel: true, ReadOnly: true, Idempotent: true, Timeout: fileTimeout,
		Subject: pathSubject(w),
		Run: func(_ context.Context, c tool.Call) (tool.Result, error) {
			var a struct {
				Path string `json:"path"`
			}
			if err := c.Decode(&a); err != nil {
				return tool.Result{}, err
			}
			p, err := w.find(a.Path)
			if err != nil {
				return tool.Result{}, err
			}
			defer p.close()
			return p.list()
		},
	}
}

func (p *place) list() (tool.Result, error) {
	fi, err := p.stat()
	if err != nil {
		return tool.Result{}, err
	}
	if !fi.IsDir() {
		return tool.Result{}, tool.Errorf(CodeNotText, "%s is not a directory; use read", p.name)
	}
	dir, err := p.root.Open(p.rel)
	if err != nil {
		return tool.Result{}, p.explain(err)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return tool.Result{}, p.explain(err)
	}
	sortEntries(entries)
	out := &listing{what: "entries"}
	for _, e := range entries {
		out.add(p.entry(e))
	}
	if len(entries) == 0 {
		return tool.Text("(the directory is empty)"), nil
	}
	return out.result(), nil
}

func (p *place) entry(e fs.DirEntry) string {
	switch t := e.Type(); {
	case t.IsDir():
		return e.Name() + "/"
	case t&fs.ModeSymlink != 0:
		target, err := p.root.Readlink(join(p.rel, e.Name()))
		if err != nil {
			return e.Name() + " -> ?"
		}
		return e.Name() + " -> " + target
	case t.IsRegular():
		if fi, err := e.Info(); err == nil {
			return fmt.Sprintf("%s\t%d", e.Name(), fi.Size())
		}
	}
	return e.Name()
}
