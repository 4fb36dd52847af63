package store

import (
	"context"
	"fmt"

	"github.com/strandline-dev/strandline/session"
)

// Remover deletes sessions: into the trash, back, and for good. Nothing is ever deleted because of its age, and
// an id that was used is never free again.
//
// Forks go on as if nothing had happened: one that began with a part of a session reads it from the trash, and
// when that session is purged the part is handed to the fork first.
type Remover interface {
	// Trash moves a session into the trash: it is in no list, cannot be opened, and its id stays taken. It takes
	// the lease for that moment, and changes no byte of the log. A session that cannot be read can be trashed
	// too. *BusyError while somebody holds it; ErrNotFound (with NotFoundError.Trashed if it is there already).
	Trash(ctx context.Context, id session.ID) error
	// Restore takes a session out of the trash; it is what it was. ErrNotTrashed; ErrNotFound.
	Restore(ctx context.Context, id session.ID) error
	// Dependents tells what others than ids need of sessions, stored or in the trash, in the order of ids: what a
	// purge of all of them would leave. With blobs it reads the logs of the whole store to tell which values they share. ErrNotFound.
	Dependents(ctx context.Context, ids []session.ID, blobs bool) ([]Dependents, error)
	// Purge removes sessions from the trash for good: the log but for what forks began with, the blobs that
	// nobody else names, and what is derived of them. All or nothing for each session, in the face of a crash
	// too: one that was begun is completed by the next Purge. The results are in the order of ids; of their
	// errors ErrNotTrashed and ErrNotFound are for callers to decide on.
	Purge(ctx context.Context, ids []session.ID) []Purged
	// MatchTrash is Lister.Match for the trash.
	MatchTrash(ctx context.Context, prefix string, limit int) ([]session.ID, error)
}

// Dependents is what others need of a session.
type Dependents struct {
	ID    session.ID
	Heirs []Heir       // by id
	Blobs []SharedBlob // by name; nil if it was not asked for
}

// Heir is a fork that begins with events of a session.
type Heir struct {
	ID        session.ID
	Trashed   bool
	From, End session.Seq // the events From..End-1 were logged by that session
	Bytes     int64       // of the records that hold them
}

// SharedBlob is a value that a session names, and others too.
type SharedBlob struct {
	Name  string
	Bytes int64
	By    []session.ID // the others, sorted
}

// Purged is what came of the purge of one session.
type Purged struct {
	ID    session.ID
	Bytes int64 // of its files and of the blobs that nobody else named
	Blobs int   // how many of those
	// Unsure says why its blobs stay although they may be nobody's: a session that may name them cannot be read.
	Unsure error
	Err    error
}

// NotTrashedError says that a session is not in the trash, where what is asked for would be done.
type NotTrashedError struct{ ID session.ID }

func (e *NotTrashedError) Error() string { return fmt.Sprintf("session %s is not in the trash", e.ID) }

// Is matches ErrNotTrashed.
func (e *NotTrashedError) Is(t error) bool { return t == ErrNotTrashed }
