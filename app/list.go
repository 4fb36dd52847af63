package app

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Holder tells who writes a session, for people and programs.
type Holder struct {
	PID     int    `json:"pid"`
	Host    string `json:"host"`
	Program string `json:"program"`
	Since   string `json:"since"` // RFC 3339
}

// HolderOf returns h for people and programs; nil stays nil.
func HolderOf(h *store.Holder) *Holder {
	if h == nil {
		return nil
	}
	return &Holder{h.PID, h.Host, h.Program, h.Since.UTC().Format(time.RFC3339)}
}

// Parent is where a fork comes from.
type Parent struct {
	ID  session.ID  `json:"id"`
	Seq session.Seq `json:"seq"`
}

func parentOf(h session.Header) *Parent {
	if h.Parent == nil {
		return nil
	}
	return &Parent{h.Parent.ID, h.Parent.Seq}
}

// Activity says what a session does now.
type Activity string

// The activities. ActivityInterrupted: a turn is open and nobody works on it.
const (
	ActivityIdle        Activity = "idle"
	ActivityRunning     Activity = "running"
	ActivityWaiting     Activity = "waiting"
	ActivityInterrupted Activity = "interrupted"
)

// Row is a line of a list. Times are Unix milliseconds.
type Row struct {
	ID           session.ID          `json:"id"`
	Title        string              `json:"title"`
	Kind         session.SessionKind `json:"kind"`
	Project      string              `json:"project"`
	Cwd          string              `json:"cwd"`
	CreatedAt    int64               `json:"createdAt"`
	LastActivity int64               `json:"lastActivity"`
	Turns        int                 `json:"turns"`
	Events       session.Seq         `json:"events"`
	Bytes        int64               `json:"bytes"`
	State        store.State         `json:"state"`
	Reason       string              `json:"reason"`
	Holder       *Holder             `json:"holder"`
	Parent       *Parent             `json:"parent"`
	Activity     Activity            `json:"activity"`
	Waiting      []Question          `json:"waiting,omitempty"` // for a person
}

// Readable reports whether nothing is wrong with the session: it can be gone on with.
func (r Row) Readable() bool { return r.State == store.StateOK || r.State == store.StateTorn }

// ListQuery selects rows. The zero value lists the conversational sessions of all projects.
type ListQuery struct {
	Projects []string // the names of one project (Project.Names); nil = any
	All      bool     // those made by programs too
	Limit    int
	Cursor   string
}

// List is a page of rows, newest activity first.
type List struct {
	Rows   []Row                       `json:"-"`
	Next   string                      `json:"next"`
	Hidden map[session.SessionKind]int `json:"hidden"`
	Total  int                         `json:"total"`
}

// List returns a page of sessions. A session that cannot be read is a row with its reason.
func (a *App) List(ctx context.Context, q ListQuery) (List, error) {
	l, ok := a.Store.(store.Lister)
	if !ok {
		return List{}, errors.New("this store cannot list")
	}
	sq := store.Query{Projects: q.Projects, Limit: q.Limit, Cursor: q.Cursor}
	if !q.All {
		sq.Kinds = conversational
	}
	page, err := l.List(ctx, sq)
	if err != nil {
		return List{}, err
	}
	out := List{Rows: make([]Row, len(page.Rows)), Next: page.Next, Hidden: page.Hidden, Total: page.Total}
	if out.Hidden == nil {
		out.Hidden = map[session.SessionKind]int{}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i, st := range page.Rows {
		g.Go(func() error {
			out.Rows[i] = a.row(ctx, st)
			return context.Cause(ctx)
		})
	}
	return out, g.Wait()
}

// row makes a row; the log is folded for what the store does not know.
func (a *App) row(ctx context.Context, st store.Stat) Row {
	h := st.Header
	r := Row{
		ID: st.ID, Title: st.Title, Kind: h.Kind, Project: h.Project, Cwd: h.Cwd,
		CreatedAt: h.CreatedAt, LastActivity: st.LastActivity, Events: st.Pos.Next, Bytes: st.Bytes,
		State: st.State, Reason: st.Reason, Holder: HolderOf(st.Holder), Parent: parentOf(h), Activity: ActivityIdle,
	}
	if !r.Readable() {
		return r
	}
	ins, err := a.Inspect(ctx, st.ID, nil)
	if err != nil {
		r.State, r.Reason = store.StateDamaged, err.Error()
		return r
	}
	defer ins.Close()
	switch types := ins.State.Unknown(); {
	case len(ins.Snap.Damage) > 0:
		r.State, r.Reason = store.StateDamaged, ins.Snap.Damage[0].Detail
	case ins.Snap.Unsupported != "":
		r.State, r.Reason = store.StateUnsupported, ins.Snap.Unsupported
	case len(types) > 0:
		r.State, r.Reason = store.StateUnsupported, (&session.UnsupportedError{Types: types}).Reason()
	}
	r.Turns, r.Title, r.Activity, r.Waiting = ins.State.Turns(), ins.Title(), ins.Activity(), ins.Questions()
	r.Events, r.Holder = ins.State.Next(), HolderOf(ins.Stat.Holder)
	return r
}

// AllIDs returns the ids of all sessions of the store, bad ones included.
func (a *App) AllIDs(ctx context.Context) ([]session.ID, error) {
	l, ok := a.Store.(store.Lister)
	if !ok {
		return nil, errors.New("this store cannot list")
	}
	page, err := l.List(ctx, store.Query{})
	if err != nil {
		return nil, err
	}
	ids := make([]session.ID, 0, len(page.Rows))
	for _, r := range page.Rows {
		ids = append(ids, r.ID)
	}
	return ids, nil
}
