package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/message"
)

// A checkpoint is a State as bytes: what a fold of the first Next events gave. It is derived and says nothing of
// the events themselves; who keeps one keeps it beside the position that it stands for, and checks that first.
//
// It holds nothing of the header and no kind of the registry, but knows which part of the log was the session's
// own and what the kinds meant to the fold, because another answer would have been another state. One struct of
// functions, coder, writes and reads it: what is written is read in the same order by the same lines.

// foldVersion is part of every checkpoint. It must rise when the same events fold to another state than before, or
// State's members change; a test holds that against states of this version.
const foldVersion = 1

// ErrOtherFold says of a checkpoint that it was made by another version, for other kinds, or for a session that
// calls another part of the log its own. It is not damaged, and of no use here.
var ErrOtherFold = errors.New("a checkpoint of another fold")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumBytes = 4

// MarshalBinary returns s as a checkpoint. It fails if the state holds what cannot be written down, and then there
// is no checkpoint of it.
func (s State) MarshalBinary() ([]byte, error) {
	c := &coder{writing: true}
	version, kinds, own, shared := foldVersion, s.reg.mark(), s.header.OwnFrom(), s.header.Shared()
	c.int(&version)
	c.str(&kinds)
	c.seq(&own)
	c.seq(&shared)
	s.code(c)
	if c.err != nil {
		return nil, fmt.Errorf("session: a state that no checkpoint can hold: %w", c.err)
	}
	return binary.LittleEndian.AppendUint32(c.b, crc32.Checksum(c.b, castagnoli)), nil
}

// UnmarshalState returns the state that MarshalBinary was given, as that of a session with header h, which may be
// another one that has the same events. A nil registry stands for Core(). ErrOtherFold: the same events fold to
// something else here. Any other error: data is no checkpoint, or was damaged. data is not kept.
func UnmarshalState(h Header, reg *Registry, data []byte) (State, error) {
	if len(data) < sumBytes {
		return State{}, errors.New("session: a checkpoint without a sum")
	}
	body := data[:len(data)-sumBytes]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(data[len(body):]) {
		return State{}, errors.New("session: the sum of a checkpoint is wrong")
	}
	s := NewState(h, reg)
	c := &coder{b: body}
	var version int
	var kinds string
	var own, shared Seq
	if c.int(&version); c.err == nil && version != foldVersion {
		return State{}, fmt.Errorf("session: %w: version %d", ErrOtherFold, version)
	}
	if c.str(&kinds); c.err == nil && kinds != s.reg.mark() {
		return State{}, fmt.Errorf("session: %w: it knows other types", ErrOtherFold)
	}
	c.seq(&own)
	c.seq(&shared)
	s.code(c)
	if c.err == nil && len(c.b) > 0 {
		c.fail("something follows it")
	}
	if c.err != nil {
		return State{}, fmt.Errorf("session: no checkpoint: %w", c.err)
	}
	return s, s.ownedBy(h, own, shared)
}

// ownedBy makes of a state that was folded with own and shared as what OwnFrom and Shared say that of h.
func (s *State) ownedBy(h Header, own, shared Seq) error {
	if !s.active {
		s.activity = h.CreatedAt
	}
	if now := h.OwnFrom(); min(own, s.next) != min(now, s.next) {
		if now < s.next || len(s.problems) > 0 { // some of them may be about what is not its own
			return fmt.Errorf("session: %w: it is of another session", ErrOtherFold)
		}
		s.asked, s.nextTurn, s.nextStep, s.claimed = nil, nil, nil, nil
	}
	if now := h.Shared(); min(shared, s.next) != min(now, s.next) {
		if now < s.next {
			return fmt.Errorf("session: %w: it is of another session", ErrOtherFold)
		}
		s.spent = s.spent.inherited()
	}
	return nil
}

// code writes s, or reads it.
func (s *State) code(c *coder) {
	c.seq(&s.next)
	c.str(&s.lastType)
	c.int64(&s.lastTime)

	c.nodes(&s.surf.nodes)
	c.uint(&s.surf.gen)
	c.bool(&s.surf.lost)

	c.int(&s.turn)
	c.int(&s.step)
	c.seq(&s.turnSeq)
	c.seq(&s.stepSeq)
	c.seqs(&s.turnStarts)
	c.int(&s.steps)
	c.int(&s.toolCalls)
	slice(c, &s.calls, (*coder).call)
	slice(c, &s.left, (*coder).call)
	c.int(&s.asking.turn)
	c.int(&s.asking.step)
	slice(c, &s.asking.ids, (*coder).str)
	slice(c, &s.asked, (*coder).ask)
	slice(c, &s.nextTurn, (*coder).message)
	slice(c, &s.nextStep, (*coder).message)
	slice(c, &s.claimed, func(c *coder, v *claim) {
		c.str((*string)(&v.target))
		c.message(&v.msg)
	})

	slice(c, &s.open, (*coder).bracket)
	closed := s.closed.copied(0, s.closed.len())
	slice(c, &closed, (*coder).bracket)
	s.closed = list[Bracket]{own: closed}

	c.str(&s.title.Title)
	c.str(&s.title.Source)
	c.json(&s.settings)
	c.seq(&s.reqHeader)
	c.json(&s.reqContext)
	c.seq(&s.todos)
	c.str(&s.policy)

	c.int64(&s.activity)
	c.bool(&s.active)
	c.spent(&s.spent.now)
	slice(c, &s.spent.before, (*coder).spent)
	c.seq(&s.answer.seq)
	c.uint(&s.answer.gen)
	c.seq(&s.answer.header)
	slice(c, &s.boundaries, (*coder).seq)
	slice(c, &s.unknown, (*coder).str)
	slice(c, &s.problems, func(c *coder, v *Problem) {
		c.seq(&v.Seq)
		c.str(&v.Kind)
		c.str(&v.Detail)
	})
}

func (c *coder) call(v *Call) {
	c.seq(&v.Assistant)
	c.int(&v.Index)
	c.str(&v.ID)
	c.str(&v.Name)
	c.int(&v.Turn)
	c.int(&v.Step)
	c.seq(&v.Started)
	c.bool(&v.Pending)
	c.bool(&v.Doubt)
}

func (c *coder) ask(v *Ask) {
	c.seq(&v.Seq)
	c.int64(&v.Time)
	c.str(&v.AskID)
	c.str(&v.CallID)
	c.int(&v.Turn)
	c.int(&v.Step)
	c.str(&v.Name)
	c.str(&v.Subject)
	c.seq(&v.Assistant)
	c.int(&v.Index)
	c.str(&v.Verdict)
	c.str(&v.By)
	c.str(&v.Why)
}

func (c *coder) bracket(v *Bracket) {
	c.name(&v.Type)
	c.name(&v.Name)
	c.str(&v.Key)
	c.seq(&v.Open)
	c.seq(&v.Close)
	c.bool(&v.outlives)
}

func (c *coder) spent(v *spent) {
	c.str(&v.provider)
	c.str(&v.model)
	c.json(&v.total)
	c.json(&v.own)
	c.int(&v.answers)
	c.int(&v.ownAnsw)
}

func (c *coder) message(v *message.Message) { c.json(v) }

// nodes are packed as what a node hides is.
func (c *coder) nodes(v *list[node]) {
	var h *hidden
	if c.writing {
		h = pack(v.copied(0, v.len()))
	}
	c.hidden(&h, 0)
	if !c.writing && c.err == nil {
		*v = list[node]{own: h.nodes()}
	}
}

// maxDepth bounds how often what is hidden may hide something itself: compactions of compactions.
const maxDepth = 1 << 16

func (c *coder) hidden(v **hidden, depth int) {
	if !c.writing {
		*v = &hidden{}
	}
	h := *v
	c.int(&h.n)
	c.bytes(&h.refs)
	if !c.writing && !varints(h.refs, h.n) || depth > maxDepth {
		c.fail("a list of nodes")
		return
	}
	slice(c, &h.under, func(c *coder, u *under) {
		c.int(&u.at)
		if !c.writing && (u.at < 0 || u.at >= h.n) {
			c.fail("a node that is not there")
		}
		if c.err == nil {
			c.hidden(&u.hide, depth+1)
		}
	})
}

func (c *coder) seqs(v *seqs) {
	text := v.text.copied(0, v.text.len())
	c.int(&v.n)
	c.seq(&v.last)
	c.bytes(&text)
	if !c.writing && !varints(text, v.n) {
		c.fail("a list of seqs")
	}
	v.text = list[byte]{own: text}
}

// coder writes values to b, or reads them from it; after the first error it does nothing more. Writing changes
// nothing: what is written may be shared with other states.
type coder struct {
	writing bool
	b       []byte
	err     error
	known   []string // of name, when reading
}

func (c *coder) fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%s cannot be read", what)
	}
}

func (c *coder) int64(v *int64) {
	if c.writing {
		c.b = binary.AppendVarint(c.b, *v)
		return
	}
	n, k := binary.Varint(c.b)
	if c.err != nil || k <= 0 {
		c.fail("a number")
		return
	}
	*v, c.b = n, c.b[k:]
}

func (c *coder) uint(v *uint64) {
	n := int64(*v)
	if c.int64(&n); !c.writing {
		*v = uint64(n)
	}
}

func (c *coder) int(v *int) {
	n := int64(*v)
	if c.int64(&n); !c.writing {
		*v = int(n)
	}
}

func (c *coder) seq(v *Seq) { c.int64((*int64)(v)) }

func (c *coder) bool(v *bool) {
	n := 0
	if *v {
		n = 1
	}
	if c.int(&n); !c.writing {
		*v = n != 0
	}
}

// bytes reads into a slice of its own.
func (c *coder) bytes(v *[]byte) {
	n := len(*v)
	c.int(&n)
	if c.writing {
		c.b = append(c.b, *v...)
		return
	}
	if c.err != nil || n < 0 || n > len(c.b) {
		c.fail("a text")
		return
	}
	*v, c.b = append([]byte(nil), c.b[:n]...), c.b[n:]
}

func (c *coder) str(v *string) {
	n := len(*v)
	c.int(&n)
	if c.writing {
		c.b = append(c.b, *v...)
		return
	}
	if c.err != nil || n < 0 || n > len(c.b) {
		c.fail("a text")
		return
	}
	*v, c.b = string(c.b[:n]), c.b[n:]
}

// name is str for one of a few texts: they are shared.
func (c *coder) name(v *string) {
	c.str(v)
	if c.writing {
		return
	}
	for _, k := range c.known {
		if k == *v {
			*v = k
			return
		}
	}
	if len(c.known) < 16 {
		c.known = append(c.known, *v)
	}
}

func (c *coder) json(v any) {
	var text []byte
	if c.writing {
		b, err := json.Marshal(v, json.Deterministic(true))
		if err != nil && c.err == nil {
			c.err = err
		}
		text = b
	}
	c.bytes(&text)
	if !c.writing && c.err == nil {
		c.err = json.Unmarshal(text, v)
	}
}

// slice writes or reads a list. What is read grows as elements come: a wrong length allocates nothing.
func slice[T any](c *coder, v *[]T, each func(*coder, *T)) {
	n := len(*v)
	c.int(&n)
	if c.writing {
		for i := range *v {
			each(c, &(*v)[i])
		}
		return
	}
	*v = nil
	for i := 0; i < n && c.err == nil; i++ {
		var e T
		if each(c, &e); c.err == nil {
			*v = append(*v, e)
		}
	}
}
