package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// talk makes n turns, of six events each, as the events from first on; every tenth hides the ones before it.
func talk(t testing.TB, first session.Seq, n int) []session.Event {
	t.Helper()
	var out []session.Event
	add := func(d session.Draft) {
		seq := first + session.Seq(len(out))
		ev, err := d.Event(seq, 1700000000000+int64(seq))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ev)
	}
	for i := range n {
		turn := int(first)/6 + i + 1
		ref := session.StepRef{Turn: turn, Step: 1}
		user := message.User(fmt.Sprintf("u-%d", turn), strings.Repeat(fmt.Sprint("word ", turn), 20))
		add(session.Draft{Type: session.TypeTurnStart, Data: session.TurnStart{Turn: turn}})
		add(session.Draft{Type: session.TypeStepStart, Data: ref})
		seq := first + session.Seq(len(out))
		if op := session.Append(); turn%10 == 0 && seq > 200 {
			from := seq - 2*54 - 6 // the first message behind the one that hid the others before
			op = session.Replace(from, seq-4)
			src := session.Sources{{First: from, Last: seq - 4}}
			add(session.Draft{Type: session.TypeUserMessage, Data: user, Op: op, Sources: src})
		} else {
			add(session.Draft{Type: session.TypeUserMessage, Data: user, Op: op})
		}
		add(session.Draft{Type: session.TypeAssistantMessage, Op: session.Append(), Data: session.AssistantMessage{Turn: turn, Step: 1,
			Message: message.Message{ID: fmt.Sprintf("a-%d", turn), Role: message.RoleAssistant, Content: []message.Block{message.TextBlock("yes")},
				Source: message.Source{Kind: message.SourceModel, Provider: "p", Model: "m"}},
			Usage: &message.Usage{InputTokens: 7, OutputTokens: int64(turn)}}})
		add(session.Draft{Type: session.TypeStepEnd, Data: ref})
		add(session.Draft{Type: session.TypeTurnEnd, Data: session.TurnEnd{Turn: turn, Reason: session.Reason{Kind: session.ReasonCompleted}}})
	}
	return out
}

// foldOf is what a fold of evs is as a checkpoint.
func foldOf(t testing.TB, h session.Header, evs []session.Event) []byte {
	t.Helper()
	st := must[session.State](t)(session.Fold(h, nil, session.Events(evs)))
	return must[[]byte](t)(st.MarshalBinary())
}

// keepFold keeps a checkpoint of what w has synced.
func keepFold(t testing.TB, s *Store, w store.Writer) store.Pos {
	t.Helper()
	pos := mustFlush(t, w)
	if err := s.PutCheckpoint(t.Context(), w.Header().ID, store.Checkpoint{Pos: pos, Data: foldOf(t, w.Header(), collect(t, w.Stored()))}); err != nil {
		t.Fatal(err)
	}
	return pos
}

// smallSegments is a store whose segments hold about 40 events.
func smallSegments(t testing.TB, root string, fs vfs.FS) *Store {
	t.Helper()
	o := testOptions()
	if o.FS = fs; fs == nil {
		o.FS = unsynced
	}
	o.SegmentBytes = 16 << 10
	return openWith(t, root, o)
}

// foldedLives stores a session of n lives with 20 turns each, all but the last of which left a checkpoint.
func foldedLives(t testing.TB, s *Store, id session.ID, n int) {
	t.Helper()
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(id)))
	for i := range n {
		at := session.Seq(i * 120)
		for k := range session.Seq(4) {
			mustAppend(t, w, talk(t, at+30*k, 5))
		}
		mustFlush(t, w)
		if i < n-1 {
			keepFold(t, s, w)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			w = must[store.Writer](t)(s.Open(t.Context(), id))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// behind opens the tail of id and holds everything that it tells to the whole log. It returns where its checkpoint is,
// 0 without.
func behind(t testing.TB, s *Store, id session.ID) session.Seq {
	t.Helper()
	ctx := context.Background()
	whole := must[*store.Snapshot](t)(s.Read(ctx, id))
	defer whole.Close()
	tail := must[*store.Snapshot](t)(s.ReadTail(ctx, id))
	defer tail.Close()
	if tail.Pos != whole.Pos || len(tail.Damage) != len(whole.Damage) || (tail.Torn == nil) != (whole.Torn == nil) {
		t.Fatalf("the tail ends at %v with %v, %v; the log at %v with %v, %v", tail.Pos, tail.Torn, tail.Damage, whole.Pos, whole.Torn, whole.Damage)
	}
	at := session.Seq(0)
	if tail.Nearest != nil {
		if c, ok := tail.Nearest(store.Whole); ok {
			at = c.Pos.Next
		}
	}
	if err := store.CheckFold(tail, nil); err != nil {
		t.Error(err)
	}
	want := collect(t, whole.Prefix)
	wantEvents(t, collect(t, tail.Prefix), want)
	fresh := must[*store.Snapshot](t)(s.ReadTail(ctx, id)) // that knows no place yet
	defer fresh.Close()
	rng := rand.New(rand.NewPCG(uint64(len(want)), 1))
	for range 60 {
		q := session.Seq(rng.IntN(len(want)))
		if ev, err := fresh.Prefix.At(q); err != nil || !same(ev, want[q]) {
			t.Fatalf("the event at %d: %v %v", q, ev, err)
		}
		n := min(q+session.Seq(rng.IntN(70)), session.Seq(len(want)))
		got := []session.Event{}
		for ev, err := range fresh.Prefix.Range(q, n) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ev)
		}
		wantEvents(t, got, want[q:n])
	}
	for _, n := range []session.Seq{1, session.Seq(len(want)) / 2, session.Seq(len(want))} {
		a := must[session.State](t)(store.FoldTo(fresh, nil, n))
		if !bytes.Equal(must[[]byte](t)(a.MarshalBinary()), foldOf(t, whole.Header, want[:n])) {
			t.Errorf("the first %d events fold to something else behind a checkpoint", n)
		}
	}
	w := must[store.Writer](t)(s.Open(ctx, id))
	defer w.Close()
	seed := must[session.Seed](t)(store.Load(w.Opened(), nil))
	plain := must[session.Seed](t)(store.LoadFrom(whole, session.NewState(whole.Header, nil)))
	if !bytes.Equal(must[[]byte](t)(seed.State.MarshalBinary()), must[[]byte](t)(plain.State.MarshalBinary())) {
		t.Error("opening behind a checkpoint gives another seed")
	}
	return at
}

// What is opened behind a checkpoint is what the whole log is, in every layout of it.
func TestBehindACheckpoint(t *testing.T) {
	root := t.TempDir()
	s := smallSegments(t, root, nil)
	foldedLives(t, s, subject, 5)
	if at := behind(t, s, subject); at != 480 {
		t.Fatalf("checkpoint at %d", at)
	}
	// A fork finds those of its parent below its cut, and its own.
	cut := session.Seq(299)
	h := must[session.Header](t)(store.Fork(t.Context(), s, subject, store.ForkOptions{At: &cut, Child: "child-1", Now: 9}))
	if at := behind(t, s, h.ID); at != 240 {
		t.Fatalf("a fork begins at %d", at)
	}
	w := must[store.Writer](t)(s.Open(t.Context(), h.ID))
	mustAppend(t, w, talk(t, w.Opened().Pos.Next, 3))
	own := keepFold(t, s, w).Next
	mustAppend(t, w, talk(t, own, 1))
	mustFlush(t, w)
	w.Close()
	if at := behind(t, s, h.ID); at != own {
		t.Fatalf("a fork with work of its own begins at %d, not %d", at, own)
	}
	// A child of that one, with the checkpoint in the middle of the three.
	h2 := must[session.Header](t)(store.Fork(t.Context(), s, h.ID, store.ForkOptions{Child: "child-2", Now: 9}))
	if at := behind(t, s, h2.ID); at != own {
		t.Fatalf("a fork of a fork begins at %d, not %d", at, own)
	}
	// Packed, below and above.
	if _, err := s.Pack(t.Context(), subject); err != nil {
		t.Fatal(err)
	}
	for _, id := range []session.ID{subject, h.ID, h2.ID} {
		if behind(t, s, id) == 0 {
			t.Errorf("%s is read whole when its beginning is packed", id)
		}
	}
	// The parent in the trash.
	if err := s.Trash(t.Context(), subject); err != nil {
		t.Fatal(err)
	}
	if at := behind(t, s, h.ID); at != own {
		t.Errorf("with its parent in the trash the fork begins at %d", at)
	}
	if _, err := os.Stat(s.cacheDir(subject)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is derived of a deleted session: %v", err)
	}
}

// A torn tail is skipped behind a checkpoint too; and what is opened goes on.
func TestTornBehindACheckpoint(t *testing.T) {
	root := t.TempDir()
	s := smallSegments(t, root, nil)
	foldedLives(t, s, subject, 3)
	names := must[[]segName](t)(s.segmentNames(s.dir(subject)))
	f := must[*os.File](t)(os.OpenFile(names[len(names)-1].in(s.dir(subject)), os.O_APPEND|os.O_WRONLY, 0))
	f.WriteString(`{"seq":360,"ti`)
	f.Close()
	if at := behind(t, s, subject); at != 240 {
		t.Fatalf("checkpoint at %d", at)
	}
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, w, talk(t, 360, 20))
	if pos := mustFlush(t, w); pos.Next != 480 {
		t.Fatal(pos)
	}
	w.Close()
	behind(t, s, subject)
}

// Opening behind a checkpoint reads the tail, whatever is before it.
func TestOpeningReadsTheTail(t *testing.T) {
	var read atomic.Int64
	counting := vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		if c.Op == vfs.OpRead && strings.Contains(c.Name, "sessions") {
			read.Add(1)
		}
		return do()
	})
	sizes := map[int]int64{}
	for _, n := range []int{4, 40} {
		s := smallSegments(t, t.TempDir(), counting)
		foldedLives(t, s, subject, n)
		read.Store(0)
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		must[session.Seed](t)(store.Load(w.Opened(), nil))
		sizes[n] = read.Load()
		w.Close()
	}
	if sizes[40] > sizes[4]+4 || sizes[4] == 0 {
		t.Errorf("opening 40 lives reads %d times, 4 lives %d", sizes[40], sizes[4])
	}
}

// A checkpoint proves nothing of what lies below it: damage there is met when it is read, never as another event, and
// the next opening knows of it. Repair mends it, and checkpoints are made again.
func TestDamageBelowACheckpoint(t *testing.T) {
	hurt := map[string]func(t *testing.T, path string, text []byte){
		"a bit of an event": func(t *testing.T, path string, text []byte) {
			at := bytes.Index(text, []byte(`"seq":100,`)) + 40
			text[at] ^= 1
			write(t, path, text)
		},
		"a line is gone": func(t *testing.T, path string, text []byte) {
			at := bytes.Index(text, []byte(`{"seq":100,`))
			end := at + bytes.IndexByte(text[at:], '\n') + 1
			write(t, path, append(text[:at:at], text[end:]...))
		},
		"the first line": func(t *testing.T, path string, text []byte) {
			text[4] ^= 4
			write(t, path, text)
		},
		"of another session": func(t *testing.T, path string, text []byte) {
			write(t, path, bytes.Replace(text, []byte(subject), []byte("another"), 1))
		},
		"zeros": func(t *testing.T, path string, text []byte) {
			clear(text[len(text)/2:])
			write(t, path, text)
		},
		"cut": func(t *testing.T, path string, text []byte) { write(t, path, text[:len(text)/3]) },
		"gone": func(t *testing.T, path string, text []byte) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, do := range hurt {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s := smallSegments(t, t.TempDir(), nil)
			foldedLives(t, s, subject, 5)
			want, _ := readEvents(t, s, subject)
			names := must[[]segName](t)(s.segmentNames(s.dir(subject)))
			i := holding(names, 100)
			path := names[i].in(s.dir(subject))
			do(t, path, must[[]byte](t)(os.ReadFile(path)))

			w := must[store.Writer](t)(s.Open(ctx, subject))
			seed := must[session.Seed](t)(store.Load(w.Opened(), nil)) // it does not look there
			mustAppend(t, w, talk(t, 600, 1))
			mustFlush(t, w)
			met := false
			for q := range seed.Prefix.Len() {
				ev, err := seed.Prefix.At(q)
				switch {
				case errors.Is(err, store.ErrDamaged):
					met = true
				case err != nil:
					t.Fatalf("reading %d: %v", q, err)
				case !same(ev, want[q]):
					t.Fatalf("another event at %d: %v", q, ev)
				}
			}
			if !met {
				t.Fatal("nothing was met")
			}
			w.Close()
			if left, _ := s.foldsIn(subject); len(left) > 0 {
				t.Errorf("checkpoints are left: %v", left)
			}
			if _, err := s.Open(ctx, subject); !errors.Is(err, store.ErrDamaged) {
				t.Fatalf("the next opening: %v", err)
			}
			if _, err := s.Repair(ctx, subject, false); err != nil {
				t.Fatal(err)
			}
			w = must[store.Writer](t)(s.Open(ctx, subject))
			mustAppend(t, w, talk(t, w.Opened().Pos.Next, 1))
			keepFold(t, s, w)
			w.Close()
			if behind(t, s, subject) == 0 {
				t.Error("a repaired session is not opened behind its new checkpoint")
			}
		})
	}
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whatever is in the cache, nothing that is read is another.
func TestBadCache(t *testing.T) {
	s := smallSegments(t, t.TempDir(), nil)
	foldedLives(t, s, subject, 4)
	dir := s.cacheDir(subject)
	all := must[[]foldFile](t)(s.foldsIn(subject))
	good := map[string][]byte{}
	for _, c := range all {
		good[c.path] = must[[]byte](t)(os.ReadFile(c.path))
	}
	newest := all[0].path
	other := store.Pos{Next: all[0].pos.Next, Link: all[1].pos.Link}
	for name, do := range map[string]func(){
		"empty":        func() { write(t, newest, nil) },
		"cut":          func() { write(t, newest, good[newest][:len(good[newest])/2]) },
		"a directory":  func() { os.Remove(newest); os.Mkdir(newest, 0o700) },
		"a link":       func() { os.Remove(newest); os.Symlink("/dev/zero", newest) },
		"another link": func() { os.Rename(newest, filepath.Join(dir, foldName(other, ""))) },
		"beyond the end": func() {
			os.Rename(newest, filepath.Join(dir, foldName(store.Pos{Next: 4000, Link: other.Link}, "")))
		},
		"that of another seq": func() { write(t, newest, good[all[1].path]) },
		"no directory":        func() { os.RemoveAll(dir); write(t, dir, []byte("x")) },
		"gone":                func() { os.RemoveAll(dir) },
		"half written":        func() { write(t, filepath.Join(dir, newFold+"1"), []byte("half")) },
	} {
		t.Run(name, func(t *testing.T) {
			do()
			behind(t, s, subject)
			if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
				os.Remove(dir)
			}
			w := must[store.Writer](t)(s.Open(t.Context(), subject))
			defer w.Close()
			mustAppend(t, w, talk(t, w.Opened().Pos.Next, 1))
			keepFold(t, s, w)
			if list, err := filepath.Glob(filepath.Join(dir, newFold+"*")); err != nil || len(list) > 0 {
				t.Errorf("left over: %v, %v", list, err)
			}
			for path, b := range good {
				os.RemoveAll(path)
				write(t, path, b)
			}
		})
	}
	for i := 0; i < len(good[newest]); i += 7 { // each bit is a matter of the sum (package session)
		b := bytes.Clone(good[newest])
		b[i] ^= 0x10
		write(t, newest, b)
		snap := must[*store.Snapshot](t)(s.ReadTail(t.Context(), subject))
		st := must[session.State](t)(store.FoldTo(snap, nil, all[0].pos.Next))
		if !bytes.Equal(must[[]byte](t)(st.MarshalBinary()), good[newest]) {
			t.Fatalf("with byte %d changed the fold is another", i)
		}
		snap.Close()
	}
}

// A stale copy that was put back has other events behind the common part: a checkpoint of those that are gone is none
// of what came instead.
func TestCheckpointOfWhatIsGone(t *testing.T) {
	root := t.TempDir()
	s := smallSegments(t, root, nil)
	foldedLives(t, s, subject, 2)
	old := t.TempDir()
	if err := os.CopyFS(filepath.Join(old, "copy"), os.DirFS(s.dir(subject))); err != nil {
		t.Fatal(err)
	}
	grow := func(turns int) {
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		evs := talk(t, w.Opened().Pos.Next, 20)
		for i := range evs {
			evs[i].Time += int64(turns)
		}
		mustAppend(t, w, evs)
		if turns == 0 {
			keepFold(t, s, w)
		} else {
			mustFlush(t, w)
		}
		w.Close()
	}
	grow(0)
	if at := behind(t, s, subject); at != 360 {
		t.Fatalf("checkpoint at %d", at)
	}
	if err := os.RemoveAll(s.dir(subject)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(s.dir(subject), os.DirFS(filepath.Join(old, "copy"))); err != nil {
		t.Fatal(err)
	}
	if at := behind(t, s, subject); at != 120 {
		t.Errorf("of the stale copy: checkpoint at %d", at)
	}
	grow(1)
	if at := behind(t, s, subject); at != 120 {
		t.Errorf("of what came instead: checkpoint at %d", at)
	}
}

// Only what is synced, and what this process holds, has a checkpoint; few are kept of a long log; where none can be
// written nothing else is wrong.
func TestPutCheckpoint(t *testing.T) {
	var refuse atomic.Bool
	s := openStore(t, t.TempDir(), vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
		if refuse.Load() && strings.Contains(c.Name, "cache") && c.Op != vfs.OpReadDir && c.Op != vfs.OpRead {
			return os.ErrPermission
		}
		return do()
	}))
	ctx := t.Context()
	w := must[store.Writer](t)(s.Create(ctx, testHeader(subject)))
	pos := mustAppend(t, w, talk(t, 0, 1))
	if err := s.PutCheckpoint(ctx, subject, store.Checkpoint{Pos: pos, Data: []byte("x")}); err != nil { // a first commit is synced
		t.Error(err)
	}
	pos = mustAppend(t, w, talk(t, 6, 1))
	if err := s.PutCheckpoint(ctx, subject, store.Checkpoint{Pos: pos, Data: []byte("x")}); err == nil {
		t.Error("a checkpoint of what is not synced")
	}
	for i := range 200 {
		mustAppend(t, w, talk(t, session.Seq(12+6*i), 1))
		pos = mustFlush(t, w)
		if err := s.PutCheckpoint(ctx, subject, store.Checkpoint{Pos: pos, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	all := must[[]foldFile](t)(s.foldsIn(subject))
	if len(all) > maxFolds || all[0].pos != pos {
		t.Errorf("%d are kept, the newest at %d of %d", len(all), all[0].pos.Next, pos.Next)
	}
	for back := session.Seq(12); back < 600; back *= 2 { // some way back there is one, not much further back
		i := slices.IndexFunc(all, func(c foldFile) bool { return c.pos.Next <= pos.Next-back })
		if i < 0 || pos.Next-all[i].pos.Next > 4*back {
			t.Errorf("no checkpoint is near %d events before the end: %v", back, all)
		}
	}
	refuse.Store(true)
	mustAppend(t, w, talk(t, pos.Next, 1))
	pos = mustFlush(t, w)
	if err := s.PutCheckpoint(ctx, subject, store.Checkpoint{Pos: pos, Data: []byte("x")}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("where nothing can be written: %v", err)
	}
	w.Close()
	if err := s.PutCheckpoint(ctx, subject, store.Checkpoint{Pos: pos, Data: []byte("x")}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("of a session that is not held: %v", err)
	}
}

// A repair puts marks in the place of events, and keeps the links behind them: a checkpoint from before is of another
// log, that of a fork too, also if nobody met the damage.
func TestRepairDropsCheckpoints(t *testing.T) {
	ctx := t.Context()
	s := smallSegments(t, t.TempDir(), nil)
	foldedLives(t, s, subject, 5)
	h := must[session.Header](t)(store.Fork(ctx, s, subject, store.ForkOptions{Child: "child-1", Now: 9}))
	w := must[store.Writer](t)(s.Open(ctx, h.ID))
	mustAppend(t, w, talk(t, w.Opened().Pos.Next, 1))
	keepFold(t, s, w)
	w.Close()
	names := must[[]segName](t)(s.segmentNames(s.dir(subject)))
	path := names[holding(names, 100)].in(s.dir(subject))
	text := must[[]byte](t)(os.ReadFile(path))
	text[bytes.Index(text, []byte(`"seq":100,`))+40] ^= 1
	write(t, path, text)
	if _, err := s.Repair(ctx, subject, true); err != nil {
		t.Fatal(err)
	}
	if all, _ := s.foldsIn(h.ID); len(all) == 0 {
		t.Error("a dry run removes checkpoints")
	}
	if _, err := s.Repair(ctx, subject, false); err != nil {
		t.Fatal(err)
	}
	for _, id := range []session.ID{subject, h.ID} {
		if at := behind(t, s, id); at != 0 {
			t.Errorf("%s is opened behind a checkpoint from before the repair, at %d", id, at)
		}
	}
}
