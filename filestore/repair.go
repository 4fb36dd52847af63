package filestore

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// repair is one run of Repair. It holds the session as a life does, and its steps are such that a reader who comes
// between any two of them, also behind a crash, finds what was there before or more:
//
//  1. the part of the log gets a scar, and every file that is hurt a second name in damaged/;
//  2. new segments come to their names, whole and synced. Where the beginning of a file is good, its name stays and
//     the new segment begins at the first bad seq: what is behind that in the old one does not count any more;
//  3. else the new segment begins one record before the file, whose name is then taken away. Only where there is no
//     record before, at the beginning of the session's own log, the name is taken away first: if that was all
//     there is, the next repair finds the records in damaged/.
type repair struct {
	*writer
	m   *mend
	v   *view // of what m found
	rep store.Repair
}

// newSeg is a segment that a repair makes.
type newSeg struct {
	first, end session.Seq
	prev       session.Link
}

// layout is which files keep their names and which new ones are made.
type layout struct {
	stays map[*source]bool
	news  []newSeg
	hurt  []*source
}

// rounds is how often a repair looks at what it made of one part of a log. One is enough where nothing is wrong with the code.
const rounds = 3

// Repair makes a damaged session writable again.
func (s *Store) Repair(ctx context.Context, id session.ID, dryRun bool) (store.Repair, error) {
	if dryRun {
		return s.PlanRepair(ctx, id, nil)
	}
	s.planning.Lock()
	s.trial = nil
	s.planning.Unlock()
	r, err := s.patient(ctx, id)
	if err != nil {
		return store.Repair{}, err
	}
	defer r.leave()
	err = r.run(ctx)
	return r.rep, err
}

// patient reserves id for a repair.
func (s *Store) patient(ctx context.Context, id session.ID) (*repair, error) {
	if session.ValidID(id) != nil {
		return nil, &store.NotFoundError{ID: string(id)}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	r := &repair{writer: &writer{s: s, id: id, dir: s.dir(id), since: s.opt.Now()}}
	if err := s.reserve(id, r.writer); err != nil {
		return nil, err
	}
	r.op.Lock()
	return r, nil
}

func (r *repair) leave() {
	r.op.Unlock()
	r.release()
}

func (r *repair) run(ctx context.Context) error {
	h, bad, err := r.s.readHeader(r.dir, r.id)
	var fe *record.FormatError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &store.NotFoundError{ID: string(r.id)}
	case err != nil:
		return err
	case errors.As(bad, &fe):
		return &store.UnsupportedError{ID: r.id, Detail: fe.Error()}
	}
	if err := r.hold(ctx, bad == nil); err != nil {
		return err
	}
	r.ann = r.s.announce(r.id, r.since) // whatever it has to lock: who lists sessions relies on it
	kin, err := r.s.relatives(ctx)
	if err == nil {
		err = r.s.guessKin(ctx, kin)
	}
	if err != nil {
		return err
	}
	if err := r.s.dropFolds(ctx, r.id, kin); err != nil {
		return err
	}
	check := r.s.healthy(ctx)
	if bad != nil {
		damage := store.Range{File: filepath.Join(r.dir, headerName), First: 0, Last: session.None, Detail: bad.Error()}
		r.rep.Damage = append(r.rep.Damage, damage)
		if h, r.rep.Guessed, err = r.s.guessHeader(ctx, r.id, kin); err != nil {
			if errors.Is(err, errNoGuess) {
				damage.Detail += "; it cannot be made again: " + err.Error()
				return &store.DamagedError{ID: r.id, Owner: r.id, Ranges: []store.Range{damage}}
			}
			return err
		}
		r.s.forgetKin()
		if err := r.header(ctx, h); err != nil {
			return err
		}
	}
	tries := map[session.ID]int{}
	for {
		l, err := r.examine(ctx, h, check, kin)
		if err != nil || len(l.damage) == 0 {
			return err
		}
		if tries[l.whose]++; tries[l.whose] > rounds {
			return &store.DamagedError{ID: r.id, Owner: l.owner, Ranges: l.damage}
		}
		if tries[l.whose] == 1 {
			r.rep.Damage = append(r.rep.Damage, l.damage...)
		}
		if l.whose != r.id { // in what it begins with, one part after the other
			err = r.inherited(ctx, h, l, kin)
		} else {
			err = r.logged(ctx, h, check, kin)
		}
		if err != nil {
			return err
		}
	}
}

// logged repairs what the session logged itself.
func (r *repair) logged(ctx context.Context, h session.Header, check func(*record.Raw) (string, error), kin []relative) error {
	r.m = &mend{s: r.s, id: r.id, dir: r.dir, from: h.SeedLength, clip: session.None, time: h.CreatedAt, empty: h.MayBeEmpty(), check: check}
	if h.Parent != nil {
		r.m.prev = h.Parent.Link
	}
	proofs, err := r.s.proofs(kin, r.id)
	if err == nil {
		err = r.m.atLeast(ctx, proofs)
	}
	if err == nil {
		err = r.mend(ctx)
	}
	return err
}

// examine reads the whole log, in which nothing is trusted. What is gone when it is opened was moved to the trash, or back, or
// joined, unless it is gone for good.
func (r *repair) examine(ctx context.Context, h session.Header, check func(*record.Raw) (string, error), kin []relative) (*logScan, error) {
	var l *logScan
	var err error
	for try := 0; try == 0 || errors.Is(err, fs.ErrNotExist) && try <= 10; try++ {
		l = &logScan{hdr: h, synced: session.None, check: check, certain: try == 10}
		err = r.s.scanBody(ctx, l, r.dir)
	}
	if err == nil && l.unsupported != "" {
		err = &store.UnsupportedError{ID: r.id, Detail: l.unsupported}
	}
	if err == nil {
		err = r.s.prove(ctx, l, kin)
	}
	return l, err
}

// mend makes of the files in r.dir what r.m finds in them.
func (r *repair) mend(ctx context.Context) error {
	if err := r.m.plan(ctx); err != nil {
		return err
	}
	if r.m.unsupported != "" {
		return &store.UnsupportedError{ID: r.id, Detail: r.m.unsupported}
	}
	r.rep.Lost, r.rep.Found = append(r.rep.Lost, r.m.lost...), append(r.rep.Found, r.m.found...)
	r.v = r.m.view()
	defer r.v.release()
	lay, err := r.layout(ctx)
	if err != nil {
		return err
	}
	return r.carryOut(ctx, lay)
}

// hold takes the lease and the last segment, as a life does. Without a session.json the lease is taken with the new
// one.
func (r *repair) hold(ctx context.Context, hasHeader bool) (err error) {
	if err := r.s.version(); err != nil {
		return err
	}
	if err := r.s.fs.Writable(r.dir); err != nil {
		return &store.ReadOnlyError{Path: r.s.root, Cause: err}
	}
	info, err := r.s.fs.Stat(filepath.Join(r.dir, headerName))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && info.Mode().IsRegular():
		if r.lease, err = r.s.takeLease(ctx, r.id); err != nil {
			return err
		}
	case hasHeader:
		return &store.BusyError{ID: r.id} // somebody repairs it
	}
	names, err := r.s.segmentNames(r.dir)
	if err != nil || len(names) == 0 {
		return err
	}
	if info, err := r.s.fs.Stat(names[len(names)-1].in(r.dir)); err != nil || !info.Mode().IsRegular() {
		return err // nobody writes to what is no file
	}
	if r.tail, err = r.s.takeTail(ctx, r.id, r.dir); err != nil || r.tail == nil {
		return err
	}
	r.tailSize = r.tail.info.Size()
	return nil
}

// idle refuses a session that somebody writes to, for those who take no lease.
func (r *repair) idle(ctx context.Context) error {
	names, err := r.s.segmentNames(r.dir)
	if err != nil || len(names) == 0 {
		return err
	}
	held, err := r.s.hasWriter(names[len(names)-1].in(r.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && held {
		return r.s.busy(ctx, r.id)
	}
	return err
}

// header brings a new session.json in the place of the bad one, which goes to damaged/.
func (r *repair) header(ctx context.Context, h session.Header) error {
	text, err := record.AppendHeader(nil, h)
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir, headerName)
	n, err := r.s.nonce()
	if err != nil {
		return err
	}
	tmp := filepath.Join(r.dir, newSegment+n)
	f, err := r.s.writeTemp(tmp, text, true)
	if err != nil {
		return err
	}
	lease := &held{f: f, path: path}
	if lease.info, err = f.Stat(); err == nil {
		if err = r.moveAside(path); err == nil {
			err = r.s.publish(tmp, path)
		}
	}
	if err != nil {
		f.Close()
		r.s.fs.Remove(tmp)
		if errors.Is(err, fs.ErrExist) {
			return r.s.busy(ctx, r.id)
		}
		return err
	}
	r.lease.close()
	r.lease = lease
	r.rep.Written = append(r.rep.Written, path)
	return r.s.syncDir(r.dir)
}

// layout says which files stay, and what is written beside them.
func (r *repair) layout(ctx context.Context) (*layout, error) {
	lay := &layout{stays: map[*source]bool{}}
	for _, src := range r.m.files {
		lay.stays[src] = src.use && src.name.first == src.first && src.headErr == nil && r.goodTo(src) > src.first &&
			(!src.name.packed() || r.goodTo(src) >= src.name.end)
	}
	for {
		again, err := r.tryLayout(ctx, lay)
		if err != nil {
			return nil, err
		}
		if !again {
			return lay, nil
		}
	}
}

// goodTo returns where the records end that count and lie in src without a gap, and with nothing between, from its first line on.
func (r *repair) goodTo(src *source) session.Seq {
	if i := r.v.find(src.first); i >= 0 && r.v.segs[i].path == src.path && r.v.segs[i].first == src.first && r.v.segs[i].off == src.headLen {
		return r.v.segs[i].end
	}
	return src.first
}

// tryLayout fills lay. It takes a file out of those that stay and returns true if a new segment would need its name.
func (r *repair) tryLayout(ctx context.Context, lay *layout) (bool, error) {
	lay.news, lay.hurt = nil, nil
	var cur *newSeg
	begin := func(seq session.Seq, before *source) (again bool, err error) {
		n := newSeg{end: r.v.n}
		if n.first, n.prev, err = r.begin(ctx, seq); err != nil {
			return false, err
		}
		if before != nil && (n.first <= before.first || n.first < before.name.end) {
			lay.stays[before] = false
			return true, nil
		}
		lay.news = append(lay.news, n)
		cur = &lay.news[len(lay.news)-1]
		return false, nil
	}
	var before *source // the last file that stays
	if len(r.m.files) == 0 || r.m.files[0].name.first > r.m.from {
		if _, err := begin(r.m.from, nil); err != nil {
			return false, err
		}
	}
	for i, src := range r.m.files {
		if src.stray { // a rest of a joining, which becomes visible when the packed one is taken away
			if cur != nil {
				lay.hurt = append(lay.hurt, src)
			}
			continue
		}
		limit := r.v.n
		for _, next := range r.m.files[i+1:] {
			if !next.stray {
				limit = min(limit, next.name.first)
				break
			}
		}
		if !lay.stays[src] {
			lay.hurt = append(lay.hurt, src)
			if cur != nil {
				continue
			}
			seq := src.name.first
			if !src.name.packed() && (before == nil || !before.name.packed()) {
				seq = max(seq-1, r.m.from)
			}
			if again, err := begin(seq, before); again || err != nil {
				return again, err
			}
			continue
		}
		if cur != nil && cur.first < src.first {
			cur.end, cur = src.first, nil
		} else if cur != nil { // only names were in the way
			lay.news, cur = lay.news[:len(lay.news)-1], nil
		}
		before = src
		if e := r.goodTo(src); e < limit {
			if !src.name.packed() {
				lay.hurt = append(lay.hurt, src)
			}
			if again, err := begin(e, before); again || err != nil {
				return again, err
			}
		}
	}
	return false, nil
}

// begin returns the last seq at or below seq at which a segment can begin: its first record must follow what its
// header says, which one directly behind a session/lost need not.
func (r *repair) begin(ctx context.Context, seq session.Seq) (session.Seq, session.Link, error) {
	for ; seq > r.m.from; seq-- {
		var prev, calc session.Link
		ok, lost := false, false
		if i := r.v.find(seq - 1); i >= 0 && r.v.segs[i].end == seq {
			calc = r.m.pieces[i].link
		}
		err := r.v.each(ctx, seq-1, min(seq+1, r.v.n), func(_ *segment, raw *record.Raw) bool {
			if raw.Seq == seq-1 {
				prev, _ = raw.Link()
				lost = string(raw.Type) == session.TypeLost
				return true
			}
			if _, ok = raw.CheckLink(prev); !ok {
				prev = calc
				_, ok = raw.CheckLink(prev)
			}
			return true
		})
		if err != nil {
			return 0, prev, err
		}
		if ok && !lost {
			return seq, prev, nil
		}
	}
	return r.m.from, r.m.prev, nil
}

// carryOut makes lay true.
func (r *repair) carryOut(ctx context.Context, lay *layout) error {
	if err := r.scar(); err != nil {
		return err
	}
	for _, src := range r.m.files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if src.regular {
			if err := r.syncFile(src.path); err != nil {
				return err
			}
		}
	}
	parts := map[string][]int{} // of the view, by their files
	for i := range r.v.segs {
		parts[r.v.segs[i].path] = append(parts[r.v.segs[i].path], i)
	}
	hurt := map[*source]bool{}
	for _, src := range lay.hurt {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		hurt[src] = true
		if !src.regular {
			continue
		}
		kept, err := r.keep(ctx, src.path)
		if err != nil {
			return err
		}
		r.rep.Kept = append(r.rep.Kept, kept)
		for _, i := range parts[src.path] { // its own name may soon be that of another
			r.v.segs[i].path = kept
		}
	}
	if len(r.rep.Kept) > 0 {
		if err := r.s.syncDir(filepath.Join(r.dir, damagedName)); err != nil {
			return err
		}
	}
	made := map[session.Seq]bool{}
	rest := r.m.files // by name
	clear := func(end session.Seq) error {
		for ; len(rest) > 0 && rest[0].name.first < end; rest = rest[1:] {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			src := rest[0]
			gone := !lay.stays[src] && (src.name.packed() || !made[src.name.first])
			if gone && (!src.stray || hurt[src]) {
				if err := r.takeAway(src); err != nil {
					return err
				}
			}
		}
		return r.s.syncDir(r.dir)
	}
	if len(lay.news) == 0 { // else whoever places them looks
		if err := r.look(nil); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(lay.news, atOnce) {
		if err := r.segments(ctx, batch); err != nil {
			return err
		}
		for _, n := range batch {
			made[n.first] = true
		}
		if err := clear(batch[len(batch)-1].end); err != nil {
			return err
		}
	}
	return clear(r.v.n)
}

func (r *repair) syncFile(path string) error {
	f, err := r.s.fs.OpenFile(path, vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.s.sync(f.SyncData)
}

// chunk is what a repair writes at a time.
const chunk = 1 << 20

// atOnce is how many new segments come to their names between two looks at the directory: a session may have many.
const atOnce = 1000

// ready is a new segment, whole and synced, under the name of its claim.
type ready struct {
	newSeg
	tmp string
	h   *held // path is the final one
}

func (r *repair) drop(list []ready) {
	for _, n := range list {
		n.h.close()
		r.s.fs.Remove(n.tmp)
	}
}

// segments writes those of batch and brings them to their names.
func (r *repair) segments(ctx context.Context, batch []newSeg) error {
	var list []ready
	for _, n := range batch {
		made, err := r.write(ctx, n)
		if err != nil {
			r.drop(list)
			return err
		}
		list = append(list, made)
	}
	return r.place(list)
}

// write makes the file of n.
func (r *repair) write(ctx context.Context, n newSeg) (ready, error) {
	nonce, err := r.s.nonce()
	if err != nil {
		return ready{}, err
	}
	tmp := filepath.Join(r.dir, claimName(n.first, nonce))
	buf := record.AppendSegment(nil, record.Segment{Session: r.id, First: n.first, Prev: n.prev, Starts: r.m.starts(n.first, n.end)})
	f, err := r.s.newFile(tmp, buf, true)
	if err != nil {
		return ready{}, err
	}
	made := ready{n, tmp, &held{f: f, path: filepath.Join(r.dir, segmentName(n.first))}}
	buf = buf[:0]
	write := func() error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		k, err := f.Write(buf)
		if err == nil {
			err = shortWrite(k, len(buf))
		}
		buf = buf[:0]
		return err
	}
	var failed error
	err = r.v.each(ctx, n.first, n.end, func(_ *segment, raw *record.Raw) bool {
		buf = append(append(buf, raw.Line()...), '\n')
		if len(buf) >= chunk {
			failed = write()
		}
		return failed == nil
	})
	if err = errors.Join(err, failed); err == nil {
		err = write()
	}
	if err == nil {
		err = r.s.sync(f.Sync)
	}
	if err == nil {
		made.h.info, err = f.Stat()
	}
	if err != nil {
		r.drop([]ready{made})
	}
	return made, err
}

// place brings new segments to their names, if nobody wrote meanwhile.
func (r *repair) place(list []ready) (err error) {
	defer func() {
		if err != nil {
			r.drop(list)
		}
	}()
	mine := map[string]bool{}
	for _, n := range list {
		mine[n.tmp] = true
	}
	if err := r.look(mine); err != nil {
		return err
	}
	for len(list) > 0 {
		n := list[0]
		// Is a file of that name there, there is no earlier record that a new segment could begin with.
		i, _ := slices.BinarySearchFunc(r.m.files, n.first, func(src *source, seq session.Seq) int { return cmp.Compare(src.name.first, seq) })
		for ; i < len(r.m.files) && r.m.files[i].name.first == n.first; i++ {
			if src := r.m.files[i]; !src.name.packed() {
				if err := r.takeAway(src); err != nil {
					return err
				}
			}
		}
		err := r.s.publish(n.tmp, n.h.path)
		switch {
		case errors.Is(err, fs.ErrExist):
			return r.fence(filepath.Base(n.h.path) + " is another's")
		case errors.Is(err, fs.ErrNotExist):
			return r.fence("another took away what it was about to write")
		case err != nil:
			return r.s.readOnly(err)
		}
		r.own, r.rep.Written = append(r.own, n.h), append(r.rep.Written, n.h.path)
		list = list[1:]
	}
	if err := r.s.syncDir(r.dir); err != nil {
		return err
	}
	return r.look(nil)
}

// look takes away the claims of others, and makes sure that nobody has written since the session was read.
func (r *repair) look(mine map[string]bool) error {
	if _, err := r.s.settle(r.dir, math.MaxInt64, mine); err != nil {
		return err
	}
	same, _, err := r.s.isAt(r.lease)
	if err != nil {
		return err
	}
	if !same {
		return r.fence(headerName + " is another file than the one that is held")
	}
	if r.tail == nil {
		return nil
	}
	same, now, err := r.s.isAt(r.tail)
	switch {
	case err != nil:
		return err
	case !same:
		return r.fence("the last segment is another file than the one that was read")
	case now.Size() != r.tailSize:
		return r.fence("the last segment has grown since it was read")
	}
	return nil
}
