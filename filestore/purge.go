package filestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

// purging begins the names, in the trash, of what is not there any more and only has to be removed.
const purging = ".purge-"

// relative is a session that may begin with events of others.
type relative struct {
	home
	parent  *session.Parent
	created int64
	lost    error  // why its header cannot be read
	text    []byte // of the header, if that is all that can be said
	unseen  bool   // there is a header, and it cannot be read now
}

// relatives reads the headers of all sessions: no index is asked, because what is not in it would be lost.
func (s *Store) relatives(ctx context.Context) ([]relative, error) {
	places, err := s.all()
	if err != nil {
		return nil, err
	}
	var out []relative
	for _, p := range places {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if p.id == "" {
			continue
		}
		r := relative{home: p}
		h, bad, err := s.readHeader(p.dir, p.id)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil || bad != nil:
			r.lost, r.unseen = cmp.Or(bad, err), err != nil
			r.text, _, _ = s.readFile(filepath.Join(p.dir, headerName), maxHeader)
		case h.Parent == nil:
			continue
		default:
			r.parent, r.created = h.Parent, h.CreatedAt
		}
		out = append(out, r)
	}
	return out, nil
}

// part returns which events of id r begins with.
func (r *relative) part(id session.ID) (from, end session.Seq, ok bool) {
	if r.parent == nil {
		return 0, 0, false
	}
	for _, sp := range r.parent.Spans {
		if sp.ID == id {
			return from, sp.End, true
		}
		from = sp.End
	}
	return 0, 0, false
}

// mayNeed reports whether r, whose header is lost, may begin with events of id.
func (s *Store) mayNeed(r *relative, id session.ID) bool {
	if r.lost == nil || r.id == id {
		return false
	}
	if len(r.text) > 0 {
		return bytes.Contains(r.text, []byte(`"`+string(id)+`"`))
	}
	names, err := s.segmentNames(r.dir)
	if err != nil || len(names) == 0 {
		return r.unseen
	}
	return names[0].first > 0 // those of a fork do not begin at 0
}

// Dependents tells what others need of sessions.
func (s *Store) Dependents(ctx context.Context, ids []session.ID, blobs bool) ([]store.Dependents, error) {
	kin, err := s.relatives(ctx)
	if err != nil {
		return nil, err
	}
	var places []home
	if blobs {
		if places, err = s.all(); err != nil {
			return nil, err
		}
		// What goes with them keeps nothing.
		places = slices.DeleteFunc(places, func(p home) bool { return slices.Contains(ids, p.id) })
	}
	var out []store.Dependents
	for _, id := range ids {
		d := store.Dependents{ID: id}
		dir, names, err := s.where(id)
		if err != nil {
			return nil, err
		}
		for i := range kin {
			r := &kin[i]
			from, end, ok := r.part(id)
			if !ok || slices.Contains(ids, r.id) {
				continue
			}
			h := store.Heir{ID: r.id, Trashed: r.trashed, From: from, End: end}
			for _, g := range heritage(names, end) {
				err := s.withText(g.in(dir), func(f vfs.File) error {
					n, _, err := portionEnd(ctx, f, g.below)
					h.Bytes += n
					return err
				})
				if err != nil {
					return nil, err
				}
			}
			d.Heirs = append(d.Heirs, h)
		}
		slices.SortFunc(d.Heirs, func(a, b store.Heir) int { return cmp.Compare(a.ID, b.ID) })
		if blobs {
			if d.Blobs, err = s.sharedBlobs(ctx, dir, places); err != nil {
				return nil, err
			}
		}
		out = append(out, d)
	}
	return out, nil
}

// where finds a session that is stored or in the trash, and its segments if they can be listed.
func (s *Store) where(id session.ID) (string, []segName, error) {
	if session.ValidID(id) != nil {
		return "", nil, &store.NotFoundError{ID: string(id)}
	}
	for _, dir := range []string{s.dir(id), s.trash(id)} {
		info, err := s.fs.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !info.IsDir() {
			return dir, nil, err
		}
		names, err := s.segmentNames(dir)
		return dir, names, err
	}
	return "", nil, s.absent(id)
}

// Purge removes sessions from the trash for good.
func (s *Store) Purge(ctx context.Context, ids []session.ID) []store.Purged {
	out := make([]store.Purged, len(ids))
	for i, id := range ids {
		out[i].ID = id
		if session.ValidID(id) != nil {
			out[i].Err = &store.NotFoundError{ID: string(id)}
		}
	}
	if err := s.purge(ctx, out); err != nil {
		for i := range out {
			out[i].Err = cmp.Or(out[i].Err, err)
		}
	}
	return out
}

// doomed is a session that was taken out of the trash and is to be removed.
type doomed struct {
	dir string
	res *store.Purged // nil: an earlier purge began with it
}

// purge does what Purge says. The steps of one session, each of them durable before the next: every fork has what it
// needs of it; its id is never free again; its directory has a name that nobody reads; its blobs are gone; it is.
// A death in between leaves it in the trash, whole, or under that name, and then the next purge goes on.
func (s *Store) purge(ctx context.Context, out []store.Purged) error {
	if err := s.writable(); err != nil {
		return err
	}
	lock, err := s.lockStore(ctx, true)
	if err != nil {
		return err
	}
	defer lock.Close()
	kin, err := s.relatives(ctx)
	if err != nil {
		return err
	}
	rest, err := s.remains()
	if err != nil {
		return err
	}
	for _, i := range lastFirst(out, kin) {
		if err := context.Cause(ctx); err != nil {
			out[i].Err = cmp.Or(out[i].Err, err)
			continue
		}
		dir, err := s.condemn(ctx, out[i].ID, kin)
		if err != nil {
			out[i].Err = err
			continue
		}
		kin = slices.DeleteFunc(kin, func(r relative) bool { return r.id == out[i].ID })
		rest = append(rest, doomed{dir, &out[i]})
	}
	// From here on it is done, whatever the caller thinks by now.
	return s.removeDoomed(context.WithoutCancel(ctx), rest, kin)
}

// remains lists what earlier purges did not come to remove.
func (s *Store) remains() ([]doomed, error) {
	list, err := s.fs.ReadDir(s.path("trash"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []doomed
	for _, e := range list {
		if strings.HasPrefix(e.Name(), purging) {
			out = append(out, doomed{dir: s.path("trash", e.Name())})
		}
	}
	return out, nil
}

// lastFirst orders the sessions to purge so that a fork comes before what it begins with: it then needs nothing any
// more. Those with an error are left out.
func lastFirst(out []store.Purged, kin []relative) []int {
	depth := map[session.ID]int{} // a fork has all spans of what it begins with, and one for that
	for i := range kin {
		if p := kin[i].parent; p != nil {
			depth[kin[i].id] = len(p.Spans)
		}
	}
	var order []int
	seen := map[session.ID]bool{}
	for i := range out {
		if out[i].Err == nil && !seen[out[i].ID] {
			seen[out[i].ID] = true
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(depth[out[b].ID], depth[out[a].ID]) })
	return order
}

// condemn hands over what forks need of id and takes it out of the trash. It returns the directory to remove.
func (s *Store) condemn(ctx context.Context, id session.ID, kin []relative) (string, error) {
	if err := s.trashed(id); err != nil {
		return "", err
	}
	info, err := s.fs.Stat(s.trash(id))
	if err != nil {
		return "", err
	}
	for i := range kin {
		r := &kin[i]
		if s.mayNeed(r, id) {
			return "", fmt.Errorf("filestore: session %s may be a fork of %s, and its header cannot be read (%w): repair it, or delete it first", r.id, id, r.lost)
		}
		_, end, ok := r.part(id)
		if !ok || r.id == id {
			continue
		}
		if !info.IsDir() {
			return "", fmt.Errorf("filestore: %s is no directory (%v), and session %s begins with events of it: put the directory itself there", s.trash(id), info.Mode().Type(), r.id)
		}
		if err := s.bequeath(ctx, s.trash(id), id, end, r.dir); err != nil {
			return "", fmt.Errorf("filestore: handing over to %s what it begins with: %w", r.id, err)
		}
	}
	if err := s.bury(id); err != nil {
		return "", err
	}
	s.fs.Remove(s.livePath(id))
	if err := s.dropDerived(id); err != nil {
		return "", err
	}
	n, err := s.nonce()
	if err != nil {
		return "", err
	}
	dir := s.path("trash", purging+n)
	if err := s.fs.RenameNoReplace(s.trash(id), dir); err != nil {
		return "", err
	}
	return dir, s.syncDir(s.path("trash"))
}

// bury makes sure, durably, that id is never used again.
func (s *Store) bury(id session.ID) error {
	name := s.tombstone(id)
	dir := filepath.Dir(name)
	if err := s.mkdirAll(dir); err != nil {
		return err
	}
	f, err := s.fs.OpenFile(name, vfs.OpenOrCreate)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), s.syncDir(dir))
}

// removeDoomed removes directories with the blobs that only they name. kin are those that stay.
func (s *Store) removeDoomed(ctx context.Context, list []doomed, kin []relative) error {
	if len(list) == 0 {
		return nil
	}
	named := make([]map[string]bool, len(list))
	sum := map[string]bool{}
	known := map[string][]string{}
	var unsure error
	for i, d := range list {
		names := map[string]bool{}
		err := s.named(ctx, d.dir, names)
		if err == nil {
			err = s.reach(names, known)
		}
		if err != nil { // it tells the next purge which blobs they are
			if d.res != nil {
				d.res.Err = fmt.Errorf("filestore: it is deleted, but not yet removed: %w", err)
			}
			continue
		}
		named[i] = names
		maps.Copy(sum, names)
	}
	want, err := s.here(sum)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for name := range want {
		there[name] = true
	}
	if len(want) > 0 {
		places, err := s.all()
		if err != nil {
			return err
		}
		var kept map[string][]session.ID
		if err = understood(kin); err == nil {
			kept, err = s.shared(ctx, places, want)
		}
		if err == nil {
			err = s.readable(places)
		}
		switch {
		case err == nil:
			maps.DeleteFunc(want, func(name string, _ int64) bool { _, ok := kept[name]; return ok })
		case errors.Is(err, fs.ErrPermission), errors.Is(err, store.ErrUnsupported): // for good: what may be somebody's stays
			unsure = err
			clear(want)
		default:
			return err
		}
	}
	// Before the directories, which tell the next purge which blobs they are. The names of those that are not there any
	// more are synced too: who removed them may have died before that.
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		path := s.blobPath(name)
		if _, ok := want[name]; ok {
			if err := s.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		} else if there[name] {
			continue // others name it
		}
		if err := s.syncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for i, d := range list {
		if named[i] == nil {
			continue
		}
		n, err := s.removeAll(d.dir)
		if d.res == nil { // what is left of another one's is nothing that was asked for
			continue
		}
		d.res.Bytes, d.res.Err = n, err
		for name := range named[i] {
			if size, ok := want[name]; ok {
				d.res.Bytes += size
				d.res.Blobs++
				delete(want, name) // counted once
			}
		}
		d.res.Unsure = unsure
	}
	return s.syncDir(s.path("trash"))
}
