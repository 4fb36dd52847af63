package scenario

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	anyID    = regexp.MustCompile(`\b[0-9a-hjkmnp-tv-z]{20}\b`)
	anyAddr  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	anyDelay = regexp.MustCompile(`attempt 2 in (0\.|[0-9]+m|1s)[0-9.]*s?\n`)
)

// wireFault is a way in which a service fails in the second step of a turn, and what a person reads of it.
type wireFault struct {
	name   string
	line   line
	stderr string
	fatal  bool // the turn ends; else the request is sent again
}

const goesOn = "go on with strand run --session ID\n"

// again is the line of a request that is sent again.
func again(code, what string) string {
	return "strand: note: the model failed (" + code + "): " + what + "; attempt 2 in DELAY\n"
}

const (
	notWhole = "the connection was closed before the answer was complete"
	anError  = "The server had an error while processing your request. Sorry about that!"
)

var wireFaults = []wireFault{
	{name: "reset before the answer", line: line{Fault: "reset"},
		stderr: again("TRANSPORT", "the service cannot be reached: read tcp ADDR->ADDR: read: connection reset by peer")},
	{name: "reset", line: line{Text: "so far", Fault: "reset"},
		stderr: again("TRANSPORT", "the connection broke: read tcp ADDR->ADDR: read: connection reset by peer")},
	{name: "half an event", line: line{Text: "so far", Fault: "half-event"}, stderr: again("STREAM_CLOSED", notWhole)},
	{name: "cut", line: line{Text: "so far", Fault: "cut"}, stderr: again("STREAM_CLOSED", notWhole)},
	{name: "no terminator", line: line{Text: "so far", Fault: "no-end"}, stderr: again("STREAM_CLOSED", notWhole)},
	{name: "no terminator after a call", line: line{ToolCalls: []call{bash("echo never >> made.txt")}, Fault: "no-end"},
		stderr: again("STREAM_CLOSED", notWhole)},
	{name: "nothing", line: line{Fault: "no-end"}, stderr: again("STREAM_CLOSED", notWhole)},
	{name: "empty reply", line: line{}, stderr: again("EMPTY_RESPONSE", "the model answered with nothing")},
	{name: "429", line: line{Error: &failure{Status: 429}}, stderr: again("RATE_LIMIT", "Rate limit reached for requests")},
	{name: "429 with retry-after", line: line{Error: &failure{Code: "RATE_LIMIT", RetryAfterMs: 1230}},
		stderr: "strand: note: the model failed (RATE_LIMIT): Rate limit reached for requests; attempt 2 in 1.23s\n"},
	{name: "500", line: line{Error: &failure{Status: 500}}, stderr: again("SERVER", anError)},
	{name: "502 of a proxy", line: line{Error: &failure{Status: 502, HTML: true}}, stderr: again("SERVER", "Bad Gateway")},
	{name: "error in the stream", line: line{Text: "so far", Error: &failure{Message: "overloaded"}}, stderr: again("SERVER", "overloaded")},
	{name: "stall", line: line{Text: "so far", Fault: "stall"}, stderr: again("TIMEOUT", "the model sent nothing for 300ms")},
	{name: "stall with pings", line: line{Text: "so far", Fault: "stall", PingMs: 50}, stderr: again("TIMEOUT", "the model sent nothing for 300ms")},
	{name: "slow headers", line: line{HeadersMs: 3600_000}, stderr: again("TIMEOUT", "the model sent nothing for 300ms")},
	{name: "malformed", line: line{Text: "so far", Fault: "malformed"}, fatal: true,
		stderr: "strand: turn 1: the service sent an event that cannot be read; " + goesOn},
	{name: "web page", line: line{Fault: "wrong-type"}, fatal: true,
		stderr: "strand: turn 1: the service answers with a web page: look at the base URL; " + goesOn},
	{name: "overflow", line: line{Error: &failure{Code: "CONTEXT_WINDOW_EXCEEDED"}}, fatal: true,
		stderr: "strand: turn 1: This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. " +
			"Please reduce the length of the messages; make the conversation smaller with strand compact (again, if once is not enough), name a model that takes more with --model, or take the last turn back with strand undo, then " + goesOn},
	{name: "key refused and repeated", line: line{Error: &failure{Code: "AUTH"}}, fatal: true,
		stderr: "strand: turn 1: Incorrect API key provided: [redacted]; strand config shows where the key comes from: set the right one, then " + goesOn},
	{name: "quota", line: line{Error: &failure{Code: "QUOTA"}}, fatal: true,
		stderr: "strand: turn 1: You exceeded your current quota, please check your plan and billing details; " +
			"pay the service, or name another model with --model, then " + goesOn},
	{name: "request refused", line: line{Error: &failure{Code: "INVALID_REQUEST", Message: "no such model: m"}}, fatal: true,
		stderr: "strand: turn 1: no such model: m; " + goesOn},
}

// TestWireFaults: each fault of a service, in the middle of a turn with tools, gives the person one line that
// says what happened, and leaves a session that goes on.
func TestWireFaults(t *testing.T) {
	for _, f := range wireFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			settings := []string{}
			if f.line.Fault == "stall" || f.line.HeadersMs > 0 { // the others are not asked to be quick
				settings = append(settings, `idle_timeout = "300ms"`)
			}
			s := b.serve([]line{use(bash("echo once >> made.txt")), f.line, say("fine"), say("and on")}, "127.0.0.1:0", settings...)
			r := b.strand(b.wireArgs(s, "make it")...)
			got := anyAddr.ReplaceAllString(anyID.ReplaceAllString(r.err, "ID"), "ADDR")
			got = anyDelay.ReplaceAllString(got, "attempt 2 in DELAY\n")
			if got != f.stderr {
				t.Errorf("stderr:\n%swant:\n%s", got, f.stderr)
			}
			code, out := 0, "fine\n"
			if f.fatal {
				code, out = 8, ""
			}
			if r.code != code || !f.fatal && r.out != out || strings.Contains(r.out, "once") {
				t.Errorf("%v", r)
			}
			id := b.sessionIDs()[0]
			next := b.ok(b.wireArgs(s, "go on", "--session", id)...)
			if want := map[bool]string{true: "fine\n", false: "and on\n"}[f.fatal]; next.out != want || next.err != "" {
				t.Errorf("the next message: %v", next)
			}
			if made, err := os.ReadFile(filepath.Join(b.ws, "made.txt")); string(made) != "once\n" {
				t.Errorf("the tools made %q: %v", made, err)
			}
			if err := checkViewFor("fake", b.viewFor("fake", id)); err != nil {
				t.Error(err)
			}
			s.stop(t)
			(&wireLog{}).add(t, s.requests(t))
			b.requestsDoctor(id)
			b.noSecrets(r, next)
		})
	}
}

// TestServiceGone: a service that does not come back is given up after some attempts, of which each is told; the
// session goes on when it is there again.
func TestServiceGone(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	s := b.serve([]line{{Text: "begun", ToolCalls: []call{bash("echo once >> made.txt")}}, {Text: "so far", Hang: true}}, "127.0.0.1:0")
	p := b.start(b.wireArgs(s, "make it")...)
	p.until("begun")
	s.p.kill()
	s.p.wait()
	if code := p.wait(); code != 8 {
		t.Errorf("exit code %d", code)
	}
	lines := strings.Split(strings.TrimSuffix(p.errs.String(), "\n"), "\n")
	if len(lines) != 5 {
		t.Fatalf("want a line for each of 4 attempts and one for the end:\n%s", p.errs)
	}
	for i, l := range lines {
		want := "strand: note: the model failed (TRANSPORT): the service cannot be reached: "
		switch i {
		case 0:
			want = "strand: note: the model failed ("
		case 4:
			want = "strand: turn 1: the service cannot be reached: "
		}
		if !strings.HasPrefix(l, want) {
			t.Errorf("line %d is %q", i+1, l)
		}
	}
	if want := "see whether the service runs and strand config has its address, then go on with"; !strings.Contains(lines[4], want) {
		t.Errorf("%q does not say what to do", lines[4])
	}
	id := b.sessionIDs()[0]
	again := b.serve([]line{say("here again")}, "127.0.0.1:0")
	if r := b.ok(b.wireArgs(again, "go on", "--session", id)...); r.out != "here again\n" || r.err != "" {
		t.Errorf("%v", r)
	}
	again.stop(t)
	w := &wireLog{}
	w.add(t, s.requests(t))
	w.add(t, again.requests(t))
	b.requestsDoctor(id)
}
