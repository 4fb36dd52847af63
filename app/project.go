package app

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Project is what a directory belongs to: the git repository around it, else the directory itself.
type Project struct {
	// Root is its canonical path: the main work tree of the repository, also for a linked work tree; a bare
	// repository itself; the directory.
	Root string
	// ID stays when Root is renamed or moved within its file system, and is another one for every other directory
	// there ever was; "" where the file system does not tell.
	ID string
	// Tree is the work tree around the directory, where the project's files lie; else as Root.
	Tree string
	// Names are all that its sessions may bear in their headers: ID, Root, and what earlier versions and imports wrote.
	Names []string
}

// ProjectOf returns the project that dir, an absolute path, belongs to. It only looks at files, a few of them. A
// directory that is gone is its own project. What the files of a checkout say is not believed: a work tree belongs to
// another directory's repository only if that repository says so too.
func ProjectOf(dir string) Project {
	dir = filepath.Clean(dir)
	canon := canonical(dir)
	p := Project{Root: canon, Tree: canon}
	for d := canon; ; {
		if fi, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			p.Root, p.Tree = d, d
			if fi.Mode().IsRegular() {
				if repo := linkedTo(d); repo != "" {
					p.Root = rootOf(repo)
				}
			}
			break
		}
		if isRepository(d) {
			p.Root = rootOf(d)
			p.Tree = p.Root
			break
		}
		up := filepath.Dir(d)
		if up == d {
			break
		}
		d = up
	}
	p.ID = directoryID(p.Root)
	for _, name := range []string{p.ID, p.Root, p.Tree, canon, dir} {
		if name != "" && !slices.Contains(p.Names, name) {
			p.Names = append(p.Names, name)
		}
	}
	return p
}

// canonical resolves the links in dir, as far as it is there.
func canonical(dir string) string {
	if c, err := filepath.EvalSymlinks(dir); err == nil {
		return c
	}
	up := filepath.Dir(dir)
	if up == dir {
		return dir
	}
	return filepath.Join(canonical(up), filepath.Base(dir))
}

// rootOf returns the main work tree of a repository, the repository itself if it is bare.
func rootOf(repo string) string {
	if filepath.Base(repo) == ".git" {
		return filepath.Dir(repo)
	}
	return repo
}

// isRepository reports whether d is a git repository itself, as a bare one is.
func isRepository(d string) bool {
	for name, dir := range map[string]bool{"HEAD": false, "objects": true, "refs": true} {
		if fi, err := os.Stat(filepath.Join(d, name)); err != nil || fi.IsDir() != dir {
			return false
		}
	}
	return true
}

// linkedTo returns the repository that tree is a linked work tree of, "" if it is none. The file .git of the tree names
// a directory REPOSITORY/worktrees/NAME, and a file there names the tree: both must, for the tree's own may come with
// whatever was unpacked there.
func linkedTo(tree string) string {
	file := filepath.Join(tree, ".git")
	text, err := readSmall(file)
	to, ok := strings.CutPrefix(text, "gitdir: ")
	if err != nil || !ok || to == "" {
		return ""
	}
	admin, err := filepath.EvalSymlinks(against(tree, to))
	if err != nil {
		return ""
	}
	worktrees := filepath.Dir(admin)
	repo := filepath.Dir(worktrees)
	if filepath.Base(worktrees) != "worktrees" || !isRepository(repo) {
		return ""
	}
	back, err := readSmall(filepath.Join(admin, "gitdir"))
	if err != nil || back == "" {
		return ""
	}
	a, errA := os.Lstat(file)
	b, errB := os.Lstat(against(admin, back))
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		return ""
	}
	return repo
}

func against(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// readSmall reads a file of one line.
func readSmall(path string) (string, error) {
	f, err := openFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !fi.Mode().IsRegular() || fi.Size() > 8<<10 {
		return "", fmt.Errorf("%s is not a file of one line", path)
	}
	b := make([]byte, fi.Size())
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return "", err
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// formatID makes the ID of a directory from its number in the file system and the time of its making in nanoseconds: the
// number stays when it is renamed, and the time tells it from a later one that gets the number again. The device is left
// out: its number is another one after the next start.
func formatID(inode uint64, made int64) string {
	if made <= 0 {
		return ""
	}
	return fmt.Sprintf("dir:%x-%x", inode, made)
}
