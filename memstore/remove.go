package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

var _ store.Remover = (*Store)(nil)

// absent is the answer to who asks for a session that is not stored.
func (m *Memory) absent(id session.ID) error {
	return &store.NotFoundError{ID: string(id), Trashed: m.trash[id] != nil, Purged: m.purged[id]}
}

// Trash moves a session into the trash.
func (s *Store) Trash(ctx context.Context, id session.ID) error {
	l, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	m := s.mem
	defer m.mu.Unlock()
	if w := m.held[id]; w != nil {
		h := w.holder
		return &store.BusyError{ID: id, Holder: &h}
	}
	if m.trash == nil {
		m.trash = map[session.ID]*log{}
	}
	m.trash[id] = l
	delete(m.logs, id)
	return nil
}

// trashed returns the session id, which must be in the trash.
func (m *Memory) trashed(id session.ID) (*log, error) {
	switch l := m.trash[id]; {
	case l != nil:
		return l, nil
	case m.logs[id] != nil:
		return nil, &store.NotTrashedError{ID: id}
	}
	return nil, m.absent(id)
}

// Restore takes a session out of the trash.
func (s *Store) Restore(ctx context.Context, id session.ID) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	m := s.mem
	defer m.mu.Unlock()
	l, err := m.trashed(id)
	if err != nil {
		return err
	}
	m.logs[id] = l
	delete(m.trash, id)
	return nil
}

// each calls f with every session, those in the trash too.
func (m *Memory) each(f func(l *log, trashed bool)) {
	for _, l := range m.logs {
		f(l, false)
	}
	for _, l := range m.trash {
		f(l, true)
	}
}

// names adds the blobs that the records of l name, its inherited ones too, and those that these name.
func (m *Memory) names(l *log, into map[string]bool) {
	var add func(text []byte)
	add = func(text []byte) {
		_ = record.FindBlobNames(text, func(name string, _ int) error {
			if b := m.blobs[name]; !into[name] {
				into[name] = true
				if len(b) > 0 && b[0] == '"' {
					add(b)
				}
			}
			return nil
		})
	}
	for _, r := range append(slices.Clone(l.inherited), l.own) {
		for _, line := range r.lines {
			add(line)
		}
	}
}

// Dependents tells what others need of sessions.
func (s *Store) Dependents(ctx context.Context, ids []session.ID, blobs bool) ([]store.Dependents, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	m := s.mem
	defer m.mu.Unlock()
	var out []store.Dependents
	for _, id := range ids {
		l := m.logs[id]
		if l == nil {
			l = m.trash[id]
		}
		if l == nil {
			return nil, m.absent(id)
		}
		d := store.Dependents{ID: id}
		mine := map[string]bool{}
		if blobs {
			d.Blobs = []store.SharedBlob{}
			m.names(l, mine)
		}
		by := map[string][]session.ID{}
		m.each(func(o *log, trashed bool) {
			if slices.Contains(ids, o.header.ID) {
				return
			}
			if h, ok := heir(o, l, trashed); ok {
				d.Heirs = append(d.Heirs, h)
			}
			if blobs {
				theirs := map[string]bool{}
				m.names(o, theirs)
				for name := range theirs {
					if mine[name] && m.blobs[name] != nil {
						by[name] = append(by[name], o.header.ID)
					}
				}
			}
		})
		slices.SortFunc(d.Heirs, func(a, b store.Heir) int { return cmp.Compare(a.ID, b.ID) })
		for _, name := range slices.Sorted(maps.Keys(by)) {
			slices.Sort(by[name])
			d.Blobs = append(d.Blobs, store.SharedBlob{Name: name, Bytes: int64(len(m.blobs[name])), By: by[name]})
		}
		out = append(out, d)
	}
	return out, nil
}

// heir says what o begins with of l.
func heir(o, l *log, trashed bool) (store.Heir, bool) {
	if o.header.Parent == nil {
		return store.Heir{}, false
	}
	from := session.Seq(0)
	for _, sp := range o.header.Parent.Spans {
		if sp.ID == l.header.ID {
			h := store.Heir{ID: o.header.ID, Trashed: trashed, From: from, End: sp.End}
			for _, r := range o.inherited {
				for i, line := range r.lines {
					if q := r.first + session.Seq(i); from <= q && q < sp.End {
						h.Bytes += int64(len(line)) + 1
					}
				}
			}
			return h, true
		}
		from = sp.End
	}
	return store.Heir{}, false
}

// Purge removes sessions from the trash for good. Forks have shared their records from the beginning.
func (s *Store) Purge(ctx context.Context, ids []session.ID) []store.Purged {
	out := make([]store.Purged, len(ids))
	for i, id := range ids {
		out[i].ID = id
	}
	if err := s.lock(ctx); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	m := s.mem
	defer m.mu.Unlock()
	named := make([]map[string]bool, len(ids))
	for i, id := range ids {
		l, err := m.trashed(id)
		if err != nil {
			out[i].Err = err
			continue
		}
		named[i] = map[string]bool{}
		m.names(l, named[i])
		delete(m.trash, id)
		if m.purged == nil {
			m.purged = map[session.ID]bool{}
		}
		m.purged[id] = true
		out[i].Bytes = l.bytes
	}
	kept := map[string]bool{}
	m.each(func(l *log, _ bool) { m.names(l, kept) })
	for i := range out {
		for name := range named[i] {
			if b := m.blobs[name]; b != nil && !kept[name] {
				delete(m.blobs, name)
				out[i].Blobs++
				out[i].Bytes += int64(len(b))
			}
		}
	}
	return out
}

// MatchTrash returns the ids in the trash that begin with prefix, in order.
func (s *Store) MatchTrash(ctx context.Context, prefix string, limit int) ([]session.ID, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mem.mu.Unlock()
	return match(s.mem.trash, prefix, limit), nil
}
