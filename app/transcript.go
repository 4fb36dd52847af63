package app

import (
	"fmt"
	"iter"
	"strings"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/subagent"
)

// EntryKind says what an entry of a transcript is.
type EntryKind string

// The kinds of entry.
const (
	EntryUser      EntryKind = "user"
	EntryContext   EntryKind = "context" // a message that a program put in
	EntryReasoning EntryKind = "reasoning"
	EntryAssistant EntryKind = "assistant"
	EntryCall      EntryKind = "call"
	EntryResult    EntryKind = "result"
	EntryNote      EntryKind = "note" // what happened to the session
)

// Entry is one piece of a transcript.
type Entry struct {
	Seq    session.Seq `json:"seq"`
	Time   int64       `json:"time"`
	Kind   EntryKind   `json:"kind"`
	Name   string      `json:"name,omitzero"` // of the tool, the model, or who put a context in
	Text   string      `json:"text"`
	CallID string      `json:"callId,omitzero"`
	Error  string      `json:"error,omitzero"`  // code of a result
	Hidden bool        `json:"hidden,omitzero"` // taken off the surface: the model does not see it
}

// Transcript yields what was said and what happened in the events from..to-1, as it was appended. Hidden
// entries are marked.
func (i *Inspection) Transcript(from, to session.Seq, reg *session.Registry) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		visible := make(map[session.Seq]bool, i.State.SurfaceLen())
		for _, n := range i.State.Surface() {
			visible[n.Seq] = true
		}
		t := teller{reg: reg, names: map[string]string{}, brackets: map[session.Seq]session.BracketState{}}
		for _, b := range i.State.Brackets(i.Base) {
			t.brackets[b.Open] = b.State
		}
		for ev, err := range i.Prefix.Range(max(from, 0), min(to, i.Prefix.Len())) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			hidden := ev.Op.Kind != session.OpNone && ev.Op.Kind != session.OpRestore && !visible[ev.Seq]
			for _, e := range t.entries(ev) {
				e.Seq, e.Time = ev.Seq, ev.Time
				e.Hidden = hidden && e.Kind != EntryNote
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// teller turns events into entries.
type teller struct {
	reg      *session.Registry
	names    map[string]string                    // tool by call id
	brackets map[session.Seq]session.BracketState // "" where nobody knows yet
}

func (t *teller) entries(ev session.Event) []Entry {
	switch ev.Type {
	case session.TypeUserMessage, session.TypeAssistantMessage, session.TypeToolResult:
		return t.said(ev, session.Project(ev))
	}
	if s := t.happened(ev); s != "" {
		return []Entry{{Kind: EntryNote, Text: s}}
	}
	return nil
}

func (t *teller) said(ev session.Event, it session.Item) []Entry {
	m := it.Message
	var out []Entry
	for _, b := range m.Content {
		e := Entry{Kind: EntryUser, Text: b.Text}
		switch {
		case b.Type == message.ToolCall:
			t.names[b.ID] = b.Name
			e.Kind, e.Name, e.Text, e.CallID = EntryCall, b.Name, b.Arguments, b.ID
		case b.Type == message.ToolResult:
			e.Kind, e.Name, e.CallID, e.Error = EntryResult, t.names[b.ToolCallID], b.ToolCallID, it.Code
			e.Text = message.Message{Content: b.Content}.PlainText()
			if b.IsError && e.Error == "" {
				e.Error = "ERROR"
			}
		case b.Type == message.Reasoning:
			e.Kind = EntryReasoning
		case ev.Type == session.TypeAssistantMessage:
			e.Kind, e.Name = EntryAssistant, strings.Trim(m.Source.Provider+"/"+m.Source.Model, "/")
		case m.Source.Kind == message.SourcePlugin:
			e.Kind, e.Name = EntryContext, m.Source.Plugin
		}
		if b.Type != message.Text && e.Text == "" && (e.Kind == EntryUser || e.Kind == EntryAssistant || e.Kind == EntryContext) {
			e.Text = "[" + string(b.Type) + "]"
		}
		out = append(out, e)
	}
	return out
}

// happened says in words what an event means that is no message; "" if it means nothing to a person.
func (t *teller) happened(ev session.Event) string {
	switch ev.Type {
	case session.TypeTurnEnd:
		d, err := session.DecodeData[session.TurnEnd](ev)
		if err == nil && d.Reason.Kind != session.ReasonCompleted {
			return fmt.Sprintf("turn %d ended: %s", d.Turn, ReasonText(d.Reason))
		}
	case session.TypeTitle:
		d, err := session.DecodeData[session.Title](ev)
		if err == nil {
			return "title: " + d.Title
		}
	case session.TypeInherited:
		return "picked up here: what is above was written by an earlier life"
	case session.TypeLost:
		d, _ := session.DecodeData[session.Lost](ev)
		return fmt.Sprintf("a record was lost here (%d bytes)", d.Bytes)
	case session.TypeHide:
		d, _ := session.DecodeData[session.Hide](ev)
		if d.Reason == "undo" {
			return fmt.Sprintf("turn %d undone", d.Turn)
		}
		return "some messages were hidden"
	case session.TypeRestore:
		return fmt.Sprintf("what seq %d had hidden was restored", ev.Op.Node)
	case session.TypeTodoWrite:
		d, err := session.DecodeData[session.TodoWrite](ev)
		if err == nil {
			return "todo: " + todoText(d.Todos)
		}
	case session.TypeApprovalAsked:
		d, _ := session.DecodeData[session.ApprovalAsked](ev)
		return strings.TrimSpace(fmt.Sprintf("asked: may %s run? %s", d.Name, d.Subject))
	case session.TypeApprovalDecided:
		d, _ := session.DecodeData[session.ApprovalDecided](ev)
		return fmt.Sprintf("answered: %s (%s)", d.Verdict, d.By)
	case subagent.TypeStart:
		d, _ := session.DecodeData[subagent.Start](ev)
		return strings.TrimSpace(fmt.Sprintf("subagent %s begins (%s): %s", d.ChildID, d.Mode, d.Description))
	case subagent.TypeEnd:
		d, _ := session.DecodeData[subagent.End](ev)
		return strings.TrimSpace(fmt.Sprintf("subagent %s: %s %s", d.ChildID, d.Outcome, d.Detail))
	default:
		k, ok := t.reg.Lookup(ev.Type)
		switch {
		case ok && k.Opens != "" && t.brackets[ev.Seq] != "":
			return fmt.Sprintf("%s (%s)", ev.Type, t.brackets[ev.Seq])
		case ok && (k.Opens != "" || k.Closes != ""):
			return ev.Type
		}
	}
	return ""
}

func todoText(todos []session.Todo) string {
	var s []string
	for _, t := range todos {
		mark := "[ ]"
		switch t.Status {
		case "completed":
			mark = "[x]"
		case "in_progress":
			mark = "[>]"
		}
		s = append(s, mark+" "+t.Content)
	}
	return strings.Join(s, ", ")
}

// ReasonText says in words why a turn ended.
func ReasonText(r session.Reason) string {
	s := r.Kind
	for _, more := range []string{r.Cause, r.Detail} {
		if more != "" {
			s += " (" + more + ")"
		}
	}
	if e := r.Error; e != nil {
		s += ": " + strings.TrimSpace(strings.Trim(e.Code+": "+e.Message, ": "))
	}
	return s
}
