package filestore_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/filestore"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// A killed process may leave its locks for a moment to a child that it was just starting. Whoever opens the
// session then waits for that moment; of a holder that lives he is told at once.
func TestDyingHolder(t *testing.T) {
	root := t.TempDir()
	open := func(alive func(int, string) bool) *filestore.Store {
		t.Helper()
		st, err := filestore.Open(root, filestore.Options{
			Now: time.Now, Rand: rand.Reader, Host: "here", Program: "test", PID: 4711, ProcessStart: "12", Alive: alive,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	h := session.Header{Format: session.Format, ID: "dying", CreatedAt: 1, Kind: session.KindRoot, Cwd: "/"}
	w, err := open(nil).Create(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	ev := session.Event{Seq: 0, Time: 1, Type: session.TypeTitle, Data: jsontext.Value(`{"title":"t","source":"user"}`)}
	if _, err := w.Append(t.Context(), []session.Event{ev}); err != nil {
		t.Fatal(err)
	}

	asked := 0
	_, err = open(func(pid int, started string) bool {
		asked++
		if pid != 4711 || started != "12" {
			t.Errorf("asked for %d, %s", pid, started)
		}
		return true
	}).Open(t.Context(), "dying")
	if busy, ok := errors.AsType[*store.BusyError](err); !ok || busy.Holder == nil || busy.Holder.PID != 4711 || asked != 1 {
		t.Errorf("a living holder, asked for %d times: %v", asked, err)
	}

	_, err = open(func(int, string) bool { return false }).Open(t.Context(), "dying")
	if !errors.Is(err, store.ErrBusy) {
		t.Errorf("a lock that stays is a lock, whoever is dead: %v", err)
	}

	asked = 0
	next, err := open(func(int, string) bool {
		if asked++; asked == 3 {
			w.Close()
		}
		return false
	}).Open(t.Context(), "dying")
	if err != nil {
		t.Fatalf("a lock that goes away soon: %v", err)
	}
	if asked != 3 || next.Opened().Prefix.Len() != 1 {
		t.Errorf("asked %d times, %d events", asked, next.Opened().Prefix.Len())
	}
}
