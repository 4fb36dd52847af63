package export

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// TranscriptOptions says what a transcript shows beside the log.
type TranscriptOptions struct {
	Title string
	// Hidden reports whether the model does not see a surface event any more; such are marked. Nil: none.
	Hidden func(session.Seq) bool
	// View, if not nil, is written instead of the log: what the model sees.
	View []message.Message
}

// form is how a transcript is written: it is handed what was said, the calls and their results, and what happened to
// the session, in order. Every text has passed the Redactor and has no other change: the form makes it harmless.
// The first error of the form itself is the one that close and end return.
type form interface {
	head(heading)
	open(place) // what follows is of one event, or of one message of a view, until close
	close() error
	speaker(who string)
	text(s string)
	thinking(s string)
	call(name, args string, isJSON bool)
	result(name, code, text string)           // code is "" when it went well
	other(kind string, b message.Block) error // one that is no text, and its type in one line
	note(s string)
	end(incomplete string) error // "" for a session that is whole
}

// heading is what a transcript begins with. All of it is of one line.
type heading struct {
	Title, Kind, Cwd string
	ID               session.ID
	Created          int64
	Parent           *session.Parent
	View             bool
}

// place says where in the log something stands.
type place struct {
	InLog  bool // the others of a view
	Seq    session.Seq
	Time   int64
	Hidden bool
}

// transcribe writes a session to w in a form that writes to w, one event at a time.
func transcribe(ctx context.Context, w *bufio.Writer, src Source, o TranscriptOptions, to func(*transcript) form) (Report, error) {
	t := transcript{src: src, names: map[string]string{}}
	t.rep.Incomplete = incomplete(src.Snap)
	t.to = to(&t)
	h := src.Snap.Header
	head := heading{Title: t.line(o.Title), Kind: t.line(string(h.Kind)), ID: h.ID, Created: h.CreatedAt, Parent: h.Parent, View: o.View != nil}
	if head.Title == "" {
		head.Title = "Session " + string(h.ID)
	}
	if h.Cwd != "" {
		head.Cwd = t.line(h.Cwd)
	}
	t.to.head(head)
	err := t.all(ctx, o)
	if err == nil {
		why := ""
		if t.rep.Incomplete != "" {
			why = t.line(t.rep.Incomplete)
		}
		err = t.to.end(why)
	}
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	return t.rep, err
}

// transcript is a walk over a session for people.
type transcript struct {
	src   Source
	rep   Report
	to    form
	names map[string]string // tool by call id
}

func (t *transcript) redacted(m message.Message) (message.Message, error) {
	m, n, err := t.src.message(m)
	t.rep.Redacted += n
	return m, err
}

// line makes s one redacted line.
func (t *transcript) line(s string) string {
	if t.src.Redact != nil {
		var n int
		s, n = t.src.Redact.Text(s)
		t.rep.Redacted += n
	}
	return strings.Join(strings.Fields(s), " ")
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04 UTC") }

func (t *transcript) all(ctx context.Context, o TranscriptOptions) error {
	if o.View == nil {
		return t.log(ctx, o)
	}
	for _, m := range o.View {
		err := done(ctx)
		if err == nil {
			m, err = t.redacted(m)
		}
		if err == nil {
			err = t.message(m, "", place{})
		}
		if err != nil {
			return err
		}
		t.rep.Events++
	}
	return nil
}

func (t *transcript) log(ctx context.Context, o TranscriptOptions) error {
	prefix := t.src.Snap.Prefix
	for ev, err := range prefix.Range(0, prefix.Len()) {
		if err == nil {
			err = done(ctx)
		}
		if err != nil {
			return fmt.Errorf("export of session %s: %w", t.src.Snap.Header.ID, err)
		}
		t.rep.Events++
		at := place{InLog: true, Seq: ev.Seq, Time: ev.Time}
		switch ev.Type {
		case session.TypeUserMessage, session.TypeAssistantMessage, session.TypeToolResult:
			at.Hidden = o.Hidden != nil && o.Hidden(ev.Seq)
			it := session.Project(ev)
			var m message.Message
			if m, err = t.redacted(it.Message); err == nil {
				err = t.message(m, it.Code, at)
			}
		default:
			if note := happened(ev); note != "" {
				t.to.open(at)
				t.to.note(t.line(note))
				err = t.to.close()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// happened says what an event that is no message means for a reader, "" for nothing.
func happened(ev session.Event) string {
	switch ev.Type {
	case session.TypeTurnEnd:
		d, _ := session.DecodeData[session.TurnEnd](ev)
		if d.Reason.Kind != session.ReasonCompleted {
			note := fmt.Sprintf("turn %d ended: %s %s", d.Turn, d.Reason.Kind, d.Reason.Cause)
			if d.Reason.Error != nil {
				note += d.Reason.Error.Code + " " + d.Reason.Error.Message
			}
			return note
		}
	case session.TypeInherited:
		return "picked up here: what is above was written by an earlier life"
	case session.TypeLost:
		return "a record was lost here"
	case session.TypeHide:
		return "some messages were hidden"
	case session.TypeRestore:
		return fmt.Sprintf("what seq %d had hidden was restored", ev.Op.Node)
	case session.TypeApprovalAsked:
		d, _ := session.DecodeData[session.ApprovalAsked](ev)
		return fmt.Sprintf("asked: may %s run?", d.Name)
	case session.TypeApprovalDecided:
		d, _ := session.DecodeData[session.ApprovalDecided](ev)
		return fmt.Sprintf("answered: %s, by %s", d.Verdict, d.By)
	}
	return ""
}

func (t *transcript) message(m message.Message, code string, at place) error {
	if len(m.Content) == 0 {
		return nil
	}
	who := "You"
	switch {
	case m.Source.Kind == message.SourcePlugin:
		who = "Context from " + t.line(m.Source.Plugin)
	case m.Role == message.RoleAssistant:
		who = "Assistant"
		if m.Source.Model != "" {
			who += " (" + t.line(m.Source.Provider+"/"+m.Source.Model) + ")"
		}
	}
	t.to.open(at)
	spoke := false // who speaks was said
	var err error
	other := func(b message.Block) {
		if err == nil {
			err = t.to.other(t.line(string(b.Type)), b)
		}
	}
	for _, b := range m.Content {
		if !spoke && b.Type != message.ToolResult {
			t.to.speaker(who)
			spoke = true
		}
		switch b.Type {
		case message.ToolCall:
			t.names[b.ID] = b.Name
			args, isJSON := indented(b.Arguments)
			t.to.call(t.line(b.Name), args, isJSON)
		case message.ToolResult:
			if code == "" && b.IsError {
				code = "error"
			}
			t.to.result(t.line(t.names[b.ToolCallID]), t.line(code), message.Message{Content: b.Content}.PlainText())
			for _, c := range b.Content {
				if c.Type != message.Text {
					other(c)
				}
			}
		case message.Reasoning:
			t.to.thinking(b.Text)
		case message.Text:
			t.to.text(b.Text)
		default:
			other(b)
		}
	}
	if cerr := t.to.close(); err == nil {
		err = cerr
	}
	return err
}
