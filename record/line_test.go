package record

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/session"
	"pgregory.net/rapid"
)

type golden struct {
	ev     session.Event
	synced session.Seq
	line   string // without the LF
}

// The lines are the format and never change. goldenChains were computed by an independent
// implementation (Python's hashlib and a bitwise CRC).
var goldens = []golden{
	{session.Event{Seq: 0, Time: 1700000000000, Type: "turn/start", Data: jsontext.Value(`{"turn":0}`)}, session.None,
		`{"seq":0,"time":1700000000000,"type":"turn/start","data":{"turn":0},"chain":"@0"}`},
	{session.Event{Seq: 1, Time: -5, Type: "user/message", Op: session.Append(), Data: jsontext.Value(`{"id":"m\u00e4","n":1e400,"s":"a\"}{\\"}`)}, 0,
		`{"seq":1,"time":-5,"type":"user/message","surfaceOp":"append","data":{"id":"m\u00e4","n":1e400,"s":"a\"}{\\"},"synced":0,"chain":"@1"}`},
	{session.Event{Seq: 2, Time: 0, Type: "x/y", Op: session.Replace(0, 1), Sources: session.Sources{{First: 0, Last: 0}, {First: 1, Last: 1}}, Data: jsontext.Value(`{}`)}, session.None,
		`{"seq":2,"time":0,"type":"x/y","surfaceOp":{"op":"replace","start":0,"end":1},"sourceEventSeqs":[0,1],"data":{},"chain":"@2"}`},
	{session.Event{Seq: 3, Time: 9007199254740991, Type: "x/y", Op: session.Restore(2), Sources: session.Sources{}, Ignorable: true, Data: jsontext.Value(`{"a":{"b":{}}}`)}, 2,
		`{"seq":3,"time":9007199254740991,"type":"x/y","surfaceOp":{"op":"restore","node":2},"sourceEventSeqs":[],"ignorable":true,"data":{"a":{"b":{}}},"synced":2,"chain":"@3"}`},
	{session.Event{Seq: 4, Time: 1, Type: "later/type", Sources: session.Sources{{First: 0, Last: 2}, {First: 3, Last: 3}}, Extra: []byte(`"hint":{"a":[1,"}"]},"n":null`), Data: jsontext.Value(`{"u":"` + "\u2028" + `"}`)}, session.None,
		`{"seq":4,"time":1,"type":"later/type","sourceEventSeqs":[[0,2],3],"hint":{"a":[1,"}"]},"n":null,"data":{"u":"` + "\u2028" + `"},"chain":"@4"}`},
}

var goldenChains = []string{
	"9z7-WS9g-N9d27MU5-jljg",
	"ycTXyYoOLiXAs4TojUOabQ",
	"SKHIHuLSlLizKBY8EcJ2OQ",
	"lo748JE2LhC0qcOuHbLBqw",
	"ky7_sx0F0NlHkH7RWVbTnw",
}

func (g golden) want(i int) string {
	return strings.Replace(g.line, fmt.Sprintf("@%d", i), goldenChains[i], 1) + "\n"
}

func TestGolden(t *testing.T) {
	var link session.Link
	for i, g := range goldens {
		if err := Check(g.ev); err != nil {
			t.Fatal(err)
		}
		var line []byte
		prev := link
		line, link = Append([]byte("before"), g.ev, prev, g.synced)
		if diff := cmp.Diff("before"+g.want(i), string(line)); diff != "" {
			t.Errorf("line %d (-want +got)\n%s", i, diff)
		}
		raw, err := Parse(line[len("before") : len(line)-1])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(g.ev, raw.Event()); diff != "" {
			t.Errorf("event %d (-want +got)\n%s", i, diff)
		}
		if raw.Synced != g.synced {
			t.Errorf("synced %d, want %d", raw.Synced, g.synced)
		}
		if got, ok := raw.CheckLink(prev); !ok || got != link {
			t.Errorf("link of %d: %s, want %s", i, got, link)
		}
		if got, ok := raw.Link(); !ok || got != link {
			t.Errorf("stored link of %d: %s, want %s", i, got, link)
		}
		if err := raw.Valid(); err != nil {
			t.Error(err)
		}
	}
}

// seal makes a line of everything before the chain: the sum is right, the link is not.
func seal(s string) []byte {
	sum := sumText([]byte(s))
	return []byte(s + kChain + strings.Repeat("A", linkLen) + string(sum[:]) + `"}`)
}

func TestParseStrict(t *testing.T) {
	const ok = `{"seq":5,"time":1,"type":"a/b"`
	tests := []struct {
		name, in string
		kind     ErrorKind
		offset   int // -1: not checked
	}{
		{"plain", ok + `,"data":{}`, 255, 0},
		{"escape in type", `{"seq":5,"time":1,"type":"a\/b","data":{}`, BadEnvelope, 27},
		{"space in type", `{"seq":5,"time":1,"type":"a b","data":{}`, BadEnvelope, 27},
		{"empty type", `{"seq":5,"time":1,"type":"","data":{"x":1}`, BadEnvelope, 26},
		{"longest type", `{"seq":5,"time":1,"type":"` + strings.Repeat("t", 128) + `","data":{}`, 255, 0},
		{"type too long", `{"seq":5,"time":1,"type":"` + strings.Repeat("t", 129) + `","data":{}`, BadEnvelope, 155},
		{"leading zero", `{"seq":05,"time":1,"type":"a/b","data":{}`, BadEnvelope, 7},
		{"negative seq", `{"seq":-5,"time":1,"type":"a/b","data":{}`, BadEnvelope, 7},
		{"minus zero", `{"seq":5,"time":-0,"type":"a/b","data":{}`, BadEnvelope, 16},
		{"float", `{"seq":5.0,"time":1,"type":"a/b","data":{}`, BadEnvelope, 8},
		{"seq too large", `{"seq":9007199254740992,"time":1,"type":"a/b","data":{}`, BadEnvelope, 7},
		{"seq overflows", `{"seq":99999999999999999999999,"time":1,"type":"a/b","data":{}`, BadEnvelope, 7},
		{"white space", `{"seq":5, "time":1,"type":"a/b","data":{}`, BadEnvelope, 8},
		{"wrong order", `{"time":1,"seq":5,"type":"a/b","data":{}`, BadEnvelope, 0},
		{"no data", ok + `,"x":"12345"`, BadEnvelope, -1},
		{"data not an object", ok + `,"data":[]`, BadEnvelope, -1},
		{"data cut", ok + `,"data":{`, BadEnvelope, -1},
		{"short", ok, BadShape, -1},
		{"data cut 2", ok + `,"data":{"a":"b"`, BadEnvelope, -1},
		{"unknown op", ok + `,"surfaceOp":"hide","data":{}`, BadEnvelope, 43},
		{"op order", ok + `,"ignorable":true,"surfaceOp":"append","data":{}`, BadEnvelope, -1},
		{"replace order", ok + `,"surfaceOp":{"op":"replace","end":1,"start":2},"data":{}`, BadEnvelope, -1},
		{"replace open", ok + `,"surfaceOp":{"op":"replace","start":1,"end":2,"x":1},"data":{}`, BadEnvelope, -1},
		{"restore negative", ok + `,"surfaceOp":{"op":"restore","node":-1},"data":{}`, BadEnvelope, -1},
		{"sources pair of one", ok + `,"sourceEventSeqs":[[1,1]],"data":{}`, BadEnvelope, -1},
		{"sources pair down", ok + `,"sourceEventSeqs":[[2,1]],"data":{}`, BadEnvelope, -1},
		{"sources comma", ok + `,"sourceEventSeqs":[1,],"data":{}`, BadEnvelope, -1},
		{"sources triple", ok + `,"sourceEventSeqs":[[1,2,3]],"data":{}`, BadEnvelope, -1},
		{"sources open", ok + `,"sourceEventSeqs":[1,"data":{}`, BadEnvelope, -1},
		{"sources space", ok + `,"sourceEventSeqs":[1, 2],"data":{}`, BadEnvelope, -1},
		{"ignorable false", ok + `,"ignorable":false,"data":{}`, BadEnvelope, -1},
		{"extra", ok + `,"a":"\"}","b":[{}],"c":-1.5e3,"data":{}`, 255, 0},
		{"extra twice", ok + `,"a":1,"a":2,"data":{}`, BadEnvelope, -1},
		{"extra reserved", ok + `,"seq":1,"data":{}`, BadEnvelope, -1},
		{"extra escaped name", ok + `,"se\u0071":1,"data":{}`, BadEnvelope, -1},
		{"extra space", ok + `,"a": 1,"data":{}`, BadEnvelope, -1},
		{"extra not JSON", ok + `,"a":nul,"data":{}`, BadEnvelope, -1},
		{"extra no value", ok + `,"a":,"data":{}`, BadEnvelope, -1},
		{"extra brackets", ok + `,"a":[},"data":{}`, BadEnvelope, -1},
		{"synced", ok + `,"data":{"x":1},"synced":4`, 255, 0},
		{"synced and unknown", ok + `,"data":{"x":"}"},"synced":4,"a":[{}],"b":"}"`, 255, 0},
		{"unknown behind", ok + `,"data":{"x":{"y":"\\"}},"a":12`, 255, 0},
		{"unknown behind, synced last", ok + `,"data":{},"a":12,"synced":4`, BadEnvelope, -1},
		{"synced zero", ok + `,"data":{},"synced":00`, BadEnvelope, -1},
		{"comma behind", ok + `,"data":{},`, BadEnvelope, -1},
		{"no member behind", ok + `,"data":{}1`, BadEnvelope, -1},
		{"chain twice", ok + `,"data":{},"chain":"x"`, BadEnvelope, -1},
		{"no record", `{"hello":"world, here is some text that is long enough"}`, BadEnvelope, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			raw, err := Parse(seal(tt.in))
			if tt.kind == 255 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("accepted as %+v", raw)
			}
			if e.Kind != tt.kind || (tt.offset >= 0 && e.Offset != tt.offset) {
				t.Errorf("kind %d offset %d (%v), want %d at %d", e.Kind, e.Offset, e, tt.kind, tt.offset)
			}
		})
	}
}

// Members that stand behind data are found and kept apart from it.
func TestParseAfter(t *testing.T) {
	raw, err := Parse(seal(`{"seq":5,"time":1,"type":"a/b","data":{"synced":3,"x":"},\"chain\":"},"synced":4,"a":[{}],"b":"}"`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(raw.Data); got != `{"synced":3,"x":"},\"chain\":"}` {
		t.Errorf("data %s", got)
	}
	if got := string(raw.After); got != `"a":[{}],"b":"}"` || raw.Synced != 4 {
		t.Errorf("after %s, synced %d", got, raw.Synced)
	}
}

func TestValid(t *testing.T) {
	deep := strings.Repeat(`{"a":`, MaxDepth+1) + "{}" + strings.Repeat("}", MaxDepth+1)
	for _, data := range []string{`{"a":1}}`, `{"a":1,"a":2}`, `{"a": 1}`, "{\"a\":\"\xff\"}", `{"a":1},"x":{}`, deep} {
		raw, err := Parse(seal(`{"seq":5,"time":1,"type":"a/b","data":` + data))
		if err != nil {
			t.Fatal(err)
		}
		var e *Error
		if err := raw.Valid(); !errors.As(err, &e) || e.Kind != BadData {
			t.Errorf("%.40s: got %v", data, err)
		}
	}
}

func TestCheck(t *testing.T) {
	good := session.Event{Seq: 1, Type: "a/b", Data: jsontext.Value(`{}`)}
	if err := Check(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*session.Event){
		"seq":       func(e *session.Event) { e.Seq = -1 },
		"time":      func(e *session.Event) { e.Time = 1 << 53 },
		"no type":   func(e *session.Event) { e.Type = "" },
		"type":      func(e *session.Event) { e.Type = "a\"b" },
		"long type": func(e *session.Event) { e.Type = strings.Repeat("a", 129) },
		"op":        func(e *session.Event) { e.Op.Kind = 9 },
		"array":     func(e *session.Event) { e.Data = jsontext.Value(`[]`) },
		"no data":   func(e *session.Event) { e.Data = nil },
		"sources":   func(e *session.Event) { e.Sources = session.Sources{{First: 2, Last: 1}} },
		"extra":     func(e *session.Event) { e.Extra = []byte(`"a":1,`) },
		"reserved":  func(e *session.Event) { e.Extra = []byte(`"data":1`) },
		"escape":    func(e *session.Event) { e.Extra = []byte(`"data":{}},{"x":1`) },
	} {
		ev := good
		change(&ev)
		if Check(ev) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A changed bit anywhere in a line is seen: by Parse, or by CheckLink where only the link is hit.
// So is a line cut anywhere.
func TestEveryBitAndCut(t *testing.T) {
	var link session.Link
	for _, g := range goldens {
		prev := link
		var line []byte
		line, link = Append(nil, g.ev, prev, g.synced)
		line = line[:len(line)-1]
		for i := range line {
			for bit := range 8 {
				line[i] ^= 1 << bit
				if raw, err := Parse(line); err == nil {
					if _, ok := raw.CheckLink(prev); ok {
						t.Fatalf("bit %d of byte %d (%q) not seen", bit, i, line)
					}
				}
				line[i] ^= 1 << bit
			}
			if _, err := Parse(line[:i]); err == nil {
				t.Fatalf("cut at byte %d not seen", i)
			}
		}
		for i := range line {
			if _, err := Parse(line[i:]); i > 0 && err == nil {
				t.Fatalf("without its first %d bytes not seen", i)
			}
		}
	}
}

// If only the link of a record is damaged, the record is good, and the next one proves it.
func TestDamagedLink(t *testing.T) {
	first, link := Append(nil, goldens[0].ev, session.Link{}, session.None)
	second, _ := Append(nil, goldens[1].ev, link, session.None)
	first = first[:len(first)-1]
	at := len(first) - 2 - sumLen - linkLen
	for _, c := range []byte("A*\"\x00\n") {
		bad := append([]byte(nil), first...)
		if bad[at] == c {
			t.Fatal("not damaged")
		}
		bad[at] = c
		raw, err := Parse(bad)
		if err != nil {
			t.Fatalf("%q: %v", c, err)
		}
		if _, ok := raw.Link(); ok != (c == 'A') {
			t.Errorf("%q: a link: %v", c, ok)
		}
		right, ok := raw.CheckLink(session.Link{})
		if ok || right != link {
			t.Errorf("%q: link %s %v, want %s, false", c, right, ok, link)
		}
		next, err := Parse(second[:len(second)-1])
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := next.CheckLink(right); !ok {
			t.Errorf("%q: the next record does not follow", c)
		}
	}
}

func genData() *rapid.Generator[jsontext.Value] {
	return rapid.Custom(func(t *rapid.T) jsontext.Value {
		var value func(depth int) string
		str := func() string {
			s, _ := jsontext.AppendQuote(nil, rapid.StringN(0, 20, -1).Draw(t, "s"))
			return string(s)
		}
		value = func(depth int) string {
			k := rapid.IntRange(0, 7).Draw(t, "kind")
			switch {
			case k == 0:
				return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "lit")
			case k == 1:
				return rapid.SampledFrom([]string{"0", "-1", "1e400", "123456789012345678901234567890", "0.10"}).Draw(t, "num")
			case k == 2:
				return rapid.SampledFrom([]string{`"\u0024blob"`, `"\\\""`, `"},\"chain\":\""`, `"$blob"`, "\"\u2028\""}).Draw(t, "str")
			case k <= 4 || depth > 3:
				return str()
			case k == 5:
				var b []string
				for range rapid.IntRange(0, 3).Draw(t, "len") {
					b = append(b, value(depth+1))
				}
				return "[" + strings.Join(b, ",") + "]"
			}
			var b []string
			for i := range rapid.IntRange(0, 3).Draw(t, "len") {
				name := rapid.SampledFrom([]string{`"$blob"`, `"$$blob"`, `"$xblob"`, `"\u0024blob"`, `"$\u0062lob"`, `"$"`, `"synced"`, `"chain"`, `"bytes"`, `"a\"}"`}).Draw(t, "name")
				b = append(b, name[:len(name)-1]+map[bool]string{true: `"`, false: fmt.Sprintf(`%d"`, i)}[i == 0]+":"+value(depth+1))
			}
			return "{" + strings.Join(b, ",") + "}"
		}
		return jsontext.Value(`{"v":` + value(0) + `}`)
	})
}

func genEvent() *rapid.Generator[session.Event] {
	return rapid.Custom(func(t *rapid.T) session.Event {
		ev := session.Event{
			Seq:       session.Seq(rapid.Int64Range(0, maxInt).Draw(t, "seq")),
			Time:      rapid.Int64Range(-maxInt, maxInt).Draw(t, "time"),
			Type:      rapid.StringMatching(`[!#-\[\]-~]{1,40}`).Draw(t, "type"),
			Ignorable: rapid.Bool().Draw(t, "ignorable"),
			Data:      genData().Draw(t, "data"),
		}
		seq := rapid.Int64Range(0, maxInt)
		switch rapid.IntRange(0, 3).Draw(t, "op") {
		case 1:
			ev.Op = session.Append()
		case 2:
			ev.Op = session.Replace(session.Seq(seq.Draw(t, "start")), session.Seq(seq.Draw(t, "end")))
		case 3:
			ev.Op = session.Restore(session.Seq(seq.Draw(t, "node")))
		}
		if rapid.Bool().Draw(t, "has sources") {
			ev.Sources = session.Sources{}
			for range rapid.IntRange(0, 4).Draw(t, "spans") {
				first := rapid.Int64Range(0, 1<<40).Draw(t, "first")
				ev.Sources = append(ev.Sources, session.Span{First: session.Seq(first), Last: session.Seq(first + rapid.Int64Range(0, 5).Draw(t, "run"))})
			}
		}
		if rapid.Bool().Draw(t, "has extra") {
			d := genData().Draw(t, "extra")
			ev.Extra = d[1 : len(d)-1]
		}
		return ev
	})
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ev := genEvent().Draw(t, "event")
		synced := session.Seq(rapid.Int64Range(-1, maxInt).Draw(t, "synced"))
		var prev session.Link
		copy(prev[:], rapid.SliceOfN(rapid.Byte(), 12, 12).Draw(t, "prev"))
		if err := Check(ev); err != nil {
			t.Fatal(err)
		}
		line, link := Append(nil, ev, prev, synced)
		if !jsontext.Value(line).IsValid() {
			t.Fatalf("not JSON: %s", line)
		}
		raw, err := Parse(line[:len(line)-1])
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if diff := cmp.Diff(ev, raw.Event()); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
		if got, ok := raw.CheckLink(prev); !ok || got != link || raw.Synced != synced {
			t.Fatalf("link %s, want %s; synced %d, want %d", got, link, raw.Synced, synced)
		}
		if err := raw.Valid(); err != nil {
			t.Fatal(err)
		}
	})
}

// Encoding and scanning cost no memory.
func TestAllocations(t *testing.T) {
	ev := goldens[4].ev
	ev.Extra = nil // unknown members are checked with the JSON package
	buf := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { buf, _ = Append(buf[:0], ev, session.Link{}, 3) }); n != 0 {
		t.Errorf("Append: %v allocations", n)
	}
	line := buf[:len(buf)-1]
	if n := testing.AllocsPerRun(100, func() {
		raw, err := Parse(line)
		if _, ok := raw.CheckLink(session.Link{}); err != nil || !ok {
			t.Error("bad")
		}
	}); n != 0 {
		t.Errorf("Parse: %v allocations", n)
	}
	raw, _ := Parse(line)
	raw.Type = []byte("user/message")
	raw.Sources = nil
	if n := testing.AllocsPerRun(100, func() { sinkEvent = raw.Event() }); n != 1 {
		t.Errorf("Event: %v allocations, want 1", n)
	}
}

var sinkEvent session.Event
