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

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// grove is sessions and their forks, with what each of them should hold. All of its events have the same time: no clock tells anything.
type grove struct {
	t    *testing.T
	s    *Store
	rnd  *rand.Rand
	logs map[session.ID][]session.Event // as whoever wrote them last knows them: behind a repair with its marks
	past map[session.ID][]earlier
	gone map[session.ID]bool // purged
	n    int
	did  strings.Builder

	backs, refused, repairs int
}

// earlier is what the directory of a session held.
type earlier struct {
	files map[string][]byte
	log   []session.Event
}

func (f *grove) note(format string, a ...any) { fmt.Fprintf(&f.did, format+"; ", a...) }

func (f *grove) ids() []session.ID { return slices.Sorted(maps.Keys(f.logs)) }

// any returns a session that is there.
func (f *grove) any() session.ID {
	ids := slices.DeleteFunc(f.ids(), func(id session.ID) bool { return f.gone[id] })
	return ids[f.rnd.IntN(len(ids))]
}

func (f *grove) events(first session.Seq, n int) []session.Event {
	f.n++
	evs := by(fmt.Sprint("life ", f.n), first, n)
	for i := range evs {
		evs[i].Time = testHeader(subject).CreatedAt
	}
	return evs
}

// life writes to id; one that is damaged is repaired first.
func (f *grove) life(id session.ID) {
	w, err := f.s.Open(f.t.Context(), id)
	if errors.Is(err, store.ErrDamaged) {
		f.refused++
		f.repair(id)
		w, err = f.s.Open(f.t.Context(), id)
	}
	if errors.Is(err, store.ErrDamaged) {
		return // by another
	}
	if err != nil {
		f.t.Fatal(err)
	}
	defer w.Close()
	if w.Opened().Lost != nil {
		f.t.Fatalf("%s: lost %v", id, w.Opened().Lost)
	}
	at := w.Opened().Pos.Next
	if n := session.Seq(len(f.logs[id])); at != n {
		f.t.Fatalf("%s: a life begins at %d, want %d", id, at, n)
	}
	for range 1 + f.rnd.IntN(3) {
		evs := f.events(session.Seq(len(f.logs[id])), 1+f.rnd.IntN(3))
		mustAppend(f.t, w, evs)
		mustFlush(f.t, w)
		f.logs[id] = append(f.logs[id][:len(f.logs[id]):len(f.logs[id])], evs...)
	}
	f.note("%s wrote to %d", id, len(f.logs[id]))
}

func (f *grove) pack(id session.ID) {
	p, err := f.s.Pack(f.t.Context(), id)
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		f.t.Fatal(err)
	}
	f.note("%s packed %d to %d", id, p.Before, p.After)
}

func (f *grove) remember(id session.ID) {
	p := earlier{map[string][]byte{}, f.logs[id]}
	for _, e := range must[[]fs.DirEntry](f.t)(os.ReadDir(f.s.dir(id))) {
		if _, ok := parseSegName(e.Name()); ok {
			p.files[e.Name()] = must[[]byte](f.t)(os.ReadFile(filepath.Join(f.s.dir(id), e.Name())))
		}
	}
	if len(p.files) > 0 {
		f.past[id] = append(f.past[id], p)
	}
}

// back makes the files of id what they were, or a little less.
func (f *grove) back(id session.ID) {
	if len(f.past[id]) == 0 {
		return
	}
	p := f.past[id][f.rnd.IntN(len(f.past[id]))]
	for _, e := range must[[]fs.DirEntry](f.t)(os.ReadDir(f.s.dir(id))) {
		if _, ok := parseSegName(e.Name()); ok {
			os.Remove(filepath.Join(f.s.dir(id), e.Name()))
		}
	}
	last := slices.Max(slices.Collect(maps.Keys(p.files)))
	lines := strings.SplitAfter(string(p.files[last]), "\n")
	cut := f.rnd.IntN(len(lines) - 2)
	for name, b := range p.files {
		if name == last {
			b = []byte(strings.Join(lines[:len(lines)-1-cut], ""))
		}
		if err := os.WriteFile(filepath.Join(f.s.dir(id), name), b, 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	f.logs[id] = p.log[:len(p.log)-cut]
	f.backs++
	f.note("%s back to %d", id, len(f.logs[id]))
}

func (f *grove) fork(from session.ID) {
	id := session.ID(fmt.Sprintf("fork-%d", len(f.logs)))
	src, _, err := f.s.readHeader(f.s.dir(from), from)
	if err != nil {
		f.t.Fatal(err)
	}
	at := session.Seq(f.rnd.IntN(len(f.logs[from])))
	if f.rnd.IntN(3) > 0 {
		at = max(0, session.Seq(len(f.logs[from])-1-f.rnd.IntN(4)))
	}
	h, err := childHeader(f.t.Context(), f.s, src, id, at)
	var own []session.Event
	if f.rnd.IntN(4) > 0 {
		own = f.events(at+1, 1)
	}
	if err == nil {
		err = f.s.CreateFork(f.t.Context(), h, own)
	}
	if errors.Is(err, store.ErrDamaged) {
		return
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.logs[id] = append(slices.Clone(f.logs[from][:at+1]), own...)
	f.note("%s from %s at %d, trail %v", id, from, at, len(h.Parent.Trail))
}

// repair repairs id, and takes its marks for what it should hold from then on.
func (f *grove) repair(id session.ID) {
	rep, err := f.s.Repair(f.t.Context(), id, false)
	f.note("%s repaired: lost %v, %v", id, rep.Lost, err)
	f.repairs++
	if errors.Is(err, store.ErrDamaged) {
		return
	}
	if err != nil {
		f.t.Fatal(err)
	}
	got, snap := readEvents(f.t, f.s, id)
	if len(snap.Damage) > 0 {
		f.t.Fatalf("%s is still damaged: %v", id, snap.Damage)
	}
	f.mended(id, "repaired", got)
	f.logs[id] = got
}

func (f *grove) mended(id session.ID, how string, got []session.Event) {
	f.t.Helper()
	want := f.logs[id]
	for i, ev := range got {
		switch {
		case i < len(want) && same(ev, want[i]):
		case ev.Type == session.TypeLost && ev.Seq == session.Seq(i):
		default:
			what := "nothing"
			if i < len(want) {
				what = string(want[i].Data)
			}
			f.t.Fatalf("%s of %s: event %d is %s, want %s", how, id, i, ev.Data, what)
		}
	}
}

func (f *grove) purge(id session.ID) {
	if err := f.s.Trash(f.t.Context(), id); err != nil {
		f.t.Fatal(err)
	}
	if f.rnd.IntN(3) == 0 {
		if err := f.s.Restore(f.t.Context(), id); err != nil {
			f.t.Fatal(err)
		}
		f.note("%s in the trash and back", id)
		return
	}
	if r := f.s.Purge(f.t.Context(), []session.ID{id}); r[0].Err != nil {
		f.t.Fatal(r[0].Err)
	}
	f.gone[id] = true
	f.note("%s purged", id)
}

// read checks that no wrong event is read, in any way.
func (f *grove) read() {
	f.t.Helper()
	for _, id := range f.ids() {
		if f.gone[id] {
			continue
		}
		got, _ := readEvents(f.t, f.s, id)
		f.mended(id, "read", got)
		sal := must[*store.Snapshot](f.t)(f.s.Salvage(f.t.Context(), id))
		f.mended(id, "salvage", collect(f.t, sal.Prefix)[:min(int(sal.Prefix.Len()), len(f.logs[id]))])
		sal.Close()
		if snap, err := f.s.Peek(f.t.Context(), id); err == nil && snap != nil {
			f.mended(id, "peek", collect(f.t, snap.Prefix))
		}
		from := session.Seq(f.rnd.IntN(len(f.logs[id])))
		got, err := followFrom(f.t, f.s, id, from)
		if err != nil && !errors.Is(err, store.ErrDamaged) && !errors.Is(err, session.ErrRange) && !errors.Is(err, session.ErrBoundary) {
			f.t.Fatalf("following %s from %d: %v", id, from, err)
		}
		for i, ev := range got {
			if q := int(from) + i; q >= len(f.logs[id]) || !same(ev, f.logs[id][q]) && ev.Type != session.TypeLost {
				f.t.Fatalf("following %s from %d: %v", id, from, ev)
			}
		}
	}
}

// reader checks the same of docs/reader.py.
func (f *grove) reader(run bool) {
	f.t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil || !run {
		return
	}
	for _, id := range f.ids() {
		if !f.gone[id] {
			_, _, got := readerSays(f.t, python, f.s, id)
			f.mended(id, "docs/reader.py", got)
		}
	}
}

// Many sessions and forks of forks, small segments and many lives, each of which may go back to what it was, go on, be packed, repaired,
// deleted, in any order: no fork ever has an event that is not its own, and at the end one repair of each, parents first, makes all healthy.
func TestTrailsOfATree(t *testing.T) {
	seeds := 8
	if n, err := strconv.Atoi(os.Getenv("STRANDLINE_TRAIL_SEEDS")); err == nil {
		seeds = n
	}
	backs, refused, repairs := 0, 0, 0
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 77))
			o := testOptions()
			o.FS = unsynced
			if rnd.IntN(2) == 0 {
				o.SegmentBytes = 400 + rnd.Int64N(800)
			}
			f := &grove{t: t, s: openWith(t, t.TempDir(), o), rnd: rnd, logs: map[session.ID][]session.Event{}, past: map[session.ID][]earlier{}, gone: map[session.ID]bool{}}
			defer func() {
				if t.Failed() {
					t.Log(f.did.String())
				}
			}()
			w := must[store.Writer](t)(f.s.Create(t.Context(), testHeader(subject)))
			f.logs[subject] = f.events(0, 3)
			mustAppend(t, w, f.logs[subject])
			mustFlush(t, w)
			w.Close()
			lives := 3
			if rnd.IntN(4) == 0 {
				lives = 40
			}
			for range lives {
				f.life(subject)
				f.remember(subject)
			}
			for range 30 {
				id := f.any()
				switch op := rnd.IntN(20); {
				case op < 8:
					f.life(id)
				case op < 10:
					f.pack(id)
				case op < 12:
					f.remember(id)
				case op < 15:
					if len(f.logs) < 7 {
						f.fork(id)
					}
				case op < 18:
					f.back(id)
				case op < 19:
					f.repair(id)
				case len(f.logs)-len(f.gone) > 2:
					f.purge(id)
				}
				f.read()
			}
			f.reader(seed < uint64(seeds/8))
			for _, id := range append(f.ids()[len(f.ids())-1:], f.ids()...) { // the subject first; forks by age
				if !f.gone[id] {
					f.repair(id)
				}
			}
			f.read()
			f.reader(seed < uint64(seeds/8))
			for _, id := range f.ids() {
				if f.gone[id] {
					continue
				}
				v := must[*store.Snapshot](t)(f.s.Verify(t.Context(), id))
				if len(v.Damage) > 0 || v.Prefix.Len() < session.Seq(len(f.logs[id])) {
					t.Errorf("%s: %d of %d events, damage %v", id, v.Prefix.Len(), len(f.logs[id]), v.Damage)
				}
				v.Close()
			}
			backs, refused, repairs = backs+f.backs, refused+f.refused, repairs+f.repairs
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d times back, %d lives refused, %d repairs", backs, refused, repairs)
}
