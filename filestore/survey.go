package filestore

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Survey says what the store holds. It reads names and sizes, and one small file.
func (s *Store) Survey(ctx context.Context) (store.Survey, error) {
	v := store.Survey{Root: s.root}
	b, _, err := s.readFile(s.path(storeName), 1<<16)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if ids, err := s.ids("sessions", ""); err == nil && len(ids) > 0 {
			v.Bad = s.path(storeName) + " is gone: it is made anew with the next session that is written"
		}
	case err != nil:
		v.Bad = err.Error()
	default:
		f, bad := s.parseStoreFile(b)
		if bad != nil {
			v.Bad = bad.Error()
		} else {
			v.Format, v.Store = f.Strandline, f.Store
		}
	}
	if err := s.writable(); err != nil {
		v.ReadOnly = err.Error()
	}
	v.Locks = s.tryLocks()
	for _, part := range []string{"sessions", "trash", "blobs", "."} {
		if err := s.surveyDir(ctx, &v, part, s.path(part)); err != nil {
			return v, err
		}
	}
	return v, nil
}

// surveyDir counts what lies in dir, which is of part of the store. What goes away meanwhile is not counted.
func (s *Store) surveyDir(ctx context.Context, v *store.Survey, part, dir string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	list, err := s.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		name := e.Name()
		if info.IsDir() {
			if part == "trash" && dir == s.path(part) && !strings.HasPrefix(name, ".") {
				v.Trash.N++
			}
			if part != "." {
				if err := s.surveyDir(ctx, v, part, filepath.Join(dir, name)); err != nil {
					return err
				}
			}
			continue
		}
		if part == "trash" {
			v.Trash.Bytes += info.Size()
		}
		seg, isSeg := parseSegName(name)
		switch {
		case strings.HasPrefix(name, ".") || inTemporary(dir):
			count(&v.Litter, info)
		case part == "blobs" && isBlobFile(name):
			count(&v.Blobs, info)
		case part == "blobs":
			count(&v.BadBlobs, info)
		case filepath.Base(dir) == damagedName:
			count(&v.Aside, info)
		case part == "sessions" && isSeg:
			if count(&v.Segments, info); seg.packed() {
				count(&v.Packed, info)
			}
		}
	}
	return nil
}

func count(a *store.Amount, info fs.FileInfo) {
	a.N++
	a.Bytes += info.Size()
}

func inTemporary(dir string) bool { return strings.HasPrefix(filepath.Base(dir), newSession) }

func isBlobFile(name string) bool { return record.ValidBlobName("sha256-" + name) }

// tryLocks says why a second exclusive lock is not refused here; "" if it is. It changes nothing.
func (s *Store) tryLocks() string {
	const unknown = "nobody knows: "
	var open [2]vfs.File
	for i := range open {
		f, err := s.fs.OpenFile(s.path(storeName), vfs.ReadWrite)
		if errors.Is(err, fs.ErrNotExist) {
			return unknown + "nothing was ever stored here"
		}
		if err != nil {
			return unknown + err.Error()
		}
		defer f.Close()
		open[i] = f
	}
	if ok, err := open[0].TryLock(true); err != nil {
		return err.Error()
	} else if !ok {
		return "" // another asks at this moment
	}
	if ok, err := open[1].TryLock(true); err != nil {
		return err.Error()
	} else if ok {
		return "two could write one session: a second lock is not refused"
	}
	return ""
}

// EachBlob calls f with the blobs of the store.
func (s *Store) EachBlob(ctx context.Context, f func(name string, bytes int64) error) error {
	dirs, err := s.fs.ReadDir(s.path("blobs", "sha256"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if !d.IsDir() { // also a link
			continue
		}
		list, err := s.fs.ReadDir(s.path("blobs", "sha256", d.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range list {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil || !isBlobFile(e.Name()) {
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				continue
			}
			if err := f("sha256-"+e.Name(), info.Size()); err != nil {
				return err
			}
		}
	}
	return nil
}
