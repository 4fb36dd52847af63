package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
)

// TestSumIsKept: whatever transactions do to the tables (take in, replace, take out, for good, merge what FTS5 has in parts, fail half
// way), the sum that they keep is the one over all rows.
func TestSumIsKept(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(3) {
		rng := mrand.New(mrand.NewPCG(seed, 19))
		x := indexOf(t, memory(t), filepath.Join(t.TempDir(), "index.db"), 0)
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.open(ctx); x.db == nil {
			t.Fatal("no file")
		}
		check := func(what string) {
			t.Helper()
			tx, err := x.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			full, err := tablesSum(ctx, tx)
			if err != nil {
				t.Fatal(err)
			}
			var kept int64
			if err := tx.QueryRowContext(ctx, "SELECT v FROM state WHERE name = 'sum'").Scan(&kept); err != nil {
				t.Fatal(err)
			}
			if kept != full {
				t.Fatalf("seed %d, %s: the sum that is kept is %x, that of all rows %x", seed, what, kept, full)
			}
		}
		check("made")
		text := func() string {
			var b strings.Builder
			for range 1 + rng.IntN(60) {
				fmt.Fprintf(&b, "w%x ", rng.IntN(1<<(4+rng.IntN(12))))
			}
			return b.String()
		}
		has := map[int64]bool{}
		for i := range 80 {
			n := int64(rng.IntN(6))
			what := fmt.Sprint("change ", i)
			undo := errors.New("undo")
			fails := rng.IntN(6) == 0
			err := x.transact(ctx, func(tx *sql.Tx) error {
				if rng.IntN(3) == 0 && has[n] {
					what += ", out"
					if err := eraseDocs(ctx, tx, n); err != nil {
						return err
					}
				}
				if rng.IntN(4) > 0 {
					what += ", in"
					docs := make([]doc, rng.IntN(80))
					for k := range docs {
						docs[k] = doc{seq: session.Seq(k), time: rng.Int64N(1e9), tool: string(rune(rng.IntN(200))), words: text(), grams: text()}
					}
					if _, err := putDocs(ctx, tx, []*part{{next: cover{n: n}, docs: docs}}); err != nil {
						return err
					}
					if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO covers(n, id, cover) VALUES(?, ?, ?)", n+1, fmt.Sprint("id-", rng.IntN(6)), []byte(text())); err != nil {
						return err
					}
				}
				if rng.IntN(8) == 0 {
					what += ", merged"
					for _, table := range []string{"words", "grams"} {
						if _, err := tx.ExecContext(ctx, "INSERT INTO "+table+"("+table+") VALUES('optimize')"); err != nil {
							return err
						}
					}
				}
				if fails {
					return undo
				}
				return x.sealTables(ctx, tx)
			})
			if fails != errors.Is(err, undo) || !fails && err != nil {
				t.Fatal(what, err)
			}
			has[n] = true
			check(what)
		}
	}
}

// TestDamageIsNotSealed: what was spoiled in the tables does not become right by what is taken in later.
func TestDamageIsNotSealed(t *testing.T) {
	st := memory(t)
	fill(t, st, 1, 8)
	path := filepath.Join(t.TempDir(), "index.db")
	x := indexOf(t, st, path, -1)
	same(t, x, st, 1, 6)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("DELETE FROM docs WHERE key IN (SELECT key FROM docs ORDER BY key LIMIT 5)"); err != nil {
		t.Fatal(err)
	}
	said := session.Event{Time: 1_700_000_000_000, Type: session.TypeUserMessage, Op: session.Append(),
		Data: jsontext.Value(`{"id":"u","role":"user","content":[{"type":"text","text":"later"}],"source":{"kind":"user"}}`)}
	if err := st.Take(t.Context(), session.Header{Format: session.Format, ID: "later-1", Kind: session.KindRoot}, func(yield func(session.Event, error) bool) {
		yield(said, nil)
	}); err != nil {
		t.Fatal(err)
	}
	indexed, _ := both(x, st)
	if got := keysOf(t, indexed, "later", search.Filter{}, 0); len(got) == 0 {
		t.Fatal("what came later is not found")
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	again := indexOf(t, st, path, -1)
	same(t, again, st, 1, 6)
	if again.thrown == 0 {
		t.Error("a file in which rows are missing is believed")
	}
}
