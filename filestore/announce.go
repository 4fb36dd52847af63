package filestore

import (
	"bytes"
	"context"
	"io/fs"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

func (s *Store) livePath(id session.ID) string { return s.path("live", string(id)+".json") }

// announcement tells people who holds a session. It decides nothing: failing to make one is no
// failure to hold.
type announcement struct {
	f    vfs.File
	info fs.FileInfo
	name string
}

// announce writes and locks live/<id>.json for the holder of the lease.
func (s *Store) announce(id session.ID, since time.Time) *announcement {
	nonce, err := s.nonce()
	if err != nil {
		return nil
	}
	o := s.opt
	b, err := json.Marshal(store.Holder{Nonce: nonce, PID: o.PID, Started: o.ProcessStart, Host: o.Host, Program: o.Program,
		Since: since, SessionID: id})
	if err != nil {
		return nil
	}
	name := s.livePath(id)
	s.fs.Remove(name) // of a dead holder: only one has the lease
	f, err := s.fs.OpenFile(name, vfs.CreateAppend)
	if err != nil {
		return nil
	}
	a := &announcement{f: f, name: name}
	if _, err = f.Write(append(b, '\n')); err == nil {
		var ok bool
		if ok, err = f.TryLock(true); ok && err == nil {
			a.info, err = f.Stat()
		}
	}
	if err != nil {
		s.fs.Remove(name)
		f.Close()
		return nil
	}
	return a
}

// withdraw removes the announcement, if the file at its name is still this one.
func (s *Store) withdraw(a *announcement) {
	if a == nil {
		return
	}
	if now, err := s.fs.Stat(a.name); err == nil && s.fs.SameFile(now, a.info) {
		s.fs.Remove(a.name)
	}
	a.f.Close()
}

// holder returns the announcement of id, if it can be believed: somebody holds its lock, and it reads
// the same before and after that was seen.
func (s *Store) holder(id session.ID) *store.Holder {
	f, err := s.fs.OpenFile(s.livePath(id), vfs.ReadOnly)
	if err != nil {
		return nil
	}
	defer f.Close()
	before, _, err := readAll(f, s.livePath(id), 1<<16)
	if err != nil {
		return nil
	}
	if held, err := f.HasWriter(); err != nil || !held {
		return nil
	}
	after, _, err := readAll(f, s.livePath(id), 1<<16)
	if err != nil || !bytes.Equal(before, after) {
		return nil
	}
	var h store.Holder
	if json.Unmarshal(before, &h) != nil || h.SessionID != id {
		return nil
	}
	return &h
}

// busy makes the error for a session that somebody else writes. A holder that has just taken the
// lease gets a moment to say who it is.
func (s *Store) busy(ctx context.Context, id session.ID) error {
	for end := s.patience; ; end -= 2 * time.Millisecond {
		if h := s.holder(id); h != nil || end <= 0 {
			return &store.BusyError{ID: id, Holder: h}
		}
		if err := vfs.Wait(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}
