package native_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/importer/native"
	"github.com/strandline-dev/strandline/session"
)

// FuzzRead: an error names the line, and what cannot be read is not imported. What is read has contiguous seqs, is in
// the form of a log, and is exported again as the same records.
func FuzzRead(f *testing.F) {
	st := newStore(f)
	put(f, st, header("parent"), events("one", strings.Repeat("z", 34000), "three"))
	fork(f, st, "parent", "child", 1, "in the child")
	for _, id := range []session.ID{"parent", "child"} {
		file := exported(f, st, id, nil)
		f.Add([]byte(file))
		f.Add([]byte(file[:len(file)-20]))
		f.Add([]byte(records(file)))
		f.Add([]byte(exported(f, st, id, masked{"e", "[gone]"})))
	}
	small := newStore(f)
	put(f, small, header("sess"), events("one", "two"))
	file := exported(f, small, "sess", nil)
	f.Add([]byte(file))
	f.Add([]byte(strings.ReplaceAll(file, "\n", "\n{\"later\":1}\n")))
	f.Add([]byte(`{"strandline":2,"export":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		st := newStore(t)
		var got []session.Event
		l, err := native.Format{}.Read(t.Context(), bytes.NewReader(b), st, func(ev session.Event) error {
			got = append(got, ev)
			return nil
		})
		if err != nil {
			var v *importer.VersionError
			if !errors.Is(err, importer.ErrNotThis) && !errors.As(err, &v) && !strings.HasPrefix(err.Error(), "line ") {
				t.Fatalf("the error does not say where: %v", err)
			}
			if _, err := take(t, newStore(t), string(b)); err == nil {
				t.Fatal("it cannot be read, but was imported")
			}
			return
		}
		if int(l.Events) != len(got) || l.Fidelity.Kept != len(got) {
			t.Fatalf("%d events were handed over; told are %+v", len(got), l)
		}
		for i, ev := range got {
			if data, err := session.CheckData(ev.Data); ev.Seq != session.Seq(i) || err != nil || !bytes.Equal(data, ev.Data) {
				t.Fatalf("event %d: %+v %v", i, ev, err)
			}
		}
		to := newStore(t)
		r, err := take(t, to, string(b))
		if err != nil {
			return // what the store does not take
		}
		again := exported(t, to, r.ID, nil)
		var want, have []string
		for l := range strings.Lines(records(string(b))) {
			if strings.HasPrefix(l, `{"seq":`) {
				want = append(want, strings.TrimSuffix(l, "\n"))
			}
		}
		for l := range strings.Lines(records(again)) {
			if strings.HasPrefix(l, `{"seq":`) {
				have = append(have, strings.TrimSuffix(l, "\n"))
			}
		}
		if len(have) != len(got) || len(have) > len(want) {
			t.Fatalf("%d records are stored of %d that were read", len(have), len(got))
		}
		for i, ev := range got {
			if have[i] != want[i] {
				t.Fatalf("record %d (%s) is stored as\n%s, was\n%s", i, ev.Type, have[i], want[i])
			}
		}
	})
}
