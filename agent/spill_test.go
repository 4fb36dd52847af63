package agent_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// What was kept beside a result is given up if no record will name it, and only then: else nobody could collect or purge
// while this process lives.
func TestSpillGivenUp(t *testing.T) {
	var ag *agent.Agent
	long := func(what string, more ...message.Block) tool.Result {
		r := tool.Text(what + strings.Repeat(" long", tool.DefaultLimit))
		r.Content = append(r.Content, more...)
		return r
	}
	set, err := tool.NewSet(
		simple("good", func(context.Context, tool.Call) (tool.Result, error) { return long("good"), nil }),
		simple("meta", func(context.Context, tool.Call) (tool.Result, error) {
			r := long("meta")
			r.Meta = jsontext.Value(`{"a":1,"a":2}`)
			return r, nil
		}),
		simple("bad", func(context.Context, tool.Call) (tool.Result, error) {
			return long("bad", message.Block{Type: "x", Extra: jsontext.Value(`{"n":1e999}`)}), nil
		}),
		simple("gone", func(context.Context, tool.Call) (tool.Result, error) {
			ag.Session().Dispose()
			return long("gone"), nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	pinned := map[string]int{}
	spill := func(_ context.Context, text string) (string, func(), error) {
		mu.Lock()
		defer mu.Unlock()
		ref, _, _ := strings.Cut(text, " ")
		pinned[ref]++
		return ref, func() {
			mu.Lock()
			defer mu.Unlock()
			pinned[ref]--
		}, nil
	}
	w := newWorld(t, nil, func(o *agent.Options) {
		o.Equip = func(context.Context, *session.Session) (agent.Kit, error) {
			return agent.Kit{Tools: set, Spill: spill}, nil
		}
	}, calls(use("c1", "good"), use("c2", "meta"), use("c3", "bad"), use("c4", "gone")), says("never asked"))
	ag = w.create("s-1111")
	w.followup(ag, "go")
	_ = ag.WhenIdle(w.ctx)
	mu.Lock()
	defer mu.Unlock()
	if want := map[string]int{"good": 1, "meta": 1, "bad": 0, "gone": 0}; !maps.Equal(pinned, want) {
		t.Errorf("kept: %v, want %v", pinned, want)
	}
}
