package filestore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// refused makes the calls of kind op on names with the suffix fail with err.
func refused(err error, ops ...vfs.Op) vfs.FS {
	return vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		for _, op := range ops {
			if c.Op == op {
				return err
			}
		}
		return do()
	})
}

// A store that cannot be written says why, at once, and is read all the same.
func TestReadOnly(t *testing.T) {
	newer := func(t *testing.T, root string) {
		if err := os.WriteFile(filepath.Join(root, storeName), []byte(`{"strandline":2,"store":"x","more":{}}`+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		fs     vfs.FS
		before func(*testing.T, string)
		why    string
		late   bool // found out at the first append only
	}{
		"newer format":            {before: newer, why: "newer"},
		"locks do nothing":        {fs: noLocks{unsynced, func(string) bool { return true }}, why: "locks", late: true},
		"locks are refused":       {fs: refused(syscall.ENOLCK, vfs.OpLock), why: syscall.ENOLCK.Error(), late: true},
		"neither link nor rename": {fs: refused(vfs.ErrNotSupported, vfs.OpLink, vfs.OpRename), why: "not supported", late: true},
		"read-only file system": {fs: vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
			switch c.Op {
			case vfs.OpAccess, vfs.OpCreate, vfs.OpMkdir, vfs.OpLink, vfs.OpRename, vfs.OpRemove, vfs.OpWrite:
				return syscall.EROFS
			}
			return do()
		}), why: syscall.EROFS.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			newStored(t, openStore(t, root, nil), subject, 5)
			if tt.before != nil {
				tt.before(t, root)
			}
			before := tree(t, root)
			s := openStore(t, root, tt.fs)
			check := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, store.ErrReadOnly) || !strings.Contains(err.Error(), tt.why) {
					t.Errorf("%s: %v", what, err)
				}
			}
			w, err := s.Create(t.Context(), testHeader("new-one"))
			if tt.late && err == nil {
				_, err = w.Append(t.Context(), events(0, 1))
				w.Close()
			}
			check("create", err)
			w, err = s.Open(t.Context(), subject)
			if tt.late && err == nil {
				_, err = w.Append(t.Context(), events(5, 1))
				w.Close()
			}
			check("open", err)
			got, _ := readEvents(t, s, subject)
			wantEvents(t, got, events(0, 5))
			if page := must[store.Page](t)(s.List(t.Context(), store.Query{})); len(page.Rows) != 1 || page.Rows[0].State != store.StateOK {
				t.Errorf("list: %+v", page)
			}
			for f, v := range tree(t, root) {
				if strings.HasSuffix(f, segSuffix) && before[f] != v {
					t.Errorf("%s was changed", f)
				}
			}
		})
	}
}

// Without hard links a segment is renamed to its name.
func TestNoHardLinks(t *testing.T) {
	s := openStore(t, t.TempDir(), refused(vfs.ErrNotSupported, vfs.OpLink))
	newStored(t, s, subject, 5)
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, w, events(5, 5))
	mustFlush(t, w)
	w.Close()
	got, _ := readEvents(t, s, subject)
	wantEvents(t, got, events(0, 10))
}

// After a failed sync the life goes on in a new segment behind the last synced record, with the same
// bytes: no reader sees an event vanish.
func TestFailedSync(t *testing.T) {
	root := t.TempDir()
	fs := vfs.Fault(unsynced, vfs.Rule{K: 2, Match: func(c vfs.Call) bool { return c.Op == vfs.OpSyncData }})
	s := openStore(t, root, fs)
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	mustAppend(t, w, events(0, 2))
	mustAppend(t, w, events(2, 2))
	mustFlush(t, w)
	mustAppend(t, w, events(4, 3))
	snap := must[*store.Snapshot](t)(s.Read(t.Context(), subject))
	mustFlush(t, w) // its first sync fails
	if fs.Hits() != 2 || w.Base() != 0 {
		t.Fatalf("%d syncs, base %d", fs.Hits(), w.Base())
	}
	wantEvents(t, collect(t, snap.Prefix), events(0, 7))
	old, _ := os.ReadFile(filepath.Join(s.dir(subject), segmentName(0)))
	now, err := os.ReadFile(filepath.Join(s.dir(subject), segmentName(4)))
	if err != nil {
		t.Fatal(err)
	}
	if _, records, _ := bytes.Cut(now, []byte("\n")); !bytes.HasSuffix(old, records) || bytes.Count(records, []byte("\n")) != 3 {
		t.Fatalf("not the same bytes:\n%s\n%s", old, now)
	}
	mustAppend(t, w, events(7, 1))
	mustFlush(t, w)
	got, _ := readEvents(t, s, subject)
	wantEvents(t, got, events(0, 8))
	wantEvents(t, collect(t, w.Stored()), events(0, 8))
	for q := range session.Seq(8) {
		if ev, err := w.Stored().At(q); err != nil || ev.Seq != q {
			t.Fatal(ev, err)
		}
	}
}

// What the life before wrote and nobody synced cannot be synced: it is written again.
func TestUnsafeTail(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	mustAppend(t, w, events(0, 2))
	mustAppend(t, w, events(2, 3)) // its mark: 1
	w.Close()
	s = openStore(t, root, vfs.Fault(unsynced, vfs.Rule{K: 1, Match: func(c vfs.Call) bool { return c.Op == vfs.OpSyncData }}))
	w = must[store.Writer](t)(s.Open(t.Context(), subject))
	if _, err := w.Flush(t.Context()); !errors.Is(err, store.ErrNotSaved) {
		t.Fatalf("flush: %v", err)
	}
	mustAppend(t, w, events(5, 1))
	mustFlush(t, w)
	if w.Base() != 2 {
		t.Fatalf("base %d", w.Base())
	}
	wantEvents(t, collect(t, w.Stored()), events(0, 6))
	w.Close()
	got, snap := readEvents(t, s, subject)
	wantEvents(t, got, events(0, 6))
	if v := must[*store.Snapshot](t)(s.Verify(t.Context(), subject)); len(v.Damage) > 0 || v.Pos != snap.Pos {
		t.Fatalf("verify: %+v", v)
	}
}

// Verify finds what Read takes as it is.
func TestVerify(t *testing.T) {
	root := t.TempDir()
	o := testOptions()
	o.SegmentBytes = 600
	s := openWith(t, root, o)
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	for q := range session.Seq(20) {
		mustAppend(t, w, events(q, 1))
	}
	big := events(20, 1)
	big[0].Data = []byte(`{"text":"` + strings.Repeat("x", 40_000) + `"}`)
	mustAppend(t, w, big)
	mustFlush(t, w)
	w.Close()
	if v := must[*store.Snapshot](t)(s.Verify(t.Context(), subject)); len(v.Damage) > 0 || v.Pos.Next != 21 {
		t.Fatalf("healthy: %+v", v)
	}
	// A link in the middle of an early segment.
	path := filepath.Join(s.dir(subject), segmentName(0))
	b, _ := os.ReadFile(path)
	lines := bytes.SplitAfter(b, []byte("\n"))
	at := len(lines[0]) + len(lines[1]) + len(lines[2]) - len(`AAAAAA"}`) - 4
	c := bytes.Clone(b)
	c[at] ^= 1
	os.WriteFile(path, c, 0o600)
	if snap := must[*store.Snapshot](t)(s.Read(t.Context(), subject)); len(snap.Damage) > 0 || snap.Pos.Next != 21 {
		t.Fatalf("read: %+v", snap)
	}
	os.WriteFile(path, b, 0o600)
	// A blob.
	blobs, _ := filepath.Glob(filepath.Join(root, "blobs", "sha256", "*", "*"))
	if len(blobs) != 1 {
		t.Fatal(blobs)
	}
	os.Remove(blobs[0])
	v := must[*store.Snapshot](t)(s.Verify(t.Context(), subject))
	if len(v.Damage) != 1 || v.Damage[0].First != 20 || v.Pos.Next != 20 {
		t.Fatalf("without its blob: %+v", v.Damage)
	}
}
