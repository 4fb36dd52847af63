package memstore

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// CreateFork stores a session that shares its parent's records.
func (s *Store) CreateFork(ctx context.Context, h session.Header, own []session.Event) error {
	if err := h.Validate(); err != nil {
		return err
	}
	if h.Parent == nil {
		return fmt.Errorf("memstore: the header of %s names no parent", h.ID)
	}
	head, err := record.AppendHeader(nil, h)
	if err != nil {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	m := s.mem
	defer m.mu.Unlock()
	if err := m.taken(h.ID); err != nil {
		return err
	}
	parent := m.logs[h.Parent.ID]
	if parent == nil {
		parent = m.trash[h.Parent.ID]
	}
	if parent == nil {
		return &store.NotFoundError{ID: string(h.Parent.ID)}
	}
	n := h.SeedLength
	link, err := m.linkBefore(parent, n)
	if err != nil {
		return err
	}
	if link != h.Parent.Link {
		return fmt.Errorf("memstore: fork of %s at %d: the link there is %s, the header says %s", h.Parent.ID, n-1, link, h.Parent.Link)
	}
	if spans := parent.header.Spans(n); !slices.Equal(spans, h.Parent.Spans) {
		return fmt.Errorf("memstore: fork of %s at %d: its spans are %v, the header says %v", h.Parent.ID, n-1, spans, h.Parent.Spans)
	}
	l := &log{header: h, inherited: parent.runs(n), own: run{first: n}, pos: store.Pos{Next: n, Link: link},
		bytes: int64(len(head)), activity: h.Parent.Activity}
	if l.activity == 0 {
		l.activity = h.CreatedAt
	}
	for _, t := range parent.titles {
		if t.seq < n {
			l.titles = append(l.titles, t)
		}
	}
	b, err := m.encode(h.ID, l.pos, own)
	if err != nil {
		return err
	}
	l.add(b, own)
	m.logs[h.ID] = l
	return nil
}

// Take stores a session that was made elsewhere.
func (s *Store) Take(ctx context.Context, h session.Header, all iter.Seq2[session.Event, error]) error {
	var events []session.Event
	for ev, err := range all {
		if err != nil {
			return err
		}
		events = append(events, ev)
	}
	head, err := record.AppendHeader(nil, h)
	if err != nil {
		return err
	}
	if h.Parent != nil {
		return fmt.Errorf("memstore: %s names a parent: that is a fork", h.ID)
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	m := s.mem
	defer m.mu.Unlock()
	if err := m.taken(h.ID); err != nil {
		return err
	}
	l := &log{header: h, bytes: int64(len(head)), activity: h.CreatedAt}
	b, err := m.encode(h.ID, l.pos, events)
	if err != nil {
		return err
	}
	l.add(b, events)
	if m.logs == nil {
		m.logs = map[session.ID]*log{}
	}
	m.logs[h.ID] = l
	return nil
}

// linkBefore returns the link of the record before seq n of l.
func (m *Memory) linkBefore(l *log, n session.Seq) (session.Link, error) {
	if n > l.pos.Next {
		return session.Link{}, &session.BoundaryError{At: n - 1, Len: l.pos.Next}
	}
	if n == 0 {
		return session.Link{}, nil
	}
	line, err := prefix{m, l.runs(n), n}.line(n - 1)
	if err != nil {
		return session.Link{}, err
	}
	raw, err := record.Parse(line)
	if err != nil {
		return session.Link{}, err
	}
	link, _ := raw.Link()
	return link, nil
}

// LinkAt returns the link of the event at seq.
func (s *Store) LinkAt(ctx context.Context, id session.ID, seq session.Seq) (session.Link, error) {
	l, err := s.find(ctx, id)
	if err != nil {
		return session.Link{}, err
	}
	defer s.mem.mu.Unlock()
	if seq < 0 {
		return session.Link{}, &session.BoundaryError{At: seq, Len: l.pos.Next}
	}
	return s.mem.linkBefore(l, seq+1)
}

// Trail returns no links: a log in memory does not lose its end.
func (s *Store) Trail(ctx context.Context, id session.ID, seq session.Seq) ([]session.Waypoint, error) {
	_, err := s.LinkAt(ctx, id, seq)
	return []session.Waypoint{}, err
}

// PutBlob stores data under its hash.
func (s *Store) PutBlob(ctx context.Context, data []byte) (string, error) {
	if err := s.lock(ctx); err != nil {
		return "", err
	}
	defer s.mem.mu.Unlock()
	return s.mem.put(data)
}

// ReleaseBlob does nothing: nobody collects here.
func (s *Store) ReleaseBlob(string) {}

// GetBlob returns the bytes that have the given name.
func (s *Store) GetBlob(ctx context.Context, name string) ([]byte, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	s.mem.mu.Unlock()
	return s.mem.get(name)
}

// put is called with the lock taken.
func (m *Memory) put(data []byte) (string, error) {
	name := record.BlobName(data)
	if m.blobs == nil {
		m.blobs = map[string][]byte{}
	}
	if m.blobs[name] == nil {
		m.blobs[name] = append(make([]byte, 0, len(data)), data...)
	}
	return name, nil
}

// get is called without the lock.
func (m *Memory) get(name string) ([]byte, error) {
	m.mu.Lock()
	data, ok := m.blobs[name]
	m.mu.Unlock()
	if !ok {
		return nil, &store.NotFoundError{ID: name}
	}
	if record.BlobName(data) != name {
		return nil, &store.DamagedError{ID: session.ID(name), Ranges: []store.Range{{File: name, Bytes: int64(len(data)), First: 0, Last: -1,
			Detail: "the blob does not have the hash that names it"}}}
	}
	return bytes.Clone(data), nil
}

// CorruptBlob changes a byte of a stored blob. It is for tests of what readers say then.
func (m *Memory) CorruptBlob(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	bad := bytes.Clone(m.blobs[name])
	bad[len(bad)/2] ^= 1
	m.blobs[name] = bad
}
