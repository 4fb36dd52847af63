// Package store is the seam between sessions and whatever keeps them: the interfaces a driver
// implements, the errors it answers with, and what is built on the seam alone (Load, Fork).
//
// A driver implements Store and as many of the capabilities (Forker, Taker, Lister, Remover, Watcher, Verifier, Repairer, Blobs, Checkpoints) as it can; they
// are found by type assertion. The suite in package storetest is the contract in executable form: a
// driver that passes it can be used anywhere.
//
// Four words are never mixed. An event is accepted when it is in a session's memory; written when it
// survives the death of the process; synced when it survives loss of power; acknowledged when
// somebody was told that it is safe, which is only said of what is synced.
package store

import (
	"context"
	"iter"
	"time"

	"github.com/strandline-dev/strandline/session"
)

// Pos is a place in a log: the next seq, and the link of the record before it. Two logs with equal
// Pos hold equal events up to there.
type Pos struct {
	Next session.Seq
	Link session.Link
}

// Store is what every driver offers. All methods are safe for concurrent use. They answer with the
// errors of this package; "not there" (ErrNotFound) is never confused with "cannot be read".
// Cancellation returns context.Cause.
type Store interface {
	Reader
	Opener
	// Close ends every writer and waits for the driver's goroutines. Idempotent.
	Close() error
}

// Reader reads sessions. It takes no lease and writes nothing.
type Reader interface {
	// Stat returns the facts of a session without loading it. A session that cannot be read has a
	// Stat with State StateDamaged or StateUnsupported and a Reason, not an error; errors are
	// ErrNotFound and failures of the medium.
	Stat(ctx context.Context, id session.ID) (Stat, error)
	// Read returns a valid prefix of the log, also while someone writes. The caller closes it.
	// Damage inside the log is in Snapshot.Damage, and Prefix ends before it.
	Read(ctx context.Context, id session.ID) (*Snapshot, error)
}

// Opener hands out the right to write. At most one Writer of a session exists at any time, in all
// processes; the engine releases it when its holder dies.
type Opener interface {
	// Create reserves an id. Nothing is stored until the first Append; Close before that leaves no
	// trace. ErrExists if the id is stored or held, in any process, or was ever used: also in the trash, also purged.
	Create(ctx context.Context, h session.Header) (Writer, error)
	// Open takes the exclusive lease, or fails with *BusyError at once (also for a second handle in
	// this process). It changes no byte of the log. ErrNotFound, *DamagedError, *UnsupportedError,
	// *ReadOnlyError say why a session cannot be written to. A store with Checkpoints reads what lies behind one.
	Open(ctx context.Context, id session.ID) (Writer, error)
}

// Peeker is Reader for somebody who needs a few events of a long log: the cost does not grow with its length.
type Peeker interface {
	// Peek returns the log without having read it: an event is looked for when it is asked for, and verified
	// then. It says nothing about damage elsewhere. Only a healthy end can be trusted so: (nil, nil) when
	// the driver would rather have the log Read.
	Peek(ctx context.Context, id session.ID) (*Snapshot, error)
}

// Finder is Peeker for somebody who needs one event of a log that he has seen the end of.
type Finder interface {
	// Find returns the event at seq in the log of the session with this header: it is verified, and stands where it counts. Nothing
	// is looked at beside it: neither whether the log goes so far, which the caller knows, nor what lies before. ok is false when the
	// driver would rather have the log Peeked at or Read. ErrNotFound, *DamagedError.
	Find(ctx context.Context, h session.Header, seq session.Seq) (ev session.Event, ok bool, err error)
}

// Writer is one life of a session: the hold from its lease to its release or death. Append and
// Flush are called by one goroutine at a time; the other methods at any time.
type Writer interface {
	Header() session.Header
	// Opened is what was stored when the lease was taken. It stays readable until Close.
	Opened() *Snapshot
	// Append writes a contiguous batch that begins at the next seq and returns when it is written. The
	// first Append of a life carries the pending prefix. *FencedError: another life got there
	// first; what of the batch is in the log nevertheless is there because that life may have read it. Any other error: the batch is not saved; calling again
	// with the same events (more may follow them) tries again, and events that are already written are
	// accepted again when they are equal.
	Append(ctx context.Context, events []session.Event) (Pos, error)
	// Flush syncs everything written before, checks that this life still owns the log, and returns the
	// synced position: what is below it may be acknowledged. After a failed sync, everything above the
	// last synced position counts as not saved: append it again.
	Flush(ctx context.Context) (Pos, error)
	// Stored returns the written events, from 0, readable until Close.
	Stored() session.Prefix
	// Base is the first seq of this life's oldest segment, session.None before the first Append.
	Base() session.Seq
	// Close releases the lease. It does not sync. Idempotent.
	Close() error
}

// Snapshot is a valid prefix of one log at one moment.
type Snapshot struct {
	Header session.Header
	Prefix session.Prefix
	Pos    Pos // the end of Prefix
	// Torn is what a dead writer left behind the last good record: skipped, harmless. Nil if nothing.
	Torn *Range
	// Left are the torn tails of earlier lives, behind which a later one went on: skipped, harmless. Only
	// Verify looks for them.
	Left []Range
	// Lost are bad records above the last synced mark, which loss of power explains: the marks that the
	// next life writes in their place (session/lost events, and copies of good records behind them).
	Lost []session.Event
	// Damage is what nobody can explain: the log is readable up to it and cannot be written to.
	Damage []Range
	// Marked are the seqs at which a session/lost is stored, Kept the damaged files that repairs kept. Only Verify
	// looks for them.
	Marked []Span
	Kept   []string
	// Unsupported is not empty when the log needs a newer program to be written to.
	Unsupported string

	// Nearest returns the newest checkpoint of the first n events or fewer, which was seen to be one of this log; nil
	// if there are none. Only Open and ReadTail know any.
	Nearest func(n session.Seq) (Checkpoint, bool)

	// Repaired differs from what it was before a repair of the log or of what it begins with: the events may be others now,
	// although Pos is the same. Only Open, Create and ReadTail tell.
	Repaired string

	// Release frees what Prefix holds on to; nil if nothing. Use Close.
	Release func() error
}

// Close releases the snapshot; Prefix must not be used afterwards.
func (s *Snapshot) Close() error {
	if s == nil || s.Release == nil {
		return nil
	}
	return s.Release()
}

// Range is a stretch of bad bytes: where it lies and which seqs it stands for (First > Last: none
// known).
type Range struct {
	File          string
	Offset, Bytes int64
	First, Last   session.Seq
	Detail        string
}

// State is the condition of a stored session.
type State string

// The states. A torn session is healthy: the tail is skipped and the next life goes on.
const (
	StateOK          State = "ok"
	StateTorn        State = "torn"
	StateDamaged     State = "damaged"
	StateUnsupported State = "unsupported"
)

// Stat is what a store knows of a session without folding it.
type Stat struct {
	ID           session.ID
	Header       session.Header
	Pos          Pos
	LastActivity int64 // Unix milliseconds
	Bytes        int64 // of the session's own files
	State        State
	Reason       string  // why State is damaged or unsupported
	Holder       *Holder // nil: nobody writes
	// Base is the first seq of the holder's oldest segment, or Pos.Next when it has written nothing or
	// nobody holds the session: an open bracket below it is dead.
	Base session.Seq
	// Title is the last title of the log, if the driver knows it without folding.
	Title string
}

// Holder tells a person who writes a session. Its text is never used to decide anything.
type Holder struct {
	Nonce     string     `json:"nonce"`
	PID       int        `json:"pid"`
	Started   string     `json:"processStart"` // platform's start mark of the process
	Host      string     `json:"host"`
	Program   string     `json:"program"`
	Since     time.Time  `json:"since"`
	SessionID session.ID `json:"session"`
}

// Forker makes a fork by pointer. Package function Fork finds the cut and makes the request.
type Forker interface {
	// CreateFork stores a new session whose header names a synced prefix of a stored session, with own
	// as its first events (closers and boundary; may be empty for an empty source). When it returns
	// everything is synced. ErrExists if the id is taken. Link and spans of the header are checked.
	CreateFork(ctx context.Context, h session.Header, own []session.Event) error
	// LinkAt returns the link of the stored event at seq, and syncs the source up to it.
	LinkAt(ctx context.Context, id session.ID, seq session.Seq) (session.Link, error)
	// Trail returns the links of some stored events before seq, ascending, for the header of a fork there (session.Parent).
	// There are few, however long the log, and none before the part that seq is in. The result is not nil.
	Trail(ctx context.Context, id session.ID, seq session.Seq) ([]session.Waypoint, error)
}

// Taker takes in a session that was made elsewhere.
type Taker interface {
	// Take stores a session with its first events (there may be none), all or nothing: when it returns
	// everything is synced. However many there are, a bounded part of them is kept in memory. An error that events
	// yields is returned as it is. The header names no parent. ErrExists if the id is taken.
	Take(ctx context.Context, h session.Header, events iter.Seq2[session.Event, error]) error
}

// Lister lists sessions.
type Lister interface {
	List(ctx context.Context, q Query) (Page, error)
	// Match returns the ids that begin with prefix, at most limit.
	Match(ctx context.Context, prefix string, limit int) ([]session.ID, error)
}

// Verifier reads without trust, for the health check.
type Verifier interface {
	// Verify is Read in which every sum and every link is computed, those of the inherited part included,
	// and every blob that a record names is read. Damage lists all that is wrong; Prefix ends before it.
	Verify(ctx context.Context, id session.ID) (*Snapshot, error)
}

// Query selects and orders a page of a list. The zero value lists everything by last activity.
type Query struct {
	Projects   []string              // names of one project, of which a header bears one (InProject); nil = any
	Kinds      []session.SessionKind // nil = all
	ByCreation bool
	Trash      bool   // what is in the trash, instead (of a Remover)
	Limit      int    // 0 = no limit
	Cursor     string // from Page.Next
}

// InProject reports whether a session with header h is of the project that q asks for: whether one of its names is
// the header's projectId, its project, or its cwd where it has no project.
func (q Query) InProject(h session.Header) bool {
	if q.Projects == nil {
		return true
	}
	for _, name := range q.Projects {
		if name != "" && (name == h.ProjectID || name == h.Project || h.Project == "" && name == h.Cwd) {
			return true
		}
	}
	return false
}

// Page is a part of a list: newest first, ties by id. A bad session is a row with its State and Reason.
type Page struct {
	Rows   []Stat
	Next   string                      // "" = no more
	Total  int                         // rows in all pages
	Hidden map[session.SessionKind]int // sessions left out by Kinds
}

// Blobs keeps large values once for all sessions.
type Blobs interface {
	// PutBlob stores data and returns its name; when it returns the blob is synced.
	PutBlob(ctx context.Context, data []byte) (name string, err error)
	// ReleaseBlob says that for one PutBlob of name no record that names it will come: a collector may take it again,
	// unless somebody else named it, or is about to.
	ReleaseBlob(name string)
	// GetBlob returns the verified bytes. ErrNotFound, or *DamagedError if they do not match the name.
	GetBlob(ctx context.Context, name string) ([]byte, error)
}
