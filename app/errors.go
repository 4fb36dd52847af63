package app

import (
	"fmt"

	"github.com/strandline-dev/strandline/session"
)

// TurnError says that a turn did not end as it should, because of the model or a tool.
type TurnError struct {
	Session   session.ID
	Turn      int
	Code      string // for programs: of the model's failure, or the kind of the turn's end
	Why       string
	Hint      string
	Cancelled bool // somebody wanted it to end
}

func (e *TurnError) Error() string {
	return fmt.Sprintf("turn %d of session %s: %s", e.Turn, e.Session, e.Why)
}

// UnsavedError says that accepted events could not be saved. Kept names the file outside the store that holds
// them, "" if that failed too.
type UnsavedError struct {
	ID   session.ID
	Kept string
	Err  error
}

func (e *UnsavedError) Error() string {
	s := fmt.Sprintf("session %s is not saved: %v", e.ID, e.Err)
	if e.Kept != "" {
		s += "; what is missing is kept in " + e.Kept
	}
	return s
}

// Unwrap returns the cause.
func (e *UnsavedError) Unwrap() error { return e.Err }

// OwnerError says that a fork cannot be repaired, because the damage is in the files of another session.
type OwnerError struct {
	ID, Owner session.ID
	Trashed   bool // Owner is in the trash: it is restored before it is repaired
	Err       error
}

func (e *OwnerError) Error() string {
	return fmt.Sprintf("what is damaged of session %s is in the files of %s: %v", e.ID, e.Owner, e.Err)
}

// Unwrap returns the cause.
func (e *OwnerError) Unwrap() error { return e.Err }
