package storetest

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var statTests = []test{
	{"Fields", statFields},
	{"LastActivity", statActivity},
	{"Title", statTitle},
}

// statsEqual compares everything that is stored; the holder is not.
func (s *suite) statsEqual(got, want store.Stat) {
	s.Helper()
	got.Holder, want.Holder = nil, nil
	got.Header, want.Header = plain(s, got.Header), plain(s, want.Header)
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		s.Fatalf("stat\n%+v, want\n%+v", got, want)
	}
}

// plain takes the pointers out of a header, which must be valid, so that it can be compared as text.
func plain(s *suite, h session.Header) session.Header {
	s.Helper()
	s.ok(h.Validate())
	if p := h.Parent; p != nil {
		h.Extra = jsontext.Value(fmt.Sprintf("%s %+v", h.Extra, *p))
		h.Parent = nil
	}
	if p := h.Imported; p != nil {
		h.Extra = jsontext.Value(fmt.Sprintf("%s %+v", h.Extra, *p))
		h.Imported = nil
	}
	return h
}

func statFields(s *suite) {
	w := s.create("stat", talk(0, 6)...)
	st := s.stat("stat")
	s.statsEqual(st, store.Stat{ID: "stat", Header: header("stat"), Pos: posAfter(talk(0, 6)), State: store.StateOK,
		Bytes: st.Bytes, Base: 0, LastActivity: talk(0, 6)[5].Time})
	if st.Holder == nil || st.Holder.SessionID != "stat" || st.Holder.Program == "" {
		s.Fatalf("holder %+v", st.Holder)
	}
	if st.Bytes < 600 {
		s.Fatalf("%d bytes for six events", st.Bytes)
	}
	s.append(w, user(6, "0123456789012345678901234567890123456789"))
	more := s.stat("stat")
	if grown := more.Bytes - st.Bytes; grown < 200 || grown > 800 {
		s.Fatalf("one more event is %d bytes", grown)
	}
	s.flush(w)
	s.ok(w.Close())
	last := s.stat("stat")
	if last.Holder != nil || last.Base != 7 {
		s.Fatalf("nobody holds it: holder %+v, base %d", last.Holder, last.Base)
	}
	if s.Another != nil {
		got, err := s.Another(s.T).Stat(s.ctx, "stat")
		s.ok(err)
		s.statsEqual(got, last)
	}
	if s.Reopen != nil {
		s.reopen()
		s.statsEqual(s.stat("stat"), last)
	}
}

func message(seq session.Seq, time int64, typ, data string, op session.SurfaceOp) session.Event {
	return session.Event{Seq: seq, Time: time, Type: typ, Op: op, Data: jsontext.Value(data)}
}

// The stored value and session's own fold agree.
func statActivity(s *suite) {
	const result = `{"turn":1,"step":1,"message":{"role":"user","content":[]}%s}`
	steps := []struct {
		ev   session.Event
		want int64
	}{
		{chunk(0), header("acts").CreatedAt},
		{title(1, "a title", "user"), header("acts").CreatedAt},
		{message(2, 500, session.TypeUserMessage, `{"role":"user","content":[],"source":{"kind":"user"}}`, session.Append()), 500},
		{message(3, 600, session.TypeUserMessage, `{"role":"user","content":[],"source":{"kind":"plugin","plugin":"p"}}`, session.Append()), 500},
		{message(4, 700, session.TypeAssistantMessage, `{"turn":1,"step":1,"message":{"role":"assistant","content":[]}}`, session.Append()), 700},
		{message(5, 300, session.TypeToolResult, fmt.Sprintf(result, ""), session.Append()), 300},
		{message(6, 900, session.TypeToolResult, fmt.Sprintf(result, `,"error":{"name":"x","code":"`+session.CodeNotStarted+`"}`), session.Append()), 300},
		{message(7, 900, session.TypeToolResult, fmt.Sprintf(result, `,"error":{"name":"x","code":"`+session.CodeOutcomeUnknown+`"}`), session.Append()), 300},
		{message(8, 901, session.TypeToolResult, fmt.Sprintf(result, `,"error":{"name":"x","code":"EXIT"}`), session.Append()), 901},
		{message(9, 999, session.TypeToolResult, fmt.Sprintf(result, ""), session.Replace(8, 8)), 901},
		{message(10, 1000, session.TypeInherited, `{}`, session.SurfaceOp{}), 901},
		{message(11, 1001, session.TypeTurnEnd, `{"turn":1,"reason":{"kind":"interrupted"}}`, session.SurfaceOp{}), 901},
		{message(12, 1002, session.TypeTitle, `{"title":"t","source":"fallback"}`, session.SurfaceOp{}), 901},
	}
	w := s.create("acts")
	var all session.Events
	for _, step := range steps {
		s.append(w, step.ev)
		all = append(all, step.ev)
		fold, err := session.LastActivityBefore(all, all.Len(), header("acts").CreatedAt)
		s.ok(err)
		if got := s.stat("acts").LastActivity; got != step.want || fold != step.want {
			s.Fatalf("after event %d (%s): stat says %d, the fold %d, want %d", step.ev.Seq, step.ev.Type, got, fold, step.want)
		}
	}
	s.flush(w)
	s.ok(w.Close())
	if got := s.stat("acts").LastActivity; got != 901 {
		s.Fatalf("after Close: %d", got)
	}
	s.ok(s.open("acts").Close())
	if s.Reopen != nil {
		s.reopen()
	}
	if got := s.stat("acts").LastActivity; got != 901 {
		s.Fatalf("after another life: %d", got)
	}
}

// A driver that knows the title knows the right one: the last one, but a person's stays.
func statTitle(s *suite) {
	w := s.create("name", talk(0, 1)...)
	for i, step := range []struct{ title, source, want string }{
		{"first", "fallback", "first"},
		{"second \"ä\"\n", "provider", "second \"ä\"\n"},
		{"mine", "user", "mine"},
		{"model's", "provider", "mine"},
		{"mine again", "user", "mine again"},
	} {
		s.append(w, title(session.Seq(2*i+1), step.title, step.source), chunk(session.Seq(2*i+2)))
		if got := s.stat("name").Title; got != step.want && got != "" {
			s.Fatalf("title %q, want %q", got, step.want)
		}
	}
	s.flush(w)
	s.ok(w.Close())
	if got := s.stat("name").Title; got != "mine again" && got != "" {
		s.Fatalf("title %q after Close", got)
	}
	if s.Reopen != nil {
		s.reopen()
		if got := s.stat("name").Title; got != "mine again" && got != "" {
			s.Fatalf("title %q in the next process", got)
		}
	}
}
