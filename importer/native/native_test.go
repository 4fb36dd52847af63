package native_test

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/export"
	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/importer/native"
	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func newStore(t testing.TB) *memstore.Store {
	t.Helper()
	st := memstore.New(memstore.Options{Now: func() time.Time { return time.UnixMilli(42) }, Program: "test"})
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func header(id session.ID) session.Header {
	return session.Header{Format: session.Format, ID: id, CreatedAt: 7, Kind: session.KindRoot, Cwd: "/w", Project: "/w"}
}

func event(seq int, text string) session.Event {
	data, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		panic(err)
	}
	return session.Event{Seq: session.Seq(seq), Time: int64(1000 + seq), Type: "x/y", Ignorable: true, Data: jsontext.Value(data)}
}

func events(texts ...string) []session.Event {
	var out []session.Event
	for i, s := range texts {
		out = append(out, event(i, s))
	}
	return out
}

// put writes a session in batches of two.
func put(t testing.TB, st store.Store, h session.Header, evs []session.Event) {
	t.Helper()
	if len(evs) == 0 {
		if err := st.(store.Taker).Take(t.Context(), h, session.Events(nil).Range(0, 0)); err != nil {
			t.Fatal(err)
		}
		return
	}
	w, err := st.Create(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for part := range slices.Chunk(evs, 2) {
		if _, err := w.Append(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
}

// fork forks a session behind seq and lets the child go on.
func fork(t testing.TB, st store.Store, parent, child session.ID, at session.Seq, more ...string) {
	t.Helper()
	if _, err := store.Fork(t.Context(), st, parent, store.ForkOptions{At: &at, Child: child, Now: 9}); err != nil {
		t.Fatal(err)
	}
	w, err := st.Open(t.Context(), child)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var evs []session.Event
	next := int(w.Opened().Prefix.Len())
	for i, s := range more {
		evs = append(evs, event(next+i, s))
	}
	if _, err := w.Append(t.Context(), evs); err != nil {
		t.Fatal(err)
	}
}

// exported is a session as a file.
func exported(t testing.TB, st *memstore.Store, id session.ID, r export.Redactor) string {
	t.Helper()
	snap, err := st.Read(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	var out bytes.Buffer
	if _, err := export.JSONL(context.Background(), &out, export.Source{Snap: snap, Blobs: st, Redact: r}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func records(file string) string {
	_, rest, _ := strings.Cut(file, "\n")
	return rest
}

// firstLines is the file up to and with its nth record; blobs before it stay.
func firstLines(file string, n int) string {
	end := 0
	for l := range strings.Lines(file) {
		if strings.HasPrefix(l, `{"seq":`) {
			if n == 0 {
				break
			}
			n--
		}
		end += len(l)
	}
	return file[:end]
}

func take(t testing.TB, st store.Store, file string) (importer.Result, error) {
	t.Helper()
	return takeAs(t, st, file, native.Format{})
}

func takeAs(t testing.TB, st store.Store, file string, f native.Format) (importer.Result, error) {
	t.Helper()
	reg, err := session.NewRegistry(importer.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	im, err := importer.New(importer.Options{Store: st, Registry: reg, Formats: importer.Formats{f}, Now: func() int64 { return 42 }})
	if err != nil {
		t.Fatal(err)
	}
	return im.Import(t.Context(), nil, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(file)), nil })
}

func mustTake(t testing.TB, st store.Store, file string) importer.Result {
	t.Helper()
	r, err := take(t, st, file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func headerOf(t testing.TB, st store.Store, id session.ID) session.Header {
	t.Helper()
	s, err := st.Stat(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s.Header
}

// dropped reports whether a report says what.
func dropped(r importer.Result, what string) (n int64) {
	for _, d := range r.Fidelity.Dropped {
		if strings.Contains(d.What, what) {
			n += d.Count
		}
	}
	return n
}

func sessions(t testing.TB, st *memstore.Store) int {
	t.Helper()
	page, err := st.List(t.Context(), store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Rows)
}

// TestRoundTrip: what moves keeps its id and its header, and an export of it has the same bytes; a second import
// writes nothing.
func TestRoundTrip(t *testing.T) {
	big := strings.Repeat("3 MB of text \u00fc \"quoted\" \\ \n", 3<<20/26)
	for name, tt := range map[string]struct {
		make func(*testing.T, *memstore.Store)
		blob bool
		n    session.Seq
	}{
		"empty": {func(t *testing.T, st *memstore.Store) { put(t, st, header("sess"), nil) }, false, 0},
		"plain": {func(t *testing.T, st *memstore.Store) {
			put(t, st, header("sess"), events("one", "two", "three", "\u2028<>&"))
		}, false, 4},
		"big":      {func(t *testing.T, st *memstore.Store) { put(t, st, header("sess"), events("one", big, "three", big)) }, true, 4},
		"attached": {attached, true, 2},
		"extra":    {extra, false, 1},
		"mentioned": {func(t *testing.T, st *memstore.Store) {
			put(t, st, header("sess"), events(`{"$blob":"sha256-no"}`, "sha256-"))
		}, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			from := newStore(t)
			tt.make(t, from)
			file := exported(t, from, "sess", nil)
			if strings.Contains(file, "\n"+`{"blob":"`) != tt.blob {
				t.Errorf("a blob in the file: %v", !tt.blob)
			}
			if !(native.Format{}).Sniff([]byte(file)[:min(len(file), importer.SniffBytes)]) {
				t.Error("it is not recognised")
			}
			st := newStore(t)
			r := mustTake(t, st, file)
			if r.Tool != native.Name || r.ID != "sess" || r.Existing || r.Events != tt.n || r.Fidelity.Kept != int(tt.n) || len(r.Fidelity.Dropped) > 0 || r.Tail != 0 {
				t.Errorf("%+v", r)
			}
			if got := exported(t, st, "sess", nil); got != file {
				t.Errorf("the export of the import differs: %d bytes, not %d", len(got), len(file))
			}
			if r := mustTake(t, st, file); r.ID != "sess" || !r.Existing || sessions(t, st) != 1 {
				t.Errorf("again: %+v", r)
			}
			if r := mustTake(t, from, file); r.ID != "sess" || !r.Existing || sessions(t, from) != 1 {
				t.Errorf("where it came from: %+v", r)
			}
		})
	}
}

func attached(t *testing.T, st *memstore.Store) {
	name, err := st.PutBlob(t.Context(), []byte("\x89PNG\x00not text"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, st, header("sess"), events("kept as "+name, "again "+name))
}

func extra(t *testing.T, st *memstore.Store) {
	ev := event(0, "one")
	ev.Extra = []byte(`"later":{"a":[1,2]}`)
	h := header("sess")
	h.Extra = jsontext.Value(`{"later":"member"}`)
	put(t, st, h, []session.Event{ev})
}

// TestFork: with its parent at hand a fork points to it; without one, or with one that holds something else, it
// holds what it inherited itself, and says so. The records are the same.
func TestFork(t *testing.T) {
	from := newStore(t)
	long := strings.Repeat("y", 50000)
	put(t, from, header("parent"), events("one", long, "three", "not shared"))
	fork(t, from, "parent", "child", 2, "in the child", long)
	parent, child := exported(t, from, "parent", nil), exported(t, from, "child", nil)
	other := newStore(t)
	put(t, other, header("parent"), events("one", "another", "three"))
	short := newStore(t)
	put(t, short, header("parent"), events("one", long))
	for name, tt := range map[string]struct {
		st    *memstore.Store
		first string
		keeps bool
	}{
		"with its parent":           {newStore(t), parent, true},
		"without":                   {newStore(t), "", false},
		"parent of another content": {other, "", false},
		"parent that is too short":  {short, "", false},
		"parent that lacks its end": {newStore(t), firstLines(parent, 3), false}, // a copy has an id of its own
		"imported before":           {newStore(t), child, false},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.first != "" {
				mustTake(t, tt.st, tt.first)
			}
			r := mustTake(t, tt.st, child)
			if got := records(exported(t, tt.st, r.ID, nil)); got != records(child) {
				t.Errorf("the records differ: %.500s", got)
			}
			h := headerOf(t, tt.st, r.ID)
			if tt.keeps {
				if r.ID != "child" || h.Parent == nil || h.Parent.ID != "parent" || h.SeedLength != 3 || len(r.Fidelity.Dropped) > 0 {
					t.Errorf("%+v, header %+v", r, h)
				}
				if got := exported(t, tt.st, r.ID, nil); got != child {
					t.Error("the first line differs")
				}
				return
			}
			if i := h.Imported; r.ID == "child" || h.Parent != nil || h.Kind != session.KindImported || i.Source != "child" || i.Parent != "parent" || i.SeedLength != 3 {
				t.Errorf("%+v, header %+v %+v", r, h, i)
			}
			if tt.first != child && dropped(r, "pointer to its parent") != 1 {
				t.Errorf("it does not say so: %+v", r.Fidelity)
			}
			n := sessions(t, tt.st)
			if again := mustTake(t, tt.st, child); again.ID != r.ID || !again.Existing || sessions(t, tt.st) != n {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

// masked replaces a word, as a redactor does a credential.
type masked struct{ from, to string }

func (m masked) Text(s string) (string, int) {
	return strings.ReplaceAll(s, m.from, m.to), strings.Count(s, m.from)
}

func (m masked) JSON(v jsontext.Value) (jsontext.Value, int) {
	s, n := m.Text(string(v))
	return jsontext.Value(s), n
}

// TestRedacted: a copy from which credentials were taken is linked anew, has an id of its own, and says so; one in
// which there was none is the session.
func TestRedacted(t *testing.T) {
	from := newStore(t)
	put(t, from, header("sess"), events("a secret", strings.Repeat("secret ", 6000), "plain"))
	file := exported(t, from, "sess", masked{"secret", "[gone]"})
	for name, st := range map[string]*memstore.Store{"elsewhere": newStore(t), "where it came from": from} {
		r := mustTake(t, st, file)
		if h := headerOf(t, st, r.ID); r.ID == "sess" || h.Kind != session.KindImported || h.Imported.Source != "sess" || r.Events != 3 || r.Fidelity.Kept != 3 {
			t.Errorf("%s: %+v, header %+v", name, r, h)
		}
		if n := dropped(r, "linked anew"); n != 6001 {
			t.Errorf("%s: %d credentials are told, %+v", name, n, r.Fidelity)
		}
		got := exported(t, st, r.ID, nil)
		if strings.Contains(got, "secret") || records(got) != records(file) {
			t.Errorf("%s: %.300s", name, got)
		}
		if again := mustTake(t, st, file); again.ID != r.ID || !again.Existing {
			t.Errorf("%s, again: %+v", name, again)
		}
	}
	st := newStore(t)
	if r := mustTake(t, st, exported(t, from, "sess", masked{"nothing", ""})); r.ID != "sess" || len(r.Fidelity.Dropped) > 0 {
		t.Errorf("nothing was taken out: %+v", r)
	}
}

// TestGrown: exports of a session from two times. The longer one after the shorter makes a session of its own that
// names the first; the shorter one after the longer is here already.
func TestGrown(t *testing.T) {
	from := newStore(t)
	put(t, from, header("sess"), events("one", "two"))
	short := exported(t, from, "sess", nil)
	w, err := from.Open(t.Context(), "sess")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), []session.Event{event(2, "three"), event(3, "four")}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	long := exported(t, from, "sess", nil)

	st := newStore(t)
	if r := mustTake(t, st, long); r.ID != "sess" || r.Events != 4 {
		t.Errorf("the longer: %+v", r)
	}
	if r := mustTake(t, st, short); r.ID != "sess" || !r.Existing || sessions(t, st) != 1 || exported(t, st, "sess", nil) != long {
		t.Errorf("the shorter after it: %+v", r)
	}

	st = newStore(t)
	if r := mustTake(t, st, short); r.ID != "sess" || r.Events != 2 {
		t.Errorf("the shorter: %+v", r)
	}
	var ids []session.ID
	for i := range 2 {
		r := mustTake(t, st, long)
		if r.ID == "sess" || r.Older != "sess" || r.Existing != (i == 1) || headerOf(t, st, r.ID).Imported.Older != "sess" {
			t.Errorf("the longer after it, time %d: %+v", i+1, r)
		}
		ids = append(ids, r.ID)
	}
	if ids[0] != ids[1] || sessions(t, st) != 2 || exported(t, st, "sess", nil) != short || records(exported(t, st, ids[0], nil)) != records(long) {
		t.Errorf("%v, %d sessions", ids, sessions(t, st))
	}

	// Of several earlier states the longest is named, whether it has the session's id or one of its own.
	for name, tt := range map[string]struct {
		files []string
		want  int // which of them
	}{
		"a shorter copy": {[]string{firstLines(long, 1), short}, 1},
		"a longer copy":  {[]string{short, firstLines(long, 3)}, 1},
	} {
		st := newStore(t)
		var ids []session.ID
		for _, file := range tt.files {
			ids = append(ids, mustTake(t, st, file).ID)
		}
		r := mustTake(t, st, long)
		if r.Older != ids[tt.want] || headerOf(t, st, r.ID).Imported.Older != ids[tt.want] {
			t.Errorf("%s: %+v, want after %v", name, r, ids)
		}
	}
}

// TestTaken: a session whose id another one has gets one of its own, and the other stays as it is.
func TestTaken(t *testing.T) {
	from := newStore(t)
	put(t, from, header("sess"), events("one", "two", "three"))
	file := exported(t, from, "sess", nil)
	for name, have := range map[string][]session.Event{
		"same length": events("one", "two!", "three"), "longer": events("1", "two", "three", "four"), "shorter": events("one", "other"), "empty": nil,
	} {
		t.Run(name, func(t *testing.T) {
			st := newStore(t)
			put(t, st, header("sess"), have)
			before := exported(t, st, "sess", nil)
			r := mustTake(t, st, file)
			if h := headerOf(t, st, r.ID); r.ID == "sess" || r.Older != "" || r.Existing || h.Imported.Source != "sess" || h.CreatedAt != 7 || h.Cwd != "/w" {
				t.Errorf("%+v, header %+v", r, h)
			}
			if records(exported(t, st, r.ID, nil)) != records(file) || exported(t, st, "sess", nil) != before {
				t.Error("one of the two is not what it was")
			}
			if again := mustTake(t, st, file); again.ID != r.ID || !again.Existing || sessions(t, st) != 2 {
				t.Errorf("again: %+v", again)
			}
		})
	}
}
