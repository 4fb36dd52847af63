package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// counter counts what reaches the file system.
type counter struct{ calls, written, read atomic.Int64 }

// counted opens a store whose calls are counted.
func (r *run) counted(dir string) (*filestore.Store, *counter, error) {
	c := &counter{}
	count := func(call *vfs.Call, do func() error) error {
		err := do()
		c.calls.Add(1)
		var n, at int64
		switch call.Op {
		case vfs.OpWrite:
			if _, e := fmt.Sscanf(call.Result, "%d bytes", &n); e == nil {
				c.written.Add(n)
			}
		case vfs.OpRead:
			if _, e := fmt.Sscanf(call.Result, "%d bytes at %d", &n, &at); e == nil {
				c.read.Add(n)
			}
		}
		return err
	}
	st, err := filestore.Open(filepath.Join(r.root, dir), filestore.Options{
		FS: vfs.Around(vfs.OS(), count), Now: time.Now, Rand: rand.Reader, Host: "bench", Program: "bench", PID: os.Getpid(),
	})
	return st, c, err
}

// sizes measures what one step costs on disk in sessions of different lengths, and what packing makes of them.
func (r *run) sizes(ctx context.Context) error {
	for _, size := range r.Sizes {
		dir := fmt.Sprintf("size-%d", size)
		id, err := r.build(ctx, dir, size)
		if err != nil {
			return err
		}
		for _, do := range []func(context.Context, string, session.ID, int) error{r.step, r.pack} {
			if err := do(ctx, dir, id, size); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(filepath.Join(r.root, dir)); err != nil {
			return err
		}
	}
	return nil
}

// step counts what the second step of a life writes: one step of 50 events, flushed. The first makes its file.
func (r *run) step(ctx context.Context, dir string, id session.ID, size int) error {
	st, c, err := r.counted(dir)
	if err != nil {
		return err
	}
	defer st.Close()
	w, err := st.Open(ctx, id)
	if err != nil {
		return err
	}
	evs := Events(int(w.Opened().Pos.Next)/TurnEvents + 1)
	text := func(evs []session.Event) (n int64) {
		for _, ev := range evs {
			b := fmt.Sprintf(`{"seq":%d,"time":%d,"type":%q,"data":}`, ev.Seq, ev.Time, ev.Type)
			n += int64(len(b) + len(ev.Data))
		}
		return n
	}
	home := filepath.Join(r.root, dir, "sessions", string(id))
	for i, what := range []string{"the first step of a life", "a step of 50 events"} {
		part := evs[i*50 : (i+1)*50]
		before, err := dirBytes(home)
		if err != nil {
			return err
		}
		written, calls := c.written.Load(), c.calls.Load()
		if _, err := w.Append(ctx, part); err != nil {
			return err
		}
		if _, err := w.Flush(ctx); err != nil {
			return err
		}
		after, err := dirBytes(home)
		if err != nil {
			return err
		}
		n := text(part)
		r.emit(Row{Work: what + ", bytes written", Size: size, Value: float64(c.written.Load() - written), Unit: "bytes", Raw: float64(n),
			Note: fmt.Sprintf("raw: its events' JSON; %d calls, %d bytes more on disk, the session has %.1f MB", c.calls.Load()-calls, after-before, float64(before)/1e6)})
	}
	return w.Close()
}

// pack measures packing a session, and what it is like to read one. Its limits are a read of the same text, and the
// same work on the session as it was before.
func (r *run) pack(ctx context.Context, dir string, id session.ID, size int) error {
	home := filepath.Join(r.root, dir, "sessions", string(id))
	st, c, err := r.counted(dir)
	if err != nil {
		return err
	}
	defer st.Close()
	load := func() (time.Duration, int64, error) {
		read, begin := c.read.Load(), time.Now()
		snap, err := st.Read(ctx, id)
		if err != nil {
			return 0, 0, err
		}
		defer snap.Close()
		_, err = store.Load(snap, session.Core())
		return time.Since(begin), c.read.Load() - read, err
	}
	ends := func() (time.Duration, error) {
		begin := time.Now()
		for range 20 {
			if _, err := st.List(ctx, store.Query{}); err != nil {
				return 0, err
			}
		}
		return time.Since(begin) / 20, nil
	}
	raw, err := r.cat(home)
	if err != nil {
		return err
	}
	plain, _, err := load()
	if err != nil {
		return err
	}
	list, err := ends()
	if err != nil {
		return err
	}
	begin := time.Now()
	p, err := st.Pack(ctx, id)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	mb := float64(p.BytesBefore) / 1e6
	r.emit(Row{Work: "pack", Size: size, Value: mb / took.Seconds(), Unit: "MB/s", Raw: mb / raw.Seconds(),
		Note: fmt.Sprintf("raw: reading the same files; %d segments to %d, written, synced and read back", p.Before, p.After)})
	r.emit(Row{Work: "packed size", Size: size, Value: float64(p.BytesAfter) / 1e6, Unit: "MB", Raw: mb, Note: "raw: as it was; its last segment stays as it is"})
	packed, n, err := load()
	if err != nil {
		return err
	}
	r.emit(Row{Work: "load a packed log", Size: size, Value: ms(packed), Unit: "ms", Raw: ms(plain),
		Note: fmt.Sprintf("raw: loading it before it was packed; %.1f MB read", float64(n)/1e6)})
	again, err := ends()
	if err != nil {
		return err
	}
	r.emit(Row{Work: "list of one packed session", Size: size, Value: ms(again), Unit: "ms", Raw: ms(list), Note: "raw: before it was packed"})
	begin = time.Now()
	w, err := st.Open(ctx, id)
	if err != nil {
		return err
	}
	r.emit(Row{Work: "open a packed session for work, without the fold", Size: size, Value: ms(time.Since(begin)), Unit: "ms"})
	return w.Close()
}
