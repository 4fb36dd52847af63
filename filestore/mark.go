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
	live, err := s.announced()
	if err != nil {
		return nil, err
	}
	marks := make([]store.Mark, len(ids))
	now := s.opt.Now()
	var g errgroup.Group
	const part = 256 // a goroutine for each session would cost more than its two calls
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	for from := 0; from < len(ids); from += part {
		g.Go(func() error {
			for i := from; i < min(from+part, len(ids)); i++ {
				if i%32 == 0 && ctx.Err() != nil {
					return context.Cause(ctx)
				}
				id := ids[i]
				if session.ValidID(id) != nil {
					continue
				}
				marks[i] = s.mark(id, known(id), now)
				marks[i].Held = live[string(id)+".json"]
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
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
		if errors.Is(err, fs.ErrNotExist) {
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
	live, err := s.announced()
	if err != nil {
		return t, err
	}
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

// announced returns the names of all announcements.
func (s *Store) announced() (map[string]bool, error) {
	list, err := s.fs.ReadDir(s.path("live"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := make(map[string]bool, len(list))
	for _, e := range list {
		names[e.Name()] = true
	}
	return names, nil
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
	inode, changed, ok := vfs.Identity(info)
	head, name := sum64(inode, changed), ""
	if ok && len(known.Stamp) > stampLen && known.Stamp[:8] == head {
		name = known.Stamp[stampLen:]
	} else if name, m.Past, err = s.lastFile(dir); err != nil {
		m.Past = known.Past
		return m
	}
	if !ok || now.Sub(time.Unix(0, changed)) < settled {
		return m
	}
	info, err = s.fs.Stat(filepath.Join(dir, name))
	if err != nil || !info.Mode().IsRegular() {
		return m
	}
	if inode, changed, ok = vfs.Identity(info); ok {
		m.Stamp = head + sum64(inode, info.Size(), changed) + name
	}
	return m
}

// lastFile returns the name of the last segment in dir, of the header where there is none, and what a repair left.
func (s *Store) lastFile(dir string) (name, past string, err error) {
	list, err := s.fs.ReadDir(dir)
	if err != nil {
		return "", "", err
	}
	name = headerName
	if names, _ := counting(list); len(names) > 0 {
		name = names[len(names)-1].String()
	}
	for _, e := range list {
		if e.Name() != damagedName {
			continue
		}
		// What is set aside has a new name there each time.
		inner, err := s.fs.ReadDir(filepath.Join(dir, damagedName))
		if err != nil {
			return "", "", err
		}
		var b strings.Builder
		for _, e := range inner {
			b.WriteString(e.Name() + "\n")
		}
		h := fnv.New64a()
		h.Write([]byte(b.String()))
		past = string(h.Sum(nil))
	}
	return name, past, nil
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
