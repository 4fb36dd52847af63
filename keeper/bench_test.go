package keeper_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func memory() store.Store {
	return memstore.New(memstore.Options{Now: func() time.Time { return time.Unix(1, 0) }})
}

// BenchmarkAppendFlush is one event and one flush per operation, in 1 and in 64 sessions at once.
func BenchmarkAppendFlush(b *testing.B) {
	stores := map[string]func(b *testing.B) store.Store{
		"memstore":  func(*testing.B) store.Store { return memory() },
		"filestore": func(b *testing.B) store.Store { return files(b, b.TempDir(), nil) },
	}
	for name, open := range stores {
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				k := start(open(b))
				hs := make([]*keeper.Handle, n)
				for i := range hs {
					hs[i] = create(b, k, session.ID(fmt.Sprintf("id-%04d", i)))
				}
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for i, h := range hs {
					wg.Go(func() {
						for range (b.N + n - 1 - i) / n {
							put(b, h.Session(), titled("a title of the usual length"))
							flush(b, h)
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				if err := k.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkAppend is the cost that the keeper adds to an append that nobody waits for.
func BenchmarkAppend(b *testing.B) {
	for _, kept := range []bool{false, true} {
		b.Run(fmt.Sprintf("kept=%v", kept), func(b *testing.B) {
			k := start(memory())
			s := alone(b, header("abcd"), session.Seed{})
			if kept {
				if _, err := k.Adopt(b.Context(), s); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				put(b, s, titled("a title of the usual length"))
			}
		})
	}
}

// BenchmarkTurn is a turn of 208 events with one flush at its end.
func BenchmarkTurn(b *testing.B) {
	for _, name := range []string{"memstore", "filestore"} {
		b.Run(name, func(b *testing.B) {
			st := memory()
			if name == "filestore" {
				st = files(b, b.TempDir(), nil)
			}
			k := start(st)
			h := create(b, k, "abcd")
			for b.Loop() {
				for range 208 {
					put(b, h.Session(), titled("a title of the usual length"))
				}
				flush(b, h)
			}
			b.ReportMetric(208*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkIdle reports what an idle live session costs: resumed over a log of 8 or 1,000 events,
// worked on a little, flushed. The store's own records (memstore) or index (filestore) are counted too, by difference
// to a store with nothing live.
func BenchmarkIdle(b *testing.B) {
	idle := func(name string, turns int) {
		b.Run(fmt.Sprintf("%s/%d", name, 8*turns), func(b *testing.B) {
			const n = 200
			st := memory()
			if name == "filestore" {
				st = files(b, b.TempDir(), nil)
			}
			k := start(st)
			id := func(i int) session.ID { return session.ID(fmt.Sprintf("id-%05d", i)) }
			for i := range n {
				h := create(b, k, id(i))
				for turn := range turns {
					put(b, h.Session(), openTurn(turn+1)...)
					put(b, h.Session(), endTurn(turn+1)...)
				}
				dispose(b, h)
			}
			for b.Loop() {
				before := heap()
				hs := make([]*keeper.Handle, n)
				for i := range hs {
					hs[i] = resume(b, k, id(i))
					for range 8 {
						put(b, hs[i].Session(), titled("a title of the usual length"))
					}
					flush(b, hs[i])
				}
				b.StopTimer()
				b.ReportMetric(float64(heap()-before)/n, "B/session")
				for _, h := range hs {
					if _, err := h.Abandon(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
			}
		})
	}
	for _, name := range []string{"memstore", "filestore"} {
		idle(name, 1)
		idle(name, 125)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
