package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/store"
)

// What says that this is a store is gone, or cannot be read: every session can be, the survey says it, and a repair
// makes it anew, with its id if that is left.
func TestStoreFile(t *testing.T) {
	for name, tt := range map[string]struct {
		text   string
		refuse bool // until it was repaired
		keeps  bool // the id
	}{
		"garbage":       {"\x00\xffgarbage", true, false},
		"empty":         {"", true, false},
		"another file":  {"{\"a\":1}\n", true, false},
		"cut":           {"", true, true},
		"gone":          {"", false, false},
		"a newer store": {"{\"strandline\":2,\"store\":\"x\"}\n", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			newStored(t, openStore(t, root, nil), subject, 3)
			path := filepath.Join(root, storeName)
			old, _ := os.ReadFile(path)
			switch name {
			case "cut":
				tt.text = string(old[:len(old)-2])
			case "gone":
				os.Remove(path)
			}
			if name != "gone" {
				if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := openStore(t, root, nil)
			got, _ := readEvents(t, s, subject)
			wantEvents(t, got, events(0, 3))
			v := must[store.Survey](t)(s.Survey(t.Context()))
			w, err := s.Open(t.Context(), subject)
			if tt.refuse != errors.Is(err, store.ErrReadOnly) {
				t.Fatalf("open: %v", err)
			}
			if err == nil {
				w.Close()
			}
			if name == "a newer store" { // nothing is wrong with it
				if rep := must[store.Repair](t)(s.RepairStore(t.Context(), false)); v.Bad != "" || rep.Damage != nil || v.Format != 2 {
					t.Fatalf("%+v %+v", v, rep)
				}
				return
			}
			if _, bad := errors.AsType[*store.StoreFileError](err); v.Bad == "" || tt.refuse && !bad {
				t.Fatalf("the survey says %q, open: %v", v.Bad, err)
			}
			dry := must[store.Repair](t)(s.RepairStore(t.Context(), true))
			if now, _ := os.ReadFile(path); string(now) != tt.text || len(dry.Damage) != 1 {
				t.Fatalf("a dry run: %+v", dry)
			}
			rep := must[store.Repair](t)(s.RepairStore(t.Context(), false))
			now, _ := os.ReadFile(path)
			if (string(now) == string(old)) != tt.keeps || len(rep.Damage) != 1 || (len(rep.Kept) == 1) != (name != "gone") {
				t.Fatalf("%+v: %s, it was %s", rep, now, old)
			}
			if len(rep.Kept) == 1 {
				if kept, _ := os.ReadFile(rep.Kept[0]); string(kept) != tt.text {
					t.Fatalf("kept: %q", kept)
				}
			}
			if rep := must[store.Repair](t)(s.RepairStore(t.Context(), false)); rep.Damage != nil {
				t.Fatalf("again: %+v", rep)
			}
			w = must[store.Writer](t)(openStore(t, root, nil).Open(t.Context(), subject))
			mustAppend(t, w, events(3, 1))
			mustFlush(t, w)
			w.Close()
		})
	}
	t.Run("beside a newer session", func(t *testing.T) {
		s := openStore(t, t.TempDir(), nil)
		newStored(t, s, subject, 3)
		newStored(t, s, "later", 3)
		for name, text := range map[string]string{s.path(storeName): "garbage", filepath.Join(s.dir("later"), headerName): `{"format":2,"id":"later"}` + "\n"} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if rep, err := s.RepairStore(t.Context(), false); !errors.Is(err, store.ErrUnsupported) || rep.Written != nil {
			t.Fatalf("%+v %v", rep, err)
		}
		if b, _ := os.ReadFile(s.path(storeName)); string(b) != "garbage" {
			t.Fatalf("%s", b)
		}
	})
	t.Run("a lock that is none", func(t *testing.T) {
		s := openStore(t, t.TempDir(), nil)
		newStored(t, s, subject, 3)
		os.Remove(s.path(lockName))
		if err := os.Symlink("elsewhere", s.path(lockName)); err != nil {
			t.Fatal(err)
		}
		_, err := s.PutBlob(t.Context(), []byte(`"x"`))
		if err == nil || !strings.Contains(err.Error(), "store.lock is not a file") {
			t.Fatalf("%v", err)
		}
	})
}
