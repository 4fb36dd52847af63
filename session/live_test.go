package session

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/strandline-dev/strandline/message"
)

func types(evs []Event) []string {
	var out []string
	for _, ev := range evs {
		out = append(out, ev.Type)
	}
	return out
}

// All drafts get adjacent seqs or none is accepted; check sees the state that the drafts meet; a veto leaves
// the seq to the next event.
func TestAppendAllIsAtomic(t *testing.T) {
	veto := errors.New("not today")
	refuse := ""
	s, err := New(Header{ID: "test"}, Seed{}, Env{Now: tick(), Validators: []Validator{func(st State, ev Event) error {
		if ev.Seq != st.Next() {
			t.Errorf("a validator sees the state of %d for seq %d", st.Next(), ev.Seq)
		}
		if ev.Type == refuse {
			return veto
		}
		return nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	title := Draft{Type: TypeTitle, Data: Title{"x", "user"}}
	user := note("hi", Append())
	put(t, s, title)
	_, more, err := s.From(s.Head())
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func() error{
		"check": func() error { _, err := s.AppendAll(func(State) error { return veto }, title); return err },
		"validator": func() error {
			refuse = TypeUserMessage
			_, err := s.AppendAll(nil, title, user)
			refuse = ""
			return err
		},
		"rule": func() error { _, err := s.AppendAll(nil, title, Draft{Type: "no/such", Data: struct{}{}}); return err },
		"data": func() error {
			_, err := s.AppendAll(nil, title, Draft{Type: TypeTitle, Data: []byte(`{"a":1,"a":2}`)})
			return err
		},
		"marshal": func() error {
			_, err := s.AppendAll(nil, title, Draft{Type: TypeTitle, Data: make(chan int)})
			return err
		},
	} {
		before := s.State()
		err := try()
		if err == nil || (name == "check" || name == "validator") != errors.Is(err, veto) || name != "check" != errors.Is(err, ErrRejected) {
			t.Errorf("%s: %v", name, err)
		}
		if s.Len() != 1 || s.State().SurfaceLen() != before.SurfaceLen() || s.more != more {
			t.Errorf("%s: a refused batch changed the log", name)
		}
	}
	evs, err := s.AppendAll(func(st State) error {
		if st.Next() != 1 || st.Title().Title != "x" {
			t.Errorf("check sees %d events, title %q", st.Next(), st.Title().Title)
		}
		return nil
	}, user, title, user)
	if err != nil || len(evs) != 3 || evs[0].Seq != 1 || evs[2].Seq != 3 {
		t.Errorf("%v %v", types(evs), err)
	}
	select {
	case <-more:
	default:
		t.Error("watchers were not woken")
	}
	if evs, err := s.AppendAll(nil); err != nil || evs != nil {
		t.Errorf("no drafts: %v %v", evs, err)
	}
	s.Dispose()
	s.Dispose()
	if _, err := s.Append(title); !errors.Is(err, ErrDisposed) || !s.Disposed() {
		t.Errorf("disposed: %v", err)
	}
}

// A log with types of unknown owners opens and reads; it is not written to.
func TestUnknownTypesAreReadOnly(t *testing.T) {
	evs := Events{{Seq: 0, Type: "x/a", Data: []byte(`{}`)}, {Seq: 1, Type: "x/b", Data: []byte(`{}`), Ignorable: true}, {Seq: 2, Type: "x/a", Data: []byte(`{}`)}}
	s := fresh(t, Seed{Prefix: evs})
	_, err := s.Append(Draft{Type: TypeTitle, Data: Title{}})
	var un *UnsupportedError
	if !errors.As(err, &un) || !slices.Equal(un.Types, []string{"x/a"}) {
		t.Errorf("%v", err)
	}
	if evs, _, err := s.From(0); err != nil || len(evs) != 3 {
		t.Errorf("reading: %v %v", evs, err)
	}
}

// The constructor makes at most one boundary, on each path that this package knows; it is pending until the
// first event, which it precedes.
func TestBoundaryPaths(t *testing.T) {
	b := &builder{t: t}
	b.turn(1)
	b.user("hi")
	open := b.evs
	b.endTurn(1)
	closed := b.evs
	b.add(TypeInherited, struct{}{})
	ended := b.evs
	closers := (&builder{t: t, evs: open}).state(Header{}).Closers()
	for _, tc := range []struct {
		name  string
		seed  Seed
		first Seq
		want  []string // beyond the prefix
	}{
		{"an empty create", Seed{}, 0, nil},
		{"an empty prefix", Seed{Prefix: Events{}}, 0, nil},
		{"a bare create with a seed: no closers", Seed{Prefix: open}, 2, []string{TypeInherited}},
		{"adoption: stored events and no repair", Seed{Prefix: closed}, 3, []string{TypeInherited}},
		{"resume after a death", Seed{Prefix: open, Repair: closers}, 3, []string{TypeTurnEnd, TypeInherited}},
		{"a seed that ends in a boundary", Seed{Prefix: ended}, 4, nil},
	} {
		for range 2 { // the second time with a state that was folded before
			s, err := New(Header{ID: "test"}, tc.seed, Env{Now: func() int64 { return 77 }})
			if err != nil {
				t.Fatal(err)
			}
			stored := Seq(0)
			if tc.seed.Prefix != nil {
				stored = tc.seed.Prefix.Len()
			}
			got := all(t, s)
			if d := cmp.Diff(tc.want, types(got[stored:]), cmpopts.EquateEmpty()); d != "" || s.FirstLiveSeq() != tc.first || s.Head() != stored {
				t.Errorf("%s: first %d, head %d\n%s", tc.name, s.FirstLiveSeq(), s.Head(), d)
			}
			if n := len(got); n > 0 && len(tc.want) > 0 && (got[n-1].Time != 77 || string(got[n-1].Data) != `{}`) {
				t.Errorf("%s: the boundary is %+v", tc.name, got[n-1])
			}
			if evs, _, err := s.From(stored); err != nil || len(evs) != 0 {
				t.Errorf("%s: a cursor sees the pending prefix: %v %v", tc.name, types(evs), err)
			}
			_, err = s.AppendAll(func(State) error { return errors.New("veto") }, Draft{Type: TypeTitle, Data: Title{}})
			if err == nil || s.Head() != stored {
				t.Errorf("%s: a vetoed append made the pending prefix visible", tc.name)
			}
			put(t, s, Draft{Type: TypeTitle, Data: Title{}})
			if evs, _, _ := s.From(stored); len(evs) != len(tc.want)+1 {
				t.Errorf("%s: the first batch is %v", tc.name, types(evs))
			}
			for q := range s.Len() {
				in, err := Inherited(all(t, s), q)
				if want := q < s.State().LastBoundary(); err != nil || in != want {
					t.Errorf("%s: Inherited(%d) is %t, want %t", tc.name, q, in, want)
				}
			}
			st := NewState(Header{ID: "test"}, Core())
			for _, ev := range got[:tc.first] {
				st.Load(ev)
			}
			tc.seed.State = &st
		}
	}
	if _, err := New(Header{ID: "test"}, Seed{Prefix: closed, Repair: closers}, Env{Now: tick()}); err == nil {
		t.Error("a repair that does not continue the prefix is taken")
	}
	if _, err := New(Header{ID: "test"}, Seed{}, Env{}); err == nil {
		t.Error("a session without a clock")
	}
}

// A bracket is dead below the last boundary, whatever ended its life, and live above; base decides.
func TestBracketStates(t *testing.T) {
	reg, err := NewRegistry([]Kind{{Type: "x/start", Opens: "x", Key: "id"}, {Type: "x/end", Closes: "x", Key: "id"}})
	if err != nil {
		t.Fatal(err)
	}
	open := func(id int) Draft { return Draft{Type: "x/start", Data: []byte(fmt.Sprintf(`{"id":%d}`, id))} }
	end := func(id int) Draft { return Draft{Type: "x/end", Data: []byte(fmt.Sprintf(`{"id":%d}`, id))} }
	s, err := New(Header{ID: "test"}, Seed{}, Env{Registry: reg, Now: tick()})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, open(1), open(2), end(1))
	if b, ok := s.State().OpenBracket("x", s.FirstLiveSeq()); !ok || b.Open != 1 {
		t.Errorf("live: %+v %t", b, ok)
	}
	s2, err := New(Header{ID: "test"}, Seed{Prefix: all(t, s)}, Env{Registry: reg, Now: tick()})
	if err != nil {
		t.Fatal(err)
	}
	if b, ok := s2.State().OpenBracket("x", s2.FirstLiveSeq()); ok {
		t.Errorf("a dead bracket is live: %+v", b)
	}
	put(t, s2, open(2))
	var got []string
	for _, b := range s2.State().Brackets(s2.FirstLiveSeq()) {
		got = append(got, fmt.Sprintf("%d %s", b.Open, b.State))
	}
	if !slices.Equal(got, []string{"0 closed", "1 dead", "4 live"}) {
		t.Errorf("%v", got)
	}
	put(t, s2, end(2)) // takes the newest
	if b := s2.State().Brackets(s2.FirstLiveSeq()); b[1].State != BracketDead || b[2].Close != 5 {
		t.Errorf("%+v", b)
	}
	if b := s2.State().Brackets(s2.Len()); b[1].State != BracketDead {
		t.Errorf("%+v", b)
	}
}

// Settle moves what is stored out of memory; cursors, reads and the projection do not notice.
func TestSettle(t *testing.T) {
	s := fresh(t, Seed{})
	put(t, s, turnDrafts(1, "c1")...)
	want := all(t, s)
	for n := Seq(0); n <= 5; n++ {
		s.Settle(want[:n])
		if len(s.tail) != int(5-n) {
			t.Errorf("settled %d: %d in memory", n, len(s.tail))
		}
		for from := range Seq(6) {
			var got Events
			for q := from; ; q = from + Seq(len(got)) {
				evs, _, err := s.From(q)
				if err != nil {
					t.Fatal(err)
				}
				if len(evs) == 0 {
					break
				}
				got = append(got, evs...)
			}
			if d := cmp.Diff(want[from:], got, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("settled %d, from %d:\n%s", n, from, d)
			}
		}
	}
	s.Settle(want[:2]) // never backwards
	s.Settle(append(slices.Clip(want), Event{Seq: 5}))
	if len(s.tail) != 0 || s.Len() != 5 {
		t.Errorf("%d in memory, %d events", len(s.tail), s.Len())
	}
	if _, _, err := s.From(-1); !errors.Is(err, ErrRange) {
		t.Errorf("from -1: %v", err)
	}
	if _, err := s.At(5); !errors.Is(err, ErrRange) {
		t.Errorf("at 5: %v", err)
	}
	pending := fresh(t, Seed{Prefix: want[:2]})
	pending.Settle(want[:3]) // what is pending is not stored, whatever the caller says
	if evs, _, _ := pending.From(2); len(evs) != 0 || pending.Len() != 3 {
		t.Errorf("%v", evs)
	}
}

// A reader that fails surfaces as an error, never as fewer messages.
func TestSurfaceReadError(t *testing.T) {
	b := &builder{t: t}
	b.user("a")
	b.user("b")
	bad := failing{b.evs, 1}
	st := b.state(Header{ID: "test"})
	s, err := New(Header{ID: "test"}, Seed{Prefix: bad, State: &st}, Env{Now: tick()})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if m, err := s.Messages(); !errors.Is(err, errBroken) || m != nil {
			t.Errorf("%v %v", m, err)
		}
	}
}

var errBroken = errors.New("broken disk")

type failing struct {
	Events
	bad Seq
}

func (f failing) At(q Seq) (Event, error) {
	if q == f.bad {
		return Event{}, errBroken
	}
	return f.Events.At(q)
}

// Many writers, cursors, surfaces and clones at once: every cursor sees every event once and in order.
func TestConcurrency(t *testing.T) {
	s := fresh(t, Seed{})
	s.env.Validators = nil
	const writers, each = 4, 100
	var work, watch sync.WaitGroup
	for range writers {
		work.Go(func() {
			for i := range each {
				var err error
				if i%10 == 9 {
					_, err = s.AppendFunc(func(st State) ([]Draft, error) {
						n := st.Surface()
						q := n[len(n)-1].Seq
						return []Draft{note("replaced", Replace(q, q), q)}, nil
					})
				} else {
					_, err = s.AppendAll(nil, note("x", Append()), Draft{Type: TypeTitle, Data: Title{"t", "user"}})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		watch.Go(func() {
			next := Seq(0)
			for {
				evs, more, err := s.From(next)
				if err != nil {
					t.Error(err)
					return
				}
				for _, ev := range evs {
					if ev.Seq != next {
						t.Errorf("a cursor sees %d, wants %d", ev.Seq, next)
						return
					}
					next++
				}
				if len(evs) > 0 {
					continue
				}
				if s.Disposed() && next == s.Head() {
					return
				}
				<-more
			}
		})
	}
	for range 2 {
		work.Go(func() {
			for range each {
				items, st, err := s.Surface()
				if err != nil || len(items) != st.SurfaceLen() {
					t.Errorf("%d items, %d nodes, %v", len(items), st.SurfaceLen(), err)
				}
				for i, it := range items {
					if it.Seq != st.SurfaceAt(i).Seq {
						t.Errorf("item %d is of seq %d, the node of %d", i, it.Seq, st.SurfaceAt(i).Seq)
					}
				}
				n := s.Head()
				s.Settle(append(Events(nil), all(t, s)[:n]...)) // as if stored up to there
			}
		})
	}
	work.Wait()
	s.Dispose()
	watch.Wait()
	want := writers * (each/10 + each*9/10*2)
	if int(s.Len()) != want {
		t.Errorf("%d events, want %d", s.Len(), want)
	}
}

// The queue: accepted, claimed, withdrawn; what an interrupted turn did not log returns once and in order; a
// fork and an import start with nothing.
func TestInbox(t *testing.T) {
	in := func(target Target, start, remove int, outcome string, ids ...string) InboxSpliced {
		out := InboxSpliced{Target: target, Start: start, RemovedCount: remove, Outcome: outcome}
		for _, id := range ids {
			out.Inserted = append(out.Inserted, message.User(id, id))
		}
		return out
	}
	queue := func(st State, target Target) (out []string) {
		for _, m := range st.Queue(target) {
			out = append(out, m.ID)
		}
		return out
	}
	check := func(when string, st State, next, step []string) {
		t.Helper()
		if d := cmp.Diff([][]string{next, step}, [][]string{queue(st, NextTurn), queue(st, NextStep)}, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s (-want +got)\n%s", when, d)
		}
	}
	h := Header{ID: "test"}
	b := &builder{t: t}
	b.add(TypeInboxSpliced, in(NextTurn, 0, 0, "", "a", "b", "c", "d"))
	b.add(TypeInboxSpliced, in(NextTurn, 1, 1, OutcomeWithdrawn, "x"))
	check("an edit in place", b.state(h), []string{"a", "x", "c", "d"}, nil)
	b.turn(1)
	b.add(TypeInboxSpliced, in(NextStep, 0, 0, "", "s"))
	b.add(TypeInboxSpliced, in(NextTurn, 0, 3, OutcomeClaimed))
	b.add(TypeInboxSpliced, in(NextStep, 0, 1, ""))
	check("claimed", b.state(h), []string{"d"}, nil)
	b.add(TypeUserMessage, message.User("a", "a"), Append()) // a is logged, x, c and s are not
	st := b.state(h)
	child, err := st.ForkTo(Header{ID: "f", SeedLength: st.Next()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range child.Closers() {
		if err := child.Apply(c); err != nil {
			t.Fatal(err)
		}
	}
	check("a fork of the open turn gets nothing back", child, nil, nil)
	for _, c := range st.Closers() {
		if err := st.Apply(c); err != nil {
			t.Fatal(err)
		}
		b.evs = append(b.evs, c)
	}
	check("interrupted", st, []string{"x", "c", "d"}, []string{"s"})
	check("folded again", b.state(h), []string{"x", "c", "d"}, []string{"s"})
	b.turn(2)
	b.add(TypeInboxSpliced, in(NextTurn, 0, 1, OutcomeClaimed))
	b.endTurn(2)
	check("completed: the claim is consumed", b.state(h), []string{"c", "d"}, []string{"s"})
	b.add(TypeInboxSpliced, in(NextTurn, 1, 7, OutcomeWithdrawn))
	st = b.state(h)
	check("beyond the queue: clipped", st, []string{"c"}, []string{"s"})
	if len(st.Problems()) != 1 {
		t.Errorf("problems %v", st.Problems())
	}
	n := Seq(len(b.evs))
	check("a fork", b.state(Header{ID: "f", SeedLength: n}), nil, nil)
	check("an import", b.state(Header{ID: "i", Imported: &Imported{Events: n}}), nil, nil)
	b.add(TypeInboxSpliced, in(NextTurn, 0, 0, "", "own"))
	check("a fork's own", b.state(Header{ID: "f", SeedLength: n}), []string{"own"}, nil)
}

// Where a log may be cut, and what an illegal cut names.
func TestCuts(t *testing.T) {
	b := &builder{t: t}
	b.user("0")
	b.turn(1) // 1
	b.user("2")
	b.endTurn(1)                         // 3
	b.add(TypeTitle, Title{"t", "user"}) // 4
	b.turn(2)                            // 5
	b.user("6")
	b.turn(3) // 7: nobody ended turn 2
	b.user("8")
	for _, tc := range []struct {
		at      Seq
		running bool
		want    string
	}{
		{0, true, "ok"}, {3, true, "ok"}, {4, true, "ok"},
		{1, true, "open 0 3"}, {2, false, "open 0 3"},
		{5, false, "open 4 8"}, {6, true, "open 4 none"}, {7, true, "open 4 none"},
		{8, false, "ok"}, {8, true, "open 4 none"},
		{9, false, "bound 9"}, {-1, true, "bound 9"},
	} {
		err := CheckCut(b.evs, tc.at, tc.running)
		got := "ok"
		var open *OpenTurnError
		var bound *BoundaryError
		switch {
		case errors.As(err, &open) && errors.Is(err, ErrOpenTurn):
			after := "none"
			if open.After != None {
				after = open.After.String()
			}
			got = fmt.Sprintf("open %d %s", open.Before, after)
			if open.Before != None && CheckCut(b.evs, open.Before, tc.running) != nil || open.After != None && CheckCut(b.evs, open.After, tc.running) != nil {
				t.Errorf("at %d: a named cut is not legal: %v", tc.at, err)
			}
		case errors.As(err, &bound) && errors.Is(err, ErrBoundary):
			got = fmt.Sprintf("bound %d", bound.Len)
		case err != nil:
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("at %d, running %t: %s, want %s", tc.at, tc.running, got, tc.want)
		}
	}
	for _, tc := range []struct {
		n       Seq
		running bool
		want    Seq
	}{{0, true, None}, {0, false, None}, {2, true, 0}, {2, false, 1}, {5, true, 4}, {9, true, 4}, {9, false, 8}} {
		if got, err := LastCut(b.evs[:tc.n], tc.running); err != nil || got != tc.want {
			t.Errorf("last cut of %d, running %t: %d %v, want %d", tc.n, tc.running, got, err, tc.want)
		}
	}
	if _, err := LastCut(failing{b.evs, 6}, true); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
}

func TestActivity(t *testing.T) {
	result := func(code string) ToolResult {
		r := ToolResult{Turn: 1, Step: 1, Message: message.Result("r", "c", true)}
		if code != "" {
			r.Error = &ErrorInfo{Code: code}
		}
		return r
	}
	plugin := message.User("p", "p")
	plugin.Source.Kind = message.SourcePlugin
	a := AssistantMessage{Turn: 1, Step: 1, Message: message.Message{Role: message.RoleAssistant}}
	for _, tc := range []struct {
		typ  string
		data any
		op   SurfaceOp
		want bool
	}{
		{TypeUserMessage, message.User("u", "u"), Append(), true},
		{TypeUserMessage, message.User("u", "u"), Replace(0, 0), false},
		{TypeUserMessage, plugin, Append(), false},
		{TypeAssistantMessage, a, Append(), true},
		{TypeAssistantMessage, a, Replace(0, 0), false},
		{TypeToolResult, result(""), Append(), true},
		{TypeToolResult, result("TOOL_FAILED"), Append(), true},
		{TypeToolResult, result(CodeNotStarted), Append(), false},
		{TypeToolResult, result(CodeOutcomeUnknown), Append(), false},
		{TypeToolResult, result(""), Replace(0, 0), false},
		{TypeInherited, struct{}{}, SurfaceOp{}, false},
		{TypeTitle, Title{}, SurfaceOp{}, false},
		{TypeSettings, Settings{}, SurfaceOp{}, false},
		{TypeInboxSpliced, InboxSpliced{}, SurfaceOp{}, false},
		{TypeTurnEnd, TurnEnd{}, SurfaceOp{}, false},
		{TypeHide, Hide{}, Replace(0, 0), false},
		{TypeLost, Lost{}, Append(), false},
	} {
		ev, err := Draft{Type: tc.typ, Data: tc.data, Op: tc.op}.Event(1, 5)
		if err != nil {
			t.Fatal(err)
		}
		if got := IsActivity(ev); got != tc.want {
			t.Errorf("%s %s: %t", tc.typ, ev.Data, got)
		}
		st := NewState(Header{CreatedAt: 3}, nil)
		st.Load(Event{Seq: 0, Type: TypeUserMessage, Time: 4, Op: Append(), Data: []byte(`{}`)})
		st.Load(ev)
		if want := map[bool]int64{true: 5, false: 3}[tc.want]; st.LastActivity() != want {
			t.Errorf("%s %s: last activity %d, want %d", tc.typ, ev.Data, st.LastActivity(), want)
		}
	}
}

// Sub and Join are prefixes like any other: seqs outside are ErrRange, and Range says so too.
func TestPrefixes(t *testing.T) {
	b := &builder{t: t}
	for range 6 {
		b.user("x")
	}
	for name, p := range map[string]Prefix{
		"events": b.evs[:4], "sub": Sub(b.evs, 4), "join": Join(b.evs[:2], b.evs[2:4]), "sub of join": Sub(Join(b.evs[:2], b.evs[2:]), 4),
		"join of sub": Join(Sub(b.evs, 3), b.evs[3:4]), "clamped": Sub(b.evs[:4], 9), "empty join": Join(b.evs[:4], nil),
	} {
		if p.Len() != 4 {
			t.Errorf("%s: %d events", name, p.Len())
		}
		for from := Seq(0); from <= 5; from++ {
			for to := from; to <= 5; to++ {
				next, failed := from, false
				for ev, err := range p.Range(from, to) {
					if err != nil {
						failed = errors.Is(err, ErrRange)
						break
					}
					if ev.Seq != next {
						t.Errorf("%s: range %d to %d yields %d, want %d", name, from, to, ev.Seq, next)
					}
					next++
				}
				if want := to > from && to > 4; failed != want || !failed && next != to {
					t.Errorf("%s: range %d to %d ends at %d, failed %t", name, from, to, next, failed)
				}
			}
		}
		for _, q := range []Seq{-1, 4, 99} {
			if _, err := p.At(q); !errors.Is(err, ErrRange) {
				t.Errorf("%s: at %d: %v", name, q, err)
			}
		}
	}
}
