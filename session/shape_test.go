package session

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/message"
)

// verdicts says what decoding says of data of each core type, and what its form says.
var verdicts = map[string]func(jsontext.Value) (decoding, held error){
	TypeTurnStart: verdict[TurnStart], TypeTurnEnd: verdict[TurnEnd], TypeStepStart: verdict[StepRef],
	TypeUserMessage: verdict[message.Message], TypeAssistantMessage: verdict[AssistantMessage], TypeToolCall: verdict[ToolCall],
	TypeToolResult: verdict[ToolResult], TypeInboxSpliced: verdict[InboxSpliced], TypeRequestHeader: verdict[RequestHeader],
	TypeRequestContext: verdict[RequestContext], TypeTodoWrite: verdict[TodoWrite], TypeTitle: verdict[Title],
	TypeSettings: verdict[Settings], TypeLost: verdict[Lost], TypeHide: verdict[Hide], TypeApprovalAsked: verdict[ApprovalAsked],
	TypeApprovalDecided: verdict[ApprovalDecided], TypeApprovalPolicy: verdict[ApprovalPolicy],
}

func verdict[T any](v jsontext.Value) (decoding, held error) {
	var t T
	return json.Unmarshal(v, &t), formOf(reflect.TypeFor[T](), map[reflect.Type]*form{}).fits(v)
}

// agree holds the forms to decoding: what one takes the other takes. What both take, and the kind's check takes, the rest
// of the program decodes without an error.
func agree(t interface{ Fatalf(string, ...any) }, data []byte) {
	v, err := CheckData(data)
	if err != nil {
		return
	}
	for typ, of := range verdicts {
		want, got := of(v)
		if (want == nil) != (got == nil) {
			t.Fatalf("%s: %s: decoding says %v, the form %v", typ, v, want, got)
		}
		if k, _ := Core().Lookup(typ); got != nil && k.Check(v) == nil {
			t.Fatalf("%s: %s: the check takes what has not the form: %v", typ, v, got)
		}
	}
}

var shaped = []string{
	`{}`, `{"turn":1}`, `{"turn":null,"step":2}`, `{"turn":1.0}`, `{"turn":-0}`, `{"turn":1e2}`, `{"turn":"1"}`, `{"turn":true}`,
	`{"turn":1,"reason":{"kind":"error","error":{"status":500,"name":null}}}`, `{"turn":1,"reason":"error"}`,
	`{"id":"u","role":"user","content":[{"type":"text","text":"a\"b"}],"source":{"kind":"user","replayState":[1,{}],"x":1},"more":[{}]}`,
	`{"role":"user","content":{"type":"text"}}`, `{"role":"user","content":[null,{"content":[{"content":[{"text":1}]}]}]}`,
	`{"r\u006fle":7}`, `{"\u0072ole":"user"}`, `{"Role":7,"content":[]}`, `{"role\"":7}`,
	`{"turn":1,"step":1,"message":{"role":"assistant","content":[]},"usage":{"inputTokens":1,"cacheReadTokens":null,"outputTokens":"2"}}`,
	`{"turn":1,"step":1,"message":{"role":"user","content":[{"type":"tool-result","toolCallId":"c","isError":1}]},"meta":7}`,
	`{"target":"next-turn","start":0,"inserted":[{"role":"user","content":[]}],"outcome":"claimed"}`, `{"inserted":[[]]}`,
	`{"todos":[{"content":"x","status":"y"},{"content":["z"]}]}`, `{"rules":[{"tool":"a","action":{}}],"other":1}`,
	`{"askId":"a","assistant":5,"index":null}`, `{"askId":"a","assistant":[5]}`, `{"header":{"config":7,"system":"s","tools":[]},"reason":"r"}`,
	`{"title":"t","source":["user"]}`, `{"offset":9007199254740991,"bytes":-1}`, `{"contextWindow":{},"provider":"p"}`,
}

func TestFormsAgreeWithDecoding(t *testing.T) {
	for _, s := range shaped {
		agree(t, []byte(s))
	}
}

// Every value of a well-formed text is replaced by every other kind of value.
func TestFormsOfChangedData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := jsontext.Value(rapid.SampledFrom(shaped).Draw(t, "data"))
		var places [][2]int
		for i := range v {
			if i > 0 && (v[i-1] == ':' || v[i-1] == '[' || v[i-1] == ',') {
				if n := valueLen(v[i:]); n > 0 {
					places = append(places, [2]int{i, i + n})
				}
			}
		}
		if len(places) == 0 {
			return
		}
		p := rapid.SampledFrom(places).Draw(t, "place")
		with := rapid.SampledFrom([]string{`null`, `true`, `1`, `-3`, `1.5`, `2E1`, `"s"`, `""`, `[]`, `[null]`, `[1]`, `["s"]`, `[{}]`, `{}`, `{"role":1}`, `{"a":{}}`}).Draw(t, "with")
		agree(t, []byte(string(v[:p[0]])+with+string(v[p[1]:])))
	})
}

func FuzzForms(f *testing.F) {
	for _, s := range shaped {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, data) })
}

// What is looked at is not decoded: to hold an event to its type makes nothing, and to accept one makes its data alone. The room
// of the log grows by leaps.
func TestAcceptMakesTheDataAlone(t *testing.T) {
	reg := Core()
	for _, d := range shaped {
		v, err := CheckData([]byte(d))
		if err != nil || strings.Contains(d, `\`) { // to compare a name it has to be decoded
			continue
		}
		for _, k := range reg.Kinds() {
			if k.Check == nil || k.Check(v) != nil {
				continue
			}
			if n := testing.AllocsPerRun(100, func() { _ = k.Check(v) }); n > 0 {
				t.Errorf("%s: a check of %s makes %v values", k.Type, d, n)
			}
		}
	}
	s, err := New(Header{ID: "abcd"}, Seed{}, Env{Now: func() int64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	d := Draft{Type: TypeAssistantChunk, Data: []byte(`{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"some words"}}`)}
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := s.Append(d); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("to accept a chunk makes %v values, want 1", n)
	}
}
