package telemetry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/telemetry"
	"github.com/strandline-dev/strandline/telemetry/otlptest"
)

// The receiver is away, refuses, answers nonsense, or sends elsewhere: the session does not notice, all of it is
// counted, and the reason says nothing of the address.
func TestReceiverFails(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, c := range []struct {
		name, url string
		answer    http.HandlerFunc
		why       string // "": nothing is lost
	}{
		{"gone", strings.Replace(gone.URL, "http://", "http://user:password@", 1), nil, "refused"},
		{"500", "", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }, "HTTP 500"},
		{"429", "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}, "HTTP 429"},
		{"garbage", "", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>\xff\x00 welcome")) }, ""},
		{"half an answer", "", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := otlptest.New(t)
			r.Answer = c.answer
			if c.url == "" {
				c.url = r.URL
			}
			tel := start(t, c.url, nil)
			l := newLife(t, session.Header{ID: "root-1"}, session.Seed{})
			f := tel.Follow(l.s, syncedUpTo(everything))
			l.turn(1)
			f.End()
			lost := tel.Close(context.Background())
			if c.why == "" && lost.Items != 0 || c.why != "" && (lost.Items != lost.Of || lost.Of < 30) {
				t.Errorf("lost %+v", lost)
			}
			if !strings.Contains(lost.Why, c.why) || strings.Contains(lost.Why, "password") {
				t.Errorf("why %q, want %q", lost.Why, c.why)
			}
			// Each batch is sent once: a batch of each signal. (The client itself repeats what never reached a server.)
			if reqs, _ := r.Requests(); len(reqs) > 3 {
				t.Errorf("%d requests", len(reqs))
			}
		})
	}
}

// partially answers a batch of one signal with a partial_success, written by hand: field 1, of it field 1 (how many
// were refused) and field 2 (why); the others are taken.
func partially(path string, refused byte, why string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		if req.URL.Path == path {
			in := "\x08" + string(refused) + "\x12" + string(byte(len(why))) + why
			_, _ = w.Write([]byte("\x0a" + string(byte(len(in))) + in))
		}
	}
}

// A receiver that takes a part of a batch says so in its answer: that much is counted as lost, with its reason, and is not
// sent again. One that took everything and has something to say is heard. Neither repeats a credential.
func TestPartialSuccess(t *testing.T) {
	const credential = "topsecretvalue"
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		lost   int64
		why    string
		remark string
	}{
		{name: "spans", answer: partially("/v1/traces", 3, "quota of "+credential), lost: 3, why: "it refused them: quota of [redacted]"},
		{name: "records without a reason", answer: partially("/v1/logs", 2, ""), lost: 2, why: "it refused them"},
		{name: "points of a batch", answer: partially("/v1/metrics", 7, "too late"), lost: 1, why: "it refused them: too late"},
		{name: "more than there are", answer: partially("/v1/metrics", 127, "x"), lost: 1, why: "it refused them: x"},
		{name: "a remark", answer: partially("/v1/logs", 0, "names are deprecated"), remark: "names are deprecated"},
		{name: "a long remark", answer: partially("/v1/logs", 0, strings.Repeat("x", 110)), remark: strings.Repeat("x", 110)},
		{name: "whole", answer: partially("/v1/logs", 0, "")},
		{name: "negative", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write([]byte("\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
		}},
		{name: "cut", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write([]byte("\x0a\x0b\x08"))
		}},
		{name: "not protobuf", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write([]byte("\x0a\x02\x08\x05"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := otlptest.New(t)
			r.Answer = c.answer
			tel := start(t, r.URL, func(o *telemetry.Options) {
				o.Traces.Headers = map[string]string{"Authorization": "Bearer " + credential}
			})
			l := newLife(t, session.Header{ID: "root-1"}, session.Seed{})
			f := tel.Follow(l.s, syncedUpTo(everything))
			l.turn(1)
			f.End()
			if lost := tel.Close(context.Background()); lost.Items != c.lost || lost.Why != c.why || lost.Remark != c.remark {
				t.Errorf("lost %+v", lost)
			}
			if reqs, _ := r.Requests(); len(reqs) != 3 {
				t.Errorf("%d requests", len(reqs))
			}
		})
	}
}

// A receiver that does not answer: what comes is taken without a wait, the queues are bounded, and the end comes when
// its context ends. Nothing runs afterwards.
func TestReceiverHangs(t *testing.T) {
	r := otlptest.New(t)
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) }) // before the server is closed, which waits for it
	r.Answer = func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-hold:
		case <-req.Context().Done():
		}
	}
	t.Setenv("OTEL_BLRP_MAX_QUEUE_SIZE", "100")
	t.Setenv("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "10")
	tel := start(t, r.URL, nil)
	l := newLife(t, session.Header{ID: "root-1"}, session.Seed{})
	f := tel.Follow(l.s, syncedUpTo(everything))
	for range 1000 {
		l.add(session.TypeTitle, session.Title{Title: "t", Source: "user"})
	}
	f.End()
	for reqs, more := r.Requests(); len(reqs) == 0; reqs, more = r.Requests() {
		<-more
	}
	ctx, end := context.WithCancel(context.Background())
	over := make(chan telemetry.Lost)
	go func() { over <- tel.Close(ctx) }()
	end()
	if lost := <-over; lost.Items != lost.Of || lost.Of < 1001 || !strings.Contains(lost.Why, "ended before it answered") {
		t.Errorf("lost %+v", lost)
	}
	if f := tel.Follow(l.s, syncedUpTo(everything)); f != nil {
		t.Error("a closed telemetry follows")
	}
}

// Only what is on is sent, to where it belongs, with its headers; none of them shows elsewhere.
func TestTargets(t *testing.T) {
	r := otlptest.New(t)
	tel := start(t, r.URL, func(o *telemetry.Options) {
		o.Metrics.URL = ""
		o.Traces.Headers, o.Traces.Gzip = map[string]string{"Authorization": "Bearer " + secret}, true
		o.Logs.URL = r.URL + "/deep/v1/logs"
	})
	l := newLife(t, session.Header{ID: "root-1"}, session.Seed{})
	f := tel.Follow(l.s, syncedUpTo(everything))
	l.turn(1)
	f.End()
	closed(t, tel)
	reqs, _ := r.Requests()
	if len(reqs) != 2 || len(r.Spans()) == 0 || len(r.Records()) == 0 {
		t.Fatalf("%d requests", len(reqs))
	}
	for _, req := range reqs {
		traces := req.URL.Path == "/v1/traces"
		if !traces && req.URL.Path != "/deep/v1/logs" || traces != (req.Header.Get("Authorization") != "") || traces != (req.Header.Get("Content-Encoding") == "gzip") {
			t.Errorf("%s %v", req.URL.Path, req.Header)
		}
	}
	if strings.Contains(r.Raw(), "Bearer") {
		t.Error("a header stands in a body")
	}
}

// A prompt is not told by a type name, a key or an id either, when a log has been tampered with.
func TestHostileNames(t *testing.T) {
	r := otlptest.New(t)
	tel := start(t, r.URL, nil)
	l := newLife(t, session.Header{ID: "root-1"}, session.Seed{})
	f := tel.Follow(l.s, syncedUpTo(everything))
	l.add(session.TypeTurnStart, session.TurnStart{Turn: 1})
	l.add(session.TypeStepStart, session.StepRef{Turn: 1, Step: 1})
	l.add(session.TypeToolCall, session.ToolCall{Turn: 1, Step: 1, CallID: secret, Name: secret + strings.Repeat("x", 5000), Arguments: "{}"})
	l.add(session.TypeToolResult, session.ToolResult{Turn: 1, Step: 1, Message: resultOf(secret), Error: &session.ErrorInfo{Code: secret}})
	l.add(session.TypeTurnEnd, session.TurnEnd{Turn: 1, Reason: session.Reason{Kind: secret, Cause: secret, Detail: prompt}})
	f.End()
	closed(t, tel)
	if out := r.Raw(); strings.Contains(out, "sk-proj") || strings.Contains(out, "velvet") || len(out) > 8<<10 {
		t.Errorf("%d bytes leave", len(out))
	}
}

// The names that this package knows of others by heart are theirs.
func TestNamesOfOthers(t *testing.T) {
	reg := registry(t)
	for _, typ := range []string{agent.TypeRetry, agent.TypeSent, "compact/start", "subagent/start"} {
		if _, ok := reg.Lookup(typ); !ok {
			t.Errorf("%s is not declared", typ)
		}
	}
	if k, _ := reg.Lookup("compact/start"); k.Opens != "compaction" {
		t.Errorf("a compaction is called %s", k.Opens)
	}
	if k, _ := reg.Lookup("subagent/start"); k.Opens != "subagent" || k.Key != "childId" {
		t.Errorf("a child is called %s by %s", k.Opens, k.Key)
	}
	if agent.TypeRetry != "llm/retry" || agent.TypeSent != "request/sent" {
		t.Error("an event of the loop is called otherwise")
	}
}
