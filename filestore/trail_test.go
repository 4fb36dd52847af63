package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// pastKin is a session of several lives with a fork and a fork of that. All of their events have the same time: no clock tells anything.
type pastKin struct {
	*kin
	t     *testing.T
	rnd   *rand.Rand
	lives int
	did   strings.Builder // what happened
	past  []past          // of the subject

	flipped bool
	python  string // "": docs/reader.py is not run
}

// past is what the directory of the subject held at some time.
type past struct {
	files map[string][]byte
	n     session.Seq
	lives int
}

func (k *pastKin) note(format string, a ...any) { fmt.Fprintf(&k.did, format+"; ", a...) }

// life adds events of a new life to the subject.
func (k *pastKin) life(who string) {
	k.t.Helper()
	evs := by(who, session.Seq(len(k.logs[subject])), 1+k.rnd.IntN(5))
	for i := range evs {
		evs[i].Time = testHeader(subject).CreatedAt
	}
	var w store.Writer
	if len(k.logs[subject]) == 0 {
		w = must[store.Writer](k.t)(k.s.Create(k.t.Context(), testHeader(subject)))
	} else {
		w = must[store.Writer](k.t)(k.s.Open(k.t.Context(), subject))
	}
	mustAppend(k.t, w, evs)
	mustFlush(k.t, w)
	w.Close()
	k.lives++
	k.logs[subject] = append(k.logs[subject], evs...)
	k.note("%s wrote %d", who, len(evs))
}

func (k *pastKin) pack() {
	k.t.Helper()
	p := must[store.Packed](k.t)(k.s.Pack(k.t.Context(), subject))
	k.note("packed %d to %d", p.Before, p.After)
}

func (k *pastKin) remember() {
	k.t.Helper()
	p := past{map[string][]byte{}, session.Seq(len(k.logs[subject])), k.lives}
	for _, e := range must[[]fs.DirEntry](k.t)(os.ReadDir(k.s.dir(subject))) {
		if _, ok := parseSegName(e.Name()); ok {
			p.files[e.Name()] = must[[]byte](k.t)(os.ReadFile(filepath.Join(k.s.dir(subject), e.Name())))
		}
	}
	k.past = append(k.past, p)
}

// goBack makes the files of the subject what they were at p, or, with cut, has so many records fewer in the last of them.
func (k *pastKin) goBack(p past, cut int) {
	k.t.Helper()
	for _, e := range must[[]fs.DirEntry](k.t)(os.ReadDir(k.s.dir(subject))) {
		if _, ok := parseSegName(e.Name()); ok {
			os.Remove(filepath.Join(k.s.dir(subject), e.Name()))
		}
	}
	last := p.last()
	for name, b := range p.files {
		if name == last {
			lines := strings.SplitAfter(string(b), "\n")
			b = []byte(strings.Join(lines[:len(lines)-1-cut], ""))
		}
		if err := os.WriteFile(filepath.Join(k.s.dir(subject), name), b, 0o600); err != nil {
			k.t.Fatal(err)
		}
	}
	k.logs[subject] = k.logs[subject][:p.n-session.Seq(cut)]
	k.note("back to %d", len(k.logs[subject]))
}

// last is the name of the last segment.
func (p past) last() string { return slices.Max(slices.Collect(maps.Keys(p.files))) }

// fork makes id a fork of from at seq at.
func (k *pastKin) fork(id, from session.ID, at session.Seq) {
	k.t.Helper()
	src, _, err := k.s.readHeader(k.s.dir(from), from)
	if err != nil {
		k.t.Fatal(err)
	}
	h := must[session.Header](k.t)(childHeader(k.t.Context(), k.s, src, id, at))
	own := by(string(id), at+1, 2)
	if err := k.s.CreateFork(k.t.Context(), h, own); err != nil {
		k.t.Fatal(err)
	}
	k.logs[id] = append(slices.Clone(k.logs[from][:at+1]), own...)
	k.note("%s forked from %s at %d with a trail of %d", id, from, at, len(h.Parent.Trail))
}

// read checks that no wrong event is read of the forks, in any way.
func (k *pastKin) read(at string) {
	k.t.Helper()
	for _, id := range []session.ID{"child", "grandchild"} {
		got, _ := readEvents(k.t, k.s, id)
		wantMended(k.t, at+": read of "+string(id), got, k.logs[id])
		sal := must[*store.Snapshot](k.t)(k.s.Salvage(k.t.Context(), id))
		wantMended(k.t, at+": salvage of "+string(id), collect(k.t, sal.Prefix), k.logs[id])
		sal.Close()
		if snap, err := k.s.Peek(k.t.Context(), id); err == nil && snap != nil {
			var got []session.Event
			for ev, err := range snap.Prefix.Range(0, snap.Prefix.Len()) {
				if err != nil && !errors.Is(err, store.ErrDamaged) {
					k.t.Fatal(err)
				}
				if err != nil {
					break
				}
				got = append(got, ev)
			}
			wantMended(k.t, at+": peek of "+string(id), got, k.logs[id])
		}
		if got, err := followFrom(k.t, k.s, id, 0); err == nil || errors.Is(err, store.ErrDamaged) {
			wantMended(k.t, at+": following "+string(id), got, k.logs[id])
		} else {
			k.t.Fatal(err)
		}
		if k.python != "" {
			_, _, got := readerSays(k.t, k.python, k.s, id)
			wantMended(k.t, at+": docs/reader.py of "+string(id), got, k.logs[id])
		}
	}
}

// Sessions go back to what they were (a backup, a lost disk), go on with other events, are packed, repaired, deleted: a fork never has
// an event that is not its own, though no time tells; one repair of each session ends healthy; and a fork loses no event that its parent
// still has, if the lives since are not more than a trail tells of. STRANDLINE_TRAIL_SEEDS tries more.
func TestTrailTells(t *testing.T) {
	seeds := 20
	if n, err := strconv.Atoi(os.Getenv("STRANDLINE_TRAIL_SEEDS")); err == nil {
		seeds = n
	}
	wentOn, kept, lost := 0, 0, 0
	for seed := range uint64(seeds) {
		k := &pastKin{kin: &kin{openStore(t, t.TempDir(), nil), map[session.ID][]session.Event{}}, t: t, rnd: rand.New(rand.NewPCG(seed, 5))}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			k.t = t
			defer func() {
				if t.Failed() {
					t.Log(k.did.String())
				}
			}()
			if k.python, _ = exec.LookPath("python3"); seed >= uint64(seeds/20) {
				k.python = ""
			}
			left, since := k.history()
			wentOn += k.goOnOrNot()
			k.read("first")
			k.mishap()
			for _, id := range []session.ID{subject, "child", "grandchild"} {
				if k.logs[id] != nil {
					must[store.Repair](t)(k.s.Repair(t.Context(), id, false))
				}
			}
			k.read("repaired")
			for _, id := range []session.ID{"child", "grandchild"} {
				h, _, err := k.s.readHeader(k.s.dir(id), id)
				if err != nil {
					t.Fatal(err)
				}
				end := int(h.Parent.Spans[0].End)
				n, gone := k.healthy(t, "repaired", id), max(0, end-int(left))
				kept, lost = kept+end-n, lost+max(0, n-gone)
				if since < trailStarts-1 && !k.flipped && n > gone {
					t.Errorf("%s has %d marks, and %d of its events are gone", id, n, gone)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d parents went on; the forks have %d events of theirs, and lost %d that their parents still had", wentOn, seeds, kept, lost)
}

// history makes the subject and its forks, and takes the subject back to some time before. It returns how many events that leaves, and how many
// lives it had since.
func (k *pastKin) history() (left session.Seq, since int) {
	k.t.Helper()
	for range 2 + k.rnd.IntN(12) {
		k.life("subject")
		if k.rnd.IntN(6) == 0 {
			k.pack()
		}
		k.remember()
	}
	n := len(k.logs[subject])
	at := session.Seq(n - 1 - k.rnd.IntN(min(n, 6)))
	k.fork("child", subject, at)
	k.fork("grandchild", "child", max(0, at+1-session.Seq(k.rnd.IntN(6))))
	for range k.rnd.IntN(3) {
		k.life("subject")
		if k.rnd.IntN(4) == 0 {
			k.pack()
		}
	}
	p := k.past[k.rnd.IntN(len(k.past))]
	last, _ := parseSegName(p.last())
	k.goBack(p, k.rnd.IntN(int(p.n-last.first)))
	return session.Seq(len(k.logs[subject])), k.lives - p.lives
}

// goOnOrNot mostly lets the subject go on with other events.
func (k *pastKin) goOnOrNot() int {
	k.t.Helper()
	if k.rnd.IntN(4) == 0 {
		return 0
	}
	for range 1 + k.rnd.IntN(3) {
		k.life("other")
		if k.rnd.IntN(3) == 0 {
			k.pack()
		}
	}
	return 1
}

// mishap is what may happen before anybody repairs the forks.
func (k *pastKin) mishap() {
	k.t.Helper()
	switch k.rnd.IntN(5) {
	case 0:
		names := must[[]segName](k.t)(k.s.segmentNames(k.s.dir(subject)))
		path := names[k.rnd.IntN(len(names))].in(k.s.dir(subject))
		at := k.rnd.IntN(int(must[os.FileInfo](k.t)(os.Stat(path)).Size()))
		if err := flipAt(path, at); err != nil {
			k.t.Fatal(err)
		}
		k.flipped = true
		k.note("flipped %s at %d", filepath.Base(path), at)
	case 1:
		must[store.Repair](k.t)(k.s.Repair(k.t.Context(), subject, false))
		k.note("repaired")
	case 2:
		if err := k.s.Trash(k.t.Context(), subject); err != nil {
			k.t.Fatal(err)
		}
		if r := k.s.Purge(k.t.Context(), []session.ID{subject}); r[0].Err != nil {
			k.t.Fatal(r[0].Err)
		}
		delete(k.logs, subject)
		k.note("purged")
	}
	k.read(k.did.String())
}

// What is joined, repaired or handed over says in its first line where lives began, and an older one that does not may hide one anywhere.
func TestStartsAreKept(t *testing.T) {
	k := newKin(t) // lives begin at 0 and 10
	heads := func(dir string) (out string) {
		for _, n := range must[[]segName](t)(k.s.segmentNames(dir)) {
			err := k.s.withText(n.in(dir), func(f vfs.File) error {
				head, _, err := readSegmentHead(f)
				out += fmt.Sprint(n, head.Starts, startsOf(head, n), " ")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	want := func(dir, want string) {
		t.Helper()
		if got := strings.ReplaceAll(strings.ReplaceAll(heads(dir), "00000000000000", ""), segSuffix, ""); got != want+" " {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	dir := k.s.dir(subject)
	if err := flipAt(filepath.Join(dir, segmentName(10)), 1200); err != nil {
		t.Fatal(err)
	}
	must[store.Repair](t)(k.s.Repair(t.Context(), subject, false)) // the new file does not begin with a life
	want(dir, "000000 [] [{0 0}] 000010 [] [{10 10}] 000018 [] []")
	w := must[store.Writer](t)(k.s.Open(t.Context(), subject))
	mustAppend(t, w, by("more", 30, 1))
	mustFlush(t, w)
	w.Close()
	must[store.Packed](t)(k.s.Pack(t.Context(), subject))
	want(dir, "000000-000030.zst [{0 0} {10 10}] [{0 0} {10 10}] 000030 [] [{30 30}]")
	if err := k.s.Trash(t.Context(), subject); err != nil {
		t.Fatal(err)
	}
	if p := k.s.Purge(t.Context(), []session.ID{subject}); p[0].Err != nil {
		t.Fatal(p[0].Err)
	}
	want(k.left("child"), "000000 [{0 0} {10 10}] [{0 0} {10 10}]") // a copy, because it holds more than is the fork's

	if got := startsOf(record.Segment{Session: subject, First: 3}, segName{3, 9}); !slices.Equal(got, []session.Span{{First: 3, Last: 8}}) {
		t.Errorf("of a joined one that says nothing: %v", got)
	}
	if got := startsOf(record.Segment{}, segName{3, session.None}); !slices.Equal(got, []session.Span{{First: 3, Last: 3}}) {
		t.Errorf("of one that cannot be read: %v", got)
	}
	var many []session.Span
	for q := range session.Seq(1000) {
		many = append(many, session.Span{First: 2 * q, Last: 2 * q})
	}
	got := clipSpans(many, 100, 1900)
	if len(got) != maxStarts || got[0].First != 100 || got[len(got)-1].First != 1898 || got[1].First != got[1].Last {
		t.Errorf("of 900: %d, %v to %v", len(got), got[0], got[len(got)-1])
	}
}
