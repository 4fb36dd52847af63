package storetest

import (
	"context"
	"errors"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var openTests = []test{
	{"NotFound", openNotFound},
	{"Busy", openBusy},
	{"BusyInAnotherProcess", openBusyElsewhere},
	{"ChangesNothing", openChangesNothing},
	{"Opened", openOpened},
	{"Close", openClose},
	{"StoreClose", openStoreClose},
	{"Reopen", openReopen},
	{"Cancelled", openCancelled},
}

func openNotFound(s *suite) {
	w, err := s.st.Open(s.ctx, "nobody")
	s.is(err, store.ErrNotFound, "Open")
	if w != nil {
		s.Fatal("a writer came with the error")
	}
	for _, id := range []session.ID{"", "../../etc", "a/b", "..", "NUL\x00"} {
		if _, err := s.st.Open(s.ctx, id); err == nil {
			s.Errorf("Open of %q succeeded", id)
		}
		if _, err := s.st.Stat(s.ctx, id); err == nil {
			s.Errorf("Stat of %q succeeded", id)
		}
		if _, err := s.st.Read(s.ctx, id); err == nil {
			s.Errorf("Read of %q succeeded", id)
		}
	}
	s.absent(s.st, "nobody")
}

// busy fails unless st refuses to open id and says who holds it.
func (s *suite) busy(st store.Store, id session.ID, holder *store.Holder) {
	s.Helper()
	w, err := st.Open(s.ctx, id)
	s.is(err, store.ErrBusy, "Open")
	if w != nil {
		s.Fatal("a writer came with the error")
	}
	var b *store.BusyError
	if !errors.As(err, &b) || b.ID != id {
		s.Fatalf("the error %v does not name the session", err)
	}
	if b.Holder == nil || b.Holder.Program == "" || b.Holder.Since.IsZero() || b.Holder.SessionID != id || b.Holder.Nonce == "" {
		s.Fatalf("the error does not say who holds the session: %+v", b.Holder)
	}
	if len(b.Ways()) != 3 || !strings.Contains(err.Error(), b.Holder.Program) {
		s.Fatalf("%q does not help", err)
	}
	if holder == nil || holder.Nonce != b.Holder.Nonce {
		s.Fatalf("Stat names the holder %+v, Open %+v", holder, b.Holder)
	}
}

func openBusy(s *suite) {
	w := s.create("held", talk(0, 3)...)
	first := s.stat("held").Holder
	s.busy(s.st, "held", first)
	s.append(w, talk(3, 2)...)
	s.busy(s.st, "held", first)
	s.ok(w.Close())
	if h := s.stat("held").Holder; h != nil {
		s.Fatalf("held by %+v after Close", h)
	}
	w = s.open("held")
	second := s.stat("held").Holder
	if second == nil || second.Nonce == first.Nonce {
		s.Fatalf("another life has the same nonce: %+v", second)
	}
	s.busy(s.st, "held", second)
	s.append(w, talk(5, 1)...)
	s.ok(w.Close())
	s.holds("held", talk(0, 6))
}

func openBusyElsewhere(s *suite) {
	other := s.another()
	w := s.create("held", talk(0, 3)...)
	st, err := other.Stat(s.ctx, "held")
	s.ok(err)
	s.busy(other, "held", st.Holder)
	s.holdsIn(other, "held", talk(0, 3))
	s.ok(w.Close())
	w2, err := other.Open(s.ctx, "held")
	s.ok(err)
	defer w2.Close()
	s.busy(s.st, "held", s.stat("held").Holder)
	_, err = w2.Append(s.ctx, talk(3, 2))
	s.ok(err)
	s.holds("held", talk(0, 5))
	s.ok(w2.Close())
	s.append(s.open("held"), talk(5, 1)...)
	s.holdsIn(other, "held", talk(0, 6))
}

// Opening and closing, reading and listing are invisible afterwards.
func openChangesNothing(s *suite) {
	s.stored("calm", talk(0, 12)...)
	before := s.stat("calm")
	for range 3 {
		w := s.open("calm")
		during := s.stat("calm")
		if during.Holder == nil {
			s.Fatal("nobody holds the session")
		}
		if during.Base != during.Pos.Next || w.Base() != session.None {
			s.Fatalf("Base is %d and %d before anything was written", during.Base, w.Base())
		}
		during.Holder = nil
		s.statsEqual(during, before)
		_, err := w.Append(s.ctx, nil)
		s.ok(err)
		if pos := s.flush(w); pos != before.Pos {
			s.Fatalf("flush of nothing gives %v, want %v", pos, before.Pos)
		}
		s.ok(w.Close())
	}
	s.statsEqual(s.stat("calm"), before)
	s.holds("calm", talk(0, 12))
}

func openOpened(s *suite) {
	s.stored("grow", talk(0, 7)...)
	w := s.open("grow")
	o := w.Opened()
	if o.Pos != posAfter(talk(0, 7)) || o.Header.ID != "grow" || o.Torn != nil || o.Lost != nil || o.Damage != nil {
		s.Fatalf("Opened is %+v", o)
	}
	s.append(w, talk(7, 50)...)
	s.prefixIs(o.Prefix, talk(0, 7))
	s.prefixIs(w.Opened().Prefix, talk(0, 7))
	s.prefixIs(w.Stored(), talk(0, 57))
	if w.Base() != 7 || s.stat("grow").Base != 7 {
		s.Fatalf("Base is %d and %d, want 7", w.Base(), s.stat("grow").Base)
	}
	s.append(w, talk(57, 5)...)
	if w.Base() != 7 {
		s.Fatalf("Base moved to %d", w.Base())
	}
	s.ok(w.Close())
	if b := s.stat("grow").Base; b != 62 {
		s.Fatalf("Base is %d, want the next seq when nobody holds the session", b)
	}
}

func openClose(s *suite) {
	w := s.create("shut", talk(0, 2)...)
	s.ok(w.Close())
	s.ok(w.Close())
	_, err := w.Append(s.ctx, talk(2, 1))
	s.is(err, store.ErrClosed, "Append after Close")
	_, err = w.Flush(s.ctx)
	s.is(err, store.ErrClosed, "Flush after Close")
	w2 := s.open("shut")
	s.ok(w.Close()) // must not release the lease of the next life
	s.busy(s.st, "shut", s.stat("shut").Holder)
	s.append(w2, talk(2, 1)...)
	s.holds("shut", talk(0, 3))
}

func openStoreClose(s *suite) {
	s.stored("shut", talk(0, 2)...)
	w := s.open("shut")
	s.ok(s.st.Close())
	s.ok(s.st.Close())
	_, err := w.Append(s.ctx, talk(2, 1))
	s.is(err, store.ErrClosed, "Append after the store's Close")
	s.ok(w.Close())
	_, err = s.st.Open(s.ctx, "shut")
	s.is(err, store.ErrClosed, "Open after Close")
	_, err = s.st.Create(s.ctx, header("late"))
	s.is(err, store.ErrClosed, "Create after Close")
}

func openReopen(s *suite) {
	s.stored("next", talk(0, 5)...)
	w := s.create("kept", talk(0, 9)...)
	s.flush(w)
	before := s.stat("next")
	s.reopen() // with a writer open: it is ended
	s.statsEqual(s.stat("next"), before)
	if h := s.stat("kept").Holder; h != nil {
		s.Fatalf("still held by %+v", h)
	}
	s.holds("kept", talk(0, 9))
	w = s.open("kept")
	s.append(w, talk(9, 3)...)
	s.flush(w)
	s.reopen()
	s.holds("kept", talk(0, 12))
	s.holds("next", talk(0, 5))
}

// Cancellation returns the caller's cause and changes nothing.
func openCancelled(s *suite) {
	why := errors.New("the caller went away")
	gone, cancel := context.WithCancelCause(s.ctx)
	cancel(why)
	s.stored("there", talk(0, 3)...)
	w := s.open("there")
	_, err := w.Append(gone, talk(3, 1))
	s.is(err, why, "Append")
	_, err = w.Flush(gone)
	s.is(err, why, "Flush")
	s.ok(w.Close())
	_, err = s.st.Open(gone, "there")
	s.is(err, why, "Open")
	_, err = s.st.Create(gone, header("never"))
	s.is(err, why, "Create")
	_, err = s.st.Read(gone, "there")
	s.is(err, why, "Read")
	_, err = s.st.Stat(gone, "there")
	s.is(err, why, "Stat")
	if l, ok := s.st.(store.Lister); ok {
		_, err = l.List(gone, store.Query{})
		s.is(err, why, "List")
		_, err = l.Match(gone, "there", 1)
		s.is(err, why, "Match")
	}
	if f, ok := s.st.(store.Forker); ok {
		_, err = f.LinkAt(gone, "there", 1)
		s.is(err, why, "LinkAt")
		s.is(f.CreateFork(gone, s.childHeader("never", "there", 2), nil), why, "CreateFork")
	}
	if b, ok := s.st.(store.Blobs); ok {
		_, err = b.PutBlob(gone, []byte("x"))
		s.is(err, why, "PutBlob")
		_, err = b.GetBlob(gone, "sha256-00")
		s.is(err, why, "GetBlob")
	}
	s.absent(s.st, "never")
	s.holds("there", talk(0, 3))
	s.append(s.open("there"), talk(3, 1)...)
	s.holds("there", talk(0, 4))
}
