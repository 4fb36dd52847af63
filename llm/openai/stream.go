package openai

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/strandline-dev/strandline/llm"
)

// maxWhole bounds an answer that is not streamed, in bytes.
const maxWhole = 32 << 20

// Stream sends a request and yields what comes. An answer is complete once its finish reason was told:
// what happens to the connection behind it harms nothing.
func (p *Provider) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		body := req.Body
		if body == nil {
			var err error
			if body, err = p.Encode(req); err != nil {
				yield(llm.Chunk{}, llm.AsError(ctx, err))
				return
			}
		}
		a := &answer{p: p, yield: yield, calls: map[int]*toolCall{}}
		res, err := p.send(ctx, body)
		if err == nil {
			defer res.Body.Close()
			err = a.read(ctx, res)
		}
		if err != nil && !errors.Is(err, errLeft) {
			yield(llm.Chunk{}, err)
		}
	}
}

// errLeft says that the reader has left, or has everything.
var errLeft = errors.New("the reader has left")

// send opens the request.
func (p *Provider) send(ctx context.Context, body []byte) (*http.Response, error) {
	var res *http.Response
	err := p.client.Post(ctx, "chat/completions", body, &res)
	switch {
	case res != nil && (res.StatusCode < 200 || res.StatusCode > 299) && ctx.Err() == nil:
		return nil, p.refused(res) // the SDK's own error holds the request, and with it the key
	case err != nil:
		if res != nil {
			_ = res.Body.Close()
		}
		return nil, p.lost(ctx, err, false)
	}
	return res, nil
}

// read reads the answer to its end.
func (a *answer) read(ctx context.Context, res *http.Response) error {
	in := bufio.NewReader(res.Body)
	first, err := firstByte(in)
	switch {
	case err != nil && err != io.EOF:
		return a.p.lost(ctx, err, true)
	case first == '{' || first == '[':
		return a.whole(ctx, in)
	case first == '<':
		return a.p.fail(llm.CodeMalformedResponse, res.StatusCode, "the service answers with a web page: look at the base URL")
	}
	dec := ssestream.NewDecoder(&http.Response{Body: struct {
		io.Reader
		io.Closer
	}{in, res.Body}})
	for dec.Next() {
		ev := dec.Event()
		data := bytes.TrimSpace(ev.Data)
		switch {
		case len(data) == 0:
			continue
		case bytes.HasPrefix(data, []byte("[DONE]")):
			return a.end()
		}
		if err := a.take(data, ev.Type == "error"); err != nil {
			return err
		}
	}
	if a.finish != "" {
		return a.end()
	}
	if err := dec.Err(); err != nil {
		return a.p.lost(ctx, err, true)
	}
	return a.p.fail(llm.CodeStreamClosed, 0, "the connection was closed before the answer was complete")
}

// firstByte skips what says nothing and looks at the first sign of an answer.
func firstByte(in *bufio.Reader) (byte, error) {
	for {
		b, err := in.Peek(1)
		if err != nil {
			return 0, err
		}
		switch b[0] {
		case ' ', '\t', '\r', '\n', 0xEF, 0xBB, 0xBF: // a byte order mark is none in what follows
			_, _ = in.Discard(1)
		default:
			return b[0], nil
		}
	}
}

// whole reads an answer that came in one piece.
func (a *answer) whole(ctx context.Context, in io.Reader) error {
	body, err := io.ReadAll(io.LimitReader(in, maxWhole))
	if err != nil {
		return a.p.lost(ctx, err, true)
	}
	if err := a.take(body, body[0] == '['); err != nil {
		return err
	}
	if a.finish == "" {
		return a.p.fail(llm.CodeMalformedResponse, 0, "the service sent JSON that is no answer: look at the base URL")
	}
	return a.end()
}

// take reads one event. failed says that the service calls it an error.
func (a *answer) take(data []byte, failed bool) error {
	if failed {
		return a.failed(data)
	}
	var ev event
	if err := json.Unmarshal(data, &ev, lenient); err != nil {
		return a.p.fail(llm.CodeMalformedResponse, 0, "the service sent an event that cannot be read")
	}
	if k := ev.Error.Kind(); k == '{' || k == '"' {
		return a.failed(ev.Error)
	}
	return a.event(ev)
}

func (a *answer) failed(data []byte) error {
	r := readRefusal(data)
	if r.text == "" {
		r.text = "the service broke off with an error"
	}
	status := 0
	if r.status >= 400 && r.status < 600 {
		status = r.status
	}
	return a.p.fail(r.codeFor(0), status, r.text)
}
