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
	"syscall"
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

// hanging is a receiver that takes everything and never answers.
func hanging(t *testing.T) *otlptest.Receiver {
	hold := make(chan struct{})
	r := otlptest.New(t)
	t.Cleanup(func() { close(hold) })
	r.Answer = func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-hold:
		case <-req.Context().Done():
		}
	}
	return r
}

// Without a receiver, with one that is gone, or one that hangs, the answer and the exit code are the same, and at most
// one line says so, without the credential. Looking exports nothing.
func TestTelemetryWithoutReceiver(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	hangs := hanging(t)
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

// Every command that writes events as a life of the session tells of them: a person's answer, a title, a turn that is
// taken back, and a compaction that is, as much as what an agent does. Over all of them each event is told once.
func TestTelemetryOfEveryCommand(t *testing.T) {
	b := newBox(t)
	r := otlptest.New(t)
	ask := func(more ...string) result {
		return b.finish(context.Background(), b.exports(r.URL, append(more, "--json")))
	}
	if res := ask("run", "one call", "--script", b.script(use(bash("echo one")), say("done")), "--cwd", b.ws, "--approve", "ask"); res.code != 8 {
		t.Fatalf("a call that waits: %v", res)
	}
	id := b.sessionIDs()[0]
	for _, args := range [][]string{
		{"approve", id, "--no-run"},
		{"run", "", "--session", id, "--script", b.script(say("fine"), say("fine")), "--cwd", b.ws, "--approve", "never-ask"},
		{"title", id, "a title"},
		{"undo", id},
		{"undo", id, "--redo"},
	} {
		if args[0] == "run" {
			args[1] = "go on"
		}
		if res := ask(args...); res.code != 0 {
			t.Fatalf("%s: %v", args[0], res)
		}
	}
	b.longTalk("long-talk", 40)
	imported := len(b.logOf("long-talk"))
	b.exported(r.URL, b.compactArgs("long-talk", summary(line{Text: "short"})))
	b.exported(r.URL, []string{"compact", "long-talk", "--undo"})
	for s, first := range map[string]int{id: 0, "long-talk": imported} {
		log := b.logOf(s)
		seqs, types := told(r, s)
		if len(seqs) != len(log)-first {
			t.Errorf("%s: %d records of %d events from %d", s, len(seqs), len(log), first)
		}
		for n := first; n < len(log); n++ {
			if types[int64(n)] != log[n] {
				t.Errorf("%s: %d (%s) is told as %q", s, n, log[n], types[int64(n)])
			}
		}
	}
	// A configuration that cannot be read, and a receiver that is gone, keep nobody from giving a title.
	config := b.file("bad.toml")
	if err := os.WriteFile(config, []byte("[telemetry\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if res := b.strand("title", id, "another", "--config", config); res.code != 0 || strings.Count(res.err, "telemetry is off: ") != 1 {
		t.Errorf("%v", res)
	}
	if res := b.exported("http://127.0.0.1:1", []string{"title", id, "a third"}); strings.Count(res.err, "\n") != 1 || !strings.Contains(res.err, "strand: note: telemetry: ") {
		t.Errorf("%v", res)
	}
}

// A receiver behind TLS is believed by the certificate that the environment names, and by no other; one that sends
// elsewhere is not followed, and what it was given goes nowhere else; one that takes a part says so in one line.
func TestTelemetryWire(t *testing.T) {
	b := newBox(t)
	const header = "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20topsecret"
	args := func() []string { return b.runArgs("hello", []line{say("the answer")}) }
	plain := b.strand(args()...)
	one := func(what string, res result, want string) {
		t.Helper()
		if res.out != plain.out || strings.Count(res.err, "\n") != strings.Count(plain.err, "\n")+1 || !strings.Contains(res.err, want) || strings.Contains(res.err, "topsecret") {
			t.Errorf("%s: %v\nwithout: %v", what, res, plain)
		}
	}
	write := func(name string, pem []byte) string {
		if err := os.WriteFile(b.file(name), pem, 0o600); err != nil {
			t.Fatal(err)
		}
		return "OTEL_EXPORTER_OTLP_CERTIFICATE=" + b.file(name)
	}
	tls := otlptest.NewTLS(t)
	if res := b.exported(tls.URL, args(), write("ca.pem", tls.CA)); res.err != plain.err || len(tls.Spans()) == 0 || len(tls.Records()) == 0 {
		t.Errorf("TLS: %v, %d spans", res, len(tls.Spans()))
	}
	before, _ := tls.Requests()
	one("the wrong certificate", b.exported(tls.URL, args(), write("other.pem", otherCA)), "certificate")
	one("no certificate", b.exported(tls.URL, args()), "certificate")
	one("a file that holds none", b.exported(tls.URL, args(), write("none.pem", []byte("nothing"))), "telemetry is off: $OTEL_EXPORTER_OTLP_CERTIFICATE")
	one("a file that is not there", b.exported(tls.URL, args(), "OTEL_EXPORTER_OTLP_CERTIFICATE="+b.file("nowhere.pem")), "telemetry is off: $OTEL_EXPORTER_OTLP_CERTIFICATE")
	if after, _ := tls.Requests(); len(after) != len(before) {
		t.Errorf("%d requests reached a receiver that is not trusted", len(after)-len(before))
	}

	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		elsewhere := otlptest.New(t)
		sends := otlptest.New(t)
		sends.Answer = func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, elsewhere.URL+req.URL.Path, status)
		}
		one("sent elsewhere", b.exported(sends.URL, args(), header), fmt.Sprintf("HTTP %d", status))
		if reqs, _ := elsewhere.Requests(); len(reqs) != 0 {
			t.Errorf("%d: %d requests went elsewhere", status, len(reqs))
		}
	}

	part := otlptest.New(t)
	part.Answer = func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		if req.URL.Path == "/v1/logs" { // partial_success: 2 were rejected, and why
			_, _ = w.Write([]byte("\x0a\x17\x08\x02\x12\x13no, topsecret\nquota"))
		}
	}
	one("a part", b.exported(part.URL, args(), header), "telemetry: the receiver did not take 2 of ")
	if reqs, _ := part.Requests(); len(reqs) != 3 {
		t.Errorf("%d requests", len(reqs))
	}
}

// otherCA is a certificate that no receiver shows.
var otherCA = []byte(`-----BEGIN CERTIFICATE-----
MIIBdzCCAR2gAwIBAgIUOQcefMBeNdSnxEvkl2kDNf6D2OMwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFb3RoZXIwIBcNMjYxMjAxMDAxMzE2WhgPMjEyNjExMDcwMDEz
MTZaMBAxDjAMBgNVBAMMBW90aGVyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
leL9weTQlou+jU82KyIsntGvKHs2Y9uILpxCuo0+R195vVB0g/HCZuFgoUelhpvA
65w/CkUFLY0cy27k+PXQs6NTMFEwHQYDVR0OBBYEFIxGjcIi9U5+tx+r+t3Z5HQ+
6I2sMB8GA1UdIwQYMBaAFIxGjcIi9U5+tx+r+t3Z5HQ+6I2sMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhAPJ+DUs0FCdETrha6iwtdBnt8ExN7MlD
YHQIO4YQnfvCAiAX1gjcx6NgsGDp8W5YKlrEubY/sIcC8E+KrpG1s9H4oQ==
-----END CERTIFICATE-----
`)

// A signal cuts the end short, where a receiver does not answer, and the work before it; what the life sent is not sent
// again by the next one, and what it did not send neither.
func TestTelemetryCutShort(t *testing.T) {
	b := newBox(t)
	hangs := hanging(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		before, _ := hangs.Requests()
		cmd := b.exports(hangs.URL, b.runArgs("hello", []line{say("the answer")}), "OTEL_METRICS_EXPORTER=none", "OTEL_TRACES_EXPORTER=none")
		p := startCmd(t, cmd)
		for reqs, more := hangs.Requests(); len(reqs) == len(before); reqs, more = hangs.Requests() { // the end has begun
			<-more
		}
		_ = p.cmd.Process.Signal(sig)
		p.wait()
		if code := p.cmd.ProcessState.ExitCode(); code != 0 || strings.Count(p.errs.String(), "ended before it answered") != 1 {
			t.Errorf("%v: %d %s", sig, code, p.errs)
		}
	}
	id := decodeLines[child](t, b.ok("ls", "--json", "--project", b.ws).out)[0].ID
	first, _ := told(hangs, id)

	// In the middle of a turn: the turn is aborted, and all of that is told.
	good := otlptest.New(t)
	p := startCmd(t, b.exports(good.URL, b.runArgs("go on", []line{use(bash("echo started > " + b.file("hangs") + "; sleep 1000"))}, "--session", id)))
	for {
		if _, err := os.Stat(b.file("hangs")); err == nil {
			break
		}
		if p.cmd.ProcessState != nil {
			t.Fatal("the command ended")
		}
		spin(1_000_000)
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	p.wait()
	b.exported(good.URL, b.runArgs("go on", []line{say("done")}, "--session", id))
	log := b.logOf(id)
	seen := map[int64]int{}
	for _, n := range first {
		seen[n]++
	}
	second, _ := told(good, id)
	for _, n := range second {
		seen[n]++
	}
	for n, typ := range log {
		if seen[int64(n)] != 1 {
			t.Errorf("%d (%s) is told %d times", n, typ, seen[int64(n)])
		}
	}
}
