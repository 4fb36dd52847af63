package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/view"
)

// TypeSent is the type of the event that says what was sent to a model. It is ignorable.
const TypeSent = "request/sent"

// SentEvent is the data of request/sent: enough to make the body again and see that it is the same, and
// not the body. It is logged before each request, attempts included, of a provider that is an llm.Encoder.
type SentEvent struct {
	Turn     int    `json:"turn"`
	Step     int    `json:"step"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`   // of the body, in hex
	Encoding string `json:"encoding"` // llm.Encoder.EncodingName
	// At is the length of the log that the request was made of: input may have come since.
	At session.Seq `json:"at"`
	// Purpose of a request that is none of a turn's (llm.PurposeCompaction, llm.PurposeTitle); Of is the event that tells how it
	// is made. Turn and step are 0 for one between turns.
	Purpose string      `json:"purpose,omitzero"`
	Of      session.Seq `json:"of,omitzero"`
}

func checkSent(v jsontext.Value) error {
	var s SentEvent
	if err := json.Unmarshal(v, &s); err != nil {
		return err
	}
	if sum, err := hex.DecodeString(s.SHA256); err != nil || len(sum) != sha256.Size {
		return errors.New("sha256 is not the hash of a body")
	}
	least := 1
	if s.Purpose != "" {
		least = 0
	}
	if s.Turn < least || s.Step < least || s.Bytes < 0 || s.At < 0 || s.Of < 0 {
		return errors.New("turn and step of a turn's request must be 1 or more, bytes, at and of 0 or more")
	}
	return nil
}

// Sum fills in what is told of a body.
func (s *SentEvent) Sum(body []byte) {
	sum := sha256.Sum256(body)
	s.Bytes, s.SHA256 = int64(len(body)), hex.EncodeToString(sum[:])
}

// putSent makes the body of a request, which is sent as it is, and logs what it was. It is saved with
// what the request waits for anyway.
func (t *turn) putSent(req *llm.Request) error {
	return t.a.logSent(t.ctx, t.header.prov, req, SentEvent{Turn: t.n, Step: t.step, At: t.at})
}

func (a *Agent) logSent(ctx context.Context, prov llm.Provider, req *llm.Request, sent SentEvent) error {
	enc, ok := llm.Find[llm.Encoder](prov)
	if !ok {
		return nil
	}
	body, err := enc.Encode(*req)
	if err != nil {
		return llm.AsError(ctx, err)
	}
	sent.Encoding = enc.EncodingName()
	sent.Sum(body)
	req.Body = body
	_, err = a.s.Append(session.Draft{Type: TypeSent, Data: sent, Ignorable: true})
	return err
}

// Rebuilder makes requests from a log: the loop its next one, a health check old ones. It remembers what
// the last one was made of. The zero value is ready; it is not safe for concurrent use.
type Rebuilder struct {
	view *view.Builder
	of   string // the provider that view builds for
}

// Request returns the request that a header, the surface and the state yield. items are the surface of
// the log that st was folded from.
func (r *Rebuilder) Request(h session.HeaderBody, items []session.Item, st session.State) (llm.Request, error) {
	provider, req, err := ReadHeader(h)
	if err != nil {
		return req, err
	}
	return r.fill(provider, req, items, st), nil
}

func (r *Rebuilder) fill(provider string, req llm.Request, items []session.Item, st session.State) llm.Request {
	if r.view == nil || r.of != provider {
		r.view, r.of = view.NewBuilder(view.Options{Provider: provider}), provider
	}
	req.Messages = r.view.Update(items, st).Messages
	return req
}

// ReadHeader reads the part of a request that a header holds, and the name of its provider.
func ReadHeader(h session.HeaderBody) (provider string, req llm.Request, err error) {
	var c config
	if err := json.Unmarshal(h.Config, &c); err != nil {
		return "", req, fmt.Errorf("the config of a request header: %w", err)
	}
	req = llm.Request{
		Purpose: llm.PurposeTurn, Model: c.Model, System: h.System,
		MaxOutputTokens: c.MaxOutputTokens, Temperature: c.Temperature, Reasoning: c.Reasoning,
	}
	if len(h.Tools) > 0 {
		if err := json.Unmarshal(h.Tools, &req.Tools); err != nil {
			return "", req, fmt.Errorf("the tools of a request header: %w", err)
		}
	}
	return c.Provider, req, nil
}
