package storetest

import (
	"fmt"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var packTests = []test{
	{"Lives", packLives},
	{"Busy", packBusy},
	{"NotFound", packNotFound},
}

func (s *suite) packer() store.Packer {
	s.Helper()
	p, ok := s.st.(store.Packer)
	if !ok {
		s.Skip("this driver does not pack")
	}
	return p
}

// packLives: events, links and forks are the same before and behind a packing, in this process and the next.
func packLives(s *suite) {
	s.packer()
	w, err := s.st.Create(s.ctx, header("packed"))
	s.ok(err)
	next := session.Seq(0)
	for i := range 4 {
		if i > 0 {
			w, err = s.st.Open(s.ctx, "packed")
			s.ok(err)
		}
		evs := talk(next, 5)
		_, err = w.Append(s.ctx, evs)
		s.ok(err)
		_, err = w.Flush(s.ctx)
		s.ok(err)
		s.ok(w.Close())
		next += 5
	}
	all := func() string {
		snap, err := s.st.Read(s.ctx, "packed")
		s.ok(err)
		defer snap.Close()
		text := fmt.Sprintf("%+v %v\n", snap.Pos, snap.Damage)
		for ev, err := range snap.Prefix.Range(0, snap.Prefix.Len()) {
			s.ok(err)
			text += fmt.Sprintf("%+v\n", ev)
		}
		if f, ok := s.st.(store.Forker); ok {
			for q := range next {
				link, err := f.LinkAt(s.ctx, "packed", q)
				s.ok(err)
				text += link.String()
			}
		}
		return text
	}
	before := all()
	old, err := s.st.Read(s.ctx, "packed")
	s.ok(err)
	defer old.Close()
	for range 2 {
		p, err := s.packer().Pack(s.ctx, "packed")
		s.ok(err)
		if p.ID != "packed" || p.After > p.Before {
			s.Fatalf("%+v", p)
		}
		if after := all(); after != before {
			s.Fatalf("it reads otherwise:\n%s\nwas\n%s", after, before)
		}
	}
	n := 0
	for ev, err := range old.Prefix.Range(0, old.Prefix.Len()) {
		s.ok(err)
		if ev.Seq != session.Seq(n) {
			s.Fatalf("event %d of a snapshot from before has the seq %d", n, ev.Seq)
		}
		n++
	}
	w, err = s.st.Open(s.ctx, "packed")
	s.ok(err)
	_, err = w.Append(s.ctx, talk(next, 1))
	s.ok(err)
	s.ok(w.Close())
	s.reopen()
	snap, err := s.st.Read(s.ctx, "packed")
	s.ok(err)
	defer snap.Close()
	if snap.Prefix.Len() != next+1 || len(snap.Damage) > 0 {
		s.Fatalf("%d events, %v", snap.Prefix.Len(), snap.Damage)
	}
}

func packBusy(s *suite) {
	w, err := s.st.Create(s.ctx, header("busy"))
	s.ok(err)
	_, err = w.Append(s.ctx, talk(0, 1))
	s.ok(err)
	_, err = s.packer().Pack(s.ctx, "busy")
	s.is(err, store.ErrBusy, "packing a session that is written")
	s.ok(w.Close())
}

func packNotFound(s *suite) {
	_, err := s.packer().Pack(s.ctx, "nobody")
	s.is(err, store.ErrNotFound, "packing a session that is not there")
}
