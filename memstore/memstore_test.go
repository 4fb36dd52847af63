package memstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/strandline-dev/strandline/memstore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/storetest"
)

func options() memstore.Options {
	return memstore.Options{Now: func() time.Time { return time.Unix(1700000000, 0) }, Program: "memstore.test", Host: "here", PID: 42}
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		st := memstore.New(options())
		mem := st.Memory()
		handle := func(t *testing.T) store.Store {
			st := mem.Open(options())
			t.Cleanup(func() { st.Close() })
			return st
		}
		t.Cleanup(func() { st.Close() })
		return storetest.Harness{
			Store: st, Reopen: handle, Another: handle,
			DropLease:   func(t *testing.T, id session.ID) { mem.DropLease(id) },
			CorruptBlob: func(t *testing.T, name string) { mem.CorruptBlob(name) },
		}
	})
}

// A creator that lost its reservation to another one is fenced.
func TestCreatorIsFenced(t *testing.T) {
	st := memstore.New(options())
	h := session.Header{Format: session.Format, ID: "twos", CreatedAt: 1, Kind: session.KindRoot, Cwd: "/"}
	ev := []session.Event{{Type: "a/b", Data: []byte(`{}`)}}
	old, err := st.Create(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	st.Memory().DropLease("twos")
	young, err := st.Create(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := young.Append(t.Context(), ev); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Append(t.Context(), ev); !errors.Is(err, store.ErrFenced) {
		t.Fatalf("two writers created one session: %v", err)
	}
}
