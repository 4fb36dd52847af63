package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
)

// ForkOptions says what to fork. Child and Now are required.
type ForkOptions struct {
	At       *session.Seq // inclusive; nil: the last legal cut
	Child    session.ID
	Kind     session.SessionKind // "" = fork
	Now      int64               // Unix milliseconds, for the child's birth and boundary
	Depth    int                 // of delegation; the source's if that is deeper: it cannot be lowered
	Registry *session.Registry   // nil: the core vocabulary
}

// Fork makes a child of the stored session source: a pointer to its prefix and, in the child's first file,
// the closers of a turn that nobody runs and the boundary. It works on live and cold sessions, from any
// process, takes no lease on the source and costs the same at any length. The source is synced up to the
// cut and not otherwise touched.
//
// Errors, in this order: ErrExists (the child's id is taken), ErrNotFound, ErrUnsupported, ErrDamaged (nothing
// of it can be read), session.ErrBoundary (the cut is
// not a stored event), session.ErrOpenTurn (names the nearest cuts).
func Fork(ctx context.Context, st Store, source session.ID, opt ForkOptions) (session.Header, error) {
	forker, ok := st.(Forker)
	if !ok {
		return session.Header{}, errors.New("store: this store cannot fork")
	}
	if _, err := st.Stat(ctx, opt.Child); err == nil {
		return session.Header{}, &ExistsError{ID: opt.Child}
	} else if !errors.Is(err, ErrNotFound) {
		return session.Header{}, err
	}
	snap, cut, err := cutOf(ctx, st, source, opt)
	if err != nil {
		return session.Header{}, err
	}
	defer snap.Close()
	h, err := childHeader(ctx, forker, snap, cut, opt)
	if err != nil {
		return session.Header{}, err
	}
	own, err := childEvents(h, snap.Prefix, cut+1, opt)
	if err != nil {
		return session.Header{}, err
	}
	if err := forker.CreateFork(ctx, h, own); err != nil {
		return session.Header{}, err
	}
	return h, nil
}

// cutOf reads the source and finds where it is to be cut.
func cutOf(ctx context.Context, st Store, source session.ID, opt ForkOptions) (*Snapshot, session.Seq, error) {
	snap, stat, err := ReadSettled(ctx, st, source, func(ctx context.Context, id session.ID) (*Snapshot, error) {
		return PeekOrRead(ctx, st, id)
	})
	if err != nil {
		return nil, session.None, err
	}
	// Of an open turn somebody takes care who has written: at first its end, if it was another's.
	running := stat.LiveBase(snap.Pos.Next) < snap.Pos.Next
	cut := session.None
	switch {
	case snap.Unsupported != "":
		err = &UnsupportedError{ID: source, Detail: snap.Unsupported}
	case len(snap.Damage) > 0 && snap.Prefix.Len() == 0:
		err = &DamagedError{ID: source, Ranges: snap.Damage} // nothing is left to fork
	default:
		cut, err = findCut(snap.Prefix, opt.At, running)
	}
	if err != nil {
		return nil, session.None, errors.Join(err, snap.Close())
	}
	return snap, cut, nil
}

// PeekOrRead reads as little of the log as the store allows, for who looks at its end: a fork at that and at its cut.
func PeekOrRead(ctx context.Context, st Store, id session.ID) (*Snapshot, error) {
	if p, ok := st.(Peeker); ok {
		if snap, err := p.Peek(ctx, id); err != nil || snap != nil {
			return snap, err
		}
	}
	return st.Read(ctx, id)
}

func findCut(p session.Prefix, at *session.Seq, running bool) (session.Seq, error) {
	if at == nil {
		return session.LastCut(p, running)
	}
	return *at, session.CheckCut(p, *at, running)
}

func childHeader(ctx context.Context, f Forker, snap *Snapshot, cut session.Seq, opt ForkOptions) (session.Header, error) {
	src := snap.Header
	h := session.Header{
		Format: session.Format, ID: opt.Child, CreatedAt: opt.Now, Kind: opt.Kind,
		Cwd: src.Cwd, Project: src.Project, ProjectID: src.ProjectID, Depth: max(src.Depth, opt.Depth), SeedLength: cut + 1,
		Parent: &session.Parent{ID: src.ID, Seq: cut, Spans: src.Spans(cut + 1)},
	}
	if h.Kind == "" {
		h.Kind = session.KindFork
	}
	var err error
	if cut != session.None {
		if err := Trace(ctx, f, src, &h); err != nil {
			return h, fmt.Errorf("store: fork of %s at %d: %w", src.ID, cut, err)
		}
		last, err := snap.Prefix.At(cut)
		if err != nil {
			return h, err
		}
		h.CreatedAt = max(h.CreatedAt, last.Time) // whatever the clock shows: who repairs asks which was first
	}
	h.Parent.Activity, err = session.LastActivityBefore(snap.Prefix, cut+1, h.CreatedAt)
	return h, err
}

// Trace fills in the links of the header h, which names a seq of the session of src that it is forked at.
func Trace(ctx context.Context, f Forker, src session.Header, h *session.Header) error {
	link, err := f.LinkAt(ctx, src.ID, h.Parent.Seq)
	if err != nil {
		return err
	}
	trail, err := f.Trail(ctx, src.ID, h.Parent.Seq)
	h.Parent.Link, h.Parent.Trail = link, src.Trail(h.Parent.Seq, trail)
	return err
}

// childEvents returns what stands in the child's first file: closers, if the cut lies in a turn, and the
// boundary, unless the n inherited events end in one. Only the open turn is folded.
func childEvents(h session.Header, p session.Prefix, n session.Seq, opt ForkOptions) ([]session.Event, error) {
	if n == 0 {
		return nil, nil
	}
	last, err := p.At(n - 1)
	if err != nil {
		return nil, err
	}
	start, open, err := session.OpenTurnAt(p, n-1)
	if err != nil {
		return nil, err
	}
	var own []session.Event
	if open {
		reg := opt.Registry
		if reg == nil {
			reg = session.Core()
		}
		st := session.NewState(h, reg)
		for ev, err := range p.Range(start, n) {
			if err != nil {
				return nil, err
			}
			st.Load(ev)
		}
		own = st.Closers()
	}
	if len(own) == 0 && last.Type == session.TypeInherited {
		return nil, nil
	}
	return append(own, session.Event{
		Seq: n + session.Seq(len(own)), Time: opt.Now, Type: session.TypeInherited, Data: jsontext.Value(`{}`),
	}), nil
}
