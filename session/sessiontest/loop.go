// Package sessiontest generates logs for property tests: those that a well-behaved loop leaves behind
// through any number of deaths, resumes and forks (Live), and those that nobody should have written
// (Garbage).
package sessiontest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// Kinds are the types of a made-up package that owns a bracket and rewrites the surface.
func Kinds() []session.Kind {
	return []session.Kind{
		{Type: "squash/start", Owner: "squash", Opens: "squash", Doc: "a rewriting begins"},
		{Type: "squash/end", Owner: "squash", Closes: "squash", Doc: "a rewriting ended"},
	}
}

// Registry knows the core vocabulary and Kinds.
func Registry() *session.Registry {
	reg, err := session.NewRegistry(Kinds())
	if err != nil {
		panic(err)
	}
	return reg
}

// Pickup is one construction of a session over stored events.
type Pickup struct {
	Header  session.Header
	Stored  session.Events
	Closers []session.Event
	Session *session.Session
}

// Loop is a simulated agent loop: every event that it appends passes session.Relational.
type Loop struct {
	T       *rapid.T
	Header  session.Header
	Reg     *session.Registry
	S       *session.Session
	Pickups []Pickup

	pick  Pick
	clock int64
	calls int
	msgs  int
	kept  session.Seq // what is on disk for sure: a death loses nothing below
}

// Live runs a loop for n random actions and returns it.
func Live(t *rapid.T, n int) *Loop {
	l := &Loop{T: t, pick: Drawn(t), Reg: Registry(), clock: 1_700_000_000_000,
		Header: session.Header{Format: 1, ID: "root", Kind: session.KindRoot, CreatedAt: 1_600_000_000_000}}
	l.open(nil, nil)
	for range n {
		l.act()
	}
	return l
}

// Events returns the whole log, the pending prefix included.
func (l *Loop) Events() session.Events { return All(l.T, l.S.Events()) }

// All reads a prefix.
func All(t rapid.TB, p session.Prefix) session.Events {
	var out session.Events
	for ev, err := range p.Range(0, p.Len()) {
		if err != nil {
			t.Fatalf("reading: %v", err)
		}
		out = append(out, ev)
	}
	return out
}

func (l *Loop) now() int64 { // unreliable on purpose
	l.clock += int64(l.pick(5)) - 1
	return l.clock
}

func (l *Loop) open(stored session.Events, closers []session.Event) {
	s, err := session.New(l.Header, session.Seed{Prefix: stored, Repair: closers},
		session.Env{Registry: l.Reg, Now: l.now, Validators: []session.Validator{session.Relational}})
	if err != nil {
		l.T.Fatalf("New: %v", err)
	}
	l.S = s
	l.Pickups = append(l.Pickups, Pickup{l.Header, stored, closers, s})
}

// pickup resumes over stored events.
func (l *Loop) pickup(stored session.Events) {
	closers, err := session.Closers(l.Header, l.Reg, stored)
	if err != nil {
		l.T.Fatalf("Closers: %v", err)
	}
	l.open(stored, closers)
}

func (l *Loop) put(drafts ...session.Draft) {
	if _, err := l.S.AppendAll(nil, drafts...); err != nil {
		l.T.Fatalf("a well-behaved loop was refused: %v\n%s", err, Dump(l.Events()))
	}
}

func (l *Loop) user(kind message.SourceKind) message.Message {
	l.msgs++
	m := message.User(fmt.Sprintf("m%d", l.msgs), fmt.Sprintf("text %d", l.msgs))
	m.Source.Kind = kind
	return m
}

func draft(typ string, data any) session.Draft { return session.Draft{Type: typ, Data: data} }

func onto(typ string, data any) session.Draft {
	return session.Draft{Type: typ, Data: data, Op: session.Append()}
}

// act does one random thing that the state allows.
func (l *Loop) act() {
	st := l.S.State()
	turn, inTurn := st.Turn()
	_, inStep := st.Step()
	switch n := l.pick(24); {
	case n == 23:
		l.die()
	case n == 22:
		l.fork()
	case n > 17:
		l.between(st, inTurn)
	case !inTurn:
		l.startTurn(st, turn+1)
	case !inStep && n > 8:
		kinds := []string{session.ReasonCompleted, session.ReasonAborted, session.ReasonError, session.ReasonLimit}
		l.put(draft(session.TypeTurnEnd, session.TurnEnd{Turn: turn, Reason: session.Reason{Kind: kinds[l.pick(len(kinds))]}}))
	case !inStep:
		step, _ := st.Step()
		l.put(draft(session.TypeStepStart, session.StepRef{Turn: turn, Step: step + 1}))
	default:
		l.inStep(st)
	}
}

func (l *Loop) startTurn(st session.State, turn int) {
	drafts := []session.Draft{draft(session.TypeTurnStart, session.TurnStart{Turn: turn})}
	in := l.user(message.SourceUser)
	if q := st.Queue(session.NextTurn); len(q) > 0 {
		drafts = append(drafts, draft(session.TypeInboxSpliced, session.InboxSpliced{Target: session.NextTurn, RemovedCount: 1, Outcome: session.OutcomeClaimed}))
		in = q[0]
	}
	l.put(append(drafts, draft(session.TypeStepStart, session.StepRef{Turn: turn, Step: 1}), onto(session.TypeUserMessage, in))...)
}

// die keeps a prefix of what was accepted in this life and picks it up.
func (l *Loop) die() {
	evs := l.Events()[:l.S.Head()]
	lost := min(l.pick(4), len(evs)-int(l.kept))
	evs = evs[:len(evs)-lost]
	l.kept = session.Seq(len(evs))
	l.pickup(evs)
}

// fork goes on in a child; its parent is dropped.
func (l *Loop) fork() {
	evs := l.Events()[:l.S.Head()]
	if len(evs) == 0 {
		return
	}
	at := session.Seq(l.pick(len(evs)))
	err := session.CheckCut(evs, at, false)
	var open *session.OpenTurnError
	if errors.As(err, &open) {
		if at = open.Before; at == session.None {
			return
		}
		err = session.CheckCut(evs, at, false)
	}
	if err != nil {
		l.T.Fatalf("cut at %d: %v", at, err)
	}
	n := at + 1
	l.Header = session.Header{Format: 1, ID: l.Header.ID + "x", Kind: session.KindFork, CreatedAt: l.now(), SeedLength: n,
		Parent: &session.Parent{ID: l.Header.ID, Seq: at, Spans: l.Header.Spans(n)}}
	l.kept = n
	l.pickup(evs[:n])
}

// between does what may happen at any time.
func (l *Loop) between(st session.State, inTurn bool) {
	switch l.pick(9) {
	case 0:
		l.put(draft(session.TypeTitle, session.Title{Title: "t", Source: []string{"provider", "user"}[l.pick(2)]}))
	case 1:
		l.put(draft(session.TypeInboxSpliced, session.InboxSpliced{Target: session.NextTurn, Start: len(st.Queue(session.NextTurn)),
			Inserted: []message.Message{l.user(message.SourceUser)}}))
	case 2:
		if len(st.Queue(session.NextTurn)) > 0 {
			l.put(draft(session.TypeInboxSpliced, session.InboxSpliced{Target: session.NextTurn, RemovedCount: 1, Outcome: session.OutcomeWithdrawn}))
		}
	case 3:
		l.put(session.Draft{Type: "later/type", Data: jsontext.Value(`{"x":[1.50]}`), Ignorable: true})
	case 4, 5:
		l.squash(st)
	case 6:
		l.restore(st)
	case 7:
		l.prune(st)
	case 8:
		if inTurn {
			return
		}
		if d, _, err := st.UndoDrafts(); err == nil && l.pick(2) == 0 {
			l.put(d...)
		} else if d, _, err := st.RedoDrafts(l.S.Events()); err == nil {
			l.put(d...)
		}
	}
}

// span picks a range of the surface and cites it.
func (l *Loop) span(st session.State) (session.SurfaceOp, session.Sources, bool) {
	nodes := st.Surface()
	if len(nodes) == 0 {
		return session.SurfaceOp{}, nil, false
	}
	i := l.pick(len(nodes))
	j := min(len(nodes)-1, i+l.pick(5))
	var seqs []session.Seq
	for _, n := range nodes[i : j+1] {
		seqs = append(seqs, n.Seq)
	}
	return session.Replace(nodes[i].Seq, nodes[j].Seq), session.Cite(seqs...), true
}

// squash replaces a range by a summary or hides it; the bracket around it may stay open.
func (l *Loop) squash(st session.State) {
	op, src, ok := l.span(st)
	if !ok {
		return
	}
	d := session.Draft{Type: session.TypeUserMessage, Data: l.user(message.SourcePlugin), Op: op, Sources: src}
	if l.pick(2) == 0 {
		d = session.Draft{Type: session.TypeHide, Data: session.Hide{Reason: "trim"}, Op: op, Sources: src}
	}
	l.put(draft("squash/start", struct{}{}), d)
	if l.pick(3) > 0 {
		l.put(draft("squash/end", struct{}{}))
	}
}

func (l *Loop) restore(st session.State) {
	for _, n := range st.Surface() {
		if n.Hidden > 0 && l.pick(2) == 0 {
			l.put(session.Draft{Type: session.TypeRestore, Data: struct{}{}, Op: session.Restore(n.Seq)})
			return
		}
	}
}

// prune rewrites the content of a result.
func (l *Loop) prune(st session.State) {
	for _, n := range st.Surface() {
		ev, err := l.S.At(n.Seq)
		if err != nil {
			l.T.Fatalf("%v", err)
		}
		if ev.Type != session.TypeToolResult || l.pick(2) == 0 {
			continue
		}
		r, err := session.DecodeData[session.ToolResult](ev)
		if err != nil {
			l.T.Fatalf("%v", err)
		}
		r.Message = r.Message.Clone()
		r.Message.Content[0].Content = []message.Block{message.TextBlock("pruned")}
		l.put(session.Draft{Type: session.TypeToolResult, Data: r, Op: session.Replace(n.Seq, n.Seq), Sources: session.Cite(n.Seq)})
		return
	}
}

func (l *Loop) inStep(st session.State) {
	turn, _ := st.Turn()
	step, _ := st.Step()
	var pending []session.Call
	for _, c := range st.OpenCalls() {
		if c.Pending {
			pending = append(pending, c)
		}
	}
	if len(pending) == 0 {
		switch l.pick(4) {
		case 0:
			l.put(draft(session.TypeStepEnd, session.StepRef{Turn: turn, Step: step}))
		case 1:
			l.put(draft(session.TypeAssistantChunk, session.AssistantChunk{Turn: turn, Step: step, Chunk: jsontext.Value(`{"text":"x"}`)}))
		default:
			l.assistant(turn, step)
		}
		return
	}
	c := pending[l.pick(len(pending))]
	asks := st.Asks()
	switch n := l.pick(8); {
	case n == 0:
		l.put(onto(session.TypeUserMessage, l.user(message.SourcePlugin))) // between calls and results
	case n == 1 && c.Started == session.None && !st.Waiting(c):
		l.calls++
		l.put(draft(session.TypeApprovalAsked, session.ApprovalAsked{AskID: fmt.Sprintf("q%d", l.calls), Turn: turn, Step: step, CallID: c.ID, Name: c.Name}))
	case len(asks) > 0 && n < 4:
		a := asks[l.pick(len(asks))]
		l.put(draft(session.TypeApprovalDecided, session.ApprovalDecided{AskID: a.AskID, CallID: a.CallID, Verdict: session.VerdictAllow, By: "user"}))
	case st.Waiting(c):
	case n < 5 && c.Started == session.None:
		l.put(draft(session.TypeToolCall, session.ToolCall{Turn: turn, Step: step, CallID: c.ID, Name: c.Name, Arguments: "{}"}))
	default:
		l.msgs++
		r := session.ToolResult{Turn: turn, Step: step,
			Message: message.Result(fmt.Sprintf("r%d", l.msgs), c.ID, false, message.TextBlock(fmt.Sprintf("out %d", l.msgs)))}
		if c.Started == session.None {
			r.Error = &session.ErrorInfo{Name: "Denied", Code: "TOOL_DENIED"}
		}
		l.put(onto(session.TypeToolResult, r))
	}
}

// assistant says something and asks for up to three calls. Their ids may repeat, as those of models do.
func (l *Loop) assistant(turn, step int) {
	l.msgs++
	m := message.Message{ID: fmt.Sprintf("a%d", l.msgs), Role: message.RoleAssistant,
		Source: message.Source{Kind: message.SourceModel, Provider: []string{"acme", "other"}[l.pick(2)], Model: "m", ReplayState: jsontext.Value(`{"k":1}`)}}
	if l.pick(4) > 0 {
		m.Content = append(m.Content, message.Block{Type: message.Reasoning, Text: "hm", Signature: "sig"}, message.TextBlock("answer"))
	}
	for range l.pick(4) {
		l.calls++
		id := fmt.Sprintf("c%d", l.calls)
		if l.pick(3) == 0 {
			id = "call_0"
		}
		m.Content = append(m.Content, message.CallBlock(id, "tool", `{"a":1}`))
	}
	a := session.AssistantMessage{Turn: turn, Step: step, Message: m}
	if l.pick(2) == 0 {
		a.Usage = &message.Usage{InputTokens: 10, OutputTokens: 2}
	}
	l.put(onto(session.TypeAssistantMessage, a))
}

// Dump writes events for the message of a failed test.
func Dump(evs session.Events) string {
	var b strings.Builder
	for _, ev := range evs {
		fmt.Fprintf(&b, "%4d %-20s op %v src %v %s\n", ev.Seq, ev.Type, ev.Op, ev.Sources, ev.Data)
	}
	return b.String()
}
