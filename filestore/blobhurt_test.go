package filestore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// long makes an event whose data has a blob, and returns the blob's name.
func long(seq session.Seq) (session.Event, string) {
	ev := events(seq, 1)[0]
	raw := `"` + strings.Repeat("long ", 8000) + `"`
	ev.Data = jsontext.Value(`{"text":` + raw + `}`)
	return ev, record.BlobName([]byte(raw))
}

// withLong stores 0 to 9, of which 7 has a blob and only 0 to 4 are known to be synced.
func withLong(t *testing.T) (s *Store, blob string) {
	s = openStore(t, t.TempDir(), nil)
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	mustAppend(t, w, events(0, 5))
	mustFlush(t, w)
	evs := events(5, 5)
	var name string
	evs[2], name = long(7)
	mustAppend(t, w, evs)
	w.Close()
	return s, s.blobPath(name)
}

// A blob that is gone, or changed, is damage of the session that needs it, by its name and with the file. "Not
// there" would mean that the session is not.
func TestHurtBlob(t *testing.T) {
	for what, hurt := range map[string]func(path string) error{
		"gone":      os.Remove,
		"empty":     func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"truncated": func(p string) error { return os.Truncate(p, 9) },
		"a directory": func(p string) error {
			return errors.Join(os.Remove(p), os.Mkdir(p, 0o700))
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, blob := withLong(t)
			if err := hurt(blob); err != nil {
				t.Fatal(err)
			}
			snap := must[*store.Snapshot](t)(s.Read(t.Context(), subject))
			defer snap.Close()
			_, at := snap.Prefix.At(7)
			var ranged error
			for _, ranged = range snap.Prefix.Range(0, 10) {
			}
			_, loaded := store.Load(snap, session.Core())
			for how, err := range map[string]error{"At": at, "Range": ranged, "Load": loaded} {
				var de *store.DamagedError
				if !errors.As(err, &de) || errors.Is(err, store.ErrNotFound) || de.ID != subject || de.Ranges[0].File != blob {
					t.Errorf("%s: %v", how, err)
				}
			}
			peek := must[*store.Snapshot](t)(s.Peek(t.Context(), subject))
			for _, q := range []session.Seq{6, 8, 5, 9, 0} { // what stands around it can be read
				if ev, err := peek.Prefix.At(q); err != nil || !same(ev, events(q, 1)[0]) {
					t.Errorf("peek at %d: %v, %v", q, ev, err)
				}
			}
			if _, err := peek.Prefix.At(7); !errors.Is(err, store.ErrDamaged) {
				t.Errorf("peek at 7: %v", err)
			}
			// A tail that a Stat has to look at twice does not need the blob.
			path := filepath.Join(s.dir(subject), segmentName(0))
			b, _ := os.ReadFile(path)
			if err := os.WriteFile(path, append(b, "\x00bad\n"...), 0o600); err != nil {
				t.Fatal(err)
			}
			if st, err := s.Stat(t.Context(), subject); err != nil || st.State != store.StateTorn || st.Pos.Next != 10 {
				t.Errorf("stat: %+v, %v", st, err)
			}
		})
	}
}

// Behind a record that loss of power took stands one whose blob is gone: it cannot be copied.
func TestLostBeforeHurtBlob(t *testing.T) {
	s, blob := withLong(t)
	path := filepath.Join(s.dir(subject), segmentName(0))
	b, _ := os.ReadFile(path)
	at := bytes.Index(b, []byte(`{"seq":6,`))
	b[at+20] ^= 1
	if err := errors.Join(os.WriteFile(path, b, 0o600), os.Remove(blob)); err != nil {
		t.Fatal(err)
	}
	snap, err := s.Read(t.Context(), subject)
	if err != nil || len(snap.Damage) == 0 || snap.Damage[0].File != blob || snap.Lost != nil || snap.Pos.Next != 6 {
		t.Fatalf("read: %+v, %v", snap, err)
	}
	snap.Close()
	if _, err := s.Open(t.Context(), subject); !errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrNotFound) {
		t.Fatalf("open: %v", err)
	}
	if st, err := s.Stat(t.Context(), subject); err != nil || st.State != store.StateDamaged {
		t.Fatalf("stat: %+v, %v", st, err)
	}
}

// One bad blob does not keep every session from saving the same text: it is set aside, with its bytes.
func TestBadBlobIsReplaced(t *testing.T) {
	s, blob := withLong(t)
	if err := os.WriteFile(blob, []byte("rotten"), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, id := range []session.ID{"one1", "two2", "three"} {
		w := must[store.Writer](t)(openStore(t, s.root, nil).Create(t.Context(), testHeader(id)))
		wg.Go(func() {
			ev, _ := long(0)
			err := store.ErrNotSaved
			for errors.Is(err, store.ErrNotSaved) {
				_, err = w.Append(t.Context(), []session.Event{ev})
			}
			if err != nil {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	wg.Wait()
	for _, id := range []session.ID{subject, "one1", "two2", "three"} {
		readEvents(t, s, id)
	}
	aside, _ := filepath.Glob(filepath.Join(filepath.Dir(blob), "damaged-*"))
	if len(aside) != 1 {
		t.Fatalf("set aside: %v", aside)
	}
	if b, _ := os.ReadFile(aside[0]); string(b) != "rotten" {
		t.Fatalf("the bad bytes are now %q", b)
	}
}
