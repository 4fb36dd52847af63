package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// How long a holder that was asked to let go gets for it, and how often it is looked at meanwhile.
const (
	letGo     = 10 * time.Second
	letGoLook = 25 * time.Millisecond
)

// TakeOverError says why a session could not be taken over. It is a *store.BusyError, too.
type TakeOverError struct {
	Busy *store.BusyError
	Why  string
	Hint string // what can be done by hand
}

func (e *TakeOverError) Error() string { return e.Busy.Error() + ", and " + e.Why }

// Unwrap returns the *store.BusyError.
func (e *TakeOverError) Unwrap() error { return e.Busy }

// takingOver opens a session. If somebody holds it and take is set, the holder is asked to let it go, and it is
// opened again. A lock that is held is never taken.
func (a *App) takingOver(ctx context.Context, take bool, open func() error) error {
	err := open()
	busy, ok := errors.AsType[*store.BusyError](err)
	if !take || !ok {
		return err
	}
	if err := a.askToLetGo(ctx, busy); err != nil {
		return err
	}
	return open()
}

// askToLetGo asks the process that holds a session to end, as a person would who presses Ctrl-C there, and waits
// until it has let go. Only that process is asked: pid and start must be those of the announcement, which must still
// be locked.
func (a *App) askToLetGo(ctx context.Context, busy *store.BusyError) error {
	no := func(hint, why string, args ...any) error {
		return &TakeOverError{busy, fmt.Sprintf(why, args...), hint}
	}
	h, err := a.holderOf(ctx, busy.ID)
	switch {
	case err != nil:
		return err
	case h == nil:
		return nil // it has let go by itself
	case h.Nonce == "":
		return no("try again in a moment, or look for the process that has its files open", "it does not say who it is")
	case h.Host != a.host:
		return no(fmt.Sprintf("end it there (kill %d)", h.PID), "it runs on another machine, %s", h.Host)
	case h.PID == os.Getpid():
		return no("let it go here first", "it is this process")
	}
	p, err := os.FindProcess(h.PID) // from here on, where that can be, this process and no later one with its pid
	if err != nil {
		return no("try again in a moment", "its process %d cannot be found: %v", h.PID, err)
	}
	defer p.Release()
	if start := startOf(h.PID); start == "" || start != h.Started {
		return no("try again in a moment", "the process %d that it names is not the one that took it", h.PID)
	}
	switch now, err := a.holderOf(ctx, busy.ID); {
	case err != nil:
		return err
	case now == nil || now.Nonce != h.Nonce:
		return nil
	}
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return no(fmt.Sprintf("end it by hand (kill %d)", h.PID), "it cannot be asked: %v", err)
	}
	for left := a.letGo; left > 0; left -= letGoLook {
		if err := sleep(ctx, letGoLook); err != nil {
			return err
		}
		now, err := a.holderOf(ctx, busy.ID)
		if err != nil {
			return err
		}
		if now == nil || now.Nonce != h.Nonce {
			return nil
		}
	}
	return no(fmt.Sprintf("if it hangs, end it by hand (kill -9 %d: what it saved stays) and try again", h.PID),
		"it was asked to let go %v ago and has not", a.letGo)
}

func (a *App) holderOf(ctx context.Context, id session.ID) (*store.Holder, error) {
	st, err := a.Store.Stat(ctx, id)
	return st.Holder, err
}
