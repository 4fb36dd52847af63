package scenario

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/telemetry/otlptest"
)

// exports runs the command with a receiver; more is added to its environment.
func (b *box) exports(url string, args []string, more ...string) *exec.Cmd {
	cmd := b.command(context.Background(), args...)
	cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+url)
	cmd.Env = append(cmd.Env, more...)
	return cmd
}

func (b *box) exported(url string, args []string, more ...string) result {
	b.t.Helper()
	r := b.finish(context.Background(), b.exports(url, args, more...))
	if r.code != 0 {
		b.t.Fatalf("want success: %v", r)
	}
	return r
}

// told are the seqs of a session's records, and their types.
func told(r *otlptest.Receiver, id string) (seqs []int64, types map[int64]string) {
	types = map[int64]string{}
	for _, rec := range r.Records() {
		if rec.Attrs["gen_ai.conversation.id"] == id {
			n, _ := strconv.ParseInt(rec.Attrs["strandline.event.seq"], 10, 64)
			seqs = append(seqs, n)
			types[n] = rec.Attrs["strandline.event.type"]
		}
	}
	return seqs, types
}

// A session is killed in the middle of a call, goes on, delegates, is compacted and forked. Over all of it no event is
// told twice, each life's begin at its boundary without a gap, a fork tells its own, and no word of anybody leaves.
func TestTelemetryOverLives(t *testing.T) {
	b := newBox(t)
	r := otlptest.New(t)
	const word, key = "velvetsubmarine", "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ"
	first := []line{
		use(bash("echo " + word + " " + key + " > " + b.file("done"))),
		use(bash("echo started > " + b.file("hangs") + "; sleep 1000")),
	}
	cmd := b.exports(r.URL, b.runArgs(word, first), "OTEL_BLRP_SCHEDULE_DELAY=1", "OTEL_BSP_SCHEDULE_DELAY=1")
	p := startCmd(t, cmd)
	for { // by progress: the second call runs, and a part of what came before it is told
		if _, err := os.Stat(b.file("hangs")); err == nil && len(r.Spans()) > 0 && len(r.Records()) > 10 {
			break
		}
		if p.cmd.ProcessState != nil {
			t.Fatal("the command ended")
		}
		spin(1_000_000)
	}
	p.kill()
	p.wait()
	id := decodeLines[child](t, b.ok("ls", "--json", "--project", b.ws).out)[0].ID
	for _, s := range r.Spans() {
		if strings.HasPrefix(s.Name, "turn") || strings.HasPrefix(s.Name, "invoke_agent") {
			t.Errorf("the killed life tells of the end of %s", s.Name)
		}
	}

	second := []line{
		use(call{"task", map[string]any{"prompt": word, "name": "kid"}}),
		{Purpose: "subagent/kid", Text: word},
		say(word),
	}
	b.exported(r.URL, b.runArgs("go on, "+word, second, "--session", id))
	b.longTalk("long-talk", 40)
	b.exported(r.URL, b.compactArgs("long-talk", summary(line{Text: word, Usage: &usage{100, 10}})))
	fork := decode[child](t, b.ok("fork", id, "--json").out).ID
	b.exported(r.URL, b.runArgs(word, []line{say(word)}, "--session", fork))

	for _, s := range []string{id, fork, "long-talk"} {
		seqs, types := told(r, s)
		seen := map[int64]bool{}
		for _, n := range seqs {
			if seen[n] {
				t.Errorf("%s: %d is told twice", s, n)
			}
			seen[n] = true
		}
		log := b.logOf(s)
		boundary := int64(-1)
		for n, typ := range log {
			if typ == session.TypeInherited {
				boundary = int64(n)
			}
		}
		if s == fork {
			boundary++ // it was written when the fork was made, by a command that tells nothing
		}
		for n := boundary; n < int64(len(log)); n++ {
			if !seen[n] || types[n] != log[n] {
				t.Errorf("%s: %d (%s) is not told, or as %q", s, n, log[n], types[n])
			}
		}
		for n := range seen {
			if s != id && n < boundary {
				t.Errorf("%s: %d lies below its boundary %d", s, n, boundary)
			}
		}
	}
	kid := b.children(id)[0].ID
	var inParent, kids, compactions int
	link := ""
	for _, s := range r.Spans() {
		switch {
		case s.Name == "subagent" && s.Attrs["strandline.key"] == kid:
			inParent++
			link = s.Trace + ":" + s.ID
		case s.Name == "compaction" && s.Attrs["strandline.outcome"] == "done" && s.Attrs["gen_ai.usage.input_tokens"] == "100":
			compactions++
		}
	}
	for _, s := range r.Spans() {
		if s.Attrs["gen_ai.conversation.id"] == kid && s.Parent == "" && len(s.Links) == 1 && s.Links[0] == link {
			kids++
		}
	}
	if inParent != 1 || kids != 1 || compactions != 1 {
		t.Errorf("%d spans of the child in its parent, %d of its own with a link, %d compactions", inParent, kids, compactions)
	}
	if out := r.Raw(); strings.Contains(out, word) || strings.Contains(out, "sk-proj") || strings.Contains(out, b.ws) {
		t.Error("content leaves unasked")
	}
	b.exported(r.URL, b.runArgs(word+" "+key, []line{say(word)}), "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true")
	if out := r.Raw(); !strings.Contains(out, word) || strings.Contains(out, "sk-proj") {
		t.Error("content does not leave when asked for, or not redacted")
	}
}

// logOf are the types of a session's events.
func (b *box) logOf(id string) (types []string) {
	b.t.Helper()
	for _, ev := range decodeLines[struct {
		Type string `json:"type"`
	}](b.t, b.ok("show", id, "--events", "--json").out) {
		types = append(types, ev.Type)
	}
	return types
}

// Without a receiver, with one that is gone, or one that hangs, the answer and the exit code are the same, and at most
// one line says so, without the credential. Looking exports nothing.
func TestTelemetryWithoutReceiver(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	hold := make(chan struct{})
	hangs := otlptest.New(t)
	t.Cleanup(func() { close(hold) })
	hangs.Answer = func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-hold:
		case <-req.Context().Done():
		}
	}
	b := newBox(t)
	plain := b.strand(b.runArgs("hello", []line{say("the answer")})...)
	for name, url := range map[string]string{"gone": gone.URL, "hangs": hangs.URL} {
		r := b.exported(url, b.runArgs("hello", []line{say("the answer")}), "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20topsecret")
		if r.out != plain.out || strings.Count(r.err, "\n") != strings.Count(plain.err, "\n")+1 || !strings.Contains(r.err, "strand: note: telemetry: ") || strings.Contains(r.err, "topsecret") {
			t.Errorf("%s: %v\nwithout: %v", name, r, plain)
		}
		if r = b.exported(url, append(b.runArgs("hello", []line{say("the answer")}), "--quiet")); r.err != "" {
			t.Errorf("%s, quiet: %v", name, r)
		}
	}
	looks := otlptest.New(t)
	for _, args := range [][]string{{"ls"}, {"show", "last"}, {"config"}, {"doctor"}, {"version"}} {
		r := b.finish(context.Background(), b.exports(looks.URL, args, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20topsecret"))
		if strings.Contains(r.out+r.err, "topsecret") {
			t.Errorf("a header is shown: %v", r)
		}
	}
	if reqs, _ := looks.Requests(); len(reqs) > 0 {
		t.Errorf("looking exports: %v", reqs[0].URL)
	}
	r := b.finish(context.Background(), b.exports(looks.URL, b.runArgs("hello", []line{say("the answer")}), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"))
	if r.code != 0 || !strings.Contains(r.err, "telemetry is off: ") || fmt.Sprint(len(looks.Records())) != "0" {
		t.Errorf("%v", r)
	}
}
