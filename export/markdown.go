package export

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/strandline-dev/strandline/message"
)

// Markdown writes a session for people: what was said, the calls and their results, what happened to the session.
// Texts are written as they are; calls and results stand in fences that none of their lines can close. Every text
// has passed the Redactor.
func Markdown(ctx context.Context, w io.Writer, src Source, o TranscriptOptions) (Report, error) {
	b := bufio.NewWriter(w)
	return transcribe(ctx, b, src, o, func(*transcript) form { return &markdown{w: b} })
}

// markdown is the form of that name.
type markdown struct {
	w    *bufio.Writer // keeps its first error
	mark string        // behind the headings of an event
}

// escape takes the meaning that Markdown gives to a line.
var escape = strings.NewReplacer("\\", "\\\\", "*", "\\*", "_", "\\_", "`", "\\`", "<", "\\<", "[", "\\[", "#", "\\#")

func (m *markdown) head(h heading) {
	fmt.Fprintf(m.w, "# %s\n\n- session `%s` (%s), %s\n", escape.Replace(h.Title), h.ID, escape.Replace(h.Kind), stamp(h.Created))
	if h.Cwd != "" {
		fmt.Fprintf(m.w, "- in %s\n", escape.Replace(h.Cwd))
	}
	if h.Parent != nil {
		fmt.Fprintf(m.w, "- fork of `%s` at %d\n", h.Parent.ID, h.Parent.Seq)
	}
	if h.View {
		fmt.Fprintf(m.w, "- as the model sees it\n")
	}
}

func (m *markdown) open(at place) {
	m.mark = ""
	if at.Hidden {
		m.mark = " (hidden)"
	}
}

func (m *markdown) close() error {
	_, err := m.w.Write(nil) // what failed before
	return err
}

func (m *markdown) speaker(who string) {
	fmt.Fprintf(m.w, "\n## %s%s\n", escape.Replace(who), m.mark)
}

func (m *markdown) text(s string) { fmt.Fprintf(m.w, "\n%s\n", strings.TrimRight(s, "\n")) }

func (m *markdown) thinking(s string) {
	fmt.Fprintf(m.w, "\n<details><summary>Thinking%s</summary>\n\n", m.mark)
	m.fence("", s)
	fmt.Fprint(m.w, "\n</details>\n")
}

func (m *markdown) call(name, args string, isJSON bool) {
	lang := ""
	if isJSON {
		lang = "json"
	}
	fmt.Fprintf(m.w, "\n### Calls %s%s\n\n", escape.Replace(name), m.mark)
	m.fence(lang, args)
}

func (m *markdown) result(name, code, text string) {
	if code != "" {
		name += " (" + code + ")"
	}
	fmt.Fprintf(m.w, "\n### Result of %s%s\n\n", escape.Replace(name), m.mark)
	m.fence("", text)
}

func (m *markdown) other(kind string, _ message.Block) error {
	fmt.Fprintf(m.w, "\n*\\[%s\\]*\n", escape.Replace(kind))
	return nil
}

func (m *markdown) note(s string) { fmt.Fprintf(m.w, "\n*%s*\n", escape.Replace(s)) }

func (m *markdown) end(incomplete string) error {
	if incomplete != "" {
		fmt.Fprintf(m.w, "\n> **%s**\n", escape.Replace(incomplete))
	}
	return m.close()
}

// fence writes text between fences that are longer than any in it.
func (m *markdown) fence(lang, text string) {
	longest, run := 0, 0
	for _, c := range []byte(text) {
		if c == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	marks := strings.Repeat("`", max(3, longest+1))
	fmt.Fprintf(m.w, "%s%s\n%s\n%s\n", marks, lang, strings.TrimRight(text, "\n"), marks)
}
