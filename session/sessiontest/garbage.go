package sessiontest

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/session"
)

// types that garbage is made of.
var types = []string{
	session.TypeTurnStart, session.TypeTurnEnd, session.TypeStepStart, session.TypeStepEnd, session.TypeUserMessage,
	session.TypeAssistantMessage, session.TypeAssistantMessage, session.TypeToolCall, session.TypeToolResult, session.TypeToolResult,
	session.TypeInboxSpliced, session.TypeTitle, session.TypeInherited, session.TypeLost, session.TypeHide, session.TypeRestore,
	session.TypeApprovalAsked, session.TypeApprovalDecided, session.TypeSettings, "squash/start", "squash/end", "no/such",
}

// fragments that garbage data is made of; %d is a small number. They are near to what is expected: a number
// off, a member short, a wrong kind, a name written with escapes.
var fragments = []string{
	`{}`,
	`{"turn":%d}`,
	`{"turn":%d,"step":%d}`,
	`{"turn":"%d","step":null}`,
	`{"turn":%d,"reason":{"kind":"interrupted"}}`,
	`{"id":"m%d","role":"user","content":[{"type":"text","text":"t%d"}],"source":{"kind":"user"}}`,
	`{"id":"m%d","role":"system","content":[{"type":"text","text":""},{"type":"image"},{"type":"hologram","z":1},{"type":"tool-call","id":"c%d","name":"n","arguments":""}]}`,
	`{"id":"m%d","role":"user","content":[{"type":"text","text":"nul \u0000"},{"type":"text","text":%d}]}`,
	`{"turn":%d,"step":%d,"message":{"role":"assistant","content":[{"type":"tool-call","id":"c%d","name":"n","arguments":"{}"},{"type":"tool-call","id":"c%d","name":"","arguments":"{"}],"source":{"kind":"model","provider":"acme"}}}`,
	`{"turn":%d,"step":%d,"message":{"role":"assistant","content":[{"type":"tool\u002dcall","i\u0064":"c%d","name":"n"},{"type":"reasoning","text":"r","signature":"s"}],"source":{"kind":"model","provider":"other","replayState":{"a":1}}}}`,
	`{"turn":%d,"step":%d,"message":{"role":"assistant","content":[{"type":"tool-call","id":"","name":"n","arguments":"{}"},{"type":"tool-call","id":"c%d","name":5}]}}`,
	`{"turn":%d,"step":%d,"message":{"role":"assistant","content":[{"type":"tool-call","id":"","name":"n","arguments":"{}"},{"type":"tool-call","id":"c\u0000","name":"x"},{"type":"tool-result","toolCallId":"c%d"}]},"usage":{"inputTokens":%d,"outputTokens":1}}`,
	`{"turn":%d,"step":%d,"message":{"role":"user","content":"x"},"usage":[]}`,
	`{"turn":%d,"step":%d,"callId":"c%d","name":"n","arguments":"{}"}`,
	`{"turn":%d,"step":%d,"message":{"id":"r","role":"user","content":[{"type":"tool-result","toolCallId":"c%d","content":[{"type":"text","text":"ok"}]}],"source":{"kind":"tool"}}}`,
	`{"turn":%d,"step":%d,"message":{"id":"r","role":"user","content":[{"type":"text","text":"x"},{"type":"tool-result","toolCallId":"c%d","content":[{"type":"tool-result","toolCallId":"c1"},{"type":"image","blob":"b","mediaType":"image/bmp"}]}]}}`,
	`{"turn":%d,"step":%d,"message":{"id":"result-1-1-%d-%d","role":"user","content":[{"type":"tool-result","toolCallId":"c1","isError":true}]},"error":{"code":"TOOL_NOT_STARTED"}}`,
	`{"turn":%d,"step":%d,"message":{"id":"r","role":"user","content":[{"type":"tool-result","toolCallId":""}]},"error":7}`,
	`{"askId":"q%d","turn":%d,"step":%d,"callId":"c%d","name":"n"}`,
	`{"askId":"q%d","verdict":"allow"}`,
	`{"target":"next-turn","start":%d,"removedCount":%d,"inserted":[{"id":"m%d","role":"user","content":[]}]}`,
	`{"target":"next-step","start":-%d,"removedCount":99,"inserted":null}`,
	`{"title":%d}`,
	`{"reason":"undo","turn":%d}`,
}

// Garbage returns a log of n events that breaks every rule but those that a record keeps: seqs are
// contiguous, data is a compact JSON object that CheckData accepts.
func Garbage(t *rapid.T, n int) session.Events {
	small := rapid.IntRange(0, 3)
	seq := func(below int) session.Seq { return session.Seq(rapid.IntRange(-1, below+1).Draw(t, "seq")) }
	out := make(session.Events, 0, n)
	for i := range n {
		ev := session.Event{Seq: session.Seq(i), Time: int64(rapid.IntRange(-5, 5).Draw(t, "time")), Type: rapid.SampledFrom(types).Draw(t, "type")}
		switch rapid.IntRange(0, 9).Draw(t, "op") {
		case 0, 1, 2, 3, 4, 5:
			ev.Op = session.Append()
		case 6, 7:
			ev.Op = session.Replace(seq(i), seq(i))
		case 8:
			ev.Op = session.Restore(seq(i))
		}
		for range rapid.IntRange(0, 2).Draw(t, "sources") {
			ev.Sources = append(ev.Sources, session.Span{First: seq(i), Last: seq(i)})
		}
		ev.Ignorable = rapid.IntRange(0, 3).Draw(t, "ignorable") == 0
		text := rapid.SampledFrom(fragments).Draw(t, "data")
		var args []any
		for j := 0; j+1 < len(text); j++ {
			if text[j] == '%' {
				args = append(args, small.Draw(t, "n"))
			}
		}
		data, err := session.CheckData([]byte(fmt.Sprintf(text, args...)))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		ev.Data = jsontext.Value(data)
		out = append(out, ev)
	}
	return out
}
