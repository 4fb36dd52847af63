package llm

import (
	"time"
)

// Coalescer joins the deltas of a stream into few chunks for the log. Adjacent deltas of one kind and
// one block become one, until it is MaxBytes long or MaxAge old. It is not safe for concurrent use.
type Coalescer struct {
	MaxBytes int              // 0 means no limit by size
	MaxAge   time.Duration    // 0 means no limit by time
	Now      func() time.Time // needed with MaxAge; a clock that does not go back is best

	pending Chunk
	text    []byte // of pending; joined once, so that a long block does not cost its square
	since   time.Time
	open    bool
}

// Add takes the next chunk and returns those that are ready, in order: mostly none. Bodies that the
// finished message repeats (the whole block of a block-end, the replay state) are left out.
func (k *Coalescer) Add(c Chunk) []Chunk {
	c.Block, c.ReplayState = nil, nil
	var out []Chunk
	switch c.Type {
	case ChunkTextDelta, ChunkReasoningDelta, ChunkToolCallDelta:
		delta := c.Text
		if c.Type == ChunkToolCallDelta {
			delta = c.Arguments
		}
		if k.open && (k.pending.Type != c.Type || k.pending.Index != c.Index || c.ID != "" || c.Name != "") {
			out = append(out, k.Flush()...)
		}
		if !k.open {
			k.pending, k.open = c, true
			if k.MaxAge > 0 {
				k.since = k.Now()
			}
		}
		k.text = append(k.text, delta...)
		if k.MaxBytes > 0 && len(k.text) >= k.MaxBytes || k.MaxAge > 0 && k.Now().Sub(k.since) >= k.MaxAge {
			out = append(out, k.Flush()...)
		}
		return out
	}
	return append(k.Flush(), c)
}

// Flush returns what is still held back: nothing, or one chunk. Call it when the stream ends.
func (k *Coalescer) Flush() []Chunk {
	if !k.open {
		return nil
	}
	c := k.pending
	c.Text, c.Arguments = "", ""
	if c.Type == ChunkToolCallDelta {
		c.Arguments = valid(string(k.text))
	} else {
		c.Text = valid(string(k.text))
	}
	k.pending, k.text, k.open = Chunk{}, k.text[:0], false
	return []Chunk{c}
}

// Coalesce returns chunks with adjacent deltas of one kind and one block joined, none longer than it
// has to be to pass maxBytes (0 = no limit).
func Coalesce(chunks []Chunk, maxBytes int) []Chunk {
	k := Coalescer{MaxBytes: maxBytes}
	var out []Chunk
	for _, c := range chunks {
		out = append(out, k.Add(c)...)
	}
	return append(out, k.Flush()...)
}
