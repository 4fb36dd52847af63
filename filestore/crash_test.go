package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// The harness of crashes and failing calls. Each scenario (the table is in trace_test.go) runs on a disk in memory,
// and its process dies before every call, or one call of it fails in every way. Then the power fails too, or not,
// and of what was not synced everything, nothing or a part by chance is left. On what is found then verify must
// hold, and a life that goes on there dies at every call in its turn.

// memRoot is where the store lies on a disk in memory.
const memRoot = "/top/store"

// newDisk returns a disk with sc's stored beginning, synced or not, and no process.
func newDisk(t testing.TB, sc scenario) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem(vfs.MemOptions{Block: cmp.Or(sc.block, 64)})
	p := m.Process()
	if err := errors.Join(p.Mkdir("/top"), p.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	if sc.setup != nil {
		s := memStore(t, p, sc.roll, 1)
		sc.setup(t, s)
		s.Close()
	}
	p.Kill()
	if sc.disk != nil {
		sc.disk(t, m)
	}
	return m.Clone()
}

// memStore is a store on a disk in memory. Each life needs its own number: its temporary names are made of it.
func memStore(t testing.TB, fsys vfs.FS, roll int64, life int) *Store {
	t.Helper()
	o := testOptions()
	o.PID, o.FS, o.SegmentBytes, o.Rand = life, fsys, roll, &counter{uint32(life) * 10000}
	s, err := Open(memRoot, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dying passes calls on to p and kills it before the k-th; k 0: never. at[i] is how far the disk had changed before
// the call i+1.
type dying struct {
	vfs.FS
	calls atomic.Int64
	mu    sync.Mutex
	at    []int64
}

func dyingAt(m *vfs.Mem, p *vfs.Process, k int64) *dying {
	d := &dying{}
	d.FS = vfs.Around(p, func(_ *vfs.Call, do func() error) error {
		n := d.calls.Add(1)
		if n == k {
			p.Kill()
		}
		if k == 0 { // the recording run; scans side by side change nothing, so an order is as good as another
			d.mu.Lock()
			d.at = append(d.at, m.Changes())
			d.mu.Unlock()
		}
		return do()
	})
	return d
}

// points returns the calls before which the disk is another than before the call before.
func (d *dying) points() []int64 {
	out := []int64{}
	for i, c := range d.at {
		if i == 0 || c != d.at[i-1] {
			out = append(out, int64(i)+1)
		}
	}
	return append(out, int64(len(d.at))+1) // behind the last
}

// wanted is what must be true of the subject after all that was done.
type wanted struct {
	log   []session.Event // the log is a prefix of it,
	acked int             // with at least so many events
	err   error           // of the scenario, which says whether it came to its end
	lives int             // so many have been; temporary names and announcements depend on it
}

// done says that the scenario came to its end, and that nobody has done anything since.
func (w wanted) done() bool { return w.err == nil && w.lives == 2 }

// state is what one check depends on.
type state struct {
	disk              uint64
	acked, log, lives int
	ended             bool
}

// crashes is the harness of one scenario.
type crashes struct {
	t     testing.TB
	sc    scenario
	base  *vfs.Mem
	log   []session.Event
	seeds int
	all   bool // every recovery is killed, at every call
	turn  int
	seen  map[state]bool
	tried int
}

func newCrashes(t testing.TB, sc scenario) *crashes {
	n, all := 1, false
	if v, err := strconv.Atoi(os.Getenv("STRANDLINE_CRASH_SEEDS")); err == nil {
		n, all = v, true
	}
	base := newDisk(t, sc)
	return &crashes{t: t, sc: sc, base: base, log: sc.full(t, base.Clone()), seeds: n, all: all, seen: map[state]bool{}}
}

// share says that one of so many calls is broken, in a short run.
func (c *crashes) share(r vfs.Rule) int {
	if r.Match != nil {
		return max(5, 2*c.sc.every)
	}
	return max(29, 6*c.sc.every)
}

// found runs check on every disk that may be found when all processes of m are dead. likely says that it is one
// that every file system leaves sooner or later.
func (c *crashes) found(m *vfs.Mem, w wanted, at string, check func(m *vfs.Mem, w wanted, at string, likely bool)) {
	try := func(how string, m *vfs.Mem, likely bool) {
		key := state{m.Fingerprint("live"), w.acked, len(w.log), w.lives, w.err == nil}
		if c.seen[key] || c.t.Failed() {
			return
		}
		c.seen[key] = true
		c.tried++
		check(m, w, at+", "+how, likely)
	}
	try("killed", m.Clone(), true)
	try("without power, all lost", m.Crash(vfs.Lost), true)
	try("without power, the oldest new name lost", m.Crash(oldestLost()), false)
	for seed := range c.seeds {
		if w.lives > 2 && !c.all {
			break
		}
		try(fmt.Sprint("without power, seed ", seed), m.Crash(vfs.Random(uint64(seed), []float64{.5, .85, .15}[seed%3])), false)
	}
	if c.all || w.lives == 2 {
		try("without power, all kept", m.Crash(vfs.Survived), false)
	}
}

// oldestLost loses the name that was made first, and keeps what came later: what stands on it hangs in the air.
func oldestLost() vfs.Chooser {
	lost := false
	return func(u vfs.Unsynced) vfs.Fate {
		if lost || u.Block || u.Removed || strings.HasPrefix(u.Name, ".") || strings.HasSuffix(u.Name, ".json") {
			return vfs.Kept
		}
		lost = true
		return vfs.Missing
	}
}

// run runs the scenario on a disk.
func (c *crashes) run(m *vfs.Mem, fsys vfs.FS, closed bool) wanted {
	s := memStore(c.t, fsys, c.sc.roll, 2)
	acked, err := c.sc.run(context.Background(), s, c.log)
	if closed {
		s.Close()
	}
	w := wanted{lives: 2, log: c.log, acked: int(acked) + 1, err: err}
	if c.sc.setup != nil {
		w.acked = max(w.acked, c.sc.synced())
	}
	return w
}

// verify reads the subject, then goes on with it: the life that comes after.
func (c *crashes) verify(m *vfs.Mem, w wanted, at string) (next wanted, calls *dying) {
	t := c.t
	t.Helper()
	p := m.Process()
	calls = dyingAt(m, p, 0)
	next, err := c.goOn(calls, w)
	if err != nil {
		t.Fatalf("%s (acknowledged %d, ended with %v): %v", at, w.acked, w.err, err)
	}
	p.Kill()
	return next, calls
}

// goOn is a life that reads what it finds, writes three events and forks. Its error says which promise was broken.
func (c *crashes) goOn(fsys vfs.FS, w wanted) (next wanted, err error) {
	ctx := context.Background()
	next = w
	next.lives++
	s := memStore(c.t, fsys, c.sc.roll, next.lives)
	if c.sc.also != nil {
		if err := c.sc.also(ctx, s, w); err != nil {
			return next, err
		}
	}
	snap, err := s.Read(ctx, subject)
	if errors.Is(err, store.ErrNotFound) && w.acked == 0 {
		return next, nil
	}
	if err != nil {
		return next, fmt.Errorf("read: %w", err)
	}
	got, err := allEvents(snap.Prefix)
	snap.Close()
	switch {
	case err != nil:
		return next, fmt.Errorf("read: %w", err)
	case len(snap.Damage) > 0:
		return next, fmt.Errorf("damage: %+v", snap.Damage)
	case len(got) < w.acked:
		return next, fmt.Errorf("only %d events are left", len(got))
	case len(got) > len(w.log):
		return next, fmt.Errorf("%d events, of %d that ever were", len(got), len(w.log))
	}
	if d := difference(w.log[:len(got)], got); d != "" {
		return next, fmt.Errorf("wrong events:\n%s", d)
	}
	st, err := s.Stat(ctx, subject)
	if err != nil || st.Pos != snap.Pos || st.State == store.StateDamaged {
		return next, fmt.Errorf("stat %+v, %v; read to %v", st, err, snap.Pos)
	}
	wr, err := s.Open(ctx, subject)
	if err != nil {
		return next, fmt.Errorf("open: %w", err)
	}
	defer wr.Close()
	lost := wr.Opened().Lost
	for _, ev := range lost {
		if i := int(ev.Seq); ev.Type != session.TypeLost && (i >= len(w.log) || !same(ev, w.log[i])) {
			return next, fmt.Errorf("a copy of %d that is none", ev.Seq)
		}
	}
	log := append(got[:len(got):len(got)], lost...)
	log = append(log, by("next", session.Seq(len(log)), 2)...)
	next.log = log
	pos, err := wr.Append(ctx, log[len(got):])
	if err == nil {
		pos, err = wr.Flush(ctx)
	}
	if err != nil || int(pos.Next) != len(log) {
		return next, fmt.Errorf("new work, to %d: %w", pos.Next, err)
	}
	next.acked = len(log)
	more := by("next", pos.Next, 1)
	next.log = append(log, more...)
	if _, err = wr.Append(ctx, more); err == nil {
		_, err = wr.Flush(ctx)
	}
	if err != nil {
		return next, fmt.Errorf("more work: %w", err)
	}
	next.acked++
	if now, err := allEvents(wr.Stored()); err != nil || difference(next.log, now) != "" {
		return next, fmt.Errorf("stored: %w %s", err, difference(next.log, now))
	}
	id := session.ID(fmt.Sprint("fork-at-", pos.Next))
	h, err := childHeader(ctx, s, wr.Header(), id, pos.Next-1)
	if err == nil {
		err = s.CreateFork(ctx, h, by("fork", pos.Next, 1))
	}
	if err != nil && !errors.Is(err, store.ErrExists) {
		return next, fmt.Errorf("fork: %w", err)
	}
	snap, err = s.Read(ctx, id)
	if err != nil {
		return next, fmt.Errorf("fork: %w", err)
	}
	defer snap.Close()
	kid, err := allEvents(snap.Prefix)
	if err != nil || difference(append(log[:len(log):len(log)], by("fork", pos.Next, 1)...), kid) != "" {
		return next, fmt.Errorf("fork: %w, %d events of %d", err, len(kid), len(log)+1)
	}
	return next, nil
}

func allEvents(p session.Prefix) (out []session.Event, err error) {
	for ev, err := range p.Range(0, p.Len()) {
		if err != nil {
			return out, err
		}
		out = append(out, ev)
	}
	return out, nil
}

// recover verifies, and lets the life that goes on die before each of its calls.
func (c *crashes) recover(m *vfs.Mem, w wanted, at string, likely bool) {
	before := m.Clone()
	next, calls := c.verify(m, w, at)
	c.verify(m.Crash(vfs.Lost), next, at+", after the next life, without power")
	if !likely && !c.all {
		return
	}
	for i, k := range calls.points() {
		if c.t.Failed() {
			return
		}
		share := 13
		if c.sc.thorough {
			share = 3
		}
		if c.turn++; !c.all && (c.turn+i)%share != 0 { // others each time
			continue
		}
		m := before.Clone()
		next, err := c.goOn(dyingAt(m, m.Process(), k), w)
		if err != nil && !errors.Is(err, vfs.ErrKilled) && !errors.Is(err, store.ErrNotSaved) {
			c.t.Fatalf("%s, the next life killed before its call %d: %v", at, k, err)
		}
		c.found(m, next, fmt.Sprintf("%s, the next life killed before its call %d", at, k), c.verifyOnly)
	}
}

func (c *crashes) verifyOnly(m *vfs.Mem, w wanted, at string, _ bool) { c.verify(m, w, at) }

// TestCrashes kills each scenario before every call, takes the power away or not, and does the same to the recovery.
// STRANDLINE_CRASH_SEEDS=n tries n ways by chance of losing what is not synced, instead of 1.
func TestCrashes(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			c := newCrashes(t, sc)
			m := c.base.Clone()
			calls := dyingAt(m, m.Process(), 0)
			if w := c.run(m, calls, true); w.err != nil {
				t.Fatal(w.err)
			}
			for i, k := range calls.points() {
				if !c.all && sc.every > 0 && i%sc.every != 0 {
					continue
				}
				m := c.base.Clone()
				w := c.run(m, dyingAt(m, m.Process(), k), false)
				c.found(m, w, fmt.Sprint("killed before call ", k), c.recover)
				if t.Failed() {
					return
				}
			}
			t.Logf("%d crash points of %d calls, %d different disks", len(calls.points()), len(calls.at), c.tried)
		})
	}
}

// faultWays are the ways in which a call fails.
var faultWays = []struct {
	name string
	rule vfs.Rule
}{
	{"EIO", vfs.Rule{}},
	{"ENOSPC-for-good", vfs.Rule{Forever: true, Err: syscall.ENOSPC}},
	{"ENOSPC", vfs.Rule{Err: syscall.ENOSPC}},
	{"EROFS-for-good", vfs.Rule{Forever: true, Err: syscall.EROFS, Match: func(c vfs.Call) bool {
		switch c.Op {
		case vfs.OpCreate, vfs.OpLink, vfs.OpRename, vfs.OpRemove, vfs.OpMkdir, vfs.OpWrite, vfs.OpAccess:
			return true
		}
		return false
	}}},
	{"EINTR", vfs.Rule{Err: syscall.EINTR}},
	{"EACCES-for-good", vfs.Rule{Forever: true, Err: syscall.EACCES}},
	{"EMFILE", vfs.Rule{Err: syscall.EMFILE, Match: func(c vfs.Call) bool { return c.Op == vfs.OpOpen || c.Op == vfs.OpCreate }}},
	{"done-but-fails", vfs.Rule{After: true}},
	{"done-but-fails-for-good", vfs.Rule{After: true, Forever: true}},
	{"short", vfs.Rule{Short: 7, Err: syscall.ENOSPC, Match: func(c vfs.Call) bool { return c.Op == vfs.OpWrite }}},
	{"short-by-records", vfs.Rule{Short: 400, Match: func(c vfs.Call) bool { return c.Op == vfs.OpWrite }}},
	{"syncs-fail-for-good", vfs.Rule{Forever: true, Match: isSync}},
	{"sync-drops", vfs.Rule{Drop: true, Match: func(c vfs.Call) bool { return c.Op == vfs.OpSync || c.Op == vfs.OpSyncData }}},
}

func isSync(c vfs.Call) bool {
	return c.Op == vfs.OpSync || c.Op == vfs.OpSyncData || c.Op == vfs.OpSyncDir
}

// TestEveryCallFails breaks each call of each scenario, in each way; then the process ends, or is killed, or the
// power fails.
func TestEveryCallFails(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			c := newCrashes(t, sc)
			for i, way := range faultWays {
				for k := 1; k < math.MaxInt; k++ {
					if !c.all && (k+i)%c.share(way.rule) != 0 { // another way meets the others
						continue
					}
					m := c.base.Clone()
					rule := way.rule
					rule.K = k
					p := m.Process()
					fsys := vfs.Fault(p, rule)
					at := fmt.Sprintf("%s at call %d", way.name, k)
					w := c.run(m, fsys, k%2 == 0)
					if fsys.Hits() < k {
						if w.err != nil {
							t.Fatalf("%s: nothing was broken, but: %v", at, w.err)
						}
						break
					}
					if w.err != nil && !saysWhy(w.err) {
						t.Fatalf("%s: an error that does not say what happened: %v", at, w.err)
					}
					c.found(m, w, at, c.verifyOnly)
					if t.Failed() {
						return
					}
				}
			}
		})
	}
}

// saysWhy reports whether err is one that a caller can do something with when a call failed.
func saysWhy(err error) bool {
	for _, kind := range []error{syscall.EIO, syscall.ENOSPC, syscall.EINTR, syscall.EROFS, syscall.EACCES, syscall.EMFILE,
		store.ErrDamaged, store.ErrNotSaved, store.ErrReadOnly, session.ErrRange} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
