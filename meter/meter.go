// Package meter says how many tokens a view has, and what a session's answers cost.
//
// A gauge begins at what the provider itself told: the usage of the last answer counts everything up to and with it,
// as long as the log shows that the header and the view go on from there. What came since is estimated: four ASCII
// characters to a token, one token to every other letter, and a little for each message. When the surface changed
// otherwise than at its tail (a compaction, an undo) the old figure says nothing any more and all is estimated, so
// that a usage from before a compaction never triggers the next one.
//
// Everything here is a fold of the log, or reads the log: the numbers are right at once after resume, fork and undo.
package meter

import (
	"bytes"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// What the parts of a request cost beside their text, in tokens.
const (
	perMessage = 4
	perCall    = 6
	perTool    = 8
	perImage   = 1200
)

// Gauge is how full a request is.
type Gauge struct {
	Tokens int64 // of the request as a whole, never negative
	// Told is how many of them the provider counted itself; 0: all is estimated.
	Told int64
}

// Measure returns the gauge of req. st is the state that req was made of, and p holds its log. The header of req
// must be the last one that the log holds. It reads at most three events; what cannot be read is not relied on.
func Measure(req llm.Request, st session.State, p session.Prefix) Gauge {
	if told, from, ok := anchor(req, st, p); ok {
		return Gauge{Tokens: told + Messages(req.Messages[from:]), Told: told}
	}
	return Gauge{Tokens: Request(req)}
}

// anchor returns what the provider told of the messages below from.
func anchor(req llm.Request, st session.State, p session.Prefix) (told int64, from int, ok bool) {
	seq, header, ok := st.Anchor()
	if !ok || !sameHeader(p, header, st.RequestHeader()) {
		return 0, 0, false
	}
	ev, err := p.At(seq)
	if err != nil {
		return 0, 0, false
	}
	a, err := session.DecodeData[session.AssistantMessage](ev)
	if err != nil || a.Usage == nil || a.Message.ID == "" {
		return 0, 0, false
	}
	for i := len(req.Messages) - 1; i >= 0; i-- {
		m := req.Messages[i]
		if m.ID != a.Message.ID || m.Role != message.RoleAssistant {
			continue
		}
		told = Tokens(*a.Usage) - unsent(*a.Usage, m)
		if a.Interrupted { // what it told of its own length is not all that is sent back
			told = Tokens(*a.Usage) - a.Usage.OutputTokens + Message(m)
		}
		return max(told, 0), i + 1, told > 0
	}
	return 0, 0, false
}

// unsent is how much of an answer's reasoning is not sent back with it.
func unsent(u message.Usage, m message.Message) int64 {
	if u.ReasoningTokens == nil {
		return 0
	}
	var back int64
	for _, b := range m.Content {
		if b.Type == message.Reasoning {
			back += Text(b.Text)
		}
	}
	return max(0, min(*u.ReasoningTokens, u.OutputTokens)-back)
}

// sameHeader reports whether two request/header events say the same.
func sameHeader(p session.Prefix, a, b session.Seq) bool {
	if a == b {
		return a != session.None
	}
	if a == session.None || b == session.None {
		return false
	}
	var body [2][]byte
	for i, seq := range []session.Seq{a, b} {
		ev, err := p.At(seq)
		if err != nil {
			return false
		}
		v, ok := session.Field(ev.Data, "header")
		if !ok {
			return false
		}
		body[i] = v
	}
	return bytes.Equal(body[0], body[1])
}

// Tokens is all tokens of a request and its answer.
func Tokens(u message.Usage) int64 {
	n := u.InputTokens + u.OutputTokens
	for _, p := range []*int64{u.CacheReadTokens, u.CacheWriteTokens} {
		if p != nil {
			n += *p
		}
	}
	return max(n, 0)
}

// Text estimates a text.
func Text(s string) int64 {
	ascii, other := 0, 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			ascii++
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		other++
		i += n
	}
	return int64((ascii+3)/4 + other)
}

// Message estimates a message.
func Message(m message.Message) int64 { return perMessage + blocks(m.Content) }

func blocks(bs []message.Block) (n int64) {
	for _, b := range bs {
		switch b.Type {
		case message.Image:
			n += perImage
		case message.ToolCall:
			n += perCall + Text(b.Name) + Text(b.Arguments)
		case message.ToolResult:
			n += perCall + blocks(b.Content)
		default:
			n += Text(b.Text)
		}
	}
	return n
}

// Messages estimates messages.
func Messages(ms []message.Message) (n int64) {
	for _, m := range ms {
		n += Message(m)
	}
	return n
}

// Fixed estimates what a request has beside its messages: system prompt and tools.
func Fixed(req llm.Request) int64 {
	n := Text(req.System)
	for _, t := range req.Tools {
		n += perTool + Text(t.Name) + Text(t.Description) + Text(string(t.Parameters))
	}
	return n
}

// Request estimates a request as a whole.
func Request(req llm.Request) int64 { return Fixed(req) + Messages(req.Messages) }
