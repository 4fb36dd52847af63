package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var markTests = []test{
	{"All", markAll},
	{"Chosen", markChosen},
	{"Changes", markChanges},
	{"Cancelled", markCancelled},
	{"Ends", markEnds},
	{"Check", checkLog},
}

// marks returns the marks of ids, nil: of all, as somebody sees them who has the marks known.
func (s *suite) marks(ids []session.ID, known []store.Mark) []store.Mark {
	s.Helper()
	m, ok := s.st.(store.Marker)
	if !ok {
		s.Skip("this driver has no marks")
	}
	marks, err := m.Marks(s.ctx, ids, func(id session.ID) store.Mark {
		for _, m := range known {
			if m.ID == id {
				return m
			}
		}
		return store.Mark{}
	})
	s.ok(err)
	return marks
}

func marked(marks []store.Mark) string {
	var out []string
	for _, m := range marks {
		out = append(out, string(m.ID))
	}
	return strings.Join(out, " ")
}

func markAll(s *suite) {
	if marks := s.marks(nil, nil); len(marks) != 0 {
		s.Fatalf("an empty store has %+v", marks)
	}
	for _, id := range []session.ID{"mark-b", "mark-c", "mark-a"} {
		s.ok(s.create(id, talk(0, 3)...).Close())
	}
	if got := marked(s.marks(nil, nil)); got != "mark-a mark-b mark-c" {
		s.Fatal(got)
	}
	if r, ok := s.st.(store.Remover); ok {
		s.ok(r.Trash(s.ctx, "mark-b"))
		if got := marked(s.marks(nil, nil)); got != "mark-a mark-c" {
			s.Fatal("in the trash: ", got)
		}
	}
}

func markChosen(s *suite) {
	for _, id := range []session.ID{"mark-a", "mark-b", "mark-c"} {
		s.ok(s.create(id, talk(0, 3)...).Close())
	}
	if got := marked(s.marks([]session.ID{"mark-c", "mark-none", "", "../mark-a", "mark-a"}, nil)); got != "mark-c mark-a" {
		s.Fatal(got)
	}
	if got := s.marks([]session.ID{}, nil); len(got) != 0 {
		s.Fatalf("none was asked for: %+v", got)
	}
}

// What is written has another stamp, or none: whatever the asker knew, and from the moment it is written.
func markChanges(s *suite) {
	w := s.create("mark", talk(0, 3)...)
	s.ok(s.create("mark-still", talk(0, 3)...).Close())
	before := s.marks(nil, nil)
	if !before[0].Held || before[1].Held {
		s.Fatalf("the one is held, the other is not: %+v", before)
	}
	for n := range 5 {
		s.append(w, user(session.Seq(3+n), "more"))
		for _, known := range [][]store.Mark{nil, before} {
			now := s.marks(nil, known)
			if now[0].Stamp != "" && now[0].Stamp == before[0].Stamp {
				s.Fatalf("append %d did not change the stamp", n)
			}
			if now[1].Stamp != before[1].Stamp && now[1].Stamp != "" && before[1].Stamp != "" {
				s.Fatal("what nobody touched has another stamp")
			}
			if now[0].Past != before[0].Past {
				s.Fatal("what only grew has another past")
			}
		}
		before = s.marks(nil, before)
	}
	s.flush(w)
	s.ok(w.Close())
	if s.marks(nil, before)[0].Held {
		s.Fatal("it is still held")
	}
}

// What is told of marks and ends together is what is told of each.
func markEnds(s *suite) {
	e, ok := s.st.(store.Ender)
	if !ok {
		s.Skip("this driver tells them one by one")
	}
	w := s.create("end-held", talk(0, 3)...)
	s.ok(s.create("end-still", talk(0, 3)...).Close())
	marks := s.marks(nil, nil)
	for _, known := range [][]store.Mark{{{ID: "end-held"}, {ID: "end-none"}, {ID: "../end-held"}, {ID: "end-still"}}, marks} {
		ends, err := e.Ends(s.ctx, known)
		s.ok(err)
		for i, m := range known {
			if ends[i].Mark.ID != m.ID {
				s.Fatalf("%d is %s, want %s", i, ends[i].Mark.ID, m.ID)
			}
			at := slices.IndexFunc(marks, func(o store.Mark) bool { return o.ID == m.ID })
			if at < 0 {
				s.is(ends[i].Err, store.ErrNotFound, string(m.ID))
				continue
			}
			s.ok(ends[i].Err)
			s.statsEqual(ends[i].Stat, s.stat(m.ID))
			if ends[i].Mark != marks[at] {
				s.Fatalf("%+v, want %+v", ends[i].Mark, marks[at])
			}
		}
	}
	if ends, err := e.Ends(s.ctx, marks[:1]); err != nil || ends[0].Stat.Holder == nil {
		s.Fatal("who holds it is not told: ", ends, err)
	}
	s.ok(w.Close())
	ctx, cancel := context.WithCancelCause(s.ctx)
	why := errors.New("enough")
	cancel(why)
	if _, err := e.Ends(ctx, marks); !errors.Is(err, why) {
		s.Fatal(err)
	}
}

func markCancelled(s *suite) {
	s.marks(nil, nil)
	s.ok(s.create("mark", talk(0, 3)...).Close())
	ctx, cancel := context.WithCancelCause(s.ctx)
	why := errors.New("enough")
	cancel(why)
	if _, err := s.st.(store.Marker).Marks(ctx, nil, func(session.ID) store.Mark { return store.Mark{} }); !errors.Is(err, why) {
		s.Fatal(err)
	}
}

// A log that only grows stays the one that was read; nothing is told about one that nobody looked at.
func checkLog(s *suite) {
	c, ok := s.st.(store.Checker)
	if !ok {
		s.Skip("this driver has no checks")
	}
	check := func(h session.Header, was string, want bool) string {
		s.Helper()
		now, same, err := c.Check(s.ctx, h, was)
		s.ok(err)
		if same != want {
			s.Fatalf("the same: %v, want %v; was %q, is %q", same, want, was, now)
		}
		return now
	}
	w := s.create("check", talk(0, 3)...)
	h := header("check")
	was := check(h, "", false)
	check(h, "not one of mine", false)
	if check(h, was, true) != was {
		s.Fatal("nobody wrote, and it looks otherwise")
	}
	s.append(w, user(3, "more"))
	grown := check(h, was, true)
	s.flush(w)
	s.ok(w.Close())
	check(h, grown, true)
	s.ok(s.create("check-other", talk(0, 3)...).Close())
	check(header("check-other"), grown, false)
	if now, same, err := c.Check(s.ctx, header("check-none"), was); err != nil || same || now != "" {
		s.Fatal(now, same, err)
	}
}
