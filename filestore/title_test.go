package filestore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// A title is found at the end of a log, as far back as Stat looks, across segments; a person's stays whatever came
// behind it; a text that only looks like one is none.
func TestTitleFarBack(t *testing.T) {
	titled := func(seq session.Seq, text, source string) session.Event {
		return session.Event{Seq: seq, Time: 1, Type: session.TypeTitle, Data: jsontext.Value(fmt.Sprintf(`{"title":%q,"source":%q}`, text, source))}
	}
	for _, tt := range []struct {
		name    string
		titles  []session.Event
		records int // of about 1000 bytes, with a message at the end
		want    string
	}{
		{"person's, near", []session.Event{titled(2, "mine", "user")}, 30, "mine"},
		{"person's, far, then another", []session.Event{titled(2, "mine", "user"), titled(20, "made up", "provider")}, 100, "mine"},
		{"two of a person", []session.Event{titled(2, "first", "user"), titled(9, "second", "user")}, 90, "second"},
		{"not a person's, all seen", []session.Event{titled(2, "one", "fallback"), titled(9, "two", "provider")}, 60, "two"},
		{"not a person's, not all seen", []session.Event{titled(2, "one", "fallback")}, 400, ""},
		{"too far back", []session.Event{titled(2, "mine", "user")}, 400, ""},
		{"none", nil, 50, ""},
	} {
		for _, roll := range []int64{3000, 40_000, 1 << 20} {
			s := openStore(t, t.TempDir(), nil)
			s.opt.SegmentBytes = roll
			w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
			for seq := range session.Seq(tt.records) {
				ev := events(seq, 1)[0]
				ev.Data = jsontext.Value(fmt.Sprintf(`{"type":%q,"text":%q}`, session.TypeTitle, strings.Repeat("t", 900)))
				if seq == session.Seq(tt.records)-1 {
					ev = session.Event{Seq: seq, Time: 7, Type: session.TypeUserMessage, Op: session.Append(),
						Data: jsontext.Value(`{"id":"u","role":"user","content":[],"source":{"kind":"user"}}`)}
				}
				for _, title := range tt.titles {
					if title.Seq == seq {
						ev = title
					}
				}
				mustAppend(t, w, []session.Event{ev})
				mustFlush(t, w)
			}
			w.Close()
			if st := must[store.Stat](t)(s.Stat(t.Context(), subject)); st.Title != tt.want || st.LastActivity != 7 || st.State != store.StateOK {
				t.Errorf("%s, segments of %d: %+v, want title %q", tt.name, roll, st, tt.want)
			}
		}
	}
}
