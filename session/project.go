package session

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/message"
)

// Item is a surface node made readable: the message it stands for and where it belongs. The message is
// shared and must not be changed.
type Item struct {
	Seq     Seq
	Type    string
	Turn    int // assistant/message and tool/result; 0 elsewhere
	Step    int
	Message message.Message // empty Content: the node yields no message
	Code    string          // tool/result: its error code
	Lost    bool            // a run of these becomes one notice in the view
	Hide    bool            // an empty node that stands for hidden ones
}

// Project reads the node ev into an Item. It is total: data that cannot be read yields an item without
// content.
func Project(ev Event) Item {
	it := Item{Seq: ev.Seq, Type: ev.Type}
	switch ev.Type {
	case TypeUserMessage:
		var m message.Message
		if json.Unmarshal(ev.Data, &m) == nil { // else m may hold a part
			it.Message = m
		}
	case TypeAssistantMessage:
		var a AssistantMessage
		if json.Unmarshal(ev.Data, &a) == nil {
			it.Turn, it.Step, it.Message = a.Turn, a.Step, a.Message
		}
	case TypeToolResult:
		var r ToolResult
		if json.Unmarshal(ev.Data, &r) == nil {
			it.Turn, it.Step, it.Message = r.Turn, r.Step, r.Message
			if r.Error != nil {
				it.Code = r.Error.Code
			}
		}
	case TypeLost:
		it.Lost = true
	case TypeHide:
		it.Hide = true
	}
	return it
}

// ProjectAll reads every surface node of s from p. It fails only when p does.
func ProjectAll(s State, p Prefix) ([]Item, error) {
	return projectFrom(s, p.At, nil)
}

// projectFrom extends items, which are the projection of the first len(items) nodes.
func projectFrom(s State, at func(Seq) (Event, error), items []Item) ([]Item, error) {
	for i := len(items); i < s.surf.nodes.len(); i++ {
		seq := s.surf.nodes.at(i).seq()
		ev, err := at(seq)
		if err != nil {
			return items, fmt.Errorf("session: reading the surface at seq %d: %w", seq, err)
		}
		items = append(items, Project(ev))
	}
	return items, nil
}

// Messages returns the messages of items, verbatim; items without content yield none.
func Messages(items []Item) []message.Message {
	out := make([]message.Message, 0, len(items))
	for _, it := range items {
		if len(it.Message.Content) > 0 {
			out = append(out, it.Message)
		}
	}
	return out
}
