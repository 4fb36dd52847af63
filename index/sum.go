package index

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// The sum over the tables of the search is the sum, modulo 2^64, of one number for each of their rows. So it does not depend on
// their order, and a change costs as much as the rows that it changes, those that FTS5 changes for its own reasons among them: SQLite
// tells of each, before and after. It never becomes right by writing: damage that a change replaces stays in it.

// summed are the tables that an answer depends on.
var summed = []struct{ table, rows string }{
	{"words_data", "SELECT id, block FROM words_data"}, {"words_idx", "SELECT segid, term, pgno FROM words_idx"},
	{"grams_data", "SELECT id, block FROM grams_data"}, {"grams_idx", "SELECT segid, term, pgno FROM grams_idx"},
	{"docs", "SELECT key, n, seq, time, tool FROM docs"}, {"covers", "SELECT n, id, cover FROM covers"},
	{"state", "SELECT name, v FROM state WHERE name <> '" + sumName + "'"},
}

const sumName = "sum"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rowSum is the number of a row: two sums, and mixed, so that what two rows exchange does not cancel out.
func rowSum(row []byte) uint64 {
	h := uint64(crc32.ChecksumIEEE(row))<<32 | uint64(crc32.Checksum(row, castagnoli))
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// appendValue adds a value to a row; its length parts it from the next one.
func appendValue(row, v []byte) []byte {
	return append(binary.AppendUvarint(row, uint64(len(v))), v...)
}

// tablesSum reads everything that an answer of the tables depends on.
func tablesSum(ctx context.Context, tx *sql.Tx) (int64, error) {
	var sum uint64
	var buf []byte
	for i, t := range summed {
		rows, err := tx.QueryContext(ctx, t.rows)
		if err != nil {
			return 0, err
		}
		names, err := rows.Columns()
		if err != nil {
			rows.Close()
			return 0, err
		}
		row := make([]sql.RawBytes, len(names))
		into := make([]any, len(names))
		for c := range row {
			into[c] = &row[c]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				rows.Close()
				return 0, err
			}
			buf = append(buf[:0], byte(i))
			for _, v := range row {
				buf = appendValue(buf, v)
			}
			sum += rowSum(buf)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return 0, err
		}
	}
	return int64(sum), nil
}

// tally is by how much the sum changed in a transaction.
type tally struct {
	sum uint64
	err error
	row [5]any
	buf []byte
}

// change is told of each row that is inserted, updated or deleted.
func (t *tally) change(d sqlite.SQLitePreUpdateData) {
	table := -1
	for i, s := range summed {
		if s.table == d.TableName {
			table = i
		}
	}
	if table < 0 || t.err != nil {
		return
	}
	n := d.Count()
	if n > len(t.row) {
		t.err = fmt.Errorf("index: a row of %s has %d columns", d.TableName, n)
		return
	}
	if d.Op != sqlite3.SQLITE_INSERT {
		if t.err = d.Old(t.row[:n]...); t.err == nil {
			t.sum -= t.of(table, n)
		}
	}
	if d.Op != sqlite3.SQLITE_DELETE && t.err == nil {
		if t.err = d.New(t.row[:n]...); t.err == nil {
			t.sum += t.of(table, n)
		}
	}
}

// of is the number of the row that was read: as tablesSum makes it.
func (t *tally) of(table, n int) uint64 {
	if t.row[0] == sumName {
		return 0
	}
	t.buf = append(t.buf[:0], byte(table))
	for _, v := range t.row[:n] {
		switch v := v.(type) {
		case nil:
			t.buf = appendValue(t.buf, nil)
		case int64:
			var digits [20]byte
			t.buf = appendValue(t.buf, strconv.AppendInt(digits[:0], v, 10))
		case string:
			t.buf = appendValue(t.buf, []byte(v))
		case []byte:
			t.buf = appendValue(t.buf, v)
		default:
			t.err = fmt.Errorf("index: a value of type %T in a table of the search", v)
		}
	}
	return rowSum(t.buf)
}

// connector opens connections that tell of what they change.
type connector struct {
	driver.Connector
	change sqlite.PreUpdateHookFn
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	h, ok := conn.(sqlite.HookRegisterer)
	if !ok {
		return nil, errors.Join(errors.New("index: a connection that does not tell what it changes"), conn.Close())
	}
	h.RegisterPreUpdateHook(c.change)
	return conn, nil
}

// sealNew writes the sum of tables that were just made. Of how FTS5 notes that it was configured SQLite tells only half.
func sealNew(ctx context.Context, tx *sql.Tx) error {
	sum, err := tablesSum(ctx, tx)
	if err == nil {
		_, err = tx.ExecContext(ctx, "UPDATE state SET v = ? WHERE name = '"+sumName+"'", sum)
	}
	return err
}

// sealTables writes the sum of the tables as they are now: what it was, and what this transaction changed. The caller holds mu.
func (x *Index) sealTables(ctx context.Context, tx *sql.Tx) error {
	// FTS5 keeps what is new in memory until the end of a transaction, or a savepoint.
	for _, s := range []string{"SAVEPOINT sealed", "RELEASE sealed"} {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	if x.tally.err != nil {
		return x.tally.err
	}
	var was int64
	if err := tx.QueryRowContext(ctx, "SELECT v FROM state WHERE name = '"+sumName+"'").Scan(&was); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE state SET v = ? WHERE name = '"+sumName+"'", was+int64(x.tally.sum))
	x.tally.sum = 0
	return err
}
