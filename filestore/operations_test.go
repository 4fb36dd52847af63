package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// life opens (or creates) the session and appends and flushes batches of n, or only appends if n is
// negative. What is not saved is tried again, twice.
func life(ctx context.Context, s *Store, create bool, from session.Seq, batches ...int) (acked session.Seq, err error) {
	var w store.Writer
	if create {
		w, err = s.Create(ctx, testHeader(subject))
	} else {
		w, err = s.Open(ctx, subject)
	}
	acked = session.None
	if err != nil {
		return acked, err
	}
	defer w.Close()
	for _, n := range batches {
		evs := events(from, max(n, -n))
		from += session.Seq(len(evs))
		at, err := saved(ctx, w, evs, n > 0)
		if err != nil {
			return acked, err
		}
		if n > 0 {
			acked = at
		}
	}
	return acked, w.Close()
}

// saved appends evs and, with flush, makes them durable: then it returns the last seq that is acknowledged.
func saved(ctx context.Context, w store.Writer, evs []session.Event, flush bool) (acked session.Seq, err error) {
	for try := 0; ; try++ {
		pos, err := w.Append(ctx, evs)
		if err == nil && flush {
			pos, err = w.Flush(ctx)
		}
		if err == nil {
			return pos.Next - 1, nil
		}
		if !errors.Is(err, store.ErrNotSaved) || try == 2 {
			return session.None, err
		}
	}
}

func forkHeader(ctx context.Context, s *Store, id session.ID, cut session.Seq) (session.Header, error) {
	return childHeader(ctx, s, testHeader(subject), id, cut)
}

func childHeader(ctx context.Context, s *Store, parent session.Header, id session.ID, cut session.Seq) (session.Header, error) {
	h := testHeader(id)
	h.Kind, h.SeedLength = session.KindFork, cut+1
	h.Parent = &session.Parent{ID: parent.ID, Seq: cut, Spans: parent.Spans(cut + 1)}
	return h, store.Trace(ctx, s, parent, &h)
}

var scenarios = []scenario{
	{name: "create", run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		return life(ctx, s, true, 0, 3)
	}},
	{name: "first-commit", thorough: true, setup: stored(10), run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		return life(ctx, s, false, 10, 3)
	}},
	{name: "append-flush", setup: stored(10), run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		return life(ctx, s, false, 10, 1, 5, 5)
	}},
	{name: "roll", setup: stored(10), roll: 1500, run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		return life(ctx, s, false, 10, 2, -3, 5, -5, -3, 1)
	}},
	{name: "first-commit-unsynced-tail", setup: unsyncedTail, stored: 7, run: more},
	{name: "first-commit-torn-tail", setup: unsyncedTail, stored: 9, disk: tear, run: more,
		log: func(testing.TB, *vfs.Mem) []session.Event { return events(0, 14) }},
	{name: "first-commit-lost", setup: unsyncedTail, stored: 8, disk: hole, run: more, log: lostLog},
	{name: "adopt", setup: unsyncedTail, stored: 9, disk: tear, run: more},
	{name: "fork", setup: stored(10), run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		h, err := forkHeader(ctx, s, "child", 6)
		if err == nil {
			err = s.CreateFork(ctx, h, events(7, 2))
		}
		return session.None, err
	}, also: func(ctx context.Context, s *Store, w wanted) error { return whole(ctx, s, "child", 9, w.err) }},
	{name: "fork-unsynced", setup: unsyncedTail, stored: 7, run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		h, err := forkHeader(ctx, s, "child", 8)
		if err == nil {
			err = s.CreateFork(ctx, h, events(9, 2))
		}
		return session.None, err
	}, also: func(ctx context.Context, s *Store, w wanted) error { return whole(ctx, s, "child", 11, w.err) }},
	{name: "take", run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		if err := s.Take(ctx, testHeader(subject), session.Events(events(0, 5)).Range(0, 5)); err != nil {
			return session.None, err
		}
		return 4, nil
	}, also: func(ctx context.Context, s *Store, w wanted) error { return whole(ctx, s, subject, 5, w.err) }},
	{name: "take-long", roll: 600, run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		if err := s.Take(ctx, testHeader(subject), session.Events(events(0, 9)).Range(0, 9)); err != nil {
			return session.None, err
		}
		return 8, nil
	}, also: func(ctx context.Context, s *Store, w wanted) error { return whole(ctx, s, subject, 9, w.err) }},
	{name: "blob", block: 8 << 10, setup: stored(10), run: more, log: blobLog},
	{name: "pack", shuffled: true, setup: threeLives, run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		p, err := s.Pack(ctx, subject)
		if err == nil && p.After >= p.Before {
			err = fmt.Errorf("nothing was packed: %+v", p)
		}
		return session.None, err
	}},
	{name: "open-read-close", setup: stored(10), run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		snap, err := s.Read(ctx, subject)
		if err != nil {
			return session.None, err
		}
		for _, err := range snap.Prefix.Range(0, snap.Prefix.Len()) {
			if err != nil {
				return session.None, err
			}
		}
		if err := snap.Close(); err != nil {
			return session.None, err
		}
		return life(ctx, s, false, 10)
	}},
	{name: "stat-list", setup: stored(10), run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		if _, err := s.Stat(ctx, subject); err != nil {
			return session.None, err
		}
		_, err := s.List(ctx, store.Query{})
		return session.None, err
	}},
	{name: "ends", setup: stored(10), run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		_, err := s.Ends(ctx, []store.Mark{{ID: subject}})
		return session.None, err
	}},
	trashing, restoring, purgingParent, repairing, joining, collecting,
}

func stored(n int) func(testing.TB, *Store) {
	return func(t testing.TB, s *Store) { newStored(t, s, subject, n) }
}

// unsyncedTail stores 0 to 9, of which the last three are written and not synced.
func unsyncedTail(t testing.TB, s *Store) {
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	mustAppend(t, w, events(0, 4))
	mustAppend(t, w, events(4, 3))
	mustFlush(t, w)
	mustAppend(t, w, events(7, 3))
	w.Close()
}

// threeLives stores 0 to 9 in three segments.
func threeLives(t testing.TB, s *Store) {
	newStored(t, s, subject, 4)
	for _, n := range []session.Seq{4, 7} {
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		mustAppend(t, w, events(n, 3))
		mustFlush(t, w)
		w.Close()
	}
}

// tear takes away the end of the last record.
func tear(t testing.TB, m *vfs.Mem) {
	err := m.Edit(memRoot+"/sessions/subject/"+segmentName(0), func(b []byte) []byte { return b[:len(b)-9] })
	if err != nil {
		t.Fatal(err)
	}
}

// hole zeroes a record in what is not synced: loss of power took it, and the next is still there.
func hole(t testing.TB, m *vfs.Mem) {
	err := m.Edit(memRoot+"/sessions/subject/"+segmentName(0), func(b []byte) []byte {
		at := bytes.Index(b, []byte(`{"seq":8`))
		clear(b[at : at+20])
		return b
	})
	if err != nil {
		t.Fatal(err)
	}
}

// more opens the subject and appends the rest of log: what a live session does that finds a prefix of itself stored.
func more(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
	w, err := s.Open(ctx, subject)
	if err != nil {
		return session.None, err
	}
	defer w.Close()
	at := w.Opened().Pos.Next
	got, err := allEvents(w.Opened().Prefix)
	if err != nil {
		return session.None, err
	}
	if d := difference(log[:at], got); d != "" {
		return session.None, fmt.Errorf("not a prefix: %s", d)
	}
	acked, err := saved(ctx, w, log[at:], true)
	if err != nil {
		return session.None, err
	}
	return acked, w.Close()
}

// whole says that the session id, which an operation that ended with err made, is neither whole nor absent.
func whole(ctx context.Context, s *Store, id session.ID, n int, err error) error {
	snap, rerr := s.Read(ctx, id)
	if errors.Is(rerr, store.ErrNotFound) && err != nil {
		return nil
	}
	if rerr != nil {
		return fmt.Errorf("%s: %w", id, rerr)
	}
	defer snap.Close()
	if got, rerr := allEvents(snap.Prefix); rerr != nil || len(got) < n || difference(events(0, n), got[:n]) != "" {
		return fmt.Errorf("half of %s: %w, %d events of %d", id, rerr, len(got), n)
	}
	return nil
}

// lostLog is the log of a session whose middle was lost, with what takes its place.
func lostLog(t testing.TB, m *vfs.Mem) []session.Event {
	s := memStore(t, m.Process(), 0, 9)
	defer s.Close()
	snap := must[*store.Snapshot](t)(s.Read(t.Context(), subject))
	defer snap.Close()
	log := append(collect(t, snap.Prefix), snap.Lost...)
	return append(log, events(session.Seq(len(log)), 4)...)
}

// blobLog has strings that are stored as blobs: one of them twice.
func blobLog(testing.TB, *vfs.Mem) []session.Event {
	evs := events(0, 14)
	evs[10], _ = long(10)
	evs[12], _ = long(12)
	evs[13].Data = jsontext.Value(`{"other":"` + strings.Repeat("another ", 6000) + `"}`)
	return evs
}

// A record that is whole, with the seq that is due, but of another log: a stale block, a file that was put together
// by hand. Its sum is right; only the link tells.
func TestForeignRecord(t *testing.T) {
	m := newDisk(t, scenario{})
	s := memStore(t, m.Process(), 0, 1)
	line := map[session.ID][]byte{}
	for _, id := range []session.ID{subject, "other"} {
		w := must[store.Writer](t)(s.Create(t.Context(), testHeader(id)))
		mustAppend(t, w, by(string(id)[:5], 0, 10))
		mustFlush(t, w)
		w.Close()
		b := must[[]byte](t)(m.ReadFile(memRoot + "/sessions/" + string(id) + "/" + segmentName(0)))
		line[id] = bytes.SplitAfter(b, []byte("\n"))[6]
	}
	err := m.Edit(memRoot+"/sessions/subject/"+segmentName(0), func(b []byte) []byte {
		return bytes.Replace(b, line[subject], line["other"], 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	got, snap := readEvents(t, s, subject)
	if d := difference(by("subje", 0, 5), got); d != "" {
		t.Errorf("an event of another log, or one too few:\n%s", d)
	}
	if len(snap.Damage) == 0 && snap.Lost == nil {
		t.Error("nobody says that a record is of another log")
	}
}

// session.json is replaced while a life holds it: whoever opens the session gets the new file's lock, and is refused
// all the same, by the lock on the segment that the life writes.
func TestHeldByItsSegment(t *testing.T) {
	m := newDisk(t, scenario{setup: stored(10)})
	p, q := m.Process(), m.Process()
	w := must[store.Writer](t)(memStore(t, p, 0, 2).Open(t.Context(), subject))
	mustAppend(t, w, events(10, 2))
	path := memRoot + "/sessions/subject/" + headerName
	head := must[[]byte](t)(m.ReadFile(path))
	if err := q.Remove(path); err != nil {
		t.Fatal(err)
	}
	f := must[vfs.File](t)(q.OpenFile(path, vfs.CreateAppend))
	if _, err := f.Write(head); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := memStore(t, q, 0, 3).Open(t.Context(), subject); !errors.Is(err, store.ErrBusy) {
		t.Fatalf("opened beside a life that writes: %v", err)
	}
	p.Kill()
	must[store.Writer](t)(memStore(t, q, 0, 4).Open(t.Context(), subject))
}

// session.json is replaced between the look at it that follows its lock and the trial of the locks, which opens it again: the
// opener begins again, and neither says that there is no such file nor that locks do not work.
func TestReplacedWhileLocksAreTried(t *testing.T) {
	for _, back := range []bool{false, true} {
		m := newDisk(t, scenario{setup: stored(10)})
		path := memRoot + "/sessions/subject/" + headerName
		head := must[[]byte](t)(m.ReadFile(path))
		other := m.Process()
		put := func() error {
			f, err := other.OpenFile(path, vfs.CreateAppend)
			if err == nil {
				_, err = f.Write(head)
				err = errors.Join(err, f.Close())
			}
			return err
		}
		opened := 0
		fsys := vfs.Around(m.Process(), func(c *vfs.Call, do func() error) error {
			if c.Op != vfs.OpOpen || c.Name != path {
				return do()
			}
			if opened++; opened != 2 {
				return do()
			}
			err := other.Remove(path)
			if back {
				err = errors.Join(err, put())
			}
			answer := do()
			if !back {
				err = errors.Join(err, put())
			}
			if err != nil {
				t.Error(err)
			}
			return answer
		})
		w, err := memStore(t, fsys, 0, 2).Open(t.Context(), subject)
		if err != nil {
			t.Errorf("back at once: %v: %v", back, err)
			continue
		}
		if opened < 4 {
			t.Errorf("session.json was opened %d times: nothing was tried", opened)
		}
		w.Close()
	}
}
