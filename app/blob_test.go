package app_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// A long text that one event needs is gone: the session shows a mark in its place, and says that it is damaged.
func TestShowAroundHurtBlob(t *testing.T) {
	a := open(t)
	long := message.User("u9", strings.Repeat("long ", 9000))
	w := life(t, a, header("abcd", ""), append(begun(), session.Draft{Type: session.TypeUserMessage, Data: long, Op: session.Append()})...)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	blobs, err := filepath.Glob(filepath.Join(a.Root, "blobs", "sha256", "*", "*"))
	if err != nil || len(blobs) != 1 {
		t.Fatal(blobs, err)
	}
	whole := inspect(t, a, "abcd").Prefix.Len()
	if err := os.Remove(blobs[0]); err != nil {
		t.Fatal(err)
	}
	ins := inspect(t, a, "abcd")
	last, err := ins.Prefix.At(whole - 1)
	if err != nil || last.Type != session.TypeLost || len(ins.Snap.Damage) != 1 || !strings.Contains(ins.Snap.Damage[0].Detail, filepath.Base(blobs[0])) {
		t.Errorf("the last event is %v (%v), damage %+v", last, err, ins.Snap.Damage)
	}
	if _, err := a.Store.Open(t.Context(), "abcd"); err != nil && !errors.Is(err, store.ErrDamaged) {
		t.Error(err)
	}
}
