package filestore

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/vfs"
)

// One run of a script: the disk, and where each process is. Every change can be taken back.

// world is one run of a script.
type world struct {
	e       *explorer
	s       *script
	disk    *modelDisk
	players []*mover
	acks    map[session.Seq]string
	ackSum  uint64
	wrong   string // the first invariant that was broken

	deaths, meddled, switches int
	last                      int // who made the last step

	trace   []string
	tracing bool

	mem   *vfs.Mem // another disk that must answer the same; nil: there is none, and what is done can be taken back
	infos map[string]fs.FileInfo
}

// mover is a process of the world.
type mover struct {
	n    int
	name string
	at   *point
	fds  []*desc
	made int
	dead bool
	real *vfs.Process
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// quiet says which calls nobody can notice, nor change the answer of, or whose answer decides nothing.
func (w *world) quiet(p *mover, c call) bool {
	f := p.fd(c.fd)
	live := !w.s.loud && strings.HasPrefix(c.name, "/s/live/")
	own := func() bool { return f.i.by == p.n && !f.i.public } // it has no name that counts
	switch c.op {
	case opMeddled:
		return true
	case opDue, vfs.OpLink, vfs.OpRename, vfs.OpReadDir:
		return false
	case vfs.OpSyncDir, vfs.OpAccess:
		return w.quietName(c.name) || !w.s.moved && !w.s.trashed && w.s.meddling == 0
	case vfs.OpWrite:
		return own() || w.quietName(c.name)
	case vfs.OpRead, vfs.OpFileStat:
		if w.e.plain {
			return f.i.by < 0 || own() || w.quietName(c.name)
		}
		return f.i.writers == 0 || f.i.by == p.n || w.quietName(c.name) // nobody else writes it, now or later
	case vfs.OpLock:
		return own() || live
	case vfs.OpHasWriter:
		return live
	case opClose:
		return !f.locked || own() || live // a lock that goes is noticed
	}
	return w.quietName(c.name)
}

// quietName says which names nobody but their holder can notice, or whose content decides nothing.
func (w *world) quietName(name string) bool {
	fixed := w.s.meddling == 0 && !w.s.unnamed || filepath.Base(name) == storeName
	if i := w.disk.names[name]; i != nil && i.by < 0 && fixed {
		return true // it was there, and nobody changes it
	}
	return !w.s.loud && strings.HasPrefix(name, "/s/live/") || strings.Contains(name, "/"+newSession)
}

// advance makes the call that is due.
func (w *world) advance(p *mover) {
	was := p.at
	x := w.e.follow(was, w.do(p, was.call))
	set(w.disk, &p.at, x.to)
	if x.wrong != "" {
		w.fail("%s", x.wrong)
	}
	if !was.owner && x.to.owner {
		w.opens(p)
	}
	for _, q := range x.acked {
		w.acknowledge(p, q[0], q[1])
	}
	if x.to.ended {
		for fd, f := range p.fds {
			if f != nil && !f.locked {
				w.close(p, fd)
			}
		}
	}
}

// step lets p go on to its next call that another can notice or change the answer of, or to its end. What is quiet is
// done at once. What is due is asked directly before the read.
func (w *world) step(p *mover) {
	for must := true; must || w.quiet(p, p.at.call); {
		must = p.at.call.op == opDue
		w.advance(p)
		if p.at.ended {
			return
		}
	}
}

// eager reports whether it makes no difference to anybody when p makes the call that is due: it has become quiet, and p does
// not come to own the session by its answer, or ceases to.
func (w *world) eager(p *mover) bool {
	if !w.quiet(p, p.at.call) {
		return false
	}
	was, mark, wrong := p.at.owner, len(w.disk.back), w.wrong
	w.step(p)
	now := p.at.owner
	w.disk.rollback(mark)
	w.wrong = wrong
	return now == was
}

var deadPoint = &point{local: mix("dead"), ended: true}

func (w *world) kill(p *mover) {
	for fd, f := range p.fds {
		if f != nil {
			w.close(p, fd)
		}
	}
	if p.real != nil {
		p.real.Kill()
	}
	set(w.disk, &p.at, deadPoint)
	set(w.disk, &p.dead, true)
}

func (w *world) ready() bool {
	return slices.ContainsFunc(w.players, func(p *mover) bool { return !p.at.ended })
}

// can reports whether p has something to do: it has not ended, and the lock that it waits for is free. Who is refused the
// store's lock asks again and again.
func (w *world) can(p *mover) bool {
	c := p.at.call
	if p.at.ended || c.op != vfs.OpLock || filepath.Base(c.name) != lockName || w.s.lockless(c.name) {
		return !p.at.ended
	}
	return !p.fds[c.fd].taken(c.exclusive)
}

// goOn lets the first that can do something.
func (w *world) goOn() {
	for i, p := range w.players {
		if w.can(p) {
			w.take(choice{who: i})
			return
		}
	}
	w.fail("each waits for another one's lock")
}

// sum is the state: what can be different from here on is different in it.
func (w *world) sum() uint64 {
	h := w.disk.sum ^ w.ackSum
	add := func(v uint64) {
		h = (h ^ v) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	for _, p := range w.players {
		add(p.at.local)
		if !p.at.ended {
			add(uint64(p.made))
		}
	}
	add(uint64(w.meddled))
	if w.s.deaths < len(w.players) {
		add(uint64(w.deaths))
	}
	if w.s.switches > 0 {
		add(uint64(w.switches))
		add(uint64(w.last))
	}
	return h
}

// outcome folds what is left when all have ended.
func (w *world) outcome() uint64 {
	h := mix(w.disk.sum, w.ackSum)
	for _, p := range w.players {
		h = mix(h, p.dead, p.at.outcome())
	}
	return h
}

func (w *world) ackedSeqs() []session.Seq {
	var out []session.Seq
	for seq := session.Seq(0); len(out) < len(w.acks); seq++ {
		if _, ok := w.acks[seq]; ok {
			out = append(out, seq)
		}
	}
	return out
}

func (w *world) acknowledge(p *mover, from, to session.Seq) {
	for q := from; q < to; q++ {
		if other, ok := w.acks[q]; ok {
			w.fail("seq %d was acknowledged by %s and by %s", q, other, p.name)
			continue
		}
		w.acks[q] = p.name
		w.disk.undo(func() { delete(w.acks, q) })
		set(w.disk, &w.ackSum, w.ackSum^mix("ack", int(q), p.name))
	}
}

// opens checks that no other believes the same, as far as the locks that work forbid it.
func (w *world) opens(p *mover) {
	if w.s.locks == noLock {
		return
	}
	for _, o := range w.players {
		if o == p || !o.at.owner {
			continue
		}
		if w.s.locks == allLocks && w.meddled == 0 {
			w.fail("%s opened the session while %s has it", p.name, o.name)
			continue
		}
		for name, key := range o.at.segments {
			if i := w.disk.names[name]; i != nil && i.key == key && !w.passed(o) {
				w.fail("%s opened the session while %s writes %s", p.name, o.name, filepath.Base(name))
			}
		}
	}
}

// passed reports whether the last segment is not this life's any more.
func (w *world) passed(o *mover) bool {
	last := ""
	for name := range w.disk.names {
		if isSegment(name) {
			last = max(last, name)
		}
	}
	return o.at.segments[last] == "" || o.at.segments[last] != w.disk.names[last].key
}

// choice is a step of a process, its death, or a meddling.
type choice struct {
	who    int
	kill   bool
	meddle int // who is -1
}

// reads reports whether a call changes nothing that another can notice.
func reads(op vfs.Op) bool {
	switch op {
	case vfs.OpOpen, vfs.OpReadDir, vfs.OpStat, vfs.OpRead, vfs.OpFileStat, vfs.OpHasWriter, vfs.OpSyncDir, vfs.OpAccess, opDue, opMeddled:
		return true
	}
	return false
}

func (w *world) choices() []choice {
	var out []choice
	left := -1 // who would be left if another went on
	if w.s.switches > 0 && w.last >= 0 && w.can(w.players[w.last]) {
		left = w.last
	}
	if w.ready() && !slices.ContainsFunc(w.players, w.can) {
		w.fail("each waits for another one's lock")
		return nil
	}
	for i, p := range w.players {
		if p.at.ended {
			continue
		}
		if w.s.switches == 0 && !w.e.plain && w.mem == nil && w.can(p) && w.eager(p) {
			return []choice{{who: i}} // it has become quiet: when it is done makes no difference to anybody
		}
		if w.can(p) && (left < 0 || left == i || w.switches < w.s.switches) {
			out = append(out, choice{who: i})
		}
		// To die before a read is to die before the next change.
		if w.deaths < w.s.deaths && p.at.from != nil && !reads(p.at.call.op) {
			out = append(out, choice{who: i, kill: true})
		}
	}
	if w.meddled < w.s.meddling && w.ready() {
		for i, m := range w.s.meddles {
			if m.may(w) {
				out = append(out, choice{who: -1, meddle: i})
			}
		}
	}
	return out
}

func (w *world) take(c choice) {
	if w.tracing {
		what := "meddler: "
		switch {
		case c.who < 0:
			what += w.s.meddles[c.meddle].name
		default:
			p := w.players[c.who]
			name := p.at.call.name
			if p.at.call.to != "" {
				name = p.at.call.to
			}
			what = fmt.Sprint(p.at.call.op, " ", strings.TrimPrefix(name, subjectDir+"/"))
			if c.kill {
				what = "dies before " + what
			}
			what = p.name + ": " + what
		}
		w.trace = append(w.trace, what)
	}
	d := w.disk
	switch {
	case c.who < 0:
		set(d, &w.meddled, w.meddled+1)
		w.s.meddles[c.meddle].do(w)
	case c.kill:
		set(d, &w.deaths, w.deaths+1)
		w.kill(w.players[c.who])
	default:
		if w.s.switches > 0 && w.last >= 0 && w.last != c.who && w.can(w.players[w.last]) {
			set(d, &w.switches, w.switches+1)
		}
		set(d, &w.last, c.who)
		w.step(w.players[c.who])
	}
}
