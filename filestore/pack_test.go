package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// lives stores subject as so many lives of n events each.
func lives(t testing.TB, s *Store, count, n int) []session.Event {
	t.Helper()
	newStored(t, s, subject, n)
	for i := 1; i < count; i++ {
		w := must[store.Writer](t)(s.Open(context.Background(), subject))
		mustAppend(t, w, events(session.Seq(i*n), n))
		mustFlush(t, w)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return events(0, count*n)
}

func mustPack(t testing.TB, s *Store) store.Packed {
	t.Helper()
	return must[store.Packed](t)(s.Pack(context.Background(), subject))
}

// look says everything that can be known of subject by reading it.
func look(t testing.TB, s *Store) string {
	t.Helper()
	ctx := context.Background()
	var out strings.Builder
	for _, read := range []func(context.Context, session.ID) (*store.Snapshot, error){s.Read, s.Verify, s.Peek} {
		snap := must[*store.Snapshot](t)(read(ctx, subject))
		if snap == nil {
			t.Fatal("not healthy enough to peek")
		}
		fmt.Fprintln(&out, snap.Pos, snap.Torn != nil, snap.Lost, snap.Damage, snap.Unsupported)
		for _, ev := range collect(t, snap.Prefix) {
			fmt.Fprintln(&out, ev.Seq, ev.Type, string(ev.Data))
		}
		for q := range snap.Prefix.Len() {
			if ev, err := snap.Prefix.At(q); err != nil || ev.Seq != q {
				t.Fatalf("at %d: %v %v", q, ev.Seq, err)
			}
		}
		snap.Close()
	}
	st := must[store.Stat](t)(s.Stat(ctx, subject))
	st.Bytes = 0
	fmt.Fprintln(&out, st)
	for q := session.Seq(0); q < st.Pos.Next; q += 5 {
		fmt.Fprintln(&out, must[session.Link](t)(s.LinkAt(ctx, subject, q)))
		s.mu.Lock()
		s.linked.seq = session.None
		s.mu.Unlock()
	}
	return out.String()
}

func segmentsOf(t testing.TB, s *Store) []string {
	t.Helper()
	var out []string
	for _, e := range must[[]os.DirEntry](t)(os.ReadDir(s.dir(subject))) {
		if e.Name() != headerName {
			out = append(out, e.Name())
		}
	}
	return out
}

func TestPack(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	want := lives(t, s, 5, 4)
	h := must[session.Header](t)(forkHeader(t.Context(), s, "child", 9))
	if err := s.CreateFork(t.Context(), h, events(10, 2)); err != nil {
		t.Fatal(err)
	}
	before := look(t, s)
	p := mustPack(t, s)
	if p.Before != 5 || p.After != 2 || p.BytesAfter >= p.BytesBefore || p.Aside != 0 {
		t.Fatalf("%+v", p)
	}
	packed, last := segName{0, 16}, segName{16, session.None}
	if got := segmentsOf(t, s); !slices.Equal(got, []string{packed.String(), last.String()}) {
		t.Fatal(got)
	}
	if after := look(t, s); after != before {
		t.Fatalf("it reads otherwise:\n%s\nwas\n%s", after, before)
	}
	got, snap := readEvents(t, s, "child") // a fork of a place inside the packed one
	if len(snap.Damage) > 0 {
		t.Fatal(snap.Damage)
	}
	wantEvents(t, got, events(0, 12))

	// What every zstd decoder makes of it: the first line, and the records as they were.
	raw := must[[]byte](t)(os.ReadFile(packed.in(s.dir(subject))))
	zr := must[*zstd.Decoder](t)(zstd.NewReader(bytes.NewReader(raw)))
	defer zr.Close()
	text := must[[]byte](t)(io.ReadAll(zr))
	if lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"); len(lines) != 17 ||
		!strings.HasPrefix(lines[0], `{"strandline":1,"session":"subject","first":0,`) || !strings.HasPrefix(lines[16], `{"seq":15,`) {
		t.Fatalf("%d lines: %s", len(lines), text)
	}

	if p = mustPack(t, s); p.Before != 2 || p.After != 2 || p.BytesAfter != p.BytesBefore {
		t.Fatalf("again: %+v", p)
	}
	// Later lives are joined to what is packed already.
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, w, events(20, 3))
	mustFlush(t, w)
	w.Close()
	if p = mustPack(t, s); p.Before != 3 || p.After != 2 {
		t.Fatalf("later: %+v", p)
	}
	if got := segmentsOf(t, s); !slices.Equal(got, []string{segName{0, 20}.String(), segName{20, session.None}.String()}) {
		t.Fatal(got)
	}
	got, _ = readEvents(t, s, subject)
	wantEvents(t, got, append(want, events(20, 3)...))
}

// big makes events that fill frames, with text that does not compress to nothing.
func big(first session.Seq, n, size int) []session.Event {
	evs := events(first, n)
	for i := range evs {
		rnd := rand.New(rand.NewPCG(uint64(evs[i].Seq), 1))
		b := make([]byte, size)
		for k := range b {
			b[k] = "abcdefghijklmnop"[rnd.IntN(16)]
		}
		evs[i].Data = jsontext.Value(fmt.Sprintf(`{"n":%d,"text":"%s"}`, evs[i].Seq, b))
	}
	return evs
}

// storedBig stores subject as three lives whose first two fill several frames.
func storedBig(t testing.TB, s *Store) []session.Event {
	t.Helper()
	want := big(0, 45, 20000)
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	for _, part := range [][]session.Event{want[:20], want[20:40], want[40:]} {
		if w == nil {
			w = must[store.Writer](t)(s.Open(t.Context(), subject))
		}
		mustAppend(t, w, part)
		mustFlush(t, w)
		w.Close()
		w = nil
	}
	return want
}

func TestPackFrames(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	want := storedBig(t, s)
	before := look(t, s)
	old := must[*store.Snapshot](t)(s.Read(t.Context(), subject)) // found before, read afterwards
	defer old.Close()
	mustPack(t, s)
	if after := look(t, s); after != before {
		t.Fatal("it reads otherwise")
	}
	wantEvents(t, collect(t, old.Prefix), want)
	for _, q := range []session.Seq{39, 0, 20, 19, 44} {
		wantEvents(t, []session.Event{must[session.Event](t)(old.Prefix.At(q))}, want[q:q+1])
	}
	path := segName{0, 40}.in(s.dir(subject))
	f := must[vfs.File](t)(s.openSegment(path)).(*packedFile)
	defer f.Close()
	if n := len(f.frames) - 1; n < 5 || n > 7 {
		t.Fatalf("%d frames", n)
	}
	for i := range len(f.frames) - 2 {
		if n := f.frames[i+1].at - f.frames[i].at; n < frameText || n > frameText+21000 {
			t.Fatalf("frame %d has %d bytes of text", i, n)
		}
	}

	// Without its table it reads the same.
	raw := must[[]byte](t)(os.ReadFile(path))
	n := binary.LittleEndian.Uint32(raw[len(raw)-seekFoot:])
	for _, cut := range []int{1, seekFoot, int(n)*8 + seekFoot + 8} {
		if err := os.WriteFile(path, raw[:len(raw)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		got, snap := readEvents(t, s, subject)
		if cut > seekFoot && len(snap.Damage) > 0 {
			t.Fatalf("%d bytes cut off: %v", cut, snap.Damage)
		}
		wantEvents(t, got, want[:len(got)])
	}
}

// A damaged packed segment: what is read is right, what is bad is named, what is behind it is found.
func TestPackDamage(t *testing.T) {
	oneAtATime(t)
	s := openStore(t, t.TempDir(), nil)
	want := storedBig(t, s)
	mustPack(t, s)
	path := segName{0, 40}.in(s.dir(subject))
	raw := must[[]byte](t)(os.ReadFile(path))
	f := must[vfs.File](t)(s.openSegment(path)).(*packedFile)
	frames := f.frames
	f.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		bad := bytes.Clone(raw)
		at := rnd.IntN(len(bad))
		bad[at] ^= 1 << rnd.IntN(8)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		snap := must[*store.Snapshot](t)(s.Verify(t.Context(), subject))
		got := collect(t, snap.Prefix)
		wantEvents(t, got, want[:len(got)])
		i := 0
		for i < len(frames)-2 && int64(at) >= frames[i+1].off {
			i++
		}
		if int64(at) < frames[len(frames)-1].off {
			if len(snap.Damage) != 1 || !strings.Contains(snap.Damage[0].Detail, fmt.Sprintf("at byte %d of the file", frames[i].off)) && i > 0 {
				t.Fatalf("round %d, byte %d in frame %d: %+v", round, at, i, snap.Damage)
			}
			if d := snap.Damage[0]; i > 0 && (d.First > d.Last || d.Last > 39 || d.Last-d.First > 8 || session.Seq(len(got)) != d.First) {
				t.Fatalf("round %d, frame %d: %+v", round, i, d)
			}
			if _, err := s.Pack(t.Context(), subject); !errors.Is(err, store.ErrDamaged) {
				t.Fatalf("packed: %v", err)
			}
		} else if len(got) != len(want) {
			t.Fatalf("round %d: a bad table at %d loses events: %+v", round, at, snap.Damage)
		}
		snap.Close()
	}
	// Behind a packed one there was always another.
	if err := errors.Join(os.WriteFile(path, raw, 0o600), os.Remove(segName{40, session.None}.in(s.dir(subject)))); err != nil {
		t.Fatal(err)
	}
	if _, snap := readEvents(t, s, subject); len(snap.Damage) != 1 || !strings.Contains(snap.Damage[0].Detail, "gone") || snap.Pos.Next != 40 {
		t.Fatalf("%+v", snap)
	}
	if st := must[store.Stat](t)(s.Stat(t.Context(), subject)); st.State != store.StateDamaged {
		t.Fatalf("%+v", st)
	}
}

// What is in no record of the log is kept.
func TestPackKeeps(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	lives(t, s, 2, 4)
	path := segName{4, session.None}.in(s.dir(subject))
	half := `{"seq":8,"time":17`
	raw := append(must[[]byte](t)(os.ReadFile(path)), half...)
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, w, events(8, 2))
	mustFlush(t, w)
	w.Close()
	if p := mustPack(t, s); p.Aside != int64(len(half)) {
		t.Fatalf("%+v", p)
	}
	kept := filepath.Join(s.dir(subject), damagedName, fmt.Sprintf("%s.%d", segmentName(4), len(raw)-len(half)))
	if b := must[[]byte](t)(os.ReadFile(kept)); string(b) != half {
		t.Fatalf("%q", b)
	}
	got, _ := readEvents(t, s, subject)
	wantEvents(t, got, events(0, 10))
}

// A writer that was overtaken long ago, and whose place was joined away, wakes up.
func TestPackFences(t *testing.T) {
	root := t.TempDir()
	old := openStore(t, root, nil)
	lives(t, old, 2, 4)
	w := must[store.Writer](t)(old.Open(t.Context(), subject))
	// Somebody replaces the lease file: a second writer does not see the first.
	head := filepath.Join(old.dir(subject), headerName)
	b := must[[]byte](t)(os.ReadFile(head))
	if err := errors.Join(os.Remove(head), os.WriteFile(head, b, 0o600)); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, root, nil)
	for i := range 3 {
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		mustAppend(t, w, events(session.Seq(8+2*i), 2))
		mustFlush(t, w)
		w.Close()
	}
	before := look(t, s)
	mustPack(t, s)
	if _, err := w.Append(t.Context(), by("other", 8, 2)); !errors.Is(err, store.ErrFenced) {
		t.Fatalf("the overtaken writer: %v", err)
	}
	if after := look(t, s); after != before {
		t.Fatalf("it reads otherwise:\n%s\nwas\n%s", after, before)
	}

	// A segment that begins inside a packed one, whoever made it, is read by nobody, and kept aside by the next packing.
	rogue := segName{8, session.None}.in(old.dir(subject))
	other := openStore(t, t.TempDir(), nil)
	lives(t, other, 2, 4)
	ow := must[store.Writer](t)(other.Open(t.Context(), subject))
	mustAppend(t, ow, by("other", 8, 2))
	ow.Close()
	left := must[[]byte](t)(os.ReadFile(segName{8, session.None}.in(other.dir(subject))))
	if err := os.WriteFile(rogue, left, 0o600); err != nil {
		t.Fatal(err)
	}
	f := must[vfs.File](t)(vfs.OS().OpenFile(rogue, vfs.ReadWrite))
	if ok, err := f.TryLock(true); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if after := look(t, s); after != before {
		t.Fatalf("it reads otherwise:\n%s\nwas\n%s", after, before)
	}
	if p := mustPack(t, s); p.Aside != 0 {
		t.Fatalf("taken away while it is written: %+v", p)
	}
	f.Close()
	if p := mustPack(t, s); p.Aside != int64(len(left)) {
		t.Fatalf("%+v", p)
	}
	kept := filepath.Join(s.dir(subject), damagedName, segmentName(8)+".0")
	if b := must[[]byte](t)(os.ReadFile(kept)); !bytes.Equal(b, left) {
		t.Fatalf("%q", b)
	}
	if after := look(t, s); after != before {
		t.Fatal("it reads otherwise")
	}
}

// packScene is a session that has everything to do: plain and packed ones to join, a torn tail.
func packScene(t testing.TB, s *Store) {
	t.Helper()
	lives(t, s, 4, 3)
	mustPack(t, s)
	path := segName{9, session.None}.in(s.dir(subject))
	raw := must[[]byte](t)(os.ReadFile(path))
	if err := os.WriteFile(path, append(raw, "torn"...), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		w := must[store.Writer](t)(s.Open(context.Background(), subject))
		mustAppend(t, w, events(session.Seq(12+2*i), 2))
		mustFlush(t, w)
		w.Close()
	}
}

func packed(t *testing.T, s *Store, what, before string) {
	t.Helper()
	got, snap := readEvents(t, s, subject)
	wantEvents(t, got, events(0, 18))
	if len(snap.Damage) > 0 || snap.Lost != nil {
		t.Fatalf("%s: %+v", what, snap)
	}
	mustPack(t, s)
	if after := look(t, s); after != before {
		t.Fatalf("%s: it reads otherwise:\n%s\nwas\n%s", what, after, before)
	}
	want := []string{segName{0, 16}.String(), segName{16, session.None}.String(), damagedName}
	files := slices.DeleteFunc(segmentsOf(t, s), func(n string) bool { return strings.HasPrefix(n, newSegment) })
	if !slices.Equal(files, want) {
		t.Fatalf("%s: %v", what, files)
	}
	kept := must[[]os.DirEntry](t)(os.ReadDir(filepath.Join(s.dir(subject), damagedName)))
	kept = slices.DeleteFunc(kept, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), newSegment) })
	if len(kept) != 1 {
		t.Fatalf("%s: %v are set aside", what, kept)
	}
	if b := must[[]byte](t)(os.ReadFile(filepath.Join(s.dir(subject), damagedName, kept[0].Name()))); string(b) != "torn" {
		t.Fatalf("%s: %q", what, b)
	}
}

// The calls of a packing fail, once or from then on; whatever it was, the log reads as before and the next packing
// goes on.
func TestPackFaults(t *testing.T) {
	oneAtATime(t)
	master := t.TempDir()
	packScene(t, openStore(t, master, nil))
	before := look(t, openStore(t, master, nil))
	for _, odd := range []int{0, 1} { // the exhaustive table of crashes has the others
		for k := 1 + odd; ; k += 2 {
			once := odd == 1
			root := t.TempDir()
			if err := os.CopyFS(root, os.DirFS(master)); err != nil {
				t.Fatal(err)
			}
			var calls atomic.Int32
			s := openStore(t, root, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
				if n := int(calls.Add(1)); n == k || n > k && !once {
					return syscall.EIO
				}
				return do()
			}))
			_, err := s.Pack(context.Background(), subject)
			if int(calls.Load()) < k {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			s.Close()
			packed(t, openStore(t, root, nil), fmt.Sprintf("call %d fails, once %v (%v)", k, once, err), before)
			os.RemoveAll(root)
		}
	}
}

// The packing process is killed at every call that changes something.
func TestPackKilled(t *testing.T) {
	oneAtATime(t)
	master := t.TempDir()
	packScene(t, openStore(t, master, nil))
	before := look(t, openStore(t, master, nil))
	for k := 1; ; k++ {
		root := t.TempDir()
		if err := os.CopyFS(root, os.DirFS(master)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], root)
		cmd.Env = append(os.Environ(), childEnv+"=pack", "STRANDLINE_TEST_KILL="+strconv.Itoa(k))
		out, err := cmd.CombinedOutput()
		if err == nil {
			if k < 15 {
				t.Fatalf("only %d calls", k)
			}
			break
		}
		if ee, ok := errors.AsType[*exec.ExitError](err); !ok || ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%v: %s", err, out)
		}
		packed(t, openStore(t, root, nil), fmt.Sprintf("killed at %s", out), before)
		os.RemoveAll(root)
	}
}

// killChild packs or collects, and kills itself before the k-th call that changes something.
func killChild(what, root string) error {
	var calls atomic.Int32
	k, err := strconv.Atoi(os.Getenv("STRANDLINE_TEST_KILL"))
	if err != nil {
		return err
	}
	o := testOptions()
	o.FS = vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		switch c.Op {
		case vfs.OpCreate, vfs.OpWrite, vfs.OpLink, vfs.OpRename, vfs.OpRemove, vfs.OpMkdir, vfs.OpSync, vfs.OpSyncDir:
			if int(calls.Add(1)) == k {
				fmt.Println(c.Op, filepath.Base(c.Name))
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		return do()
	})
	s, err := Open(root, o)
	if err != nil {
		return err
	}
	if what == "collect" {
		_, err = s.Collect(context.Background(), store.CollectOptions{})
		return err
	}
	_, err = s.Pack(context.Background(), subject)
	return err
}

// A life joins in the background what more than 32 earlier ones left, with readers and a fork at work.
func TestJoinInLife(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	want := lives(t, s, manySegs+1, 2)
	n := len(want)
	snap := must[*store.Snapshot](t)(s.Read(t.Context(), subject))
	defer snap.Close()
	w := must[store.Writer](t)(s.Open(t.Context(), subject)).(*writer)
	if names := must[[]segName](t)(s.segmentNames(s.dir(subject))); len(names) != manySegs+1 {
		t.Fatal("opening joined something")
	}
	mustAppend(t, w, events(session.Seq(n), 1))
	for i := range 30 {
		got, snap := readEvents(t, s, subject)
		if len(got) < n+1 || len(snap.Damage) > 0 || snap.Torn != nil {
			t.Fatalf("%d events, %+v", len(got), snap)
		}
		wantEvents(t, got, events(0, len(got)))
		mustAppend(t, w, events(session.Seq(n+1+i), 1))
		mustFlush(t, w)
	}
	<-w.joinDone
	if names := must[[]segName](t)(s.segmentNames(s.dir(subject))); len(names) != 2 || !names[0].packed() {
		t.Fatalf("%v", names)
	}
	wantEvents(t, collect(t, snap.Prefix), want)
	wantEvents(t, collect(t, w.Opened().Prefix), want)
	mustAppend(t, w, events(session.Seq(n+31), 1))
	if len(w.segs) != 2 {
		t.Fatalf("%d segments in the index", len(w.segs))
	}
	wantEvents(t, collect(t, w.Stored()), events(0, n+32))
	if st := must[store.Stat](t)(s.Stat(t.Context(), subject)); st.Base != session.Seq(n) || st.State != store.StateOK {
		t.Fatalf("%+v", st)
	}
	w.Close()
	got, _ := readEvents(t, s, subject)
	wantEvents(t, got, events(0, n+32))
}
