package index

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
)

// attacked is an index of w that counts its warnings and does not wait long.
func (w *world) attacked(warnings *int) *Index {
	x := Open(Options{Path: w.path(), Store: w.st, Registry: sessiontest.Registry(), Now: time.Now, Warn: func(err error) {
		w.t.Log("warning:", err)
		*warnings++
	}})
	x.busyMS = 20
	w.t.Cleanup(func() { x.Close() })
	return x
}

// Whoever holds the file makes answers slower, and is told of once at most. When he lets go the file is used again.
func TestHeldByAnother(t *testing.T) {
	for name, holds := range map[string][]string{
		"writing":       {"BEGIN EXCLUSIVE"},
		"for him alone": {"PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "CREATE TABLE mine(a)"},
	} {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", known ", known), func(t *testing.T) {
				w := newWorld(t, 21)
				for range 12 {
					w.change()
				}
				warnings := 0
				first := w.index(w.path())
				if w.same(first, Query{Limit: 5}); known {
					w.same(first, Query{})
				}
				w.ok(first.Close())
				x := w.attacked(&warnings)
				db, err := sql.Open("sqlite", "file:"+w.path())
				w.ok(err)
				defer db.Close()
				db.SetMaxOpenConns(1)
				for _, s := range holds {
					_, err := db.Exec(s)
					w.ok(err)
				}
				for range 4 {
					w.change()
					w.same(x, Query{})
					w.same(x, queries[w.rng.IntN(len(queries))])
					w.ok(x.Update(t.Context(), w.ids[0]))
				}
				if x.Forget(t.Context(), "session-of-another") {
					t.Error("what cannot be written down was forgotten")
				}
				_, err = db.Exec("ROLLBACK")
				w.ok(err)
				w.ok(db.Close())
				w.same(x, Query{})
				if x.db == nil || x.off {
					t.Error("the file is not used again")
				}
				if warnings > 1 {
					t.Error(warnings, "warnings")
				}
			})
		}
	}
}

// A reason that went away is none any more.
func TestUsableAgain(t *testing.T) {
	w := newWorld(t, 22)
	w.create("session-one", 3)
	w.ok(os.Mkdir(w.path(), 0o700))
	w.ok(os.WriteFile(filepath.Join(w.path(), "file"), nil, 0o600))
	warnings := 0
	x := w.attacked(&warnings)
	for i := range 3 {
		w.create(session.ID(fmt.Sprintf("session-%d", i)), 3)
		w.same(x, Query{})
	}
	w.ok(os.RemoveAll(w.path()))
	w.same(x, Query{})
	if _, err := os.Stat(w.path()); err != nil || x.db == nil || warnings != 1 {
		t.Error(err, warnings, "warnings: the file is not used again")
	}
}

// What is done to the files at the very moment of an answer changes nothing but the time.
func TestMutilatedMeanwhile(t *testing.T) {
	w := newWorld(t, 23)
	for range 20 {
		w.change()
	}
	warnings := 0
	x, other := w.attacked(&warnings), w.index(w.path())
	other.busyMS = 20
	stop := make(chan struct{})
	var attacker sync.WaitGroup
	attacker.Go(func() {
		rng := mrand.New(mrand.NewPCG(23, 2))
		for n := 0; ; n++ {
			select {
			case <-stop:
				t.Log(n, "attacks")
				return
			default:
			}
			if err := attack(rng, w.path()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 10 {
		w.change()
		for _, x := range []*Index{x, other} {
			w.same(x, Query{})
			w.same(x, queries[w.rng.IntN(len(queries))])
		}
	}
	close(stop)
	attacker.Wait()
	if w.same(x, Query{}); warnings > 1 {
		t.Error(warnings, "warnings")
	}
}

// attack damages a file of the index, if it is there.
func attack(rng *mrand.Rand, path string) error {
	path += []string{"", "", "-wal", "-shm"}[rng.IntN(4)]
	info, err := os.Stat(path)
	if err == nil {
		switch rng.IntN(6) {
		case 0:
			err = os.Remove(path)
		case 1:
			err = os.Truncate(path, rng.Int64N(info.Size()+1))
		default:
			err = flipAt(rng, path, info.Size())
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func flipAt(rng *mrand.Rand, path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil || size == 0 {
		return errors.Join(err, f.Close())
	}
	defer f.Close()
	var b [1]byte
	at := rng.Int64N(size)
	if n, _ := f.ReadAt(b[:], at); n == 0 {
		return nil
	}
	b[0] ^= 1 << rng.IntN(8)
	_, err = f.WriteAt(b[:], at)
	return err
}

// Who holds the file for himself is waited for once, however often the file is looked at, until he lets go.
func TestHeldOnce(t *testing.T) {
	w := newWorld(t, 24)
	for range 6 {
		w.change()
	}
	first := w.index(w.path())
	w.same(first, Query{})
	w.ok(first.Close())
	db, err := sql.Open("sqlite", "file:"+w.path())
	w.ok(err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, s := range []string{"PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "CREATE TABLE mine(a)"} {
		_, err := db.Exec(s)
		w.ok(err)
	}
	waits := func(x *Index) int {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.ready(t.Context())
		return x.wait()
	}
	warnings := 0
	x := w.attacked(&warnings)
	x.busyMS = 200
	if ms := waits(x); ms != heldMS {
		t.Errorf("who was waited for once is waited for %d ms", ms)
	}
	w.same(x, Query{})
	_, err = db.Exec("ROLLBACK")
	w.ok(err)
	w.ok(db.Close())
	w.same(x, Query{})
	if ms := waits(x); ms != x.busyMS || x.db == nil {
		t.Errorf("who comes later is waited for %d ms", ms)
	}
}
