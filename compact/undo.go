package compact

import (
	"errors"
	"fmt"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
)

// ErrNoCompaction says that nothing on the surface stands for what was compacted.
var ErrNoCompaction = errors.New("no compaction is left to undo")

// Newest returns the newest replacement by a compaction on the surface; None: there is none. p holds the log of st.
func Newest(st session.State, p session.Prefix) (session.Seq, error) {
	newest := session.None
	for i := range st.SurfaceLen() {
		n := st.SurfaceAt(i)
		if n.Hidden == 0 || n.Seq < newest {
			continue
		}
		ev, err := p.At(n.Seq)
		if err != nil {
			return session.None, err
		}
		if ev.Type != session.TypeUserMessage {
			continue
		}
		if m, err := message.Decode(ev.Data); err == nil && m.Source.Kind == message.SourcePlugin && m.Source.Plugin == Plugin {
			newest = n.Seq
		}
	}
	return newest, nil
}

// Undo takes back the newest compaction: what it replaced stands in its place again. It returns the replacement and
// the event that took it back. Errors: session.ErrOpenTurn, ErrNoCompaction, *BusyError.
func (c *Compactor) Undo(s *session.Session) (node, seq session.Seq, err error) {
	release, err := c.take(s)
	if err != nil {
		return session.None, session.None, err
	}
	defer release()
	node = session.None
	p := s.Events()
	evs, err := s.AppendFunc(func(st session.State) ([]session.Draft, error) {
		if n, open := st.Turn(); open {
			return nil, fmt.Errorf("compact: turn %d is open: %w", n, session.ErrOpenTurn)
		}
		drafts, err := orphans(st, s.FirstLiveSeq())
		if err != nil {
			return nil, err
		}
		if node, err = Newest(st, p); err != nil {
			return nil, err
		}
		if node == session.None {
			return nil, ErrNoCompaction
		}
		return append(drafts, session.Draft{Type: session.TypeRestore, Data: struct{}{}, Op: session.Restore(node)}), nil
	})
	if err != nil {
		return session.None, session.None, err
	}
	return node, evs[len(evs)-1].Seq, nil
}
