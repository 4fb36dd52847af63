package filestore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Stat looks so far from the end of a log for its title, and for what loss of power left, when it has
// everything else.
const (
	titleWindow = 128 << 10
	tailWindow  = 64 << 10
)

const titleByUser = "user" // the source of a title that a person gave

// Stat returns what the ends of the session's files tell. Damage in the middle is found by Read.
func (s *Store) Stat(ctx context.Context, id session.ID) (store.Stat, error) {
	if session.ValidID(id) != nil {
		return store.Stat{}, &store.NotFoundError{ID: string(id)}
	}
	for {
		before := s.holder(id)
		st, err := s.stat(ctx, id)
		if err != nil {
			return st, err
		}
		after := s.holder(id)
		if before == nil && after == nil || before != nil && after != nil && before.Nonce == after.Nonce {
			if st.Holder == nil || after != nil {
				st.Holder = after
			}
			return st, nil
		}
	}
}

// stat is Stat without the announcement: Holder is set, without a name, if a segment is locked.
func (s *Store) stat(ctx context.Context, id session.ID) (store.Stat, error) {
	st := store.Stat{ID: id, State: store.StateOK}
	dir := s.dir(id)
	for try := 0; ; try++ {
		err := s.statFiles(ctx, &st, dir)
		switch {
		case err == nil:
			return st, nil
		case errors.Is(err, fs.ErrNotExist):
			if _, serr := s.fs.Stat(dir); errors.Is(serr, fs.ErrNotExist) {
				return st, &store.NotFoundError{ID: string(id)}
			}
			if try < 10 {
				continue // a listed segment is gone: list again
			}
		}
		if cause := context.Cause(ctx); cause != nil {
			return st, cause
		}
		return st, err
	}
}

func (s *Store) statFiles(ctx context.Context, st *store.Stat, dir string) error {
	h, bad, err := s.readHeader(dir, st.ID)
	if err != nil {
		return err
	}
	var fe *record.FormatError
	if errors.As(bad, &fe) {
		st.State, st.Reason = store.StateUnsupported, fe.Error()
		return nil
	}
	if bad != nil {
		st.State, st.Reason = store.StateDamaged, bad.Error()
		return nil
	}
	st.Header = h
	st.LastActivity = h.CreatedAt
	if h.Parent != nil {
		st.Pos = store.Pos{Next: h.SeedLength, Link: h.Parent.Link}
		st.LastActivity = max(st.LastActivity, h.Parent.Activity)
		if h.Parent.Activity != 0 {
			st.LastActivity = h.Parent.Activity
		}
	}
	st.Base = st.Pos.Next
	list, err := s.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	var names []session.Seq
	for _, e := range list {
		digits, isSeg := strings.CutSuffix(e.Name(), segSuffix)
		if !isSeg && e.Name() != headerName {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			st.State, st.Reason = store.StateDamaged, (&notFileError{e.Name(), info.Mode()}).Error()
			return nil
		}
		st.Bytes += info.Size()
		if n, err := strconv.ParseInt(digits, 10, 64); isSeg && err == nil && len(digits) == segDigits {
			names = append(names, session.Seq(n))
		}
	}
	if len(names) == 0 {
		if h.Parent == nil {
			st.State, st.Reason = store.StateDamaged, "it has no segment"
		}
		return nil
	}
	held, err := s.statTail(ctx, st, dir, names)
	if err != nil || !held {
		return err
	}
	return s.statBase(st, dir, names)
}

// statTail finds next seq, link, activity and title, reading backwards. held: the last segment is
// being written.
func (s *Store) statTail(ctx context.Context, st *store.Stat, dir string, names []session.Seq) (held bool, err error) {
	found := struct{ pos, activity, title bool }{}
	seen := int64(0)
	title, whole := "", true
	var newest *record.Raw                  // the last record, until its link was checked
	due, mark := session.None, session.None // what lies above the highest mark must be whole
	for i := len(names) - 1; i >= 0; i-- {
		last := i == len(names)-1
		path := filepath.Join(dir, segmentName(names[i]))
		limit := session.None
		if !last {
			limit = names[i+1]
		}
		clean, enough := true, false
		err := s.backward(path, func(f vfs.File) error {
			if !last {
				return nil
			}
			var err error
			held, err = f.HasWriter()
			return err
		}, func(line []byte, lf bool) bool {
			if ctx.Err() != nil {
				return false
			}
			seen += int64(len(line)) + 1
			raw, err := record.Parse(line)
			switch {
			case !lf && len(line) == 0:
				return true
			case !lf || err != nil && last && !found.pos && len(bytes.Trim(line, "\x00")) == 0:
				if last {
					st.State = store.StateTorn
				}
				return true
			case err != nil && bytes.HasPrefix(line, []byte(`{"strandline":`)):
				if h, err := record.ParseSegment(line); newest != nil && (err != nil || !follows(newest, h.Prev)) {
					clean = false
				}
				return false
			case err != nil:
				clean = !last || due != session.None && due <= mark
				return clean
			case limit != session.None && raw.Seq >= limit:
				return true
			}
			if last && (due == session.None || due > mark) {
				if due != session.None && raw.Seq != due {
					clean = false
					return false
				}
				due, mark = raw.Seq-1, max(mark, raw.Synced)
			}
			if newest != nil {
				l, ok := raw.Link()
				if clean = string(raw.Type) == session.TypeLost || ok && follows(newest, l); !clean {
					return false
				}
				newest = nil
			}
			if !found.pos {
				found.pos = true
				r := raw
				newest = &r
				st.Pos.Next = raw.Seq + 1
				st.Pos.Link, _ = raw.Link()
				st.Base = st.Pos.Next
			}
			if !found.title && string(raw.Type) == session.TypeTitle {
				var t session.Title
				if json.Unmarshal(raw.Data, &t) == nil && (t.Source == titleByUser || title == "") {
					title, found.title = t.Title, t.Source == titleByUser
				}
			}
			if !found.activity && mayBeActivity(raw.Type) && session.IsActivity(raw.Event()) {
				st.LastActivity, found.activity = raw.Time, true
			}
			enough = found.activity && (found.title || seen > titleWindow) && (!last || due <= mark || seen > tailWindow) && newest == nil
			return !enough
		})
		if err != nil {
			return held, err
		}
		if ctx.Err() != nil {
			return held, context.Cause(ctx)
		}
		if !clean || !found.pos {
			return held, s.statWhole(ctx, st)
		}
		if enough {
			whole = false
			break
		}
	}
	// A person's title stays whatever comes behind it: any other one counts if all was seen.
	if found.title || whole && st.Header.Parent == nil {
		st.Title = title
	}
	return held, nil
}

func follows(r *record.Raw, prev session.Link) bool {
	_, ok := r.CheckLink(prev)
	return ok
}

func mayBeActivity(t []byte) bool {
	switch string(t) {
	case session.TypeUserMessage, session.TypeAssistantMessage, session.TypeToolResult:
		return true
	}
	return false
}

// statWhole reads the whole log: its end is not what a healthy writer leaves.
func (s *Store) statWhole(ctx context.Context, st *store.Stat) error {
	l, err := s.scanSettled(ctx, st.ID, nil)
	if err != nil {
		return err
	}
	st.Pos, st.Base = l.pos, l.pos.Next
	switch {
	case len(l.damage) > 0:
		st.State, st.Reason = store.StateDamaged, (&store.DamagedError{ID: st.ID, Owner: l.owner, Ranges: l.damage}).Error()
	case l.unsupported != "":
		st.State, st.Reason = store.StateUnsupported, l.unsupported
	case l.torn != nil || l.lost != nil:
		st.State = store.StateTorn
	default:
		st.State = store.StateOK
	}
	v := &view{s: s, id: st.ID, segs: l.segs, n: l.pos.Next}
	own := min(l.hdr.SeedLength, v.n)
	byUser := false
	return v.each(own, v.n, func(_ *segment, raw *record.Raw) bool { // as stored: nothing of this is in a blob
		if mayBeActivity(raw.Type) && session.IsActivity(raw.Event()) {
			st.LastActivity = raw.Time
		}
		if string(raw.Type) == session.TypeTitle {
			var t session.Title
			if json.Unmarshal(raw.Data, &t) == nil && (t.Source == titleByUser || !byUser && own == 0) {
				st.Title, byUser = t.Title, t.Source == titleByUser
			}
		}
		return true
	})
}

// statBase looks for the oldest segment that somebody writes, who writes the last.
func (s *Store) statBase(st *store.Stat, dir string, names []session.Seq) error {
	st.Base, st.Holder = names[len(names)-1], &store.Holder{SessionID: st.ID}
	for i := len(names) - 2; i >= 0; i-- {
		held, err := s.hasWriter(filepath.Join(dir, segmentName(names[i])))
		if err != nil {
			return err
		}
		if !held {
			break
		}
		st.Base = names[i]
	}
	if st.State == store.StateTorn {
		st.State = store.StateOK // being written
	}
	return nil
}

// backward opens a file, passes it to first, then calls f with its lines, the last first, until it returns false. What stands
// behind the last line end comes first, with lf false, also if it is empty. A line is valid during
// the call.
func (s *Store) backward(path string, first func(vfs.File) error, f func(line []byte, lf bool) bool) error {
	file, err := s.fs.OpenFile(path, vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := first(file); err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	const step = 64 << 10
	lo := info.Size()
	var text []byte // file bytes lo.. that are not passed on yet
	lf := false
	for {
		k := bytes.LastIndexByte(text, '\n')
		if k >= 0 || lo == 0 {
			if !f(text[k+1:], lf) || k < 0 {
				return nil
			}
			text, lf = text[:k], true
			continue
		}
		n := min(max(step, int64(len(text))), lo)
		grown := make([]byte, int(n)+len(text))
		if _, err := file.ReadAt(grown[:n], lo-n); err != nil && err != io.EOF {
			return err
		}
		copy(grown[n:], text)
		text, lo = grown, lo-n
	}
}
