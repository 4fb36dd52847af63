package view_test

import (
	"reflect"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
	"github.com/strandline-dev/strandline/view"
	"github.com/strandline-dev/strandline/view/viewtest"
)

// options are the providers that every property is checked for.
var options = []view.Options{{Provider: "acme"}, {Provider: "other", MergeRoles: true}, {}}

func project(t rapid.TB, st session.State, evs session.Events) []session.Item {
	items, err := session.ProjectAll(st, evs)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return items
}

func encoded(t rapid.TB, v view.View) string {
	b, err := json.Marshal(v.Messages, json.Deterministic(true))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(b)
}

// checkPrefixes holds every prefix of a log to: the view is legal for every provider; committing closers
// changes no byte of it; a builder that saw any earlier prefixes says the same; no view that was handed out
// ever changes; building does not change the items.
func checkPrefixes(t rapid.TB, pick sessiontest.Pick, h session.Header, evs session.Events) {
	type handed struct{ view, copy view.View }
	var all []handed
	builders := make([]*view.Builder, len(options))
	for i, o := range options {
		builders[i] = view.NewBuilder(o)
	}
	st := session.NewState(h, sessiontest.Registry())
	for i := range len(evs) + 1 {
		if i > 0 {
			st.Load(evs[i-1])
		}
		items := project(t, st, evs)
		before := project(t, st, evs)
		closed, log := st.Clone(), evs[:i:i]
		for _, c := range st.Closers() {
			closed.Load(c)
			log = append(log, c)
		}
		for k, o := range options {
			v := view.BuildWith(items, st, o)
			if err := viewtest.Check(v.Messages, o.Provider); err != nil {
				t.Fatalf("prefix %d is not legal for %+v: %v\n%s", i, o, err, sessiontest.Dump(evs[:i]))
			}
			if o.MergeRoles {
				for j := 1; j < len(v.Messages); j++ {
					if v.Messages[j].Role == v.Messages[j-1].Role {
						t.Fatalf("messages %d and %d have one role", j-1, j)
					}
				}
			}
			after := view.BuildWith(project(t, closed, log), closed, o)
			if a, b := encoded(t, v), encoded(t, after); a != b {
				t.Fatalf("closers change the view of prefix %d:\n%s\n%s\n%s", i, a, b, sessiontest.Dump(log))
			}
			if pick(3) > 0 {
				inc := builders[k].Update(items, st)
				if !reflect.DeepEqual(v.Messages, inc.Messages) || !cmp.Equal(v.Notes, inc.Notes, cmpopts.EquateEmpty()) {
					t.Fatalf("the builder differs at prefix %d:\n%s\n%s", i, cmp.Diff(v, inc), sessiontest.Dump(evs[:i]))
				}
				keep := view.View{Notes: append([]view.Note(nil), inc.Notes...)}
				for _, m := range inc.Messages {
					keep.Messages = append(keep.Messages, m.Clone())
				}
				all = append(all, handed{inc, keep})
			}
		}
		if !reflect.DeepEqual(items, before) {
			t.Fatalf("building changed the items of prefix %d", i)
		}
	}
	for _, h := range all {
		if len(h.view.Messages) > 0 && !reflect.DeepEqual(h.view.Messages, h.copy.Messages) || !cmp.Equal(h.view.Notes, h.copy.Notes, cmpopts.EquateEmpty()) {
			t.Fatalf("a view was changed after it was handed out:\n%s", cmp.Diff(h.copy, h.view))
		}
	}
}

func TestLivePrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := sessiontest.Live(t, 35)
		checkPrefixes(t, sessiontest.Drawn(t), l.Header, l.Events())
	})
}

func TestGarbagePrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkGarbage(t, sessiontest.Drawn(t)) })
}

func FuzzView(f *testing.F) {
	sessiontest.Seed(f)
	f.Fuzz(func(t *testing.T, data []byte) { checkGarbage(t, sessiontest.Bytes(data)) })
}

func checkGarbage(t rapid.TB, pick sessiontest.Pick) {
	h := session.Header{ID: "garbage", SeedLength: session.Seq(pick(4))}
	checkPrefixes(t, pick, h, sessiontest.Garbage(pick, pick(25)))
}

// On a log of a well-behaved loop no result is dropped but that of a call that is hidden, and none is
// missing but where the log has none or hides it.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := sessiontest.Live(t, 60)
		st := l.S.State()
		items := project(t, st, l.Events())
		v := view.Build(items, st, "acme")
		calls, results := map[string]int{}, map[string]int{}
		for _, it := range items {
			for _, b := range it.Message.Content {
				switch b.Type {
				case message.ToolCall:
					calls[b.ID]++
				case message.ToolResult:
					results[b.ToolCallID]++
				}
			}
		}
		want, hidden := 0, 0
		for id, n := range calls {
			want += max(0, n-results[id])
		}
		for id, n := range results {
			hidden += max(0, n-calls[id])
		}
		missing, dropped := 0, 0
		for _, n := range v.Notes {
			switch n.Kind {
			case view.Missing:
				missing++
			case view.Duplicate, view.Stranger:
				dropped++
			}
		}
		// With repeated ids a result may answer a hidden call while a visible one with the id lacks its own:
		// both numbers then rise together.
		if missing-want != dropped-hidden || missing < want {
			t.Fatalf("%d missing, want %d; %d dropped, want %d\n%v\n%s", missing, want, dropped, hidden, v.Notes, sessiontest.Dump(l.Events()))
		}
	})
}
