package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/strandline-dev/strandline/store"
)

// A store whose root is a link is one; while its sessions/ is a link it is read, and not written to, by whatever door.
func TestLinkedSessions(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, filepath.Join(dir, "store"), nil)
	newStored(t, s, subject, 3)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(s.root, link); err != nil {
		t.Fatal(err)
	}
	newStored(t, openStore(t, link, nil), "second", 3)
	away := filepath.Join(dir, "away")
	if err := errors.Join(os.Rename(s.path("sessions"), away), os.Symlink(away, s.path("sessions"))); err != nil {
		t.Fatal(err)
	}
	before := tree(t, away)
	for name, s := range map[string]*Store{"one that wrote before": s, "a new one": openStore(t, s.root, nil)} {
		if got, _ := readEvents(t, s, subject); len(got) != 3 {
			t.Errorf("%s: %d events are read", name, len(got))
		}
		_, created := s.Create(t.Context(), testHeader("third"))
		_, opened := s.Open(t.Context(), subject)
		_, repaired := s.Repair(t.Context(), subject, false)
		h, err := forkHeader(t.Context(), s, subject, 1)
		if err != nil {
			t.Fatal(err)
		}
		h.ID = "child"
		for what, err := range map[string]error{"create": created, "open": opened, "repair": repaired,
			"fork": s.CreateFork(t.Context(), h, events(2, 1)), "trash": s.Trash(t.Context(), subject)} {
			if !errors.Is(err, store.ErrReadOnly) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
	if now := tree(t, away); len(now) != len(before) {
		t.Errorf("beyond the link: %v, was %v", now, before)
	}
}
