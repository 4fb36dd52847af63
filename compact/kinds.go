package compact

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// The types of this package, and the bracket that the first two make.
const (
	TypeStart   = "compact/start"
	TypeEnd     = "compact/end"
	TypeSummary = "compact/summary"
	TypePrune   = "compact/prune"

	Bracket = "compaction"
)

// Plugin is the source plugin of the message that replaces what was compacted.
const Plugin = "compact"

// Start is the data of compact/start. What goes beyond id, turn and command tells how the request to the model
// was made (Request), so that it can be made again from the log.
type Start struct {
	CompactionID    string `json:"compactionId"`
	Turn            *int   `json:"turn"` // nil between turns
	SourceCommandID string `json:"sourceCommandId,omitzero"`
	Cause           Cause  `json:"cause,omitzero"`
	// Range is the selected span of the surface, by its first and last node.
	Range *Range `json:"range,omitzero"`
	// Tokens is how much the request tells of the conversation, estimated: what a service that refuses it as too long
	// does not take.
	Tokens int64 `json:"tokens,omitzero"`
	// Fit says that the conversation was cut to so many tokens in the request, because it has no end that the model
	// had room for; 0: it was told whole.
	Fit int64 `json:"fit,omitzero"`
	// Instruction is the number of the instruction that ends the request, MaxTokens the bound of its answer.
	Instruction int `json:"instruction,omitzero"`
	MaxTokens   int `json:"maxTokens,omitzero"`
}

// Cause says why a compaction began.
type Cause string

// The causes: the view neared the window, a service refused the request as too long, a person asked.
const (
	CausePressure Cause = "pressure"
	CauseOverflow Cause = "overflow"
	CauseManual   Cause = "manual"
)

// Range is a span of the surface by position: its first and its last node.
type Range struct {
	Start session.Seq `json:"start"`
	End   session.Seq `json:"end"`
}

// Summary is the data of compact/summary. It stands before the replacement that is made of it.
type Summary struct {
	CompactionID   string          `json:"compactionId"`
	Summary        []message.Block `json:"summary"`
	ShadowedRange  Range           `json:"shadowedRange"`
	ShadowedSeqs   []session.Seq   `json:"shadowedSeqs"`
	ShadowedTokens int64           `json:"shadowedTokens"` // estimated
	Provider       string          `json:"provider"`
	Model          string          `json:"model"`
	Usage          *message.Usage  `json:"usage,omitzero"`
	ResponseID     string          `json:"responseId,omitzero"`
}

// Outcome is how a compaction ended.
type Outcome string

// The outcomes.
const (
	Done   Outcome = "done"
	NoGain Outcome = "no-gain" // what would have replaced the span is no smaller than it
	Failed Outcome = "failed"
)

// End is the data of compact/end.
type End struct {
	CompactionID string             `json:"compactionId"`
	Turn         *int               `json:"turn"`
	Error        *session.ErrorInfo `json:"error,omitzero"`
	Outcome      Outcome            `json:"outcome,omitzero"` // absent in logs of other programs
	// Before is how many tokens the view had when it began, After an estimate of the view as it is left, which
	// is the measure of its growth; absent in logs of other programs.
	Before *int64 `json:"before,omitzero"`
	After  *int64 `json:"after,omitzero"`
	// Usage is what a request for a summary cost that gave none; one that gave one tells it in compact/summary.
	Usage    *message.Usage `json:"usage,omitzero"`
	Provider string         `json:"provider,omitzero"` // who was asked, with Usage and with Error
	Model    string         `json:"model,omitzero"`
}

// Prune is the data of compact/prune, which stands directly before the tool/result that it shortens.
type Prune struct {
	Seq     session.Seq `json:"seq"` // the result that is replaced
	Runes   int         `json:"runes"`
	Kept    int         `json:"kept"`
	Turn    *int        `json:"turn"`
	Pruning string      `json:"pruning,omitzero"` // the same for all results shortened together
}

// Kinds is the vocabulary of this package, for session.NewRegistry.
func Kinds() []session.Kind {
	const owner = "compact"
	return []session.Kind{
		{Type: TypeStart, Owner: owner, Doc: "a compaction begins", Opens: Bracket, Key: "compactionId", Check: named[Start](func(v Start) string { return v.CompactionID })},
		{Type: TypeSummary, Owner: owner, Doc: "what the model made of the selected span; the message that replaces it follows", Usage: true,
			Check: named[Summary](func(v Summary) string { return v.CompactionID })},
		{Type: TypeEnd, Owner: owner, Doc: "a compaction ended, and how", Closes: Bracket, Key: "compactionId", Usage: true, Check: named[End](func(v End) string { return v.CompactionID })},
		{Type: TypePrune, Owner: owner, Doc: "the result that follows is an older one, shortened without a model", Check: named[Prune](func(Prune) string { return "-" })},
	}
}

// named checks the shape, and that the compaction is named.
func named[T any](id func(T) string) func(jsontext.Value) error {
	return func(raw jsontext.Value) error {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		if id(v) == "" {
			return errors.New("compactionId is missing")
		}
		return nil
	}
}
