package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/app"
	"github.com/strandline-dev/strandline/config"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitBusy        = 3
	exitDamaged     = 4
	exitNotFound    = 5
	exitNotSaved    = 6
	exitUnsupported = 7
	exitTurn        = 8
)

// failure is an error as a person sees it: what failed, why, and what they can do.
type failure struct {
	exit            int
	code            string
	what, why, hint string
	holder          *app.Holder
}

func (f *failure) Error() string {
	s := "strand: "
	if f.what != "" {
		s += f.what + ": "
	}
	s += f.why
	if f.hint != "" {
		s = strings.TrimSuffix(s, ".") + "; " + f.hint // a service's sentence goes on
	}
	return safeLine(s)
}

// oneLine makes an error one line, whatever its cause printed.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// explain finds the words and the exit code for err. what names what was asked for, e.g. "run".
func explain(what string, err error) *failure {
	var own *failure
	if errors.As(err, &own) {
		return own
	}
	f := &failure{exit: exitFailed, code: "failed", what: what, why: err.Error()}
	var (
		usage       *app.UsageError
		model       *app.ModelError
		conf        *config.Error
		ambiguous   *app.AmbiguousError
		noLast      *app.NoLastError
		busy        *store.BusyError
		took        *app.TakeOverError
		replaced    *store.ReplacedError
		fenced      *store.FencedError
		damaged     *store.DamagedError
		notFound    *store.NotFoundError
		unsaved     *app.UnsavedError
		notSaved    *store.NotSavedError
		openTurn    *session.OpenTurnError
		boundary    *session.BoundaryError
		unsupported *store.UnsupportedError
		types       *session.UnsupportedError
		readOnly    *store.ReadOnlyError
		storeFile   *store.StoreFileError
		turn        *app.TurnError
		several     *app.SeveralWaitError
		answered    *app.AnsweredError
		noCall      *app.NoCallError
		owner       *app.OwnerError
	)
	switch {
	case compactionFailure(f, err):
	case errors.As(err, &usage):
		f.exit, f.code, f.what, f.why, f.hint = exitUsage, "usage", usage.What, usage.Why, usage.Hint
	case errors.As(err, &model):
		f.exit, f.code, f.what, f.why, f.hint = exitUsage, "usage", model.What, model.Why, model.Hint
		if model.Code != "" {
			f.code = string(model.Code)
		}
	case errors.As(err, &conf):
		f.exit, f.code, f.what, f.why, f.hint = exitUsage, "config", "config", conf.Error(), conf.Hint
	case errors.As(err, &ambiguous):
		f.exit, f.code, f.hint = exitUsage, "ambiguous", "give more signs of the id"
	case errors.As(err, &turn):
		f.exit, f.code, f.what, f.why, f.hint = exitTurn, turn.Code, "turn "+fmt.Sprint(turn.Turn), turn.Why, turn.Hint
		if turn.Cancelled {
			f.exit = exitFailed
		}
	case errors.As(err, &busy):
		f.exit, f.code = exitBusy, "busy"
		errors.As(err, &took)
		f.what, f.why = "session "+string(busy.ID), "held by another writer"
		if h := busy.Holder; h != nil {
			f.holder = app.HolderOf(h)
			f.why = fmt.Sprintf("held by %s (pid %d on %s, since %s)", h.Program, h.PID, h.Host, f.holder.Since)
		}
		ways := busy.Ways()
		if name, _, _ := strings.Cut(what, " "); name != "run" && name != "chat" && name != "compact" && name != "" {
			ways[1] = "strand chat " + string(busy.ID) + " --take-over" // this one has no such flag
		}
		f.hint = fmt.Sprintf("follow it (%s), take it over (%s), or fork it (%s)", ways[0], ways[1], ways[2])
		if took != nil {
			f.why += ", and " + took.Why
			f.hint = fmt.Sprintf("%s; or follow it (%s), or fork it (%s)", took.Hint, ways[0], ways[2])
		}
	case errors.As(err, &unsaved), errors.As(err, &notSaved):
		f.exit, f.code, f.hint = exitNotSaved, "not-saved", "make room or make it writable and try again"
		if errors.As(err, &notSaved) {
			f.what, f.why = "session "+string(notSaved.ID), fmt.Sprintf("not saved to %s: %v", notSaved.Path, notSaved.Cause)
		}
		if kept := keptFiles(err); len(kept) == 1 {
			f.hint = "what was not saved is kept in " + kept[0].Kept
		} else if len(kept) > 1 {
			parts := make([]string, len(kept))
			for i, u := range kept {
				parts[i] = fmt.Sprintf("that of session %s in %s", u.ID, u.Kept)
			}
			f.hint = "what was not saved is kept: " + strings.Join(parts, ", ")
		}
	case errors.As(err, &fenced):
		f.exit, f.code = exitBusy, "fenced"
		f.hint = fmt.Sprintf("look at what the other wrote (strand show %s)", fenced.ID)
	case errors.As(err, &owner):
		f.exit, f.code, f.why = exitDamaged, "damaged", owner.Error()
		f.hint = fmt.Sprintf("repair that one first: strand doctor --repair %s", owner.Owner)
		if owner.Trashed {
			f.hint = fmt.Sprintf("that one is in the trash: strand restore %s, then strand doctor --repair %s", owner.Owner, owner.Owner)
		}
	case errors.As(err, &damaged):
		f.exit, f.code, f.why = exitDamaged, "damaged", damaged.Error()
		f.hint = fmt.Sprintf("strand doctor %s says where; strand show %s shows what can be read; strand doctor --repair %s makes it writable again", damaged.ID, damaged.ID, damaged.ID)
	case errors.As(err, &replaced):
		f.exit, f.code, f.hint = exitDamaged, "replaced", fmt.Sprintf("strand show %s shows what is there now", replaced.ID)
	case errors.As(err, &noLast):
		f.exit, f.code, f.why = exitNotFound, "not-found", noLast.Error()
		f.hint = "give the id of one (strand ls --all lists them, strand doctor says what is wrong with them), or begin another with strand run"
	case explainGone(f, err):
	case errors.As(err, &notFound):
		f.exit, f.code, f.why, f.hint = exitNotFound, "not-found", "no session "+notFound.ID, "strand ls --any-project lists what there is"
		if n := len(notFound.ID); n < app.MinPrefix {
			f.hint = fmt.Sprintf("an id is given with %d signs or more; ", app.MinPrefix) + f.hint
		}
		if notFound.ID == app.Last {
			f.why, f.hint = "no session in this project yet", "begin one with strand run, or see strand ls --any-project"
		}
	case errors.As(err, &unsupported), errors.As(err, &types):
		f.exit, f.code, f.hint = exitUnsupported, "unsupported", "use a newer strand to go on with it"
		if unsupported != nil {
			f.why = unsupported.Error()
		}
		if errors.As(err, &types) {
			f.hint = "it can be read, listed and exported; to go on with it use a program that has " + types.Missing()
		}
	case errors.As(err, &readOnly) && errors.Is(err, store.ErrUnsupported):
		f.exit, f.code, f.why = exitUnsupported, "unsupported", readOnly.Error()
		f.hint = "use a newer strand, or work in another store with --store DIR"
	case errors.As(err, &storeFile):
		f.exit, f.code, f.why = exitDamaged, "damaged", err.Error()
		f.hint = "strand doctor --repair sets it aside and makes a new one; every session can be read until then (strand ls, strand show)"
	case errors.As(err, &readOnly):
		f.exit, f.code, f.why = exitFailed, "read-only", readOnly.Error()
		f.hint = "make it writable, or work in another store with --store DIR"
		if readOnly.ID != "" {
			f.hint = fmt.Sprintf("fork it into a store that can be written (strand fork %s --to DIR), or ", readOnly.ID) + f.hint
		}
	case errors.As(err, &openTurn):
		f.exit, f.code, f.why = exitUsage, "open-turn", fmt.Sprintf("a turn is open at seq %d", openTurn.At)
		f.hint = openTurnHint(openTurn)
	case errors.Is(err, session.ErrOpenTurn):
		f.code, f.why, f.hint = "open-turn", "a turn is open", "go on with it first (strand run --session ID), or wait until it ends"
	case errors.As(err, &boundary):
		f.exit, f.code, f.why = exitUsage, "invalid-boundary", fmt.Sprintf("seq %d is not stored", boundary.At)
		f.hint = fmt.Sprintf("the session has the seqs 0 to %d", boundary.Len-1)
	case errors.As(err, &several):
		f.exit, f.code, f.hint = exitUsage, "several", fmt.Sprintf("say which: strand approve %s CALL", several.ID)
	case errors.As(err, &answered):
		f.code, f.hint = "answered", fmt.Sprintf("it was at %s; nothing was changed", when(answered.At))
	case errors.As(err, &noCall):
		f.exit, f.code, f.why = exitNotFound, "not-found", noCall.Error()
		f.hint = fmt.Sprintf("strand show %s shows what waits", noCall.ID)
	case errors.Is(err, app.ErrNothingWaits):
		f.code, f.why, f.hint = "nothing", app.ErrNothingWaits.Error(), "strand ls shows which sessions wait"
	case errors.Is(err, store.ErrCursor):
		f.exit, f.code, f.why = exitUsage, "usage", "the cursor is not one that this list gave"
		f.hint = "take \"next\" of the last line of strand " + what + " --json"
	case errors.Is(err, session.ErrNothing):
		f.code, f.why = "nothing", strings.TrimPrefix(err.Error(), "session: ")
		f.hint = "strand show marks the turns that are hidden"
	case errors.Is(err, store.ErrDamaged):
		f.exit, f.code, f.hint = exitDamaged, "damaged", "strand doctor says where"
	case errors.Is(err, store.ErrExists):
		f.code = "exists"
	case errors.Is(err, context.Canceled):
		f.code, f.why = "cancelled", "cancelled"
	}
	return f
}

// keptFiles finds all that err says was kept outside the store: of a session, and of its subagents.
func keptFiles(err error) (out []*app.UnsavedError) {
	switch e := err.(type) {
	case *app.UnsavedError:
		if e.Kept != "" {
			out = append(out, e)
		}
	case interface{ Unwrap() error }:
		out = keptFiles(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			out = append(out, keptFiles(part)...)
		}
	}
	return out
}

func openTurnHint(e *session.OpenTurnError) string {
	switch {
	case e.Before != session.None && e.After != session.None:
		return fmt.Sprintf("cut at %d or %d", e.Before, e.After)
	case e.Before != session.None:
		return fmt.Sprintf("cut at %d", e.Before)
	case e.After != session.None:
		return fmt.Sprintf("cut at %d", e.After)
	}
	return "wait until the turn ends"
}

// print writes the failure as one line, and with --json as an object after it.
func (f *failure) print(w io.Writer, asJSON bool) {
	fmt.Fprintln(w, f.Error())
	if !asJSON {
		return
	}
	type body struct {
		Code    string      `json:"code"`
		Message string      `json:"message"`
		Hint    string      `json:"hint"`
		Holder  *app.Holder `json:"holder,omitzero"`
	}
	msg := f.why
	if f.what != "" {
		msg = f.what + ": " + f.why
	}
	b, err := json.Marshal(struct {
		Error body `json:"error"`
	}{body{f.code, safeLine(msg), safeLine(f.hint), f.holder}})
	if err == nil {
		fmt.Fprintf(w, "%s\n", b)
	}
}
