package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/session/sessiontest"
)

// seqs is the simplest Texts: which events it was given.
type seqs struct{}

func (seqs) Version() uint16 { return 7 }
func (seqs) Schema() []string {
	return []string{`CREATE TABLE seqs(id TEXT, seq INTEGER, digest TEXT, PRIMARY KEY(id, seq))`}
}
func (seqs) Project(ctx context.Context, tx *sql.Tx, h session.Header, _ session.Prefix, ev session.Event) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO seqs VALUES(?, ?, ?)", string(h.ID), int64(ev.Seq), digest(ev)) // twice is an error
	return err
}
func (seqs) Forget(ctx context.Context, tx *sql.Tx, id session.ID) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM seqs WHERE id = ?", string(id))
	return err
}

// took returns what seqs was given and holds.
func took(t testing.TB, x *Index) map[string]string {
	got := map[string]string{}
	err := x.View(t.Context(), func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT id, seq, digest FROM seqs")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id, sum string
			var seq int64
			if err := rows.Scan(&id, &seq, &sum); err != nil {
				return err
			}
			got[fmt.Sprint(id, " ", seq)] = sum
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Every event that a session logged itself is given once, whoever refreshes, and what a session did by the hour sums up
// to its own usage.
func TestTextsAndHours(t *testing.T) {
	w := newWorld(t, 11)
	open := func(st *world) *Index {
		x := Open(Options{Path: w.path(), Store: st.st, Registry: sessiontest.Registry(), Texts: seqs{}})
		t.Cleanup(func() { x.Close() })
		return x
	}
	x, other := open(w), open(w)
	for round := range 25 {
		for range 1 + w.rng.IntN(4) {
			w.change()
		}
		who := x
		switch w.rng.IntN(4) {
		case 0:
			who = other
		case 1:
			w.same(other, Query{}) // facts may be ahead of the texts
		case 2:
			if round%2 == 0 {
				w.ok(os.Remove(w.path()))
			}
		}
		if i := w.rng.IntN(len(w.ids)); w.rng.IntN(2) == 0 {
			w.ok(who.Update(t.Context(), w.ids[i]))
		}
		w.ok(who.Refresh(t.Context(), nil))
		want := map[string]string{}
		usage := map[session.ID]*message.Usage{}
		for _, id := range w.ids {
			snap, err := w.st.Read(t.Context(), id)
			w.ok(err)
			for ev, err := range snap.Prefix.Range(snap.Header.SeedLength, snap.Prefix.Len()) {
				w.ok(err)
				want[fmt.Sprint(id, " ", ev.Seq)] = digest(ev)
			}
			s, err := session.Fold(snap.Header, sessiontest.Registry(), snap.Prefix)
			w.ok(err)
			if _, own := s.Usage(); own != nil {
				usage[id] = own
			}
			w.ok(snap.Close())
		}
		if d := cmp.Diff(want, took(t, who)); d != "" {
			t.Fatalf("round %d: texts: %s", round, d)
		}
		for _, asked := range []*Index{who, w.index("")} {
			got := map[session.ID]*message.Usage{}
			w.ok(asked.Hours(t.Context(), Query{}, nil, func(d Worked) error {
				var sum Hour
				for _, h := range d.Hours {
					sum = sum.add(h)
				}
				if sum.Usage != nil {
					got[d.ID] = sum.Usage
				}
				return nil
			}))
			if d := cmp.Diff(usage, got); d != "" {
				t.Fatalf("round %d: hours: %s", round, d)
			}
		}
	}
	gone := slices.Clone(w.ids[:2])
	if !x.Forget(t.Context(), gone...) {
		t.Fatal("not forgotten")
	}
	for k := range maps.Keys(took(t, other)) {
		if k[:len(gone[0])] == string(gone[0]) || k[:len(gone[1])] == string(gone[1]) {
			t.Fatal(k, "is there still")
		}
	}
}

// An index without a file has no tables.
func TestNoFile(t *testing.T) {
	w := newWorld(t, 12)
	w.create("session-one", 3)
	x := Open(Options{Store: w.st, Registry: sessiontest.Registry(), Texts: seqs{}})
	if err := x.Refresh(t.Context(), nil); !errors.Is(err, ErrNoFile) {
		t.Fatal(err)
	}
	if err := x.View(t.Context(), func(*sql.Tx) error { return nil }); !errors.Is(err, ErrNoFile) {
		t.Fatal(err)
	}
}
