package filestore

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Sizes measures each session, those in the trash included, in the order of their directories. Which blobs a
// session needs alone is known only when everything was read once.
func (s *Store) Sizes(ctx context.Context, step func(i, n int)) ([]store.Footprint, error) {
	places, err := s.all()
	if err != nil {
		return nil, err
	}
	known := map[string][]string{}
	owners := map[string]int{} // places that name a blob
	blobs := make([]map[string]int64, len(places))
	out := make([]store.Footprint, len(places))
	for i, p := range places {
		if step != nil {
			step(i+1, len(places))
		}
		out[i] = store.Footprint{ID: p.id, Trashed: p.trashed}
		err := s.eachFile(ctx, p.dir, func(_ string, f vfs.File) error {
			info, err := f.Stat()
			if err == nil {
				out[i].Own += info.Size()
			}
			return err
		})
		names := map[string]bool{}
		if err == nil {
			err = s.named(ctx, p.dir, names)
		}
		if err == nil {
			err = s.reach(names, known)
		}
		if err == nil {
			blobs[i], err = s.here(names)
		}
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist): // deleted or moved meanwhile
			out[i].ID = ""
		case err != nil:
			out[i].Unread = filepath.Base(p.dir) + ": " + err.Error()
		}
		for name := range blobs[i] {
			owners[name]++
		}
	}
	kept := out[:0]
	for i := range out {
		for name, n := range blobs[i] {
			a := &out[i].Shared
			if owners[name] == 1 {
				a = &out[i].Alone
			}
			a.N++
			a.Bytes += n
		}
		if session.ValidID(out[i].ID) == nil {
			kept = append(kept, out[i])
		}
	}
	return kept, nil
}
