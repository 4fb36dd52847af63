package main_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// hostileName would, if it were printed as it is, begin a line, colour it, name the window and turn the order around.
const hostileName = "x\nfake: row\r\x1b[31m\x1b]0;t\a\u202eevil\u2066\u2028\u0085y"

// What has a name that somebody else chose - a directory, a title, a header's members, a file - is never printed so
// that it acts on a terminal, and never begins a line of its own.
func TestHostileNames(t *testing.T) {
	p := newPlace(t)
	odd := filepath.Join(p.work, strings.ReplaceAll(hostileName, "/", ""))
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Skip("no such names here: ", err)
	}
	p.store = filepath.Join(odd, "store") // every path in an error has it
	st, err := filestore.Open(p.store, filestore.Options{Now: time.Now, Rand: rand.Reader, Host: hostileName, Program: hostileName, PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	put := func(id session.ID, change func(h *session.Header)) {
		t.Helper()
		h := session.Header{Format: session.Format, ID: id, CreatedAt: 1_700_000_000_000, Kind: session.KindRoot, Cwd: odd, Project: hostileName}
		change(&h)
		s, err := session.New(h, session.Seed{}, session.Env{Now: func() int64 { return h.CreatedAt }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.AppendAll(nil, session.Draft{Type: session.TypeUserMessage, Op: session.Append(), Data: message.User("u-1", hostileName)},
			session.Draft{Type: session.TypeTitle, Data: session.Title{Title: hostileName, Source: hostileName}}); err != nil {
			t.Fatal(err)
		}
		evs, _, err := s.From(0)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Take(context.Background(), h, session.Events(evs).Range(0, session.Seq(len(evs)))); err != nil {
			t.Fatal(err)
		}
	}
	put("plain", func(h *session.Header) { h.Project = p.work })
	put("kind", func(h *session.Header) { h.Kind = hostileName })
	put("imported", func(h *session.Header) {
		h.Kind, h.Imported = session.KindImported, &session.Imported{Tool: hostileName, Source: hostileName, Parent: hostileName, Origin: hostileName}
	})
	put("trashed", func(h *session.Header) {})
	put("broken", func(h *session.Header) {})
	w, err := st.Open(t.Context(), "imported") // whose holder has such a name
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Trash(t.Context(), "trashed"); err != nil {
		t.Fatal(err)
	}
	segment := filepath.Join(p.store, "sessions", "broken", "00000000000000000000.jsonl")
	text, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/3] ^= 1
	if err := os.WriteFile(segment, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// Names in the store itself that no session has.
	for _, dir := range []string{"sessions", "trash", "blobs", "sessions/plain"} {
		if err := os.MkdirAll(filepath.Join(p.store, dir, hostileName), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	broken := filepath.Join(p.work, hostileName+".jsonl")
	if err := os.WriteFile(broken, []byte("{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := p.file("s.jsonl", `{"text":"fine"}`)
	for _, args := range [][]string{
		{"ls"}, {"ls", "--any-project", "--all"}, {"ls", "--any-project", "--trash"},
		{"show", "plain"}, {"show", "kind"}, {"show", "imported"}, {"show", "broken"}, {"show", "trashed"}, {"show", hostileName},
		{"show", "plain", "--stat"}, {"show", "imported", "--stat"}, {"show", "broken", "--stat"},
		{"title", "plain"}, {"doctor"}, {"store"}, {"store", "check"}, {"store", "pack"},
		{"run", "--session", "imported", "--script", script, "x"}, {"run", "--session", "broken", "--script", script, "x"}, {"run", "--script", broken, "x"},
		{"run", "--cwd", hostileName, "--script", script, "x"}, {"run", "--model", hostileName, "x"}, {"run", "--approve", hostileName, "x"},
		{"fork", "plain", "--to", broken}, {"fork", "broken"}, {"import", broken}, {"import", odd}, {"ls", "--cursor", hostileName}, {"export", "plain", "-o", broken + "/x"},
		{"rm", hostileName}, {"purge", "trashed"}, {"purge", "--yes", hostileName}, {"restore", hostileName}, {hostileName}, {"ls", "--" + hostileName}, {"help", hostileName},
		{"config"}, {"--config", broken, "config"}, {"approve", "plain", hostileName}, {"compact", "broken", "--script", script},
		{"__complete", "show", ""}, {"__complete", "restore", ""},
	} {
		r := finish(t, p.command(args...))
		for _, s := range []string{r.out, r.errOut} {
			if i := strings.IndexFunc(s, func(r rune) bool {
				return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) || r == '\u202e' || r == '\u2066'
			}); i >= 0 {
				t.Errorf("strand %q prints %q", args, s[max(0, i-60):min(len(s), i+60)])
			}
			if strings.Contains(s, "\nfake: row") || strings.HasPrefix(s, "fake: row") {
				t.Errorf("strand %q begins a line with somebody's text: %q", args, s)
			}
		}
		if args[0] == "__complete" {
			if !strings.Contains(r.out, "\t") || strings.Contains(r.out, "\t\n") {
				t.Errorf("strand %q: no title in %q", args, r.out)
			}
		} else if r.code != 0 && strings.Count(r.errOut, "\n") != 1 && args[0] != "import" {
			t.Errorf("strand %q: the error is not one line: %q", args, r.errOut)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
