package memstore

import (
	"bytes"
	"context"
	"fmt"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Writer is one life of a session. Memory.mu guards what changes.
type Writer struct {
	store  *Store
	log    *log
	opened *store.Snapshot
	holder store.Holder

	pos    store.Pos // the end of the log as this life knows it
	base   session.Seq
	closed bool
}

// Header returns the session's header.
func (w *Writer) Header() session.Header { return w.log.header }

// Opened returns what was stored when the lease was taken.
func (w *Writer) Opened() *store.Snapshot { return w.opened }

func (w *Writer) lock(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.store.mem.mu.Lock()
	if w.closed {
		w.store.mem.mu.Unlock()
		return fmt.Errorf("memstore: the writer of session %s is %w", w.log.header.ID, store.ErrClosed)
	}
	return nil
}

// fenced compares what this life knows with what is there.
func (w *Writer) fenced() error {
	m, id := w.store.mem, w.log.header.ID
	if at := m.logs[id]; at != nil && at != w.log || w.log.pos != w.pos {
		pos := w.pos
		if at != nil {
			pos = at.pos
		}
		return &store.FencedError{ID: id, At: pos, Detail: "it appended while this one did not hold the lease"}
	}
	return nil
}

// Append writes a batch.
func (w *Writer) Append(ctx context.Context, events []session.Event) (store.Pos, error) {
	if err := w.lock(ctx); err != nil {
		return store.Pos{}, err
	}
	m := w.store.mem
	defer m.mu.Unlock()
	if err := w.fenced(); err != nil {
		return store.Pos{}, err
	}
	events, err := w.unwritten(events)
	if err != nil || len(events) == 0 {
		return w.pos, err
	}
	b, err := m.encode(w.log.header.ID, w.pos, events)
	if err != nil {
		return store.Pos{}, err
	}
	if w.base == session.None {
		w.base = events[0].Seq
	}
	w.log.add(b, events)
	w.pos = w.log.pos
	if m.logs == nil {
		m.logs = map[session.ID]*log{}
	}
	m.logs[w.log.header.ID] = w.log
	m.wake()
	return w.pos, nil
}

// unwritten takes off the events that are written already, which must be equal to what is there.
func (w *Writer) unwritten(events []session.Event) ([]session.Event, error) {
	m := w.store.mem
	p := prefix{m, w.log.runs(w.pos.Next), w.pos.Next}
	for len(events) > 0 && events[0].Seq < w.pos.Next {
		ev := events[0]
		old, err := p.line(ev.Seq)
		if err != nil {
			return nil, err
		}
		if ev.Data, err = record.Externalize(ev.Data, record.BlobLimit, m.put); err != nil {
			return nil, err
		}
		raw, err := record.Parse(old)
		if err != nil {
			return nil, err
		}
		// A body followed by nothing but a chain: what is linked, and no mark.
		again, _ := record.Append(nil, ev, session.Link{}, session.None)
		if same, err := record.Parse(again[:len(again)-1]); err != nil || !bytes.Equal(same.Body(), raw.Body()) {
			return nil, fmt.Errorf("memstore: event %d of session %s is written already, and is another one", ev.Seq, w.log.header.ID)
		}
		events = events[1:]
	}
	return events, nil
}

// Flush checks that this life still owns the log.
func (w *Writer) Flush(ctx context.Context) (store.Pos, error) {
	if err := w.lock(ctx); err != nil {
		return store.Pos{}, err
	}
	defer w.store.mem.mu.Unlock()
	return w.pos, w.fenced()
}

// Stored returns the written events.
func (w *Writer) Stored() session.Prefix {
	w.store.mem.mu.Lock()
	defer w.store.mem.mu.Unlock()
	return w.store.mem.snapshot(w.log).Prefix
}

// Base returns the first seq that this life wrote.
func (w *Writer) Base() session.Seq {
	w.store.mem.mu.Lock()
	defer w.store.mem.mu.Unlock()
	return w.base
}

// Close releases the lease.
func (w *Writer) Close() error {
	m := w.store.mem
	m.mu.Lock()
	defer m.mu.Unlock()
	w.closed = true
	if m.held[w.log.header.ID] == w {
		delete(m.held, w.log.header.ID)
		m.wake()
	}
	return nil
}
