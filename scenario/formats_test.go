package scenario

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// later is what a later minor version of the format would write: members that this one does not know, everywhere.
const (
	laterHead   = `"minor":3,"keep":{"a":[1,2.50,1e+2],"b":"\u00e9"}`
	laterBefore = `"origin":{"host":"h","n":1.50},"tags":["x","\u0041"]`
	laterBehind = `"shard":7.0`
)

// rewrite makes the stored text of a session what a later minor version would have written: each record gets members
// before and behind its data, each first line and the header some of their own, and more lines may follow. Links and
// sums are those of the new text. It uses no code of the product.
func (b *box) rewrite(id string, more ...string) {
	b.t.Helper()
	l := b.log(id)
	var link [12]byte
	chain := func(body, behind string) string {
		h := sha256.New()
		h.Write(link[:])
		h.Write([]byte(body))
		copy(link[:], h.Sum(nil))
		line := body + behind
		return line + `,"chain":"` + base64.RawURLEncoding.EncodeToString(link[:]) + sum([]byte(line)) + "\"}\n"
	}
	next := int64(0)
	for i, name := range l.segments {
		head := fmt.Sprintf(`{"strandline":1,"session":"%s","first":%d,"prev":"%s",%s,"part":%d`, id, next, base64.RawURLEncoding.EncodeToString(link[:]), laterHead, i/2)
		text := head + `,"sum":"` + sum([]byte(head)) + "\"}\n"
		for _, e := range l.recs {
			if filepath.Base(e.file) != name {
				continue
			}
			front, data, _ := strings.Cut(strings.TrimSuffix(e.event, "}"), `,"data":`)
			behind := "," + laterBehind
			if e.Synced != nil {
				behind = fmt.Sprintf(`,"synced":%d`, *e.Synced) + behind
			}
			text += chain(front+","+laterBefore+`,"data":`+data, behind)
			next++
		}
		if i == len(l.segments)-1 {
			for _, m := range more {
				text += chain(fmt.Sprintf(`{"seq":%d,"time":1700000000000,"type":%s`, next, m), "")
				next++
			}
		}
		b.put(filepath.Join(l.dir, name), text)
	}
	b.reseal(filepath.Join(l.dir, "session.json"), func(s string) string { return s + "," + laterHead })
	b.reword(filepath.Join(b.store, "strandline.json"), `{"strandline":1,`, `{"strandline":1,"minor":3,`)
}

// reseal changes what stands before the sum of the first line of a file, and the sum.
func (b *box) reseal(name string, edit func(string) string) {
	b.t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		b.t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	first = edit(first[:strings.LastIndex(first, `,"sum"`)])
	b.put(name, first+`,"sum":"`+sum([]byte(first))+"\"}\n"+rest)
}

// reword replaces text in a file.
func (b *box) reword(name, from, to string) {
	b.t.Helper()
	text, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(text), from) {
		b.t.Fatalf("%s: %v: %s", name, err, text)
	}
	b.put(name, strings.Replace(string(text), from, to, 1))
}

func (b *box) put(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// text is what the segments of a session hold, those that are packed unpacked.
func (b *box) text(id string) string {
	b.t.Helper()
	dir := filepath.Join(b.store, "sessions", id)
	var out strings.Builder
	for _, name := range b.filesOf(id) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if strings.HasSuffix(name, ".zst") {
			var r *zstd.Decoder
			if r, err = zstd.NewReader(nil); err == nil {
				text, err = r.DecodeAll(text, nil)
				r.Close()
			}
		} else if !strings.HasSuffix(name, ".jsonl") {
			continue
		}
		if err != nil {
			b.t.Fatal(err)
		}
		out.Write(text)
	}
	return out.String()
}

const ignorableLater = `"later/thing","ignorable":true,"origin":null,"data":{"n":1.0,"t":"\u00e9"}`

// TestLaterMinor: what a later minor version of the format wrote is read, shown and gone on with, and every byte that this version
// does not understand outlives a resume, a fork, packing, a repair, an export and an import.
func TestLaterMinor(t *testing.T) {
	b := newBox(t)
	id := b.run("first", []line{use(write("a.txt", "alpha\n")), say("hello")}).SessionID
	b.run("second", []line{say("more")}, "--session", id)
	b.run("third", []line{say("even more")}, "--session", id)
	b.rewrite(id, ignorableLater)
	whole := b.text(id)
	lines := slices.Collect(strings.Lines(whole))
	header := readFile(t, filepath.Join(b.store, "sessions", id, "session.json"))
	storeFile := readFile(t, filepath.Join(b.store, "strandline.json"))
	if n := strings.Count(whole, laterBefore); n < 20 || !strings.Contains(whole, `"first":22,`) || strings.Count(whole, laterHead) != 3 || !strings.Contains(header, laterHead) {
		t.Fatalf("%d records have the members: %s", n, clip(whole))
	}
	exported := func(b *box, id string) []string {
		return slices.Collect(strings.Lines(b.ok("export", id, "--no-redact").out))
	}
	before := exported(b, id)
	kept := func(b *box, what, id string) {
		t.Helper()
		text := b.text(id)
		for _, l := range lines {
			if what == "packing" && strings.Contains(l, `"first":22,`) {
				continue // the first line of the segment before stands for both: it has the same unknown members
			}
			if head, rest, ok := strings.Cut(l, laterHead); ok && what == "packing" && strings.HasPrefix(head, `{"strandline":`) {
				l = laterHead + rest[:strings.LastIndex(rest, `"sum"`)] // who joins says where lives began, before what is not known
			}
			if !strings.Contains(text, l) {
				t.Errorf("%s: not byte for byte any more: %s", what, l)
			}
		}
		if got := readFile(t, filepath.Join(b.store, "sessions", id, "session.json")); got != header {
			t.Errorf("%s: the header is %s, was %s", what, got, header)
		}
		if got := readFile(t, filepath.Join(b.store, "strandline.json")); got != storeFile {
			t.Errorf("%s: the file of the store is %s, was %s", what, got, storeFile)
		}
		if got := exported(b, id); len(got) < len(before) || !slices.Equal(got[1:len(before)], before[1:]) {
			t.Errorf("%s: the export differs", what)
		}
		b.ok("doctor", id)
	}
	if r := b.ok("ls", "--json", "--any-project").out; !strings.Contains(r, `"state":"ok"`) {
		t.Errorf("the list: %s", r)
	}
	kept(b, "looking", id)
	if res := b.run("go on", []line{say("gone on")}, "--session", id); res.Text != "gone on" {
		t.Fatalf("going on: %+v", res)
	}
	kept(b, "a resume", id)

	hurt := b.withStore(filepath.Join(b.dir, "hurt"))
	copyTree(t, b.store, hurt.store)
	bad := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, `{"seq":5,`) })
	hurt.reword(filepath.Join(hurt.store, "sessions", id, "00000000000000000000.jsonl"), lines[bad], strings.Replace(lines[bad], "origin", "0rigin", 1))
	if r := hurt.strand("doctor", id); r.code != 4 {
		t.Fatalf("the damage: %v", r)
	}
	hurt.ok("doctor", "--repair", id)
	text := hurt.text(id)
	for i, l := range lines {
		if i != bad && !strings.Contains(text, l) {
			t.Errorf("a repair: not byte for byte any more: %s", l)
		}
	}
	if res := hurt.run("go on", []line{say("gone on")}, "--session", id); res.Text != "gone on" {
		t.Errorf("going on behind a repair: %+v", res)
	}

	fork := decode[struct {
		ID string `json:"id"`
	}](t, b.ok("fork", id, "--json").out).ID
	b.run("in the fork", []line{say("well")}, "--session", fork)
	if got := exported(b, fork); !slices.Equal(got[1:len(before)], before[1:]) {
		t.Error("a fork: the export differs")
	}

	b.ok("store", "pack", id)
	if n := len(b.filesOf(id)); n > 4 {
		t.Errorf("packing: %v", b.filesOf(id))
	}
	kept(b, "packing", id)
	if got := exported(b, fork); !slices.Equal(got[1:len(before)], before[1:]) {
		t.Error("a fork of what was packed: the export differs")
	}

	file := filepath.Join(b.dir, "later.jsonl")
	b.ok("export", id, "--no-redact", "-o", file)
	other := b.withStore(filepath.Join(b.dir, "other"))
	other.ok("import", "--from", "native", file)
	if got := readFile(t, filepath.Join(other.store, "sessions", id, "session.json")); got != header {
		t.Errorf("an import: the header is %s, was %s", got, header)
	}
	if got := exported(other, id); strings.Join(got, "") != readFile(t, file) {
		t.Error("an import: the export of it differs")
	}
	if res := other.run("go on", []line{say("gone on")}, "--session", id); res.Text != "gone on" {
		t.Errorf("going on with an import: %+v", res)
	}
}

func readFile(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// untouched wants the sessions, the trash and the blobs of a store as they were.
func (b *box) untouched(before snapshot, what any) {
	b.t.Helper()
	parts := []string{"sessions", "trash", "blobs", "purged", "strandline.json"}
	if d := before.only(parts...).diff(snap(b.t, b.store).only(parts...)); d != "" {
		b.t.Errorf("%v wrote:\n%s", what, d)
	}
}

// TestMissingPackage: a session with events that may not be passed over is looked at, exported and forked, and not written to; who
// is refused is told which packages are missing.
func TestMissingPackage(t *testing.T) {
	b := newBox(t)
	id := b.run("first", []line{use(write("a.txt", "alpha\n")), say("hello")}).SessionID
	end := len(b.log(id).recs) - 1
	b.rewrite(id, ignorableLater, `"later/must","data":{"n":1}`, `"later/too","data":{}`, `"sooner/must","data":{}`)
	before := snap(t, b.store)
	const missing = "does not have the packages later, sooner"
	for _, args := range [][]string{
		b.runArgs("go on", []line{say("never said")}, "--session", id), {"title", id, "new"}, {"undo", id},
		{"compact", id, "--script", b.script(say("x"))}, {"chat", id, "--script", b.script(say("x"))},
	} {
		r := b.strandIn("hello\n", args...)
		if r.code != 7 {
			t.Errorf("want exit code 7: %v", r)
		}
		oneClearLine(t, r, []string{"later/must, later/too, sooner/must", missing, "can be read"})
	}
	for _, c := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"ls", "--any-project"}, 0, missing},
		{[]string{"show", id}, 0, "hello"},
		{[]string{"show", id, "--events"}, 0, `"sooner/must"`},
		{[]string{"show", id, "--stat"}, 0, "unsupported"},
		{[]string{"export", id, "--no-redact"}, 0, `"sooner/must"`},
		{[]string{"doctor", id}, 4, missing},
		{[]string{"doctor", "--repair", id}, 4, "nothing to repair"},
		{[]string{"store", "check"}, 4, missing},
		{[]string{"store", "pack", id}, 0, ""},
	} {
		if r := b.strand(c.args...); r.code != c.code || !strings.Contains(r.out+r.err, c.say) {
			t.Errorf("want exit code %d, and %q: %v", c.code, c.say, r)
		}
		b.untouched(before, c.args)
	}
	text := b.text(id)
	fork := strings.TrimSpace(b.ok("fork", id, "--at", fmt.Sprint(end)).out) // what is before it is understood
	if res := b.run("go on", []line{say("gone on")}, "--session", fork); res.Text != "gone on" {
		t.Errorf("the fork: %+v", res)
	}
	fork = strings.TrimSpace(b.ok("fork", id).out)
	if r := b.strand(b.runArgs("go on", []line{say("never said")}, "--session", fork)...); r.code != 7 {
		t.Errorf("a fork of all of it: %v", r)
	}
	file := filepath.Join(b.dir, "must.jsonl")
	b.ok("export", id, "--no-redact", "-o", file)
	other := b.withStore(filepath.Join(b.dir, "other"))
	other.ok("import", "--from", "native", file)
	if got := other.ok("export", id, "--no-redact").out; got != readFile(t, file) {
		t.Error("an import: the export of it differs")
	}
	if r := other.strand(b.runArgs("go on", []line{say("never said")}, "--session", id)...); r.code != 7 {
		t.Errorf("an import of it: %v", r)
	}
	if b.text(id) != text {
		t.Error("its bytes changed")
	}
	b.ok("rm", id)
	b.ok("restore", id)
	if b.text(id) != text {
		t.Error("the trash changed its bytes")
	}
}

// TestNewerMajor: what a program of the next format wrote is a row with its reason, and nothing of it is written to: not by who
// goes on, and not by who tidies or repairs.
func TestNewerMajor(t *testing.T) {
	for _, c := range []struct {
		name  string
		make  func(b *box, id string)
		store bool // nothing in the store is written to
		read  bool // what is before it can be read
	}{
		{"a session", newerSession, false, false},
		{"a segment", func(b *box, id string) {
			l := b.log(id)
			b.reseal(filepath.Join(l.dir, l.segments[len(l.segments)-1]), func(s string) string {
				return strings.Replace(s, `{"strandline":1,`, `{"strandline":2,`, 1)
			})
		}, false, true},
		{"the store", newerStore, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			other := b.run("other", []line{say("fine")}).SessionID
			id := b.run("first", []line{use(write("a.txt", "alpha\n")), say("hello")}).SessionID
			b.run("second", []line{say("more")}, "--session", id)
			gone := b.run("gone", []line{say("away")}).SessionID
			b.ok("rm", gone)
			file := filepath.Join(b.dir, "other.jsonl")
			elsewhere := b.withStore(filepath.Join(b.dir, "elsewhere"))
			elsewhere.ok("export", elsewhere.run("else", []line{say("fine")}).SessionID, "--no-redact", "-o", file)
			c.make(b, id)
			before := snap(t, b.store)
			refused := [][]string{
				b.runArgs("go on", []line{say("never said")}, "--session", id), {"title", id, "new"}, {"undo", id},
				{"chat", id, "--script", b.script(say("x"))}, {"compact", id, "--script", b.script(say("x"))}, {"store", "pack", id},
			}
			if !c.read || c.store {
				refused = append(refused, []string{"fork", id})
			}
			if c.store {
				refused = append(refused, b.runArgs("hello", []line{say("x")}), []string{"import", file}, []string{"rm", other}, []string{"restore", gone},
					[]string{"purge", gone, "--yes"}, []string{"store", "pack"}, []string{"doctor", "--repair", id})
			}
			for _, args := range refused {
				r := b.strandIn("hello\n", args...)
				if r.code != 7 {
					t.Errorf("want exit code 7: %v", r)
				}
				oneClearLine(t, r, []string{"newer"})
				b.untouched(before, args)
			}
			bad, shown := 7, 7 // exit codes of a check and of looking at the session
			if !c.store {
				bad = 4
			} else {
				shown = 0
			}
			for _, l := range []struct {
				args []string
				code int
				say  string
			}{
				{[]string{"ls", "--any-project"}, 0, ""}, {[]string{"store"}, 0, ""}, {[]string{"show", id}, shown, ""}, {[]string{"show", id, "--stat"}, shown, ""},
				{[]string{"doctor", "--repair", id}, bad, "newer"}, {[]string{"doctor", "--repair"}, bad, "newer"}, {[]string{"show", other}, 0, "fine"},
			} {
				if r := b.strand(l.args...); r.code != l.code || (!c.store || l.code != 0) && l.args[0] != "store" && l.args[1] != other && !strings.Contains(r.out+r.err, "newer") || !strings.Contains(r.out+r.err, l.say) {
					t.Errorf("want exit code %d, and %q: %v", l.code, l.say, r)
				}
				b.untouched(before, l.args)
			}
			for _, row := range b.list() {
				if want := !c.store && row.ID == id; want != (row.State == "unsupported" && strings.Contains(row.Reason, "newer")) {
					t.Errorf("the list: %+v", row)
				}
			}
			if !c.store {
				r := b.ok("store", "pack")
				if !strings.Contains(r.out, id+"  unsupported, left as it is") {
					t.Errorf("packing: %v", r)
				}
				if d := before.only("sessions/" + id).diff(snap(t, b.store).only("sessions/" + id)); d != "" {
					t.Errorf("packing changed it: %s", d)
				}
				if r := b.run("go on", []line{say("fine")}, "--session", other); r.Text != "fine" {
					t.Errorf("the other session goes on with %+v", r)
				}
				b.ok("rm", id) // it is whole, wherever it lies
				b.ok("restore", id)
				if d := before.only("sessions/" + id).diff(snap(t, b.store).only("sessions/" + id)); d != "" {
					t.Errorf("the trash changed it: %s", d)
				}
			}
		})
	}
}
