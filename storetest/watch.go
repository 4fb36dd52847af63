package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var watchTests = []test{
	{"Stored", watchStored},
	{"Live", watchLive},
	{"Lives", watchLives},
	{"Fork", watchFork},
	{"BeyondTheEnd", watchBeyond},
	{"Blobs", watchBlobs},
	{"Nothing", watchNothing},
	{"Cancel", watchCancel},
	{"Removed", watchRemoved},
	{"Crowd", watchCrowd},
	{"Memory", watchMemory},
}

// watchTime is far more than any of this takes: a feed that never tells ends a test, not the suite.
const watchTime = time.Minute

// follower reads a feed.
type follower struct {
	*suite
	feed store.Feed
}

func (s *suite) watch(st store.Store, id session.ID, from session.Seq) *follower {
	s.Helper()
	w, ok := st.(store.Watcher)
	if !ok {
		s.Skip("this driver cannot be watched")
	}
	feed, err := w.Watch(s.ctx, id, from)
	s.ok(err)
	s.Cleanup(func() { feed.Close() })
	return &follower{s, feed}
}

func (f *follower) next() (store.News, error) {
	ctx, stop := context.WithTimeoutCause(f.ctx, watchTime, errors.New("the feed tells nothing"))
	defer stop()
	return f.feed.Next(ctx)
}

// gives fails unless the feed gives want next, and nothing else.
func (f *follower) gives(want []session.Event) {
	f.Helper()
	for len(want) > 0 {
		news, err := f.next()
		f.ok(err)
		if len(news.Events) > len(want) {
			f.Fatalf("%d events, want %d: %+v", len(news.Events), len(want), news.Events)
		}
		for i, ev := range news.Events {
			f.same(ev, want[i])
		}
		want = want[len(news.Events):]
	}
}

// holder waits until the feed tells that nothing is left and that the session is held, or not.
func (f *follower) holder(held bool) {
	f.Helper()
	for {
		news, err := f.next()
		f.ok(err)
		if len(news.Events) > 0 {
			f.Fatalf("%d more events from %d on", len(news.Events), news.Events[0].Seq)
		}
		if (news.Holder != nil) == held {
			return
		}
	}
}

func watchStored(s *suite) {
	log := talk(0, 700)
	s.stored("watched", log...)
	for _, from := range []session.Seq{0, 1, 350, 699} {
		f := s.watch(s.st, "watched", from)
		f.gives(log[from:])
		f.holder(false)
		s.ok(f.feed.Close())
		s.ok(f.feed.Close())
		_, err := f.next()
		s.is(err, store.ErrClosed, "Next after Close")
	}
}

// A feed tells each event as soon as it is written, before it is flushed, and who writes.
func watchLive(s *suite) {
	log := talk(0, 40)
	w := s.create("live", log[:3]...)
	handles := []store.Store{s.st}
	if s.Another != nil {
		handles = append(handles, s.Another(s.T))
	}
	var fs []*follower
	for _, st := range handles {
		f := s.watch(st, "live", 1)
		f.gives(log[1:3])
		news, err := f.next()
		s.ok(err)
		if news.Holder == nil || news.Holder.SessionID != "live" || len(news.Events) > 0 {
			s.Fatalf("news %+v", news)
		}
		fs = append(fs, f)
	}
	for n := 3; n < len(log); n++ {
		s.append(w, log[n])
		if n%3 == 0 {
			s.flush(w)
		}
		for _, f := range fs {
			f.gives(log[n : n+1])
		}
	}
	s.ok(w.Close())
	for _, f := range fs {
		f.holder(false)
	}
}

// A feed goes on over the end of a life, and tells what each life begins with.
func watchLives(s *suite) {
	log := talk(0, 4)
	s.stored("lives", log...)
	st := s.st
	if s.Another != nil {
		st = s.Another(s.T)
	}
	f := s.watch(st, "lives", 0)
	f.gives(log)
	f.holder(false)
	for range 5 {
		w := s.open("lives")
		f.holder(true) // it has written nothing
		n := session.Seq(len(log))
		more := append([]session.Event{boundary(n)}, talk(n+1, 3)...)
		s.append(w, more...)
		f.gives(more)
		s.flush(w)
		s.ok(w.Close())
		f.holder(false)
		log = append(log, more...)
	}
	s.holds("lives", log)
}

// The inherited part of a fork is told as if it were its own, and never what the parent wrote behind the cut.
func watchFork(s *suite) {
	f := s.forker()
	log := talk(0, 30)
	s.stored("parent", log...)
	s.ok(f.CreateFork(s.ctx, s.childHeader("child", "parent", 19), []session.Event{boundary(20)}))
	child := append(log[:20:20], boundary(20))
	s.ok(f.CreateFork(s.ctx, s.childHeader("grandchild", "child", 20), nil))
	grand := child[:21:21]
	for id, want := range map[session.ID][]session.Event{"child": child, "grandchild": grand} {
		for _, from := range []int{0, 7, 19, 20} {
			w := s.watch(s.st, id, session.Seq(from))
			w.gives(want[from:])
			w.holder(false)
		}
	}
	for id, have := range map[session.ID][]session.Event{"child": child, "grandchild": grand} {
		w := s.watch(s.st, id, 10)
		w.gives(have[10:])
		w.holder(false)
		life := s.open(id)
		w.holder(true)
		more := talk(session.Seq(len(have)), 5)
		s.append(life, more...)
		w.gives(more)
	}
}

func watchBeyond(s *suite) {
	log := talk(0, 20)
	w := s.create("short", log[:5]...)
	f := s.watch(s.st, "short", 12)
	f.holder(true)
	s.append(w, log[5:9]...)
	s.append(w, log[9:15]...)
	f.gives(log[12:15])
	s.flush(w)
	s.ok(w.Close())
	g := s.watch(s.st, "short", 17)
	g.holder(false)
	w = s.open("short")
	g.holder(true)
	s.append(w, log[15:]...)
	g.gives(log[17:])
}

func watchBlobs(s *suite) {
	big := user(1, strings.Repeat("long ", 20_000))
	w := s.create("bigger", chunk(0))
	f := s.watch(s.st, "bigger", 0)
	f.gives([]session.Event{chunk(0)})
	f.holder(true)
	s.append(w, big, chunk(2))
	f.gives([]session.Event{big, chunk(2)})
}

func watchNothing(s *suite) {
	w, ok := s.st.(store.Watcher)
	if !ok {
		s.Skip("this driver cannot be watched")
	}
	for _, id := range []session.ID{"nobody", "../x", ""} {
		_, err := w.Watch(s.ctx, id, 0)
		s.is(err, store.ErrNotFound, fmt.Sprintf("Watch of %q", id))
	}
	s.create("reserved") // nothing is stored yet
	_, err := w.Watch(s.ctx, "reserved", 0)
	s.is(err, store.ErrNotFound, "Watch of a session that has no event yet")
	s.stored("there", talk(0, 2)...)
	_, err = w.Watch(s.ctx, "there", -1)
	s.is(err, session.ErrRange, "Watch from before the beginning")
}

func watchCancel(s *suite) {
	log := talk(0, 3)
	w := s.create("cancel", log[:2]...)
	f := s.watch(s.st, "cancel", 0)
	f.gives(log[:2])
	f.holder(true)
	why := errors.New("enough")
	ctx, stop := context.WithCancelCause(s.ctx)
	done := make(chan error)
	go func() {
		_, err := f.feed.Next(ctx)
		done <- err
	}()
	stop(why)
	if err := <-done; !errors.Is(err, why) {
		s.Fatalf("Next after the end of its context: %v", err)
	}
	s.append(w, log[2]) // a feed survives that
	f.gives(log[2:])
	if _, err := s.st.(store.Watcher).Watch(ctx, "cancel", 0); !errors.Is(err, why) {
		s.Fatalf("Watch after the end of its context: %v", err)
	}
}

func watchRemoved(s *suite) {
	if s.Remove == nil {
		s.Skip("this driver cannot remove sessions")
	}
	log := talk(0, 3)
	s.stored("gone", log...)
	f := s.watch(s.st, "gone", 0)
	f.gives(log)
	f.holder(false)
	s.Remove(s.T, "gone")
	for range 2 {
		_, err := f.next()
		s.is(err, store.ErrNotFound, "Next after the session was removed")
	}
}

// Many follow while one writes life after life: each sees all, once, in order.
func watchCrowd(s *suite) {
	const lives, each = 12, 40
	s.stored("crowd", talk(0, 1)...)
	var want []session.Event
	want = append(want, talk(0, 1)...)
	for range lives {
		n := session.Seq(len(want))
		want = append(append(want, boundary(n)), talk(n+1, each)...)
	}
	var all sync.WaitGroup
	for i := range 4 {
		st := s.st
		if i%2 == 1 && s.Another != nil {
			st = s.Another(s.T)
		}
		f := s.watch(st, "crowd", session.Seq(i*100))
		all.Go(func() {
			rest := want[i*100:]
			for len(rest) > 0 {
				news, err := f.next()
				if err != nil {
					s.Errorf("follower %d at %d: %v", i, rest[0].Seq, err)
					return
				}
				for k, ev := range news.Events {
					if d := difference(ev, rest[k]); d != "" {
						s.Errorf("follower %d: event %d: %s", i, rest[k].Seq, d)
						return
					}
				}
				rest = rest[len(news.Events):]
			}
		})
	}
	for n := 1; n < len(want); {
		w := s.open("crowd")
		for end := n + each + 1; n < end; {
			k := min(1+n%9, end-n)
			s.append(w, want[n:n+k]...)
			n += k
			if n%4 == 0 {
				s.flush(w)
			}
		}
		s.flush(w)
		s.ok(w.Close())
	}
	all.Wait()
	s.holds("crowd", want)
}

// The memory of a feed does not grow with the log.
func watchMemory(s *suite) {
	const total, batch = 50_000, 5_000
	w := s.create("long", talk(0, batch)...)
	for n := session.Seq(batch); n < total; n += batch {
		s.append(w, talk(n, batch)...)
	}
	f := s.watch(s.st, "long", 0)
	var before, after runtime.MemStats
	for n, most := session.Seq(0), uint64(0); n < total; {
		news, err := f.next()
		s.ok(err)
		if len(news.Events) == 0 || news.Events[0].Seq != n {
			s.Fatalf("%d events at %d", len(news.Events), n)
		}
		first := n == 0
		if n += session.Seq(len(news.Events)); !first && n < total-batch && n/batch == (n-session.Seq(len(news.Events)))/batch {
			continue
		}
		runtime.GC()
		if first {
			runtime.ReadMemStats(&before)
			continue
		}
		runtime.ReadMemStats(&after)
		if most = max(most, after.HeapAlloc); most > before.HeapAlloc+4<<20 {
			s.Fatalf("at event %d the heap has grown from %d to %d bytes", n, before.HeapAlloc, most)
		}
	}
}
