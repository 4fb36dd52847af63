package filestore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// manyBad makes a session of n segments of four records; hurt changes the text of each.
func manyBad(t testing.TB, n int, hurt func(text []byte)) *Store {
	t.Helper()
	dir := t.TempDir()
	if shm := os.Getenv("STRANDLINE_SCALE_DIR"); shm != "" {
		var err error
		if dir, err = os.MkdirTemp(shm, "scale-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	s := openStore(t, dir, nil)
	newStored(t, s, subject, 4)
	link := must[session.Link](t)(s.LinkAt(t.Context(), subject, 3))
	for i := 1; i < n; i++ {
		first := session.Seq(4 * i)
		text := record.AppendSegment(nil, record.Segment{Session: subject, First: first, Prev: link})
		for _, ev := range events(first, 4) {
			text, link = record.Append(text, ev, link, ev.Seq-1)
		}
		hurt(text)
		if err := os.WriteFile(segName{first, session.None}.in(s.dir(subject)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestRepairScale repairs a session with STRANDLINE_SCALE bad segments (60): it does not list the directory for each of them, and
// ends when it is told to, also while it plans.
func TestRepairScale(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("STRANDLINE_SCALE"))
	if err != nil {
		n = 60
	}
	for name, hurt := range map[string]func([]byte){
		"a record":  func(text []byte) { text[bytes.Index(text, []byte(`"type"`))+200] ^= 1 },
		"the head":  func(text []byte) { text[3] ^= 1 },
		"the first": func(text []byte) { text[bytes.IndexByte(text, '\n')+10] ^= 1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := manyBad(t, n, hurt)
			var calls, lists atomic.Int64
			s.fs = vfs.Around(s.fs, func(c *vfs.Call, do func() error) error {
				calls.Add(1)
				if c.Op == vfs.OpReadDir && c.Name == s.dir(subject) {
					lists.Add(1)
				}
				return do()
			})
			must[store.Repair](t)(s.Repair(t.Context(), subject, true))
			planning := calls.Load()
			// A person who does not want to wait for the plan need not.
			for part := range int64(10) {
				ctx, cancel := context.WithCancel(t.Context())
				fs := s.fs
				begun, left := calls.Load(), int64(0)
				s.fs = vfs.Around(fs, func(c *vfs.Call, do func() error) error {
					if calls.Load()-begun >= planning*part/10 {
						cancel()
						left++
					}
					return do()
				})
				if _, err := s.Repair(ctx, subject, true); !errors.Is(err, context.Canceled) || left > 30 {
					t.Errorf("stopped behind %d tenths of its %d calls: %v, and %d calls more", part, planning, err, left)
				}
				s.fs = fs
				cancel()
			}
			lists.Store(0)
			start := time.Now()
			rep := must[store.Repair](t)(s.Repair(t.Context(), subject, false))
			if lists.Load() > int64(20+n/200) { // new segments come in lots of a thousand
				t.Errorf("the directory was listed %d times", lists.Load())
			}
			t.Logf("%d segments: %v, %d lost, %d written, %d kept", n, time.Since(start).Round(time.Millisecond), store.Records(rep.Lost), len(rep.Written), len(rep.Kept))
		})
	}
}
