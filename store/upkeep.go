package store

import (
	"context"

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
