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
	"sync"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// The sum over the tables of the search is the sum, modulo 2^64, of one number for each of their rows. So it does not depend on
// their order, and a change costs as much as the rows that it changes, those that FTS5 changes for its own reasons among them: SQLite
// tells of each, before and after. It never becomes right by writing: damage that a change replaces stays in it.

// summed are the tables that an answer depends on.
var summed = []struct{ table, columns, where string }{
	{"words_data", "id, block", ""}, {"words_idx", "segid, term, pgno", ""},
	{"grams_data", "id, block", ""}, {"grams_idx", "segid, term, pgno", ""},
	{"docs", "key, n, seq, time, tool", ""}, {"covers", "n, id, cover", ""},
	{"state", "name, v", " WHERE name <> '" + sumName + "'"},
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

// appendRow makes of a row of a table what its number is of.
func appendRow[V any](b []byte, table int, row []V) ([]byte, error) {
	b = append(b, byte(table))
	for _, v := range row {
		switch v := any(v).(type) {
		case nil:
			b = appendValue(b, nil)
		case int64:
			var digits [20]byte
			b = appendValue(b, strconv.AppendInt(digits[:0], v, 10))
		case string:
			b = append(binary.AppendUvarint(b, uint64(len(v))), v...)
		case []byte:
			b = appendValue(b, v)
		default:
			return b, fmt.Errorf("index: a value of type %T in a table of the search", v)
		}
	}
	return b, nil
}

// rowsSum is a function of SQL: rows_sum(table, columns ..) is the sum of the numbers of rows. Summed where SQLite reads them, a
// row crosses none of the layers of package sql.
const rowsSum = "rows_sum"

// engine is SQLite with that function: made once, for it keeps what was made.
var engine = sync.OnceValues(func() (*sqlite.Driver, error) {
	d := &sqlite.Driver{}
	return d, d.RegisterFunction(rowsSum, &sqlite.FunctionImpl{
		NArgs: -1, Deterministic: true, VolatileArgs: true, // nothing of a row is kept
		MakeAggregate: func(sqlite.FunctionContext) (sqlite.AggregateFunction, error) { return &summing{}, nil },
	})
})

// summing is a call of rows_sum.
type summing struct {
	sum uint64
	buf []byte
}

func (s *summing) Step(_ *sqlite.FunctionContext, args []driver.Value) (err error) {
	table, ok := args[0].(int64)
	if !ok {
		return errWrong
	}
	if s.buf, err = appendRow(s.buf[:0], int(table), args[1:]); err == nil {
		s.sum += rowSum(s.buf)
	}
	return err
}

func (s *summing) WindowInverse(*sqlite.FunctionContext, []driver.Value) error {
	return errors.New("index: " + rowsSum + " is not for windows")
}

func (s *summing) WindowValue(*sqlite.FunctionContext) (driver.Value, error) {
	return int64(s.sum), nil
}

func (s *summing) Final(*sqlite.FunctionContext) {}

// tablesSum reads everything that an answer of the tables depends on.
func tablesSum(ctx context.Context, tx *sql.Tx) (sum int64, err error) {
	for i, t := range summed {
		var part int64
		q := fmt.Sprintf("SELECT %s(%d, %s) FROM %s%s", rowsSum, i, t.columns, t.table, t.where)
		if err := tx.QueryRowContext(ctx, q).Scan(&part); err != nil {
			return 0, err
		}
		sum += part
	}
	return sum, nil
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
	t.buf, t.err = appendRow(t.buf[:0], table, t.row[:n])
	return rowSum(t.buf)
}

// connector opens connections that tell of what they change.
type connector struct {
	name   string
	change sqlite.PreUpdateHookFn
}

func (c connector) Driver() driver.Driver {
	d, _ := engine()
	return d
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	d, err := engine()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	conn, err := d.Open(c.name)
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
