package subagent_test

import (
	"context"
	"testing"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

type ctxT = context.Context

// resultText returns the text of a call's result.
func resultText(t testing.TB, p session.Prefix, callID string) string {
	t.Helper()
	for _, ev := range read(t, p) {
		if ev.Type == session.TypeToolResult && session.ResultCallID(ev) == callID {
			d, err := session.DecodeData[session.ToolResult](ev)
			if err != nil {
				t.Fatal(err)
			}
			return d.Message.PlainText()
		}
	}
	t.Fatalf("no result of %s:\n%s", callID, shape(t, p))
	return ""
}

func restated(t testing.TB, w *world, a *agent.Agent) string {
	t.Helper()
	msgs, err := w.d.Restate(w.ctx, a.Session())
	if err != nil {
		t.Fatal(err)
	}
	if len(msgs) == 0 {
		return ""
	}
	return msgs[0].PlainText()
}

func tools(names ...string) (out []tool.Definition) {
	for _, n := range names {
		out = append(out, echo(n))
	}
	return out
}

func (w *world) look(ctx context.Context, id session.ID) (session.State, session.Prefix, func() error, error) {
	snap, err := w.st.Read(ctx, id)
	if err != nil {
		return session.State{}, nil, nil, err
	}
	st, err := session.Fold(snap.Header, w.reg, snap.Prefix)
	return st, snap.Prefix, snap.Close, err
}
