package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// wantMended checks a log that was salvaged or repaired: every event is the one of want at its place, or a mark; a mark
// that stood in want counts as good. It returns how many are marks.
func wantMended(t *testing.T, at string, got, want []session.Event) int {
	t.Helper()
	lost := 0
	for i, ev := range got {
		switch {
		case i < len(want) && same(ev, want[i]):
		case ev.Type == session.TypeLost && ev.Seq == session.Seq(i):
			lost++
		case i < len(want):
			t.Fatalf("%s: event %d is wrong: %v, want %v", at, i, ev, want[i])
		default:
			t.Fatalf("%s: event %d was never written: %v", at, i, ev)
		}
	}
	return lost
}

// repaired repairs id and checks what is promised of it: what was salvaged before is what is stored then, the
// files that were there are there byte for byte, the log is healthy, and a new life goes on.
func repaired(t *testing.T, s *Store, at string, id session.ID, want []session.Event) (store.Repair, []session.Event) {
	t.Helper()
	ctx := t.Context()
	before := tree(t, s.dir(id))
	sal, err := s.Salvage(ctx, id)
	if err != nil {
		t.Fatalf("%s: salvage: %v", at, err)
	}
	shown := collect(t, sal.Prefix)
	sal.Close()
	if len(sal.Damage) == 0 {
		t.Fatalf("%s: nothing to repair", at)
	}
	lost := wantMended(t, at, shown, want)
	dry, err := s.Repair(ctx, id, true)
	if err != nil {
		t.Fatalf("%s: dry run: %v", at, err)
	}
	if now := tree(t, s.dir(id)); !maps.Equal(before, now) {
		t.Fatalf("%s: salvage or a dry run wrote something", at)
	}
	rep, err := s.Repair(ctx, id, false)
	if err != nil {
		t.Fatalf("%s: repair: %v", at, err)
	}
	if got := store.Records(rep.Lost); got != lost || store.Records(dry.Lost) != lost || !slices.Equal(dry.Written, rep.Written) {
		t.Fatalf("%s: %d records are said to be lost, %d are; the dry run said %d: %+v %+v", at, got, lost, store.Records(dry.Lost), rep, dry)
	}
	after := tree(t, s.dir(id))
	for name, content := range before {
		if (strings.HasSuffix(name, segSuffix) || isPacked(name)) && strings.HasPrefix(content, "-rw") && !slices.Contains(slices.Collect(maps.Values(after)), content) {
			t.Fatalf("%s: %s is not kept", at, name)
		}
	}
	got, snap := readEvents(t, s, id)
	wantEvents(t, got, shown)
	v, err := s.Verify(ctx, id)
	if err != nil || len(v.Damage) > 0 || len(snap.Damage) > 0 {
		t.Fatalf("%s: after the repair: %v, damage %v", at, err, v.Damage)
	}
	v.Close()
	if rep, err := s.Repair(ctx, id, false); err != nil || rep.Damage != nil {
		t.Fatalf("%s: a second repair: %+v %v", at, rep, err)
	}
	w, err := s.Open(ctx, id)
	if err != nil {
		t.Fatalf("%s: open after the repair: %v", at, err)
	}
	next := w.Opened().Pos.Next + session.Seq(len(w.Opened().Lost))
	mustAppend(t, w, append(slices.Clone(w.Opened().Lost), by("later", next, 3)...))
	mustFlush(t, w)
	w.Close()
	got, _ = readEvents(t, s, id)
	wantEvents(t, got, append(shown, by("later", next, 3)...))
	if st, err := s.Stat(ctx, id); err != nil || st.State != store.StateOK || st.Pos.Next != next+3 {
		t.Fatalf("%s: stat: %+v %v", at, st, err)
	}
	return rep, shown
}

// Whatever one thing happens to the files of a family: repair of the owner makes all of it healthy again, no wrong event
// is returned, nothing that the damage did not touch is lost, and forks that begin behind the damage go on.
func TestMutationsRepaired(t *testing.T) {
	oneAtATime(t)
	t.Run("plain", func(t *testing.T) { mutationsRepaired(t, newFamily(t), 0, *mutations/2) })
	t.Run("packed", func(t *testing.T) {
		f := newFamily(t)
		for id := range f.logs {
			must[store.Packed](t)(f.s.Pack(t.Context(), id))
		}
		f.files = f.read(t)
		mutationsRepaired(t, f, *mutations/2, *mutations)
	})
}

func mutationsRepaired(t *testing.T, f *family, from, to int) {
	for i := from; i < to; i++ {
		rnd := rand.New(rand.NewPCG(uint64(i), 5))
		what, name, files := f.mutate(rnd, i)
		f.become(t, files)
		at := fmt.Sprintf("mutation %d: %s: %s", i, name, what)
		logs := maps.Clone(f.logs)
		for k, id := range []session.ID{subject, "child", "grandchild"} {
			v := must[*store.Snapshot](t)(f.s.Verify(t.Context(), id))
			v.Close()
			if v.Unsupported != "" {
				break
			}
			if len(v.Damage) == 0 {
				continue
			}
			_, err := f.s.Repair(t.Context(), id, true)
			if hopeless(err) {
				break
			}
			rep, now := repaired(t, f.s, at+": "+string(id), id, logs[id])
			if k < 2 { // a child reads what its parent has now
				kid := []session.ID{"child", "grandchild"}[k]
				cut := 13 + 14*k
				logs[kid] = append(slices.Clone(now[:cut]), logs[kid][cut:]...)
				if k == 0 {
					logs["grandchild"] = append(slices.Clone(now[:cut]), logs["grandchild"][cut:]...)
				}
			}
			t.Logf("%s: %s: lost %v, found %v, guessed %v, wrote %d, kept %d", at, id, rep.Lost, rep.Found, rep.Guessed, len(rep.Written), len(rep.Kept))
		}
		f.become(t, f.files)
	}
}

// hopeless: what was the parent's is nowhere, or nothing says who it was.
func hopeless(err error) bool {
	var de *store.DamagedError
	return errors.As(err, &de)
}

// A repair that dies at any of its calls leaves a session that shows at least what it showed before, and the next
// repair finishes it: the result is that of a repair that did not die.
func TestRepairDies(t *testing.T) {
	oneAtATime(t)
	hurts := map[string]func(f *family, files map[string][]byte){
		"a record in the middle": func(f *family, files map[string][]byte) {
			flipLine(files, "sessions/subject/00000000000000000007.jsonl", 2)
		},
		"the first record of a segment": func(f *family, files map[string][]byte) {
			flipLine(files, "sessions/subject/00000000000000000007.jsonl", 1)
		},
		"the first line of the first segment": func(f *family, files map[string][]byte) {
			flipLine(files, "sessions/subject/00000000000000000000.jsonl", 0)
		},
		"the first line of a fork's only segment": func(f *family, files map[string][]byte) {
			for name := range files {
				if strings.HasPrefix(name, "sessions/child/") && strings.HasSuffix(name, segSuffix) && !strings.HasSuffix(name, "00013.jsonl") {
					delete(files, name)
				}
			}
			flipLine(files, "sessions/child/00000000000000000013.jsonl", 1)
		},
		"everywhere": func(f *family, files map[string][]byte) {
			for i, name := range slices.Sorted(maps.Keys(files)) {
				if strings.HasPrefix(name, "sessions/subject/") && strings.HasSuffix(name, segSuffix) {
					flipLine(files, name, i%3)
				}
			}
		},
		"no header": func(f *family, files map[string][]byte) {
			delete(files, "sessions/child/"+headerName)
			flipLine(files, "sessions/child/00000000000000000015.jsonl", 1)
		},
	}
	for what, hurt := range hurts {
		t.Run(what, func(t *testing.T) {
			f := newFamily(t)
			files := maps.Clone(f.files)
			hurt(f, files)
			id := subject
			if strings.Contains(what, "fork") || what == "no header" {
				id = "child"
			}
			f.become(t, files)
			sal := must[*store.Snapshot](t)(f.s.Salvage(t.Context(), id))
			want := collect(t, sal.Prefix)
			sal.Close()
			wantMended(t, what, want, f.logs[id])
			step := 1
			if !*thorough && (what == "everywhere" || what == "no header") {
				step = 3 // they are many, and much the same
			}
			for k := 1; ; k += step {
				f.become(t, files)
				fs := vfs.Fault(unsynced, vfs.Rule{K: k, Forever: true, Match: changes})
				_, err := openStore(t, f.s.root, fs).Repair(t.Context(), id, false)
				done := fs.Hits() < k
				if done && err != nil || !done && err == nil && k < 3 {
					t.Fatalf("call %d: %v", k, err)
				}
				at := fmt.Sprintf("%s: died at call %d", what, k)
				sal := must[*store.Snapshot](t)(f.s.Salvage(t.Context(), id))
				wantSameButTimes(t, at, collect(t, sal.Prefix), want)
				sal.Close()
				if _, err := f.s.Repair(t.Context(), id, false); err != nil {
					t.Fatalf("%s: the next repair: %v", at, err)
				}
				got, snap := readEvents(t, f.s, id)
				wantSameButTimes(t, at+", repaired", got, want)
				if v := must[*store.Snapshot](t)(f.s.Verify(t.Context(), id)); len(snap.Damage)+len(v.Damage) > 0 {
					t.Fatalf("%s: repaired, but: %v", at, v.Damage)
				}
				after := f.read(t)
				for name, b := range files {
					if !slices.ContainsFunc(slices.Collect(maps.Values(after)), func(c []byte) bool { return string(b) == string(c) }) {
						t.Fatalf("%s: %s is not kept", at, name)
					}
				}
				if done {
					return
				}
			}
		})
	}
}

// changes matches the calls that change something.
func changes(c vfs.Call) bool {
	switch c.Op {
	case vfs.OpCreate, vfs.OpLink, vfs.OpRename, vfs.OpRemove, vfs.OpMkdir, vfs.OpWrite, vfs.OpSync, vfs.OpSyncData, vfs.OpSyncDir:
		return true
	}
	return false
}

// wantSameButTimes is wantEvents where the marks of got may be made by another repair.
func wantSameButTimes(t *testing.T, at string, got, want []session.Event) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d events, want %d: the last are %v and %v", at, len(got), len(want), got[len(got)-3:], want[len(want)-3:])
	}
	for i := range got {
		if !same(got[i], want[i]) && !(got[i].Type == session.TypeLost && want[i].Type == session.TypeLost) {
			t.Fatalf("%s: event %d is %v, want %v", at, i, got[i], want[i])
		}
	}
}

// flipLine changes a bit in the middle of a line of a file.
func flipLine(files map[string][]byte, name string, line int) {
	b := []byte(string(files[name]))
	at := 0
	for range line {
		at += strings.IndexByte(string(b[at:]), '\n') + 1
	}
	b[at+strings.IndexByte(string(b[at:]), '\n')/2] ^= 4
	files[name] = b
}

// A segment is linked whole: one that was cut to its first line has lost a record. If it were taken for the end of the log,
// every life would find the name of its first segment taken, for good.
func TestCutToItsFirstLine(t *testing.T) {
	for _, lives := range []int{1, 2} {
		t.Run(fmt.Sprint(lives), func(t *testing.T) {
			s := openStore(t, t.TempDir(), nil)
			newStored(t, s, subject, 10)
			if lives == 2 {
				w := must[store.Writer](t)(s.Open(t.Context(), subject))
				mustAppend(t, w, events(10, 5))
				mustFlush(t, w)
				w.Close()
			}
			names := must[[]segName](t)(s.segmentNames(s.dir(subject)))
			last := names[len(names)-1]
			path := last.in(s.dir(subject))
			b := must[[]byte](t)(os.ReadFile(path))
			if err := os.WriteFile(path, b[:bytes.IndexByte(b, '\n')+1], 0o600); err != nil {
				t.Fatal(err)
			}
			if op := checkHurt(t, s, "cut", 15); op != nil {
				t.Fatalf("a segment without a record is the end of the log: %+v", op)
			}
			if st := must[store.Stat](t)(s.Stat(t.Context(), subject)); st.State != store.StateDamaged {
				t.Fatalf("stat: %+v", st)
			}
			if rep := must[store.Repair](t)(s.Repair(t.Context(), subject, false)); len(rep.Damage) != 1 {
				t.Fatalf("repair: %+v", rep)
			}
			got, snap := readEvents(t, s, subject)
			if n := wantMended(t, "repaired", got, events(0, 15)); n != 1 || snap.Pos.Next != last.first+1 {
				t.Fatalf("%d lost of %d", n, snap.Pos.Next)
			}
			w := must[store.Writer](t)(s.Open(t.Context(), subject))
			mustAppend(t, w, events(snap.Pos.Next, 2))
			mustFlush(t, w)
		})
	}
}

// A link that is damaged alone is no place to fork at: the child would name it, and could never be read.
func TestNoForkAtADamagedLink(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	newStored(t, s, subject, 20)
	names := must[[]segName](t)(s.segmentNames(s.dir(subject)))
	path := names[0].in(s.dir(subject))
	b := must[[]byte](t)(os.ReadFile(path))
	line := bytes.Index(b, []byte(`{"seq":12,`))
	at := line + bytes.Index(b[line:], []byte(`"chain":"`)) + len(`"chain":"`)
	if b[at]++; b[at] == 'Z'+1 || b[at] == 'z'+1 || b[at] == '9'+1 {
		b[at] -= 2
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for seq := range session.Seq(20) {
		_, err := s.LinkAt(t.Context(), subject, seq)
		if bad := seq == 12 || seq == 13; errors.Is(err, store.ErrDamaged) != bad { // of the two one is damaged
			t.Errorf("the link at %d: %v", seq, err)
		}
	}
}
