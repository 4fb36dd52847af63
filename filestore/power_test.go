package filestore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Lives that end with a loss of power: of what the last one wrote and did not sync each block is there, is zero, is
// garbage or is missing. Each next life opens without a question, finds everything that was acknowledged, and
// stands in for the rest with marks; the one after it finds nothing to do.
func TestLossOfPower(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	lost, copied, torn := 0, 0, 0
	for round := range rounds {
		rnd := rand.New(rand.NewPCG(uint64(round), 11))
		root := t.TempDir()
		o := testOptions()
		o.FS, o.SegmentBytes = unsynced, int64(700+rnd.IntN(3000))
		newStored(t, openWith(t, root, o), subject, 3)
		var log []session.Event // what a life before it read or wrote
		for life := range 6 {
			at := fmt.Sprintf("round %d, life %d", round, life)
			s := openWith(t, root, o)
			w, err := s.Open(t.Context(), subject)
			if err != nil {
				t.Fatalf("%s: open: %v", at, err)
			}
			op := w.Opened()
			acked := int(op.Pos.Next)
			log = collect(t, op.Prefix)
			if op.Torn != nil {
				torn++
			}
			for _, ev := range op.Lost {
				if ev.Type == session.TypeLost {
					lost++
				} else {
					copied++
				}
			}
			log = append(log, op.Lost...)
			batch := slices.Clone(op.Lost)
			for range 1 + rnd.IntN(6) {
				evs := by(at, session.Seq(len(log)), 1+rnd.IntN(4))
				log = append(log, evs...)
				mustAppend(t, w, append(batch, evs...))
				batch = nil
				if rnd.IntN(2) == 0 {
					acked = int(mustFlush(t, w).Next)
				}
			}
			synced := max(acked, int(w.(*writer).synced.Next)) // a first commit and a roll sync too
			w.Close()
			losePower(t, rnd, s, synced)
			got, snap := readEvents(t, s, subject)
			if len(got) < acked {
				t.Fatalf("%s: %d acknowledged, %d readable: damage %v", at, acked, len(got), snap.Damage)
			}
			if !slices.EqualFunc(got, log[:len(got)], same) {
				t.Fatalf("%s: wrong events", at)
			}
			for _, ev := range snap.Lost {
				if ev.Type != session.TypeLost && !same(ev, log[ev.Seq]) {
					t.Fatalf("%s: the copy of %d differs", at, ev.Seq)
				}
			}
			st := must[store.Stat](t)(s.Stat(t.Context(), subject))
			if len(snap.Damage) > 0 || st.State == store.StateDamaged || st.Pos != snap.Pos {
				t.Fatalf("%s: damage %v, stat %+v", at, snap.Damage, st)
			}
			s.Close()
		}
	}
	if lost == 0 || copied == 0 || torn == 0 {
		t.Errorf("%d marks, %d copies, %d torn tails: a kind is missing", lost, copied, torn)
	}
	t.Logf("%d marks, %d copies, %d torn tails", lost, copied, torn)
}

// losePower hurts what lies behind the record before seq in the last segment.
func losePower(t *testing.T, rnd *rand.Rand, s *Store, seq int) {
	t.Helper()
	names, err := s.segmentNames(s.dir(subject))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.dir(subject), names[len(names)-1].String())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	from := 0
	for range 1 + seq - int(names[len(names)-1].first) {
		from += bytes.IndexByte(b[from:], '\n') + 1
	}
	size := []int{16, 64, 200}[rnd.IntN(3)]
	for i := from; i < len(b); i += size {
		block := b[i:min(i+size, len(b))]
		switch rnd.IntN(8) {
		case 0, 1:
			clear(block)
		case 2:
			for j := range block {
				block[j] = byte(rnd.Uint32())
			}
		}
	}
	if rest := len(b) - from; rest > 0 && rnd.IntN(2) == 0 {
		b = b[:from+rnd.IntN(rest)]
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
