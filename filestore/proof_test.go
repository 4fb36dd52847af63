package filestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// kin is a session of 30 events in two lives, a fork at 21 of it, and a fork of that at 24.
type kin struct {
	s    *Store
	logs map[session.ID][]session.Event
}

func newKin(t *testing.T) *kin {
	k := &kin{openStore(t, t.TempDir(), nil), map[session.ID][]session.Event{}}
	add := func(id session.ID, w store.Writer, n int) {
		for range 2 {
			evs := by(string(id), session.Seq(len(k.logs[id])), n)
			mustAppend(t, w, evs)
			mustFlush(t, w)
			k.logs[id] = append(k.logs[id], evs...)
		}
		w.Close()
	}
	add(subject, must[store.Writer](t)(k.s.Create(t.Context(), testHeader(subject))), 5)
	add(subject, must[store.Writer](t)(k.s.Open(t.Context(), subject)), 10)
	from := subject
	for i, id := range []session.ID{"child", "grandchild"} {
		cut := session.Seq(21 + 3*i)
		src, _, err := k.s.readHeader(k.s.dir(from), from)
		if err != nil {
			t.Fatal(err)
		}
		h := must[session.Header](t)(childHeader(t.Context(), k.s, src, id, cut))
		h.CreatedAt += 100
		own := by(string(id), cut+1, 2)
		if err := k.s.CreateFork(t.Context(), h, own); err != nil {
			t.Fatal(err)
		}
		k.logs[id] = append(slices.Clone(k.logs[from][:cut+1]), own...)
		add(id, must[store.Writer](t)(k.s.Open(t.Context(), id)), 3)
		from = id
	}
	return k
}

// forget makes the headers of the forks what they were before there were trails.
func (k *kin) forget(t *testing.T) {
	t.Helper()
	k.rewrite(t, func(h *session.Header) { h.Parent.Trail = nil })
}

// rewrite changes the headers of the forks.
func (k *kin) rewrite(t *testing.T, change func(h *session.Header)) {
	t.Helper()
	for _, id := range []session.ID{"child", "grandchild"} {
		h, _, err := k.s.readHeader(k.s.dir(id), id)
		if err != nil {
			t.Fatal(err)
		}
		change(&h)
		if err := os.WriteFile(filepath.Join(k.s.dir(id), headerName), must[[]byte](t)(record.AppendHeader(nil, h)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// eachKin runs f for forks with and without a trail.
func eachKin(t *testing.T, f func(t *testing.T, newKin func(*testing.T) *kin)) {
	t.Run("trail", func(t *testing.T) { f(t, newKin) })
	t.Run("no trail", func(t *testing.T) {
		f(t, func(t *testing.T) *kin {
			k := newKin(t)
			k.forget(t)
			return k
		})
	})
}

// healthy checks that all of the events of id are there or marked, and returns how many are marked.
func (k *kin) healthy(t *testing.T, at string, id session.ID) int {
	t.Helper()
	v := must[*store.Snapshot](t)(k.s.Verify(t.Context(), id))
	defer v.Close()
	if len(v.Damage) > 0 || v.Prefix.Len() < session.Seq(len(k.logs[id])) {
		t.Fatalf("%s: %s has %d events, want %d, damage %v", at, id, v.Prefix.Len(), len(k.logs[id]), v.Damage)
	}
	return wantMended(t, at, collect(t, v.Prefix)[:len(k.logs[id])], k.logs[id])
}

func damage(t *testing.T, s *Store, id session.ID) string {
	t.Helper()
	v := must[*store.Snapshot](t)(s.Verify(t.Context(), id))
	defer v.Close()
	if len(v.Damage) == 0 {
		return ""
	}
	return v.Damage[0].Detail
}

// The end of a session is cut off: nothing in its own files says so, its forks do. Whatever is cut, a repair of the session, and of
// nothing else, makes all of them whole again.
func TestForkProvesWhatWasCut(t *testing.T) { eachKin(t, forkProvesWhatWasCut) }

func forkProvesWhatWasCut(t *testing.T, newKin func(*testing.T) *kin) {
	k := newKin(t)
	path := filepath.Join(k.s.dir(subject), segmentName(10))
	k.first(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := []int{}
	for i, c := range text {
		if c == '\n' {
			at = append(at, i, i+1)
		}
	}
	for _, cut := range append(at, 0, 1, 100, len(text)/2, len(text)-30) {
		what := fmt.Sprintf("cut at %d of %d", cut, len(text))
		os.RemoveAll(filepath.Join(k.s.dir(subject), damagedName))
		reset(t, path, text[:cut])
		if err := os.WriteFile(filepath.Join(k.s.dir(subject), segmentName(0)), k.first(t), 0o600); err != nil {
			t.Fatal(err)
		}
		whole := 9 + strings.Count(string(text[:cut]), "\n")
		why := damage(t, k.s, subject)
		if whole >= 22 {
			if why != "" {
				t.Fatalf("%s: %s", what, why)
			}
			continue
		}
		if why == "" || whole > 10 && !strings.Contains(why, "child begins with its events up to 21") {
			t.Fatalf("%s: %d events are left, and the health check says %q", what, whole, why)
		}
		for _, id := range []session.ID{"child", "grandchild"} {
			var de *store.DamagedError
			if _, err := k.s.Repair(t.Context(), id, false); !errors.As(err, &de) || de.Owner != subject {
				t.Fatalf("%s: repair of %s: %v", what, id, err)
			}
		}
		rep, _ := repaired(t, k.s, what, subject, append(k.logs[subject][:30:30], by("later", 22, 10)...))
		if n := store.Records(rep.Lost); n != 22-max(whole, 10) {
			t.Fatalf("%s: %d are lost: %v", what, n, rep.Lost)
		}
		for _, id := range []session.ID{"child", "grandchild"} {
			if n := k.healthy(t, what, id); n != store.Records(rep.Lost) {
				t.Fatalf("%s: %d of %s are lost", what, n, id)
			}
		}
	}
}

// first is the text of the subject's first segment.
func (k *kin) first(t *testing.T) []byte {
	t.Helper()
	if k.logs["first"] == nil {
		b, err := os.ReadFile(filepath.Join(k.s.dir(subject), segmentName(0)))
		if err != nil {
			t.Fatal(err)
		}
		k.logs["first"] = []session.Event{{Data: b}}
	}
	return k.logs["first"][0].Data
}

// A session whose end was cut off goes on with other events. They are not the events that its forks begin with, and are never returned for
// them; each fork gets a copy of what is certain, and the session is left as it is.
func TestForkOfWhatWentOn(t *testing.T) { eachKin(t, forkOfWhatWentOn) }

func forkOfWhatWentOn(t *testing.T, newKin func(*testing.T) *kin) {
	for _, more := range []int{1, 3, 5, 9, 30} { // up to below the fork, to it, and behind it
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			k := newKin(t)
			other := k.goOn(t, more)
			now := append(k.logs[subject][:17:17], other...)
			if why := damage(t, k.s, subject); why != "" {
				t.Fatalf("what went on is not damaged: %s", why)
			}
			for _, id := range []session.ID{"grandchild", "child"} {
				got, _ := readEvents(t, k.s, id)
				wantMended(t, "read before the repair", got, k.logs[id])
				sal := must[*store.Snapshot](t)(k.s.Salvage(t.Context(), id))
				wantMended(t, "shown before the repair", collect(t, sal.Prefix), k.logs[id])
				sal.Close()
				dry := must[store.Repair](t)(k.s.Repair(t.Context(), id, true))
				rep := must[store.Repair](t)(k.s.Repair(t.Context(), id, false))
				if want := []store.Span{{First: 17, Last: 21}}; !slices.Equal(rep.Lost, want) || !slices.Equal(dry.Lost, want) {
					t.Fatalf("%s: lost %v, dry run %v", id, rep.Lost, dry.Lost)
				}
				if n := k.healthy(t, "repaired", id); n != 5 {
					t.Fatalf("%s: %d lost", id, n)
				}
				w := must[store.Writer](t)(k.s.Open(t.Context(), id))
				next := by("later", w.Opened().Pos.Next, 1)
				mustAppend(t, w, next)
				mustFlush(t, w)
				w.Close()
				k.logs[id] = append(k.logs[id], next...)
			}
			if rep := must[store.Repair](t)(k.s.Repair(t.Context(), subject, false)); rep.Damage != nil {
				t.Fatalf("%+v", rep)
			}
			got, _ := readEvents(t, k.s, subject)
			wantEvents(t, got, now)
			// A fork of the fork, and a purge, keep the copy.
			src, _, err := k.s.readHeader(k.s.dir("child"), "child")
			if err != nil {
				t.Fatal(err)
			}
			h := must[session.Header](t)(childHeader(t.Context(), k.s, src, "late", 26))
			if err := k.s.CreateFork(t.Context(), h, by("late", 27, 1)); err != nil {
				t.Fatal(err)
			}
			k.logs["late"] = append(k.logs["child"][:27:27], by("late", 27, 1)...)
			if err := k.s.Trash(t.Context(), subject); err != nil {
				t.Fatal(err)
			}
			if p := k.s.Purge(t.Context(), []session.ID{subject}); p[0].Err != nil {
				t.Fatal(p[0].Err)
			}
			for _, id := range []session.ID{"child", "grandchild", "late"} {
				k.healthy(t, "purged", id)
			}
		})
	}
}

// A mark at the fork point does not make what was written behind a cut the fork's.
func TestMarkAtTheForkPoint(t *testing.T) { eachKin(t, markAtTheForkPoint) }

func markAtTheForkPoint(t *testing.T, newKin func(*testing.T) *kin) {
	k := newKin(t)
	k.goOn(t, 9)
	k.hurtForkPoint(t)
	must[store.Repair](t)(k.s.Repair(t.Context(), subject, false))
	for _, id := range []session.ID{"grandchild", "child"} {
		got, snap := readEvents(t, k.s, id)
		if wantMended(t, "read", got, k.logs[id]); len(snap.Damage) == 0 {
			t.Fatalf("%s is taken for whole", id)
		}
		must[store.Repair](t)(k.s.Repair(t.Context(), id, false))
	}
	for _, id := range []session.ID{"child", "grandchild"} {
		if n := k.healthy(t, "repaired", id); n != 5 {
			t.Fatalf("%d of %s are lost", n, id)
		}
	}
	if why := damage(t, k.s, subject); why != "" {
		t.Fatal(why)
	}
}

// purgedKin is a kin whose first session was purged.
func purgedKin(t *testing.T) *kin {
	t.Helper()
	k := newKin(t)
	if err := k.s.Trash(t.Context(), subject); err != nil {
		t.Fatal(err)
	}
	if p := k.s.Purge(t.Context(), []session.ID{subject}); p[0].Err != nil {
		t.Fatal(p[0].Err)
	}
	return k
}

// left is the directory of what the subject left to id, or that file in it.
func (k *kin) left(id session.ID, file ...string) string {
	return filepath.Join(append([]string{k.s.dir(id), inheritedDir, string(subject)}, file...)...)
}

// What a purged parent left to its fork is the fork's: it repairs that itself. What nobody else was left is lost.
func TestInheritedRepaired(t *testing.T) {
	for name, hurt := range map[string]func(lines []string) string{
		"a record": func(l []string) string {
			l[3] = strings.Replace(l[3], "subject", "sabject", 1)
			return strings.Join(l, "")
		},
		"the first": func(l []string) string {
			l[1] = strings.Replace(l[1], "subject", "sabject", 1)
			return strings.Join(l, "")
		},
		"the last":      func(l []string) string { return strings.Join(l[:len(l)-2], "") },
		"the head":      func(l []string) string { l[0] = "x" + l[0]; return strings.Join(l, "") },
		"all behind it": func(l []string) string { return l[0] },
		"all":           func(l []string) string { return "" },
		"cut":           func(l []string) string { return strings.Join(l[:4], "") + l[4][:30] },
	} {
		for _, file := range []session.Seq{0, 10} {
			t.Run(fmt.Sprintf("%s of %d", name, file), func(t *testing.T) {
				k := purgedKin(t)
				b, _ := os.ReadFile(k.left("child", segmentName(file)))
				b = []byte(hurt(strings.SplitAfter(string(b), "\n")))
				hurt := func(id session.ID) {
					os.Remove(k.left(id, segmentName(file))) // it may be the file of the other, too
					if err := os.WriteFile(k.left(id, segmentName(file)), b, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				hurt("grandchild")
				want := append(slices.Clone(k.logs["grandchild"]), by("later", session.Seq(len(k.logs["grandchild"])), 3)...)
				if rep, _ := repaired(t, k.s, name, "grandchild", want); len(rep.Lost) > 0 {
					t.Fatalf("another has it: %+v", rep)
				}
				hurt("child")
				os.RemoveAll(k.left("grandchild"))
				var de *store.DamagedError
				if _, err := k.s.Open(t.Context(), "child"); !errors.As(err, &de) || de.Owner != "child" {
					t.Fatalf("open: %v", err)
				}
				rep, _ := repaired(t, k.s, name, "child", append(slices.Clone(k.logs["child"]), by("later", session.Seq(len(k.logs["child"])), 3)...))
				if (len(rep.Lost) == 0) != (name == "the head") {
					t.Fatalf("%+v", rep)
				}
			})
		}
	}
}

// Where all is gone that a purged parent left to a fork, another that was left the same gives it back; if there is none nothing can bring it back,
// and it is marked.
func TestAllInheritedGone(t *testing.T) {
	for name, c := range map[string]struct {
		from []session.ID // whose files are gone
		what func(dir string) error
		lost int
	}{
		"the directory":          {[]session.ID{"child"}, os.RemoveAll, 0},
		"the directory of both":  {[]session.ID{"child", "grandchild"}, os.RemoveAll, 22},
		"inherited/ of both":     {[]session.ID{"child", "grandchild"}, func(dir string) error { return os.RemoveAll(filepath.Dir(dir)) }, 22},
		"the first file":         {[]session.ID{"child"}, func(dir string) error { return os.Remove(filepath.Join(dir, segmentName(0))) }, 0},
		"the first file of both": {[]session.ID{"child", "grandchild"}, func(dir string) error { return os.Remove(filepath.Join(dir, segmentName(0))) }, 10},
	} {
		t.Run(name, func(t *testing.T) {
			k := purgedKin(t)
			for _, id := range c.from {
				if err := c.what(k.left(id)); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range c.from {
				var de *store.DamagedError
				if _, err := k.s.Open(t.Context(), id); !errors.As(err, &de) || de.Owner != id {
					t.Fatalf("open: %v", err)
				}
				sal := must[*store.Snapshot](t)(k.s.Salvage(t.Context(), id))
				if n := wantMended(t, "shown before the repair", collect(t, sal.Prefix), k.logs[id]); n != c.lost {
					t.Fatalf("%d of %s are not shown", n, id)
				}
				sal.Close()
				dry := must[store.Repair](t)(k.s.Repair(t.Context(), id, true))
				rep := must[store.Repair](t)(k.s.Repair(t.Context(), id, false))
				if told(rep, nil) != told(dry, nil) || store.Records(rep.Lost) != c.lost {
					t.Fatalf("%s: %+v\nthe dry run said %+v", id, rep, dry)
				}
				w := must[store.Writer](t)(k.s.Open(t.Context(), id))
				mustAppend(t, w, by("later", w.Opened().Pos.Next, 1))
				mustFlush(t, w)
				w.Close()
			}
			for _, id := range []session.ID{"child", "grandchild"} {
				if n := k.healthy(t, name, id); n > 0 && n != c.lost {
					t.Fatalf("%d of %s are lost", n, id)
				}
			}
		})
	}
}

// What a repair set aside that then died is kept, whatever the fork is given in its place.
func TestSetAsideOfAPartIsKept(t *testing.T) {
	k := newKin(t)
	k.goOn(t, 9)
	must[store.Repair](t)(k.s.Repair(t.Context(), "child", false))
	dir := k.left("child")
	kept := map[string]bool{}
	for range 2 {
		if err := os.Mkdir(filepath.Join(dir, damagedName), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
		for _, n := range must[[]segName](t)(k.s.segmentNames(dir)) {
			if err := flipAt(n.in(dir), 10); err != nil {
				t.Fatal(err)
			}
			text, _ := os.ReadFile(n.in(dir))
			kept[string(text)] = true
			if err := os.Rename(n.in(dir), filepath.Join(dir, damagedName, n.String())); err != nil {
				t.Fatal(err)
			}
		}
		must[store.Repair](t)(k.s.Repair(t.Context(), "child", false))
		k.healthy(t, "repaired", "child")
		left := maps.Clone(kept)
		err := filepath.WalkDir(k.s.dir("child"), func(path string, _ os.DirEntry, err error) error {
			text, _ := os.ReadFile(path)
			delete(left, string(text))
			return err
		})
		if err != nil || len(left) > 0 {
			t.Fatalf("%d files are not kept, %v", len(left), err)
		}
	}
}

// What can come back is waited for, and named: nothing of it is called lost.
func TestWhatCanComeBackIsNotLost(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, k *kin){
		"removed by hand": func(t *testing.T, k *kin) { os.RemoveAll(k.s.dir(subject)) },
		"in the trash without its files": func(t *testing.T, k *kin) {
			if err := k.s.Trash(t.Context(), subject); err != nil {
				t.Fatal(err)
			}
			for _, n := range must[[]segName](t)(k.s.segmentNames(k.s.trash(subject))) {
				os.Remove(n.in(k.s.trash(subject)))
			}
		},
		"half purged": func(t *testing.T, k *kin) {
			k.s.bury(subject)
			for _, n := range must[[]segName](t)(k.s.segmentNames(k.s.dir(subject))) {
				os.Remove(n.in(k.s.dir(subject)))
			}
		},
	} {
		k := newKin(t)
		prepare(t, k)
		before := tree(t, k.s.root)
		for _, id := range []session.ID{"child", "grandchild"} {
			for _, dry := range []bool{true, false} {
				var de *store.DamagedError
				if rep, err := k.s.Repair(t.Context(), id, dry); !errors.As(err, &de) || de.Owner != subject || len(rep.Lost) > 0 {
					t.Errorf("%s: repair of %s: %+v, %v", name, id, rep, err)
				}
			}
		}
		if now := tree(t, k.s.root); !maps.Equal(now, before) {
			t.Errorf("%s: the store has changed", name)
		}
	}
}

// What a writer leaves when it dies is passed over by the next life, unless a fork proves that there was more.
func TestTornBelowAFork(t *testing.T) {
	k := newKin(t)
	k.first(t)
	path := filepath.Join(k.s.dir(subject), segmentName(10))
	text, _ := os.ReadFile(path)
	lines := strings.SplitAfter(string(text), "\n")
	for n, want := range map[int]bool{14: true, 15: false} { // lines, the last of which is cut: 22 events and the first line are 13
		reset(t, path, []byte(strings.Join(lines[:n-2], "")+lines[n-2][:20]))
		if err := os.WriteFile(filepath.Join(k.s.dir(subject), segmentName(0)), k.first(t), 0o600); err != nil {
			t.Fatal(err)
		}
		_, snap := readEvents(t, k.s, subject)
		w, err := k.s.Open(t.Context(), subject)
		if want != errors.Is(err, store.ErrDamaged) || want != (len(snap.Damage) > 0) {
			t.Errorf("%d lines: open: %v, read: %v", n, err, snap.Damage)
		}
		if err == nil {
			w.Close()
		}
	}
}

// While the repair of a fork hands over what it begins with, nobody purges or collects: they would take what is unfinished for a dead one's.
func TestRepairHandsOverUnderTheLock(t *testing.T) {
	k := newKin(t)
	k.goOn(t, 3)
	met := 0
	s := openStore(t, k.s.root, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		if strings.Contains(c.Name, handingOver) {
			met++
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if lock, err := k.s.lockStore(ctx, true); !errors.Is(err, context.Canceled) {
				t.Errorf("%v of %s: who purges has the lock: %v", c.Op, c.Name, err)
				lock.Close()
			}
		}
		return do()
	}))
	must[store.Repair](t)(s.Repair(t.Context(), "child", false))
	if met == 0 {
		t.Error("nothing was handed over")
	}
	if n := k.healthy(t, "repaired", "child"); n != 5 {
		t.Errorf("%d marks", n)
	}
}

// The same where two parts, one behind the other, are gone: what follows the first of them stands in the second of the other session.
func TestTwoPartsGone(t *testing.T) {
	k := newKin(t)
	src, _, err := k.s.readHeader(k.s.dir("grandchild"), "grandchild")
	if err != nil {
		t.Fatal(err)
	}
	h := must[session.Header](t)(childHeader(t.Context(), k.s, src, "late", 28))
	if err := k.s.CreateFork(t.Context(), h, by("late", 29, 1)); err != nil {
		t.Fatal(err)
	}
	k.logs["late"] = append(k.logs["grandchild"][:29:29], by("late", 29, 1)...)
	for _, id := range []session.ID{subject, "child"} {
		if err := k.s.Trash(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if p := k.s.Purge(t.Context(), []session.ID{id}); p[0].Err != nil {
			t.Fatal(p[0].Err)
		}
	}
	for _, gone := range [][]session.ID{{"grandchild"}, {"late"}, {"late", "grandchild"}} {
		want := 0
		if len(gone) == 2 {
			want = 25 // nobody has them
		}
		for _, id := range gone {
			if err := os.RemoveAll(filepath.Join(k.s.dir(id), inheritedDir)); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range gone {
			sal := must[*store.Snapshot](t)(k.s.Salvage(t.Context(), id))
			if n := wantMended(t, "shown before the repair", collect(t, sal.Prefix), k.logs[id]); n != want {
				t.Errorf("%v: %d of %s are not shown, want %d", gone, n, id, want)
			}
			sal.Close()
			if rep := must[store.Repair](t)(k.s.Repair(t.Context(), id, false)); store.Records(rep.Lost) != want {
				t.Errorf("%v: %s: %+v", gone, id, rep)
			}
			if n := k.healthy(t, "repaired", id); n != want {
				t.Errorf("%v: %d of %s are lost, want %d", gone, n, id, want)
			}
		}
	}
}

// What an earlier repair set aside is not taken where it follows nothing.
func TestSetAsideFollowsNothing(t *testing.T) {
	k := newKin(t)
	dir := k.s.dir(subject)
	if err := os.Mkdir(filepath.Join(dir, damagedName), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, segmentName(10)), filepath.Join(dir, damagedName, segmentName(10))); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(k.first(t)), "\n")
	if err := os.WriteFile(filepath.Join(dir, segmentName(0)), []byte(strings.Join(lines[:6], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	rep := must[store.Repair](t)(k.s.Repair(t.Context(), subject, false))
	if want := []store.Span{{First: 5, Last: 21}}; !slices.Equal(rep.Lost, want) {
		t.Errorf("lost %v, want %v", rep.Lost, want)
	}
	for _, id := range []session.ID{"child", "grandchild"} {
		if n := k.healthy(t, "repaired", id); n != 17 {
			t.Errorf("%s has %d marks", id, n)
		}
	}
}
