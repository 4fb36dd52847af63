package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

var _ store.Checker = (*Store)(nil)

// Check looks at the header, at every segment and at those of the sessions that the log begins in. What it saw is a
// line for each file: name, inode, size and change time, the own last segment at the end.
func (s *Store) Check(ctx context.Context, h session.Header, was string) (now string, same bool, err error) {
	if err := context.Cause(ctx); err != nil {
		return "", false, err
	}
	var b strings.Builder
	owners := []session.ID{}
	if h.Parent != nil {
		for _, sp := range h.Parent.Spans {
			owners = append(owners, sp.ID)
		}
	}
	for _, owner := range append(owners, h.ID) {
		dir, names := s.dir(h.ID), []segName(nil)
		if owner == h.ID {
			names, err = s.segmentNames(dir)
		} else {
			dir, names, err = s.locate(owner, h.ID)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return "", false, nil // it changes at this moment, or is not whole: reading it says more
		}
		if err != nil {
			return "", false, err
		}
		files := []string{headerName}
		for _, n := range names {
			files = append(files, n.String())
		}
		for _, name := range files {
			if owner != h.ID && name == headerName {
				continue
			}
			info, err := s.fs.Stat(dir + "/" + name)
			if err != nil {
				return "", false, nil
			}
			inode, changed, ok := vfs.Identity(info)
			if !ok {
				return "", false, nil
			}
			fmt.Fprintf(&b, "%s/%s %d %d %d\n", owner, name, inode, info.Size(), changed)
		}
	}
	now = b.String()
	return now, was != "" && grownFrom(was, now), nil
}

// grownFrom reports whether now is was with something added: more files, or a longer last one.
func grownFrom(was, now string) bool {
	if strings.HasPrefix(now, was) {
		return true
	}
	cut := strings.LastIndexByte(strings.TrimSuffix(was, "\n"), '\n') + 1
	if !strings.HasPrefix(now, was[:cut]) {
		return false
	}
	line, _, _ := strings.Cut(now[cut:], "\n")
	var a, b struct {
		name                 string
		inode, size, changed int64
	}
	_, err := fmt.Sscan(was[cut:], &a.name, &a.inode, &a.size, &a.changed)
	_, err2 := fmt.Sscan(line, &b.name, &b.inode, &b.size, &b.changed)
	return err == nil && err2 == nil && a.name == b.name && a.inode == b.inode && a.size < b.size
}
