package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"sync"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/vfs"
)

// far is the index of a segment, or of the beginning of one, that was not read when it was found: a checkpoint stands
// for what is in it. It begins empty, and learns where records stand as they are asked for. All views of a log
// share it.
type far struct {
	mu    sync.Mutex
	path  string // guarded by mu: the file that the marks are about
	marks []mark // guarded by mu, ascending
}

const (
	farText = 64 << 10 // read at a time
	farNear = 512      // a mark so many records before is nearer than looking again
	farMost = 1 << 12  // marks that are kept
)

// near returns the last known place at or before seq in the file path that is worth beginning at.
func (x *far) near(path string, seq session.Seq) (mark, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := sort.Search(len(x.marks), func(i int) bool { return x.marks[i].seq > seq }) - 1
	if x.path != path || i < 0 || seq-x.marks[i].seq > farNear {
		return mark{}, false
	}
	return x.marks[i], true
}

func (x *far) note(path string, m mark) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.path != path || len(x.marks) >= farMost {
		x.path, x.marks = path, nil
	}
	i := sort.Search(len(x.marks), func(i int) bool { return x.marks[i].seq >= m.seq })
	if i == len(x.marks) || x.marks[i].seq != m.seq {
		x.marks = append(x.marks[:i:i], append([]mark{m}, x.marks[i:]...)...)
	}
}

// knows reports whether the file was seen to be what its name says.
func (x *far) knows(path string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.path == path
}

// farPlace returns where the record of seq begins in g, whose file is f, and how long the file is.
func (v *view) farPlace(g *segment, f vfs.File, seq session.Seq) (mark, int64, error) {
	path := v.pathOf(g)
	info, err := f.Stat()
	if err != nil {
		return mark{}, 0, err
	}
	if !info.Mode().IsRegular() {
		return mark{}, 0, v.damaged(g, 0, 0, seq, (&notFileError{path, info.Mode()}).Error())
	}
	if !g.far.knows(path) {
		head, n, err := readSegmentHead(f)
		var re *record.Error
		var fe *record.FormatError
		switch {
		case errors.As(err, &re), errors.As(err, &fe):
			return mark{}, 0, v.damaged(g, 0, n, seq, "the first line: "+err.Error())
		case err != nil:
			return mark{}, 0, err
		case head.Session != g.owner || head.First > g.first:
			return mark{}, 0, v.damaged(g, 0, n, seq, fmt.Sprintf("it says that it is %s of session %s", segmentName(head.First), head.Session))
		}
		g.far.note(path, mark{head.First, n})
	}
	off := int64(-1)
	if m, ok := g.far.near(path, seq); ok {
		if off, err = recordFrom(context.Background(), f, m.off, seq, window, nil); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return mark{}, 0, err
		}
	}
	if off < 0 || err != nil {
		if off, err = locateRecord(context.Background(), f, seq, nil); errors.Is(err, fs.ErrNotExist) {
			return mark{}, 0, v.damaged(g, 0, info.Size(), seq, "its record is gone")
		}
	}
	if err != nil {
		return mark{}, 0, err
	}
	m := mark{seq, off}
	g.far.note(path, m)
	return m, info.Size(), nil
}

// farBlock returns the text of the records from seq or a little before on, and where it begins.
func (v *view) farBlock(g *segment, seq session.Seq) (mark, []byte, error) {
	v.mu.Lock()
	for i, b := range v.blocks {
		if b.path == g.path && b.first <= seq && seq < b.end {
			copy(v.blocks[1:i+1], v.blocks[:i])
			v.blocks[0] = b
			v.mu.Unlock()
			return mark{b.first, b.off}, b.text, nil
		}
	}
	v.mu.Unlock()
	f, _, err := v.open(g)
	if err != nil {
		return mark{}, nil, err
	}
	defer f.Close()
	m, size, err := v.farPlace(g, f, seq)
	if err != nil {
		return mark{}, nil, err
	}
	for want := int64(farText); ; want *= 4 {
		text := make([]byte, min(want, size-m.off))
		n, err := f.ReadAt(text, m.off)
		if err != nil && err != io.EOF {
			return mark{}, nil, err
		}
		end := bytes.LastIndexByte(text[:n], '\n') + 1
		if end == 0 && n == len(text) && want < record.MaxLine+1 {
			continue // a long one
		}
		text = text[:end:end]
		b := block{path: g.path, first: m.seq, off: m.off, end: m.seq + session.Seq(bytes.Count(text, []byte{'\n'})), text: text}
		if b.end > m.seq {
			v.keep(b)
			g.far.note(v.pathOf(g), mark{b.end, m.off + int64(end)})
		}
		return m, text, nil
	}
}

// pathOf returns where g lies, as far as v knows.
func (v *view) pathOf(g *segment) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m, ok := v.moved[place{g.owner, g.first}]; ok {
		return m.path
	}
	return g.path
}

// has reports whether the record of seq has the link.
func (v *view) has(seq session.Seq, link session.Link) bool {
	same := false
	err := v.each(context.Background(), seq, seq+1, func(_ *segment, raw *record.Raw) bool {
		l, ok := raw.Link()
		same = ok && l == link
		return true
	})
	return err == nil && same
}
