package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/message"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/view"
)

// Problem is something that harms a session.
type Problem struct {
	Kind   string      `json:"kind"` // damage, missing-parent, unsupported, request-changed
	Seq    session.Seq `json:"seq"`  // first event that is concerned, -1 if none is known
	File   string      `json:"file"`
	Offset int64       `json:"offset"`
	Bytes  int64       `json:"bytes"`
	Detail string      `json:"detail"`
}

// Note is something worth knowing that harms nobody.
type Note struct {
	Kind   string      `json:"kind"`
	Seq    session.Seq `json:"seq"`
	Detail string      `json:"detail"`
}

// Health is what Doctor found.
type Health struct {
	ID         session.ID  `json:"id"`
	State      store.State `json:"state"`
	Problems   []Problem   `json:"problems"`
	Brackets   []Bracket   `json:"brackets"`
	OpenCalls  []OpenCall  `json:"openCalls"`
	Notes      []Note      `json:"notes"`
	VerifiedTo session.Seq `json:"verifiedTo"` // last event whose sum and link were verified, -1: none
	Holder     *Holder     `json:"holder"`

	// Lost are the events of which only a mark is left, Originals the damaged files that repairs kept.
	Lost      []store.Span `json:"lost"`
	Originals []string     `json:"originals"`
	Repair    *Repair      `json:"repair,omitzero"` // nil: not asked for

	Requests *Requests `json:"requests,omitzero"` // nil: not asked for
}

// Doctor verifies a session and says what a person should know of it. It changes nothing but what is derived: wrong
// checkpoints are removed.
func (a *App) Doctor(ctx context.Context, id session.ID) (Health, error) {
	h := Health{ID: id, State: store.StateOK, Problems: []Problem{}, Brackets: []Bracket{}, OpenCalls: []OpenCall{}, Notes: []Note{}, VerifiedTo: session.None,
		Lost: []store.Span{}, Originals: []string{}}
	read := a.Store.Read
	if v, ok := a.Store.(store.Verifier); ok {
		read = v.Verify
	}
	snap, stat, err := store.ReadSettled(ctx, a.Store, id, read)
	if err != nil {
		return h, err
	}
	defer func() { _ = snap.Close() }()
	h.State, h.Holder = stat.State, HolderOf(stat.Holder)
	h.examine(snap)
	h.VerifiedTo = snap.Prefix.Len() - 1
	unsupported := snap.Unsupported != ""
	if len(snap.Damage) > 0 {
		if snap, stat, err = a.salvage(ctx, id, snap, stat); err != nil {
			return h, err
		}
	}
	ins, err := a.inspection(snap, stat, snap.Prefix)
	if err != nil { // bytes changed meanwhile
		h.problem(Problem{Kind: "damage", Seq: session.None, Detail: err.Error()})
		return h, ctx.Err()
	}
	if err := a.checkFolds(ctx, &h, snap); err != nil {
		return h, err
	}
	if types := ins.State.Unknown(); len(types) > 0 && !unsupported {
		h.problem(Problem{Kind: "unsupported", Seq: session.None, Detail: (&session.UnsupportedError{Types: types}).Reason()})
	}
	h.Brackets, h.OpenCalls = ins.Brackets(), ins.OpenCalls()
	if err := h.read(ins); err != nil {
		return h, err
	}
	slices.SortStableFunc(h.Notes, func(a, b Note) int { return cmp.Compare(a.Seq, b.Seq) })
	return h, nil
}

// checkFolds compares the checkpoints of a healthy session with its log. They are derived: a wrong one is removed.
func (a *App) checkFolds(ctx context.Context, h *Health, snap *store.Snapshot) error {
	st, ok := a.Store.(store.Checkpoints)
	if !ok || len(h.Problems) > 0 {
		return nil
	}
	wrong, err := store.WrongCheckpoints(ctx, st, snap, a.Registry)
	for _, seq := range wrong {
		h.note("checkpoint", seq, "a checkpoint in the cache is not what the events before it fold to; nothing is lost, and it is removed")
	}
	return err
}

// Repair is what a repair did, or would do.
type Repair struct {
	DryRun  bool         `json:"dryRun"`
	Needed  bool         `json:"needed"`  // there was damage
	Lost    []store.Span `json:"lost"`    // events that are replaced by marks
	Count   int          `json:"count"`   // of them
	Found   []store.Span `json:"found"`   // events that stood elsewhere, proven by their links
	Kept    []string     `json:"kept"`    // the damaged files, byte for byte
	Written []string     `json:"written"` // new files
	Guessed []string     `json:"guessed"` // members of a new header that no file says for certain
}

// Repair makes a damaged session writable again. See store.Repairer.
func (a *App) Repair(ctx context.Context, id session.ID) (Repair, error) {
	return a.repair(ctx, id, false, func(r store.Repairer) (store.Repair, error) { return r.Repair(ctx, id, false) })
}

// PlanRepair says what Repair would do behind repairs of the sessions after.
func (a *App) PlanRepair(ctx context.Context, id session.ID, after []session.ID) (Repair, error) {
	return a.repair(ctx, id, true, func(r store.Repairer) (store.Repair, error) { return r.PlanRepair(ctx, id, after) })
}

func (a *App) repair(ctx context.Context, id session.ID, dryRun bool, do func(store.Repairer) (store.Repair, error)) (Repair, error) {
	r, ok := a.Store.(store.Repairer)
	if !ok {
		return Repair{}, errors.New("this store has nothing that could be repaired")
	}
	rep, err := do(r)
	if hurt, ok := errors.AsType[*store.DamagedError](err); ok && hurt.Owner != "" && hurt.Owner != id {
		_, gone := a.InTrash(ctx, string(hurt.Owner))
		err = &OwnerError{ID: id, Owner: hurt.Owner, Trashed: gone == nil, Err: err}
	}
	return Repair{DryRun: dryRun, Needed: rep.Damage != nil, Count: store.Records(rep.Lost), Lost: list(rep.Lost), Found: list(rep.Found),
		Kept: list(rep.Kept), Written: list(rep.Written), Guessed: list(rep.Guessed)}, err
}

// StoreHealth is what Doctor found of the store as such.
type StoreHealth struct {
	Store    string    `json:"store"` // its directory
	Problems []Problem `json:"problems"`
	Repair   *Repair   `json:"repair,omitzero"` // nil: not asked for
}

// DoctorStore says what is wrong with the store as such, and repairs it if it is asked to. Nil: nothing is.
func (a *App) DoctorStore(ctx context.Context, repair, dryRun bool) (*StoreHealth, error) {
	r, ok := a.Store.(store.StoreRepairer)
	sv, surveys := a.Store.(store.Surveyor)
	if !ok || !surveys {
		return nil, nil
	}
	rep, err := r.RepairStore(ctx, dryRun || !repair)
	if len(rep.Damage) == 0 {
		return nil, err
	}
	v, serr := sv.Survey(ctx)
	if serr != nil {
		return nil, serr
	}
	h := &StoreHealth{Store: v.Root, Problems: []Problem{}}
	if err != nil || dryRun || !repair {
		h.Problems = append(h.Problems, Problem{Kind: "damage", Seq: session.None, File: rep.Damage[0].File, Detail: rep.Damage[0].Detail})
	}
	if repair {
		h.Repair = &Repair{DryRun: dryRun, Needed: true, Lost: []store.Span{}, Found: []store.Span{}, Kept: list(rep.Kept), Written: list(rep.Written), Guessed: list(rep.Guessed)}
	} else if errors.Is(err, store.ErrUnsupported) {
		err = nil // that is for who repairs
	}
	return h, err
}

// list is never nil: an empty list of JSON.
func list[T any](s []T) []T { return append([]T{}, s...) }

// RepairOrder sorts ids so that whoever others were forked from comes before them. Of a session whose header is gone the headers of its forks say
// where that is; it comes last where none does.
func (a *App) RepairOrder(ctx context.Context, ids []session.ID) ([]session.ID, error) {
	spans, at := map[session.ID]int{}, map[session.ID]int{}
	for _, id := range ids {
		st, err := a.Store.Stat(ctx, id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		switch p := st.Header.Parent; {
		case p != nil:
			spans[id] = len(p.Spans)
			for i, sp := range p.Spans {
				at[sp.ID] = i
			}
		case st.Header.ID == "":
			spans[id] = math.MaxInt
		}
	}
	for id, n := range spans {
		if i, ok := at[id]; ok && n == math.MaxInt {
			spans[id] = i
		}
	}
	ids = slices.Clone(ids)
	slices.SortStableFunc(ids, func(a, b session.ID) int { return cmp.Compare(spans[a], spans[b]) })
	return ids, nil
}

func (h *Health) problem(p Problem) {
	h.Problems = append(h.Problems, p)
	if p.Kind == "unsupported" && h.State != store.StateDamaged {
		h.State = store.StateUnsupported
	} else {
		h.State = store.StateDamaged
	}
}

// examine tells what storage found.
func (h *Health) examine(snap *store.Snapshot) {
	for _, r := range snap.Damage {
		p := Problem{Kind: "damage", Seq: r.First, File: r.File, Offset: r.Offset, Bytes: r.Bytes, Detail: r.Detail}
		if r.First != session.None && r.First < snap.Header.SeedLength {
			if _, err := os.Stat(r.File); errors.Is(err, os.ErrNotExist) {
				p.Kind = "missing-parent"
			}
		}
		h.problem(p)
	}
	if snap.Unsupported != "" {
		h.problem(Problem{Kind: "unsupported", Seq: session.None, Detail: snap.Unsupported})
	}
	if t := snap.Torn; t != nil {
		h.note("torn", snap.Pos.Next, "%d bytes behind the last record in %s at byte %d; the next life leaves them where they are", t.Bytes, t.File, t.Offset)
	}
	for _, t := range snap.Left {
		h.note("torn", t.First, "%d bytes behind the last record in %s at byte %d, which a writer left when it died; the log goes on in the next file", t.Bytes, t.File, t.Offset)
	}
	h.Lost, h.Originals = list(snap.Marked), list(snap.Kept)
	if n := store.Records(snap.Marked); n > 0 {
		more := ""
		if len(snap.Kept) > 0 {
			more = fmt.Sprintf("; the damaged files are kept: %s", strings.Join(snap.Kept, ", "))
		}
		h.note("lost", snap.Marked[0].First, "%d records are lost, each with a mark in its place%s", n, more)
	}
	if n := len(snap.Lost); n > 0 {
		h.note("lost", snap.Lost[0].Seq, "%d records were never known to be on disk and are bad, as after loss of power; the next life marks them", n)
	}
}

func (h *Health) note(kind string, seq session.Seq, format string, args ...any) {
	h.Notes = append(h.Notes, Note{kind, seq, fmt.Sprintf(format, args...)})
}

// read tells what the log means: what the fold and the view had to bend, and what is open.
func (h *Health) read(ins *Inspection) error {
	for _, p := range ins.State.Problems() {
		h.note(p.Kind, p.Seq, "%s", p.Detail)
	}
	v, err := ins.view("")
	if err != nil {
		return err
	}
	for _, n := range v.Notes {
		if n.Kind != view.Bound { // says something of a provider, not of the session
			h.note(string(n.Kind), n.Seq, "%s", n.Detail)
		}
	}
	for _, b := range h.Brackets {
		if b.State == session.BracketDead {
			h.note("dead-bracket", b.Seq, "%s was opened by a writer that is gone: it ended with its writer, and nothing waits for it", b.Type)
		}
	}
	for _, c := range h.OpenCalls {
		h.note("open-call", c.Seq, "%s: %s", c.Name, c.State)
	}
	if ins.Activity() == ActivityInterrupted {
		turn, _ := ins.State.Turn()
		h.note("open-turn", ins.State.TurnStartSeq(), "turn %d was interrupted; the next life ends it", turn)
	}
	return nil
}

// Err returns why the exit code is not 0: an error that wraps store.ErrDamaged or store.ErrUnsupported, or nil.
func (h Health) Err() error {
	if len(h.Problems) == 0 {
		return nil
	}
	if first := h.Problems[0]; first.Kind == ProblemRequest {
		return fmt.Errorf("session %s: %d of its %d requests cannot be made again as they were sent: %w", h.ID, h.Requests.Changed, h.Requests.Checked, store.ErrDamaged)
	}
	if h.State == store.StateUnsupported {
		return &store.UnsupportedError{ID: h.ID, Detail: h.Problems[0].Detail}
	}
	return fmt.Errorf("session %s is %s: %s: %w", h.ID, h.State, h.Problems[0].Detail, store.ErrDamaged)
}

// View returns the messages as they would be sent to a provider.
func (i *Inspection) View(provider string) ([]message.Message, error) {
	v, err := i.view(provider)
	return v.Messages, err
}

func (i *Inspection) view(provider string) (view.View, error) {
	items, err := session.ProjectAll(i.State, i.Prefix)
	if err != nil {
		return view.View{}, err
	}
	return view.Build(items, i.State, provider), nil
}

// Queue returns the accepted input that waits to be worked on.
func (i *Inspection) Queue() []message.Message {
	return slices.Concat(i.State.Queue(session.NextStep), i.State.Queue(session.NextTurn))
}
