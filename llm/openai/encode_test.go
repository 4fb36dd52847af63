package openai_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/openai"
	"github.com/strandline-dev/strandline/message"
)

var update = flag.Bool("update", false, "write the golden files")

const blobName = "sha256-abc"

func blobs(name string) ([]byte, error) {
	if name != blobName {
		return nil, errors.New("no such blob")
	}
	return []byte("\x89PNG"), nil
}

func encoding(t testing.TB, d openai.Dialect) openai.Encoding {
	t.Helper()
	e, err := openai.NewEncoding(d, blobs)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// conversation is what the view of a recorded session yields, in the order in which it grew. The model's
// own messages are those of this provider: the view takes the reasoning of others out.
func conversation() []message.Message {
	from := message.Source{Kind: message.SourceModel, Provider: "p", Model: "m"}
	signed := from
	signed.ReplayState = []byte(`{"reasoning_details":[{"type":"reasoning.text","text":"Two files.","signature":"sig"}]}`)
	long := "toolu_" + strings.Repeat("x", 60)
	assistant := func(s message.Source, blocks ...message.Block) message.Message {
		return message.Message{ID: "a", Role: message.RoleAssistant, Source: s, Content: blocks}
	}
	think := func(s string) message.Block { return message.Block{Type: message.Reasoning, Text: s} }
	image := message.Block{Type: message.Image, Blob: blobName, MediaType: "image/png"}
	return []message.Message{
		{ID: "c", Role: message.RoleUser, Source: message.Source{Kind: message.SourcePlugin, Plugin: "agents.md"}, Content: []message.Block{message.TextBlock("Rules of the project:"), message.TextBlock("be <brief> & \"kind\"\n")}},
		message.User("u1", "What is in these files? \u2028 ünï"),
		assistant(signed, think("Two files."), message.TextBlock("I look."), message.CallBlock("call_1", "read", `{"path": "a.txt"}`), message.CallBlock("call_2", "read", `{"path":"b.png"}`)),
		message.Result("r1", "call_1", false, message.TextBlock("text of a"), message.TextBlock("and more")),
		message.Result("r2", "call_2", false, image),
		assistant(from, message.CallBlock("call_3", "mcp.files/list", `{"path":`), message.CallBlock(long, "ls", "")),
		message.Result("r3", "call_3", true, message.TextBlock("INVALID_ARGS: unexpected end")),
		message.Result("r4", long, false),
		assistant(from, think("Done."), message.TextBlock("A text and a picture.")),
		{ID: "u2", Role: message.RoleUser, Source: message.Source{Kind: message.SourceUser}, Content: []message.Block{message.TextBlock("and this?"), {Type: message.Image, URL: "data:image/gif;base64,R0lG"}, {Type: message.Image, URL: "https://example.org/x.png"}}},
		assistant(message.Source{Kind: message.SourceModel, Provider: "other"}, message.TextBlock("A dot.")),
		message.User("u3", "thanks"),
	}
}

func full(messages []message.Message) llm.Request {
	temperature := 0.25
	return llm.Request{
		Model: "m", System: "You are a tool.", MaxOutputTokens: 1000, Temperature: &temperature, Reasoning: "high", Messages: messages,
		Tools: []llm.ToolSpec{
			{Name: "read", Description: "reads <a file>", Parameters: jsontext.Value(`{ "type": "object", "properties": {"path": {"type": "string"}} }`)},
			{Name: "ls"},
		},
	}
}

func TestGoldenBodies(t *testing.T) {
	for _, d := range openai.Dialects() {
		got, err := encoding(t, d).Encode(full(conversation()))
		if err != nil {
			t.Fatal(err)
		}
		if !jsontext.Value(got).IsValid() {
			t.Errorf("%s: not JSON: %s", d, got)
		}
		file := filepath.Join("testdata", strings.ReplaceAll(string(d), ".", "")+".json")
		if *update {
			if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(append(got, '\n'), want) {
			t.Errorf("%s: the body is not that of %s: old sessions cannot be checked any more; give the encoding another number\n%s", d, file, got)
		}
	}
}

// A request shares everything with the one before it but its end.
func TestPrefixes(t *testing.T) {
	all := conversation()
	steps := []int{2, 5, 8, 10, 12} // where a model is asked
	for _, d := range openai.Dialects() {
		var last []byte
		for _, n := range steps {
			body, err := encoding(t, d).Encode(full(all[:n]))
			if err != nil {
				t.Fatal(err)
			}
			if shared := strings.TrimSuffix(string(last), "]}"); !strings.HasPrefix(string(body), shared) {
				t.Errorf("%s: the request of %d messages does not begin with the one before it", d, n)
			}
			last = body
		}
	}
}

// Whatever a view holds, the body is JSON, the same each time, and grows at its end.
func TestEncodeAnything(t *testing.T) {
	block := func(rt *rapid.T) message.Block {
		text := rapid.StringMatching(`[a-z"\\<\x{0}-\x{1f}é\x{10000}]{0,6}`)
		return rapid.OneOf(
			rapid.Map(text, message.TextBlock),
			rapid.Map(text, func(s string) message.Block { return message.Block{Type: message.Reasoning, Text: s} }),
			rapid.Map(text, func(s string) message.Block { return message.CallBlock(s, s, s) }),
			rapid.Map(text, func(s string) message.Block {
				return message.ResultBlock(s, false, message.TextBlock(s), message.Block{Type: message.Image, URL: s})
			}),
			rapid.Map(text, func(s string) message.Block { return message.Block{Type: message.Image, URL: s} }),
			rapid.Just(message.Block{Type: "later/kind"}),
		).Draw(rt, "block")
	}
	rapid.Check(t, func(rt *rapid.T) {
		e := encoding(t, rapid.SampledFrom(openai.Dialects()).Draw(rt, "dialect"))
		var ms []message.Message
		for range rapid.IntRange(0, 6).Draw(rt, "n") {
			m := message.Message{Role: rapid.SampledFrom([]message.Role{message.RoleUser, message.RoleAssistant}).Draw(rt, "role")}
			for range rapid.IntRange(0, 3).Draw(rt, "blocks") {
				m.Content = append(m.Content, block(rt))
			}
			ms = append(ms, m)
		}
		body, err := e.Encode(llm.Request{Model: "m", Messages: ms})
		if err != nil {
			rt.Fatal(err)
		}
		var in struct {
			Messages []struct {
				Calls []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
		if err := json.Unmarshal(body, &in); err != nil {
			rt.Fatalf("%v in %s", err, body)
		}
		for _, m := range in.Messages {
			for _, c := range m.Calls {
				if v := jsontext.Value(c.Function.Arguments); !v.IsValid() || v.Kind() != '{' || c.Function.Name == "" {
					rt.Fatalf("a call that services refuse: %+v", c)
				}
			}
		}
		if again, _ := e.Encode(llm.Request{Model: "m", Messages: ms}); !bytes.Equal(body, again) {
			rt.Fatal("not the same twice")
		}
		more, _ := e.Encode(llm.Request{Model: "m", Messages: append(ms[:len(ms):len(ms)], message.User("u", "x"))})
		if !bytes.HasPrefix(more, bytes.TrimSuffix(body, []byte("]}"))) {
			rt.Fatalf("%s\n%s", body, more)
		}
	})
}

func TestEncodeImages(t *testing.T) {
	req := llm.Request{Model: "m", Messages: []message.Message{{Role: message.RoleUser, Content: []message.Block{{Type: message.Image, Blob: "gone", MediaType: "image/png"}}}}}
	if _, err := encoding(t, openai.Generic).Encode(req); code(err) != llm.CodeInvalidRequest {
		t.Errorf("a blob that is gone: %v", err)
	}
	none, err := openai.NewEncoding(openai.Generic, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Encode(req); code(err) != llm.CodeInvalidRequest {
		t.Errorf("a store without blobs: %v", err)
	}
}

func TestEncodingNames(t *testing.T) {
	for _, d := range openai.Dialects() {
		e, ok := openai.EncodingNamed(encoding(t, d).EncodingName(), blobs)
		if !ok {
			t.Fatalf("%s: not found by its name", d)
		}
		a, _ := e.Encode(full(conversation()))
		b, _ := encoding(t, d).Encode(full(conversation()))
		if !bytes.Equal(a, b) {
			t.Errorf("%s: another encoding", d)
		}
	}
	for _, name := range []string{"", "openai-chat/2/openai", "openai-chat/1/klingon", "script/1"} {
		if _, ok := openai.EncodingNamed(name, nil); ok {
			t.Errorf("%q is known", name)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	var ms []message.Message
	for i := range 1000 {
		id := fmt.Sprint("call_", i)
		ms = append(ms, message.Message{Role: message.RoleAssistant, Content: []message.Block{message.CallBlock(id, "read", `{"path":"a.txt"}`)}},
			message.Result("r", id, false, message.TextBlock(strings.Repeat("a line of text\n", 100))))
	}
	e := encoding(b, openai.OpenAI)
	for b.Loop() {
		body, err := e.Encode(llm.Request{Model: "m", Messages: ms})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(body)))
	}
}
