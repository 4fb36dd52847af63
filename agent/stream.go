package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// answer is what came of one request.
type answer struct {
	seq    session.Seq // of the assistant/message
	calls  []message.Block
	finish llm.FinishReason
	fatal  bool // the failure is the log's or the loop's, not the model's: no retry
}

func time64(f float64, d time.Duration) time.Duration { return time.Duration(f * float64(d)) }

// stream sends one request and logs what comes: chunks as they come, then the message. After a failure the
// chunks stay in the log, where no later request finds them; usage that was told is logged with an empty
// message. A cancelled request leaves the visible text so far as an interrupted message.
func (t *turn) stream(req llm.Request) (ans answer, err error) {
	a := t.a
	var asm llm.Assembler
	var cited []session.Seq
	coal := llm.Coalescer{MaxBytes: a.opts.ChunkBytes, MaxAge: a.opts.ChunkAge, Now: a.opts.Now}
	log := func(chunks []llm.Chunk) error {
		for _, c := range chunks {
			d, ok := t.chunk(c)
			if !ok {
				continue
			}
			ev, err := a.s.Append(d)
			if err != nil {
				return err
			}
			cited = append(cited, ev.Seq)
		}
		return nil
	}
	fail := receive(t.ctx, t.header.prov, req, func(c llm.Chunk) error {
		if err := asm.Add(c); err != nil {
			return err
		}
		switch c.Type {
		case llm.ChunkTextDelta:
			a.feed.push(Notice{Kind: NoticeText, Turn: t.n, Step: t.step, Text: c.Text})
		case llm.ChunkReasoningDelta:
			a.feed.push(Notice{Kind: NoticeReasoning, Turn: t.n, Step: t.step, Text: c.Text})
		}
		if err := log(coal.Add(c)); err != nil {
			ans.fatal = true
			return err
		}
		return nil
	})
	if ans.fatal {
		return ans, fail
	}
	reply, incomplete := asm.Message()
	tame(&reply)
	out := session.AssistantMessage{Turn: t.n, Step: t.step}
	switch cancelled := t.ctx.Err() != nil; {
	case fail == nil && incomplete == nil:
		out.Message.Content = reply.Content // complete, also if it was cancelled a moment later
	case cancelled:
		reply, out.Interrupted = asm.Partial(), true
		tame(&reply)
		out.Message.Content = reply.Content
		fail = context.Cause(t.ctx)
	case fail == nil:
		fail = incomplete
	}
	t.count(reply.Usage)
	if fail != nil && len(out.Message.Content) == 0 && reply.Usage == nil {
		if err := log(coal.Flush()); err != nil { // what was shown is in the log
			ans.fatal, fail = true, err
		}
		return ans, fail
	}
	if reply.Finish == llm.FinishLength {
		out.Message.Content = wholeCalls(out.Message.Content)
	}
	out.Message.ID = a.opts.NewID()
	out.Message.Role = message.RoleAssistant
	out.Message.Content = uniqueCalls(out.Message.Content, t.n, t.step)
	if out.Message.Content == nil {
		out.Message.Content = []message.Block{}
	}
	out.Message.Source = message.Source{Kind: message.SourceModel, Provider: t.header.route.Provider, Model: t.header.route.Model}
	if fail == nil {
		out.Message.Source.ReplayState = reply.ReplayState
	}
	out.Usage, out.ResponseID = reply.Usage, reply.ResponseID
	rest := coal.Flush()
	evs, err := a.s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		var drafts []session.Draft
		seqs := cited[:len(cited):len(cited)]
		for _, c := range rest {
			if d, ok := t.chunk(c); ok {
				seqs = append(seqs, st.Next()+session.Seq(len(drafts)))
				drafts = append(drafts, d)
			}
		}
		return append(drafts, session.Draft{
			Type: session.TypeAssistantMessage, Data: out, Op: session.Append(), Sources: session.Cite(seqs...),
		}), nil
	})
	if errors.Is(err, session.ErrNotObject) {
		return ans, llm.Errorf(llm.CodeMalformedResponse, "the answer cannot be stored, with %d calls in it: %w", len(out.Message.Calls()), err)
	}
	if err != nil {
		ans.fatal = true
		return ans, err
	}
	ans.seq = evs[len(evs)-1].Seq
	ans.finish, ans.calls = reply.Finish, out.Message.Calls()
	return ans, fail
}

// maxAnswer is how much of an answer is taken, in bytes: beyond it a service has lost its mind, and what it says
// would fill memory and disk.
const maxAnswer = 64 << 20

// receive ranges over the provider's stream. A provider that panics has failed, as if the connection had.
func receive(ctx context.Context, prov llm.Provider, req llm.Request, take func(llm.Chunk) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &llm.Error{Code: llm.CodeMalformedResponse, Message: fmt.Sprintf("the driver crashed: %v", v)}
		}
	}()
	size := 0
	for c, err := range prov.Stream(ctx, req) {
		if err != nil {
			return err
		}
		if size += len(c.Text) + len(c.Arguments); size > maxAnswer {
			return llm.Errorf(llm.CodeMalformedResponse, "the answer does not end: it has more than %d MiB", maxAnswer>>20)
		}
		if err := take(c); err != nil {
			return err
		}
		if c.Type == llm.ChunkFinish {
			break
		}
	}
	return nil
}

// chunk is the draft of a chunk, for the kinds that carry something the log does not get with the message.
func (t *turn) chunk(c llm.Chunk) (session.Draft, bool) {
	switch c.Type {
	case llm.ChunkTextDelta, llm.ChunkReasoningDelta, llm.ChunkToolCallDelta:
	case llm.ChunkBlockStart:
		if c.BlockType != message.ToolCall {
			return session.Draft{}, false
		}
	default:
		return session.Draft{}, false
	}
	raw, err := marshal(c)
	if err != nil {
		return session.Draft{}, false
	}
	return session.Draft{Type: session.TypeAssistantChunk, Data: session.AssistantChunk{Turn: t.n, Step: t.step, Chunk: raw}}, true
}

// wholeCalls leaves out the calls that a token limit cut in their arguments.
func wholeCalls(content []message.Block) []message.Block {
	var out []message.Block
	for _, b := range content {
		if b.Type != message.ToolCall || b.Arguments == "" || jsontext.Value(b.Arguments).IsValid() {
			out = append(out, b)
		}
	}
	return out
}

// count adds usage to the turn's budget.
func (t *turn) count(u *message.Usage) {
	tokens, cost := t.worth(u)
	t.tokens, t.cost = t.tokens+tokens, t.cost+cost
}

// worth is what usage takes of a turn's budget, by the price of the model in force.
func (t *turn) worth(u *message.Usage) (tokens int64, cost float64) {
	if u == nil {
		return 0, 0
	}
	tokens = u.InputTokens + u.OutputTokens
	for _, n := range []*int64{u.CacheReadTokens, u.CacheWriteTokens} {
		if n != nil {
			tokens += *n
		}
	}
	if p := t.header.price; p != nil {
		cost = p.Cost(*u)
	}
	return tokens, cost
}
