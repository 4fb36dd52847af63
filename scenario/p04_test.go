package scenario

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repairResult is what `doctor --repair --json` tells.
type repairResult struct {
	State     string `json:"state"`
	Problems  []any  `json:"problems"`
	Notes     []note `json:"notes"`
	Originals []string
	Repair    struct {
		Needed bool `json:"needed"`
		Count  int  `json:"count"`
		Lost   []struct {
			First int64 `json:"first"`
			Last  int64 `json:"last"`
		} `json:"lost"`
		Kept []string `json:"kept"`
	} `json:"repair"`
}

// TestP04_DamageInTheMiddle hurts copies of a session of 2,000 records in the five ways in which files are found.
func TestP04_DamageInTheMiddle(t *testing.T) {
	b := newBox(t)
	const id = "p-04-damage"
	a, err := createAuthor(b.store, id, b.ws, 1_700_000_000_000)
	for n := 0; err == nil && n < 333; n++ {
		err = a.say(fmt.Sprintf("question %d", n), fmt.Sprintf("answer %d", n))
	}
	if err == nil {
		err = a.add(turnStart(334), turnEnd(334, "completed"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	whole := b.log(id)
	if len(whole.recs) != 2000 || len(whole.segments) != 1 {
		t.Fatalf("%d records in %d segments", len(whole.recs), len(whole.segments))
	}
	mid := whole.recs[1000]
	events := slices.Collect(strings.Lines(b.ok("show", id, "--events").out))

	for _, c := range []struct {
		name  string
		hurt  func(text []byte) []byte
		lost  [2]int64 // seqs, both ends included; none if the second is the smaller
		notes bool     // it is no damage, only worth a note
	}{
		{"a-zeros", func(text []byte) []byte { clear(text[mid.off : mid.off+4096]); return text },
			[2]int64{1000, touched(whole, mid.off, mid.off+4096)}, false},
		{"b-joined", func(text []byte) []byte { return slices.Delete(text, int(mid.end-1), int(mid.end)) }, [2]int64{1000, 999}, false},
		{"c-half", func(text []byte) []byte { return slices.Delete(text, int(mid.off+60), int(mid.end)) }, [2]int64{1000, 1000}, false},
		{"d-flipped", func(text []byte) []byte {
			for i := range int64(3) {
				text[mid.off+50+i*7] ^= 0x15
			}
			return text
		}, [2]int64{1000, 1000}, false},
		{"e-zeros-behind", func(text []byte) []byte { return append(text, make([]byte, 1<<20)...) }, [2]int64{2000, 1999}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.store = filepath.Join(b.dir, "copy")
			copyTree(t, filepath.Dir(filepath.Dir(whole.dir)), b.store)
			file := filepath.Join(b.store, "sessions", id, whole.segments[0])
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			hurt := c.hurt(text)
			if err := os.WriteFile(file, hurt, 0o600); err != nil {
				t.Fatal(err)
			}
			n := int(c.lost[1] - c.lost[0] + 1)
			bad := 4
			if c.notes {
				bad = 0
			}
			read := func(when string, code int) {
				t.Helper()
				r := b.strand("show", id, "--events")
				got := slices.Collect(strings.Lines(r.out))
				if r.code != code || len(got) < 2000 {
					t.Fatalf("%s: %d events: %v", when, len(got), r)
				}
				for i, want := range events {
					if isLost := int64(i) >= c.lost[0] && int64(i) <= c.lost[1]; isLost != strings.Contains(got[i], `"type":"session/lost"`) || !isLost && got[i] != want {
						t.Fatalf("%s: event %d is %s, it was %s", when, i, got[i], want)
					}
				}
			}
			read("before the repair", bad)
			if r := b.strand("doctor", id); r.code != bad {
				t.Fatalf("the health check: %v", r)
			}
			if !c.notes {
				if r := b.strand(b.runArgs("too early", []line{say("no")}, "--session", id)...); r.code != 4 {
					t.Fatalf("it was written to before it was repaired: %v", r)
				}
			}
			dry := decode[repairResult](t, b.strand("doctor", "--repair", "--dry-run", id, "--json").out)
			if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, hurt) || dry.Repair.Count != n || len(b.filesOf(id)) != 2 {
				t.Fatalf("the dry run: %+v, files %v (%v)", dry, b.filesOf(id), err)
			}
			r := b.ok("doctor", "--repair", id, "--json")
			rep := decode[repairResult](t, r.out)
			if rep.Repair.Needed == c.notes || rep.Repair.Count != n || len(rep.Problems) > 0 {
				t.Fatalf("want %d events lost: %v", n, r)
			}
			if n > 0 && (len(rep.Repair.Lost) != 1 || rep.Repair.Lost[0].First != c.lost[0] || rep.Repair.Lost[0].Last != c.lost[1]) {
				t.Fatalf("want %v: %+v", c.lost, rep.Repair)
			}
			kept := file
			if !c.notes {
				if len(rep.Repair.Kept) != 1 {
					t.Fatalf("kept: %+v", rep.Repair)
				}
				kept = rep.Repair.Kept[0]
			}
			if now, err := os.ReadFile(kept); err != nil || !bytes.Equal(now, hurt) {
				t.Fatalf("the original is not kept byte for byte (%v)", err)
			}
			read("after the repair", 0)
			says := 0
			for _, m := range b.view(id) {
				if text := m.PlainText(); strings.Contains(text, "of this conversation w") && strings.Contains(text, "lost in storage") {
					says++
					if n > 1 && !strings.Contains(text, fmt.Sprintf("%d records", n)) {
						t.Errorf("the view says %q of %d records", text, n)
					}
				}
			}
			if says != min(n, 1) {
				t.Errorf("the view says %d times that something is missing", says)
			}
			if b.run("go on", []line{say("fine")}, "--session", id).Text != "fine" {
				t.Error("it does not go on")
			}
			read("after going on", 0)
			d := b.diagnose(id, 0)
			if got := len(d.notes("lost")) > 0; got != (n > 0) {
				t.Errorf("doctor's notes: %+v", d.Notes)
			}
		})
	}
}

// touched is the seq of the last record that has a byte in [from, to).
func touched(l storedLog, from, to int64) int64 {
	last := int64(-1)
	for _, e := range l.recs {
		if e.off < to && e.end > from {
			last = e.Seq
		}
	}
	return last
}

// filesOf lists the files of a session's directory.
func (b *box) filesOf(id string) []string {
	b.t.Helper()
	list, err := os.ReadDir(filepath.Join(b.store, "sessions", id))
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}
