package compact

import (
	"context"
	"errors"
	"strings"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/meter"
)

// summary is what the model answered.
type summary struct {
	text     string
	usage    *message.Usage // also of an answer that is no summary
	response string
}

// errNoGain says that a summary is no smaller than what it would replace.
var errNoGain = errors.New("the summary is no smaller than what it would replace")

var errSlow = errors.New("too slow")

func validText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}

// summarise asks for a summary of less than most tokens. What is no whole, plain text is refused.
func (c *Compactor) summarise(ctx context.Context, j Job, set Settings, req llm.Request, most int64) (summary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.opts.After(set.Timeout, func() { cancel(errSlow) })()
	var asm llm.Assembler
	var seen int64
	told := 0
	var failed error
	for chunk, err := range j.Provider.Stream(ctx, req) {
		if err == nil {
			err = asm.Add(chunk)
		}
		if err == nil && (chunk.Type == llm.ChunkToolCallDelta || chunk.BlockType == message.ToolCall) {
			err = llm.Errorf(llm.CodeMalformedResponse, "the model called a tool instead of writing a summary")
		}
		if chunk.Type == llm.ChunkTextDelta || chunk.Type == llm.ChunkReasoningDelta {
			told += len(chunk.Text)
			j.tell("compacting: the summary has %d signs so far", told)
		}
		if chunk.Type == llm.ChunkTextDelta {
			seen += int64(len(chunk.Text))
		}
		if err == nil && seen/4 > 2*most+1024 { // it will be no smaller, wherever it ends
			err = errNoGain
		}
		if failed = err; err != nil || chunk.Type == llm.ChunkFinish {
			break
		}
	}
	if failed != nil {
		out := summary{usage: asm.Partial().Usage}
		if errors.Is(failed, errNoGain) {
			return out, failed
		}
		if errors.Is(context.Cause(ctx), errSlow) {
			return out, llm.Errorf(llm.CodeTimeout, "there was no summary within %v", set.Timeout)
		}
		return out, llm.AsError(ctx, failed)
	}
	reply, err := asm.Message()
	out := summary{usage: reply.Usage, response: reply.ResponseID}
	for _, b := range reply.Content {
		if b.Type == message.Text {
			out.text += b.Text
		}
	}
	out.text = strings.TrimSpace(validText(out.text))
	switch {
	case err != nil:
		return out, llm.AsError(ctx, err)
	case reply.Finish == llm.FinishLength:
		return out, llm.Errorf(llm.CodeMalformedResponse, "the summary was cut off at the limit of %d tokens", req.MaxOutputTokens)
	case reply.Finish == llm.FinishContentFilter:
		return out, llm.Errorf(llm.CodeMalformedResponse, "the provider's content filter ended the summary")
	case reply.Finish == llm.FinishToolCalls:
		return out, llm.Errorf(llm.CodeMalformedResponse, "the model called a tool instead of writing a summary")
	case out.text == "":
		return out, llm.Errorf(llm.CodeEmptyResponse, "the model gave no summary")
	case meter.Text(out.text) >= most:
		return out, errNoGain
	}
	return out, nil
}
