package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Heir is a fork that begins with events of a session that is deleted: it keeps them.
type Heir struct {
	ID      session.ID  `json:"id"`
	Trashed bool        `json:"trashed"`
	From    session.Seq `json:"from"`
	To      session.Seq `json:"to"`    // inclusive
	Bytes   int64       `json:"bytes"` // of the records
}

// SharedBlob is a value that a session names, and others too: it stays.
type SharedBlob struct {
	Name  string       `json:"name"`
	Bytes int64        `json:"bytes"`
	By    []session.ID `json:"by"`
}

// Removal is a session that is deleted, or brought back: what it is, what others need of it, and what was done.
type Removal struct {
	ID    session.ID   `json:"id"`
	Title string       `json:"title"`
	Forks []Heir       `json:"forks"`
	Blobs []SharedBlob `json:"blobs,omitzero"` // of a purge: null if nobody can tell
	Bytes int64        `json:"bytes,omitzero"` // that a purge deleted: its files, and the long values that went with it
	Done  string       `json:"done"`           // trashed, restored, purged; "" if nothing was done
	Error *string      `json:"error"`

	Err  error  `json:"-"`
	Note string `json:"-"` // what else a person should know
}

func (r *Removal) fail(err error) {
	r.Err = err
	s := err.Error()
	r.Error = &s
}

var errNoTrash = errors.New("this store cannot delete")

func (a *App) remover() (store.Remover, error) {
	r, ok := a.Store.(store.Remover)
	if !ok {
		return nil, errNoTrash
	}
	return r, nil
}

// InTrash returns the session in the trash that arg names: a full id, or the unambiguous beginning of one. Errors:
// store.ErrNotTrashed, store.ErrNotFound, *AmbiguousError.
func (a *App) InTrash(ctx context.Context, arg string) (session.ID, error) {
	r, err := a.remover()
	if err != nil {
		return "", err
	}
	if arg == Last {
		return "", &UsageError{What: Last, Why: "it is a session that was worked on, not one that was deleted", Hint: "give the id (strand ls --trash)"}
	}
	if session.ValidID(session.ID(arg)) != nil {
		return "", &store.NotFoundError{ID: arg}
	}
	ids, err := r.MatchTrash(ctx, arg, 4)
	if err != nil {
		return "", err
	}
	for _, id := range ids {
		if string(id) == arg {
			return id, nil
		}
	}
	switch {
	case len(ids) > 1 && len(arg) >= MinPrefix:
		return "", &AmbiguousError{arg, ids}
	case len(ids) == 1 && len(arg) >= MinPrefix:
		return ids[0], nil
	}
	id, _, err := a.Resolve(ctx, arg, Project{})
	if err == nil {
		err = &store.NotTrashedError{ID: id}
	}
	return "", err
}

// Removals says what would be deleted, and what others need of it: with blobs also the values that others name, which
// takes reading all logs.
func (a *App) Removals(ctx context.Context, ids []session.ID, blobs bool) ([]Removal, error) {
	r, err := a.remover()
	if err != nil {
		return nil, err
	}
	deps, err := r.Dependents(ctx, ids, blobs)
	note := ""
	if err != nil && blobs && !errors.Is(err, store.ErrNotFound) && ctx.Err() == nil { // not everything can be read: the forks at least
		note = fmt.Sprintf("which of its values others need cannot be told: %v", err)
		deps, err = r.Dependents(ctx, ids, false)
	}
	if err != nil {
		return nil, err
	}
	title := a.titleOf
	if blobs {
		if title, err = a.trashTitles(ctx); err != nil {
			return nil, err
		}
	}
	out := make([]Removal, len(deps))
	for i, d := range deps {
		out[i] = Removal{ID: d.ID, Forks: []Heir{}, Note: note, Title: title(ctx, d.ID)}
		for _, h := range d.Heirs {
			out[i].Forks = append(out[i].Forks, Heir{h.ID, h.Trashed, h.From, h.End - 1, h.Bytes})
		}
		if d.Blobs != nil {
			out[i].Blobs = []SharedBlob{}
		}
		for _, b := range d.Blobs {
			out[i].Blobs = append(out[i].Blobs, SharedBlob{b.Name, b.Bytes, b.By})
		}
	}
	return out, nil
}

// trashTitles returns what finds the title of a session in the trash.
func (a *App) trashTitles(ctx context.Context) (func(context.Context, session.ID) string, error) {
	l, ok := a.Store.(store.Lister)
	if !ok {
		return nil, errors.New("this store cannot list")
	}
	page, err := l.List(ctx, store.Query{Trash: true})
	if err != nil {
		return nil, err
	}
	rows := map[session.ID]store.Stat{}
	for _, st := range page.Rows {
		rows[st.ID] = st
	}
	known := inherited{}
	return func(ctx context.Context, id session.ID) string { return a.trashTitle(ctx, rows[id], known) }, nil
}

// inherited are titles that forks begin with, by where they begin: many forks of one session cost one look.
type inherited map[Parent]string

// trashTitle returns the title of a session in the trash. A fork that has none of its own has that of its parent at the place where
// it begins, and none if the parent cannot be read: what is in the trash is not opened.
func (a *App) trashTitle(ctx context.Context, st store.Stat, known inherited) string {
	p := st.Header.Parent
	if st.Title != "" || p == nil || p.Seq == session.None || st.State != store.StateOK && st.State != store.StateTorn {
		return st.Title
	}
	title, ok := known[Parent{p.ID, p.Seq}]
	if !ok {
		if ins, err := a.Inspect(ctx, p.ID, &p.Seq); err == nil {
			title, _ = ins.Title() // of what cannot be read there is none
			ins.Close()
		}
		known[Parent{p.ID, p.Seq}] = title
	}
	return title
}

// Remove moves sessions to the trash. What became of each is in its Removal; a failure does not stop the others.
func (a *App) Remove(ctx context.Context, list []Removal, each func(Removal) error) error {
	r, err := a.remover()
	if err != nil {
		return err
	}
	return eachRemoval(list, "trashed", each, func(rm *Removal) error {
		err := r.Trash(ctx, rm.ID)
		if err == nil {
			a.idx().Forget(ctx, rm.ID)
		}
		return err
	})
}

// Restore takes sessions out of the trash.
func (a *App) Restore(ctx context.Context, ids []session.ID, each func(Removal) error) error {
	r, err := a.remover()
	if err != nil {
		return err
	}
	list := make([]Removal, len(ids))
	for i, id := range ids {
		list[i] = Removal{ID: id, Forks: []Heir{}}
	}
	return eachRemoval(list, "restored", each, func(rm *Removal) error {
		err := r.Restore(ctx, rm.ID)
		if err == nil {
			rm.Title = a.titleOf(ctx, rm.ID)
		}
		return err
	})
}

func eachRemoval(list []Removal, done string, each func(Removal) error, do func(*Removal) error) error {
	for i := range list {
		rm := list[i]
		if err := do(&rm); err != nil {
			rm.fail(err)
		} else {
			rm.Done = done
		}
		if err := each(rm); err != nil {
			return err
		}
	}
	return nil
}

// Purge removes sessions from the trash for good.
func (a *App) Purge(ctx context.Context, list []Removal, each func(Removal) error) error {
	r, err := a.remover()
	if err != nil {
		return err
	}
	ids := make([]session.ID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	done := r.Purge(ctx, ids)
	a.idx().Forget(ctx, ids...) // one that was trashed by a program without an index too
	a.idx().Erase(ctx, ids...)
	i := -1
	return eachRemoval(list, "purged", each, func(rm *Removal) error {
		i++
		rm.Bytes = done[i].Bytes
		if done[i].Unsure != nil {
			rm.Note = fmt.Sprintf("its long values stay, because others may need them: %v", done[i].Unsure)
		}
		return done[i].Err
	})
}

// TrashRow is a line of the trash. What only reading the log tells is not in it.
type TrashRow struct {
	ID           session.ID          `json:"id"`
	Title        string              `json:"title"`
	Kind         session.SessionKind `json:"kind"`
	Project      string              `json:"project"`
	Cwd          string              `json:"cwd"`
	CreatedAt    int64               `json:"createdAt"`
	LastActivity int64               `json:"lastActivity"`
	Events       session.Seq         `json:"events"`
	Bytes        int64               `json:"bytes"`
	State        store.State         `json:"state"`
	Reason       string              `json:"reason"`
	Parent       *Parent             `json:"parent"`
}

// TrashList is a page of the trash.
type TrashList struct {
	Rows   []TrashRow                  `json:"-"`
	Next   string                      `json:"next"`
	Hidden map[session.SessionKind]int `json:"hidden"`
	Total  int                         `json:"total"`
}

// Trash returns a page of what is in the trash, of all kinds. It touches nothing.
func (a *App) Trash(ctx context.Context, q ListQuery) (TrashList, error) {
	l, ok := a.Store.(store.Lister)
	if !ok {
		return TrashList{}, errors.New("this store cannot list")
	}
	if _, err := a.remover(); err != nil {
		return TrashList{}, err
	}
	page, err := l.List(ctx, store.Query{Projects: q.Projects, Limit: q.Limit, Cursor: q.Cursor, Trash: true})
	if err != nil {
		return TrashList{}, err
	}
	known := inherited{}
	out := TrashList{Next: page.Next, Total: page.Total, Hidden: map[session.SessionKind]int{}}
	for _, st := range page.Rows {
		h := st.Header
		out.Rows = append(out.Rows, TrashRow{
			ID: st.ID, Title: a.trashTitle(ctx, st, known), Kind: h.Kind, Project: h.Project, Cwd: h.Cwd, CreatedAt: h.CreatedAt,
			LastActivity: st.LastActivity, Events: st.Pos.Next, Bytes: st.Bytes, State: st.State, Reason: st.Reason, Parent: parentOf(h),
		})
	}
	return out, nil
}
