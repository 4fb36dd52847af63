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
)

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
	if err := Populate(ctx, root, "/bench", []Part{{Sessions: n, Bytes: 10_000, Kind: session.KindRoot}}, nil); err != nil {
		return err
	}
	defer os.RemoveAll(root)
	open := func() (*index.Index, func() error, error) {
		st, err := filestore.Open(root, filestore.Options{Now: time.Now, Rand: rand.Reader})
		if err != nil {
			return nil, nil, err
		}
		x := index.Open(index.Options{Path: filepath.Join(root, "index.db"), Store: st, Registry: session.Core()})
		return x, func() error { defer st.Close(); return x.Close() }, nil
	}
	x, done, err := open()
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
	_, err = page() // directories that are younger than two seconds are not believed
	if err != nil {
		return err
	}
	var warm []time.Duration
	for range 20 {
		took, err := page()
		if err != nil {
			return err
		}
		warm = append(warm, took)
	}
	r.emit(Row{Work: "list page of 50, warm, p50", Size: n, Value: quantile(warm, 0.5) / 1e3, Unit: "ms", Raw: ms(readdir), Note: "in one process; looks at every session"})
	if err := done(); err != nil {
		return err
	}
	var again []time.Duration
	for range 5 {
		if x, done, err = open(); err != nil {
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
	r.emit(Row{Work: "list page of 50, index just opened, p50", Size: n, Value: quantile(again, 0.5) / 1e3, Unit: "ms", Raw: ms(readdir), Note: "without the start of the process"})
	info, err := os.Stat(filepath.Join(root, "index.db"))
	if err != nil {
		return err
	}
	r.emit(Row{Work: "index, bytes per session", Size: n, Value: float64(info.Size()) / float64(n), Unit: "bytes"})
	return nil
}
