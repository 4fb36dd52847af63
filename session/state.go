package session

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/message"
)

// State is a log folded to what it means now. It is a value: Clone costs nothing that grows with the
// log, and what is done to a clone never shows in the original. A State is not safe for concurrent
// changes; reading a clone while the original goes on is.
//
// Load folds a stored event and accepts everything; Apply folds a new one and is strict.
type State struct {
	header Header
	reg    *Registry
	recent *Kind // the declaration looked up last

	next     Seq
	lastType string
	lastTime int64

	surf surface

	turn, step         int
	turnSeq, stepSeq   Seq // of the open turn and step; None when closed
	turnStarts         seqs
	steps, toolCalls   int
	calls              []Call // pending: without a result, of the open step, in the order of asking
	left               []Call // without a result, of a step or turn that was closed; all before calls
	asking             asking
	asked              []Ask // own, about pending calls, in the order of asking; not those that a cancellation decided
	nextTurn, nextStep []message.Message
	claimed            []claim

	open   []Bracket
	closed list[Bracket]

	title      Title
	settings   Settings
	reqHeader  Seq
	reqContext RequestContext
	todos      Seq
	policy     string

	activity   int64    // time of the last conversational event ..
	active     bool     // .. if there was one, else the creation time
	spent      spending // tokens, by model
	answer     answer   // the last one that told its usage
	boundaries []Seq
	unknown    []string
	problems   []Problem
}

// Problem is something in a stored log that the fold had to bend.
type Problem struct {
	Seq    Seq
	Kind   string // surface, shape, type, order
	Detail string
}

// maxProblems bounds the list: a log that is wrong everywhere is said to be so often enough.
const maxProblems = 1000

// NewState returns the state of an empty log. A nil registry stands for Core().
func NewState(h Header, reg *Registry) State {
	if reg == nil {
		reg = Core()
	}
	return State{header: h, reg: reg, turnSeq: None, stepSeq: None, reqHeader: None, todos: None, answer: answer{seq: None}, activity: h.CreatedAt}
}

// Fold returns the state of all of p. It fails only when p does.
func Fold(h Header, reg *Registry, p Prefix) (State, error) {
	s := NewState(h, reg)
	if err := s.LoadAll(p); err != nil {
		return State{}, err
	}
	return s, nil
}

// LoadAll loads what p holds behind the events that s was folded from. After an error, which is p's, s holds a part.
func (s *State) LoadAll(p Prefix) error { return Lend(p, s.next, p.Len(), s.Load) }

// Clone returns a copy. Lists are clipped, so that an append to one side is never seen by the other;
// every other change of a list copies it first.
func (s State) Clone() State {
	s.surf.nodes = s.surf.nodes.clipped()
	s.turnStarts = s.turnStarts.clipped()
	s.calls = slices.Clip(s.calls)
	s.left = slices.Clip(s.left)
	s.asking.ids = slices.Clip(s.asking.ids)
	s.asked = slices.Clip(s.asked)
	s.nextTurn = slices.Clip(s.nextTurn)
	s.nextStep = slices.Clip(s.nextStep)
	s.claimed = slices.Clip(s.claimed)
	s.open = slices.Clip(s.open)
	s.closed = s.closed.clipped()
	s.spent.before = slices.Clip(s.spent.before)
	s.boundaries = slices.Clip(s.boundaries)
	s.unknown = slices.Clip(s.unknown)
	s.problems = slices.Clip(s.problems)
	return s
}

// ForkTo returns the state of a child with header h that inherits the whole log of s: what a fold of the
// same events under h gives, without reading them. The child has no questions, no queue and no usage of its
// own; an open turn is closed by the child's Closers. h.SeedLength must be s.Next.
func (s State) ForkTo(h Header) (State, error) {
	if h.SeedLength != s.next {
		return State{}, fmt.Errorf("session: a child with seedLength %d cannot start from a state of %d events", h.SeedLength, s.next)
	}
	c := s.Clone()
	c.header = h
	c.surf.nodes, c.turnStarts, c.closed = s.surf.nodes.shared(), s.turnStarts.shared(), s.closed.shared()
	c.asked, c.nextTurn, c.nextStep, c.claimed = nil, nil, nil, nil
	c.spent = c.spent.inherited()
	if !c.active {
		c.activity = h.CreatedAt
	}
	return c, nil
}

// Next is the seq that the next event gets: the length of the log.
func (s State) Next() Seq { return s.next }

// Header returns the session's header.
func (s State) Header() Header { return s.header }

// Turn returns the number of the last turn begun (0: none) and whether it is open.
func (s State) Turn() (n int, open bool) { return s.turn, s.turnSeq != None }

// TurnStartSeq returns the seq of the open turn's turn/start, None when no turn is open.
func (s State) TurnStartSeq() Seq { return s.turnSeq }

// Step returns the number of the last step begun in the last turn (0: none) and whether it is open.
func (s State) Step() (n int, open bool) { return s.step, s.stepSeq != None }

// Turns, Steps and ToolCalls count what was begun in the whole log.
func (s State) Turns() int { return s.turnStarts.n }

// Steps counts the steps begun in the whole log.
func (s State) Steps() int { return s.steps }

// ToolCalls counts the tool calls that started in the whole log.
func (s State) ToolCalls() int { return s.toolCalls }

// Title returns the last title, the zero value if there is none.
func (s State) Title() Title { return s.title }

// Settings returns the last settings.
func (s State) Settings() Settings { return s.settings }

// RequestHeader returns the seq of the last request/header, None if there is none.
func (s State) RequestHeader() Seq { return s.reqHeader }

// RequestContext returns the last request/context.
func (s State) RequestContext() RequestContext { return s.reqContext }

// Todos returns the seq of the last todo/write, None if there is none.
func (s State) Todos() Seq { return s.todos }

// ApprovalPolicy returns the last approval policy, "" if none was recorded.
func (s State) ApprovalPolicy() string { return s.policy }

// LastActivity is the time of the last conversational event, or the creation time.
func (s State) LastActivity() int64 { return s.activity }

// Boundaries returns the seqs of all session/inherited events.
func (s State) Boundaries() []Seq { return slices.Clip(s.boundaries) }

// LastBoundary returns the seq of the last session/inherited, None if there is none.
func (s State) LastBoundary() Seq {
	if len(s.boundaries) == 0 {
		return None
	}
	return s.boundaries[len(s.boundaries)-1]
}

// Unknown lists the types in the log that nobody declared and that are not ignorable.
func (s State) Unknown() []string { return slices.Clip(s.unknown) }

// Problems lists what Load had to bend.
func (s State) Problems() []Problem { return slices.Clip(s.problems) }

// Apply folds a new event strictly: an event that breaks a rule is refused with a *RejectedError and
// changes nothing. ev.Seq must be Next, and ev.Data must come from CheckData.
func (s *State) Apply(ev Event) error {
	k, known := s.kindOf(ev.Type)
	if err := s.check(&ev, k, known, k.shape(ev.Data)); err != nil {
		return err
	}
	s.fold(&ev, k, known)
	return nil
}

// check holds a new event to the rules, without folding it. k is what is known of its type, and shape what that says of
// its data.
func (s *State) check(ev *Event, k *Kind, known bool, shape error) error {
	switch {
	case ev.Seq != s.next:
		return s.reject(ev, fmt.Sprintf("the next seq is %d", s.next), nil)
	case !known && !ev.Ignorable:
		return s.reject(ev, "no package declared the type and it is not ignorable", nil)
	case shape != nil:
		return s.reject(ev, "data has the wrong shape", shape)
	}
	if err := ev.Sources.check(ev.Seq); err != nil {
		return s.reject(ev, "bad citation", err)
	}
	if err := s.checkSurface(ev, k.Class); err != nil {
		return s.reject(ev, "surface", err)
	}
	return nil
}

func (s *State) reject(ev *Event, why string, err error) error {
	return &RejectedError{Type: ev.Type, Seq: ev.Seq, Reason: why, Err: err}
}

// Load folds a stored event. It is total: what breaks a rule is bent as the comments at each place
// say, and listed in Problems. Events must come in order; ev.Seq is taken as it is.
func (s *State) Load(ev Event) {
	k, known := s.kindOf(ev.Type)
	if !known && !ev.Ignorable && len(s.unknown) < maxProblems && !slices.Contains(s.unknown, ev.Type) {
		s.unknown = append(s.unknown, ev.Type)
	}
	if err := ev.Sources.check(ev.Seq); err != nil {
		s.problem(ev.Seq, "surface", err.Error())
	}
	s.fold(&ev, k, known)
}

// kindOf is lookup with a memory of one: types come in runs.
func (s *State) kindOf(typ string) (*Kind, bool) {
	if k := s.recent; k != nil && k.Type == typ {
		return k, true
	}
	k, known := s.reg.lookup(typ)
	if known {
		s.recent = k
	}
	return k, known
}

func (s *State) problem(seq Seq, kind, detail string) {
	if len(s.problems) < maxProblems {
		s.problems = append(s.problems, Problem{seq, kind, detail})
	}
}

// fold is the one place that gives events their meaning. It never fails; Apply has checked before.
func (s *State) fold(ev *Event, k *Kind, known bool) {
	s.next = ev.Seq + 1
	s.lastType, s.lastTime = ev.Type, ev.Time
	if !known {
		if ev.Op.Kind != OpNone {
			s.problem(ev.Seq, "surface", "an undeclared type cannot act on the surface; ignored")
		}
		return
	}
	s.foldSurface(ev, k.Class)
	if k.Opens != "" || k.Closes != "" {
		s.foldBracket(ev, k)
	}
	if k.Usage {
		s.foldCost(ev)
	}
	if !k.folded {
		return
	}
	switch ev.Type {
	case TypeTurnStart:
		n, ok := fieldInt(ev.Data, "turn")
		if !ok {
			n = s.turn + 1
			s.problem(ev.Seq, "shape", "turn/start without a turn number; counted on")
		}
		s.turn, s.turnSeq, s.step, s.stepSeq = n, ev.Seq, 0, None
		s.turnStarts.add(ev.Seq)
		s.settlePending()
	case TypeTurnEnd:
		s.turnSeq, s.stepSeq = None, None
		s.settlePending()
		reason, _ := Field(ev.Data, "reason")
		s.endClaims(fieldIs(reason, "kind", ReasonInterrupted))
	case TypeStepStart:
		n, ok := fieldInt(ev.Data, "step")
		if !ok {
			n = s.step + 1
			s.problem(ev.Seq, "shape", "step/start without a step number; counted on")
		}
		s.step, s.stepSeq = n, ev.Seq
		s.steps++
	case TypeStepEnd:
		s.stepSeq = None
		s.settlePending()
	case TypeUserMessage:
		if len(s.claimed) > 0 {
			s.consume(fieldString(ev.Data, "id"))
		}
	case TypeAssistantMessage:
		s.foldAssistant(ev)
	case TypeToolCall:
		s.toolCalls++
		s.foldStarted(ev)
	case TypeToolResult:
		if ev.Op.Kind != OpReplace { // a replacement only rewrites an older result's content
			s.foldResult(ev)
		}
	case TypeInboxSpliced:
		s.foldInbox(ev)
	case TypeRequestHeader:
		s.reqHeader = ev.Seq
	case TypeRequestContext:
		decodeInto(s, ev, &s.reqContext)
	case TypeTodoWrite:
		s.todos = ev.Seq
	case TypeTitle:
		var t Title
		if decodeInto(s, ev, &t) && (t.Source == "user" || s.title.Source != "user") {
			s.title = t
		}
	case TypeSettings:
		decodeInto(s, ev, &s.settings)
	case TypeLost:
		s.doubtPending()
	case TypeInherited:
		s.boundaries = append(s.boundaries, ev.Seq)
	case TypeApprovalAsked:
		s.foldAsked(ev)
	case TypeApprovalDecided:
		s.foldDecided(ev)
	case TypeApprovalPolicy:
		s.policy = fieldString(ev.Data, "policy")
	}
	if ev.Op.Kind == OpAppend && IsActivity(*ev) {
		s.activity, s.active = ev.Time, true
	}
}

// decodeInto replaces *dst by the event's data, whole; data of the wrong shape changes nothing.
func decodeInto[T any](s *State, ev *Event, dst *T) bool {
	var v T
	if err := json.Unmarshal(ev.Data, &v); err != nil {
		s.problem(ev.Seq, "shape", err.Error())
		return false
	}
	*dst = v
	return true
}

// IsActivity reports whether ev is conversational: a human's message, an assistant's message or a
// result that a tool gave, when first put on the surface. Boundaries, closers, titles, settings,
// compaction and inbox moves are not. It is the only definition; lists, index and API use it.
func IsActivity(ev Event) bool {
	if ev.Op.Kind != OpAppend {
		return false
	}
	switch ev.Type {
	case TypeAssistantMessage:
		return true
	case TypeUserMessage:
		src, _ := Field(ev.Data, "source")
		return fieldIs(src, "kind", string(message.SourceUser))
	case TypeToolResult:
		e, ok := Field(ev.Data, "error")
		if !ok {
			return true
		}
		code := fieldString(e, "code")
		return code != CodeNotStarted && code != CodeOutcomeUnknown
	}
	return false
}
