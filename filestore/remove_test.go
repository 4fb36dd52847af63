package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// removal is an operation of a session's life cycle on a family: subject, a fork of it that shares events with
// long strings, a fork of that one, and a stranger with the same string.
type removal struct {
	name  string
	setup func(t testing.TB, s *Store)
	run   func(ctx context.Context, s *Store) error
	ends  map[session.ID]string // where they are when it is done: stored (if not named), trash, purged
}

func longEvent(seq session.Seq, c string) session.Event {
	return session.Event{Seq: seq, Time: 1700000000000 + int64(seq), Type: "test/event", Ignorable: true,
		Data: jsontext.Value(`{"text":"` + strings.Repeat(c, 33000) + `"}`)}
}

// relations is what they hold.
func relations() map[session.ID][]session.Event {
	parent := events(0, 10)
	parent[2], parent[3], parent[8] = longEvent(2, "s"), longEvent(3, "c"), longEvent(8, "o")
	child := append(append([]session.Event(nil), parent[:7]...), events(7, 4)...)
	grand := append(append([]session.Event(nil), child[:9]...), events(9, 2)...)
	stranger := events(0, 3)
	stranger[1] = longEvent(1, "s")
	return map[session.ID][]session.Event{subject: parent, "child": child, "grand": grand, "stranger": stranger}
}

func forkOf(t testing.TB, s *Store, id, parent session.ID, cut session.Seq, own []session.Event) {
	t.Helper()
	ctx := context.Background()
	st := must[store.Stat](t)(s.Stat(ctx, parent))
	h := testHeader(id)
	h.Kind, h.SeedLength = session.KindFork, cut+1
	link := must[session.Link](t)(s.LinkAt(ctx, parent, cut))
	h.Parent = &session.Parent{ID: parent, Seq: cut, Link: link, Spans: st.Header.Spans(cut + 1)}
	if err := s.CreateFork(ctx, h, own); err != nil {
		t.Fatal(err)
	}
}

func makeFamily(t testing.TB, s *Store) {
	all := relations()
	for _, id := range []session.ID{subject, "stranger"} {
		w := must[store.Writer](t)(s.Create(t.Context(), testHeader(id)))
		for i := range all[id] { // several batches, so that there are marks and places to cut
			mustAppend(t, w, all[id][i:i+1])
		}
		mustFlush(t, w)
		w.Close()
	}
	forkOf(t, s, "child", subject, 6, all["child"][7:])
	forkOf(t, s, "grand", "child", 8, all["grand"][9:])
}

func trashed(ids ...session.ID) func(testing.TB, *Store) {
	return func(t testing.TB, s *Store) {
		makeFamily(t, s)
		for _, id := range ids {
			if err := s.Trash(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func purgeOf(ids ...session.ID) func(context.Context, *Store) error {
	return func(ctx context.Context, s *Store) error {
		var errs []error
		for _, p := range s.Purge(ctx, ids) {
			if !errors.Is(p.Err, store.ErrNotFound) { // by an earlier try
				errs = append(errs, p.Err)
			}
		}
		return errors.Join(errs...)
	}
}

var removals = []removal{
	{"trash", trashed(), func(ctx context.Context, s *Store) error { return s.Trash(ctx, subject) },
		map[session.ID]string{subject: "trash"}},
	{"restore", trashed(subject), func(ctx context.Context, s *Store) error { return s.Restore(ctx, subject) }, nil},
	{"purge", trashed(subject), purgeOf(subject), map[session.ID]string{subject: "purged"}},
	{"purge-two", trashed(subject, "child"), purgeOf(subject, "child"), map[session.ID]string{subject: "purged", "child": "purged"}},
	{"fork-of-heir", func(t testing.TB, s *Store) {
		trashed(subject)(t, s)
		if err := purgeOf(subject)(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}, func(ctx context.Context, s *Store) error {
		h := testHeader("late")
		h.Kind, h.SeedLength = session.KindFork, 6
		link, err := s.LinkAt(ctx, "child", 5)
		if err != nil {
			return err
		}
		h.Parent = &session.Parent{ID: "child", Seq: 5, Link: link, Spans: []session.OriginSpan{{ID: subject, End: 6}}}
		if err = s.CreateFork(ctx, h, events(6, 1)); errors.Is(err, store.ErrExists) {
			err = nil // by an earlier try
		}
		return err
	}, map[session.ID]string{subject: "purged"}},
}

// placeOf says where a session is.
func placeOf(t *testing.T, s *Store, id session.ID) string {
	t.Helper()
	_, err := s.Stat(t.Context(), id)
	nf, _ := errors.AsType[*store.NotFoundError](err)
	switch {
	case err == nil:
		return "stored"
	case nf == nil || !nf.Trashed && !nf.Purged:
		t.Fatalf("%s is nowhere: %v", id, err)
	case nf.Trashed:
		return "trash"
	}
	return "purged"
}

// disk is where a store lies.
type disk struct {
	fs    vfs.FS
	root  string
	names func() []string // of all files, from the root
	read  func(name string) ([]byte, error)
}

func (d disk) open(t testing.TB) *Store { return openStore(t, d.root, d.fs) }

func memDisk(m *vfs.Mem) disk {
	return disk{m.Process(), "/store", func() (out []string) {
		for _, n := range m.Names() {
			if rel, ok := strings.CutPrefix(n, "/store/"); ok {
				out = append(out, rel)
			}
		}
		return out
	}, func(name string) ([]byte, error) { return m.ReadFile("/store/" + name) }}
}

func osDisk(t *testing.T, root string) disk {
	return disk{unsynced, root, func() (out []string) {
		err := fs.WalkDir(os.DirFS(root), ".", func(path string, _ fs.DirEntry, err error) error {
			out = append(out, path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(root, name)) }}
}

// wholeFamily wants everybody who is not purged to hold everything, and every id to be taken.
func wholeFamily(t *testing.T, d disk) {
	t.Helper()
	s := d.open(t)
	defer s.Close()
	all := relations()
	all["late"] = append(all["child"][:6:6], events(6, 1)...)
	for id, want := range all {
		if _, err := s.Stat(t.Context(), id); id == "late" && errors.Is(err, store.ErrNotFound) {
			continue
		}
		if _, err := s.Create(t.Context(), testHeader(id)); !errors.Is(err, store.ErrExists) {
			t.Fatalf("%s can be made anew: %v", id, err)
		}
		at := placeOf(t, s, id)
		if at == "purged" {
			continue
		}
		if at == "trash" {
			if err := s.Restore(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		got, snap := readEvents(t, s, id)
		if len(snap.Damage) > 0 || snap.Lost != nil {
			t.Fatalf("%s (%s): damage %v", id, at, snap.Damage)
		}
		wantEvents(t, got, want)
		if at == "trash" {
			if err := s.Trash(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// finish runs op again, to its end, and wants nothing to be left of what was interrupted.
func (op removal) finish(t *testing.T, d disk) {
	t.Helper()
	s := d.open(t)
	defer s.Close()
	err := op.run(t.Context(), s)
	nf, _ := errors.AsType[*store.NotFoundError](err)
	if err != nil && !errors.Is(err, store.ErrNotTrashed) && (nf == nil || !nf.Trashed && !nf.Purged) {
		t.Fatalf("the second time: %v", err)
	}
	for id := range relations() {
		want := op.ends[id]
		if want == "" {
			want = "stored"
		}
		if at := placeOf(t, s, id); at != want {
			t.Fatalf("%s is in %s, want %s", id, at, want)
		}
	}
	if op.ends[subject] != "purged" {
		return
	}
	blobs := 0
	for _, name := range d.names() {
		base := filepath.Base(name)
		switch {
		case strings.HasPrefix(name, "sessions/.new-"):
		case strings.Contains(name, purging), strings.Contains(name, handingOver):
			t.Errorf("left behind: %s", name)
		case strings.HasPrefix(name, "blobs/") && len(base) == 64:
			blobs++
		case strings.Contains(name, inheritedDir+"/"+string(subject)+"/"):
			if text, err := d.read(name); err != nil || bytes.Contains(text, []byte("event number 9")) {
				t.Errorf("%s holds what was deleted (%v)", name, err)
			}
		}
	}
	if blobs != 2 { // s and c: o was subject's alone
		t.Errorf("%d blobs are left", blobs)
	}
}

func TestRemovalTraces(t *testing.T) {
	for _, op := range removals {
		t.Run(op.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "store")
			o := testOptions()
			o.PID, o.Rand = 1, &counter{}
			op.setup(t, openWith(t, root, o))
			var out bytes.Buffer
			o.FS = traced(vfs.OS(), root, &out)
			if err := op.run(t.Context(), openWith(t, root, o)); err != nil {
				t.Fatal(err)
			}
			golden(t, "trace-"+op.name+".txt", out.Bytes())
		})
	}
}

// everyCall asks for all calls and all disks, not a part of them.
var everyCall = os.Getenv("STRANDLINE_EVERY_CALL") != ""

// after returns the call to break after the k-th: without everyCall not each of them, in each way others.
func after(k int, way string) int {
	if everyCall {
		return k + 1
	}
	return k + 10 + len(way)%3
}

// TestEveryRemovalCallFails breaks each call, and then takes the power away: whatever fails, nobody loses anything
// that was not purged, and the operation can be tried again.
func TestEveryRemovalCallFails(t *testing.T) {
	oneAtATime(t)
	syncs := func(c vfs.Call) bool {
		return c.Op == vfs.OpSync || c.Op == vfs.OpSyncData || c.Op == vfs.OpSyncDir
	}
	ways := map[string]vfs.Rule{
		"fails":               {},
		"fails-for-good":      {Forever: true, Err: syscall.ENOSPC},
		"done-but-fails":      {After: true},
		"syncs-fail-for-good": {Match: syncs, Forever: true},
		"short":               {Short: 7, Match: func(c vfs.Call) bool { return c.Op == vfs.OpWrite }},
	}
	for _, op := range removals {
		m := vfs.NewMem(vfs.MemOptions{})
		op.setup(t, openStore(t, "/store", m.Process()))
		for way, rule := range ways {
			t.Run(op.name+"/"+way, func(t *testing.T) {
				for k := 1; ; k = after(k, way) {
					rule.K = k
					now := m.Clone()
					p := now.Process()
					fsys := vfs.Fault(p, rule)
					s := openStore(t, "/store", fsys)
					err := op.run(t.Context(), s)
					s.Close()
					p.Kill()
					op.survives(t, now, uint64(k), fmt.Sprintf("call %d (%v)", k, err))
					if fsys.Hits() < k {
						if err != nil {
							t.Fatalf("nothing was broken, but: %v", err)
						}
						return
					}
				}
			})
		}
	}
}

// survives looks at a disk after its processes have died, and after loss of power.
func (op removal) survives(t *testing.T, m *vfs.Mem, seed uint64, at string) {
	t.Helper()
	ways := []func() *vfs.Mem{
		m.Clone, func() *vfs.Mem { return m.Crash(vfs.Lost) }, func() *vfs.Mem { return m.Crash(vfs.Random(seed, 0.5)) },
	}
	for i, how := range []string{"killed", "nothing unsynced survives", "some of it survives"} {
		if !everyCall && int(seed)%len(ways) != i {
			continue
		}
		d := memDisk(ways[i]())
		wholeFamily(t, d)
		op.finish(t, d)
		wholeFamily(t, d)
		if t.Failed() {
			t.Fatalf("%s, %s", at, how)
		}
	}
}

// TestEveryRemovalCrash takes the power away before each call.
func TestEveryRemovalCrash(t *testing.T) {
	oneAtATime(t)
	for _, op := range removals {
		t.Run(op.name, func(t *testing.T) {
			m := vfs.NewMem(vfs.MemOptions{})
			op.setup(t, openStore(t, "/store", m.Process()))
			for k := 1; ; k = after(k, "") {
				now := m.Clone()
				p := now.Process()
				n := 0
				s := openStore(t, "/store", vfs.Around(p, func(c *vfs.Call, do func() error) error {
					if n++; n == k {
						p.Kill()
					}
					return do()
				}))
				err := op.run(t.Context(), s)
				s.Close()
				p.Kill()
				op.survives(t, now, uint64(k), fmt.Sprintf("before call %d (%v)", k, err))
				if n < k {
					return
				}
			}
		})
	}
}

// TestKilledRemoval kills a process before each call that it makes.
func TestKilledRemoval(t *testing.T) {
	for i, op := range removals {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			master := filepath.Join(t.TempDir(), "store")
			op.setup(t, openStore(t, master, nil))
			for k := 1; ; k++ {
				if !everyCall && k > 6 && k%3 > 0 {
					continue
				}
				root := filepath.Join(t.TempDir(), "store")
				if err := os.CopyFS(root, os.DirFS(master)); err != nil {
					t.Fatal(err)
				}
				cmd := exec.Command(os.Args[0], root)
				cmd.Env = append(os.Environ(), childEnv+"=removal", fmt.Sprintf("STRANDLINE_TEST_REMOVAL=%d,%d", i, k))
				out, err := cmd.CombinedOutput()
				wholeFamily(t, osDisk(t, root))
				op.finish(t, osDisk(t, root))
				wholeFamily(t, osDisk(t, root))
				if t.Failed() {
					t.Fatalf("killed before change %d: %s", k, out)
				}
				if err == nil {
					if k < 3 {
						t.Fatalf("it made %d changes", k-1)
					}
					return
				}
				if cmd.ProcessState.ExitCode() != -1 {
					t.Fatalf("%v: %s", err, out)
				}
			}
		})
	}
}

// dieAt plays the child of TestKilledRemoval: it kills itself before the k-th call that changes something.
func dieAt(root string) error {
	which, at, _ := strings.Cut(os.Getenv("STRANDLINE_TEST_REMOVAL"), ",")
	i, err1 := strconv.Atoi(which)
	k, err2 := strconv.Atoi(at)
	if err1 != nil || err2 != nil {
		return errors.Join(err1, err2)
	}
	o := testOptions()
	n := 0
	o.FS = vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		switch c.Op {
		case vfs.OpCreate, vfs.OpLink, vfs.OpRename, vfs.OpRemove, vfs.OpMkdir, vfs.OpWrite:
			if n++; n == k {
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		return do()
	})
	s, err := Open(root, o)
	if err != nil {
		return err
	}
	return removals[i].run(context.Background(), s)
}

// What lies in packed segments is handed over like the rest: whole files as they are, of others the beginning.
func TestInheritPacked(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	all := lives(t, s, 6, 5)
	mustPack(t, s)
	if n := len(segmentsOf(t, s)); n == 6 {
		t.Fatal("nothing was packed")
	}
	for _, cut := range []session.Seq{2, 12, session.Seq(len(all)) - 1} {
		forkOf(t, s, session.ID(fmt.Sprintf("child-%d", cut)), subject, cut, nil)
	}
	if err := errors.Join(s.Trash(t.Context(), subject), s.Purge(t.Context(), []session.ID{subject})[0].Err); err != nil {
		t.Fatal(err)
	}
	for _, cut := range []session.Seq{2, 12, session.Seq(len(all)) - 1} {
		id := session.ID(fmt.Sprintf("child-%d", cut))
		snap := must[*store.Snapshot](t)(s.Verify(t.Context(), id))
		if len(snap.Damage) > 0 {
			t.Errorf("%s: %v", id, snap.Damage)
			continue
		}
		wantEvents(t, collect(t, snap.Prefix), all[:cut+1])
		snap.Close()
	}
}

// A fork that is being made while its parent is purged is whole, or is refused.
func TestForkMeetsPurge(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	newStored(t, s, subject, 10)
	h, err := forkHeader(t.Context(), s, "child", 6)
	if err != nil {
		t.Fatal(err)
	}
	other := openStore(t, root, nil)
	if err := other.Trash(t.Context(), subject); err != nil {
		t.Fatal(err)
	}
	purged := make(chan error, 1)
	begun := false
	forking := openStore(t, root, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		err := do()
		if c.Op == vfs.OpOpen && strings.HasSuffix(c.Name, filepath.Join("trash", string(subject), headerName)) && !begun {
			begun = true
			asked, cancel := context.WithCancel(t.Context())
			go func() {
				defer cancel()
				purged <- other.Purge(t.Context(), []session.ID{subject})[0].Err
			}()
			// It is not done before the fork is: it waits for the lock.
			if vfs.Wait(asked, patience) != nil {
				t.Error("the purge did not wait")
			}
		}
		return err
	}))
	if err := forking.CreateFork(t.Context(), h, events(7, 2)); err != nil {
		t.Fatal(err)
	}
	if !begun {
		t.Fatal("the fork did not look at its parent")
	}
	if err := <-purged; err != nil {
		t.Fatal(err)
	}
	got, snap := readEvents(t, s, "child")
	if len(snap.Damage) > 0 {
		t.Fatal(snap.Damage)
	}
	wantEvents(t, got, events(0, 9))
}

// What cannot be read can be thrown away, and does not keep the others from being purged; but a fork whose header is
// lost keeps what it may begin with.
func TestRemoveRotten(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	makeFamily(t, s)
	rot := map[session.ID]func(dir string) error{
		"nohead": func(dir string) error { return os.Remove(filepath.Join(dir, headerName)) },
		"hollow": func(dir string) error { return os.WriteFile(filepath.Join(dir, headerName), nil, 0o600) },
		"noise": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, headerName), []byte("\x00\xff noise"), 0o600)
		},
		"dirhead": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, headerName)), os.Mkdir(filepath.Join(dir, headerName), 0o700))
		},
		"dirseg": func(dir string) error {
			seg := filepath.Join(dir, segmentName(0))
			return errors.Join(os.Remove(seg), os.Mkdir(seg, 0o700))
		},
		"file": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, []byte("x"), 0o600)) },
	}
	for id, spoil := range rot {
		newStored(t, s, id, 3)
		if err := spoil(s.dir(id)); err != nil {
			t.Fatal(err)
		}
	}
	purge := func(id session.ID) error {
		t.Helper()
		if err := s.Trash(t.Context(), id); err != nil {
			t.Fatalf("trash of %s: %v", id, err)
		}
		return s.Purge(t.Context(), []session.ID{id})[0].Err
	}
	if err := purge("stranger"); err != nil {
		t.Errorf("with rotten sessions beside it: %v", err)
	}
	for id := range rot {
		if err := s.Trash(t.Context(), id); err != nil {
			t.Errorf("trash of %s: %v", id, err)
			continue
		}
		if page := must[store.Page](t)(s.List(t.Context(), store.Query{Trash: true})); len(page.Rows) != 1 || page.Rows[0].ID != id {
			t.Errorf("the trash: %+v", page.Rows)
		}
		if err := errors.Join(s.Restore(t.Context(), id), s.Trash(t.Context(), id)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if p := s.Purge(t.Context(), []session.ID{id})[0]; p.Err != nil {
			t.Errorf("purge of %s: %v", id, p.Err)
		}
	}
	head := filepath.Join(s.dir("grand"), headerName)
	good, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{bytes.Replace(good, []byte(`"kind"`), []byte(`"kinD"`), 1), nil} {
		if err := os.WriteFile(head, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if placeOf(t, s, "child") == "stored" {
			if err := s.Trash(t.Context(), "child"); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Purge(t.Context(), []session.ID{"child"})[0].Err; err == nil || !strings.Contains(err.Error(), "grand") {
			t.Errorf("a fork with a lost header may need it: %v", err)
		}
	}
	if err := os.WriteFile(head, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), []session.ID{"child"})[0].Err; err != nil {
		t.Error(err)
	}
	got, _ := readEvents(t, s, "grand")
	wantEvents(t, got, relations()["grand"])
}

// What is derived of a session goes with it.
func TestRemoveDerived(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	newStored(t, s, subject, 3)
	dir := filepath.Join(root, "cache", string(subject), "deep")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "state"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Trash(t.Context(), subject); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
		t.Errorf("the cache of a deleted session is still there: %v", err)
	}
}
