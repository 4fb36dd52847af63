package app

import (
	"context"
	"sync"
	"time"

	"github.com/strandline-dev/strandline/index"
	"github.com/strandline-dev/strandline/session"
)

const (
	feedEvery = 500 * time.Millisecond // between two looks at what was written
	feedLast  = 2 * time.Second        // for the last one, when the work is over
)

// feeder keeps the index up to what a Work writes. It reads the store, as anybody could, after the sessions say that there
// is more: nothing that is not written gets into the index, and nobody waits for it. What it misses, the next list finds.
type feeder struct {
	index *index.Index
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// feed starts the feeder of w.
func (w *Work) feed(ctx context.Context) *feeder {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &feeder{index: w.app.idx(), stop: stop}
	f.done.Go(func() {
		s, seq := w.Agent.Session(), w.First
		known := map[session.ID]session.Seq{}
		for {
			events, more, err := s.From(seq)
			if err != nil {
				return
			}
			if len(events) == 0 {
				select {
				case <-more:
				case <-ctx.Done():
					return
				}
				continue
			}
			seq = events[len(events)-1].Seq + 1
			if sleep(ctx, feedEvery) != nil {
				return
			}
			w.indexed(ctx, known)
		}
	})
	return f
}

// indexed reads what the sessions of w have written; known is how far they were when that was done last.
func (w *Work) indexed(ctx context.Context, known map[session.ID]session.Seq) {
	for _, a := range w.d.Agents().All() {
		id, n := a.ID(), a.Session().Head()
		if known[id] == n {
			continue
		}
		if w.app.idx().Update(ctx, id) == nil { // else the next list will
			known[id] = n
		}
	}
}

// wrote returns the sessions that this life has added to.
func (w *Work) wrote() []session.ID {
	var ids []session.ID
	for _, a := range w.d.Agents().All() {
		if s := a.Session(); s.Head() > s.FirstLiveSeq() || a != w.Agent {
			ids = append(ids, a.ID())
		}
	}
	return ids
}

// close ends the feeder, and reads the ends of the sessions ids.
func (f *feeder) close(ctx context.Context, ids []session.ID) {
	if f == nil {
		return
	}
	f.stop()
	f.done.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), feedLast)
	defer cancel()
	for _, id := range ids {
		_ = f.index.Update(ctx, id) // what is missing the next list finds
	}
}
