package record

import (
	"bytes"
	"fmt"

	"github.com/strandline-dev/strandline/session"
)

// BadKind says what a bad line looks like.
type BadKind uint8

// The kinds of bad line.
const (
	Torn    BadKind = iota // bytes without a line end, at the end of the file
	Zeros                  // holds zero bytes, which no record does
	Joined                 // two or more whole records without a line end between them
	Half                   // a part of a record: its end, its beginning, or both with a hole
	Changed                // the form of a record, but the sum does not prove it
	Foreign                // nothing of a record in it
	Long                   // longer than any record
	Newer                  // the sum is right, but this version does not understand the envelope
)

var badNames = [...]string{"torn", "zeros", "joined records", "half a record", "changed bytes", "not a record",
	"too long for a record", "a record of a newer format"}

// String returns the kind in words.
func (k BadKind) String() string { return badNames[k] }

// Bad is a line that is not a record.
type Bad struct {
	Offset, Bytes int64 // in the file; the LF counts
	Kind          BadKind
	LF            bool        // a line end was found
	Blank         bool        // nothing but zero bytes
	Nul           int64       // how many zero bytes
	Seq           session.Seq // what the beginning of the line claims to be; None: unreadable
	Err           error       // why it is no record, if it had an end
}

// Tail reports whether this is what a dead writer leaves: at the end of a file's last segment it is
// torn, not damage.
func (b *Bad) Tail() bool { return !b.LF }

// String describes the line for a person.
func (b *Bad) String() string {
	s := b.Kind.String()
	if b.Nul > 0 {
		s += fmt.Sprintf(" (%d zero bytes)", b.Nul)
	}
	if b.Err != nil {
		s += ": " + b.Err.Error()
	}
	return s
}

func (b *Bad) add(part []byte) {
	n := int64(bytes.Count(part, []byte{0}))
	b.Nul += n
	b.Bytes += int64(len(part))
	b.Blank = b.Blank && n == int64(len(part))
}

func (b *Bad) end(lf bool) {
	b.LF = lf
	if b.Nul > 0 {
		b.Kind = Zeros
	}
}

var (
	opening = []byte(kSeq)
	closing = []byte(`"}`)
	seam    = []byte(`"}` + kSeq)
)

// classify describes a whole bad line; b holds its LF if it has one.
func classify(b []byte, lf bool, err *Error) Bad {
	bad := Bad{Seq: claimedSeq(b), LF: lf, Blank: true}
	line := bytes.TrimSuffix(b, []byte{'\n'})
	bad.add(line)
	bad.Bytes = int64(len(b))
	if err != nil {
		bad.Err = err
	}
	records := bytes.Count(line, opening)
	switch {
	case bad.Nul > 0:
		bad.Kind = Zeros
	case !lf:
		bad.Kind = Torn
	case err != nil && err.Kind == BadEnvelope:
		bad.Kind = Newer
	case records > 1 && bytes.HasPrefix(line, opening) && joined(line):
		bad.Kind = Joined
	case records > 1, records == 1 && !bytes.HasPrefix(line, opening):
		bad.Kind = Half
	case err != nil && err.Kind == BadSum && records == 1:
		bad.Kind = Changed
	case bytes.HasSuffix(line, closing) && bytes.Contains(line, []byte(kChain)), records == 1:
		bad.Kind = Half
	default:
		bad.Kind = Foreign
	}
	return bad
}

// joined reports whether line is whole records side by side.
func joined(line []byte) bool {
	var r Raw
	for {
		i := bytes.Index(line, seam)
		if i < 0 {
			return r.parse(line) == nil
		}
		if r.parse(line[:i+len(closing)]) != nil {
			return false
		}
		line = line[i+len(closing):]
	}
}
