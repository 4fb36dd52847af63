package fake

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/script"
	"github.com/strandline-dev/strandline/message"
)

// chatWire is the wire of OpenAI's chat completions, as many services speak it.
type chatWire struct{}

// created is the time that replies tell: one that never changes.
const created = 1_700_000_000

type chatError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func errorBody(e chatError) []byte {
	b, _ := json.Marshal(map[string]chatError{"error": e}) // strings only, made valid by who made them
	return b
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (chatWire) refuse(r refusal) response {
	status := r.status
	if status == 0 {
		status = http.StatusBadRequest
	}
	return response{status: status, body: errorBody(chatError{
		Message: strings.ToValidUTF8(r.message, "\uFFFD"), Type: "invalid_request_error", Param: orNil(r.param), Code: orNil(r.code),
	})}
}

func (chatWire) fail(f script.Failure, key string) response {
	e := chatFailure(f)
	if f.Code == llm.CodeAuth && f.Message == "" {
		// There are services that repeat what they refuse.
		e.Message = "Incorrect API key provided: " + strings.ToValidUTF8(key, "\uFFFD") + "."
	}
	return response{status: failureStatus(f), header: retryAfter(f), body: errorBody(e)}
}

func (chatWire) event(f script.Failure) []byte {
	return fmt.Appendf(nil, "data: %s\n\ndata: [DONE]\n\n", errorBody(chatFailure(f)))
}

// chatFailure is the error object that OpenAI, or who speaks its wire, uses for a failure.
func chatFailure(f script.Failure) chatError {
	e := chatError{Message: "The server had an error while processing your request. Sorry about that!", Type: "server_error"}
	switch f.Code {
	case llm.CodeAuth, llm.CodeMissingCredential:
		e = chatError{Message: "Incorrect API key provided.", Type: "invalid_request_error", Code: orNil("invalid_api_key")}
	case llm.CodeQuota:
		e = chatError{Message: "You exceeded your current quota, please check your plan and billing details.",
			Type: "insufficient_quota", Code: orNil("insufficient_quota")}
	case llm.CodeRateLimit:
		e = chatError{Message: "Rate limit reached for requests.", Type: "requests", Code: orNil("rate_limit_exceeded")}
	case llm.CodeContextWindow:
		e = chatError{Message: "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. Please reduce the length of the messages.",
			Type: "invalid_request_error", Param: orNil("messages"), Code: orNil("context_length_exceeded")}
	case llm.CodeInvalidRequest:
		e = chatError{Message: "Invalid request.", Type: "invalid_request_error"}
	}
	if f.Message != "" {
		e.Message = f.Message
	}
	return e
}

func (chatWire) models(w http.ResponseWriter, _ *http.Request) {
	response{status: http.StatusOK, body: fmt.Appendf(nil,
		`{"object":"list","data":[{"id":"m","object":"model","created":%d,"owned_by":"script"}]}`, created)}.write(w)
}

type chatChunk struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage,omitzero"`
}

type chatChoice struct {
	Index   int       `json:"index"`
	Delta   *chatPart `json:"delta,omitzero"`
	Message *chatPart `json:"message,omitzero"`
	Finish  *string   `json:"finish_reason"`
}

type chatPart struct {
	Role      string     `json:"role,omitzero"`
	Content   *string    `json:"content,omitzero"`
	Reasoning string     `json:"reasoning_content,omitzero"`
	Calls     []chatCall `json:"tool_calls,omitzero"`
}

type chatCall struct {
	Index    *int         `json:"index,omitzero"`
	ID       string       `json:"id,omitzero"`
	Type     string       `json:"type,omitzero"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name,omitzero"`
	Arguments string `json:"arguments"`
}

type chatUsage struct {
	Prompt     int64              `json:"prompt_tokens"`
	Completion int64              `json:"completion_tokens"`
	Total      int64              `json:"total_tokens"`
	PromptOf   *promptDetails     `json:"prompt_tokens_details,omitzero"`
	OutputOf   *completionDetails `json:"completion_tokens_details,omitzero"`
}

type promptDetails struct {
	Cached     *int64 `json:"cached_tokens,omitzero"`
	CacheWrite *int64 `json:"cache_write_tokens,omitzero"` // as OpenRouter tells it
}

type completionDetails struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

// chatUsageOf tells usage as the wire does: the prompt's total, and what of it came from a cache.
func chatUsageOf(u *message.Usage) *chatUsage {
	if u == nil {
		return nil
	}
	out := &chatUsage{Prompt: u.InputTokens, Completion: u.OutputTokens}
	if u.CacheReadTokens != nil || u.CacheWriteTokens != nil {
		out.PromptOf = &promptDetails{u.CacheReadTokens, u.CacheWriteTokens}
		for _, n := range []*int64{u.CacheReadTokens, u.CacheWriteTokens} {
			if n != nil {
				out.Prompt += *n
			}
		}
	}
	if u.ReasoningTokens != nil {
		out.OutputOf = &completionDetails{*u.ReasoningTokens}
	}
	out.Total = out.Prompt + out.Completion
	return out
}

func finishWord(f llm.FinishReason) *string {
	s := strings.ReplaceAll(string(f), "-", "_")
	return &s
}

func (chatWire) head(n int, req request, object string) chatChunk {
	return chatChunk{ID: fmt.Sprintf("chatcmpl-%d", n), Object: object, Created: created, Model: req.Model, Choices: []chatChoice{}}
}

func (c chatWire) frames(n int, req request, r script.Reply) (content, end [][]byte) {
	frame := func(change func(*chatChunk)) []byte {
		k := c.head(n, req, "chat.completion.chunk")
		change(&k)
		b, _ := json.Marshal(k, jsontext.AllowInvalidUTF8(true)) // a script's text is valid
		return fmt.Appendf(nil, "data: %s\n\n", b)
	}
	delta := func(d chatPart) {
		content = append(content, frame(func(k *chatChunk) { k.Choices = append(k.Choices, chatChoice{Delta: &d}) }))
	}
	words := r.ChunkMs > 0
	empty := ""
	delta(chatPart{Role: "assistant", Content: &empty})
	for _, s := range pieces(r.Reasoning, words) {
		delta(chatPart{Reasoning: s})
	}
	for _, s := range pieces(r.Text, words) {
		delta(chatPart{Content: &s})
	}
	for i, call := range r.Calls {
		delta(chatPart{Calls: []chatCall{{Index: &i, ID: call.ID, Type: "function", Function: chatFunction{Name: call.Name}}}})
		for _, s := range pieces(call.Arguments, words) {
			delta(chatPart{Calls: []chatCall{{Index: &i, Function: chatFunction{Arguments: s}}}})
		}
	}
	end = append(end, frame(func(k *chatChunk) {
		k.Choices = append(k.Choices, chatChoice{Delta: &chatPart{}, Finish: finishWord(r.Finish)})
	}))
	if u := chatUsageOf(r.Usage); u != nil && req.usage {
		end = append(end, frame(func(k *chatChunk) { k.Usage = u }))
	}
	return content, append(end, []byte("data: [DONE]\n\n"))
}

func (c chatWire) whole(n int, req request, r script.Reply) []byte {
	k := c.head(n, req, "chat.completion")
	m := chatPart{Role: "assistant", Content: &r.Text, Reasoning: r.Reasoning}
	for _, call := range r.Calls {
		m.Calls = append(m.Calls, chatCall{ID: call.ID, Type: "function", Function: chatFunction{call.Name, call.Arguments}})
	}
	k.Choices = append(k.Choices, chatChoice{Message: &m, Finish: finishWord(r.Finish)})
	k.Usage = chatUsageOf(r.Usage)
	b, _ := json.Marshal(k, jsontext.AllowInvalidUTF8(true))
	return b
}
