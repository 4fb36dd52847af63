// Package searchtest makes texts in many scripts, queries (hostile ones too) and stores full of sessions, for property
// tests: whatever searches has to find what search.Scan finds.
package searchtest

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Pieces are what texts and queries are made of: few, so that they meet.
var Pieces = []string{
	"the", "The", "test", "tests", "testing", "contest", "fix", "résumé", "RESUME", "naïve", "Straße", "STRASSE", "fi", "ﬁ", "zażółć",
	"кот", "котлета", "Ёлка", "елка", "σοφός", "ΣΟΦΌΣ", "مَرْحَبًا", "مرحبا", "سلام", "שָׁלוֹם", "שלום", "한국", "한국어",
	"搜索", "全文搜索引擎", "文", "引擎", "カタカナ", "ｶﾀｶﾅ", "ガ", "ひらがな", "データベース", "ー", "ภาษาไทย", "ภาษา", "ที่", "ລາວ", "မြန်မာ",
	"👍", "👍🏽", "👩‍💻", "🇩🇪", "❤️", "©", "①", "㎞", "½", "ﷺ", "𝔄𝔅", "नमस्ते",
	"snake_case", "camelCase", "HTTPServer", "main.go", "./path/to/file.go:42", "err != nil", "func(x int)", "--flag=value", "0xDEADBEEF",
	"a1b2c3d4e5f6", "v1.2.3", "user@example.com", "https://example.com/a?b=c", "don't", "x", "y", "z", "1", "42",
	"\x00", "\u200b", "\u202e", "\ufeff", "soft\u00adhyphen", "AND", "OR", "NOT", "NEAR(a b)", "\"", "'", "*", "^", ":", "(", ")", "{", "}", "%", ";--",
}

var gaps = []string{" ", " ", " ", "\n", "\t", "", ", ", "。", "　", "/"}

// Text draws a text of up to n pieces.
func Text(t *rapid.T, label string, n int) string {
	var b strings.Builder
	for range rapid.IntRange(0, n).Draw(t, label) {
		b.WriteString(rapid.SampledFrom(Pieces).Draw(t, "piece"))
		b.WriteString(rapid.SampledFrom(gaps).Draw(t, "gap"))
	}
	return b.String()
}

// Query draws what somebody may type: pieces and parts of them, quoted, with stars.
func Query(t *rapid.T) string {
	var b strings.Builder
	for range rapid.IntRange(1, 3).Draw(t, "terms") {
		var term string
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "pieces") {
			piece := []rune(rapid.SampledFrom(Pieces).Draw(t, "piece"))
			from := rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "from")
			to := len(piece) - rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(t, "less")
			if from < to {
				piece = piece[from:to]
			}
			term += string(piece) + rapid.SampledFrom(gaps).Draw(t, "gap")
		}
		term = strings.TrimSpace(term)
		switch rapid.IntRange(0, 7).Draw(t, "form") {
		case 0:
			term = `"` + term + `"`
		case 1:
			term += "*"
		case 2:
			term = "*" + term
		case 3:
			term = "*" + term + "*"
		case 4:
			term = `*"` + term + `"*`
		case 5:
			term = `"` + term // never closed
		}
		b.WriteString(term + " ")
	}
	return b.String()
}

// Doc is an event as Fill made it, with the texts that are searched.
type Doc struct {
	ID    session.ID
	Seq   session.Seq
	Time  int64
	Texts []string
}

// Events draws n events, which begin at seq from, with what is searched of them; times may go backwards and be equal.
func Events(t *rapid.T, id session.ID, from session.Seq, n int) ([]session.Event, []Doc) {
	var events []session.Event
	var docs []Doc
	calls := 0
	put := func(typ string, data any, op session.SurfaceOp, texts ...string) {
		raw, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		v := jsontext.Value(raw)
		if err := v.Compact(); err != nil {
			t.Fatal(err)
		}
		ev := session.Event{Seq: from + session.Seq(len(events)), Time: 1_700_000_000_000 + int64(rapid.IntRange(0, 40).Draw(t, "time"))*250, Type: typ, Data: v, Op: op}
		events = append(events, ev)
		docs = append(docs, Doc{id, ev.Seq, ev.Time, texts})
	}
	for len(events) < n {
		text := strings.ToValidUTF8(Text(t, "words", 6), "\ufffd")
		switch rapid.IntRange(0, 6).Draw(t, "event") {
		case 0:
			put(session.TypeUserMessage, message.User("m", text), session.Append(), text)
		case 1:
			m := message.User("m", text)
			m.Source = message.Source{Kind: message.SourcePlugin, Plugin: "harness"}
			put(session.TypeUserMessage, m, session.Append())
		case 2:
			calls++
			args, _ := json.Marshal(map[string]string{"command": text})
			put(session.TypeAssistantMessage, session.AssistantMessage{Turn: 1, Step: 1, Message: message.Message{
				Role: message.RoleAssistant, Content: []message.Block{
					{Type: message.Reasoning, Text: "thinking of " + text}, message.TextBlock(text), message.CallBlock(fmt.Sprint("c", calls), "bash", string(args))},
			}}, session.Append(), "thinking of "+text, text, "bash", "command: "+text)
		case 3:
			put(session.TypeToolResult, session.ToolResult{Turn: 1, Step: 1, Message: message.Result("r", fmt.Sprint("c", calls), false, message.TextBlock(text))},
				session.Append(), text)
		case 4:
			put(session.TypeTitle, session.Title{Title: text, Source: "user"}, session.SurfaceOp{}, text)
		case 5:
			put(session.TypeAssistantChunk, session.AssistantChunk{Turn: 1, Step: 1, Chunk: jsontext.Value(`{"type":"text-delta","text":"test the"}`)}, session.SurfaceOp{})
		case 6:
			put(session.TypeToolCall, session.ToolCall{Turn: 1, Step: 1, CallID: "c", Name: "bash", Arguments: text}, session.SurfaceOp{})
		}
	}
	return events, docs
}

// Fill stores up to n sessions, forks among them, and returns their docs: each under the session that owns it.
func Fill(ctx context.Context, t *rapid.T, st store.Store, n int) []Doc {
	var docs []Doc
	var ids []session.ID
	for i := range rapid.IntRange(1, n).Draw(t, "sessions") {
		id := session.ID(fmt.Sprintf("session-%d", i))
		h := session.Header{Format: session.Format, ID: id, CreatedAt: 1_700_000_000_000 + int64(i), Kind: session.KindRoot,
			Cwd: "/work", Project: rapid.SampledFrom([]string{"/one", "/two", ""}).Draw(t, "project")}
		if len(ids) > 0 && rapid.IntRange(0, 2).Draw(t, "fork") == 0 {
			docs = append(docs, fork(ctx, t, st, rapid.SampledFrom(ids).Draw(t, "parent"), h)...)
		} else {
			events, own := Events(t, id, 0, rapid.IntRange(1, 8).Draw(t, "events"))
			if err := st.(store.Taker).Take(ctx, h, func(yield func(session.Event, error) bool) {
				for _, ev := range events {
					if !yield(ev, nil) {
						return
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			docs = append(docs, own...)
		}
		ids = append(ids, id)
	}
	return docs
}

// fork makes a child with header h of a stored session, cut at random, with events of its own.
func fork(ctx context.Context, t *rapid.T, st store.Store, parent session.ID, h session.Header) []Doc {
	snap, err := st.Read(ctx, parent)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	cut := session.Seq(rapid.IntRange(0, int(snap.Prefix.Len())-1).Draw(t, "cut"))
	link, err := st.(store.Forker).LinkAt(ctx, parent, cut)
	if err != nil {
		t.Fatal(err)
	}
	h.Kind, h.SeedLength = session.KindFork, cut+1
	h.Parent = &session.Parent{ID: parent, Seq: cut, Link: link, Spans: snap.Header.Spans(cut + 1)}
	events, docs := Events(t, h.ID, cut+1, rapid.IntRange(1, 5).Draw(t, "events"))
	if err := st.(store.Forker).CreateFork(ctx, h, events); err != nil {
		t.Fatal(err)
	}
	return docs
}
