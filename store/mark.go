package store

import (
	"context"

	"github.com/strandline-dev/strandline/session"
)

// Marker tells cheaply which sessions were written to, for who keeps something derived of them.
type Marker interface {
	// Marks returns a mark of every stored session, sorted by id; with ids only of those, in their order, without
	// those that are not stored. known returns the mark that the caller has of a session, the zero value if none: it
	// saves work and decides nothing. Nothing is opened but directories: a session that cannot be read has a mark
	// too. Errors are failures of the medium.
	Marks(ctx context.Context, ids []session.ID, known func(session.ID) Mark) ([]Mark, error)
}

// Mark is what a look at a session's files from outside tells. A look sees what was written before it began.
type Mark struct {
	ID session.ID
	// Stamp is for the driver to read. Two equal ones that are not empty: the log did not change between the two
	// looks. Empty: that cannot be told, Stat says more.
	Stamp string
	// Past changes when events that were there before may have been replaced, which a repair does.
	Past string
	// Held: somebody announced that he writes the session, perhaps one who is dead by now.
	Held bool
}

// Tracer tells without looking at each session whether any may have changed.
type Tracer interface {
	// Traces looks at what every program that writes a session leaves where all of them do. It costs the same however
	// many sessions there are. Errors are failures of the medium.
	Traces(ctx context.Context) (Traces, error)
}

// Traces are left by whoever makes, takes away, or begins or ends to write a session. What is done to the files of a
// session without this package's writers leaves none.
type Traces struct {
	// Stamp is for the driver to read. Two equal ones that are not empty: between the two looks no session came or went,
	// and who wrote one had announced it before the first look and has not withdrawn it. Empty: that cannot be told.
	Stamp string
	// Held are the sessions that somebody announced to write, perhaps one who is dead by now.
	Held []session.ID
}

// Checker tells whether a log is still the one that was read, more closely than its mark.
type Checker interface {
	// Check looks at every file that reading the log of h.ID opens but blobs. now is what it saw, for a later Check;
	// "" if nothing can be told. same: all that was there when was came from a Check is there and was not touched
	// since, and at most something was added behind it.
	Check(ctx context.Context, h session.Header, was string) (now string, same bool, err error)
}

// Ender looks at many sessions as a Marker and Stat together would, in fewer calls.
type Ender interface {
	// Ends returns what it saw of each session, in the order of known: the marks that the caller has, of a session that he
	// has none of one with nothing but its id. Errors are failures of the medium that are not about one session.
	Ends(ctx context.Context, known []Mark) ([]End, error)
}

// End is a mark of a session, and what Stat says of it, which was read afterwards. A holder who was not announced when Ends was
// called may be without a name.
type End struct {
	Mark Mark
	Stat Stat
	Err  error // of Stat
}
