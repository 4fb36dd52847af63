package index

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/brief"
	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// Facts is what the index knows of a log's first Next events. It is a fold like session.State and agrees with it, but
// small: it is written down whole, and goes on from there with the events behind.
type Facts struct {
	Next session.Seq `json:"next"`
	Last string      `json:"last,omitzero"` // stands for event Next-1: who goes on looks whether it is still there

	Title        string      `json:"title,omitzero"` // the last one that was given
	ByUser       bool        `json:"byUser,omitzero"`
	First        string      `json:"first,omitzero"` // made of what a person said first: the title of who has none
	LastActivity int64       `json:"lastActivity"`
	Turn         session.Seq `json:"turn"` // the turn/start of the open turn; session.None
	Turns        int         `json:"turns"`
	Steps        int         `json:"steps"`
	ToolCalls    int         `json:"toolCalls"`
	Spent        []Spent     `json:"spent,omitzero"`   // by model
	Unknown      []string    `json:"unknown,omitzero"` // types that nobody declared and that are not ignorable

	Provider string           `json:"provider,omitzero"` // of the last request/context
	Model    string           `json:"model,omitzero"`
	Begun    *Begun           `json:"begun,omitzero"`  // the open turn and step; nil: none, or inherited
	StepAt   int64            `json:"stepAt,omitzero"` // when the step began that waits for its answer
	Running  map[string]int64 `json:"running,omitzero"`
}

// Begun is what is counted for a model that may turn out to be another one: a turn and a step begin before the log says who
// is asked, and the answer says who answered. What a step does is done by that one.
type Begun struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Turn     *int64 `json:"turn,omitzero"` // the quarter of the turn, until its first step was answered
	Step     *int64 `json:"step,omitzero"` // of the step, until it was
}

// Spent is what the answers of one model told of their tokens. Own leaves out what the session inherited: summed over
// sessions it counts a shared prefix once. Nil: none told any.
type Spent struct {
	Provider string         `json:"provider"`
	Model    string         `json:"model"`
	Total    message.Usage  `json:"total"`
	Own      *message.Usage `json:"own,omitzero"`
}

// Hour is a row of the table behind statistics: what a session did itself, without what it inherited, in a part of an hour with
// one model. A quarter is the most that ends wherever a day does: zones are half hours and quarters away from each other, too.
type Hour struct {
	Quarter  int64          `json:"quarter"` // of an hour, since 1970
	Provider string         `json:"provider"`
	Model    string         `json:"model"`            // that worked then; "" before the first was named
	Usage    *message.Usage `json:"usage,omitzero"`   // nil: no answer told any, which is not zero
	Turns    int            `json:"turns,omitzero"`   // that began
	Steps    int            `json:"steps,omitzero"`   // that began
	Calls    int            `json:"calls,omitzero"`   // of tools, that started
	ModelMS  int64          `json:"modelMs,omitzero"` // from the beginning of a step to its answer
	ToolMS   int64          `json:"toolMs,omitzero"`  // from a call's start to its result
}

// QuarterMS is how many milliseconds a quarter of an hour has.
const QuarterMS = 15 * 60_000

// add sums up two rows of the same quarter and model.
func (h Hour) add(o Hour) Hour {
	h.Turns, h.Steps, h.Calls = h.Turns+o.Turns, h.Steps+o.Steps, h.Calls+o.Calls
	h.ModelMS, h.ToolMS = h.ModelMS+o.ModelMS, h.ToolMS+o.ToolMS
	switch {
	case h.Usage == nil:
		h.Usage = o.Usage
	case o.Usage != nil:
		sum := h.Usage.Add(*o.Usage)
		h.Usage = &sum
	}
	return h
}

type hourKey struct {
	quarter         int64
	provider, model string
}

// hours collects what new events add. A sum may be less than nothing: what was counted for one model was another's.
type hours map[hourKey]Hour

func (h hours) add(d Hour) {
	k := hourKey{d.Quarter, d.Provider, d.Model}
	if was, ok := h[k]; ok {
		d = was.add(d)
	}
	h[k] = d
}

const maxUnknown = 1000 // as session.State has it

// begun returns the facts of an empty log.
func begun(h session.Header) Facts {
	return Facts{Turn: session.None, LastActivity: h.CreatedAt}
}

// fold takes in the next event. What it did in its quarter is added to add.
func (f *Facts) fold(h session.Header, reg *session.Registry, ev *session.Event, add hours) {
	f.Next = ev.Seq + 1
	own := ev.Seq >= h.Shared()
	if ev.Seq == h.Shared() { // nothing that was begun by another session is gone on with
		f.Begun, f.StepAt, f.Running = nil, 0, nil
	}
	did := func(d Hour) {
		if !own {
			return
		}
		d.Quarter, d.Provider, d.Model = quarterOf(ev.Time), f.Provider, f.Model
		if f.Begun != nil {
			d.Provider, d.Model = f.Begun.Provider, f.Begun.Model
		}
		add.add(d)
	}
	switch ev.Type {
	case session.TypeTurnStart:
		f.Turn = ev.Seq
		f.Turns++
		f.StepAt, f.Running = 0, nil
		f.begin(&Begun{Turn: new(quarterOf(ev.Time))}, own)
		did(Hour{Turns: 1})
	case session.TypeTurnEnd:
		f.Turn, f.Begun, f.StepAt, f.Running = session.None, nil, 0, nil
	case session.TypeStepStart:
		f.Steps++
		if f.StepAt = 0; own {
			f.StepAt = ev.Time
		}
		b := Begun{Step: new(quarterOf(ev.Time))}
		if f.Begun != nil && f.Begun.Step == nil {
			b.Turn = f.Begun.Turn
		}
		f.begin(&b, own)
		did(Hour{Steps: 1})
	case session.TypeRequestContext:
		if v, err := session.DecodeData[session.RequestContext](*ev); err == nil {
			f.Provider, f.Model = v.Provider, v.Model
			f.by(v.Provider, v.Model, add)
		}
	case session.TypeUserMessage:
		if f.First == "" && ev.Op.Kind == session.OpAppend {
			f.First = brief.Title(session.Project(*ev).Message)
		}
	case session.TypeToolCall:
		f.ToolCalls++
		did(Hour{Calls: 1})
		if v, err := session.DecodeData[session.ToolCall](*ev); err == nil && own {
			if f.Running == nil {
				f.Running = map[string]int64{}
			}
			f.Running[v.CallID] = ev.Time
		}
	case session.TypeToolResult:
		if len(f.Running) > 0 && ev.Op.Kind != session.OpReplace {
			m := session.Project(*ev).Message
			for _, b := range m.Content {
				if at, ok := f.Running[b.ToolCallID]; ok {
					delete(f.Running, b.ToolCallID)
					did(Hour{ToolMS: max(ev.Time-at, 0)})
				}
			}
		}
	case session.TypeTitle:
		if t, err := session.DecodeData[session.Title](*ev); err == nil && (t.Source == byUser || !f.ByUser) {
			f.Title, f.ByUser = t.Title, t.Source == byUser
		}
	default:
		if !ev.Ignorable && len(f.Unknown) < maxUnknown {
			if _, known := reg.Lookup(ev.Type); !known && !slices.Contains(f.Unknown, ev.Type) {
				f.Unknown = append(slices.Clip(f.Unknown), strings.Clone(ev.Type))
			}
		}
	}
	if u, provider, model, ok := reg.UsageOf(*ev); ok {
		f.spend(provider, model, u, own)
		if ev.Type == session.TypeAssistantMessage { // others are of requests beside the conversation
			f.by(provider, model, add)
		}
		if own {
			add.add(Hour{Quarter: quarterOf(ev.Time), Provider: provider, Model: model, Usage: &u})
		}
	}
	if ev.Type == session.TypeAssistantMessage && ev.Op.Kind != session.OpReplace {
		if f.StepAt != 0 {
			did(Hour{ModelMS: max(ev.Time-f.StepAt, 0)})
			f.StepAt = 0
		}
		if f.Begun != nil { // its calls are by the same
			f.Begun = &Begun{Provider: f.Begun.Provider, Model: f.Begun.Model}
		}
	}
	if session.IsActivity(*ev) {
		f.LastActivity = ev.Time
	}
}

// begin makes b what is begun, by who works now.
func (f *Facts) begin(b *Begun, own bool) {
	if f.Begun = nil; own {
		b.Provider, b.Model = f.Provider, f.Model
		f.Begun = b
	}
}

// by gives what is begun to a model.
func (f *Facts) by(provider, model string, add hours) {
	if f.Begun == nil || f.Begun.Turn == nil && f.Begun.Step == nil {
		return // it was answered
	}
	b := *f.Begun
	move := func(quarter *int64, turns, steps int) {
		if quarter != nil {
			add.add(Hour{Quarter: *quarter, Provider: b.Provider, Model: b.Model, Turns: -turns, Steps: -steps})
			add.add(Hour{Quarter: *quarter, Provider: provider, Model: model, Turns: turns, Steps: steps})
		}
	}
	move(b.Turn, 1, 0)
	move(b.Step, 0, 1)
	b.Provider, b.Model = provider, model
	f.Begun = &b
}

const byUser = "user" // the source of a title that a person gave: it stays

func (f *Facts) spend(provider, model string, u message.Usage, own bool) {
	i := slices.IndexFunc(f.Spent, func(s Spent) bool { return s.Provider == provider && s.Model == model })
	f.Spent = slices.Clone(f.Spent)
	if i < 0 {
		i = len(f.Spent)
		f.Spent = append(f.Spent, Spent{Provider: provider, Model: model})
	}
	s := &f.Spent[i]
	s.Total = s.Total.Add(u)
	if own {
		sum := u
		if s.Own != nil {
			sum = s.Own.Add(u)
		}
		s.Own = &sum
	}
}

// Called returns the title of a list's row.
func (f *Facts) Called() string {
	if f.Title != "" {
		return f.Title
	}
	return f.First
}

// Usage sums up what was spent; nil: nothing told any, which is not zero.
func (f *Facts) Usage() (total, own *message.Usage) {
	add := func(to **message.Usage, u message.Usage) {
		if *to != nil {
			u = (*to).Add(u)
		}
		*to = &u
	}
	for _, s := range f.Spent {
		add(&total, s.Total)
		if s.Own != nil {
			add(&own, *s.Own)
		}
	}
	return total, own
}

// digest stands for one event.
func digest(ev session.Event) string {
	h := sha256.New()
	var b [8]byte
	for _, n := range []int64{int64(ev.Seq), ev.Time} {
		binary.BigEndian.PutUint64(b[:], uint64(n))
		h.Write(b[:])
	}
	fmt.Fprintf(h, "%s\x00%s\x00%s", ev.Type, ev.Data, ev.Extra)
	return fmt.Sprintf("%x", h.Sum(nil)[:12])
}

func quarterOf(ms int64) int64 {
	n := ms / QuarterMS
	if ms%QuarterMS < 0 {
		n--
	}
	return n
}
