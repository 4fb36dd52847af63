package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/brief"
)

// both is a command whose output and notes go to one file, as they go to one terminal.
func both(t *testing.T) (c *cli, text func() string) {
	name := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return newCLI(nil, f, f), func() string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

// TestNotesStandBehind: a note never stands in the middle of what was printed before it, wherever a buffer was full.
func TestNotesStandBehind(t *testing.T) {
	c, text := both(t)
	lines := ""
	for i := range 1000 {
		line := fmt.Sprintf("\x1b[2m漢字 %d\x1b[0m\n", i)
		fmt.Fprint(c.out, line)
		lines += line
	}
	c.note("more with --cursor")
	if got, want := text(), lines+"strand: note: more with --cursor\n"; got != want {
		t.Fatalf("the note stands at byte %d of %d", strings.Index(got, "strand: note"), len(want))
	}
}

// TestJSONOnATerminal: nothing in a line of JSON acts on a terminal, and the line says the same.
func TestJSONOnATerminal(t *testing.T) {
	title := "a\u009b31mb\u0085c\x7f \u202egnp\u2066 \x1b[31m \u2028 \U000e0041 漢字 שלום\u200f 👨\u200d👩"
	for _, term := range []bool{false, true} {
		c, text := both(t)
		c.outTerm = term
		if err := c.object(map[string]string{"title": title}); err != nil {
			t.Fatal(err)
		}
		if err := c.out.Flush(); err != nil {
			t.Fatal(err)
		}
		line := strings.TrimSuffix(text(), "\n")
		if got := strings.IndexFunc(line, brief.Hostile) >= 0; got == term {
			t.Errorf("on a terminal: %v; raw signs that act on one: %v: %q", term, got, line)
		}
		var back map[string]string
		if err := json.NewDecoder(bytes.NewReader([]byte(line))).Decode(&back); err != nil || back["title"] != title {
			t.Errorf("read back: %q, %v", back, err)
		}
	}
}
