package index

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/go-json-experiment/json"
	"modernc.org/sqlite"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Texts keeps tables of its own in the file, made of the same events in the same transactions: those of a search. All
// methods but Version and Schema are called in a transaction that nothing else runs beside.
type Texts interface {
	// Version is that of its tables: a file of another one is thrown away.
	Version() uint16
	// Schema returns the statements that make the tables.
	Schema() []string
	// Project takes in an event of the session with header h, once and in order: those that the session logged
	// itself, not what it inherited. p is its log up to some event behind ev.
	Project(ctx context.Context, tx *sql.Tx, h session.Header, p session.Prefix, ev session.Event) error
	// Forget takes out all that Project took in of a session: it is gone, or its log is another one now.
	Forget(ctx context.Context, tx *sql.Tx, id session.ID) error
}

// ErrNoFile says that there is no file that could answer: ask the store.
var ErrNoFile = errors.New("index: there is no file")

// cursor is how far the texts of a log were taken in.
type cursor struct {
	Next session.Seq `json:"next"`
	Last string      `json:"last,omitzero"` // stands for event Next-1
	Past string      `json:"past,omitzero"` // of the mark
}

const (
	textEvents = 2000    // in one transaction, at most,
	textBytes  = 1 << 20 // or so many bytes of data and one event
)

// Refresh brings everything up to what is written: the facts of all sessions, and their texts. Where there is nothing
// yet it reads all logs, and may be ended at any time: what was done stays. ErrNoFile if there is no file to keep it in.
func (x *Index) Refresh(ctx context.Context, progress Progress) error {
	s, err := x.look(ctx, nil)
	if err != nil {
		return err
	}
	var keys []key
	for id, h := range s.heads {
		keys = append(keys, key{h.activity, id})
	}
	slices.SortFunc(keys, key.compare)
	for i, k := range keys {
		if err := x.refresh(ctx, k.id, s.heads[k.id]); err != nil {
			return err
		}
		if progress != nil {
			progress(i+1, len(keys))
		}
	}
	return nil
}

// Update is Refresh of one session: somebody wrote to it.
func (x *Index) Update(ctx context.Context, id session.ID) error {
	x.mu.Lock()
	err := x.load(ctx)
	h := x.heads[id]
	x.mu.Unlock()
	if err != nil {
		return err
	}
	if _, ok, err := x.fresh(ctx, id); err != nil || !ok {
		if err == nil {
			x.drop(ctx, []session.ID{id})
		}
		return err
	}
	return x.refresh(ctx, id, h)
}

func (x *Index) refresh(ctx context.Context, id session.ID, h head) error {
	b, ok, err := x.row(ctx, id, h)
	if err != nil || !ok || !whole(b.Stat) {
		return err
	}
	if b, err = x.advance(ctx, id, b); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil // a session that cannot be read harms no other one
	}
	if x.opt.Texts == nil {
		return nil
	}
	if err = x.takeIn(ctx, id, b); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if errors.Is(err, ErrNoFile) {
		return err
	}
	return nil // what cannot be read, or was taken in by another process meanwhile, harms no other session
}

// takeIn makes the texts of a session those of its log, as far as that can be read.
func (x *Index) takeIn(ctx context.Context, id session.ID, b body) error {
	known, past, err := x.cursor(ctx, id)
	if err != nil || b.Facts == nil || known == (cursor{b.Facts.Next, b.Facts.Last, past}) {
		return err
	}
	var snap *store.Snapshot
	if p, ok := x.opt.Store.(store.Peeker); ok && (known.Next > 0 || b.Stat.Header.SeedLength > 0) {
		if snap, err = p.Peek(ctx, id); err != nil {
			return err
		}
	}
	if snap == nil {
		if snap, err = x.opt.Store.Read(ctx, id); err != nil {
			return err
		}
	}
	defer snap.Close()
	p := snap.Prefix
	next, anew := known, known.Next == 0 || known.Past != past
	if !anew {
		same, err := holds(p, Facts{Next: known.Next, Last: known.Last})
		if err != nil {
			return err
		}
		anew = !same
	}
	if anew {
		next = cursor{Next: min(snap.Header.SeedLength, p.Len()), Past: past}
	}
	var part []session.Event
	put := func() error {
		if n := len(part); n > 0 {
			next.Next = part[n-1].Seq + 1
		}
		if next.Next > 0 {
			ev, err := p.At(next.Next - 1)
			if err != nil {
				return err
			}
			next.Last = digest(ev)
		}
		err := x.putTexts(ctx, snap.Header, p, anew, known, next, part)
		known, anew, part = next, false, part[:0]
		return err
	}
	bytes := 0
	for ev, err := range p.Range(next.Next, p.Len()) {
		if err != nil {
			return err
		}
		part = append(part, ev)
		if bytes += len(ev.Data); len(part) == textEvents || bytes > textBytes {
			if err := put(); err != nil {
				return err
			}
			bytes = 0
		}
	}
	return put()
}

// cursor returns how far the texts of a session are known, and its past now.
func (x *Index) cursor(ctx context.Context, id session.ID) (c cursor, past string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.db == nil {
		return c, "", ErrNoFile
	}
	if c, err = readCursor(ctx, x.db, id); err != nil && ctx.Err() == nil {
		x.trouble(err)
		err = ErrNoFile
	}
	return c, x.heads[id].mark.Past, err
}

func readCursor(ctx context.Context, q querier, id session.ID) (c cursor, err error) {
	var raw []byte
	err = q.QueryRowContext(ctx, "SELECT data FROM texts WHERE id = ?", string(id)).Scan(&raw)
	if errors.Is(err, sql.ErrNoRows) {
		return c, nil
	}
	if err == nil {
		raw, _, err = unseal(id, ofTexts, raw)
	}
	if err == nil && json.Unmarshal(raw, &c) != nil {
		err = errWrong
	}
	return c, err
}

// errOvertaken says that another process took in the same texts first.
var errOvertaken = errors.New("index: another process was faster")

// putTexts takes in a part of a log behind was, or in its place.
func (x *Index) putTexts(ctx context.Context, h session.Header, p session.Prefix, anew bool, was, next cursor, part []session.Event) error {
	id := h.ID
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.db == nil {
		return ErrNoFile
	}
	err := x.transact(ctx, func(tx *sql.Tx) error {
		now, err := readCursor(ctx, tx, id)
		if err != nil {
			return err
		}
		if now != was {
			return errOvertaken
		}
		if anew {
			if err := x.opt.Texts.Forget(ctx, tx, id); err != nil {
				return err
			}
		}
		for _, ev := range part {
			if err := x.opt.Texts.Project(ctx, tx, h, p, ev); err != nil {
				return err
			}
		}
		text, err := json.Marshal(next)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO texts(id, data) VALUES(?, ?)", string(id), seal(id, ofTexts, text))
		return err
	})
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case errors.Is(err, errOvertaken):
		return err // it goes on from there
	}
	x.trouble(err)
	return ErrNoFile
}

// View runs f over the file as it is, without anybody writing meanwhile. ErrNoFile if there is none that could be read;
// what f did then does not count.
func (x *Index) View(ctx context.Context, f func(tx *sql.Tx) error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.load(ctx); err != nil {
		return err
	}
	if x.db == nil {
		return ErrNoFile
	}
	tx, err := x.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err == nil {
		err = errors.Join(f(tx), tx.Rollback())
	}
	if _, ours := errors.AsType[*sqlite.Error](err); ours && ctx.Err() == nil {
		x.trouble(err)
		return errors.Join(ErrNoFile, err)
	}
	return err
}
