package export_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/export"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func talk(image string) []message.Message {
	said := message.User("u1", "look at this secret")
	said.Content = append(said.Content, message.Block{Type: message.Image, Blob: image, MediaType: "image/png"})
	asked := message.Message{ID: "a1", Role: message.RoleAssistant, Source: message.Source{Kind: message.SourceModel, Provider: "p", Model: "m_1"}, Content: []message.Block{
		{Type: message.Reasoning, Text: "hm"}, message.TextBlock("I look."),
		message.CallBlock("c1", "read", `{"path":"a"}`), message.CallBlock("c2", "shot", `{`),
	}}
	gone := message.Block{Type: message.Image, Blob: "sha256-" + strings.Repeat("0", 64), MediaType: "image/png"}
	answer := message.Result("r2", "c2", true, message.TextBlock("no"), gone)
	return []message.Message{said, asked, message.Result("r1", "c1", false, message.TextBlock("a secret\n```\nfence")), answer,
		{ID: "a2", Role: message.RoleAssistant, Content: []message.Block{message.TextBlock("Done.")}},
		{ID: "a3", Role: message.RoleAssistant, Content: []message.Block{{Type: message.Reasoning, Text: "only thought"}}}}
}

func TestOpenAI(t *testing.T) {
	st := newStore()
	put(t, st, header("abcd"), []session.Event{event(0, `{}`)})
	image, err := st.PutBlob(context.Background(), []byte("PNG"))
	if err != nil {
		t.Fatal(err)
	}
	src := export.Source{Snap: read(t, st, "abcd"), Blobs: st, Redact: masked{"secret", "[gone]"}}
	var out bytes.Buffer
	rep, err := export.OpenAI(context.Background(), &out, src, "be a secret", talk(image))
	if err != nil {
		t.Fatal(err)
	}
	want := `[
{"role":"system","content":"be a [gone]"},
{"role":"user","content":[{"type":"text","text":"look at this [gone]"},{"type":"image_url","image_url":{"url":"data:image/png;base64,UE5H"}}]},
{"role":"assistant","content":"I look.","tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{\"path\":\"a\"}"}},{"id":"c2","type":"function","function":{"name":"shot","arguments":"{"}}]},
{"role":"tool","content":"a [gone]\n` + "```" + `\nfence","tool_call_id":"c1"},
{"role":"tool","content":"no[an image that is not there any more]","tool_call_id":"c2"},
{"role":"assistant","content":"Done."}
]
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if rep.Redacted != 3 || rep.Events != 6 || len(rep.MissingBlobs) != 1 {
		t.Errorf("%+v", rep)
	}
	var list []map[string]any
	if err := json.Unmarshal(out.Bytes(), &list); err != nil || len(list) != 6 {
		t.Error(err)
	}
	out.Reset()
	if _, err := export.OpenAI(context.Background(), &out, src, "", nil); err != nil || out.String() != "[]\n" {
		t.Errorf("%q %v", out.String(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := export.OpenAI(ctx, &out, src, "", talk(image)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestMessages(t *testing.T) {
	st := newStore()
	put(t, st, header("abcd"), []session.Event{event(0, `{}`)})
	var out bytes.Buffer
	in := talk("sha256-" + strings.Repeat("1", 64))
	rep, err := export.Messages(context.Background(), &out, export.Source{Snap: read(t, st, "abcd")}, in)
	if err != nil || rep.Events != 6 {
		t.Fatal(rep, err)
	}
	for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		m, err := message.Decode([]byte(line))
		if diff := cmp.Diff(in[i], m); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
}

// story is a damaged session in which most things happened.
func story(t *testing.T, image string) *store.Snapshot {
	t.Helper()
	st := newStore()
	var evs []session.Event
	add := func(typ string, data any) {
		b, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		evs = append(evs, session.Event{Seq: session.Seq(len(evs)), Time: 1, Type: typ, Data: b})
	}
	ms := talk(image)
	add(session.TypeUserMessage, ms[0])
	add(session.TypeAssistantMessage, session.AssistantMessage{Turn: 1, Step: 1, Message: ms[1]})
	add(session.TypeApprovalAsked, session.ApprovalAsked{AskID: "q", Turn: 1, Step: 1, CallID: "c1", Name: "read"})
	add(session.TypeApprovalDecided, session.ApprovalDecided{AskID: "q", CallID: "c1", Verdict: "allow", By: "user"})
	add(session.TypeToolResult, session.ToolResult{Turn: 1, Step: 1, Message: ms[2]})
	add(session.TypeToolResult, session.ToolResult{Turn: 1, Step: 1, Message: ms[3], Error: &session.ErrorInfo{Code: "NO_SHOT"}})
	add(session.TypeTurnEnd, session.TurnEnd{Turn: 1, Reason: session.Reason{Kind: "aborted", Cause: "user"}})
	add(session.TypeInherited, struct{}{})
	for i := range evs {
		switch evs[i].Type {
		case session.TypeUserMessage, session.TypeAssistantMessage, session.TypeToolResult:
			evs[i].Op = session.Append()
		}
	}
	put(t, st, header("abcd"), evs)
	snap := *read(t, st, "abcd")
	snap.Damage = []store.Range{{Detail: "zeros"}}
	return &snap
}

func TestMarkdown(t *testing.T) {
	snap := story(t, "sha256-"+strings.Repeat("1", 64))
	var out bytes.Buffer
	rep, err := export.Markdown(context.Background(), &out, export.Source{Snap: snap, Redact: masked{"secret", "[gone]"}},
		export.TranscriptOptions{Title: "a *secret*\ntitle", Hidden: func(q session.Seq) bool { return q == 0 }})
	if err != nil {
		t.Fatal(err)
	}
	want := `# a \*\[gone]\* title

- session §abcd§ (root), 1970-01-01 00:00 UTC
- in /w

## You (hidden)

look at this [gone]

*\[image\]*

## Assistant (p/m\_1)

<details><summary>Thinking</summary>

§§§
hm
§§§

</details>

I look.

### Calls read

§§§json
{
  "path": "a"
}
§§§

### Calls shot

§§§
{
§§§

*asked: may read run?*

*answered: allow, by user*

### Result of read

§§§§
a [gone]
§§§
fence
§§§§

### Result of shot (NO\_SHOT)

§§§
no
§§§

*\[image\]*

*turn 1 ended: aborted user*

*picked up here: what is above was written by an earlier life*

> **the session is damaged behind this: zeros**
`
	got := strings.ReplaceAll(out.String(), "`", "§")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if rep.Redacted != 3 || rep.Incomplete == "" {
		t.Errorf("%+v", rep)
	}
}
