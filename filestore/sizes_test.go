package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// sized makes an event whose record has n bytes, behind link; its strings are too short for blobs.
func sized(t *testing.T, seq session.Seq, n int, mark session.Seq) session.Event {
	t.Helper()
	ev := events(seq, 1)[0]
	fill := func(k int) int {
		var b strings.Builder
		b.WriteString(`{"a":[`)
		for k > 30000 {
			b.WriteString(`"` + strings.Repeat("y", 30000) + `",`)
			k -= 30003
		}
		fmt.Fprintf(&b, `"%s"]}`, strings.Repeat("z", max(k, 0)))
		ev.Data = jsontext.Value(b.String())
		line, _ := record.Append(nil, ev, session.Link{}, mark)
		return len(line)
	}
	k := n - fill(0)
	for range 4 {
		if got := fill(k); got != n {
			k += n - got
		} else {
			return ev
		}
	}
	t.Fatalf("no record of %d bytes", n)
	return ev
}

// The limits, exactly and one beyond: records of 1 MiB, segments of exactly the size at which they roll.
func TestExactSizes(t *testing.T) {
	t.Run("record", func(t *testing.T) {
		s := openStore(t, t.TempDir(), nil)
		w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
		full := sized(t, 0, record.MaxRecord, session.None)
		mustAppend(t, w, []session.Event{full})
		mustFlush(t, w)
		var tl *store.TooLargeError
		if _, err := w.Append(t.Context(), []session.Event{sized(t, 1, record.MaxRecord+1, 0)}); !errors.As(err, &tl) {
			t.Fatalf("one byte too many: %v", err)
		}
		mustAppend(t, w, []session.Event{sized(t, 1, record.MaxRecord, 0)})
		mustFlush(t, w)
		w.Close()
		got, snap := readEvents(t, s, subject)
		if len(got) != 2 || len(snap.Damage) > 0 {
			t.Fatalf("%d events, %v", len(got), snap.Damage)
		}
		if st := must[store.Stat](t)(s.Stat(t.Context(), subject)); st.State != store.StateOK || st.Pos != snap.Pos {
			t.Fatalf("stat %+v", st)
		}
		if _, err := s.LinkAt(t.Context(), subject, 1); err != nil {
			t.Fatal(err)
		}
	})
	for _, extra := range []int64{-1, 0, 1} {
		t.Run(fmt.Sprintf("segment%+d", extra), func(t *testing.T) {
			root := t.TempDir()
			s := openStore(t, root, nil)
			w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
			mustAppend(t, w, events(0, 3))
			mustFlush(t, w)
			info, err := os.Stat(filepath.Join(s.dir(subject), segmentName(0)))
			if err != nil {
				t.Fatal(err)
			}
			s.opt.SegmentBytes = info.Size() + 500 + extra
			mustAppend(t, w, []session.Event{sized(t, 3, 500, 2)})
			mustFlush(t, w)
			names := firsts(must[[]segName](t)(s.segmentNames(s.dir(subject))))
			if want := 1; (len(names) != want) != (extra < 0) {
				t.Fatalf("segments %v", names)
			}
			w.Close()
			if got, snap := readEvents(t, s, subject); len(got) != 4 || len(snap.Damage) > 0 {
				t.Fatalf("%d events, %v", len(got), snap.Damage)
			}
		})
	}
}

// A first batch that is larger than a segment may be is one segment: a batch is whole or not there. So is a
// batch that carries what a loss of power left, and one in the middle. Each value of it may be a blob.
func TestBatchesBeyondTheRoll(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	s.opt.SegmentBytes = 2000
	big := func(first session.Seq, n int) []session.Event {
		evs := events(first, n)
		for i := range evs {
			if i%10 == 0 {
				evs[i].Data = jsontext.Value(fmt.Sprintf(`{"text":"%d %s"}`, evs[i].Seq, strings.Repeat("blob ", 7000)))
			}
		}
		return evs
	}
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	want := big(0, 1000)
	mustAppend(t, w, want)
	mustFlush(t, w)
	want = append(want, big(1000, 200)...)
	mustAppend(t, w, want[1000:])
	mustFlush(t, w)
	w.Close()
	for range 2 {
		w = must[store.Writer](t)(s.Open(t.Context(), subject))
		evs := big(session.Seq(len(want)), 100)
		want = append(want, evs...)
		mustAppend(t, w, evs)
		mustFlush(t, w)
		w.Close()
	}
	names := firsts(must[[]segName](t)(s.segmentNames(s.dir(subject))))
	if fmt.Sprint(names) != "[0 1000 1200 1300]" {
		t.Fatalf("segments %v", names)
	}
	got, snap := readEvents(t, s, subject)
	if len(got) != len(want) || len(snap.Damage) > 0 {
		t.Fatalf("%d of %d events, %v", len(got), len(want), snap.Damage)
	}
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("event %d differs", i)
		}
	}
	if v := must[*store.Snapshot](t)(s.Verify(t.Context(), subject)); len(v.Damage) > 0 {
		t.Fatal(v.Damage)
	}
}
