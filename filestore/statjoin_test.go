package filestore

import (
	"os"
	"slices"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Stat while the holder joins what earlier lives left, at every call of it: as before, or as behind it.
func TestStatWhileJoining(t *testing.T) {
	type facts struct {
		base, next session.Seq
		bytes      int64
		held       bool
	}
	const n = manySegs + 2
	made := t.TempDir()
	s := openStore(t, made, nil)
	newStored(t, s, subject, 1)
	for i := range n - 1 {
		w := must[store.Writer](t)(s.Open(t.Context(), subject))
		mustAppend(t, w, events(session.Seq(i+1), 1))
		w.Close()
	}
	look := func(at int) (got facts, calls int, quiet [2]facts) {
		root := t.TempDir()
		if err := os.CopyFS(root, os.DirFS(made)); err != nil {
			t.Fatal(err)
		}
		s := openStore(t, root, nil)
		of := func(st store.Stat) facts { return facts{st.Base, st.Pos.Next, st.Bytes, st.Holder != nil} }
		other := openStore(t, root, nil)
		w := must[store.Writer](t)(s.Open(t.Context(), subject)).(*writer)
		quiet[0] = of(must[store.Stat](t)(other.Stat(t.Context(), subject)))
		join := func() {
			mustAppend(t, w, events(n, 1))
			<-w.joinDone
			quiet[1] = of(must[store.Stat](t)(other.Stat(t.Context(), subject)))
		}
		reader := openStore(t, root, vfs.Around(unsynced, func(_ *vfs.Call, do func() error) error {
			if calls++; calls == at {
				join()
			}
			return do()
		}))
		got = of(must[store.Stat](t)(reader.Stat(t.Context(), subject)))
		if at > calls {
			join()
		}
		w.Close()
		return got, calls, quiet
	}
	for at, calls := 1, 1; at <= calls; at++ {
		var got facts
		var quiet [2]facts
		if got, calls, quiet = look(at); !slices.Contains(quiet[:], got) {
			t.Errorf("before call %d: %+v, want one of %+v", at, got, quiet)
		}
	}
}
