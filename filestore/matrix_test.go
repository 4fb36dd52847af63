package filestore

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// mended checks, of a store whose files were as in was and of which those in files are hurt, that no wrong event is read, that a repair of
// what is damaged makes every session whole and writable, and that each record that is whole in the files is in the logs then.
func (k *kin) mended(t *testing.T, at string, was, files map[string][]byte) {
	t.Helper()
	ids := []session.ID{subject, "child", "grandchild"}
	power := map[session.ID]session.Seq{} // from here on a loss of power explains what is bad: the next life marks it, whatever its line shows
	for _, id := range ids {
		if k.logs[id] == nil {
			continue
		}
		got, _ := readEvents(t, k.s, id)
		wantMended(t, at+": read", got, k.logs[id])
		v := must[*store.Snapshot](t)(k.s.Verify(t.Context(), id))
		v.Close()
		if len(v.Damage)+len(v.Lost) == 0 {
			continue
		}
		if _, err := k.s.Repair(t.Context(), id, false); err != nil {
			t.Fatalf("%s: repair of %s: %v", at, id, err)
		}
		w, err := k.s.Open(t.Context(), id)
		if err != nil {
			t.Fatalf("%s: open %s after the repair: %v", at, id, err)
		}
		if lost := w.Opened().Lost; lost != nil {
			power[id] = lost[0].Seq
			mustAppend(t, w, lost)
			mustFlush(t, w)
		}
		w.Close()
	}
	for _, id := range ids {
		if k.logs[id] == nil {
			continue
		}
		v := must[*store.Snapshot](t)(k.s.Verify(t.Context(), id))
		got := collect(t, v.Prefix)
		v.Close()
		if len(v.Damage) > 0 {
			t.Fatalf("%s: %s is not whole: %v", at, id, v.Damage)
		}
		wantMended(t, at+": repaired", got, k.logs[id])
		for name, text := range files {
			if string(owner(name)) != string(id) || !strings.HasSuffix(name, segSuffix) {
				continue
			}
			last := true // what ends without a line end, or with zeros or another byte in its place, was not written whole
			for other := range was {
				last = last && (filepath.Dir(other) != filepath.Dir(name) || other <= name || !strings.HasSuffix(other, segSuffix))
			}
			for line := range bytes.Lines(was[name]) {
				var seq session.Seq
				if n, _ := fmt.Sscanf(string(line), `{"seq":%d,`, &seq); n == 0 || power[id] > 0 && seq >= power[id] {
					continue
				}
				line = bytes.TrimSuffix(line, []byte("\n")) // without that at the end of a file it was not written
				if bytes.Contains(text, line) && !bytes.HasSuffix(text, line) && !(last && (bytes.HasSuffix(text[:len(text)-1], line) || bytes.HasSuffix(bytes.TrimRight(text, "\x00"), line))) && (seq >= session.Seq(len(got)) || got[seq].Type == session.TypeLost) {
					t.Fatalf("%s: record %d of %s is whole in %s, and lost: %d events", at, seq, id, name, len(got))
				}
			}
		}
	}
}

// TestDamageMatrix does each kind of harm at places all over a small family of sessions: bytes that are flipped, files that end early, runs of
// zeros, lines that are joined, doubled and repeated further down, segments that are swapped.
func TestDamageMatrix(t *testing.T) {
	oneAtATime(t)
	k := newKin(t)
	f := &family{s: k.s, logs: k.logs}
	f.files = f.read(t)
	step := 71 // coprime to the bits
	if *thorough {
		step = 1
	}
	try := func(at, name string, text []byte) {
		t.Helper()
		files := maps.Clone(f.files)
		files[name] = text
		f.become(t, files)
		k.mended(t, name+": "+at, f.files, map[string][]byte{name: text})
	}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		if !strings.HasSuffix(name, segSuffix) {
			continue
		}
		b := f.files[name]
		for i := 0; i < len(b); i += step {
			c := bytes.Clone(b)
			c[i] ^= 1 << (i % 8)
			try(fmt.Sprintf("byte %d flipped", i), name, c)
		}
		for i := step / 2; i < len(b); i += step {
			if owner(name) == subject || i%2 == 0 { // what is cut off a session without forks is not known
				try(fmt.Sprintf("cut off at %d", i), name, b[:i])
			}
		}
		for i := step / 3; i < len(b); i += 6 * step {
			for _, n := range []int{7, 300} {
				c := bytes.Clone(b)
				clear(c[i:min(i+n, len(c))])
				try(fmt.Sprintf("%d zeros at %d", n, i), name, c)
			}
		}
		for what, c := range map[string]byte{"another byte": 'x', "zero": 0} { // in all but the last file the record was written whole
			try("the last line end is "+what, name, append(bytes.Clone(b[:len(b)-1]), c))
		}
		lines := bytes.SplitAfter(b, []byte("\n"))
		lines = lines[:len(lines)-1]
		for i := 0; i < len(lines); i += 1 + step/15 {
			try(fmt.Sprintf("line %d joined with the next", i), name,
				bytes.Join([][]byte{bytes.Join(lines[:i], nil), bytes.TrimSuffix(lines[i], []byte("\n")), bytes.Join(lines[i+1:], nil)}, nil))
			try(fmt.Sprintf("line %d twice", i), name, bytes.Join(slices.Insert(slices.Clone(lines), i, lines[i]), nil))
			try(fmt.Sprintf("line %d again at the end", i), name, bytes.Join(append(slices.Clone(lines), lines[i]), nil))
		}
	}
	a, b := "sessions/subject/"+segmentName(0), "sessions/subject/"+segmentName(10)
	files := maps.Clone(f.files)
	files[a], files[b] = files[b], files[a]
	f.become(t, files)
	k.mended(t, "swapped", f.files, map[string][]byte{a: f.files[a], b: f.files[b]})
}

// TestFlipsInALongLog flips bits all over a log of thousands of events in some segments, STRANDLINE_DAMAGE_SEEDS times (2).
func TestFlipsInALongLog(t *testing.T) {
	oneAtATime(t)
	o := testOptions()
	o.FS, o.SegmentBytes = unsynced, 150<<10
	s := openWith(t, t.TempDir(), o)
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	var log []session.Event
	for len(log) < 3000 {
		evs := events(session.Seq(len(log)), 100)
		mustAppend(t, w, evs)
		mustFlush(t, w)
		log = append(log, evs...)
	}
	w.Close()
	k := &kin{s: s, logs: map[session.ID][]session.Event{subject: log}}
	f := &family{s: s, logs: k.logs}
	f.files = f.read(t)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(f.files)), func(n string) bool { return !strings.HasSuffix(n, segSuffix) })
	if len(names) < 3 {
		t.Fatalf("%d segments", len(names))
	}
	seeds := 2
	if n, err := strconv.Atoi(os.Getenv("STRANDLINE_DAMAGE_SEEDS")); err == nil {
		seeds = n
	}
	for seed := range uint64(seeds) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		files := maps.Clone(f.files)
		for range 1 + rnd.IntN(20) {
			name := names[rnd.IntN(len(names))]
			c := bytes.Clone(files[name])
			c[rnd.IntN(len(c))] ^= 1 << rnd.IntN(8)
			files[name] = c
		}
		f.become(t, files)
		k.mended(t, fmt.Sprintf("seed %d", seed), f.files, files)
		os.RemoveAll(filepath.Join(s.dir(subject), damagedName))
	}
}
