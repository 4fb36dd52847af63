package filestore

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// P10: the disk is full and comes back. Nothing is acknowledged that is not there, what failed is saved later by the
// same life, no file ever gets shorter, and after a kill or a loss of power all that was acknowledged is found.
func TestDiskFullAndBack(t *testing.T) {
	const kib, mib = 1 << 10, 1 << 20
	result := func(seq session.Seq, inline bool) session.Event {
		ev := events(seq, 1)[0]
		text := `"` + strings.Repeat(fmt.Sprintf("output %d ", seq), 30*kib) + `"`
		if inline { // in pieces that are too short for blobs
			piece := `"` + strings.Repeat(fmt.Sprintf("out %d ", seq), 4*kib) + `"`
			text = "[" + strings.Repeat(piece+",", 10) + piece + "]"
		}
		ev.Data = jsontext.Value(`{"output":` + text + `}`)
		return ev
	}
	for _, first := range []bool{false, true} {
		for _, inline := range []bool{false, true} {
			t.Run(fmt.Sprintf("first write %v, inline %v", first, inline), func(t *testing.T) {
				m := vfs.NewMem(vfs.MemOptions{Block: 4 * kib})
				p := m.Process()
				if err := errors.Join(p.Mkdir("/top"), p.SyncDir("/")); err != nil {
					t.Fatal(err)
				}
				create(t, p, "/ballast", 6*mib)
				s := memStore(t, p, 0, 1)
				w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
				var log []session.Event
				if first {
					create(t, p, "/more", 2*mib-64*kib)
				} else {
					log = events(0, 3)
					mustAppend(t, w, log)
					mustFlush(t, w)
				}
				m.SetLimit(8 * mib)
				sizes := map[string]int{}
				shrunk := func() {
					for name, was := range sizes {
						if b, err := m.ReadFile(name); err == nil && len(b) < was {
							t.Fatalf("%s had %d bytes and has %d", name, was, len(b))
						}
					}
					for _, name := range m.Names() {
						b, _ := m.ReadFile(name)
						sizes[name] = len(b)
					}
				}
				save := func(ev session.Event) error {
					defer shrunk()
					_, err := w.Append(t.Context(), []session.Event{ev})
					if err == nil {
						_, err = w.Flush(t.Context())
					}
					return err
				}
				acked := len(log)
				full := false
				for range 10 {
					ev := result(session.Seq(acked), inline)
					err := save(ev)
					if err == nil && full {
						t.Fatal("saved on a full disk")
					}
					if err == nil {
						log = append(log, ev)
						acked++
						continue
					}
					full = true
					ns, ok := errors.AsType[*store.NotSavedError](err)
					if !ok || !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(ns.Path, memRoot) {
						t.Fatalf("a full disk: %v", err)
					}
				}
				if !full {
					t.Fatal("the disk was never full")
				}
				late := m.Clone()
				if err := p.Remove("/ballast"); err != nil {
					t.Fatal(err)
				}
				ev := result(session.Seq(acked), inline)
				if err := save(ev); err != nil {
					t.Fatalf("with room again: %v", err)
				}
				log = append(log, ev)
				for how, tt := range map[string]struct {
					m *vfs.Mem
					n int
				}{
					"killed when it was full": {late, acked}, "no power when it was full": {late.Crash(vfs.Lost), acked},
					"killed": {m.Clone(), acked + 1}, "no power": {m.Crash(vfs.Lost), acked + 1},
				} {
					tt.m.SetLimit(0)
					again := memStore(t, tt.m.Process(), 0, 2)
					if tt.n == 0 {
						if _, err := again.Stat(t.Context(), subject); !errors.Is(err, store.ErrNotFound) {
							t.Errorf("%s: half a session: %v", how, err)
						}
						continue
					}
					w, err := again.Open(t.Context(), subject)
					if err != nil {
						t.Fatalf("%s: %v", how, err)
					}
					got := collect(t, w.Opened().Prefix)
					if len(got) < tt.n || difference(log[:len(got)], got) != "" {
						t.Errorf("%s: %d events, %d acknowledged", how, len(got), tt.n)
					}
					mustAppend(t, w, events(session.Seq(len(got)), 2))
					mustFlush(t, w)
				}
			})
		}
	}
}

// create makes a file of n bytes.
func create(t *testing.T, fsys vfs.FS, name string, n int) {
	t.Helper()
	f, err := fsys.OpenFile(name, vfs.CreateAppend)
	if err == nil {
		_, err = f.Write(make([]byte, n))
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
