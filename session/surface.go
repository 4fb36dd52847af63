package session

import (
	"errors"
	"fmt"
	"slices"
)

// surface is the ordered list of events that make messages now. A node is two words; what a
// replacement hides hangs on its node, packed, so that a restore can put it back.
type surface struct {
	nodes list[node]
	gen   uint64 // rises whenever something else than an append at the tail happened
	lost  bool   // the log has lost records: citations may be incomplete
}

type node struct {
	ref  uint64 // seq<<refBits | flags
	hide *hidden
}

const (
	flagResult = 1 << iota // the node is a tool/result
	flagLost               // the node is a session/lost
	flagHide               // the node is a surface/hide
	refBits    = iota
)

func (n node) seq() Seq          { return Seq(n.ref >> refBits) }
func (n node) has(f uint64) bool { return n.ref&f != 0 }

func makeNode(ev *Event) node {
	ref := uint64(ev.Seq) << refBits
	switch ev.Type {
	case TypeToolResult:
		ref |= flagResult
	case TypeLost:
		ref |= flagLost
	case TypeHide:
		ref |= flagHide
	}
	return node{ref: ref}
}

// Node is one place on the surface.
type Node struct {
	Seq    Seq
	Hidden int // how many nodes a replacement or hide at this place stands for; 0: an appended event
}

// Surface returns the nodes in order. The slice is the caller's.
func (s State) Surface() []Node {
	out := make([]Node, s.surf.nodes.len())
	for i, n := range s.surf.nodes.all() {
		out[i].Seq = n.seq()
		if n.hide != nil {
			out[i].Hidden = n.hide.n
		}
	}
	return out
}

// SurfaceLen is the number of nodes on the surface.
func (s State) SurfaceLen() int { return s.surf.nodes.len() }

// SurfaceAt returns the i-th node.
func (s State) SurfaceAt(i int) Node {
	n := s.surf.nodes.at(i)
	out := Node{Seq: n.seq()}
	if n.hide != nil {
		out.Hidden = n.hide.n
	}
	return out
}

// Generation rises whenever the surface changed otherwise than by an append at its tail.
func (s State) Generation() uint64 { return s.surf.gen }

// HiddenBy returns the seqs that the replacement or hide at seq took off the surface, in order.
func (s State) HiddenBy(seq Seq) []Seq {
	i := s.surf.find(seq)
	if i < 0 || s.surf.nodes.at(i).hide == nil {
		return nil
	}
	var out []Seq
	for _, n := range s.surf.nodes.at(i).hide.nodes() {
		out = append(out, n.seq())
	}
	return out
}

// find returns the position of seq. Looked for from the tail: most operations are near it.
func (f surface) find(seq Seq) int {
	for i := f.nodes.len() - 1; i >= 0; i-- {
		if f.nodes.at(i).seq() == seq {
			return i
		}
	}
	return -1
}

// agrees returns how many of items are those of the first nodes.
func (f surface) agrees(items []Item) int {
	n := min(len(items), f.nodes.len())
	for i := range n {
		if items[i].Seq != f.nodes.at(i).seq() {
			return i
		}
	}
	return n
}

// checkSurface holds the strict rules for a new event.
func (s *State) checkSurface(ev *Event, class Class) error {
	if class == ClassLog {
		if ev.Op.Kind != OpNone || ev.Sources != nil {
			return errors.New("a log type carries neither surfaceOp nor sourceEventSeqs")
		}
		return nil
	}
	if ev.Sources != nil && len(ev.Sources) == 0 && ev.Type != TypeAssistantMessage {
		return errors.New("an empty sourceEventSeqs stands only on assistant/message")
	}
	switch ev.Op.Kind {
	case OpNone:
		return errors.New("a surface or control type needs a surfaceOp")
	case OpAppend:
		if class == ClassControl {
			return errors.New("a control type cannot be appended to the surface")
		}
		return nil
	case OpReplace:
		if ev.Type == TypeRestore {
			return errors.New("surface/restore carries the operation restore")
		}
		return s.checkReplace(ev)
	case OpRestore:
		if ev.Type != TypeRestore {
			return errors.New("only surface/restore restores")
		}
		i := s.surf.find(ev.Op.Node)
		if i < 0 || s.surf.nodes.at(i).hide == nil {
			return fmt.Errorf("seq %d is not a replacement or hide on the surface", ev.Op.Node)
		}
		return nil
	}
	return fmt.Errorf("unknown surface operation %d", ev.Op.Kind)
}

func (s *State) checkReplace(ev *Event) error {
	i, j := s.surf.find(ev.Op.Start), s.surf.find(ev.Op.End)
	switch {
	case i < 0:
		return fmt.Errorf("start %d is not on the surface", ev.Op.Start)
	case j < 0:
		return fmt.Errorf("end %d is not on the surface", ev.Op.End)
	case j < i:
		return fmt.Errorf("start %d stands behind end %d", ev.Op.Start, ev.Op.End)
	}
	cited := ev.Sources.index()
	for k := i; k <= j; k++ {
		n := s.surf.nodes.at(k)
		if !n.has(flagLost) && !cited.has(n.seq()) {
			return fmt.Errorf("the hidden event %d is not cited", n.seq())
		}
	}
	if ev.Type == TypeToolResult && (i != j || !s.surf.nodes.at(i).has(flagResult)) {
		return errors.New("a tool/result replaces exactly one other tool/result")
	}
	return nil
}

// foldSurface applies an event to the surface, bending what a strict check would have refused:
//   - a surface type without an operation is appended, a control type without one does nothing;
//   - a replace whose range is not found hides exactly the seqs that it cites, and stands where the
//     first of them stood, else at the tail;
//   - a restore of what is not there does nothing.
func (s *State) foldSurface(ev *Event, class Class) {
	f := &s.surf
	if class == ClassLog {
		if ev.Op.Kind != OpNone || ev.Sources != nil {
			s.problem(ev.Seq, "surface", "a log type with surfaceOp or sourceEventSeqs; ignored")
		}
		return
	}
	if ev.Type == TypeLost {
		f.lost = true
	}
	switch {
	case ev.Op.Kind == OpAppend && class == ClassSurface:
		f.nodes.add(makeNode(ev))
	case ev.Op.Kind == OpReplace && ev.Type != TypeRestore:
		s.foldReplace(ev)
	case ev.Op.Kind == OpRestore && ev.Type == TypeRestore:
		i := f.find(ev.Op.Node)
		if i < 0 || f.nodes.at(i).hide == nil {
			s.problem(ev.Seq, "surface", fmt.Sprintf("restore of %d, which is no replacement on the surface; ignored", ev.Op.Node))
			return
		}
		f.nodes = f.nodes.spliced(i, i+1, f.nodes.at(i).hide.nodes()...)
		f.gen++
	case class == ClassSurface:
		s.problem(ev.Seq, "surface", "a surface type without a usable surfaceOp; appended")
		f.nodes.add(makeNode(ev))
	default:
		s.problem(ev.Seq, "surface", "a control type without a usable surfaceOp; ignored")
	}
}

func (s *State) foldReplace(ev *Event) {
	f := &s.surf
	n := makeNode(ev)
	i, j := f.find(ev.Op.Start), f.find(ev.Op.End)
	cited := ev.Sources.index()
	f.gen++
	if i >= 0 && j >= i {
		hidden := f.nodes.copied(i, j+1)
		if !f.lost {
			for _, h := range hidden {
				if !cited.has(h.seq()) {
					s.problem(ev.Seq, "surface", fmt.Sprintf("replaces %d without citing it", h.seq()))
					break
				}
			}
		}
		n.hide = pack(hidden)
		f.nodes = f.nodes.spliced(i, j+1, n)
		return
	}
	s.problem(ev.Seq, "surface", fmt.Sprintf("replaces %d..%d, which is not on the surface; hides what it cites", ev.Op.Start, ev.Op.End))
	var hidden, kept []node
	at := -1
	for _, o := range f.nodes.all() {
		if cited.has(o.seq()) {
			if at < 0 {
				at = len(kept)
			}
			hidden = append(hidden, o)
			continue
		}
		kept = append(kept, o)
	}
	if at < 0 {
		at = len(kept)
	}
	n.hide = pack(hidden)
	f.nodes = list[node]{own: slices.Insert(kept, at, n)}
}
