package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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
	if de, ok := errors.AsType[*store.DamagedError](err); ok && de.Owner == id && len(rep.Written) > 0 {
		return rep, err // it was not enough, and says so
	}
	if got != dry {
		t.Fatalf("%s: repair of %s:\n%s\nits dry run said:\n%s", at, id, got, dry)
	}
	if before != "" && got != before {
		t.Fatalf("%s: repair of %s:\n%s\nits plan said:\n%s", at, id, got, before)
	}
	return rep, err
}

// plans asks what repairs of ids, one after the other, would do, as far as the files say where they belong.
func plans(t *testing.T, s *Store, ids ...session.ID) map[session.ID]string {
	t.Helper()
	said := map[session.ID]string{}
	var after []session.ID
	for _, id := range ids {
		if _, bad, _ := s.readHeader(s.dir(id), id); bad != nil {
			return said // what it is guessed from may be damaged now
		}
		names := must[[]segName](t)(s.segmentNames(s.dir(id)))
		for _, n := range names {
			err := s.withText(n.in(s.dir(id)), func(f vfs.File) error { _, _, err := readSegmentHead(f); return err })
			if err != nil {
				return said
			}
		}
		if h, _, _ := s.readHeader(s.dir(id), id); len(names) == 0 || names[0].first != h.SeedLength {
			return said
		}
		rep, err := s.PlanRepair(t.Context(), id, after)
		if said[id] = told(rep, err); err == nil {
			after = append(after, id)
		}
	}
	return said
}

// Whatever is damaged of a family, in several files at once, in what a purged parent left and in what a session that went on
// with other events holds: a dry run says what the repair then does, of one session and of all of them in their order.
func TestDryRunForetells(t *testing.T) {
	setups := map[string]func(k *kin){
		"as it is": func(*kin) {},
		"purged": func(k *kin) {
			if err := k.s.Trash(t.Context(), subject); err != nil {
				t.Fatal(err)
			}
			if p := k.s.Purge(t.Context(), []session.ID{subject}); p[0].Err != nil {
				t.Fatal(p[0].Err)
			}
		},
		"went on": func(k *kin) { k.goOn(t, 9) },
	}
	seeds := 25
	if *thorough {
		seeds = 200
	}
	for name, setup := range setups {
		t.Run(name, func(t *testing.T) {
			k := newKin(t)
			setup(k)
			ids := []session.ID{"child", "grandchild"}
			if name != "purged" {
				ids = append([]session.ID{subject}, ids...)
			}
			f := &family{s: k.s, logs: k.logs}
			f.files = f.read(t)
			var segs []string
			for _, n := range slices.Sorted(maps.Keys(f.files)) {
				if strings.HasSuffix(n, segSuffix) || filepath.Base(n) == headerName && strings.Contains(n, "child") {
					segs = append(segs, n)
				}
			}
			repairs, refused := 0, 0
			for seed := range uint64(seeds) {
				rnd := rand.New(rand.NewPCG(seed, 23))
				files := maps.Clone(f.files)
				at := fmt.Sprint("seed ", seed)
				for range 1 + rnd.IntN(3) {
					n := segs[rnd.IntN(len(segs))]
					b := bytes.Clone(files[n])
					if len(b) == 0 {
						continue
					}
					where := rnd.IntN(len(b))
					switch how := rnd.IntN(6); {
					case how < 3:
						b[where] ^= 1 << rnd.IntN(8)
						at += fmt.Sprintf(", %s flipped at %d", n, where)
					case how == 3:
						b = b[:where]
						at += fmt.Sprintf(", %s cut at %d", n, where)
					case how == 4:
						clear(b[where:min(where+200, len(b))])
						at += fmt.Sprintf(", %s zeros at %d", n, where)
					default:
						b = nil
						at += fmt.Sprintf(", %s gone", n)
					}
					if files[n] = b; b == nil {
						delete(files, n)
					}
				}
				f.become(t, files)
				k.s.forgetKin()
				for range 2 { // the second finds names in damaged/
					said := plans(t, k.s, ids...)
					var made []string
					for _, id := range ids {
						rep, err := foretold(t, k.s, at, id, said[id])
						if repairs++; err != nil {
							refused++
						}
						if err != nil && len(rep.Written) > 0 && !*thorough {
							t.Errorf("%s: repair of %s: %v", at, id, err)
						}
						made = append(made, rep.Written...)
					}
					made = slices.DeleteFunc(made, func(n string) bool { info, err := os.Stat(n); return err != nil || !info.Mode().IsRegular() })
					for range min(2, len(made)) {
						n := made[rnd.IntN(len(made))]
						info := must[os.FileInfo](t)(os.Stat(n))
						if err := flipAt(n, rnd.IntN(int(info.Size()))); err != nil {
							t.Fatal(err)
						}
						at += ", then " + filepath.Base(n)
					}
				}
			}
			t.Logf("%d repairs, %d refused", repairs, refused)
		})
	}
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
