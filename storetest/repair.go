package storetest

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var repairTests = []test{
	{"NothingToDo", repairNothing},
	{"ValueGone", repairValue},
}

func repairNothing(s *suite) {
	r := s.repairer()
	w := s.create("healthy", chunk(0), chunk(1))
	s.flush(w)
	_, err := r.Repair(s.ctx, "healthy", false)
	s.is(err, store.ErrBusy, "repair of a session that is held")
	s.ok(w.Close())
	for _, dry := range []bool{true, false} {
		rep, err := r.Repair(s.ctx, "healthy", dry)
		s.ok(err)
		if rep.Damage != nil || rep.Lost != nil || rep.Written != nil || rep.Kept != nil {
			s.Fatalf("a healthy session was repaired: %+v", rep)
		}
	}
	snap, err := r.Salvage(s.ctx, "healthy")
	s.ok(err)
	s.prefixIs(snap.Prefix, []session.Event{chunk(0), chunk(1)})
	s.ok(snap.Close())
	_, err = r.Repair(s.ctx, "nobody", false)
	s.is(err, store.ErrNotFound, "repair of what is not there")
	_, err = r.Salvage(s.ctx, "nobody")
	s.is(err, store.ErrNotFound, "salvage of what is not there")
}

// An event whose value is gone gets a mark in its place, first for whoever looks, then for good.
func repairValue(s *suite) {
	r := s.repairer()
	if s.CorruptBlob == nil {
		s.Skip("this driver's blobs cannot be reached")
	}
	text := quote(strings.Repeat("bits that rot ", 4000))
	all := []session.Event{chunk(0), {Seq: 1, Type: "x/a", Data: jsontext.Value(`{"a":` + text + `}`)}, chunk(2)}
	s.stored("holed", all...)
	s.CorruptBlob(s.T, record.BlobName([]byte(text)))
	mended := func(snap *store.Snapshot, err error) {
		s.Helper()
		s.ok(err)
		want := slices.Clone(all)
		if want[1], err = snap.Prefix.At(1); err != nil || want[1].Type != session.TypeLost {
			s.Fatalf("in the place of the event: %v, %v", want[1], err)
		}
		s.prefixIs(snap.Prefix, want)
		s.ok(snap.Close())
	}
	mended(r.Salvage(s.ctx, "holed"))
	for _, dry := range []bool{true, false} {
		rep, err := r.Repair(s.ctx, "holed", dry)
		s.ok(err)
		if len(rep.Damage) == 0 || !slices.Equal(rep.Lost, []store.Span{{First: 1, Last: 1}}) || len(rep.Kept) == 0 {
			s.Fatalf("dry %v: %+v", dry, rep)
		}
	}
	mended(s.st.Read(s.ctx, "holed"))
	w := s.open("holed")
	s.append(w, chunk(3))
	s.flush(w)
	s.ok(w.Close())
}

func (s *suite) repairer() store.Repairer {
	s.Helper()
	r, ok := s.st.(store.Repairer)
	if !ok {
		s.Skip("this driver does not repair")
	}
	return r
}
