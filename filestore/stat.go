package filestore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"

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
	return s.statIn(ctx, id, s.dir(id))
}

// statIn is stat of a session whose directory is dir.
func (s *Store) statIn(ctx context.Context, id session.ID, dir string) (store.Stat, error) {
	return s.statLooked(ctx, id, dir, &looked{})
}

// looked is what a stat saw of a session's files from outside, each before what it tells of was read.
type looked struct {
	dir, header fs.FileInfo
	list        []fs.DirEntry // nil: it did not come so far
	last        fs.FileInfo   // of the last segment, or of the header where there is none
	name        string        // its name
}

// statLooked is statIn, and tells what it saw the last time that it tried.
func (s *Store) statLooked(ctx context.Context, id session.ID, dir string, l *looked) (store.Stat, error) {
	for try := 0; ; try++ {
		st := store.Stat{ID: id, State: store.StateOK}
		*l = looked{}
		err := s.statFiles(ctx, &st, dir, l)
		switch {
		case err == nil:
			return st, nil
		case errors.Is(err, errLifeEnded):
			if cause := context.Cause(ctx); cause != nil {
				return st, cause
			}
			continue
		case errors.Is(err, fs.ErrNotExist):
			if _, serr := s.fs.Stat(dir); errors.Is(serr, fs.ErrNotExist) {
				return st, s.absent(id)
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

func (s *Store) statFiles(ctx context.Context, st *store.Stat, dir string, l *looked) error {
	h, bad, err := s.lookHeader(dir, st.ID, l)
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
	names, _ := counting(list)
	l.name = lastOf(names)
	ends := len(names) > 0 && !names[len(names)-1].packed() // in a segment that can be read from its end
	for _, e := range list {
		if _, isSeg := parseSegName(e.Name()); !isSeg && e.Name() != headerName {
			continue
		}
		if ends && e.Name() == l.name && e.Type().IsRegular() {
			continue // it is opened
		}
		info := l.header
		if e.Name() != headerName {
			if info, err = e.Info(); err != nil {
				return err
			}
		}
		if !info.Mode().IsRegular() {
			st.State, st.Reason = store.StateDamaged, (&notFileError{e.Name(), info.Mode()}).Error()
			return nil
		}
		st.Bytes += info.Size()
		if e.Name() == l.name {
			l.last = info
		}
	}
	if l.list = list; !ends {
		return s.statWhole(ctx, st)
	}
	held, err := s.statTail(ctx, st, dir, names, l)
	if err != nil || !held {
		return err
	}
	return s.statBase(st, dir, names)
}

// statTail finds next seq, link, activity and title, reading backwards. held: the last segment is
// being written.
func (s *Store) statTail(ctx context.Context, st *store.Stat, dir string, names []segName, l *looked) (held bool, err error) {
	found := struct{ pos, activity bool }{}
	seen := int64(0)
	title := tailTitle{}
	var newest *record.Raw                  // the last record, until its link was checked
	due, mark := session.None, session.None // what lies above the highest mark must be whole
	left := int64(titleWindow)
	var t *tail
	defer func() { t.close() }()
	for i := len(names) - 1; i >= 0; i-- {
		last := i == len(names)-1
		limit := session.None
		if !last {
			limit = names[i+1].first
		}
		clean, enough, at := true, false, int64(0)
		t.close()
		if t, err = s.openTail(names[i].in(dir), func(f vfs.File) (err error) {
			if last {
				held, err = f.HasWriter()
			}
			return err
		}); err != nil {
			return held, err
		}
		if last {
			l.last = t.info
			st.Bytes += t.info.Size()
			var newer *record.FormatError
			if _, _, err := readSegmentHead(t.all()); errors.As(err, &newer) {
				st.State, st.Reason = store.StateUnsupported, newer.Error()
				if dir != s.dir(st.ID) {
					return false, nil
				}
				return false, s.statWhole(ctx, st)
			}
		}
		err := t.backward(func(line []byte, off int64, lf bool) bool {
			if ctx.Err() != nil {
				return false
			}
			seen, at = seen+int64(len(line))+1, off
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
				if r, err := record.Parse(bytes.Clone(line)); err == nil { // it outlives the line
					newest = &r
				}
				st.Pos.Next = raw.Seq + 1
				st.Pos.Link, _ = raw.Link()
				st.Base = st.Pos.Next
			}
			title.before(&raw)
			if !found.activity && mayBeActivity(raw.Type) && session.IsActivity(raw.Event()) {
				st.LastActivity, found.activity = raw.Time, true
			}
			enough = found.activity && (!last || due <= mark || seen > tailWindow) && newest == nil
			return !enough
		})
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return held, err
		}
		if !clean || !found.pos {
			if dir != s.dir(st.ID) {
				st.State, st.Reason = store.StateDamaged, "its end is not whole: what is wrong with it is found when it is restored"
				return held, nil
			}
			return held, s.statWhole(ctx, st)
		}
		if enough {
			// The rest is looked at for a title only.
			for left > 0 && !title.byUser {
				if left, err = title.search(t, at, limit, left); err != nil {
					return held, err
				}
				if i--; i < 0 || left <= 0 || title.byUser {
					break
				}
				t.close()
				if t, err = s.openTail(names[i].in(dir), nil); err != nil {
					return held, err
				}
				limit, at = names[i+1].first, t.info.Size()
			}
			break
		}
	}
	// A person's title stays whatever comes behind it: any other one counts if all was seen.
	if title.byUser || left > 0 && (st.Header.Parent == nil || st.Header.SeedLength == 0) {
		st.Title = title.text
	}
	return held, nil
}

// tailTitle is the title of a log that is read backwards.
type tailTitle struct {
	text          string
	found, byUser bool
}

// before takes in a record that stands before all that were seen.
func (t *tailTitle) before(raw *record.Raw) {
	if t.byUser || string(raw.Type) != session.TypeTitle {
		return
	}
	var v session.Title
	if json.Unmarshal(raw.Data, &v) == nil && (!t.found || v.Source == titleByUser) {
		t.text, t.found, t.byUser = v.Title, true, v.Source == titleByUser
	}
}

var titleType = []byte(`,"type":"` + session.TypeTitle + `",`)

// search looks for titles in the last of the bytes before end, of which it reads at most left. It returns what is left
// then: 0 if there is more that was not looked at. Only lines that may hold a title are parsed.
func (t *tailTitle) search(f *tail, end int64, limit session.Seq, left int64) (int64, error) {
	from := max(end-left, 0)
	text := f.text[:max(min(end-f.lo, int64(len(f.text))), 0)]
	if k := from - f.lo; k >= 0 {
		text = text[min(k, int64(len(text))):]
	} else {
		buf := windows.Get().(*[]byte)
		defer windows.Put(buf)
		n, err := f.ReadAt((*buf)[:end-from], from)
		if err != nil && err != io.EOF {
			return 0, err
		}
		text = (*buf)[:n]
	}
	var titles []record.Raw
	for {
		k := bytes.Index(text, titleType)
		if k < 0 {
			break
		}
		begin := bytes.LastIndexByte(text[:k], '\n') + 1
		n := bytes.IndexByte(text[k:], '\n')
		if n < 0 {
			break
		}
		if raw, err := record.Parse(text[begin : k+n]); err == nil && (limit == session.None || raw.Seq < limit) {
			titles = append(titles, raw)
		}
		text = text[k+n+1:]
	}
	for i := len(titles) - 1; i >= 0; i-- {
		t.before(&titles[i])
	}
	if from > 0 {
		return 0, nil
	}
	return left - end, nil
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
	return v.each(ctx, own, v.n, func(_ *segment, raw *record.Raw) bool { // as stored: nothing of this is in a blob
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

// errLifeEnded says that who wrote the last segment was gone before all its segments were seen.
var errLifeEnded = errors.New("the life that was looked at has ended")

// statBase looks for the oldest segment that somebody writes, who writes the last.
func (s *Store) statBase(st *store.Stat, dir string, names []segName) error {
	st.Base, st.Holder = names[len(names)-1].first, &store.Holder{SessionID: st.ID}
	for i := len(names) - 2; i >= 0; i-- {
		held, err := s.hasWriter(names[i].in(dir))
		if err != nil {
			return err
		}
		if held {
			st.Base = names[i].first
			continue
		}
		// Another life's, or this one's, which has ended since the last segment was looked at.
		if held, err = s.hasWriter(names[len(names)-1].in(dir)); err != nil {
			return err
		}
		if !held {
			return errLifeEnded
		}
		break
	}
	if st.State == store.StateTorn {
		st.State = store.StateOK // being written
	}
	return nil
}

// tail is a segment that is read from its end.
type tail struct {
	vfs.File
	info   fs.FileInfo
	pooled *[]byte
	room   []byte
	text   []byte // the file's bytes from lo on that were not passed on yet; it stands in room at at
	at     int
	lo     int64
}

// openTail opens a segment, passes it to first if that is not nil, and reads what its end is.
func (s *Store) openTail(path string, first func(vfs.File) error) (*tail, error) {
	f, err := s.openSegment(path)
	if err != nil {
		return nil, err
	}
	t := &tail{File: f, pooled: windows.Get().(*[]byte)}
	if first != nil {
		err = first(f)
	}
	if err == nil {
		t.info, err = f.Stat()
	}
	if err == nil && !t.info.Mode().IsRegular() {
		err = &notFileError{path, t.info.Mode()}
	}
	if err == nil {
		t.room = *t.pooled
		t.at, t.lo = len(t.room), t.info.Size()
		err = t.more(16 << 10)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// all reads the file, without asking for it again if all of it was read.
func (t *tail) all() io.ReaderAt {
	if t.lo == 0 {
		return bytes.NewReader(t.text)
	}
	return t.File
}

func (t *tail) close() {
	if t != nil && t.pooled != nil {
		t.File.Close()
		windows.Put(t.pooled)
		t.pooled = nil
	}
}

// more reads up to step bytes that stand before text.
func (t *tail) more(step int64) error {
	n := int(min(step, t.lo))
	if n > t.at { // no room: begin again at the end, of twice as much if it must be
		if len(t.text)+n > len(t.room)/2 {
			t.room = make([]byte, 2*(len(t.text)+n))
		}
		t.at = len(t.room) - len(t.text)
		copy(t.room[t.at:], t.text)
	}
	if n > 0 {
		if _, err := t.ReadAt(t.room[t.at-n:t.at], t.lo-int64(n)); err != nil && err != io.EOF {
			return err
		}
	}
	t.text, t.at, t.lo = t.room[t.at-n:t.at+len(t.text)], t.at-n, t.lo-int64(n)
	return nil
}

// backward calls f with the lines and their offsets, the last first, until it returns false. What stands behind the last
// line end comes first, with lf false, also if it is empty. A line is valid during the call.
func (t *tail) backward(f func(line []byte, off int64, lf bool) bool) error {
	for lf := false; ; {
		for k := bytes.LastIndexByte(t.text, '\n'); k >= 0; k = bytes.LastIndexByte(t.text, '\n') {
			if !f(t.text[k+1:], t.lo+int64(k)+1, lf) {
				return nil
			}
			t.text, lf = t.text[:k], true
		}
		if t.lo == 0 {
			f(t.text, 0, lf)
			return nil
		}
		if err := t.more(64 << 10); err != nil {
			return err
		}
	}
}
