package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/strandline-dev/strandline/session"
)

// The kinds of failure that callers decide on. The structured errors below match them with errors.Is.
var (
	ErrNotFound    = errors.New("not found")
	ErrExists      = errors.New("already exists")
	ErrBusy        = errors.New("busy")
	ErrFenced      = errors.New("fenced")
	ErrDamaged     = errors.New("damaged")
	ErrUnsupported = errors.New("unsupported")
	ErrReadOnly    = errors.New("read-only")
	ErrNotSaved    = errors.New("not saved")
	ErrTooLarge    = errors.New("too large")
	ErrClosed      = errors.New("closed")
	ErrNotTrashed  = errors.New("not in the trash")
	ErrCursor      = errors.New("not a cursor of this list")
	ErrReplaced    = errors.New("replaced")
)

// NotFoundError says that there is no such session (or blob), or none any more.
type NotFoundError struct {
	ID      string
	Trashed bool // it is in the trash
	Purged  bool // it was deleted for good
}

func (e *NotFoundError) Error() string {
	switch {
	case e.Trashed:
		return fmt.Sprintf("session %s is in the trash", e.ID)
	case e.Purged:
		return fmt.Sprintf("session %s was deleted for good", e.ID)
	}
	return fmt.Sprintf("no session %s in this store", e.ID)
}

// Is matches ErrNotFound.
func (e *NotFoundError) Is(t error) bool { return t == ErrNotFound }

// ExistsError says that an id is taken.
type ExistsError struct {
	ID     session.ID
	Detail string
	// Deleted: the session is in the trash, or was purged; Purged: it was purged. Its id is never used again.
	Deleted, Purged bool
}

func (e *ExistsError) Error() string {
	s := fmt.Sprintf("session %s already exists", e.ID)
	switch {
	case e.Purged:
		return fmt.Sprintf("there was a session %s, which was deleted for good; an id is never used again", e.ID)
	case e.Deleted:
		return fmt.Sprintf("session %s is in the trash", e.ID)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Is matches ErrExists.
func (e *ExistsError) Is(t error) bool { return t == ErrExists }

// BusyError says that somebody else writes the session, and what can be done.
type BusyError struct {
	ID     session.ID
	Holder *Holder // nil: held, but the holder left no announcement that can be believed
}

func (e *BusyError) Error() string {
	who := "another writer"
	if h := e.Holder; h != nil {
		who = fmt.Sprintf("%s (pid %d on %s, since %s)", h.Program, h.PID, h.Host, h.Since.Format("2006-01-02 15:04:05"))
	}
	return fmt.Sprintf("session %s is held by %s", e.ID, who)
}

// Ways returns the three ways on, as commands.
func (e *BusyError) Ways() []string {
	return []string{"strand tail " + string(e.ID), "the same command with --take-over", "strand fork " + string(e.ID)}
}

// Is matches ErrBusy.
func (e *BusyError) Is(t error) bool { return t == ErrBusy }

// FencedError says that another life wrote at Pos first. SavedAs names the fork in which the events of
// this life that did not get in were kept ("" until that is done).
type FencedError struct {
	ID      session.ID
	At      Pos
	Detail  string
	SavedAs session.ID
}

func (e *FencedError) Error() string {
	s := fmt.Sprintf("session %s was taken over by another writer at seq %d", e.ID, e.At.Next)
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	if e.SavedAs != "" {
		s += fmt.Sprintf("; what this one still held is saved as the fork %s", e.SavedAs)
	}
	return s
}

// Is matches ErrFenced.
func (e *FencedError) Is(t error) bool { return t == ErrFenced }

// DamagedError says which bytes of a session cannot be trusted. The bytes are kept.
type DamagedError struct {
	ID     session.ID // "" of a blob that was asked for by its name
	Owner  session.ID // whose file it is, when it is inherited from another session
	Ranges []Range
}

func (e *DamagedError) Error() string {
	var b strings.Builder
	if e.ID == "" {
		b.WriteString("a value that sessions share is damaged")
	} else {
		fmt.Fprintf(&b, "session %s is damaged", e.ID)
	}
	for i, r := range e.Ranges {
		if i == 3 {
			fmt.Fprintf(&b, "; and %d more", len(e.Ranges)-i)
			break
		}
		sep := ": "
		if i > 0 {
			sep = "; "
		}
		b.WriteString(sep + r.File)
		if r.Bytes > 0 || r.Offset > 0 {
			fmt.Fprintf(&b, " at byte %d (%d bytes)", r.Offset, r.Bytes)
		}
		b.WriteString(": " + r.Detail)
	}
	return b.String()
}

// CodeDamaged is the code of what failed because of damage, as logs and programs are told it.
const CodeDamaged = "DAMAGED"

// Code returns CodeDamaged.
func (e *DamagedError) Code() string { return CodeDamaged }

// Is matches ErrDamaged.
func (e *DamagedError) Is(t error) bool { return t == ErrDamaged }

// UnsupportedError says that a newer program wrote what this one may only read.
type UnsupportedError struct {
	ID     session.ID
	Detail string
	Cause  error // a *session.UnsupportedError if it is the types of events that are not known; else nil
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("session %s cannot be written by this program: %s", e.ID, e.Detail)
}

// Is matches ErrUnsupported.
func (e *UnsupportedError) Is(t error) bool { return t == ErrUnsupported }

// Unwrap returns the cause.
func (e *UnsupportedError) Unwrap() error { return e.Cause }

// ReadOnlyError says why a store cannot be written to.
type ReadOnlyError struct {
	Path  string
	ID    session.ID // the stored session that was to be gone on with or forked; "" if none
	Cause error
}

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("the store %s cannot be written: %v", e.Path, e.Cause)
}

// Unwrap returns the cause.
func (e *ReadOnlyError) Unwrap() error { return e.Cause }

// Is matches ErrReadOnly.
func (e *ReadOnlyError) Is(t error) bool { return t == ErrReadOnly }

// StoreFileError says that the file which says what a store is cannot be read. The sessions can; nothing is written until
// the file was repaired (StoreRepairer).
type StoreFileError struct {
	Path string
	Why  string
}

func (e *StoreFileError) Error() string { return fmt.Sprintf("%s cannot be read: %s", e.Path, e.Why) }

// NotSavedError says that accepted events are not on disk yet. They are kept in memory and saving is
// tried again.
type NotSavedError struct {
	ID    session.ID
	Path  string
	Cause error
}

func (e *NotSavedError) Error() string {
	return fmt.Sprintf("session %s is not saved to %s: %v", e.ID, e.Path, e.Cause)
}

// Unwrap returns the cause.
func (e *NotSavedError) Unwrap() error { return e.Cause }

// Is matches ErrNotSaved.
func (e *NotSavedError) Is(t error) bool { return t == ErrNotSaved }

// TooLargeError says that an event's record is longer than the format allows. Nothing of its batch was
// written, and trying again does not help.
type TooLargeError struct {
	ID           session.ID
	Seq          session.Seq
	Bytes, Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("event %d of session %s needs a record of %d bytes, the limit is %d: keep large values as strings, which are stored beside the record",
		e.Seq, e.ID, e.Bytes, e.Limit)
}

// Is matches ErrTooLarge.
func (e *TooLargeError) Is(t error) bool { return t == ErrTooLarge }
