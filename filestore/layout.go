package filestore

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/vfs"
)

const (
	headerName  = "session.json"
	segSuffix   = ".jsonl"
	segDigits   = 20
	storeName   = "strandline.json"
	lockName    = "store.lock"
	newSession  = ".new-"
	newSegment  = ".seg-"
	newBlob     = ".blob-"
	newStore    = ".store-"
	defaultRoll = 16 << 20
	maxSyncs    = 32
	patience    = 100 * time.Millisecond
)

// Options are what a Store needs from outside.
type Options struct {
	FS   vfs.FS           // nil: the machine's
	Now  func() time.Time // required: the time in announcements
	Rand io.Reader        // required: store id, names of temporary files, nonces

	// What announcements say of this process.
	Host, Program string
	PID           int
	ProcessStart  string
	// Alive reports whether a process of this host, by its pid and start mark, still runs; nil: it does. It
	// decides nothing but whether a refused lease is worth a moment's wait.
	Alive func(pid int, started string) bool

	// Wait returns after d, or with the cause when ctx ends first; nil: vfs.Wait. Who follows a session looks again
	// after it.
	Wait func(ctx context.Context, d time.Duration) error

	// SegmentBytes is the size at which a segment is followed by a new one; 0: 16 MiB.
	SegmentBytes int64
}

// Store is a store in a directory. All methods are safe for concurrent use.
type Store struct {
	root  string
	fs    vfs.FS
	opt   Options
	syncs chan struct{} // at most maxSyncs calls sync at a time: each blocks a thread

	patience time.Duration // for locks that a probe holds for a moment

	rooms sync.Pool // of *[]byte: where writers encode

	decoder func() *zstd.Decoder // of packed segments, made when the first is met

	randMu sync.Mutex

	mu      sync.Mutex
	writers map[session.ID]*writer // open handles: keeps their descriptors reachable
	closed  bool
	dirs    map[string]bool // directories whose names are known to be durable
	ready   bool            // root and strandline.json are there and durable
	locks   bool            // a second lock was seen to be refused
	pins    pins            // guarded by mu
	known   *kinship        // guarded by mu; what kin said last

	planning sync.Mutex // guards trial
	trial    *trial     // of the last PlanRepair

	// The last answer of LinkAt: whoever forks asks twice, and a synced record does not change.
	linked   place
	linkedTo session.Link
}

var (
	_ store.Store  = (*Store)(nil)
	_ store.Forker = (*Store)(nil)
	_ store.Lister = (*Store)(nil)
	_ store.Taker  = (*Store)(nil)
	_ store.Blobs  = (*Store)(nil)

	_ store.Watcher   = (*Store)(nil)
	_ store.Verifier  = (*Store)(nil)
	_ store.Packer    = (*Store)(nil)
	_ store.Surveyor  = (*Store)(nil)
	_ store.Repairer  = (*Store)(nil)
	_ store.Collector = (*Store)(nil)
)

// Open returns the store in the directory root. It writes nothing: the directory is made by the first
// write, and a root that is not there is an empty store.
func Open(root string, opt Options) (*Store, error) {
	if opt.Now == nil || opt.Rand == nil {
		return nil, errors.New("filestore: Options.Now and Options.Rand are required")
	}
	if opt.FS == nil {
		opt.FS = vfs.OS()
	}
	if opt.Wait == nil {
		opt.Wait = vfs.Wait
	}
	if opt.SegmentBytes <= 0 {
		opt.SegmentBytes = defaultRoll
	}
	return &Store{
		root: filepath.Clean(root), fs: opt.FS, opt: opt, patience: patience,
		syncs: make(chan struct{}, maxSyncs), decoder: sync.OnceValue(newDecoder), writers: map[session.ID]*writer{},
		dirs: map[string]bool{}, linked: place{seq: session.None},
	}, nil
}

// Root returns the store's directory.
func (s *Store) Root() string { return s.root }

// Close closes every writer. What they have not flushed is written, not synced.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	var open []*writer
	for _, w := range s.writers {
		open = append(open, w)
	}
	s.mu.Unlock()
	var errs []error
	for _, w := range open {
		errs = append(errs, w.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pins.lock != nil {
		s.pins.lock.Close()
		s.pins = pins{}
	}
	return errors.Join(errs...)
}

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.root}, elem...)...)
}

func (s *Store) dir(id session.ID) string   { return s.path("sessions", string(id)) }
func (s *Store) trash(id session.ID) string { return s.path("trash", string(id)) }

// homes returns the directories in which the own segments of id may lie for a reader of child. What child was handed, or
// what a repair made for it, comes first: it is what child begins with, whatever became of id.
func (s *Store) homes(id, child session.ID) []string {
	return []string{filepath.Join(s.dir(child), inheritedDir, string(id)), s.dir(id), s.trash(id)}
}

func segmentName(first session.Seq) string { return fmt.Sprintf("%0*d%s", segDigits, first, segSuffix) }

// segName is a segment as its file's name tells it.
type segName struct {
	first session.Seq
	end   session.Seq // behind the last record of a packed one; None: it is plain
}

func (n segName) packed() bool { return n.end != session.None }

// String returns the name of the file.
func (n segName) String() string {
	if n.packed() {
		return fmt.Sprintf("%0*d-%0*d%s", segDigits, n.first, segDigits, n.end, packSuffix)
	}
	return segmentName(n.first)
}

// in returns the path of the file in dir.
func (n segName) in(dir string) string { return filepath.Join(dir, n.String()) }

func isPacked(path string) bool { return strings.HasSuffix(path, packSuffix) }

// parseSegName is the inverse of String.
func parseSegName(name string) (n segName, ok bool) {
	digits, ok := strings.CutSuffix(name, segSuffix)
	if ok {
		n.first, ok = parseSeq(digits)
		n.end = session.None
		return n, ok
	}
	digits, ok = strings.CutSuffix(name, packSuffix)
	first, end, dash := strings.Cut(digits, "-")
	if !ok || !dash {
		return n, false
	}
	var ok2 bool
	n.first, ok = parseSeq(first)
	n.end, ok2 = parseSeq(end)
	return n, ok && ok2 && n.first < n.end
}

func parseSeq(digits string) (session.Seq, bool) {
	n, err := strconv.ParseInt(digits, 10, 64)
	return session.Seq(n), err == nil && n >= 0 && len(digits) == segDigits
}

// counting picks the segments that count from the names of a directory, ascending; hidden are the others: those
// that begin inside a packed one, which holds their records. Of packed ones that begin together the longest counts.
func counting(list []fs.DirEntry) (names, hidden []segName) {
	var all []segName
	for _, e := range list {
		if n, ok := parseSegName(e.Name()); ok {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b segName) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.end, a.end)) })
	end := session.None
	for _, n := range all {
		if n.first < end {
			hidden = append(hidden, n)
			continue
		}
		names = append(names, n)
		if n.packed() {
			end = n.end
		}
	}
	return names, hidden
}

// segmentNames returns the segments in dir that count, ascending.
func (s *Store) segmentNames(dir string) ([]segName, error) {
	list, err := s.entries(dir)
	if err != nil {
		return nil, err
	}
	names, _ := counting(list)
	return names, nil
}

// entries lists dir. What is no directory, or lies in one that is none, holds nothing: that somebody put it there is
// found by who reads the header, and is no reason to fail for those who read all sessions.
func (s *Store) entries(dir string) ([]fs.DirEntry, error) {
	list, err := s.fs.ReadDir(dir)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	return list, err
}

// holding returns the index of the one of names in which seq should lie, or -1.
func holding(names []segName, seq session.Seq) int {
	return sort.Search(len(names), func(i int) bool { return names[i].first > seq }) - 1
}

// claimName is the name of a segment on its way to the name of first: what it holds is whole, and everybody who
// lists the directory sees where it is to begin.
func claimName(first session.Seq, nonce string) string {
	return fmt.Sprintf("%s%0*d-%s", newSegment, segDigits, first, nonce)
}

// claimOf returns the first of a claim.
func claimOf(name string) (session.Seq, bool) {
	rest, ok := strings.CutPrefix(name, newSegment)
	if !ok || len(rest) <= segDigits || rest[segDigits] != '-' {
		return 0, false
	}
	n, err := strconv.ParseInt(rest[:segDigits], 10, 64)
	return session.Seq(n), err == nil && n >= 0
}

func (s *Store) nonce() (string, error) {
	var b [12]byte
	s.randMu.Lock()
	defer s.randMu.Unlock()
	if _, err := io.ReadFull(s.opt.Rand, b[:]); err != nil {
		return "", fmt.Errorf("filestore: no randomness: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// sync runs one blocking sync, of which there are never more than maxSyncs.
func (s *Store) sync(do func() error) error {
	s.syncs <- struct{}{}
	defer func() { <-s.syncs }()
	return do()
}

func (s *Store) syncDir(name string) error {
	return s.sync(func() error { return s.fs.SyncDir(name) })
}

// readFile returns the content of a small file, with its inode.
func (s *Store) readFile(name string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := s.fs.OpenFile(name, vfs.ReadOnly)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return readAll(f, name, limit)
}

func readAll(f vfs.File, name string, limit int64) ([]byte, fs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, info, &notFileError{name, info.Mode()}
	}
	if info.Size() > limit {
		return nil, info, fmt.Errorf("%s has %d bytes: more than such a file can have", name, info.Size())
	}
	b := make([]byte, info.Size())
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, info, err
	}
	return b[:n], info, nil
}

// notFileError says that something else stands where a file should.
type notFileError struct {
	name string
	mode fs.FileMode
}

func (e *notFileError) Error() string {
	return fmt.Sprintf("%s is not a file (%v)", e.name, e.mode.Type())
}
