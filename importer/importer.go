// Package importer takes session files of other programs, and sessions exported by this one, into a store.
//
// What every file has in common is here: files are recognised by their content and never by their name, they
// are plain or zstd (independent frames, one after the other), lines end in LF and in nothing else, a line may
// hold several objects, be unreadable in the middle of a good file, or be cut off at its end. A format (package
// dsh, package native) turns what it finds into the events of a log and says in a Fidelity what became of each.
//
// The events are stored as history: as the source had them, in its order, each at the seq that it had there,
// without closers and without a boundary. Whatever has no meaning here stays as an ignorable import/note event
// with its line. The session can be shown, forked and gone on with; the first life that resumes it adds the
// ends that its writer could not write.
//
// A source file is read (twice: once to know what it is, once to store it) and never written to. The same bytes
// give the same session again and write nothing.
//
// The files, in reading order:
//
//	importer.go  what a format is; the registry; what is told of a file
//	import.go    Import: one file into one session
//	store.go     storing what was read
//	open.go      plain bytes of a plain or compressed file
//	lines.go     lines, and the objects in a line
//	object.go    JSON objects that keep what nobody understands
//	tidy.go      foreign data made acceptable
//	note.go      what has no meaning here
package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/strandline-dev/strandline/session"
)

// Format reads the session files of one program.
type Format interface {
	// Name is what a person says for it, and what the header of an imported session keeps.
	Name() string
	// Sniff reports whether a file that begins with head (its plain bytes, at most SniffBytes of them) is of
	// this format. At most one format may say so.
	Sniff(head []byte) bool
	// Read reads a file and hands over its events in order, with contiguous seqs from 0; each is acceptable to
	// session.CheckData, and its slices are the receiver's. Large values that the file holds beside its events
	// go to and come from blobs; without blobs (nil) they are left out, and only the number of events counts.
	// It does not fail for what a line says, as far as the format has a way to keep it: an error is one of src
	// or emit, ErrNotThis, *VersionError, or says why the file must not be believed.
	Read(ctx context.Context, src io.Reader, blobs Blobs, emit func(session.Event) error) (*Log, error)
}

// Blobs is where large values go.
type Blobs interface {
	PutBlob(ctx context.Context, data []byte) (name string, err error)
	GetBlob(ctx context.Context, name string) ([]byte, error)
}

// SniffBytes is how much of a file a format may look at to recognise it.
const SniffBytes = 64 << 10

// ErrNotThis says that a file holds nothing that its format knows.
var ErrNotThis = errors.New("it holds no session that is known here")

// VersionError says that a file is of a later version than is known. It is not a damaged file.
type VersionError struct {
	Tool       string
	Have, Know int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("it is a %s session of version %d; versions up to %d are known here, and a newer strand may read it", e.Tool, e.Have, e.Know)
}

// Log is what a format learned of a session beside its events.
type Log struct {
	Source    string // the session's id there, "" if it has none
	CreatedAt int64  // Unix milliseconds, 0 if unknown
	Cwd       string
	Depth     int // of delegation
	// Lineage there: the session that it began in, how many events it has from it, and what it was made for.
	Parent     string
	SeedLength session.Seq
	Origin     string

	// Header is that of a session of this program: it moves here with its id, if it is not here already.
	Header *session.Header
	// Copy: the file is not that session itself, but a changed or shortened copy: it gets an id of its own.
	Copy bool

	Events   session.Seq
	Fidelity Fidelity
	Tail     Tail
}

// Tail is what stands behind the last readable line: the beginning of one that was never finished.
type Tail struct {
	Bytes int64  // how many
	Raw   []byte // the first of them, at most TailKept
}

// TailKept is how much of a torn tail is kept in the header of the session.
const TailKept = 4 << 10

// Cut makes a Tail of rest, of which n bytes lie in the source.
func Cut(rest []byte, n int64) Tail {
	return Tail{Bytes: n, Raw: bytes.Clone(rest[:min(len(rest), TailKept)])}
}

// Fidelity says what became of the events of a source: Kept + Mapped + Notes is their number.
type Fidelity struct {
	Kept   int `json:"kept"`   // stored as they were
	Mapped int `json:"mapped"` // stored under another name or in another shape; nothing of their meaning is lost
	Notes  int `json:"notes"`  // stored as notes, with their line, without a meaning
	// Changes says how events were mapped.
	Changes []Count `json:"changes"`
	// Dropped says what has no meaning in the session: the kinds of note, and what is not in it at all.
	Dropped []Count `json:"dropped"`
	// Unknown are the types that this version of the program has never heard of.
	Unknown []string `json:"unknown"`
}

// Count is a number of equal things.
type Count struct {
	What  string `json:"what"`
	Count int64  `json:"count"`
}

// maxCounts bounds the lists of a Fidelity: a file that is strange everywhere is said to be so often enough.
const maxCounts = 200

// Change counts one way in which something was mapped.
func (f *Fidelity) Change(what string) { f.Changes = count(f.Changes, what, 1) }

// Drop counts n of what has no meaning here.
func (f *Fidelity) Drop(what string, n int64) { f.Dropped = count(f.Dropped, what, n) }

// Stranger remembers a type that is not known.
func (f *Fidelity) Stranger(typ string) {
	if len(f.Unknown) < maxCounts && !slices.Contains(f.Unknown, typ) {
		f.Unknown = append(f.Unknown, typ)
	}
}

func count(list []Count, what string, n int64) []Count {
	if i := slices.IndexFunc(list, func(c Count) bool { return c.What == what }); i >= 0 {
		list[i].Count += n
		return list
	}
	if len(list) >= maxCounts {
		return other(list, n)
	}
	return append(list, Count{what, n})
}

// Sort orders the lists by name, so that the same file gives the same report.
func (f *Fidelity) Sort() {
	byWhat := func(a, b Count) int { return strings.Compare(a.What, b.What) }
	slices.SortFunc(f.Changes, byWhat)
	slices.SortFunc(f.Dropped, byWhat)
	slices.Sort(f.Unknown)
	if f.Changes == nil {
		f.Changes = []Count{}
	}
	if f.Dropped == nil {
		f.Dropped = []Count{}
	}
	if f.Unknown == nil {
		f.Unknown = []string{}
	}
}

// Formats is a set of formats, in the order in which they are asked.
type Formats []Format

// Named returns the format called name.
func (fs Formats) Named(name string) (Format, bool) {
	i := slices.IndexFunc(fs, func(f Format) bool { return f.Name() == name })
	if i < 0 {
		return nil, false
	}
	return fs[i], true
}

// Names lists the names of the formats.
func (fs Formats) Names() []string {
	var out []string
	for _, f := range fs {
		out = append(out, f.Name())
	}
	return out
}

// Sniff returns the format of a file by its first plain bytes; nil if no format knows it.
func (fs Formats) Sniff(head []byte) Format {
	for _, f := range fs {
		if f.Sniff(head) {
			return f
		}
	}
	return nil
}

// other adds to the last entry of a full list.
func other(list []Count, n int64) []Count {
	const rest = "others"
	if last := &list[len(list)-1]; last.What == rest {
		last.Count += n
		return list
	}
	return append(list, Count{rest, n})
}
