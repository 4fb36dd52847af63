//go:build unix

package main_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// titled is newWired with a configuration that asks for titles.
func titled(t *testing.T, title, script string) *wired {
	t.Helper()
	w := newWired(t, script)
	path := filepath.Join(w.work, "config.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("title = \""+title+"\"\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// A title by the model, over the wire: it costs, it can be made again, and a fork and a later life keep it.
func TestTitleOverTheWire(t *testing.T) {
	t.Parallel()
	w := titled(t, "fake/small", `{"text":"Hello.","usage":{"inputTokens":100,"outputTokens":20}}
{"purpose":"title","text":"\"A greeting\"","usage":{"inputTokens":30,"outputTokens":4}}
{"text":"Again."}
{"text":"And again."}
`)
	w.run(0, "good morning to all of you")
	w.run(0, "--continue", "more")
	if ls := w.strand(0, "ls", "--json").out; !strings.Contains(ls, `"title":"A greeting"`) || !strings.Contains(ls, `"inputTokens":130,"outputTokens":24`) {
		t.Errorf("the list says %s", ls)
	}
	if s := w.strand(0, "stats", "--json").out; !strings.Contains(s, `"key":"fake/small","sessions":1,"turns":0,"steps":0,"toolCalls":0,"usage":{"inputTokens":30,"outputTokens":4}`) {
		t.Errorf("stats say %s", s)
	}
	w.checkLog()
	id := sessionPattern.FindStringSubmatch(w.strand(0, "fork", "last", "--json").out)[1]
	w.run(0, "--session", id, "in the fork")
	if got := w.strand(0, "title", id).out; got != "A greeting\n" {
		t.Errorf("the fork is called %q", got)
	}
	if e := w.strand(0, "show", id, "--events").out; strings.Count(e, `"title/asked"`) != 1 {
		t.Errorf("the fork asked too: %s", e)
	}
}

// Killed between the request for a title and its answer: the session has the title that it had, nobody asks again, and
// what a person calls it stays.
func TestTitleKilled(t *testing.T) {
	t.Parallel()
	w := titled(t, "model", `{"text":"Hello."}
{"purpose":"title","hang":true}
{"text":"Again."}
{"purpose":"title","text":"never"}
`)
	cmd := w.command("chat", "--config", "config.toml")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "good morning")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for seen := 0; seen < 2; { // the service has both requests
		b, err := os.ReadFile(w.record)
		if seen = bytes.Count(b, []byte("\n")); err != nil || ctx.Err() != nil {
			_ = cmd.Process.Kill()
			t.Fatalf("no request for a title: %v\n%s", err, b)
		}
		time.Sleep(time.Millisecond)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if got := w.strand(0, "title", "last").out; got != "good morning\n" {
		t.Errorf("it is called %q", got)
	}
	w.run(0, "--continue", "more")
	if e := w.strand(0, "show", "last", "--events").out; strings.Count(e, `"title/asked"`) != 1 || strings.Contains(e, `"title/answered"`) {
		t.Errorf("the log says %s", e)
	}
	w.checkLog()
	w.strand(0, "title", "last", "mine")
	if got := w.strand(0, "ls", "--json").out; !strings.Contains(got, `"title":"mine"`) {
		t.Errorf("the list says %s", got)
	}
}
