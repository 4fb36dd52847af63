package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/llmtest"
	"github.com/strandline-dev/strandline/llm/openai"
	"github.com/strandline-dev/strandline/message"
)

const key = "sk-a-key-that-nobody-may-see"

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func dial(t *testing.T, url string, client *http.Client) *openai.Provider {
	t.Helper()
	p, err := openai.New(openai.Options{Name: "p", BaseURL: url, Key: key, Client: client, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serve answers each request with f.
func serve(t *testing.T, f http.HandlerFunc) *openai.Provider {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return dial(t, s.URL+"/v1", s.Client())
}

func request() llm.Request {
	return llm.Request{Model: "m", Messages: []message.Message{message.User("u", "hi")}}
}

// ask returns the answer and the error of a request.
func ask(t *testing.T, p llm.Provider) (llm.Reply, error) {
	t.Helper()
	var a llm.Assembler
	for c, err := range p.Stream(t.Context(), request()) {
		if err != nil {
			var e *llm.Error
			if !errors.As(err, &e) {
				t.Fatalf("%v (%T) is no *llm.Error", err, err)
			}
			if strings.Contains(fmt.Sprintf("%v %+v %#v %+v", err, err, err, e.Err), key) {
				t.Errorf("the error holds the key: %v", err)
			}
			return a.Partial(), e
		}
		if err := a.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	r, err := a.Message()
	return r, err
}

func code(err error) llm.Code {
	var e *llm.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// sse is a body of one event per line.
func sse(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		if !strings.HasPrefix(l, ":") && !strings.HasPrefix(l, "event:") {
			l = "data: " + l + "\n"
		}
		b.WriteString(l + "\n")
	}
	return b.String()
}

func delta(d string) string { return `{"id":"r1","choices":[{"index":0,"delta":` + d + `}]}` }

func finish(reason string) string {
	return `{"id":"r1","choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

const (
	done  = "[DONE]"
	stop  = "stop"
	calls = "tool_calls"
)

func n(i int64) *int64 { return &i }

func TestAnswers(t *testing.T) {
	think := func(s string) message.Block { return message.Block{Type: message.Reasoning, Text: s} }
	text := message.TextBlock
	call := message.CallBlock
	for _, c := range []struct {
		name   string
		body   string
		want   []message.Block
		finish llm.FinishReason
		usage  *message.Usage
		replay string
	}{
		{"as documented", sse(`{"id":"r1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`, delta(`{"content":"let "}`), delta(`{"content":"us"}`), finish(stop),
			`{"id":"r1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":3}}}`, done),
			[]message.Block{text("let us")}, llm.FinishStop, &message.Usage{InputTokens: 2, CacheReadTokens: n(8), OutputTokens: 4, ReasoningTokens: n(3)}, ""},
		{"DeepSeek: reasoning_content, cache hit and miss", sse(delta(`{"role":"assistant","content":null,"reasoning_content":"h"}`), delta(`{"content":null,"reasoning_content":"m"}`), delta(`{"content":"a","reasoning_content":null}`),
			`{"id":"r1","choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_cache_hit_tokens":7,"prompt_cache_miss_tokens":3}}`, done),
			[]message.Block{think("hm"), text("a")}, llm.FinishStop, &message.Usage{InputTokens: 3, CacheReadTokens: n(7), OutputTokens: 4}, ""},
		{"OpenRouter: comments, reasoning twice, details, cache write", sse(": OPENROUTER PROCESSING", ": OPENROUTER PROCESSING", delta(`{"content":"","reasoning":"h","reasoning_content":"h","reasoning_details":[{"type":"reasoning.text","text":"h","index":0,"format":"f"}]}`),
			delta(`{"reasoning":"m","reasoning_details":[{"type":"reasoning.text","text":"m","index":0,"signature":null}]}`), delta(`{"reasoning_details":[{"type":"reasoning.text","signature":"sig","index":0},{"type":"reasoning.encrypted","data":"x","index":1}]}`), delta(`{"content":"a"}`), finish(stop),
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4,"cost":0.1,"prompt_tokens_details":{"cached_tokens":3,"cache_write_tokens":5}}}`, done),
			[]message.Block{think("hm"), text("a")}, llm.FinishStop, &message.Usage{InputTokens: 2, CacheReadTokens: n(3), CacheWriteTokens: n(5), OutputTokens: 4},
			`{"reasoning_details":[{"format":"f","index":0,"signature":"sig","text":"hm","type":"reasoning.text"},{"data":"x","index":1,"type":"reasoning.encrypted"}]}`},
		{"reasoning between texts", sse(delta(`{"reasoning":"1"}`), delta(`{"content":"2"}`), delta(`{"reasoning":"3"}`), delta(`{"content":"4"}`), finish(stop), done),
			[]message.Block{think("1"), text("2"), think("3"), text("4")}, llm.FinishStop, nil, ""},
		{"parallel calls, interleaved", sse(delta(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"read","arguments":""}}]}`), delta(`{"tool_calls":[{"index":1,"id":"b","function":{"name":"ls","arguments":"{"}}]}`),
			delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"p\""}},{"index":1,"function":{"arguments":"}"}}]}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`), finish(calls), done),
			[]message.Block{call("a", "read", `{"p":1}`), call("b", "ls", `{}`)}, llm.FinishToolCalls, nil, ""},
		{"Ollama: whole calls without an index, finish stop", sse(delta(`{"content":"","tool_calls":[{"id":"a","function":{"name":"read","arguments":"{}"}},{"id":"b","function":{"name":"ls","arguments":"{}"}}]}`), finish(stop), done),
			[]message.Block{call("a", "read", `{}`), call("b", "ls", `{}`)}, llm.FinishToolCalls, nil, ""},
		{"every call under index 0", sse(delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}`), delta(`{"tool_calls":[{"index":0,"id":"b","function":{"name":"ls","arguments":"{}"}}]}`), finish(calls), done),
			[]message.Block{call("a", "read", `{}`), call("b", "ls", `{}`)}, llm.FinishToolCalls, nil, ""},
		{"id and name in every delta", sse(delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{"}}]}`), delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"}"}}]}`), finish(calls), done),
			[]message.Block{call("a", "read", `{}`)}, llm.FinishToolCalls, nil, ""},
		{"id in every delta, no index", sse(delta(`{"tool_calls":[{"id":"a","function":{"name":"read","arguments":"{"}}]}`), delta(`{"tool_calls":[{"id":"a","function":{"arguments":"}"}}]}`), delta(`{"tool_calls":[{"function":{"arguments":" "}}]}`), finish(calls), done),
			[]message.Block{call("a", "read", `{} `)}, llm.FinishToolCalls, nil, ""},
		{"no ids: left to the loop", sse(delta(`{"tool_calls":[{"id":null,"function":{"name":"read","arguments":"{}"}},{"function":{"name":"read","arguments":"{}"}}]}`), finish(calls), done),
			[]message.Block{call("", "read", `{}`), call("", "read", `{}`)}, llm.FinishToolCalls, nil, ""},
		{"name and id late, arguments an object or null", sse(delta(`{"tool_calls":[{"index":0,"function":{"arguments":null}}]}`), delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":{"p":1}}}]}`), finish(calls), done),
			[]message.Block{call("a", "read", `{"p":1}`)}, llm.FinishToolCalls, nil, ""},
		{"text, then a call", sse(delta(`{"content":"see"}`), delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}`), finish(calls), done),
			[]message.Block{text("see"), call("a", "read", `{}`)}, llm.FinishToolCalls, nil, ""},
		{"[DONE] missing", sse(delta(`{"content":"a"}`), finish(stop)), []message.Block{text("a")}, llm.FinishStop, nil, ""},
		{"finish reason missing", sse(delta(`{"content":"a"}`), done), []message.Block{text("a")}, llm.FinishStop, nil, ""},
		{"no space behind the colon, CRLF, empty data, ids, retry", "retry: 100\r\nid: 7\r\nevent: message\r\ndata:" + delta(`{"content":"a"}`) + "\r\n\r\ndata:\r\n\r\ndata:" + finish(stop) + "\r\n\r\n",
			[]message.Block{text("a")}, llm.FinishStop, nil, ""},
		{"an event over several lines, a byte order mark", "\ufeffdata: {\"choices\":[{\"delta\":\ndata: {\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n", []message.Block{text("a")}, llm.FinishStop, nil, ""},
		{"usage in every event, the last one counts; fractions", sse(`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`, `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5.0,"completion_tokens":"2","prompt_tokens_details":null}}`, done),
			[]message.Block{text("a")}, llm.FinishStop, &message.Usage{InputTokens: 5, OutputTokens: 2}, ""},
		{"usage that cannot be: more cached than sent", sse(delta(`{"content":"a"}`), `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":9}}}`),
			[]message.Block{text("a")}, llm.FinishStop, &message.Usage{CacheReadTokens: n(5), OutputTokens: 2}, ""},
		{"usage null", sse(`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"usage":null,"error":null}`, done), []message.Block{text("a")}, llm.FinishStop, nil, ""},
		{"cut at a length", sse(delta(`{"content":"a"}`), finish("length"), done), []message.Block{text("a")}, llm.FinishLength, nil, ""},
		{"filtered", sse(delta(`{"content":"a"}`), finish("content_filter"), done), []message.Block{text("a")}, llm.FinishContentFilter, nil, ""},
		{"another reason", sse(delta(`{"content":"a"}`), finish("whim"), done), []message.Block{text("a")}, llm.FinishOther, nil, ""},
		{"a refusal is an answer", sse(delta(`{"content":null,"refusal":"no"}`), finish(stop), done), []message.Block{text("no")}, llm.FinishStop, nil, ""},
		{"content in parts", sse(delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}]}`), finish(stop), done), []message.Block{think("hm"), text("a")}, llm.FinishStop, nil, ""},
		{"another choice is none of ours", sse(delta(`{"content":"a"}`), `{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"length"}]}`, finish(stop), done), []message.Block{text("a")}, llm.FinishStop, nil, ""},
		{"twice the same name, a broken sign", sse(`{"id":"x","id":"r1","choices":[{"delta":{"content":"a`+"\xff"+`\ud83d"},"finish_reason":"stop"}]}`, done), []message.Block{text("a\uFFFD\uFFFD")}, llm.FinishStop, nil, ""},
		{"not streamed", `{"id":"r1","choices":[{"index":0,"message":{"role":"assistant","content":"a","tool_calls":[{"id":"c","type":"function","function":{"name":"ls","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`,
			[]message.Block{text("a"), call("c", "ls", "{}")}, llm.FinishToolCalls, &message.Usage{InputTokens: 5, OutputTokens: 2}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, c.body)
			})
			got, err := ask(t, p)
			if err != nil {
				t.Fatal(err)
			}
			want := llm.Reply{Content: c.want, Finish: c.finish, Usage: c.usage, ReplayState: []byte(c.replay)}
			if strings.Contains(c.body, `"r1"`) {
				want.ResponseID = "r1"
			}
			if c.replay == "" {
				want.ReplayState = nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// What a service can answer with instead, and what becomes of it.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header string
		body   string
		want   llm.Code
		text   string
		after  time.Duration
	}{
		{"OpenAI, key", 401, "", `{"error":{"message":"Incorrect API key provided: ` + key + `.","type":"invalid_request_error","code":"invalid_api_key"}}`, llm.CodeAuth, "Incorrect API key provided: [redacted].", 0},
		{"forbidden", 403, "", `{"error":{"message":"Country, region, or territory not supported","code":"unsupported_country_region_territory"}}`, llm.CodeAuth, "Country", 0},
		{"DeepSeek, no money", 402, "", `{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}`, llm.CodeQuota, "Insufficient Balance", 0},
		{"OpenAI, no money", 429, "3", `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, llm.CodeQuota, "quota", 3 * time.Second},
		{"too fast", 429, "2.5", `{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}`, llm.CodeRateLimit, "Rate limit", 2500 * time.Millisecond},
		{"too fast, until a date", 429, "Fri, 02 Jan 2026 03:04:15 GMT", `slow down`, llm.CodeRateLimit, "slow down", 10 * time.Second},
		{"too much a minute, in words of length", 429, "", `{"error":{"message":"Request too large for m on tokens per min: reduce the length of it"}}`, llm.CodeRateLimit, "Request too large", 0},
		{"OpenAI, too long", 400, "", `{"error":{"message":"This model's maximum context length is 128000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, llm.CodeContextWindow, "maximum context", 0},
		{"vLLM, too long", 400, "", `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens","type":"BadRequestError","param":null,"code":400}`, llm.CodeContextWindow, "4096", 0},
		{"vLLM, too long, other words", 400, "", `{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096.","type":"BadRequestError","code":400}}`, llm.CodeContextWindow, "4096", 0},
		{"llama.cpp, too long", 400, "", `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}`, llm.CodeContextWindow, "context size", 0},
		{"llama.cpp, too long, older", 500, "", `{"error":{"code":500,"message":"the request exceeds the available context size","type":"server_error"}}`, llm.CodeContextWindow, "context size", 0},
		{"DeepSeek, too long", 400, "", `{"error":{"message":"This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (70000 in the messages, 0 in the completion). Please reduce the length of the messages or completion.","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`, llm.CodeContextWindow, "65536", 0},
		{"OpenRouter, Anthropic's words", 400, "", `{"error":{"message":"{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 210000 tokens > 200000 maximum\"}}","code":400}}`, llm.CodeContextWindow, "prompt is too long: 210000", 0},
		{"the body too large", 413, "", ``, llm.CodeContextWindow, "Request Entity Too Large", 0},
		{"wrong request", 400, "", `{"error":{"message":"Unknown parameter","type":"invalid_request_error"}}`, llm.CodeInvalidRequest, "Unknown parameter", 0},
		{"no such model", 404, "", `{"error":{"message":"model 'x' not found","type":"not_found_error"}}`, llm.CodeInvalidRequest, "model 'x' not found", 0},
		{"no such place", 404, "", `<html>404</html>`, llm.CodeInvalidRequest, "look at the base URL", 0},
		{"FastAPI", 422, "", `{"detail":"Field required"}`, llm.CodeInvalidRequest, "Field required", 0},
		{"an error that is text", 400, "", `{"error":"model is required"}`, llm.CodeInvalidRequest, "model is required", 0},
		{"Gemini's list", 400, "", `[{"error":{"code":400,"message":"bad thing","status":"INVALID_ARGUMENT"}}]`, llm.CodeInvalidRequest, "bad thing", 0},
		{"broken inside", 500, "", `{"error":{"message":"oops","type":"server_error"}}`, llm.CodeServer, "oops", 0},
		{"busy", 503, "7", "busy\n now " + key, llm.CodeServer, "busy now [redacted]", 7 * time.Second},
		{"overloaded, a page", 529, "", `<!DOCTYPE html><p>x`, llm.CodeServer, "", 0},
		{"slow", 408, "", ``, llm.CodeTimeout, "Request Timeout", 0},
		{"moved", 301, "", ``, llm.CodeInvalidRequest, "base URL", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				if c.status == 301 {
					w.Header().Set("Location", "http://"+r.Host+"/elsewhere")
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			_, err := ask(t, p)
			var e *llm.Error
			if !errors.As(err, &e) || e.Code != c.want || !strings.Contains(e.Message, c.text) || e.Status != c.status || e.RetryAfter != c.after {
				t.Errorf("%+v; want %s, %q, %v", err, c.want, c.text, c.after)
			}
			if e != nil && strings.ContainsAny(e.Message, "\n<") {
				t.Errorf("not a line for people: %q", e.Message)
			}
		})
	}
}

// What breaks in the middle of an answer.
func TestBrokenAnswers(t *testing.T) {
	begin := sse(delta(`{"content":"so far"}`))
	for _, c := range []struct {
		name, body string
		want       llm.Code
	}{
		{"no terminator", begin, llm.CodeStreamClosed},
		{"half an event", begin + `data: {"choices":[{"del`, llm.CodeStreamClosed},
		{"not JSON", begin + sse(`{"choices":[{]`), llm.CodeMalformedResponse},
		{"JSON of another form", begin + sse(`{"choices":"no"}`), llm.CodeMalformedResponse},
		{"an error in the stream", begin + sse(`{"error":{"message":"upstream","code":502}}`), llm.CodeServer},
		{"an error in the stream, 429", begin + sse(`{"id":"x","error":{"message":"slow","code":429},"choices":[{"delta":{},"finish_reason":"error"}]}`), llm.CodeRateLimit},
		{"an error in the stream, by name", begin + sse(`{"error":{"message":"slow","type":"rate_limit_error"}}`), llm.CodeRateLimit},
		{"an error in the stream, too long", begin + sse(`{"error":{"message":"the request exceeds the available context size"}}`), llm.CodeContextWindow},
		{"an error that is text", begin + sse(`{"error":"boom"}`), llm.CodeServer},
		{"an error event", begin + "event: error\ndata: {\"message\":\"boom\",\"type\":\"server_error\"}\n\n", llm.CodeServer},
		{"finish reason error", begin + sse(finish("error")), llm.CodeServer},
		{"DeepSeek out of resources", begin + sse(finish("insufficient_system_resource")), llm.CodeServer},
		{"nothing", "", llm.CodeStreamClosed},
		{"only [DONE]", sse(done), llm.CodeEmptyResponse},
		{"only a role", sse(delta(`{"role":"assistant","content":""}`), finish(stop), done), llm.CodeEmptyResponse},
		{"a web page", "<!DOCTYPE html><html>", llm.CodeMalformedResponse},
		{"JSON that is no answer", `{"status":"ok"}`, llm.CodeMalformedResponse},
		{"an error with status 200", `{"error":{"message":"no","type":"invalid_request_error"}}`, llm.CodeInvalidRequest},
		{"an event without an end", "data: " + strings.Repeat("x", 33<<20), llm.CodeMalformedResponse},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, c.body) })
			_, err := ask(t, p)
			if code(err) != c.want {
				t.Errorf("%v; want %s", err, c.want)
			}
		})
	}
}

// hijack takes the connection of a request.
// hijack takes the connection of a request that was read to its end: what is unread at a close makes it a reset.
func hijack(t *testing.T, w http.ResponseWriter, r *http.Request) net.Conn {
	t.Helper()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Error(err)
	}
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return nil
	}
	return conn
}

func TestConnections(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	reset := func(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0); conn.Close() }

	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn := hijack(t, w, r)
		io.WriteString(conn, head+chunk(sse(delta(`{"content":"a"}`)))+"40\r\ndata: {")
		conn.Close()
	})
	if _, err := ask(t, p); code(err) != llm.CodeStreamClosed {
		t.Errorf("closed inside a chunk: %v", err)
	}
	p = serve(t, func(w http.ResponseWriter, r *http.Request) { reset(hijack(t, w, r)) })
	if _, err := ask(t, p); code(err) != llm.CodeTransport {
		t.Errorf("reset: %v", err)
	}
	seen := make(chan struct{})
	p = serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn := hijack(t, w, r)
		io.WriteString(conn, head+chunk(sse(delta(`{"content":"a"}`))))
		<-seen
		reset(conn)
	})
	var got error
	for c, err := range p.Stream(t.Context(), request()) {
		if c.Type == llm.ChunkTextDelta {
			close(seen)
		}
		got = err
	}
	if code(got) != llm.CodeTransport {
		t.Errorf("reset in the middle: %v", got)
	}
	finished := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn := hijack(t, w, r)
		io.WriteString(conn, head+chunk(sse(delta(`{"content":"a"}`), finish(stop))))
		conn.Close() // without the last chunk
	})
	if r, err := ask(t, finished); err != nil || r.Finish != llm.FinishStop {
		t.Errorf("broken behind the finish: %v", err)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	nobody := dial(t, "http://"+addr, http.DefaultClient)
	if _, err := ask(t, nobody); code(err) != llm.CodeTransport || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody listens: %v", err)
	}
}

// A deadline is TIMEOUT, a silent service is ended by the watchdog, and the service sees the request end.
func TestTimes(t *testing.T) {
	gone := make(chan struct{}, 2)
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, sse(delta(`{"content":"a"}`)))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	ctx, cancel := context.WithDeadlineCause(t.Context(), time.Now().Add(50*time.Millisecond), nil)
	defer cancel()
	var got error
	for _, err := range p.Stream(ctx, request()) {
		got = err
	}
	<-gone
	if code(got) != llm.CodeTimeout {
		t.Errorf("deadline: %v", got)
	}
	// The watchdog's clock begins again behind each chunk; the test lets it run out behind the text.
	chunks := 0
	watched := llm.Watch(p, time.Minute, func(_ time.Duration, f func()) func() bool {
		if chunks++; chunks == 3 { // before the request, behind the start of the block, behind the text
			go f()
		}
		return func() bool { return true }
	})
	for _, err := range watched.Stream(t.Context(), request()) {
		got = err
	}
	<-gone
	if code(got) != llm.CodeTimeout || !strings.Contains(got.Error(), "sent nothing for") {
		t.Errorf("silence: %v", got)
	}
}

func TestConformance(t *testing.T) {
	var seen *http.Request
	var body []byte
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r
		body, _ = io.ReadAll(r.Body)
		io.WriteString(w, sse(delta(`{"reasoning":"hm"}`), delta(`{"content":"a"}`), delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}`), finish(calls), done))
	})
	llmtest.Conform(t, p, request())
	want, err := p.Encode(request())
	if err != nil {
		t.Fatal(err)
	}
	if string(body) != string(want) {
		t.Errorf("sent %s\nwant %s", body, want)
	}
	if seen.URL.Path != "/v1/chat/completions" || seen.Header.Get("Authorization") != "Bearer "+key || seen.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", seen.URL, seen.Header)
	}
	req := request()
	req.Body = []byte(`{"model":"as logged"}`)
	for range p.Stream(t.Context(), req) {
	}
	if string(body) != string(req.Body) {
		t.Errorf("sent %s", body)
	}
}

// The environment of the SDK is none of ours.
func TestEnvironment(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_BASE_URL"} {
		t.Setenv(name, "http://from.the.environment")
	}
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-From: the environment")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := fmt.Sprint(r.Header); strings.Contains(text, "environment") || r.Header.Get("Authorization") != "" {
			t.Errorf("sent %s", text)
		}
		io.WriteString(w, sse(delta(`{"content":"a"}`), finish(stop)))
	}))
	defer s.Close()
	p, err := openai.New(openai.Options{Name: "p", BaseURL: s.URL, Client: s.Client(), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, p); err != nil {
		t.Error(err)
	}
}

// Nothing is left of a request: not of one that was read, refused, left, cancelled or broken.
func TestNothingLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refuse/chat/completions":
			w.WriteHeader(500)
		case "/hang/chat/completions":
			io.WriteString(w, sse(delta(`{"content":"a"}`)))
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-hang:
				t.Error("the request did not end")
			}
		default:
			io.WriteString(w, sse(delta(`{"content":"a"}`), finish(stop), done))
		}
	}))
	client := s.Client()
	for _, path := range []string{"", "/refuse", "/hang"} {
		p := dial(t, s.URL+path, client)
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			for _, err := range p.Stream(ctx, request()) {
				if path == "/hang" || err != nil {
					break
				}
			}
			for range p.Stream(ctx, request()) {
				cancel()
			}
			cancel()
		}
	}
	client.CloseIdleConnections()
	s.Close() // waits for every connection
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}

func TestNew(t *testing.T) {
	good := openai.Options{Name: "p", BaseURL: "https://h/v1", Client: http.DefaultClient, Now: time.Now, Models: map[string]llm.ModelInfo{"m": {ContextWindow: 7}}}
	p, err := openai.New(good)
	if err != nil {
		t.Fatal(err)
	}
	if info, ok := p.ModelInfo("m"); !ok || info.ContextWindow != 7 || p.Name() != "p" {
		t.Errorf("%+v %v", info, ok)
	}
	if _, ok := p.ModelInfo("other"); ok {
		t.Error("knows what nobody told")
	}
	for name, change := range map[string]func(*openai.Options){
		"no name":          func(o *openai.Options) { o.Name = "" },
		"no scheme":        func(o *openai.Options) { o.BaseURL = "h/v1" },
		"another scheme":   func(o *openai.Options) { o.BaseURL = "ftp://h/v1" },
		"a user":           func(o *openai.Options) { o.BaseURL = "https://me:" + key + "@h/v1" },
		"a query":          func(o *openai.Options) { o.BaseURL = "https://h/v1?key=" + key },
		"not a URL":        func(o *openai.Options) { o.BaseURL = "https://h:\x7f" + key },
		"a key of 2 lines": func(o *openai.Options) { o.Key = key + "\n" + key },
		"no such dialect":  func(o *openai.Options) { o.Dialect = "klingon" },
	} {
		o := good
		change(&o)
		if _, err := openai.New(o); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := openai.New(openai.Options{Name: "p", BaseURL: "https://h", Key: " " + key + "\n", Client: http.DefaultClient, Now: time.Now}); err != nil {
		t.Errorf("space around a key: %v", err)
	}
}
