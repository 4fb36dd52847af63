package scenario

import (
	"slices"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

func init() { children["p2"] = playP2 }

const p2ID = "three-calls"

// playP2 writes a step of three parallel calls in which c2 never reports and the turn ends in an error.
func playP2(args []string) error {
	root, cwd, variant := args[0], args[1], args[2]
	a, err := createAuthor(root, p2ID, cwd, 1_700_000_000_000)
	if err != nil {
		return err
	}
	err = a.add(turnStart(1), stepStart(1, 1), userSays("u-1", "run three"), modelSays(1, 1, "running", "c1", "c2", "c3"),
		callStarts(1, 1, "c1"), callStarts(1, 1, "c2"), callStarts(1, 1, "c3"),
		callReturns(1, 1, "c3", "three"), callReturns(1, 1, "c1", "one"))
	if err != nil {
		return err
	}
	switch variant {
	case "duplicate":
		err = a.add(callReturns(1, 1, "c1", "one again"))
	case "stranger":
		err = a.add(callReturns(1, 1, "c9", "nobody asked"))
	}
	if err != nil {
		return err
	}
	if err := a.add(turnEnd(1, session.ReasonError)); err != nil {
		return err
	}
	return hold()
}

// TestP2_ThreeCallsTwoResults: a call that never reported is closed as unknown although its turn was
// closed; a result too many is kept, not sent, and reported.
func TestP2_ThreeCallsTwoResults(t *testing.T) {
	for _, variant := range []string{"plain", "duplicate", "stranger"} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.build("p2", variant)
			before := b.log(p2ID)
			st := b.stat(p2ID)
			if len(st.OpenCalls) != 1 || st.OpenCalls[0].State != "unknown" || st.OpenCalls[0].Seq != 5 {
				t.Errorf("open calls are told as %+v, want c2 alone, unknown", st.OpenCalls)
			}

			checkP2(b, variant, b.view(p2ID))
			res := b.run("go on", []line{say("going on: {{last_tool_result}}")}, "--session", p2ID)
			if !strings.HasPrefix(res.Text, "going on") {
				t.Errorf("the next model call gave %+v", res)
			}
			checkP2(b, variant, b.view(p2ID))

			after := b.log(p2ID)
			for i, e := range before.recs {
				if after.recs[i].event != e.event {
					t.Errorf("record %d was changed from %s to %s", i, e.event, after.recs[i].event)
				}
			}
			d := b.diagnose(p2ID, 0)
			if len(d.Problems) > 0 {
				t.Errorf("problems %+v, want none: there is no damage", d.Problems)
			}
			for kind, want := range map[string]bool{"duplicate": variant == "duplicate", "stranger": variant == "stranger"} {
				ns := d.notes(kind)
				if want && (len(ns) != 1 || ns[0].Seq != 9) || !want && len(ns) != 0 {
					t.Errorf("doctor's notes of kind %s are %+v (all: %+v)", kind, ns, d.Notes)
				}
			}
		})
	}
}

func checkP2(b *box, variant string, ms []message.Message) {
	b.t.Helper()
	if err := checkView(ms); err != nil {
		b.t.Errorf("the view is not legal: %v", err)
	}
	for id, want := range map[string]string{"c1": "one", "c2": "its outcome is not known", "c3": "three"} {
		if text, ok := resultText(ms, id); !ok || !strings.Contains(text, want) || strings.Contains(text, "one again") {
			b.t.Errorf("%s reads %q, want %q", id, text, want)
		}
	}
	if slices.ContainsFunc(ms, func(m message.Message) bool {
		return strings.Contains(m.PlainText(), "one again") || strings.Contains(m.PlainText(), "nobody asked")
	}) {
		b.t.Errorf("%s: a result too many is in the view", variant)
	}
}
