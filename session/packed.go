package session

import "encoding/binary"

// What grows with the log and is seldom asked for is kept packed, as differences in a few bytes each: a state of a
// million events is then about as big as its surface, in memory and in a checkpoint.

// seqs is an ascending list of seqs that is read as a whole or not at all. The zero value is empty.
type seqs struct {
	n    int
	last Seq
	text list[byte] // varints of the differences
}

func (s *seqs) add(q Seq) {
	var b [binary.MaxVarintLen64]byte
	for _, c := range b[:binary.PutVarint(b[:], int64(q-s.last))] {
		s.text.add(c)
	}
	s.n, s.last = s.n+1, q
}

func (s seqs) all() []Seq {
	out := make([]Seq, 0, s.n)
	text, last := s.text.copied(0, s.text.len()), Seq(0)
	for len(text) > 0 {
		d, k := binary.Varint(text)
		if k <= 0 {
			break // only add writes it, and unmarshalling checks it
		}
		text, last = text[k:], last+Seq(d)
		out = append(out, last)
	}
	return out
}

func (s seqs) clipped() seqs { s.text = s.text.clipped(); return s }
func (s seqs) shared() seqs  { s.text = s.text.shared(); return s }

// hidden are the nodes that a replacement or hide took off the surface, in order. It is never changed.
type hidden struct {
	n     int
	refs  []byte // varints of the differences between the refs
	under []under
}

// under is what the node at a place of a hidden list hides itself.
type under struct {
	at   int
	hide *hidden
}

func pack(nodes []node) *hidden {
	h := &hidden{n: len(nodes)}
	last := uint64(0)
	for i, n := range nodes {
		h.refs = binary.AppendVarint(h.refs, int64(n.ref-last))
		if last = n.ref; n.hide != nil {
			h.under = append(h.under, under{i, n.hide})
		}
	}
	return h
}

// nodes returns the nodes in a slice of the caller's.
func (h *hidden) nodes() []node {
	out := make([]node, 0, h.n)
	refs, last := h.refs, uint64(0)
	for len(refs) > 0 {
		d, k := binary.Varint(refs)
		if k <= 0 {
			break // as in seqs.all
		}
		refs, last = refs[k:], last+uint64(d)
		out = append(out, node{ref: last})
	}
	for _, u := range h.under {
		out[u.at].hide = u.hide
	}
	return out
}

// varints reports whether text is n varints and nothing else.
func varints(text []byte, n int) bool {
	if n < 0 {
		return false
	}
	for ; n > 0; n-- {
		_, k := binary.Varint(text)
		if k <= 0 {
			return false
		}
		text = text[k:]
	}
	return len(text) == 0
}
