package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// What the processes of a script do, and how the explorer knows it. A process is a function of what it was told, so its code
// is run for what it has not been told before, and remembered: a point is a process at a call, and leads to another point by
// each answer.

// actor is the code of a process, as it runs.
type actor struct {
	s     *script
	n     int
	name  string
	plain bool

	code *code
	dead bool

	local  uint64 // all that it was told
	syncs  int
	random int // bytes of it that were used
	files  []*explorerFile
	w      *writer // of a life

	beliefs
	acked [][2]session.Seq // since its last call
	wrong string           // the same
}

// beliefs is what a process takes for true.
type beliefs struct {
	owner    bool              // it is between open and close, and was not fenced
	segments map[string]string // which it linked, and the keys of their inodes
	fenced   bool
	refused  bool
	done     bool
	keeps    bool // it did what it does to the session as a whole
	err      error
	seen     []session.Event // by a reader
	child    session.ID
}

// outcome folds what counts of a process that has ended.
func (b *beliefs) outcome() uint64 {
	return mix("ended", b.done, b.fenced, b.refused, b.keeps, b.err != nil, errors.Is(b.err, store.ErrDamaged), errors.Is(b.err, store.ErrBusy),
		b.seen != nil, digest(b.seen), string(b.child))
}

// point is a process at a call, or at its end.
type point struct {
	n     int
	local uint64
	call  call
	ended bool
	beliefs
	from *point // one way to it
	by   answer
	next map[uint64]edge
}

// edge is what an answer makes of a process at a point.
type edge struct {
	to    *point
	acked [][2]session.Seq
	wrong string
}

// code is a process that runs, held at a point. Its calls come from more than one goroutine, one after the other.
type code struct {
	a       *actor
	at      *point
	calls   chan call // closed at its end
	answers chan answer
}

// begin runs a process to its first call.
func (e *explorer) begin(n int) *code {
	c := &code{calls: make(chan call), answers: make(chan answer)}
	c.a = &actor{s: e.s, n: n, name: string(rune('A' + n)), plain: e.plain, code: c}
	go func() {
		defer close(c.calls)
		e.s.lives[n](c.a)
	}()
	due := <-c.calls
	if e.roots[n] == nil {
		e.roots[n] = &point{n: n, call: due, local: mix("begin"), next: map[uint64]edge{}}
	}
	c.at = e.roots[n]
	return c
}

// resume answers the call at which a process is held, and returns the next one; false: it has ended.
func (c *code) resume(r answer) (call, bool) {
	c.a.acked, c.a.wrong = nil, ""
	c.answers <- r
	due, ok := <-c.calls
	return due, ok
}

// stop ends a process: no call is answered any more.
func (c *code) stop() {
	close(c.answers)
	for range c.calls {
	}
}

// follow returns what r, told at p, leads to.
func (e *explorer) follow(p *point, r answer) edge {
	k := r.sum()
	if x, ok := p.next[k]; ok {
		return x
	}
	c := e.codes[p.n]
	if c == nil || c.at != p {
		if c != nil {
			c.stop()
		}
		c = e.begin(p.n)
		e.codes[p.n] = c
		var way []*point
		for q := p; q.from != nil; q = q.from {
			way = append(way, q)
		}
		for i := len(way) - 1; i >= 0; i-- {
			c.resume(way[i].by)
		}
	}
	due, ok := c.resume(r)
	a := c.a
	if !ok && e.plain {
		a.local = mix(a.local, "ended")
	} else if !ok {
		a.local = a.outcome() // how it came to its end is over
	}
	q := e.points[p.n][a.local]
	if q == nil {
		q = &point{n: p.n, local: a.local, call: due, ended: !ok, beliefs: a.beliefs, from: p, by: r, next: map[uint64]edge{}}
		e.points[p.n][a.local] = q
	} else if q.call.op != due.op || q.call.name != due.name || q.call.fd != due.fd || q.ended == ok {
		panic(fmt.Sprintf("%s: two ways to one point of %s, which go on with %v and %v", e.s.name, a.name, q.call, due))
	}
	c.at = q
	x := edge{q, a.acked, a.wrong}
	p.next[k] = x
	return x
}

func (a *actor) fail(format string, args ...any) {
	if a.wrong == "" {
		a.wrong = fmt.Sprintf(format, args...)
	}
}

// due asks what is acknowledged, and so must be seen by who reads from now on.
func (a *actor) due() []string { return a.ask(call{op: opDue}).names }

// meddled asks whether somebody has meddled with the files.
func (a *actor) meddled() bool { return a.s.meddling > 0 && a.ask(call{op: opMeddled}).ok }

// away reports whether an error says that the session is not where it was, and somebody may have moved it.
func (a *actor) away(err error) bool {
	return errors.Is(err, store.ErrNotFound) && (a.s.moved || a.meddled())
}

func (a *actor) links(name, key string) {
	a.segments = maps.Clone(a.segments)
	if a.segments == nil {
		a.segments = map[string]string{}
	}
	a.segments[name] = key
}

// countedReader counts what is read.
type countedReader struct {
	r io.Reader
	n *int
}

func (c countedReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	*c.n += n
	return n, err
}

// store returns the store as the process sees it.
func (a *actor) store() *Store {
	o := testOptions()
	o.FS, o.PID, o.Program = explorerFS{a}, a.n+1, a.name
	o.Rand = countedReader{rand.NewChaCha8([32]byte{byte(a.n + 1)}), &a.random}
	o.SegmentBytes = a.s.roll
	s, err := Open("/s", o)
	if err != nil {
		panic(err)
	}
	s.locks, s.ready, s.patience = true, true, 0
	return s
}

// living opens the session and appends and acknowledges batches.
func living(batches ...int) func(*actor) {
	return func(a *actor) {
		w, err := a.store().Open(context.Background(), subject)
		a.write(w, err, batches)
	}
}

// creating is a life of a session that is not there yet.
func creating(batches ...int) func(*actor) {
	return func(a *actor) {
		w, err := a.store().Create(context.Background(), testHeader(subject))
		a.write(w, err, batches)
	}
}

func (a *actor) write(w store.Writer, err error, batches []int) {
	if a.dead {
		return
	}
	if err != nil {
		a.answered(err)
		return
	}
	a.w = w.(*writer)
	a.owner = w.(*writer).lease != nil // a creator owns nothing before it has made the session
	defer w.Close()
	next := w.(*writer).next.Next
	for i, n := range batches {
		a.settles(w.(*writer), "batch", i)
		evs := by(a.name, next, n)
		var pos store.Pos
		for try := range 4 {
			if _, err = w.Append(context.Background(), evs); err == nil {
				a.settles(w.(*writer), "written", i, try)
				pos, err = w.Flush(context.Background())
			}
			if a.dead || !errors.Is(err, store.ErrNotSaved) {
				break
			}
			if try == 3 {
				a.fail("%s gave up: %v", a.name, err)
			}
		}
		if a.dead {
			return
		}
		if err != nil {
			a.answered(err)
			return
		}
		a.acked = append(a.acked, [2]session.Seq{next, pos.Next})
		next = pos.Next
	}
	a.done, a.owner = true, false
	a.settles(w.(*writer), "closing")
}

// settles forgets how the process came to be what it is, when that can be told: all that a writer decides by is in
// its fields. Ways that differ in what was seen on the way, but not in what was made of it, are one point.
func (a *actor) settles(w *writer, phase ...any) {
	if a.dead || w.try != nil {
		return
	}
	key := func(h *held) any {
		if h == nil {
			return nil
		}
		f := h.f.(*explorerFile)
		return fmt.Sprint(f.fd, f.key, h.path, h.info.(explorerInfo).r.key)
	}
	vs := append(phase, key(w.lease), key(w.newLease), key(w.tail), int(w.tailSize), w.tailSeg, int(w.tailMark), w.tailSafe, w.tailNamed,
		w.tailBad, len(w.lost), w.ann == nil, w.broken, w.looked, w.unsynced, w.kept, w.newest)
	for _, pos := range []store.Pos{w.next, w.synced, w.acked} {
		vs = append(vs, int(pos.Next), pos.Link[:])
	}
	for _, g := range w.segs {
		vs = append(vs, g.path, int(g.first), int(g.end), g.prev[:], int(g.off), int(g.stop), len(g.marks))
	}
	for _, h := range w.own {
		vs = append(vs, key(h))
	}
	a.becomes(vs...)
}

// becomes makes what is told the whole state of the process, with what it believes and has open.
func (a *actor) becomes(vs ...any) {
	if a.plain {
		return
	}
	vs = append(vs, a.syncs, a.random, a.owner, fmt.Sprint(a.segments), a.outcome())
	for fd, f := range a.files {
		if f != nil {
			vs = append(vs, fd, f.name, f.key, int(f.mode), f.locked)
		}
	}
	a.local = mix(vs...)
}

// answered takes the answer that ends a life.
func (a *actor) answered(err error) {
	a.owner, a.err = false, err
	meddled := a.meddled()
	switch {
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrExists):
		a.refused = true
	case errors.Is(err, store.ErrFenced):
		a.fenced = true
		if a.s.locks == allLocks && !meddled {
			a.fail("%s was fenced though every lock works: %v", a.name, err)
		}
	case meddled && (errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrDamaged) || errors.Is(err, fs.ErrNotExist)):
		a.refused = true // a file was taken away
	case a.away(err), a.s.spoilt && errors.Is(err, store.ErrDamaged):
		a.refused = true
	default:
		a.fail("%s: %v", a.name, err)
	}
}
