package fake

import (
	"slices"
	"testing"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/openai"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
	"github.com/strandline-dev/strandline/view"
	"pgregory.net/rapid"
)

// checkRequests: the request that is made of every prefix of a log is one that the service accepts, and
// asks what the view says.
func checkRequests(t rapid.TB, h session.Header, evs session.Events) {
	st := session.NewState(h, sessiontest.Registry())
	for i := range len(evs) + 1 {
		if i > 0 {
			st.Load(evs[i-1])
		}
		items, err := session.ProjectAll(st, evs[:i])
		if err != nil {
			t.Fatal(err)
		}
		ms := view.Build(items, st, "fake").Messages
		if len(ms) == 0 || ms[len(ms)-1].Role == message.RoleAssistant {
			ms = append(slices.Clip(ms), message.User("next", "go on")) // what a turn begins with
		}
		for _, d := range openai.Dialects() {
			enc, err := openai.NewEncoding(d, func(string) ([]byte, error) { return []byte("\x89PNG"), nil })
			if err != nil {
				t.Fatal(err)
			}
			body, err := enc.Encode(llm.Request{Model: "m", System: "be good", Messages: ms})
			if err != nil {
				t.Fatal(err)
			}
			if _, ref := (chatWire{}).parse(body); ref != nil {
				t.Fatalf("prefix %d, %s: refused: %s\n%s\n%s", i, d, ref.message, body, sessiontest.Dump(evs[:i]))
			}
		}
	}
}

func TestViewsAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := sessiontest.Live(t, 25)
		checkRequests(t, l.Header, l.Events())
	})
}

func TestViewsOfGarbageAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkRequests(t, session.Header{Format: session.Format, ID: "g", Kind: session.KindRoot}, sessiontest.Garbage(sessiontest.Drawn(t), 25))
	})
}

func FuzzViewsOfGarbage(f *testing.F) {
	sessiontest.Seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		checkRequests(t, session.Header{Format: session.Format, ID: "g", Kind: session.KindRoot}, sessiontest.Garbage(sessiontest.Bytes(data), 25))
	})
}
