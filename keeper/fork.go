package keeper

import (
	"context"
	"errors"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Fork makes a child of a session, live here or cold; the child is on disk when it returns, and its header is
// the result. A Child or Now that is missing is filled in. Of a session that is live here the cut is judged
// by what it has accepted, and that is saved up to the cut first. Errors, in this order: ErrExists (the
// child's id is taken), ErrNotFound (also while nothing of the source is stored), session.ErrBoundary,
// session.ErrOpenTurn, *NotSavedError.
func (k *Keeper) Fork(ctx context.Context, source session.ID, opt store.ForkOptions) (session.Header, error) {
	if opt.Child == "" {
		opt.Child = k.opt.NewID()
	}
	if opt.Now == 0 {
		opt.Now = k.opt.Now()
	}
	if opt.Registry == nil {
		opt.Registry = k.opt.Registry
	}
	unlock, err := k.begin(ctx, opt.Child)
	if err != nil {
		return session.Header{}, err
	}
	defer unlock()
	if phase := k.lv.Phase(opt.Child); phase != "" {
		return session.Header{}, &store.ExistsError{ID: opt.Child, Detail: "it is " + string(phase) + " in this process"}
	}
	h, ok := k.Get(source)
	if !ok {
		return store.Fork(ctx, k.st, source, opt)
	}
	if _, err := k.st.Stat(ctx, opt.Child); err == nil {
		return session.Header{}, &store.ExistsError{ID: opt.Child}
	} else if !errors.Is(err, store.ErrNotFound) {
		return session.Header{}, err
	}
	cut, err := h.cut(opt.At)
	if err != nil {
		return session.Header{}, err
	}
	if h.Synced() <= max(cut, 0) { // at None too: a child names a source that is stored
		if err := h.Flush(ctx); err != nil {
			return session.Header{}, err
		}
	}
	if cut == session.None {
		return k.emptyFork(ctx, h.header, opt)
	}
	opt.At = &cut
	return store.Fork(ctx, k.st, source, opt)
}

// cut finds the cut in what the session has accepted. What is pending is not there to be named; an open turn
// in front of it is one that nobody runs.
func (h *Handle) cut(at *session.Seq) (session.Seq, error) {
	h.mu.Lock()
	n, running := h.next, h.hasAccepted()
	h.mu.Unlock()
	if running {
		n = h.sess.Head()
	} else {
		_, running = h.sess.State().Turn()
	}
	p := session.Sub(h.sess.Events(), n)
	if at == nil {
		return session.LastCut(p, running)
	}
	return *at, session.CheckCut(p, *at, running)
}

// emptyFork makes a child that inherits nothing but its lineage: the source has no event yet, or its first
// turn is running.
func (k *Keeper) emptyFork(ctx context.Context, src session.Header, opt store.ForkOptions) (session.Header, error) {
	h := childHeader(src, session.None, opt)
	h.Parent.Activity = h.CreatedAt // as a fold of its log has it
	f, ok := k.st.(store.Forker)
	if !ok {
		return session.Header{}, errNoForks
	}
	if err := f.CreateFork(ctx, h, nil); err != nil {
		return session.Header{}, err
	}
	return h, nil
}

var errNoForks = errors.New("keeper: this store cannot fork")

// childHeader is the header of a child of src cut at seq; link and activity are left to the caller.
func childHeader(src session.Header, cut session.Seq, opt store.ForkOptions) session.Header {
	h := session.Header{
		Format: session.Format, ID: opt.Child, CreatedAt: opt.Now, Kind: opt.Kind, Depth: max(src.Depth, opt.Depth),
		Cwd: src.Cwd, Project: src.Project, ProjectID: src.ProjectID, SeedLength: cut + 1,
		Parent: &session.Parent{ID: src.ID, Seq: cut, Spans: src.Spans(cut + 1)},
	}
	if h.Kind == "" {
		h.Kind = session.KindFork
	}
	return h
}
