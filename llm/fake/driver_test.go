package fake

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/llmtest"
	"github.com/strandline-dev/strandline/llm/openai"
	"github.com/strandline-dev/strandline/message"
)

// dial returns the real driver for a service.
func dial(t *testing.T, s *service) *openai.Provider {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	p, err := openai.New(openai.Options{Name: "fake", BaseURL: s.url, Key: "sk-very-secret", Dialect: openai.Generic,
		Client: &http.Client{Transport: tr}, Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ask(ctx context.Context, p llm.Provider) (llm.Reply, error) {
	var a llm.Assembler
	for c, err := range p.Stream(ctx, llm.Request{Model: "m", Messages: []message.Message{message.User("1", "hello")}}) {
		if err != nil {
			return a.Partial(), err
		}
		if err := a.Add(c); err != nil {
			return a.Partial(), err
		}
	}
	return a.Message()
}

// TestDriver: each fault as the real driver understands it.
func TestDriver(t *testing.T) {
	for _, c := range []struct {
		line   string
		want   llm.Code
		status int
		after  time.Duration
		text   string // part of the message
	}{
		{line: `{"text":"so far","fault":"reset"}`, want: llm.CodeTransport},
		{line: `{"fault":"reset"}`, want: llm.CodeTransport},
		{line: `{"text":"so far","fault":"half-event"}`, want: llm.CodeStreamClosed},
		{line: `{"text":"so far","fault":"cut"}`, want: llm.CodeStreamClosed},
		{line: `{"text":"so far","fault":"malformed"}`, want: llm.CodeMalformedResponse},
		{line: `{"text":"so far","fault":"no-end"}`, want: llm.CodeStreamClosed},
		{line: `{"toolCalls":[{"name":"bash"}],"fault":"no-end"}`, want: llm.CodeStreamClosed},
		{line: `{"fault":"no-end"}`, want: llm.CodeStreamClosed},
		{line: `{"fault":"wrong-type"}`, want: llm.CodeMalformedResponse, status: 200, text: "web page"},
		{line: `{"error":{"code":"RATE_LIMIT"}}`, want: llm.CodeRateLimit, status: 429, text: "Rate limit reached"},
		{line: `{"error":{"code":"RATE_LIMIT","retryAfterMs":1500}}`, want: llm.CodeRateLimit, status: 429, after: 1500 * time.Millisecond},
		{line: `{"error":{"code":"RATE_LIMIT","retryAfterMs":30000}}`, want: llm.CodeRateLimit, status: 429, after: 30 * time.Second},
		{line: `{"error":{"code":"QUOTA"}}`, want: llm.CodeQuota, status: 429, text: "billing"},
		{line: `{"error":{"status":402}}`, want: llm.CodeQuota, status: 402},
		{line: `{"error":{"status":500}}`, want: llm.CodeServer, status: 500, text: "The server had an error"},
		{line: `{"error":{"status":502,"html":true}}`, want: llm.CodeServer, status: 502, text: "Bad Gateway"},
		{line: `{"error":{"status":429,"html":true,"retryAfterMs":2000}}`, want: llm.CodeRateLimit, status: 429, after: 2 * time.Second},
		{line: `{"error":{"code":"CONTEXT_WINDOW_EXCEEDED"}}`, want: llm.CodeContextWindow, status: 400, text: "maximum context length"},
		{line: `{"error":{"code":"AUTH"}}`, want: llm.CodeAuth, status: 401, text: "Incorrect API key provided: [redacted]."},
		{line: `{"error":{"code":"INVALID_REQUEST","message":"no such model"}}`, want: llm.CodeInvalidRequest, status: 400, text: "no such model"},
		{line: `{"text":"so far","error":{"message":"overloaded"}}`, want: llm.CodeServer, text: "overloaded"},
		{line: `{"error":{"code":"RATE_LIMIT","inStream":true}}`, want: llm.CodeRateLimit},
		{line: `{"error":{"code":"CONTEXT_WINDOW_EXCEEDED","inStream":true}}`, want: llm.CodeContextWindow},
		{line: `{}`, want: llm.CodeEmptyResponse},
		{line: `{"reasoning":"only thought"}`, want: llm.CodeEmptyResponse},
	} {
		t.Run(c.line, func(t *testing.T) {
			p := dial(t, serve(t, c.line, `{"text":"fine"}`))
			reply, err := ask(t.Context(), p)
			var e *llm.Error
			if !errors.As(err, &e) || e.Code != c.want || e.Status != c.status || e.RetryAfter != c.after || !strings.Contains(e.Message, c.text) {
				t.Errorf("%#v", err)
			}
			if e != nil && (strings.ContainsAny(e.Error(), "\n<") || strings.Contains(e.Error(), "secret")) {
				t.Errorf("not a line for people: %q", e.Error())
			}
			if len(reply.Content) > 1 {
				t.Errorf("%+v", reply)
			}
			if reply, err = ask(t.Context(), p); err != nil || len(reply.Content) != 1 || reply.Content[0].Text != "fine" {
				t.Errorf("the next request: %+v %v", reply, err)
			}
		})
	}
}

func TestDriverWholeReply(t *testing.T) {
	s := serve(t, `{"text":"one two three ü","reasoning":"let me think","chunkMs":1,"pingMs":1,"toolCalls":[{"name":"bash","id":"c1","arguments":{"command":"ls"}},{"name":"ls","id":"c2"}],`+
		`"usage":{"inputTokens":10,"cacheReadTokens":30,"outputTokens":5,"reasoningTokens":3}}`)
	r, err := ask(t.Context(), dial(t, s))
	if err != nil || r.Finish != llm.FinishToolCalls || len(r.Content) != 4 || r.Content[0].Text != "let me think" || r.Content[1].Text != "one two three ü" ||
		r.Content[2].Arguments != `{"command":"ls"}` || r.Content[3].ID != "c2" {
		t.Errorf("%+v %v", r, err)
	}
	if u := r.Usage; u == nil || u.InputTokens != 10 || *u.CacheReadTokens != 30 || u.OutputTokens != 5 || *u.ReasoningTokens != 3 {
		t.Errorf("usage %+v", r.Usage)
	}
}

// TestDriverWatched: a service that has gone silent, or sends nothing but comments, is given up, and it notices.
func TestDriverWatched(t *testing.T) {
	for _, line := range []string{`{"text":"so far","fault":"stall"}`, `{"text":"so far","fault":"stall","pingMs":1}`, `{"fault":"stall"}`, `{"text":"late","headersMs":3600000}`} {
		s := serve(t, line, `{"text":"fine"}`)
		p := llm.Watch(dial(t, s), 20*time.Millisecond, func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop })
		_, err := ask(t.Context(), p)
		var e *llm.Error
		if !errors.As(err, &e) || e.Code != llm.CodeTimeout || e.Message != "the model sent nothing for 20ms" {
			t.Errorf("%s: %v", line, err)
		}
		if v := <-s.served; !v.Left {
			t.Errorf("%s: %+v", line, v)
		}
	}
}

func TestDriverConforms(t *testing.T) {
	line := `{"text":"one two three four five six","chunkMs":1}`
	llmtest.Conform(t, dial(t, serve(t, line, line, line, line)), llm.Request{Model: "m", Messages: []message.Message{message.User("1", "hello")}})
}
