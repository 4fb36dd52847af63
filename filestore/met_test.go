package filestore

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// generations are a session, a fork of it and a fork of that one, with checkpoints behind each of their own parts. The
// first has one at 120, below where it is hurt, and more above.
func generations(t *testing.T, s *Store) []session.ID {
	t.Helper()
	foldedLives(t, s, subject, 5)
	ids := []session.ID{subject, "child-1", "child-2"}
	for i, id := range ids[1:] {
		must[session.Header](t)(store.Fork(t.Context(), s, ids[i], store.ForkOptions{Child: id, Now: 9}))
		w := must[store.Writer](t)(s.Open(t.Context(), id))
		mustAppend(t, w, talk(t, w.Opened().Pos.Next, 2))
		keepFold(t, s, w)
		w.Close()
	}
	return ids
}

// hurtAt flips a bit of the event at seq of subject, in its file.
func hurtAt(t *testing.T, s *Store, seq session.Seq) {
	t.Helper()
	names := must[[]segName](t)(s.segmentNames(s.dir(subject)))
	path := names[holding(names, seq)].in(s.dir(subject))
	text := must[[]byte](t)(os.ReadFile(path))
	text[bytes.Index(text, []byte(`{"seq":`+seq.String()+`,`))+40] ^= 1
	write(t, path, text)
}

// Whoever meets damage below a checkpoint, in whatever way: from then on everybody knows who opens the session, and
// whoever holds it makes no checkpoint any more that hides it. What lies below the damage stays.
func TestDamageIsMet(t *testing.T) {
	const at = 200
	for name, meet := range map[string]func(t *testing.T, s *Store, last session.ID, held store.Writer) error{
		"an event of the held session": func(_ *testing.T, _ *Store, _ session.ID, held store.Writer) error {
			_, err := held.Stored().At(at)
			return err
		},
		"a range of it": func(_ *testing.T, _ *Store, _ session.ID, held store.Writer) error {
			for _, err := range held.Stored().Range(at-3, at+3) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"a tail, elsewhere": func(t *testing.T, s *Store, last session.ID, _ store.Writer) error {
			snap := must[*store.Snapshot](t)(openStoreLike(t, s).ReadTail(t.Context(), last))
			defer snap.Close()
			_, err := snap.Prefix.At(at)
			return err
		},
		"a peek, elsewhere": func(t *testing.T, s *Store, last session.ID, _ store.Writer) error {
			snap := must[*store.Snapshot](t)(openStoreLike(t, s).Peek(t.Context(), last))
			defer snap.Close()
			_, err := snap.Prefix.At(at)
			return err
		},
		"all of it, elsewhere": func(t *testing.T, s *Store, last session.ID, _ store.Writer) error {
			snap := must[*store.Snapshot](t)(openStoreLike(t, s).Read(t.Context(), last))
			defer snap.Close()
			return (&store.DamagedError{ID: last, Ranges: snap.Damage})
		},
		"the health check, elsewhere": func(t *testing.T, s *Store, last session.ID, _ store.Writer) error {
			snap := must[*store.Snapshot](t)(openStoreLike(t, s).Verify(t.Context(), last))
			defer snap.Close()
			return (&store.DamagedError{ID: last, Ranges: snap.Damage})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s := smallSegments(t, t.TempDir(), nil)
			ids := generations(t, s)
			hurtAt(t, s, at)
			last := ids[len(ids)-1]
			w := must[store.Writer](t)(s.Open(ctx, last))
			if _, ok := w.Opened().Nearest(store.Whole); !ok {
				t.Fatal("it is not opened behind a checkpoint")
			}
			if err := meet(t, s, last, w); !errors.Is(err, store.ErrDamaged) {
				t.Fatalf("what was met: %v", err)
			}
			mustAppend(t, w, talk(t, w.Stored().Len(), 1))
			pos := mustFlush(t, w)
			if err := s.PutCheckpoint(ctx, last, store.Checkpoint{Pos: pos, Data: []byte("x")}); err == nil {
				t.Error("a checkpoint hides what was met")
			}
			w.Close()
			for _, id := range ids {
				left := must[[]foldFile](t)(s.foldsIn(id))
				for _, c := range left {
					if c.pos.Next > at {
						t.Errorf("of %s the checkpoint at %d is left", id, c.pos.Next)
					}
				}
				if id == subject && len(left) == 0 {
					t.Error("what is below the damage is gone")
				}
				if w, err := s.Open(ctx, id); !errors.Is(err, store.ErrDamaged) {
					t.Errorf("the next opening of %s: %v", id, err)
					w.Close()
				}
			}
		})
	}
}

// openStoreLike is another process' handle of the same store.
func openStoreLike(t *testing.T, s *Store) *Store {
	t.Helper()
	return smallSegments(t, s.root, nil)
}

// The text of an event may lie beside the log, and be damaged there.
func TestDamagedBlobIsMet(t *testing.T) {
	ctx := t.Context()
	s := smallSegments(t, t.TempDir(), nil)
	w := must[store.Writer](t)(s.Create(ctx, testHeader(subject)))
	evs := talk(t, 0, 20)
	long := `"` + strings.Repeat("long ", record.BlobLimit) + `"`
	evs[0].Data = jsontext.Value(`{"turn":1,"x":` + long + `}`)
	mustAppend(t, w, evs)
	keepFold(t, s, w)
	w.Close()
	write(t, s.blobPath(record.BlobName([]byte(long))), []byte("x"))
	w = must[store.Writer](t)(s.Open(ctx, subject))
	if _, err := w.Stored().At(0); !errors.Is(err, store.ErrDamaged) {
		t.Fatal(err)
	}
	w.Close()
	if left := must[[]foldFile](t)(s.foldsIn(subject)); len(left) > 0 {
		t.Errorf("checkpoints are left: %v", left)
	}
}

// A cache that is emptied while somebody works is filled again by the next life.
func TestCacheEmptiedMeanwhile(t *testing.T) {
	s := smallSegments(t, t.TempDir(), nil)
	foldedLives(t, s, subject, 3)
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	if err := os.RemoveAll(s.path("cache")); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, w, talk(t, 360, 1))
	pos := mustFlush(t, w)
	if err := s.PutCheckpoint(t.Context(), subject, store.Checkpoint{Pos: pos, Data: []byte("x")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("somebody may have met damage: %v", err)
	}
	w.Close()
	w = must[store.Writer](t)(s.Open(t.Context(), subject))
	keepFold(t, s, w)
	keepFold(t, s, w)
	w.Close()
	if at := behind(t, s, subject); at != 366 {
		t.Errorf("checkpoint at %d", at)
	}
}
