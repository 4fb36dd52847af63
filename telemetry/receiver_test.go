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
