package filestore

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
	"golang.org/x/sync/errgroup"
)

var (
	_ store.Marker = (*Store)(nil)
	_ store.Ender  = (*Store)(nil)
	_ store.Tracer = (*Store)(nil)
)

// A stamp is 8 bytes of the directory's inode and change time, 8 bytes of the last segment's inode, size and change
// time, and the name of that segment. A log changes in two ways: its last segment grows, or its directory gets
// another name.

const stampLen = 16

// settled is how old a change of a directory must be: one that comes in the same tick of the file system's clock
// leaves the same time. Many have ticks of some milliseconds, the coarsest that is in use has two seconds.
const settled = 2 * time.Second

// Marks looks at each session with a stat of its directory and one of its last segment. Where the directory is not as
// known, it is listed.
func (s *Store) Marks(ctx context.Context, ids []session.ID, known func(session.ID) store.Mark) ([]store.Mark, error) {
	if ids == nil {
		var err error
		if ids, err = s.ids("sessions", ""); err != nil {
			return nil, err
		}
	}
	live, _ := s.announced()
	marks := make([]store.Mark, len(ids))
	now := s.opt.Now()
	if err := inParts(ctx, len(ids), 256, func(i int) {
		if id := ids[i]; session.ValidID(id) == nil {
			marks[i] = s.mark(id, known(id), now)
			marks[i].Held = live[string(id)+".json"]
		}
	}); err != nil {
		return nil, err
	}
	n := 0
	for _, m := range marks {
		if m.ID != "" {
			marks[n], n = m, n+1
		}
	}
	return marks[:n], nil
}

// inParts calls f with 0 to n-1, several at a time, and in one goroutine part of them: one for each session would cost more than
// its few calls.
func inParts(ctx context.Context, n, part int, f func(i int)) error {
	var g errgroup.Group
	g.SetLimit(4 * runtime.GOMAXPROCS(0))
	for from := 0; from < n; from += part {
		g.Go(func() error {
			for i := from; i < min(from+part, n); i++ {
				if i%32 == 0 && ctx.Err() != nil {
					return context.Cause(ctx)
				}
				f(i)
			}
			return nil
		})
	}
	return g.Wait()
}

// Ends lists live/ once, and what a mark needs of a session is seen on the way to its end.
func (s *Store) Ends(ctx context.Context, known []store.Mark) ([]store.End, error) {
	live, _ := s.announced()
	ends := make([]store.End, len(known))
	now := s.opt.Now()
	if err := inParts(ctx, len(known), 16, func(i int) {
		ends[i] = s.end(ctx, known[i], now, live[string(known[i].ID)+".json"])
	}); err != nil {
		return nil, err
	}
	return ends, context.Cause(ctx)
}

// end looks at one session. held: its writer has a name, which Stat asks for.
func (s *Store) end(ctx context.Context, known store.Mark, now time.Time, held bool) store.End {
	var e store.End
	id := known.ID
	if session.ValidID(id) == nil && !held {
		var l looked
		e.Stat, e.Err = s.statLooked(ctx, id, s.dir(id), &l)
		if e.Err == nil && l.dir != nil && l.last != nil {
			e.Mark = store.Mark{ID: id, Past: known.Past}
			if past, err := s.past(s.dir(id), l.list); err == nil {
				e.Mark.Past, e.Mark.Stamp = past, stamp(l.dir, l.last, l.name, now)
			}
			return e
		}
	}
	// By its holder's name, or because it could not be seen on the way.
	e.Mark = s.mark(id, known, now)
	e.Mark.ID, e.Mark.Held = id, held
	e.Stat, e.Err = s.Stat(ctx, id)
	return e
}

// Traces looks at sessions/, where sessions come and go, and at live/, where who writes one is announced from before its
// first write until after its last.
func (s *Store) Traces(ctx context.Context) (store.Traces, error) {
	var t store.Traces
	if err := context.Cause(ctx); err != nil {
		return t, err
	}
	now, told := s.opt.Now(), true
	var nums []int64
	for _, name := range []string{"sessions", "live"} { // before what is in them is listed
		info, err := s.fs.Stat(s.path(name))
		if errors.Is(err, fs.ErrNotExist) || err != nil && name == "live" {
			told = told && name == "sessions" // without live/ nobody is announced, who lost it while he writes for one
			nums = append(nums, 0, 0)
			continue
		}
		if err != nil {
			return t, err
		}
		inode, changed, ok := vfs.Identity(info)
		// A link tells nothing of what is behind it, nor does live/ tell anything if its owner cannot write there.
		told = told && ok && info.IsDir() && info.Mode().Perm()&0o200 != 0 && now.Sub(time.Unix(0, changed)) >= settled
		nums = append(nums, inode, changed)
	}
	live, ok := s.announced()
	told = told && ok
	for name := range live {
		if id, ok := strings.CutSuffix(name, ".json"); ok && session.ValidID(session.ID(id)) == nil {
			t.Held = append(t.Held, session.ID(id))
		}
	}
	slices.Sort(t.Held)
	if told {
		t.Stamp = sum64(nums...)
	}
	return t, nil
}

// announced returns the names of all announcements. ok is false where they cannot be read: nobody is known to write then. That is no
// reason to know nothing of the sessions.
func (s *Store) announced() (names map[string]bool, ok bool) {
	list, err := s.fs.ReadDir(s.path("live"))
	if err != nil {
		return nil, errors.Is(err, fs.ErrNotExist)
	}
	names = make(map[string]bool, len(list))
	for _, e := range list {
		names[e.Name()] = true
	}
	return names, true
}

// mark looks at one session. The zero value: there is none.
func (s *Store) mark(id session.ID, known store.Mark, now time.Time) store.Mark {
	dir := s.dir(id)
	info, err := s.fs.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return store.Mark{}
	}
	m := store.Mark{ID: id, Past: known.Past}
	if err != nil || !info.IsDir() {
		return m
	}
	name := ""
	if head, ok := headOf(info); ok && len(known.Stamp) > stampLen && known.Stamp[:8] == head {
		name = known.Stamp[stampLen:]
	} else {
		list, err := s.fs.ReadDir(dir)
		if err != nil {
			return m
		}
		past, err := s.past(dir, list)
		if err != nil {
			return m
		}
		names, _ := counting(list)
		m.Past, name = past, lastOf(names)
	}
	if last, err := s.fs.Stat(filepath.Join(dir, name)); err == nil {
		m.Stamp = stamp(info, last, name, now)
	}
	return m
}

// headOf is the part of a stamp that is a directory's. ok is false where the system tells nothing of it.
func headOf(dir fs.FileInfo) (head string, ok bool) {
	inode, changed, ok := vfs.Identity(dir)
	return sum64(inode, changed), ok
}

// stamp stands for a directory and the last segment in it, of that name: "" if they cannot be told from what they will be.
func stamp(dir, last fs.FileInfo, name string, now time.Time) string {
	head, ok := headOf(dir)
	if _, changed, _ := vfs.Identity(dir); !ok || now.Sub(time.Unix(0, changed)) < settled || !last.Mode().IsRegular() {
		return ""
	}
	inode, changed, ok := vfs.Identity(last)
	if !ok {
		return ""
	}
	return head + sum64(inode, last.Size(), changed) + name
}

// lastOf returns the name of the last segment, of the header where there is none.
func lastOf(names []segName) string {
	if len(names) > 0 {
		return names[len(names)-1].String()
	}
	return headerName
}

// past stands for what a repair left in a directory.
func (s *Store) past(dir string, list []fs.DirEntry) (past string, err error) {
	for _, e := range list {
		if e.Name() != damagedName {
			continue
		}
		// What is set aside has a new name there each time.
		inner, err := s.fs.ReadDir(filepath.Join(dir, damagedName))
		if err != nil {
			return "", err
		}
		var b strings.Builder
		for _, e := range inner {
			b.WriteString(e.Name() + "\n")
		}
		h := fnv.New64a()
		h.Write([]byte(b.String()))
		past = string(h.Sum(nil))
	}
	return past, nil
}

// sum64 returns 8 bytes that stand for numbers.
func sum64(nums ...int64) string {
	h := fnv.New64a()
	var b [8]byte
	for _, n := range nums {
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		h.Write(b[:])
	}
	return string(h.Sum(b[:0]))
}
