package agent_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
)

// Nonsense beside an answer does not cost the answer.
func TestNonsenseBesideAnAnswer(t *testing.T) {
	huge, below := int64(1)<<62, int64(-3)
	for name, finish := range map[string]llm.Chunk{
		"counts beyond the log's integers": {Usage: &message.Usage{InputTokens: huge, OutputTokens: huge, CacheReadTokens: &huge}},
		"counts below zero":                {Usage: &message.Usage{InputTokens: below, OutputTokens: below, ReasoningTokens: &below}},
		"usage with a duplicate name":      {Usage: &message.Usage{Extra: jsontext.Value(`{"a":1,"a":2}`)}},
		"usage with a huge integer":        {Usage: &message.Usage{Extra: jsontext.Value(`{"a":9223372036854775807}`)}},
		"replay state that is not JSON":    {ReplayState: jsontext.Value(`{"a":`)},
		"replay state with a surrogate":    {ReplayState: jsontext.Value(`"\ud800"`)},
		"an id that is not UTF-8":          {ResponseID: "r\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, nil, func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
				finish.Type, finish.Finish = llm.ChunkFinish, llm.FinishStop
				_ = emit(yield, message.TextBlock("fine")) && yield(finish, nil)
			})
			a := w.create("s-1111")
			w.say(a, "hi")
			has(t, a.Session(), "assistant/message fine", "turn/end completed")
			if u, _ := a.Session().State().Usage(); u != nil && (u.InputTokens != 0 || u.OutputTokens != 0 || u.CacheReadTokens != nil) {
				t.Errorf("usage %+v", u)
			}
		})
	}
}

// An answer that no record can hold is the model's failure, not the loop's, and is told in those words.
func TestAnswerThatCannotBeStored(t *testing.T) {
	many := slices.Repeat([]message.Block{message.CallBlock("", "nope", `{"a":"`+strings.Repeat("x", 2000)+`"}`)}, 600)
	w := newWorld(t, nil, nil, calls(many...), says("fine"))
	a := w.create("s-1111")
	if _, err := a.Followup(w.ctx, agent.Text("hi")); err != nil {
		t.Fatal(err)
	}
	w.idle(a)
	end := a.Status().LastEnd
	if end == nil || end.Reason.Error == nil || end.Reason.Error.Code != string(llm.CodeMalformedResponse) || !strings.Contains(end.Reason.Error.Message, "600 calls") {
		t.Fatalf("it ended with %+v", end)
	}
	w.say(a, "again")
	has(t, a.Session(), "assistant/message fine", "turn/end completed")
}

// A service that never stops talking is stopped, and the session goes on.
func TestAnswerWithoutEnd(t *testing.T) {
	said := 0
	w := newWorld(t, nil, nil, func(_ context.Context, _ llm.Request, yield func(llm.Chunk, error) bool) {
		text := strings.Repeat("again and ", 100_000)
		for said < 1<<30 && yield(llm.Chunk{Type: llm.ChunkTextDelta, Text: text}, nil) {
			said += len(text)
		}
	}, says("fine"))
	a := w.create("s-1111")
	if _, err := a.Followup(w.ctx, agent.Text("hi")); err != nil {
		t.Fatal(err)
	}
	w.idle(a)
	end := a.Status().LastEnd
	if end == nil || end.Reason.Error == nil || end.Reason.Error.Code != string(llm.CodeMalformedResponse) || said > 80<<20 {
		t.Fatalf("after %d bytes it ended with %+v", said, end)
	}
	w.say(a, "again")
	has(t, a.Session(), "assistant/message fine", "turn/end completed")
}
