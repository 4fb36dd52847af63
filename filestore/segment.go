package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// attempt is a new segment on its way to its name. When a call fails behind the link, the name may
// exist; the attempt is kept and gone on with, so that its own inode there is no rival's.
type attempt struct {
	seg   segment
	end   store.Pos // behind its last record
	text  []byte    // the whole file
	tmp   string    // its first name, a claim; for a new session that of the directory
	file  *held     // path is the final one
	roll  bool      // this life has segments already
	tried bool      // it was linked, as far as anybody knows
}

// fence ends this life. What was acknowledged is common to it and to whoever took over.
func (w *writer) fence(detail string) error {
	w.gone = &store.FencedError{ID: w.id, At: w.acked, Detail: detail}
	return w.gone
}

// newAttempt builds, but does not place, a segment with the records text, behind at.
func (w *writer) newAttempt(at, end store.Pos, text []byte) error {
	if err := w.s.prepare(); err != nil {
		return err
	}
	n, err := w.s.nonce()
	if err != nil {
		return err
	}
	a := &attempt{end: end, roll: len(w.own) > 0}
	a.text = record.AppendSegment(nil, record.Segment{Session: w.id, First: at.Next, Prev: at.Link})
	head := int64(len(a.text))
	a.text = append(a.text, text...)
	path := filepath.Join(w.dir, segmentName(at.Next))
	a.seg = segment{owner: w.id, path: path, first: at.Next, end: end.Next, prev: at.Link, off: head, stop: int64(len(a.text))}
	a.seg.marks = marksOf(a.text[head:], at.Next, head)

	if w.lease == nil {
		return w.newSession(a, n)
	}
	a.tmp = filepath.Join(w.dir, claimName(at.Next, n))
	f, err := w.s.writeTemp(a.tmp, a.text, true)
	if err != nil {
		return err
	}
	a.file = &held{f: f, path: path}
	if a.file.info, err = f.Stat(); err != nil {
		f.Close()
		w.s.fs.Remove(a.tmp)
		return err
	}
	w.try = a
	return nil
}

// newSession builds the directory of a session that is not on disk yet.
func (w *writer) newSession(a *attempt, n string) (err error) {
	s := w.s
	head, err := record.AppendHeader(nil, w.hdr)
	if err != nil {
		return err
	}
	a.tmp = s.path("sessions", newSession+n)
	if err := s.fs.Mkdir(a.tmp); err != nil {
		return err
	}
	name := segmentName(a.seg.first)
	var lease, seg vfs.File
	defer func() {
		if err != nil {
			for _, f := range []vfs.File{lease, seg} {
				if f != nil {
					f.Close()
				}
			}
			s.removeAll(a.tmp)
		}
	}()
	if w.hdr.Parent != nil {
		if err := s.inherit(context.Background(), w.hdr, a.tmp); err != nil {
			return err
		}
	}
	// Both are written before the first is synced: on a journalling file system that is one commit.
	if lease, err = s.newFile(filepath.Join(a.tmp, headerName), head, true); err != nil {
		return err
	}
	if err = s.checkLocks(filepath.Join(a.tmp, headerName)); err != nil {
		return err
	}
	if a.end.Next > a.seg.first { // a fork may have nothing of its own: then it has no segment yet
		if seg, err = s.newFile(filepath.Join(a.tmp, name), a.text, true); err != nil {
			return err
		}
		if err = s.sync(seg.Sync); err != nil {
			return err
		}
	}
	if err = s.sync(lease.Sync); err != nil {
		return err
	}
	if err = s.syncDir(a.tmp); err != nil {
		return err
	}
	l := &held{f: lease, path: filepath.Join(w.dir, headerName)}
	if l.info, err = lease.Stat(); err != nil {
		return err
	}
	if seg != nil {
		a.file = &held{f: seg, path: a.seg.path}
		if a.file.info, err = seg.Stat(); err != nil {
			return err
		}
	}
	w.newLease, w.try = l, a
	return nil
}

// place brings w.try to its name, durably, and makes it the segment that is written. An error other
// than *FencedError and *ExistsError leaves w.try for the next call.
func (w *writer) place() error {
	a, s := w.try, w.s
	if w.lease == nil {
		return w.placeSession()
	}
	mine := false
	if a.tried { // and may have got so far
		var err error
		if mine, _, err = s.isAt(a.file); err != nil {
			return err
		}
	}
	if !mine {
		if err := w.mayLink(a); err != nil {
			return err
		}
		a.tried = true
		err := s.fs.Link(a.tmp, a.file.path)
		if errors.Is(err, vfs.ErrNotSupported) {
			err = s.fs.RenameNoReplace(a.tmp, a.file.path)
		}
		if err != nil {
			mine, _, serr := s.isAt(a.file) // the name is ours if it is our inode
			switch {
			case serr != nil:
				return errors.Join(err, serr)
			case mine:
			case errors.Is(err, fs.ErrExist):
				w.drop(a)
				return w.fence(fmt.Sprintf("%s is another's", filepath.Base(a.file.path)))
			case errors.Is(err, fs.ErrNotExist):
				// The claim was taken away, or the directory: by who went on, or claim again.
				if err := w.mayLink(a); err != nil {
					return err
				}
				w.drop(a)
				return err
			default:
				return s.readOnly(err)
			}
		}
	}
	if err := s.syncDir(w.dir); err != nil {
		return err
	}
	if a.roll { // its records may be told of at once: that needs a look behind what made them visible
		ok, why, err := w.look(a.end.Next, append(slices.Clone(w.own), a.file))
		if err != nil {
			return err
		}
		if !ok { // it keeps its name: another may have read it there
			w.drop(a)
			return w.fence(why)
		}
	}
	s.fs.Remove(a.tmp)
	if !a.roll {
		w.sweep()
	}
	w.adopt(a)
	if !a.roll {
		w.startJoin()
	}
	return nil
}

// mayLink returns nil if nobody has gone on with the session but this life. It is asked after a was made, under the
// name of a claim, and before a comes to its own name. Two cases are kept apart by that order. Who links behind
// this answer had a claim before it, or begins no earlier than a does: the claim is taken away here, or is
// another's for the same name. And who appends behind this answer sees the claim of a when it looks. So what comes to its
// name never has to be taken back, whoever dies when.
func (w *writer) mayLink(a *attempt) error {
	var ok bool
	var why string
	var err error
	if a.roll {
		ok, why, err = w.look(w.next.Next, w.own)
	} else {
		ok, why, err = w.unchanged(a)
	}
	if err != nil || ok {
		return err
	}
	w.drop(a)
	return w.fence(why)
}

// unchanged reports whether the log ends as it did when it was read.
func (w *writer) unchanged(a *attempt) (bool, string, error) {
	names, err := w.settle(a.seg.first)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, "", err
	}
	if w.tail == nil {
		if len(names) > 0 {
			return false, "another has made its first segment", nil
		}
		return true, "", nil
	}
	same, now, err := w.s.isAt(w.tail)
	switch {
	case err != nil:
		return false, "", err
	case !endsIn(w.dir, names, w.tail):
		return false, "another segment stands behind the one that was read", nil
	case !same:
		return false, "the segment before is another file than the one that was read", nil
	case now.Size() != w.tailSize:
		return false, "the segment before has grown since it was read", nil
	}
	return true, "", nil
}

// placeSession renames a new session's directory to its name.
func (w *writer) placeSession() error {
	a, s := w.try, w.s
	if err := s.unused(w.id); err != nil {
		if errors.Is(err, store.ErrExists) {
			w.drop(a)
		}
		return err
	}
	err := s.fs.RenameNoReplace(a.tmp, w.dir)
	if err != nil {
		mine, _, serr := s.isAt(w.newLease)
		switch {
		case serr != nil:
			return errors.Join(err, serr)
		case mine:
		case errors.Is(err, fs.ErrExist):
			w.drop(a)
			return &store.ExistsError{ID: w.id, Detail: "another process created it first"}
		default:
			w.drop(a)
			return s.readOnly(err)
		}
	}
	if err := s.syncDir(filepath.Dir(w.dir)); err != nil {
		return err
	}
	w.lease, w.newLease = w.newLease, nil
	if a.file == nil {
		w.try = nil
		return nil
	}
	w.adopt(a)
	return nil
}

// adopt makes a placed attempt the segment that this life writes.
func (w *writer) adopt(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.segs); n > 0 && w.segs[n-1].end > a.seg.first {
		w.segs = cut(w.segs, a.seg.first)
	}
	w.segs = append(w.segs, a.seg)
	w.own = append(w.own, a.file)
	w.next, w.synced = a.end, a.end
	w.forget()
	w.looked = a.roll // its place was looked at behind the link
	w.broken = false
	w.try = nil
	w.tail.close()
	w.tail = nil
}

// cut ends the last of segs before seq. It returns a new slice: views share the old one.
func cut(segs []segment, seq session.Seq) []segment {
	out := slices.Clone(segs)
	g := &out[len(out)-1]
	i := len(g.marks)
	for i > 0 && g.marks[i-1].seq >= seq {
		i--
	}
	// The bytes up to stop still hold whole records; nothing at or above end is asked for.
	g.end = seq
	if i < len(g.marks) {
		g.stop = g.marks[i].off
	}
	g.marks = g.marks[:i:i]
	return out
}

// drop forgets an attempt that did not come to its name.
func (w *writer) drop(a *attempt) {
	s := w.s
	a.file.close()
	if w.lease == nil {
		w.newLease.close()
		w.newLease = nil
		s.removeAll(a.tmp)
	} else {
		s.fs.Remove(a.tmp)
	}
	w.try = nil
}

// sweep removes what earlier lives of this session left under temporary names.
func (w *writer) sweep() { w.s.sweepDir(w.dir, newSegment) }

// sweepDir removes what has a name with the given beginning. What remains is skipped by readers.
func (s *Store) sweepDir(dir, prefix string) {
	list, err := s.fs.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), prefix) {
			s.removeAll(filepath.Join(dir, e.Name()))
		}
	}
}

// oneCall is a number of names that a directory lists in one system call, and so at one moment.
const oneCall = 100

// settle returns the segments of the session, after it has taken away every claim of another life to a name below
// end: who made one has not seen what is there now, and finds out when it cannot link. A claim that it could not
// take away any more was linked before: that segment is in what settle returns.
func (w *writer) settle(end session.Seq) ([]segName, error) {
	var mine map[string]bool
	if w.try != nil {
		mine = map[string]bool{w.try.tmp: true}
	}
	return w.s.settle(w.dir, end, mine)
}

// settle is that of a writer whose own claims are mine. Only what the first listing shows is taken away: a claim that
// is newer was made by somebody who has yet to find that the log has grown, or whose records are the same.
func (s *Store) settle(dir string, end session.Seq, mine map[string]bool) ([]segName, error) {
	list, err := s.fs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	again := len(list) > oneCall // a claim that got its name meanwhile may stand under neither
	for _, e := range list {
		first, ok := claimOf(e.Name())
		path := filepath.Join(dir, e.Name())
		if !ok || first >= end || mine[path] {
			continue
		}
		again = true
		if err := s.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if again {
		if list, err = s.fs.ReadDir(dir); err != nil {
			return nil, err
		}
	}
	names, _ := counting(list)
	return names, nil
}

// look reports whether the segments of this life are own and nobody has made one behind its first, and whether
// segment and lease are the files at their names. What this life has written below end cannot be passed over any
// more by anybody when the answer is yes.
func (w *writer) look(end session.Seq, own []*held) (bool, string, error) {
	s := w.s
	names, err := w.settle(end)
	if errors.Is(err, fs.ErrNotExist) {
		return false, "its directory is gone", nil
	}
	if err != nil {
		return false, "", err
	}
	if !endsIn(w.dir, names, own...) {
		return false, "another segment stands where only this life's should", nil
	}
	for _, h := range []*held{own[len(own)-1], w.lease} {
		same, _, err := s.isAt(h)
		if err != nil {
			return false, "", err
		}
		if !same {
			return false, filepath.Base(h.path) + " is another file than the one that is held", nil
		}
	}
	return true, "", nil
}

// endsIn reports whether own are the last of names.
func endsIn(dir string, names []segName, own ...*held) bool {
	n := len(names) - len(own)
	if n < 0 {
		return false
	}
	for i, h := range own {
		if names[n+i].in(dir) != h.path {
			return false
		}
	}
	return true
}

// marksOf makes the sparse index of whole records; the first has seq first and stands at off.
func marksOf(text []byte, first session.Seq, off int64) []mark {
	var marks []mark
	for seq, at := first, int64(0); ; seq++ {
		k := bytes.IndexByte(text[at:], '\n')
		if k < 0 {
			return marks
		}
		marks = addMark(marks, seq, off+at)
		at += int64(k) + 1
	}
}

func addMark(marks []mark, seq session.Seq, at int64) []mark {
	if n := len(marks); n == 0 || seq-marks[n-1].seq >= markRecords || at-marks[n-1].off >= markBytes {
		marks = append(marks, mark{seq, at})
	}
	return marks
}
