package filestore

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// checkHurt reads and opens the session after something happened to its bytes. Every event must be the
// one that was written, or a mark; the log must end in a named state. It returns the opened writer's
// snapshot, nil if it was refused.
func checkHurt(t *testing.T, s *Store, what string, n int) *store.Snapshot {
	t.Helper()
	want := events(0, n)
	snap, err := s.Read(t.Context(), subject)
	if err != nil {
		t.Fatalf("%s: read: %v", what, err)
	}
	got := collect(t, snap.Prefix)
	snap.Close()
	if d := difference(want[:len(got)], got); d != "" {
		t.Fatalf("%s: wrong events:\n%s", what, d)
	}
	st, err := s.Stat(t.Context(), subject)
	if err != nil {
		t.Fatalf("%s: stat: %v", what, err)
	}
	w, err := s.Open(t.Context(), subject)
	if len(snap.Damage) > 0 || snap.Unsupported != "" {
		if !errors.Is(err, store.ErrDamaged) && !errors.Is(err, store.ErrUnsupported) {
			t.Fatalf("%s: damage %v, but Open: %v", what, snap.Damage, err)
		}
		return nil
	}
	if err != nil {
		t.Fatalf("%s: open: %v", what, err)
	}
	defer w.Close()
	if st.Pos != snap.Pos {
		t.Fatalf("%s: stat %+v, read to %v", what, st, snap.Pos)
	}
	// The next life writes the marks, then goes on.
	op := w.Opened()
	batch := append(append([]session.Event(nil), op.Lost...), events(op.Pos.Next+session.Seq(len(op.Lost)), 2)...)
	mustAppend(t, w, batch)
	mustFlush(t, w)
	w.Close()
	after, snap2 := readEvents(t, s, subject)
	if len(snap2.Damage) > 0 || snap2.Lost != nil || len(after) != len(got)+len(batch) {
		t.Fatalf("%s: after the next life: %d events, damage %v, lost %v", what, len(after), snap2.Damage, snap2.Lost)
	}
	all := append(want, events(session.Seq(n), 50)...)
	for i, ev := range after {
		if ev.Type != session.TypeLost && !same(ev, all[i]) {
			t.Fatalf("%s: event %d is wrong: %v", what, i, ev)
		}
	}
	if v, err := s.Verify(t.Context(), subject); err != nil || len(v.Damage) > 0 {
		t.Fatalf("%s: verify after the next life: %v %v", what, err, v)
	}
	return op
}

// hurt makes a session of n events in three batches, of which only the first is known to be synced,
// and returns its store and the bytes of its one segment.
func hurt(t *testing.T, n int) (*Store, string, []byte) {
	t.Helper()
	s := openStore(t, t.TempDir(), nil)
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	all := events(0, n)
	mustAppend(t, w, all[:n-10])
	mustFlush(t, w)
	mustAppend(t, w, all[n-10:n-5])
	mustAppend(t, w, all[n-5:])
	w.Close()
	path := filepath.Join(s.dir(subject), segmentName(0))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return s, path, b
}

// reset puts the session back to one segment with the bytes b.
func reset(t *testing.T, path string, b []byte) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"+segSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		os.Remove(f)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTruncatedAnywhere(t *testing.T) {
	s, path, b := hurt(t, 20)
	lines := bytes.SplitAfter(b, []byte("\n"))
	from := len(b)
	for _, l := range lines[len(lines)-4:] {
		from -= len(l)
	}
	step := 3
	if *thorough {
		step = 1
	}
	for cut := from; cut < len(b); cut += step {
		reset(t, path, b[:cut])
		op := checkHurt(t, s, fmt.Sprintf("cut at %d of %d", cut, len(b)), 20)
		whole := bytes.Count(b[:cut], []byte("\n")) - 1
		if op == nil || int(op.Pos.Next) != whole || op.Lost != nil || (op.Torn == nil) != (b[cut-1] == '\n') {
			t.Fatalf("cut at %d: %+v, want %d events", cut, op, whole)
		}
	}
}

var thorough = flag.Bool("thorough", false, "hurt every byte")

func TestBitFlips(t *testing.T) {
	oneAtATime(t)
	s, path, b := hurt(t, 16)
	step := 5 // coprime to the bits: the kinds of place are the same in each record
	if *thorough {
		step = 1
	}
	kinds := map[string]int{}
	for i := len(b) - 1; i >= 0; i -= step {
		c := bytes.Clone(b)
		c[i] ^= 1 << (i * 5 % 8)
		reset(t, path, c)
		switch op := checkHurt(t, s, fmt.Sprintf("bit flip in byte %d", i), 16); {
		case op == nil:
			kinds["damaged"]++
		case op.Lost != nil:
			kinds["lost"]++
		case op.Torn != nil:
			kinds["torn"]++
		default:
			kinds["link only"]++
		}
	}
	for _, k := range []string{"damaged", "lost", "torn", "link only"} {
		if kinds[k] == 0 {
			t.Errorf("no flip was taken as %s: %v", k, kinds)
		}
	}
}

// What loss of power leaves above the mark becomes marks; the good records behind it are copied.
func TestLostWithThePower(t *testing.T) {
	s, path, b := hurt(t, 20) // seqs 10 to 19 may be lost
	lines := bytes.SplitAfter(b, []byte("\n"))
	at := len(b) - len(bytes.Join(lines[13:], nil)) // line 13 is seq 12
	c := bytes.Clone(b)
	clear(c[at+5 : at+len(lines[13])+20]) // zeros from inside 12 into 13
	reset(t, path, c)
	op := checkHurt(t, s, "zeros in 12 and 13", 20)
	if op == nil || op.Pos.Next != 12 || len(op.Lost) != 8 {
		t.Fatalf("opened: %+v", op)
	}
	for i, ev := range op.Lost {
		if (ev.Type == session.TypeLost) != (i < 2) {
			t.Fatalf("%d: %v", i, ev)
		}
	}
	if !strings.Contains(string(op.Lost[0].Data), fmt.Sprintf(`"offset":%d`, at)) {
		t.Fatalf("mark: %s", op.Lost[0].Data)
	}
	next, err := os.ReadFile(filepath.Join(filepath.Dir(path), segmentName(12)))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines[15:21] {
		if !bytes.Contains(next, l) {
			t.Fatalf("not copied byte for byte: %s", l)
		}
	}
	if now, _ := os.ReadFile(path); !bytes.Equal(now, c) {
		t.Fatal("the file of the dead life was changed")
	}
	// A writer that does not begin with the marks is refused.
	reset(t, path, c)
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	defer w.Close()
	if _, err := w.Append(t.Context(), events(12, 1)); err == nil {
		t.Fatal("the marks were left out")
	}
}

// P4 at the level of the store.
func TestDamageInTheMiddle(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	newStored(t, s, subject, 2000)
	path := filepath.Join(s.dir(subject), segmentName(0))
	b, _ := os.ReadFile(path)
	mid := len(b) / 2
	lf := mid + bytes.IndexByte(b[mid:], '\n')
	cases := []struct {
		name string
		b    []byte
		want store.State
	}{
		{"zeros", func() []byte { c := bytes.Clone(b); clear(c[mid : mid+4096]); return c }(), store.StateDamaged},
		{"joined", append(bytes.Clone(b[:lf]), b[lf+1:]...), store.StateDamaged},
		{"half", append(bytes.Clone(b[:lf-40]), b[lf+1:]...), store.StateDamaged},
		{"changed", func() []byte { c := bytes.Clone(b); c[lf-60] ^= 1; c[lf-61] ^= 1; c[lf-62] ^= 1; return c }(), store.StateDamaged},
		{"zeros behind the end", append(bytes.Clone(b), make([]byte, 1<<20)...), store.StateTorn},
		{"whole line gone", append(bytes.Clone(b[:lf+1]), b[lf+1+bytes.IndexByte(b[lf+1:], '\n')+1:]...), store.StateDamaged},
	}
	// One batch: nothing says that it is synced, but the next life does.
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, w, events(2000, 5))
	w.Close()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(path, tt.b, 0o600); err != nil {
				t.Fatal(err)
			}
			got, snap := readEvents(t, s, subject)
			wantEvents(t, got, events(0, len(got)))
			w, err := s.Open(t.Context(), subject)
			if tt.want == store.StateTorn { // a left tail of an ended segment: harmless
				if err != nil || len(got) != 2005 {
					t.Fatalf("%d events, open: %v", len(got), err)
				}
				w.Close()
				return
			}
			var de *store.DamagedError
			if !errors.As(err, &de) || de.Owner != subject || len(de.Ranges) == 0 || de.Ranges[0].File != path ||
				de.Ranges[0].First != snap.Pos.Next || de.Ranges[0].Offset < int64(mid)-200 || de.Ranges[0].Offset > int64(mid)+5000 {
				t.Fatalf("open: %#v", err)
			}
			h, err := forkHeader(t.Context(), s, "early", 3) // the good part can still be forked
			if err != nil {
				t.Fatal(err)
			}
			h.ID = session.ID("fork-" + strings.ReplaceAll(tt.name, " ", "-"))
			if err := s.CreateFork(t.Context(), h, events(4, 1)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// P5: one rotten apple.
func TestListKeepsBadOnes(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	for i := range 20 {
		newStored(t, s, session.ID(fmt.Sprintf("good-%02d", i)), 3)
	}
	bad := func(id string) string {
		dir := s.dir(session.ID(id))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	head, seg := headerName, segmentName(0)
	os.WriteFile(filepath.Join(bad("bad-empty-header"), head), nil, 0o600)
	os.Mkdir(filepath.Join(bad("bad-dir-header"), head), 0o700)
	os.WriteFile(filepath.Join(bad("bad-random"), head), []byte("\x00\xff\x17random\n"), 0o600)
	os.WriteFile(filepath.Join(bad("bad-future"), head), []byte(`{"format":9,"id":"bad-future"}`+"\n"), 0o600)
	bad("bad-nothing-in-it")
	os.WriteFile(s.dir("bad-file"), []byte("a file"), 0o600)
	for id, content := range map[string][]byte{"bad-seg-empty": nil, "bad-seg-random": []byte("\x01\x02\n\x03")} {
		w := must[store.Writer](t)(s.Create(t.Context(), testHeader(session.ID(id))))
		mustAppend(t, w, events(0, 1))
		w.Close()
		if err := os.WriteFile(filepath.Join(s.dir(session.ID(id)), seg), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader("bad-seg-dir")))
	mustAppend(t, w, events(0, 1))
	w.Close()
	os.Remove(filepath.Join(s.dir("bad-seg-dir"), seg))
	os.Mkdir(filepath.Join(s.dir("bad-seg-dir"), seg), 0o700)

	page := must[store.Page](t)(s.List(t.Context(), store.Query{}))
	n := 0
	for _, st := range page.Rows {
		isBad := strings.HasPrefix(string(st.ID), "bad-")
		if isBad != (st.State == store.StateDamaged || st.State == store.StateUnsupported) || isBad != (st.Reason != "") {
			t.Errorf("row %+v", st)
		}
		if isBad {
			n++
			if _, err := s.Open(t.Context(), st.ID); !errors.Is(err, store.ErrDamaged) && !errors.Is(err, store.ErrUnsupported) {
				t.Errorf("open %s: %v", st.ID, err)
			}
			if one, err := s.Stat(t.Context(), st.ID); err != nil || one.State != st.State {
				t.Errorf("stat %s: %+v %v", st.ID, one, err)
			}
			if snap, err := s.Read(t.Context(), st.ID); err != nil || len(snap.Damage) == 0 && snap.Unsupported == "" {
				t.Errorf("read %s: %+v %v", st.ID, snap, err)
			}
		}
	}
	if n != 9 || len(page.Rows) != 29 {
		t.Fatalf("%d bad rows of %d", n, len(page.Rows))
	}
	// Pages neither repeat nor skip.
	seen := map[session.ID]bool{}
	for q := (store.Query{Limit: 4}); ; {
		p := must[store.Page](t)(s.List(t.Context(), q))
		for _, st := range p.Rows {
			if seen[st.ID] {
				t.Fatalf("%s twice", st.ID)
			}
			seen[st.ID] = true
		}
		if q.Cursor = p.Next; q.Cursor == "" {
			break
		}
	}
	if len(seen) != 29 {
		t.Fatalf("%d rows in pages", len(seen))
	}
}
