package filestore

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Between the put of a blob and the record that names it nobody collects.
func TestPins(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	newStored(t, s, subject, 2)
	free := func() bool {
		t.Helper()
		f := must[vfs.File](t)(vfs.OS().OpenFile(s.path(lockName), vfs.ReadWrite))
		defer f.Close()
		return must[bool](t)(f.TryLock(true))
	}
	w := must[store.Writer](t)(s.Open(t.Context(), subject))
	a := must[string](t)(s.PutBlob(t.Context(), []byte("a")))
	b := must[string](t)(s.PutBlob(t.Context(), []byte("b")))
	evs := events(2, 3)
	for i, name := range []string{"nothing", a, b} {
		evs[i].Data = jsontext.Value(fmt.Sprintf(`{"text":"see %s"}`, name))
		if free() {
			t.Fatalf("before event %d", i)
		}
		mustAppend(t, w, evs[i:i+1])
	}
	if !free() {
		t.Fatal("every blob is named")
	}
	must[string](t)(s.PutBlob(t.Context(), []byte("c")))
	if free() {
		t.Fatal("a new one")
	}
	s.Close()
	if !free() {
		t.Fatal("the store is closed")
	}
}
