package filestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// withBlob is an event whose text becomes a blob.
func withBlob(q session.Seq) session.Event {
	ev := events(q, 1)[0]
	ev.Data = jsontext.Value(`{"text":"` + strings.Repeat(fmt.Sprintf("%d,", q), 20000) + `"}`)
	return ev
}

func mustCollect(t testing.TB, s *Store) store.Collected {
	t.Helper()
	return must[store.Collected](t)(s.Collect(context.Background(), store.CollectOptions{Wait: time.Minute}))
}

func sound(t *testing.T, s *Store, id session.ID, want []session.Event) {
	t.Helper()
	snap := must[*store.Snapshot](t)(s.Verify(t.Context(), id))
	defer snap.Close()
	if len(snap.Damage) > 0 {
		t.Fatalf("%+v", snap.Damage)
	}
	wantEvents(t, collect(t, snap.Prefix), want)
}

// rubbish puts blobs that nothing names.
func rubbish(t testing.TB, root string, n int) (names []string) {
	t.Helper()
	s := openStore(t, root, nil)
	for i := range n {
		names = append(names, must[string](t)(s.PutBlob(context.Background(), []byte(fmt.Sprint("nobody's ", i)))))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestCollectPacked(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	lives(t, s, 2, 2)
	for q := session.Seq(4); q < 7; q++ {
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		mustAppend(t, w, []session.Event{withBlob(q)})
		mustFlush(t, w)
		w.Close()
	}
	mustPack(t, s)
	want := append(events(0, 4), withBlob(4), withBlob(5), withBlob(6))
	rubbish(t, root, 3)
	if c := mustCollect(t, s); c.Removed.N != 3 || c.Kept.N != 3 || len(c.Unread) > 0 {
		t.Fatalf("%+v", c)
	}
	sound(t, s, subject, want)

	// A bad frame may have named anything.
	rubbish(t, root, 1)
	path := segName{0, 6}.in(s.dir(subject))
	raw := must[[]byte](t)(os.ReadFile(path))
	raw[20] ^= 1
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if c := mustCollect(t, s); c.Removed.N != 0 || c.Unsure.N == 0 || len(c.Unread) != 1 || c.Unread[0].Where != string(subject) {
		t.Fatalf("%+v", c)
	}
}

// What cannot be read may name anything: nothing is removed.
func TestCollectUnread(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"a changed byte": func(dir string) error {
			return flipAt(filepath.Join(dir, segmentName(0)), 200)
		},
		"no header": func(dir string) error { return os.Remove(filepath.Join(dir, headerName)) },
		"a last segment without a good record, and no line end": func(dir string) error {
			name := filepath.Join(dir, segmentName(4))
			b, err := os.ReadFile(name)
			if err == nil {
				head := strings.IndexByte(string(b), '\n') + 1
				err = os.WriteFile(name, append(b[:head:head], b[head+9:head+60]...), 0o600)
			}
			return err
		},
		"a last segment that is cut to its first line": func(dir string) error {
			name := filepath.Join(dir, segmentName(4))
			b, err := os.ReadFile(name)
			if err == nil {
				err = os.WriteFile(name, b[:strings.IndexByte(string(b), '\n')+1], 0o600)
			}
			return err
		},
		"no segment": func(dir string) error { return os.Remove(filepath.Join(dir, segmentName(2))) },
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), inheritedDir) // a name that means something below the root only
			s := openStore(t, root, nil)
			lives(t, s, 3, 2)
			rubbish(t, root, 2)
			if err := spoil(s.dir(subject)); err != nil {
				t.Fatal(err)
			}
			if c := mustCollect(t, s); c.Removed.N != 0 || c.Unsure.N != 2 || len(c.Unread) != 1 {
				t.Fatalf("%+v", c)
			}
		})
	}
}

func flipAt(path string, at int) error {
	b, err := os.ReadFile(path)
	if err == nil {
		b[at] ^= 1
		err = os.WriteFile(path, b, 0o600)
	}
	return err
}

// A writer that could not bring its file to its name, and tries again, finds the blobs of its records.
func TestCollectBesideRetry(t *testing.T) {
	for _, create := range []bool{false, true} {
		root := t.TempDir()
		other := openStore(t, root, nil)
		newStored(t, other, "other", 1)
		var fail atomic.Bool
		s := openStore(t, root, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
			if fail.Load() && (c.Op == vfs.OpLink && strings.HasSuffix(c.To, segSuffix) || c.Op == vfs.OpRename) {
				return syscall.EIO
			}
			return do()
		}))
		first := session.Seq(0)
		var w store.Writer
		if create {
			w = must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
		} else {
			first = 2
			newStored(t, s, subject, 2)
			w = must[store.Writer](t)(s.Open(t.Context(), subject))
		}
		fail.Store(true)
		if _, err := w.Append(t.Context(), []session.Event{withBlob(first)}); err == nil {
			t.Fatal("saved")
		}
		if c := mustCollect(t, other); c.Kept.N != 1 && !create { // a new session is built again from the start
			t.Fatalf("%+v", c)
		}
		fail.Store(false)
		mustFlush(t, w)
		mustAppend(t, w, []session.Event{withBlob(first)})
		w.Close()
		sound(t, other, subject, append(events(0, int(first)), withBlob(first)))
	}
}

// Writers, forks, a packer and a collector at once.
func TestCollectCrowd(t *testing.T) {
	root := t.TempDir()
	done := make(chan error)
	const each, sessions = 12, 3
	for k := range sessions {
		s := openStore(t, root, nil)
		id := session.ID(fmt.Sprint("crowd-", k))
		go func() {
			done <- func() error {
				w, err := s.Create(context.Background(), testHeader(id))
				for q := session.Seq(0); q < each && err == nil; q++ {
					if q > 0 {
						w, err = s.Open(context.Background(), id)
					}
					if err == nil {
						_, err = w.Append(context.Background(), []session.Event{withBlob(q)})
					}
					if err == nil {
						_, err = w.Flush(context.Background())
						err = errors.Join(err, w.Close())
					}
					if q%4 == 3 && err == nil {
						_, err = s.Pack(context.Background(), id)
					}
				}
				return err
			}()
		}()
	}
	s := openStore(t, root, nil)
	for left := sessions; left > 0; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			left--
		default:
			if c := mustCollect(t, s); c.Removed.N > 0 || len(c.Unread) > 0 {
				t.Fatalf("%+v", c)
			}
		}
	}
	var want []session.Event
	for q := range session.Seq(each) {
		want = append(want, withBlob(q))
	}
	for k := range sessions {
		sound(t, s, session.ID(fmt.Sprint("crowd-", k)), want)
	}
}

// The collecting process is killed before every call that changes something.
func TestCollectKilled(t *testing.T) {
	for k := 1; ; k++ {
		root := t.TempDir()
		s := openStore(t, root, nil)
		newStored(t, s, subject, 1)
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		mustAppend(t, w, []session.Event{withBlob(1)})
		w.Close()
		rubbish(t, root, 3)
		cmd := exec.Command(os.Args[0], root)
		cmd.Env = append(os.Environ(), childEnv+"=collect", "STRANDLINE_TEST_KILL="+strconv.Itoa(k))
		out, err := cmd.CombinedOutput()
		if err != nil && !strings.Contains(err.Error(), "killed") {
			t.Fatalf("%v: %s", err, out)
		}
		sound(t, s, subject, append(events(0, 1), withBlob(1)))
		if c := mustCollect(t, s); c.Kept.N != 1 {
			t.Fatalf("%+v", c)
		}
		if err := s.EachBlob(t.Context(), func(name string, _ int64) error {
			b, err := s.GetBlob(t.Context(), name)
			if err == nil && record.BlobName(b) != name || len(b) < 100 {
				err = fmt.Errorf("%s is left: %q", name, b)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			if k < 4 {
				t.Fatalf("only %d calls", k)
			}
			break
		}
	}
}

// Between the listing and the reading of its files a session is packed.
func TestCollectSeesMoved(t *testing.T) {
	root := t.TempDir()
	other := openStore(t, root, nil)
	lives(t, other, 2, 2)
	for q := session.Seq(4); q < 7; q++ {
		w := must[store.Writer](t)(other.Open(t.Context(), subject))
		mustAppend(t, w, []session.Event{withBlob(q)})
		mustFlush(t, w)
		w.Close()
	}
	var once atomic.Bool
	s := openStore(t, root, vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		if c.Op == vfs.OpOpen && filepath.Base(c.Name) == segmentName(4) && once.CompareAndSwap(false, true) {
			mustPack(t, other)
		}
		return do()
	}))
	if c := mustCollect(t, s); c.Removed.N != 0 || c.Kept.N != 3 || !once.Load() {
		t.Fatalf("%+v", c)
	}
	sound(t, other, subject, append(events(0, 4), withBlob(4), withBlob(5), withBlob(6)))
}

// What somebody removed by hand leaves a cache and an announcement: the collector takes them along, and nothing of those that are
// there, in the trash or of no session.
func TestCollectOrphans(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	for _, id := range []session.ID{subject, "kept", "thrown"} {
		newStored(t, s, id, 2)
	}
	if err := s.Trash(t.Context(), "thrown"); err != nil {
		t.Fatal(err)
	}
	put := func(elem ...string) string {
		name := s.path(elem...)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte("{}\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	gone := []string{put("cache", string(subject), "1.fold"), put("live", string(subject)+".json")}
	stay := []string{put("cache", "kept", "1.fold"), put("cache", "thrown", "1.fold"), put("cache", "index.db"), put("cache", "no id!", "x")}
	if err := os.RemoveAll(s.dir(subject)); err != nil {
		t.Fatal(err)
	}
	if c := mustCollect(t, s); c.Litter.N != 2 {
		t.Errorf("%+v", c)
	}
	for _, n := range gone {
		if _, err := os.Stat(n); err == nil {
			t.Errorf("%s is there", n)
		}
	}
	for _, n := range stay {
		if _, err := os.Stat(n); err != nil {
			t.Error(err)
		}
	}
}

// Nothing beyond a link is removed: not where a directory of the store is one, nor a session's, nor one for blobs.
func TestNothingBeyondLinks(t *testing.T) {
	for _, at := range []string{"sessions", "trash", "blobs", "blobs/sha256", "cache", "purged", "live", "sessions/" + string(subject), "trash/thrown", "blobs/sha256/shard",
		"sessions/" + string(subject) + "/inherited"} {
		t.Run(at, func(t *testing.T) {
			root, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
			s := openStore(t, root, nil)
			newStored(t, s, subject, 2)
			newStored(t, s, "thrown", 2)
			if err := s.Trash(t.Context(), "thrown"); err != nil {
				t.Fatal(err)
			}
			names := rubbish(t, root, 2)
			if err := os.MkdirAll(s.path("cache", "nobody"), 0o700); err != nil {
				t.Fatal(err)
			}
			at = strings.Replace(at, "shard", filepath.Base(filepath.Dir(s.blobPath(names[0]))), 1)
			path := s.path(at)
			if err := os.Rename(path, out); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if err := os.MkdirAll(out, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, litter := range []string{".seg-00000000000000000009-x", ".blob-x", ".give-x", ".purge-x", "nobody.json"} {
				if err := os.WriteFile(filepath.Join(out, litter), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(out, path)); err != nil {
				t.Fatal(err)
			}
			before := tree(t, out)
			_, err := s.Collect(t.Context(), store.CollectOptions{})
			p := s.Purge(t.Context(), []session.ID{"thrown"})[0]
			if whole := !strings.Contains(at, "/") || at == "blobs/sha256"; whole != errors.Is(err, store.ErrReadOnly) || whole != errors.Is(p.Err, store.ErrReadOnly) {
				t.Errorf("collect: %v, purge: %v", err, p.Err)
			}
			if now := tree(t, out); !maps.Equal(before, now) {
				t.Errorf("it was\n%q\nand is\n%q", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(now)))
			}
		})
	}
}

// The root of a store may be a link to a directory: what is left in it is swept as in any other.
func TestCollectThroughALinkedRoot(t *testing.T) {
	root := t.TempDir()
	newStored(t, openStore(t, root, nil), subject, 2)
	litter := filepath.Join(root, newStore+"x")
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.WriteFile(litter, nil, 0o600), os.Symlink(root, link)); err != nil {
		t.Fatal(err)
	}
	must[store.Collected](t)(openStore(t, link, nil).Collect(t.Context(), store.CollectOptions{}))
	if _, err := os.Lstat(litter); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a dead maker of the store left is there: %v", err)
	}
}
