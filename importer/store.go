package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// store reads the file again and stores it under h.
func (j *job) store(ctx context.Context, h session.Header) error {
	p := &placer{im: j.im, h: h, place: j.im.take}
	err := j.again(ctx, p.add)
	if err == nil {
		err = p.end(ctx)
	}
	if errors.Is(err, store.ErrExists) && !p.placed {
		// Somebody else imported the file meanwhile, or it is in the trash.
		if done, err2 := j.existing(ctx, h.ID); done || err2 != nil {
			return err2
		}
		if e, ok := errors.AsType[*store.ExistsError](err); ok && e.Purged {
			return err
		}
		return fmt.Errorf("it was imported as %s, which was deleted: restore that session: %w", h.ID, err)
	}
	if err != nil {
		return err
	}
	j.res.ID = h.ID
	j.im.remember(h)
	return nil
}

func (im *Importer) take(ctx context.Context, h session.Header, events []session.Event) error {
	return im.taker.Take(ctx, h, session.Events(events).Range(0, session.Seq(len(events))))
}

// again reads the file a second time. It must be what it was.
func (j *job) again(ctx context.Context, add func(context.Context, session.Event) error) error {
	blobs, _ := j.im.opt.Store.(store.Blobs)
	n := session.Seq(0)
	r, err := j.im.read(ctx, j.first.format, j.src, blobs, func(ev session.Event) error {
		if n++; n > j.first.log.Events {
			return errChanged
		}
		return add(ctx, ev)
	})
	if err == nil && (r.sum != j.first.sum || n != j.first.log.Events) {
		err = errChanged
	}
	return err
}

// placer stores events in batches: the first makes the session.
type placer struct {
	im     *Importer
	h      session.Header
	from   session.Seq // what is below it is stored already, by the parent of a fork
	place  func(context.Context, session.Header, []session.Event) error
	placed bool
	w      store.Writer
	batch  []session.Event
	size   int
}

func (p *placer) add(ctx context.Context, ev session.Event) error {
	if ev.Seq < p.from {
		return nil
	}
	p.batch = append(p.batch, ev)
	p.size += len(ev.Data) + 200
	if p.size < batchBytes {
		return nil
	}
	return p.flush(ctx)
}

func (p *placer) flush(ctx context.Context) error {
	defer func() { p.batch, p.size = nil, 0 }()
	if !p.placed {
		err := p.place(ctx, p.h, p.batch)
		p.placed = err == nil
		return err
	}
	if p.w == nil {
		w, err := p.im.opt.Store.Open(ctx, p.h.ID)
		if err != nil {
			return err
		}
		p.w = w
	}
	if len(p.batch) == 0 {
		return nil
	}
	_, err := p.w.Append(ctx, p.batch)
	return err
}

// end stores what is left. The last batch of a large session is only stored when the file was found to be what
// it was.
func (p *placer) end(ctx context.Context) error {
	if !p.placed || len(p.batch) > 0 {
		if err := p.flush(ctx); err != nil {
			return errors.Join(err, p.close())
		}
	}
	if p.w != nil {
		if _, err := p.w.Flush(ctx); err != nil {
			return errors.Join(err, p.close())
		}
	}
	return p.close()
}

func (p *placer) close() error {
	if p.w == nil {
		return nil
	}
	return p.w.Close()
}

// fill completes a session whose import was killed: what is stored must be the beginning of the file.
func (j *job) fill(ctx context.Context, id session.ID) error {
	w, err := j.im.opt.Store.Open(ctx, id)
	if err != nil {
		return err
	}
	defer w.Close()
	stored := w.Opened().Prefix
	p := &placer{im: j.im, h: w.Header(), from: stored.Len(), placed: true, w: w}
	var a, b []byte
	err = j.again(ctx, func(ctx context.Context, ev session.Event) error {
		if ev.Seq < p.from {
			old, err := stored.At(ev.Seq)
			if err != nil {
				return err
			}
			a, _ = record.Append(a[:0], ev, session.Link{}, session.None)
			b, _ = record.Append(b[:0], old, session.Link{}, session.None)
			if !bytes.Equal(a, b) {
				return fmt.Errorf("session %s is an import of this file that was not completed, and went on differently at seq %d", id, ev.Seq)
			}
			return nil
		}
		return p.add(ctx, ev)
	})
	if err != nil {
		return err
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	_, err = w.Flush(ctx)
	return err
}

// move takes in a session of this program under its own id and header. done is false if that is taken by another
// session: then it is imported like a foreign one.
func (j *job) move(ctx context.Context, h session.Header) (done bool, err error) {
	n := j.first.log.Events
	switch st, err := j.im.opt.Store.Stat(ctx, h.ID); {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return false, err
	default:
		if st.Pos.Next < n {
			same, err := j.begins(ctx, h.ID, st.Pos.Next)
			if same && st.Pos.Next > 0 {
				j.res.Older, j.begun = h.ID, st.Pos.Next
			}
			return false, err
		}
		same, err := j.begins(ctx, h.ID, n)
		if same && err == nil {
			j.res.ID, j.res.Existing = h.ID, true
		}
		return same, err
	}
	p := &placer{im: j.im, h: h, place: j.im.take}
	if h.Parent != nil {
		f, ok := j.im.opt.Store.(store.Forker)
		if !ok || h.SeedLength > n || !j.parentStored(ctx, f, h) {
			j.first.log.Fidelity.Drop("the pointer to its parent, which is not in this store: the session holds its events itself", 1)
			j.res.Fidelity = j.first.log.Fidelity
			j.res.Fidelity.Sort()
			return false, nil
		}
		p.from, p.place = h.SeedLength, f.CreateFork
	}
	err = j.again(ctx, p.add)
	if err == nil {
		err = p.end(ctx)
	}
	if errors.Is(err, store.ErrExists) && !p.placed {
		return false, nil // in the trash
	}
	j.res.ID = h.ID
	return true, err
}

// parentStored reports whether the parent of h is here and holds what h inherits.
func (j *job) parentStored(ctx context.Context, f store.Forker, h session.Header) bool {
	st, err := j.im.opt.Store.Stat(ctx, h.Parent.ID)
	if err != nil || st.Pos.Next < h.SeedLength || !sameSpans(st.Header.Spans(h.SeedLength), h.Parent.Spans) {
		return false
	}
	if h.Parent.Seq == session.None {
		return true
	}
	link, err := f.LinkAt(ctx, h.Parent.ID, h.Parent.Seq)
	if err != nil || link != h.Parent.Link {
		return false
	}
	same, err := j.begins(ctx, h.Parent.ID, h.SeedLength)
	return same && err == nil
}

func sameSpans(a, b []session.OriginSpan) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
