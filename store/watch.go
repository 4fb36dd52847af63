package store

import (
	"context"
	"fmt"

	"github.com/strandline-dev/strandline/session"
)

// Watcher follows sessions, whoever writes them: this handle, another one or another process.
type Watcher interface {
	// Watch follows the log of id from the event at from on, which may lie in the inherited part of a fork or
	// beyond the end. It takes no lease and writes nothing. ErrNotFound if there is no such session yet.
	Watch(ctx context.Context, id session.ID, from session.Seq) (Feed, error)
}

// Feed is a place in a log that moves on as the log grows: over the end of segments and lives, packing and
// repair. It is used by one goroutine at a time. Its memory does not grow with the log.
type Feed interface {
	// Next waits for something new and returns it. Each event from the first on is given out once, in order,
	// boundaries and closers included, as soon as it is written; never one that is absent from the log later.
	//
	// Errors end a feed, but for the end of ctx, after which it may be asked again: ErrNotFound when the session
	// was removed, *DamagedError and *UnsupportedError where it cannot be read on, and *ReplacedError when the
	// log does not hold any more what was given out, which loss of power does, or a stale copy.
	Next(ctx context.Context) (News, error)
	// Close frees what the feed holds on to. Idempotent.
	Close() error
}

// News is what a Feed has to tell: events, or that there are none.
type News struct {
	Events []session.Event // adjacent seqs, a bounded number
	// Holder is who writes the session, nil if nobody does. It is told when Events is empty: everything that was
	// written is given out, for the first time or since another one (or nobody) holds the session.
	Holder *Holder
}

// ReplacedError says that a log does not hold any more what was read from it below Next.
type ReplacedError struct {
	ID   session.ID
	Next session.Seq // of the next event that was due
}

func (e *ReplacedError) Error() string {
	return fmt.Sprintf("session %s does not hold any more what was read from it before seq %d: power was lost, or an older copy was put in its place",
		e.ID, e.Next)
}

// Is matches ErrReplaced.
func (e *ReplacedError) Is(t error) bool { return t == ErrReplaced }
