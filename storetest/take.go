package storetest

import (
	"errors"
	"iter"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var takeTests = []test{
	{"Whole", takeWhole},
	{"Empty", takeEmpty},
	{"Broken", takeBroken},
	{"Refused", takeRefused},
}

func (s *suite) taker() store.Taker {
	s.Helper()
	t, ok := s.st.(store.Taker)
	if !ok {
		s.Skip("the store does not take in sessions")
	}
	return t
}

func taken(id session.ID, events session.Seq) session.Header {
	return session.Header{Format: session.Format, ID: id, CreatedAt: 1700000500000, Kind: session.KindImported, Cwd: "/work",
		Imported: &session.Imported{Tool: "test", SHA256: "00", Events: events, Source: "there"}}
}

func each(events []session.Event) iter.Seq2[session.Event, error] {
	return session.Events(events).Range(0, session.Seq(len(events)))
}

// takeWhole: a session that is taken in is stored as it is, is nobody's, and can be gone on with.
func takeWhole(s *suite) {
	events := talk(0, 40)
	h := taken("taken", 40)
	s.ok(s.taker().Take(s.ctx, h, each(events)))
	s.holds("taken", events)
	st := s.stat("taken")
	if st.Holder != nil || st.Header.Kind != session.KindImported || st.Header.Imported == nil || st.Header.Imported.Source != h.Imported.Source {
		s.Errorf("stat says %+v", st)
	}
	w, err := s.st.Open(s.ctx, "taken")
	s.ok(err)
	more := talk(40, 3)
	_, err = w.Append(s.ctx, more)
	s.ok(err)
	_, err = w.Flush(s.ctx)
	s.ok(err)
	s.ok(w.Close())
	s.holds("taken", append(events, more...))
}

// takeEmpty: a source without events is a session, too.
func takeEmpty(s *suite) {
	s.ok(s.taker().Take(s.ctx, taken("hollow", 0), each(nil)))
	if st := s.stat("hollow"); st.State != store.StateOK || st.Pos != (store.Pos{}) || st.LastActivity != 1700000500000 {
		s.Errorf("stat says %+v", st)
	}
	s.holds("hollow", nil)
	w, err := s.st.Open(s.ctx, "hollow")
	s.ok(err)
	events := talk(0, 2)
	_, err = w.Append(s.ctx, events)
	s.ok(err)
	s.ok(w.Close())
	s.holds("hollow", events)
}

// takeBroken: when there is no next event, nothing is left of those before it.
func takeBroken(s *suite) {
	gone := errors.New("the source is gone")
	for _, n := range []int{0, 1, 50} {
		err := s.taker().Take(s.ctx, taken("broken", 9), func(yield func(session.Event, error) bool) {
			for _, ev := range talk(0, n) {
				if !yield(ev, nil) {
					return
				}
			}
			yield(session.Event{}, gone)
		})
		if !errors.Is(err, gone) {
			s.Errorf("after %d events: %v", n, err)
		}
		if _, err := s.st.Stat(s.ctx, "broken"); !errors.Is(err, store.ErrNotFound) {
			s.Errorf("after %d events there is a session: %v", n, err)
		}
	}
	s.ok(s.taker().Take(s.ctx, taken("broken", 3), each(talk(0, 3)))) // the id is free
	s.holds("broken", talk(0, 3))
}

func takeRefused(s *suite) {
	s.ok(s.taker().Take(s.ctx, taken("first", 1), each(talk(0, 1))))
	if err := s.taker().Take(s.ctx, taken("first", 2), each(talk(0, 2))); !errors.Is(err, store.ErrExists) {
		s.Errorf("taking an id that is stored: %v", err)
	}
	fork := s.childHeader("child", "first", 0)
	if err := s.taker().Take(s.ctx, fork, each(nil)); err == nil {
		s.Error("a fork was taken in without its parent's events")
	}
	bad := taken("second", 1)
	bad.Format = 7
	if err := s.taker().Take(s.ctx, bad, each(talk(0, 1))); err == nil {
		s.Error("a header of another format was taken in")
	}
	gap := talk(1, 1)
	if err := s.taker().Take(s.ctx, taken("third", 1), each(gap)); err == nil {
		s.Errorf("a log that begins at %d was taken in", gap[0].Seq)
	}
	if _, err := s.st.Stat(s.ctx, "third"); !errors.Is(err, store.ErrNotFound) {
		s.Errorf("after a refused take there is a session: %v", err)
	}
}
