package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/vfs"
)

// A repair puts marks in the place of events, and the links behind them stay as they are: a checkpoint of the log before it has
// the position of one of the log behind it. Who holds a fork while its parent is repaired still knows what the parent said before,
// and may write that down at any time later. So a repair leaves a scar, durably, before it replaces anything: an empty file with a name
// of its own in repaired/, beside the segments, which goes where they go. A checkpoint bears the scars that its maker saw before
// it read the log, and is one of no log that has others.
const repairedDir = "repaired"

// scar leaves one in the part of a log that r is about to change.
func (r *repair) scar() error {
	n, err := r.s.nonce()
	if err != nil {
		return err
	}
	dir := filepath.Join(r.dir, repairedDir)
	if err := r.s.mkdirAll(dir); err != nil {
		return r.s.readOnly(err)
	}
	f, err := r.s.fs.OpenFile(filepath.Join(dir, n), vfs.CreateAppend)
	if err != nil {
		return r.s.readOnly(err)
	}
	return errors.Join(f.Close(), r.s.syncDir(dir))
}

// copyScars gives the segments in to, which are made of those in from, what repairs have left there. The directory to is not synced.
func (s *Store) copyScars(from, to string) error {
	list, err := s.entries(filepath.Join(from, repairedDir))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(to, repairedDir)
	if err := s.fs.Mkdir(dir); err != nil {
		return err
	}
	for _, e := range list {
		f, err := s.fs.OpenFile(filepath.Join(dir, e.Name()), vfs.CreateAppend)
		if err != nil {
			return err
		}
		f.Close()
	}
	return s.syncDir(dir)
}

// scars returns, for each part of a log and last for what the session logged itself, what tells the scars of that part and of those before
// it from all others: "" without any. coming says that the session is not there yet. Whoever goes by them asks before
// it reads the log. Nil: they cannot be read.
func (s *Store) scars(h session.Header, coming bool) []string {
	var out, all []string
	part := func(dirs ...string) bool {
		for _, dir := range dirs {
			list, err := s.entries(filepath.Join(dir, repairedDir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false
			}
			for _, e := range list {
				all = append(all, e.Name())
			}
		}
		id := ""
		if len(all) > 0 {
			slices.Sort(all)
			all = slices.Compact(all)
			sum := sha256.Sum256([]byte(strings.Join(all, "/")))
			id = hex.EncodeToString(sum[:8])
		}
		out = append(out, id)
		return true
	}
	if h.Parent != nil {
		for _, sp := range h.Parent.Spans {
			// Wherever the part lies: that of another place only makes a checkpoint one of another log.
			dirs := append(s.homes(sp.ID, h.ID), s.dir(sp.ID)) // again: it may have come back
			if coming {
				dirs = append(dirs, s.homes(sp.ID, h.Parent.ID)[0], filepath.Join(s.trash(h.Parent.ID), inheritedDir, string(sp.ID)))
			}
			if !part(dirs...) {
				return nil
			}
		}
	}
	own := []string{s.dir(h.ID)}
	if coming {
		own = nil
	}
	if !part(own...) {
		return nil
	}
	return out
}

// sameScars reports whether what w has read of its beginning is what a scan of a child of it would read now.
func (w *writer) sameScars(child *logScan) bool {
	now := child.scars
	if now == nil {
		now = w.s.scars(child.hdr, child.coming)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(child.hdr.Parent.Spans)
	return n <= min(len(w.scars), len(now)) && slices.Equal(w.scars[:n], now[:n])
}
