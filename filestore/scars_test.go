package filestore

import (
	"os"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// Who holds a fork of a session, or a fork of one, may keep a checkpoint of what the session said before somebody else repaired it, and may
// stand still at any moment between its look and the rename. Nobody ever begins with it.
func TestHeldOverARepair(t *testing.T) {
	for name, after := range map[string]func(t *testing.T, s *Store){
		"repaired": func(*testing.T, *Store) {},
		"cache emptied": func(t *testing.T, s *Store) {
			if err := os.RemoveAll(s.path("cache")); err != nil {
				t.Fatal(err)
			}
		},
		"purged": func(t *testing.T, s *Store) {
			if err := s.Trash(t.Context(), subject); err != nil {
				t.Fatal(err)
			}
			if p := s.Purge(t.Context(), []session.ID{subject}); p[0].Err != nil {
				t.Fatal(p[0].Err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			root := t.TempDir()
			var paused func()
			fs := vfs.Around(unsynced, func(c *vfs.Call, do func() error) error {
				if c.Op != vfs.OpRename || !strings.HasSuffix(c.To, foldSuffix) || paused == nil {
					return do()
				}
				stand := paused
				paused = nil
				stand()
				err := do()
				for _, id := range []session.ID{"child", "grandchild", "cousin"} {
					tail := must[*store.Snapshot](t)(smallSegments(t, root, nil).ReadTail(ctx, id))
					if err := store.CheckFold(tail, nil); err != nil {
						t.Error(err)
					}
					tail.Close()
				}
				return err
			})
			s := smallSegments(t, root, fs)
			foldedLives(t, s, subject, 4)
			writers := map[session.ID]store.Writer{}
			past := map[session.ID][]session.Event{}
			from := subject
			for _, id := range []session.ID{"child", "grandchild"} {
				must[session.Header](t)(store.Fork(ctx, s, from, store.ForkOptions{Child: id, Now: 9}))
				from = id
				w := must[store.Writer](t)(s.Open(ctx, id))
				mustAppend(t, w, talk(t, w.Opened().Pos.Next, 2))
				mustFlush(t, w)
				writers[id] = w
			}
			must[session.Header](t)(store.Fork(ctx, s, "child", store.ForkOptions{Child: "cousin", Now: 9}))
			for id, w := range writers {
				past[id] = collect(t, w.Stored())
			}
			keep := func(id session.ID) error {
				w := writers[id]
				return s.PutCheckpoint(ctx, id, store.Checkpoint{Pos: mustFlush(t, w), Data: foldOf(t, w.Header(), past[id])})
			}
			repair := func() {
				b := openStoreLike(t, s)
				hurtAt(t, b, 200)
				if r, err := b.Repair(ctx, subject, false); err != nil || len(r.Lost) != 1 {
					t.Fatalf("%+v, %v", r, err)
				}
				after(t, b)
			}
			paused = repair
			if err := keep("child"); err == nil {
				t.Error("a checkpoint of what the parent said is kept")
			}
			if err := keep("grandchild"); err == nil {
				t.Error("a checkpoint of what the parent's parent said is kept")
			}
			for id, w := range writers {
				w.Close()
				behind(t, s, id)
				if all, _ := s.foldsIn(id); len(all) > 0 {
					t.Errorf("of %s is left: %v", id, all)
				}
				w = must[store.Writer](t)(s.Open(ctx, id))
				pos := keepFold(t, s, w)
				w.Close()
				if at := behind(t, s, id); at != pos.Next {
					t.Errorf("the next life of %s keeps a checkpoint at %d, not at %d", id, at, pos.Next)
				}
			}
			if at := behind(t, s, "cousin"); at != session.Seq(len(past["child"])) {
				t.Errorf("the cousin begins with %d", at)
			}
		})
	}
}
