package filestore

import (
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// After a failed sync the life goes on from memory: what the bad file says is not asked, not even to compare.
func TestRetryReadsNothing(t *testing.T) {
	const (
		fine = iota
		bad  // syncs and new files fail
		unreadable
	)
	var phase atomic.Int32
	s := openStore(t, t.TempDir(), vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		first := filepath.Base(c.Name) == segmentName(0)
		switch p := phase.Load(); {
		case p == bad && (c.Op == vfs.OpSyncData || c.Op == vfs.OpCreate && strings.Contains(c.Name, newSegment)),
			p != fine && first && (c.Op == vfs.OpRead || c.Op == vfs.OpOpen):
			return syscall.EIO
		}
		return do()
	}))
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	mustAppend(t, w, events(0, 5))
	mustFlush(t, w)
	mustAppend(t, w, events(5, 3))
	phase.Store(bad)
	if _, err := w.Flush(t.Context()); !errors.Is(err, store.ErrNotSaved) {
		t.Fatalf("flush: %v", err)
	}
	phase.Store(unreadable)
	mustAppend(t, w, events(5, 4)) // all that is not synced, and one more
	if pos := mustFlush(t, w); pos.Next != 9 {
		t.Fatal(pos)
	}
	other := by("other", 8, 1) // synced: equal or not is a matter of the file, which answers
	if _, err := w.Append(t.Context(), other); err == nil {
		t.Fatal("another event with the same seq was taken")
	}
	phase.Store(fine)
	got, _ := readEvents(t, s, subject)
	wantEvents(t, got, events(0, 9))
}
