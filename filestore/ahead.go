package filestore

import (
	"context"
	"fmt"
	"io"
	"sort"
	"sync"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/vfs"
)

// To read the records of a long log, find their ends and verify their sums takes as long as to fold them. So the records
// of a long part of a segment are made ready a little ahead, by a goroutine that ends before the call does.
const (
	aheadBytes = 1 << 20 // shorter parts are read when they are asked for
	batchBytes = 64 << 10
	batches    = 3
)

// batch is a stretch of a segment, from one mark to another.
type batch struct {
	text   []byte
	off    int64
	raws   []record.Raw // the good records up to the first bad line, in text
	broken bool
	bad    record.Bad
	err    error
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

// read reads the batch from off to stop.
func (b *batch) read(file vfs.File, off, stop, shift int64) {
	if n := int(stop - off); cap(b.text) < n {
		b.text = make([]byte, max(n, batchBytes+batchBytes/2))
	}
	n, err := file.ReadAt(b.text[:stop-off], off+shift)
	if err == io.EOF {
		err = nil // what is missing is missed when it is due
	}
	b.off, b.raws, b.broken, b.err = off, b.raws[:0], false, err
	var sc record.Scanner
	sc.Reset(off)
	sc.Feed(b.text[:n], true)
	for {
		switch sc.Next() {
		case record.Good:
			b.raws = append(b.raws, sc.Raw)
		case record.Broken:
			b.broken, b.bad = true, sc.Bad
			return
		default:
			return
		}
	}
}

// scanAhead is scan of a plain part of g that begins at the mark m.
func (v *view) scanAhead(ctx context.Context, g *segment, file vfs.File, shift int64, m mark, from, to session.Seq, f func(*record.Raw) bool) error {
	free, ready, done := make(chan *batch, batches), make(chan *batch, batches), make(chan struct{})
	var all [batches]*batch
	for i := range all {
		all[i] = batchPool.Get().(*batch)
		free <- all[i]
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(ready)
		for off := m.off; off < g.stop; {
			first, stop := g.behind(off)
			if first >= to {
				return
			}
			select {
			case b := <-free:
				b.read(file, off, stop, shift)
				ready <- b
				off = stop
			case <-done:
				return
			}
		}
	})
	defer func() {
		close(done)
		reader.Wait()
		for _, b := range all {
			batchPool.Put(b)
		}
	}()
	due := m.seq
	for b := range ready {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at := b.off
		for i := range b.raws {
			raw := &b.raws[i]
			switch {
			case due >= to:
				return nil
			case raw.Seq != due:
				return v.damaged(g, at, int64(len(raw.Line())), due, fmt.Sprintf("a record with seq %d in its place", raw.Seq))
			case due >= from && !f(raw):
				return nil
			}
			at += int64(len(raw.Line())) + 1
			due++
		}
		switch {
		case due >= to:
			return nil
		case b.err != nil:
			return b.err
		case b.broken:
			return v.damaged(g, b.bad.Offset, b.bad.Bytes, due, b.bad.String())
		}
		free <- b
	}
	if due < to {
		return v.damaged(g, g.stop, 0, due, "the file is shorter than it was")
	}
	return nil
}

// behind returns the seq of the record at off, where a mark or the first record is, and where the batch that begins there
// ends.
func (g *segment) behind(off int64) (first session.Seq, stop int64) {
	mark := func(off int64) int {
		return sort.Search(len(g.marks), func(i int) bool { return g.marks[i].off >= off })
	}
	first, stop = g.first, g.stop
	if i := mark(off); i < len(g.marks) && g.marks[i].off == off {
		first = g.marks[i].seq
	}
	if i := mark(off + batchBytes); i < len(g.marks) {
		stop = g.marks[i].off
	}
	return first, stop
}
