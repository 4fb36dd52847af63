package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// service is `strand fake-llm` in a process of its own, and the configuration that leads to it.
type service struct {
	p                   *proc
	url, config, record string
}

// serve starts a model service that plays lines, on an address such as 127.0.0.1:0.
func (b *box) serve(lines []line, addr string, settings ...string) *service {
	b.t.Helper()
	script := b.script(lines...)
	s := &service{config: script + ".toml", record: script + ".requests"}
	s.p = b.start("fake-llm", "--script", script, "--listen", addr, "--record", s.record)
	url, ok := s.p.next()
	if !ok {
		s.p.wait()
		b.t.Fatalf("fake-llm does not serve: %s", s.p.errs)
	}
	s.url = url
	config := fmt.Sprintf("[providers.fake]\nkind = \"openai\"\nbase_url = %q\nkey = \"sk-very-secret\"\n%s\n", url, strings.Join(settings, "\n"))
	if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// stop ends the service as a person does and wants it to leave well.
func (s *service) stop(t testing.TB) {
	t.Helper()
	_ = s.p.cmd.Process.Signal(syscall.SIGTERM)
	if code := s.p.wait(); code != 0 {
		t.Errorf("fake-llm ended with exit code %d: %s", code, s.p.errs)
	}
}

func (b *box) wireArgs(s *service, prompt string, args ...string) []string {
	return append([]string{"run", prompt, "--model", "fake/m", "--config", s.config, "--cwd", b.ws, "--approve", "yolo"}, args...)
}

// asked is one request as the service recorded it.
type asked struct {
	N       int    `json:"n"`
	Line    int    `json:"line"`
	Refused string `json:"refused"`
	SHA256  string `json:"sha256"`
	Body    struct {
		Messages []jsontext.Value `json:"messages"`
	} `json:"body"`
}

// requests reads what a service recorded; a line that a killed one left half is passed over.
func (s *service) requests(t testing.TB) []asked {
	t.Helper()
	all, err := os.ReadFile(s.record)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(all), "sk-very-secret") {
		t.Errorf("a key is recorded in %s", s.record)
	}
	var out []asked
	for l := range strings.Lines(string(all)) {
		if !strings.HasSuffix(l, "\n") {
			break
		}
		out = append(out, decode[asked](t, l))
	}
	return out
}

// wireLog is what one session asked over all its lives.
type wireLog struct {
	n    int
	last []jsontext.Value // messages of the request before
}

// add wants each request to be accepted, and to go on where the one before ended: a provider's cache holds
// what two requests have in common.
func (w *wireLog) add(t testing.TB, rs []asked) {
	t.Helper()
	for _, r := range rs {
		w.n++
		if r.Refused != "" {
			t.Errorf("the service refused a request: %s", r.Refused)
		}
		for i, m := range w.last {
			if i >= len(r.Body.Messages) || string(m) != string(r.Body.Messages[i]) {
				t.Errorf("message %d of request %d differs from that of the request before, of %d messages:\n%s\n%s", i, w.n, len(w.last), m, r.Body.Messages[min(i, len(r.Body.Messages)-1)])
				break
			}
		}
		w.last = r.Body.Messages
	}
}

// noSecrets: the key stands in no file of the store and in nothing that was printed.
func (b *box) noSecrets(r ...result) {
	b.t.Helper()
	for _, r := range r {
		if strings.Contains(r.out+r.err, "sk-very-secret") {
			b.t.Errorf("a key is printed: %v", r)
		}
	}
	err := filepath.WalkDir(b.store, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		if strings.Contains(string(data), "sk-very-secret") {
			b.t.Errorf("a key is stored in %s", p)
		}
		return err
	})
	if err != nil {
		b.t.Error(err)
	}
}

// requestsDoctor wants every request of a session to be made again as it was.
func (b *box) requestsDoctor(id string) {
	b.t.Helper()
	r := b.ok("doctor", id, "--requests", "--json")
	for l := range strings.Lines(r.out) {
		var d struct {
			Problems []map[string]any `json:"problems"`
		}
		if err := json.Unmarshal([]byte(l), &d); err != nil || len(d.Problems) > 0 {
			b.t.Errorf("doctor --requests: %v %s", err, l)
		}
	}
}
