package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/strandline-dev/strandline/session"
)

// version is that of the tables and of what is in them. A file of any other version is thrown away.
const version = 8

var schema = []string{
	`CREATE TABLE heads(id TEXT PRIMARY KEY, head BLOB NOT NULL) WITHOUT ROWID`,
	`CREATE TABLE bodies(id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID`,
	`CREATE TABLE hours(id TEXT, quarter INTEGER, provider TEXT, model TEXT, data BLOB NOT NULL,
		PRIMARY KEY(id, quarter, provider, model)) WITHOUT ROWID`,
	// What a new process needs at once, and of which sessions the pack in it is not true any more.
	`CREATE TABLE looked(n INTEGER PRIMARY KEY, data BLOB NOT NULL)`,
	`CREATE TABLE changed(id TEXT PRIMARY KEY, v INTEGER NOT NULL) WITHOUT ROWID`,
	// Of the search. words has every word of an event, grams every three adjacent signs of a word; texts are not kept.
	`CREATE VIRTUAL TABLE words USING fts5(text, content='', contentless_delete=1, tokenize='ascii', prefix='1 2')`,
	`CREATE VIRTUAL TABLE grams USING fts5(text, content='', contentless_delete=1, tokenize='ascii', detail=none)`,
	// How many bytes FTS5 gathers in memory before it writes them, to be merged later.
	`INSERT INTO words(words, rank) VALUES('hashsize', 8388608)`,
	`INSERT INTO grams(grams, rank) VALUES('hashsize', 8388608)`,
	`CREATE TABLE docs(key INTEGER PRIMARY KEY, n INTEGER NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL, tool BLOB NOT NULL)`,
	`CREATE INDEX docs_n ON docs(n)`,
	`CREATE TABLE covers(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, cover BLOB NOT NULL)`,
	`CREATE TABLE state(name TEXT PRIMARY KEY, v INTEGER NOT NULL) WITHOUT ROWID`,
	`INSERT INTO state(name, v) VALUES('sum', 0), ('spill', 0)`,
}

// busyMS is how long a statement waits for another process. Nobody holds the file for long: transactions are short. Who does
// is waited for once: after that, until it can be read again, a moment has to do.
const (
	busyMS = 3000
	heldMS = 50
)

// maxWrites is how many sessions one transaction writes.
const maxWrites = 500

// fileID tells a file from one that was put in its place.
type fileID struct{ info os.FileInfo }

func (f fileID) is(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && f.info != nil && os.SameFile(info, f.info)
}

// open makes db usable, if it can be. The caller holds mu.
func (x *Index) open(ctx context.Context) {
	if x.db != nil && x.file.is(x.opt.Path) {
		return
	}
	if x.db != nil { // somebody deleted the file, or replaced it
		x.reset()
	}
	for try := 0; try < 3 && !x.off && !x.closed && x.opt.Path != ""; try++ {
		if _, err := os.Stat(filepath.Dir(x.opt.Path)); err != nil {
			return // there is no store yet: looking at it does not make one
		}
		err := x.connect(ctx)
		if err == nil {
			x.forgetAll() // it is of a time without the file
			return
		}
		_ = x.closeDB()
		if ctx.Err() != nil {
			return
		}
		x.trouble(err)
	}
	x.off = true
}

// wait is how long the next connection waits for another process, in milliseconds.
func (x *Index) wait() int {
	if x.waited {
		return min(x.busyMS, heldMS)
	}
	return x.busyMS
}

func (x *Index) connect(ctx context.Context) error {
	if info, err := os.Lstat(x.opt.Path); err == nil && !info.Mode().IsRegular() {
		return errWrong // a link would lead out of the store
	}
	// The file must be nobody else's to read, which SQLite would leave to the umask. One that is there is not opened here: to
	// close it would drop the locks that this process has on it by another Index.
	f, err := os.OpenFile(x.opt.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	} else if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	info, err := os.Lstat(x.opt.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return errWrong // somebody deleted it at this moment
	}
	if err != nil {
		return err
	}
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", x.wait()), "journal_mode(WAL)", "synchronous(NORMAL)", "trusted_schema(0)", "secure_delete(1)",
	}}
	db := sql.OpenDB(connector{(&url.URL{Scheme: "file", Path: x.opt.Path, RawQuery: q.Encode()}).String(), x.tally.change})
	db.SetMaxOpenConns(1)
	x.db, x.file, x.loaded = db, fileID{info}, -1
	has := 0
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&has); err != nil {
		return err
	}
	if has == version {
		return nil
	}
	if has != 0 {
		return errWrong
	}
	return x.transact(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&has); err != nil || has == version {
			return err // another process was faster
		}
		for _, s := range append(slices.Clip(schema), fmt.Sprintf("PRAGMA user_version = %d", version)) {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return sealNew(ctx, tx)
	})
}

// transact runs f in a transaction that no other one runs beside. The caller holds mu, and db is open.
func (x *Index) transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := x.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	x.tally.sum, x.tally.err = 0, nil
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// write runs f in a transaction and reports whether it was written. The caller holds mu.
func (x *Index) write(ctx context.Context, f func(tx *sql.Tx) error) bool {
	if x.db == nil || x.off {
		x.apart = true
		return false
	}
	err := x.transact(ctx, f)
	x.apart = x.apart || err != nil
	switch {
	case err == nil || ctx.Err() != nil:
	case isBusy(err):
		x.off = true // it can be read, and what was to be written is kept
	default:
		x.trouble(err)
	}
	return err == nil
}

func codeOf(err error) int {
	if se, ok := errors.AsType[*sqlite.Error](err); ok {
		return se.Code() & 0xff
	}
	return sqlite3.SQLITE_OK
}

// isBusy reports whether another process had the file all the time that a statement waited.
func isBusy(err error) bool {
	switch codeOf(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}

// trouble decides what an error of the file means. Nothing here is for good: the next answer tries again. The caller holds mu.
func (x *Index) trouble(err error) {
	code := codeOf(err)
	switch {
	case isBusy(err):
		x.waited = true
		x.warn(fmt.Errorf("the index %s is held by another program: %w", x.opt.Path, err))
		x.fail()
	case code == sqlite3.SQLITE_FULL:
		x.warn(fmt.Errorf("the index %s cannot be written: %w", x.opt.Path, err))
		x.off = true
	case code == sqlite3.SQLITE_READONLY, code == sqlite3.SQLITE_PERM, errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS),
		code == sqlite3.SQLITE_CANTOPEN && readOnly(x.opt.Path):
		x.fail() // a store that is only looked at is no fault
	case code == sqlite3.SQLITE_CANTOPEN, code == sqlite3.SQLITE_OK && !errors.Is(err, errWrong), x.thrown == maxThrown:
		x.warn(fmt.Errorf("the index %s cannot be used: %w", x.opt.Path, err))
		x.fail()
	default:
		x.thrown++
		x.discard()
	}
}

// readOnly reports whether the file at path cannot be written because nothing there can. SQLite, which wants to make files
// beside it, says only that it cannot open it. Nothing is opened: to close it would drop the locks that this process has on the
// file by another Index.
func readOnly(path string) bool {
	for _, name := range []string{path, filepath.Dir(path)} {
		if err := writable(name); errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return true
		}
	}
	return false
}

// maxThrown is how often the file is begun anew, in the life of an Index: a medium that spoils it is left alone.
const maxThrown = 20

// discard throws the file away: it is derived.
func (x *Index) discard() {
	x.reset()
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(x.opt.Path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			x.warn(fmt.Errorf("the index %s is damaged and cannot be removed: %w", x.opt.Path, err))
			x.fail()
			return
		}
	}
}

// fail goes on without the file.
func (x *Index) fail() {
	if x.off = true; x.db != nil {
		x.reset()
	}
}

// reset forgets what came from the file.
func (x *Index) reset() {
	_ = x.closeDB()
	x.forgetAll()
	x.loaded, x.covers, x.sound = -1, nil, false
	x.coverings++
}

// forgetAll empties the shelf.
func (x *Index) forgetAll() {
	x.shelf, x.trusted = shelf{}, nil
	x.kept, x.bodies, x.apart = map[session.ID]body{}, nil, false
	x.life++
}

func (x *Index) closeDB() error {
	if x.db == nil {
		return nil
	}
	db := x.db
	x.db = nil
	return db.Close()
}

// ready opens the file if it can be. The caller holds mu.
func (x *Index) ready(ctx context.Context) {
	x.off = false
	x.open(ctx)
}

// load puts on the shelf what the file says. The caller holds mu.
func (x *Index) load(ctx context.Context) error {
	x.off = false
	for try := 0; ; try++ {
		x.open(ctx)
		if x.db == nil {
			return context.Cause(ctx)
		}
		err := x.readHeads(ctx)
		if err == nil && x.waited {
			if _, err = x.db.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", x.busyMS)); err == nil {
				x.waited = false
			}
		}
		if err == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if x.trouble(err); try == 2 {
			x.fail()
		}
	}
}

func (x *Index) readHeads(ctx context.Context) error {
	v, err := dataVersion(ctx, x.db)
	if err != nil || v == x.loaded {
		return err
	}
	var heads map[session.ID]head
	var t *trust
	if err := x.reading(ctx, func(tx *sql.Tx) (err error) {
		var packed bool
		if v, err = dataVersion(ctx, tx); err == nil {
			heads, t, packed, err = readPack(ctx, tx)
		}
		if err == nil && !packed {
			heads, err = readEach(ctx, tx)
		}
		return err
	}); err != nil {
		return err
	}
	x.forgetAll()
	x.shelf.heads, x.loaded, x.trusted = heads, v, t
	return nil
}

// reading runs f in a transaction that sees the file as it is at one moment. The caller holds mu, and db is open.
func (x *Index) reading(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := x.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return f(tx)
}

// dataVersion changes with what other connections write.
func dataVersion(ctx context.Context, q querier) (v int64, err error) {
	return v, q.QueryRowContext(ctx, "PRAGMA data_version").Scan(&v)
}

// readEach reads the heads from their rows.
func readEach(ctx context.Context, db reads) (map[session.ID]head, error) {
	rows, err := db.QueryContext(ctx, "SELECT id, head FROM heads")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	heads := map[session.ID]head{}
	var id, raw sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&id, &raw); err != nil {
			return nil, err
		}
		key := session.ID(id)
		h, err := decodeHead(key, raw)
		if err != nil {
			return nil, err
		}
		heads[key] = h
	}
	return heads, rows.Err()
}

// reads is a querier that is asked for many rows.
type reads interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

const (
	selectRow  = "SELECT head, body FROM heads LEFT JOIN bodies USING(id) WHERE id = ?"
	insertBody = "INSERT OR REPLACE INTO bodies(id, body) VALUES(?, ?)"
	insertHead = "INSERT OR REPLACE INTO heads(id, head) VALUES(?, ?)"
)

// readRow returns the row of a session. ok is false if there is none.
func readRow(ctx context.Context, q querier, id session.ID) (h head, b body, ok bool, err error) {
	return scanRow(q.QueryRowContext(ctx, selectRow, string(id)), id)
}

func scanRow(row *sql.Row, id session.ID) (h head, b body, ok bool, err error) {
	var rawHead, rawBody []byte
	err = row.Scan(&rawHead, &rawBody)
	if errors.Is(err, sql.ErrNoRows) {
		return h, b, false, nil
	}
	if err == nil {
		h, err = decodeHead(id, rawHead)
	}
	if err == nil {
		b, err = decodeBody(id, h.body, rawBody)
	}
	return h, b, err == nil, err
}

// rowsIn reads and writes the rows of many sessions in one transaction.
type rowsIn struct{ row, body, head *sql.Stmt }

func prepareRows(ctx context.Context, tx *sql.Tx) (r rowsIn, err error) {
	for _, s := range []struct {
		into **sql.Stmt
		text string
	}{{&r.row, selectRow}, {&r.body, insertBody}, {&r.head, insertHead}} {
		if *s.into, err = tx.PrepareContext(ctx, s.text); err != nil {
			return r, err // the transaction closes the others
		}
	}
	return r, nil
}

// put writes a row and returns its head with the sum of its body.
func (r rowsIn) put(ctx context.Context, id session.ID, h head, b body) (head, error) {
	text, err := b.encode(id)
	if err != nil {
		return h, err
	}
	h.body = sealed(text)
	if _, err = r.body.ExecContext(ctx, string(id), text); err != nil {
		return h, err
	}
	_, err = r.head.ExecContext(ctx, string(id), h.encode(id))
	return h, err
}

// dropRow takes everything of a session out of the file.
func dropRow(ctx context.Context, tx *sql.Tx, id session.ID) error {
	for _, s := range []string{"heads", "bodies", "hours"} {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+s+" WHERE id = ?", string(id)); err != nil {
			return err
		}
	}
	return nil
}
