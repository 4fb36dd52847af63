package session

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
)

// coreKinds is the vocabulary of this package.
func coreKinds() []Kind {
	const core = "session"
	return []Kind{
		{Type: TypeTurnStart, Owner: core, Doc: "a turn begins", Check: shape[TurnStart](checkTurn)},
		{Type: TypeTurnEnd, Owner: core, Doc: "a turn ended, and why", Check: shape[TurnEnd](checkTurnEnd)},
		{Type: TypeStepStart, Owner: core, Doc: "a step (one model request and its calls) begins", Check: shape[StepRef](checkStep)},
		{Type: TypeStepEnd, Owner: core, Doc: "a step ended", Check: shape[StepRef](checkStep)},
		{Type: TypeUserMessage, Owner: core, Class: ClassSurface, Doc: "a message to the model: human, injected or summary", Check: shape[message.Message](checkUser)},
		{Type: TypeAssistantChunk, Owner: core, Doc: "streamed deltas, coalesced"},
		{Type: TypeAssistantMessage, Owner: core, Class: ClassSurface, Doc: "what the model said in a step", Check: shape[AssistantMessage](checkAssistant)},
		{Type: TypeToolCall, Owner: core, Doc: "a tool call is about to run", Check: shape[ToolCall](checkCall)},
		{Type: TypeToolResult, Owner: core, Class: ClassSurface, Doc: "the result of a tool call", Check: shape[ToolResult](checkResult)},
		{Type: TypeInboxSpliced, Owner: core, Doc: "accepted input was queued, claimed or withdrawn", Check: shape[InboxSpliced](checkInbox)},
		{Type: TypeRequestHeader, Owner: core, Doc: "model route, system prompt and tools from here on", Check: shape[RequestHeader](nil)},
		{Type: TypeRequestContext, Owner: core, Doc: "provider, model and context window, when changed", Check: shape[RequestContext](nil)},
		{Type: TypeTodoWrite, Owner: core, Doc: "the todo list, whole", Check: shape[TodoWrite](nil)},
		{Type: TypeTitle, Owner: core, Doc: "the session's title", Check: shape[Title](nil)},
		{Type: TypeSettings, Owner: core, Doc: "what must survive a resume", Check: shape[Settings](nil)},
		{Type: TypeInherited, Owner: core, Doc: "the boundary: everything below was written by an earlier life", reserved: true},
		{Type: TypeLost, Owner: core, Class: ClassSurface, Doc: "stands for a record that storage lost", Check: shape[Lost](nil), reserved: true},
		{Type: TypeHide, Owner: core, Class: ClassControl, Doc: "hides a range of the surface (undo, trimming)", Check: shape[Hide](nil)},
		{Type: TypeRestore, Owner: core, Class: ClassControl, Doc: "takes back a replacement or a hide"},
		{Type: TypeApprovalAsked, Owner: core, Doc: "a call waits for a person", Opens: "approval", Key: "askId", Outlives: true, Check: shape[ApprovalAsked](checkAsked)},
		{Type: TypeApprovalDecided, Owner: core, Doc: "the answer", Closes: "approval", Key: "askId", Check: shape[ApprovalDecided](checkDecided)},
		{Type: TypeApprovalPolicy, Owner: core, Doc: "the approval policy from here on", Check: shape[ApprovalPolicy](nil)},
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

func checkTurn(v jsontext.Value) error {
	if n, _ := fieldInt(v, "turn"); n < 1 {
		return errors.New("turn must be 1 or more")
	}
	return nil
}

func checkTurnEnd(v jsontext.Value) error {
	if reason, _ := Field(v, "reason"); !hasText(reason, "kind") {
		return errors.New("reason has no kind")
	}
	return checkTurn(v)
}

func checkStep(v jsontext.Value) error {
	if n, _ := fieldInt(v, "step"); n < 1 {
		return errors.New("step must be 1 or more")
	}
	return checkTurn(v)
}

func checkRole(msg jsontext.Value, want message.Role) error {
	if !fieldIs(msg, "role", string(want)) {
		return fmt.Errorf("role %q: want %s", fieldString(msg, "role"), want)
	}
	return nil
}

func checkUser(v jsontext.Value) error { return checkRole(v, message.RoleUser) }

func checkAssistant(v jsontext.Value) error {
	msg, _ := Field(v, "message")
	return cmp.Or(checkRole(msg, message.RoleAssistant), checkStep(v))
}

func checkCall(v jsontext.Value) error {
	if !hasText(v, "callId") {
		return errors.New("no callId")
	}
	return checkStep(v)
}

func checkResult(v jsontext.Value) error {
	msg, _ := Field(v, "message")
	content, _ := Field(msg, "content")
	n, block := 0, jsontext.Value(nil)
	eachElement(content, func(value []byte) { n, block = n+1, value })
	if n != 1 || !fieldIs(block, "type", string(message.ToolResult)) {
		return errors.New("the message must hold exactly one tool-result block")
	}
	if !hasText(block, "toolCallId") {
		return errors.New("no toolCallId")
	}
	return checkStep(v)
}

func checkInbox(v jsontext.Value) error {
	if !fieldIs(v, "target", string(NextTurn)) && !fieldIs(v, "target", string(NextStep)) {
		return fmt.Errorf("target %q: want next-turn or next-step", fieldString(v, "target"))
	}
	start, _ := fieldInt(v, "start")
	removed, _ := fieldInt(v, "removedCount")
	if start < 0 || removed < 0 {
		return errors.New("a negative position")
	}
	return nil
}

func checkAsked(v jsontext.Value) error {
	if !hasText(v, "askId") || !hasText(v, "callId") {
		return errors.New("askId and callId are required")
	}
	assistant, _ := fieldInt(v, "assistant")
	index, _ := fieldInt(v, "index")
	if index < 0 || assistant < 0 {
		return errors.New("assistant and index say which call is meant: both are 0 or more")
	}
	return checkStep(v)
}

func checkDecided(v jsontext.Value) error {
	if !hasText(v, "askId") {
		return errors.New("no askId")
	}
	if verdict := fieldString(v, "verdict"); verdict != VerdictAllow && verdict != VerdictDeny {
		return fmt.Errorf("verdict %q: want allow or deny", verdict)
	}
	return nil
}
