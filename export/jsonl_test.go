package export_test

import (
	"bytes"
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/strandline-dev/strandline/export"
	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func newStore() *memstore.Store {
	return memstore.New(memstore.Options{Now: func() time.Time { return time.Unix(0, 0) }, Program: "test"})
}

func header(id session.ID) session.Header {
	return session.Header{Format: session.Format, ID: id, CreatedAt: 7, Kind: session.KindRoot, Cwd: "/w"}
}

// put stores events in batches of two, so that marks stand in the records.
func put(t *testing.T, st store.Store, h session.Header, events []session.Event) {
	t.Helper()
	ctx := context.Background()
	w, err := st.Create(ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for len(events) > 0 {
		n := min(2, len(events))
		if _, err := w.Append(ctx, events[:n]); err != nil {
			t.Fatal(err)
		}
		events = events[n:]
	}
}

func event(seq int, data string) session.Event {
	return session.Event{Seq: session.Seq(seq), Time: int64(1000 + seq), Type: "x/y", Ignorable: true, Data: jsontext.Value(data)}
}

func text(s string) string {
	b, err := json.Marshal(map[string]string{"text": s})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func read(t *testing.T, st store.Store, id session.ID) *store.Snapshot {
	t.Helper()
	snap, err := st.Read(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { snap.Close() })
	return snap
}

func jsonl(t *testing.T, src export.Source) (string, export.Report) {
	t.Helper()
	var out bytes.Buffer
	rep, err := export.JSONL(context.Background(), &out, src)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), rep
}

// replay takes an export into a store, as an importer does, and checks every proof in it.
func replay(t *testing.T, st *memstore.Store, text string) record.Export {
	t.Helper()
	var head record.Export
	var events []session.Event
	var link session.Link
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		b := []byte(line)
		switch {
		case i == 0:
			var err error
			if head, err = record.ParseExport(b); err != nil {
				t.Fatal(err)
			}
		case record.IsBlob(b):
			name, content, err := record.ParseBlob(b)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := st.PutBlob(context.Background(), content); err != nil || got != name {
				t.Fatal(got, err)
			}
		default:
			raw, err := record.Parse(b)
			if err != nil {
				t.Fatalf("line %d: %v", i, err)
			}
			var ok bool
			if link, ok = raw.CheckLink(link); !ok || raw.Synced != session.None || raw.Valid() != nil {
				t.Fatalf("line %d does not follow: %s", i, line)
			}
			ev := raw.Event()
			ev.Data, err = record.Internalize(ev.Data, func(name string) ([]byte, error) { return st.GetBlob(context.Background(), name) })
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, ev)
		}
	}
	if int(head.Events) != len(events) {
		t.Fatalf("%d events, the first line says %d", len(events), head.Events)
	}
	put(t, st, head.Header, events)
	return head
}

func TestJSONLIsTheLog(t *testing.T) {
	st := newStore()
	long := strings.Repeat("a long text\n", 5000)
	att, err := st.PutBlob(context.Background(), []byte("\x89PNG\x00not text"))
	if err != nil {
		t.Fatal(err)
	}
	gone := record.BlobName([]byte("gone"))
	put(t, st, header("abcd"), []session.Event{
		event(0, `{"n":1e0,"s":"\u0041\/","$blob":"mine"}`),
		event(1, text(long)),
		event(2, text(long)),
		{Seq: 3, Time: -4, Type: session.TypeUserMessage, Op: session.Append(), Sources: session.Cite(0, 1),
			Data: jsontext.Value(`{"image":"` + att + `","note":"kept as ` + att + ` and ` + gone + `"}`), Extra: []byte(`"new":{"a":1}`)},
		event(4, text(long+"and one more")),
	})
	snap := read(t, st, "abcd")
	out, rep := jsonl(t, export.Source{Snap: snap, Blobs: st})
	if diff := cmp.Diff(export.Report{Events: 5, MissingBlobs: []string{gone}}, rep); diff != "" {
		t.Error(diff)
	}
	if n := strings.Count(out, "\n"); n != 1+5+3 {
		t.Errorf("%d lines:\n%.2000s", n, out)
	}

	other := newStore()
	head := replay(t, other, out)
	if diff := cmp.Diff(snap.Header, head.Header); diff != "" || head.Redacted != nil {
		t.Error(diff)
	}
	again := read(t, other, "abcd")
	if again.Pos != snap.Pos {
		t.Errorf("the log is another one: %v, not %v", again.Pos, snap.Pos)
	}
	out2, _ := jsonl(t, export.Source{Snap: again, Blobs: other})
	if diff := cmp.Diff(out, out2); diff != "" {
		t.Errorf("the export of the import differs: %s", diff)
	}
}

func TestJSONLOfAFork(t *testing.T) {
	st := newStore()
	put(t, st, header("parent"), []session.Event{
		event(0, text("one")), event(1, text(strings.Repeat("x", 40000))), event(2, text("three")), event(3, text("not shared")),
	})
	at := session.Seq(2)
	if _, err := store.Fork(context.Background(), st, "parent", store.ForkOptions{At: &at, Child: "child", Now: 9}); err != nil {
		t.Fatal(err)
	}
	snap := read(t, st, "child")
	out, _ := jsonl(t, export.Source{Snap: snap, Blobs: st})
	if strings.Contains(out, "not shared") || !strings.Contains(out, session.TypeInherited) {
		t.Errorf("%s", out)
	}
	head, err := record.ParseExport([]byte(out[:strings.Index(out, "\n")]))
	if err != nil {
		t.Fatal(err)
	}
	if h := head.Header; h.Parent == nil || h.Parent.ID != "parent" || h.SeedLength != 3 || h.Origin(1) != "parent" || h.Origin(3) != "child" {
		t.Errorf("lineage: %+v", h)
	}
	link := session.Link{}
	n := 0
	for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
		if record.IsBlob([]byte(line)) {
			continue
		}
		raw, err := record.Parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		var ok bool
		if link, ok = raw.CheckLink(link); !ok {
			t.Fatalf("%s does not follow", line)
		}
		n++
	}
	if link != snap.Pos.Link || n != 4 {
		t.Errorf("%d records end in %v, the log in %v", n, link, snap.Pos.Link)
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

func TestJSONLRedacted(t *testing.T) {
	st := newStore()
	kept, err := st.PutBlob(context.Background(), []byte("the secret of a tool"))
	if err != nil {
		t.Fatal(err)
	}
	h := header("abcd")
	h.Cwd = "/home/secret"
	put(t, st, h, []session.Event{
		event(0, text("a secret and a secret")),
		event(1, text(strings.Repeat("secret ", 10000))),
		{Seq: 2, Time: 1, Type: "x/y", Ignorable: true, Data: jsontext.Value(text("kept as " + kept + ", kept as " + kept)), Extra: []byte(`"e":"secret"`)},
	})
	out, rep := jsonl(t, export.Source{Snap: read(t, st, "abcd"), Blobs: st, Redact: masked{"secret", "[gone]"}})
	if rep.Redacted != 1+2+10000+1+1 || strings.Contains(out, "secret") || strings.Contains(out, kept) {
		t.Errorf("%d: %.3000s", rep.Redacted, out)
	}
	other := newStore()
	head := replay(t, other, out) // every line proves itself and the one before
	if head.Redacted == nil || *head.Redacted != rep.Redacted || head.Header.Cwd != "/home/[gone]" {
		t.Errorf("%+v", head)
	}
	if got, err := other.GetBlob(context.Background(), record.BlobName([]byte("the [gone] of a tool"))); err != nil {
		t.Error(string(got), err)
	}
	again, rep := jsonl(t, export.Source{Snap: read(t, other, "abcd"), Blobs: other, Redact: masked{"secret", "[gone]"}})
	if rep.Redacted != 0 {
		t.Errorf("%d credentials were left", rep.Redacted)
	}
	_, records, _ := strings.Cut(out, "\n")
	if _, got, _ := strings.Cut(again, "\n"); got != records {
		t.Error("a second redaction changes something")
	}
}

// stepwise is a log of n events that are made when they are asked for, and a writer that counts them: what
// was asked for and not written yet is what the export holds.
type stepwise struct {
	n, made, written, most int
	of                     func(seq int) session.Event
	mark                   string // stands once in what is written of an event
}

func (l *stepwise) Len() session.Seq { return session.Seq(l.n) }

func (l *stepwise) At(seq session.Seq) (session.Event, error) {
	return l.of(int(seq)), nil
}

func (l *stepwise) Range(from, to session.Seq) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) {
		for q := from; q < to; q++ {
			l.made++
			l.most = max(l.most, l.made-l.written)
			if ev, _ := l.At(q); !yield(ev, nil) {
				return
			}
		}
	}
}

func (l *stepwise) Write(p []byte) (int, error) {
	l.written += bytes.Count(p, []byte(l.mark))
	return len(p), nil
}

func TestJSONLHoldsOneEvent(t *testing.T) {
	l := &stepwise{n: 5000, mark: `{"seq":`, of: func(seq int) session.Event { return event(seq, text(strings.Repeat("y", 100))) }}
	rep, err := export.JSONL(context.Background(), l, export.Source{Snap: &store.Snapshot{Header: header("abcd"), Prefix: l}})
	if err != nil || rep.Events != 5000 || l.written != 5000 || l.most != 1 {
		t.Errorf("%+v %v: held %d events, wrote %d", rep, err, l.most, l.written)
	}
}

func TestJSONLStops(t *testing.T) {
	st := newStore()
	put(t, st, header("abcd"), []session.Event{event(0, `{}`)})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := export.JSONL(ctx, &bytes.Buffer{}, export.Source{Snap: read(t, st, "abcd")}); err == nil {
		t.Error("a cancelled export succeeded")
	}
	snap := *read(t, st, "abcd")
	snap.Damage = []store.Range{{Detail: "zeros"}}
	out, rep := jsonl(t, export.Source{Snap: &snap})
	if !strings.Contains(out, `"incomplete":"the session is damaged`) || rep.Incomplete == "" {
		t.Errorf("%s", out)
	}
}
