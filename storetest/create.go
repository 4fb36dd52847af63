package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var createTests = []test{
	{"NothingBeforeFirstAppend", createNothing},
	{"AbandonedLeavesNothing", createAbandoned},
	{"Exists", createExists},
	{"InvalidHeader", createInvalid},
	{"HeaderIsKept", createHeader},
	{"Race", createRace},
	{"RaceOfProcesses", createRaceOfProcesses},
	{"BatchIsAtomic", createAtomic},
}

// absent fails if the store st shows anything of id.
func (s *suite) absent(st store.Store, id session.ID) {
	s.Helper()
	_, err := st.Stat(s.ctx, id)
	s.is(err, store.ErrNotFound, "Stat")
	snap, err := st.Read(s.ctx, id)
	s.is(err, store.ErrNotFound, "Read")
	if snap != nil {
		s.Fatal("Read gave a snapshot with its error")
	}
	if l, ok := st.(store.Lister); ok {
		page, err := l.List(s.ctx, store.Query{})
		s.ok(err)
		for _, row := range page.Rows {
			if row.ID == id {
				s.Fatalf("%s is listed", id)
			}
		}
		ids, err := l.Match(s.ctx, string(id), 10)
		s.ok(err)
		if len(ids) != 0 {
			s.Fatalf("%s matches %v", id, ids)
		}
	}
}

func createNothing(s *suite) {
	w := s.create("new-1")
	s.absent(s.st, "new-1")
	if pos, err := w.Append(s.ctx, nil); err != nil || pos != (store.Pos{}) {
		s.Fatalf("empty batch: %v %v", pos, err)
	}
	if pos, err := w.Flush(s.ctx); err != nil || pos != (store.Pos{}) {
		s.Fatalf("flush of nothing: %v %v", pos, err)
	}
	s.absent(s.st, "new-1")
	if _, err := s.st.Open(s.ctx, "new-1"); !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrBusy) {
		s.Fatalf("Open of a session that is only reserved: %v", err)
	}
	if n := w.Stored().Len(); n != 0 {
		s.Fatalf("%d events are stored", n)
	}
	if o := w.Opened(); o == nil || o.Prefix.Len() != 0 || o.Pos != (store.Pos{}) || o.Header.ID != "new-1" {
		s.Fatalf("Opened is %+v", o)
	}
	if s.Another != nil {
		s.absent(s.Another(s.T), "new-1")
	}
}

func createAbandoned(s *suite) {
	for range 3 {
		w := s.create("new-1")
		s.ok(w.Close())
		s.ok(w.Close())
		s.absent(s.st, "new-1")
	}
	w := s.create("new-1", talk(0, 2)...)
	s.flush(w)
	s.ok(w.Close())
	s.holds("new-1", talk(0, 2))
}

func createExists(s *suite) {
	refused := func(what string, st store.Store) {
		s.Helper()
		w, err := st.Create(s.ctx, header("old-1"))
		s.is(err, store.ErrExists, what)
		if w != nil {
			s.Fatalf("%s: a writer came with the error", what)
		}
		var e *store.ExistsError
		if !errors.As(err, &e) || e.ID != "old-1" {
			s.Fatalf("%s: the error %v does not name the session", what, err)
		}
	}
	w := s.create("old-1")
	refused("reserved", s.st)
	s.append(w, talk(0, 3)...)
	refused("held and stored", s.st)
	if s.Another != nil {
		refused("held and stored, in another process", s.Another(s.T))
	}
	s.flush(w)
	s.ok(w.Close())
	refused("stored", s.st)
	if s.Another != nil {
		refused("stored, in another process", s.Another(s.T))
	}
	s.holds("old-1", talk(0, 3))
}

func createInvalid(s *suite) {
	for what, change := range map[string]func(*session.Header){
		"id with a slash":  func(h *session.Header) { h.ID = "a/../b" },
		"empty id":         func(h *session.Header) { h.ID = "" },
		"upper case":       func(h *session.Header) { h.ID = "ABCD" },
		"no kind":          func(h *session.Header) { h.Kind = "" },
		"format to come":   func(h *session.Header) { h.Format = 2 },
		"a seed of nobody": func(h *session.Header) { h.SeedLength = 3 },
	} {
		h := header("valid")
		change(&h)
		if w, err := s.st.Create(s.ctx, h); err == nil {
			w.Close()
			s.Errorf("%s: accepted", what)
		}
	}
	s.absent(s.st, "valid")
}

func createHeader(s *suite) {
	h := header("full-1")
	h.Kind, h.Depth, h.Cwd = session.KindImported, 2, "/ä \"quoted\"\\\n"
	h.Imported = &session.Imported{Tool: "x", SHA256: "00", Events: 2}
	h.Extra = []byte(`{"later":{"n":1e400}}`)
	check := func(got session.Header, what string) {
		s.Helper()
		if !reflect.DeepEqual(got, h) {
			s.Fatalf("%s: header %+v, want %+v", what, got, h)
		}
	}
	w := s.createWith(h, talk(0, 3)...)
	check(w.Header(), "Writer.Header")
	check(s.stat("full-1").Header, "Stat")
	s.flush(w)
	s.ok(w.Close())
	w = s.open("full-1")
	check(w.Header(), "Writer.Header after Open")
	check(w.Opened().Header, "Opened")
	s.ok(w.Close())
	if s.Reopen != nil {
		s.reopen()
		check(s.stat("full-1").Header, "Stat of the next process")
	}
}

// winners lets n goroutines create one id in the stores and returns how many of them got their batch in.
func (s *suite) winners(stores []store.Store, n int) int {
	var wins atomic.Int32
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			w, err := stores[i%len(stores)].Create(s.ctx, header("race"))
			if err != nil {
				if !errors.Is(err, store.ErrExists) {
					s.Errorf("Create: %v", err)
				}
				return
			}
			defer w.Close()
			_, err = w.Append(s.ctx, []session.Event{user(0, fmt.Sprint("from ", i))})
			switch {
			case err == nil:
				wins.Add(1)
			case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrFenced):
				s.Errorf("Append: %v", err)
			}
		})
	}
	close(start)
	wg.Wait()
	return int(wins.Load())
}

func createRace(s *suite) {
	if n := s.winners([]store.Store{s.st}, 16); n != 1 {
		s.Fatalf("%d of 16 created the session", n)
	}
	if n := s.stat("race").Pos.Next; n != 1 {
		s.Fatalf("%d events", n)
	}
}

func createRaceOfProcesses(s *suite) {
	stores := []store.Store{s.st, s.another(), s.Another(s.T), s.Another(s.T)}
	if n := s.winners(stores, 16); n != 1 {
		s.Fatalf("%d of 16 created the session", n)
	}
	for _, st := range stores {
		got, err := st.Stat(s.ctx, "race")
		s.ok(err)
		if got.Pos.Next != 1 {
			s.Fatalf("%d events", got.Pos.Next)
		}
	}
}

// Header and first batch become visible together or not at all.
func createAtomic(s *suite) {
	reader := s.st
	if s.Another != nil {
		reader = s.Another(s.T)
	}
	const sessions, batch = 20, 30
	done := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(done)
	for range 2 {
		wg.Go(func() {
			for {
				for i := range sessions {
					id := session.ID(fmt.Sprintf("atom-%d", i))
					snap, err := reader.Read(s.ctx, id)
					if errors.Is(err, store.ErrNotFound) {
						continue
					}
					if err != nil {
						s.Errorf("Read: %v", err)
						return
					}
					if snap.Header.ID != id || snap.Prefix.Len() != batch {
						s.Errorf("read %d events of %q in between", snap.Prefix.Len(), snap.Header.ID)
					}
					snap.Close()
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range sessions {
		w := s.create(session.ID(fmt.Sprintf("atom-%d", i)), talk(0, batch)...)
		s.ok(w.Close())
	}
}
