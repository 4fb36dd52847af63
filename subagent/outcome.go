package subagent

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// ending is how a child's log ends: its end, and the text that goes with it.
type ending struct {
	End
	text string // the last that the child said itself
}

// told is an ending and whose it is.
type told struct {
	start Start
	ending
}

// outcome reads from a child's log how it ended. over is false while its turn waits for a person. Only what stands
// behind the inherited part counts: an answer is never the parent's. err says that the log cannot be read.
func outcome(s *session.Session) (e ending, over bool, err error) {
	st, log := s.State(), s.Events()
	e.End = End{ChildID: s.ID(), Events: st.Next()}
	_, e.Usage = st.Usage()
	var last *session.TurnEnd
	for ev, err := range log.Range(s.Header().SeedLength, log.Len()) {
		if err != nil {
			return e, false, fmt.Errorf("its log cannot be read: %w", err)
		}
		switch ev.Type {
		case session.TypeAssistantMessage:
			if text := session.Project(ev).Message.PlainText(); text != "" {
				e.text = text
			}
		case session.TypeTurnEnd:
			if d, err := session.DecodeData[session.TurnEnd](ev); err == nil {
				last = &d
			}
		}
	}
	_, open := st.Turn()
	switch {
	case st.Parked():
		return e, false, nil
	case open:
		e.Outcome, e.Detail = OutcomeFailed, "its log takes no more events"
	case last == nil:
		e.Outcome, e.Detail = OutcomeInterrupted, "it had not begun"
	default:
		e.Outcome, e.Detail = ofReason(last.Reason)
	}
	return e, true, nil
}

func ofReason(r session.Reason) (Outcome, string) {
	switch {
	case r.Kind == session.ReasonCompleted:
		return OutcomeCompleted, ""
	case r.Kind == session.ReasonInterrupted:
		return OutcomeInterrupted, "its process died"
	case r.Kind == session.ReasonAborted && r.Cause == string(agent.CauseTimeout):
		return OutcomeTimeout, "its time was over"
	case r.Kind == session.ReasonAborted:
		return OutcomeCancelled, r.Cause
	}
	detail := strings.TrimSpace(r.Kind + " " + r.Detail)
	if r.Error != nil {
		detail = strings.TrimSpace(r.Error.Code + " " + r.Error.Message)
	}
	return OutcomeFailed, validText(detail)
}

// tell tells a parent by a message how a child ended, and closes its bracket, once: whoever comes second finds it
// closed. The message comes first: the bracket is open as long as nobody was told. known: it is in the log already.
func (d *Delegation) tell(p *agent.Agent, start Start, e ending, known bool) {
	_, err := p.Session().AppendFunc(func(st session.State) ([]session.Draft, error) {
		if !stands(st, start.ChildID) {
			return nil, nil
		}
		end := session.Draft{Type: TypeEnd, Data: e.End}
		if known {
			return []session.Draft{end}, nil
		}
		return []session.Draft{{Type: session.TypeInboxSpliced, Data: session.InboxSpliced{
			Target: session.NextStep, Start: len(st.Queue(session.NextStep)), Inserted: []message.Message{notice(start, e)},
		}}, end}, nil
	})
	if err != nil {
		return // the parent is gone: its next life finds the open bracket
	}
	if p.Flush(context.Background()) == nil && d.opt.Wake {
		_ = p.Kick(context.Background()) // it fails when the agent is being disposed: then the message waits
	}
}

// stands reports whether the bracket of a child is open.
func stands(st session.State, id session.ID) bool {
	all := Brackets(st)
	for _, b := range all {
		if b.Close == session.None && b.Key == key(id) {
			return true
		}
	}
	return false
}

// key is the raw JSON by which the bracket of a child is paired.
func key(id session.ID) string { return `"` + string(id) + `"` }

// noticeID is the id of the message that tells of a child's end. It is the same in every life.
func noticeID(id session.ID) string { return "subagent-" + string(id) }

// notice is the message that tells a parent how a child ended.
func notice(start Start, e ending) message.Message {
	return message.Message{
		ID: noticeID(start.ChildID), Role: message.RoleUser,
		Content: []message.Block{message.TextBlock(say(told{start, e}))},
		Source:  message.Source{Kind: message.SourcePlugin, Plugin: Plugin},
	}
}

// say puts an ending into words.
func say(t told) string {
	what := "Subagent " + string(t.start.ChildID)
	if t.start.Description != "" {
		what += " (" + t.start.Description + ")"
	}
	text := bounded(t.text, t.start.ChildID)
	switch {
	case t.Outcome == OutcomeCompleted && text == "":
		return what + " is done. It gave no answer."
	case t.Outcome == OutcomeCompleted:
		return what + " is done. Its answer:\n\n" + text
	}
	what += " did not finish: " + string(t.Outcome)
	if t.Detail != "" {
		what += " (" + t.Detail + ")"
	}
	if text == "" {
		return what + "."
	}
	return what + ". The last it said:\n\n" + text
}

// answers is the result of a call that waited. over are told by it; open are not over.
func answers(over []told, open []*child, single bool) tool.Result {
	if single && len(over) == 1 && over[0].Outcome == OutcomeCompleted {
		text := over[0].text // the answer and nothing else
		if text == "" {
			text = "(the subagent gave no answer)"
		}
		return result("", text, over...)
	}
	var parts []string
	code := ""
	for _, t := range over {
		parts = append(parts, say(t))
		if t.Outcome != OutcomeCompleted && single {
			code = CodeFailed
		}
	}
	for _, ch := range open {
		if asks := ch.agent.Session().State().Asks(); len(asks) > 0 {
			parts = append(parts, fmt.Sprintf("Subagent %s waits for a person's approval (%s). You get its answer as a message when it is done.",
				ch.id, strings.TrimSpace(asks[0].Name+" "+clip(asks[0].Subject, 200))))
			if single {
				code = CodeWaiting
			}
			continue
		}
		parts = append(parts, fmt.Sprintf("Subagent %s still works. You get its answer as a message when it is done.", ch.id))
	}
	return result(code, strings.Join(parts, "\n\n"), over...)
}

// result is a result that tells how children ended, with their ends behind it. code "" is a success.
func result(code, text string, over ...told) tool.Result {
	r := tool.Text(text)
	r.IsError, r.Code = code != "", code
	var list []mention
	for _, t := range over {
		data, err := json.Marshal(t.End, json.Deterministic(true))
		if err != nil {
			continue // it holds nothing that cannot be written; the bracket would stay open and be closed by the next turn
		}
		r.Closing = append(r.Closing, tool.Record{Type: TypeEnd, Data: data})
		list = append(list, mention{t.start.ChildID, t.Outcome})
	}
	if list != nil {
		r.Meta, _ = json.Marshal(metaData{list}, json.Deterministic(true))
	}
	return r
}

// metaData is the meta of a result of the tool: the children that it tells of. An outcome says that it tells how
// the child ended.
type metaData struct {
	Subagents []mention `json:"subagents"`
}

type mention struct {
	ID      session.ID `json:"id"`
	Outcome Outcome    `json:"outcome,omitzero"`
}

func meta(id session.ID, o Outcome) jsontext.Value {
	v, _ := json.Marshal(metaData{[]mention{{id, o}}}, json.Deterministic(true))
	return v
}

// maxNotice bounds the answer that a message carries, in bytes; a result has the bound of all results.
const maxNotice = tool.DefaultLimit

// bounded shortens a text to its head and tail and says where the whole is.
func bounded(s string, id session.ID) string {
	if len(s) <= maxNotice {
		return s
	}
	head, tail := maxNotice*3/4, len(s)-maxNotice/4
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n\n[%d bytes are left out here; the whole answer is in session %s]\n\n%s", s[:head], tail-head, id, s[tail:])
}

// clip shortens s to about n bytes on a rune boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + " …"
}

func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
