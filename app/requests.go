package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/openai"
	"github.com/strandline-dev/strandline/llm/script"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// ProblemRequest is the kind of a Problem that says that a request cannot be made again as it was sent: the
// program builds another view of the log than it did then.
const ProblemRequest = "request-changed"

// Requests counts what was done with the recorded requests of a session.
type Requests struct {
	Checked   int `json:"checked"`
	Changed   int `json:"changed"`
	Unchecked int `json:"unchecked"` // sent in a form that this version does not have
}

// CheckRequests makes every request of a session again, from the log alone, and compares it with what was
// recorded of it when it was sent. What differs becomes a problem of h.
func (a *App) CheckRequests(ctx context.Context, h *Health) error {
	snap, err := a.Store.Read(ctx, h.ID)
	if err != nil {
		return err
	}
	defer snap.Close()
	h.Requests = &Requests{}
	c := &requestCheck{h: h, prefix: snap.Prefix, st: session.NewState(snap.Header, a.Registry), items: map[session.Seq]session.Item{},
		encoders: func(name string) (llm.Encoder, bool) { return a.encoder(ctx, name) }}
	err = c.run(ctx)
	if errors.Is(err, store.ErrDamaged) { // told by Doctor already
		h.note("request-unchecked", c.st.Next(), "requests behind damage cannot be made again")
		return nil
	}
	return err
}

// encoder finds the encoding of that name.
func (a *App) encoder(ctx context.Context, name string) (llm.Encoder, bool) {
	if name == script.EncodingName {
		return script.New(nil, script.Options{}), true
	}
	e, ok := openai.EncodingNamed(name, a.blobs(ctx))
	return e, ok
}

// blobs reads the blobs of the store; nil if it has none.
func (a *App) blobs(ctx context.Context) func(string) ([]byte, error) {
	b, ok := a.Store.(store.Blobs)
	if !ok {
		return nil
	}
	return func(name string) ([]byte, error) { return b.GetBlob(ctx, name) }
}

type requestCheck struct {
	h        *Health
	prefix   session.Prefix
	st       session.State // folded over prefix[:st.Next()]
	items    map[session.Seq]session.Item
	encoders func(string) (llm.Encoder, bool)
	again    agent.Rebuilder
}

// sent is a recorded request.
type sent struct {
	seq session.Seq
	agent.SentEvent
}

func (c *requestCheck) run(ctx context.Context) error {
	var all []sent
	for ev, err := range c.prefix.Range(0, c.prefix.Len()) {
		if err != nil {
			return err
		}
		if ev.Type != agent.TypeSent {
			continue
		}
		d, err := session.DecodeData[agent.SentEvent](ev)
		if err != nil || d.At > ev.Seq {
			c.h.changed(ev.Seq, "what was recorded of the request cannot be read")
			continue
		}
		all = append(all, sent{ev.Seq, d})
	}
	slices.SortStableFunc(all, func(a, b sent) int { return cmp.Compare(a.At, b.At) })
	for _, s := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.foldTo(s.At); err != nil {
			return err
		}
		if err := c.compare(s); err != nil {
			return err
		}
	}
	return nil
}

func (c *requestCheck) foldTo(n session.Seq) error {
	for ev, err := range c.prefix.Range(c.st.Next(), n) {
		if err != nil {
			return err
		}
		c.st.Load(ev)
	}
	return nil
}

// surface reads the surface; what was read before is kept, for it is nearly all of it each time.
func (c *requestCheck) surface() ([]session.Item, error) {
	out := make([]session.Item, c.st.SurfaceLen())
	for i := range out {
		seq := c.st.SurfaceAt(i).Seq
		it, ok := c.items[seq]
		if !ok {
			ev, err := c.prefix.At(seq)
			if err != nil {
				return nil, err
			}
			it = session.Project(ev)
			c.items[seq] = it
		}
		out[i] = it
	}
	return out, nil
}

func (c *requestCheck) compare(s sent) error {
	enc, ok := c.encoders(s.Encoding)
	if !ok {
		c.h.Requests.Unchecked++
		c.h.note("request-unchecked", s.seq, "the request was sent in the form %q, which this version cannot make", s.Encoding)
		return nil
	}
	if s.Purpose != "" && s.Purpose != llm.PurposeCompaction && s.Purpose != llm.PurposeTitle {
		c.h.Requests.Unchecked++
		c.h.note("request-unchecked", s.seq, "the request was sent for %q, and this version does not know how it is made", s.Purpose)
		return nil
	}
	c.h.Requests.Checked++
	body, err := c.body(enc, s)
	if err != nil {
		var storage *llm.Error // a blob that is gone concerns this request, everything else the log
		if errors.As(err, &storage) || errors.Is(err, errNoHeader) || errors.Is(err, errUntold) {
			c.h.changed(s.seq, "the request cannot be made again: %v", err)
			return nil
		}
		return err
	}
	now := s.SentEvent
	now.Sum(body)
	if now != s.SentEvent {
		c.h.changed(s.seq, "turn %d, step %d: %d bytes were sent (sha256 %.12s), and this version would send %d (%.12s): it builds another view of the log",
			s.Turn, s.Step, s.Bytes, s.SHA256, now.Bytes, now.SHA256)
	}
	return nil
}

var (
	errNoHeader = errors.New("no request/header is in force")
	errUntold   = errors.New("what it was made of is not there")
)

func (c *requestCheck) body(enc llm.Encoder, s sent) ([]byte, error) {
	if s.Purpose == llm.PurposeTitle {
		req, err := c.title(s.Of)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUntold, err)
		}
		return enc.Encode(req)
	}
	at := c.st.RequestHeader()
	if at == session.None {
		return nil, errNoHeader
	}
	ev, err := c.prefix.At(at)
	if err != nil {
		return nil, err
	}
	head, err := session.DecodeData[session.RequestHeader](ev)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoHeader, err)
	}
	items, err := c.surface()
	if err != nil {
		return nil, err
	}
	req, err := c.again.Request(head.Header, items, c.st)
	if err == nil && s.Purpose == llm.PurposeCompaction {
		req, err = c.summary(req, head.Header, items, s.Of)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoHeader, err)
	}
	return enc.Encode(req)
}

// summary makes the request of the compaction that began at seq of; turn is that of a turn.
func (c *requestCheck) summary(turn llm.Request, h session.HeaderBody, items []session.Item, of session.Seq) (llm.Request, error) {
	ev, err := c.prefix.At(of)
	if err != nil {
		return llm.Request{}, err
	}
	start, err := session.DecodeData[compact.Start](ev)
	if err != nil {
		return llm.Request{}, err
	}
	provider, _, err := agent.ReadHeader(h)
	if err != nil {
		return llm.Request{}, err
	}
	return compact.Request(provider, turn, items, c.st, start)
}

// title makes the request for a title that seq of tells of.
func (c *requestCheck) title(of session.Seq) (llm.Request, error) {
	ev, err := c.prefix.At(of)
	if err != nil {
		return llm.Request{}, err
	}
	asked, err := session.DecodeData[agent.TitleAsked](ev)
	if err != nil {
		return llm.Request{}, err
	}
	return agent.TitleRequest(c.prefix, asked)
}

// changed adds a problem that is none of the stored bytes.
func (h *Health) changed(seq session.Seq, format string, args ...any) {
	h.Requests.Changed++
	h.Problems = append(h.Problems, Problem{Kind: ProblemRequest, Seq: seq, Detail: fmt.Sprintf(format, args...)})
}
