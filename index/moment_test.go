package index

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
)

// between lets something happen before each query but the first.
type between struct {
	reads
	n    int
	then func()
}

func (b *between) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if b.n++; b.n > 1 {
		b.then()
	}
	return b.reads.QueryContext(ctx, query, args...)
}

// What another process packs while the pack is read is not taken for damage, for which the file would be thrown away.
func TestPackedWhileItIsRead(t *testing.T) {
	dir := t.TempDir()
	var x [2]*Index
	for i := range x {
		x[i] = Open(Options{Path: filepath.Join(dir, "index.db"), Registry: sessiontest.Registry()})
		t.Cleanup(func() { x[i].Close() })
		x[i].ready(t.Context())
		if x[i].db == nil {
			t.Fatal("no file")
		}
	}
	pack := func(n int) {
		if !x[1].write(t.Context(), func(tx *sql.Tx) error { return unpack(t.Context(), tx) }) {
			t.Error("not written")
		}
		x[1].shelf.heads = map[session.ID]head{}
		for i := range n {
			x[1].shelf.heads[session.ID(fmt.Sprint("s", i))] = head{}
		}
		if err := x[1].db.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&x[1].loaded); err != nil {
			t.Error(err)
		}
		x[1].apart = false
		x[1].writeTrust(t.Context(), trust{at: time.Unix(1, 0), stamp: "s"})
	}
	pack(3)
	err := x[0].reading(t.Context(), func(tx *sql.Tx) error {
		heads, _, ok, err := readPack(t.Context(), &between{reads: tx, then: func() { pack(5) }})
		if err != nil || !ok || len(heads) != 3 {
			t.Errorf("%d heads, %v %v, want the 3 of the moment at which reading began", len(heads), ok, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// As it was: outside of a transaction the same would be taken for damage, so the test can fail.
	pack(3)
	if _, _, _, err := readPack(t.Context(), &between{reads: x[0].db, then: func() { pack(5) }}); err == nil {
		t.Error("nothing was packed in between")
	}
	if err := x[0].readHeads(t.Context()); err != nil || len(x[0].shelf.heads) != 5 {
		t.Error(len(x[0].shelf.heads), err)
	}
}

// Who asks why a file cannot be opened asks the names.
func TestReadOnlyByName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	path := filepath.Join(dir, "index.db")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if readOnly(path) {
		t.Error("a directory that can be written to is read-only")
	}
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	if !readOnly(path) {
		t.Error("a directory that cannot be written to is not read-only")
	}
}
