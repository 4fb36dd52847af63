package agent

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/session"
)

// TypeRetry is the type of the event that says that a request failed and is tried again.
const TypeRetry = "llm/retry"

// RetryEvent is the data of llm/retry.
type RetryEvent struct {
	Turn    int      `json:"turn"`
	Step    int      `json:"step"`
	Attempt int      `json:"attempt"` // the one that failed, from 1
	Code    llm.Code `json:"code"`
	Status  int      `json:"status,omitzero"`
	Message string   `json:"message,omitzero"`
	DelayMs int64    `json:"delayMs"` // until the next attempt
}

// Kinds is the vocabulary of this package, for session.NewRegistry.
func Kinds() []session.Kind {
	return append(titleKinds(), []session.Kind{{
		Type: TypeRetry, Owner: "agent", Doc: "a request failed and is tried again after a delay",
		Check: func(v jsontext.Value) error {
			var r RetryEvent
			if err := json.Unmarshal(v, &r); err != nil {
				return err
			}
			if r.Turn < 1 || r.Step < 1 || r.Attempt < 1 {
				return errors.New("turn, step and attempt must be 1 or more")
			}
			return nil
		},
	}, {
		Type: TypeSent, Owner: "agent", Doc: "size and hash of the body of a request that is about to be sent", Check: checkSent,
	}}...)
}
