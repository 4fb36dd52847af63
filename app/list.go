package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-dev/strandline/index"
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
	Steps        int                 `json:"steps"`
	ToolCalls    int                 `json:"toolCalls"`
	Usage        Usage               `json:"usage"`
	OwnUsage     Usage               `json:"ownUsage"` // without the part that a fork shares with its parent
}

// Readable reports whether nothing is wrong with the session: it can be gone on with.
func (r Row) Readable() bool { return r.State == store.StateOK || r.State == store.StateTorn }

// ListQuery selects rows. The zero value lists the conversational sessions of all projects.
type ListQuery struct {
	Projects []string // the names of one project (Project.Names); nil = any
	All      bool     // those made by programs too
	Title    string   // that the title must hold, both folded as a search folds them
	Limit    int
	Cursor   string
	// Progress, if it is not nil, is told how far a list that takes long has come.
	Progress func(done, total int)
}

// List is a page of rows, newest activity first.
type List struct {
	Rows   []Row                       `json:"-"`
	Next   string                      `json:"next"`
	Hidden map[session.SessionKind]int `json:"hidden"`
	Total  int                         `json:"total"`
}

// List returns a page of sessions. A session that cannot be read is a row with its reason. It comes from the index, which
// has looked at every session of the store; what a session does now is asked of the session.
func (a *App) List(ctx context.Context, q ListQuery) (List, error) {
	iq := index.Query{Projects: q.Projects, Title: q.Title, Limit: q.Limit, Cursor: q.Cursor}
	if !q.All {
		iq.Kinds = conversational
	}
	page, err := a.idx().List(ctx, iq, q.Progress)
	if err != nil {
		return List{}, err
	}
	out := List{Rows: make([]Row, len(page.Rows)), Next: page.Next, Hidden: page.Hidden, Total: page.Total}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i, r := range page.Rows {
		g.Go(func() error {
			out.Rows[i] = a.row(ctx, r)
			return context.Cause(ctx)
		})
	}
	err = g.Wait()
	out.Rows = slices.DeleteFunc(out.Rows, func(r Row) bool { return r.ID == "" })
	return out, err
}

// idx returns the index. An App that was not made by Open has one in memory, for the moment.
func (a *App) idx() *index.Index {
	if a.index == nil {
		return index.Open(index.Options{Store: a.Store, Registry: a.Registry})
	}
	return a.index
}

// row makes a row; none, without an id, if the session is gone meanwhile. The log is folded if a turn is open: who waits for
// what, and whether somebody works, is in no index; and if somebody writes it at this moment, for who it is and what is there
// belong together.
func (a *App) row(ctx context.Context, in index.Row) Row {
	h := in.Header
	r := Row{
		ID: in.ID, Title: in.Stat.Title, Kind: h.Kind, Project: h.Project, Cwd: h.Cwd,
		CreatedAt: h.CreatedAt, LastActivity: in.LastActivity, Events: in.Pos.Next, Bytes: in.Bytes,
		State: in.State, Reason: in.Reason, Parent: parentOf(h), Activity: ActivityIdle,
	}
	f := in.Facts
	if f == nil {
		return r
	}
	total, own := f.Usage()
	r.Title, r.Turns, r.Events, r.Steps, r.ToolCalls, r.Usage, r.OwnUsage =
		f.Called(), f.Turns, f.Next, f.Steps, f.ToolCalls, Usage{total}, Usage{own}
	if f.Turn == session.None && !in.Held {
		return r
	}
	if f.Turn == session.None {
		snap, st, err := store.ReadSettled(ctx, a.Store, in.ID, func(ctx context.Context, id session.ID) (*store.Snapshot, error) {
			return store.PeekOrRead(ctx, a.Store, id)
		})
		if err == nil {
			n := snap.Pos.Next
			if snap.Close(); n == f.Next {
				r.Holder = HolderOf(st.Holder)
				return r
			}
		}
	}
	ins, err := a.Inspect(ctx, in.ID, nil)
	if none, ok := errors.AsType[*store.NotFoundError](err); ok && none.ID == string(in.ID) {
		return Row{}
	}
	if err != nil {
		r.State, r.Reason = store.StateDamaged, err.Error()
		return r
	}
	defer ins.Close()
	r.Activity, r.Waiting, r.Holder = ins.Activity(), ins.Questions(), HolderOf(ins.Stat.Holder)
	r.Events, r.Turns = ins.State.Next(), ins.State.Turns()
	r.Steps, r.ToolCalls = ins.State.Steps(), ins.State.ToolCalls()
	total, own = ins.State.Usage()
	r.Usage, r.OwnUsage = Usage{total}, Usage{own}
	title, err := ins.Title()
	if err != nil {
		r.State, r.Reason = store.StateDamaged, err.Error()
		return r
	}
	r.Title = title
	return r
}

// rowNow is row of a session whose end was read just now; none, without an id, if it is gone meanwhile.
func (a *App) rowNow(ctx context.Context, st store.Stat) Row {
	in, ok, err := a.idx().Row(ctx, st.ID)
	if !ok && err == nil {
		return Row{}
	}
	if err != nil {
		in = index.Row{Stat: st}
		in.State, in.Reason = store.StateDamaged, err.Error()
	}
	return a.row(ctx, in)
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
