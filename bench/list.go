package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/index"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/vfs"
)

// settled is how old a change of a directory must be to be believed.
const settled = 2100 * time.Millisecond

// lists measures a page of a list beside a listing of the directory with a stat of each session.
func (r *run) lists(ctx context.Context) error {
	for _, n := range r.Sessions {
		if err := r.list(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) list(ctx context.Context, n int) error {
	root := filepath.Join(r.root, fmt.Sprintf("list-%d", n))
	bytes := min(10_000, 100_000_000/max(n, 1)) // a list reads ends: more of them, of the same size, would only take room
	if err := Populate(ctx, root, "/bench", []Part{{Sessions: n, Bytes: bytes, Kind: session.KindRoot}}, nil); err != nil {
		return err
	}
	defer os.RemoveAll(root)
	// A directory that changed just now proves nothing: each list would read all of them again.
	if err := vfs.Wait(ctx, settled); err != nil {
		return err
	}
	open := func(now func() time.Time) (*index.Index, func() error, error) {
		st, err := filestore.Open(root, filestore.Options{Now: time.Now, Rand: rand.Reader})
		if err != nil {
			return nil, nil, err
		}
		x := index.Open(index.Options{Path: filepath.Join(root, "index.db"), Store: st, Registry: session.Core(), Now: now})
		return x, func() error { defer st.Close(); return x.Close() }, nil
	}
	x, done, err := open(time.Now)
	if err != nil {
		return err
	}
	page := func() (time.Duration, error) {
		begin := time.Now()
		_, err := x.List(ctx, index.Query{Limit: 50}, nil)
		return time.Since(begin), err
	}
	begin := time.Now()
	dirs, err := os.ReadDir(filepath.Join(root, "sessions"))
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if _, err := os.Lstat(filepath.Join(root, "sessions", d.Name())); err != nil {
			return err
		}
	}
	readdir := time.Since(begin)
	row := func(what string, took time.Duration, note string) {
		r.emit(Row{Work: what, Size: n, Value: ms(took), Unit: "ms", Raw: ms(readdir), Note: note})
	}
	first, err := page()
	if err != nil {
		return err
	}
	row("list page of 50, no index yet", first, "raw: readdir and one lstat per session")
	many := func(times int) ([]time.Duration, error) {
		var all []time.Duration
		for range times {
			took, err := page()
			if err != nil {
				return nil, err
			}
			all = append(all, took)
		}
		return all, nil
	}
	warm, err := many(20)
	if err != nil {
		return err
	}
	r.emit(Row{Work: "list page of 50, warm, p50", Size: n, Value: quantile(warm, 0.5) / 1e3, Unit: "ms", Raw: ms(readdir),
		Note: "in one process; looks at the 50, and at what writers may have changed"})
	if err := done(); err != nil {
		return err
	}
	var again []time.Duration
	for range 5 {
		if x, done, err = open(time.Now); err != nil {
			return err
		}
		took, err := page()
		if err != nil {
			return err
		}
		again = append(again, took)
		if err := done(); err != nil {
			return err
		}
	}
	r.emit(Row{Work: "list page of 50, index just opened, p50", Size: n, Value: quantile(again, 0.5) / 1e3, Unit: "ms", Raw: ms(readdir),
		Note: "without the start of the process; half a minute at most after all were looked at"})
	if x, done, err = open(nil); err != nil {
		return err
	}
	if _, err = page(); err != nil {
		return err
	}
	all, err := many(5)
	if err != nil {
		return err
	}
	r.emit(Row{Work: "list page of 50, all sessions looked at, p50", Size: n, Value: quantile(all, 0.5) / 1e3, Unit: "ms", Raw: ms(readdir),
		Note: "in one process; as after a session was begun or ended"})
	if err := done(); err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(root, "index.db"))
	if err != nil {
		return err
	}
	r.emit(Row{Work: "index, bytes per session", Size: n, Value: float64(info.Size()) / float64(n), Unit: "bytes"})
	return nil
}
