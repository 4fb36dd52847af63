package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// imported is a line of `import --json`.
type imported struct {
	ID     string `json:"id"`
	Tool   string `json:"tool"`
	Events int    `json:"events"`
	Error  any    `json:"error"`
}

// TestExportRoundTrip: what one store exports another one takes in, byte for byte: long texts, attachments, forks,
// turns that nobody finished.
func TestExportRoundTrip(t *testing.T) {
	b := newBox(t)
	long := strings.Repeat("ein langer Text mit \u00fc, \"quotes\" und \\ backslashes\n", 4000)
	first := b.run("write much", []line{
		use(write("long.txt", long), bash("seq 1 30000")),
		use(read("long.txt")),
		say("done"),
	})
	fork := decode[struct {
		ID string `json:"id"`
	}](t, b.ok("fork", first.SessionID, "--json").out).ID
	b.run("more in the fork", []line{use(bash("seq 1 20000")), say("well")}, "--session", fork)
	w := killedWaiting(b.withStore(filepath.Join(b.dir, "killed")))

	for _, c := range []struct {
		name, id string
		from     *box
	}{{"a session", first.SessionID, b}, {"a fork", fork, b}, {"a killed turn", w.id, w.box}} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(b.dir, c.id+".jsonl")
			c.from.ok("export", c.id, "--no-redact", "-o", file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if c.name != "a killed turn" && !strings.Contains(string(text), "\n"+`{"blob":"sha256-`) {
				t.Error("the test does not carry a blob")
			}
			other := b.withStore(filepath.Join(b.dir, "other-"+c.id))
			var ids []string
			for range 2 {
				r := decodeLines[imported](t, other.ok("import", "--from", "native", file, "--json").out)[0]
				if r.Tool != "native" || r.Error != nil || r.ID == "" {
					t.Fatalf("import: %+v", r)
				}
				ids = append(ids, r.ID)
			}
			if ids[0] != ids[1] || len(other.sessionIDs()) != 1 {
				t.Errorf("a second import made another session: %v", ids)
			}
			_, want, _ := strings.Cut(string(text), "\n")
			_, got, _ := strings.Cut(other.ok("export", ids[0], "--no-redact").out, "\n")
			if got != want {
				t.Errorf("the export of the import differs: %d bytes, not %d", len(got), len(want))
			}
			if got, want := other.ok("show", ids[0], "--view", "script").out, c.from.ok("show", c.id, "--view", "script").out; got != want {
				t.Errorf("the view differs:\n%s\n%s", clip(got), clip(want))
			}
			other.ok("doctor", ids[0])
			if res := other.run("go on", []line{say("gone on"), say("gone on")}, "--session", ids[0]); res.Text != "gone on" {
				t.Errorf("going on: %+v", res)
			}
		})
	}
}

// TestExportRedacted: a redacted export is taken in too, says what it lost, and holds no credential, also not in what
// was put aside.
func TestExportRedacted(t *testing.T) {
	b := newBox(t)
	key := "ghp_" + strings.Repeat("a1B2c3", 6)
	run := b.run("the key is "+key, []line{
		use(write("k.txt", strings.Repeat("key "+key+"\n", 2000)), bash("cat k.txt")),
		say("done"),
	})
	out := b.ok("export", run.SessionID).out
	if strings.Contains(out, key) || !strings.Contains(out, "[redacted:github-token]") {
		t.Fatalf("the export holds the key, or no mark:\n%s", clip(out))
	}
	file := filepath.Join(b.dir, "redacted.jsonl")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	other := b.withStore(filepath.Join(b.dir, "other"))
	r := other.ok("import", "--from", "native", file, "--json")
	got := decodeLines[imported](t, r.out)[0]
	if got.ID == "" || !strings.Contains(r.out, "credentials") {
		t.Errorf("import does not say what is missing: %s", r.out)
	}
	again := other.strand("export", got.ID)
	if again.code != 0 || strings.Contains(again.err, "replaced") {
		t.Errorf("a second redaction found more: %v", again)
	}
	_, records, _ := strings.Cut(out, "\n")
	if _, text, _ := strings.Cut(again.out, "\n"); text != records {
		t.Error("a second redaction changed something")
	}
	for _, format := range []string{"markdown", "html", "openai"} {
		if out := b.ok("export", run.SessionID, "--format", format).out; strings.Contains(out, key) {
			t.Errorf("the %s export holds the key", format)
		}
	}
}
