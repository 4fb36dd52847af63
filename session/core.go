package session

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
)

// coreKinds is the vocabulary of this package.
func coreKinds() []Kind {
	const core = "session"
	return []Kind{
		{Type: TypeTurnStart, Owner: core, Doc: "a turn begins", Check: shape(checkTurn)},
		{Type: TypeTurnEnd, Owner: core, Doc: "a turn ended, and why", Check: shape(checkTurnEnd)},
		{Type: TypeStepStart, Owner: core, Doc: "a step (one model request and its calls) begins", Check: shape(checkStep)},
		{Type: TypeStepEnd, Owner: core, Doc: "a step ended", Check: shape(checkStep)},
		{Type: TypeUserMessage, Owner: core, Class: ClassSurface, Doc: "a message to the model: human, injected or summary", Check: shape(checkUser)},
		{Type: TypeAssistantChunk, Owner: core, Doc: "streamed deltas, coalesced"},
		{Type: TypeAssistantMessage, Owner: core, Class: ClassSurface, Doc: "what the model said in a step", Check: shape(checkAssistant)},
		{Type: TypeToolCall, Owner: core, Doc: "a tool call is about to run", Check: shape(checkCall)},
		{Type: TypeToolResult, Owner: core, Class: ClassSurface, Doc: "the result of a tool call", Check: shape(checkResult)},
		{Type: TypeInboxSpliced, Owner: core, Doc: "accepted input was queued, claimed or withdrawn", Check: shape(checkInbox)},
		{Type: TypeRequestHeader, Owner: core, Doc: "model route, system prompt and tools from here on", Check: shape(nothing[RequestHeader])},
		{Type: TypeRequestContext, Owner: core, Doc: "provider, model and context window, when changed", Check: shape(nothing[RequestContext])},
		{Type: TypeTodoWrite, Owner: core, Doc: "the todo list, whole", Check: shape(nothing[TodoWrite])},
		{Type: TypeTitle, Owner: core, Doc: "the session's title", Check: shape(nothing[Title])},
		{Type: TypeSettings, Owner: core, Doc: "what must survive a resume", Check: shape(nothing[Settings])},
		{Type: TypeInherited, Owner: core, Doc: "the boundary: everything below was written by an earlier life", reserved: true},
		{Type: TypeLost, Owner: core, Class: ClassSurface, Doc: "stands for a record that storage lost", Check: shape(nothing[Lost]), reserved: true},
		{Type: TypeHide, Owner: core, Class: ClassControl, Doc: "hides a range of the surface (undo, trimming)", Check: shape(nothing[Hide])},
		{Type: TypeRestore, Owner: core, Class: ClassControl, Doc: "takes back a replacement or a hide"},
		{Type: TypeApprovalAsked, Owner: core, Doc: "a call waits for a person", Opens: "approval", Key: "askId", Outlives: true, Check: shape(checkAsked)},
		{Type: TypeApprovalDecided, Owner: core, Doc: "the answer", Closes: "approval", Key: "askId", Check: shape(checkDecided)},
		{Type: TypeApprovalPolicy, Owner: core, Doc: "the approval policy from here on", Check: shape(nothing[ApprovalPolicy])},
	}
}

// meaning reports whether State.fold looks at events of a type by name. Chunks, the bulk of every log, are
// not among them.
func meaning(typ string) bool {
	switch typ {
	case TypeTurnStart, TypeTurnEnd, TypeStepStart, TypeStepEnd, TypeUserMessage, TypeAssistantMessage, TypeToolCall,
		TypeToolResult, TypeInboxSpliced, TypeRequestHeader, TypeRequestContext, TypeTodoWrite, TypeTitle, TypeSettings,
		TypeInherited, TypeLost, TypeApprovalAsked, TypeApprovalDecided, TypeApprovalPolicy:
		return true
	}
	return false
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

func nothing[T any](T) error { return nil }

func checkTurn(t TurnStart) error {
	if t.Turn < 1 {
		return errors.New("turn must be 1 or more")
	}
	return nil
}

func checkTurnEnd(t TurnEnd) error {
	if t.Reason.Kind == "" {
		return errors.New("reason has no kind")
	}
	return checkTurn(TurnStart{t.Turn})
}

func checkStep(s StepRef) error {
	if s.Step < 1 {
		return errors.New("step must be 1 or more")
	}
	return checkTurn(TurnStart{s.Turn})
}

func checkUser(m message.Message) error {
	if m.Role != message.RoleUser {
		return fmt.Errorf("role %q: want user", m.Role)
	}
	return nil
}

func checkAssistant(a AssistantMessage) error {
	if a.Message.Role != message.RoleAssistant {
		return fmt.Errorf("role %q: want assistant", a.Message.Role)
	}
	return checkStep(StepRef{a.Turn, a.Step})
}

func checkCall(c ToolCall) error {
	if c.CallID == "" {
		return errors.New("no callId")
	}
	return checkStep(StepRef{c.Turn, c.Step})
}

func checkResult(r ToolResult) error {
	if n := len(r.Message.Content); n != 1 || r.Message.Content[0].Type != message.ToolResult {
		return errors.New("the message must hold exactly one tool-result block")
	}
	if r.Message.Content[0].ToolCallID == "" {
		return errors.New("no toolCallId")
	}
	return checkStep(StepRef{r.Turn, r.Step})
}

func checkInbox(i InboxSpliced) error {
	switch {
	case i.Target != NextTurn && i.Target != NextStep:
		return fmt.Errorf("target %q: want next-turn or next-step", i.Target)
	case i.Start < 0 || i.RemovedCount < 0:
		return errors.New("a negative position")
	}
	return nil
}

func checkAsked(a ApprovalAsked) error {
	if a.AskID == "" || a.CallID == "" {
		return errors.New("askId and callId are required")
	}
	if a.Index < 0 || a.Assistant != nil && *a.Assistant < 0 {
		return errors.New("assistant and index say which call is meant: both are 0 or more")
	}
	return checkStep(StepRef{a.Turn, a.Step})
}

func checkDecided(d ApprovalDecided) error {
	if d.AskID == "" {
		return errors.New("no askId")
	}
	if d.Verdict != VerdictAllow && d.Verdict != VerdictDeny {
		return fmt.Errorf("verdict %q: want allow or deny", d.Verdict)
	}
	return nil
}
