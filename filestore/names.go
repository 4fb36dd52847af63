package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// A blob is needed while something names it: a record of a session that is stored or in the trash, bytes that repair
// set aside, what a fork was handed, what somebody is about to store; or the text of a string that is kept as a blob
// itself and is needed. The name counts wherever it stands. What is named by more than is needed is only kept longer.

// named collects the names of blobs that stand in the files of dir.
func (s *Store) named(ctx context.Context, dir string, into map[string]bool) error {
	add := func(name string) { into[name] = true }
	info, err := s.fs.Stat(dir)
	if err == nil && !info.IsDir() {
		if !info.Mode().IsRegular() {
			return nil
		}
		return s.withText(dir, func(f vfs.File) error { return namesIn(f, add) })
	}
	for try := 0; err == nil; try++ {
		// A file that was listed and is gone has another name by now, or its records are in another file.
		err = s.eachFile(ctx, dir, func(path string, f vfs.File) error {
			err := namesIn(f, add)
			// The first is a copy of what is elsewhere; of the second a repair has said what is lost.
			if err != nil || hidden(filepath.Base(path)) || filepath.Base(filepath.Dir(path)) == damagedName {
				return err
			}
			return undamaged(f)
		})
		if _, gone := s.fs.Stat(dir); !errors.Is(err, fs.ErrNotExist) || gone != nil || try == 100 {
			break
		}
		err = nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// namesIn calls f with every name of a blob in a file.
func namesIn(file vfs.File, f func(name string)) error {
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	kept := 0 // the end of the window before: a name may lie across
	for off := int64(0); ; {
		n, err := file.ReadAt((*buf)[kept:], off)
		if err != nil && err != io.EOF {
			return err
		}
		text := (*buf)[:kept+n]
		if ferr := record.FindBlobNames(text, func(name string, _ int) error { f(name); return nil }); ferr != nil {
			return ferr
		}
		if err == io.EOF || n == 0 {
			return nil
		}
		off += int64(n)
		kept = copy(*buf, text[max(0, len(text)-blobNameLen+1):])
	}
}

var blobNameLen = len(record.BlobName(nil))

// reach adds to names what the strings among them name in turn. known keeps what a blob was found to name.
func (s *Store) reach(names map[string]bool, known map[string][]string) error {
	todo := slices.Sorted(maps.Keys(names))
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		inner, ok := known[name]
		if !ok {
			err := s.withText(s.blobPath(name), func(f vfs.File) error {
				if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
					return err // it was put there in the place of a blob
				}
				first := make([]byte, 1)
				if n, err := f.ReadAt(first, 0); n == 0 || first[0] != '"' {
					if err == io.EOF {
						err = nil
					}
					return err // bytes that somebody attached: nobody reads names in them
				}
				return namesIn(f, func(n string) { inner = append(inner, n) })
			})
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			known[name] = inner
		}
		for _, n := range inner {
			if !names[n] {
				names[n] = true
				todo = append(todo, n)
			}
		}
	}
	return nil
}

// here keeps of names those whose blobs are in the store, with their sizes.
func (s *Store) here(names map[string]bool) (map[string]int64, error) {
	out := map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if in, err := s.fs.Stat(filepath.Dir(s.blobPath(name))); err == nil && !in.IsDir() {
			continue // a link: what it leads to is not of this store
		}
		info, err := s.fs.Stat(s.blobPath(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			out[name] = info.Size()
		}
	}
	return out, nil
}

// home is a place in which a session lies.
type home struct {
	id      session.ID // "" of what somebody is making or has left
	dir     string
	trashed bool
}

// all lists the places that may name blobs, and sessions; what a purge is about to remove is not among them.
func (s *Store) all() ([]home, error) {
	var out []home
	for _, where := range []string{"sessions", "trash"} {
		list, err := s.fs.ReadDir(s.path(where))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			h := home{dir: s.path(where, e.Name()), trashed: where == "trash"}
			if h.trashed && hidden(e.Name()) {
				continue
			}
			if session.ValidID(session.ID(e.Name())) == nil {
				h.id = session.ID(e.Name())
			}
			out = append(out, h)
		}
	}
	return out, nil
}

// shared tells, for the blobs in want, which of the places name them. It stops with the first place that it cannot read.
func (s *Store) shared(ctx context.Context, places []home, want map[string]int64) (map[string][]session.ID, error) {
	by := map[string][]session.ID{}
	known := map[string][]string{}
	for _, p := range places {
		names := map[string]bool{}
		err := s.named(ctx, p.dir, names)
		if err == nil {
			err = s.reach(names, known)
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if err != nil {
			return nil, &unsureError{filepath.Base(p.dir), err}
		}
		for name := range names {
			if _, ok := want[name]; ok {
				by[name] = append(by[name], p.id)
			}
		}
	}
	return by, nil
}

// understood returns an error if one of kin is of a newer format: nobody here knows how that names its blobs.
func understood(kin []relative) error {
	for i := range kin {
		if fe, ok := errors.AsType[*record.FormatError](kin[i].lost); ok {
			return &unsureError{string(kin[i].id), fmt.Errorf("%w: %w", store.ErrUnsupported, fe)}
		}
	}
	return nil
}

// readable is understood for the segments of all sessions: a header alone does not say of what format they are.
func (s *Store) readable(places []home) error {
	for _, p := range places {
		dirs := []string{p.dir}
		if list, err := s.entries(filepath.Join(p.dir, inheritedDir)); err == nil {
			for _, e := range list {
				dirs = append(dirs, filepath.Join(p.dir, inheritedDir, e.Name()))
			}
		}
		for _, dir := range dirs {
			names, err := s.segmentNames(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			for _, n := range names {
				err := s.withText(n.in(dir), func(f vfs.File) error { _, _, err := readSegmentHead(f); return err })
				if fe, ok := errors.AsType[*record.FormatError](err); ok {
					return &unsureError{string(p.id), fmt.Errorf("%w: %s: %w", store.ErrUnsupported, n, fe)}
				}
			}
		}
	}
	return nil
}

// unsureError says that nobody can tell what a place names.
type unsureError struct {
	what string
	err  error
}

func (e *unsureError) Error() string {
	return "what " + e.what + " names cannot be read: " + e.err.Error()
}

func (e *unsureError) Unwrap() error { return e.err }

// sharedBlobs is shared in the words of the seam.
func (s *Store) sharedBlobs(ctx context.Context, dir string, others []home) ([]store.SharedBlob, error) {
	names := map[string]bool{}
	if err := s.named(ctx, dir, names); err != nil {
		return nil, err
	}
	if err := s.reach(names, map[string][]string{}); err != nil {
		return nil, err
	}
	mine, err := s.here(names)
	if err != nil || len(mine) == 0 {
		return []store.SharedBlob{}, err
	}
	by, err := s.shared(ctx, others, mine)
	if err != nil {
		return nil, err
	}
	out := []store.SharedBlob{}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		ids := slices.DeleteFunc(by[name], func(id session.ID) bool { return id == "" })
		slices.Sort(ids)
		out = append(out, store.SharedBlob{Name: name, Bytes: mine[name], By: ids})
	}
	return out, nil
}
