package filestore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/record"
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
	// A text that is so long that it becomes a blob itself names one, too.
	d := must[string](t)(s.PutBlob(t.Context(), []byte("d")))
	long := events(5, 1)
	long[0].Data = jsontext.Value(fmt.Sprintf(`{"text":"%s see %s"}`, strings.Repeat("x", record.BlobLimit), d))
	if free() {
		t.Fatal("before the long text")
	}
	mustAppend(t, w, long)
	if !free() {
		t.Fatal("the long text names it")
	}
	// One that no record will name is released; as often as it was put, if others put the same.
	c := must[string](t)(s.PutBlob(t.Context(), []byte("c")))
	must[string](t)(s.PutBlob(t.Context(), []byte("c")))
	s.ReleaseBlob(c)
	s.ReleaseBlob(a) // named long ago
	if free() {
		t.Fatal("it was put twice, and released once")
	}
	s.ReleaseBlob(c)
	if !free() {
		t.Fatal("it was released")
	}
	s.ReleaseBlob(c)
	must[string](t)(s.PutBlob(t.Context(), []byte("c")))
	if free() {
		t.Fatal("a new one")
	}
	s.Close()
	if !free() {
		t.Fatal("the store is closed")
	}
}
