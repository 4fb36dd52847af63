package filestore

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Litter is what a process that died left under a name that only it knew. Nobody reads it, and nobody misses it; it
// only takes room. Who makes such a name holds a lock from before it is there until it is gone:
//
//	.store-*              none: the name strandline.json is taken, so the maker finds that another was first
//	.new-*                store.lock, shared, until it holds the lock of the session.json inside
//	.blob-*, .give-*      store.lock
//	.purge-*              store.lock, exclusive
//	.seg-*                the lease of the session, in its damaged/ too (a damaged session keeps them for its repair)
//	live/<id>.json        the lease of the session
//	cache/<id>            store.lock of who makes the session: where there is none, in the trash neither, it is of nobody
//
// So who has store.lock exclusively and, for the last two, the lease, sees only what dead ones left.
type sweeper struct {
	s     *Store
	dry   bool
	found store.Amount
}

// sweepLitter removes what makers that died have left in the whole store, or with dry only counts it. The caller
// holds store.lock exclusively. What this user may not remove stays.
func (s *Store) sweepLitter(ctx context.Context, dry bool) (store.Amount, error) {
	w := &sweeper{s: s, dry: dry}
	if err := w.all(ctx); err != nil {
		return w.found, s.readOnly(err)
	}
	return w.found, nil
}

func (w *sweeper) all(ctx context.Context) error {
	s := w.s
	if _, err := s.fs.Stat(s.path(storeName)); err == nil {
		if err := w.those(s.root, newStore); err != nil {
			return err
		}
	}
	blobs := s.path("blobs", "sha256")
	if err := w.each(ctx, blobs, func(name string) error { return w.those(filepath.Join(blobs, name), newBlob) }); err != nil {
		return err
	}
	for _, where := range []string{"sessions", "trash"} {
		err := w.each(ctx, s.path(where), func(name string) error {
			dir := s.path(where, name)
			switch info, err := s.fs.Stat(dir); {
			case err != nil || !info.IsDir(): // also a link: what it leads to is not of this store
				return w.tolerated(err)
			case strings.HasPrefix(name, newSession):
				return w.unborn(dir)
			case session.ValidID(session.ID(name)) != nil:
				return nil
			}
			return w.session(ctx, session.ID(name), dir)
		})
		if err != nil {
			return err
		}
	}
	if err := w.purged(ctx); err != nil {
		return err
	}
	if err := w.each(ctx, s.path("cache"), w.orphan); err != nil {
		return err
	}
	return w.each(ctx, s.path("live"), func(name string) error {
		id, ok := strings.CutSuffix(name, ".json")
		if !ok || session.ValidID(session.ID(id)) != nil {
			return nil
		}
		dir := s.dir(session.ID(id))
		_, err := s.fs.Stat(dir) // a session that has lost its session.json may be in repair, one that is not there is not
		return w.idle(dir, errors.Is(err, fs.ErrNotExist), func() error { return w.remove(s.path("live", name)) })
	})
}

// orphan removes what is derived of a session that is not there any more: somebody removed it by hand.
func (w *sweeper) orphan(name string) error {
	id := session.ID(name)
	if session.ValidID(id) != nil {
		return nil
	}
	for _, dir := range []string{w.s.dir(id), w.s.trash(id)} {
		if _, err := w.s.fs.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			return w.tolerated(err)
		}
	}
	return w.remove(w.s.cacheDir(id))
}

// unborn removes the directory of a session that never came to its name.
func (w *sweeper) unborn(dir string) error {
	return w.idle(dir, true, func() error { return w.remove(dir) })
}

// purged brings purges to their end, with the blobs that only what they left names. If nobody can tell which those are
// it is left for the next time.
func (w *sweeper) purged(ctx context.Context) error {
	rest, err := w.s.remains()
	if err != nil {
		return w.tolerated(err)
	}
	size := make([]int64, len(rest))
	for i, d := range rest {
		if size[i], err = w.s.bottomUp(d.dir, func(string) error { return nil }); err != nil {
			return w.tolerated(err)
		}
	}
	if !w.dry && len(rest) > 0 {
		kin, kerr := w.s.relatives(ctx)
		if err = kerr; err == nil {
			err = w.s.removeDoomed(ctx, rest, kin)
		}
	}
	if _, unsure := errors.AsType[*unsureError](err); err != nil && !unsure {
		return err
	}
	for i, d := range rest {
		if _, err := w.s.fs.Stat(d.dir); w.dry || errors.Is(err, fs.ErrNotExist) {
			w.found.N++
			w.found.Bytes += size[i]
		}
	}
	return nil
}

// session removes the litter inside the directory of a session.
func (w *sweeper) session(ctx context.Context, id session.ID, dir string) error {
	if err := w.those(filepath.Join(dir, inheritedDir), handingOver); err != nil {
		return err
	}
	claims := []string{dir, filepath.Join(dir, damagedName)}
	any := false
	for _, d := range claims {
		list, err := w.list(d, newSegment)
		if err != nil {
			return err
		}
		any = any || len(list) > 0
	}
	if !any {
		return nil // its lease is left alone
	}
	// Without a session.json nobody can have the lease, but repair makes one under such a name.
	return w.idle(dir, false, func() error {
		if why, err := w.s.unsound(ctx, id, dir); why != "" || err != nil {
			return w.tolerated(err) // what is damaged may stand there a second time
		}
		for _, d := range claims {
			if err := w.those(d, newSegment); err != nil {
				return err
			}
		}
		return nil
	})
}

// idle calls do while it holds the lease of the session in dir, if nobody else does. Where there is no session.json
// it calls do if absent is true.
func (w *sweeper) idle(dir string, absent bool, do func() error) error {
	s, path := w.s, filepath.Join(dir, headerName)
	f, err := s.fs.OpenFile(path, vfs.ReadWrite)
	if errors.Is(err, fs.ErrNotExist) {
		if absent {
			return do()
		}
		return nil
	}
	if err != nil {
		return w.tolerated(err)
	}
	defer f.Close()
	if ok, err := f.TryLock(true); err != nil || !ok {
		return err
	}
	h := &held{f: f, path: path}
	if h.info, err = f.Stat(); err != nil {
		return err
	}
	if same, _, err := s.isAt(h); err != nil || !same {
		return err // replaced or moved meanwhile: for the next time
	}
	return do()
}

// each calls f with the names in dir, which need not be there.
func (w *sweeper) each(ctx context.Context, dir string, f func(name string) error) error {
	names, err := w.list(dir, "")
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := f(name); err != nil {
			return err
		}
	}
	return nil
}

// list returns the names in dir that begin with prefix; none if there is no such directory, it cannot be read, or it is a link.
func (w *sweeper) list(dir, prefix string) ([]string, error) {
	if info, err := w.s.fs.Stat(dir); dir != w.s.root && (err != nil || !info.IsDir()) { // the root may be a link
		return nil, w.tolerated(err)
	}
	list, err := w.s.fs.ReadDir(dir)
	if err != nil {
		return nil, w.tolerated(err)
	}
	var names []string
	for _, e := range list {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// those removes what in dir has a name that begins with prefix.
func (w *sweeper) those(dir, prefix string) error {
	names, err := w.list(dir, prefix)
	for _, name := range names {
		if err == nil {
			err = w.remove(filepath.Join(dir, name))
		}
	}
	return err
}

// remove counts a piece of litter and takes it away.
func (w *sweeper) remove(path string) error {
	do := w.s.fs.Remove
	if w.dry {
		do = func(string) error { return nil }
	}
	n, err := w.s.bottomUp(path, do)
	if err != nil {
		return w.tolerated(err)
	}
	w.found.N++
	w.found.Bytes += n
	return nil
}

// tolerated is nil for what is gone, is no directory, or belongs to somebody else.
func (w *sweeper) tolerated(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) {
		return nil
	}
	return err
}
