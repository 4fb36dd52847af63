package fake

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
)

// The request, as far as it is looked at. What a service may know beside that is let through: they differ.
type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []chatMessage `json:"messages"`
	Stream        bool          `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools               []chatTool `json:"tools"`
	Temperature         *float64   `json:"temperature"`
	MaxTokens           *int64     `json:"max_tokens"`
	MaxCompletionTokens *int64     `json:"max_completion_tokens"`
	N                   *int       `json:"n"`
}

type chatMessage struct {
	Role      string         `json:"role"`
	Content   jsontext.Value `json:"content"`
	Reasoning *string        `json:"reasoning_content"`
	Calls     *[]struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string  `json:"name"`
			Arguments *string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	CallID string `json:"tool_call_id"`
}

type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name       string         `json:"name"`
		Parameters jsontext.Value `json:"parameters"`
	} `json:"function"`
}

var functionName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// parse is as strict as the strictest of the services that speak this wire, in what they do not let pass.
func (chatWire) parse(body []byte) (request, *refusal) {
	var in chatRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, &refusal{message: "We could not parse the JSON body of your request: " + err.Error()}
	}
	c := chatCheck{in: in, seen: map[string]bool{}}
	c.options()
	for i, m := range in.Messages {
		c.at = fmt.Sprintf("messages.[%d]", i)
		c.message(i, m)
	}
	c.answered()
	if c.bad != nil {
		return request{}, c.bad
	}
	return request{
		Request: llm.Request{Model: in.Model, Messages: c.out},
		stream:  in.Stream,
		usage:   in.StreamOptions != nil && in.StreamOptions.IncludeUsage,
	}, nil
}

type chatCheck struct {
	in   chatRequest
	at   string            // the message that is looked at
	seen map[string]bool   // ids of calls
	owed []string          // ids of calls that the next messages must answer
	last string            // role of the message before
	out  []message.Message // what was read
	bad  *refusal          // the first fault
}

func (c *chatCheck) fault(param, format string, args ...any) {
	if c.bad == nil {
		c.bad = &refusal{message: fmt.Sprintf(format, args...), param: param, code: "invalid_value"}
	}
}

func (c *chatCheck) options() {
	in := c.in
	if in.Model == "" {
		c.fault("model", "you must provide a model parameter")
	}
	if len(in.Messages) == 0 {
		c.fault("messages", "[] is too short - 'messages'")
	}
	if in.StreamOptions != nil && !in.Stream {
		c.fault("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
	if t := in.Temperature; t != nil && (*t < 0 || *t > 2) {
		c.fault("temperature", "%v is not in the range 0 to 2 - 'temperature'", *t)
	}
	for name, n := range map[string]*int64{"max_tokens": in.MaxTokens, "max_completion_tokens": in.MaxCompletionTokens} {
		if n != nil && *n < 1 {
			c.fault(name, "%d is less than the minimum of 1 - '%s'", *n, name)
		}
	}
	if in.N != nil && *in.N != 1 {
		c.fault("n", "this service gives one choice")
	}
	if in.Tools != nil && len(in.Tools) == 0 {
		c.fault("tools", "[] is too short - 'tools'")
	}
	names := map[string]bool{}
	for i, t := range in.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		name := t.Function.Name
		var schema struct {
			Type string `json:"type"`
		}
		switch p := t.Function.Parameters; {
		case t.Type != "function":
			c.fault(at+".type", "Invalid value: %q. Supported values are: 'function'.", t.Type)
		case !functionName.MatchString(name):
			c.fault(at+".function.name", "Invalid '%s.function.name': %q does not match '%s'.", at, name, functionName)
		case names[name]:
			c.fault(at+".function.name", "Tool names must be unique: %q.", name)
		case p == nil:
		case json.Unmarshal(p, &schema) != nil || schema.Type != "object":
			c.fault(at+".function.parameters", "Invalid schema for function '%s': schema must be a JSON Schema of 'type: \"object\"'.", name)
		}
		names[name] = true
	}
}

// answered refuses calls without results where something else follows, or nothing.
func (c *chatCheck) answered() {
	if len(c.owed) > 0 {
		c.fault(c.at+".role", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s",
			strings.Join(c.owed, ", "))
		c.owed = nil
	}
	if c.last == "assistant" {
		c.fault("messages", "Expected last role User or Tool for serving but got assistant")
	}
}

func (c *chatCheck) message(i int, m chatMessage) {
	if m.Role != "tool" && len(c.owed) > 0 {
		c.last = ""
		c.answered()
	}
	before := c.last
	c.last = m.Role
	if m.Role != "assistant" && m.Calls != nil {
		c.fault(c.at+".tool_calls", "'tool_calls' is not allowed in a message with role '%s'", m.Role)
	}
	if m.Role != "tool" && m.CallID != "" {
		c.fault(c.at+".tool_call_id", "'tool_call_id' is not allowed in a message with role '%s'", m.Role)
	}
	if m.Role != "assistant" && m.Reasoning != nil {
		c.fault(c.at+".reasoning_content", "'reasoning_content' is not allowed in a message with role '%s'", m.Role)
	}
	out := message.Message{ID: fmt.Sprint(i), Role: message.RoleUser}
	switch m.Role {
	case "system", "developer":
		if i > 0 && before != "system" && before != "developer" {
			c.fault(c.at, "System message must be at the beginning.")
		}
		c.content(m, "text")
		return
	case "user":
		out.Content = c.content(m, "text", "image_url", "input_audio", "file")
	case "assistant":
		out.Role = message.RoleAssistant
		out.Content = c.assistant(m)
	case "tool":
		if at := slices.Index(c.owed, m.CallID); at >= 0 {
			c.owed = slices.Delete(slices.Clone(c.owed), at, at+1)
		} else {
			c.fault(c.at+".role", "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls' (tool_call_id %q).", m.CallID)
		}
		out.Content = []message.Block{message.ResultBlock(m.CallID, false, c.content(m, "text", "image_url")...)}
	default:
		c.fault(c.at+".role", "Invalid value: %q. Supported values are: 'system', 'assistant', 'user', 'tool', and 'developer'.", m.Role)
	}
	c.out = append(c.out, out)
}

func (c *chatCheck) assistant(m chatMessage) []message.Block {
	var out []message.Block
	if m.Reasoning != nil {
		out = append(out, message.Block{Type: message.Reasoning, Text: *m.Reasoning})
	}
	if null := m.Content == nil || m.Content.Kind() == 'n'; !null {
		out = append(out, c.content(m, "text", "refusal")...)
	} else if m.Calls == nil {
		c.fault(c.at+".content", "Invalid value for 'content': expected a string, got null.")
	}
	if m.Calls == nil {
		return out
	}
	if len(*m.Calls) == 0 {
		c.fault(c.at+".tool_calls", "[] is too short - '%s.tool_calls'", c.at)
	}
	for i, k := range *m.Calls {
		at := fmt.Sprintf("%s.tool_calls[%d]", c.at, i)
		switch {
		case k.ID == "":
			c.fault(at+".id", "Missing required parameter: '%s.id'.", at)
		case c.seen[k.ID]:
			c.fault(at+".id", "Duplicate value for 'tool_call_id' of %q", k.ID)
		case k.Type != "function":
			c.fault(at+".type", "Invalid value: %q. Supported values are: 'function'.", k.Type)
		case !functionName.MatchString(k.Function.Name):
			c.fault(at+".function.name", "Invalid '%s.function.name': %q does not match '%s'.", at, k.Function.Name, functionName)
		case k.Function.Arguments == nil:
			c.fault(at+".function.arguments", "Missing required parameter: '%s.function.arguments'.", at)
		default:
			c.text(at+".function.arguments", *k.Function.Arguments)
			out = append(out, message.CallBlock(k.ID, k.Function.Name, *k.Function.Arguments))
		}
		c.seen[k.ID] = true
		c.owed = append(c.owed, k.ID)
	}
	return out
}

// content reads a string or a list of parts of the kinds that are allowed.
func (c *chatCheck) content(m chatMessage, kinds ...string) []message.Block {
	at := c.at + ".content"
	switch m.Content.Kind() {
	case '"':
		var s string
		_ = json.Unmarshal(m.Content, &s) // it was parsed with the body
		c.text(at, s)
		if s == "" {
			return nil
		}
		return []message.Block{message.TextBlock(s)}
	case '[':
		var parts []struct {
			Type     string  `json:"type"`
			Text     *string `json:"text"`
			Refusal  *string `json:"refusal"`
			ImageURL *struct {
				URL string `json:"url"`
			} `json:"image_url"`
		}
		if err := json.Unmarshal(m.Content, &parts); err != nil || len(parts) == 0 {
			c.fault(at, "Invalid value for 'content': expected a list of parts that is not empty.")
		}
		var out []message.Block
		for i, p := range parts {
			at := fmt.Sprintf("%s[%d]", at, i)
			switch {
			case !slices.Contains(kinds, p.Type):
				c.fault(at+".type", "Invalid value: %q. Supported values are: %s.", p.Type, strings.Join(kinds, ", "))
			case p.Type == "text" && p.Text == nil, p.Type == "refusal" && p.Refusal == nil:
				c.fault(at, "Missing required parameter: '%s.%s'.", at, p.Type)
			case p.Type == "text":
				c.text(at, *p.Text)
				out = append(out, message.TextBlock(*p.Text))
			case p.Type == "image_url":
				if p.ImageURL == nil || !strings.HasPrefix(p.ImageURL.URL, "data:image/") && !strings.HasPrefix(p.ImageURL.URL, "http") {
					c.fault(at+".image_url", "Invalid '%s.image_url': expected a URL or a data URL of an image.", at)
					continue
				}
				out = append(out, message.Block{Type: message.Image, URL: p.ImageURL.URL})
			}
		}
		return out
	}
	c.fault(at, "Invalid value for 'content': expected a string or a list of parts.")
	return nil
}

// text refuses what many services cannot store or tokenize.
func (c *chatCheck) text(at, s string) {
	if strings.ContainsRune(s, 0) {
		c.fault(at, "Invalid '%s': the text holds a NUL.", at)
	}
}
