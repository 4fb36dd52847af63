//go:build unix

package main_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
)

const helloBody = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`

func askFake(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("POST", url+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer sk-very-secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestFakeLLM: the command says where it serves, what it serves, and leaves with 0 when it is asked to.
func TestFakeLLM(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := newPlace(t)
		script := p.file("replies.jsonl", "{\"text\":\"one\"}\n{\"error\":{\"status\":429}}\n")
		record := filepath.Join(p.work, "requests.jsonl")
		w := p.start("fake-llm", "--script", script, "--record", record)
		url := strings.TrimSpace(w.line())
		if !strings.HasPrefix(url, "http://127.0.0.1:") || !strings.HasSuffix(url, "/v1") {
			t.Fatalf("the first line is %q", url)
		}
		for _, c := range []struct {
			body string
			code int
			want string
		}{
			{helloBody, 200, `"content":"one"`},
			{`{"model":"m","messages":[{"role":"tool","tool_call_id":"c","content":"r"}]}`, 400, "must be a response to a preceding message"},
			{helloBody, 429, "rate_limit_exceeded"},
			{helloBody, 400, "is used up"},
		} {
			if code, got := askFake(t, url, c.body); code != c.code || !strings.Contains(got, c.want) {
				t.Errorf("%s: %d %s", c.body, code, got)
			}
		}
		http.DefaultClient.CloseIdleConnections()
		if err := w.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if rest := w.line(); rest != "" {
			t.Errorf("more on stdout: %q", rest)
		}
		if err := w.cmd.Wait(); err != nil {
			t.Errorf("%v: %v", sig, err)
		}
		want := "strand: note: request 1: line 1: reply\n" +
			"strand: note: request 2: refused: Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls' (tool_call_id \"c\").\n" +
			"strand: note: request 3: line 2: 429 RATE_LIMIT\n" +
			"strand: note: request 4: refused: the script " + script + " is used up: it has 2 lines and none is left for request 3 (purpose \"turn\"); add a line to it\n"
		if got := w.err.String(); got != want {
			t.Errorf("stderr:\n%swant:\n%s", got, want)
		}
		b, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), "\n"); n != 4 || strings.Contains(string(b), "secret") {
			t.Errorf("recorded:\n%s", b)
		}
		if info, err := os.Stat(record); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info.Mode(), err)
		}
	}
}

func TestFakeLLMRepeatsInJSON(t *testing.T) {
	p := newPlace(t)
	w := p.start("fake-llm", "--script", p.file("r.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n"), "--repeat", "--json", "--quiet", "--listen", "localhost:0")
	var first struct {
		BaseURL string `json:"baseUrl"`
	}
	if err := json.Unmarshal([]byte(w.line()), &first); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		want := []string{"one", "two"}[i%2]
		if code, got := askFake(t, first.BaseURL, helloBody); code != 200 || !strings.Contains(got, fmt.Sprintf(`"content":%q`, want)) {
			t.Errorf("%d: %d %s", i, code, got)
		}
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	if err := w.cmd.Wait(); err != nil || w.err.Len() > 0 {
		t.Errorf("%v: %s", err, w.err.String())
	}
}

func TestFakeLLMRefuses(t *testing.T) {
	p := newPlace(t)
	script := p.file("r.jsonl", "{}\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "strand: --script: there is nothing to serve; name a file with one reply per line: {\"text\":\"..\"}\n"},
		{[]string{"--script", p.file("bad.jsonl", "{\"fault\":\"nap\"}")}, "unknown fault \"nap\""},
		{[]string{"--script", script, "--listen", "0.0.0.0:0"}, "strand: --listen: fake: \"0.0.0.0:0\" is not an address of the loopback, such as 127.0.0.1:0; for example --listen 127.0.0.1:0\n"},
		{[]string{"--script", script, "--listen", ":8080"}, "not an address of the loopback"},
		{[]string{"--script", script, "--record", filepath.Join(p.work, "no", "where")}, "strand: --record: "},
	} {
		if r := p.strand(2, append([]string{"fake-llm"}, c.args...)...); !strings.Contains(r.errOut, c.want) || strings.Count(r.errOut, "\n") != 1 || r.out != "" {
			t.Errorf("%v: %s", c.args, r.errOut)
		}
	}
}
