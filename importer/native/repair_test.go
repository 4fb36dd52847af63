package native_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/importer/native"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// older is a file as an older writer may have left it.
type older struct {
	lines []string
	link  session.Link
}

// add adds a record behind the last one in the file.
func (o *older) add(seq int, text string) *older {
	line, link := record.Append(nil, event(seq, text), o.link, session.None)
	o.lines, o.link = append(o.lines, string(line)), link
	return o
}

// behind makes the next record follow another link than that of the last one.
func (o *older) behind(link session.Link) *older { o.link = link; return o }

func (o *older) raw(line string) *older { o.lines = append(o.lines, line); return o }

func (o *older) file(t *testing.T, n session.Seq) string {
	t.Helper()
	first, err := record.AppendExport(nil, record.Export{Header: header("sess"), Events: n})
	if err != nil {
		t.Fatal(err)
	}
	return string(first) + strings.Join(o.lines, "")
}

// TestRepair: a file with the faults of an older writer is refused, and says so in a way that callers know; with repair what is good of it
// is a session of its own, with marks, and the report tells what was passed over. Again it is the same session.
func TestRepair(t *testing.T) {
	fork := func(o *older) session.Link { return o.link }
	two := (&older{}).add(0, "a").add(1, "b")
	base := fork(two)
	for name, tt := range map[string]struct {
		file  *older
		want  string // texts, - for a mark
		drops map[string]int64
	}{
		"a gap":                  {(&older{}).add(0, "a").add(1, "b").add(4, "e").add(5, "f"), "a b - - e f", map[string]int64{"missing": 2}},
		"a gap, and a bad link":  {(&older{}).add(0, "a").add(1, "b").behind(session.Link{9}).add(4, "e").add(5, "f"), "a b - - e f", map[string]int64{"missing": 2}},
		"a gap at the beginning": {(&older{}).add(2, "c").add(3, "d"), "- - c d", map[string]int64{"missing": 2}},
		"the same twice":         {(&older{}).add(0, "a").add(1, "b").raw(two.lines[1]).add(2, "c"), "a b c", map[string]int64{"twice": 1}},
		"the same, later":        {(&older{}).add(0, "a").add(1, "b").add(2, "c").raw(two.lines[0]).raw(two.lines[1]).add(3, "d"), "a b c d", map[string]int64{"twice": 2}},
		"a seq that was given twice": {(&older{}).add(0, "a").add(1, "b").add(2, "c").add(2, "C").add(3, "d"), "a b c d",
			map[string]int64{"another record of seq 2": 1}},
		"the second follows": {(&older{}).add(0, "a").add(1, "b").behind(session.Link{9}).add(2, "C").behind(base).add(2, "c").add(3, "d"), "a b c d",
			map[string]int64{"another record of seq 2": 1}},
		"none follows": {(&older{}).add(0, "a").add(1, "b").behind(session.Link{9}).add(2, "c").behind(session.Link{8}).add(2, "C").add(3, "d"), "a b c d",
			map[string]int64{"another record of seq 2": 1, "did not follow": 1}},
		"two writers": {(&older{}).add(0, "a").add(1, "b").add(2, "c").add(3, "d").behind(base).add(2, "C").add(3, "D").add(4, "e"), "a b c d e",
			map[string]int64{"another record of seq 2": 1, "another record of seq 3": 1}},
		"a late one": {(&older{}).add(0, "a").add(2, "c").add(1, "b").add(3, "d"), "a - c d",
			map[string]int64{"missing": 1, "another record of seq 1": 1}},
		"a bad sum": {(&older{}).add(0, "a").add(1, "b").raw(`{"seq":2,"time":3,"type":"x/y","ignorable":true,"data":{},"chain":"AAAAAAAAAAAAAAAAAAAAAA"}`+"\n").add(3, "d"),
			"a b - d", map[string]int64{"missing": 1, "line 4": 1}},
		"too far": {(&older{}).add(0, "a").add(1<<40, "z").behind(fork((&older{}).add(0, "a"))).add(1, "b"), "a b", map[string]int64{"too far": 1}},
		"its text is gone": {(&older{}).add(0, "a").raw(withText(1)).add(2, "c"), "a - c",
			map[string]int64{"missing": 1, "which the file does not have": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			want := strings.Fields(tt.want)
			file := tt.file.file(t, session.Seq(len(want)))
			st := newStore(t)
			var fault *native.FaultError
			if _, err := take(t, st, file); !errors.As(err, &fault) || fault.Line < 2 || sessions(t, st) != 0 {
				t.Fatalf("without repair: %v", err)
			}
			r, err := takeAs(t, st, file, native.Format{Repair: true})
			if err != nil {
				t.Fatal(err)
			}
			if r.ID == "sess" || r.Existing || int(r.Events) != len(want) || r.Fidelity.Kept+r.Fidelity.Notes != len(want) {
				t.Errorf("%+v", r)
			}
			for what, n := range tt.drops {
				if dropped(r, what) != n {
					t.Errorf("%d times %q in %+v", dropped(r, what), what, r.Fidelity.Dropped)
				}
			}
			if len(r.Fidelity.Dropped) != len(tt.drops) {
				t.Errorf("dropped: %+v", r.Fidelity.Dropped)
			}
			for i, ev := range stored(t, st, r.ID) {
				switch {
				case want[i] == "-" && ev.Type == session.TypeLost:
				case want[i] == "-" || string(ev.Data) != string(event(i, want[i]).Data):
					t.Errorf("event %d is %s %s, want %s", i, ev.Type, ev.Data, want[i])
				}
			}
			if again, err := takeAs(t, st, file, native.Format{Repair: true}); err != nil || !again.Existing || again.ID != r.ID || sessions(t, st) != 1 {
				t.Errorf("again: %+v, %v", again, err)
			}
			// Its export fits, and begins with the lines that were good up to the first fault.
			out := exported(t, st, r.ID, nil)
			if _, err := take(t, newStore(t), out); err != nil {
				t.Errorf("an export of it: %v", err)
			}
			if want[0] != "-" && !strings.HasPrefix(records(out), tt.file.lines[0]) {
				t.Errorf("its first record is not the one of the file")
			}
		})
	}
}

// withText is a record that names a long text which is nowhere.
func withText(seq int) string {
	ev := event(seq, "")
	ev.Data = []byte(`{"text":{"$blob":"` + record.BlobName([]byte("nowhere")) + `","bytes":40000}}`)
	line, _ := record.Append(nil, ev, session.Link{}, session.None)
	return string(line)
}

// TestRepairWhole: a file that fits is not repaired.
func TestRepairWhole(t *testing.T) {
	from := newStore(t)
	put(t, from, header("sess"), events("one", strings.Repeat("z", 34000), "three"))
	file := exported(t, from, "sess", nil)
	r, err := takeAs(t, newStore(t), file, native.Format{Repair: true})
	if err != nil || r.ID != "sess" || r.Events != 3 || len(r.Fidelity.Dropped) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRepairAnything: whatever is done to the lines of a file, repair takes in no event that was not in it, each at its seq; what is
// there and was not passed over in favour of another is there afterwards.
func TestRepairAnything(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 7))
	from := newStore(t)
	var texts []string
	for i := range 12 {
		texts = append(texts, fmt.Sprint("text ", i))
	}
	put(t, from, header("sess"), events(texts...))
	file := exported(t, from, "sess", nil)
	first, _, _ := strings.Cut(file, "\n")
	whole := strings.SplitAfter(strings.TrimSuffix(records(file), "\n"), "\n")
	whole[len(whole)-1] += "\n"
	for n := range 300 {
		lines := slices.Clone(whole)
		for range 1 + rnd.IntN(3) {
			i, j := rnd.IntN(len(lines)), rnd.IntN(len(lines))
			switch rnd.IntN(4) {
			case 0:
				lines = slices.Delete(lines, i, i+1)
			case 1:
				lines = slices.Insert(lines, i, lines[j])
			case 2:
				lines[i], lines[j] = lines[j], lines[i]
			case 3:
				b := []byte(lines[i])
				b[rnd.IntN(len(b)-1)] ^= 1 << rnd.IntN(8)
				lines[i] = string(b)
			}
		}
		st := newStore(t)
		text := first + "\n" + strings.Join(lines, "")
		r, err := takeAs(t, st, text, native.Format{Repair: true})
		if err != nil {
			t.Fatalf("%d: %v\n%s", n, err, text)
		}
		top, there := -1, map[int]bool{} // in order of the seqs
		for _, l := range lines {
			if i := slices.Index(whole, l); i > top {
				top, there[i] = i, true
			}
		}
		for i, ev := range stored(t, st, r.ID) {
			good := string(ev.Data) == string(event(i, texts[i]).Data)
			if lost := ev.Type == session.TypeLost; lost == good || lost && there[i] {
				t.Fatalf("%d: event %d is %s %s\n%s", n, i, ev.Type, ev.Data, text)
			}
		}
	}
}

// stored is the log of a session.
func stored(t *testing.T, st store.Store, id session.ID) []session.Event {
	t.Helper()
	snap, err := st.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	var out []session.Event
	for ev, err := range snap.Prefix.Range(0, snap.Prefix.Len()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ev)
	}
	return out
}
