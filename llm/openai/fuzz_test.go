package openai_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/openai"
)

// answering is a connection on which every answer is the same.
type answering string

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(a)))}, nil
}

// Whatever a service sends: chunks that fit each other, valid text, and one end.
func FuzzAnswer(f *testing.F) {
	f.Add(sse(delta(`{"content":"a","reasoning":"b"}`), delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}`), finish(calls), done))
	f.Add(sse(delta(`{"reasoning_details":[{"type":"reasoning.text","text":"h","index":0},{"text":1}]}`), `{"error":{"code":429}}`))
	f.Add(`{"choices":[{"message":{"content":[{"type":"text","text":"\ud800"}]}}],"usage":{"prompt_tokens":1e9,"prompt_cache_hit_tokens":-1}}`)
	f.Add(sse(delta("{\"tool_calls\":[{\"function\":{\"name\":\"x\",\"arguments\":{\"a\":\"\xff\"}}}]}")))
	f.Fuzz(func(t *testing.T, body string) {
		p, err := openai.New(openai.Options{Name: "p", BaseURL: "http://h", Client: &http.Client{Transport: answering(body)}, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		var a llm.Assembler
		ends := 0
		for c, err := range p.Stream(t.Context(), request()) {
			if ends > 0 {
				t.Fatal("it goes on after its end")
			}
			if err != nil {
				ends++
				continue
			}
			if err := a.Add(c); err != nil {
				t.Fatal(err)
			}
			for _, s := range []string{c.Text, c.Arguments, c.ID, c.Name, c.ResponseID} {
				if !utf8.ValidString(s) {
					t.Fatalf("%s: %q is not valid text", c.Type, s)
				}
			}
			if u := c.Usage; u != nil && (u.InputTokens < 0 || u.OutputTokens < 0 || u.CacheReadTokens != nil && *u.CacheReadTokens < 0) {
				t.Fatalf("counts below zero: %+v", u)
			}
			if len(c.ReplayState) > 0 && !c.ReplayState.IsValid() {
				t.Fatalf("replay state %q", c.ReplayState)
			}
			if c.Type == llm.ChunkFinish {
				ends++
			}
		}
		if ends != 1 {
			t.Fatalf("%d ends", ends)
		}
	})
}
