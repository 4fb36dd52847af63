package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Old records that stand once more behind the end of a segment do not count, and nobody who looks for a record in the
// middle of the file is led astray by them.
func TestSeekPastRepeatedLines(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	var all []session.Event
	for q := range session.Seq(1001) {
		all = append(all, session.Event{Seq: q, Time: int64(q), Type: "test/event", Ignorable: true,
			Data: jsontext.Value(fmt.Sprintf(`{"n":%d,"text":%q}`, q, strings.Repeat("word ", 150)))})
	}
	w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
	mustAppend(t, w, all[:1000])
	mustFlush(t, w)
	w.Close()
	w = must[store.Writer](t)(s.Open(t.Context(), subject))
	mustAppend(t, w, all[1000:])
	mustFlush(t, w)
	w.Close()
	path := filepath.Join(s.dir(subject), segmentName(0))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, records, _ := strings.Cut(string(b), "\n")
	half := records[:strings.Index(records, `{"seq":900,`)]
	if err := os.WriteFile(path, append(b, half...), 0o600); err != nil {
		t.Fatal(err)
	}
	got, snap := readEvents(t, s, subject)
	wantEvents(t, got, all)
	peek := must[*store.Snapshot](t)(s.Peek(t.Context(), subject))
	if len(snap.Damage) > 0 || peek == nil {
		t.Fatalf("damage %v, peeked %v", snap.Damage, peek)
	}
	for _, q := range []session.Seq{999, 950, 900, 899, 500, 0, 1000} {
		if ev, err := peek.Prefix.At(q); err != nil || !same(ev, all[q]) {
			t.Errorf("peek at %d: %.60v %v", q, ev, err)
		}
		if _, err := s.LinkAt(t.Context(), subject, q); err != nil {
			t.Errorf("the link at %d: %v", q, err)
		}
	}
}
