package importer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/importer/dsh"
	"github.com/strandline-dev/strandline/importer/native"
	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func newStore(t *testing.T) store.Store {
	t.Helper()
	st := memstore.New(memstore.Options{Now: func() time.Time { return time.UnixMilli(42) }, Program: "test"})
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func newImporter(t *testing.T, st store.Store) *importer.Importer {
	t.Helper()
	reg, err := session.NewRegistry(importer.Kinds(), compact.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	im, err := importer.New(importer.Options{Store: st, Registry: reg, Formats: importer.Formats{native.Format{}, dsh.Format{}}, Now: func() int64 { return 42 }})
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func text(b []byte) importer.Source {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}

const head = `{"type":"session","version":0,"id":"there","createdAt":1700000000000,"cwd":"/w"}` + "\n"

func say(i int) string {
	return fmt.Sprintf(`{"type":"user/message","seq":%d,"time":%d,"data":{"id":"m%d","role":"user","content":[{"type":"text","text":"message %d"}],"source":{"kind":"user"}},"surfaceOp":"append"}`+"\n", i, 1700000000000+i, i, i)
}

func says(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(say(i))
	}
	return b.String()
}

func mustImport(t *testing.T, im *importer.Importer, b []byte) importer.Result {
	t.Helper()
	r, err := im.Import(t.Context(), nil, text(b))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSameBytes: the same file is the same session, also for another importer, and in another store it has the
// same id; a file that has grown is a new session that names the old one; one that was rewritten names none.
func TestSameBytes(t *testing.T) {
	st := newStore(t)
	im := newImporter(t, st)
	short := []byte(head + says(3) + `{"type":"us`)
	a := mustImport(t, im, short)
	if a.Existing || a.Events != 3 || a.Tail != 11 || a.Tool != dsh.Name {
		t.Errorf("%+v", a)
	}
	h := stat(t, st, a.ID).Header
	if h.Kind != session.KindImported || h.Imported.Source != "there" || h.Imported.Events != 3 || h.CreatedAt != 1700000000000 || string(h.Imported.Tail.Raw) != `{"type":"us` {
		t.Errorf("header %+v %+v", h, h.Imported)
	}
	for _, again := range []*importer.Importer{im, newImporter(t, st)} {
		if r := mustImport(t, again, short); r.ID != a.ID || !r.Existing || r.Events != 3 {
			t.Errorf("again: %+v", r)
		}
	}
	if r := mustImport(t, newImporter(t, newStore(t)), short); r.ID != a.ID || r.Existing {
		t.Errorf("elsewhere: %+v", r)
	}
	grown := mustImport(t, im, []byte(head+says(5)))
	if grown.ID == a.ID || grown.Older != a.ID || grown.Existing || stat(t, st, grown.ID).Header.Imported.Older != a.ID {
		t.Errorf("grown: %+v", grown)
	}
	if r := mustImport(t, newImporter(t, st), []byte(head+says(7))); r.Older != grown.ID {
		t.Errorf("grown again: %+v, want after %s", r, grown.ID)
	}
	if r := mustImport(t, im, []byte(head+strings.Replace(says(9), "message 1", "another 1", 1))); r.Older != "" {
		t.Errorf("rewritten: %+v", r)
	}
}

func stat(t *testing.T, st store.Store, id session.ID) store.Stat {
	t.Helper()
	s, err := st.Stat(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCompletes: an import of a large file that was killed between two batches is completed by the next one.
func TestCompletes(t *testing.T) {
	file := []byte(head + says(10))
	whole := newStore(t)
	r := mustImport(t, newImporter(t, whole), file)
	snap, err := whole.Read(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	var events []session.Event
	for ev, err := range snap.Prefix.Range(0, 4) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
	}
	st := newStore(t)
	if err := st.(store.Taker).Take(t.Context(), snap.Header, session.Events(events).Range(0, session.Seq(len(events)))); err != nil {
		t.Fatal(err)
	}
	got := mustImport(t, newImporter(t, st), file)
	if got.ID != r.ID || got.Existing || stat(t, st, r.ID).Pos != snap.Pos {
		t.Errorf("%+v at %+v, want %+v", got, stat(t, st, r.ID).Pos, snap.Pos)
	}
	// Somebody who went on with the half one meanwhile is not overrun.
	st = newStore(t)
	events[3].Data = []byte(`{"id":"x","role":"user","content":[]}`)
	if err := st.(store.Taker).Take(t.Context(), snap.Header, session.Events(events).Range(0, session.Seq(len(events)))); err != nil {
		t.Fatal(err)
	}
	if _, err := newImporter(t, st).Import(t.Context(), nil, text(file)); err == nil || stat(t, st, r.ID).Pos.Next != 4 {
		t.Errorf("error %v, %d events", err, stat(t, st, r.ID).Pos.Next)
	}
}

// TestLarge: a log of several batches is stored whole.
func TestLarge(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	pad := strings.Repeat("x", 1<<20)
	for i := range 40 {
		b.WriteString(strings.Replace(say(i), `"text":"`, `"text":"`+pad, 1))
	}
	st := newStore(t)
	r := mustImport(t, newImporter(t, st), []byte(b.String()))
	if s := stat(t, st, r.ID); r.Fidelity.Kept != 40 || s.Pos.Next != 40 || s.Holder != nil {
		t.Errorf("%+v", s)
	}
}

// TestChanged: a file that is written to while it is read is not stored as something that never was.
func TestChanged(t *testing.T) {
	st := newStore(t)
	n := 3
	_, err := newImporter(t, st).Import(t.Context(), nil, func() (io.ReadCloser, error) {
		n++
		return io.NopCloser(strings.NewReader(head + says(n))), nil
	})
	if err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("error %v", err)
	}
	if page, _ := st.(store.Lister).List(t.Context(), store.Query{}); len(page.Rows) > 0 {
		t.Errorf("stored %v", page.Rows)
	}
}

func TestUnknownFormat(t *testing.T) {
	var unknown *importer.UnknownFormatError
	for _, in := range []string{"", "hello\n", "\x00\x00\x00\x00", "(\xb5/\xfd", "{}\n"} {
		if _, err := newImporter(t, newStore(t)).Import(t.Context(), nil, text([]byte(in))); !errors.As(err, &unknown) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func frames(t *testing.T, parts ...string) [][]byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true))
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, p := range parts {
		out = append(out, enc.EncodeAll([]byte(p), nil))
	}
	return out
}

// TestZstd: frames are independent: a torn last one and a bad one in the middle do not harm the others.
func TestZstd(t *testing.T) {
	f := frames(t, head, say(0), say(1)+say(2), say(3))
	all := bytes.Join(f, nil)
	big := strings.Repeat(strings.Replace(say(0), `"text":"`, `"text":"`+strings.Repeat("x", 2000), 1), 4000) // more than a frame that is held
	for name, tt := range map[string]struct {
		in      []byte
		want    int64
		dropped string
	}{
		"whole":     {all, 4, ""},
		"torn":      {all[:len(all)-5], 3, "bytes of a last zstd frame that is not whole"},
		"garbage":   {append(bytes.Clone(all), "garbage behind it"...), 4, "bytes of a last zstd frame that is not whole"},
		"bad":       {bytes.Join([][]byte{f[0], f[1], flip(f[2]), f[3]}, nil), 4, "events that are missing in the source"},
		"skippable": {bytes.Join([][]byte{f[0], {0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3}, f[1]}, nil), 1, ""},
		"big":       {bytes.Join(frames(t, head, big), nil), 4000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := importer.NewPlain(bytes.NewReader(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			plain, err := io.ReadAll(p)
			if err != nil || !bytes.HasPrefix(plain, []byte(head)) {
				t.Fatalf("%d bytes, %v", len(plain), err)
			}
			r := mustImport(t, newImporter(t, newStore(t)), tt.in)
			if int64(r.Events) != tt.want || tt.dropped != "" && r.Fidelity.Dropped[0].What != tt.dropped {
				t.Errorf("%d events, dropped %v", r.Events, r.Fidelity.Dropped)
			}
		})
	}
	for cut := range all { // every cut gives whole frames and nothing else
		p, err := importer.NewPlain(bytes.NewReader(all[:cut]))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(p)
		p.Close()
		if err != nil || cut > 4 && !strings.HasPrefix(head+says(4), string(plain)) || len(plain) > 0 && cut > 4 && plain[len(plain)-1] != '\n' {
			t.Fatalf("cut at %d: %q, %v", cut, plain, err)
		}
	}
}

func flip(b []byte) []byte {
	b = bytes.Clone(b)
	b[len(b)-1] ^= 1
	return b
}

// TestBomb: a frame that says it is huge costs no memory and no session.
func TestBomb(t *testing.T) {
	var buf bytes.Buffer
	enc, err := zstd.NewWriter(&buf)
	if err != nil {
		t.Fatal(err)
	}
	zero := make([]byte, 1<<20)
	for range 300 {
		if _, err := enc.Write(zero); err != nil {
			t.Fatal(err)
		}
	}
	enc.Close()
	in := append(frames(t, head)[0], buf.Bytes()...)
	if r, err := newImporter(t, newStore(t)).Import(t.Context(), nil, text(in)); err != nil || r.Events != 0 {
		t.Errorf("%+v %v", r, err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough of it")
	cancel(why)
	if _, err := newImporter(t, newStore(t)).Import(ctx, nil, text([]byte(head+says(2)))); !errors.Is(err, why) {
		t.Error(err)
	}
}

func FuzzPlain(f *testing.F) {
	f.Add([]byte(head))
	f.Add([]byte{0x28, 0xB5, 0x2F, 0xFD, 0x04, 0x00, 0x19, 0x00, 0x00, 'a', 'b', 'c', 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := importer.NewPlain(bytes.NewReader(b))
		if err != nil {
			return
		}
		defer p.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(p, 1<<20))
	})
}
