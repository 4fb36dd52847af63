package filestore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// spectator follows a session by looking whenever it is told to.
type spectator struct {
	t    testing.TB
	w    *feed
	got  []session.Event
	last *store.Holder
	err  error
}

func spectate(t testing.TB, s *Store, id session.ID, from session.Seq) *spectator {
	t.Helper()
	f, err := s.Watch(context.Background(), id, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &spectator{t: t, w: f.(*feed)}
}

// look takes what there is now.
func (v *spectator) look() {
	for v.err == nil {
		news, err := v.w.poll(context.Background())
		if v.err = err; err != nil || news == nil || len(news.Events) == 0 {
			if news != nil {
				v.last = news.Holder
			}
			return
		}
		v.got = append(v.got, news.Events...)
	}
}

// are fails unless what was given out is the log from the first event on.
func (v *spectator) are(log []session.Event) {
	v.t.Helper()
	if v.err != nil {
		v.t.Fatalf("behind event %d: %v", v.w.due-1, v.err)
	}
	wantEvents(v.t, v.got, log)
}

// noWait is for followers that look when they are told to.
func noWait(context.Context, time.Duration) error { return nil }

func watchStore(t testing.TB, root string) *Store {
	o := testOptions()
	o.FS, o.Wait = unsynced, noWait
	return openWith(t, root, o)
}

// lively makes n events that are not those of any other life.
func lively(life int, first session.Seq, n int) []session.Event {
	evs := events(first, n)
	for i := range evs {
		evs[i].Time += int64(life) * 1_000_000
	}
	return evs
}

// clumsy makes the calls of a writer fail at random, and lets others look behind each that changes something.
type clumsy struct {
	rnd    *rand.Rand
	chance float64 // of a failure
	behind func()
}

func (c *clumsy) fs() vfs.FS {
	return vfs.Around(unsynced, func(call *vfs.Call, do func() error) error {
		switch call.Op {
		case vfs.OpWrite, vfs.OpSync, vfs.OpSyncData, vfs.OpSyncDir, vfs.OpLink, vfs.OpRename, vfs.OpRemove, vfs.OpCreate, vfs.OpLock:
			err := c.do(call, do)
			c.behind()
			return err
		}
		return do() // nothing changes, and several goroutines read
	})
}

func (c *clumsy) do(call *vfs.Call, do func() error) error {
	bad := c.rnd.Float64() < c.chance
	switch call.Op {
	case vfs.OpWrite:
		if bad {
			call.Limit = c.rnd.IntN(call.Limit + 1)
			if err := do(); err != nil {
				return err
			}
			return syscall.ENOSPC
		}
	case vfs.OpSync, vfs.OpSyncData, vfs.OpSyncDir, vfs.OpLink, vfs.OpCreate:
		if bad && c.rnd.IntN(2) == 0 {
			if err := do(); err != nil {
				return err
			}
			return syscall.EIO
		}
		if bad {
			return syscall.EIO
		}
	}
	return do()
}

// Whatever fails in a writer, and whenever somebody looks: what was given out is in the log in the end, once, in order.
func TestFollowedThroughFailures(t *testing.T) {
	seeds := uint64(15)
	if n, err := strconv.ParseUint(os.Getenv("STRANDLINE_WATCH_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 11))
		root := t.TempDir()
		newStored(t, openStore(t, root, nil), subject, 3)
		reader := watchStore(t, root)
		v := spectate(t, reader, subject, 1)
		o := testOptions()
		o.SegmentBytes = 700
		c := &clumsy{rnd: rnd, chance: 0.15, behind: v.look}
		o.FS = c.fs()
		s := openWith(t, root, o)
		for life := range 6 {
			w, err := s.Open(t.Context(), subject)
			if err != nil {
				continue // a disk that fails; the next life may have more luck
			}
			next := w.Opened().Pos.Next
			for range 1 + rnd.IntN(6) {
				batch := lively(life, next, 1+rnd.IntN(5))
				saved := false
				for range 3 {
					if rnd.IntN(4) == 0 {
						_, _ = w.Flush(t.Context())
					}
					if _, err := w.Append(t.Context(), batch); err == nil {
						saved = true
						break
					}
				}
				if !saved {
					if rnd.IntN(2) == 0 {
						_, _ = w.Flush(t.Context())
					}
					break // as if it had died
				}
				next += session.Seq(len(batch))
				if rnd.IntN(2) == 0 {
					_, _ = w.Flush(t.Context())
				}
			}
			w.Close()
			v.look()
		}
		log, snap := readEvents(t, reader, subject)
		if len(snap.Damage) > 0 {
			t.Fatalf("seed %d: %+v", seed, snap.Damage)
		}
		v.look()
		if v.err != nil || difference(log[1:], v.got) != "" {
			t.Fatalf("seed %d: %v; the log has %d events\n%s", seed, v.err, len(log), difference(log[1:], v.got))
		}
	}
}

// The records of a batch whose write failed half way may have been read. The life that goes on in another file takes
// them along, also when nobody asks for the rest of the batch.
func TestArrivedStays(t *testing.T) {
	root := t.TempDir()
	newStored(t, openStore(t, root, nil), subject, 3)
	v := spectate(t, watchStore(t, root), subject, 0)
	full := false
	o := testOptions()
	o.FS = vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		switch {
		case full && c.Op == vfs.OpWrite:
			c.Limit = min(c.Limit, 400)
			_ = do()
			return syscall.ENOSPC
		case full && c.Op == vfs.OpCreate:
			return syscall.ENOSPC
		}
		return do()
	})
	w := must[store.Writer](t)(openWith(t, root, o).Open(t.Context(), subject))
	mustAppend(t, w, events(3, 1))
	mustAppend(t, w, events(4, 1)) // not synced: what goes on begins with it
	full = true
	batch := events(5, 8)
	if _, err := w.Append(t.Context(), batch); !errors.Is(err, store.ErrNotSaved) {
		t.Fatal(err)
	}
	v.look()
	if len(v.got) < 6 {
		t.Fatalf("nothing of the batch was read: %d events", len(v.got))
	}
	full = false
	mustFlush(t, w)
	log, _ := readEvents(t, v.w.s, subject)
	if len(log) < len(v.got) {
		t.Errorf("%d events were read, the log has %d", len(v.got), len(log))
	}
	mustAppend(t, w, batch)
	v.look()
	v.are(events(0, 13))
}

func appendFile(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// flip changes a digit of the first place in a file that reads so.
func flip(t testing.TB, path, what string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte(what))+len(what)-1] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func linkOf(t testing.TB, line []byte) session.Link {
	t.Helper()
	raw, err := record.Parse(bytes.TrimSuffix(line, []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	link, _ := raw.Link()
	return link
}

// recordAfter returns the record of ev behind the last one of text.
func recordAfter(t testing.TB, text []byte, ev session.Event) []byte {
	t.Helper()
	lines := bytes.SplitAfter(text, []byte("\n"))
	b, _ := record.Append(nil, ev, linkOf(t, lines[len(lines)-2]), session.None)
	return b
}

// newerLine is a record of seq 20 as a later version might write it.
func newerLine() string {
	body := `{"seq":20,"time":1,"type":"later\/type","data":{}`
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli)))
	return body + `,"chain":"` + strings.Repeat("A", 16) + base64.RawURLEncoding.EncodeToString(sum[:]) + "\"}\n"
}

// Another life has claimed the seq that is due and found the log unchanged. What the one before it then writes there
// will not be in the log, and nobody is told of it.
func TestPassedOverIsNotFollowed(t *testing.T) {
	for _, dies := range []bool{false, true} {
		root := t.TempDir()
		old := openStore(t, root, nil)
		w := must[store.Writer](t)(old.Create(t.Context(), testHeader(subject)))
		mustAppend(t, w, events(0, 5))
		mustFlush(t, w)
		v := spectate(t, watchStore(t, root), subject, 0)
		v.look()
		dropLease(t, old, subject)
		o := testOptions()
		linking := false
		o.FS = vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
			if c.Op == vfs.OpLink && !linking {
				linking = true
				mustAppend(t, w, lively(2, 5, 6)) // its look will tell
				v.look()
				v.are(events(0, 5))
				if dies {
					return syscall.EIO
				}
			}
			err := do()
			if linking {
				v.look()
			}
			return err
		})
		next := must[store.Writer](t)(openWith(t, root, o).Open(t.Context(), subject))
		_, err := next.Append(t.Context(), lively(1, 5, 3))
		if dies {
			next.Close() // with its claim
			v.look()
			v.are(append(events(0, 5), lively(2, 5, 6)...))
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		v.look()
		v.are(append(events(0, 5), lively(1, 5, 3)...))
		if _, err := w.Flush(t.Context()); !errors.Is(err, store.ErrFenced) {
			t.Fatal(err)
		}
	}
}

// A segment whose name may not be durable yet counts: its life goes on with it, or the next one reads it.
func TestNamedIsFollowed(t *testing.T) {
	root := t.TempDir()
	newStored(t, openStore(t, root, nil), subject, 5)
	v := spectate(t, watchStore(t, root), subject, 0)
	o := testOptions()
	linked := false
	o.FS = vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		if linked && c.Op == vfs.OpSyncDir {
			return syscall.EIO
		}
		linked = linked || c.Op == vfs.OpLink
		return do()
	})
	w := must[store.Writer](t)(openWith(t, root, o).Open(t.Context(), subject))
	if _, err := w.Append(t.Context(), events(5, 2)); !errors.Is(err, store.ErrNotSaved) {
		t.Fatal(err)
	}
	v.look()
	v.are(events(0, 7))
	w.Close()
	next := must[store.Writer](t)(openStore(t, root, nil).Open(t.Context(), subject))
	mustAppend(t, next, events(7, 2))
	v.look()
	v.are(events(0, 9))
}

// What a fenced life wrote behind the beginning of the next one's segment is not given out.
func TestFencedIsNotFollowed(t *testing.T) {
	root := t.TempDir()
	old := openStore(t, root, nil)
	w := must[store.Writer](t)(old.Create(t.Context(), testHeader(subject)))
	mustAppend(t, w, events(0, 5))
	mustFlush(t, w)
	v := spectate(t, watchStore(t, root), subject, 0)
	v.look()
	dropLease(t, old, subject)
	next := must[store.Writer](t)(openStore(t, root, nil).Open(t.Context(), subject))
	mustAppend(t, next, lively(1, 5, 3))
	mustAppend(t, w, lively(2, 5, 6)) // written; the look will tell
	v.look()
	v.are(append(events(0, 5), lively(1, 5, 3)...))
	if _, err := w.Flush(t.Context()); !errors.Is(err, store.ErrFenced) {
		t.Fatal(err)
	}
	mustAppend(t, next, lively(1, 8, 2))
	v.look()
	v.are(append(events(0, 5), lively(1, 5, 5)...))
}

// A torn tail is waited behind, whether its writer lives or not.
func TestFollowedOverATornTail(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, root, nil)
	newStored(t, s, subject, 5)
	v := spectate(t, watchStore(t, root), subject, 2)
	path := filepath.Join(s.dir(subject), segmentName(0))
	for _, tail := range []string{`{"seq":5,"ti`, `me":17000`} {
		appendFile(t, path, tail)
		v.look()
		v.are(events(2, 3))
	}
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, w, events(5, 2))
	v.look()
	v.are(events(2, 5))
	// A record that arrives in pieces is one event.
	w.Close()
	again := must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, again, events(7, 1))
	again.Close()
	v.look()
	whole, err := os.ReadFile(filepath.Join(s.dir(subject), segmentName(7)))
	if err != nil {
		t.Fatal(err)
	}
	line := whole[bytes.IndexByte(whole, '\n')+1:]
	next := recordAfter(t, line, events(8, 1)[0])
	for i := range next {
		appendFile(t, filepath.Join(s.dir(subject), segmentName(7)), string(next[i:i+1]))
		v.look()
		if want := 6 + i/(len(next)-1); len(v.got) != want {
			t.Fatalf("after %d of %d bytes: %d events, want %d", i+1, len(next), len(v.got), want)
		}
	}
	v.are(events(2, 7))
}

// An older copy in the place of what was read is said so, and damage is, behind what is before it.
func TestFollowedIntoDamage(t *testing.T) {
	store3 := func(t *testing.T) (*Store, *spectator) {
		root := t.TempDir()
		s := openStore(t, root, nil)
		newStored(t, s, subject, 5)
		for n := session.Seq(5); n < 20; n += 5 {
			w := must[store.Writer](t)(s.Open(t.Context(), subject))
			mustAppend(t, w, events(n, 3))
			mustAppend(t, w, events(n+3, 2))
			mustFlush(t, w)
			w.Close()
		}
		return s, spectate(t, watchStore(t, root), subject, 0)
	}
	t.Run("stale copy", func(t *testing.T) {
		s, v := store3(t)
		v.look()
		v.are(events(0, 20))
		path := filepath.Join(s.dir(subject), segmentName(15))
		b, _ := os.ReadFile(path)
		keep := bytes.SplitAfter(b, []byte("\n"))
		os.Remove(path)
		if err := os.WriteFile(path, bytes.Join(keep[:4], nil), 0o600); err != nil {
			t.Fatal(err)
		}
		v.look()
		if !errors.Is(v.err, store.ErrReplaced) {
			t.Fatal(v.err)
		}
	})
	t.Run("cut off", func(t *testing.T) {
		s, v := store3(t)
		v.look()
		if err := os.Truncate(filepath.Join(s.dir(subject), segmentName(15)), 300); err != nil {
			t.Fatal(err)
		}
		v.look()
		if !errors.Is(v.err, store.ErrReplaced) {
			t.Fatal(v.err)
		}
	})
	t.Run("other events", func(t *testing.T) {
		s, v := store3(t)
		v.look()
		os.Remove(filepath.Join(s.dir(subject), segmentName(15)))
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		mustAppend(t, w, lively(3, 15, 8))
		v.look()
		if !errors.Is(v.err, store.ErrReplaced) {
			t.Fatal(v.err)
		}
	})
	t.Run("same bytes, another file", func(t *testing.T) {
		s, v := store3(t)
		v.look()
		swapFiles(t, s.dir(subject))
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		mustAppend(t, w, events(20, 1))
		v.look()
		v.are(events(0, 21))
	})
	for name, first := range map[string]session.Seq{"in the middle": 5, "at the end": 15} {
		t.Run(name, func(t *testing.T) {
			s, v := store3(t)
			flip(t, filepath.Join(s.dir(subject), segmentName(first)), `"n":`+fmt.Sprint(first+1))
			v.look()
			if !errors.Is(v.err, store.ErrDamaged) {
				t.Fatal(v.err)
			}
			wantEvents(t, v.got, events(0, int(first)+1))
			if _, err := v.w.Next(t.Context()); !errors.Is(err, store.ErrDamaged) {
				t.Error("the next look forgets it:", err)
			}
		})
	}
	t.Run("lost with the power", func(t *testing.T) {
		s, v := store3(t)
		v.look()
		other := spectate(t, v.w.s, subject, 16)
		flip(t, filepath.Join(s.dir(subject), segmentName(15)), `"n":19`) // above the last mark
		other.look()
		if len(other.got) != 3 || other.err != nil {
			t.Fatal(len(other.got), other.err)
		}
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		lost := w.Opened().Lost
		if len(lost) != 1 {
			t.Fatalf("%+v", lost)
		}
		mustAppend(t, w, append(slices.Clone(lost), events(20, 2)...))
		other.look()
		log, _ := readEvents(t, s, subject)
		other.are(log[16:])
		v.look()
		if !errors.Is(v.err, store.ErrReplaced) {
			t.Fatal("the event that is lost was given out:", v.err)
		}
	})
	t.Run("newer", func(t *testing.T) {
		s, v := store3(t)
		appendFile(t, filepath.Join(s.dir(subject), segmentName(15)), newerLine())
		v.look()
		if !errors.Is(v.err, store.ErrUnsupported) || len(v.got) != 20 {
			t.Fatal(len(v.got), v.err)
		}
	})
}

// Segments are joined and packed under a follower wherever it stands, and in the middle of a look.
func TestFollowedOverPacking(t *testing.T) {
	for at := range 12 {
		root := t.TempDir()
		s := openStore(t, root, nil)
		newStored(t, s, subject, 4)
		for n := session.Seq(4); n < 12; n += 2 {
			w := must[store.Writer](t)(s.Open(t.Context(), subject))
			mustAppend(t, w, events(n, 2))
			w.Close()
		}
		var v *spectator
		calls, packed := 0, false
		o := testOptions()
		o.Wait = noWait
		o.FS = vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
			if calls++; calls == 3*at && !packed {
				packed = mustPack(t, s).After == 2
			}
			return do()
		})
		v = spectate(t, openWith(t, root, o), subject, session.Seq(at))
		v.look()
		v.look()
		v.are(events(session.Seq(at), 12-at))
		if !packed {
			packed = mustPack(t, s).After == 2
		}
		if !packed {
			t.Fatal("nothing was packed")
		}
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		mustAppend(t, w, events(12, 2))
		v.look()
		v.are(events(session.Seq(at), 14-at))
		late := spectate(t, v.w.s, subject, session.Seq(at))
		late.look()
		late.are(events(session.Seq(at), 14-at))
	}
}

// Who waits costs next to nothing: no file is opened, nothing is read.
func TestWaitingIsCheap(t *testing.T) {
	root := t.TempDir()
	newStored(t, openStore(t, root, nil), subject, 1000)
	var trace bytes.Buffer
	var waits []time.Duration
	ctx, stop := context.WithCancel(t.Context())
	o := testOptions()
	o.FS = vfs.Trace(unsynced, &trace, func(p string) string { rel, _ := filepath.Rel(root, p); return rel })
	o.Wait = func(ctx context.Context, d time.Duration) error {
		if waits = append(waits, d); len(waits) == 20 {
			stop()
		}
		if len(waits) < 3 {
			trace.Reset()
		}
		return context.Cause(ctx)
	}
	f, err := openWith(t, root, o).Watch(ctx, subject, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for n := 0; ; {
		news, err := f.Next(ctx)
		if err != nil {
			break
		}
		if n += len(news.Events); n > 1000 {
			t.Fatal(n, "events")
		}
	}
	if waits[0] != pollFirst || waits[19] != pollMost {
		t.Errorf("waits: %v", waits)
	}
	const idle = `open live/subject.json: not there
fstat sessions/subject/00000000000000000000.jsonl
readdir sessions/subject (2 names)
stat sessions/subject/00000000000000000000.jsonl
probe sessions/subject/00000000000000000000.jsonl (no writer)
`
	if got := trace.String(); got != strings.Repeat(idle, 18) {
		t.Errorf("%d calls in 18 looks, one of which is\n%s", strings.Count(got, "\n"), got[:min(len(got), 600)])
	}
}
