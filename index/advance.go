package index

import (
	"context"
	"database/sql"
	"errors"
	"maps"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// advance makes the facts of a session those of its whole log: it reads what is behind them, or all of it where there
// are none or the log does not hold any more what they were folded from. A session that cannot be read keeps its reason.
// What it returns holds also where it could not be written down.
func (x *Index) advance(ctx context.Context, id session.ID, b body) (body, error) {
	for try := 0; ; try++ {
		if !whole(b.Stat) {
			return b, nil
		}
		was, check := b, ""
		if c, ok := x.opt.Store.(store.Checker); ok {
			now, same, err := c.Check(ctx, b.Stat.Header, b.Check)
			if err != nil {
				return b, err
			}
			b.Check, check = now, now
			if !same {
				b.Facts = nil // damage in the middle of a log shows nowhere else
			}
		}
		if x.current(b) {
			return b, nil
		}
		next, add, err := x.read(ctx, id, b)
		next.Check = check
		if err != nil {
			return b, err
		}
		now, ok := x.commit(ctx, id, was, next, add)
		if ok || try == 3 {
			return next, nil
		}
		b = now // another process was here meanwhile
	}
}

// Update brings what is known of one session up to what is written: somebody wrote to it.
func (x *Index) Update(ctx context.Context, id session.ID) error {
	x.mu.Lock()
	x.ready(ctx)
	h := x.shelf.heads[id]
	x.mu.Unlock()
	if _, ok, err := x.fresh(ctx, id); err != nil || !ok {
		if err == nil {
			x.drop(ctx, []session.ID{id})
		}
		return err
	}
	b, ok, err := x.row(ctx, id, h)
	if err != nil || !ok || !whole(b.Stat) {
		return err
	}
	_, _ = x.advance(ctx, id, b) // a session that cannot be read harms no other one
	return context.Cause(ctx)
}

// whole reports whether there is a log to be read.
func whole(st store.Stat) bool { return st.State == store.StateOK || st.State == store.StateTorn }

// current reports whether the facts are those of the log that the end was seen of.
func (x *Index) current(b body) bool {
	return b.Facts != nil && b.Kind == x.kind && b.Facts.Next == b.Stat.Pos.Next && b.Seen == b.Stat.Pos
}

// errOther says that a log is not the one that facts were folded from.
var errOther = errors.New("index: the log is another one now")

// read folds what is new: behind what is known of the session, or else behind what is known of what it inherited.
func (x *Index) read(ctx context.Context, id session.ID, b body) (body, hours, error) {
	if b.Facts != nil && b.Kind == x.kind && b.Bad == "" {
		next, add, err := x.readFrom(ctx, id, b, b.Facts)
		if !errors.Is(err, errOther) {
			return next, add, err
		}
	}
	b.Facts = nil
	if f := x.inherited(ctx, b.Stat.Header); f != nil {
		if next, add, err := x.readFrom(ctx, id, b, f); err == nil {
			return next, add, nil
		}
	}
	return x.readFrom(ctx, id, b, nil)
}

// readFrom folds what stands behind from; nil: all.
func (x *Index) readFrom(ctx context.Context, id session.ID, b body, from *Facts) (body, hours, error) {
	var snap *store.Snapshot
	var err error
	if p, ok := x.opt.Store.(store.Peeker); ok && from != nil {
		if snap, err = p.Peek(ctx, id); err != nil {
			return b, nil, err
		}
	}
	if snap == nil {
		if snap, err = x.opt.Store.Read(ctx, id); err != nil {
			return b, nil, err
		}
	}
	defer func() { snap.Close() }()
	next := body{Stat: b.Stat, Kind: x.kind}
	if len(snap.Damage) > 0 {
		d := snap.Damage
		if r, ok := x.opt.Store.(store.Repairer); ok { // what stands behind the damage counts too
			snap.Close()
			if snap, err = r.Salvage(ctx, id); err != nil {
				return b, nil, err
			}
			if len(snap.Damage) > 0 {
				d = snap.Damage
			}
		}
		next.Bad, next.Reason, from = store.StateDamaged, d[0].Detail, nil
	} else if snap.Unsupported != "" {
		next.Bad, next.Reason = store.StateUnsupported, snap.Unsupported
	}
	p := snap.Prefix
	f := begun(snap.Header)
	if from != nil {
		switch same, err := holds(p, *from); {
		case err != nil:
			return b, nil, err
		case !same:
			return b, nil, errOther
		}
		if f = *from; from == b.Facts {
			next.Hours = b.Hours
		}
	}
	next.Facts = &f
	add, sharer := hours{}, x.sharer(snap.Header, b.Check, next.Bad == "")
	f.Running = maps.Clone(f.Running)
	if err := session.Lend(p, f.Next, p.Len(), func(ev session.Event) {
		f.fold(snap.Header, x.opt.Registry, &ev, add)
		sharer.folded(&f, ev)
	}); err != nil {
		return b, nil, err
	}
	if f.Next > 0 {
		ev, err := p.At(f.Next - 1)
		if err != nil {
			return b, nil, err
		}
		f.Last = digest(ev)
	}
	if next.Bad == "" { // it may have grown since its end was seen
		next.Stat.Pos, next.Stat.LastActivity = snap.Pos, f.LastActivity
	}
	next.Seen = next.Stat.Pos
	return next, add, context.Cause(ctx)
}

// holds reports whether p is the log that f was folded from, as far as f goes.
func holds(p session.Prefix, f Facts) (bool, error) {
	if f.Next == 0 || f.Next > p.Len() {
		return f.Next == 0, nil
	}
	ev, err := p.At(f.Next - 1)
	if err != nil {
		return false, err
	}
	return digest(ev) == f.Last, nil
}

// commit writes down what was read of a log on top of was. If it is not that any more, now is what it is.
func (x *Index) commit(ctx context.Context, id session.ID, was, next body, add hours) (now body, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	again := was.Facts == nil || next.Facts.Next < was.Facts.Next || next.Hours != was.Hours
	overtaken := false
	var put head
	written := x.write(ctx, func(tx *sql.Tx) error {
		h, cur, found, err := readRow(ctx, tx, id)
		if err != nil {
			return err
		}
		if !found { // it was only in memory until now
			h, cur = x.shelf.heads[id], was
		}
		if overtaken = !sameFacts(cur.Facts, was.Facts) || cur.Stat.Pos != was.Stat.Pos || h.mark.Past != x.shelf.heads[id].mark.Past; overtaken {
			now = cur
			return nil
		}
		if again {
			if _, err := tx.ExecContext(ctx, "DELETE FROM hours WHERE id = ?", string(id)); err != nil {
				return err
			}
		}
		if next.Hours, err = addHours(ctx, tx, id, next.Hours, add); err != nil {
			return err
		}
		h.activity = next.Stat.LastActivity
		r, err := prepareRows(ctx, tx)
		if err != nil {
			return err
		}
		if put, err = r.put(ctx, id, h, next); err != nil {
			return err
		}
		return changed(ctx, tx, id)
	})
	switch {
	case written && overtaken:
		return now, false
	case written:
		x.shelf.put(map[session.ID]head{id: put})
		x.remember(id, put.body, next)
		delete(x.kept, id)
	default:
		h := x.shelf.heads[id]
		h.activity = next.Stat.LastActivity
		x.shelf.put(map[session.ID]head{id: h})
		x.kept[id] = next
	}
	return next, true
}

func sameFacts(a, b *Facts) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Next == b.Next && a.Last == b.Last
}

// addHours adds to the rows of a session and returns their sums.
func addHours(ctx context.Context, tx *sql.Tx, id session.ID, sums uint64, add hours) (uint64, error) {
	for k, d := range add {
		var raw []byte
		err := tx.QueryRowContext(ctx, "SELECT data FROM hours WHERE id = ? AND quarter = ? AND provider = ? AND model = ?",
			string(id), k.quarter, k.provider, k.model).Scan(&raw)
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return 0, err
		default:
			was, sum, err := decodeHour(id, raw)
			if err != nil {
				return 0, err
			}
			d, sums = was.add(d), sums-sum
		}
		text, err := json.Marshal(d)
		if err != nil {
			return 0, err
		}
		text = seal(id, ofHours, text)
		sums += sealed(text)
		if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO hours(id, quarter, provider, model, data) VALUES(?, ?, ?, ?, ?)",
			string(id), k.quarter, k.provider, k.model, text); err != nil {
			return 0, err
		}
	}
	return sums, nil
}

func decodeHour(id session.ID, raw []byte) (h Hour, sum uint64, err error) {
	text, sum, err := unseal(id, ofHours, raw)
	if err == nil && json.Unmarshal(text, &h) != nil {
		err = errWrong
	}
	return h, sum, err
}
