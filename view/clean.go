package view

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// clean returns the message of an item as it may be sent, and the tool-call blocks as they were logged
// (results name those ids). Nothing that is fine is copied.
func (b *Builder) clean(it session.Item, role message.Role) (message.Message, []message.Block) {
	m := it.Message
	foreign := role == message.RoleAssistant && m.Source.Provider != b.opt.Provider
	var raw []message.Block
	m.Role = role
	m.Content = b.blocks(it.Seq, m.Content, func(bl message.Block) (message.Block, bool) {
		switch {
		case bl.Type == message.ToolResult,
			role != message.RoleAssistant && (bl.Type == message.ToolCall || bl.Type == message.Reasoning):
			b.note(Misplaced, it.Seq, "a %s block in a message of role %s", bl.Type, role)
			return bl, false
		case bl.Type == message.ToolCall:
			raw = append(raw, bl)
			if bl.Name == "" {
				b.note(Replaced, it.Seq, "a call without a name")
				bl.Name = "unnamed"
			}
		}
		return bl, true
	}, foreign)
	m.ID = b.text(it.Seq, m.ID)
	if foreign {
		if len(m.Source.ReplayState) > 0 || len(m.Source.Extra) > 0 || len(m.Extra) > 0 {
			b.note(Bound, it.Seq, "state of %q", m.Source.Provider)
		}
		m.Source.ReplayState, m.Source.Extra, m.Extra = nil, nil, nil
	}
	return m, raw
}

// cleanResult returns a result as it may be sent: one tool-result block that names its call as the view
// does.
func (b *Builder) cleanResult(it session.Item, c call) message.Message {
	m := it.Message
	r, _ := resultBlock(m)
	if len(m.Content) != 1 {
		b.note(Misplaced, it.Seq, "a result with %d blocks beside its own", len(m.Content)-1)
	}
	r.Content = b.blocks(it.Seq, r.Content, func(bl message.Block) (message.Block, bool) {
		if bl.Type == message.ToolResult || bl.Type == message.ToolCall || bl.Type == message.Reasoning {
			b.note(Misplaced, it.Seq, "a %s block inside a result", bl.Type)
			return bl, false
		}
		return bl, true
	}, false)
	m.Role, m.ID = message.RoleUser, b.text(it.Seq, m.ID)
	m.Source.Kind = message.SourceTool
	if c.id == r.ToolCallID && len(m.Content) == 1 && slices.EqualFunc(r.Content, m.Content[0].Content, sameBlock) && m.Source.CallID == c.id {
		return m
	}
	m.Content = []message.Block{r}
	return renameResult(m, c.id)
}

// renameResult lets a result, whose blocks are not shared, name its call by the id in the view.
func renameResult(m message.Message, id string) message.Message {
	m.Content[0].ToolCallID = id
	m.Source.CallID = id
	return m
}

func resultBlock(m message.Message) (message.Block, bool) {
	for _, bl := range m.Content {
		if bl.Type == message.ToolResult {
			return bl, true
		}
	}
	return message.Block{}, false
}

// sameBlock tells whether the cleaning left a block alone; it compares what cleaning changes.
func sameBlock(a, b message.Block) bool {
	return a.Type == b.Type && a.Text == b.Text && a.URL == b.URL && a.Blob == b.Blob && a.MediaType == b.MediaType &&
		a.Signature == b.Signature && len(a.Extra) == len(b.Extra)
}

// blocks cleans content. keep looks at each block first. The result is content itself if nothing had to
// be done.
func (b *Builder) blocks(seq session.Seq, content []message.Block, keep func(message.Block) (message.Block, bool), foreign bool) []message.Block {
	var out []message.Block
	copied := false
	for i, bl := range content {
		c, ok := keep(bl)
		if ok {
			c, ok = b.block(seq, c, foreign)
		}
		if !copied && (!ok || !sameBlock(c, bl) || c.ID != bl.ID || c.Name != bl.Name || c.Arguments != bl.Arguments) {
			out, copied = append(make([]message.Block, 0, len(content)), content[:i]...), true
		}
		if copied && ok {
			out = append(out, c)
		}
	}
	if !copied {
		return content
	}
	return out
}

// block cleans one block; false: it cannot be sent, or says nothing.
func (b *Builder) block(seq session.Seq, bl message.Block, foreign bool) (message.Block, bool) {
	if foreign {
		switch {
		case bl.Type == message.Reasoning:
			// Without its signature a provider refuses it, and another one's is not its own.
			b.note(Bound, seq, "reasoning of another provider")
			return bl, false
		case !known(bl.Type):
			b.note(Bound, seq, "a block of kind %q of another provider", bl.Type)
			return bl, false
		case bl.Signature != "" || len(bl.Extra) > 0:
			b.note(Bound, seq, "members of another provider in a %s block", bl.Type)
			bl.Signature, bl.Extra = "", nil
		}
	}
	bl.Text = b.text(seq, bl.Text)
	switch bl.Type {
	case message.Text:
		return bl, bl.Text != ""
	case message.Reasoning:
		bl.Signature = b.text(seq, bl.Signature)
		return bl, bl.Text != "" || bl.Signature != "" || len(bl.Extra) > 0
	case message.Image:
		if why := b.refused(bl); why != "" {
			b.note(Media, seq, "%s", why)
			return message.TextBlock("[an image was left out: " + why + "]"), true
		}
	case message.ToolCall:
		bl.ID, bl.Name, bl.Arguments = b.text(seq, bl.ID), b.text(seq, bl.Name), b.text(seq, bl.Arguments)
	}
	return bl, true
}

func known(t message.BlockType) bool {
	switch t {
	case message.Text, message.Reasoning, message.Image, message.ToolCall, message.ToolResult:
		return true
	}
	return false
}

// refused says why an image cannot be sent; "" if it can.
func (b *Builder) refused(bl message.Block) string {
	switch {
	case bl.Blob == "" && bl.URL == "":
		return "it has no content"
	case bl.Blob != "" && bl.URL != "":
		return "it has two contents"
	case !validText(bl.Blob) || !validText(bl.URL):
		return "its name is not valid text"
	}
	typ := bl.MediaType
	if rest, ok := strings.CutPrefix(bl.URL, "data:"); ok {
		if inline, _, _ := strings.Cut(rest, ";"); typ == "" || inline != typ {
			typ, _, _ = strings.Cut(inline, ",")
		}
	} else if typ == "" && strings.HasPrefix(bl.URL, "http") {
		return "" // the provider fetches it and sees
	}
	if !slices.Contains(b.opt.MediaTypes, typ) {
		return "its type is not one that can be sent"
	}
	return ""
}

func validText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// text returns s as valid Unicode without NUL.
func (b *Builder) text(seq session.Seq, s string) string {
	if validText(s) {
		return s
	}
	b.note(Replaced, seq, "text that is not valid Unicode or holds NUL")
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
