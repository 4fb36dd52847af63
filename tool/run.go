package tool

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/strandline-dev/strandline/message"
)

// RunOptions is what the loop adds to one run. The zero value is usable.
type RunOptions struct {
	Key      string       // the call's idempotency key
	Progress func(string) // nil drops progress; called from the body's goroutines
	Waiting  func(bool)   // told when the body begins and ends to wait for a person; nil: nobody is
	Hooks    []Hook       // their After functions see the result, in order
	Limit    int          // bytes of text in the result; 0 means DefaultLimit
	Spill    Spill        // keeps the full text of a result that is cut; nil keeps none
}

var errTimeLimit = errors.New("the tool's time limit")

// Run runs the body on the calling goroutine and returns its one result, whatever happens:
//   - a panic is PANIC, an error its own code or TOOL_FAILED;
//   - an error after the tool's time limit is TOOL_TIMEOUT; a success that came late stays one;
//   - an error after the end of ctx is ABORTED, and so is a success, because the turn that wanted it is
//     gone; what else the body reported after that stays.
//
// Texts are made valid UTF-8 and cut to the limit, with their head, tail and a note.
func (p Prepared) Run(ctx context.Context, o RunOptions) Result {
	r := p.outcome(ctx, o)
	for _, h := range o.Hooks {
		if h.After != nil {
			r = p.after(ctx, h, r)
		}
	}
	// The text has to be kept even when the turn was cancelled while the body ran.
	return limit(context.WithoutCancel(ctx), r, o.Limit, o.Spill)
}

func (p Prepared) outcome(ctx context.Context, o RunOptions) Result {
	if ctx.Err() != nil {
		return Failure(CodeAborted, "The call was cancelled before it started; nothing was run.")
	}
	runCtx, cancel := ctx, context.CancelFunc(func() {})
	if p.def.Timeout > 0 {
		runCtx, cancel = context.WithTimeoutCause(ctx, p.def.Timeout, errTimeLimit)
	}
	defer cancel()
	progress := o.Progress
	if progress == nil {
		progress = func(string) {}
	}
	waiting := o.Waiting
	if waiting == nil {
		waiting = func(bool) {}
	}
	r, err := p.body(runCtx, Call{
		ID: p.id, Name: p.def.Name, IdempotencyKey: o.Key, Arguments: p.Arguments(), Progress: progress, Waiting: waiting,
	})
	late := errors.Is(context.Cause(runCtx), errTimeLimit)
	switch aborted := ctx.Err() != nil; {
	case err != nil && aborted:
		return fail(r, CodeAborted, "The call was cancelled while it ran: "+err.Error())
	case err != nil && late:
		return fail(r, CodeTimeout, fmt.Sprintf("The call was stopped after its time limit of %v: %v", p.def.Timeout, err))
	case err != nil:
		code := CodeFailed
		var coded *Error
		if errors.As(err, &coded) {
			code = coded.Code
		}
		return fail(r, code, err.Error())
	case !r.IsError && aborted:
		return Failure(CodeAborted, "The turn was cancelled while the call ran. The call itself reported success after that: take its effects as done.")
	case r.IsError && r.Code == "":
		switch {
		case aborted:
			r.Code = CodeAborted
		case late:
			r.Code = CodeTimeout
		default:
			r.Code = CodeFailed
		}
	}
	return r
}

// fail makes an error result of text, followed by what the body returned beside its error.
func fail(r Result, code, text string) Result {
	r.Content = append([]message.Block{message.TextBlock(text)}, r.Content...)
	r.IsError, r.Code = true, code
	return r
}

func (p Prepared) body(ctx context.Context, c Call) (r Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			r, err = panicked("The tool", p.def.Name, v), nil
		}
	}()
	return p.def.Run(ctx, c)
}

func (p Prepared) after(ctx context.Context, h Hook, r Result) (out Result) {
	defer func() {
		if v := recover(); v != nil {
			out = panicked("A hook after the tool", p.def.Name, v)
			out.Records, out.Closing = r.Records, r.Closing
		}
	}()
	return h.After(ctx, p, r)
}

func panicked(what, name string, v any) Result {
	r := Failure(CodePanic, "%s %q crashed: %v. It may have done a part of its work: look before you try again.", what, name, v)
	// The stack is for the log's reader, not for the model.
	if meta, err := marshal(map[string]string{"stack": clip(string(debug.Stack()), 8<<10)}); err == nil {
		r.Meta = meta
	}
	return r
}

// validText makes every text block of r valid UTF-8 and sees that there is something to read.
func validText(r Result) Result {
	if len(r.Content) == 0 {
		r.Content = []message.Block{message.TextBlock("(no output)")}
		return r
	}
	blocks := make([]message.Block, len(r.Content))
	for i, b := range r.Content {
		if b.Type == message.Text {
			b.Text = strings.ToValidUTF8(b.Text, "\uFFFD")
			if b.Text == "" && len(r.Content) == 1 {
				b.Text = "(no output)"
			}
		}
		blocks[i] = b
	}
	r.Content = blocks
	return r
}
