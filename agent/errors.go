package agent

import (
	"errors"
	"fmt"

	"github.com/strandline-dev/strandline/session"
)

// The errors that callers decide on.
var (
	ErrDisposed = errors.New("agent is disposed")
	ErrNotSaved = errors.New("not saved")
	ErrAnswered = errors.New("question is not open")
	ErrRunning  = errors.New("a turn is running")
	ErrTaken    = errors.New("an agent of this session exists")
)

// NotSavedError says that the log could not be synced. What was accepted stays in memory; the next
// message, answer or Kick tries again.
type NotSavedError struct {
	ID  session.ID
	Err error // the store's reason; names the path
}

func (e *NotSavedError) Error() string {
	return fmt.Sprintf("nothing further is started until saving works again: %v", e.Err)
}

// Unwrap returns the store's reason.
func (e *NotSavedError) Unwrap() error { return e.Err }

// Is matches ErrNotSaved.
func (e *NotSavedError) Is(t error) bool { return t == ErrNotSaved }

// CauseKind tells who ended a turn.
type CauseKind string

// The causes. The set is open.
const (
	CauseUser     CauseKind = "user"
	CauseParent   CauseKind = "parent"   // the agent that asked for this one's work
	CauseShutdown CauseKind = "shutdown" // the agent is disposed
	CauseTimeout  CauseKind = "timeout"
)

// CancelError is the cause of a turn's context once the turn is cancelled: bodies and providers find it
// with context.Cause.
type CancelError struct{ Kind CauseKind }

func (e *CancelError) Error() string { return "cancelled: " + string(e.Kind) }

// hookError is a hook's failure: a panic, or an error where none is expected.
type hookError struct {
	hook string
	err  error
}

func (e *hookError) Error() string { return e.hook + ": " + e.err.Error() }
func (e *hookError) Unwrap() error { return e.err }

// protect runs f and makes an error of its panic.
func protect(hook string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &hookError{hook, fmt.Errorf("crashed: %v", v)}
		}
	}()
	return f()
}
