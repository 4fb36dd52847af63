package subagent

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/tool"
)

// The types of this package. TypeStart and TypeEnd stand in the parent's log, TypeProfile in the child's.
const (
	TypeStart   = "subagent/start"
	TypeEnd     = "subagent/end"
	TypeProfile = "subagent/profile"
)

// Plugin is the source plugin of every message that this package puts into a session.
const Plugin = "subagent"

// bracket is the name of the bracket of a child in its parent's log.
const bracket = "subagent"

// Mode says what a child begins with.
type Mode string

// The modes.
const (
	ModeSpawn Mode = "spawn" // an empty log
	ModeFork  Mode = "fork"  // the parent's log up to its last turn/end
)

// Start is the data of subagent/start: a child is about to be made.
type Start struct {
	ChildID     session.ID     `json:"childId"`
	Mode        Mode           `json:"mode"`
	Name        string         `json:"name,omitzero"`
	Description string         `json:"description,omitzero"`
	Background  bool           `json:"background,omitzero"` // nobody waits: the parent is told by a message
	Turn        int            `json:"turn"`                // of the call that asked for it
	Step        int            `json:"step"`
	CallID      string         `json:"callId"`
	Depth       int            `json:"depth"`        // of the child
	Cut         *int64         `json:"cut,omitzero"` // ModeFork: the last inherited seq
	LimitMs     int64          `json:"limitMs"`      // how long it may work
	Extra       jsontext.Value `json:",embed"`
}

// Outcome is a child's terminal state.
type Outcome string

// The outcomes. Only OutcomeCompleted comes with an answer; the others with what the child had by then.
const (
	OutcomeCompleted   Outcome = "completed"
	OutcomeFailed      Outcome = "failed"      // an error, a limit of its turn, a refusal
	OutcomeCancelled   Outcome = "cancelled"   // with its parent, or by it
	OutcomeTimeout     Outcome = "timeout"     // its time limit
	OutcomeInterrupted Outcome = "interrupted" // its process died
)

// End is the data of subagent/end.
type End struct {
	ChildID session.ID     `json:"childId"`
	Outcome Outcome        `json:"outcome"`
	Detail  string         `json:"detail,omitzero"` // why it did not complete
	Usage   *message.Usage `json:"usage,omitzero"`  // of what the child logged itself; nil: unknown
	Events  session.Seq    `json:"events"`          // length of the child's log
	Extra   jsontext.Value `json:",embed"`
}

// Profile is the data of subagent/profile, the first event that a child logs itself: what it may do, for all
// its lives.
type Profile struct {
	Parent  session.ID     `json:"parent"`
	Name    string         `json:"name,omitzero"`
	Tools   []string       `json:"tools,omitzero"`   // the only ones; nil: all
	Persona string         `json:"persona,omitzero"` // added to the system prompt
	Limit   tool.Policy    `json:"limit"`            // the loosest approval policy
	Extra   jsontext.Value `json:",embed"`
}

// Kinds is the vocabulary of this package, for session.NewRegistry.
func Kinds() []session.Kind {
	return []session.Kind{
		{Type: TypeStart, Owner: "subagent", Doc: "a child session is about to be made; its id, mode and limits", Opens: bracket, Key: "childId",
			Check: shape(func(s Start) error {
				if s.Mode != ModeSpawn && s.Mode != ModeFork {
					return fmt.Errorf("mode %q: want spawn or fork", s.Mode)
				}
				return session.ValidID(s.ChildID)
			})},
		{Type: TypeEnd, Owner: "subagent", Doc: "the one terminal state of a child; the parent was told right before it", Closes: bracket, Key: "childId",
			Check: shape(func(e End) error {
				if e.Outcome == "" {
					return errors.New("no outcome")
				}
				return session.ValidID(e.ChildID)
			})},
		{Type: TypeProfile, Owner: "subagent", Doc: "in a child's log: what it may do in all its lives",
			Check: shape(func(p Profile) error {
				if p.Limit == "" {
					return errors.New("no limit of approval")
				}
				return nil
			})},
	}
}

// shape decodes data into T and checks it.
func shape[T any](check func(T) error) func(jsontext.Value) error {
	return func(v jsontext.Value) error {
		var t T
		if err := json.Unmarshal(v, &t); err != nil {
			return err
		}
		return check(t)
	}
}

// The codes of results of the tool that are errors.
const (
	CodeLimit      = "TASK_LIMIT"       // depth or number of children; nothing was started
	CodeFailed     = "TASK_FAILED"      // the child failed, was cancelled or interrupted
	CodeUnknown    = "TASK_UNKNOWN"     // there is no such child of this session
	CodeWaiting    = "TASK_WAITING"     // the child waits for a person who is not here
	CodeNotStarted = "TASK_NOT_STARTED" // the child could not be made
)

const description = `Hands work to a subagent: another agent with its own conversation, which works until it is done and whose last message is the answer. It is told only the prompt (mode spawn), or also all of this conversation up to the end of the last turn (mode fork). Use it for work whose details you do not need to see, and several at once, in one step, for work that can be done side by side.

start (the default) waits for the answer; with background it returns at once, and you get the answer later as a message. wait waits for background subagents, list names them, cancel ends them. A subagent asks the same person for approval as you do and is never allowed more than you. When it ends, what it had started ends too.`

const parameters = `{"type":"object","properties":{
"action":{"type":"string","enum":["start","wait","list","cancel"],"description":"Default start"},
"prompt":{"type":"string","description":"start: the whole task, with everything that the subagent has to know"},
"description":{"type":"string","description":"start: the task in three to five words, for the user"},
"mode":{"type":"string","enum":["spawn","fork"],"description":"start: begin with an empty conversation (spawn, the default), or with this one (fork)"},
"background":{"type":"boolean","description":"start: do not wait for the answer"},
"name":{"type":"string","pattern":"^[a-z0-9][a-z0-9-]{0,31}$","description":"start: a short name, for example tests"},
"tools":{"type":"array","items":{"type":"string"},"description":"start: the only tools that it may use (default: yours)"},
"persona":{"type":"string","description":"start: instructions that stand beside its system prompt"},
"timeoutSeconds":{"type":"integer","minimum":1,"description":"start: how long it may work; wait: how long to wait"},
"ids":{"type":"array","items":{"type":"string"},"description":"wait, cancel: which subagents (default: all)"}
},"additionalProperties":false}`
