package filestore

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Verify is Read in which nothing is trusted: every link is computed and every blob is read.
func (s *Store) Verify(ctx context.Context, id session.ID) (*store.Snapshot, error) {
	if session.ValidID(id) != nil {
		return nil, &store.NotFoundError{ID: string(id)}
	}
	kin, err := s.kin(ctx) // before the log, which grows
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var marked []session.Seq
	healthy := s.healthy(ctx)
	l, err := s.scanSettled(ctx, id, func(raw *record.Raw) (string, error) {
		if string(raw.Type) == session.TypeLost {
			mu.Lock()
			marked = append(marked, raw.Seq)
			mu.Unlock()
		}
		return healthy(raw)
	})
	if err == nil {
		err = s.prove(ctx, l, kin)
	}
	if err != nil {
		return nil, err
	}
	snap := s.snapshot(l, id)
	slices.Sort(marked)
	for _, seq := range slices.Compact(marked) {
		snap.Marked = store.AddSeq(snap.Marked, seq)
	}
	snap.Kept, err = s.keptFiles(s.dir(id))
	return snap, err
}

// keptFiles returns the files that repairs of the session in dir set aside.
func (s *Store) keptFiles(dir string) ([]string, error) {
	list, err := s.entries(filepath.Join(dir, damagedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range list {
		if e.Name()[0] != '.' {
			out = append(out, filepath.Join(dir, damagedName, e.Name()))
		}
	}
	return out, err
}

// healthy returns a check of what a record's sum does not prove: that its data is valid, and that its blobs are there.
// It is safe for concurrent use, and looks at each blob once.
func (s *Store) healthy(ctx context.Context) func(*record.Raw) (string, error) {
	var mu sync.Mutex
	seen := map[string]string{}
	blob := func(name string) (string, error) {
		mu.Lock()
		why, ok := seen[name]
		mu.Unlock()
		if ok {
			return why, nil
		}
		_, err := s.GetBlob(ctx, name)
		switch {
		case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrDamaged):
			why = err.Error()
		case err != nil:
			return "", err
		}
		mu.Lock()
		defer mu.Unlock()
		seen[name] = why
		return why, nil
	}
	return func(raw *record.Raw) (why string, err error) {
		if err := raw.Valid(); err != nil {
			return err.Error(), nil
		}
		record.Blobs(raw.Data, func(name string) {
			if why == "" && err == nil {
				why, err = blob(name)
			}
		})
		return why, err
	}
}

// relink computes the links of the last segment of l, and takes the result if it is want: then only
// the stored link at its end is damaged.
func (s *Store) relink(ctx context.Context, l *logScan, want session.Link) (bool, error) {
	if len(l.segs) == 0 {
		return false, nil
	}
	seg := l.segs[len(l.segs)-1]
	link := seg.prev
	v := &view{s: s, id: l.hdr.ID, segs: l.segs, n: l.pos.Next}
	lost := false
	err := v.scan(ctx, len(l.segs)-1, seg.first, seg.end, func(raw *record.Raw) bool {
		calc, ok := raw.CheckLink(link)
		if stored, isLink := raw.Link(); !ok && lost && isLink {
			calc = stored
		}
		lost = string(raw.Type) == session.TypeLost
		link = calc
		return true
	})
	if err != nil || link != want {
		return false, err
	}
	l.pos.Link = want
	return true, nil
}
