package filestore

import (
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// The interleaving explorer. A script is a few processes on one disk; each runs until it is about to make a call
// that another can notice. Then somebody goes on, or dies, or a careless person does something to the files. Every choice at
// every state is tried, and taken back; a state that was met before, by another way, is not tried again.
// The number of ways, which are the schedules, is the number of paths through the states.
//
// A state is the disk with its locks, and for each process what it is: all that it was ever told. Less is enough, and so there are
// fewer states, where what a process goes by can be told (settles, becomes, outcome), and where a call may be made
// at any time to the same effect (quiet, eager). TestReductions runs scripts without all that, and finds the same outcomes.

// script is what is explored.
type script struct {
	name     string
	about    string // how the table calls it
	lives    []func(*actor)
	locks    lockMode
	meddles  []meddle
	meddling int // at most so many of them in one schedule
	deaths   int // at most so many in one schedule
	switches int // at most so many times a process is left that could go on; 0: any number
	roll     int64
	failSync [3]int // which sync of a process fails
	loud     bool   // announcements count as well
	stored   int    // events that are there at the beginning
	before   int    // so many lives added one more each
	spoilt   bool   // the first line of all is bad
	moved    bool   // somebody may move the session to the trash
	unnamed  bool   // files that are there at the beginning may lose their names
	trashed  bool   // the session has a fork, and is in the trash
	long     bool   // only when it is asked for
	wide     bool   // without reductions only when it is asked for
	fault    func(call, *answer)
}

type lockMode int

const (
	allLocks lockMode = iota
	noLease           // locks on session.json protect nothing
	noLock            // no lock protects anything
)

func (m lockMode) String() string {
	return [...]string{"all work", "none on session.json", "none"}[m]
}

func (s *script) lockless(name string) bool {
	return s.locks == noLock || s.locks == noLease && filepath.Base(name) == headerName
}

// explorer is one exploration.
type explorer struct {
	s      *script
	base   *vfs.Mem
	header []byte // of the session, as it was at the beginning
	end    func(*world)
	plain  bool // nothing is left out: a process is all that it was told, and each call of a file is looked between
	every  bool // a state that was met is gone on from again: each schedule is run

	roots  []*point
	points []map[uint64]*point
	codes  []*code

	seen   map[uint64]float64 // state -> schedules from there
	ends   map[uint64]bool    // outcomes
	steps  int
	failed *world
	path   []choice
}

func newExplorer(t testing.TB, s *script) *explorer {
	e := &explorer{s: s, base: explorerBase(t, s), end: checkEnd, seen: map[uint64]float64{}, ends: map[uint64]bool{}}
	if s.trashed {
		e.end = checkPurged
	}
	e.header, _ = e.base.ReadFile(header)
	e.reset()
	t.Cleanup(e.close)
	return e
}

// reset forgets the processes.
func (e *explorer) reset() {
	e.close()
	n := len(e.s.lives)
	e.roots, e.codes, e.points = make([]*point, n), make([]*code, n), make([]map[uint64]*point, n)
	for i := range n {
		e.points[i] = map[uint64]*point{}
		e.codes[i] = e.begin(i)
	}
}

func (e *explorer) close() {
	for i, c := range e.codes {
		if c != nil {
			c.stop()
		}
		e.codes[i] = nil
	}
}

// result is what the table says.
type result struct {
	states    int
	schedules float64
	cpu       time.Duration
}

// start returns the world at its beginning; a real one is run once, on two disks.
func (e *explorer) start(real bool) *world {
	w := &world{e: e, s: e.s, disk: diskOf(e.base), acks: map[session.Seq]string{}, last: -1}
	if real {
		w.mem, w.infos = e.base.Clone(), map[string]fs.FileInfo{}
	}
	for i := range e.s.lives {
		p := &mover{n: i, name: string(rune('A' + i)), at: e.roots[i]}
		if real {
			p.real = w.mem.Process()
		}
		w.players = append(w.players, p)
	}
	return w
}

type branching struct {
	state   uint64
	mark    int // how much there is to take back behind it
	choices []choice
	next    int
	count   float64
}

// explore tries every schedule.
func (e *explorer) explore() result {
	var frames []*branching
	w := e.start(false)
	count := func(n float64) {
		if len(frames) > 0 {
			frames[len(frames)-1].count += n
		}
	}
	first := w.sum()
	push := func() {
		st := w.sum()
		if n, ok := e.seen[st]; ok && !e.every {
			count(n)
			return
		}
		mark := len(w.disk.back)
		cs := w.choices()
		if w.wrong == "" && !w.ready() {
			e.ends[w.outcome()] = true
			e.end(w)
			w.disk.rollback(mark)
			e.seen[st] = 1
			count(1)
			return
		}
		frames = append(frames, &branching{state: st, mark: mark, choices: cs})
	}
	push()
	for len(frames) > 0 {
		f := frames[len(frames)-1]
		w.disk.rollback(f.mark)
		if f.next == len(f.choices) {
			e.seen[f.state] = f.count
			frames = frames[:len(frames)-1]
			count(f.count)
			continue
		}
		w.take(f.choices[f.next])
		f.next++
		e.steps++
		if w.wrong == "" {
			push()
		}
		if w.wrong != "" {
			e.failed = w
			for _, g := range frames {
				if g.next > 0 {
					e.path = append(e.path, g.choices[g.next-1])
				}
			}
			return result{states: len(e.seen)}
		}
	}
	return result{states: len(e.seen), schedules: e.seen[first]}
}

// run runs a path, and then lets the first go on that can, until all have ended or an invariant is broken. A path that
// cannot be run is nil.
func (e *explorer) run(path []choice, tracing bool) *world {
	w := e.start(true)
	w.tracing = tracing
	for _, c := range path {
		if c.who >= 0 && !w.can(w.players[c.who]) || c.who < 0 && !e.s.meddles[c.meddle].may(w) {
			return nil
		}
		if w.take(c); w.wrong != "" {
			return w
		}
	}
	for w.wrong == "" && w.ready() {
		w.goOn()
	}
	if w.wrong == "" {
		e.end(w)
	}
	return w
}

// shorten drops choices from a path that breaks an invariant, as long as it still does: what a person reads.
func (e *explorer) shorten(path []choice, why string) []choice {
	breaks := func(p []choice) bool {
		w := e.run(p, false)
		return w != nil && w.wrong == why
	}
	switches := func(p []choice) (n int) {
		for i := 1; i < len(p); i++ {
			if p[i].who != p[i-1].who {
				n++
			}
		}
		return n
	}
	for better := true; better; {
		better = false
		for n := len(path); n > 0 && breaks(path[:n-1]); n-- { // a shorter beginning
			path, better = slices.Clone(path[:n-1]), true
		}
		for i := 0; i+1 < len(path) && !better; i++ { // fewer switches
			p := slices.Clone(path)
			p[i], p[i+1] = p[i+1], p[i]
			if switches(p) < switches(path) && breaks(p) {
				path, better = p, true
			}
		}
	}
	return path
}

// explorerBase makes the disk that the script begins with.
func explorerBase(t testing.TB, s *script) *vfs.Mem {
	m := vfs.NewMem(vfs.MemOptions{})
	st := openStore(t, "/s", m.Process())
	if err := st.prepare(); err != nil {
		t.Fatal(err)
	}
	if s.stored > 0 {
		newStored(t, st, subject, s.stored)
	}
	for i := range s.before {
		w := must[store.Writer](t)(st.Open(t.Context(), subject))
		mustAppend(t, w, events(session.Seq(s.stored+i), 1))
		mustFlush(t, w)
		w.Close()
	}
	if s.trashed {
		h, err := forkHeader(t.Context(), st, "child", session.Seq(s.stored-1))
		if err == nil {
			err = st.CreateFork(t.Context(), h, by("child", session.Seq(s.stored), 1))
		}
		if err == nil {
			err = st.Trash(t.Context(), subject)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if s.spoilt {
		god, name := m.Process(), subjectDir+"/"+segmentName(0)
		b, _, err := st.readFile(name, 1<<20)
		if err == nil {
			err = god.Remove(name)
		}
		var f vfs.File
		if err == nil {
			f, err = god.OpenFile(name, vfs.CreateAppend)
		}
		if err == nil {
			_, err = f.Write([]byte(strings.Replace(string(b), `"first":0`, `"first":9`, 1)))
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return m
}

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(0, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func runScript(t *testing.T, s *script) result {
	old := runtime.GOMAXPROCS(1) // so a process reads one segment after the other
	defer runtime.GOMAXPROCS(old)
	began := cpu()
	e := newExplorer(t, s)
	r := e.explore()
	e.report(t)
	r.cpu = cpu() - began
	points := 0
	for _, ps := range e.points {
		points += len(ps)
	}
	t.Logf("%s: %d states, %.2g schedules, %d steps, %d points, %d ends, %v", s.name, r.states, r.schedules, e.steps, points, len(e.ends), r.cpu)
	return r
}

// report tells a fault that was found, as processes have it that are what they were told, on two disks.
func (e *explorer) report(t *testing.T) {
	if e.failed == nil {
		return
	}
	why := e.failed.wrong
	e.reset()
	if w := e.run(e.path, false); w == nil || w.wrong != why {
		t.Errorf("%s: %s, but not when it is run again", e.s.name, why)
		return
	}
	w := e.run(e.shorten(e.path, why), true)
	t.Errorf("%s: %s\nthe schedule:\n  %s\nthe disk then:\n  %s", e.s.name, w.wrong, strings.Join(w.trace, "\n  "),
		strings.Join(w.disk.all(), "\n  "))
}
