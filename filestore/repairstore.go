package filestore

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

var _ store.StoreRepairer = (*Store)(nil)

// idInText finds the id of a store in what is left of its file.
var idInText = regexp.MustCompile(`"store":"([0-9a-f]{24})"`)

// RepairStore makes strandline.json anew where it cannot be read.
func (s *Store) RepairStore(ctx context.Context, dryRun bool) (store.Repair, error) {
	var rep store.Repair
	path := s.path(storeName)
	bad := func() (string, []byte, error) {
		b, _, err := s.readFile(path, 1<<16)
		if errors.Is(err, fs.ErrNotExist) {
			ids, err := s.ids("sessions", "")
			if err != nil || len(ids) == 0 {
				return "", nil, err
			}
			return path + " is gone", nil, nil
		}
		if err == nil {
			_, err = s.parseStoreFile(b)
		}
		_, isBad := errors.AsType[*store.StoreFileError](err)
		_, isNone := errors.AsType[*notFileError](err)
		if isBad || isNone {
			return err.Error(), b, nil
		}
		return "", nil, err
	}
	why, _, err := bad()
	if err != nil || why == "" {
		return rep, err
	}
	rep.Damage = []store.Range{{File: path, First: session.None, Last: session.None, Detail: why}}
	if err := s.nothingNewer(ctx); err != nil {
		return rep, err
	}
	aside := func(i int) string { return keptAs(s.root, filepath.Join(s.root, "damaged-"+storeName), i) }
	if dryRun {
		rep.Written = []string{path}
		return rep, nil
	}
	if err := s.fs.Writable(s.root); err != nil {
		return rep, &store.ReadOnlyError{Path: s.root, Cause: err}
	}
	f, err := s.fs.OpenFile(s.path(lockName), vfs.OpenOrCreate)
	if err != nil {
		return rep, s.readOnly(err)
	}
	defer f.Close()
	if err := s.waitLock(ctx, f, true); err != nil {
		return rep, err
	}
	why, b, err := bad() // somebody else may have done it
	if err != nil || why == "" {
		return store.Repair{}, err
	}
	id := ""
	if m := idInText.FindSubmatch(b); m != nil {
		id = string(m[1])
	} else if id, err = s.nonce(); err != nil {
		return rep, err
	} else {
		rep.Guessed = []string{"store: a new id"}
	}
	for i := 1; ; i++ {
		err := s.fs.RenameNoReplace(path, aside(i))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			rep.Kept = []string{aside(i)}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return rep, s.readOnly(err)
		}
		break
	}
	rep.Written = []string{path}
	return rep, s.makeStoreFile(id)
}

// nothingNewer refuses a store that has a session of a newer format: it may be of one itself.
func (s *Store) nothingNewer(ctx context.Context) error {
	places, err := s.all()
	if err != nil {
		return err
	}
	for _, p := range places {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if p.id == "" {
			continue
		}
		_, bad, err := s.readHeader(p.dir, p.id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if fe, ok := errors.AsType[*record.FormatError](bad); ok {
			return &store.UnsupportedError{ID: p.id, Detail: fe.Error() + "; so its store may be of a newer format, and " + storeName + " is not made anew"}
		}
	}
	return nil
}
