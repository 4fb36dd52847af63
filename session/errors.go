package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The errors that callers decide on. The structured ones below match them with errors.Is.
var (
	ErrRange     = errors.New("seq out of range")
	ErrRejected  = errors.New("event rejected")
	ErrDisposed  = errors.New("session is disposed")
	ErrReadOnly  = errors.New("session is open read-only")
	ErrBoundary  = errors.New("invalid boundary")
	ErrOpenTurn  = errors.New("turn is open")
	ErrNotObject = errors.New("data is not an acceptable JSON object")
)

// RejectedError says why an event was not accepted. A rejected event changes nothing.
type RejectedError struct {
	Type   string
	Seq    Seq
	Reason string
	Err    error // may be nil
}

func (e *RejectedError) Error() string {
	s := fmt.Sprintf("session: %s at seq %d rejected: %s", e.Type, e.Seq, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *RejectedError) Unwrap() error { return e.Err }

// Is matches ErrRejected.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }

// UnsupportedError names types that this program does not know and that are not marked ignorable. Such
// a session can be read, not written.
type UnsupportedError struct{ Types []string }

func (e *UnsupportedError) Error() string { return "session: " + e.Reason() }

// Reason says which types are not known, and which packages would know them.
func (e *UnsupportedError) Reason() string {
	return "unknown event types " + strings.Join(e.Types, ", ") + ": this program does not have " + e.Missing()
}

// Missing names the packages that own the types, as text: the owner of a type stands before its slash.
func (e *UnsupportedError) Missing() string {
	var owners []string
	for _, t := range e.Types {
		if owner, _, _ := strings.Cut(t, "/"); !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
	}
	if len(owners) == 1 {
		return "the package " + owners[0]
	}
	return "the packages " + strings.Join(owners, ", ")
}

// OpenTurnError says that a fork was asked for inside a turn, and names the nearest legal cuts (None
// where there is none).
type OpenTurnError struct{ At, Before, After Seq }

func (e *OpenTurnError) Error() string {
	s := fmt.Sprintf("session: cannot cut at seq %d: a turn is open there", e.At)
	switch {
	case e.Before != None && e.After != None:
		return fmt.Sprintf("%s; cut at %d or %d", s, e.Before, e.After)
	case e.Before != None:
		return fmt.Sprintf("%s; cut at %d", s, e.Before)
	case e.After != None:
		return fmt.Sprintf("%s; cut at %d", s, e.After)
	}
	return s + "; wait until the turn ends"
}

// Is matches ErrOpenTurn.
func (e *OpenTurnError) Is(target error) bool { return target == ErrOpenTurn }

// BoundaryError says that a seq is not a stored event of the session.
type BoundaryError struct{ At, Len Seq }

func (e *BoundaryError) Error() string {
	return fmt.Sprintf("session: cannot cut at seq %d: the session has %d stored events (0 to %d)", e.At, e.Len, e.Len-1)
}

// Is matches ErrBoundary.
func (e *BoundaryError) Is(target error) bool { return target == ErrBoundary }
