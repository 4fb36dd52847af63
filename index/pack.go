package index

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/strandline-dev/strandline/session"
)

// What a process that begins needs before its first page is two blobs: the heads of all sessions, packed, and what makes a
// glance enough. They are written behind a look at all sessions; the heads seldom, so that each costs little: which of them have
// changed since is written down with each change, and read from their rows. All of it proves itself by sums, or the file
// is thrown away.

const (
	looked = 0 // the row of a trust
	packed = 1 // that of the heads
)

// The row of changed whose id is empty holds the sum of the pack and of all its ids, added. Without it there is no pack.

// isEnough returns how many heads may have changed before they are packed again.
func isEnough(heads int) int { return max(256, heads/8) }

// changed writes down, in a transaction, which heads are not as they are packed.
func changed(ctx context.Context, tx *sql.Tx, ids ...session.ID) error {
	var sum int64
	err := tx.QueryRowContext(ctx, "SELECT v FROM changed WHERE id = ''").Scan(&sum)
	if err != nil || len(ids) == 0 {
		return ignore(err, sql.ErrNoRows)
	}
	if len(ids) > isEnough(0) { // it will be packed anew
		return unpack(ctx, tx)
	}
	for _, id := range ids {
		r, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO changed(id, v) VALUES(?, 0)", string(id))
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil {
			return err
		} else if n > 0 {
			sum += int64(sumOf(id, ofPack, nil))
		}
	}
	_, err = tx.ExecContext(ctx, "UPDATE changed SET v = ? WHERE id = ''", sum)
	return err
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

func unpack(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM changed")
	if err == nil {
		_, err = tx.ExecContext(ctx, "DELETE FROM looked WHERE n = ?", packed)
	}
	return err
}

// distrust takes the trust out of the file.
func distrust(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM looked WHERE n = ?", looked)
	return err
}

// cross takes the trust out of the file if it does not expect that any of the sessions changes: what two processes saw of
// one is not written down in the order in which they saw it.
func cross(ctx context.Context, tx *sql.Tx, ids []session.ID) error {
	if len(ids) == 0 {
		return nil
	}
	var raw []byte
	err := tx.QueryRowContext(ctx, "SELECT data FROM looked WHERE n = ?", looked).Scan(&raw)
	if err != nil {
		return ignore(err, sql.ErrNoRows)
	}
	t, err := decodeTrust(raw)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(ids, func(id session.ID) bool { return !t.hot[id] }) {
		return distrust(ctx, tx)
	}
	return nil
}

// readPack returns the heads as the file has them, and its trust, nil if there is none. ok is false if there is no pack. It reads
// more than once: db is a transaction, or another process packs in between, and what is right looks damaged.
func readPack(ctx context.Context, db reads) (heads map[session.ID]head, t *trust, ok bool, err error) {
	blobs := map[int][]byte{}
	rows, err := db.QueryContext(ctx, "SELECT n, data FROM looked")
	if err != nil {
		return nil, nil, false, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		var b []byte
		if err := rows.Scan(&n, &b); err != nil {
			return nil, nil, false, err
		}
		blobs[n] = b
	}
	if err := cmp.Or(rows.Err(), rows.Close()); err != nil {
		return nil, nil, false, err
	}
	if b := blobs[looked]; b != nil {
		if t, err = decodeTrust(b); err != nil {
			return nil, nil, false, err
		}
	}
	if blobs[packed] == nil {
		return nil, t, false, nil
	}
	heads, sum, err := decodePack(blobs[packed])
	if err != nil {
		return nil, nil, false, err
	}
	rows, err = db.QueryContext(ctx, "SELECT id, v, head FROM changed LEFT JOIN heads USING(id)")
	if err != nil {
		return nil, nil, false, err
	}
	defer rows.Close()
	var want int64
	for rows.Next() {
		var id string
		var v int64
		var raw sql.RawBytes
		if err := rows.Scan(&id, &v, &raw); err != nil {
			return nil, nil, false, err
		}
		if id == "" {
			want = v
			continue
		}
		key := session.ID(id)
		sum += sumOf(key, ofPack, nil)
		if raw == nil {
			delete(heads, key)
		} else if heads[key], err = decodeHead(key, raw); err != nil {
			return nil, nil, false, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, nil, false, err
	}
	if want != int64(sum) {
		return nil, nil, false, errWrong
	}
	return heads, t, true, nil
}

// writeTrust lets the processes to come glance, if what memory has is what the file has. The caller holds mu.
func (x *Index) writeTrust(ctx context.Context, t trust) {
	if x.db == nil || x.off || x.apart || len(x.kept) > 0 {
		return
	}
	x.write(ctx, func(tx *sql.Tx) error {
		if v, err := dataVersion(ctx, tx); err != nil || v != x.loaded {
			return err // another process has written: who knows what
		}
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM changed").Scan(&n); err != nil {
			return err
		}
		if n == 0 || n > isEnough(len(x.shelf.heads)) {
			if err := unpack(ctx, tx); err != nil {
				return err
			}
			b := encodePack(x.shelf.heads)
			if _, err := tx.ExecContext(ctx, "INSERT INTO changed(id, v) VALUES('', ?)", int64(sealed(b))); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO looked(n, data) VALUES(?, ?)", packed, b); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO looked(n, data) VALUES(?, ?)", looked, t.encode())
		return err
	})
}

func encodePack(heads map[session.ID]head) []byte {
	var b []byte
	for _, id := range slices.Sorted(maps.Keys(heads)) {
		b = appendText(b, string(id))
		b = heads[id].append(b)
	}
	return seal("", ofPack, b)
}

func decodePack(b []byte) (heads map[session.ID]head, sum uint64, err error) {
	b, sum, err = unseal("", ofPack, b)
	if err != nil {
		return nil, 0, err
	}
	d := decoder{text: string(b)} // one string for all of theirs
	heads = make(map[session.ID]head, len(b)/100)
	for d.text != "" {
		id := session.ID(d.str())
		heads[id] = d.head(id)
	}
	if d.bad {
		return nil, 0, errWrong
	}
	return heads, sum, nil
}

func (t trust) encode() []byte {
	b := binary.AppendVarint(nil, t.at.UnixNano())
	b = appendText(b, t.stamp)
	for _, id := range slices.Sorted(maps.Keys(t.hot)) {
		b = appendText(b, string(id))
	}
	return seal("", ofTrust, b)
}

func decodeTrust(b []byte) (*trust, error) {
	b, _, err := unseal("", ofTrust, b)
	if err != nil {
		return nil, err
	}
	d := decoder{text: string(b)}
	t := &trust{at: time.Unix(0, d.num()), stamp: d.str(), hot: map[session.ID]bool{}}
	for d.text != "" {
		t.hot[session.ID(d.str())] = true
	}
	if d.bad || t.stamp == "" {
		return nil, errWrong
	}
	return t, nil
}
