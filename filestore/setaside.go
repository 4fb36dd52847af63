package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/strandline-dev/strandline/vfs"
)

// How a repair keeps what it replaces: in damaged/, byte for byte.

// moveAside takes a name away that is not that of a segment with records.
func (r *repair) moveAside(path string) error {
	if _, err := r.s.fs.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	to := filepath.Join(r.dir, damagedName)
	if err := r.s.mkdirAll(to); err != nil {
		return err
	}
	for i := 1; ; i++ {
		name := keptAs(to, path, i)
		err := r.s.fs.RenameNoReplace(path, name)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return r.s.readOnly(err)
		}
		r.rep.Kept = append(r.rep.Kept, name)
		return r.s.syncDir(to)
	}
}

// keptAs is the i-th name for path in the directory to.
func keptAs(to, path string, i int) string {
	name := filepath.Base(path)
	if i > 1 {
		name = fmt.Sprintf("%d.%s", i, name)
	}
	return filepath.Join(to, name)
}

// keep gives a damaged file a second name in damaged/, or a copy there, and returns it. Whoever calls it syncs damaged/.
func (r *repair) keep(ctx context.Context, path string) (string, error) {
	to := filepath.Join(r.dir, damagedName)
	if err := r.s.mkdirAll(to); err != nil {
		return "", err
	}
	now, err := r.s.fs.Stat(path)
	if err != nil {
		return "", err
	}
	for i := 1; ; i++ {
		name := keptAs(to, path, i)
		if there, err := r.s.fs.Stat(name); err == nil {
			if r.s.fs.SameFile(there, now) {
				return name, nil
			}
			continue
		}
		err := r.s.fs.Link(path, name)
		if errors.Is(err, vfs.ErrNotSupported) {
			err = r.copy(ctx, path, name)
		}
		if !errors.Is(err, fs.ErrExist) {
			return name, r.s.readOnly(err)
		}
	}
}

// copy makes the file name with the bytes of path.
func (r *repair) copy(ctx context.Context, path, name string) error {
	n, err := r.s.nonce()
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(name), newSegment+n)
	from, err := r.s.fs.OpenFile(path, vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := r.s.fs.OpenFile(tmp, vfs.CreateAppend)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, io.LimitReader(&fileReader{from, 0}, 1<<62), make([]byte, window))
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = r.s.sync(to.Sync)
	}
	to.Close()
	if err == nil {
		err = r.s.fs.RenameNoReplace(tmp, name)
	}
	if err != nil {
		r.s.fs.Remove(tmp)
	}
	return err
}

// takeAway removes the name of a file that stands in damaged/ as well, or moves what is no file there.
func (r *repair) takeAway(src *source) error {
	if r.tail != nil && r.tail.path == src.path {
		r.tail.close()
		r.tail = nil
	}
	if !src.regular {
		return r.moveAside(src.path)
	}
	if err := r.s.fs.Remove(src.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r.s.readOnly(err)
	}
	return nil
}
