package store

import (
	"context"
	"time"

	"github.com/strandline-dev/strandline/session"
)

// Packer makes stored sessions smaller.
type Packer interface {
	// Pack joins and compresses what earlier lives of a session wrote. Events, sums and links stay as they are. It
	// takes the lease meanwhile: *BusyError while somebody writes. Only what is healthy is packed: else
	// *DamagedError. Cancelled or killed at any moment it leaves a session that reads as before; calling again
	// goes on. Packing what is packed does nothing.
	Pack(ctx context.Context, id session.ID) (Packed, error)
}

// Packed says what Pack did.
type Packed struct {
	ID                      session.ID
	Before, After           int   // segments
	BytesBefore, BytesAfter int64 // of the segments on disk
	Aside                   int64 // bytes that are in no record, and are kept beside the log
}

// Surveyor tells what a store holds.
type Surveyor interface {
	// Survey counts and measures, from names and sizes alone. It creates nothing, also where there is no store yet.
	Survey(ctx context.Context) (Survey, error)
	// EachBlob calls f with the name and size of every blob, sorted by name, until it returns an error.
	EachBlob(ctx context.Context, f func(name string, bytes int64) error) error
	// Sizes measures every session, in the trash or not. It reads all of them once, and calls step before each (nil:
	// nobody). What cannot be read is a row with a reason.
	Sizes(ctx context.Context, step func(i, n int)) ([]Footprint, error)
}

// Footprint is what a session takes.
type Footprint struct {
	ID      session.ID
	Trashed bool
	Own     int64  // bytes of its own files; what a fork inherits lies in its parent's
	Alone   Amount // blobs that nothing else in the store names
	Shared  Amount // blobs that something else names too
	Unread  string // why it could not be measured wholly; "": it could
}

// Amount is a number of things and their bytes.
type Amount struct {
	N     int   `json:"n"`
	Bytes int64 `json:"bytes"`
}

// Survey is what a store holds.
type Survey struct {
	Root   string
	Format int    // 0: nothing was ever stored
	Store  string // the store's id
	Bad    string // why the file that tells both does not; "": it does, or nothing was ever stored
	// Locks says why locks do not keep a second writer out here, or that nobody knows; "": they do.
	Locks string
	// ReadOnly says why nothing can be written; "": it can.
	ReadOnly string
	Segments Amount // all of them, packed ones included
	Packed   Amount
	Trash    Amount // sessions in the trash; all that is in them
	Blobs    Amount
	BadBlobs Amount // that somebody put aside because their bytes did not have their name
	Aside    Amount // files in which bytes of no record, or damaged ones, are kept
	Litter   Amount // temporary files, of writers at work or of such that died
}

// Collector removes values that nothing names any more.
type Collector interface {
	// Collect removes the blobs that no stored session names, those in the trash and damaged ones included. A name
	// counts wherever it stands: in the reference to a string, in a text, in a string that is a blob itself. If
	// something cannot be read it removes nothing and says so. Killed at any moment, and whatever writers do
	// meanwhile, it loses nothing that is named. An error that wraps ErrBusy: somebody has put a value and not yet
	// written the event that names it.
	Collect(ctx context.Context, opt CollectOptions) (Collected, error)
}

// CollectOptions says how to collect.
type CollectOptions struct {
	DryRun bool           // only say what would be removed
	Wait   time.Duration  // for those who have put a value and not named it yet
	Step   func(i, n int) // called before each session is read; may be nil
}

// Collected says what Collect found and did.
type Collected struct {
	Removed Amount   // named by nothing
	Kept    Amount   // named
	Unsure  Amount   // kept because of Unread
	Unread  []Unread // what cannot be read
	Litter  Amount   // temporary files and directories whose makers died: removed
}

// Unread is a place whose content nobody knows.
type Unread struct {
	Where string `json:"where"`
	Why   string `json:"why"`
}
