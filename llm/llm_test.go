package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"pgregory.net/rapid"
)

func add(t *testing.T, a *llm.Assembler, chunks ...llm.Chunk) {
	t.Helper()
	for _, c := range chunks {
		if err := a.Add(c); err != nil {
			t.Fatal(err)
		}
	}
}

func code(err error) llm.Code {
	var e *llm.Error
	if errors.As(err, &e) {
		return e.Code
	}
	if err != nil {
		return "NOT TYPED"
	}
	return ""
}

func answer() []llm.Chunk {
	return []llm.Chunk{
		{Type: llm.ChunkBlockStart, Index: 0, BlockType: message.Reasoning},
		{Type: llm.ChunkReasoningDelta, Index: 0, Text: "hm"},
		{Type: llm.ChunkBlockEnd, Index: 0, Block: &message.Block{Type: message.Reasoning, Text: "hm", Signature: "sig"}},
		{Type: llm.ChunkTextDelta, Index: 1, Text: "let "},
		{Type: llm.ChunkToolCallDelta, Index: 2, ID: "c1", Name: "read", Arguments: `{"pa`},
		{Type: llm.ChunkTextDelta, Index: 1, Text: "us"},
		{Type: llm.ChunkUsage, Usage: &message.Usage{InputTokens: 1}},
		{Type: llm.ChunkToolCallDelta, Index: 2, Arguments: `th":"a"}`},
		{Type: llm.ChunkBlockStart, Index: 3, BlockType: message.Text},
		{Type: llm.ChunkBlockEnd, Index: 3},
		{Type: llm.ChunkUsage, Usage: &message.Usage{InputTokens: 3, OutputTokens: 7}},
		{Type: llm.ChunkFinish, Finish: llm.FinishToolCalls, ResponseID: "r1"},
	}
}

func TestAssemble(t *testing.T) {
	var a llm.Assembler
	add(t, &a, answer()...)
	got, err := a.Message()
	if err != nil {
		t.Fatal(err)
	}
	want := llm.Reply{
		Content: []message.Block{
			{Type: message.Reasoning, Text: "hm", Signature: "sig"}, message.TextBlock("let us"), message.CallBlock("c1", "read", `{"path":"a"}`),
		},
		Usage: &message.Usage{InputTokens: 3, OutputTokens: 7}, Finish: llm.FinishToolCalls, ResponseID: "r1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAssembleRefuses(t *testing.T) {
	text := llm.Chunk{Type: llm.ChunkTextDelta, Text: "a"}
	end := llm.Chunk{Type: llm.ChunkBlockEnd}
	for name, chunks := range map[string][]llm.Chunk{
		"delta after the end of its block": {text, end, text},
		"delta of another kind":            {text, {Type: llm.ChunkReasoningDelta}},
		"end without a start":              {end},
		"two starts":                       {{Type: llm.ChunkBlockStart, BlockType: message.Text}, {Type: llm.ChunkBlockStart, BlockType: message.Text}},
		"after the finish":                 {text, {Type: llm.ChunkFinish}, text},
		"unknown":                          {{Type: "x"}},
	} {
		var a llm.Assembler
		for _, c := range chunks[:len(chunks)-1] {
			if err := a.Add(c); err != nil {
				t.Fatalf("%s: too early: %v", name, err)
			}
		}
		if err := a.Add(chunks[len(chunks)-1]); code(err) != llm.CodeMalformedResponse {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMessageErrors(t *testing.T) {
	finish := llm.Chunk{Type: llm.ChunkFinish, Finish: llm.FinishStop, Usage: &message.Usage{OutputTokens: 5}}
	text := func(s string) llm.Chunk { return llm.Chunk{Type: llm.ChunkTextDelta, Text: s} }
	for _, c := range []struct {
		name   string
		chunks []llm.Chunk
		want   llm.Code
	}{
		{"no finish", []llm.Chunk{text("a")}, llm.CodeStreamClosed},
		{"nothing", []llm.Chunk{finish}, llm.CodeEmptyResponse},
		{"blank", []llm.Chunk{text(" \n"), finish}, llm.CodeEmptyResponse},
		{"only reasoning", []llm.Chunk{{Type: llm.ChunkReasoningDelta, Text: "hm"}, finish}, llm.CodeEmptyResponse},
		{"nothing, for length", []llm.Chunk{{Type: llm.ChunkFinish, Finish: llm.FinishLength}}, ""},
		{"call without a name", []llm.Chunk{{Type: llm.ChunkToolCallDelta, ID: "a"}, finish}, llm.CodeMalformedResponse},
		{"text", []llm.Chunk{text("a"), finish}, ""},
	} {
		var a llm.Assembler
		add(t, &a, c.chunks...)
		r, err := a.Message()
		if code(err) != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if c.want == llm.CodeEmptyResponse && (r.Usage == nil || r.Usage.OutputTokens != 5) {
			t.Errorf("%s: the usage is lost", c.name)
		}
	}
}

// At every place a stream can be cut, what is kept is text, and only text that was said.
func TestPartial(t *testing.T) {
	chunks := answer()
	said := []string{"", "", "", "", "let ", "let ", "let us", "let us", "let us", "let us", "let us", "let us", "let us"}
	for n := range len(chunks) + 1 {
		var a llm.Assembler
		add(t, &a, chunks[:n]...)
		r := a.Partial()
		got := message.Message{Content: r.Content}.PlainText()
		if got != said[n] || len(r.Content) > 1 {
			t.Errorf("after %d chunks: %q, want %q", n, got, said[n])
		}
	}
}

func TestAssembleInvalidText(t *testing.T) {
	var a llm.Assembler
	add(t, &a, llm.Chunk{Type: llm.ChunkTextDelta, Text: "a\xe2\x82"}, llm.Chunk{Type: llm.ChunkTextDelta, Text: "\xac\xff"}, llm.Chunk{Type: llm.ChunkFinish})
	r, err := a.Message()
	if err != nil || r.Content[0].Text != "a€\uFFFD" {
		t.Errorf("%q, %v", r.Content[0].Text, err)
	}
}

var deltas = []llm.ChunkType{llm.ChunkTextDelta, llm.ChunkReasoningDelta, llm.ChunkToolCallDelta}

// Coalescing changes how many chunks there are, never what they say.
func TestCoalesceKeepsTheAnswer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var chunks []llm.Chunk
		ended := map[int]bool{}
		for range rapid.IntRange(0, 40).Draw(rt, "n") {
			index := rapid.IntRange(0, 2).Draw(rt, "index")
			switch {
			case ended[index] || rapid.IntRange(0, 9).Draw(rt, "what") == 0:
				chunks = append(chunks, llm.Chunk{Type: llm.ChunkUsage, Usage: &message.Usage{OutputTokens: 1}})
			default:
				c := llm.Chunk{Type: deltas[index], Index: index}
				text := rapid.StringN(0, 8, 20).Draw(rt, "text")
				if c.Type == llm.ChunkToolCallDelta {
					c.Arguments, c.Name = text, "tool"
					if rapid.Bool().Draw(rt, "later") && len(chunks) > 0 {
						c.Name = ""
					}
				} else {
					c.Text = text
				}
				chunks = append(chunks, c)
			}
		}
		chunks = append(chunks, llm.Chunk{Type: llm.ChunkFinish, Finish: llm.FinishLength})
		most := rapid.IntRange(0, 30).Draw(rt, "most")
		short := llm.Coalesce(chunks, most)
		if len(short) > len(chunks) {
			rt.Fatalf("%d chunks became %d", len(chunks), len(short))
		}
		if again := llm.Coalesce(short, most); len(again) > len(short) {
			rt.Fatalf("a second time made more of them")
		}
		var a, b llm.Assembler
		for _, c := range chunks {
			if err := a.Add(c); err != nil {
				rt.Fatal(err)
			}
		}
		for _, c := range short {
			if err := b.Add(c); err != nil {
				rt.Fatal(err)
			}
		}
		want, werr := a.Message()
		got, gerr := b.Message()
		if diff := cmp.Diff(want, got); diff != "" || code(werr) != code(gerr) {
			rt.Fatalf("(-want +got)\n%s\n%v %v", diff, werr, gerr)
		}
	})
}

func TestCoalesceBySizeAndTime(t *testing.T) {
	now := time.Unix(0, 0)
	k := llm.Coalescer{MaxBytes: 5, MaxAge: time.Second, Now: func() time.Time { return now }}
	text := func(s string) llm.Chunk { return llm.Chunk{Type: llm.ChunkTextDelta, Text: s} }
	if out := k.Add(text("ab")); len(out) != 0 {
		t.Errorf("too early: %v", out)
	}
	if out := k.Add(text("cde")); len(out) != 1 || out[0].Text != "abcde" {
		t.Errorf("by size: %v", out)
	}
	k.Add(text("x"))
	now = now.Add(time.Second)
	if out := k.Add(text("y")); len(out) != 1 || out[0].Text != "xy" {
		t.Errorf("by time: %v", out)
	}
	k.Add(text("z"))
	out := k.Add(llm.Chunk{Type: llm.ChunkBlockEnd, Block: &message.Block{Type: message.Text, Text: "z"}})
	if len(out) != 2 || out[0].Text != "z" || out[1].Block != nil {
		t.Errorf("at the end of the block: %+v", out)
	}
	if out := k.Flush(); len(out) != 0 {
		t.Errorf("flush twice: %v", out)
	}
}

func TestChunkJSON(t *testing.T) {
	in := llm.Chunk{Type: llm.ChunkToolCallDelta, Index: 2, ID: "c", Name: "n", Arguments: "{}"}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(b), `{"type":"tool-call-delta","index":2,"id":"c","name":"n","arguments":"{}"}`; got != want {
		t.Errorf("got %s", got)
	}
	var out llm.Chunk
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Error(diff)
	}
}

// provider is a Provider made of a function.
type provider func(ctx context.Context, yield func(llm.Chunk, error) bool)

func (provider) Name() string { return "p" }
func (p provider) Stream(ctx context.Context, _ llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) { p(ctx, yield) }
}
func (provider) ModelInfo(string) (llm.ModelInfo, bool) {
	return llm.ModelInfo{ContextWindow: 7}, true
}

// hand is a timer that a test moves.
type hand struct{ fire func() }

func (h *hand) after(_ time.Duration, f func()) func() bool {
	h.fire = f
	return func() bool { h.fire = nil; return true }
}

func drain(s iter.Seq2[llm.Chunk, error], each func()) (n int, err error) {
	for _, e := range s {
		if e != nil {
			return n, e
		}
		n++
		if each != nil {
			each()
		}
	}
	return n, nil
}

func TestWatch(t *testing.T) {
	text, finish := llm.Chunk{Type: llm.ChunkTextDelta, Text: "a"}, llm.Chunk{Type: llm.ChunkFinish}
	h := &hand{}
	for _, c := range []struct {
		name string
		p    provider
		n    int
		want llm.Code
	}{
		{"in time", func(_ context.Context, y func(llm.Chunk, error) bool) { _ = y(text, nil) && y(finish, nil) }, 2, ""},
		{"silent from the start", func(ctx context.Context, y func(llm.Chunk, error) bool) {
			h.fire()
			<-ctx.Done()
			y(llm.Chunk{}, fmt.Errorf("read: %w", ctx.Err()))
		}, 0, llm.CodeTimeout},
		{"silent later, without a word", func(ctx context.Context, y func(llm.Chunk, error) bool) {
			y(text, nil)
			h.fire()
			<-ctx.Done()
		}, 1, llm.CodeTimeout},
		{"no finish", func(_ context.Context, y func(llm.Chunk, error) bool) { y(text, nil) }, 1, llm.CodeStreamClosed},
		{"error without a type", func(_ context.Context, y func(llm.Chunk, error) bool) { y(llm.Chunk{}, io.ErrUnexpectedEOF) }, 0, llm.CodeTransport},
		{"error with a type", func(_ context.Context, y func(llm.Chunk, error) bool) {
			y(llm.Chunk{}, &llm.Error{Code: llm.CodeQuota})
		}, 0, llm.CodeQuota},
	} {
		w := llm.Watch(c.p, time.Minute, h.after)
		n, err := drain(w.Stream(t.Context(), llm.Request{}), func() {
			if h.fire != nil {
				t.Errorf("%s: the clock runs while the reader works", c.name)
			}
		})
		if n != c.n || code(err) != c.want {
			t.Errorf("%s: %d chunks, %v; want %d, %s", c.name, n, err, c.n, c.want)
		}
		if h.fire != nil {
			t.Errorf("%s: the timer was left running", c.name)
		}
	}
}

func TestWatchCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := &hand{}
	w := llm.Watch(provider(func(ctx context.Context, y func(llm.Chunk, error) bool) {
		cancel()
		<-ctx.Done()
		y(llm.Chunk{}, errors.New("connection closed"))
	}), time.Minute, h.after)
	if _, err := drain(w.Stream(ctx, llm.Request{}), nil); code(err) != llm.CodeAborted {
		t.Error(err)
	}
}

func TestWatchWithoutLimit(t *testing.T) {
	w := llm.Watch(provider(func(_ context.Context, y func(llm.Chunk, error) bool) {
		y(llm.Chunk{Type: llm.ChunkFinish}, nil)
	}), 0, nil)
	if n, err := drain(w.Stream(t.Context(), llm.Request{}), nil); n != 1 || err != nil {
		t.Errorf("%d chunks, %v", n, err)
	}
}

func TestFind(t *testing.T) {
	w := llm.Watch(llm.Watch(provider(nil), 0, nil), 0, nil)
	if c, ok := llm.Find[llm.Catalog](w); !ok {
		t.Error("a capability of a wrapped provider was not found")
	} else if info, _ := c.ModelInfo("m"); info.ContextWindow != 7 {
		t.Errorf("got %+v", info)
	}
	if _, ok := llm.Find[llm.Encoder](w); ok {
		t.Error("found what is not there")
	}
}

func TestErrors(t *testing.T) {
	deadline, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want llm.Code
	}{
		{t.Context(), nil, ""},
		{t.Context(), fmt.Errorf("x: %w", llm.Errorf(llm.CodeAuth, "no")), llm.CodeAuth},
		{t.Context(), context.DeadlineExceeded, llm.CodeTimeout},
		{deadline, io.EOF, llm.CodeTimeout},
	} {
		if got := llm.AsError(c.ctx, c.err); got == nil && c.want != "" || got != nil && got.Code != c.want {
			t.Errorf("%v: %v, want %s", c.err, got, c.want)
		}
	}
	e := llm.AsError(t.Context(), errors.New("Get https://x/?key=sk-secret: reset"))
	if strings.Contains(e.Error(), "secret") {
		t.Errorf("a foreign error is printed: %v", e)
	}
	if got := llm.Redact("bad key sk-secret!", "sk-secret", ""); got != "bad key [redacted]!" {
		t.Errorf("got %q", got)
	}
	if got := (&llm.Error{Code: llm.CodeRateLimit, Status: 429, Message: "slow down"}).Error(); got != "model: RATE_LIMIT (HTTP 429): slow down" {
		t.Errorf("got %q", got)
	}
	for _, c := range []llm.Code{llm.CodeRateLimit, llm.CodeServer, llm.CodeTimeout, llm.CodeTransport, llm.CodeStreamClosed, llm.CodeEmptyResponse} {
		if !c.Retryable() || !c.Known() {
			t.Errorf("%s: retryable %v, known %v", c, c.Retryable(), c.Known())
		}
	}
	for _, c := range []llm.Code{llm.CodeAuth, llm.CodeInvalidRequest, llm.CodeContextWindow, llm.CodeAborted, llm.CodeQuota} {
		if c.Retryable() {
			t.Errorf("%s is retryable", c)
		}
	}
	for status, want := range map[int]llm.Code{401: llm.CodeAuth, 402: llm.CodeQuota, 400: llm.CodeInvalidRequest, 429: llm.CodeRateLimit, 503: llm.CodeServer, 529: llm.CodeServer} {
		if got := llm.CodeForStatus(status); got != want {
			t.Errorf("%d: %s", status, got)
		}
	}
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "x": 0, "3": 3 * time.Second, " 0.5 ": 500 * time.Millisecond, "-1": 0, "NaN": 0, "1e300": 1e6 * time.Second,
		"Fri, 02 Jan 2026 03:04:15 GMT": 10 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		if got := llm.ParseRetryAfter(in, now); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}
