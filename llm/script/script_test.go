package script_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/llmtest"
	"github.com/strandline-dev/strandline/llm/script"
	"github.com/strandline-dev/strandline/message"
)

func parse(t testing.TB, lines ...string) *script.Script {
	t.Helper()
	s, err := script.Parse("s.jsonl", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ask(t testing.TB, p llm.Provider, req llm.Request) (llm.Reply, *llm.Error) {
	t.Helper()
	var a llm.Assembler
	for c, err := range p.Stream(t.Context(), req) {
		if err != nil {
			var e *llm.Error
			if !errors.As(err, &e) {
				t.Fatalf("%v is no *llm.Error", err)
			}
			return a.Partial(), e
		}
		if err := a.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	r, err := a.Message()
	if err != nil {
		t.Fatal(err)
	}
	return r, nil
}

func text(r llm.Reply) string { return message.Message{Content: r.Content}.PlainText() }

func TestReply(t *testing.T) {
	p := script.New(parse(t, `{"text":"hello","reasoning":"hm","toolCalls":[{"id":"x","name":"bash","arguments":{"b":1,"a":[2.50]}},{"name":"ls"},{"name":"raw","arguments":"{\"half"}],"usage":{"inputTokens":3,"outputTokens":4}}`), script.Options{})
	r, e := ask(t, p, llm.Request{})
	if e != nil {
		t.Fatal(e)
	}
	calls := message.Message{Content: r.Content}.Calls()
	if len(calls) != 3 {
		t.Fatalf("%d calls", len(calls))
	}
	want := llm.Reply{
		Content: []message.Block{
			{Type: message.Reasoning, Text: "hm"}, message.TextBlock("hello"), message.CallBlock("x", "bash", `{"b":1,"a":[2.50]}`),
			message.CallBlock(calls[1].ID, "ls", `{}`), message.CallBlock(calls[2].ID, "raw", `{"half`),
		},
		Usage: &message.Usage{InputTokens: 3, OutputTokens: 4}, Finish: llm.FinishToolCalls,
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if calls[1].ID == "" || calls[1].ID == calls[2].ID {
		t.Errorf("ids %q %q", calls[1].ID, calls[2].ID)
	}
}

func TestOrderAndPurpose(t *testing.T) {
	s := parse(t, `{"text":"1"}`, ``, `{"text":"2"}`, `{"text":"c1","purpose":"compaction"}`, `{"text":"3"}`, `{"text":"c2","purpose":"compaction"}`, `{"text":"t","purpose":"turn"}`)
	p := script.New(s, script.Options{})
	for i, c := range []struct{ purpose, want string }{
		{"", "t"}, {"turn", "1"}, {"compaction", "c1"}, {"", "2"}, {"compaction", "c2"}, {"compaction", "3"},
	} {
		r, e := ask(t, p, llm.Request{Purpose: c.purpose})
		if e != nil || text(r) != c.want {
			t.Errorf("request %d: %q %v, want %q", i+1, text(r), e, c.want)
		}
	}
	_, e := ask(t, p, llm.Request{})
	if e == nil || e.Code != llm.CodeInvalidRequest || e.Retryable() || !strings.Contains(e.Message, "s.jsonl is used up: it has 6 lines and none is left for request 7") {
		t.Errorf("used up: %v", e)
	}
}

func TestPurposeIsNotServedToOthers(t *testing.T) {
	p := script.New(parse(t, `{"text":"c","purpose":"compaction"}`), script.Options{})
	if _, e := ask(t, p, llm.Request{}); e == nil || e.Code != llm.CodeInvalidRequest {
		t.Errorf("got %v", e)
	}
	if r, e := ask(t, p, llm.Request{Purpose: "compaction"}); e != nil || text(r) != "c" {
		t.Errorf("got %q %v", text(r), e)
	}
}

func conversation() []message.Message {
	return []message.Message{
		message.User("u1", "first"),
		{ID: "a1", Role: message.RoleAssistant, Content: []message.Block{message.CallBlock("c1", "ls", "{}"), message.CallBlock("c2", "ls", "{}")}},
		message.Result("r1", "c1", false, message.TextBlock("one")),
		message.Result("r2", "c2", false, message.TextBlock("two \"q\"\n")),
		{ID: "p1", Role: message.RoleUser, Content: []message.Block{message.TextBlock("injected")}, Source: message.Source{Kind: message.SourcePlugin}},
	}
}

func TestTemplates(t *testing.T) {
	s := parse(t, `{"text":"got {{last_tool_result}}, {{last_user}}; {{other}} {{last_tool_result}}","toolCalls":[{"name":"w","arguments":{"{{last_user}}":"<{{last_tool_result}}>"}},{"name":"w","arguments":"[\"{{last_tool_result}}\""}]}`)
	r, e := ask(t, script.New(s, script.Options{}), llm.Request{Messages: conversation()})
	if e != nil {
		t.Fatal(e)
	}
	if got, want := text(r), "got two \"q\"\n, first; {{other}} two \"q\"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	calls := message.Message{Content: r.Content}.Calls()
	if got, want := calls[0].Arguments, `{"first":"<two \"q\"\n>"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := calls[1].Arguments, `["two \"q\"\n"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What is filled in is not searched for templates again, and a conversation without either fills in
// nothing.
func TestTemplatesOnce(t *testing.T) {
	s := parse(t, `{"text":"{{last_user}}|{{last_tool_result}}|"}`)
	r, _ := ask(t, script.New(s, script.Options{}), llm.Request{Messages: []message.Message{message.User("u", "{{last_user}}")}})
	if got := text(r); got != "{{last_user}}||" {
		t.Errorf("got %q", got)
	}
}

// A second process that plays the same script from its first line in the same session makes new ids.
func TestCallIDsAreNew(t *testing.T) {
	const line = `{"toolCalls":[{"name":"ls"},{"name":"ls"}]}`
	seen := map[string]bool{}
	ms := []message.Message{message.User("u", "go")}
	for range 5 {
		r, e := ask(t, script.New(parse(t, line), script.Options{}), llm.Request{Messages: ms})
		if e != nil {
			t.Fatal(e)
		}
		// Without ids of messages, as over a wire, and with equal contents.
		ms = append(ms, message.Message{Role: message.RoleAssistant, Content: r.Content})
		for _, c := range ms[len(ms)-1].Calls() {
			if seen[c.ID] {
				t.Errorf("%s was used before", c.ID)
			}
			seen[c.ID] = true
			ms = append(ms, message.Result("", c.ID, false, message.TextBlock("same")))
		}
	}
}

// An id that is made does not meet one that the script gives, or one of the conversation.
func TestCallIDsDoNotCollide(t *testing.T) {
	call := func(line string, ms ...message.Message) []message.Block {
		r, e := ask(t, script.New(parse(t, line), script.Options{}), llm.Request{Messages: ms})
		if e != nil {
			t.Fatal(e)
		}
		return message.Message{Content: r.Content}.Calls()
	}
	made := call(`{"toolCalls":[{"name":"a"},{"name":"b"}]}`)[0].ID
	got := call(`{"toolCalls":[{"name":"a"},{"name":"b","id":"` + made + `"}]}`)
	if got[0].ID == got[1].ID || got[1].ID != made {
		t.Errorf("ids %q and %q", got[0].ID, got[1].ID)
	}
}

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		line string
		want llm.Error
		text string
	}{
		{`{"error":{"code":"RATE_LIMIT","status":429,"retryAfterMs":1500,"message":"slow"}}`, llm.Error{Code: llm.CodeRateLimit, Status: 429, RetryAfter: 1500 * time.Millisecond, Message: "slow"}, ""},
		{`{"text":"half","error":{"status":503}}`, llm.Error{Code: llm.CodeServer, Status: 503, Message: "the script says so"}, "half"},
		{`{"error":{}}`, llm.Error{Code: llm.CodeServer, Message: "the script says so"}, ""},
		{`{"text":"a","fault":"reset"}`, llm.Error{Code: llm.CodeTransport, Message: "the script resets the connection"}, "a"},
		{`{"text":"a","fault":"half-event"}`, llm.Error{Code: llm.CodeStreamClosed, Message: "the script ends in the middle of an event"}, "a"},
		{`{"fault":"malformed"}`, llm.Error{Code: llm.CodeMalformedResponse, Message: "the script sends what is not JSON"}, ""},
	} {
		r, e := ask(t, script.New(parse(t, c.line), script.Options{}), llm.Request{})
		if e == nil {
			t.Fatalf("%s: no failure", c.line)
		}
		if diff := cmp.Diff(c.want, *e); diff != "" || text(r) != c.text {
			t.Errorf("%s: text %q, (-want +got)\n%s", c.line, text(r), diff)
		}
	}
}

func TestHang(t *testing.T) {
	for _, line := range []string{`{"text":"a","hang":true}`, `{"text":"a","fault":"stall"}`} {
		ctx, cancel := context.WithCancel(t.Context())
		var last error
		for c, err := range script.New(parse(t, line), script.Options{}).Stream(ctx, llm.Request{}) {
			last = err
			if c.Type == llm.ChunkBlockEnd {
				time.AfterFunc(0, cancel) // while the stream waits, or just before
			}
		}
		var e *llm.Error
		if !errors.As(last, &e) || e.Code != llm.CodeAborted {
			t.Errorf("%s: %v", line, last)
		}
		cancel()
	}
}

func TestDelays(t *testing.T) {
	var slept []time.Duration
	sleep := func(ctx context.Context, d time.Duration) error { slept = append(slept, d); return ctx.Err() }
	p := script.New(parse(t, `{"text":"a bc dé","delayMs":70,"chunkMs":5}`), script.Options{Sleep: sleep})
	var words []string
	for c, err := range p.Stream(t.Context(), llm.Request{}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Type == llm.ChunkTextDelta {
			words = append(words, c.Text)
		}
	}
	if diff := cmp.Diff([]string{"a ", "bc ", "dé"}, words); diff != "" {
		t.Error(diff)
	}
	ms := time.Millisecond
	if diff := cmp.Diff([]time.Duration{70 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 5 * ms}, slept); diff != "" {
		t.Error(diff)
	}

	ctx, cancel := context.WithCancel(t.Context())
	p = script.New(parse(t, `{"text":"a","delayMs":1}`), script.Options{Sleep: func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }})
	for _, err := range p.Stream(ctx, llm.Request{}) {
		if e := llm.AsError(t.Context(), err); e == nil || e.Code != llm.CodeAborted {
			t.Errorf("got %v", err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ lines, says string }{
		{"{}\n\n{\"txet\":1}", "s.jsonl:3: unknown field /txet"},
		{`{"error":{"cod":1}}`, "s.jsonl:1: unknown field /error/cod"},
		{`{"usage":{"input":1}}`, "s.jsonl:1: unknown fields in usage"},
		{`{"text":`, "s.jsonl:1: "},
		{`{"text":1}`, "s.jsonl:1: "},
		{`{"finish":"stopp"}`, `unknown finish "stopp"`},
		{`{"fault":"x"}`, `unknown fault "x"`},
		{`{"error":{"code":"X"}}`, `unknown error code "X"`},
		{`{"toolCalls":[{}]}`, "toolCalls[0] has no name"},
		{`{"toolCalls":[{"name":"a","arguments":[1]}]}`, "neither an object nor a string"},
		{`{"delayMs":-1}`, "negative"},
		{`{"text":"a","text":"b"}`, "duplicate"},
	} {
		if _, err := script.Parse("s.jsonl", strings.NewReader(c.lines)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.lines, err, c.says)
		}
	}
	if _, err := script.Load("/nonexistent/script"); err == nil || !strings.Contains(err.Error(), "/nonexistent/script") {
		t.Errorf("load: %v", err)
	}
	s := parse(t, "\uFEFF{\"text\":\"bom\"}\r", `{"finish":"tool_calls"}`)
	if s.Len() != 2 {
		t.Errorf("%d lines", s.Len())
	}
}

func TestEncodeIsPure(t *testing.T) {
	req := llm.Request{Model: "m", System: "s", Messages: conversation(), Purpose: "turn"}
	p := script.New(parse(t), script.Options{})
	a, err := p.Encode(req)
	if err != nil {
		t.Fatal(err)
	}
	req.Purpose = "other" // is not sent
	b, _ := p.Encode(req)
	if string(a) != string(b) || !strings.Contains(string(a), `"model":"m"`) {
		t.Errorf("%s\n%s", a, b)
	}
}

func TestConformance(t *testing.T) {
	line := `{"text":"hello wörld","reasoning":"hm","toolCalls":[{"name":"ls"}]}`
	llmtest.Conform(t, script.New(parse(t, line, line, line, line, line), script.Options{}), llm.Request{})
	if info, ok := script.New(parse(t), script.Options{ContextWindow: 10_000}).ModelInfo("any"); !ok || info.ContextWindow != 10_000 {
		t.Errorf("model info: %+v %v", info, ok)
	}
}

func TestLongTextIsCutBetweenRunes(t *testing.T) {
	long := strings.Repeat("日", 3000)
	n := 0
	var a llm.Assembler
	for c, err := range script.New(parse(t, `{"text":"`+long+`"}`), script.Options{}).Stream(t.Context(), llm.Request{}) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsRune(c.Text, '\uFFFD') {
			t.Fatal("a rune was cut")
		}
		n++
		if err := a.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := a.Message(); err != nil || text(r) != long || n < 9 {
		t.Errorf("%d chunks, %v", n, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"text":"a","toolCalls":[{"name":"n","arguments":{"a":"{{last_user}}"}}]}`)
	f.Add(`{"toolCalls":[{"name":"n","arguments":"\ud83d"}],"chunkMs":1}`)
	f.Fuzz(func(t *testing.T, lines string) {
		s, err := script.Parse("f", strings.NewReader(lines))
		if err != nil {
			return
		}
		p := script.New(s, script.Options{})
		for range s.Len() {
			line, err := s.Next("")
			if err != nil {
				break // lines with a purpose
			}
			for _, b := range line.Fill(llm.Request{Messages: conversation()}).Calls {
				if b.ID == "" || b.Name == "" {
					t.Fatalf("call %+v", b)
				}
			}
		}
		for _, err := range p.Stream(t.Context(), llm.Request{}) {
			if err != nil {
				break
			}
		}
	})
}

// A usage without counts tells nothing, which is not zero.
func TestUsageUntold(t *testing.T) {
	for text, told := range map[string]bool{
		`{"text":"a"}`: false, `{"text":"a","usage":{}}`: false, `{"text":"a","usage":null}`: false,
		`{"text":"a","usage":{"inputTokens":0,"outputTokens":0}}`: true, `{"text":"a","usage":{"outputTokens":3}}`: true,
	} {
		s, err := script.Parse("s", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		line, err := s.Next("")
		if err != nil || (line.Usage != nil) != told {
			t.Errorf("%s: usage %v, error %v", text, line.Usage, err)
		}
	}
}

func TestServes(t *testing.T) {
	s, err := script.Parse("s", strings.NewReader("{\"text\":\"a\"}\n{\"text\":\"b\",\"purpose\":\"title\"}"))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Serves("title") || s.Serves("subagent") {
		t.Error("what the lines are for is read wrong")
	}
}
