package fake

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/llm/script"
)

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type service struct {
	url    string
	record *bytes.Buffer // read it after stop
	served chan Served
	stop   func()
}

// serve plays lines on a real listener until the end of the test.
func serve(t *testing.T, lines ...string) *service {
	t.Helper()
	sc, err := script.Parse("test", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{url: BaseURL(l), record: new(bytes.Buffer), served: make(chan Served, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := Serve(ctx, l, New(Options{Script: sc, Record: s.record, Sleep: sleep, Served: func(v Served) { s.served <- v }})); err != nil {
			t.Error(err)
		}
	})
	s.stop = func() { cancel(); done.Wait() }
	t.Cleanup(s.stop)
	return s
}

const (
	hello    = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hello"}]}`
	helloOne = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`
)

// post sends a body with a client of its own, so that no connection is shared.
func (s *service) post(t *testing.T, ctx context.Context, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer sk-secret")
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr.RoundTrip(req)
}

// got is what a plain client sees.
type got struct {
	status             int
	typ                string
	header             http.Header
	text, think, call  string
	args, finish, body string
	id                 string
	usage              *chatUsage
	deltas             int // of text, reasoning or arguments
	comments           int
	done               bool
	event              string // of an error
	err                error  // of the connection
}

func (s *service) get(t *testing.T, ctx context.Context, body string) got {
	t.Helper()
	resp, err := s.post(t, ctx, body)
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	g := got{status: resp.StatusCode, typ: resp.Header.Get("Content-Type"), header: resp.Header, body: string(all), err: err}
	if !strings.HasPrefix(g.typ, "text/event-stream") {
		return g
	}
	sc := bufio.NewScanner(bytes.NewReader(all))
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		switch {
		case strings.HasPrefix(sc.Text(), ":"):
			g.comments++
			continue
		case !ok:
			continue
		case data == "[DONE]":
			g.done = true
			continue
		}
		var k struct {
			chatChunk
			Error *chatError `json:"error"`
		}
		if err := json.Unmarshal([]byte(data), &k); err != nil {
			g.event += "not JSON;"
			continue
		}
		if k.Error != nil {
			g.event += k.Error.Message
		}
		if k.Usage != nil {
			g.usage = k.Usage
		}
		for _, c := range k.Choices {
			if c.Finish != nil {
				g.finish = *c.Finish
			}
			if c.Delta.Content != nil && *c.Delta.Content != "" {
				g.text += *c.Delta.Content
				g.deltas++
			}
			if c.Delta.Reasoning != "" {
				g.think += c.Delta.Reasoning
				g.deltas++
			}
			for _, call := range c.Delta.Calls {
				g.call += call.Function.Name
				g.id += call.ID
				g.args += call.Function.Arguments
				if call.Function.Arguments != "" {
					g.deltas++
				}
			}
		}
	}
	return g
}

func TestStream(t *testing.T) {
	s := serve(t, `{"text":"one two three","reasoning":"let me think","toolCalls":[{"name":"bash","arguments":{"command":"echo ü"}}],`+
		`"usage":{"inputTokens":10,"cacheReadTokens":30,"cacheWriteTokens":2,"outputTokens":5,"reasoningTokens":3}}`)
	g := s.get(t, t.Context(), hello)
	if g.status != 200 || g.err != nil || g.text != "one two three" || g.think != "let me think" || g.call != "bash" ||
		g.args != `{"command":"echo ü"}` || g.finish != "tool_calls" || !g.done || !strings.HasPrefix(g.id, "call_") {
		t.Errorf("%+v", g)
	}
	if g.deltas != 12 {
		t.Errorf("%d deltas, want 4 for each block", g.deltas)
	}
	if u := g.usage; u == nil || u.Prompt != 42 || *u.PromptOf.Cached != 30 || *u.PromptOf.CacheWrite != 2 || u.Completion != 5 ||
		u.OutputOf.Reasoning != 3 || u.Total != 47 {
		t.Errorf("usage %+v", g.usage)
	}
	if v := <-s.served; v != (Served{Number: 1, Line: 1, What: "reply"}) {
		t.Errorf("%+v", v)
	}
}

func TestUsageOnlyWhenAsked(t *testing.T) {
	s := serve(t, `{"text":"a","usage":{"inputTokens":1,"outputTokens":1}}`)
	if g := s.get(t, t.Context(), `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`); g.usage != nil || !g.done {
		t.Errorf("%+v", g)
	}
}

func TestWhole(t *testing.T) {
	s := serve(t, `{"text":"hi","toolCalls":[{"name":"ls","id":"c1"}],"usage":{"inputTokens":1,"outputTokens":2}}`)
	g := s.get(t, t.Context(), helloOne)
	want := `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi",` +
		`"tool_calls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{}"}}]},"finish_reason":"tool_calls"}],` +
		`"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`
	if g.status != 200 || g.body != want {
		t.Errorf("%d %s", g.status, g.body)
	}
}

func TestTemplates(t *testing.T) {
	s := serve(t, `{"text":"{{last_user}}: {{last_tool_result}}"}`)
	g := s.get(t, t.Context(), `{"model":"m","stream":true,"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"what?"}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c","content":"that"}]}`)
	if g.text != "what?: that" {
		t.Errorf("%+v", g)
	}
}

// TestFaults: each fault as a plain client sees it, streamed and not.
func TestFaults(t *testing.T) {
	reset := func(g got) bool { return errors.Is(g.err, syscall.ECONNRESET) }
	cutOff := func(g got) bool { return errors.Is(g.err, io.ErrUnexpectedEOF) }
	for _, c := range []struct {
		name, line    string
		stream, whole func(g got) bool
	}{
		{"reset before headers", `{"fault":"reset"}`,
			func(g got) bool { return g.status == 0 && (reset(g) || errors.Is(g.err, io.EOF)) }, nil},
		{"reset", `{"text":"abcd","fault":"reset"}`,
			func(g got) bool { return g.status == 200 && reset(g) && !g.done && g.finish == "" }, reset},
		{"half event", `{"text":"abcd","fault":"half-event"}`,
			func(g got) bool { return g.text == "abcd" && cutOff(g) && strings.HasPrefix(tail(g.body), "data: {") }, cutOff},
		{"cut", `{"text":"abcd","fault":"cut"}`,
			func(g got) bool {
				return g.text == "abcd" && g.err == nil && strings.HasPrefix(tail(g.body), "data: {")
			},
			func(g got) bool { return g.err == nil && !json.Valid([]byte(g.body)) }},
		{"malformed", `{"text":"abcd","fault":"malformed"}`,
			func(g got) bool { return g.text == "abcd" && g.event == "not JSON;" && g.done },
			func(g got) bool { return g.err == nil && g.status == 200 && !json.Valid([]byte(g.body)) }},
		{"no end", `{"text":"abcd","fault":"no-end"}`,
			func(g got) bool { return g.text == "abcd" && g.err == nil && !g.done && g.finish == "" }, nil},
		{"nothing at all", `{"fault":"no-end"}`,
			func(g got) bool { return g.status == 200 && g.err == nil && g.body == "" }, nil},
		{"wrong type", `{"fault":"wrong-type"}`,
			func(g got) bool { return g.status == 200 && g.typ == "text/html" && strings.Contains(g.body, "<html>") }, nil},
		{"rate limit", `{"error":{"code":"RATE_LIMIT","status":429}}`,
			func(g got) bool {
				return g.status == 429 && g.header.Get("Retry-After") == "" && strings.Contains(g.body, `"code":"rate_limit_exceeded"`)
			}, nil},
		{"rate limit with retry-after", `{"error":{"code":"RATE_LIMIT","retryAfterMs":1500}}`,
			func(g got) bool {
				return g.status == 429 && g.header.Get("Retry-After") == "2" && g.header.Get("Retry-After-Ms") == "1500"
			}, nil},
		{"quota", `{"error":{"code":"QUOTA"}}`,
			func(g got) bool { return g.status == 429 && strings.Contains(g.body, `"code":"insufficient_quota"`) }, nil},
		{"page of a proxy", `{"error":{"status":502,"html":true,"retryAfterMs":20}}`,
			func(g got) bool {
				return g.status == 502 && g.typ == "text/html" && strings.Contains(g.body, "502 Bad Gateway") && g.header.Get("Retry-After-Ms") == "20"
			}, nil},
		{"server", `{"error":{"status":503}}`,
			func(g got) bool { return g.status == 503 && strings.Contains(g.body, `"type":"server_error"`) }, nil},
		{"overflow", `{"error":{"code":"CONTEXT_WINDOW_EXCEEDED"}}`,
			func(g got) bool {
				return g.status == 400 && strings.Contains(g.body, `"code":"context_length_exceeded"`)
			}, nil},
		{"key repeated", `{"error":{"code":"AUTH"}}`,
			func(g got) bool { return g.status == 401 && strings.Contains(g.body, "sk-secret") }, nil},
		{"error in the stream", `{"error":{"message":"overloaded","inStream":true}}`,
			func(g got) bool { return g.status == 200 && g.event == "overloaded" && g.finish == "" }, nil},
		{"error after content", `{"text":"abcd","error":{"message":"overloaded"}}`,
			func(g got) bool {
				return g.status == 200 && g.text == "abcd" && g.event == "overloaded" && g.finish == ""
			},
			func(g got) bool { return g.status == 500 && strings.Contains(g.body, "overloaded") }},
		{"connection lost by code", `{"error":{"code":"TRANSPORT"}}`,
			func(g got) bool { return g.status == 0 && g.err != nil }, nil},
		{"empty reply", `{}`,
			func(g got) bool { return g.status == 200 && g.text == "" && g.finish == "stop" && g.done }, nil},
		{"length", `{"text":"a","finish":"length"}`,
			func(g got) bool { return g.finish == "length" }, nil},
		{"pings", `{"text":"a","delayMs":25,"pingMs":10}`,
			func(g got) bool { return g.comments == 2 && g.done }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, c.line, c.line)
			if g := s.get(t, t.Context(), hello); !c.stream(g) {
				t.Errorf("streamed: %+v", g)
			}
			if c.whole == nil {
				c.whole = func(got) bool { return true }
			}
			if g := s.get(t, t.Context(), helloOne); !c.whole(g) {
				t.Errorf("whole: %+v", g)
			}
			// The service is there for the next one, and says that the script ended.
			if g := s.get(t, t.Context(), hello); g.status != 400 || !strings.Contains(g.body, "script test is used up") {
				t.Errorf("after it: %+v", g)
			}
		})
	}
}

// tail is what stands after the last whole event.
func tail(s string) string { return s[strings.LastIndex(s, "\n\n")+2:] }

// TestStall: the connection stays open and silent until the client leaves, and the server notices.
func TestStall(t *testing.T) {
	for _, line := range []string{`{"text":"abcd","fault":"stall"}`, `{"hang":true}`, `{"text":"abcd","fault":"stall","pingMs":1}`} {
		for _, body := range []string{hello, helloOne} {
			s := serve(t, line)
			ctx, cancel := context.WithCancel(t.Context())
			resp, err := s.post(t, ctx, body)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, "text") {
				if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case v := <-s.served:
				t.Errorf("%s: %+v while the client waits", line, v)
			default:
			}
			cancel()
			resp.Body.Close()
			if v := <-s.served; v.What != "stall" || !v.Left {
				t.Errorf("%s: %+v", line, v)
			}
		}
	}
}

// TestStopWhileStalled: Serve returns although a client waits, and its handler is over.
func TestStopWhileStalled(t *testing.T) {
	s := serve(t, `{"text":"abcd","fault":"stall"}`)
	resp, err := s.post(t, t.Context(), hello)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.stop()
	if v := <-s.served; v.What != "stall" {
		t.Errorf("%+v", v)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the body ended as if it were whole")
	}
}

func TestSlowHeaders(t *testing.T) {
	s := serve(t, `{"text":"a","headersMs":3600000}`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if g := s.get(t, ctx, hello); !errors.Is(g.err, context.DeadlineExceeded) || g.status != 0 {
		t.Errorf("%+v", g)
	}
}

// TestRules: what a service refuses is refused with its error, and uses up no line.
func TestRules(t *testing.T) {
	call := func(ids ...string) string {
		var b []string
		for _, id := range ids {
			b = append(b, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"f","arguments":"{}"}}`, id))
		}
		return `{"role":"assistant","content":null,"tool_calls":[` + strings.Join(b, ",") + `]}`
	}
	result := func(id string) string { return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"r"}`, id) }
	const user, said = `{"role":"user","content":"u"}`, `{"role":"assistant","content":"a"}`
	tool := func(name, params string) string {
		return `"tools":[{"type":"function","function":{"name":"` + name + `","parameters":` + params + `}}]`
	}
	for _, c := range []struct{ name, messages, more, want string }{
		{"plain", user, "", ""},
		{"system and developer first", `{"role":"system","content":"s"},{"role":"developer","content":"d"},` + user, "", ""},
		{"two results in any order", user + "," + call("a", "b") + "," + result("b") + "," + result("a"), "", ""},
		{"two turns", user + "," + said + "," + user, "", ""},
		{"text beside calls", user + `,{"role":"assistant","content":"t","reasoning_content":"r","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{bad"}}]},` + result("a"), "", ""},
		{"image", `{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}`, "", ""},
		{"tool", user, tool("f", `{"type":"object"}`), ""},

		{"no messages", "", "", "too short - 'messages'"},
		{"unknown role", `{"role":"robot","content":"x"}`, "", `Invalid value: "robot"`},
		{"system later", user + `,{"role":"system","content":"s"}`, "", "at the beginning"},
		{"result without a call", user + "," + result("a"), "", "must be a response to a preceding message"},
		{"result of another call", user + "," + call("a") + "," + result("b"), "", "must be a response to a preceding message"},
		{"result twice", user + "," + call("a") + "," + result("a") + "," + result("a"), "", "must be a response to a preceding message"},
		{"result too late", user + "," + call("a") + "," + user + "," + result("a"), "", "did not have response messages: a"},
		{"result missing", user + "," + call("a", "b") + "," + result("a") + "," + user, "", "did not have response messages: b"},
		{"result missing at the end", user + "," + call("a", "b") + "," + result("b"), "", "did not have response messages: a"},
		{"id twice in a message", user + "," + call("a", "a") + "," + result("a") + "," + result("a"), "", "Duplicate value for 'tool_call_id'"},
		{"id twice", user + "," + call("a") + "," + result("a") + "," + call("a") + "," + result("a"), "", "Duplicate value for 'tool_call_id'"},
		{"no id", user + "," + call("") + "," + result(""), "", "Missing required parameter: 'messages.[1].tool_calls[0].id'"},
		{"no calls", user + `,{"role":"assistant","content":"x","tool_calls":[]},` + user, "", "too short"},
		{"neither content nor calls", user + `,{"role":"assistant","content":null},` + user, "", "expected a string, got null"},
		{"calls of a user", `{"role":"user","content":"x","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":""}}]}`, "", "not allowed"},
		{"user without content", `{"role":"user"}`, "", "expected a string or a list"},
		{"no parts", `{"role":"user","content":[]}`, "", "not empty"},
		{"unknown part", `{"role":"user","content":[{"type":"tool_result"}]}`, "", `Invalid value: "tool_result"`},
		{"image of an assistant", user + `,{"role":"assistant","content":[{"type":"image_url","image_url":{"url":"http://x"}}]},` + user, "", `Invalid value: "image_url"`},
		{"image that is none", `{"role":"user","content":[{"type":"image_url","image_url":{"url":"blob:7"}}]}`, "", "expected a URL"},
		{"assistant last", user + "," + said, "", "Expected last role"},
		{"NUL", `{"role":"user","content":"a\u0000b"}`, "", "NUL"},
		{"half a surrogate", `{"role":"user","content":"a\ud800b"}`, "", "could not parse"},
		{"wrong type", user, `"stream":"yes"`, "could not parse"},
		{"usage without stream", user, `"stream_options":{"include_usage":true}`, "only allowed when 'stream'"},
		{"no tools", user, `"tools":[]`, "too short - 'tools'"},
		{"tool name", user, tool("a b", `{"type":"object"}`), "does not match"},
		{"tool schema", user, tool("f", `{"type":"string"}`), "Invalid schema"},
		{"max_tokens", user, `"max_tokens":0`, "less than the minimum"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, `{"text":"fine"}`)
			body := `{"model":"m","messages":[` + c.messages + `]`
			if c.more != "" {
				body += "," + c.more
			}
			g := s.get(t, t.Context(), body+"}")
			if c.want == "" {
				if g.status != 200 {
					t.Errorf("refused: %d %s", g.status, g.body)
				}
				return
			}
			var e struct{ Error chatError }
			if err := json.Unmarshal([]byte(g.body), &e); err != nil || g.status != 400 || e.Error.Type != "invalid_request_error" || !strings.Contains(e.Error.Message, c.want) {
				t.Errorf("%d %s, want %q", g.status, g.body, c.want)
			}
			if v := <-s.served; v.Line != 0 || !strings.HasPrefix(v.What, "refused: ") {
				t.Errorf("%+v", v)
			}
			if g := s.get(t, t.Context(), helloOne); g.status != 200 {
				t.Errorf("the line was used up: %s", g.body)
			}
		})
	}
}

func TestNotARequest(t *testing.T) {
	s := serve(t, `{"text":"fine"}`)
	for _, c := range []struct {
		method, path, typ string
		want              int
	}{
		{"GET", "/models", "", 200},
		{"GET", "/chat/completions", "", 404},
		{"POST", "/nothing", "application/json", 404},
		{"POST", "/chat/completions", "text/plain", 415},
	} {
		req, _ := http.NewRequest(c.method, s.url+c.path, strings.NewReader(helloOne))
		req.Header.Set("Content-Type", c.typ)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want || !json.Valid(body) {
			t.Errorf("%+v: %d %s", c, resp.StatusCode, body)
		}
	}
}

// TestHalfARequest: a client that dies while it asks has asked nothing.
func TestHalfARequest(t *testing.T) {
	s := serve(t, `{"text":"a"}`)
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	conn.Close()
	if v := <-s.served; v.Number != 0 || !v.Left {
		t.Errorf("%+v", v)
	}
	if g := s.get(t, t.Context(), hello); g.text != "a" {
		t.Errorf("%+v", g)
	}
	s.stop()
	if n := strings.Count(s.record.String(), "\n"); n != 1 {
		t.Errorf("recorded:\n%s", s.record)
	}
}

func TestRecord(t *testing.T) {
	s := serve(t, "", `{"text":"a"}`, `{"text":"b"}`)
	odd := "{\"model\":\"m\" ,\n\"messages\":[{\"role\":\"user\",\"content\":\"\\u00fc\"}]}"
	for _, body := range []string{hello, "{", odd} {
		s.get(t, t.Context(), body)
	}
	s.stop()
	want := `{"n":1,"method":"POST","path":"/v1/chat/completions","line":2,"sha256":"` + sum(hello) + `","body":` + hello + "}\n" +
		`{"n":2,"method":"POST","path":"/v1/chat/completions","line":0,"refused":"We could not parse the JSON body of your request: `
	if r := s.record.String(); !strings.HasPrefix(r, want) || strings.Contains(r, "secret") || strings.Count(r, "\n") != 3 {
		t.Errorf("%s", r)
	}
	lines := strings.Split(s.record.String(), "\n")
	var last struct {
		Line int
		Body string
	}
	if err := json.Unmarshal([]byte(lines[2]), &last); err != nil || last.Line != 3 || last.Body != odd {
		t.Errorf("%v %+v", err, last)
	}
}

func TestRecordFails(t *testing.T) {
	sc, _ := script.Parse("test", strings.NewReader(`{"text":"a"}`))
	l, err := Listen(t.Context(), "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	defer done.Wait()
	defer cancel()
	pr, pw := io.Pipe()
	pr.CloseWithError(errors.New("no space"))
	done.Go(func() { Serve(ctx, l, New(Options{Script: sc, Sleep: sleep, Record: pw})) })
	s := &service{url: BaseURL(l)}
	if g := s.get(t, ctx, hello); g.status != 500 || !strings.Contains(g.body, "no space") {
		t.Errorf("%+v", g)
	}
}

func TestListenOnLoopbackOnly(t *testing.T) {
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1", "[::ffff:192.0.2.1]:0"} {
		if l, err := Listen(t.Context(), addr); err == nil {
			t.Errorf("%s: listens on %s", addr, l.Addr())
			l.Close()
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "127.0.0.2:0", "localhost:0"} {
		l, err := Listen(t.Context(), addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		l.Close()
	}
}

// FuzzParse: no body makes the server fall over, and what it accepts is legal.
func FuzzParse(f *testing.F) {
	f.Add([]byte(hello))
	f.Add([]byte(`{"model":"m","messages":[{"role":"assistant","content":[],"tool_calls":[{}]},{"role":"tool"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, ref := chatWire{}.parse(body)
		if ref != nil {
			if !json.Valid(chatWire{}.refuse(*ref).body) {
				t.Errorf("the refusal is no JSON: %q", ref.message)
			}
			return
		}
		seen := map[string]int{}
		for _, m := range req.Messages {
			for _, b := range m.Content {
				if b.ID != "" {
					seen[b.ID]++
				}
				if b.ToolCallID != "" {
					seen[b.ToolCallID] += 10
				}
			}
		}
		for id, n := range seen {
			if n != 11 {
				t.Errorf("id %q: %d", id, n)
			}
		}
	})
}

func sum(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
