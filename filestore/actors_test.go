package filestore

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// What the processes of a script do, and what each is held to.

// store returns the store as the process sees it.
func (a *actor) store() *Store {
	o := testOptions()
	o.FS, o.PID, o.Program = a.fs, a.n+1, a.name
	o.Rand = rand.NewChaCha8([32]byte{byte(a.n + 1)})
	o.SegmentBytes = a.w.s.roll
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
	if w.(*writer).lease != nil { // a creator owns nothing before it has made the session
		a.opens()
	}
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
				a.w.fail("%s gave up: %v", a.name, err)
			}
		}
		if a.dead {
			return
		}
		if err != nil {
			a.answered(err)
			return
		}
		a.acknowledge(next, pos.Next)
		next = pos.Next
	}
	a.done, a.owner = true, false
	a.settles(w.(*writer), "closing")
}

// settles forgets how the process came to be what it is, when that can be told: all that a writer decides by is in
// its fields. Ways that differ in what was seen on the way, but not in what was made of it, are one state.
func (a *actor) settles(w *writer, phase ...any) {
	if a.dead || w.try != nil {
		return
	}
	key := func(h *held) any {
		if h == nil {
			return nil
		}
		return h.f.(*explorerFile).n.key + h.path
	}
	vs := append(phase, a.made, a.syncs, key(w.lease), key(w.tail), int(w.tailSize), w.tailSeg, int(w.tailMark), w.tailSafe, w.tailNamed,
		w.tailBad, len(w.lost), w.ann == nil, w.broken, w.looked, w.unsynced, w.kept)
	for _, pos := range []store.Pos{w.next, w.synced, w.acked} {
		vs = append(vs, int(pos.Next), pos.Link[:])
	}
	for _, g := range w.segs {
		vs = append(vs, g.path, int(g.first), int(g.end), g.prev[:], int(g.off), int(g.stop), len(g.marks))
	}
	for _, h := range w.own {
		vs = append(vs, key(h))
	}
	a.local = mix(vs...)
}

// answered takes the answer that ends a life.
func (a *actor) answered(err error) {
	a.owner, a.err = false, err
	meddled := a.w.meddled > 0
	switch {
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrExists):
		a.refused = true
	case errors.Is(err, store.ErrFenced):
		a.fenced = true
		if a.w.s.locks == allLocks && !meddled {
			a.w.fail("%s was fenced though every lock works: %v", a.name, err)
		}
	case meddled && (errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrDamaged) || errors.Is(err, fs.ErrNotExist)):
		a.refused = true // a file was taken away
	case a.w.away(err), a.w.s.spoilt && errors.Is(err, store.ErrDamaged):
		a.refused = true
	default:
		a.w.fail("%s: %v", a.name, err)
	}
}

// opens checks that no other believes the same, as far as the locks that work forbid it.
func (a *actor) opens() {
	a.owner = true
	if a.w.s.locks == noLock {
		return
	}
	for _, b := range a.w.actors {
		if b == a || !b.owner {
			continue
		}
		if a.w.s.locks == allLocks && a.w.meddled == 0 {
			a.w.fail("%s opened the session while %s has it", a.name, b.name)
			continue
		}
		for name, n := range b.segments {
			if a.w.disk.names[name] == n && !b.passed() {
				a.w.fail("%s opened the session while %s writes %s", a.name, b.name, filepath.Base(name))
			}
		}
	}
}

// passed reports whether the last segment is not this life's any more.
func (a *actor) passed() bool {
	last := ""
	for name := range a.w.disk.names {
		if filepath.Dir(name) == "/s/sessions/"+string(subject) && strings.HasSuffix(name, segSuffix) {
			last = max(last, name)
		}
	}
	return a.segments[last] == nil || a.segments[last] != a.w.disk.names[last]
}

func (a *actor) acknowledge(from, to session.Seq) {
	for q := from; q < to; q++ {
		if other := a.w.acks[q]; other != "" {
			a.w.fail("seq %d was acknowledged by %s and by %s", q, other, a.name)
		}
		a.w.acks[q] = a.name
		a.acked++
	}
}
