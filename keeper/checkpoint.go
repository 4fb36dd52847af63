package keeper

import (
	"context"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// A checkpoint of the session's state is kept beside its log now and then, so that the next life need not read all of
// it. It is made of what is synced, beside the drainer, which never waits for it but at the end; that it fails is
// no matter to anybody.
const (
	foldEvents = 1024    // so much further than the last one there is another,
	foldBytes  = 1 << 20 // or so many bytes,
	foldLast   = 256     // and so many events at the end of a life
)

// folding is what a handle knows of its checkpoints. It is owned by the drainer, and by who has stopped it.
type folding struct {
	st    store.Checkpoints // nil: the store keeps none
	at    session.Seq       // of the last one
	bytes int               // written since
	pos   store.Pos         // synced; zero before the first sync of this life
	done  chan struct{}     // closed when the one on its way is made; nil: there is none
}

func newFolding(st store.Store, w store.Writer) folding {
	f := folding{}
	f.st, _ = st.(store.Checkpoints)
	snap := w.Opened()
	if f.st == nil || snap == nil {
		return f
	}
	if snap.Nearest != nil {
		if c, ok := snap.Nearest(store.Whole); ok {
			f.at = c.Pos.Next
		}
	}
	if snap.Header.Kind == session.KindSubagent { // its parent's are as good
		f.at = max(f.at, snap.Header.SeedLength)
	}
	return f
}

// foldingOf is that of a session that may have been live before w was opened. If it knows more than itself wrote here, the log may have been
// repaired since it read that: the next life keeps checkpoints again.
func (k *Keeper) foldingOf(s *session.Session, w store.Writer, stored session.Seq) folding {
	if stored > 0 || s.Header().Parent != nil {
		return folding{}
	}
	return newFolding(k.st, w)
}

// checkpoint begins to keep one if it is time, and the session has accepted nothing that is not synced.
func (h *Handle) checkpoint(pos store.Pos) {
	f := &h.fold
	f.pos = pos
	if f.st == nil || pos.Next-f.at < foldEvents && f.bytes < foldBytes || f.busy() {
		return
	}
	h.keepFold()
}

func (f *folding) busy() bool {
	if f.done == nil {
		return false
	}
	select {
	case <-f.done:
		f.done = nil
		return false
	default:
		return true
	}
}

func (h *Handle) keepFold() {
	f := &h.fold
	st := h.sess.State()
	if st.Next() != f.pos.Next {
		return
	}
	f.at, f.bytes = f.pos.Next, 0
	f.done = make(chan struct{})
	go func(pos store.Pos, done chan struct{}) {
		defer close(done)
		if data, err := st.MarshalBinary(); err == nil {
			_ = f.st.PutCheckpoint(context.Background(), h.header.ID, store.Checkpoint{Pos: pos, Data: data})
		}
	}(f.pos, f.done)
}

// lastFold keeps a checkpoint of how this life ends, and waits for what is on its way. The drainer is stopped.
func (h *Handle) lastFold() {
	f := &h.fold
	if f.done != nil {
		<-f.done
		f.done = nil
	}
	h.mu.Lock()
	saved := h.dead == nil && h.saved == nil
	h.mu.Unlock()
	if f.st == nil || !saved || f.pos.Next-f.at < foldLast {
		return
	}
	if h.keepFold(); f.done != nil {
		<-f.done
		f.done = nil
	}
}
