package session_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/strandline-dev/strandline/session"
)

// A trail tells of every part of a long line of forks, and does not grow with each but by the end of a span.
func TestTrail(t *testing.T) {
	link := func(q session.Seq) session.Link { return session.Link{1, byte(q), byte(q >> 8)} }
	h := session.Header{Format: session.Format, ID: "f000", Kind: session.KindRoot}
	for i := range 40 {
		n := h.SeedLength + 30
		at := n - session.Seq(1+7*(i%3)) // and once in three, below where it was forked itself
		if i%5 == 4 {
			at = h.SeedLength - 3
		}
		from := session.Seq(0)
		if sp := h.Spans(at + 1); len(sp) > 1 {
			from = sp[len(sp)-2].End
		}
		var own []session.Waypoint
		for q := from; q < at; q += 5 {
			own = append(own, session.Waypoint{Seq: q, Link: link(q)})
		}
		p := &session.Parent{ID: h.ID, Seq: at, Link: link(at), Spans: h.Spans(at + 1), Trail: h.Trail(at, own)}
		h = session.Header{Format: session.Format, ID: session.ID(fmt.Sprintf("f%03d", i+1)), Kind: session.KindFork, SeedLength: at + 1, Parent: p}
		if err := h.Validate(); err != nil {
			t.Fatal(err)
		}
		if len(p.Trail) > 64+len(p.Spans) {
			t.Errorf("fork %d, of %d parts, has a trail of %d", i, len(p.Spans), len(p.Trail))
		}
		from = 0
		for k, sp := range p.Spans {
			got, links, ok := p.Ending(sp.ID)
			if !ok || got != link(sp.End-1) {
				t.Fatalf("fork %d: the end of %v is %v, %v", i, sp, got, ok)
			}
			if links == nil || k > len(p.Spans)-3 && sp.End-from > 5 && len(links) == 0 {
				t.Errorf("fork %d has no trail in %v", i, sp)
			}
			for _, w := range links {
				if w.Seq < from || w.Seq >= sp.End-1 || w.Link != link(w.Seq) {
					t.Errorf("fork %d: %v is not in %v", i, w, sp)
				}
			}
			from = sp.End
		}
	}
	old := session.Header{ID: "old1", SeedLength: 9, Parent: &session.Parent{ID: "root", Seq: 8, Spans: []session.OriginSpan{{ID: "root", End: 9}}}}
	if got := old.Trail(20, []session.Waypoint{{Seq: 12}}); !slices.Equal(got, []session.Waypoint{{Seq: 12}}) {
		t.Errorf("of one without a trail: %v", got)
	}
	if _, links, ok := old.Parent.Ending("root"); !ok || links != nil {
		t.Errorf("%v, %v", links, ok)
	}
	if _, _, ok := old.Parent.Ending("else"); ok {
		t.Error("it begins with another")
	}
}
