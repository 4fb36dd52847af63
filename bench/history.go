package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// histories measures what must not grow with a history: forks, and the memory of a load beside its view.
func (r *run) histories(ctx context.Context) error {
	for _, size := range r.Sizes {
		dir := fmt.Sprintf("history-%d", size)
		id, err := r.build(ctx, dir, size)
		if err != nil {
			return err
		}
		if err := r.load(ctx, dir, id, size); err != nil {
			return err
		}
		if err := r.fork(ctx, dir, id, size); err != nil {
			return err
		}
		if err := r.checkpoint(ctx, dir, id, size); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(r.root, dir)); err != nil {
			return err
		}
	}
	return nil
}

// build stores a session of size events, rounded up to whole turns.
func (r *run) build(ctx context.Context, dir string, size int) (session.ID, error) {
	st, err := r.open(dir)
	if err != nil {
		return "", err
	}
	defer st.Close()
	h := r.header()
	w, err := st.Create(ctx, h)
	if err != nil {
		return "", err
	}
	for n := 1; (n-1)*TurnEvents < size; n++ {
		if _, err := w.Append(ctx, Events(n)); err != nil {
			return "", err
		}
	}
	if _, err := w.Flush(ctx); err != nil {
		return "", err
	}
	return h.ID, w.Close()
}

// load measures opening a whole log for work: the scan, the fold and the surface, in time and in memory that
// stays. Its limit is reading the same files.
func (r *run) load(ctx context.Context, dir string, id session.ID, size int) error {
	raw, err := r.cat(filepath.Join(r.root, dir, "sessions", string(id)))
	if err != nil {
		return err
	}
	st, err := r.open(dir)
	if err != nil {
		return err
	}
	defer st.Close()
	before := heap()
	begin := time.Now()
	snap, err := st.Read(ctx, id)
	if err != nil {
		return err
	}
	defer snap.Close()
	seed, err := store.Load(snap, session.Core())
	if err != nil {
		return err
	}
	took := time.Since(begin)
	kept := heap() - before
	s, err := session.New(snap.Header, seed, session.Env{Now: now})
	if err != nil {
		return err
	}
	viewBegin := time.Now()
	items, _, err := s.Surface()
	if err != nil {
		return err
	}
	viewTook, view := time.Since(viewBegin), heap()-before-kept
	r.emit(Row{Work: "load the whole log", Size: size, Value: ms(took), Unit: "ms", Raw: ms(raw),
		Note: fmt.Sprintf("raw: reading the same files; %d events", snap.Prefix.Len())})
	r.emit(Row{Work: "load the whole log, memory kept", Size: size, Value: float64(kept) / 1e6, Unit: "MB",
		Note: "index of offsets and folded state, without the view"})
	r.emit(Row{Work: "read the view of a loaded log", Size: size, Value: ms(viewTook), Unit: "ms",
		Note: fmt.Sprintf("%d messages, %.1f MB", len(items), float64(view)/1e6)})
	runtime.KeepAlive(s)
	return nil
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// cat reads every file below dir once.
func (r *run) cat(dir string) (time.Duration, error) {
	buf := make([]byte, 1<<20)
	begin := time.Now()
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		for {
			if _, err := f.Read(buf); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
	return time.Since(begin), err
}

// fork measures a fork of a cold session at its end. Its limit is what a durable new directory with two small
// files costs: two writes with their syncs, a rename and two directory syncs.
func (r *run) fork(ctx context.Context, dir string, id session.ID, size int) error {
	st, err := r.open(dir)
	if err != nil {
		return err
	}
	defer st.Close()
	const forks = 30
	var own, raw []time.Duration
	var bytes int64
	for range forks {
		child := r.id()
		begin := time.Now()
		if _, err := store.Fork(ctx, st, id, store.ForkOptions{Child: child, Now: now()}); err != nil {
			return err
		}
		own = append(own, time.Since(begin))
		n, err := dirBytes(filepath.Join(r.root, dir, "sessions", string(child)))
		if err != nil {
			return err
		}
		bytes = max(bytes, n)
		begin = time.Now()
		if err := r.rawFork(filepath.Join(r.root, dir), string(child)); err != nil {
			return err
		}
		raw = append(raw, time.Since(begin))
	}
	r.emit(Row{Work: "fork, p50", Size: size, Value: quantile(own, .5) / 1e3, Unit: "ms", Raw: quantile(raw, .5) / 1e3,
		Note: "raw: two small files in a new directory, synced"})
	r.emit(Row{Work: "fork, bytes on disk", Size: size, Value: float64(bytes), Unit: "bytes"})
	return nil
}

func (r *run) rawFork(root, name string) error {
	fs := vfs.OS()
	tmp := filepath.Join(root, "raw-"+name)
	if err := fs.Mkdir(tmp); err != nil {
		return err
	}
	for _, n := range []string{"a", "b"} {
		f, err := fs.OpenFile(filepath.Join(tmp, n), vfs.CreateAppend)
		if err != nil {
			return err
		}
		if _, err := f.Write(make([]byte, 400)); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	if err := fs.SyncDir(tmp); err != nil {
		return err
	}
	if err := fs.RenameNoReplace(tmp, tmp+"-done"); err != nil {
		return err
	}
	return fs.SyncDir(root)
}

// idle measures what an idle live session holds in memory beside its view.
func (r *run) idle(ctx context.Context) error {
	st, err := r.open("idle")
	if err != nil {
		return err
	}
	defer st.Close()
	k := r.keeper(st)
	const n = 500
	before := heap()
	for range n {
		h, err := k.Create(ctx, r.header(), session.Seed{})
		if err != nil {
			return err
		}
		for _, d := range Turn(1) {
			if _, err := h.Session().Append(d); err != nil {
				return err
			}
		}
		if err := h.Flush(ctx); err != nil {
			return err
		}
	}
	r.emit(Row{Work: "idle live session in memory", Size: n, Value: float64(heap()-before) / n / 1024, Unit: "KiB",
		Note: "after one turn of 208 events, without its view"})
	return k.Close(ctx)
}
