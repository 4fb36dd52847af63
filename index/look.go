package index

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Progress is told how far a long operation has come; it may be nil. Its calls come one after the other.
type Progress func(done, total int)

// sight is what a look found.
type sight struct {
	heads map[session.ID]head          // of all sessions, as the index knows them now; nil after a glance
	held  map[session.ID]bool          // somebody announced that he writes it
	owner map[session.ID]*store.Holder // of those that were read again and are held
	seen  map[session.ID]bool          // after a glance: was looked at
	life  int                          // of the shelf that a glance was over
	// changes is how many heads had changed until heads were read; -1: they were not read from the shelf at once.
	changes int
}

// finding is a session whose end was read again.
type finding struct {
	mark store.Mark
	base string // the stamp that it was compared with
	look int64  // of this process, in which that was
	stat store.Stat
	gone bool
}

// wholeEvery is how long others may have changed the files of a session in place before it is noticed that this moves it
// in the list. What the store's own writers do is noticed at once, and so is what is done to a session that is shown.
const wholeEvery = 30 * time.Second

// trust is what makes a glance enough: all sessions were looked at.
type trust struct {
	at    time.Time // when that began
	stamp string    // of store.Traces, taken before
	// hot are those that may have changed since without leaving new traces: they are written, or could not be told.
	hot map[session.ID]bool
}

// widen makes of a glance, where that was enough, a sight of all sessions; else it looks at all of them.
func (x *Index) widen(ctx context.Context, s sight, glanced bool, progress Progress) (sight, error) {
	if glanced {
		x.mu.Lock()
		if glanced = s.life == x.life; glanced {
			s.heads, s.changes = maps.Clone(x.shelf.heads), x.shelf.changes
		}
		x.mu.Unlock()
	}
	if glanced {
		return s, nil
	}
	return x.lookAtAll(ctx, progress)
}

// glance looks at the sessions that writers may have changed since all were looked at. ok is false where it cannot be
// told which those are.
func (x *Index) glance(ctx context.Context) (s sight, ok bool, err error) {
	t, can := x.opt.Store.(store.Tracer)
	if !can || x.opt.Now == nil {
		return s, false, nil
	}
	x.mu.Lock()
	x.ready(ctx)
	if x.trusted == nil {
		err = x.load(ctx)
	}
	trusted, life := x.trusted, x.life
	x.mu.Unlock()
	if err != nil {
		return s, false, err
	}
	if trusted == nil {
		return s, false, context.Cause(ctx)
	}
	age := x.opt.Now().Sub(trusted.at)
	if age < 0 || age > wholeEvery {
		return s, false, nil
	}
	now, err := t.Traces(ctx)
	if err != nil || now.Stamp == "" || now.Stamp != trusted.stamp {
		return s, false, err
	}
	s = sight{held: map[session.ID]bool{}, owner: map[session.ID]*store.Holder{}, seen: map[session.ID]bool{}, life: life}
	var hot []session.ID
	for _, id := range now.Held {
		s.held[id] = true
		hot = append(hot, id)
	}
	for id := range trusted.hot {
		if !s.held[id] {
			hot = append(hot, id)
		}
	}
	still, err := x.recheck(ctx, &s, hot)
	if err != nil {
		return s, false, err
	}
	x.mu.Lock()
	if x.trusted == trusted {
		x.trusted = &trust{trusted.at, trusted.stamp, still}
	}
	x.mu.Unlock()
	if age > wholeEvery/2 {
		x.refresh()
	}
	return s, true, nil
}

// refresh looks at all sessions in the background, so that a process that lists often never waits for it.
func (x *Index) refresh() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.refreshing || x.closed {
		return
	}
	x.refreshing = true
	x.work.Go(func() {
		_, _ = x.lookAtAll(x.living, nil) // the next answer that needs it says why it failed
		x.mu.Lock()
		x.refreshing = false
		x.mu.Unlock()
	})
}

// recheck looks at some sessions, and reads again the ends of those that changed. hot are those that may change any time.
func (x *Index) recheck(ctx context.Context, s *sight, ids []session.ID) (hot map[session.ID]bool, err error) {
	hot = map[session.ID]bool{}
	if len(ids) == 0 {
		return hot, nil
	}
	known := make(map[session.ID]head, len(ids))
	x.mu.Lock()
	for _, id := range ids {
		s.seen[id] = true
		if h, ok := x.shelf.heads[id]; ok {
			known[id] = h
		}
	}
	suspect := map[session.ID]bool{} // of being written by somebody who is not announced
	if x.trusted != nil {
		suspect = x.trusted.hot
	}
	n := x.begin()
	x.mu.Unlock()
	marks, err := x.marks(ctx, ids, known)
	if err != nil {
		return nil, err
	}
	return hot, x.follow(ctx, s, n, marks, known, suspect, hot, nil)
}

// lookAtAll compares the index with the store and reads again the ends of the sessions that changed.
func (x *Index) lookAtAll(ctx context.Context, progress Progress) (sight, error) {
	x.looking.Lock()
	defer x.looking.Unlock()
	x.mu.Lock()
	x.ready(ctx) // memory begins anew with a file that is opened
	var err error
	if x.trusted == nil { // else memory has seen more than what another process wrote down
		err = x.load(ctx)
	}
	s := sight{heads: maps.Clone(x.shelf.heads), held: map[session.ID]bool{}, owner: map[session.ID]*store.Holder{}, changes: -1}
	if s.heads == nil {
		s.heads = map[session.ID]head{}
	}
	suspect := map[session.ID]bool{}
	if x.trusted != nil {
		suspect = x.trusted.hot
	}
	life, n := x.life, x.begin()
	x.mu.Unlock()
	if err != nil {
		return sight{}, err
	}
	next := &trust{hot: map[session.ID]bool{}}
	t, ok := x.opt.Store.(store.Tracer)
	if ok = ok && x.opt.Now != nil; ok {
		next.at = x.opt.Now()
		traces, err := t.Traces(ctx)
		if err != nil {
			return sight{}, err
		}
		next.stamp = traces.Stamp
	}
	marks, err := x.marks(ctx, nil, s.heads)
	if err != nil {
		return sight{}, err
	}
	if err := x.follow(ctx, &s, n, marks, s.heads, suspect, next.hot, progress); err != nil {
		return sight{}, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.life != life { // the file was thrown away meanwhile, and with it what memory had
		for id, h := range x.shelf.heads {
			s.heads[id] = h
		}
		x.shelf = shelf{heads: maps.Clone(s.heads)}
		x.life++
	}
	if x.trusted = nil; ok && next.stamp != "" {
		x.trusted = next
		x.writeTrust(ctx, *next)
	}
	return s, nil
}

// follow reads again the ends of the sessions whose marks are not as known, or that are suspect. It takes out those that are
// known and are not there, and tells which are hot. Where s has heads, it brings them up to that. The marks are of look n.
func (x *Index) follow(ctx context.Context, s *sight, n int64, marks []store.Mark, known map[session.ID]head, suspect, hot map[session.ID]bool, progress Progress) error {
	var changed []finding
	here := make(map[session.ID]bool, len(marks))
	for _, m := range marks {
		here[m.ID] = true
		if m.Held {
			s.held[m.ID] = true
		}
		if h, ok := known[m.ID]; !ok || m.Stamp == "" || m.Stamp != h.mark.Stamp || suspect[m.ID] && !m.Held {
			changed = append(changed, finding{mark: m, base: h.mark.Stamp, look: n})
		} else if m.Held {
			hot[m.ID] = true
		}
	}
	var gone []session.ID
	for id := range known {
		if !here[id] {
			gone = append(gone, id)
		}
	}
	done := 0
	var writing sync.WaitGroup // of what was found, while the next are looked at
	defer writing.Wait()
	for part := range slices.Chunk(changed, maxWrites) {
		found, err := x.stats(ctx, part)
		if writing.Wait(); err != nil {
			return err
		}
		for _, f := range found {
			id := f.mark.ID
			if f.gone {
				gone = append(gone, id)
				continue
			}
			if f.mark.Held {
				s.held[id] = true
			}
			if f.stat.Holder != nil {
				s.owner[id] = f.stat.Holder
			}
			if f.mark.Stamp == "" || f.mark.Held || f.stat.Holder != nil {
				hot[id] = true
			}
		}
		writing.Go(func() {
			heads := x.saw(ctx, slices.DeleteFunc(found, func(f finding) bool { return f.gone }))
			if s.heads != nil {
				maps.Copy(s.heads, heads)
			}
		})
		if done += len(part); progress != nil {
			progress(done, len(changed))
		}
	}
	writing.Wait()
	for _, id := range gone {
		delete(s.heads, id)
	}
	x.drop(ctx, gone)
	return context.Cause(ctx)
}

// begin numbers a look, before it looks. The caller holds mu.
func (x *Index) begin() int64 {
	x.looks++
	return x.looks
}

// marks looks at sessions from outside; nil: at all. Of an Ender those that are not known are only named: their ends are read
// anyway.
func (x *Index) marks(ctx context.Context, ids []session.ID, known map[session.ID]head) ([]store.Mark, error) {
	m, can := x.opt.Store.(store.Marker)
	was := func(id session.ID) store.Mark { return known[id].mark }
	if _, ends := x.opt.Store.(store.Ender); can && !ends {
		return m.Marks(ctx, ids, was)
	}
	if ids == nil {
		l, ok := x.opt.Store.(store.Lister)
		if !ok {
			return nil, errors.New("this store cannot list")
		}
		var err error
		if ids, err = l.Match(ctx, "", 0); err != nil {
			return nil, err
		}
	}
	var marks []store.Mark
	var ask []session.ID
	for _, id := range ids {
		if _, ok := known[id]; ok && can {
			ask = append(ask, id)
		} else {
			marks = append(marks, store.Mark{ID: id})
		}
	}
	if len(ask) == 0 {
		return marks, nil
	}
	looked, err := m.Marks(ctx, ask, was)
	return append(looked, marks...), err
}

// stats reads the ends of sessions.
func (x *Index) stats(ctx context.Context, changed []finding) ([]finding, error) {
	ends, err := x.ends(ctx, changed)
	if err != nil {
		return nil, err
	}
	found := slices.Clone(changed)
	for i, e := range ends {
		f := &found[i]
		f.mark, f.stat = e.Mark, e.Stat
		switch {
		case e.Err == nil:
		case errors.Is(e.Err, store.ErrNotFound):
			f.gone = true
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		default: // a session that cannot be read is a row that says so, until it is looked at again
			f.mark.Stamp = ""
			f.stat = store.Stat{ID: f.mark.ID, State: store.StateDamaged, Reason: e.Err.Error()}
		}
	}
	return found, nil
}

func (x *Index) ends(ctx context.Context, changed []finding) ([]store.End, error) {
	if e, ok := x.opt.Store.(store.Ender); ok {
		marks := make([]store.Mark, len(changed))
		for i, f := range changed {
			marks[i] = f.mark
		}
		return e.Ends(ctx, marks)
	}
	ends := make([]store.End, len(changed))
	var g errgroup.Group
	g.SetLimit(4 * runtime.GOMAXPROCS(0))
	for i, f := range changed {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			st, err := x.opt.Store.Stat(ctx, f.mark.ID)
			ends[i] = store.End{Mark: f.mark, Stat: st, Err: err}
			return nil
		})
	}
	return ends, g.Wait()
}

// saw writes down what was found, beside what is known of the logs already, and returns the heads.
func (x *Index) saw(ctx context.Context, found []finding) map[session.ID]head {
	x.mu.Lock()
	defer x.mu.Unlock()
	heads := make(map[session.ID]head, len(found))
	found = slices.DeleteFunc(slices.Clone(found), func(f finding) bool {
		id := f.mark.ID
		if h, ok := x.shelf.heads[id]; ok && f.look < x.seen[id] { // a look that began later is through already
			heads[id] = h
			return true
		}
		x.seen[id] = f.look
		return false
	})
	bodies := make(map[session.ID]body, len(found))
	merge := func(f finding, was head, old body) (head, body) {
		b := old
		b.Stat = f.stat
		touched := was.mark.Stamp != "" && f.mark.Stamp != "" && was.mark.Stamp != f.mark.Stamp && old.Stat.Pos == f.stat.Pos // changed, but not by writing to it
		if was.mark.Past != f.mark.Past || touched {
			b = body{Stat: f.stat} // its log is read anew
		}
		return headOf(f.mark, f.stat), b
	}
	written := x.write(ctx, func(tx *sql.Tx) error {
		var ids, crossed []session.ID
		r, err := prepareRows(ctx, tx)
		if err != nil {
			return err
		}
		for _, f := range found {
			id := f.mark.ID
			was, old, _, err := scanRow(r.row.QueryRowContext(ctx, string(id)), id)
			if err != nil {
				return err
			}
			if was.mark.Stamp != f.base { // another process wrote down what it saw, perhaps later
				crossed = append(crossed, id)
			}
			h, b := merge(f, was, old)
			if b.Hours != old.Hours {
				if _, err := tx.ExecContext(ctx, "DELETE FROM hours WHERE id = ?", string(id)); err != nil {
					return err
				}
			}
			if heads[id], err = r.put(ctx, id, h, b); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		if err := cross(ctx, tx, crossed); err != nil {
			return err
		}
		return changed(ctx, tx, ids...)
	})
	if !written {
		for _, f := range found {
			id := f.mark.ID
			heads[id], bodies[id] = merge(f, x.shelf.heads[id], x.kept[id])
		}
		maps.Copy(x.kept, bodies)
	} else {
		for id := range heads {
			delete(x.kept, id)
		}
	}
	x.shelf.put(heads)
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
		if err := distrust(ctx, tx); err != nil {
			return err
		}
		return changed(ctx, tx, gone...)
	})
	for _, id := range gone {
		x.shelf.drop(id)
		delete(x.kept, id)
		delete(x.bodies, id)
	}
	return written
}

// row returns what is known of one session: as the index has it, or read again where that cannot be believed. ok is
// false if the session is gone.
func (x *Index) row(ctx context.Context, id session.ID, h head) (b body, ok bool, err error) {
	x.mu.Lock()
	b, ok = x.kept[id]
	if r, read := x.bodies[id]; !ok && read && r.sum == h.body {
		b, ok = r.body, true
	}
	if !ok && x.db != nil {
		var err error
		var now head
		if now, b, ok, err = readRow(ctx, x.db, id); err != nil && ctx.Err() == nil {
			x.trouble(err)
		} else if now.mark.Stamp != h.mark.Stamp { // another process was faster: it may know more, or less
			ok = false
		} else if ok {
			x.remember(id, now.body, b)
		}
	}
	x.mu.Unlock()
	if ok || ctx.Err() != nil {
		return b, ok, context.Cause(ctx)
	}
	return x.fresh(ctx, id)
}

// readBodies is how many bodies memory keeps of rows that were shown.
const readBodies = 500

// remember keeps what a shown row needs. The caller holds mu.
func (x *Index) remember(id session.ID, sum uint64, b body) {
	if len(x.bodies) >= readBodies {
		x.bodies = nil
	}
	if x.bodies == nil {
		x.bodies = map[session.ID]shown{}
	}
	x.bodies[id] = shown{sum, b}
}

// fresh reads the end of one session.
func (x *Index) fresh(ctx context.Context, id session.ID) (b body, ok bool, err error) {
	x.mu.Lock()
	known, n := map[session.ID]head{id: x.shelf.heads[id]}, x.begin()
	x.mu.Unlock()
	marks, err := x.marks(ctx, []session.ID{id}, known)
	if err != nil || len(marks) == 0 {
		return b, false, err
	}
	found, err := x.stats(ctx, []finding{{mark: marks[0], base: known[id].mark.Stamp, look: n}})
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
