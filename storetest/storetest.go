// Package storetest is the contract of store.Store in executable form: a driver that passes Run can be
// used anywhere. A driver's test calls it with a function that opens an empty store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Harness {
//			return storetest.Harness{Store: open(t, t.TempDir())}
//		})
//	}
//
// Every sentence of the seam's comments that can be tested is a subtest here. What a driver cannot do
// (a capability that it does not implement, a field of Harness that is nil) is skipped by name, never
// silently. Values that must be the same in all drivers - links above all - are compared with values
// that no driver computed.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Harness is an empty store and what can be done around it. Everything is closed by t.Cleanup.
type Harness struct {
	Store store.Store

	// Reopen returns a new handle on the same storage, as the next process has it, after Store was
	// closed by the test. Nil: the storage does not outlive its handle.
	Reopen func(t *testing.T) store.Store
	// Another returns an independent handle on the same storage while Store is open, as another
	// process has it. Nil: there is only one handle.
	Another func(t *testing.T) store.Store
	// DropLease makes the holder of id lose its lease without knowing it. Nil: it cannot happen.
	DropLease func(t *testing.T, id session.ID)
	// Remove takes the session id out of the store, as deleting it does. Nil: it cannot be done yet.
	Remove func(t *testing.T, id session.ID)
	// CorruptBlob changes a byte of a stored blob. Nil: blobs cannot be reached.
	CorruptBlob func(t *testing.T, name string)
}

// Run runs the suite. open is called for each test and returns an empty store.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	groups := []struct {
		name  string
		tests []test
	}{
		{"Create", createTests}, {"Open", openTests}, {"Append", appendTests}, {"Events", eventTests},
		{"Read", readTests}, {"Stat", statTests}, {"List", listTests}, {"Fork", forkTests}, {"Take", takeTests}, {"Blobs", blobTests}, {"Pack", packTests}, {"Watch", watchTests},
		{"Remove", removeTests}, {"Collect", collectTests}, {"Checkpoints", checkpointTests}, {"Marks", markTests},
		{"Fence", fenceTests}, {"Crowd", crowdTests}, {"Model", modelTests},
		{"Repair", repairTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, tt := range g.tests {
				t.Run(tt.name, func(t *testing.T) {
					h := open(t)
					tt.run(&suite{T: t, Harness: h, st: h.Store, ctx: t.Context()})
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(s *suite)
}

// suite is one test's hold of a store. Its methods fail the test.
type suite struct {
	*testing.T
	Harness
	st  store.Store
	ctx context.Context
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// is fails unless err is the kind of error that is wanted.
func (s *suite) is(err, want error, what string) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("%s: got error %v, want %q", what, err, want)
	}
}

func (s *suite) another() store.Store {
	s.Helper()
	if s.Another == nil {
		s.Skip("this driver has one handle only")
	}
	return s.Another(s.T)
}

// reopen closes the store and goes on with the next handle.
func (s *suite) reopen() {
	s.Helper()
	if s.Reopen == nil {
		s.Skip("this driver's storage does not outlive its handle")
	}
	s.ok(s.st.Close())
	s.st = s.Reopen(s.T)
}

func (s *suite) lister() store.Lister {
	s.Helper()
	l, ok := s.st.(store.Lister)
	if !ok {
		s.Skip("this driver does not list")
	}
	return l
}

func (s *suite) forker() store.Forker {
	s.Helper()
	f, ok := s.st.(store.Forker)
	if !ok {
		s.Skip("this driver does not fork")
	}
	return f
}

func (s *suite) blobs() store.Blobs {
	s.Helper()
	b, ok := s.st.(store.Blobs)
	if !ok {
		s.Skip("this driver keeps no blobs")
	}
	return b
}

func header(id session.ID) session.Header {
	return session.Header{Format: session.Format, ID: id, CreatedAt: 1700000000000, Kind: session.KindRoot, Cwd: "/work/tree", Project: "p1"}
}

// create makes a session with events and leaves it held.
func (s *suite) create(id session.ID, events ...session.Event) store.Writer {
	s.Helper()
	return s.createWith(header(id), events...)
}

func (s *suite) createWith(h session.Header, events ...session.Event) store.Writer {
	s.Helper()
	w, err := s.st.Create(s.ctx, h)
	s.ok(err)
	s.Cleanup(func() { w.Close() })
	if len(events) > 0 {
		s.append(w, events...)
	}
	return w
}

// stored makes a session with events that nobody holds.
func (s *suite) stored(id session.ID, events ...session.Event) {
	s.Helper()
	w := s.create(id, events...)
	s.flush(w)
	s.ok(w.Close())
}

func (s *suite) open(id session.ID) store.Writer {
	s.Helper()
	w, err := s.st.Open(s.ctx, id)
	s.ok(err)
	s.Cleanup(func() { w.Close() })
	return w
}

func (s *suite) append(w store.Writer, events ...session.Event) store.Pos {
	s.Helper()
	pos, err := w.Append(s.ctx, events)
	s.ok(err)
	return pos
}

func (s *suite) flush(w store.Writer) store.Pos {
	s.Helper()
	pos, err := w.Flush(s.ctx)
	s.ok(err)
	return pos
}

func (s *suite) stat(id session.ID) store.Stat {
	s.Helper()
	st, err := s.st.Stat(s.ctx, id)
	s.ok(err)
	return st
}

// holds fails unless the store's log of id is exactly events, and its position what they link to.
func (s *suite) holds(id session.ID, events []session.Event) {
	s.Helper()
	s.holdsIn(s.st, id, events)
}

func (s *suite) holdsIn(st store.Store, id session.ID, events []session.Event) {
	s.Helper()
	snap, err := st.Read(s.ctx, id)
	s.ok(err)
	defer snap.Close()
	if snap.Header.ID != id {
		s.Fatalf("the header read for %s is that of %q", id, snap.Header.ID)
	}
	if snap.Torn != nil || snap.Lost != nil || snap.Damage != nil || snap.Unsupported != "" {
		s.Fatalf("session %s is not whole: %+v", id, snap)
	}
	if want := posAfter(events); snap.Pos != want {
		s.Fatalf("session %s ends at %v, want %v", id, snap.Pos, want)
	}
	s.prefixIs(snap.Prefix, events)
}

func (s *suite) prefixIs(p session.Prefix, events []session.Event) {
	s.Helper()
	if p.Len() != session.Seq(len(events)) {
		s.Fatalf("%d events, want %d", p.Len(), len(events))
	}
	i := 0
	for ev, err := range p.Range(0, p.Len()) {
		s.ok(err)
		s.same(ev, events[i])
		i++
	}
	if i != len(events) {
		s.Fatalf("Range gave %d events of %d", i, len(events))
	}
	s.lends(p, events)
}

// lends holds a prefix that lends its events to what Range gives, for all of them and for a part.
func (s *suite) lends(p session.Prefix, events []session.Event) {
	s.Helper()
	l, ok := p.(session.Lender)
	if !ok {
		return
	}
	for _, from := range []session.Seq{0, p.Len() / 2} {
		next := from
		s.ok(l.Lend(from, p.Len(), func(ev session.Event) {
			s.same(ev, events[next])
			next++
		}))
		if next != p.Len() {
			s.Fatalf("Lend gave the events %d to %d of %d", from, next, p.Len())
		}
	}
	if err := l.Lend(0, p.Len()+1, func(session.Event) {}); !errors.Is(err, session.ErrRange) {
		s.Fatalf("Lend beyond the end: %v", err)
	}
}

func (s *suite) same(got, want session.Event) {
	s.Helper()
	if d := difference(got, want); d != "" {
		s.Fatalf("event %d: %s", want.Seq, d)
	}
}

// difference compares two events byte for byte and tells where they differ.
func difference(a, b session.Event) string {
	switch {
	case a.Seq != b.Seq:
		return fmt.Sprintf("seq %d, want %d", a.Seq, b.Seq)
	case a.Time != b.Time:
		return fmt.Sprintf("time %d, want %d", a.Time, b.Time)
	case a.Type != b.Type:
		return fmt.Sprintf("type %s, want %s", a.Type, b.Type)
	case a.Op != b.Op:
		return fmt.Sprintf("surfaceOp %+v, want %+v", a.Op, b.Op)
	case !slices.Equal(a.Sources, b.Sources) || (a.Sources == nil) != (b.Sources == nil):
		return fmt.Sprintf("sources %#v, want %#v", a.Sources, b.Sources)
	case a.Ignorable != b.Ignorable:
		return fmt.Sprintf("ignorable %v, want %v", a.Ignorable, b.Ignorable)
	case !bytes.Equal(a.Extra, b.Extra):
		return fmt.Sprintf("extra %s, want %s", a.Extra, b.Extra)
	case !bytes.Equal(a.Data, b.Data):
		return fmt.Sprintf("data %.200s, want %.200s", a.Data, b.Data)
	}
	return ""
}

// posAfter computes, without a driver, the position behind events.
func posAfter(events []session.Event) store.Pos {
	var link session.Link
	for _, ev := range events {
		link = linkAfter(link, ev)
	}
	return store.Pos{Next: session.Seq(len(events)), Link: link}
}

func linkAfter(prev session.Link, ev session.Event) session.Link {
	ev.Data, _ = record.Externalize(ev.Data, record.BlobLimit, func(raw []byte) (string, error) { return record.BlobName(raw), nil })
	_, link := record.Append(nil, ev, prev, session.None)
	return link
}

// quote returns s as a JSON string.
func quote(s string) string {
	b, _ := jsontext.AppendQuote(nil, s)
	return string(b)
}

func user(seq session.Seq, text string) session.Event {
	return session.Event{Seq: seq, Time: 1700000001000 + int64(seq), Type: session.TypeUserMessage, Op: session.Append(),
		Data: jsontext.Value(`{"id":"u` + seq.String() + `","role":"user","content":[{"type":"text","text":` + quote(text) + `}],"source":{"kind":"user"}}`)}
}

func chunk(seq session.Seq) session.Event {
	return session.Event{Seq: seq, Time: 1700000001000 + int64(seq), Type: session.TypeAssistantChunk,
		Data: jsontext.Value(`{"turn":1,"step":1,"chunk":{"n":` + seq.String() + `}}`)}
}

func title(seq session.Seq, text, source string) session.Event {
	return session.Event{Seq: seq, Time: 1800000000000, Type: session.TypeTitle,
		Data: jsontext.Value(`{"title":` + quote(text) + `,"source":"` + source + `"}`)}
}

// talk returns n events from seq first on, of sizes that vary.
func talk(first session.Seq, n int) []session.Event {
	out := make([]session.Event, n)
	for i := range out {
		seq := first + session.Seq(i)
		if seq%5 == 0 {
			out[i] = user(seq, strings.Repeat("word ", int(seq*7%90)))
		} else {
			out[i] = chunk(seq)
		}
	}
	return out
}
