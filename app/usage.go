package app

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/message"
)

// Usage is what the answers told of their tokens; Told is nil when none told anything, which is not zero.
type Usage struct{ Told *message.Usage }

// add counts v, if it is told.
func (u *Usage) add(v *message.Usage) {
	if v == nil {
		return
	}
	sum := *v
	if u.Told != nil {
		sum = u.Told.Add(sum)
	}
	u.Told = &sum
}

// MarshalJSON gives an object without counts for what is unknown.
func (u Usage) MarshalJSON() ([]byte, error) {
	if u.Told == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(u.Told)
}

func (u Usage) String() string {
	if u.Told == nil {
		return "unknown"
	}
	return fmt.Sprintf("%d in, %d out", u.Told.InputTokens, u.Told.OutputTokens)
}
