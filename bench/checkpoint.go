package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// keptNodes is how much of a surface is left when its beginning is summed up.
const keptNodes = 50

// checkpoint measures opening a long log for work behind a checkpoint, one turn before the end: as it is, where its
// surface is as long as the log, and then summed up, as a session of that length is in practice.
func (r *run) checkpoint(ctx context.Context, dir string, id session.ID, size int) error {
	for _, compacted := range []bool{false, true} {
		bytes, err := r.keepFold(ctx, dir, id, compacted)
		if err != nil {
			return err
		}
		if err := r.behind(ctx, dir, id, size, compacted, bytes); err != nil {
			return err
		}
	}
	return nil
}

// keepFold leaves a checkpoint, and a turn behind it. It returns the bytes of the checkpoint.
func (r *run) keepFold(ctx context.Context, dir string, id session.ID, compacted bool) (int, error) {
	st, err := r.open(dir)
	if err != nil {
		return 0, err
	}
	defer st.Close()
	w, err := st.Open(ctx, id)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	seed, err := store.Load(w.Opened(), session.Core())
	if err != nil {
		return 0, err
	}
	state := *seed.State
	if compacted {
		nodes := state.Surface()
		var hidden []session.Seq
		for _, n := range nodes[:max(len(nodes)-keptNodes, 1)] {
			hidden = append(hidden, n.Seq)
		}
		ev, err := session.Draft{Type: session.TypeUserMessage, Data: message.User("summary", "what was before"),
			Op: session.Replace(hidden[0], hidden[len(hidden)-1]), Sources: session.Cite(hidden...)}.Event(state.Next(), 1)
		if err != nil {
			return 0, err
		}
		if _, err := w.Append(ctx, []session.Event{ev}); err != nil {
			return 0, err
		}
		state.Load(ev)
	}
	next := state.Next()
	turn := Events(1)
	for i := range turn {
		turn[i].Seq += next
		for k := range turn[i].Sources {
			turn[i].Sources[k].First += next
			turn[i].Sources[k].Last += next
		}
	}
	if _, err := w.Append(ctx, turn[:1]); err != nil {
		return 0, err
	}
	state.Load(turn[0])
	pos, err := w.Flush(ctx)
	if err != nil {
		return 0, err
	}
	data, err := state.MarshalBinary()
	if err != nil {
		return 0, err
	}
	if err := st.PutCheckpoint(ctx, id, store.Checkpoint{Pos: pos, Data: data}); err != nil {
		return 0, err
	}
	if _, err := w.Append(ctx, turn[1:]); err != nil {
		return 0, err
	}
	_, err = w.Flush(ctx)
	return len(data), err
}

func (r *run) behind(ctx context.Context, dir string, id session.ID, size int, compacted bool, bytes int) error {
	what := "open for work with a checkpoint"
	if compacted {
		what += ", compacted"
	}
	st, err := r.open(dir)
	if err != nil {
		return err
	}
	defer st.Close()
	before := heap()
	begin := time.Now()
	w, err := st.Open(ctx, id)
	if err != nil {
		return err
	}
	defer w.Close()
	seed, err := store.Load(w.Opened(), session.Core())
	if err != nil {
		return err
	}
	s, err := session.New(w.Header(), seed, session.Env{Now: now})
	if err != nil {
		return err
	}
	took := time.Since(begin)
	kept := heap() - before
	r.emit(Row{Work: what, Size: size, Value: ms(took), Unit: "ms", Note: fmt.Sprintf("a checkpoint of %d bytes, %d events behind it", bytes, TurnEvents-1)})
	r.emit(Row{Work: what + ", memory kept", Size: size, Value: float64(kept) / 1e6, Unit: "MB", Note: "without the view"})
	if compacted {
		begin = time.Now()
		items, _, err := s.Surface()
		if err != nil {
			return err
		}
		took := time.Since(begin)
		r.emit(Row{Work: "first view behind a checkpoint, compacted", Size: size, Value: ms(took), Unit: "ms",
			Note: fmt.Sprintf("%d messages, read from below the checkpoint; %.1f MB kept in all", len(items), float64(heap()-before)/1e6)})
	}
	runtime.KeepAlive(s)
	begin = time.Now()
	snap, err := st.ReadTail(ctx, id)
	if err != nil {
		return err
	}
	defer snap.Close()
	if _, err := store.FoldTo(snap, session.Core(), store.Whole); err != nil {
		return err
	}
	if compacted {
		r.emit(Row{Work: "fold behind a checkpoint, as show --stat", Size: size, Value: ms(time.Since(begin)), Unit: "ms"})
	}
	return nil
}
