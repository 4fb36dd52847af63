package filestore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

const turnEvents = 208

// turn makes the events of a realistic turn: streamed chunks, mostly, and a few messages and results.
func turn(first session.Seq) []session.Event {
	text := bytes.Repeat([]byte("the tide leaves a line on the beach "), 60)
	out := make([]session.Event, turnEvents)
	for i := range out {
		q := first + session.Seq(i)
		ev := session.Event{Seq: q, Time: 1700000000000 + int64(q)}
		switch {
		case i == 0:
			ev.Type, ev.Op = session.TypeUserMessage, session.Append()
			ev.Data = jsontext.Value(fmt.Sprintf(`{"id":"m%d","role":"user","content":[{"type":"text","text":"%s"}],"source":{"kind":"user"}}`, q, text[:200]))
		case i%50 == 49:
			ev.Type, ev.Op = session.TypeToolResult, session.Append()
			ev.Data = jsontext.Value(fmt.Sprintf(`{"turn":1,"step":%d,"message":{"id":"m%d","role":"tool","content":[{"type":"text","text":"%s"}]}}`, i, q, text[:2000]))
		default:
			ev.Type = session.TypeAssistantChunk
			ev.Data = jsontext.Value(fmt.Sprintf(`{"turn":1,"step":%d,"chunk":{"type":"text","text":"%s"}}`, i, text[:40+i%60]))
		}
		out[i] = ev
	}
	return out
}

func turnBytes() []byte {
	var b []byte
	var link session.Link
	for _, ev := range turn(1000) {
		b, link = record.Append(b, ev, link, session.None)
	}
	return b
}

func report(b *testing.B, took []time.Duration, events int) {
	slices.Sort(took)
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "turn-p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "turn-p99-us")
}

// BenchmarkAppend appends turns of 208 events, one flush per turn, next to the same bytes written and
// synced by hand.
func BenchmarkAppend(b *testing.B) {
	for _, sessions := range []int{1, 64} {
		b.Run(fmt.Sprintf("sessions=%d/raw", sessions), func(b *testing.B) {
			text := turnBytes()
			dir := b.TempDir()
			each(b, sessions, func(i int) func(int) {
				f, err := vfs.OS().OpenFile(filepath.Join(dir, fmt.Sprint(i)), vfs.CreateAppend)
				if err != nil {
					b.Error(err)
				}
				b.Cleanup(func() { f.Close() })
				return func(int) {
					if _, err := f.Write(text); err != nil {
						b.Error(err)
					}
					if err := f.SyncData(); err != nil {
						b.Error(err)
					}
				}
			})
		})
		b.Run(fmt.Sprintf("sessions=%d/store", sessions), func(b *testing.B) {
			s := openStore(b, b.TempDir(), vfs.OS())
			each(b, sessions, func(i int) func(int) {
				h := testHeader(session.ID(fmt.Sprintf("bench-%d", i)))
				w, err := s.Create(b.Context(), h)
				if err != nil {
					b.Error(err)
				}
				next := session.Seq(0)
				evs := turn(0)
				if _, err := w.Append(b.Context(), evs); err != nil {
					b.Error(err)
				}
				return func(int) {
					next += turnEvents
					for j := range evs {
						evs[j].Seq = next + session.Seq(j)
					}
					if _, err := w.Append(b.Context(), evs); err != nil {
						b.Error(err)
					}
					if _, err := w.Flush(b.Context()); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// each runs b.N turns in n goroutines.
func each(b *testing.B, n int, start func(i int) func(turn int)) {
	steps := make([]func(int), n)
	for i := range steps {
		steps[i] = start(i)
	}
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	b.ResetTimer()
	for i, step := range steps {
		turns := b.N / n
		if i < b.N%n {
			turns++
		}
		wg.Go(func() {
			var mine []time.Duration
			for k := range turns {
				at := time.Now()
				step(k)
				mine = append(mine, time.Since(at))
			}
			mu.Lock()
			took = append(took, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	b.StopTimer()
	report(b, took, b.N*turnEvents)
}

// benchRoot keeps big sessions between runs of one process: making them takes longer than reading.
// TestMain removes them.
var benchRoot string

func bigSession(b *testing.B, n int) (*Store, session.ID) {
	b.Helper()
	if benchRoot == "" {
		dir, err := os.MkdirTemp("", "strandline-bench-")
		if err != nil {
			b.Fatal(err)
		}
		benchRoot = dir
	}
	s, err := Open(benchRoot, Options{Now: time.Now, Rand: rand.Reader})
	if err != nil {
		b.Fatal(err)
	}
	id := session.ID(fmt.Sprintf("big-%d", n))
	w, err := s.Create(context.Background(), testHeader(id))
	if errors.Is(err, store.ErrExists) {
		return s, id
	}
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	for q := 0; q < n; q += turnEvents {
		evs := turn(session.Seq(q))
		if _, err := w.Append(context.Background(), evs[:min(len(evs), n-q)]); err != nil {
			b.Fatal(err)
		}
		if q/turnEvents%16 == 0 || q+2*turnEvents > n {
			if _, err := w.Flush(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	return s, id
}

var sizes = []int{1_000, 10_000, 100_000, 1_000_000}

// BenchmarkLoad reads whole logs: cat of the same files, Read alone (every sum, the last segment's
// links), Open (the same, with the lease), and Read with every event handed out.
func BenchmarkLoad(b *testing.B) {
	for _, n := range sizes {
		s, id := bigSession(b, n)
		files, _ := filepath.Glob(filepath.Join(s.dir(id), "*"+segSuffix))
		var total int64
		for _, f := range files {
			info, err := os.Stat(f)
			if err != nil {
				b.Fatal(err)
			}
			total += info.Size()
		}
		run := func(name string, f func() error) {
			b.Run(fmt.Sprintf("events=%d/%s", n, name), func(b *testing.B) {
				b.SetBytes(total)
				b.ReportAllocs()
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("cat", func() error {
			buf := make([]byte, window)
			for _, name := range files {
				f, err := os.Open(name)
				if err != nil {
					return err
				}
				for err == nil {
					_, err = f.Read(buf)
				}
				f.Close()
				if err != io.EOF {
					return err
				}
			}
			return nil
		})
		run("read", func() error {
			snap, err := s.Read(context.Background(), id)
			if err != nil {
				return err
			}
			if int(snap.Prefix.Len()) != n || len(snap.Damage) > 0 {
				return fmt.Errorf("%d events, %v", snap.Prefix.Len(), snap.Damage)
			}
			return snap.Close()
		})
		run("open", func() error {
			w, err := s.Open(context.Background(), id)
			if err != nil {
				return err
			}
			return w.Close()
		})
		run("read-and-range", func() error {
			snap, err := s.Read(context.Background(), id)
			if err != nil {
				return err
			}
			for _, err := range snap.Prefix.Range(0, snap.Prefix.Len()) {
				if err != nil {
					return err
				}
			}
			return snap.Close()
		})
		run("read-and-fold", func() error {
			snap, err := s.Read(context.Background(), id)
			if err != nil {
				return err
			}
			if _, err := store.Load(snap, session.Core()); err != nil {
				return err
			}
			return snap.Close()
		})
		run("stat", func() error {
			_, err := s.Stat(context.Background(), id)
			return err
		})
	}
}

// BenchmarkFork forks near the end and in the middle of logs.
func BenchmarkFork(b *testing.B) {
	for _, n := range sizes[:3] {
		s, parent := bigSession(b, n)
		for name, cut := range map[string]int{"end": n - 1, "middle": n / 2} {
			b.Run(fmt.Sprintf("events=%d/%s", n, name), func(b *testing.B) {
				i := 0
				for b.Loop() {
					i++
					id := session.ID(fmt.Sprintf("fork-%d-%d-%d", n, time.Now().UnixNano(), i))
					at := session.Seq(cut - i%2) // not the one that is remembered
					h := testHeader(id)
					h.Kind, h.SeedLength = session.KindFork, at+1
					link, err := s.LinkAt(b.Context(), parent, at)
					if err != nil {
						b.Fatal(err)
					}
					trail, err := s.Trail(b.Context(), parent, at)
					if err != nil {
						b.Fatal(err)
					}
					h.Parent = &session.Parent{ID: parent, Seq: at, Link: link, Spans: []session.OriginSpan{{ID: parent, End: at + 1}}, Trail: trail}
					own := []session.Event{{Seq: at + 1, Type: session.TypeInherited, Data: jsontext.Value(`{}`)}}
					if err := s.CreateFork(b.Context(), h, own); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkList lists many small sessions, next to reading their directory.
func BenchmarkList(b *testing.B) {
	const n = 2000
	s := openStore(b, b.TempDir(), vfs.OS())
	evs := turn(0)
	for i := range n {
		w, err := s.Create(b.Context(), testHeader(session.ID(fmt.Sprintf("listed-%d", i))))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.Append(b.Context(), evs); err != nil {
			b.Fatal(err)
		}
		w.Flush(b.Context())
		w.Append(b.Context(), turn(turnEvents)[:3])
		w.Close()
	}
	b.Run("readdir", func(b *testing.B) {
		for b.Loop() {
			if _, err := os.ReadDir(s.path("sessions")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			p, err := s.List(b.Context(), store.Query{Limit: 50})
			if err != nil || p.Total != n {
				b.Fatal(p.Total, err)
			}
		}
	})
}
