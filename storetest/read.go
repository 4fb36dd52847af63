package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var readTests = []test{
	{"SnapshotStays", readSnapshotStays},
	{"ValidPrefixWhileWriting", readWhileWriting},
	{"SharedPrefix", readShared},
}

// A snapshot is what was there when it was taken, whatever happens later.
func readSnapshotStays(s *suite) {
	all := append(golden(), talk(8, 400)...)
	w := s.create("snap", all[:8]...)
	type taken struct {
		n    int
		snap *store.Snapshot
	}
	var snaps []taken
	take := func(n int) {
		s.Helper()
		snap, err := s.st.Read(s.ctx, "snap")
		s.ok(err)
		s.Cleanup(func() { snap.Close() })
		snaps = append(snaps, taken{n, snap})
	}
	take(8)
	for n := 8; n < 408; n += 50 {
		s.append(w, all[n:n+50]...)
		take(n + 50)
		if n == 208 {
			s.ok(w.Close())
			w = s.open("snap")
		}
	}
	s.ok(w.Close())
	for _, tk := range snaps {
		if tk.snap.Pos != posAfter(all[:tk.n]) {
			s.Errorf("the snapshot of %d events ends at %v", tk.n, tk.snap.Pos)
		}
		s.prefixIs(tk.snap.Prefix, all[:tk.n])
		_, err := tk.snap.Prefix.At(session.Seq(tk.n))
		s.is(err, session.ErrRange, "At behind the snapshot")
	}
}

// Readers always see a valid prefix, never less than what was written before they began.
func readWhileWriting(s *suite) {
	const batches, size = 150, 4
	all := talk(0, batches*size)
	pos := make([]store.Pos, len(all)+1)
	for i, ev := range all {
		pos[i+1] = store.Pos{Next: pos[i].Next + 1, Link: linkAfter(pos[i].Link, ev)}
	}
	readers := []store.Store{s.st, s.st}
	if s.Another != nil {
		readers = append(readers, s.Another(s.T), s.Another(s.T))
	}
	var mu sync.Mutex
	written := 0 // guarded by mu
	least := func() int {
		mu.Lock()
		defer mu.Unlock()
		return written
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	writing, stop := context.WithCancel(s.ctx) // stopped only when the writer fails
	defer stop()
	for i, st := range readers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for n := 0; n < len(all) && writing.Err() == nil; {
				want := least()
				snap, err := st.Read(s.ctx, "flow")
				if errors.Is(err, store.ErrNotFound) && want == 0 {
					continue
				}
				if err != nil {
					s.Errorf("Read: %v", err)
					return
				}
				got := int(snap.Prefix.Len())
				switch {
				case got < want || got < n:
					s.Errorf("%d events after %d were written and %d seen", got, want, n)
				case got > len(all) || snap.Pos != pos[got]:
					s.Errorf("position %v, want %v", snap.Pos, pos[got])
				case snap.Damage != nil || snap.Lost != nil || snap.Unsupported != "":
					s.Errorf("not whole: %+v", snap)
				default:
					from := rnd.IntN(got)
					for ev, err := range snap.Prefix.Range(session.Seq(from), session.Seq(got)) {
						if err != nil {
							s.Errorf("Range: %v", err)
							break
						}
						if d := difference(ev, all[from]); d != "" {
							s.Errorf("event %d: %s", from, d)
						}
						from++
					}
				}
				if err := snap.Close(); err != nil {
					s.Errorf("Close: %v", err)
				}
				if st, err := st.Stat(s.ctx, "flow"); err != nil || int(st.Pos.Next) < got || st.Pos != pos[st.Pos.Next] {
					s.Errorf("Stat: %v %v", st.Pos, err)
				}
				n = got
				if s.Failed() {
					return
				}
			}
		})
	}
	w := s.create("flow")
	for n := 0; n < len(all); n += size {
		s.append(w, all[n:n+size]...)
		mu.Lock()
		written = n + size
		mu.Unlock()
		switch {
		case n%100 == 0:
			s.flush(w)
		case n%148 == 0:
			s.ok(w.Close())
			w = s.open("flow")
		}
	}
	wg.Wait()
}

// A Prefix may be used by many goroutines.
func readShared(s *suite) {
	all := append(golden(), talk(8, 300)...)
	s.stored("comm", all...)
	snap, err := s.st.Read(s.ctx, "comm")
	s.ok(err)
	defer snap.Close()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(2, uint64(i)))
			for range 100 {
				q := rnd.IntN(len(all))
				ev, err := snap.Prefix.At(session.Seq(q))
				if err != nil {
					s.Errorf("At: %v", err)
				} else if d := difference(ev, all[q]); d != "" {
					s.Errorf("event %d: %s", q, d)
				}
			}
			for ev, err := range snap.Prefix.Range(8, session.Seq(len(all))) {
				if err != nil || difference(ev, all[ev.Seq]) != "" {
					s.Errorf("Range: event %d: %v", ev.Seq, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

var crowdTests = []test{
	{"ManySessions", crowdSessions},
	{"OneLease", crowdLease},
}

// Many sessions at once, with lists and stats in between.
func crowdSessions(s *suite) {
	const sessions, batches = 24, 12
	id := func(i int) session.ID { return session.ID(fmt.Sprintf("crowd-%02d", i)) }
	events := func(i int) []session.Event {
		out := talk(0, batches*5)
		for k := range out {
			out[k].Time += int64(i)
		}
		return out
	}
	var wg, look sync.WaitGroup
	done := make(chan struct{})
	look.Go(func() {
		for {
			if l, ok := s.st.(store.Lister); ok {
				page, err := l.List(s.ctx, store.Query{Limit: 7})
				if err != nil {
					s.Errorf("List: %v", err)
				}
				for _, row := range page.Rows {
					if row.State == store.StateDamaged || row.Header.ID != row.ID {
						s.Errorf("row %+v", row)
					}
				}
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range sessions {
		wg.Go(func() {
			all := events(i)
			w, err := s.st.Create(s.ctx, header(id(i)))
			for b := 0; b < batches && err == nil; b++ {
				if _, err = w.Append(s.ctx, all[b*5:b*5+5]); err == nil && b%4 == 0 {
					_, err = w.Flush(s.ctx)
				}
			}
			if err == nil {
				_, err = w.Flush(s.ctx)
			}
			if err == nil {
				err = w.Close()
			}
			if err != nil {
				s.Errorf("session %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	close(done)
	look.Wait()
	if s.Failed() {
		return
	}
	for i := range sessions {
		s.holds(id(i), events(i))
	}
}

// Of many that want one session at most one has it at a time, and no event is lost between them.
func crowdLease(s *suite) {
	s.stored("lease", talk(0, 1)...)
	stores := []store.Store{s.st}
	if s.Another != nil {
		stores = append(stores, s.Another(s.T), s.Another(s.T))
	}
	const each, who = 10, 6
	var holders, total int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range who {
		wg.Go(func() {
			for n := 0; n < each && !s.Failed(); {
				w, err := stores[i%len(stores)].Open(s.ctx, "lease")
				if errors.Is(err, store.ErrBusy) {
					continue
				}
				if err != nil {
					s.Errorf("Open: %v", err)
					return
				}
				mu.Lock()
				holders++
				if holders != 1 {
					s.Errorf("%d writers at once", holders)
				}
				mu.Unlock()
				next := w.Opened().Pos.Next
				if _, err := w.Append(s.ctx, talk(next, 1)); err != nil {
					s.Errorf("Append: %v", err)
				}
				n++
				mu.Lock()
				holders--
				total++
				mu.Unlock()
				if err := w.Close(); err != nil {
					s.Errorf("Close: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if s.Failed() {
		return
	}
	s.holds("lease", talk(0, 1+total))
	if total != each*who {
		s.Fatalf("%d lives, want %d", total, each*who)
	}
}
