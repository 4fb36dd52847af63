package memstore

import (
	"context"
	"fmt"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

const newsEvents = 512 // given out at once, at most

// Watch follows the log of id from the event at from on.
func (s *Store) Watch(ctx context.Context, id session.ID, from session.Seq) (store.Feed, error) {
	if from < 0 {
		return nil, fmt.Errorf("memstore: seq %d: %w", from, session.ErrRange)
	}
	l, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.mem.mu.Unlock()
	return &feed{store: s, log: l, due: from}, nil
}

// feed is a place in a log. Memory wakes it at every change.
type feed struct {
	store *Store
	log   *log
	due   session.Seq

	told   bool
	holder string // nonce of who held the session when told, "" for nobody
	closed bool
}

func (f *feed) Close() error {
	f.closed = true
	return nil
}

// Next waits for events, or for another holder.
func (f *feed) Next(ctx context.Context) (store.News, error) {
	for {
		p, news, changed, err := f.look(ctx)
		switch {
		case err != nil:
			return store.News{}, err
		case p.n > f.due:
			for ev, err := range p.Range(f.due, p.n) {
				if err != nil {
					return store.News{}, err
				}
				news.Events = append(news.Events, ev)
			}
			f.due, f.told = p.n, false
			return news, nil
		case changed == nil:
			return news, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return store.News{}, context.Cause(ctx)
		}
	}
}

// look returns the log up to the end of what is given out next, or else who holds the session, or else what tells
// when to look again.
func (f *feed) look(ctx context.Context) (p prefix, news store.News, changed <-chan struct{}, err error) {
	m, id := f.store.mem, f.log.header.ID
	if f.closed {
		return p, news, nil, fmt.Errorf("memstore: the feed of %s is %w", id, store.ErrClosed)
	}
	if err := f.store.lock(ctx); err != nil {
		return p, news, nil, err
	}
	defer m.mu.Unlock()
	if m.logs[id] != f.log {
		return p, news, nil, &store.NotFoundError{ID: string(id)}
	}
	if n := min(f.log.pos.Next, f.due+newsEvents); f.due < n {
		return prefix{m, f.log.runs(n), n}, news, nil, nil
	}
	nonce := ""
	if w := m.held[id]; w != nil {
		h := w.holder
		news.Holder, nonce = &h, h.Nonce
	}
	if !f.told || nonce != f.holder {
		f.told, f.holder = true, nonce
		return p, news, nil, nil
	}
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return p, news, m.changed, nil
}
