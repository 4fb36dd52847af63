package openai

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/llm"
)

const (
	maxErrorBody = 64 << 10 // bytes of a refusal that are read
	maxMessage   = 500      // bytes of it that are told
)

// limitErrors keeps the SDK from reading a refusal without end.
func limitErrors(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	res, err := next(req)
	if err == nil && res.StatusCode >= 400 {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxErrorBody), res.Body}
	}
	return res, err
}

// refusal is what a service says of an error, wherever it says it.
type refusal struct {
	text, code, kind string
	status           int // of a service behind the service; 0 when it is not told
}

// readRefusal reads the body of an error, or the error of an event. Services agree on little:
// {"error":{"message","type","code"}}, {"error":"text"}, {"message":..}, {"detail":..}, a list of one, text.
func readRefusal(body []byte) refusal {
	v := jsontext.Value(body)
	if !v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		text := string(body)
		if strings.HasPrefix(strings.TrimSpace(text), "<") {
			text = "" // a page of a proxy
		}
		return refusal{text: text}
	}
	return refusalOf(v, 0)
}

func refusalOf(v jsontext.Value, depth int) refusal {
	switch v.Kind() {
	case '"':
		s := text(v)
		if inner := jsontext.Value(s); depth < 3 && inner.IsValid() && inner.Kind() == '{' {
			return refusalOf(inner, depth+1)
		}
		return refusal{text: s}
	case '[':
		var list []jsontext.Value
		if json.Unmarshal(v, &list, lenient) == nil && len(list) > 0 && depth < 3 {
			return refusalOf(list[0], depth+1)
		}
	case '{':
		var o struct {
			Error   jsontext.Value `json:"error"`
			Message jsontext.Value `json:"message"`
			Detail  jsontext.Value `json:"detail"`
			Code    jsontext.Value `json:"code"`
			Type    jsontext.Value `json:"type"`
		}
		if json.Unmarshal(v, &o, lenient) != nil {
			return refusal{}
		}
		own := refusal{text: text(o.Message), code: text(o.Code), kind: text(o.Type), status: int(number(o.Code))}
		if own.text == "" {
			own.text = text(o.Detail)
		}
		if k := o.Error.Kind(); depth < 3 && (k == '{' || k == '"' || k == '[') {
			in := refusalOf(o.Error, depth+1)
			if in.code == "" {
				in.code, in.status = own.code, own.status
			}
			if in.text == "" {
				in.text = own.text
			}
			return in
		}
		return own
	}
	return refusal{}
}

// The words by which services say that a request is longer than the model can take: OpenAI, vLLM, llama.cpp,
// DeepSeek, Ollama, OpenRouter and the services behind it.
var overflowWords = []string{
	"context_length_exceeded", "context length", "context window", "context size", "exceed_context_size", "maximum model length",
	"max_model_len", "prompt is too long", "input is too long", "input length", "prompt length", "too many tokens",
	"token count exceeds", "reduce the length of", "context limit", "model_max_prompt_tokens_exceeded", "longer than the context",
}

var quotaWords = []string{
	"insufficient_quota", "insufficient quota", "exceeded your current quota", "insufficient balance", "insufficient_balance",
	"insufficient credits", "billing_hard_limit", "billing hard limit", "requires more credits", "payment required",
}

func says(s string, words []string) bool {
	s = strings.ToLower(s)
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// code decides by status and words.
func (r refusal) codeFor(status int) llm.Code {
	all := r.code + " " + r.kind + " " + r.text
	if status == 0 || status < 400 {
		status = r.status
	}
	switch {
	case status == http.StatusUnauthorized:
		return llm.CodeAuth
	case status == http.StatusPaymentRequired, says(all, quotaWords):
		return llm.CodeQuota
	case status == http.StatusTooManyRequests:
		return llm.CodeRateLimit
	case status != http.StatusForbidden && says(all, overflowWords):
		return llm.CodeContextWindow
	case status >= 400:
		return llm.CodeForStatus(status)
	}
	switch all = strings.ToLower(r.code + " " + r.kind); {
	case strings.Contains(all, "rate_limit"):
		return llm.CodeRateLimit
	case strings.Contains(all, "authentication"), strings.Contains(all, "invalid_api_key"), strings.Contains(all, "permission"):
		return llm.CodeAuth
	case strings.Contains(all, "invalid_request"), strings.Contains(all, "badrequest"), strings.Contains(all, "not_found"):
		return llm.CodeInvalidRequest
	case strings.Contains(all, "timeout"):
		return llm.CodeTimeout
	}
	return llm.CodeServer
}

// fail makes an error whose text holds no key and fits a line.
func (p *Provider) fail(code llm.Code, status int, msg string) *llm.Error {
	msg = strings.Join(strings.Fields(strings.ToValidUTF8(llm.Redact(msg, p.secret...), "\uFFFD")), " ")
	if len(msg) > maxMessage {
		msg = strings.ToValidUTF8(msg[:maxMessage], "") + " .."
	}
	return &llm.Error{Code: code, Status: status, Message: msg}
}

// refused makes the error of a response that is no answer.
func (p *Provider) refused(res *http.Response) *llm.Error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	_ = res.Body.Close()
	if res.StatusCode < 400 {
		return p.fail(llm.CodeInvalidRequest, res.StatusCode, "the service answers from another address: look at the base URL")
	}
	r := readRefusal(body)
	code := r.codeFor(res.StatusCode)
	if r.text == "" {
		r.text = http.StatusText(res.StatusCode)
		if res.StatusCode == http.StatusNotFound {
			r.text = "nothing is found at this address: look at the base URL and at the model's name"
		}
	}
	e := p.fail(code, res.StatusCode, r.text)
	e.RetryAfter = llm.ParseRetryAfter(res.Header.Get("Retry-After"), p.now())
	// Who sends this one as well rounds the other up.
	if ms, err := strconv.ParseFloat(strings.TrimSpace(res.Header.Get("Retry-After-Ms")), 64); err == nil && ms > 0 {
		e.RetryAfter = time.Duration(min(ms, 1e9) * float64(time.Millisecond))
	}
	return e
}

// lost makes the error of a connection: before the answer, or while it is read.
func (p *Provider) lost(ctx context.Context, err error, began bool) *llm.Error {
	if ctx.Err() != nil {
		return llm.AsError(ctx, err)
	}
	var timeout net.Error
	var own *llm.Error
	cause := err
	var u *url.Error
	if errors.As(err, &u) { // its text has the URL in it
		cause = u.Err
	}
	var e *llm.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		e = p.fail(llm.CodeTimeout, 0, "the service took too long: "+cause.Error())
	case errors.Is(err, bufio.ErrTooLong):
		e = p.fail(llm.CodeMalformedResponse, 0, "the service sent an event without an end")
	case began && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)):
		e = p.fail(llm.CodeStreamClosed, 0, "the connection was closed before the answer was complete")
	case began:
		e = p.fail(llm.CodeTransport, 0, "the connection broke: "+cause.Error())
	default:
		e = p.fail(llm.CodeTransport, 0, "the service cannot be reached: "+cause.Error())
	}
	e.Err = cause
	return e
}
