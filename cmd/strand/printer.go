package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// shower returns what shows a running agent in a form of output. json shows nothing until the end.
func (c *cli) shower(output string, work *app.Work, spin *spinner) app.Watcher {
	switch output {
	case "stream-json":
		s := &streamer{c: c, id: work.Agent.ID()}
		return app.Watcher{Event: s.event, Notice: s.notice}
	case "json":
		return app.Watcher{}
	}
	p := &printer{c: c, spin: spin, names: map[string]string{}}
	return app.Watcher{Event: p.event, Notice: p.notice}
}

// streamer prints events and deltas as JSON lines.
type streamer struct {
	c   *cli
	id  session.ID
	buf []byte
}

func (s *streamer) event(ev session.Event) {
	s.buf = app.AppendEvent(s.buf[:0], ev)
	_ = s.c.line(s.buf)
	s.c.out.Flush() // an error stays in the writer and is reported at the end
}

type delta struct {
	Type      string     `json:"type"` // always "delta"
	SessionID session.ID `json:"sessionId"`
	Turn      int        `json:"turn"`
	Step      int        `json:"step"`
	Text      string     `json:"text,omitzero"`
	Reasoning string     `json:"reasoning,omitzero"`
}

func (s *streamer) notice(n agent.Notice) {
	d := delta{Type: "delta", SessionID: s.id, Turn: n.Turn, Step: n.Step}
	switch n.Kind {
	case agent.NoticeText:
		d.Text = n.Text
	case agent.NoticeReasoning:
		d.Reasoning = n.Text
	default:
		return
	}
	if s.c.object(d) == nil {
		s.c.out.Flush()
	}
}

// printer shows a running agent to a person: what it says on stdout, as it comes if that is a terminal; what it
// does on stderr.
type printer struct {
	c     *cli
	spin  *spinner
	names map[string]string // tool by call id

	turn, step int    // of streamed
	streamed   string // text of this step that was printed
	told       bool   // the step's message was printed whole
	midLine    bool   // stdout stands within a line
}

func (p *printer) notice(n agent.Notice) {
	c := p.c
	if n.Child != "" {
		p.ofChild(n)
		return
	}
	switch n.Kind {
	case agent.NoticeText:
		if !c.outTerm || p.at(n.Turn, n.Step) {
			return
		}
		p.say(n.Text)
		p.streamed += n.Text
	case agent.NoticeToolStart:
		p.do("%s %s", n.Name, n.Text)
		p.spin.wait("running %s", n.Name)
	case agent.NoticeToolEnd:
		p.spin.wait("waiting for the model")
	case agent.NoticeRetry:
		p.streamed = ""
		p.warn("the model failed (%s): %s; attempt %d in %v", n.Code, strings.TrimSuffix(n.Text, "."), n.Attempt+1, n.Delay.Round(10*time.Millisecond))
		p.spin.wait("waiting to try again")
	case agent.NoticeUpkeep:
		if n.Text == "" {
			n.Text = "waiting for the model"
		}
		p.spin.wait("%s", n.Text)
	case agent.NoticeRemark:
		p.warn("%s", n.Text)
	case agent.NoticeNotSaved:
		p.warn("%v", n.Err) // it says what is not saved, and why
	case agent.NoticeSaved:
		p.warn("saved again")
	}
}

// ofChild shows what a subagent does.
func (p *printer) ofChild(n agent.Notice) {
	switch n.Kind {
	case agent.NoticeToolStart:
		p.do("%s: %s %s", n.Child, n.Name, n.Text)
	case agent.NoticeRetry:
		p.warn("subagent %s: the model failed (%s): %s; attempt %d in %v", n.Child, n.Code, strings.TrimSuffix(n.Text, "."), n.Attempt+1, n.Delay.Round(10*time.Millisecond))
	case agent.NoticeNotSaved:
		p.warn("subagent %s: %v", n.Child, n.Err)
	}
}

// at moves on to a step and reports whether its message was printed already.
func (p *printer) at(turn, step int) bool {
	if turn != p.turn || step != p.step {
		p.turn, p.step, p.streamed, p.told = turn, step, "", false
	}
	return p.told
}

func (p *printer) event(ev session.Event) {
	switch ev.Type {
	case session.TypeAssistantMessage:
		d, err := session.DecodeData[session.AssistantMessage](ev)
		if err != nil {
			return
		}
		for _, b := range d.Message.Calls() {
			p.names[b.ID] = b.Name
		}
		p.message(d)
	case session.TypeToolResult:
		d, err := session.DecodeData[session.ToolResult](ev)
		if err == nil && d.Error != nil {
			p.failed(d)
		}
	}
}

// message prints what is missing of an answer. Deltas that belong to it and come later are ignored.
func (p *printer) message(d session.AssistantMessage) {
	p.at(d.Turn, d.Step)
	text := d.Message.PlainText()
	rest, ok := strings.CutPrefix(text, p.streamed)
	if !ok { // some deltas were lost, or a retry began anew
		p.endLine()
		rest = text
	}
	if rest != "" {
		p.say(rest)
	}
	p.told = true
	p.endLine()
}

func (p *printer) failed(d session.ToolResult) {
	text := message.Message{Content: d.Message.Content}.PlainText()
	name := ""
	if len(d.Message.Content) > 0 {
		name = p.names[d.Message.Content[0].ToolCallID]
	}
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if d.Error.Code == tool.CodeDenied {
		p.warn("denied: %s", brief.Clip(first, 400))
		return
	}
	p.do("%s: %s: %s", name, d.Error.Code, brief.Clip(first, 200))
}

// say prints text of the model on stdout.
func (p *printer) say(text string) {
	if text == "" {
		return
	}
	p.midLine = !strings.HasSuffix(text, "\n")
	p.spin.print(p.midLine, func() {
		if p.c.outTerm {
			text = safe(text)
		}
		p.c.out.WriteString(text)
		p.c.out.Flush() // an error stays in the writer and is reported at the end
	})
}

func (p *printer) endLine() {
	if !p.midLine {
		return
	}
	p.midLine = false
	p.spin.print(false, func() {
		p.c.out.WriteByte('\n')
		p.c.out.Flush()
	})
}

// do tells a person at a terminal what happens.
func (p *printer) do(format string, args ...any) {
	if !p.c.errTerm || p.c.quiet {
		return
	}
	p.endLine()
	p.spin.print(false, func() {
		fmt.Fprintln(p.c.err, p.c.paintErr(dim, "· "+brief.Clip(safeLine(fmt.Sprintf(format, args...)), 160)))
	})
}

// warn tells what somebody has to know who reads stderr later, too.
func (p *printer) warn(format string, args ...any) {
	p.endLine()
	p.spin.print(false, func() { p.c.note("%s", safe(fmt.Sprintf(format, args...))) })
}
