package view

import (
	"fmt"
	"slices"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// Builder builds views of one session again and again. It keeps what it built as long as the surface only
// grew (same generation); else it starts anew. A Builder is not safe for concurrent use; the views that it
// returned are never changed by it.
type Builder struct {
	opt Options

	// What was seen: the number of items, the generation and the last item's seq prove that the new
	// items begin with the old ones.
	n    int
	gen  uint64
	last session.Seq

	msgs   []message.Message
	shared int // msgs[:shared] was handed out: changing it copies msgs first
	dirty  int // the first index of msgs that changed since the last merge
	notes  []Note

	calls   []call
	asked   map[string]bool  // the logged ids of all calls
	byStep  map[inStep]chain // the calls with one id of one step
	byPlace map[place]int    // nil until a closer is seen
	used    map[string]bool  // ids that the view contains
	open    []int            // calls without a result on the surface, ascending
	strays  []stray          // results without a call, in order
	early   map[inStep][]int // strays that a later call of their step may adopt
	group   int              // the first call of the last assistant message with calls ..
	behind  int              // .. and the index in msgs behind its results
	lostAt  int              // index of the notice if it is the last message, else -1
	lost    int              // records in the run at lostAt

	merged merger
}

// inStep is an id as logged and where it was asked for or answered.
type inStep struct {
	id         string
	turn, step int
}

// chain is a list of calls, in order, linked by call.next.
type chain struct{ first, last int }

// place identifies a call.
type place struct {
	assistant session.Seq
	index     int
}

type call struct {
	session.Call
	id   string // in the view
	pos  int    // of its result in msgs
	has  bool
	next int // in its chain, 0: the last
	// code of the supplied result while !has; "": not supplied yet.
	code string
}

// stray is a result that found no call.
type stray struct {
	item    session.Item
	kind    NoteKind
	why     string
	adopted bool // by a call that came later
}

// NewBuilder returns a Builder for a provider.
func NewBuilder(opt Options) *Builder {
	if opt.MediaTypes == nil {
		opt.MediaTypes = defaultMediaTypes
	}
	b := &Builder{opt: opt}
	b.reset()
	return b
}

func (b *Builder) reset() {
	*b = Builder{
		opt: b.opt, lostAt: -1, last: session.None,
		asked: make(map[string]bool), byStep: make(map[inStep]chain),
		used: make(map[string]bool), early: make(map[inStep][]int),
	}
}

// Update returns the view of items, which equals BuildWith of the same. Its cost is that of the items
// beyond those of the last call, plus that of the calls which lack a result.
func (b *Builder) Update(items []session.Item, st session.State) View {
	if st.Generation() != b.gen || len(items) < b.n || b.n > 0 && items[b.n-1].Seq != b.last {
		b.reset()
		b.gen = st.Generation()
	}
	if b.n == 0 {
		b.msgs = make([]message.Message, 0, len(items)+4)
	}
	for _, it := range items[b.n:] {
		b.add(it)
	}
	if b.n = len(items); b.n > 0 {
		b.last = items[b.n-1].Seq
	}
	missing := b.supply(st)
	v := View{Messages: b.msgs, Notes: slices.Clip(b.notes)}
	for _, s := range b.strays {
		if s.adopted {
			continue
		}
		v.Notes = append(v.Notes, Note{Kind: s.kind, Seq: s.item.Seq, Detail: s.why})
	}
	v.Notes = slices.Clip(append(v.Notes, missing...))
	b.shared = len(b.msgs)
	if b.opt.MergeRoles {
		v.Messages = b.merged.update(b.msgs, b.dirty, b.opt.Provider)
	}
	b.dirty = len(b.msgs)
	v.Messages = slices.Clip(v.Messages)
	return v
}

func (b *Builder) note(kind NoteKind, seq session.Seq, format string, args ...any) {
	b.notes = append(b.notes, Note{Kind: kind, Seq: seq, Detail: fmt.Sprintf(format, args...)})
}

// set changes a message that may have been handed out.
func (b *Builder) set(pos int, m message.Message) {
	if pos < b.shared {
		b.msgs, b.shared = slices.Clone(b.msgs), 0
	}
	b.msgs[pos] = m
	b.dirty = min(b.dirty, pos)
}

func (b *Builder) emit(m message.Message) {
	b.msgs = append(b.msgs, m)
	b.lostAt = -1
}

func (b *Builder) add(it session.Item) {
	switch {
	case it.Lost:
		b.addLost(it)
	case it.Hide:
	case it.Type == session.TypeToolResult:
		b.addResult(it)
	case it.Type == session.TypeAssistantMessage:
		b.addAssistant(it)
	default: // user/message, and what packages put on the surface
		m, _ := b.clean(it, message.RoleUser)
		if len(m.Content) > 0 {
			b.emit(m)
		}
	}
}

// addLost makes one notice of a run of lost records. What yields no message does not end a run.
func (b *Builder) addLost(it session.Item) {
	if b.lostAt < 0 {
		b.note(Lost, it.Seq, "storage lost records here")
		b.lost = 0
		b.emit(message.Message{ID: fmt.Sprintf("lost-%d", it.Seq), Role: message.RoleUser,
			Source: message.Source{Kind: message.SourcePlugin, Plugin: "session"}})
		b.lostAt = len(b.msgs) - 1
	}
	b.lost++
	text := fmt.Sprintf("[%d records of this conversation were lost in storage here. What they said is missing.]", b.lost)
	if b.lost == 1 {
		text = "[1 record of this conversation was lost in storage here. What it said is missing.]"
	}
	m := b.msgs[b.lostAt]
	m.Content = []message.Block{message.TextBlock(text)}
	b.set(b.lostAt, m)
}

func (b *Builder) addAssistant(it session.Item) {
	m, raw := b.clean(it, message.RoleAssistant)
	if len(m.Content) == 0 {
		return
	}
	first := len(b.calls)
	owned := false
	for i, k := 0, 0; i < len(m.Content); i++ {
		if m.Content[i].Type != message.ToolCall {
			continue
		}
		c := call{Call: session.Call{
			Assistant: it.Seq, Index: k, ID: raw[k].ID, Name: raw[k].Name, Turn: it.Turn, Step: it.Step, Started: session.None,
		}}
		c.id = b.unique(m.Content[i].ID, c.Assistant, k)
		if c.id != m.Content[i].ID {
			b.note(Renamed, it.Seq, "the id %q of call %d was used before; renamed to %q", raw[k].ID, k, c.id)
			if !owned {
				m.Content, owned = slices.Clone(m.Content), true
			}
			m.Content[i].ID = c.id
		}
		b.calls = append(b.calls, c)
		k++
	}
	b.emit(m)
	for i := first; i < len(b.calls); i++ {
		c := &b.calls[i]
		c.pos = len(b.msgs)
		b.emit(message.Message{}) // filled by its result or by supply
		at := inStep{c.ID, c.Turn, c.Step}
		b.asked[c.ID] = true
		if own, ok := b.byStep[at]; ok {
			b.calls[own.last].next = i
			b.byStep[at] = chain{own.first, i}
		} else {
			b.byStep[at] = chain{i, i}
		}
		if b.byPlace != nil {
			b.byPlace[place{c.Assistant, c.Index}] = i
		}
		b.open = append(b.open, i)
	}
	if first == len(b.calls) {
		return
	}
	b.group, b.behind = first, len(b.msgs)
	for i := first; i < len(b.calls); i++ {
		b.adopt(i)
	}
}

// unique returns the name of a call in the view: its id, if no earlier call has it.
func (b *Builder) unique(id string, assistant session.Seq, index int) string {
	if id == "" || b.used[id] {
		if id == "" {
			id = "call"
		}
		for id = fmt.Sprintf("%s-%d-%d", id, assistant, index); b.used[id]; {
			id += "x"
		}
	}
	b.used[id] = true
	return id
}

// adopt gives call i a result of its own turn and step that was logged ahead of it.
func (b *Builder) adopt(i int) {
	c := b.calls[i]
	at := inStep{c.ID, c.Turn, c.Step}
	waiting := b.early[at]
	if len(waiting) == 0 {
		return
	}
	b.early[at] = waiting[1:]
	s := &b.strays[waiting[0]]
	s.adopted = true
	b.settle(i, s.item, true)
}

func (b *Builder) addResult(it session.Item) {
	r, ok := resultBlock(it.Message)
	if !ok {
		b.stray(it, Stranger, "a result without a tool-result block")
		return
	}
	if assistant, index, ok := session.MissingFor(it.Message.ID, it.Code); ok {
		i, found := b.find(assistant, index)
		switch {
		case !found:
			b.stray(it, Stranger, fmt.Sprintf("closes call %d of seq %d, which is not on the surface", index, assistant))
		case b.calls[i].has:
			b.stray(it, Duplicate, fmt.Sprintf("call %d of seq %d has a result", index, assistant))
		default:
			b.settle(i, it, false)
		}
		return
	}
	at := inStep{r.ToolCallID, it.Turn, it.Step}
	own, asked := b.byStep[at]
	for i := own.first; asked; i = b.calls[i].next {
		if !b.calls[i].has {
			b.settle(i, it, false)
			return
		}
		if i == own.last {
			break
		}
	}
	if !asked {
		for k := len(b.open) - 1; k >= 0; k-- {
			if i := b.open[k]; b.calls[i].ID == r.ToolCallID {
				b.settle(i, it, false)
				return
			}
		}
	}
	if b.asked[r.ToolCallID] {
		b.stray(it, Duplicate, fmt.Sprintf("the call %q has a result", r.ToolCallID))
		return
	}
	b.early[at] = append(b.early[at], len(b.strays))
	b.stray(it, Stranger, fmt.Sprintf("nobody asked for the call %q", r.ToolCallID))
}

// find returns the call at a place.
func (b *Builder) find(assistant session.Seq, index int) (int, bool) {
	if b.byPlace == nil {
		b.byPlace = make(map[place]int, len(b.calls))
		for i, c := range b.calls {
			b.byPlace[place{c.Assistant, c.Index}] = i
		}
	}
	i, ok := b.byPlace[place{assistant, index}]
	return i, ok
}

func (b *Builder) stray(it session.Item, kind NoteKind, why string) {
	b.strays = append(b.strays, stray{item: it, kind: kind, why: why})
}

// settle puts the result it into the place of call i; ahead says that it was logged before the call.
func (b *Builder) settle(i int, it session.Item, ahead bool) {
	c := &b.calls[i]
	c.has = true
	// Results of one message in another order than its calls are no news: parallel tools end as they end.
	k, _ := slices.BinarySearch(b.open, i)
	if ahead || i < b.group || b.behind != len(b.msgs) {
		b.note(Moved, it.Seq, "the result of call %d of seq %d stood elsewhere", c.Index, c.Assistant)
	}
	b.open = slices.Delete(b.open, k, k+1)
	b.set(c.pos, b.cleanResult(it, *c))
}

// supply fills the places of calls without a result, and returns a note for each.
func (b *Builder) supply(st session.State) []Note {
	if len(b.open) == 0 {
		return nil
	}
	codes := make(map[place]string, len(b.open))
	for _, c := range st.OpenCalls() {
		codes[place{c.Assistant, c.Index}] = st.Code(c)
	}
	notes := make([]Note, 0, len(b.open))
	for _, i := range b.open {
		c := &b.calls[i]
		code, ok := codes[place{c.Assistant, c.Index}]
		if !ok {
			code = session.CodeOutcomeUnknown
		}
		if code != c.code {
			c.code = code
			m := session.MissingResult(c.Call, code)
			b.set(c.pos, renameResult(m, c.id))
		}
		notes = append(notes, Note{Kind: Missing, Seq: c.Assistant, Code: code,
			Detail: fmt.Sprintf("call %d (%s, %q) has no result: %s", c.Index, c.Name, c.ID, code)})
	}
	return notes
}
