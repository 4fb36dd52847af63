package keeper_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// What may happen to the files of a session that somebody writes.
var swaps = map[string]func(t *testing.T, dir string){
	"session.json replaced by a copy": func(t *testing.T, dir string) { copyOver(t, filepath.Join(dir, "session.json")) },
	"session.json removed":            func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "session.json")) },
	"every file replaced by a copy": func(t *testing.T, dir string) {
		list, _ := filepath.Glob(filepath.Join(dir, "*.json*"))
		for _, f := range list {
			copyOver(t, f)
		}
	},
	"the last segment replaced by a copy": func(t *testing.T, dir string) { copyOver(t, lastSegment(t, dir)) },
	"the last segment removed":            func(t *testing.T, dir string) { remove(t, lastSegment(t, dir)) },
	"the directory moved away": func(t *testing.T, dir string) {
		if err := os.Rename(dir, dir+"-away"); err != nil {
			t.Fatal(err)
		}
	},
	"the directory moved away, a copy in its place": func(t *testing.T, dir string) {
		if err := os.Rename(dir, dir+"-away"); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-r", dir+"-away", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	},
}

func copyOver(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err == nil {
		err = errors.Join(os.Remove(name), os.WriteFile(name, b, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}

func lastSegment(t *testing.T, dir string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(list) == 0 {
		t.Fatal(err, list)
	}
	return list[len(list)-1]
}

// The files of a session are swapped under its writer, and another goes on with it where it can. Whatever the
// first one accepted is in the log, or in the fork that its error names, or the error says "not saved" and the
// events are kept; what the other acknowledged is in the log.
func TestSwappedFiles(t *testing.T) {
	for name, swap := range swaps {
		for _, written := range []bool{false, true} {
			for _, other := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, first write done %v, another %v", name, written, other), func(t *testing.T) {
					swapped(t, swap, written, other)
				})
			}
		}
	}
}

func swapped(t *testing.T, swap func(*testing.T, string), written, other bool) {
	root := t.TempDir()
	st := files(t, root, nil)
	crash(t, st, "abcd")
	k := start(st)
	h := resume(t, k, "abcd")
	if written {
		put(t, h.Session(), openTurn(2)...)
		flush(t, h)
		put(t, h.Session(), endTurn(2)...)
		flush(t, h)
	}
	swap(t, filepath.Join(root, "sessions", "abcd"))
	var theirs []session.Event
	st2 := files(t, root, nil)
	if other {
		o, err := start(st2).Resume(t.Context(), "abcd")
		switch {
		case err == nil:
			put(t, o.Session(), titled("the other's"))
			flush(t, o)
			theirs = events(t, o.Session().Events())
		case !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrDamaged) && !errors.Is(err, store.ErrNotFound):
			t.Fatalf("the other: %v", err)
		}
	}
	mine := put(t, h.Session(), titled("mine"), titled("mine too"))
	err := h.Flush(t.Context())

	var fenced *store.FencedError
	where := session.ID("abcd")
	if errors.As(err, &fenced) && fenced.SavedAs != "" {
		where = fenced.SavedAs
	}
	switch {
	case errors.Is(err, store.ErrNotSaved):
		if un := h.Unsaved(); len(un) < 2 || !bytes.Contains(un[len(un)-1].Data, []byte("mine too")) {
			t.Errorf("not saved, and not kept: %d events", len(un))
		}
		if s := err.Error(); !strings.Contains(s, "abcd") || strings.Contains(s, ": :") {
			t.Errorf("it says: %v", err)
		}
	default:
		got := stored(t, st2, where)
		for _, ev := range mine {
			if int(ev.Seq) >= len(got) || !bytes.Equal(ev.Data, got[ev.Seq].Data) {
				t.Errorf("%s has %d events, and not %d %s (%v)", where, len(got), ev.Seq, ev.Data, err)
			}
		}
	}
	if theirs != nil {
		got := stored(t, st2, "abcd")
		if len(got) < len(theirs) {
			t.Errorf("the other acknowledged %d events, %d are there", len(theirs), len(got))
		}
		for i := range min(len(theirs), len(got)) {
			if !bytes.Equal(got[i].Data, theirs[i].Data) {
				t.Errorf("event %d of the other was replaced", i)
			}
		}
	}
	if err := h.Dispose(t.Context()); err != nil && !errors.Is(err, store.ErrFenced) && !errors.Is(err, store.ErrNotSaved) {
		t.Errorf("dispose: %v", err)
	}
	_, _ = h.Abandon(t.Context())
}
