package sessiontest

import (
	"fmt"
	"strings"

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

// Pick draws a number from 0 to n-1.
type Pick func(n int) int

// Drawn picks by rapid.
func Drawn(t *rapid.T) Pick {
	return func(n int) int { return int(rapid.Uint64().Draw(t, "pick") % uint64(n)) }
}

// Bytes picks by the bytes of a fuzz input; when they are used up it always picks 0.
func Bytes(data []byte) Pick {
	return func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := int(data[0])
		data = data[1:]
		return b % n
	}
}

// Seed adds inputs from which Bytes picks whole logs.
func Seed(f interface{ Add(args ...any) }) {
	x := uint64(1)
	for n := range 24 {
		b := make([]byte, 32<<(n%4))
		for i := range b {
			x = x*6364136223846793005 + 1442695040888963407
			b[i] = byte(x >> 56)
		}
		f.Add(b)
	}
}

// Garbage returns a log of n events that breaks every rule but those that a record keeps: seqs are
// contiguous, data is a compact JSON object that CheckData accepts.
func Garbage(pick Pick, n int) session.Events {
	seq := func(below int) session.Seq { return session.Seq(pick(below+3) - 1) }
	out := make(session.Events, 0, n)
	for i := range n {
		ev := session.Event{Seq: session.Seq(i), Time: int64(pick(10) - 5), Type: types[pick(len(types))]}
		switch pick(10) {
		case 0, 1, 2, 3, 4, 5:
			ev.Op = session.Append()
		case 6, 7:
			ev.Op = session.Replace(seq(i), seq(i))
		case 8:
			ev.Op = session.Restore(seq(i))
		}
		for range pick(3) {
			ev.Sources = append(ev.Sources, session.Span{First: seq(i), Last: seq(i)})
		}
		ev.Ignorable = pick(4) == 0
		text := fragments[pick(len(fragments))]
		var args []any
		for range strings.Count(text, "%d") {
			args = append(args, pick(4))
		}
		data, err := session.CheckData([]byte(fmt.Sprintf(text, args...)))
		if err != nil {
			panic(fmt.Sprintf("%s: %v", text, err))
		}
		ev.Data = data
		out = append(out, ev)
	}
	return out
}
