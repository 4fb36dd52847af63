package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// StoreFacts is what a store holds. Amounts are numbers of files and their bytes.
type StoreFacts struct {
	Root     string                      `json:"root"`
	Format   int                         `json:"format"` // 0: nothing was ever stored
	Store    string                      `json:"store"`
	Bad      string                      `json:"bad"` // why the file that says both cannot be read
	Writable bool                        `json:"writable"`
	ReadOnly string                      `json:"readOnly"` // why it is not writable
	Locks    bool                        `json:"locks"`    // a second lock was refused
	NoLocks  string                      `json:"noLocks"`  // why they do not work, or that nobody knows
	Sessions int                         `json:"sessions"`
	Kinds    map[session.SessionKind]int `json:"kinds"` // of those that can be read
	States   map[store.State]int         `json:"states"`
	Held     int                         `json:"held"` // somebody writes them now
	Segments store.Amount                `json:"segments"`
	Packed   store.Amount                `json:"packed"`
	Blobs    store.Amount                `json:"blobs"`
	BadBlobs store.Amount                `json:"badBlobs"`
	Trash    store.Amount                `json:"trash"`
	Aside    store.Amount                `json:"aside"`
	Litter   store.Amount                `json:"litter"`
}

func noUpkeep(what string) error { return fmt.Errorf("this store cannot %s", what) }

// Facts tells what the store holds. It changes and creates nothing.
func (a *App) Facts(ctx context.Context) (StoreFacts, error) {
	f := StoreFacts{Kinds: map[session.SessionKind]int{}, States: map[store.State]int{}}
	sv, ok := a.Store.(store.Surveyor)
	l, lists := a.Store.(store.Lister)
	if !ok || !lists {
		return f, noUpkeep("be surveyed")
	}
	v, err := sv.Survey(ctx)
	if err != nil {
		return f, err
	}
	f.Root, f.Format, f.Store, f.Bad, f.ReadOnly, f.NoLocks = v.Root, v.Format, v.Store, v.Bad, v.ReadOnly, v.Locks
	f.Writable, f.Locks = v.ReadOnly == "", v.Locks == ""
	f.Segments, f.Packed, f.Blobs, f.BadBlobs, f.Trash, f.Aside, f.Litter = v.Segments, v.Packed, v.Blobs, v.BadBlobs, v.Trash, v.Aside, v.Litter
	page, err := l.List(ctx, store.Query{})
	if err != nil {
		return f, err
	}
	f.Sessions = len(page.Rows)
	for _, r := range page.Rows {
		f.States[r.State]++
		if r.Header.ID != "" {
			f.Kinds[r.Header.Kind]++
		}
		if r.Holder != nil {
			f.Held++
		}
	}
	return f, nil
}

// Footprint is what a session takes.
type Footprint struct {
	ID     session.ID   `json:"id"`
	Trash  bool         `json:"trash"`
	Own    int64        `json:"own"`    // bytes of its own files
	Alone  store.Amount `json:"alone"`  // blobs that only it needs
	Shared store.Amount `json:"shared"` // blobs that others need too
	Unread string       `json:"unread"` // why it could not be measured wholly; "": it could
}

// Sizes measures every session, the largest first.
func (a *App) Sizes(ctx context.Context, step func(i, n int)) ([]Footprint, error) {
	sv, ok := a.Store.(store.Surveyor)
	if !ok {
		return nil, noUpkeep("be measured")
	}
	rows, err := sv.Sizes(ctx, step)
	if err != nil {
		return nil, err
	}
	out := make([]Footprint, len(rows))
	for i, r := range rows {
		out[i] = Footprint{r.ID, r.Trashed, r.Own, r.Alone, r.Shared, r.Unread}
	}
	slices.SortStableFunc(out, func(x, y Footprint) int { return cmp.Compare(y.Own+y.Alone.Bytes, x.Own+x.Alone.Bytes) })
	return out, nil
}

// Packed is what became of a session that was to be packed.
type Packed struct {
	ID          session.ID `json:"id"`
	Before      int        `json:"segmentsBefore"`
	After       int        `json:"segmentsAfter"`
	BytesBefore int64      `json:"bytesBefore"`
	BytesAfter  int64      `json:"bytesAfter"`
	Aside       int64      `json:"aside"` // bytes of no record, which are kept beside the log
}

// Pack joins and compresses what ended lives of a session wrote.
func (a *App) Pack(ctx context.Context, id session.ID) (Packed, error) {
	p, ok := a.Store.(store.Packer)
	if !ok {
		return Packed{ID: id}, noUpkeep("pack")
	}
	r, err := p.Pack(ctx, id)
	return Packed{id, r.Before, r.After, r.BytesBefore, r.BytesAfter, r.Aside}, err
}

// Check is what a check of the whole store found.
type Check struct {
	Sessions    int      `json:"sessions"`
	BadSessions int      `json:"badSessions"`
	Blobs       int      `json:"blobs"`
	BadBlobs    []string `json:"badBlobs"` // names of blobs whose bytes do not have their name, or cannot be read
}

// CheckStore verifies every session and every blob. It calls step before each, with how far it is, and found with
// each session that has a problem.
func (a *App) CheckStore(ctx context.Context, step func(what string, i, n int), found func(Health) error) (Check, error) {
	c := Check{BadBlobs: []string{}}
	ids, err := a.AllIDs(ctx)
	if err != nil {
		return c, err
	}
	for i, id := range ids {
		step("session", i+1, len(ids))
		h, err := a.Doctor(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return c, err
		}
		c.Sessions++
		if len(h.Problems) > 0 {
			c.BadSessions++
			if err := found(h); err != nil {
				return c, err
			}
		}
	}
	sv, ok := a.Store.(store.Surveyor)
	b, blobs := a.Store.(store.Blobs)
	if !ok || !blobs {
		return c, noUpkeep("list its blobs")
	}
	err = sv.EachBlob(ctx, func(name string, _ int64) error {
		c.Blobs++
		step("blob", c.Blobs, 0)
		_, err := b.GetBlob(ctx, name)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, store.ErrNotFound):
			c.Blobs-- // collected meanwhile
		case err != nil:
			c.BadBlobs = append(c.BadBlobs, name)
		}
		return nil
	})
	return c, err
}

// Collected is what a collection found and did.
type Collected struct {
	Removed store.Amount   `json:"removed"` // named by nothing
	Kept    store.Amount   `json:"kept"`    // named
	Unsure  store.Amount   `json:"unsure"`  // kept because of what is unread
	Unread  []store.Unread `json:"unread"`  // what cannot be read, and so may name anything
	Litter  store.Amount   `json:"litter"`  // left by processes that died: removed
	DryRun  bool           `json:"dryRun"`
}

// collectWait is how long a collection waits for writers that have put a value and not yet named it.
const collectWait = 10 * time.Second

// Collect removes the blobs that nothing in the store names.
func (a *App) Collect(ctx context.Context, dryRun bool, step func(i, n int)) (Collected, error) {
	c, ok := a.Store.(store.Collector)
	if !ok {
		return Collected{}, noUpkeep("collect")
	}
	r, err := c.Collect(ctx, store.CollectOptions{DryRun: dryRun, Wait: collectWait, Step: step})
	if r.Unread == nil {
		r.Unread = []store.Unread{}
	}
	return Collected{r.Removed, r.Kept, r.Unsure, r.Unread, r.Litter, dryRun}, err
}
