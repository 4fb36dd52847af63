package dsh

import (
	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/session"
)

// numbering gives each event its seq. As long as the file counts right, that is the seq that it had; a seq that
// is missing is counted. A hole is filled with notes, so that what follows keeps its place. A seq that goes back
// (two writers, a copied part) cannot be kept: the event gets the next one, in the order of the file, and
// what refers to it is led there.
type numbering struct {
	next   session.Seq           // ours
	expect int64                 // the source's
	seen   int64                 // the highest seq of the source so far, plus one
	moved  map[int64]session.Seq // where the source's seqs went, once they differ
	same   int64                 // below this they do not differ
	filled int64
}

// maxFill bounds the notes that stand for missing events, of all holes together.
const maxFill = 1 << 16

// maxTime bounds times, in milliseconds: beyond it a record cannot hold them.
const maxTime = 1<<53 - 1

// hole says how many events are missing before s; ok is false if s cannot follow what was read.
func (n *numbering) hole(s int64) (missing int64, ok bool) {
	switch gap := s - n.seen; {
	case s == n.expect && n.moved == nil:
		return 0, true
	case n.moved == nil && gap > 0 && gap <= maxFill-n.filled:
		return gap, true
	}
	return 0, false
}

// take gives the event with the source's seq s its place.
func (n *numbering) take(s int64) session.Seq {
	if n.moved == nil && s != int64(n.next) {
		n.moved, n.same = map[int64]session.Seq{}, int64(n.next)
	}
	if n.moved != nil {
		n.moved[s] = n.next
	}
	n.expect = s + 1
	n.seen = max(n.seen, n.expect)
	n.next++
	return n.next - 1
}

// find returns where the event with the source's seq s stands.
func (n *numbering) find(s int64) (session.Seq, bool) {
	if q, ok := n.moved[s]; ok {
		return q, true
	}
	limit := n.same
	if n.moved == nil {
		limit = int64(n.next)
	}
	return session.Seq(s), 0 <= s && s < limit
}

// place returns the seq of the next event, which has the seq *s in the source, or none. Lines before it that
// could not be read are settled: they fill a hole if there is one.
func (r *reader) place(s *int64) (session.Seq, error) {
	if err := r.settle(); err != nil {
		return 0, err
	}
	if s == nil {
		if err := r.notes(len(r.lost)); err != nil {
			return 0, err
		}
		return r.num.take(r.num.expect), nil
	}
	missing, ok := r.num.hole(*s)
	if !ok {
		if err := r.notes(len(r.lost)); err != nil {
			return 0, err
		}
		if *s != r.num.expect {
			r.log.Fidelity.Change("events whose seq is not the next")
		}
		return r.num.take(*s), nil
	}
	known := min(missing, int64(len(r.lost)))
	if err := r.notes(int(known)); err != nil {
		return 0, err
	}
	r.lost, r.lostToo = nil, 0 // the rest were no events: they had no seq
	for range missing - known {
		if err := r.put(importer.Note(r.num.take(r.num.expect), 0, "missing in the source", "", nil), note, ""); err != nil {
			return 0, err
		}
		r.log.Fidelity.Drop("events that are missing in the source", 1)
		r.num.filled++
	}
	return r.num.take(*s), nil
}

// notes makes notes of the first n unreadable lines.
func (r *reader) notes(n int) error {
	for _, line := range r.lost[:n] {
		if err := r.put(importer.Note(r.num.take(r.num.expect), 0, "unreadable", "", line), note, ""); err != nil {
			return err
		}
	}
	r.lost = r.lost[n:]
	return nil
}
