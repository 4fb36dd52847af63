package session

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
)

// The core types. Who may write them and what they mean stands in core.go and docs/events.md.
const (
	TypeTurnStart        = "turn/start"
	TypeTurnEnd          = "turn/end"
	TypeStepStart        = "step/start"
	TypeStepEnd          = "step/end"
	TypeUserMessage      = "user/message"
	TypeAssistantChunk   = "assistant/chunk"
	TypeAssistantMessage = "assistant/message"
	TypeToolCall         = "tool/call"
	TypeToolResult       = "tool/result"
	TypeInboxSpliced     = "inbox/spliced"
	TypeRequestHeader    = "request/header"
	TypeRequestContext   = "request/context"
	TypeTodoWrite        = "todo/write"
	TypeTitle            = "session/title"
	TypeSettings         = "session/settings"
	TypeInherited        = "session/inherited"
	TypeLost             = "session/lost"
	TypeHide             = "surface/hide"
	TypeRestore          = "surface/restore"
	TypeApprovalAsked    = "approval/asked"
	TypeApprovalDecided  = "approval/decided"
	TypeApprovalPolicy   = "approval/policy"
)

// TurnStart is the data of turn/start.
type TurnStart struct {
	Turn int `json:"turn"`
}

// TurnEnd is the data of turn/end.
type TurnEnd struct {
	Turn   int    `json:"turn"`
	Reason Reason `json:"reason"`
}

// The kinds of Reason. ReasonInterrupted comes from repair only.
const (
	ReasonCompleted   = "completed"
	ReasonMaxTokens   = "max-tokens"
	ReasonLimit       = "limit"
	ReasonBlocked     = "blocked"
	ReasonAborted     = "aborted"
	ReasonError       = "error"
	ReasonInterrupted = "interrupted"
)

// Reason says why a turn ended.
type Reason struct {
	Kind   string     `json:"kind"`
	Cause  string     `json:"cause,omitzero"`  // ReasonAborted: who or what
	Detail string     `json:"detail,omitzero"` // ReasonLimit, ReasonBlocked: which
	Error  *ErrorInfo `json:"error,omitzero"`  // ReasonError
}

// ErrorInfo is an error as a log keeps it; it never holds a credential.
type ErrorInfo struct {
	Name    string `json:"name,omitzero"`
	Code    string `json:"code,omitzero"`
	Message string `json:"message,omitzero"`
	Status  int    `json:"status,omitzero"`
}

// StepRef is the data of step/start and step/end.
type StepRef struct {
	Turn int `json:"turn"`
	Step int `json:"step"`
}

// AssistantChunk is the data of assistant/chunk; Chunk is the model package's.
type AssistantChunk struct {
	Turn  int            `json:"turn"`
	Step  int            `json:"step"`
	Chunk jsontext.Value `json:"chunk"`
}

// AssistantMessage is the data of assistant/message.
type AssistantMessage struct {
	Turn        int             `json:"turn"`
	Step        int             `json:"step"`
	Message     message.Message `json:"message"`
	Usage       *message.Usage  `json:"usage,omitzero"`
	ResponseID  string          `json:"responseId,omitzero"`
	Interrupted bool            `json:"interrupted,omitzero"`
}

// ToolCall is the data of tool/call: the call is about to run.
type ToolCall struct {
	Turn      int    `json:"turn"`
	Step      int    `json:"step"`
	CallID    string `json:"callId"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // the raw text from the model
}

// ToolResult is the data of tool/result; the message holds exactly one tool-result block.
type ToolResult struct {
	Turn    int             `json:"turn"`
	Step    int             `json:"step"`
	Message message.Message `json:"message"`
	Error   *ErrorInfo      `json:"error,omitzero"`
	Meta    jsontext.Value  `json:"meta,omitzero"`
}

// Target names one of the two queues of accepted input.
type Target string

// The queues.
const (
	NextTurn Target = "next-turn"
	NextStep Target = "next-step"
)

// InboxSpliced is the data of inbox/spliced: RemovedCount messages are taken out at Start, and
// Inserted put there.
type InboxSpliced struct {
	Target       Target            `json:"target"`
	Start        int               `json:"start"`
	RemovedCount int               `json:"removedCount,omitzero"`
	Inserted     []message.Message `json:"inserted"`
	// Outcome of what was removed: OutcomeClaimed (also if empty, inside a turn) or OutcomeWithdrawn.
	Outcome string `json:"outcome,omitzero"`
}

// The outcomes of an inbox removal.
const (
	OutcomeClaimed   = "claimed"   // the open turn works on it
	OutcomeWithdrawn = "withdrawn" // taken back; nobody will
)

// RequestHeader is the data of request/header.
type RequestHeader struct {
	Header HeaderBody `json:"header"`
	Reason string     `json:"reason"` // initial, resume, change
}

// HeaderBody is what a request has beside its messages.
type HeaderBody struct {
	Config jsontext.Value `json:"config"` // {provider, model, ...}
	System string         `json:"system,omitzero"`
	Tools  jsontext.Value `json:"tools,omitzero"`
}

// RequestContext is the data of request/context.
type RequestContext struct {
	Provider      string `json:"provider"`
	Model         string `json:"model"`
	ContextWindow int    `json:"contextWindow,omitzero"`
}

// TodoWrite is the data of todo/write.
type TodoWrite struct {
	Todos []Todo `json:"todos"`
}

// Todo is one entry of a todo list.
type Todo struct {
	Content string `json:"content"`
	Status  string `json:"status"`
}

// Title is the data of session/title. The last one wins; one of source "user" pins.
type Title struct {
	Title  string `json:"title"`
	Source string `json:"source"` // fallback, provider, user
}

// Settings is the data of session/settings: what must survive a resume. The last one wins, whole.
type Settings struct {
	Provider string         `json:"provider,omitzero"`
	Model    string         `json:"model,omitzero"`
	Approval string         `json:"approval,omitzero"`
	Cwd      string         `json:"cwd,omitzero"`
	Rules    []Rule         `json:"rules,omitzero"` // of approval, beside the policy
	Extra    jsontext.Value `json:",embed"`
}

// Rule is an approval rule that a session keeps: what package tool means by one.
type Rule struct {
	Tool   string `json:"tool"`
	Prefix string `json:"prefix,omitzero"`
	Action string `json:"action"` // allow, deny or ask
	Reason string `json:"reason,omitzero"`
}

// Lost is the data of session/lost: where the lost bytes lie.
type Lost struct {
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
}

// Hide is the data of surface/hide.
type Hide struct {
	Reason string `json:"reason,omitzero"` // undo, trim
	Turn   int    `json:"turn,omitzero"`
}

// ApprovalAsked is the data of approval/asked. AskID pairs it with the decision.
type ApprovalAsked struct {
	AskID   string `json:"askId"`
	Turn    int    `json:"turn"`
	Step    int    `json:"step"`
	CallID  string `json:"callId"`
	Name    string `json:"name"`
	Subject string `json:"subject,omitzero"` // what a person decides on: the command, the path
	Reason  string `json:"reason,omitzero"`
	// Assistant and Index say which call is meant, as ids are the model's and may repeat: the seq of the
	// assistant message and the place among its calls. Nil in old logs: the first call of the step with CallID.
	Assistant *Seq `json:"assistant,omitzero"`
	Index     int  `json:"index,omitzero"`
}

// The verdicts of ApprovalDecided.
const (
	VerdictAllow = "allow"
	VerdictDeny  = "deny"
)

// Who decides. What a person or a policy decided is kept for a call that did not start yet, whatever happens
// to the process; what a cancelled turn decided is the end of the question.
const (
	ByUser   = "user"
	ByPolicy = "policy"
	ByCancel = "cancel"
)

// ApprovalDecided is the data of approval/decided.
type ApprovalDecided struct {
	AskID   string `json:"askId"`
	CallID  string `json:"callId"`
	Verdict string `json:"verdict"`
	By      string `json:"by"` // user, policy, cancel: ByUser ..
	Reason  string `json:"reason,omitzero"`
}

// ApprovalPolicy is the data of approval/policy.
type ApprovalPolicy struct {
	Policy string `json:"policy"`
}

// DecodeData reads the data of an event into the struct of its type.
func DecodeData[T any](e Event) (T, error) {
	var v T
	if err := json.Unmarshal(e.Data, &v); err != nil {
		return v, fmt.Errorf("session: %s at seq %d: %w", e.Type, e.Seq, err)
	}
	return v, nil
}
