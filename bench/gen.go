package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// TurnEvents is the length of a generated turn: four steps of one call each, streamed in small chunks.
const TurnEvents = 208

// Turn returns the drafts of the n-th turn (from 1) of a generated session. The same n gives the same turn.
func Turn(n int) []session.Draft {
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	var out []session.Draft
	log := func(typ string, data any) { out = append(out, session.Draft{Type: typ, Data: raw(data)}) }
	surface := func(typ string, data any, src session.Sources) {
		out = append(out, session.Draft{Type: typ, Data: raw(data), Op: session.Append(), Sources: src})
	}
	user := message.User(fmt.Sprintf("u-%d", n), someWords(rng, 20))
	log(session.TypeInboxSpliced, session.InboxSpliced{Target: session.NextTurn, Inserted: []message.Message{user}})
	log(session.TypeTurnStart, session.TurnStart{Turn: n})
	log(session.TypeInboxSpliced, session.InboxSpliced{Target: session.NextTurn, RemovedCount: 1, Inserted: []message.Message{}, Outcome: session.OutcomeClaimed})
	const steps, chunks = 4, 45
	for step := 1; step <= steps; step++ {
		ref := session.StepRef{Turn: n, Step: step}
		log(session.TypeStepStart, ref)
		if step == 1 {
			surface(session.TypeUserMessage, user, nil)
		}
		first := session.Seq((n-1)*TurnEvents + len(out))
		var text strings.Builder
		for range chunks {
			w := someWords(rng, 3+rng.IntN(8))
			text.WriteString(w)
			log(session.TypeAssistantChunk, session.AssistantChunk{Turn: n, Step: step,
				Chunk: raw(map[string]any{"type": "text-delta", "index": 0, "text": w})})
		}
		call := fmt.Sprintf("call-%d-%d", n, step)
		args := fmt.Sprintf(`{"path":"src/%s.go","offset":%d}`, someWords(rng, 1), rng.IntN(900))
		surface(session.TypeAssistantMessage, session.AssistantMessage{Turn: n, Step: step,
			Message: message.Message{ID: fmt.Sprintf("a-%d-%d", n, step), Role: message.RoleAssistant,
				Content: []message.Block{message.TextBlock(text.String()), message.CallBlock(call, "read", args)},
				Source:  message.Source{Kind: message.SourceModel, Provider: "bench", Model: "bench"}},
			Usage: &message.Usage{InputTokens: int64(900 + rng.IntN(90)), OutputTokens: 300}, ResponseID: "r-" + call},
			session.Sources{{First: first, Last: first + chunks - 1}})
		log(session.TypeToolCall, session.ToolCall{Turn: n, Step: step, CallID: call, Name: "read", Arguments: args})
		surface(session.TypeToolResult, session.ToolResult{Turn: n, Step: step,
			Message: message.Result("m-"+call, call, false, message.TextBlock(someWords(rng, 60+rng.IntN(200))))},
			session.Cite(session.Seq((n-1)*TurnEvents+len(out)-1)))
		log(session.TypeStepEnd, ref)
	}
	for len(out) < TurnEvents-1 {
		log(session.TypeTodoWrite, session.TodoWrite{Todos: []session.Todo{{Content: someWords(rng, 5), Status: "pending"}}})
	}
	log(session.TypeTurnEnd, session.TurnEnd{Turn: n, Reason: session.Reason{Kind: session.ReasonCompleted}})
	return out
}

// Events returns turn n as stored events that begin at seq (n-1)*TurnEvents.
func Events(n int) []session.Event {
	out := make([]session.Event, 0, TurnEvents)
	for i, d := range Turn(n) {
		data, err := session.CheckData(d.Data.([]byte))
		if err != nil {
			panic(err) // the generator's own data
		}
		out = append(out, session.Event{
			Seq: session.Seq((n-1)*TurnEvents + i), Time: 1_700_000_000_000 + int64(n*1000+i),
			Type: d.Type, Op: d.Op, Sources: d.Sources, Data: data,
		})
	}
	return out
}

func raw(v any) []byte {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err) // the generator's own data
	}
	return b
}

var vocabulary = strings.Fields(`the log is only ever appended to and every reader sees a valid prefix of it while one
	writer holds the lease func return error context session store segment record chain append flush sync fork turn
	step call result boundary surface view model token cache read write edit bash grep test build green line file`)

func someWords(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(vocabulary[rng.IntN(len(vocabulary))])
		b.WriteByte(' ')
	}
	return b.String()
}
