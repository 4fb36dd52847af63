package filestore

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// TestEveryCallFails breaks each call of each scenario, in each way. Whatever fails: no acknowledged
// event is lost, the log that is left is a prefix of what was written, and it opens for new work.
func TestEveryCallFails(t *testing.T) {
	ways := []struct {
		name string
		rule vfs.Rule
	}{
		{"fails", vfs.Rule{}},
		{"fails-for-good", vfs.Rule{Forever: true, Err: syscall.ENOSPC}},
		{"done-but-fails", vfs.Rule{After: true}},
		{"short", vfs.Rule{Short: 7, Err: syscall.ENOSPC, Match: func(c vfs.Call) bool { return c.Op == vfs.OpWrite }}},
		{"short-by-records", vfs.Rule{Short: 400, Match: func(c vfs.Call) bool { return c.Op == vfs.OpWrite }}},
		{"syncs-fail-for-good", vfs.Rule{Forever: true, Match: func(c vfs.Call) bool {
			return c.Op == vfs.OpSync || c.Op == vfs.OpSyncData || c.Op == vfs.OpSyncDir
		}}},
	}
	for _, sc := range scenarios {
		for _, way := range ways {
			t.Run(sc.name+"/"+way.name, func(t *testing.T) {
				for k := 1; ; k++ {
					if !breakOne(t, sc, way.rule, k) {
						if k == 1 && way.rule.Match == nil {
							t.Fatal("the scenario makes no call")
						}
						return
					}
				}
			})
		}
	}
}

// breakOne runs sc with its k-th call broken, and reports whether there was one.
func breakOne(t *testing.T, sc scenario, rule vfs.Rule, k int) bool {
	t.Helper()
	root := filepath.Join(t.TempDir(), "store")
	have := 0
	if sc.setup != nil {
		s := openStore(t, root, nil)
		sc.setup(t, s)
		have = 10
	}
	rule.K = k
	fs := vfs.Fault(unsynced, rule)
	o := testOptions()
	o.FS, o.SegmentBytes = fs, sc.roll
	s := openWith(t, root, o)
	acked, err := sc.run(t.Context(), s)
	s.Close()
	if fs.Hits() < k {
		if err != nil {
			t.Fatalf("nothing was broken, but: %v", err)
		}
		return false
	}
	if err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, store.ErrDamaged) &&
		!errors.Is(err, store.ErrNotSaved) && !errors.Is(err, store.ErrReadOnly) && !errors.Is(err, session.ErrRange) {
		t.Errorf("call %d: an error that does not say what happened: %v", k, err)
	}
	if t.Failed() {
		return false
	}
	at := fmt.Sprintf("call %d (scenario ended with %v, acked %d)", k, err, acked)

	s = openStore(t, root, nil)
	snap, err := s.Read(t.Context(), subject)
	if errors.Is(err, store.ErrNotFound) && have == 0 && acked == session.None {
		return true
	}
	if err != nil {
		t.Fatalf("%s: read: %v", at, err)
	}
	defer snap.Close()
	got := collect(t, snap.Prefix)
	if len(snap.Damage) > 0 || snap.Lost != nil {
		t.Fatalf("%s: damage %v, lost %v", at, snap.Damage, snap.Lost)
	}
	if len(got) < have || len(got) <= int(acked) {
		t.Fatalf("%s: only %d events are left", at, len(got))
	}
	if d := difference(events(0, len(got)), got); d != "" {
		t.Fatalf("%s: wrong events:\n%s", at, d)
	}
	st, err := s.Stat(t.Context(), subject)
	if err != nil || st.Pos != snap.Pos {
		t.Fatalf("%s: stat %+v, %v; read to %v", at, st, err, snap.Pos)
	}
	if _, err := s.Stat(t.Context(), "child"); err == nil {
		if kid, _ := readEvents(t, s, "child"); len(kid) != 9 {
			t.Fatalf("%s: half a fork: %d events", at, len(kid))
		}
	}
	w, err := s.Open(t.Context(), subject)
	if err != nil {
		t.Fatalf("%s: open: %v", at, err)
	}
	defer w.Close()
	more := events(session.Seq(len(got)), 3)
	mustAppend(t, w, more)
	mustFlush(t, w)
	wantEvents(t, collect(t, w.Stored()), events(0, len(got)+3))
	return true
}
