// Package index keeps what is derived of all sessions of a store in one SQLite file, so that a list, a search or a sum
// over ten thousand sessions does not read ten thousand logs. The logs are the truth: the file may be deleted, cut or
// damaged at any moment, by anybody, and no answer changes but in the time that it takes.
//
// How it is kept right:
//
//   - It holds written events only, as the store reads them. Nothing is taken from a session's memory.
//   - Each answer begins with a look at the sessions from outside (store.Marker), a stat or two for each. What
//     changed since it was written down is read again: its end, and its log from where the index knows it.
//   - A row proves itself with a sum over all that it says. One wrong sum, or one error of SQLite that is not about
//     locks or room, and the whole file is thrown away and begun again.
//   - What cannot be written down (locked, full, read-only) is kept in memory for as long as the process lives. So an
//     index without a file is the same index, and slower.
//
// The files, in reading order:
//
//	index.go    Open, Close, what an Index holds
//	facts.go    what is known of one log: a fold that can go on where it stopped
//	row.go      how a session is written down, and proves itself
//	db.go       the file: schema, opening, throwing away, transactions (access_*.go: may it be written)
//	shelf.go    what every list reads of all sessions, in order
//	pack.go     the shelf in the file, for the next process
//	look.go     what changed: marks against rows
//	share.go    what is known of logs that forks share
//	advance.go  reading what is new of a log, and writing it down
//	list.go     pages of a list
//	hours.go    what was done when: rows for statistics
//	search.go   searching: what the tables propose, what the logs say
//	cover.go    taking logs into the tables of the search
//	sum.go      how these prove themselves
package index

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Options says what to index and where. Store must be a store.Marker for the index to save anything.
type Options struct {
	Path     string // of the file; "": memory only
	Store    store.Store
	Registry *session.Registry
	// Lag is how many events may be searched in their logs before they are taken into the tables of the search; 0: 1000, and
	// more in a large store.
	Lag int
	// Now tells the time. Nil: each answer looks at all sessions.
	Now func() time.Time
	// Warn is told, once at most in the life of an Index, why the file cannot be used. Nil: nobody is.
	Warn func(err error)
}

// Index is an index of one store. All methods are safe for concurrent use.
type Index struct {
	opt  Options
	kind string // of the registry: facts folded under another one are not these facts

	busyMS int
	warned sync.Once
	// looking is held by whoever compares the index with the store: two at a time would do the same work twice.
	looking sync.Mutex

	mu     sync.Mutex
	closed bool
	db     *sql.DB              // nil: not opened yet, or it cannot be used
	off    bool                 // until the next answer nothing is written to it; nor is it opened, if it is not
	waited bool                 // somebody holds the file and was waited for
	thrown int                  // how often it was thrown away
	file   fileID               // of the file that db was opened on
	loaded int64                // the file's data_version when the shelf was filled
	shelf  shelf                // the heads of all sessions
	apart  bool                 // something could not be written: the file may have other heads
	life   int                  // how often the shelf was emptied
	kept   map[session.ID]body  // of sessions that are not in the file as they are on the shelf
	bodies map[session.ID]shown // of those that were shown, as they are in the file

	looks int64                // begun
	seen  map[session.ID]int64 // the last look that found a session changed

	trusted    *trust // nil: all sessions have to be looked at
	refreshing bool   // that is done in the background
	work       sync.WaitGroup
	living     context.Context // until Close
	end        context.CancelFunc

	covers    map[session.ID]cover // how far the search knows each session; nil: not read yet
	coversAt  int64                // the version of the file that they were read from
	coverings int                  // how often they changed
	planned   planned              // what the last search found out
	sound     bool                 // the tables of the search were verified
	tally     tally                // of the transaction that is written
	spill     int64                // of the tables: how many seconds later than its own an event's key may be

	shares shares
}

// Open returns the index of a store. It neither reads nor writes: the file is opened, or made, when it is needed.
func Open(opt Options) *Index {
	if path, err := filepath.Abs(opt.Path); err == nil && opt.Path != "" { // SQLite is told it in a URL, where a first name would be a host
		opt.Path = path
	}
	x := &Index{opt: opt, kind: kindOf(opt.Registry), busyMS: busyMS, shares: shares{stride: stride}, kept: map[session.ID]body{}, seen: map[session.ID]int64{}}
	x.living, x.end = context.WithCancel(context.Background())
	return x
}

// shown is a body that was read, and its sum.
type shown struct {
	sum  uint64
	body body
}

// Close ends what is done in the background, and closes the file.
func (x *Index) Close() error {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.end()
	x.work.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.closeDB()
}

// warn tells why the index is slow.
func (x *Index) warn(err error) {
	x.warned.Do(func() {
		if x.opt.Warn != nil {
			x.opt.Warn(err)
		}
	})
}

// Forget takes sessions out, at once: they are deleted. It makes no file, and reports whether they are in none.
func (x *Index) Forget(ctx context.Context, ids ...session.ID) bool {
	if _, err := os.Lstat(x.opt.Path); err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	x.mu.Lock()
	x.ready(ctx)
	x.mu.Unlock()
	return x.drop(ctx, ids)
}
