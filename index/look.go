package index

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Progress is told how far a long operation has come; it may be nil. Its calls come one after the other.
type Progress func(done, total int)

// sight is what a look found: every stored session, as the index knows it now.
type sight struct {
	heads map[session.ID]head
	held  map[session.ID]bool          // somebody announced that he writes it
	owner map[session.ID]*store.Holder // of those that were read again and are held
}

// finding is a session whose end was read again.
type finding struct {
	mark store.Mark
	stat store.Stat
	gone bool
}

// look compares the index with the store and reads again the ends of the sessions that changed.
func (x *Index) look(ctx context.Context, progress Progress) (sight, error) {
	x.looking.Lock()
	defer x.looking.Unlock()
	x.mu.Lock()
	err := x.load(ctx)
	s := sight{heads: maps.Clone(x.heads), held: map[session.ID]bool{}, owner: map[session.ID]*store.Holder{}}
	x.mu.Unlock()
	if err != nil {
		return sight{}, err
	}
	marks, err := x.marks(ctx, nil, s.heads)
	if err != nil {
		return sight{}, err
	}
	var changed []store.Mark
	here := make(map[session.ID]bool, len(marks))
	for _, m := range marks {
		here[m.ID] = true
		if m.Held {
			s.held[m.ID] = true
		}
		if h, ok := s.heads[m.ID]; !ok || m.Stamp == "" || m.Stamp != h.mark.Stamp {
			changed = append(changed, m)
		}
	}
	var gone []session.ID
	for id := range s.heads {
		if !here[id] {
			gone = append(gone, id)
		}
	}
	done := 0
	for part := range slices.Chunk(changed, maxWrites) {
		found, err := x.stats(ctx, part)
		if err != nil {
			return sight{}, err
		}
		for _, f := range found {
			if f.gone {
				gone = append(gone, f.mark.ID)
			} else if f.stat.Holder != nil {
				s.owner[f.mark.ID] = f.stat.Holder
			}
		}
		maps.Copy(s.heads, x.saw(ctx, slices.DeleteFunc(found, func(f finding) bool { return f.gone })))
		if done += len(part); progress != nil {
			progress(done, len(changed))
		}
	}
	for _, id := range gone {
		delete(s.heads, id)
	}
	x.drop(ctx, gone)
	return s, context.Cause(ctx)
}

// marks looks at sessions from outside; nil: at all.
func (x *Index) marks(ctx context.Context, ids []session.ID, known map[session.ID]head) ([]store.Mark, error) {
	if m, ok := x.opt.Store.(store.Marker); ok {
		return m.Marks(ctx, ids, func(id session.ID) store.Mark { return known[id].mark })
	}
	if ids == nil { // this store can only be read
		l, ok := x.opt.Store.(store.Lister)
		if !ok {
			return nil, errors.New("this store cannot list")
		}
		var err error
		if ids, err = l.Match(ctx, "", 0); err != nil {
			return nil, err
		}
	}
	marks := make([]store.Mark, len(ids))
	for i, id := range ids {
		marks[i].ID = id
	}
	return marks, nil
}

// stats reads the ends of sessions.
func (x *Index) stats(ctx context.Context, marks []store.Mark) ([]finding, error) {
	found := make([]finding, len(marks))
	var g errgroup.Group
	g.SetLimit(4 * runtime.GOMAXPROCS(0))
	for i, m := range marks {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			f := finding{mark: m}
			var err error
			f.stat, err = x.opt.Store.Stat(ctx, m.ID)
			switch {
			case err == nil:
			case errors.Is(err, store.ErrNotFound):
				f.gone = true
			case ctx.Err() != nil:
				return context.Cause(ctx)
			default: // a session that cannot be read is a row that says so, until it is looked at again
				f.mark.Stamp = ""
				f.stat = store.Stat{ID: m.ID, State: store.StateDamaged, Reason: err.Error()}
			}
			found[i] = f
			return nil
		})
	}
	return found, g.Wait()
}

// saw writes down what was found, beside what is known of the logs already, and returns the heads.
func (x *Index) saw(ctx context.Context, found []finding) map[session.ID]head {
	x.mu.Lock()
	defer x.mu.Unlock()
	heads := make(map[session.ID]head, len(found))
	bodies := make(map[session.ID]body, len(found))
	merge := func(f finding, was head, old body) (head, body) {
		b := old
		b.Stat = f.stat
		touched := was.mark.Stamp != "" && f.mark.Stamp != "" && old.Stat.Pos == f.stat.Pos // changed, but not by writing to it
		if was.mark.Past != f.mark.Past || touched {
			b = body{Stat: f.stat} // its log is read anew
		}
		return headOf(f.mark, f.stat), b
	}
	written := x.write(ctx, func(tx *sql.Tx) error {
		for _, f := range found {
			id := f.mark.ID
			was, old, _, err := readRow(ctx, tx, id)
			if err != nil {
				return err
			}
			h, b := merge(f, was, old)
			if b.Hours != old.Hours {
				if _, err := tx.ExecContext(ctx, "DELETE FROM hours WHERE id = ?", string(id)); err != nil {
					return err
				}
			}
			if heads[id], err = putRow(ctx, tx, id, h, b); err != nil {
				return err
			}
		}
		return nil
	})
	if !written {
		for _, f := range found {
			id := f.mark.ID
			heads[id], bodies[id] = merge(f, x.heads[id], x.kept[id])
		}
		maps.Copy(x.kept, bodies)
	} else {
		for id := range heads {
			delete(x.kept, id)
		}
	}
	maps.Copy(x.heads, heads)
	return heads
}

// drop takes sessions out that are not stored any more, and reports whether the file says so.
func (x *Index) drop(ctx context.Context, gone []session.ID) bool {
	if len(gone) == 0 {
		return true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	written := x.write(ctx, func(tx *sql.Tx) error {
		for _, id := range gone {
			if err := dropRow(ctx, tx, id); err != nil {
				return err
			}
		}
		return nil
	})
	for _, id := range gone {
		delete(x.heads, id)
		delete(x.kept, id)
	}
	return written
}

// row returns what is known of one session: as the index has it, or read again where that cannot be believed. ok is
// false if the session is gone.
func (x *Index) row(ctx context.Context, id session.ID, h head) (b body, ok bool, err error) {
	x.mu.Lock()
	b, ok = x.kept[id]
	if !ok && x.db != nil {
		var err error
		var now head
		if now, b, ok, err = readRow(ctx, x.db, id); err != nil && ctx.Err() == nil {
			x.trouble(err)
		} else if now.mark.Stamp != h.mark.Stamp { // another process was faster: it may know more, or less
			ok = false
		}
	}
	x.mu.Unlock()
	if ok || ctx.Err() != nil {
		return b, ok, context.Cause(ctx)
	}
	return x.fresh(ctx, id)
}

// fresh reads the end of one session.
func (x *Index) fresh(ctx context.Context, id session.ID) (b body, ok bool, err error) {
	x.mu.Lock()
	known := map[session.ID]head{id: x.heads[id]}
	x.mu.Unlock()
	marks, err := x.marks(ctx, []session.ID{id}, known)
	if err != nil || len(marks) == 0 {
		return b, false, err
	}
	found, err := x.stats(ctx, marks)
	if err != nil || found[0].gone {
		return b, false, err
	}
	x.saw(ctx, found)
	x.mu.Lock()
	defer x.mu.Unlock()
	if b, ok = x.kept[id]; !ok && x.db != nil {
		_, b, ok, err = readRow(ctx, x.db, id)
	}
	if !ok || err != nil {
		b = body{Stat: found[0].stat}
	}
	b.Stat.Holder = found[0].stat.Holder
	return b, true, context.Cause(ctx)
}
