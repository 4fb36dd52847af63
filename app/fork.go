package app

import (
	"context"
	"errors"
	"os"

	"github.com/strandline-dev/strandline/importer/native"
	"github.com/strandline-dev/strandline/record"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Forked is what a fork is known by.
type Forked struct {
	ID     session.ID  `json:"id"`
	Parent session.ID  `json:"parent"`
	Seq    session.Seq `json:"seq"` // the last event that it shares
	// Of a fork into another store: its directory.
	Store string `json:"store,omitzero"`
}

// Fork makes a fork of a stored session, whoever holds it. at nil: the last legal cut.
func (a *App) Fork(ctx context.Context, id session.ID, at *session.Seq) (Forked, error) {
	h, err := store.Fork(ctx, a.Store, id, a.forkOptions(at))
	if err != nil {
		return Forked{}, err
	}
	return Forked{ID: h.ID, Parent: h.Parent.ID, Seq: h.Parent.Seq}, nil
}

func (a *App) forkOptions(at *session.Seq) store.ForkOptions {
	return store.ForkOptions{At: at, Child: NewID(), Now: Now(), Registry: a.Registry}
}

// ForkTo makes a fork in the store that to names (as Options.Store does): what the session shares is copied, with
// the blobs that it names. This store is only read. The fork is there whole, or not at all.
func (a *App) ForkTo(ctx context.Context, id session.ID, at *session.Seq, to string) (Forked, error) {
	root, err := StoreRoot(to)
	if err != nil {
		return Forked{}, err
	}
	if sameDir(root, a.Root) {
		return Forked{}, &UsageError{"--to " + to, "the session is in that store", "leave --to out: a fork in the same store copies nothing"}
	}
	other, err := openStore(root, a.host)
	if err != nil {
		return Forked{}, err
	}
	opt := store.CopyOptions{ForkOptions: a.forkOptions(at), Tool: native.Name}
	if blobs, ok := a.Store.(store.Blobs); ok {
		opt.Carry = carrier{id: id, from: blobs, to: other, done: map[string]bool{}}.carry
	}
	h, err := store.ForkTo(ctx, a.Store, id, other, opt)
	if err = errors.Join(err, other.Close()); err != nil {
		return Forked{}, err
	}
	return Forked{ID: h.ID, Parent: id, Seq: h.Imported.SeedLength - 1, Store: root}, nil
}

func sameDir(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return a == b
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// carrier brings blobs from one store to another.
type carrier struct {
	id       session.ID
	from, to store.Blobs
	done     map[string]bool
}

// carry brings over the blobs that stand in an event by their names. A name that is no blob of the store is a text
// like any other. (The texts of an event that are kept as blobs themselves are part of it already.)
func (c carrier) carry(ctx context.Context, ev session.Event) error {
	return record.FindBlobNames(ev.Data, func(name string, _ int) error {
		if c.done[name] {
			return nil
		}
		b, err := c.from.GetBlob(ctx, name)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if d, ok := errors.AsType[*store.DamagedError](err); ok && len(d.Ranges) > 0 {
			r := d.Ranges[0]
			r.First, r.Last = ev.Seq, ev.Seq
			return &store.DamagedError{ID: c.id, Owner: c.id, Ranges: []store.Range{r}}
		}
		if err == nil {
			_, err = c.to.PutBlob(ctx, b)
		}
		c.done[name] = err == nil
		return err
	})
}
