package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var forkTests = []test{
	{"LinkAt", forkLinkAt},
	{"Trail", forkTrail},
	{"Pointer", forkPointer},
	{"OfForkOfFork", forkChain},
	{"EmptySource", forkEmpty},
	{"Refused", forkRefused},
	{"Independent", forkIndependent},
	{"WhileWriting", forkWhileWriting},
	{"Blobs", forkBlobs},
	{"Cost", forkCost},
	{"Title", forkTitle},
	{"Listed", forkListed},
	{"StoreFork", forkStoreFork},
	{"OfOpenTurn", forkOfOpenTurn},
}

// childHeader is the header of a fork of parent at seq at (None: before its first event).
func (s *suite) childHeader(child, parent session.ID, at session.Seq) session.Header {
	s.Helper()
	ph := s.stat(parent).Header
	h := session.Header{Format: session.Format, ID: child, CreatedAt: 1700000500000, Kind: session.KindFork, Cwd: ph.Cwd,
		SeedLength: at + 1, Parent: &session.Parent{ID: parent, Seq: at, Spans: ph.Spans(at + 1), Activity: 4242}}
	if at != session.None {
		var err error
		h.Parent.Link, err = s.forker().LinkAt(s.ctx, parent, at)
		s.ok(err)
		h.Parent.Trail, err = s.forker().Trail(s.ctx, parent, at)
		s.ok(err)
	}
	return h
}

// boundary is what stands in a child's first file.
func boundary(seq session.Seq) session.Event {
	return session.Event{Seq: seq, Time: 1700000500000, Type: session.TypeInherited, Data: jsontext.Value(`{}`)}
}

// fork makes a child and returns the events that it must hold.
func (s *suite) fork(child, parent session.ID, at session.Seq, inherited []session.Event) []session.Event {
	s.Helper()
	var own []session.Event
	if at != session.None {
		own = []session.Event{boundary(at + 1)}
	}
	s.ok(s.forker().CreateFork(s.ctx, s.childHeader(child, parent, at), own))
	all := append(inherited[:at+1:at+1], own...)
	s.holds(child, all)
	return all
}

func forkLinkAt(s *suite) {
	f := s.forker()
	all := append(golden(), talk(8, 150)...)
	w := s.create("link", all...)
	for q := session.Seq(0); q < 158; q += 1 + q/20 {
		got, err := f.LinkAt(s.ctx, "link", q)
		s.ok(err)
		if want := posAfter(all[:q+1]).Link; got != want {
			s.Fatalf("link at %d is %s, want %s", q, got, want)
		}
	}
	for _, q := range []session.Seq{-1, 158, 1 << 40} {
		if _, err := f.LinkAt(s.ctx, "link", q); !errors.Is(err, session.ErrBoundary) && !errors.Is(err, session.ErrRange) {
			s.Errorf("LinkAt %d: %v", q, err)
		}
	}
	_, err := f.LinkAt(s.ctx, "nobody", 0)
	s.is(err, store.ErrNotFound, "LinkAt")
	s.append(w, talk(158, 1)...)
}

// forkTrail: a trail has links of the part that the seq is in, few, in order.
func forkTrail(s *suite) {
	f := s.forker()
	all := append(golden(), talk(8, 500)...)
	s.stored("base", all[:300]...)
	s.append(s.open("base"), all[300:]...)
	s.fork("kids", "base", 400, all)
	for _, c := range []struct {
		id       session.ID
		seq      session.Seq
		from, to session.Seq
	}{{"base", 0, 0, 0}, {"base", 1, 0, 1}, {"base", 9, 0, 9}, {"base", 507, 0, 507}, {"kids", 400, 0, 400}, {"kids", 77, 0, 77}, {"kids", 401, 401, 401}} {
		trail, err := f.Trail(s.ctx, c.id, c.seq)
		s.ok(err)
		if trail == nil || len(trail) > 64 {
			s.Errorf("the trail of %s at %d has %d links, nil: %v", c.id, c.seq, len(trail), trail == nil)
		}
		from := c.from
		for _, w := range trail {
			if w.Seq < from || w.Seq >= c.to {
				s.Errorf("the trail of %s at %d has %d", c.id, c.seq, w.Seq)
				continue
			}
			from = w.Seq + 1
			if want := posAfter(all[:w.Seq+1]).Link; w.Link != want {
				s.Errorf("the trail of %s at %d has the link %s of %d, want %s", c.id, c.seq, w.Link, w.Seq, want)
			}
		}
	}
	_, err := f.Trail(s.ctx, "nobody", 0)
	s.is(err, store.ErrNotFound, "Trail")
}

func forkPointer(s *suite) {
	s.forker()
	all := append(golden(), talk(8, 40)...)
	s.stored("base", all...)
	for _, at := range []session.Seq{0, 3, 6, 7, 25, 47} {
		id := session.ID(fmt.Sprintf("fork-%d", at))
		want := s.fork(id, "base", at, all)
		st := s.stat(id)
		if st.LastActivity != 4242 || st.Header.Parent == nil || st.Header.Parent.ID != "base" || st.Holder != nil || st.Base != at+2 {
			s.Fatalf("stat of the fork: %+v", st)
		}
		w := s.open(id)
		s.prefixIs(w.Opened().Prefix, want)
		want = append(want, talk(at+2, 5)...)
		s.append(w, want[at+2:]...)
		if w.Base() != at+2 {
			s.Fatalf("base %d, want %d", w.Base(), at+2)
		}
		s.flush(w)
		s.ok(w.Close())
		s.holds(id, want)
	}
	s.holds("base", all)
	if s.Reopen != nil {
		s.reopen()
		s.holds("fork-6", append(append(all[:7:7], boundary(7)), talk(8, 5)...))
	}
}

func forkChain(s *suite) {
	s.forker()
	all := talk(0, 60)
	s.stored("gen0", all...)
	grow := func(id session.ID, events []session.Event, n int) []session.Event {
		s.Helper()
		w := s.open(id)
		events = append(events[:len(events):len(events)], talk(session.Seq(len(events)), n)...)
		s.append(w, events[len(events)-n:]...)
		s.flush(w)
		s.ok(w.Close())
		return events
	}
	one := grow("gen1", s.fork("gen1", "gen0", 39, all), 20)    // 0..39 gen0, 40..60 gen1
	two := grow("gen2", s.fork("gen2", "gen1", 50, one), 20)    // 0..39 gen0, 40..50 gen1, then gen2
	three := grow("gen3", s.fork("gen3", "gen2", 60, two), 20)  // spans of three
	early := grow("gen3b", s.fork("gen3b", "gen2", 20, two), 5) // only gen0's part
	mid := grow("gen3c", s.fork("gen3c", "gen2", 45, two), 5)   // cut in gen1's part
	edge := grow("gen3d", s.fork("gen3d", "gen2", 39, two), 5)  // exactly at a seam
	four := grow("gen4", s.fork("gen4", "gen3", 61, three), 3)
	check := func() {
		s.Helper()
		for id, want := range map[session.ID][]session.Event{"gen0": all, "gen1": one, "gen2": two, "gen3": three, "gen3b": early, "gen3c": mid, "gen3d": edge, "gen4": four} {
			s.holds(id, want)
		}
	}
	check()
	for id, want := range map[session.ID]string{
		"gen3":  "[{gen0 40} {gen1 51} {gen2 61}]",
		"gen3b": "[{gen0 21}]",
		"gen3d": "[{gen0 40}]",
		"gen4":  "[{gen0 40} {gen1 51} {gen2 61} {gen3 62}]",
	} {
		if got := fmt.Sprint(s.stat(id).Header.Parent.Spans); got != want {
			s.Errorf("spans of %s: %s, want %s", id, got, want)
		}
	}
	if s.Another != nil {
		s.holdsIn(s.Another(s.T), "gen4", four)
	}
	if s.Reopen != nil {
		s.reopen()
		check()
	}
}

func forkEmpty(s *suite) {
	s.forker()
	s.stored("base", talk(0, 3)...)
	s.fork("bare", "base", session.None, talk(0, 3))
	if n := s.stat("bare").Pos.Next; n != 0 {
		s.Fatalf("%d events", n)
	}
	s.fork("bare2", "bare", session.None, nil)
	w := s.open("bare2")
	s.append(w, talk(0, 4)...)
	s.flush(w)
	s.ok(w.Close())
	s.holds("bare2", talk(0, 4))
	s.holds("bare", nil)
	if s.Reopen != nil {
		s.reopen()
		s.holds("bare", nil)
		s.holds("bare2", talk(0, 4))
	}
}

func forkRefused(s *suite) {
	f := s.forker()
	s.stored("base", talk(0, 10)...)
	s.stored("other", append(talk(0, 9), user(9, "other"))...)
	own := []session.Event{boundary(6)}
	good := func() session.Header { return s.childHeader("child", "base", 5) }

	for what, change := range map[string]func(*session.Header){
		"a wrong link":        func(h *session.Header) { h.Parent.Link[3] ^= 1 },
		"link of another seq": func(h *session.Header) { h.Parent.Link = posAfter(talk(0, 5)).Link },
		"spans of a stranger": func(h *session.Header) { h.Parent.Spans = []session.OriginSpan{{ID: "other", End: 6}} },
		"spans too many": func(h *session.Header) {
			h.Parent.Spans = []session.OriginSpan{{ID: "other", End: 2}, {ID: "base", End: 6}}
		},
		"spans too short": func(h *session.Header) { h.Parent.Spans = []session.OriginSpan{{ID: "base", End: 5}} },
		"no parent":       func(h *session.Header) { h.Parent, h.SeedLength = nil, 0 },
		"a bad id":        func(h *session.Header) { h.ID = "../x" },
		"beyond the end": func(h *session.Header) {
			h.SeedLength, h.Parent.Seq, h.Parent.Spans = 11, 10, []session.OriginSpan{{ID: "base", End: 11}}
		},
	} {
		h := good()
		change(&h)
		if err := f.CreateFork(s.ctx, h, own); err == nil {
			s.Errorf("%s: accepted", what)
		}
	}
	h := good()
	if err := f.CreateFork(s.ctx, h, []session.Event{boundary(7)}); err == nil {
		s.Error("own events that do not follow the inherited ones: accepted")
	}
	h = good()
	h.Parent.ID, h.Parent.Spans = "nobody", []session.OriginSpan{{ID: "nobody", End: 6}}
	s.is(f.CreateFork(s.ctx, h, own), store.ErrNotFound, "fork of nobody")
	s.absent(s.st, "child")

	taken := func(what string) {
		s.Helper()
		s.is(f.CreateFork(s.ctx, good(), own), store.ErrExists, what)
	}
	w := s.create("child")
	taken("reserved")
	s.append(w, talk(0, 2)...)
	taken("held")
	s.ok(w.Close())
	taken("stored")
	s.holds("child", talk(0, 2))
	s.fork("child2", "base", 5, talk(0, 10))
	s.is(f.CreateFork(s.ctx, s.childHeader("child2", "other", 3), []session.Event{boundary(4)}), store.ErrExists, "a fork")
	s.holds("child2", append(talk(0, 6), boundary(6)))
}

// Parent and child grow apart.
func forkIndependent(s *suite) {
	s.forker()
	parent := talk(0, 20)
	s.stored("base", parent...)
	child := s.fork("child", "base", 12, parent)
	before := s.stat("child")
	w := s.open("base")
	parent = append(parent, talk(20, 30)...)
	s.append(w, parent[20:]...)
	s.append(w, title(50, "the parent's", "user"))
	parent = append(parent, title(50, "the parent's", "user"))
	s.flush(w)
	s.ok(w.Close())
	s.statsEqual(s.stat("child"), before)
	s.holds("child", child)
	bytes := s.stat("base")
	w = s.open("child")
	child = append(child, talk(14, 9)...)
	s.append(w, child[14:]...)
	s.append(w, title(23, "the child's", "user"))
	child = append(child, title(23, "the child's", "user"))
	s.flush(w)
	s.ok(w.Close())
	s.statsEqual(s.stat("base"), bytes)
	s.holds("base", parent)
	s.holds("child", child)
}

// A fork takes no lease on its source.
func forkWhileWriting(s *suite) {
	s.forker()
	all := talk(0, 90)
	w := s.create("base")
	for n := 0; n < 90; n += 10 {
		s.append(w, all[n:n+10]...)
		id := session.ID(fmt.Sprintf("fork-%d", n))
		s.fork(id, "base", session.Seq(n+9), all)
		s.fork(id+"b", "base", session.Seq(n/2), all)
	}
	s.flush(w)
	s.ok(w.Close())
	s.holds("base", all)
	s.holds("fork-30", append(all[:40:40], boundary(40)))
}

func forkBlobs(s *suite) {
	s.forker()
	big := session.Event{Seq: 1, Type: "x/a", Data: jsontext.Value(`{"a":"` + strings.Repeat("z", 50_000) + `","$blob":1}`)}
	all := []session.Event{chunk(0), big, chunk(2)}
	s.stored("base", all...)
	want := s.fork("child", "base", 1, all)
	w := s.open("child")
	big.Seq = 3
	s.append(w, big)
	s.holds("child", append(want, big))
}

// A fork costs nothing in proportion to what it inherits.
func forkCost(s *suite) {
	s.forker()
	var all []session.Event
	w := s.create("base")
	for len(all) < 4000 {
		next := talk(session.Seq(len(all)), 200)
		s.append(w, next...)
		all = append(all, next...)
	}
	s.flush(w)
	s.ok(w.Close())
	s.fork("child", "base", 3990, all)
	if b := s.stat("child").Bytes; b > 8<<10 {
		s.Fatalf("the fork has %d bytes of its own, its parent %d", b, s.stat("base").Bytes)
	}
}

// A fork has the title that its parent had at the fork point, until it gets its own.
func forkTitle(s *suite) {
	s.forker()
	all := []session.Event{chunk(0), title(1, "early", "provider"), chunk(2), title(3, "late", "provider"), chunk(4)}
	s.stored("base", all...)
	for at, want := range map[session.Seq]string{0: "", 1: "early", 2: "early", 3: "late", 4: "late"} {
		id := session.ID(fmt.Sprintf("fork-%d", at))
		s.fork(id, "base", at, all)
		if got := s.stat(id).Title; got != want && got != "" {
			s.Fatalf("fork at %d is titled %q, want %q", at, got, want)
		}
		w := s.open(id)
		s.append(w, title(at+2, "own", "user"))
		s.ok(w.Close())
		if got := s.stat(id).Title; got != "own" && got != "" {
			s.Fatalf("fork at %d is titled %q, want its own", at, got)
		}
	}
}

// A fork is a row like any other, placed by its own activity, else by that of its fork point.
func forkListed(s *suite) {
	s.forker()
	s.lister()
	all := talk(0, 10)
	s.stored("base", all...)
	s.fork("child", "base", 7, all)
	s.fork("child2", "base", 7, all)
	w := s.open("child2")
	ev := user(9, "mine")
	s.append(w, ev)
	s.ok(w.Close())
	check := func() {
		s.Helper()
		page := s.list(store.Query{})
		if got := ids(page.Rows); got != "child2 base child" {
			s.Fatalf("listed %s", got)
		}
		for _, row := range page.Rows {
			st := s.stat(row.ID)
			row.Title, st.Title = "", ""
			s.statsEqual(row, st)
		}
		page = s.list(store.Query{Kinds: []session.SessionKind{session.KindRoot}})
		if page.Hidden[session.KindFork] != 2 || page.Total != 1 {
			s.Fatalf("roots only: total %d, hidden %v", page.Total, page.Hidden)
		}
	}
	check()
	if s.Reopen != nil {
		s.reopen()
		check()
	}
}

// The package's Fork works over the driver: closers and boundary are there when it returns.
func forkStoreFork(s *suite) {
	s.forker()
	at := session.Seq(2)
	events := []session.Event{
		{Seq: 0, Time: 1, Type: session.TypeTurnStart, Data: jsontext.Value(`{"turn":1}`)},
		user(1, "hello"),
		{Seq: 2, Time: 1, Type: session.TypeTurnEnd, Data: jsontext.Value(`{"turn":1,"reason":{"kind":"completed"}}`)},
		{Seq: 3, Time: 1, Type: session.TypeTurnStart, Data: jsontext.Value(`{"turn":2}`)},
	}
	s.stored("base", events...)
	h, err := store.Fork(s.ctx, s.st, "base", store.ForkOptions{At: &at, Child: "child", Now: 1700000500000})
	s.ok(err)
	if h.SeedLength != 3 || h.Parent.Link != posAfter(events[:3]).Link {
		s.Fatalf("header %+v", h)
	}
	s.holds("child", append(events[:3:3], boundary(3)))
	if got := s.stat("child").LastActivity; got != user(1, "").Time {
		s.Fatalf("last activity %d", got)
	}
	_, err = store.Fork(s.ctx, s.st, "base", store.ForkOptions{At: &at, Child: "child", Now: 1})
	s.is(err, store.ErrExists, "fork to a taken id")
	at = 99
	_, err = store.Fork(s.ctx, s.st, "base", store.ForkOptions{At: &at, Child: "child2", Now: 1})
	s.is(err, session.ErrBoundary, "fork beyond the end")
	s.absent(s.st, "child2")
}

// An open turn is closed in the child if nobody runs it, and left out if somebody does: who has written since it began
// runs it, who only holds the session does not.
func forkOfOpenTurn(s *suite) {
	s.forker()
	turn := func(seq session.Seq, typ, data string) session.Event {
		return session.Event{Seq: seq, Time: 1, Type: typ, Data: jsontext.Value(data)}
	}
	log := []session.Event{
		turn(0, session.TypeTurnStart, `{"turn":1}`),
		user(1, "hello"),
		turn(2, session.TypeTurnEnd, `{"turn":1,"reason":{"kind":"completed"}}`),
		turn(3, session.TypeTurnStart, `{"turn":2}`),
		user(4, "and then"),
	}
	forks := 0
	fork := func(at *session.Seq) (session.ID, error) {
		forks++
		id := session.ID(fmt.Sprint("child", forks))
		_, err := store.Fork(s.ctx, s.st, "base", store.ForkOptions{At: at, Child: id, Now: 1700000500000})
		return id, err
	}
	closed := func(when string) {
		s.Helper()
		id, err := fork(nil)
		s.ok(err)
		snap, err := s.st.Read(s.ctx, id)
		s.ok(err)
		defer snap.Close()
		var types []string
		for ev, err := range snap.Prefix.Range(session.Seq(len(log)), snap.Prefix.Len()) {
			s.ok(err)
			types = append(types, ev.Type)
		}
		if want := []string{session.TypeTurnEnd, session.TypeInherited}; !slices.Equal(types, want) {
			s.Fatalf("%s: the child's own events are %v, want %v", when, types, want)
		}
	}
	leftOut := func(when string, cut session.Seq) {
		s.Helper()
		id, err := fork(nil)
		s.ok(err)
		s.holds(id, append(log[:cut+1:cut+1], boundary(cut+1)))
		last := session.Seq(len(log) - 1)
		_, err = fork(&last)
		s.is(err, session.ErrOpenTurn, when)
	}
	w := s.create("base", log...)
	leftOut("its writer lives", 2)
	s.ok(w.Close())
	closed("its writer is gone")
	w = s.open("base")
	closed("somebody holds the session, and has written nothing")
	next := []session.Event{
		boundary(5),
		turn(6, session.TypeTurnEnd, `{"turn":2,"reason":{"kind":"interrupted"}}`),
		turn(7, session.TypeTurnStart, `{"turn":3}`),
	}
	s.append(w, next...)
	log = append(log, next...)
	leftOut("the next life runs its own", 6)
	s.ok(w.Close())
	closed("the next life is gone")
}
