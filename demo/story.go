package demo

import (
	"errors"
	"os"
	"path/filepath"
)

// The project: a script with a mistake in it, and a deployment that must happen once.
const (
	scriptName = "greet.sh"
	deployLog  = "deploys.log"
	pidFile    = "deploy.pid"
	before     = "#!/bin/sh\necho \"Hello, wrold\"\n"
	after      = "#!/bin/sh\necho \"Hello, world\"\n"
	deploying  = "deploying .." // what the deployment prints once it has had its effect
)

// prompts are what the person says, first and after the crash.
const (
	firstPrompt  = "Fix the typo in greet.sh, then deploy."
	secondPrompt = "Go on."
)

// deploy has an effect that must not happen twice, and then takes longer than anybody waits.
const deploy = `echo \"v1\" >> deploys.log; echo $$ > deploy.pid; echo \"deploying ..\"; exec sleep 60`

// firstScript is what the model says before the crash.
const firstScript = `{"text":"I look at the script first.","toolCalls":[{"name":"read","arguments":{"path":"greet.sh"}}],"usage":{"inputTokens":210,"outputTokens":18}}
{"text":"A typo. I fix it.","toolCalls":[{"name":"edit","arguments":{"path":"greet.sh","oldString":"wrold","newString":"world"}}],"usage":{"inputTokens":260,"outputTokens":24}}
{"text":"Now I deploy.","toolCalls":[{"name":"bash","arguments":{"command":"` + deploy + `"}}],"usage":{"inputTokens":310,"outputTokens":22}}
`

// secondScript is what it says afterwards: it reads that the outcome is not known, and looks.
const secondScript = `{"text":"The outcome of the deployment is not known. I look before I do anything.","toolCalls":[{"name":"bash","arguments":{"command":"cat deploys.log; sh greet.sh"}}],"usage":{"inputTokens":420,"outputTokens":30}}
{"text":"It was deployed, once, and the script is right. I note it.","toolCalls":[{"name":"write","arguments":{"path":"CHANGES.md","content":"- greet.sh: typo fixed, deployed as v1\n"}}],"usage":{"inputTokens":480,"outputTokens":28}}
{"text":"Done: the typo is fixed and v1 was deployed once.","usage":{"inputTokens":520,"outputTokens":16}}
`

// summaries are what it writes when it is asked for one: the first is not finished, for its process is killed.
const (
	halfSummary  = `{"purpose":"compaction","text":"The typo in greet.sh ..","hang":true}` + "\n"
	wholeSummary = `{"purpose":"compaction","text":"The typo in greet.sh is fixed; v1 was deployed once; CHANGES.md says so.","usage":{"inputTokens":560,"outputTokens":20}}` + "\n"
)

const (
	halfFile   = "half.jsonl"
	wholeFile  = "whole.jsonl"
	firstFile  = "first.jsonl"
	secondFile = "second.jsonl"
	workDir    = "project"
	storeDir   = "store"
)

// prepare writes the project and the scripts into dir.
func prepare(dir string) error {
	work := filepath.Join(dir, workDir)
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(work, scriptName), []byte(before), 0o600),
		os.WriteFile(filepath.Join(dir, firstFile), []byte(firstScript), 0o600),
		os.WriteFile(filepath.Join(dir, secondFile), []byte(secondScript), 0o600),
		os.WriteFile(filepath.Join(dir, halfFile), []byte(halfSummary), 0o600),
		os.WriteFile(filepath.Join(dir, wholeFile), []byte(wholeSummary), 0o600),
	)
}
