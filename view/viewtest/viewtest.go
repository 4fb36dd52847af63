// Package viewtest holds the strict checker of views: the rules that a provider would enforce, as a test
// helper. It shares no code with package view.
package viewtest

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/message"
)

// mediaTypes are the images that every provider with images takes.
var mediaTypes = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true}

// Check refuses messages that are not a legal view for provider: every call has exactly one result, which
// stands directly after its message in the order of the calls; call ids are unique and not empty; no
// message is empty; roles and blocks fit each other; text is valid Unicode without NUL; images have one
// content and a type that can be sent; nothing is bound to another provider. Messages of which
// neighbours of one role were joined are accepted as well. The error names every fault.
func Check(messages []message.Message, provider string) error {
	c := checker{provider: provider, ids: make(map[string]bool)}
	for i, m := range messages {
		c.at = i
		c.message(m)
	}
	if len(c.owed) > 0 {
		c.fault("the view ends with %d calls unanswered (%q)", len(c.owed), c.owed)
	}
	return errors.Join(c.errs...)
}

type checker struct {
	provider string
	at       int
	ids      map[string]bool
	owed     []string // ids of the calls that the next results must answer, in order
	errs     []error
}

func (c *checker) fault(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("view: message %d: "+format, append([]any{c.at}, args...)...))
}

func (c *checker) text(what, s string) {
	if !utf8.ValidString(s) {
		c.fault("%s is not valid UTF-8: %q", what, s)
	}
	if strings.ContainsRune(s, 0) {
		c.fault("%s holds NUL", what)
	}
}

func (c *checker) message(m message.Message) {
	if m.Role != message.RoleUser && m.Role != message.RoleAssistant {
		c.fault("role %q", m.Role)
	}
	if len(m.Content) == 0 {
		c.fault("no content")
	}
	c.text("id", m.ID)
	assistant := m.Role == message.RoleAssistant
	foreign := assistant && m.Source.Provider != c.provider
	if foreign && len(m.Source.ReplayState) > 0 {
		c.fault("replay state of %q", m.Source.Provider)
	}
	if assistant && len(c.owed) > 0 {
		c.fault("an assistant message while the calls %q are unanswered", c.owed)
		c.owed = nil
	}
	for _, b := range m.Content {
		if len(c.owed) > 0 && !assistant && b.Type != message.ToolResult {
			c.fault("a %s block before the results of %q", b.Type, c.owed)
			c.owed = nil
		}
		if foreign && (b.Signature != "" || b.Type == message.Reasoning) {
			c.fault("a %s block of %q", b.Type, m.Source.Provider)
		}
		c.block(b, assistant)
	}
}

func (c *checker) block(b message.Block, assistant bool) {
	c.text("text", b.Text)
	c.text("signature", b.Signature)
	switch b.Type {
	case message.Text:
		if b.Text == "" {
			c.fault("an empty text block")
		}
	case message.Reasoning:
		if !assistant {
			c.fault("reasoning of a user")
		}
	case message.Image:
		c.image(b)
	case message.ToolCall:
		c.text("call id", b.ID)
		c.text("call name", b.Name)
		c.text("arguments", b.Arguments)
		switch {
		case !assistant:
			c.fault("a user calls a tool")
		case b.ID == "" || c.ids[b.ID]:
			c.fault("the call id %q is empty or not unique", b.ID)
		}
		if b.Name == "" {
			c.fault("a call without a name")
		}
		c.ids[b.ID] = true
		c.owed = append(c.owed, b.ID)
	case message.ToolResult:
		switch {
		case assistant:
			c.fault("an assistant gives a result")
		case len(c.owed) == 0:
			c.fault("a result for %q, which is not owed here", b.ToolCallID)
		case c.owed[0] != b.ToolCallID:
			c.fault("a result for %q where that of %q is owed", b.ToolCallID, c.owed[0])
			c.owed = c.owed[1:]
		default:
			c.owed = c.owed[1:]
		}
		for _, inner := range b.Content {
			if inner.Type == message.ToolCall || inner.Type == message.ToolResult {
				c.fault("a %s block inside a result", inner.Type)
				continue
			}
			c.block(inner, assistant)
		}
	}
}

func (c *checker) image(b message.Block) {
	c.text("blob", b.Blob)
	c.text("url", b.URL)
	typ := b.MediaType
	if rest, ok := strings.CutPrefix(b.URL, "data:"); ok {
		typ, _, _ = strings.Cut(rest, ";")
	}
	fetched := strings.HasPrefix(b.URL, "http") && typ == ""
	if (b.Blob == "") == (b.URL == "") || !mediaTypes[typ] && !fetched {
		c.fault("an image that cannot be sent (blob %q, url of %d bytes, type %q)", b.Blob, len(b.URL), b.MediaType)
	}
}
