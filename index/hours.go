package index

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"

	"github.com/strandline-dev/strandline/session"
)

// Worked is what one session did, quarter by quarter of an hour, without what it inherited.
type Worked struct {
	Row
	Hours []Hour // by quarter, provider and model
}

// Hours calls f with every session that q selects (its limit and cursor mean nothing here), newest first, and what it did.
// It reads what the index does not know, which progress is told of. A session that cannot be read has no hours.
func (x *Index) Hours(ctx context.Context, q Query, progress Progress, f func(Worked) error) error {
	q.Limit, q.Cursor = 0, ""
	page, err := x.List(ctx, q, progress)
	if err != nil {
		return err
	}
	for _, r := range page.Rows {
		w := Worked{Row: r}
		if r.Facts != nil {
			if w.Hours, err = x.hours(ctx, r.ID, *r.Facts); err != nil {
				return err
			}
		}
		if err := f(w); err != nil {
			return err
		}
	}
	return nil
}

// HoursOf returns what the session id, of the header h, did itself in the log p, quarter by quarter of an hour, also where p is only the
// beginning of what is stored. It is what the index has if that is of the same events, else it is folded from p, whose
// errors are returned: damage, for one.
func (x *Index) HoursOf(ctx context.Context, id session.ID, h session.Header, p session.Prefix) ([]Hour, error) {
	x.mu.Lock()
	x.ready(ctx)
	file := x.db != nil // else the log would be read once for the row, and again for its hours
	x.mu.Unlock()
	if file {
		r, _, err := x.Row(ctx, id)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil && r.Facts != nil && r.Facts.Next == p.Len() {
			if same, err := holds(p, *r.Facts); err != nil {
				return nil, err
			} else if same {
				if all, ok := x.writtenHours(ctx, id, *r.Facts); ok {
					return all.rows(), nil
				}
			}
		}
	}
	all, f := hours{}, begun(h)
	if err := session.Lend(p, 0, p.Len(), func(ev session.Event) { f.fold(h, x.opt.Registry, &ev, all) }); err != nil {
		return nil, err
	}
	return all.rows(), context.Cause(ctx)
}

// hours returns the rows of one session whose facts are f: as they are written down, if they prove themselves, else from
// its log.
func (x *Index) hours(ctx context.Context, id session.ID, f Facts) ([]Hour, error) {
	all, ok := x.writtenHours(ctx, id, f)
	if !ok {
		b, ok, err := x.fresh(ctx, id)
		if err != nil || !ok || !whole(b.Stat) {
			return nil, err
		}
		b.Facts = nil
		_, read, err := x.read(ctx, id, b)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, nil // its row says why
		}
		all = read
	}
	return all.rows(), nil
}

// rows returns what is something, in order.
func (h hours) rows() []Hour {
	out := slices.Collect(maps.Values(h))
	out = slices.DeleteFunc(out, func(h Hour) bool { // all of it was another model's
		return h == Hour{Quarter: h.Quarter, Provider: h.Provider, Model: h.Model}
	})
	slices.SortFunc(out, func(a, b Hour) int {
		return cmp.Or(cmp.Compare(a.Quarter, b.Quarter), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model))
	})
	return out
}

func (x *Index) writtenHours(ctx context.Context, id session.ID, f Facts) (out hours, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, unwritten := x.kept[id]; unwritten || x.db == nil {
		return nil, false
	}
	// The row and the sum in it are of one moment with what it sums up: another process may write in between.
	err := x.reading(ctx, func(tx *sql.Tx) error {
		_, b, found, err := readRow(ctx, tx, id)
		if err != nil || !found || !sameFacts(b.Facts, &f) {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT data FROM hours WHERE id = ?", string(id))
		if err != nil {
			return err
		}
		defer rows.Close()
		sums := uint64(0)
		out = hours{}
		for rows.Next() {
			var raw []byte
			if err := rows.Scan(&raw); err != nil {
				return err
			}
			h, sum, err := decodeHour(id, raw)
			if err != nil {
				return err
			}
			out.add(h)
			sums += sum
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if sums != b.Hours {
			return errWrong
		}
		ok = true
		return nil
	})
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		x.trouble(err)
	}
	return out, ok && err == nil
}
