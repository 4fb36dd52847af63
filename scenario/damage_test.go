package scenario

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
)

// TestDamage hurts a session's files in ways that no crash leaves: it can be looked at, as a row with a
// reason and by the health check; it cannot be written to; nothing is written; the others are unaffected.
func TestDamage(t *testing.T) {
	for _, c := range []struct {
		name string
		hurt func(b *box, id string)
		code int
		read bool // a part of it can still be shown
		say  string
	}{
		{"bits flipped in a synced record", flipInTheMiddle, 4, true, "byte"},
		{"zeros over the middle", func(b *box, id string) {
			b.edit(id, 0, func(text []byte, l storedLog) []byte { clear(text[l.recs[4].off : l.recs[6].off+20]); return text })
		}, 4, true, "byte"},
		{"two records joined", func(b *box, id string) {
			b.edit(id, 0, func(text []byte, l storedLog) []byte {
				return slices.Delete(text, int(l.recs[4].end-1), int(l.recs[4].end))
			})
		}, 4, true, "byte"},
		{"half a record, then the next", func(b *box, id string) {
			b.edit(id, 0, func(text []byte, l storedLog) []byte {
				return slices.Delete(text, int(l.recs[4].off+30), int(l.recs[4].end))
			})
		}, 4, true, "byte"},
		{"a record missing", func(b *box, id string) {
			b.edit(id, 0, func(text []byte, l storedLog) []byte {
				return slices.Delete(text, int(l.recs[4].off), int(l.recs[4].end))
			})
		}, 4, true, "missing"},
		{"two records exchanged", func(b *box, id string) {
			b.edit(id, 0, func(text []byte, l storedLog) []byte {
				x, y := l.recs[4], l.recs[5]
				swapped := append(bytes.Clone(text[y.off:y.end]), text[x.off:x.end]...)
				return append(append(bytes.Clone(text[:x.off]), swapped...), text[y.end:]...)
			})
		}, 4, true, "byte"},
		{"the first line of a segment garbled", func(b *box, id string) {
			b.edit(id, 1, func(text []byte, _ storedLog) []byte { text[5] ^= 0x40; return text })
		}, 4, true, "first line"},
		{"a segment missing", func(b *box, id string) {
			l := b.log(id)
			if err := os.Remove(filepath.Join(l.dir, l.segments[1])); err != nil {
				b.t.Fatal(err)
			}
		}, 4, true, ""},
		{"a directory for a segment", func(b *box, id string) {
			l := b.log(id)
			name := filepath.Join(l.dir, l.segments[1])
			if err := os.Remove(name); err != nil {
				b.t.Fatal(err)
			}
			if err := os.Mkdir(name, 0o700); err != nil {
				b.t.Fatal(err)
			}
		}, 4, true, ""},
		{"no header", func(b *box, id string) {
			if err := os.Remove(filepath.Join(b.store, "sessions", id, "session.json")); err != nil {
				b.t.Fatal(err)
			}
		}, 4, false, "session.json"},
		{"an empty header", func(b *box, id string) {
			if err := os.WriteFile(filepath.Join(b.store, "sessions", id, "session.json"), nil, 0o600); err != nil {
				b.t.Fatal(err)
			}
		}, 4, false, "session.json"},
		{"a header of random bytes", func(b *box, id string) {
			if err := os.WriteFile(filepath.Join(b.store, "sessions", id, "session.json"), []byte("\x00\xff\x17{{\n\n"), 0o600); err != nil {
				b.t.Fatal(err)
			}
		}, 4, false, "session.json"},
		{"no segment", func(b *box, id string) {
			l := b.log(id)
			for _, s := range l.segments {
				if err := os.Remove(filepath.Join(l.dir, s)); err != nil {
					b.t.Fatal(err)
				}
			}
		}, 4, false, "segment"},
		{"a header of a newer format", newerSession, 7, false, "newer"},
		{"a segment of a newer format", func(b *box, id string) {
			b.edit(id, 1, func(text []byte, _ storedLog) []byte {
				head, rest, _ := bytes.Cut(text, []byte("\n"))
				head = bytes.Replace(head, []byte(`"strandline":1`), []byte(`"strandline":2`), 1)
				cut := bytes.LastIndex(head, []byte(`,"sum"`))
				return append([]byte(string(head[:cut])+`,"sum":"`+sum(head[:cut])+"\"}\n"), rest...)
			})
		}, 7, true, "newer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			other := b.run("other", []line{say("fine")}).SessionID
			id := b.run("first", []line{use(write("a.txt", "alpha\n")), say("hello")}).SessionID
			b.run("second", []line{say("more")}, "--session", id)
			b.run("third", []line{say("more")}, "--session", id)
			c.hurt(b, id)
			before := snap(t, b.store)

			for _, args := range [][]string{
				b.runArgs("go on", []line{say("never said")}, "--session", id),
				{"title", id, "new"}, {"undo", id}, {"fork", id},
				{"chat", id, "--script", b.script(say("x"))},
			} {
				if args[0] == "fork" && c.read {
					continue // of the part that can be read a fork is made
				}
				r := b.strandIn("hello\n", args...)
				if r.code != c.code {
					t.Errorf("want exit code %d: %v", c.code, r)
				}
				oneClearLine(t, r, []string{c.say, id})
			}
			for _, args := range [][]string{{"show", id}, {"show", id, "--stat"}, {"show", id, "--events"}} {
				if r := b.strand(args...); r.code != c.code || c.read && r.out == "" {
					t.Errorf("want exit code %d, and what can be read: %v", c.code, r)
				}
			}
			var health struct {
				State    string           `json:"state"`
				Problems []map[string]any `json:"problems"`
			}
			r := b.strand("doctor", id, "--json")
			if err := json.Unmarshal([]byte(strings.TrimSpace(r.out)), &health); err != nil || r.code != 4 || len(health.Problems) == 0 {
				t.Errorf("want exit code 4 and a problem (%v): %v", err, r)
			}
			rows := b.list()
			if len(rows) != 2 {
				t.Fatalf("the list has %d rows, want 2: %+v", len(rows), rows)
			}
			for _, r := range rows {
				switch bad := r.State != "ok"; {
				case r.ID == id && (!bad || r.Reason == ""):
					t.Errorf("the list calls it %+v", r)
				case r.ID == other && bad:
					t.Errorf("the list calls a healthy session %+v", r)
				}
			}
			after := snap(t, b.store)
			delete(before, "live")
			delete(after, "live")
			if d := before.diff(after); d != "" {
				t.Errorf("something was written:\n%s", d)
			}
			if r := b.run("go on", []line{say("fine")}, "--session", other); r.Text != "fine" {
				t.Errorf("the other session goes on with %+v", r)
			}
		})
	}
}

// edit changes the bytes of a session's segment.
func (b *box) edit(id string, segment int, change func(text []byte, l storedLog) []byte) {
	b.t.Helper()
	l := b.log(id)
	name := filepath.Join(l.dir, l.segments[segment])
	text, err := os.ReadFile(name)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(name, change(text, l), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// TestUnknownType: a log with an event of a type that this program does not know, and that is not marked as
// ignorable, can be looked at and not be gone on with; one that is marked is no hindrance.
func TestUnknownType(t *testing.T) {
	for _, ignorable := range []bool{false, true} {
		b := newBox(t)
		const id = "from-the-future"
		a, err := createAuthor(b.store, id, b.ws, 1_700_000_000_000, session.Kind{Type: "future/thing", Owner: "future"})
		if err != nil {
			t.Fatal(err)
		}
		thing := session.Draft{Type: "future/thing", Data: jsontext.Value(`{"x":1}`), Ignorable: ignorable}
		if err := errors.Join(a.say("question", "answer"), a.add(thing), a.close()); err != nil {
			t.Fatal(err)
		}
		before := snap(t, b.store)
		r := b.strand(b.runArgs("go on", []line{say("fine")}, "--session", id)...)
		if ignorable {
			if r.code != 0 {
				t.Errorf("an ignorable event is in the way: %v", r)
			}
			b.doctor(id)
			continue
		}
		if r.code != 7 {
			t.Errorf("want exit code 7: %v", r)
		}
		oneClearLine(t, r, []string{"future/thing"})
		if out := b.ok("show", id, "--events").out; !strings.Contains(out, `"future/thing"`) {
			t.Errorf("show does not show it: %s", out)
		}
		if out := b.ok("show", id).out; !strings.Contains(out, "answer") {
			t.Errorf("the transcript does not show the rest: %s", out)
		}
		if err := checkView(b.view(id)); err != nil {
			t.Error(err)
		}
		if rows := b.list(); len(rows) != 1 || rows[0].State != "unsupported" || !strings.Contains(rows[0].Reason, "future/thing") {
			t.Errorf("the list says %+v", rows)
		}
		b.diagnose(id, 4)
		after := snap(t, b.store)
		delete(before, "live")
		delete(after, "live")
		if d := before.diff(after); d != "" {
			t.Errorf("something was written:\n%s", d)
		}
	}
}

// TestDryRunOfAStore: what a dry run says of each session is what the repair of all of them then does, also of a fork
// whose beginning lies in the damaged files of its parent.
func TestDryRunOfAStore(t *testing.T) {
	b := newBox(t)
	parent := b.run("first", b.threeTurns()[1:4]).SessionID
	fork := decode[forkResult](t, b.ok("fork", parent, "--json").out).ID
	b.run("of its own", []line{say("yes")}, "--session", fork)
	for _, id := range []string{parent, fork} {
		b.edit(id, 0, func(text []byte, _ storedLog) []byte { text[len(text)/2] ^= 1; return text })
	}
	type healed struct {
		ID     string `json:"id"`
		Repair struct {
			Needed  bool               `json:"needed"`
			Lost    []map[string]int64 `json:"lost"`
			Kept    []string           `json:"kept"`
			Written []string           `json:"written"`
		} `json:"repair"`
	}
	dry := b.strand("doctor", "--repair", "--dry-run", "--json")
	r := b.ok("doctor", "--repair", "--json")
	var rows [2][]healed
	for i, out := range []string{dry.out, r.out} {
		for l := range strings.Lines(out) {
			if h := decode[healed](t, l); h.ID != "" {
				rows[i] = append(rows[i], h)
			}
		}
	}
	if !reflect.DeepEqual(rows[0], rows[1]) || len(rows[1]) != 2 || !rows[1][0].Repair.Needed || !rows[1][1].Repair.Needed {
		t.Errorf("a dry run said\n%+v\nthe repair\n%+v", rows[0], rows[1])
	}
	if dry.code != 4 || !strings.Contains(dry.err, "2 of 2 sessions are damaged") {
		t.Errorf("%v", dry)
	}
}
