package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

const (
	inheritedDir = "inherited"
	handingOver  = ".give-"
)

// bequeath puts the segments of id in from, as far as they hold records below end, into dir/inherited/<id>, whole
// and durable or not at all. What lies behind end is not handed over: it is another's, and may be deleted.
func (s *Store) bequeath(ctx context.Context, from string, id session.ID, end session.Seq, dir string) error {
	names, err := s.segmentNames(from)
	if err != nil {
		return err
	}
	n, err := s.nonce()
	if err != nil {
		return err
	}
	parent := filepath.Join(dir, inheritedDir)
	to := filepath.Join(parent, string(id))
	if had, err := s.segmentNames(to); err == nil && len(had) > 0 {
		return s.syncDir(parent) // of a purge that did not come to its end, or of a repair: it is what the fork reads
	}
	// The directory itself must be there: what was meanwhile moved away does not come into being again.
	if err := s.fs.Mkdir(parent); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.syncDir(dir); err != nil {
		return err
	}
	s.sweepDir(parent, handingOver) // of a purge that died
	tmp := filepath.Join(parent, handingOver+n)
	if err := s.fs.Mkdir(tmp); err != nil {
		return err
	}
	for _, g := range heritage(names, end) {
		if err = context.Cause(ctx); err == nil {
			err = s.handOver(ctx, from, tmp, g)
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		err = s.copyScars(from, tmp)
	}
	if err == nil {
		err = s.syncDir(tmp)
	}
	if err == nil {
		err = s.setAsideOf(to, dir)
	}
	if err == nil {
		_, err = s.removeAll(to) // an empty one
	}
	if err == nil {
		err = s.fs.RenameNoReplace(tmp, to)
	}
	if err != nil {
		s.removeAll(tmp)
		return err
	}
	return s.syncDir(parent)
}

// setAsideOf moves what a repair that died set aside of a part of the session in dir, and in whose place nothing stands, to damaged/<id> there.
func (s *Store) setAsideOf(part, dir string) error {
	from, to := filepath.Join(part, damagedName), filepath.Join(dir, damagedName)
	if list, err := s.entries(from); len(list) == 0 {
		return unlessBad(err)
	}
	if err := s.mkdirAll(to); err != nil {
		return err
	}
	for i := 1; ; i++ {
		err := s.fs.RenameNoReplace(from, keptAs(to, part, i))
		if err == nil {
			err = s.syncDir(to)
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

// portion is a segment as far as it is somebody's: its records below end.
type portion struct {
	segName
	below session.Seq
}

// heritage returns the portions of the segments names that make up a log below end.
func heritage(names []segName, end session.Seq) []portion {
	var out []portion
	for i, n := range names {
		if n.first >= end {
			break
		}
		p := portion{n, end}
		if i+1 < len(names) {
			p.below = min(end, names[i+1].first)
		}
		out = append(out, p)
	}
	return out
}

// handOver gives a segment in from a second name in to, if all of it is below g.below, else copies what is, as plain
// text. Either is synced when it returns; the name is not.
func (s *Store) handOver(ctx context.Context, from, to string, g portion) error {
	return s.withText(g.in(from), func(f vfs.File) error {
		cut, size, err := portionEnd(ctx, f, g.below)
		if err != nil {
			return err
		}
		if cut == size {
			if err := s.sync(f.SyncData); err != nil {
				return err
			}
			if err := s.fs.Link(g.in(from), g.in(to)); !errors.Is(err, vfs.ErrNotSupported) {
				return err
			}
		}
		var line []byte // in the place of that of f
		off := int64(0)
		if g.packed() {
			head, n, err := readSegmentHead(f)
			if err == nil && head.Starts == nil { // its name will not tell any more
				head.Starts = clipSpans(startsOf(head, g.segName), g.first, g.below)
				line, off = record.AppendSegment(nil, head), n
			} else if _, bad := errors.AsType[*record.Error](err); err != nil && !bad {
				return err
			}
		}
		return s.copyFile(f, filepath.Join(to, segmentName(g.first)), line, off, cut)
	})
}

// portionEnd returns where in a segment the records below end end, and the size of the file. Of a segment that is
// damaged there it is more rather than less.
func portionEnd(ctx context.Context, f vfs.File, end session.Seq) (cut, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	size = info.Size()
	off, err := seekRecord(f, end)
	if _, ok := errors.AsType[*record.Error](err); ok {
		return size, size, nil // its first line is bad: nobody reads it, and nothing of it is cut off
	}
	if err != nil {
		return 0, 0, err
	}
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	r := record.NewReader(&fileReader{f, off}, off, *buf)
	for {
		tok, err := r.Next()
		switch {
		case err != nil:
			return 0, 0, err
		case tok == record.End:
			return size, size, nil
		case tok == record.Good && r.Raw.Seq >= end:
			return r.At, size, nil
		case tok == record.Good && r.Raw.Seq == end-1:
			return r.At + int64(len(r.Raw.Line())) + 1, size, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return 0, 0, cause
		}
	}
}

// copyFile makes a file of line and the bytes of f from at on, below n, synced.
func (s *Store) copyFile(f vfs.File, to string, line []byte, at, n int64) error {
	out, err := s.fs.OpenFile(to, vfs.CreateAppend)
	if err != nil {
		return err
	}
	defer out.Close()
	write := func(b []byte) error {
		m, err := out.Write(b)
		return errors.Join(err, shortWrite(m, len(b)))
	}
	if len(line) > 0 {
		if err := write(line); err != nil {
			return err
		}
	}
	buf := make([]byte, min(n, 1<<20))
	for at < n {
		k, err := f.ReadAt(buf[:min(n-at, int64(len(buf)))], at)
		if err != nil && (err != io.EOF || k == 0) {
			return err
		}
		if err := write(buf[:k]); err != nil {
			return err
		}
		at += int64(k)
	}
	return s.sync(out.Sync)
}

// inherit makes the directory of a fork that is not at its name yet hold what is in no other place that it will
// be looked for: the parts of purged sessions that its parent was handed. Whoever calls it holds store.lock, so
// that no purge takes away what it found.
func (s *Store) inherit(ctx context.Context, h session.Header, dir string) error {
	for _, sp := range h.Parent.Spans {
		from, err := s.handedDown(sp.ID, h.Parent.ID) // before all others, as the parent reads it
		if err != nil {
			return err
		}
		if from == "" {
			if from, _, err = s.locate(sp.ID, h.ID); err != nil {
				return err
			}
			if from != "" {
				continue
			}
		}
		if from == "" {
			return &store.DamagedError{ID: h.ID, Owner: sp.ID, Ranges: []store.Range{{File: s.dir(sp.ID), First: 0, Last: sp.End - 1,
				Detail: fmt.Sprintf("the session %s, which holds its beginning, is not in this store", sp.ID)}}}
		}
		if err := s.bequeath(ctx, from, sp.ID, sp.End, dir); err != nil {
			return err
		}
	}
	return nil
}

// handedDown finds the part of id that parent was handed, in the trash too; "" if there is none.
func (s *Store) handedDown(id, parent session.ID) (string, error) {
	for _, home := range []string{s.dir(parent), s.trash(parent)} {
		dir := filepath.Join(home, inheritedDir, string(id))
		names, err := s.segmentNames(dir)
		if err == nil && len(names) > 0 {
			return dir, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", nil
}
