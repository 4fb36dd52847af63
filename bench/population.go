package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"iter"
	mrand "math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/vfs"
)

// Part is a number of sessions of one kind and about one size.
type Part struct {
	Sessions int
	Bytes    int // of text, in each
	Kind     session.SessionKind
	Text     func(rng *mrand.Rand, n int) string // n words; nil: of a few dozen
}

// Populate makes a store in root, or adds to it: sessions as the command would have written them, last worked on in a
// random order, of which no two have the same time. Nothing is synced: that a loss of power may take them is what
// makes it fast. project is that of all of them.
func Populate(ctx context.Context, root, project string, parts []Part, progress func(done, total int)) error {
	unsynced := vfs.Around(vfs.OS(), func(c *vfs.Call, do func() error) error {
		switch c.Op {
		case vfs.OpSync, vfs.OpSyncData, vfs.OpSyncDir:
			return nil
		}
		return do()
	})
	st, err := filestore.Open(root, filestore.Options{FS: unsynced, Now: time.Now, Rand: rand.Reader})
	if err != nil {
		return err
	}
	defer st.Close()
	var each []Part
	for _, p := range parts {
		for range p.Sessions {
			each = append(each, p)
		}
	}
	at := mrand.New(mrand.NewPCG(uint64(len(each)), 1)).Perm(len(each))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i, p := range each {
		if ctx.Err() != nil {
			break
		}
		if progress != nil && i%100 == 0 {
			progress(i, len(each))
		}
		g.Go(func() error {
			var b [10]byte
			_, _ = rand.Read(b[:])
			begun := int64(1_700_000_000_000) + int64(at[i])*60_000
			h := session.Header{Format: session.Format, ID: session.ID(hex.EncodeToString(b[:])), CreatedAt: begun, Kind: p.Kind, Cwd: project, Project: project}
			return st.Take(ctx, h, conversation(i, p, begun))
		})
	}
	return g.Wait()
}

// conversation yields whole turns with about p.Bytes of text: a question, a call with its result, an answer.
func conversation(seed int, p Part, at int64) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) {
		rng := mrand.New(mrand.NewPCG(uint64(seed), 3))
		seq := session.Seq(0)
		n, words := p.Bytes, p.Text
		if words == nil {
			words = someWords
		}
		put := func(typ string, op session.SurfaceOp, data any) bool {
			text, err := session.CheckData(raw(data))
			ev := session.Event{Seq: seq, Time: at + int64(seq), Type: typ, Op: op, Data: text}
			seq++
			return yield(ev, err) && err == nil
		}
		model := message.Source{Kind: message.SourceModel, Provider: "bench", Model: "bench"}
		for turn := 1; n > 0; turn++ {
			size := min(n, 4000)
			n -= size + 1500
			ref, id := session.StepRef{Turn: turn, Step: 1}, fmt.Sprintf("%d", turn)
			call := "c-" + id
			if !put(session.TypeTurnStart, session.SurfaceOp{}, session.TurnStart{Turn: turn}) ||
				!put(session.TypeStepStart, session.SurfaceOp{}, ref) ||
				!put(session.TypeUserMessage, session.Append(), message.User("u-"+id, words(rng, 12))) ||
				!put(session.TypeAssistantMessage, session.Append(), session.AssistantMessage{Turn: turn, Step: 1,
					Message: message.Message{ID: "a-" + id, Role: message.RoleAssistant, Source: model, Content: []message.Block{
						message.TextBlock(words(rng, size/20)), message.CallBlock(call, "read", `{"path":"a.go"}`)}},
					Usage: &message.Usage{InputTokens: 900, OutputTokens: 300}}) ||
				!put(session.TypeToolCall, session.SurfaceOp{}, session.ToolCall{Turn: turn, Step: 1, CallID: call, Name: "read", Arguments: `{"path":"a.go"}`}) ||
				!put(session.TypeToolResult, session.Append(), session.ToolResult{Turn: turn, Step: 1,
					Message: message.Result("r-"+id, call, false, message.TextBlock(words(rng, size/10)))}) ||
				!put(session.TypeStepEnd, session.SurfaceOp{}, ref) ||
				!put(session.TypeTurnEnd, session.SurfaceOp{}, session.TurnEnd{Turn: turn, Reason: session.Reason{Kind: session.ReasonCompleted}}) {
				return
			}
		}
	}
}
