// Package bench measures Strandline and prints the figures beside the physical limit of the same work in the
// same run: a raw write and fdatasync of the same bytes, a read of the same file. Machines are shared and
// noisy; what counts is the ratio, and how a figure grows with the length of a history.
//
// The work is made by gen.go: sessions with a realistic mix of events. Nothing here asserts a time.
package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/live"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Row is one measurement.
type Row struct {
	Work  string  `json:"work"`
	Size  int     `json:"size,omitzero"` // events in the history, or sessions
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Raw is the physical limit of the same work in the same run, in the same unit; 0: there is none.
	Raw   float64 `json:"raw,omitzero"`
	Ratio float64 `json:"ratio,omitzero"` // Value to Raw
	Note  string  `json:"note,omitzero"`
}

// Options says how much to measure.
type Options struct {
	Dir   string // where to work; a directory of its own is made there and removed
	Sizes []int  // lengths of histories, in events; nil: 1k, 10k, 100k
	Turns int    // turns per append measurement, and steps of a turn that is told; 0: 200
	// Sessions are the sizes of the stores that are listed; nil: 1k, 10k. With List nothing else is measured.
	Sessions []int
	List     bool
	// Messages are the sizes of the stores that are searched; nil: 10k. With Search nothing else is measured.
	Messages []int
	Search   bool
	Binary   string            // the command, for the rows about its start; "": left out
	Begin    func(what string) // called before each measurement; may be nil
	Emit     func(Row)         // required
}

type run struct {
	Options
	root string
	ids  atomic.Int64
}

// Run measures everything and emits the rows as they come.
func Run(ctx context.Context, opt Options) (err error) {
	if len(opt.Sizes) == 0 {
		opt.Sizes = []int{1_000, 10_000, 100_000}
	}
	if len(opt.Sessions) == 0 {
		opt.Sessions = []int{1_000, 10_000}
	}
	if len(opt.Messages) == 0 {
		opt.Messages = []int{10_000}
	}
	if opt.Turns == 0 {
		opt.Turns = 200
	}
	root, err := os.MkdirTemp(opt.Dir, "strandline-bench-")
	if err != nil {
		return err
	}
	defer func() {
		if e := os.RemoveAll(root); err == nil {
			err = e
		}
	}()
	r := &run{Options: opt, root: root}
	works := []struct {
		what string
		do   func(context.Context) error
	}{
		{"append, one session", func(ctx context.Context) error { return r.append(ctx, 1) }},
		{"append, 64 sessions", func(ctx context.Context) error { return r.append(ctx, 64) }},
		{"load and fork", r.histories},
		{"step and pack", r.sizes},
		{"steps", r.steps},
		{"steps that are told", r.told},
		{"idle session", r.idle},
		{"start", r.starts},
		{"lists", r.lists},
		{"searches", r.searches},
	}
	switch n := len(works); {
	case opt.List:
		works = works[n-2 : n-1]
	case opt.Search:
		works = works[n-1:]
	}
	for _, w := range works {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if opt.Begin != nil {
			opt.Begin(w.what)
		}
		if err := w.do(ctx); err != nil {
			return fmt.Errorf("bench: %s: %w", w.what, err)
		}
	}
	return nil
}

func (r *run) emit(row Row) {
	if row.Raw > 0 {
		row.Ratio = row.Value / row.Raw
	}
	r.Emit(row)
}

func now() int64 { return time.Now().UnixMilli() }

func (r *run) id() session.ID { return session.ID(fmt.Sprintf("bench-%08d", r.ids.Add(1))) }

func (r *run) open(dir string) (*filestore.Store, error) {
	return filestore.Open(filepath.Join(r.root, dir), filestore.Options{
		Now: time.Now, Rand: rand.Reader, Host: "bench", Program: "bench", PID: os.Getpid(),
	})
}

func (r *run) keeper(st store.Store) *keeper.Keeper {
	return keeper.New(st, live.New(), keeper.Options{Now: now, NewID: r.id})
}

func (r *run) header() session.Header {
	return session.Header{Format: session.Format, ID: r.id(), CreatedAt: now(), Kind: session.KindRoot, Cwd: r.root}
}

// quantile returns the q-th quantile of ds in microseconds.
func quantile(ds []time.Duration, q float64) float64 {
	s := slices.Clone(ds)
	slices.Sort(s)
	return float64(s[min(int(q*float64(len(s))), len(s)-1)].Nanoseconds()) / 1e3
}

// dirBytes adds up the sizes of the files below dir.
func dirBytes(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
