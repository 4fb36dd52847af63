package export

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// MarkdownOptions says what a transcript shows beside the log.
type MarkdownOptions struct {
	Title string
	// Hidden reports whether the model does not see a surface event any more; such are marked. Nil: none.
	Hidden func(session.Seq) bool
	// View, if not nil, is written instead of the log: what the model sees.
	View []message.Message
}

// Markdown writes a session for people: what was said, the calls and their results, what happened to the session.
// Texts are written as they are; calls and results stand in fences that none of their lines can close. Every text
// has passed the Redactor.
func Markdown(ctx context.Context, w io.Writer, src Source, o MarkdownOptions) (Report, error) {
	b := bufio.NewWriter(w)
	p := printer{w: b, src: src, names: map[string]string{}}
	p.rep.Incomplete = incomplete(src.Snap)
	p.head(o)
	var err error
	if o.View != nil {
		for _, m := range o.View {
			if err = done(ctx); err != nil {
				break
			}
			if m, err = p.redacted(m); err != nil {
				break
			}
			p.message(m, "", false)
			p.rep.Events++
		}
	} else {
		err = p.log(ctx, o)
	}
	if err == nil && p.rep.Incomplete != "" {
		fmt.Fprintf(b, "\n> **%s**\n", p.line(p.rep.Incomplete))
	}
	if ferr := b.Flush(); err == nil {
		err = ferr
	}
	return p.rep, err
}

type printer struct {
	w     *bufio.Writer // keeps its first error for Flush
	src   Source
	rep   Report
	names map[string]string // tool by call id
}

func (p *printer) redacted(m message.Message) (message.Message, error) {
	m, n, err := p.src.message(m)
	p.rep.Redacted += n
	return m, err
}

// line makes s one redacted line without a meaning in Markdown.
func (p *printer) line(s string) string {
	if p.src.Redact != nil {
		var n int
		s, n = p.src.Redact.Text(s)
		p.rep.Redacted += n
	}
	return escape.Replace(strings.Join(strings.Fields(s), " "))
}

var escape = strings.NewReplacer("\\", "\\\\", "*", "\\*", "_", "\\_", "`", "\\`", "<", "\\<", "[", "\\[", "#", "\\#")

func (p *printer) head(o MarkdownOptions) {
	h := p.src.Snap.Header
	title := p.line(o.Title)
	if title == "" {
		title = "Session " + string(h.ID)
	}
	fmt.Fprintf(p.w, "# %s\n\n- session `%s` (%s), %s\n", title, h.ID, p.line(string(h.Kind)), stamp(h.CreatedAt))
	if h.Cwd != "" {
		fmt.Fprintf(p.w, "- in %s\n", p.line(h.Cwd))
	}
	if h.Parent != nil {
		fmt.Fprintf(p.w, "- fork of `%s` at %d\n", h.Parent.ID, h.Parent.Seq)
	}
	if o.View != nil {
		fmt.Fprintf(p.w, "- as the model sees it\n")
	}
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04 UTC") }

func (p *printer) log(ctx context.Context, o MarkdownOptions) error {
	prefix := p.src.Snap.Prefix
	for ev, err := range prefix.Range(0, prefix.Len()) {
		if err == nil {
			err = done(ctx)
		}
		if err != nil {
			return fmt.Errorf("export of session %s: %w", p.src.Snap.Header.ID, err)
		}
		p.rep.Events++
		hidden := o.Hidden != nil && o.Hidden(ev.Seq)
		switch ev.Type {
		case session.TypeUserMessage, session.TypeAssistantMessage, session.TypeToolResult:
			it := session.Project(ev)
			m, err := p.redacted(it.Message)
			if err != nil {
				return err
			}
			p.message(m, it.Code, hidden)
		default:
			p.happened(ev)
		}
	}
	return nil
}

func (p *printer) happened(ev session.Event) {
	note := ""
	switch ev.Type {
	case session.TypeTurnEnd:
		d, _ := session.DecodeData[session.TurnEnd](ev)
		if d.Reason.Kind != session.ReasonCompleted {
			note = fmt.Sprintf("turn %d ended: %s %s", d.Turn, d.Reason.Kind, d.Reason.Cause)
			if d.Reason.Error != nil {
				note += d.Reason.Error.Code + " " + d.Reason.Error.Message
			}
		}
	case session.TypeInherited:
		note = "picked up here: what is above was written by an earlier life"
	case session.TypeLost:
		note = "a record was lost here"
	case session.TypeHide:
		note = "some messages were hidden"
	case session.TypeRestore:
		note = fmt.Sprintf("what seq %d had hidden was restored", ev.Op.Node)
	case session.TypeApprovalAsked:
		d, _ := session.DecodeData[session.ApprovalAsked](ev)
		note = fmt.Sprintf("asked: may %s run?", d.Name)
	case session.TypeApprovalDecided:
		d, _ := session.DecodeData[session.ApprovalDecided](ev)
		note = fmt.Sprintf("answered: %s, by %s", d.Verdict, d.By)
	}
	if note != "" {
		fmt.Fprintf(p.w, "\n*%s*\n", p.line(note))
	}
}

func (p *printer) message(m message.Message, code string, hidden bool) {
	mark := ""
	if hidden {
		mark = " (hidden)"
	}
	who := "You"
	switch {
	case m.Source.Kind == message.SourcePlugin:
		who = "Context from " + p.line(m.Source.Plugin)
	case m.Role == message.RoleAssistant:
		who = "Assistant"
		if m.Source.Model != "" {
			who += " (" + p.line(m.Source.Provider+"/"+m.Source.Model) + ")"
		}
	}
	spoke := false // the heading of the speaker stands there
	for _, b := range m.Content {
		if !spoke && b.Type != message.ToolResult {
			fmt.Fprintf(p.w, "\n## %s%s\n", who, mark)
			spoke = true
		}
		switch b.Type {
		case message.ToolCall:
			p.names[b.ID] = b.Name
			args, js := indented(b.Arguments)
			lang := ""
			if js {
				lang = "json"
			}
			fmt.Fprintf(p.w, "\n### Calls %s%s\n\n", p.line(b.Name), mark)
			p.fence(lang, args)
		case message.ToolResult:
			head := "Result of " + p.line(p.names[b.ToolCallID])
			if code == "" && b.IsError {
				code = "error"
			}
			if code != "" {
				head += " (" + p.line(code) + ")"
			}
			fmt.Fprintf(p.w, "\n### %s%s\n\n", head, mark)
			p.fence("", message.Message{Content: b.Content}.PlainText())
			for _, c := range b.Content {
				if c.Type != message.Text {
					fmt.Fprintf(p.w, "\n*\\[%s\\]*\n", p.line(string(c.Type)))
				}
			}
		case message.Reasoning:
			fmt.Fprintf(p.w, "\n<details><summary>Thinking%s</summary>\n\n", mark)
			p.fence("", b.Text)
			fmt.Fprint(p.w, "\n</details>\n")
		default:
			if b.Type == message.Text {
				fmt.Fprintf(p.w, "\n%s\n", strings.TrimRight(b.Text, "\n"))
			} else {
				fmt.Fprintf(p.w, "\n*\\[%s\\]*\n", p.line(string(b.Type)))
			}
		}
	}
}

// fence writes text between fences that are longer than any in it.
func (p *printer) fence(lang, text string) {
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
	fmt.Fprintf(p.w, "%s%s\n%s\n%s\n", marks, lang, strings.TrimRight(text, "\n"), marks)
}
