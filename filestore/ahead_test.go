package filestore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// A long part of a log is read by two: every event comes, in order and once, from wherever and to wherever it is asked for; who
// has enough gets no more; and what was hurt since it was looked at is told of with its place, behind all that is good before it.
func TestReadAhead(t *testing.T) {
	root := t.TempDir()
	var good atomic.Int64 // so many reads succeed
	good.Store(1 << 40)
	gone := errors.New("the medium is gone")
	s := openStore(t, root, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		if c.Op == vfs.OpRead && good.Add(-1) < 0 {
			return gone
		}
		return do()
	}))
	const n = 12_000
	want := events(0, n)
	want[5000].Data = []byte(`{"text":"` + strings.Repeat("a long one ", 20_000) + `"}`) // in a blob
	for i := range 40 {                                                                  // longer than a batch
		want[7000].Data = append(want[7000].Data[:len(want[7000].Data)-1], []byte(`,"x`+strings.Repeat("y", i)+`":"`+strings.Repeat("long ", 1000)+`"}`)...)
	}
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader("abcd")))
	for i := 0; i < n; i += 500 {
		mustAppend(t, w, want[i:i+500])
	}
	mustFlush(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "sessions", "abcd", segmentName(0))
	whole := must[[]byte](t)(os.ReadFile(path))
	if len(whole) < 3*aheadBytes/2 {
		t.Fatalf("%d bytes are read by one", len(whole))
	}
	snap := must[*store.Snapshot](t)(s.Read(t.Context(), "abcd"))
	defer snap.Close()
	read := func(from, to session.Seq, stop int) (got []session.Event, err error) {
		for ev, e := range snap.Prefix.Range(from, to) {
			if e != nil {
				return got, e
			}
			if got = append(got, ev); len(got) == stop {
				break
			}
		}
		return got, nil
	}
	for _, c := range [][2]session.Seq{{0, n}, {1, n}, {0, n - 1}, {127, n}, {128, 11_000}, {129, 11_001}, {300, n}} {
		got, err := read(c[0], c[1], -1)
		if err != nil || !slices.EqualFunc(want[c[0]:c[1]], got, same) {
			t.Errorf("%d to %d: %d events, %v", c[0], c[1], len(got), err)
		}
	}
	for _, stop := range []int{1, 700, 9000} {
		if got, err := read(0, n, stop); err != nil || !slices.EqualFunc(want[:stop], got, same) {
			t.Errorf("stopped after %d: %d events, %v", stop, len(got), err)
		}
	}

	lines := bytes.SplitAfter(whole, []byte("\n"))[1:]
	start := func(q int) int64 {
		at := len(whole)
		for _, l := range lines[q:] {
			at -= len(l)
		}
		return int64(at)
	}
	flipped := func(q int) []byte {
		b := bytes.Clone(whole)
		b[start(q)+30] ^= 1
		return b
	}
	swapped := func(q int) []byte {
		b := bytes.Clone(whole[:start(q)])
		b = append(append(b, lines[q+1]...), lines[q]...)
		return append(b, whole[start(q+2):]...)
	}
	for what, c := range map[string]struct {
		text []byte
		at   int
	}{
		"the first":      {flipped(0), 0},
		"one of a batch": {flipped(3333), 3333},
		"the last":       {flipped(n - 1), n - 1},
		"two swapped":    {swapped(6000), 6000},
		"cut at a line":  {whole[:start(8000)], 8000},
		"cut in a line":  {whole[:start(8000)+40], 8000},
	} {
		reset(t, path, c.text)
		got, err := read(0, n, -1)
		var de *store.DamagedError
		if !errors.As(err, &de) || len(de.Ranges) != 1 || !slices.EqualFunc(want[:c.at], got, same) {
			t.Errorf("%s: %d events, %v", what, len(got), err)
			continue
		}
		r := de.Ranges[0]
		if r.First != session.Seq(c.at) || r.File != path || what != "cut at a line" && r.Offset != start(c.at) {
			t.Errorf("%s: the record %d at %d: %+v", what, c.at, start(c.at), r)
		}
		if got, err := read(0, session.Seq(c.at), -1); err != nil || len(got) != c.at { // what is hurt was not asked for
			t.Errorf("%s: up to it %d events, %v", what, len(got), err)
		}
	}
	reset(t, path, whole)
	good.Store(20)
	if got, err := read(0, n, -1); !errors.Is(err, gone) || len(got) < 1000 || !slices.EqualFunc(want[:len(got)], got, same) {
		t.Errorf("a failing medium: %d events, %v", len(got), err)
	}
}
