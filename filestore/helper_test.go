package filestore

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

var epoch = time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)

func testOptions() Options {
	return Options{Now: func() time.Time { return epoch }, Rand: rand.Reader, Host: "host", Program: "test", PID: os.Getpid(), ProcessStart: "1"}
}

// unsynced is the machine's file system without its syncs: what tests of the processes' view need, in
// a fraction of the time.
var unsynced = vfs.Around(vfs.OS(), func(c *vfs.Call, do func() error) error {
	switch c.Op {
	case vfs.OpSync, vfs.OpSyncData, vfs.OpSyncDir:
		return nil
	}
	return do()
})

func openStore(t testing.TB, root string, fs vfs.FS) *Store {
	t.Helper()
	o := testOptions()
	o.FS = fs
	if fs == nil {
		o.FS = unsynced
	}
	return openWith(t, root, o)
}

func openWith(t testing.TB, root string, o Options) *Store {
	t.Helper()
	s, err := Open(root, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func testHeader(id session.ID) session.Header {
	return session.Header{Format: session.Format, ID: id, CreatedAt: 1700000000000, Kind: session.KindRoot, Cwd: "/w"}
}

// events makes n log events with the seqs from first on.
func events(first session.Seq, n int) []session.Event {
	var out []session.Event
	for i := range n {
		q := first + session.Seq(i)
		out = append(out, session.Event{Seq: q, Time: 1700000000000 + int64(q), Type: "test/event", Ignorable: true,
			Data: jsontext.Value(fmt.Sprintf(`{"n":%d,"text":"event number %d"}`, q, q))})
	}
	return out
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func mustAppend(t testing.TB, w store.Writer, evs []session.Event) store.Pos {
	t.Helper()
	pos, err := w.Append(context.Background(), evs)
	if err != nil {
		t.Fatal(err)
	}
	return pos
}

func mustFlush(t testing.TB, w store.Writer) store.Pos {
	t.Helper()
	pos, err := w.Flush(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return pos
}

// newStored makes a session with n events, flushed, and closes it.
func newStored(t testing.TB, s *Store, id session.ID, n int) {
	t.Helper()
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(id)))
	mustAppend(t, w, events(0, n))
	mustFlush(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// readAllEvents returns the events of a snapshot and closes it.
func readEvents(t testing.TB, s *Store, id session.ID) ([]session.Event, *store.Snapshot) {
	t.Helper()
	snap, err := s.Read(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	return collect(t, snap.Prefix), snap
}

func collect(t testing.TB, p session.Prefix) []session.Event {
	t.Helper()
	var out []session.Event
	for ev, err := range p.Range(0, p.Len()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ev)
	}
	return out
}

func wantEvents(t testing.TB, got, want []session.Event) {
	t.Helper()
	if d := difference(want, got); d != "" {
		t.Fatalf("events differ (-want +got):\n%s", d)
	}
}

// difference is cmp.Diff of two logs, which is slow, where they differ.
func difference(want, got []session.Event) string {
	if slices.EqualFunc(want, got, same) {
		return ""
	}
	return cmp.Diff(want, got)
}

// tree returns every file below root with its bytes and times, directories with their times.
func tree(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(root, func(p string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		v := fmt.Sprint(info.Mode(), info.ModTime().UnixNano())
		if rel == "live" { // announcements come and go
			v = fmt.Sprint(info.Mode())
		}
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			v += string(b)
		}
		out[rel] = v
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func firsts(names []segName) []session.Seq {
	var out []session.Seq
	for _, n := range names {
		out = append(out, n.first)
	}
	return out
}
