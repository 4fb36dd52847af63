package dsh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/session"
)

const head = `{"type":"session","version":0,"id":"s-1","createdAt":1700000000000,"cwd":"/tmp/x","delegationDepth":0}` + "\n"

// row makes one line of a file.
func row(typ, data, more string) string {
	return fmt.Sprintf(`{"type":%q,"data":%s%s}`+"\n", typ, data, more)
}

func kinds(events []session.Event) string {
	var s []string
	for _, ev := range events {
		s = append(s, ev.Type)
	}
	return strings.Join(s, " ")
}

// TestVintages: every shape that a row had comes out in the one that it has here.
func TestVintages(t *testing.T) {
	user := row("user/message", `{"content":[{"type":"text","text":"hi"}],"source":{"kind":"user"}}`, "")
	for name, tt := range map[string]struct{ in, want, data string }{
		"a message without role, id and operation": {user, "user/message", `{"content":[{"type":"text","text":"hi"}],"source":{"kind":"user"},"role":"user"}`},
		"text for content":                         {row("user/message", `{"content":"hi"}`, ""), "user/message", `{"content":[{"type":"text","text":"hi"}],"role":"user","source":{"kind":"user"}}`},
		"injected context":                         {row("context/message", `{"content":[],"source":{"kind":"plugin","plugin":"p"}}`, ""), "user/message", `{"content":[],"source":{"kind":"plugin","plugin":"p"},"role":"user"}`},
		"steering":                                 {row("steering/message", `{"role":"user","content":[],"source":{"kind":"user"}}`, ""), "user/message", `{"role":"user","content":[],"source":{"kind":"user"}}`},
		"a source of its own":                      {row("user/message", `{"role":"user","content":[],"source":{"kind":"agent-instructions"}}`, ""), "user/message", `{"role":"user","content":[],"source":{"kind":"plugin","plugin":"agent-instructions"}}`},
		"an answer that lies open":                 {row("assistant/message", `{"turn":1,"step":1,"content":[],"provenance":{"provider":"p","model":"m"}}`, ""), "assistant/message", `{"turn":1,"step":1,"message":{"role":"assistant","content":[],"source":{"provider":"p","model":"m","kind":"model"}}}`},
		"arguments as a value":                     {row("tool/call", `{"turn":1,"step":1,"callId":"c","name":"n","arguments":{"a":1}}`, ""), "tool/call", `{"turn":1,"step":1,"callId":"c","name":"n","arguments":"{\"a\":1}"}`},
		"a flat result":                            {row("tool/result", `{"turn":1,"step":1,"callId":"c","content":[{"type":"text","text":"r"}],"isError":true,"meta":{}}`, ""), "tool/result", `{"turn":1,"step":1,"meta":{},"message":{"role":"user","content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"r"}],"isError":true}],"source":{"kind":"tool","callId":"c"}}}`},
		"a reason in a reason":                     {row("turn/end", `{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"parent"}}}`, ""), "turn/end", `{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"parent"},"cause":"parent"}}`},
		"no reason":                                {row("turn/end", `{"turn":1}`, ""), "turn/end", `{"turn":1,"reason":{"kind":"unknown"}}`},
		"a reason in one word":                     {row("turn/end", `{"turn":1,"reason":"completed"}`, ""), "turn/end", `{"turn":1,"reason":{"kind":"completed"}}`},
		"no step":                                  {row("step/start", `{"turn":null}`, ""), "step/start", `{"turn":1,"step":1}`},
		"a boundary":                               {row("session/end-seed", `{}`, ""), "session/inherited", `{}`},
		"a compaction, new":                        {row("compaction/start", `{"compactionId":"x","turn":null}`, ""), "compact/start", `{"compactionId":"x","turn":null}`},
		"a compaction, old":                        {row("compact/end", `{"compactionId":"x"}`, ""), "compact/end", `{"compactionId":"x"}`},
		"a title":                                  {row("session/title", `{"title":"t","source":{"kind":"user"}}`, ""), "session/title", `{"title":"t","source":"user"}`},
		"a queue edit":                             {row("agent/inbox/spliced", `{"target":"next-turn","start":0}`, ""), "inbox/spliced", `{"target":"next-turn","start":0,"inserted":[]}`},
		"a question":                               {row("approval/asked", `{"id":"q","toolName":"bash","callId":"c"}`, ""), "approval/asked", `{"callId":"c","turn":1,"step":1,"askId":"q","name":"bash"}`},
		"an answer to it":                          {row("approval/decided", `{"id":"q","outcome":"allowed-once"}`, ""), "approval/decided", `{"outcome":"allowed-once","askId":"q","callId":"","verdict":"allow","by":"user"}`},
		"an answer nobody knows":                   {row("approval/decided", `{"id":"q","outcome":"shrug"}`, ""), "approval/decided", `{"outcome":"shrug","askId":"q","callId":"","verdict":"deny","by":"user"}`},
		"a policy that must not loosen":            {row("approval/policy", `{"policy":"yolo"}`, ""), "approval/policy", `{"policy":"ask","was":"yolo"}`},
		"kept under its name":                      {row("tool-workflow/run-start", `{"runId":"r"}`, ""), "tool-workflow/run-start", `{"runId":"r"}`},
		"retired":                                  {row("error", `{"x":1}`, ""), "import/note", `{"why":"retired type","type":"error","line":"{\"type\":\"error\",\"data\":{\"x\":1}}"}`},
		"unknown":                                  {row("new/thing", `{}`, ""), "import/note", `{"why":"unknown type","type":"new/thing","line":"{\"type\":\"new/thing\",\"data\":{}}"}`},
		"ours, not theirs":                         {row("session/settings", `{"approval":"yolo"}`, ""), "import/note", `{"why":"unknown type","type":"session/settings","line":"{\"type\":\"session/settings\",\"data\":{\"approval\":\"yolo\"}}"}`},
		"malformed":                                {row("tool/result", `{"turn":1,"step":1,"message":{"content":[]}}`, ""), "import/note", ""},
		"data of no kind":                          {row("turn/start", `[1]`, ""), "import/note", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, events, _ := read(t, []byte(head+tt.in))
			if kinds(events) != tt.want || tt.data != "" && string(events[0].Data) != tt.data {
				t.Errorf("got %s %s\nwant %s %s", kinds(events), events[0].Data, tt.want, tt.data)
			}
		})
	}
}

// TestPacked: a row of n deltas is n events, with their times, and what comes behind keeps its place.
func TestPacked(t *testing.T) {
	for name, seq := range map[string]string{"with seq": `,"seq0":1,"time0":100`, "without": ``} {
		next := `,"seq":4`
		if seq == "" {
			next = ""
		}
		_, events, _ := read(t, []byte(head+row("turn/start", `{"turn":1}`, "")+
			row("tool-call-chunks", `{"turn":1,"step":1,"index":2,"dt":[5,-3],"id":"c","name":"n","args":["{","\"a\"","}"]}`, seq)+
			row("turn/end", `{"turn":1,"reason":{"kind":"completed"}}`, next)))
		if kinds(events) != "turn/start assistant/chunk assistant/chunk assistant/chunk turn/end" {
			t.Fatal(name, kinds(events))
		}
		if got := string(events[2].Data); got != `{"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":2,"id":"c","name":"n","argumentsDelta":"\"a\""}}` {
			t.Error(got)
		}
		if seq != "" && (events[1].Time != 100 || events[2].Time != 105 || events[3].Time != 102) {
			t.Errorf("times %d %d %d", events[1].Time, events[2].Time, events[3].Time)
		}
	}
}

func say(seq int, text string) string {
	return row("user/message", fmt.Sprintf(`{"role":"user","content":[{"type":"text","text":%q}],"source":{"kind":"user"}}`, text), fmt.Sprintf(`,"seq":%d,"surfaceOp":"append"`, seq))
}

// TestNumbers: holes, lines that cannot be read, and seqs that go back.
func TestNumbers(t *testing.T) {
	for name, tt := range map[string]struct{ in, want, dropped string }{
		"a hole":                     {say(0, "a") + say(3, "b"), "user/message import/note import/note user/message", "events that are missing in the source"},
		"a hole behind a bad line":   {say(0, "a") + "{broken\n" + say(2, "b"), "user/message import/note user/message", "unreadable lines"},
		"a bad line without a place": {say(0, "a") + "{broken\n" + say(1, "b"), "user/message user/message", "unreadable lines"},
		"bad lines in a bigger hole": {say(0, "a") + "{x\n{y\n" + say(4, "b"), "user/message import/note import/note import/note user/message", "events that are missing in the source, unreadable lines"},
		"a bad line at the end":      {say(0, "a") + "{broken\n", "user/message import/note", "unreadable lines"},
		"a bad line, no seqs":        {head[:0] + row("turn/start", `{"turn":1}`, "") + "{x\n" + row("step/start", `{"turn":1,"step":1}`, ""), "turn/start import/note step/start", "unreadable lines"},
		"a leap that cannot be":      {say(0, "a") + say(9e15, "b"), "user/message user/message", ""},
		"going back":                 {say(0, "a") + say(1, "b") + say(1, "c") + say(2, "d"), "user/message user/message user/message user/message", ""},
		"two objects on a line":      {strings.TrimSuffix(say(0, "a"), "\n") + say(1, "b"), "user/message user/message", ""},
		"an object and half of one":  {strings.TrimSuffix(say(0, "a"), "\n") + `{"type":"us` + "\n" + say(2, "b"), "user/message import/note user/message", "unreadable lines"},
		"a second header":            {say(0, "a") + head + say(1, "b"), "user/message user/message", "further header lines"},
		"a line separator in a text": {say(0, "a\u2028b\rc"), "user/message", ""},
		"empty lines":                {"\n \n" + say(0, "a") + "\r\n", "user/message", ""},
		"a value that is no event":   {say(0, "a") + "12\n" + say(1, "b"), "user/message user/message", "lines that are no events"},
	} {
		t.Run(name, func(t *testing.T) {
			l, events, _ := read(t, []byte(head+tt.in))
			if kinds(events) != tt.want || counts(l.Fidelity.Dropped) != tt.dropped {
				t.Errorf("got %s, dropped %q\nwant %s, dropped %q", kinds(events), counts(l.Fidelity.Dropped), tt.want, tt.dropped)
			}
		})
	}
}

func replace(seq, start, end int, cites string) string {
	return row("user/message", `{"role":"user","content":[{"type":"text","text":"sum"}],"source":{"kind":"plugin"}}`,
		fmt.Sprintf(`,"seq":%d,"surfaceOp":{"op":"replace","start":%d,"end":%d},"sourceEventSeqs":%s`, seq, start, end, cites))
}

// TestReplacements: what a replacement hides is what it meant.
func TestReplacements(t *testing.T) {
	system := func(seq int, more string) string {
		return row("system/message", `{"turn":1,"step":1,"message":{"role":"system","content":[]}}`, fmt.Sprintf(`,"seq":%d%s`, seq, more))
	}
	for name, tt := range map[string]struct {
		in      string
		surface []session.Seq
	}{
		"as it says":               {say(0, "a") + say(1, "b") + say(2, "c") + replace(3, 0, 1, "[0,1]"), []session.Seq{3, 2}},
		"runs in citations":        {say(0, "a") + say(1, "b") + say(2, "c") + replace(3, 0, 2, "[[0,2]]"), []session.Seq{3}},
		"a citation is missing":    {say(0, "a") + say(1, "b") + replace(2, 0, 1, "[0]"), []session.Seq{2}},
		"from a system prompt":     {system(0, "") + say(1, "b") + say(2, "c") + replace(3, 0, 1, "[0,1]"), []session.Seq{3, 2}},
		"only a system prompt":     {system(0, "") + say(1, "b") + replace(2, 0, 0, "[0]"), []session.Seq{1}},
		"by another pair of names": {system(0, "") + system(1, `,"surfaceOp":{"op":"replace","startSeq":0,"endSeq":0}`) + say(2, "b"), []session.Seq{2}},
		"of what is not there":     {say(0, "a") + replace(1, 7, 9, "[0]"), []session.Seq{1}},
		"of what went elsewhere":   {say(0, "a") + say(1, "b") + say(1, "c") + replace(2, 1, 1, "[1]"), []session.Seq{0, 1, 3}},
		"citing itself":            {say(0, "a") + replace(1, 0, 0, "[0,0,1,5,-2]"), []session.Seq{1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, st := read(t, []byte(head+tt.in))
			var got []session.Seq
			for _, n := range st.Surface() {
				got = append(got, n.Seq)
			}
			if !slices.Equal(got, tt.surface) {
				t.Errorf("surface %v, want %v; problems %v", got, tt.surface, st.Problems())
			}
		})
	}
}

// TestInterrupted: what a dead writer left open is closed by the next life, not by the import.
func TestInterrupted(t *testing.T) {
	text := head + row("turn/start", `{"turn":1}`, "") + row("step/start", `{"turn":1,"step":1}`, "") +
		row("assistant/message", `{"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"tool-call","id":"a","name":"x","arguments":"{}"},{"type":"tool-call","id":"b","name":"y","arguments":"{}"}],"source":{"kind":"model"}}}`, "") +
		row("tool/call", `{"turn":1,"step":1,"callId":"a","name":"x","arguments":"{}"}`, "") + `{"type":"tool/res`
	l, events, st := read(t, []byte(text))
	if len(events) != 4 || l.Tail.Bytes != 17 || string(l.Tail.Raw) != `{"type":"tool/res` {
		t.Errorf("%d events, tail %+v", len(events), l.Tail)
	}
	if got := kinds(st.Closers()); got != "tool/result tool/result step/end turn/end" {
		t.Error(got)
	}
	for i, code := range []string{session.CodeOutcomeUnknown, session.CodeNotStarted} {
		if c := st.OpenCalls()[i]; st.Code(c) != code {
			t.Errorf("call %s: %s", c.ID, st.Code(c))
		}
	}
}

func TestRefused(t *testing.T) {
	var newer *importer.VersionError
	for text, want := range map[string]func(error) bool{
		`{"type":"session","version":4,"id":"x","createdAt":1}`: func(err error) bool { return errors.As(err, &newer) && newer.Have == 4 },
		"":              func(err error) bool { return errors.Is(err, importer.ErrNotThis) },
		"\x00\x01\x02":  func(err error) bool { return errors.Is(err, importer.ErrNotThis) },
		`{"type":"sess`: func(err error) bool { return errors.Is(err, importer.ErrNotThis) },
	} {
		_, err := Format{}.Read(context.Background(), strings.NewReader(text), nil, func(session.Event) error { return nil })
		if !want(err) {
			t.Errorf("%q: %v", text, err)
		}
	}
	stop := errors.New("stop")
	if _, err := (Format{}).Read(context.Background(), strings.NewReader(head+say(0, "a")), nil, func(session.Event) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func TestSniff(t *testing.T) {
	for text, want := range map[string]bool{
		head:                  true,
		"\xef\xbb\xbf" + head: true,
		say(0, "no header"):   true,
		`{"type":"session","version":3,"id":"x","timestamp":"2026-01-01","cwd":"/"}` + "\n": false, // another program's
		`{"type":"user","uuid":"x","message":{}}` + "\n":                                    false,
		"": false, "plain text\n": false, "[]": false,
		`{"seq":0,"time":1,"type":"turn/start","data":{"turn":1},"chain":"x"}`: false, // a log of ours, cut out
	} {
		if got := (Format{}).Sniff([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestHostile: nothing that a file says makes the reader fail, hang or hand over what a log would not take.
func TestHostile(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)
	many := strings.Repeat(`"k":1,`, 50000)
	wide := strings.Repeat(`"x",`, 400000)
	for name, in := range map[string]string{
		"nested deep":        row("request/header", `{"header":{"config":{}},"x":`+deep+`}`, ""),
		"nested too deep":    row("turn/start", strings.Repeat("[", 20000), ""),
		"invalid text":       row("user/message", "{\"role\":\"user\",\"content\":\"a\xff\xc0b\"}", ""),
		"a lone surrogate":   row("user/message", `{"role":"user","content":"a\ud800b"}`, ""),
		"the same key twice": row("user/message", `{"role":"system","role":"user","content":[],"content":"x"}`, ""),
		"a key many times":   row("turn/start", `{`+many+`"turn":1}`, ""),
		"big numbers":        row("request/context", `{"provider":"p","model":"m","x":123456789012345678901234567890,"y":1e999}`, ""),
		"a long string":      row("user/message", `{"content":"`+strings.Repeat("x", 3<<20)+`"}`, ""),
		"too many strings":   row("todo/write", `{"todos":[],"x":[`+wide+`"x"]}`, ""),
		"a time of its own":  row("turn/start", `{"turn":1}`, `,"time":1e300,"seq":-4`),
		"citations of all":   say(0, "a") + replace(1, 0, 0, "[[0,9007199254740991]]"),
		"odd members":        row("turn/start", `{"turn":1}`, `,"chain":"x","synced":4,"zz":{"a":[1,2]},"":0`),
		"a huge turn":        row("turn/start", `{"turn":99999999999999999999}`, ""),
		"no type":            `{"seq":1}` + "\n" + `{"type":7}` + "\n" + `{"type":""}` + "\n",
		"a type of ours":     row("session/lost", `{"offset":0,"bytes":1}`, `,"surfaceOp":"append"`) + row("surface/hide", `{}`, `,"surfaceOp":{"op":"replace","start":0,"end":0}`),
		"packed nonsense":    row("text-chunks", `{"texts":[1,{"a":2},null],"dt":["x"]}`, `,"seq0":9007199254740991`) + row("text-chunks", `{}`, ""),
		"binary":             "\x00\xff\xfe\n\x00\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, events, _ := read(t, []byte(head+in+say(1000, "last")))
			if n := len(events); n == 0 || events[n-1].Type != session.TypeUserMessage {
				t.Errorf("what stands behind it is lost: %d events", n)
			}
		})
	}
	_, events, _ := read(t, []byte(head+row("user/message", "{\"content\":\"a\xffb\\ud800\"}", "")))
	if got := session.Project(events[0]).Message.PlainText(); got != "a\uFFFDb\uFFFD" {
		t.Errorf("mended text %q", got)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(head + say(0, "a") + say(1, "b") + replace(2, 0, 1, "[0,1]")))
	f.Add([]byte(head + row("text-chunks", `{"turn":1,"step":1,"index":0,"dt":[1],"texts":["a","b"]}`, `,"seq0":0,"time0":1`) + say(1, "x") + say(1, "y") + "{bad\n" + say(9, "z")))
	f.Add([]byte(row("assistant/message", `{"turn":1,"step":1,"content":[{"type":"tool-call","id":"c","name":"n","arguments":{}}]}`, "") + row("usage", `{"turn":1,"step":1,"usage":{"inputTokens":1,"outputTokens":2}}`, "") + row("tool/result", `{"turn":1,"step":1,"callId":"c","content":"x"}`, "")))
	f.Add([]byte(head + row("approval/asked", `{"id":"q","callId":"c"}`, "") + row("approval/decided", `{"id":"q"}`, "") + row("compaction/start", `{}`, "") + row("session/end-seed", `{}`, "")))
	f.Fuzz(func(t *testing.T, text []byte) {
		if l, err := (Format{}).Read(context.Background(), strings.NewReader(string(text)), nil, func(session.Event) error { return nil }); err != nil || l.Events > 5000 {
			return
		}
		read(t, text)
	})
}
