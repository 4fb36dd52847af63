package builtin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/strandline-dev/strandline/tool"
)

// workspace is the directories in which the file tools work; the first is the workspace proper.
type workspace struct {
	areas []area
}

type area struct {
	path string // as it was given, clean
	real string // without symbolic links
}

// place is a path inside an area. Its root has to be closed.
type place struct {
	root *os.Root
	area area
	rel  string // slash or OS separators, "." for the area itself
	name string // for people and models: relative in the workspace, else absolute
}

func (p *place) close() { p.root.Close() }

// within returns path relative to the area, if it lies in it by name.
func (a area) within(path string) (string, bool) {
	for _, base := range []string{a.path, a.real} {
		if rel, err := filepath.Rel(base, path); err == nil && filepath.IsLocal(rel) {
			return rel, true
		}
	}
	return "", false
}

func (w *workspace) abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(w.areas[0].path, path)
}

// display returns the name under which a path is shown and matched by rules: clean, relative in the
// workspace, else absolute.
func (w *workspace) display(path string) string {
	abs := w.abs(path)
	if rel, ok := w.areas[0].within(abs); ok {
		return filepath.ToSlash(rel)
	}
	return abs
}

// find returns the place of a path that a model wrote. What it returns is not proof against links:
// root is.
func (w *workspace) find(path string) (*place, error) {
	if strings.ContainsRune(path, 0) {
		return nil, tool.Errorf(tool.CodeInvalidArgs, "the path holds a zero byte")
	}
	abs := w.abs(path)
	for _, a := range w.areas {
		rel, ok := a.within(abs)
		if !ok {
			continue
		}
		root, err := os.OpenRoot(a.real)
		if err != nil {
			return nil, fmt.Errorf("cannot open the workspace: %w", err)
		}
		return &place{root: root, area: a, rel: rel, name: w.display(path)}, nil
	}
	return nil, w.outside(path)
}

func (w *workspace) outside(path string) error {
	return tool.Errorf(CodeOutside, "%s is outside the workspace; file tools only work inside %s", path, w.list())
}

func (w *workspace) list() string {
	var dirs []string
	for _, a := range w.areas {
		dirs = append(dirs, a.path)
	}
	return strings.Join(dirs, ", ")
}

// follow replaces a path that ends in a link, or goes through one that os.Root does not follow
// because it is absolute, by what it stands for, if that is in the same area. Its last element need
// not exist.
func (p *place) follow() error {
	full := filepath.Join(p.area.real, p.rel)
	real, err := filepath.EvalSymlinks(full)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := os.Lstat(full); lerr == nil {
			return tool.Errorf(CodeNotFound, "%s is a symbolic link to nothing", p.name)
		}
		if real, err = filepath.EvalSymlinks(filepath.Dir(full)); err == nil {
			real = filepath.Join(real, filepath.Base(full))
		}
	}
	if err != nil {
		return p.explain(err)
	}
	rel, ok := p.area.within(real)
	if !ok {
		return p.escapes()
	}
	p.rel = rel
	return nil
}

func (p *place) escapes() error {
	return tool.Errorf(CodeOutside, "%s leads outside the workspace through a symbolic link; file tools only work inside %s", p.name, p.area.path)
}

// explain makes an error for the model of one from the file system: without paths that it did not
// name, with a code, with what to do.
func (p *place) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case isEscape(err):
		return p.escapes()
	case errors.Is(err, fs.ErrNotExist):
		return tool.Errorf(CodeNotFound, "%s does not exist; use ls or glob to see what does", p.name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: permission denied", p.name)
	}
	var coded *tool.Error
	if errors.As(err, &coded) {
		return err
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	var linkErr *os.LinkError
	if errors.As(err, &linkErr) {
		err = linkErr.Err
	}
	return fmt.Errorf("%s: %w", p.name, err)
}

// isEscape recognises the error of os.Root, which std does not export.
func isEscape(err error) bool {
	return strings.Contains(err.Error(), "path escapes from parent")
}

// stat is Stat through links, also absolute ones that stay in the area.
func (p *place) stat() (fs.FileInfo, error) {
	fi, err := p.root.Stat(p.rel)
	if err != nil && isEscape(err) {
		if err := p.follow(); err != nil {
			return nil, err
		}
		fi, err = p.root.Stat(p.rel)
	}
	if err != nil {
		return nil, p.explain(err)
	}
	return fi, nil
}

// openFile opens a regular file for reading: nothing that blocks, nothing that is not a file.
func (p *place) openFile() (*os.File, fs.FileInfo, error) {
	fi, err := p.stat()
	if err != nil {
		return nil, nil, err
	}
	if fi.Mode().IsRegular() {
		f, err := p.root.OpenFile(p.rel, os.O_RDONLY|openNonblock, 0)
		if err != nil {
			return nil, nil, p.explain(err)
		}
		if fi, err = f.Stat(); err == nil && fi.Mode().IsRegular() {
			return f, fi, nil
		}
		f.Close()
		return nil, nil, tool.Errorf(CodeNotText, "%s is not a regular file", p.name)
	}
	if fi.IsDir() {
		return nil, nil, tool.Errorf(CodeNotText, "%s is a directory; use ls to list it", p.name)
	}
	return nil, nil, tool.Errorf(CodeNotText, "%s is not a regular file", p.name)
}

// maxWhole is the largest file that is read as a whole (edit, grep), in bytes.
const maxWhole = 32 << 20

// readWhole returns the content of a text file.
func (p *place) readWhole() ([]byte, fs.FileInfo, error) {
	f, fi, err := p.openFile()
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if fi.Size() > maxWhole {
		return nil, nil, fmt.Errorf("%s is too large for this tool (%d bytes, the limit is %d); use bash", p.name, fi.Size(), maxWhole)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxWhole+1))
	if err != nil {
		return nil, nil, p.explain(err)
	}
	if isBinary(data) {
		return nil, nil, p.binary()
	}
	return data, fi, nil
}

func (p *place) binary() error {
	return tool.Errorf(CodeNotText, "%s is a binary file; use bash with a program that understands it", p.name)
}

// sniff is how much of a file is looked at to tell text from binary, in bytes.
const sniff = 8 << 10

func isBinary(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), sniff)], 0) >= 0
}

// replace writes a file as a whole: into a new file beside it, which then takes its name. The mode of
// an existing file is kept, directories are made. A link at the end of the path is followed.
func (p *place) replace(data []byte) (created bool, err error) {
	fi, err := p.root.Lstat(p.rel)
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 || err != nil && isEscape(err) {
		if err := p.follow(); err != nil {
			return false, err
		}
		fi, err = p.root.Lstat(p.rel)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		created = true
		if err := p.root.MkdirAll(filepath.Dir(p.rel), 0o777); err != nil {
			return false, p.explain(err)
		}
	case err != nil:
		return false, p.explain(err)
	case fi.IsDir():
		return false, tool.Errorf(CodeNotText, "%s is a directory", p.name)
	case !fi.Mode().IsRegular():
		return false, tool.Errorf(CodeNotText, "%s is not a regular file", p.name)
	}
	if !created {
		// A rename asks only the directory: the file's own permission is asked here.
		f, err := p.root.OpenFile(p.rel, os.O_WRONLY|openNonblock, 0)
		if err != nil {
			return false, p.explain(err)
		}
		f.Close()
	}
	f, temp, err := p.tempFile(created)
	if err != nil {
		return false, p.explain(err)
	}
	_, err = f.Write(data)
	if err == nil && !created {
		err = f.Chmod(fi.Mode().Perm())
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = p.root.Rename(temp, p.rel)
	}
	if err != nil {
		_ = p.root.Remove(temp)
		return false, p.explain(err)
	}
	return created, nil
}

func (p *place) tempFile(created bool) (*os.File, string, error) {
	mode := fs.FileMode(0o600) // of the file to come, which gets its old mode when it is complete
	if created {
		mode = 0o666 // the umask decides
	}
	dir, base := filepath.Split(p.rel)
	if len(base) > 200 {
		base = base[:200]
	}
	for n := 0; ; n++ {
		name := filepath.Join(dir, fmt.Sprintf(".%s.strand%d", base, n))
		f, err := p.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) && n < 100 {
			continue
		}
		return f, name, err
	}
}

// editsInside reports whether writing to path changes an ordinary file of the workspace proper:
// inside it also behind links, and not in a .git directory, whose files are run by git.
func (w *workspace) editsInside(path string) bool {
	rel, ok := w.areas[0].within(w.abs(path))
	if !ok {
		return false
	}
	// The part that exists may have links in it; the rest is taken as it is.
	have, rest := filepath.Join(w.areas[0].real, rel), ""
	for {
		real, err := filepath.EvalSymlinks(have)
		if err == nil {
			rel, ok = w.areas[0].within(filepath.Join(real, rest))
			break
		}
		if _, lerr := os.Lstat(have); lerr == nil || !errors.Is(err, fs.ErrNotExist) {
			return false // a link to nowhere, or something that cannot be looked at
		}
		have, rest = filepath.Dir(have), filepath.Join(filepath.Base(have), rest)
	}
	if !ok {
		return false
	}
	for e := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		if strings.EqualFold(e, ".git") {
			return false
		}
	}
	return true
}
