package filestore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

func TestSizes(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	for id, evs := range map[session.ID][]session.Event{
		"aaaa": {events(0, 1)[0], withBlob(1), withBlob(2)}, "bbbb": {events(0, 1)[0], withBlob(1)}, "cccc": events(0, 3),
	} {
		w := must[store.Writer](t)(s.Create(t.Context(), testHeader(id)))
		mustAppend(t, w, evs)
		mustFlush(t, w)
		w.Close()
	}
	if err := s.Trash(t.Context(), "bbbb"); err != nil {
		t.Fatal(err)
	}
	rows := must[[]store.Footprint](t)(s.Sizes(t.Context(), nil))
	byID := map[session.ID]store.Footprint{}
	for _, r := range rows {
		byID[r.ID] = r
		var own int64
		where := s.dir(r.ID)
		if r.Trashed {
			where = s.path("trash", string(r.ID))
		}
		for _, name := range []string{headerName, segmentName(0)} {
			own += must[os.FileInfo](t)(os.Stat(filepath.Join(where, name))).Size()
		}
		if r.Own != own || r.Unread != "" {
			t.Errorf("%s: %d bytes of its own, want %d; %s", r.ID, r.Own, own, r.Unread)
		}
	}
	a, b, c := byID["aaaa"], byID["bbbb"], byID["cccc"]
	size := func(q session.Seq) int64 { return int64(len(withBlob(q).Data) - len(`{"text":}`)) }
	if a.Alone != (store.Amount{N: 1, Bytes: size(2)}) || a.Shared != (store.Amount{N: 1, Bytes: size(1)}) {
		t.Errorf("%+v", a)
	}
	if !b.Trashed || b.Alone.N != 0 || b.Shared.N != 1 || c.Alone.N+c.Shared.N != 0 || len(rows) != 3 {
		t.Errorf("%+v", rows)
	}
}
