package keeper_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of 2 MiB, or skips.
func smallDisk(t *testing.T) string {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all the room that is left, but spare bytes.
func fill(t *testing.T, dir string, spare int64) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := io.Copy(f, io.LimitReader(zeros{}, 4<<20))
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%d bytes went in: %v", n, err)
	}
	if err := f.Truncate(n - spare); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// A disk fills up under sessions that work, and under one that has not begun. Each says that it is not saved,
// nothing that was acknowledged is lost, and when there is room again everything gets in without a restart.
func TestDiskFull(t *testing.T) {
	for _, spare := range []int64{0, 4 << 10, 12 << 10, 60 << 10} {
		for _, text := range []int{40, 3000, 50_000} { // the last is kept as a blob
			t.Run(fmt.Sprintf("%d spare, texts of %d", spare, text), func(t *testing.T) { diskFull(t, spare, text) })
		}
	}
}

func diskFull(t *testing.T, spare int64, text int) {
	root := smallDisk(t)
	st := files(t, root, nil)
	k := start(st)
	old, fresh := create(t, k, "abcd"), create(t, k, "efgh")
	put(t, old.Session(), titled("first"))
	flush(t, old)
	free := fill(t, root, spare)

	acked := map[*keeper.Handle]session.Seq{old: old.Session().Len()}
	n := map[*keeper.Handle]int{}
	for failed := 0; failed < 6; {
		for _, h := range []*keeper.Handle{old, fresh} {
			n[h]++
			put(t, h.Session(), titled(fmt.Sprint(n[h], strings.Repeat("x", text))))
			err := h.Flush(t.Context())
			switch {
			case err == nil:
				acked[h] = h.Session().Len()
			case !errors.Is(err, store.ErrNotSaved) || !errors.Is(err, syscall.ENOSPC):
				t.Fatalf("flush: %v", err)
			case !errors.Is(h.Saved(), store.ErrNotSaved) || len(h.Unsaved()) == 0:
				t.Fatalf("saved: %v, %d events unsaved", h.Saved(), len(h.Unsaved()))
			default:
				failed++
			}
		}
		if n[old] > 10_000 {
			t.Fatal("the disk does not fill up")
		}
	}
	// From outside: what was acknowledged is there, and the other says so or is not there at all.
	other := files(t, root, nil)
	for h, want := range acked {
		snap, err := other.Read(t.Context(), h.Header().ID)
		if err != nil {
			t.Fatalf("%s: %v", h.Header().ID, err)
		}
		if snap.Prefix.Len() < want || len(snap.Damage) > 0 {
			t.Errorf("%s: %d acknowledged, %d readable, damage %v", h.Header().ID, want, snap.Prefix.Len(), snap.Damage)
		}
		snap.Close()
	}
	free()
	for _, h := range []*keeper.Handle{old, fresh} {
		flush(t, h)
		if h.Saved() != nil {
			t.Errorf("%s: %v", h.Header().ID, h.Saved())
		}
		id, log := h.Header().ID, events(t, h.Session().Events())
		dispose(t, h)
		got := stored(t, other, id)
		if len(got) != len(log) {
			t.Errorf("%s: %d of %d events stored", id, len(got), len(log))
		}
		for i, ev := range got {
			if !bytes.Equal(ev.Data, log[i].Data) {
				t.Errorf("%s: event %d differs", id, i)
			}
		}
		v, err := other.Verify(t.Context(), id)
		if err != nil || len(v.Damage) > 0 || v.Torn != nil || v.Lost != nil {
			t.Errorf("%s: verify: %+v, %v", id, v, err)
		}
		again := resume(t, k, id)
		put(t, again.Session(), titled("after"))
		dispose(t, again)
	}
	left, _ := filepath.Glob(filepath.Join(root, "sessions", ".new-*"))
	if more, _ := filepath.Glob(filepath.Join(root, "sessions", "*", ".seg-*")); len(left)+len(more) > 0 {
		t.Errorf("left behind: %v %v", left, more)
	}
}
