package dsh

import (
	"strings"

	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/session"
)

// target is what a type of the source becomes.
type target struct {
	name string
	// foreign: nobody here gives the type a meaning; it keeps its name and data, and is ignorable.
	foreign bool
	// shape brings the data into the form that it has here. It returns how, "" if nothing was to be done; ok is
	// false for data that cannot be read.
	shape func(*reader, *importer.Object) (how string, ok bool)
}

// types are those that have a meaning here, by all the names that they had.
var types = map[string]target{
	"turn/start":           {name: session.TypeTurnStart, shape: (*reader).turn},
	"turn/end":             {name: session.TypeTurnEnd, shape: (*reader).turnEnd},
	"step/start":           {name: session.TypeStepStart, shape: (*reader).step},
	"step/end":             {name: session.TypeStepEnd, shape: (*reader).step},
	"user/message":         {name: session.TypeUserMessage, shape: (*reader).user},
	"context/message":      {name: session.TypeUserMessage, shape: (*reader).context},
	"steering/message":     {name: session.TypeUserMessage, shape: (*reader).user},
	"assistant/chunk":      {name: session.TypeAssistantChunk},
	"assistant/message":    {name: session.TypeAssistantMessage, shape: (*reader).assistant},
	"tool/call":            {name: session.TypeToolCall, shape: (*reader).call},
	"tool/result":          {name: session.TypeToolResult, shape: (*reader).result},
	"agent/inbox/spliced":  {name: session.TypeInboxSpliced, shape: (*reader).inbox},
	"inbox/spliced":        {name: session.TypeInboxSpliced, shape: (*reader).inbox},
	"request/header":       {name: session.TypeRequestHeader, shape: (*reader).requestHeader},
	"request/context":      {name: session.TypeRequestContext},
	"todo/write":           {name: session.TypeTodoWrite},
	"session/title":        {name: session.TypeTitle, shape: (*reader).title},
	"session/inherited":    {name: session.TypeInherited, shape: (*reader).boundary},
	"session/end-seed":     {name: session.TypeInherited, shape: (*reader).boundary},
	"approval/asked":       {name: session.TypeApprovalAsked, shape: (*reader).asked},
	"approval/decided":     {name: session.TypeApprovalDecided, shape: (*reader).decided},
	"approval/policy":      {name: session.TypeApprovalPolicy, shape: (*reader).policy},
	"compaction/start":     {name: typeCompactStart},
	"compaction/summary":   {name: typeCompactSummary},
	"compaction/end":       {name: typeCompactEnd},
	"compaction/prune":     {name: typeCompactPrune},
	"compact/start":        {name: typeCompactStart},
	"compact/summary":      {name: typeCompactSummary},
	"compact/end":          {name: typeCompactEnd},
	"compact/prune":        {name: typeCompactPrune},
	"request/header-delta": {name: "request/header-delta", foreign: true},
	"prompt/blocked":       {name: "prompt/blocked", foreign: true},
	"bash/sandbox-mode":    {name: "bash/sandbox-mode", foreign: true},
	"sandbox/mode":         {name: "sandbox/mode", foreign: true},
	"permission/preset":    {name: "permission/preset", foreign: true},
	"plan/mode":            {name: "plan/mode", foreign: true},
	"goal/change":          {name: "goal/change", foreign: true},
	"schedule/change":      {name: "schedule/change", foreign: true},
	"feedback/record":      {name: "feedback/record", foreign: true},
	"subagent/descriptor":  {name: "subagent/descriptor", foreign: true},
}

// families are the beginnings of types that come in many: log-only, kept under their names.
var families = []string{"llm/retry", "hook/", "command/", "team/", "tool-workflow/", "tool/code-dispatch", "tool/ptc-dispatch"}

func family(typ string) (target, bool) {
	for _, f := range families {
		if strings.HasPrefix(typ, f) && len(typ) <= 100 {
			return target{name: typ, foreign: true}, true
		}
	}
	return target{}, false
}

// retired are rows without a slash that stood for something that now stands elsewhere, or nowhere.
var retired = map[string]bool{"usage": true, "error": true}

// packed are the rows that pack chunks, and the type of chunk in them.
var packed = map[string]string{
	"text-chunks": "text-delta", "reasoning-chunks": "reasoning-delta", "tool-call-chunks": "tool-call-delta",
}

// The types of a compaction, which another package declares. A session that was imported while it compacted shows
// a bracket that is open, and dead.
const (
	typeCompactStart   = "compact/start"
	typeCompactSummary = "compact/summary"
	typeCompactEnd     = "compact/end"
	typeCompactPrune   = "compact/prune"
)

// known are further types that the reader's own fold must not take for unknown; it needs no more of them.
func known() []session.Kind {
	var out []session.Kind
	for _, t := range []string{typeCompactStart, typeCompactSummary, typeCompactEnd, typeCompactPrune} {
		out = append(out, session.Kind{Type: t})
	}
	return out
}
