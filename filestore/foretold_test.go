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

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// told is what a repair says, in an order of its own.
func told(rep store.Repair, err error) string {
	slices.Sort(rep.Kept)
	slices.Sort(rep.Written)
	why := ""
	if err != nil {
		why = err.Error()
	}
	return fmt.Sprintf("lost %v\nfound %v\nkept %q\nwritten %q\nguessed %q\ndamage %v\nerror %s", rep.Lost, rep.Found, rep.Kept, rep.Written, rep.Guessed, len(rep.Damage) > 0, why)
}

// foretold repairs id and wants what a dry run said. before is what a plan said when the sessions before it were not
// repaired yet, "" if nobody asked.
func foretold(t *testing.T, s *Store, at string, id session.ID, before string) (store.Repair, error) {
	t.Helper()
	dry := told(s.Repair(t.Context(), id, true))
	rep, err := s.Repair(t.Context(), id, false)
	got := told(rep, err)
	if got != dry {
		t.Errorf("%s: repair of %s:\n%s\nits dry run said:\n%s", at, id, got, dry)
	}
	if before != "" && got != before {
		t.Errorf("%s: repair of %s:\n%s\nits plan said:\n%s", at, id, got, before)
	}
	return rep, err
}

// plans asks what repairs of ids, one after the other, would do.
func plans(t *testing.T, s *Store, ids ...session.ID) map[session.ID]string {
	t.Helper()
	said := map[session.ID]string{}
	for i, id := range ids {
		said[id] = told(s.PlanRepair(t.Context(), id, ids[:i]))
	}
	return said
}

// linesOf are the lines of the records in the plain segments of id in files, where they count.
func linesOf(files map[string][]byte, id session.ID) map[string]bool {
	out := map[string]bool{}
	var names []string
	for _, n := range slices.Sorted(maps.Keys(files)) {
		if seg, ok := parseSegName(filepath.Base(n)); ok && !seg.packed() && filepath.Dir(n) == filepath.Join("sessions", string(id)) {
			names = append(names, n)
		}
	}
	for i, n := range names {
		limit := store.Whole
		if i+1 < len(names) {
			next, _ := parseSegName(filepath.Base(names[i+1]))
			limit = next.first
		}
		for line := range bytes.Lines(files[n]) {
			raw, err := record.Parse(bytes.TrimSuffix(line, []byte("\n")))
			if err == nil && raw.Seq < limit && !bytes.Contains(line, []byte(`"$blob"`)) {
				out[string(line)] = true
			}
		}
	}
	return out
}

func head(id session.ID) string { return filepath.Join("sessions", string(id), headerName) }

// hurtFiles does one to three things to the files of names.
func hurtFiles(rnd *rand.Rand, files map[string][]byte, names []string) (what string) {
	for range 1 + rnd.IntN(3) {
		n := names[rnd.IntN(len(names))]
		b := bytes.Clone(files[n])
		if len(b) == 0 {
			continue
		}
		where := rnd.IntN(len(b))
		switch how := rnd.IntN(6); {
		case how < 3:
			b[where] ^= 1 << rnd.IntN(8)
			what += fmt.Sprintf(", %s flipped at %d", n, where)
		case how == 3:
			b = b[:where]
			what += fmt.Sprintf(", %s cut at %d", n, where)
		case how == 4:
			clear(b[where:min(where+200, len(b))])
			what += fmt.Sprintf(", %s zeros at %d", n, where)
		default:
			b = nil
			what += fmt.Sprintf(", %s gone", n)
		}
		if files[n] = b; b == nil {
			delete(files, n)
		}
	}
	return what
}

// Whatever is damaged of a family, in several files at once, sessions and their forks, packed or not, blobs, what a purged parent left, what a
// session that went on with other events holds, and what an earlier repair wrote and kept: one repair of each makes all of it healthy, no wrong
// event is returned, no record is lost that is whole, and a dry run says what the repair then does, of one session and of all in their order.
// With STRANDLINE_REPAIR_SEEDS so many families of each kind are damaged.
func TestDryRunForetells(t *testing.T) {
	ofKin := func(setup func(t *testing.T, k *kin)) func(t *testing.T) *family {
		return func(t *testing.T) *family {
			k := newKin(t)
			setup(t, k)
			f := &family{s: k.s, logs: k.logs}
			f.files = f.read(t)
			return f
		}
	}
	setups := map[string]func(t *testing.T) *family{
		"as it is": ofKin(func(*testing.T, *kin) {}),
		"purged": ofKin(func(t *testing.T, k *kin) {
			if err := k.s.Trash(t.Context(), subject); err != nil {
				t.Fatal(err)
			}
			if p := k.s.Purge(t.Context(), []session.ID{subject}); p[0].Err != nil {
				t.Fatal(p[0].Err)
			}
			delete(k.logs, subject)
		}),
		"went on": ofKin(func(t *testing.T, k *kin) {
			k.logs[subject] = append(slices.Clone(k.logs[subject][:17]), k.goOn(t, 9)...)
		}),
		"with a blob": func(t *testing.T) *family { return newFamily(t) },
		"packed": func(t *testing.T) *family {
			f := newFamily(t)
			for id := range f.logs {
				must[store.Packed](t)(f.s.Pack(t.Context(), id))
			}
			f.files = f.read(t)
			return f
		},
	}
	seeds := 12
	if n, err := strconv.Atoi(os.Getenv("STRANDLINE_REPAIR_SEEDS")); err == nil {
		seeds = n
	}
	for name, setup := range setups {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			var names []string
			for _, n := range slices.Sorted(maps.Keys(f.files)) {
				if strings.HasPrefix(n, "sessions") && !strings.Contains(n, string(subject)+"/session") || strings.HasPrefix(n, "blobs") {
					names = append(names, n)
				}
			}
			repairs := 0
			for seed := range uint64(seeds) {
				rnd := rand.New(rand.NewPCG(seed, 23))
				files := maps.Clone(f.files)
				at := fmt.Sprint("seed ", seed) + hurtFiles(rnd, files, names)
				f.become(t, files)
				for range 2 {
					n, made := f.repairAll(t, at)
					if repairs += n; t.Failed() {
						return
					}
					for range min(2, len(made)) { // again, in what was written, and kept
						n := made[rnd.IntN(len(made))]
						info := must[os.FileInfo](t)(os.Stat(n))
						where := rnd.IntN(int(info.Size()))
						if err := flipAt(n, where); err != nil {
							t.Fatal(err)
						}
						at += fmt.Sprintf(", then %s flipped at %d", strings.TrimPrefix(n, f.s.root), where)
					}
				}
			}
			t.Logf("%d repairs", repairs)
		})
	}
}

// repairAll repairs all sessions in their order, and returns how many there are and which files that made.
func (f *family) repairAll(t *testing.T, at string) (int, []string) {
	var made []string
	var order []session.ID
	for _, id := range []session.ID{subject, "child", "grandchild"} {
		if _, ok := f.logs[id]; ok {
			order = append(order, id)
		}
	}
	before := f.read(t)
	said := plans(t, f.s, order...)
	for _, id := range order {
		rep, err := foretold(t, f.s, at, id, said[id])
		if err != nil {
			t.Errorf("%s: repair of %s: %v", at, id, err)
		}
		made = append(append(made, rep.Written...), rep.Kept...)
	}
	for _, id := range order {
		v := must[*store.Snapshot](t)(f.s.Verify(t.Context(), id))
		defer v.Close()
		if len(v.Damage) > 0 {
			t.Errorf("%s: %s is still damaged: %v", at, id, v.Damage[0])
			continue
		}
		got := collect(t, v.Prefix)
		w, err := f.s.Open(t.Context(), id)
		if err != nil {
			t.Errorf("%s: %s cannot be opened: %v", at, id, err)
			continue
		}
		got = append(got, w.Opened().Lost...) // what a loss of power explains the next life marks
		wantMended(t, at+": "+string(id), got, f.logs[id])
		w.Close()
		was, left := linesOf(f.files, id), linesOf(before, id)
		whole := map[session.Seq]bool{}
		seq := func(line string) session.Seq {
			return must[record.Raw](t)(record.Parse([]byte(strings.TrimSuffix(line, "\n")))).Seq
		}
		for line := range left {
			whole[seq(line)] = was[line]
		}
		for line := range was {
			q := seq(line)
			if q == v.Header.SeedLength && !bytes.Equal(before[head(id)], f.files[head(id)]) {
				continue // what it follows may be known by nothing else
			}
			// Between two that are not as they were a record proves nothing.
			if left[line] && (whole[q-1] || whole[q+1]) && (int(q) >= len(got) || got[q].Type == session.TypeLost) {
				t.Errorf("%s: %s has lost a record that was whole: %s", at, id, line)
			}
		}
	}
	return len(order), slices.DeleteFunc(made, func(n string) bool {
		info, err := os.Stat(n)
		return err != nil || !info.Mode().IsRegular() || info.Size() == 0
	})
}

// A record that is found fills a lack only if what is behind it follows: else, its link being damaged too, a mark stays between.
func TestSeam(t *testing.T) {
	evs := events(5, 3)
	line := func(i int, prev session.Link) (record.Raw, session.Link) {
		text, link := record.Append(nil, evs[i], prev, session.None)
		return must[record.Raw](t)(record.Parse(bytes.TrimSuffix(text, []byte("\n")))), link
	}
	first, l := line(0, session.Link{})
	second, l2 := line(1, l)
	next, _ := line(2, l2)
	astray, _ := line(2, l)
	for _, c := range []struct {
		front, back []stray
		next        record.Raw
		left        int
	}{
		{[]stray{{raw: first}, {raw: second}}, nil, next, 2},
		{[]stray{{raw: first}, {raw: second}}, nil, astray, 1},
		{[]stray{{raw: first}}, []stray{{raw: second}}, next, 2},
		{nil, []stray{{raw: second}}, next, 0}, // what is before it is the beginning
	} {
		if f, b := seam(c.front, c.back, &c.next, session.Link{}, false); len(f)+len(b) != c.left {
			t.Errorf("%d and %d are left, want %d", len(f), len(b), c.left)
		}
	}
}
