package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

var _ store.Checkpoints = (*Store)(nil)

// Checkpoints lie below cache/<id>, which is derived: each is a file that is named by its position. They are neither
// synced nor needed. What the name says is compared with the log before one is used, and its bytes carry a sum.
const (
	foldSuffix = ".fold"
	newFold    = ".fold-"
	maxFold    = 32 << 20
	maxFolds   = 12 // of a session
	tryFolds   = 3  // that do not fit, before all is read
)

// foldFile is a checkpoint as its name tells it.
type foldFile struct {
	path  string
	pos   store.Pos
	scars string // of the parts of the log up to those of the session that keeps it
}

func foldName(pos store.Pos, scars string) string {
	if scars != "" {
		scars = "." + scars
	}
	return fmt.Sprintf("%0*d-%s%s%s", segDigits, pos.Next, pos.Link, scars, foldSuffix)
}

// parseFoldName is the inverse of foldName.
func parseFoldName(name string) (pos store.Pos, scars string, ok bool) {
	rest, ok := strings.CutSuffix(name, foldSuffix)
	if !ok || len(rest) <= segDigits || rest[segDigits] != '-' {
		return pos, "", false
	}
	pos.Next, ok = parseSeq(rest[:segDigits])
	text, scars, _ := strings.Cut(rest[segDigits+1:], ".")
	link, err := session.ParseLink(text)
	pos.Link = link
	return pos, scars, ok && err == nil && pos.Next > 0
}

func (s *Store) cacheDir(id session.ID) string { return s.path("cache", string(id)) }

// foldsIn returns the checkpoints below cache/<id>, the newest first.
func (s *Store) foldsIn(id session.ID) ([]foldFile, error) {
	dir := s.cacheDir(id)
	list, err := s.entries(dir)
	if err != nil {
		return nil, err
	}
	var out []foldFile
	for _, e := range list {
		if pos, scars, ok := parseFoldName(e.Name()); ok {
			out = append(out, foldFile{filepath.Join(dir, e.Name()), pos, scars})
		}
	}
	slices.SortFunc(out, func(a, b foldFile) int { return cmp.Compare(b.pos.Next, a.pos.Next) })
	return out, nil
}

// folds returns the checkpoints that may be of the first n events of a session with header h and those scars or fewer, the newest
// first: its own, and those of the sessions that it was forked from.
func (s *Store) folds(h session.Header, scars []string, n session.Seq) []foldFile {
	var out []foldFile
	if scars == nil {
		return nil
	}
	add := func(id session.ID, end session.Seq, scars string) {
		all, _ := s.foldsIn(id)
		for _, c := range all {
			if c.pos.Next <= min(end, n) && c.scars == scars {
				out = append(out, c)
			}
		}
	}
	if h.Parent != nil {
		for i, sp := range h.Parent.Spans {
			add(sp.ID, sp.End, scars[i])
		}
	}
	add(h.ID, n, scars[len(scars)-1])
	slices.SortStableFunc(out, func(a, b foldFile) int { return cmp.Compare(b.pos.Next, a.pos.Next) })
	return out
}

// DropCheckpoints removes the checkpoints below cache/<id>.
func (s *Store) DropCheckpoints(ctx context.Context, id session.ID) error {
	if session.ValidID(id) != nil {
		return &store.NotFoundError{ID: string(id)}
	}
	all, err := s.foldsIn(id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, c := range all {
		if err := s.fs.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return context.Cause(ctx)
}

// met takes away every checkpoint that would hide from who opens id that its event at seq is damaged: from now on that
// is known, also by those who do not look there. While this process holds the session it makes no other.
func (s *Store) met(id session.ID, seq session.Seq) {
	spans := []session.OriginSpan{{ID: id, End: store.Whole}}
	if h, bad, err := s.readHeader(s.dir(id), id); err == nil && bad == nil {
		spans = h.Spans(store.Whole)
	}
	for _, sp := range spans {
		if sp.End <= seq {
			continue
		}
		s.mu.Lock()
		w := s.writers[sp.ID]
		s.mu.Unlock()
		if w != nil {
			w.hurt.Store(true) // first: one that is on its way is taken away by who makes it
		}
		all, _ := s.foldsIn(sp.ID)
		for _, c := range all {
			if c.pos.Next > seq {
				_ = s.fs.Remove(c.path)
			}
		}
	}
}

// dropFolds removes the checkpoints of id and of all that begin with a part of it: behind the repair they are of another log.
func (s *Store) dropFolds(ctx context.Context, id session.ID, kin []relative) error {
	err := s.DropCheckpoints(ctx, id)
	for i := range kin {
		if _, _, ok := kin[i].part(id); ok {
			err = errors.Join(err, s.DropCheckpoints(ctx, kin[i].id))
		}
	}
	return err
}

// ReadTail is Read behind a checkpoint.
func (s *Store) ReadTail(ctx context.Context, id session.ID) (*store.Snapshot, error) {
	if session.ValidID(id) != nil {
		return nil, &store.NotFoundError{ID: string(id)}
	}
	l, err := s.settled(ctx, id, nil, true)
	if err != nil {
		return nil, err
	}
	return s.snapshot(l, id), nil
}

// errNotBehind says that a checkpoint is not one of this log, or that what lies below it is not in order.
var errNotBehind = errors.New("the log has not what the checkpoint stands for")

// scanBehind reads what lies behind the newest checkpoint that fits. Nil: there is none, or something is wrong, which a
// scan of everything will tell. Errors: fs.ErrNotExist if a listed segment is gone.
func (s *Store) scanBehind(ctx context.Context, h session.Header, scars []string, dir string) (*logScan, error) {
	for i, c := range s.folds(h, scars, store.Whole) {
		if i == tryFolds {
			break
		}
		data, _, err := s.readFile(c.path, maxFold)
		if err != nil {
			continue
		}
		l := &logScan{hdr: h, scars: scars, synced: c.pos.Next - 1, behind: c.pos}
		err = s.scanBody(ctx, l, dir)
		switch {
		case errors.Is(err, errNotBehind):
			continue
		case errors.Is(err, fs.ErrNotExist):
			return nil, err
		case err != nil, len(l.damage) > 0, l.lost != nil, l.unsupported != "", l.pos.Next < c.pos.Next:
			return nil, nil
		}
		// The record before the checkpoint proves what lies before it in its own files; of the parts before that only
		// that it is what they were.
		if ok, err := s.tied(ctx, h, 0, c.pos.Next-1); err != nil || !ok {
			return nil, err
		}
		l.fold, l.foldAt = &store.Checkpoint{Pos: c.pos, Data: data}, c.path
		return l, nil
	}
	return nil, nil
}

// farParts takes the segments that lie below l.behind from the beginning of names, and gives them to l unread. The
// first that is left holds the record before it, if the log of id does.
func (s *Store) farParts(l *logScan, id session.ID, dir string, names []segName, clip session.Seq) ([]segName, error) {
	q := l.behind.Next - 1
	for i, n := range names {
		if n.first > q {
			return names[i:], nil
		}
		end := n.end
		if i+1 < len(names) {
			end = names[i+1].first
		}
		if n.first != l.pos.Next || n.packed() && n.end != end {
			return nil, errNotBehind
		}
		if clip != session.None && (end == session.None || clip < end) {
			end = clip
		}
		here := end == session.None || q < end // the record before the checkpoint is in this one
		if here {
			end = q
		}
		if end > n.first {
			l.segs = append(l.segs, segment{owner: id, path: n.in(dir), first: n.first, end: end, far: &far{}})
		}
		l.pos = store.Pos{Next: end}
		if here {
			return names[i:], nil
		}
	}
	return nil, nil
}

// skip makes a scan begin with the record before p.from, which must be the one that is meant.
func (p *pass) skip(ctx context.Context, f vfs.File) error {
	if p.headErr != nil {
		return errNotBehind
	}
	q := p.from.Next - 1
	same := false
	at, err := locateRecord(ctx, f, q, func(raw *record.Raw) {
		link, ok := raw.Link()
		same = ok && link == p.from.Link
	})
	if errors.Is(err, fs.ErrNotExist) || err == nil && !same {
		return errNotBehind
	}
	// What is before it was not read: it is what the log begins with here.
	p.first, p.headLen, p.head.Prev = q, at, session.Link{}
	p.due, p.prevOK = q, false
	return err
}

// nearest returns the newest checkpoint of the first n events or fewer. known is one that fits.
func (v *view) nearest(h session.Header, scars []string, known store.Checkpoint, n session.Seq) (store.Checkpoint, bool) {
	if known.Pos.Next <= n {
		return known, true
	}
	for _, c := range v.s.folds(h, scars, n) {
		if c.pos.Next > v.n || !v.has(c.pos.Next-1, c.pos.Link) {
			continue
		}
		if data, _, err := v.s.readFile(c.path, maxFold); err == nil {
			return store.Checkpoint{Pos: c.pos, Data: data}, true
		}
	}
	return store.Checkpoint{}, false
}

// PutCheckpoint writes a checkpoint, and removes what is not needed beside it.
func (s *Store) PutCheckpoint(ctx context.Context, id session.ID, c store.Checkpoint) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	w := s.writers[id]
	s.mu.Unlock()
	if w == nil {
		return fmt.Errorf("filestore: a checkpoint of %s, which this process does not hold: %w", id, store.ErrClosed)
	}
	w.mu.Lock()
	synced := w.synced
	w.mu.Unlock()
	if c.Pos.Next <= 0 || c.Pos.Next > synced.Next || c.Pos.Next == synced.Next && c.Pos.Link != synced.Link {
		return fmt.Errorf("filestore: a checkpoint of %s at %d, of which only %d events are synced", id, c.Pos.Next, synced.Next)
	}
	if len(c.Data) > maxFold {
		return fmt.Errorf("filestore: a checkpoint of %d bytes", len(c.Data))
	}
	w.folding.Lock()
	defer w.folding.Unlock()
	if err := s.mayFold(w); err != nil {
		return err
	}
	dir := s.cacheDir(id)
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := s.fs.Mkdir(d); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	s.sweepDir(dir, newFold)
	n, err := s.nonce()
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, newFold+n)
	f, err := s.newFile(tmp, c.Data, false)
	if err != nil {
		return err
	}
	f.Close()
	mine := w.scars[len(w.scars)-1]
	path := filepath.Join(dir, foldName(c.Pos, mine))
	if err := s.fs.RenameNoReplace(tmp, path); err != nil {
		s.fs.Remove(tmp)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	w.newest = path
	if err := s.mayFold(w); err != nil { // met, or repaired, meanwhile
		s.fs.Remove(path)
		return err
	}
	all, err := s.foldsIn(id)
	other := func(c foldFile) bool { return c.scars != mine }
	for _, old := range all {
		if other(old) {
			s.fs.Remove(old.path)
		}
	}
	for _, old := range tooMany(slices.DeleteFunc(all, other)) {
		s.fs.Remove(old.path)
	}
	return err
}

// mayFold says whether a checkpoint by w would be one of a log that nobody knows to be damaged. The newest that it began
// with or made may have been taken away by another process, which met damage below it (or emptied the cache): then the next
// life, which reads everything, sees what there is.
func (s *Store) mayFold(w *writer) error {
	if w.hurt.Load() {
		return fmt.Errorf("filestore: no checkpoint of %s is made: %w", w.id, store.ErrDamaged)
	}
	if w.scars == nil || !slices.Equal(w.scars, s.scars(w.hdr, false)) {
		return fmt.Errorf("filestore: no checkpoint of %s is made: what it begins with was repaired since it was read", w.id)
	}
	if w.newest == "" {
		return nil
	}
	if _, err := s.fs.Stat(w.newest); err != nil {
		return fmt.Errorf("filestore: no checkpoint of %s is made: the one before was taken away: %w", w.id, err)
	}
	return nil
}

// tooMany returns those of all, the newest first, that need not be kept: without one of them the gap there is not wider
// than its distance to the end. What stays is the newer the denser, so that a fork finds one that is not much older
// than its cut.
func tooMany(all []foldFile) (gone []foldFile) {
	kept := 0
	last := session.None // of those that are kept
	for i, c := range all {
		dense := i > 1 && i+1 < len(all) && last-all[i+1].pos.Next <= all[0].pos.Next-last
		if dense || kept == maxFolds {
			gone = append(gone, c)
			continue
		}
		kept++
		last = c.pos.Next
	}
	return gone
}
