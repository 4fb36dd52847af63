package session

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
)

// Spent is what the answers of one model told of their tokens.
type Spent struct {
	Provider, Model string
	// Total counts the whole log; Own the part that this session logged itself, nil if nothing in it told any.
	Total message.Usage
	Own   *message.Usage
}

// spending is what was spent, by model. Nearly every log has one model, or stays with one for long: that is now.
type spending struct {
	now    spent
	before []spent // of other models; elements are never changed
}

type spent struct {
	provider, model  string
	total, own       message.Usage
	answers, ownAnsw int
}

// of brings the entry of a model to now. The names are raw JSON texts.
func (s *spending) of(provider, model jsontext.Value) *spent {
	p, m := rawString(provider), rawString(model)
	if s.now.provider == string(p) && s.now.model == string(m) {
		return &s.now
	}
	others := slices.Clone(s.before)
	if s.now.answers > 0 {
		others = append(others, s.now)
	}
	s.now = spent{provider: string(p), model: string(m)}
	if i := slices.IndexFunc(others, func(o spent) bool { return o.provider == s.now.provider && o.model == s.now.model }); i >= 0 {
		s.now = others[i]
		others = slices.Delete(others, i, i+1)
	}
	s.before = others
	return &s.now
}

// rawString is the text of a JSON string without a copy where it has no escapes.
func rawString(v jsontext.Value) []byte {
	if len(v) < 2 || v[0] != '"' {
		return nil
	}
	if in := v[1 : len(v)-1]; bytes.IndexByte(in, '\\') < 0 {
		return in
	}
	var s string
	if json.Unmarshal(v, &s) != nil {
		return nil
	}
	return []byte(s)
}

// inherited is the spending of a child: nothing of it is its own.
func (s spending) inherited() spending {
	s.before = slices.Clone(s.before)
	for i := range s.before {
		s.before[i].own, s.before[i].ownAnsw = message.Usage{}, 0
	}
	s.now.own, s.now.ownAnsw = message.Usage{}, 0
	return s
}

// Spent returns what was spent, by model, in the order in which the models were last changed to. No entry: no
// answer told its usage, which is not zero.
func (s State) Spent() []Spent {
	var out []Spent
	for _, sp := range append(slices.Clip(s.spent.before), s.spent.now) {
		if sp.answers == 0 {
			continue
		}
		o := Spent{Provider: sp.provider, Model: sp.model, Total: sp.total}
		if sp.ownAnsw > 0 {
			o.Own = &sp.own
		}
		out = append(out, o)
	}
	return out
}

// Usage returns the tokens of the whole log, and of the part that this session logged itself.
// Nil: no answer told any, which is not zero.
func (s State) Usage() (total, own *message.Usage) {
	add := func(to **message.Usage, u message.Usage) {
		if *to != nil {
			u = (*to).Add(u)
		}
		*to = &u
	}
	for _, sp := range s.Spent() {
		add(&total, sp.Total)
		if sp.Own != nil {
			add(&own, *sp.Own)
		}
	}
	return total, own
}

// answer is the last answer on the surface that told its usage.
type answer struct {
	seq    Seq
	gen    uint64 // of the surface behind it
	header Seq    // the request/header in force
}

// Anchor returns the last assistant/message that told its usage, and the request/header that was in force, if
// everything that the surface held then stands there still, so that what it told holds of what is sent now.
func (s State) Anchor() (seq, header Seq, ok bool) {
	a := s.answer
	return a.seq, a.header, a.seq != None && a.gen == s.surf.gen
}

// foldCost counts what an event of a package tells of a request of its own.
func (s *State) foldCost(ev *Event) {
	if usage, ok := Field(ev.Data, "usage"); ok && len(usage) > 2 {
		s.foldUsage(ev, usage, ev.Data)
	}
}

// foldUsage counts a usage; of names the provider and the model.
func (s *State) foldUsage(ev *Event, usage, of jsontext.Value) bool {
	u, provider, model, err := readUsage(usage, of)
	if err != nil {
		s.problem(ev.Seq, "shape", "usage: "+err.Error())
		return false
	}
	sp := s.spent.of(provider, model)
	sp.total = sp.total.Add(u)
	sp.answers++
	if ev.Seq >= s.header.Shared() {
		sp.own = sp.own.Add(u)
		sp.ownAnsw++
	}
	return true
}

// readUsage returns a usage, and the raw names of the provider and the model that of names.
func readUsage(usage, of jsontext.Value) (u message.Usage, provider, model jsontext.Value, err error) {
	u, ok := plainUsage(usage)
	if !ok {
		if err := json.Unmarshal(usage, &u); err != nil {
			return u, nil, nil, err
		}
	}
	eachMember(of, func(name, value []byte) {
		switch string(name) {
		case `"provider"`:
			provider = value
		case `"model"`:
			model = value
		}
	})
	return u, provider, model, nil
}

// UsageOf returns what the single event ev tells of the tokens of a request, and of which model: what State.Spent sums up.
func (r *Registry) UsageOf(ev Event) (u message.Usage, provider, model string, ok bool) {
	k, known := r.lookup(ev.Type)
	if !known || ev.Type != TypeAssistantMessage && !k.Usage {
		return u, "", "", false
	}
	usage, _ := Field(ev.Data, "usage")
	if len(usage) <= 2 {
		return u, "", "", false
	}
	of := ev.Data
	if ev.Type == TypeAssistantMessage {
		msg, _ := Field(ev.Data, "message")
		of, _ = Field(msg, "source")
	}
	u, p, m, err := readUsage(usage, of)
	return u, string(rawString(p)), string(rawString(m)), err == nil
}

// plainUsage reads what nearly every usage is: the two counts that are always there, and nothing else.
func plainUsage(v jsontext.Value) (message.Usage, bool) {
	in, ok := fieldInt(v, "inputTokens")
	out, ok2 := fieldInt(v, "outputTokens")
	if !ok || !ok2 || bytes.Count(v, []byte{':'}) != 2 {
		return message.Usage{}, false
	}
	return message.Usage{InputTokens: int64(in), OutputTokens: int64(out)}, true
}
