package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// While a session of a newer format, or with a segment of one, is in the store nobody here knows which blobs it needs: purge
// removes none.
func TestPurgeBesideNewer(t *testing.T) {
	for file, text := range map[string]string{
		headerName:     `{"format":2,"id":"later","blobs":"packed away"}`,
		segmentName(0): `{"strandline":2,"session":"later","blobs":"packed away"}`,
	} {
		s := openStore(t, t.TempDir(), nil)
		long := `"` + strings.Repeat("a long text ", 4000) + `"`
		w := must[store.Writer](t)(s.Create(t.Context(), testHeader(subject)))
		mustAppend(t, w, []session.Event{{Type: "test/event", Ignorable: true, Data: jsontext.Value(`{"t":` + long + `}`)}})
		mustFlush(t, w)
		w.Close()
		newStored(t, s, "later", 3)
		if err := os.WriteFile(filepath.Join(s.dir("later"), file), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Trash(t.Context(), subject); err != nil {
			t.Fatal(err)
		}
		blob := s.blobPath(record.BlobName([]byte(long)))
		p := s.Purge(t.Context(), []session.ID{subject})[0]
		if _, err := os.Stat(blob); p.Err != nil || !errors.Is(p.Unsure, store.ErrUnsupported) || err != nil {
			t.Errorf("purge beside a %s of a newer format: %+v; its blob: %v", file, p, err)
		}
	}
}
