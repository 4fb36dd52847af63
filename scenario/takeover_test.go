package scenario

import (
	"slices"
	"strings"
	"testing"
)

// TestP6_TakeOver: a holder that is asked to let go stops what it does, saves and ends; whoever asked goes on, and
// finds nothing open.
func TestP6_TakeOver(t *testing.T) {
	for name, play := range map[string]func(b *box) (p *proc, id string){
		"a tool runs": func(b *box) (*proc, string) {
			h := newHolder(b)
			return h.p, h.id
		},
		"an answer is coming": func(b *box) (*proc, string) {
			p := b.start(b.runArgs("hold it", []line{{Text: "I begin.", Hang: true}}, "--output", "stream-json")...)
			p.until(`"request/header"`)
			return p, b.sessionIDs()[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			p, id := play(b)
			checkBusy(b, id, p.cmd.Process.Pid, "strand")
			if r := b.run("mine", []line{say("went on")}, "--session", id, "--take-over"); r.Text != "went on" {
				t.Errorf("who took over got %+v", r)
			}
			if code := p.wait(); code != 1 {
				t.Errorf("the holder ended with exit code %d: %s", code, p.errs)
			}
			st := b.stat(id)
			if len(st.OpenCalls) > 0 || st.Activity != "idle" {
				t.Errorf("behind it stat shows %+v", st)
			}
			if r := b.list(); len(r) != 1 || r[0].Holder != nil {
				t.Errorf("the list shows %+v", r)
			}
			if d := b.ok("doctor", id, "--json").out; !strings.Contains(d, `"problems":[],"brackets":[],"openCalls":[],"notes":[]`) {
				t.Errorf("the log is not closed: %s", d)
			}
			said := []string{}
			for _, e := range b.log(id).recs {
				if e.Type == "turn/end" {
					said = append(said, string(e.Data))
				}
			}
			if len(said) != 2 || !strings.Contains(said[0], "aborted") || !strings.Contains(said[1], "completed") {
				t.Errorf("the turns ended as %s", slices.Concat(said))
			}
		})
	}
}
