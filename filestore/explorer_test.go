package filestore

import (
	"fmt"
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
// that another can notice, and gives the baton back. Whoever holds it chooses who goes on, who dies, or what a
// careless person does to the files. Every choice at every state is tried; a state that was met before, by another way,
// is not tried again: a state is the disk with its locks, and for each process all that it was ever told, so what
// follows from it is the same. The number of ways, which are the schedules, is the number of paths through
// the states.

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

// world is one run of a script.
type world struct {
	s      *script
	disk   *mirror
	actors []*actor
	back   chan struct{} // the baton comes back
	acks   map[session.Seq]string
	loud   bool
	wrong  string // the first invariant that was broken

	deaths, meddled, switches int
	meddles                   []int // by kind
	last                      int   // who made the last step
	lastRead                  int   // the same, if it changed nothing
	trace                     []string
	tracing                   bool
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// actor is a process.
type actor struct {
	w    *world
	name string
	n    int
	proc *vfs.Process
	fs   explorerFS
	run  func(*actor)

	turn     chan struct{}
	started  bool
	ended    bool
	dead     bool
	op       string // the call that is due
	reads    bool   // it changes nothing
	local    uint64 // all that it was told
	made     int
	syncs    int
	failSync int
	public   map[*node]bool
	locks    map[*explorerFile]bool

	waits     *explorerFile // for this lock, which somebody has, without a word
	exclusive bool          // so it is asked for

	// What it believes.
	owner    bool             // it is between open and close, and was not fenced
	segments map[string]*node // which it linked
	acked    int
	fenced   bool
	refused  bool
	done     bool
	keeps    bool // it did what it does to the session as a whole
	err      error
	seen     []session.Event // by a reader
	child    session.ID
}

func (a *actor) yield(op vfs.Op, name string) {
	if a.dead {
		return
	}
	switch op {
	case vfs.OpOpen, vfs.OpReadDir, vfs.OpStat, vfs.OpRead, vfs.OpHasWriter:
		a.reads = true
	default:
		a.reads = false
	}
	if a.w.tracing {
		a.op = string(op) + " " + strings.TrimPrefix(name, "/s/sessions/"+string(subject)+"/")
	}
	a.w.back <- struct{}{}
	<-a.turn
}

// linked is called when a claim has come to the name of a segment.
func (a *actor) linked(n *node, name string) {
	a.public[n] = true
	if !strings.HasSuffix(name, segSuffix) || filepath.Dir(name) != subjectDir {
		return
	}
	a.segments[name] = n
	if a.w.s.locks == noLock {
		return
	}
	for f, exclusive := range a.locks {
		if f.n == n && exclusive {
			return
		}
	}
	a.w.fail("%s linked %s without having it locked", a.name, filepath.Base(name))
}

// step lets a go on to its next call, or to its end.
func (a *actor) step() {
	if !a.started {
		a.started = true
		go func() {
			<-a.turn
			a.run(a)
			a.ended = true
			a.op = "end"
			a.w.back <- struct{}{}
		}()
	}
	a.turn <- struct{}{}
	<-a.w.back
}

func (a *actor) kill() {
	a.proc.Kill()
	for f := range a.locks {
		a.w.disk.toggle(f.lock)
	}
	a.locks = nil
	a.owner = false
	a.dead = true // every further call fails at once, without the baton
	if a.started {
		a.step()
	}
	a.ended = true
	a.local = mix("dead")
}

func (w *world) ready() bool {
	return slices.ContainsFunc(w.actors, func(a *actor) bool { return !a.ended })
}

// can reports whether a has something to do: it has not ended, and the lock that it waits for is free.
func (a *actor) can() bool {
	if a.ended || a.waits == nil || a.w.s.lockless(a.waits.name) {
		return !a.ended
	}
	for _, b := range a.w.actors {
		for f, exclusive := range b.locks {
			if f != a.waits && f.n == a.waits.n && (exclusive || a.exclusive) {
				return false
			}
		}
	}
	return true
}

// goOn lets the first that can do something.
func (w *world) goOn() {
	for i, a := range w.actors {
		if a.can() {
			w.take(choice{who: i})
			return
		}
	}
	w.fail("each waits for another one's lock")
}

func (w *world) sum() uint64 {
	h := w.disk.sum
	for _, a := range w.actors {
		h = mix(h, a.local, a.ended)
	}
	for _, k := range w.meddles {
		h = mix(h, k)
	}
	last := 0
	if w.s.switches > 0 {
		last = w.last
	}
	h = mix(h, w.deaths, w.switches, last)
	for _, seq := range w.ackedSeqs() {
		h = mix(h, int(seq), w.acks[seq])
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

// choice is a step of an actor, its death, or a meddling.
type choice struct {
	who    int
	kill   bool
	meddle int // who is -1
}

func (w *world) choices() []choice {
	var out []choice
	left := -1 // who would be left if another went on
	if w.s.switches > 0 && w.last >= 0 && w.actors[w.last].can() {
		left = w.last
	}
	if w.ready() && !slices.ContainsFunc(w.actors, (*actor).can) {
		w.fail("each waits for another one's lock")
		return nil
	}
	for i, a := range w.actors {
		if a.ended {
			continue
		}
		// Two reads beside each other are tried in one order: the other leads to the same state.
		twice := w.lastRead > i && a.reads && w.s.switches == 0
		if !twice && a.can() && (left < 0 || left == i || w.switches < w.s.switches) {
			out = append(out, choice{who: i})
		}
		// To die before a read is to die before the next change.
		if w.deaths < w.s.deaths && a.started && !a.reads {
			out = append(out, choice{who: i, kill: true})
		}
	}
	if !w.ready() {
		return nil
	}
	if w.meddled < w.s.meddling {
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
		switch {
		case c.who < 0:
			w.trace = append(w.trace, "meddler: "+w.s.meddles[c.meddle].name)
		case c.kill:
			w.trace = append(w.trace, w.actors[c.who].name+": dies before "+w.actors[c.who].op)
		default:
			w.trace = append(w.trace, w.actors[c.who].name+": "+w.actors[c.who].op)
		}
	}
	w.lastRead = -1
	switch {
	case c.who < 0:
		w.meddled++
		w.meddles[c.meddle]++
		w.s.meddles[c.meddle].do(w)
	case c.kill:
		w.deaths++
		w.actors[c.who].kill()
	default:
		if w.s.switches > 0 && w.last >= 0 && w.last != c.who && w.actors[w.last].can() {
			w.switches++
		}
		w.last = c.who
		if w.actors[c.who].reads {
			w.lastRead = c.who
		}
		w.actors[c.who].step()
	}
}

// explorer is one exploration.
type explorer struct {
	s      *script
	base   *vfs.Mem
	seen   map[uint64]float64 // state -> schedules from there
	end    func(*world)
	steps  int
	failed *world
	path   []choice
}

// result is what the table says.
type result struct {
	states    int
	schedules float64
}

func (e *explorer) start() *world {
	w := &world{s: e.s, disk: mirrorOf(e.base.Clone()), back: make(chan struct{}), acks: map[session.Seq]string{}, last: -1, lastRead: -1,
		loud: e.s.loud, meddles: make([]int, len(e.s.meddles))}
	for i, run := range e.s.lives {
		a := &actor{w: w, n: i, name: string(rune('A' + i)), proc: w.disk.mem.Process(), run: run, turn: make(chan struct{}),
			public: map[*node]bool{}, locks: map[*explorerFile]bool{}, segments: map[string]*node{}, failSync: e.s.failSync[i]}
		a.fs = explorerFS{a}
		a.op = "begin"
		w.actors = append(w.actors, a)
	}
	return w
}

// finish ends what still runs.
func (w *world) finish() {
	for _, a := range w.actors {
		if !a.ended {
			a.kill()
		}
	}
}

type branching struct {
	state   uint64
	choices []choice
	next    int
	count   float64
}

// explore tries every schedule.
func (e *explorer) explore() result {
	var frames []*branching
	w := e.start()
	push := func() bool { // false: nothing new
		st := w.sum()
		top := func() *branching { return frames[len(frames)-1] }
		if n, ok := e.seen[st]; ok {
			if len(frames) > 0 {
				top().count += n
			}
			return false
		}
		if w.wrong != "" {
			return false
		}
		cs := w.choices()
		if !w.ready() {
			e.end(w)
			e.seen[st] = 1
			if len(frames) > 0 {
				top().count++
			}
			return false
		}
		frames = append(frames, &branching{state: st, choices: cs})
		return true
	}
	push()

	for len(frames) > 0 {
		f := frames[len(frames)-1]
		if w == nil && f.next < len(f.choices) { // go back to f
			w = e.start()
			for _, g := range frames[:len(frames)-1] {
				w.take(g.choices[g.next-1])
				e.steps++
			}
		}
		if f.next == len(f.choices) {
			e.seen[f.state] = f.count
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				frames[len(frames)-1].count += f.count
			}
			if w != nil {
				w.finish()
				w = nil
			}
			continue
		}
		c := f.choices[f.next]
		f.next++
		w.take(c)
		e.steps++
		grew := push()
		if w.wrong != "" {
			e.failed = w
			for _, g := range frames {
				e.path = append(e.path, g.choices[min(g.next, len(g.choices))-1])
			}
			w.finish()
			return result{len(e.seen), 0}
		}
		if !grew {
			w.finish()
			w = nil
		}
	}
	return result{len(e.seen), e.seen[e.start().sum()]}
}

// replay runs a path again and tells it.
func (e *explorer) replay(path []choice) *world {
	w := e.start()
	w.tracing = true
	for _, c := range path {
		w.take(c)
	}
	return w
}

// shorten drops choices from a path that breaks an invariant, as long as it still does: what a person reads.
func (e *explorer) shorten(path []choice, why string) []choice {
	breaks := func(p []choice) (string, bool) {
		w := e.start()
		defer w.finish()
		for _, c := range p {
			if c.who >= 0 && !w.actors[c.who].can() || c.who < 0 && !e.s.meddles[c.meddle].may(w) {
				return "", false
			}
			w.take(c)
			if w.wrong != "" {
				return w.wrong, true
			}
		}
		for w.wrong == "" && w.ready() { // let the rest run
			w.goOn()
		}
		if w.wrong == "" {
			e.end(w)
		}
		return w.wrong, w.wrong != ""
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
		for n := len(path); n > 0 && !better; n-- { // a shorter beginning
			if got, _ := breaks(path[:n-1]); got == why {
				path, better = slices.Clone(path[:n-1]), true
			} else {
				break
			}
		}
		for i := 0; i+1 < len(path) && !better; i++ { // fewer switches
			p := slices.Clone(path)
			p[i], p[i+1] = p[i+1], p[i]
			if got, _ := breaks(p); got == why && switches(p) < switches(path) {
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
	old := runtime.GOMAXPROCS(1) // the baton is handed over without waking anybody
	defer runtime.GOMAXPROCS(old)
	began := cpu()
	e := &explorer{s: s, base: explorerBase(t, s), seen: map[uint64]float64{}, end: checkEnd}
	if s.trashed {
		e.end = checkPurged
	}
	r := e.explore()
	if e.failed != nil {
		why := e.failed.wrong
		w := e.replay(e.shorten(e.path, why))
		for w.wrong == "" && w.ready() {
			w.goOn()
		}
		t.Errorf("%s: %s\nthe schedule:\n  %s\nthe disk then:\n  %s", s.name, why, strings.Join(w.trace, "\n  "),
			strings.Join(w.disk.mem.Names(), "\n  "))
		w.finish()
	}
	t.Logf("%s: %d states, %.2g schedules, %d steps, %v", s.name, r.states, r.schedules, e.steps, cpu()-began)
	return r
}
