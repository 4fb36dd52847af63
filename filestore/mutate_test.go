package filestore

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var mutations = flag.Int("mutations", 120, "how many ways TestMutations hurts a store")

// family is a store of three sessions, each a fork of the one before, of many segments and lives, with a blob.
type family struct {
	s     *Store
	files map[string][]byte // every file, by its path below the root
	logs  map[session.ID][]session.Event
	blob  string // path of the only blob
}

func newFamily(t testing.TB) *family {
	o := testOptions()
	o.FS, o.SegmentBytes = unsynced, 900
	f := &family{s: openWith(t, t.TempDir(), o), logs: map[session.ID][]session.Event{}}
	write := func(id session.ID, w store.Writer, batches ...int) {
		for _, n := range batches {
			evs := by(string(id), session.Seq(len(f.logs[id])), max(n, -n))
			if evs[0].Seq == 7 {
				evs[0].Data = jsontext.Value(`{"big":"` + strings.Repeat("big ", 9000) + `"}`)
			}
			mustAppend(t, w, evs)
			if n > 0 {
				mustFlush(t, w)
			}
			f.logs[id] = append(f.logs[id], evs...)
		}
		w.Close()
	}
	lives := func(id session.ID) {
		write(id, must[store.Writer](t)(f.s.Open(t.Context(), id)), 5, -2)
		write(id, must[store.Writer](t)(f.s.Open(t.Context(), id)), 1, 6, 1, -1, -2, -1)
	}
	write(subject, must[store.Writer](t)(f.s.Create(t.Context(), testHeader(subject))), 2, 3, 2)
	lives(subject)
	from := subject
	for i, id := range []session.ID{"child", "grandchild"} {
		cut := session.Seq(12 + 14*i)
		src, bad, err := f.s.readHeader(f.s.dir(from), from)
		if err != nil || bad != nil {
			t.Fatal(err, bad)
		}
		h := testHeader(id)
		h.Kind, h.SeedLength, h.CreatedAt = session.KindFork, cut+1, h.CreatedAt+100
		h.Parent = &session.Parent{ID: from, Seq: cut, Spans: src.Spans(cut + 1)}
		if h.Parent.Link, err = f.s.LinkAt(t.Context(), from, cut); err != nil {
			t.Fatal(err)
		}
		own := by(string(id), cut+1, 2)
		if err := f.s.CreateFork(t.Context(), h, own); err != nil {
			t.Fatal(err)
		}
		f.logs[id] = append(slices.Clone(f.logs[from][:cut+1]), own...)
		lives(id)
		from = id
	}
	f.files = f.read(t)
	for name := range f.files {
		if strings.HasPrefix(name, "blobs") {
			f.blob = name
		}
	}
	if f.blob == "" || len(f.files) < 15 {
		t.Fatalf("the family has %d files, blob %q", len(f.files), f.blob)
	}
	return f
}

func (f *family) read(t testing.TB) map[string][]byte {
	out := map[string][]byte{}
	err := filepath.WalkDir(f.s.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(f.s.root, p)
		out[rel], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// become makes the files of the store those in want.
func (f *family) become(t testing.TB, want map[string][]byte) {
	t.Helper()
	have := f.read(t)
	for name := range have {
		if _, ok := want[name]; !ok {
			os.Remove(f.s.path(name))
		}
	}
	for name, b := range want {
		if old, ok := have[name]; ok && bytes.Equal(old, b) {
			continue
		}
		if err := os.WriteFile(f.s.path(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// owner returns whose file name is; "" of a blob.
func owner(name string) session.ID {
	if p := strings.Split(name, "/"); p[0] == "sessions" {
		return session.ID(p[1])
	}
	return ""
}

// mutate hurts one file, or swaps two. It returns what it did.
func (f *family) mutate(rnd *rand.Rand, kind int) (what, name string, files map[string][]byte) {
	files = maps.Clone(f.files)
	var names []string
	for _, n := range slices.Sorted(maps.Keys(files)) {
		if strings.HasPrefix(n, "sessions") || strings.HasPrefix(n, "blobs") {
			names = append(names, n)
		}
	}
	name = names[rnd.IntN(len(names))]
	b := bytes.Clone(files[name])
	at := rnd.IntN(len(b))
	n := min(1+rnd.IntN(300), len(b)-at)
	lines := bytes.SplitAfter(b, []byte("\n"))
	i := rnd.IntN(len(lines))
	switch kind % 12 {
	case 0, 1:
		b[at] ^= 1 << rnd.IntN(8)
		what = fmt.Sprintf("bit flip at %d", at)
	case 2:
		clear(b[at : at+n])
		what = fmt.Sprintf("%d zeros at %d", n, at)
	case 3:
		b = b[:at]
		what = fmt.Sprintf("truncated to %d", at)
	case 4:
		b = slices.Delete(b, at, at+n)
		what = fmt.Sprintf("%d bytes gone at %d", n, at)
	case 5:
		delete(files, name)
		return "deleted", name, files
	case 6:
		b = bytes.Join(slices.Delete(lines, i, i+1), nil)
		what = fmt.Sprintf("line %d gone", i)
	case 7:
		lines[i] = bytes.TrimSuffix(lines[i], []byte("\n"))
		b = bytes.Join(lines, nil)
		what = fmt.Sprintf("line %d joined with the next", i)
	case 8:
		other := names[rnd.IntN(len(names))]
		files[other], b = b, bytes.Clone(files[other])
		what = "swapped with " + other
	case 9:
		b = append(b, bytes.Repeat([]byte{0}, n)...)
		what = fmt.Sprintf("%d zeros behind it", n)
	case 10:
		j := rnd.IntN(len(lines))
		lines[i], lines[j] = lines[j], lines[i]
		b = bytes.Join(lines, nil)
		what = fmt.Sprintf("lines %d and %d swapped", i, j)
	case 11:
		b = append(b, lines[i]...)
		what = fmt.Sprintf("line %d again at the end", i)
	}
	files[name] = b
	return what, name, files
}

// Whatever one thing happens to the files: no wrong event, no panic, the states agree, the owner of the damage is
// named, what is not damaged can be forked, and where the store lets a new life begin it leaves a healthy log.
func TestMutations(t *testing.T) {
	oneAtATime(t)
	f := newFamily(t)
	for i := range *mutations {
		rnd := rand.New(rand.NewPCG(uint64(i), 3))
		what, name, files := f.mutate(rnd, i)
		f.become(t, files)
		for _, id := range slices.Sorted(maps.Keys(f.logs)) {
			f.check(t, fmt.Sprintf("mutation %d: %s: %s: session %s", i, name, what, id), id, name, strings.Contains(what, "swapped with"))
			f.become(t, files)
			if t.Failed() {
				return
			}
		}
	}
}

// texts reads a log as far as it can be read. Only a hurt blob may make an event unreadable.
func (f *family) texts(t *testing.T, at string, p session.Prefix, blobHurt bool) (out []session.Event, whole bool) {
	t.Helper()
	for ev, err := range p.Range(0, p.Len()) {
		if err != nil {
			if !blobHurt || !errors.Is(err, store.ErrDamaged) && !errors.Is(err, store.ErrNotFound) {
				t.Fatalf("%s: reading: %v", at, err)
			}
			return out, false
		}
		out = append(out, ev)
	}
	return out, true
}

func (f *family) check(t *testing.T, at string, id session.ID, hurt string, two bool) {
	ctx, s, log := t.Context(), f.s, f.logs[id]
	snap, err := s.Read(ctx, id)
	if err != nil {
		t.Fatalf("%s: read: %v", at, err)
	}
	defer snap.Close()
	got, whole := f.texts(t, at, snap.Prefix, hurt == f.blob || two)
	if len(got) > len(log) || !slices.EqualFunc(log[:len(got)], got, same) {
		t.Fatalf("%s: wrong events:\n%s", at, cmp.Diff(log[:min(len(got), len(log))], got))
	}
	v, err := s.Verify(ctx, id)
	if err != nil {
		t.Fatalf("%s: verify: %v", at, err)
	}
	defer v.Close()
	broken := len(snap.Damage) > 0 || snap.Unsupported != ""
	if broken && len(v.Damage) == 0 && v.Unsupported == "" {
		t.Errorf("%s: Read finds %v, Verify nothing", at, snap.Damage)
	}
	if !whole && len(v.Damage) == 0 {
		t.Errorf("%s: an event cannot be read, Verify finds nothing", at)
	}
	st, err := s.Stat(ctx, id)
	if err != nil {
		t.Fatalf("%s: stat: %v", at, err)
	}
	bad := st.State == store.StateDamaged || st.State == store.StateUnsupported
	switch {
	case bad && !broken, bad != (st.Reason != ""):
		t.Errorf("%s: Stat says %s (%s), Read %v", at, st.State, st.Reason, snap.Damage)
	case !broken && st.Pos != snap.Pos:
		t.Errorf("%s: Stat ends at %v, Read at %v", at, st.Pos, snap.Pos)
	case !broken && (st.State == store.StateTorn) != (snap.Torn != nil || snap.Lost != nil):
		t.Errorf("%s: Stat says %s, Read torn %v, lost %d", at, st.State, snap.Torn, len(snap.Lost))
	}
	w, err := s.Open(ctx, id)
	if broken != (err != nil) {
		t.Fatalf("%s: damage %v, unsupported %q, but Open: %v", at, snap.Damage, snap.Unsupported, err)
	}
	var de *store.DamagedError
	if errors.As(err, &de) && !two && de.Owner != owner(hurt) {
		t.Errorf("%s: named %s: %v", at, de.Owner, err)
	}
	if err != nil {
		if !errors.Is(err, store.ErrDamaged) && !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("%s: open: %v", at, err)
		}
		f.forkGood(t, at, id, snap, len(got))
		return
	}
	defer w.Close()
	f.goOn(t, at, id, w, len(got))
}

// forkGood forks what is left of a damaged log.
func (f *family) forkGood(t *testing.T, at string, id session.ID, snap *store.Snapshot, n int) {
	if n == 0 || snap.Header.ID == "" {
		return
	}
	h := testHeader("saved")
	cut := session.Seq(n - 1)
	h.Kind, h.SeedLength = session.KindFork, cut+1
	h.Parent = &session.Parent{ID: id, Seq: cut, Spans: snap.Header.Spans(cut + 1)}
	var err error
	if h.Parent.Link, err = f.s.LinkAt(t.Context(), id, cut); err == nil {
		err = f.s.CreateFork(t.Context(), h, by("saved", cut+1, 1))
	}
	if err != nil {
		t.Errorf("%s: fork of the good part, %d events: %v", at, n, err)
		return
	}
	defer os.RemoveAll(f.s.dir("saved"))
	got, saved := readEvents(t, f.s, "saved")
	if len(saved.Damage) > 0 || !slices.EqualFunc(got, append(slices.Clone(f.logs[id][:n]), by("saved", cut+1, 1)...), same) {
		t.Errorf("%s: the fork of %d events has %d, damage %v", at, n, len(got), saved.Damage)
	}
}

// goOn lets a new life write, and checks what it leaves.
func (f *family) goOn(t *testing.T, at string, id session.ID, w store.Writer, n int) {
	op := w.Opened()
	batch := append(slices.Clone(op.Lost), by("next", op.Pos.Next+session.Seq(len(op.Lost)), 2)...)
	mustAppend(t, w, batch)
	mustFlush(t, w)
	w.Close()
	snap, err := f.s.Read(t.Context(), id)
	if err != nil {
		t.Fatalf("%s: read behind the next life: %v", at, err)
	}
	defer snap.Close()
	if len(snap.Damage) > 0 || snap.Lost != nil || snap.Torn != nil || snap.Prefix.Len() != op.Pos.Next+session.Seq(len(batch)) {
		t.Fatalf("%s: behind the next life: %d events, damage %v, lost %v, torn %v", at, snap.Prefix.Len(), snap.Damage, snap.Lost, snap.Torn)
	}
	again := must[store.Writer](t)(f.s.Open(t.Context(), id))
	if o := again.Opened(); o.Lost != nil || o.Pos != snap.Pos {
		t.Errorf("%s: the second resume finds %d lost", at, len(o.Lost))
	}
	again.Close()
}
