package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/session"
)

func init() {
	children["p3"] = playP3
	children["p3-go-on"] = playP3GoesOn
}

const p3ID = "torn-tail"

// playP3 writes 100 records: sixteen turns, the last of which ends the log or is followed by titles.
func playP3(args []string) error {
	root, cwd, end := args[0], args[1], args[2]
	a, err := createAuthor(root, p3ID, cwd, 1_700_000_000_000)
	if err != nil {
		return err
	}
	for i := range 4 {
		if end == "turn" {
			if err := a.add(titled(fmt.Sprintf("title %d", i))); err != nil {
				return err
			}
		}
	}
	for i := range 16 {
		if err := a.say(fmt.Sprintf("question %d", i+1), fmt.Sprintf("answer %d", i+1)); err != nil {
			return err
		}
	}
	for i := range 4 {
		if end == "title" {
			if err := a.add(titled(fmt.Sprintf("title %d", i))); err != nil {
				return err
			}
		}
	}
	return hold()
}

// playP3GoesOn appends three records, one of which is an "undo last turn".
func playP3GoesOn(args []string) error {
	a, err := resumeAuthor(args[0], p3ID, 1_700_000_100_000)
	if err != nil {
		return err
	}
	if err := a.add(titled("record 101")); err != nil {
		return err
	}
	if _, err := a.s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		drafts, _, err := st.UndoDrafts()
		return drafts, err
	}); err != nil {
		return err
	}
	if err := a.add(titled("record 103")); err != nil {
		return err
	}
	return hold()
}

// TestP3_TornTailDoesNotEatItsNeighbour cuts 7 bytes off a log of 100 records and goes on.
func TestP3_TornTailDoesNotEatItsNeighbour(t *testing.T) {
	for _, by := range []string{"api", "command"} {
		for _, end := range []string{"title", "turn"} {
			t.Run(by+"/"+end, func(t *testing.T) {
				t.Parallel()
				tornTail(newBox(t), by, end)
			})
		}
	}
}

func tornTail(b *box, by, end string) {
	t := b.t
	b.build("p3", end)
	l := b.log(p3ID)
	if len(l.recs) != 100 {
		t.Fatalf("the log has %d records, want 100", len(l.recs))
	}
	last := l.recs[99]
	if err := os.Truncate(last.file, last.end-7); err != nil {
		t.Fatal(err)
	}
	tornBytes, err := os.ReadFile(last.file)
	if err != nil {
		t.Fatal(err)
	}

	// The torn record is reported before anybody writes, once, with its place.
	torn := func(when string) {
		d := b.diagnose(p3ID, 0)
		ns := d.notes("torn")
		where := fmt.Sprintf("%d bytes", last.end-7-last.off)
		if len(ns) != 1 || !strings.Contains(ns[0].Detail, where) || !strings.Contains(ns[0].Detail, fmt.Sprintf("byte %d", last.off)) {
			t.Errorf("%s: the torn tail is told as %+v (all: %+v), want once, at byte %d, %s", when, ns, d.Notes, last.off, where)
		}
		if len(d.Problems) > 0 {
			t.Errorf("%s: problems %+v: a torn tail is none", when, d.Problems)
		}
	}
	torn("cut")

	undone := "answer 16"
	if by == "api" {
		b.build("p3-go-on")
	} else {
		b.ok("title", p3ID, "record 101")
		b.ok("undo", p3ID)
		b.ok("title", p3ID, "record 103")
	}
	torn("gone on")
	got := b.log(p3ID)
	for i, e := range l.recs[:99] {
		if got.recs[i].event != e.event {
			t.Errorf("record %d was\n%s\nand is\n%s", i+1, e.event, got.recs[i].event)
		}
	}
	if now, err := os.ReadFile(last.file); err != nil || string(now) != string(tornBytes) {
		t.Errorf("the file with the torn tail was changed (%v)", err)
	}
	var titles []string
	for _, e := range got.recs[99:] {
		if e.Type == session.TypeTitle {
			titles = append(titles, data[session.Title](t, e).Title)
		}
	}
	if fmt.Sprint(titles) != "[record 101 record 103]" || got.count(session.TypeHide) != 1 {
		t.Errorf("the new records are the titles %v and %d undo marks", titles, got.count(session.TypeHide))
	}
	isUndone := func(when string) {
		ms := b.view(p3ID)
		if err := checkView(ms); err != nil {
			t.Errorf("%s: the view is not legal: %v", when, err)
		}
		for _, m := range ms {
			if strings.Contains(m.PlainText(), undone) || strings.Contains(m.PlainText(), "question 16") {
				t.Errorf("%s: the undone turn is back: %q", when, m.PlainText())
			}
		}
		if ms[len(ms)-1].PlainText() == "answer 15" == strings.Contains(when, "run") {
			t.Errorf("%s: the view ends in %q", when, ms[len(ms)-1].PlainText())
		}
	}
	isUndone("killed")
	if r := b.run("go on", []line{say("fine")}, "--session", p3ID); r.Text != "fine" {
		t.Errorf("the run gave %+v", r)
	}
	isUndone("after a run")
	if n := len(b.log(p3ID).segments); filepath.Base(last.file) != got.segments[0] || n < 3 {
		t.Errorf("%d segments", n)
	}
}
