package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// The scenarios of what is done to whole sessions: trash, restore, purge, repair, join. Who finds one of them
// interrupted does it again, and dies in the middle of that in turn.

var trashing = scenario{name: "to-trash", setup: stored(10),
	run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		return session.None, s.Trash(ctx, subject)
	},
	also: func(ctx context.Context, s *Store, w wanted) error { return back(ctx, s, w.done(), false) },
}

var restoring = scenario{name: "from-trash",
	setup: func(t testing.TB, s *Store) {
		newStored(t, s, subject, 10)
		if err := s.Trash(t.Context(), subject); err != nil {
			t.Fatal(err)
		}
	},
	run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		return session.None, s.Restore(ctx, subject)
	},
	also: func(ctx context.Context, s *Store, w wanted) error { return back(ctx, s, false, w.done()) },
}

// back takes the subject out of the trash if it is there.
func back(ctx context.Context, s *Store, mustBe, mustNot bool) error {
	err := s.trashed(subject)
	_, out := errors.AsType[*store.NotTrashedError](err)
	switch {
	case out && !mustBe:
		return nil
	case err != nil:
		return fmt.Errorf("trash: %w", err)
	case mustNot:
		return errors.New("it is still in the trash")
	}
	return s.Restore(ctx, subject)
}

// purgingParent purges what the subject begins with. Both have the same long string, and the parent one of its own.
var purgingParent = scenario{name: "purge-parent", block: 8 << 10, every: 2,
	setup: func(t testing.TB, s *Store) {
		ctx := context.Background()
		parent := testHeader("parent")
		w := must[store.Writer](t)(s.Create(ctx, parent))
		log := purgeLog(t, nil)[:9:9]
		for i := range log { // several batches, so that there is a place to cut
			mustAppend(t, w, log[i:i+1])
		}
		mustAppend(t, w, []session.Event{longEvent(9, "o")})
		mustFlush(t, w)
		w.Close()
		h, err := childHeader(ctx, s, parent, subject, 6)
		if err == nil {
			err = s.CreateFork(ctx, h, events(7, 3))
		}
		if err == nil {
			err = s.Trash(ctx, "parent")
		}
		if err != nil {
			t.Fatal(err)
		}
	},
	log: purgeLog,
	run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		return session.None, s.Purge(ctx, []session.ID{"parent"})[0].Err
	},
	also: func(ctx context.Context, s *Store, w wanted) error {
		trashed, purged, err := s.former("parent")
		switch {
		case err != nil:
			return err
		case !trashed && !purged:
			return errors.New("its id is free again")
		case trashed && w.done():
			return errors.New("the parent is still in the trash")
		}
		if err := s.Purge(ctx, []session.ID{"parent"})[0].Err; err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("purged again: %w", err)
		}
		n := 0
		err = s.EachBlob(ctx, func(string, int64) error { n++; return nil })
		if err == nil && n != 1 {
			err = fmt.Errorf("%d blobs after the purge, not the one of both", n)
		}
		return err
	},
}

func purgeLog(testing.TB, *vfs.Mem) []session.Event {
	log := events(0, 14)
	log[3] = longEvent(3, "s")
	return log
}

// repairing makes writable again what has a bad record below what is synced, and one in its last segment.
var repairing = scenario{name: "repair", shuffled: true, every: 4, setup: threeLives,
	disk: func(t testing.TB, m *vfs.Mem) {
		for seg, seq := range map[session.Seq]string{0: `{"seq":2`, 4: `{"seq":5`} {
			err := m.Edit(memRoot+"/sessions/subject/"+segmentName(seg), func(b []byte) []byte {
				b[bytes.Index(b, []byte(seq))+20] ^= 4
				return b
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	},
	log: func(t testing.TB, m *vfs.Mem) []session.Event {
		s := memStore(t, m.Process(), 0, 9)
		defer s.Close()
		if rep := must[store.Repair](t)(s.Repair(t.Context(), subject, false)); store.Records(rep.Lost) != 2 {
			t.Fatalf("%+v", rep)
		}
		got, _ := readEvents(t, s, subject)
		return append(got, events(10, 4)...)
	},
	run: repairAgain,
	also: func(ctx context.Context, s *Store, w wanted) error {
		if w.done() {
			return nil
		}
		_, err := repairAgain(ctx, s, nil)
		return err
	},
}

func repairAgain(ctx context.Context, s *Store, _ []session.Event) (session.Seq, error) {
	_, err := s.Repair(ctx, subject, false)
	return session.None, err
}

// joining is a life that joins beside its work what so many lives before it have left. Its work waits for that, so
// that the calls come in an order.
var joining = scenario{name: "join-in-life", shuffled: true, every: 17, stored: manySegs + 3,
	setup: func(t testing.TB, s *Store) {
		newStored(t, s, subject, 1)
		for i := session.Seq(1); i < manySegs+3; i++ {
			w := must[store.Writer](t)(s.Open(t.Context(), subject))
			mustAppend(t, w, events(i, 1))
			mustFlush(t, w)
			w.Close()
		}
	},
	run: func(ctx context.Context, s *Store, log []session.Event) (session.Seq, error) {
		const from = manySegs + 3
		w, err := s.Open(ctx, subject)
		if err != nil {
			return session.None, err
		}
		defer w.Close()
		acked := session.None
		for i := session.Seq(from); i < from+2; i++ {
			if acked, err = saved(ctx, w, events(i, 1), true); err != nil {
				return i - 1, err
			}
			if own := w.(*writer); own.joinDone != nil {
				<-own.joinDone
			}
		}
		return acked, w.Close()
	},
}

// collecting removes a blob that nothing names, and what a maker who died has left, beside a blob that is named.
var collecting = scenario{name: "collect", block: 8 << 10, stored: 12,
	setup: func(t testing.TB, s *Store) {
		w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
		mustAppend(t, w, blobLog(t, nil)[:12])
		mustFlush(t, w)
		w.Close()
		must[string](t)(s.PutBlob(t.Context(), []byte("nobody names it")))
		f := must[vfs.File](t)(s.fs.OpenFile(s.path("sessions", string(subject), newSegment+"dead"), vfs.CreateAppend))
		f.Close()
	},
	log: blobLog,
	run: func(ctx context.Context, s *Store, _ []session.Event) (session.Seq, error) {
		c, err := s.Collect(ctx, store.CollectOptions{})
		if err == nil && len(c.Unread) > 0 {
			err = fmt.Errorf("nothing was removed, of %s nobody knows what it names (%s): %w", c.Unread[0].Where, c.Unread[0].Why, store.ErrNotSaved)
		}
		return session.None, err
	},
	also: func(ctx context.Context, s *Store, w wanted) error {
		// Also behind one that came to its end: a loss of power may bring litter back, whose removal nobody waits for.
		if _, err := s.Collect(ctx, store.CollectOptions{}); err != nil {
			return fmt.Errorf("the next collect: %w", err)
		}
		n := 0
		if err := s.EachBlob(ctx, func(string, int64) error { n++; return nil }); err != nil || n != 1 {
			return fmt.Errorf("there are %d blobs, want the one that is named: %w", n, err)
		}
		list, err := s.fs.ReadDir(s.dir(subject))
		for _, e := range list {
			if hidden(e.Name()) {
				err = fmt.Errorf("%s is left", e.Name())
			}
		}
		return err
	},
}
