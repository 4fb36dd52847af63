package session_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
)

const actions = 80

func fold(t rapid.TB, h session.Header, evs session.Events) session.State {
	st, err := session.Fold(h, sessiontest.Registry(), evs)
	if err != nil {
		t.Fatalf("fold: %v", err)
	}
	return st
}

func join(parts ...[]session.Event) session.Events {
	var out session.Events
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// Every construction reproduces its seed verbatim plus one boundary; doing it again adds nothing; closers
// apply strictly, and once.
func TestPickupProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := sessiontest.Live(t, actions)
		for _, p := range l.Pickups {
			seed := join(p.Stored, p.Closers)
			got := sessiontest.All(t, p.Session.Events())
			if len(got) < len(seed) || !same(got[:len(seed)], seed) {
				t.Fatalf("the seed changed")
			}
			if p.Session.FirstLiveSeq() != session.Seq(len(seed)) {
				t.Fatalf("FirstLiveSeq %d, the seed has %d events", p.Session.FirstLiveSeq(), len(seed))
			}
			boundary := len(seed) > 0 && seed[len(seed)-1].Type != session.TypeInherited
			if boundary && (len(got) == len(seed) || got[len(seed)].Type != session.TypeInherited) {
				t.Fatalf("no boundary after a seed of %d", len(seed))
			}
			from := len(seed)
			if boundary {
				from++
			}
			for _, ev := range got[from:] {
				if ev.Type == session.TypeInherited {
					t.Fatalf("a second boundary at %d", ev.Seq)
				}
			}
			st := fold(t, p.Header, p.Stored)
			for _, c := range p.Closers {
				if err := st.Apply(c); err != nil {
					t.Fatalf("a closer is refused: %v", err)
				}
			}
			if again := st.Closers(); len(again) != 0 {
				t.Fatalf("closers add %v when applied twice", again)
			}
			again, err := session.New(p.Header, session.Seed{Prefix: got[:from]}, session.Env{Registry: l.Reg, Now: func() int64 { return 0 }})
			if err != nil || again.Len() != session.Seq(from) || len(again.State().Closers()) != 0 {
				t.Fatalf("reopening is not idempotent: %v, %d events, were %d", err, again.Len(), from)
			}
		}
	})
}

// Load and Apply agree on what a well-behaved writer wrote, and nothing of it has to be bent.
func TestLoadIsApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := sessiontest.Live(t, actions)
		evs := l.Events()
		reg := sessiontest.Registry()
		loaded, applied := session.NewState(l.Header, reg), session.NewState(l.Header, reg)
		for _, ev := range evs {
			loaded.Load(ev)
			if err := applied.Apply(ev); err != nil {
				t.Fatalf("%v\n%s", err, sessiontest.Dump(evs))
			}
			if !reflect.DeepEqual(loaded, applied) {
				t.Fatalf("Load and Apply differ at %d:\n%+v\n%+v", ev.Seq, loaded, applied)
			}
		}
		for _, p := range loaded.Problems() {
			if p.Kind != "order" { // a child may see the end of a bracket or claim that its parent began
				t.Fatalf("problem %+v\n%s", p, sessiontest.Dump(evs))
			}
		}
		if d := diff(loaded, l.S.State()); d != "" {
			t.Fatalf("the session's state is not the fold of its log:\n%s", d)
		}
	})
}

// seen is everything that a State tells.
func seen(st session.State) map[string]any {
	turn, open := st.Turn()
	step, inStep := st.Step()
	total, own := st.Usage()
	return map[string]any{
		"next": st.Next(), "turn": turn, "open": open, "turnStart": st.TurnStartSeq(), "step": step, "inStep": inStep,
		"turns": st.Turns(), "steps": st.Steps(), "toolCalls": st.ToolCalls(), "title": st.Title(), "settings": st.Settings(),
		"surface": st.Surface(), "gen": st.Generation(), "calls": st.OpenCalls(), "asks": st.Asks(), "parked": st.Parked(),
		"nextTurn": st.Queue(session.NextTurn), "nextStep": st.Queue(session.NextStep), "activity": st.LastActivity(),
		"total": total, "own": own, "boundaries": st.Boundaries(), "unknown": st.Unknown(), "closers": st.Closers(),
		"brackets": fmt.Sprint(st.Brackets(st.Next())), "header": st.RequestHeader(), "context": st.RequestContext(), "todos": st.Todos(), "policy": st.ApprovalPolicy(),
	}
}

// diff is "" if two states tell the same; the slow comparison only words the difference.
func diff(a, b session.State) string {
	x, y := seen(a), seen(b)
	if reflect.DeepEqual(x, y) {
		return ""
	}
	return cmp.Diff(x, y, cmpopts.EquateEmpty())
}

func same(a, b session.Events) bool {
	return slices.EqualFunc(a, b, func(x, y session.Event) bool { return reflect.DeepEqual(x, y) })
}

// What the messages are depends on surface and control events only.
func TestMessagesDependOnSurfaceOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := sessiontest.Live(t, actions)
		evs := l.Events()
		bare := make(session.Events, len(evs))
		for i, ev := range evs {
			bare[i] = ev
			if k, ok := l.Reg.Lookup(ev.Type); !ok || k.Class == session.ClassLog {
				bare[i] = session.Event{Seq: ev.Seq, Type: "other/type", Ignorable: true, Data: jsontext.Value(`{}`)}
			}
		}
		a, err := session.ProjectAll(fold(t, l.Header, evs), evs)
		b, err2 := session.ProjectAll(fold(t, l.Header, bare), bare)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		m, err := l.S.Messages()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(session.Messages(a), session.Messages(b)) {
			t.Fatalf("log events changed the messages:\n%v\n%v", session.Messages(a), session.Messages(b))
		}
		if !reflect.DeepEqual(session.Messages(a), m) {
			t.Fatalf("the incremental projection differs:\n%v\n%v", session.Messages(a), m)
		}
	})
}

// The stored activity and the fold agree at every length, and a child's state is the fold under its header.
func TestActivityAndForks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := sessiontest.Live(t, actions)
		evs := l.Events()
		st := session.NewState(l.Header, l.Reg)
		for i, ev := range evs {
			st.Load(ev)
			n := session.Seq(i + 1)
			scan, err := session.LastActivityBefore(evs, n, l.Header.CreatedAt)
			if err != nil || scan != st.LastActivity() {
				t.Fatalf("at %d: scan %d, fold %d, %v", n, scan, st.LastActivity(), err)
			}
			if i%4 != 0 || session.CheckCut(evs[:n], session.Seq(i), false) != nil {
				continue
			}
			h := session.Header{Format: 1, ID: "child", Kind: session.KindFork, CreatedAt: 5, SeedLength: n,
				Parent: &session.Parent{ID: l.Header.ID, Seq: n - 1, Spans: l.Header.Spans(n)}}
			child, err := st.ForkTo(h)
			if err != nil {
				t.Fatal(err)
			}
			if d := diff(child, fold(t, h, evs[:n])); d != "" {
				t.Fatalf("ForkTo at %d:\n%s", n, d)
			}
			// What a child, a grandchild and the parent do afterwards shows in none of the others.
			sibling, err := st.ForkTo(h)
			if err != nil {
				t.Fatal(err)
			}
			for j, ev := range evs[n:] {
				child.Load(ev)
				if j%3 == 0 {
					sibling.Load(ev)
				}
				if j != 2 {
					continue
				}
				g := session.Header{Format: 1, ID: "grandchild", Kind: session.KindFork, CreatedAt: 6, SeedLength: child.Next(),
					Parent: &session.Parent{ID: "child", Seq: child.Next() - 1, Spans: h.Spans(child.Next())}}
				grand, err := child.ForkTo(g)
				if err != nil {
					t.Fatal(err)
				}
				defer func(at int) {
					for _, ev := range evs[at:] {
						grand.Load(ev)
					}
					if d := diff(grand, fold(t, g, evs)); d != "" {
						t.Fatalf("a grandchild at %d:\n%s", at, d)
					}
				}(int(child.Next()))
			}
			if d := diff(child, fold(t, h, evs)); d != "" {
				t.Fatalf("a child at %d that went on:\n%s", n, d)
			}
			if d := diff(st, fold(t, l.Header, evs[:n])); d != "" {
				t.Fatalf("the parent of a child at %d:\n%s", n, d)
			}
		}
	})
}

// Garbage never panics, has closers that apply strictly and once, and a session can be made over it.
func TestGarbageIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkGarbage(t, sessiontest.Drawn(t)) })
}

func FuzzClosers(f *testing.F) {
	sessiontest.Seed(f)
	f.Fuzz(func(t *testing.T, data []byte) { checkGarbage(t, sessiontest.Bytes(data)) })
}

func checkGarbage(t rapid.TB, pick sessiontest.Pick) {
	evs := sessiontest.Garbage(pick, pick(40))
	h := session.Header{Format: 1, ID: "garbage", Kind: session.KindRoot}
	st := session.NewState(h, sessiontest.Registry())
	for i, ev := range evs {
		st.Load(ev)
		before := st.Clone()
		closers := st.Closers()
		closed := st.Clone()
		for _, c := range closers {
			if err := closed.Apply(c); err != nil {
				t.Fatalf("a closer is refused: %v\n%s", err, sessiontest.Dump(evs[:i+1]))
			}
		}
		if again := closed.Closers(); len(again) != 0 {
			t.Fatalf("closers applied twice add %s\n%s", sessiontest.Dump(again), sessiontest.Dump(evs[:i+1]))
		}
		if _, open := closed.Turn(); open && !closed.Parked() {
			t.Fatalf("a turn stays open and is not parked")
		}
		if d := diff(before, st); d != "" {
			t.Fatalf("closers changed the state:\n%s", d)
		}
		if _, err := session.ProjectAll(st, evs); err != nil {
			t.Fatal(err)
		}
		_ = st.Brackets(st.Next())
		_, _, _ = st.UndoDrafts()
		_, _, _ = st.RedoDrafts(evs[:i+1])
		_ = session.CheckCut(evs[:i+1], session.Seq(i/2), i%2 == 0)
	}
	if _, err := session.New(h, session.Seed{Prefix: evs, Repair: st.Closers()}, session.Env{Registry: sessiontest.Registry(), Now: func() int64 { return 0 }}); err != nil {
		t.Fatal(err)
	}
}

// The surface's invariants hold after every operation, garbage included: no seq twice, restore undoes a
// replacement exactly, a refused event changes nothing.
func FuzzSurface(f *testing.F) {
	sessiontest.Seed(f)
	f.Fuzz(func(t *testing.T, data []byte) { checkSurface(t, sessiontest.Bytes(data)) })
}

func TestSurfaceIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkSurface(t, sessiontest.Drawn(t)) })
}

func checkSurface(t rapid.TB, pick sessiontest.Pick) {
	evs := sessiontest.Garbage(pick, pick(40))
	st := session.NewState(session.Header{ID: "g"}, sessiontest.Registry())
	for _, ev := range evs {
		before := st.Clone()
		strict := st.Clone()
		err := strict.Apply(ev)
		if err != nil {
			if d := diff(before, strict); d != "" {
				t.Fatalf("a refused event changed the state: %v\n%s", err, d)
			}
		}
		st.Load(ev)
		if err == nil {
			if d := diff(strict, st); d != "" {
				t.Fatalf("Apply and Load differ:\n%s", d)
			}
		}
		seqs := map[session.Seq]bool{}
		for _, n := range st.Surface() {
			if seqs[n.Seq] {
				t.Fatalf("seq %d stands twice on the surface\n%s", n.Seq, sessiontest.Dump(evs))
			}
			seqs[n.Seq] = true
			if n.Seq > ev.Seq || n.Seq < 0 {
				t.Fatalf("seq %d is on the surface after %d", n.Seq, ev.Seq)
			}
		}
		if st.Generation() == before.Generation() {
			a, b := before.Surface(), st.Surface()
			if len(b) < len(a) || len(b) > len(a)+1 || !reflect.DeepEqual(a, b[:len(a)]) {
				t.Fatalf("the surface changed otherwise than at its tail, and the generation did not rise")
			}
		}
		if n := st.SurfaceLen(); n > 0 {
			if last := st.SurfaceAt(n - 1); last.Seq == ev.Seq && ev.Op.Kind == session.OpReplace && last.Hidden > 0 {
				undo := st.Clone()
				undo.Load(session.Event{Seq: ev.Seq + 1, Type: session.TypeRestore, Op: session.Restore(ev.Seq), Data: jsontext.Value(`{}`)})
				if !reflect.DeepEqual(undo.Surface(), before.Surface()) {
					t.Fatalf("restore of %d gives %v, was %v", ev.Seq, undo.Surface(), before.Surface())
				}
			}
		}
	}
}

// A clone and its original share nothing that shows, whatever is done to either.
func TestCloneIndependence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		evs := sessiontest.Live(t, 40).Events()
		h := session.Header{ID: "g"}
		type held struct {
			st  session.State
			evs session.Events
		}
		states := []held{{st: session.NewState(h, sessiontest.Registry())}}
		for range 200 {
			i := rapid.IntRange(0, len(states)-1).Draw(t, "state")
			s := &states[i]
			if len(states) < 12 && rapid.IntRange(0, 9).Draw(t, "clone") == 9 {
				states = append(states, held{st: s.st.Clone(), evs: s.evs[:len(s.evs):len(s.evs)]})
				continue
			}
			ev := rapid.SampledFrom(evs).Draw(t, "event")
			ev.Seq = s.st.Next()
			s.st.Load(ev)
			s.evs = append(s.evs, ev)
		}
		for i, s := range states {
			if d := diff(s.st, fold(t, h, s.evs)); d != "" {
				t.Fatalf("state %d was changed by a relative of it:\n%s", i, d)
			}
		}
	})
}

// A cursor sees exactly what is below Head, in order, whatever the size of its steps.
func TestCursorSeesHead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := sessiontest.Live(t, actions)
		evs := l.Events()
		var got session.Events
		for {
			batch, _, err := l.S.From(session.Seq(len(got)))
			if err != nil {
				t.Fatal(err)
			}
			if len(batch) == 0 {
				break
			}
			got = append(got, batch...)
		}
		if !same(evs[:l.S.Head()], got) {
			t.Fatalf("a cursor sees something else:\n%s\n%s", sessiontest.Dump(evs), sessiontest.Dump(got))
		}
		for i := range got {
			if got[i].Seq != session.Seq(i) {
				t.Fatalf("seq %d at %d", got[i].Seq, i)
			}
		}
	})
}

// A message that nobody touches is passed through with its bytes.
func TestVerbatim(t *testing.T) {
	s, err := session.New(session.Header{ID: "test"}, session.Seed{}, session.Env{Now: func() int64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	raw := jsontext.Value(`{"id":"m","role":"user","content":[{"type":"text","text":"a","z":1.50}],"y":{"k":[1e2]}}`)
	if _, err := s.Append(session.Draft{Type: session.TypeUserMessage, Data: raw, Op: session.Append()}); err != nil {
		t.Fatal(err)
	}
	raw[7] = 'X' // what the caller does to its own bytes changes nothing
	m, err := s.Messages()
	if err != nil || len(m) != 1 || string(m[0].Extra) != `{"y":{"k":[1e2]}}` || string(m[0].Content[0].Extra) != `{"z":1.50}` {
		t.Errorf("%v %+v", err, m)
	}
	if m[0].ID != "m" || m[0].Content[0].Text != "a" || m[0].Role != message.RoleUser {
		t.Errorf("%+v", m[0])
	}
}
