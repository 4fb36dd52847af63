package store

import (
	"context"

	"github.com/strandline-dev/strandline/session"
)

// Repairer goes on where a log is damaged: read-only at once, and for writing after a repair.
type Repairer interface {
	// Salvage is Read that goes on behind damage: in the place of each record that is missing or bad, Prefix holds a
	// session/lost that is not stored. Damage says what is wrong; nothing may be written on top of such a
	// snapshot. A log without damage is as Read returns it.
	Salvage(ctx context.Context, id session.ID) (*Snapshot, error)
	// Repair makes a damaged session one that can be written to, under its lease: a session/lost is stored
	// in the place of each record that is gone, good records keep their bytes, and every damaged file is kept. A
	// crash leaves a session that can be read as before and repaired again. With dryRun it only says
	// what it would do, exactly, and takes no lease; what it would write is in memory meanwhile. A session that needs no repair is not touched. *BusyError, *ReadOnlyError,
	// *UnsupportedError; *DamagedError with another Owner if the damage is in the files of that session.
	Repair(ctx context.Context, id session.ID, dryRun bool) (Repair, error)
	// PlanRepair is a dry run of Repair as it would go behind repairs of the sessions after, one behind the other, with what these
	// do and what they do not. Whoever asks for one session after the other, with all before it as after, has each repair planned once.
	PlanRepair(ctx context.Context, id session.ID, after []session.ID) (Repair, error)
}

// Span is a run of seqs, both ends included.
type Span struct {
	First session.Seq `json:"first"`
	Last  session.Seq `json:"last"`
}

// Repair is what a repair did, or would do.
type Repair struct {
	Damage  []Range  // what was wrong; nil: nothing, and nothing was done
	Lost    []Span   // a session/lost stands in the place of these
	Found   []Span   // records that stood where they do not count, proven by their links
	Kept    []string // where the damaged files are, byte for byte
	Written []string // the files that were made
	Guessed []string // what a new header says that no file says for certain
}

// Records returns how many records are in the spans.
func Records(spans []Span) int {
	n := 0
	for _, s := range spans {
		n += int(s.Last-s.First) + 1
	}
	return n
}

// AddSeq adds the seq behind all that are in spans.
func AddSeq(spans []Span, seq session.Seq) []Span {
	if n := len(spans); n > 0 && spans[n-1].Last+1 == seq {
		spans[n-1].Last = seq
		return spans
	}
	return append(spans, Span{seq, seq})
}

// StoreRepairer repairs what says of a directory that it is a store.
type StoreRepairer interface {
	// RepairStore sets a file aside that cannot be read, and makes a new one, with the id that the old one shows, or a new
	// id. Nothing is done where nothing is wrong (Damage is nil), and *UnsupportedError is returned if a session of a newer
	// format is there: then the store may be of a newer format, too. With dryRun it only says what it would do.
	RepairStore(ctx context.Context, dryRun bool) (Repair, error)
}
