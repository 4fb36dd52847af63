package record

import (
	"bytes"
	"fmt"

	"github.com/strandline-dev/strandline/session"
)

// ErrorKind tells how far a bad line got.
type ErrorKind uint8

// The kinds of Error.
const (
	BadShape    ErrorKind = iota // not the form of a record
	BadSum                       // the form of a record, but the sum does not prove it
	BadEnvelope                  // the sum is right, the envelope is not one that this version knows
	BadData                      // only from Raw.Valid: the data is not acceptable
)

// Error says why a line is not a record. Offset is in the line.
type Error struct {
	Offset int
	Kind   ErrorKind
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("record: at byte %d: %s", e.Offset, e.Reason) }

// Parse reads one record, given without its LF. The sum is verified and the envelope is checked
// strictly; the data is not looked at (Raw.Valid does). Errors are *Error.
func Parse(line []byte) (Raw, error) {
	var r Raw
	if err := r.parse(line); err != nil {
		return Raw{}, err
	}
	return r, nil
}

func (r *Raw) parse(line []byte) *Error {
	if len(line) < minLine {
		return &Error{len(line), BadShape, "too short for a record"}
	}
	n := len(line) - tailLen
	if tail := line[n:]; string(tail[:len(kChain)]) != kChain || string(tail[tailLen-2:]) != `"}` {
		return &Error{n, BadShape, "no chain at the end of the line"}
	}
	sum := sumText(line[:n])
	if string(sum[:]) != string(line[len(line)-2-sumLen:len(line)-2]) {
		return &Error{n, BadSum, "the sum is wrong"}
	}
	*r = Raw{Synced: session.None, line: line}
	b := line[:n]

	// The envelope from the front.
	if !hasAt(b, 0, kSeq) {
		return &Error{0, BadEnvelope, "does not begin with seq"}
	}
	v, i := digits(b, len(kSeq))
	if i < 0 {
		return &Error{len(kSeq), BadEnvelope, "seq is not a canonical number"}
	}
	r.Seq = session.Seq(v)
	if !hasAt(b, i, kTime) {
		return &Error{i, BadEnvelope, "no time behind seq"}
	}
	at := i + len(kTime)
	if r.Time, i = integer(b, at); i < 0 {
		return &Error{at, BadEnvelope, "time is not a canonical number"}
	}
	if !hasAt(b, i, kType) {
		return &Error{i, BadEnvelope, "no type behind time"}
	}
	at = i + len(kType)
	for i = at; i < len(b) && typeByte[b[i]]; i++ {
	}
	if i == at || i-at > maxType || i == len(b) || b[i] != '"' {
		return &Error{i, BadEnvelope, "not the text of a type"}
	}
	r.Type = b[at:i:i]
	i++
	if !hasAt(b, i, kData) {
		var err *Error
		if i, err = r.optional(b, i); err != nil {
			return err
		}
	}

	// The end of data from the back, if a brace shows it.
	at = i + len(kData) - 1
	end := n
	if b[n-1] != '}' {
		if end = r.synced(b, at); end < 0 {
			var err *Error
			if end, err = r.after(b, at); err != nil {
				return err
			}
		}
	}
	if end < at+2 {
		return &Error{at, BadEnvelope, "data is not an object"}
	}
	r.Data = b[at:end:end]
	r.body = end
	return nil
}

func hasAt(b []byte, i int, s string) bool {
	return len(b)-i >= len(s) && string(b[i:i+len(s)]) == s
}

// optional reads the members between type and data, and returns where `,"data":{` begins.
func (r *Raw) optional(b []byte, i int) (int, *Error) {
	if hasAt(b, i, kOp) {
		at := i + len(kOp)
		if i = r.op(b, at); i < 0 {
			return 0, &Error{at, BadEnvelope, "a surfaceOp that this version does not know"}
		}
	}
	if hasAt(b, i, kSources) {
		at := i + len(kSources)
		n, ok := scanSources(b[at:], nil)
		if !ok {
			return 0, &Error{at + n, BadEnvelope, "sourceEventSeqs is not a list of seqs and pairs"}
		}
		r.Sources = b[at : at+n : at+n]
		i = at + n + 1
	}
	if hasAt(b, i, kIgnorable) {
		r.Ignorable = true
		i += len(kIgnorable)
	}
	if hasAt(b, i, kData) {
		return i, nil
	}
	from := i + 1
	for !hasAt(b, i, kData) {
		e := endOfMember(b, i)
		if e < 0 {
			return 0, &Error{i, BadEnvelope, "no data"}
		}
		i = e
	}
	r.Extra = b[from:i:i]
	if reason := checkMembers(r.Extra); reason != "" {
		return 0, &Error{from, BadEnvelope, reason}
	}
	return i, nil
}

// endOfMember returns the index behind the `,"name":value` at b[i], or -1.
func endOfMember(b []byte, i int) int {
	if !hasAt(b, i, `,"`) {
		return -1
	}
	e := endOfString(b, i+1)
	if e < 0 || e+1 >= len(b) || b[e] != ':' {
		return -1
	}
	if e = endOfValue(b, e+1); e < 0 {
		return -1
	}
	return e
}

// op reads a surfaceOp at b[i] and returns the index behind it, or -1.
func (r *Raw) op(b []byte, i int) int {
	switch {
	case hasAt(b, i, opAppend):
		r.Op = session.Append()
		return i + len(opAppend)
	case hasAt(b, i, opReplace):
		start, e := digits(b, i+len(opReplace))
		if e < 0 || !hasAt(b, e, opEnd) {
			return -1
		}
		end, e := digits(b, e+len(opEnd))
		if e < 0 || e >= len(b) || b[e] != '}' {
			return -1
		}
		r.Op = session.Replace(session.Seq(start), session.Seq(end))
		return e + 1
	case hasAt(b, i, opRestore):
		node, e := digits(b, i+len(opRestore))
		if e < 0 || e >= len(b) || b[e] != '}' {
			return -1
		}
		r.Op = session.Restore(session.Seq(node))
		return e + 1
	}
	return -1
}

// scanSources reads the inside of a list of seqs and pairs, and returns the length of what stands
// before the closing bracket. It calls add for each span; on failure the length is that of the good part.
func scanSources(b []byte, add func(session.Span)) (int, bool) {
	if len(b) > 0 && b[0] == ']' {
		return 0, true
	}
	for i := 0; ; {
		var sp session.Span
		first := i
		if i < len(b) && b[i] == '[' {
			v, e := digits(b, i+1)
			if e < 0 || e >= len(b) || b[e] != ',' {
				return first, false
			}
			w, e := digits(b, e+1)
			if e < 0 || e >= len(b) || b[e] != ']' || w <= v { // a span of one seq is written as a number
				return first, false
			}
			sp, i = session.Span{First: session.Seq(v), Last: session.Seq(w)}, e+1
		} else {
			v, e := digits(b, i)
			if e < 0 {
				return first, false
			}
			sp, i = session.Span{First: session.Seq(v), Last: session.Seq(v)}, e
		}
		if add != nil {
			add(sp)
		}
		if i >= len(b) {
			return i, false
		}
		switch b[i] {
		case ']':
			return i, true
		case ',':
			i++
		default:
			return i, false
		}
	}
}

// sources decodes the inside of a list that scanSources has accepted.
func sources(b []byte) session.Sources {
	out := make(session.Sources, 0, bytes.Count(b, []byte{','})+1)
	closed := append(b[:len(b):len(b)], ']')
	scanSources(closed, func(sp session.Span) { out = append(out, sp) })
	return out
}

// synced finds `},"synced":<digits>` at the end of b and returns where data ends, or -1.
func (r *Raw) synced(b []byte, at int) int {
	i := len(b)
	for i > at && b[i-1]-'0' <= 9 {
		i--
	}
	end := i - len(kSynced)
	if end <= at || b[end-1] != '}' || !hasAt(b, end, kSynced) {
		return -1
	}
	v, e := digits(b, i)
	if e != len(b) {
		return -1
	}
	r.Synced = session.Seq(v)
	return end
}

// after walks the data that begins at b[at], then reads synced and unknown members behind it.
func (r *Raw) after(b []byte, at int) (end int, _ *Error) {
	if end = endOfValue(b, at); end < 0 || end == len(b) {
		return 0, &Error{at, BadEnvelope, "data does not end"}
	}
	i := end
	if hasAt(b, i, kSynced) {
		v, e := digits(b, i+len(kSynced))
		if e < 0 {
			return 0, &Error{i, BadEnvelope, "synced is not a canonical number"}
		}
		r.Synced = session.Seq(v)
		i = e
	}
	if i == len(b) {
		return end, nil
	}
	if b[i] != ',' || i+1 == len(b) {
		return 0, &Error{i, BadEnvelope, "data is followed by something that is no member"}
	}
	r.After = b[i+1:]
	if reason := checkMembers(r.After); reason != "" {
		return 0, &Error{i + 1, BadEnvelope, reason}
	}
	return end, nil
}
