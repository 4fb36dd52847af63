package scenario

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/message"
)

// TestP12_UnreliableClock writes under a clock that goes back, leaps to 2038 and stands still, and goes on in
// processes whose clocks are behind.
func TestP12_UnreliableClock(t *testing.T) {
	b := newBox(t)
	const id = "bad-clock"
	t0 := time.Now().Add(-2 * time.Hour).UnixMilli()
	year2038 := time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC).UnixMilli()
	a, err := createAuthor(b.store, id, b.ws, t0)
	if err != nil {
		t.Fatal(err)
	}
	turn := 0
	ten := func(start, step int64) {
		t.Helper()
		for range 10 {
			turn++
			a.now, start = start, start+step
			if err := a.say(fmt.Sprintf("question %d", turn), fmt.Sprintf("answer %d", turn)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ten(t0, 1000)
	ten(t0-600_000, 1000)
	ten(year2038, 1000)
	ten(year2038+20_000, 0)
	if err := a.close(); err != nil {
		t.Fatal(err)
	}

	inOrder := func(when string, n int) {
		t.Helper()
		var fromView, fromEvents []string
		for _, m := range b.view(id) {
			if m.Role == message.RoleAssistant {
				fromView = append(fromView, m.PlainText())
			}
		}
		last := int64(-1)
		for _, e := range decodeLines[entry](t, b.ok("show", id, "--events").out) {
			if e.Seq != last+1 {
				t.Errorf("%s: seq %d behind %d", when, e.Seq, last)
			}
			last = e.Seq
			if e.Type == "assistant/message" {
				d := data[struct {
					Message message.Message `json:"message"`
				}](t, e)
				fromEvents = append(fromEvents, d.Message.PlainText())
			}
		}
		transcript := b.ok("show", id).out
		at := 0
		for i := range n {
			want := fmt.Sprintf("answer %d", i+1)
			if i >= len(fromView) || fromView[i] != want || i >= len(fromEvents) || fromEvents[i] != want {
				t.Fatalf("%s: answer %d is out of order: view %q, events %q", when, i+1, fromView, fromEvents)
			}
			next := strings.Index(transcript[at:], want+"\n")
			if next < 0 {
				t.Fatalf("%s: the transcript does not have %q behind the answers before it", when, want)
			}
			at += next
		}
		if bad := regexp.MustCompile(`(^|[\s(])-\d+(\.\d+)?(ms|s|m|h)\b`).FindString(transcript + b.ok("show", id, "--stat").out + b.ok("ls", "--any-project").out); bad != "" {
			t.Errorf("%s: a duration is negative: %q", when, bad)
		}
		d := b.diagnose(id, 0)
		if len(d.Problems) > 0 || len(d.Notes) > 0 {
			t.Errorf("%s: doctor complains about times: %+v", when, d)
		}
	}
	listed := func(when string, lastActivity int64) {
		t.Helper()
		rows := b.list()
		if len(rows) != 1 || rows[0].ID != id || rows[0].State != "ok" || rows[0].Activity != "idle" {
			t.Fatalf("%s: the list is %+v, want the session once", when, rows)
		}
		if rows[0].LastActivity != lastActivity || rows[0].CreatedAt != t0 {
			t.Errorf("%s: created %d, last active %d; want %d and %d", when, rows[0].CreatedAt, rows[0].LastActivity, t0, lastActivity)
		}
	}
	inOrder("written", 40)
	listed("written", year2038+20_000)

	// A process whose clock is an hour behind the first record's.
	late, err := resumeAuthor(b.store, id, t0-3_600_000)
	if err != nil {
		t.Fatal(err)
	}
	if err := late.say("question 41", "answer 41"); err != nil {
		t.Fatal(err)
	}
	if err := late.close(); err != nil {
		t.Fatal(err)
	}
	inOrder("an hour behind", 41)
	listed("an hour behind", t0-3_600_000)

	// The command, whose clock is right: years behind the log. A new prompt is answered, each time.
	for i := 42; i <= 43; i++ {
		answer := fmt.Sprintf("answer %d", i)
		if r := b.run(fmt.Sprintf("question %d", i), []line{say(answer)}, "--session", id); r.Text != answer || r.Turn != i {
			t.Errorf("question %d was answered by %+v", i, r)
		}
	}
	l := b.log(id)
	inOrder("now", 43)
	var lastSaid int64
	for _, e := range l.recs {
		if e.Type == "assistant/message" {
			lastSaid = e.Time
		}
	}
	listed("now", lastSaid)
	if d := time.Since(time.UnixMilli(lastSaid)); d < 0 || d > time.Hour {
		t.Errorf("the last answer is stamped %v ago", d)
	}
}
