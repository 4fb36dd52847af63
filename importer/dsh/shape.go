package dsh

import (
	"strings"

	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// count fills in a turn or step that an event does not tell: it belongs to the one at hand.
func (r *reader) count(data *importer.Object, names ...string) (how string) {
	turn, _ := r.st.Turn()
	step, _ := r.st.Step()
	for _, name := range names {
		if _, ok := data.Int(name); ok {
			continue
		}
		n := max(turn, 1)
		if name == "step" {
			n = max(step, 1)
		}
		data.SetInt(name, int64(n))
		how = "events without turn or step, counted"
	}
	return how
}

func (r *reader) turn(data *importer.Object) (string, bool) {
	if _, ok := data.Int("turn"); ok {
		return "", true
	}
	n, _ := r.st.Turn()
	data.SetInt("turn", int64(n+1))
	return "events without turn or step, counted", true
}

func (r *reader) step(data *importer.Object) (string, bool) {
	return r.count(data, "turn", "step"), true
}

// turnEnd brings the reason into its form: a kind, and for an abort its cause in one word.
func (r *reader) turnEnd(data *importer.Object) (string, bool) {
	how := r.count(data, "turn")
	reason, ok := data.Object("reason")
	switch text, isText := data.String("reason"); {
	case isText && text != "":
		reason, how = importer.NewObject("kind", text), "reasons in another shape"
	case !ok:
		reason, how = importer.NewObject("kind", "unknown"), "turns that ended without a reason"
	}
	kind, _ := reason.String("kind")
	if kind == "" {
		reason.SetString("kind", "unknown")
		how = "turns that ended without a reason"
	}
	if kind == session.ReasonAborted && !reason.Has("cause") {
		why, _ := reason.Object("reason")
		if cause, ok := why.String("kind"); ok {
			reason.SetString("cause", cause)
		} else if cause, ok := reason.String("reason"); ok {
			reason.SetString("cause", cause)
		}
	}
	if text, ok := reason.String("error"); ok {
		reason.Set("error", importer.NewObject("message", text).Encode())
	}
	if reason.Changed() {
		data.Set("reason", reason.Encode())
		if how == "" {
			how = "reasons in another shape"
		}
	}
	return how, true
}

func (r *reader) user(data *importer.Object) (string, bool) {
	return r.message(data, message.RoleUser, importer.NewObject("kind", string(message.SourceUser)))
}

func (r *reader) context(data *importer.Object) (string, bool) {
	return r.message(data, message.RoleUser, importer.NewObject("kind", string(message.SourcePlugin), "plugin", "context"))
}

// message gives a message its role, its content as a list of blocks, and a source that is known here.
func (r *reader) message(m *importer.Object, role message.Role, source importer.Object) (how string, ok bool) {
	if inner, wrapped := m.Object("message"); wrapped && !m.Has("content") {
		*m = inner // steering was wrapped for a time
		how = "messages in another shape"
	}
	if s, _ := m.String("role"); s != string(role) {
		m.SetString("role", string(role))
		how = "messages without a role"
	}
	content, changed, ok := blocks(m.Get("content"))
	if !ok {
		return "", false
	}
	if changed {
		m.Set("content", content)
		how = "content in another shape"
	}
	src, has := m.Object("source")
	switch kind, _ := src.String("kind"); message.SourceKind(kind) {
	case message.SourceUser, message.SourcePlugin, message.SourceModel, message.SourceTool:
	case "":
		if !has {
			src = source
		} else {
			k, _ := source.String("kind")
			src.SetString("kind", k)
		}
		m.Set("source", src.Encode())
		how = "messages without a source"
	default: // injected by a part of the harness that has a kind of its own there
		src.SetString("kind", string(message.SourcePlugin))
		src.SetString("plugin", kind)
		m.Set("source", src.Encode())
		how = "sources of kind " + clip(kind) + " as plugins"
	}
	return how, true
}

// blocks brings content into the form of a list of blocks.
func blocks(v jsonValue) (out jsonValue, changed, ok bool) {
	if s, isText := importer.Text(v); isText {
		return importer.Array(importer.NewObject("type", "text", "text", s).Encode()), true, true
	}
	if v == nil || v.Kind() == 'n' {
		return jsonValue("[]"), true, true
	}
	list, ok := importer.Elements(v)
	if !ok {
		return nil, false, false
	}
	for i, e := range list {
		if s, isText := importer.Text(e); isText {
			list[i], changed = importer.NewObject("type", "text", "text", s).Encode(), true
			continue
		}
		b, ok := importer.ParseObject(e)
		if !ok {
			return nil, false, false
		}
		switch typ, _ := b.String("type"); message.BlockType(typ) {
		case message.ToolCall:
			rawText(&b, "arguments")
		case message.Image:
			// The bytes lie in the source's attachments and not in the log: what is known of them is kept.
			if a, ok := b.Object("attachment"); ok && !b.Has("mediaType") {
				if t, ok := a.String("mediaType"); ok {
					b.SetString("mediaType", t)
				}
			}
		case message.ToolResult:
			inner, ch, ok := blocks(b.Get("content"))
			if !ok {
				return nil, false, false
			}
			if ch {
				b.Set("content", inner)
			}
		}
		if b.Changed() {
			list[i], changed = b.Encode(), true
		}
	}
	if !changed {
		return v, false, true
	}
	return importer.Array(list...), true, true
}

// rawText makes the raw text of a member that may have been stored as a value.
func rawText(o *importer.Object, name string) {
	if v := o.Get(name); v != nil && v.Kind() != '"' {
		o.SetString(name, string(v))
	}
}

// assistant puts the message of an answer, which lay openly in the data before August 2026, into a member of its
// own.
func (r *reader) assistant(data *importer.Object) (string, bool) {
	how := r.count(data, "turn", "step")
	source := importer.NewObject("kind", string(message.SourceModel))
	for i, name := range []string{"provider", "model"} {
		if r.model[i] != "" {
			source.SetString(name, r.model[i])
		}
	}
	m, wrapped := data.Object("message")
	if !wrapped {
		m = importer.NewObject("role", string(message.RoleAssistant))
		m.Set("content", data.Get("content"))
		if m.Get("content") == nil {
			m.Set("content", jsonValue("[]"))
		}
		if p, ok := data.Object("provenance"); ok {
			p.SetString("kind", string(message.SourceModel))
			source = p
		}
		m.Set("source", source.Encode())
		if id := data.Get("id"); id != nil {
			m.Set("id", id)
		}
		data.Delete("content", "provenance", "id")
		how = "answers in the shape before August 2026"
	}
	h, ok := r.message(&m, message.RoleAssistant, source)
	if !ok {
		return "", false
	}
	if !wrapped || m.Changed() {
		data.Set("message", m.Encode())
	}
	if how == "" {
		how = h
	}
	if data.Get("usage").Kind() == 'n' {
		data.Delete("usage")
	}
	return how, true
}

func (r *reader) call(data *importer.Object) (string, bool) {
	how := r.count(data, "turn", "step")
	if data.Get("arguments").Kind() != '"' {
		if data.Has("arguments") {
			rawText(data, "arguments")
		} else {
			data.SetString("arguments", "")
		}
		how = "arguments that were no text"
	}
	return how, true
}

// result makes the message of a result, which was flat before August 2026.
func (r *reader) result(data *importer.Object) (string, bool) {
	how := r.count(data, "turn", "step")
	m, wrapped := data.Object("message")
	if !wrapped {
		id, ok := data.String("callId")
		if !ok {
			return "", false
		}
		block := importer.NewObject("type", string(message.ToolResult), "toolCallId", id)
		block.Set("content", data.Get("content"))
		if block.Get("content") == nil {
			block.Set("content", jsonValue("[]"))
		}
		if v := data.Get("isError"); v.Kind() == 't' || v.Kind() == 'f' {
			block.Set("isError", v)
		}
		m = importer.NewObject("role", string(message.RoleUser))
		m.Set("content", importer.Array(block.Encode()))
		m.Set("source", importer.NewObject("kind", string(message.SourceTool), "callId", id).Encode())
		data.Delete("callId", "content", "isError")
		how = "results in the shape before August 2026"
	}
	h, ok := r.message(&m, message.RoleUser, importer.NewObject("kind", string(message.SourceTool)))
	if !ok {
		return "", false
	}
	if !wrapped || m.Changed() {
		data.Set("message", m.Encode())
	}
	if how == "" {
		how = h
	}
	if text, ok := data.String("error"); ok {
		data.Set("error", importer.NewObject("message", text).Encode())
		how = "errors in another shape"
	}
	return how, true
}

// inbox gives the queued messages the form of messages.
func (r *reader) inbox(data *importer.Object) (how string, ok bool) {
	if !data.Has("inserted") {
		data.Set("inserted", jsonValue("[]"))
		how = "queue edits in another shape"
	}
	list, ok := importer.Elements(data.Get("inserted"))
	if !ok {
		return "", false
	}
	changed := false
	for i, e := range list {
		m, ok := importer.ParseObject(e)
		if !ok {
			return "", false
		}
		if _, ok := r.user(&m); !ok {
			return "", false
		}
		if m.Changed() {
			list[i], changed = m.Encode(), true
		}
	}
	if changed {
		data.Set("inserted", importer.Array(list...))
		how = "queue edits in another shape"
	}
	return how, true
}

// requestHeader remembers the model: older answers do not say whose they are.
func (r *reader) requestHeader(data *importer.Object) (string, bool) {
	header, _ := data.Object("header")
	cfg, _ := header.Object("config")
	r.model[0], _ = cfg.String("provider")
	r.model[1], _ = cfg.String("model")
	if v := header.Get("system"); v != nil && v.Kind() != '"' {
		rawText(&header, "system")
		data.Set("header", header.Encode())
		return "system prompts that were no text", true
	}
	return "", true
}

// title makes one word of the title's source.
func (r *reader) title(data *importer.Object) (string, bool) {
	if src, ok := data.Object("source"); ok {
		kind, _ := src.String("kind")
		data.SetString("source", kind)
		return "titles in another shape", true
	}
	return "", true
}

// boundary: what the mark says is that it is there.
func (r *reader) boundary(data *importer.Object) (string, bool) {
	if data.Len() == 0 {
		return "", true
	}
	*data = importer.NewObject()
	return "boundaries with data", true
}

func (r *reader) asked(data *importer.Object) (string, bool) {
	how := r.count(data, "turn", "step")
	rename(data, "id", "askId")
	rename(data, "toolName", "name")
	id, _ := data.String("askId")
	call, _ := data.String("callId")
	if len(r.asks) < 1<<16 {
		r.asks[id] = call
	}
	if data.Changed() {
		how = "questions in another shape"
	}
	return how, true
}

func (r *reader) decided(data *importer.Object) (string, bool) {
	rename(data, "id", "askId")
	if id, _ := data.String("askId"); !data.Has("callId") {
		data.SetString("callId", r.asks[id])
	}
	if outcome, _ := data.String("outcome"); !data.Has("verdict") {
		verdict := session.VerdictDeny // whatever is not said to be allowed was not
		if strings.HasPrefix(outcome, "allow") || strings.HasPrefix(outcome, "approve") {
			verdict = session.VerdictAllow
		}
		data.SetString("verdict", verdict)
	}
	if !data.Has("by") {
		data.SetString("by", "user")
	}
	if data.Changed() {
		return "answers to questions in another shape", true
	}
	return "", true
}

// policy maps the two policies that the source had. A policy that it may have got since asks: an imported file
// must not loosen what a person would be asked.
func (r *reader) policy(data *importer.Object) (string, bool) {
	p, _ := data.String("policy")
	to := "ask"
	if p == "never" || p == "never-ask" {
		to = "never-ask"
	}
	if to == p {
		return "", true
	}
	data.SetString("policy", to)
	data.SetString("was", p)
	return "approval policies under their names here", true
}

func rename(o *importer.Object, from, to string) {
	if v := o.Get(from); v != nil && !o.Has(to) {
		o.Delete(from)
		o.Set(to, v)
	}
}
