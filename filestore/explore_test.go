package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

const subjectDir = "/s/sessions/" + string(subject)

// reading reads the session so many times, beside those who write it.
func reading(times int) func(*actor) { return readingOf(subject, times) }

func readingOf(id session.ID, times int) func(*actor) {
	return func(a *actor) {
		s := a.store()
		for i := range times {
			due := a.due()
			snap, err := s.Read(context.Background(), id)
			if a.dead {
				return
			}
			if err != nil {
				if !a.away(err) {
					a.fail("%s: %v", a.name, err)
				}
				continue
			}
			if (len(snap.Damage) > 0 || snap.Lost != nil) && !a.meddled() {
				a.fail("%s read a damaged log: %+v, lost %v", a.name, snap.Damage, snap.Lost)
			}
			var got []session.Event
			for ev, err := range snap.Prefix.Range(0, snap.Prefix.Len()) {
				if a.dead {
					return
				}
				if err != nil {
					a.fail("%s: %v", a.name, err)
					return
				}
				got = append(got, ev)
			}
			snap.Close()
			if what := lacks(got, due); what != "" {
				a.fail("what %s read %s", a.name, what)
			}
			if at := differs(a.seen, got); at != "" && a.s.locks != noLock {
				a.fail("%s read what it did not read again: %s", a.name, at)
			}
			a.seen = got
			a.becomes("read", i)
		}
		a.done = true
	}
}

func digest(evs []session.Event) uint64 {
	h := uint64(0)
	for _, ev := range evs {
		h = mix(h, int(ev.Seq), []byte(ev.Data))
	}
	return h
}

// forking forks the session at what it finds to be its end.
func forking(child session.ID) func(*actor) { return forkingOf(subject, child) }

func forkingOf(id, child session.ID) func(*actor) {
	return func(a *actor) {
		s, ctx := a.store(), context.Background()
		snap, err := s.Read(ctx, id)
		if a.dead {
			return
		}
		if err != nil {
			if a.refused = a.away(err); !a.refused {
				a.fail("%s: %v", a.name, err)
			}
			return
		}
		n, from := snap.Pos.Next, snap.Header
		snap.Close()
		h, err := childHeader(ctx, s, from, child, n-1)
		if err == nil {
			err = s.CreateFork(ctx, h, by(a.name, n, 1))
		}
		if a.dead {
			return
		}
		if err != nil {
			if a.refused = a.away(err); !a.refused {
				a.fail("%s: fork: %v", a.name, err)
			}
			return
		}
		a.child, a.done = child, true
	}
}

// upkeep does something to a whole session, once. A refusal is an answer, and so is that the session is not where it was.
func upkeep(do func(*Store) error) func(*actor) {
	return func(a *actor) {
		err := do(a.store())
		if a.dead {
			return
		}
		a.err = err
		switch {
		case err == nil:
			a.keeps = true
		case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrFenced) && a.s.locks != allLocks:
			a.refused = true
		default:
			a.fail("%s: %v", a.name, err)
		}
	}
}

func packing(s *Store) error {
	_, err := s.Pack(context.Background(), subject)
	return err
}

func repairSubject(s *Store) error {
	_, err := s.Repair(context.Background(), subject, false)
	return err
}

func purgeSubject(s *Store) error { return s.Purge(context.Background(), []session.ID{subject})[0].Err }

func trashSubject(s *Store) error { return s.Trash(context.Background(), subject) }

// lacks says which of the seqs that were acknowledged, "seq who", is not in a log as it was acknowledged.
func lacks(got []session.Event, acked []string) string {
	for _, ack := range acked {
		var q int
		var who string
		fmt.Sscan(ack, &q, &who)
		if q >= len(got) || string(got[q].Data) != string(by(who, session.Seq(q), 1)[0].Data) {
			return fmt.Sprintf("does not have seq %d, which was acknowledged by %s", q, who)
		}
	}
	return ""
}

// differs says where b does not begin with a.
func differs(a, b []session.Event) string {
	for i := range a {
		if i >= len(b) || !same(a[i], b[i]) {
			return fmt.Sprint("seq ", i)
		}
	}
	return ""
}

func (w *world) prefix(what string, a, b []session.Event) {
	if at := differs(a, b); at != "" {
		w.fail("%s: %s", what, at)
	}
}

// atEnd returns the store as it is when all have ended.
func (w *world) atEnd() *Store {
	for _, p := range w.players {
		if n := len(slices.DeleteFunc(slices.Clone(p.fds), func(f *desc) bool { return f == nil })); n > 0 {
			w.fail("%s has ended and has %d locks", p.name, n)
		}
	}
	o := testOptions()
	mem := w.mem
	if mem == nil {
		mem = w.disk.mem()
	}
	o.FS = mem.Process()
	s, err := Open("/s", o)
	if err != nil {
		panic(err)
	}
	s.locks, s.ready, s.patience = true, true, 0
	return s
}

// checkEnd looks at what is left when all have ended.
func checkEnd(w *world) {
	if w.disk.names[subjectDir] == nil && w.disk.names["/s/trash/"+string(subject)] == nil {
		if len(w.acks) > 0 || w.deaths == 0 {
			w.fail("the session is not there")
		}
		return
	}
	if w.disk.names[subjectDir] != nil && w.disk.names[subjectDir+"/"+headerName] == nil {
		recreate.do(w)
	}
	s := w.atEnd()
	var err error
	if w.disk.names[subjectDir] == nil {
		err = s.Restore(context.Background(), subject)
	}
	if err == nil && w.s.spoilt {
		_, err = s.Repair(context.Background(), subject, false)
	}
	if err != nil {
		w.fail("in the end: %v", err)
		return
	}
	got := w.endsWith(s, subject)
	if w.wrong != "" {
		return
	}
	var acked []string
	for q, who := range w.acks {
		acked = append(acked, fmt.Sprint(int(q), " ", who))
	}
	slices.Sort(acked)
	if what := lacks(got, acked); what != "" {
		w.fail("the log %s", what)
	}
	progress := w.deaths > 0 || w.meddled > 0 || w.s.spoilt && w.metDamage()
	for _, p := range w.players {
		a := p.at
		if a.seen != nil && w.s.locks != noLock {
			w.prefix(p.name+" read what is not there in the end", a.seen, got)
		}
		if a.child != "" && w.s.locks != noLock {
			child := w.endsWith(s, a.child)
			if w.wrong == "" {
				w.prefix("the fork is not what it was forked from", child[:len(child)-1], got)
			}
		}
		progress = progress || a.keeps || a.done && a.seen == nil && a.child == ""
	}
	if !progress {
		var ends []string
		for _, p := range w.players {
			a := p.at
			ends = append(ends, fmt.Sprintf("%s: done %v, fenced %v, refused %v", p.name, a.done, a.fenced, a.refused))
		}
		w.fail("nobody could go on: %s", strings.Join(ends, "; "))
		return
	}
	// The next life finds nothing in its way.
	n := session.Seq(len(got))
	next, err := s.Open(context.Background(), subject)
	if err == nil {
		_, err = next.Append(context.Background(), by("next", n, 1))
	}
	if err == nil {
		_, err = next.Flush(context.Background())
	}
	if err != nil {
		w.fail("the next life: %v", err)
		return
	}
	next.Close()
	w.prefix("the next life lost something", got, w.endsWith(s, subject))
	list, _ := s.fs.ReadDir(subjectDir)
	for _, e := range list {
		if strings.HasPrefix(e.Name(), ".") {
			w.fail("%s is left", e.Name())
		}
	}
}

// metDamage reports whether a life found the damage, and held the session until it had, so that the repair that came
// meanwhile was refused: the only way in which neither goes on.
func (w *world) metDamage() bool {
	found := func(kind error) bool {
		return slices.ContainsFunc(w.players, func(p *mover) bool { return errors.Is(p.at.err, kind) })
	}
	return found(store.ErrDamaged) && found(store.ErrBusy)
}

// checkPurged looks at what a purge of the session has left of it, and of its forks.
func checkPurged(w *world) {
	s := w.atEnd()
	forks := func(when string) {
		child := append(events(0, w.s.stored), by("child", session.Seq(w.s.stored), 1)...)
		got := w.endsWith(s, "child")
		if difference(child, got) != "" {
			w.fail("%s the fork is\n%s", when, difference(child, got))
		}
		for _, p := range w.players {
			a := p.at
			if a.child != "" && w.wrong == "" {
				w.prefix(when+" the fork of the fork lacks something", append(child, by(p.name, session.Seq(len(child)), 1)...), w.endsWith(s, a.child))
			}
			late := a.err != nil && a.refused && slices.ContainsFunc(w.players, func(o *mover) bool { return o.at.keeps }) // another has purged it
			if w.deaths == 0 && !a.done && !a.keeps && !late {
				w.fail("%s could not go on", p.name)
			}
		}
	}
	forks("behind the purge")
	if err := purgeSubject(s); err != nil && !errors.Is(err, store.ErrNotFound) {
		w.fail("the next purge: %v", err)
		return
	}
	forks("behind the next purge")
	if list, err := s.fs.ReadDir("/s/trash"); err != nil || len(list) > 0 {
		w.fail("in the trash there is still %v, %v", list, err)
	}
	if c, err := s.Create(context.Background(), testHeader(subject)); err == nil {
		c.Close()
		w.fail("the id of what was purged is free")
	}
}

// endsWith reads a session at the end.
func (w *world) endsWith(s *Store, id session.ID) []session.Event {
	snap, err := s.Read(context.Background(), id)
	if err != nil {
		w.fail("reading %s at the end: %v", id, err)
		return nil
	}
	defer snap.Close()
	if len(snap.Damage) > 0 || snap.Lost != nil || snap.Torn != nil {
		w.fail("%s in the end: damage %+v, lost %v, torn %v", id, snap.Damage, snap.Lost, snap.Torn)
	}
	var got []session.Event
	for ev, err := range snap.Prefix.Range(0, snap.Prefix.Len()) {
		if err != nil {
			w.fail("reading %s at the end: %v", id, err)
			return nil
		}
		got = append(got, ev)
	}
	return got
}

// meddle is what somebody does who knows nothing of sessions.
type meddle struct {
	name string
	may  func(*world) bool
	do   func(*world)
}

func there(name string) func(*world) bool {
	return func(w *world) bool { return w.disk.names[name] != nil }
}

const header = subjectDir + "/" + headerName

var (
	removeHeader = meddle{"removes session.json", there(header), func(w *world) { w.remove(header) }}
	recreate     = meddle{"makes session.json again",
		func(w *world) bool { return w.disk.names[subjectDir] != nil && w.disk.names[header] == nil },
		func(w *world) { w.put(header, w.e.header) }}
	replaceHeader = meddle{"replaces session.json by a copy", there(header),
		func(w *world) { w.remove(header); w.put(header, w.e.header) }}
	removeAnnouncement = meddle{"removes the announcement", there("/s/live/" + string(subject) + ".json"),
		func(w *world) { w.remove("/s/live/" + string(subject) + ".json") }}
)

type processes = []func(*actor)

var scripts = []script{
	{name: "two lives", about: "opens, appends and flushes twice; opens, appends and flushes twice",
		lives: processes{living(1, 1), living(1, 1)}, deaths: 2, stored: 2},
	{name: "three lives", about: "opens, appends and flushes once; opens, appends and flushes once; opens, appends and flushes once",
		lives: processes{living(1), living(1), living(1)}, deaths: 3, stored: 2},
	{name: "three create", about: "creates, appends and flushes twice; creates, appends and flushes once; creates, appends and flushes once",
		lives: processes{creating(1, 1), creating(1), creating(1)}, deaths: 3},
	{name: "two lives, no lease", about: "opens, appends and flushes twice; opens, appends and flushes once",
		lives: processes{living(1, 1), living(1)}, locks: noLease, deaths: 2, stored: 2},
	{name: "two lives, no lock", about: "opens, appends and flushes twice; opens, appends and flushes once",
		lives: processes{living(1, 1), living(1)}, locks: noLock, deaths: 2, stored: 2, wide: true},
	{name: "two long lives, no lock", about: "opens, appends and flushes twice; opens, appends and flushes twice",
		lives: processes{living(1, 1), living(1, 1)}, locks: noLock, deaths: 2, stored: 2, wide: true},
	{name: "three lives, no lease", about: "opens, appends and flushes once; opens, appends and flushes once; opens, appends and flushes once",
		lives: processes{living(1), living(1), living(1)}, locks: noLease, deaths: 3, stored: 2, wide: true},
	{name: "three lives, no lock", about: "opens, appends and flushes once; opens, appends and flushes once; opens, appends and flushes once",
		lives: processes{living(1), living(1), living(1)}, locks: noLock, deaths: 3, stored: 2, wide: true},
	{name: "three long lives, no lock", about: "opens, appends and flushes twice; opens, appends and flushes once; opens, appends and flushes once",
		lives: processes{living(1, 1), living(1), living(1)}, locks: noLock, deaths: 3, stored: 2, wide: true, long: true},
	{name: "life and reader", about: "opens, appends and flushes twice; reads twice",
		lives: processes{living(1, 2), reading(2)}, deaths: 1, stored: 2},
	{name: "two lives and reader, no lease", about: "opens, appends and flushes once; opens, appends and flushes once; reads once",
		lives: processes{living(1), living(1), reading(1)}, locks: noLease, deaths: 2, stored: 2, wide: true},
	{name: "two lives and reader, no lock", about: "opens, appends and flushes once; opens, appends and flushes once; reads once",
		lives: processes{living(1), living(1), reading(1)}, locks: noLock, deaths: 2, stored: 2, wide: true},
	{name: "life and fork", about: "opens, appends and flushes twice; forks at the end",
		lives: processes{living(1, 1), forking("child")}, deaths: 2, stored: 2},
	{name: "life and packing", about: "opens, appends and flushes twice; packs (of three lives before)",
		lives: processes{living(1, 1), upkeep(packing)}, deaths: 2, stored: 2, before: 2, unnamed: true},
	{name: "packing and reader", about: "packs (of three lives before); reads twice",
		lives: processes{upkeep(packing), reading(2)}, deaths: 1, stored: 2, before: 2, unnamed: true},
	{name: "life and trash", about: "opens, appends and flushes twice; moves the session to the trash",
		lives: processes{living(1, 1), upkeep(trashSubject)}, deaths: 2, stored: 2, moved: true, unnamed: true},
	{name: "trash and fork", about: "moves the session to the trash; forks at the end",
		lives: processes{upkeep(trashSubject), forking("child")}, deaths: 2, stored: 2, moved: true, unnamed: true},
	{name: "purge and reader", about: "purges the session, which has a fork; reads the fork twice",
		lives: processes{upkeep(purgeSubject), readingOf("child", 2)}, deaths: 1, stored: 2, trashed: true, unnamed: true},
	{name: "purge and fork", about: "purges the session, which has a fork; forks the fork at the end",
		lives: processes{upkeep(purgeSubject), forkingOf("child", "grandchild")}, deaths: 2, stored: 2, trashed: true, unnamed: true},
	{name: "packing, no lease", about: "opens, appends and flushes once; packs (of three lives before)",
		lives: processes{living(1), upkeep(packing)}, locks: noLease, deaths: 2, stored: 2, before: 2, unnamed: true, wide: true},
	{name: "packing, no lock", about: "opens, appends and flushes once; packs (of three lives before)",
		lives: processes{living(1), upkeep(packing)}, locks: noLock, deaths: 2, stored: 2, before: 2, unnamed: true, wide: true},
	{name: "life, packing and reader", about: "opens, appends and flushes once; packs (of three lives before); reads once",
		lives: processes{living(1), upkeep(packing), reading(1)}, deaths: 2, stored: 2, before: 2, unnamed: true, wide: true},
	{name: "two lives and packing", about: "opens, appends and flushes once; opens, appends and flushes once; packs (of three lives before)",
		lives: processes{living(1), living(1), upkeep(packing)}, deaths: 3, stored: 2, before: 2, unnamed: true, wide: true},
	{name: "life, trash and fork", about: "opens, appends and flushes once; moves the session to the trash; forks at the end",
		lives: processes{living(1), upkeep(trashSubject), forking("child")}, deaths: 3, stored: 2, moved: true, unnamed: true, wide: true},
	{name: "two purges and fork", about: "purges the session, which has a fork; purges it; forks the fork at the end",
		lives: processes{upkeep(purgeSubject), upkeep(purgeSubject), forkingOf("child", "grandchild")}, deaths: 3, stored: 2, trashed: true, unnamed: true},
	{name: "life and two repairs", about: "opens, appends and flushes once; repairs (a first line that is bad); repairs",
		lives: processes{living(1), upkeep(repairSubject), upkeep(repairSubject)}, deaths: 3, stored: 2, before: 1, spoilt: true, unnamed: true, wide: true},
	{name: "life and repair", about: "opens, appends and flushes twice; repairs (a first line that is bad)",
		lives: processes{living(1, 1), upkeep(repairSubject)}, deaths: 2, stored: 2, before: 1, spoilt: true, unnamed: true},
	{name: "rolling", about: "opens, appends and flushes three times; opens, appends and flushes once (a new segment for each batch)",
		lives: processes{living(1, 1, 1), living(1)}, deaths: 2, stored: 2, roll: 400},
	{name: "rolling, no lock", about: "opens, appends and flushes twice; opens, appends and flushes once (a new segment for each batch)",
		lives: processes{living(1, 1), living(1)}, locks: noLock, deaths: 2, stored: 2, roll: 300, wide: true},
	{name: "rolling and reader", about: "opens, appends and flushes twice; reads twice (a new segment for each batch)",
		lives: processes{living(1, 1), reading(2)}, deaths: 1, stored: 2, roll: 300},
	{name: "a sync fails, no lease", about: "opens, appends and flushes twice; opens, appends and flushes once (a sync of the first fails)",
		lives: processes{living(1, 2), living(1)}, locks: noLease, deaths: 2, stored: 2, failSync: [3]int{3}, wide: true},
	{name: "a sync fails, no lock", about: "opens, appends and flushes twice; opens, appends and flushes once (a sync of the first fails)",
		lives: processes{living(1, 2), living(1)}, locks: noLock, deaths: 2, stored: 2, failSync: [3]int{3}, wide: true},
	{name: "a sync fails, and reader", about: "opens, appends and flushes twice; reads twice (a sync of the first fails)",
		lives: processes{living(1, 2), reading(2)}, deaths: 1, stored: 2, failSync: [3]int{3}},
	{name: "session.json removed, made again, replaced", about: "opens, appends and flushes once; opens, appends and flushes once",
		lives: processes{living(1), living(1)}, deaths: 2, stored: 2,
		meddles: []meddle{removeHeader, recreate, replaceHeader}, meddling: 2, wide: true},
	{name: "session.json replaced", about: "opens, appends and flushes once; opens, appends and flushes once",
		lives: processes{living(1), living(1)}, deaths: 2, stored: 2, meddles: []meddle{replaceHeader}, meddling: 1, wide: true},
	{name: "the announcement removed", about: "opens, appends and flushes once; opens, appends and flushes once",
		lives: processes{living(1), living(1)}, deaths: 2, stored: 2,
		meddles: []meddle{removeAnnouncement}, meddling: 1, loud: true},
}

// TestExplore runs the scripts, the long ones too with STRANDLINE_EXPLORE=long, and keeps the table in docs/format.md.
func TestExplore(t *testing.T) {
	oneAtATime(t)
	rows := map[string]result{}
	for _, s := range scripts {
		if !s.long || os.Getenv("STRANDLINE_EXPLORE") == "long" {
			t.Run(s.name, func(t *testing.T) { rows[s.name] = runScript(t, &s) })
		}
	}
	if !t.Failed() {
		explored(t, rows)
	}
}

// row is a line of the table without its figures.
func (s *script) row() string {
	var meddles []string
	for _, m := range s.meddles {
		meddles = append(meddles, m.name)
	}
	can := "-"
	if len(meddles) > 0 {
		can = fmt.Sprintf("%d of: %s", s.meddling, strings.Join(meddles, "; "))
	}
	return fmt.Sprintf("| %s | %s | %s | %d | %s |", s.name, s.about, s.locks, s.deaths, can)
}

// explored holds the table against what was run. States may drift by half: a call more or less changes them.
func explored(t *testing.T, rows map[string]result) {
	const path, begin, end = "../docs/format.md", "<!-- explored -->\n", "<!-- /explored -->"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(doc), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no table of what was explored", path)
	}
	table := "| script | processes | locks that work | deaths | meddling | states | how many schedules | CPU seconds |\n|---|---|---|---|---|---|---|---|\n"
	for _, s := range scripts {
		was, figures := "", ""
		for line := range strings.Lines(old) {
			if rest, ok := strings.CutPrefix(line, s.row()); ok {
				was, figures = line, rest
			}
		}
		r, ran := rows[s.name]
		var states int
		var schedules float64
		fmt.Sscanf(figures, " %d | %g |", &states, &schedules)
		switch {
		case ran && (was == "" || states < r.states/2 || states > r.states*2):
			if !*update {
				t.Errorf("%s: the table has %q, explored were %d states and %.0e schedules (run with -update)", s.name, was, r.states, r.schedules)
			}
			was = fmt.Sprintf("%s %d | %.0e | %.2f |\n", s.row(), r.states, r.schedules, r.cpu.Seconds())
		case was == "" && !ran:
			t.Errorf("%s: it was never run for the table (STRANDLINE_EXPLORE=long, -update)", s.name)
		}
		table += was
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
