package filestore

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// What Read takes for the work of a loss of power, the health check does not call damage.
func TestVerifyAgreesOnLostRecords(t *testing.T) {
	s, path, b := hurt(t, 20) // seqs 10 to 19 may be lost
	lines := bytes.SplitAfter(b, []byte("\n"))
	at := len(bytes.Join(lines[:14], nil))
	c := bytes.Clone(b)
	c[at+10] ^= 1 // in seq 13
	reset(t, path, c)
	read := must[*store.Snapshot](t)(s.Read(t.Context(), subject))
	verified := must[*store.Snapshot](t)(s.Verify(t.Context(), subject))
	if len(read.Lost) != 7 || len(verified.Lost) != 7 || len(verified.Damage) > 0 {
		t.Fatalf("Read finds %d lost, Verify %d and the damage %v", len(read.Lost), len(verified.Lost), verified.Damage)
	}
	if rep := must[store.Repair](t)(s.Repair(t.Context(), subject, false)); rep.Damage != nil {
		t.Fatalf("repaired without need: %+v", rep)
	}
}

// A link that alone is damaged harms nobody, also at the end of a segment, where the next one says what it should be.
func TestVerifyLinkAloneAtTheEnd(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	newStored(t, s, subject, 5)
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, w, events(5, 2))
	w.Close()
	path := filepath.Join(s.dir(subject), segmentName(0))
	b := must[[]byte](t)(os.ReadFile(path))
	b[len(b)-linkTail-1] ^= 1 // a letter of the link of seq 4
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	got, snap := readEvents(t, s, subject)
	wantEvents(t, got, events(0, 7))
	v := must[*store.Snapshot](t)(s.Verify(t.Context(), subject))
	if len(snap.Damage)+len(v.Damage) > 0 || v.Prefix.Len() != session.Seq(7) {
		t.Fatalf("damage: Read %v, Verify %v", snap.Damage, v.Damage)
	}
}
