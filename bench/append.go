package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/vfs"
)

// append measures durable appends: each event accepted by itself, one flush per turn, n sessions at once. Its
// limit is a loop over n files that writes the same bytes and calls fdatasync, at most 32 at a time.
func (r *run) append(ctx context.Context, n int) error {
	turns := max(r.Turns/n, min(r.Turns, 50))
	dir := fmt.Sprintf("append-%d", n)
	st, err := r.open(dir)
	if err != nil {
		return err
	}
	defer st.Close()
	k := r.keeper(st)
	work := make([][]session.Draft, 1+turns) // the first makes the session's files and is not measured
	for i := range work {
		work[i] = Turn(i + 1)
	}
	all := make([][]time.Duration, n)
	play := func(ctx context.Context, h *keeper.Handle, turn []session.Draft) error {
		for _, d := range turn {
			if _, err := h.Session().Append(d); err != nil {
				return err
			}
		}
		return h.Flush(ctx)
	}
	handles := make([]*keeper.Handle, n)
	for i := range handles {
		if handles[i], err = k.Create(ctx, r.header(), session.Seed{}); err != nil {
			return err
		}
		if err := play(ctx, handles[i], work[0]); err != nil {
			return err
		}
	}
	begin := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error {
			for _, turn := range work[1:] {
				t := time.Now()
				if err := play(gctx, handles[i], turn); err != nil {
					return err
				}
				all[i] = append(all[i], time.Since(t))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	took := time.Since(begin)
	if err := k.Close(ctx); err != nil {
		return err
	}
	stored, err := dirBytes(filepath.Join(r.root, dir, "sessions"))
	if err != nil {
		return err
	}
	perTurn := int(stored) / (n * len(work))
	rawTook, rawAll, err := r.rawAppend(ctx, n, turns, perTurn)
	if err != nil {
		return err
	}
	var own, raw []time.Duration
	for i := range all {
		own, raw = append(own, all[i]...), append(raw, rawAll[i]...)
	}
	events := float64(n * turns * TurnEvents)
	name := fmt.Sprintf("durable append, %d session(s), flush per turn of %d events", n, TurnEvents)
	r.emit(Row{Work: name, Size: n, Value: events / took.Seconds(), Unit: "events/s", Raw: events / rawTook.Seconds(),
		Note: fmt.Sprintf("raw: the same %d bytes per turn, one write and fdatasync", perTurn)})
	beyond := fmt.Sprintf("beyond raw per event: %.2f us", (quantile(own, .5)-quantile(raw, .5))/TurnEvents)
	if n > 1 { // sessions that never rest share the processors: a turn takes as long as one of each
		beyond = fmt.Sprintf("%d sessions at this rate: %.0f us per turn in the mean", n, float64(took.Microseconds())/float64(turns))
	}
	r.emit(Row{Work: name + ", turn p50", Size: n, Value: quantile(own, .5), Unit: "us", Raw: quantile(raw, .5), Note: beyond})
	r.emit(Row{Work: name + ", turn p99", Size: n, Value: quantile(own, .99), Unit: "us", Raw: quantile(raw, .99)})
	if n == 1 {
		var bytes int64
		for _, turn := range work {
			for i, d := range turn {
				bytes += int64(len(d.Data.([]byte)) + len(fmt.Sprintf(`{"seq":%d,"time":1700000000000,"type":"%s","data":}`, i, d.Type)))
			}
		}
		r.emit(Row{Work: "bytes written per byte of JSON", Value: float64(stored) / float64(bytes), Unit: "ratio",
			Note: "JSON: the event's seq, time, type and data alone"})
	}
	return nil
}

func (r *run) rawAppend(ctx context.Context, n, turns, perTurn int) (time.Duration, [][]time.Duration, error) {
	all := make([][]time.Duration, n)
	buf := make([]byte, perTurn)
	for i := range buf {
		buf[i] = byte('a' + i%26)
	}
	dir := filepath.Join(r.root, fmt.Sprintf("raw-%d", n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, nil, err
	}
	syncs := make(chan struct{}, 32)
	begin := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() (err error) {
			f, err := vfs.OS().OpenFile(filepath.Join(dir, fmt.Sprint(i)), vfs.CreateAppend)
			if err != nil {
				return err
			}
			defer f.Close()
			for range turns {
				if gctx.Err() != nil {
					return context.Cause(gctx)
				}
				t := time.Now()
				if _, err := f.Write(buf); err != nil {
					return err
				}
				syncs <- struct{}{}
				err := f.SyncData()
				<-syncs
				if err != nil {
					return err
				}
				all[i] = append(all[i], time.Since(t))
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Since(begin), all, err
}
