// Package memstore keeps sessions in memory. It is a driver like any other: it passes storetest, and
// it keeps encoded records, so that sums, links, limits and blobs are those of every other driver. It
// serves tests, short-lived agents and as the smallest example of a driver.
//
// A Memory is the medium, as a disk is; a Store is a handle on it, as a process has one. Closing a
// Store releases what it holds and leaves the sessions; another Store on the same Memory goes on.
//
// Written and synced are the same here: nothing survives the process.
//
// Locking: one mutex, in Memory, guards everything. A log's records are only ever appended to, so a
// snapshot is a capped slice and needs no lock afterwards; a fork shares its parent's records in the
// same way.
package memstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Options say who a Store is.
type Options struct {
	// Now is the clock for a holder's Since. Required.
	Now func() time.Time
	// Program, Host and PID are what a refused writer is told.
	Program string
	Host    string
	PID     int
}

// Memory holds sessions. The zero value is empty and ready.
type Memory struct {
	mu     sync.Mutex
	logs   map[session.ID]*log
	held   map[session.ID]*Writer // leases, also of sessions that are not stored yet
	blobs  map[string][]byte
	trash  map[session.ID]*log
	purged map[session.ID]bool // ids that are never used again

	lives int // how many writers there were, for nonces

	changed chan struct{} // closed at the next change, for feeds that wait; nil: none does
}

// wake tells all feeds that something changed. The caller holds mu.
func (m *Memory) wake() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// Store is a handle on a Memory. It implements store.Store, Forker, Taker, Lister, Remover,
// Watcher and Blobs.
type Store struct {
	mem    *Memory
	opt    Options
	closed bool // guarded by mem.mu
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Forker  = (*Store)(nil)
	_ store.Lister  = (*Store)(nil)
	_ store.Taker   = (*Store)(nil)
	_ store.Blobs   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Writer  = (*Writer)(nil)
)

// New returns a handle on a Memory of its own.
func New(opt Options) *Store { return new(Memory).Open(opt) }

// Open returns a handle on m.
func (m *Memory) Open(opt Options) *Store {
	if opt.Now == nil {
		panic("memstore: Options.Now is required")
	}
	return &Store{mem: m, opt: opt}
}

// Memory returns the medium of s.
func (s *Store) Memory() *Memory { return s.mem }

// lock takes the lock, unless ctx is done or the store closed.
func (s *Store) lock(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mem.mu.Lock()
	if s.closed {
		s.mem.mu.Unlock()
		return fmt.Errorf("memstore: the store is %w", store.ErrClosed)
	}
	return nil
}

// Close ends the writers of this handle. The sessions stay in the Memory.
func (s *Store) Close() error {
	m := s.mem
	m.mu.Lock()
	defer m.mu.Unlock()
	s.closed = true
	m.wake()
	for id, w := range m.held {
		if w.store == s {
			w.closed = true
			delete(m.held, id)
		}
	}
	return nil
}

// Create reserves the id of h.
func (s *Store) Create(ctx context.Context, h session.Header) (store.Writer, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	if h.SeedLength > 0 {
		return nil, fmt.Errorf("memstore: the header of %s inherits %d events: CreateFork makes such a session", h.ID, h.SeedLength)
	}
	head, err := record.AppendHeader(nil, h)
	if err != nil {
		return nil, err
	}
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mem.mu.Unlock()
	if err := s.mem.taken(h.ID); err != nil {
		return nil, err
	}
	return s.hold(&log{header: h, bytes: int64(len(head)), activity: h.CreatedAt}), nil
}

// taken returns ExistsError if id is stored or held.
func (m *Memory) taken(id session.ID) error {
	if m.logs[id] != nil {
		return &store.ExistsError{ID: id}
	}
	if m.trash[id] != nil || m.purged[id] {
		return &store.ExistsError{ID: id, Deleted: true, Purged: m.purged[id]}
	}
	if w := m.held[id]; w != nil {
		return &store.ExistsError{ID: id, Detail: "it is being created by " + w.holder.Program}
	}
	return nil
}

// hold makes a writer of l, which nobody holds.
func (s *Store) hold(l *log) *Writer {
	m := s.mem
	m.lives++
	id := l.header.ID
	w := &Writer{store: s, log: l, opened: m.snapshot(l), pos: l.pos, base: session.None}
	w.holder = store.Holder{Nonce: fmt.Sprintf("life-%d", m.lives), PID: s.opt.PID, Host: s.opt.Host,
		Program: s.opt.Program, Since: s.opt.Now(), SessionID: id}
	if m.held == nil {
		m.held = map[session.ID]*Writer{}
	}
	m.held[id] = w
	m.wake()
	return w
}

// Open takes the lease of a stored session.
func (s *Store) Open(ctx context.Context, id session.ID) (store.Writer, error) {
	l, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.mem.mu.Unlock()
	if w := s.mem.held[id]; w != nil {
		h := w.holder
		return nil, &store.BusyError{ID: id, Holder: &h}
	}
	return s.hold(l), nil
}

// find returns the log of id and leaves the lock taken if there is one.
func (s *Store) find(ctx context.Context, id session.ID) (*log, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	l := s.mem.logs[id]
	if l == nil {
		defer s.mem.mu.Unlock()
		return nil, s.mem.absent(id)
	}
	return l, nil
}

// Read returns what is written now.
func (s *Store) Read(ctx context.Context, id session.ID) (*store.Snapshot, error) {
	l, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.mem.mu.Unlock()
	return s.mem.snapshot(l), nil
}

// Stat returns the facts that the log keeps as records arrive.
func (s *Store) Stat(ctx context.Context, id session.ID) (store.Stat, error) {
	l, err := s.find(ctx, id)
	if err != nil {
		return store.Stat{}, err
	}
	defer s.mem.mu.Unlock()
	return s.mem.stat(l), nil
}

func (m *Memory) stat(l *log) store.Stat {
	st := store.Stat{ID: l.header.ID, Header: l.header, Pos: l.pos, LastActivity: l.activity, Bytes: l.bytes,
		State: store.StateOK, Base: l.pos.Next, Title: l.title().Title}
	if w := m.held[l.header.ID]; w != nil {
		h := w.holder
		st.Holder = &h
		if w.base != session.None {
			st.Base = w.base
		}
	}
	return st
}

// DropLease makes the holder of id, if there is one, lose its lease without knowing it, as a process
// does that was paused while its lock went away. Others can then open the session; which of the two
// writes on is decided by who appends first. It is for tests of fencing.
func (m *Memory) DropLease(id session.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, id)
	m.wake()
}

// List returns a page.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.lock(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.mem.mu.Unlock()
	after, err := parseCursor(q.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	var page store.Page
	logs := s.mem.logs
	if q.Trash {
		logs = s.mem.trash
	}
	for _, l := range logs {
		h := l.header
		if !q.InProject(h) {
			continue
		}
		if q.Kinds != nil && !slices.Contains(q.Kinds, h.Kind) {
			if page.Hidden == nil {
				page.Hidden = map[session.SessionKind]int{}
			}
			page.Hidden[h.Kind]++
			continue
		}
		page.Total++
		if st := s.mem.stat(l); q.Cursor == "" || after.before(key(st, q)) {
			page.Rows = append(page.Rows, st)
		}
	}
	slices.SortFunc(page.Rows, func(a, b store.Stat) int { return key(a, q).compare(key(b, q)) })
	if n := q.Limit; n > 0 && len(page.Rows) > n {
		page.Rows = page.Rows[:n:n]
		page.Next = key(page.Rows[n-1], q).cursor()
	}
	return page, nil
}

// Match returns the ids that begin with prefix, in order.
func (s *Store) Match(ctx context.Context, prefix string, limit int) ([]session.ID, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mem.mu.Unlock()
	return match(s.mem.logs, prefix, limit), nil
}

func match(logs map[session.ID]*log, prefix string, limit int) []session.ID {
	var out []session.ID
	for id := range logs {
		if len(id) >= len(prefix) && string(id[:len(prefix)]) == prefix {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), max(limit, 0))]
}
