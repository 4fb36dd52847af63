package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Collect removes the blobs that nothing in the store names, and what makers that died have left. It holds store.lock exclusively: who puts a blob, or
// forks, waits; and it waits for those who did. What a name stands in does not matter: a record, a torn tail, bytes
// that were set aside, a temporary file. Where something cannot be read as it was written nobody knows what it
// names, and nothing is removed.
func (s *Store) Collect(ctx context.Context, opt store.CollectOptions) (store.Collected, error) {
	var c store.Collected
	if err := s.writable(); err != nil {
		return c, err
	}
	if _, err := s.fs.Stat(s.path(storeName)); errors.Is(err, fs.ErrNotExist) {
		return c, nil // nothing was ever stored
	}
	lock, err := s.lockForCollect(ctx, opt.Wait)
	if err != nil {
		return c, err
	}
	defer lock.Close()
	if c.Litter, err = s.sweepLitter(ctx, opt.DryRun); err != nil {
		return c, err
	}
	names, err := s.allNamed(ctx, &c, opt.Step)
	if err != nil {
		return c, err
	}
	var doomed []string
	err = s.EachBlob(ctx, func(name string, bytes int64) error {
		a := &c.Kept
		if !names[name] && len(c.Unread) == 0 {
			a, doomed = &c.Removed, append(doomed, name)
		} else if !names[name] {
			a = &c.Unsure
		}
		a.N++
		a.Bytes += bytes
		return nil
	})
	if err != nil || opt.DryRun {
		return c, err
	}
	dir := ""
	for _, name := range doomed {
		path := s.blobPath(name)
		if d := filepath.Dir(path); dir != d && dir != "" {
			if err := s.syncDir(dir); err != nil {
				return c, err
			}
		}
		dir = filepath.Dir(path)
		if err := s.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return c, s.readOnly(err)
		}
	}
	if dir == "" {
		return c, nil
	}
	return c, s.syncDir(dir)
}

// lockForCollect takes store.lock exclusively. Who has put a blob and not named it yet is not waited for for ever.
func (s *Store) lockForCollect(ctx context.Context, patience time.Duration) (vfs.File, error) {
	busy := fmt.Errorf("filestore: somebody is about to name values that it put into the store: %w", store.ErrBusy)
	wait, cancel := context.WithTimeoutCause(ctx, max(patience, time.Millisecond), busy)
	defer cancel()
	return s.lockStore(wait, true)
}

// allNamed returns the blobs that anything in the store names, and enters in c what cannot be read.
func (s *Store) allNamed(ctx context.Context, c *store.Collected, step func(i, n int)) (map[string]bool, error) {
	names, known := map[string]bool{}, map[string][]string{}
	seen := map[string]bool{}
	unread := func(where, why string) { c.Unread = append(c.Unread, store.Unread{Where: where, Why: why}) }
	for again := true; again; { // a session may be moved from one place to another that was listed before
		again = false
		places, err := s.all()
		if err != nil {
			return nil, err
		}
		for i, p := range places {
			if seen[p.dir] {
				continue
			}
			seen[p.dir], again = true, true
			if step != nil {
				step(i+1, len(places))
			}
			err := s.named(ctx, p.dir, names)
			why := ""
			if err == nil && p.id != "" {
				why, err = s.unsound(ctx, p.id, p.dir)
			}
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case errors.Is(err, fs.ErrNotExist): // moved: it is listed where it is now
			case err != nil:
				unread(filepath.Base(p.dir), err.Error())
			case why != "":
				unread(filepath.Base(p.dir), why)
			}
		}
	}
	if err := s.reach(names, known); err != nil {
		unread("blobs", err.Error())
	}
	return names, nil
}

// unsound says why the files of a session in dir do not tell all that they told when they were written; "" if they do.
func (s *Store) unsound(ctx context.Context, id session.ID, dir string) (string, error) {
	h, bad, err := s.readHeader(dir, id)
	if err != nil || bad != nil {
		if bad != nil {
			return bad.Error(), nil
		}
		return "", err
	}
	if h.Parent != nil {
		for _, sp := range h.Parent.Spans {
			if at, _, err := s.locate(sp.ID, id); err != nil || at == "" {
				return fmt.Sprintf("the session %s, which holds its beginning, is not in this store", sp.ID), err
			}
		}
	}
	if why, err := s.unsoundLog(ctx, id, dir, false); why != "" || err != nil {
		return why, err
	}
	list, err := s.fs.ReadDir(filepath.Join(dir, inheritedDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, e := range list {
		owner := session.ID(e.Name())
		if session.ValidID(owner) != nil {
			continue
		}
		if why, err := s.unsoundLog(ctx, owner, filepath.Join(dir, inheritedDir, e.Name()), true); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

// unsoundLog says what is wrong with the segments of id in dir. part: they are what a purged parent left, which may end anywhere.
func (s *Store) unsoundLog(ctx context.Context, id session.ID, dir string, part bool) (string, error) {
	for try := 0; ; try++ {
		why, err := s.unsoundSegments(ctx, id, dir, part)
		if !errors.Is(err, fs.ErrNotExist) || try == 10 {
			return why, err
		}
	}
}

func (s *Store) unsoundSegments(ctx context.Context, id session.ID, dir string, part bool) (string, error) {
	names, err := s.segmentNames(dir)
	if err != nil {
		return "", err
	}
	due := session.None
	for i, n := range names {
		limit := n.end
		if i+1 < len(names) {
			limit = names[i+1].first
		}
		sc, err := s.scanSegment(ctx, id, n.in(dir), n.first, limit, pass{}, nil)
		if err != nil {
			return "", err
		}
		if sc.headErr != nil {
			return sc.path + ": " + sc.headErr.Error(), nil
		}
		if due != session.None && due != n.first {
			return fmt.Sprintf("%s: the records from %d on are missing before it", sc.path, due), nil
		}
		due = n.first
		for k := range sc.items {
			it := &sc.items[k]
			switch {
			case it.good && it.run.first == due:
				due = it.run.end
			case it.good:
				return fmt.Sprintf("%s: the records from %d on are missing", sc.path, due), nil
			case limit != session.None || it.bad.LF && !it.bad.Blank:
				return fmt.Sprintf("%s at byte %d: %s", sc.path, it.bad.Offset, it.describe()), nil
			}
		}
		if limit == session.None && due == n.first && !part {
			return sc.path + ": no record is left in it", nil
		}
		if limit != session.None && due < limit {
			return fmt.Sprintf("%s: the records from %d on are missing", sc.path, due), nil
		}
	}
	if n := len(names); n > 0 && names[n-1].packed() && !part {
		return names[n-1].in(dir) + ": the segment behind it is gone", nil
	}
	return "", nil
}
