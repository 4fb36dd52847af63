package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// A follower has to know which records may be absent later. They are those of a life that has been overtaken, or
// will be, and it never gives them out by three rules:
//
//   - It reads, then looks, as a writer does: what it read counts only if its file is still the one at its name,
//     and below the first seq of the next segment.
//   - Nor does it count at or above the seq that another living life has claimed, until that one's segment is there
//     or its claim is gone.
//   - Each record links to the one before it. If that fails, the whole log is judged, as a reader does it.
//
// A place in a log is a seq and a link, never an offset: when a file is gone or changed the seq is looked up again.

const (
	pollFirst  = 2 * time.Millisecond
	pollMost   = 250 * time.Millisecond
	newsEvents = 512    // given out at once, at most,
	newsBytes  = window // or so many bytes of records
	oddTries   = 10     // looks at a log that does not fit together, before it is judged
)

// Watch follows the log of id from the event at from on.
func (s *Store) Watch(ctx context.Context, id session.ID, from session.Seq) (store.Feed, error) {
	if session.ValidID(id) != nil {
		return nil, &store.NotFoundError{ID: string(id)}
	}
	if from < 0 {
		return nil, fmt.Errorf("filestore: seq %d: %w", from, session.ErrRange)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	h, bad, err := s.readHeader(s.dir(id), id)
	var fe *record.FormatError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &store.NotFoundError{ID: string(id)}
	case err != nil:
		return nil, err
	case errors.As(bad, &fe):
		return nil, &store.UnsupportedError{ID: id, Detail: fe.Error()}
	case bad != nil:
		return nil, headerDamaged(id, bad)
	}
	w := &feed{s: s, id: id, hdr: h, due: from, known: from == 0, certain: session.None} // the first record of all has the zero link before it
	if from >= h.SeedLength {
		return w, nil
	}
	ok, err := s.tied(ctx, h, from, h.SeedLength)
	if err != nil || ok {
		return w, err
	}
	l, err := s.scanSettled(ctx, id, nil)
	if err == nil && len(l.damage) > 0 {
		w.certain, w.beyond = l.pos.Next, &store.DamagedError{ID: id, Owner: l.owner, Ranges: l.damage}
	}
	return w, err
}

// feed is a follower of one log.
type feed struct {
	s   *Store
	id  session.ID
	hdr session.Header

	due   session.Seq  // of the next event
	gave  bool         // the one before it was given out
	link  session.Link // of the one before it,
	known bool         // if that is known
	lost  bool         // the one before it is a session/lost: the next link may fail to follow
	trust bool         // the next record counts, whatever its link says: a reader of the whole log takes it
	odd   int          // looks that found what does not fit together, in a row

	cur *piece

	certain session.Seq // what lies behind it of what a fork begins with is not the fork's,
	beyond  error       // for this reason; nil: all is

	told   bool          // that nothing is left, and
	holder *store.Holder // who held the session then
	stood  string        // how the files stood when the whole log had no more, though there is what does not fit
	err    error
}

// piece is a segment that is being read.
type piece struct {
	f     vfs.File
	info  fs.FileInfo
	path  string
	first session.Seq
	limit session.Seq // what is at or above it does not count; None: it is the last segment of the log
	off   int64       // of the first byte that is not read
	next  session.Seq // what is due there; None: the first record that comes tells
	seen  int64       // the size of the file when it was read last: there is nothing new in it
	stuck bool        // what stands at off is not a record of this log
	newer bool        // but one of a newer program
	asked bool        // the log was judged since
}

func (w *feed) Close() error {
	w.drop()
	if w.err == nil {
		w.err = fmt.Errorf("filestore: the feed of %s: %w", w.id, store.ErrClosed)
	}
	return nil
}

// drop makes the next step look up where due lies.
func (w *feed) drop() {
	if w.cur != nil {
		w.cur.f.Close()
		w.cur = nil
	}
}

// Next waits for events, or for another holder.
func (w *feed) Next(ctx context.Context) (store.News, error) {
	for wait := pollFirst; ; wait = min(2*wait, pollMost) {
		if err := context.Cause(ctx); err != nil {
			return store.News{}, err
		}
		if w.err != nil {
			return store.News{}, w.err
		}
		news, err := w.poll(ctx)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return store.News{}, cause
			}
			w.drop()
			w.err = err
			return store.News{}, err
		}
		if news != nil {
			return *news, nil
		}
		if err := w.s.opt.Wait(ctx, wait); err != nil {
			return store.News{}, err
		}
	}
}

// poll looks once; nil: there is nothing new.
func (w *feed) poll(ctx context.Context) (*store.News, error) {
	s := w.s
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("filestore: %w", store.ErrClosed)
	}
	holder := s.holder(w.id) // before the log: what is written now was written by it, or by one who is gone
	for {
		events, more, err := w.step(ctx)
		switch {
		case err != nil:
			return nil, err
		case len(events) > 0:
			return &store.News{Events: events}, nil
		case !more:
			return w.idle(ctx, holder)
		}
	}
}

// idle tells that nothing is left, unless that is known.
func (w *feed) idle(ctx context.Context, holder *store.Holder) (*store.News, error) {
	p := w.cur
	if holder == nil {
		held, err := w.written()
		if err != nil {
			return nil, err
		}
		if held { // without an announcement
			holder = &store.Holder{SessionID: w.id}
		}
	}
	if p != nil && p.stuck && !p.asked && (holder == nil || p.newer) {
		if err := w.judge(ctx); err != nil {
			return nil, err
		}
		p.asked = true
	}
	was := w.holder
	if w.told && (was == nil) == (holder == nil) && (was == nil || was.Nonce == holder.Nonce) {
		return nil, nil
	}
	w.told, w.holder = true, holder
	return &store.News{Holder: holder}, nil
}

// written reports whether somebody writes the last segment.
func (w *feed) written() (bool, error) {
	if p := w.cur; p != nil {
		if p.limit != session.None {
			return false, nil
		}
		return p.f.HasWriter()
	}
	names, err := w.s.segmentNames(w.s.dir(w.id))
	if err != nil || len(names) == 0 {
		return false, err
	}
	held, err := w.s.hasWriter(names[len(names)-1].in(w.s.dir(w.id)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it changes at this moment: the next look tells
	}
	return held, err
}

// step reads on. more: call again, there may be something.
func (w *feed) step(ctx context.Context) (events []session.Event, more bool, err error) {
	if w.cur == nil {
		if w.stood != "" {
			now, err := w.standing()
			if err != nil || now == w.stood {
				return nil, false, err
			}
			w.stood = ""
		}
		found, err := w.find(ctx)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errOdd) {
			return w.isOdd(ctx)
		}
		if err != nil || !found {
			return nil, false, err
		}
	}
	p := w.cur
	info, err := p.f.Stat()
	if err != nil {
		return nil, false, err
	}
	var links []session.Link
	if info.Size() < p.off {
		w.drop()
		return w.isOdd(ctx)
	}
	if info.Size() != p.seen {
		if events, links, more, err = w.read(ctx, p); err != nil {
			w.drop()
			if errors.Is(err, errOdd) {
				return w.isOdd(ctx)
			}
			return nil, false, err
		}
		if p.seen = info.Size(); more {
			p.seen = -1
		}
	}
	if p.limit != session.None {
		w.give(events, links)
		if w.due >= p.limit || len(events) == 0 && !more {
			w.drop()
		}
		if len(events) == 0 && !more { // it ends too early
			return w.isOdd(ctx)
		}
		return events, true, nil
	}
	here, below, settled, err := w.look(p)
	if err != nil {
		return nil, false, err
	}
	if !here {
		w.drop()
		return w.isOdd(ctx)
	}
	if w.gave && below == session.None && len(events) == 0 && !more && p.next != w.due { // it ends before what was given out
		w.drop()
		return w.isOdd(ctx)
	}
	if below != session.None { // what is due next stands elsewhere, or there is nothing yet
		n := sort.Search(len(events), func(i int) bool { return events[i].Seq >= below })
		events, links, more = events[:n:n], links[:n], settled
		w.drop()
	}
	w.give(events, links)
	return events, more, nil
}

// give remembers what is given out.
func (w *feed) give(events []session.Event, links []session.Link) {
	n := len(events)
	if n == 0 {
		return
	}
	w.due, w.link, w.known, w.gave = events[n-1].Seq+1, links[n-1], true, true
	w.lost = events[n-1].Type == session.TypeLost
	w.odd, w.told, w.trust = 0, false, false
}

// errOdd says that the log does not fit together: it changes at this moment, or it is damaged.
var errOdd = errors.New("the log does not fit together")

// isOdd counts what does not fit together, and judges the log when it does not pass. Where the whole log has no more,
// as when a loss of power explains what is there, nothing is left until the files change.
func (w *feed) isOdd(ctx context.Context) (none []session.Event, more bool, err error) {
	if w.odd++; w.odd < oddTries {
		return nil, true, nil
	}
	w.odd = 0
	stood, err := w.standing()
	if err != nil {
		return nil, false, err
	}
	again := w.trust
	if err := w.judge(ctx); err != nil {
		return nil, false, err
	}
	if w.trust {
		return nil, !again, nil
	}
	w.drop()
	w.stood = stood
	return nil, false, nil
}

// standing tells how the files of the session stand: who goes on with it changes that.
func (w *feed) standing() (string, error) {
	list, err := w.s.fs.ReadDir(w.s.dir(w.id))
	if errors.Is(err, fs.ErrNotExist) {
		return "", &store.NotFoundError{ID: string(w.id)}
	}
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, e := range list {
		if _, isSeg := parseSegName(e.Name()); !isSeg {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&b, e.Name(), info.Size(), info.ModTime().UnixNano())
	}
	b.WriteString(".") // never empty
	return b.String(), nil
}

// judge reads the whole log and returns why it cannot be followed on.
func (w *feed) judge(ctx context.Context) error {
	l, err := w.s.scanSettled(ctx, w.id, nil)
	if err != nil {
		return err
	}
	if w.gave {
		same := false
		if l.pos.Next >= w.due {
			v := &view{s: w.s, id: w.id, segs: l.segs, n: l.pos.Next}
			err := v.each(ctx, w.due-1, w.due, func(_ *segment, raw *record.Raw) bool {
				link, ok := raw.Link()
				same = link == w.link || !ok
				return false
			})
			if err != nil {
				return err
			}
		}
		if !same && (l.pos.Next >= w.due || len(l.damage) == 0) { // else it may be there, behind what is damaged
			return &store.ReplacedError{ID: w.id, Next: w.due}
		}
	}
	switch {
	case l.pos.Next > w.due:
		w.trust = true
		w.drop()
	case len(l.damage) > 0:
		return &store.DamagedError{ID: w.id, Owner: l.owner, Ranges: l.damage}
	case l.unsupported != "":
		return &store.UnsupportedError{ID: w.id, Detail: l.unsupported}
	}
	return nil
}

// find opens the segment that holds due, or will. found is false if there is none yet.
func (w *feed) find(ctx context.Context) (found bool, err error) {
	s := w.s
	if w.beyond != nil && w.due >= w.certain {
		return false, w.beyond
	}
	owner, dir, end := w.hdr.Origin(w.due), s.dir(w.id), session.None
	var names []segName
	if owner == w.id {
		if names, _, err = w.list(); err != nil {
			return false, err
		}
		if len(names) == 0 && w.hdr.MayBeEmpty() {
			return false, nil
		}
	} else {
		if dir, names, err = s.locate(owner, w.id); err != nil {
			return false, err
		}
		if end = spanEnd(w.hdr, w.due, session.None); w.beyond != nil {
			end = min(end, w.certain)
		}
	}
	i := holding(names, w.due)
	if i < 0 {
		return false, errOdd
	}
	n := names[i]
	limit := n.end
	if i+1 < len(names) {
		limit = names[i+1].first
	}
	if end != session.None && (limit == session.None || end < limit) {
		limit = end
	}
	if limit != session.None && w.due >= limit {
		return false, errOdd // nothing stands behind a packed one
	}
	p := &piece{path: n.in(dir), first: n.first, limit: limit, next: n.first, seen: -1}
	if p.f, err = s.openSegment(p.path); err != nil {
		return false, err
	}
	if !w.known && !w.trust && w.due == n.first {
		err = w.anchor(ctx)
	}
	if err == nil {
		err = w.enter(p, owner)
	}
	if err != nil {
		p.f.Close()
		return false, err
	}
	w.cur = p
	return true, nil
}

// anchor finds the link of the record before due, which lies in the segment before.
func (w *feed) anchor(ctx context.Context) error {
	owner := w.hdr.Origin(w.due - 1)
	dir, names, err := w.s.locate(owner, w.id)
	if err != nil {
		return err
	}
	i := holding(names, w.due-1)
	if i < 0 {
		return errOdd
	}
	return w.s.withText(names[i].in(dir), func(f vfs.File) error {
		w.known = false
		err := findRecord(ctx, f, w.due-1, func(raw *record.Raw) {
			w.link, w.known = raw.Link()
			w.lost = string(raw.Type) == session.TypeLost
		})
		if err == nil && !w.known {
			err = errOdd
		}
		return err
	})
}

// enter finds the place in p from which on it is to be read.
func (w *feed) enter(p *piece, owner session.ID) (err error) {
	if p.info, err = p.f.Stat(); err != nil {
		return err
	}
	head, n, err := readSegmentHead(p.f)
	if err != nil || head.Session != owner || head.First != p.first {
		return errOdd // a judge finds the words
	}
	p.off = n
	if w.due == p.first {
		if w.known && head.Prev != w.link && !w.trust {
			return errOdd
		}
		w.known, w.link = true, head.Prev
		return nil
	}
	if p.off, err = seekRecord(p.f, w.due-1); p.off != n {
		p.next = session.None
	}
	return err
}

// spanEnd returns where the part of the log that holds seq ends, none if that is the session's own: behind a fork
// point the files of the parent go on with events that are not of this log.
func spanEnd(h session.Header, seq, none session.Seq) session.Seq {
	if h.Parent != nil {
		for _, sp := range h.Parent.Spans {
			if seq < sp.End {
				return sp.End
			}
		}
	}
	return none
}

// read returns the next events of p, and their links. It leaves off before what is no record of the log. more: it
// left off before the end, because this is enough at once.
func (w *feed) read(ctx context.Context, p *piece) (events []session.Event, links []session.Link, more bool, err error) {
	buf := windows.Get().(*[]byte)
	defer windows.Put(buf)
	r := record.NewReader(&fileReader{p.f, p.off}, p.off, *buf)
	link, known, lost, trust := w.link, w.known, w.lost, w.trust
	p.stuck, p.newer, p.asked = false, false, false
	for size := 0; len(events) < newsEvents && size < newsBytes; {
		if ctx.Err() != nil {
			return nil, nil, false, context.Cause(ctx)
		}
		tok, err := r.Next()
		if err != nil {
			return nil, nil, false, err
		}
		raw := &r.Raw
		switch {
		case tok == record.End:
			return events, links, false, nil
		case tok == record.Broken: // without a line end it is on its way, or torn
			p.stuck, p.newer = r.Bad.LF && !r.Bad.Blank, r.Bad.Kind == record.Newer
			return events, links, false, nil
		case p.limit != session.None && raw.Seq >= p.limit:
			p.next = p.limit
			return events, links, false, nil
		case p.next == session.None && raw.Seq > w.due, p.next != session.None && raw.Seq != p.next:
			p.stuck = true
			return events, links, false, nil
		}
		stored, isLink := raw.Link()
		switch {
		case raw.Seq == w.due-1 && w.known && stored != w.link && isLink && !trust:
			return nil, nil, false, errOdd // another one than was given out
		case raw.Seq == w.due-1 && !w.known:
			link, known, lost = stored, isLink, string(raw.Type) == session.TypeLost
		case raw.Seq >= w.due:
			calc, ok := stored, true
			if known && !trust {
				if calc, ok = raw.CheckLink(link); !ok && lost && isLink {
					calc, ok = stored, true
				}
			}
			if !ok {
				if len(events) > 0 {
					return events, links, true, nil
				}
				return nil, nil, false, errOdd
			}
			ev, err := w.s.accepted(ctx, w.id, w.hdr.Origin(raw.Seq), raw)
			if err != nil && len(events) > 0 {
				return events, links, true, nil
			}
			if err != nil {
				return nil, nil, false, err
			}
			events, links = append(events, ev), append(links, calc)
			link, known, lost, trust = calc, isLink, ev.Type == session.TypeLost, false
			size += len(raw.Line())
		}
		if raw.Seq == w.due-1 && !w.known { // it is read again with what comes: only then its link is known
			p.next = session.None
			continue
		}
		p.next = raw.Seq + 1
		_, p.off = r.Rest()
	}
	return events, links, true, nil
}

// look reports whether p is still the file at its name, and below which seq its records count (None: all of them);
// settled: because the next segment begins there, not because it may.
func (w *feed) look(p *piece) (here bool, below session.Seq, settled bool, err error) {
	names, held, err := w.list()
	if err != nil {
		return false, 0, false, err
	}
	now, err := w.s.fs.Stat(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 0, false, nil
	}
	if err != nil {
		return false, 0, false, err
	}
	below = held
	if i := holding(names, p.first) + 1; i < len(names) && (held == session.None || names[i].first < held) {
		below, settled = names[i].first, true
	}
	return w.s.fs.SameFile(now, p.info), below, settled, nil
}

// list returns the segments of the session, and the lowest seq that a living life has claimed and may yet go on at
// (None: nobody). ErrNotFound says that the session is gone.
func (w *feed) list() (names []segName, held session.Seq, err error) {
	s := w.s
	dir := s.dir(w.id)
	held = session.None
	for again := true; ; {
		list, err := s.fs.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, 0, &store.NotFoundError{ID: string(w.id)}
		}
		if err != nil {
			return nil, 0, err
		}
		names, _ := counting(list)
		gone := false
		for _, e := range list {
			first, ok := claimOf(e.Name())
			if !ok || slices.ContainsFunc(names, func(n segName) bool { return n.first == first }) {
				continue
			}
			living, err := s.hasWriter(filepath.Join(dir, e.Name()))
			switch {
			case errors.Is(err, fs.ErrNotExist):
				gone = true // taken away, or it has come to its name
			case err != nil:
				return nil, 0, err
			case living && (held == session.None || first < held):
				held = first
			}
		}
		switch {
		case gone:
			held = session.None
		case again && len(list) > oneCall: // a claim that got its name meanwhile may stand under neither
			again = false
		default:
			return names, held, nil
		}
	}
}
