package record

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/session"
)

// Segment is the first line of a segment file:
//
//	{"strandline":1,"session":"<id>","first":<seq>,"prev":"<link>","starts":[<seq>,[<seq>,<seq>]],"sum":"<sum>"}
//
// starts is seldom there. Unknown members stand before sum, which is that of everything before the comma that
// precedes it.
type Segment struct {
	Session session.ID
	First   session.Seq    // seq of the first record
	Prev    session.Link   // link of the record before it
	Starts  []session.Span // where in it a life may have begun, of a file that was made of others; nil: absent
	Extra   []byte         // unknown members, joined by commas
}

// FormatError says that a file was written in a later major format: it can be shown by a newer
// program only.
type FormatError struct{ Major int }

func (e *FormatError) Error() string {
	return fmt.Sprintf("format %d is newer than %d, which this program reads: use a newer program", e.Major, session.Format)
}

const (
	kStrandline = `{"strandline":`
	kSession    = `,"session":"`
	kFirst      = `,"first":`
	kPrev       = `,"prev":"`
	kStarts     = `,"starts":[`
	kSum        = `,"sum":"`
	sumTailLen  = len(kSum) + sumLen + len(`"}`)
)

// AppendSegment appends the first line of a segment, LF included. h.Session must be a valid id.
func AppendSegment(dst []byte, h Segment) []byte {
	start := len(dst)
	dst = appendInt(append(dst, kStrandline...), int64(session.Format))
	dst = append(append(dst, kSession...), h.Session...)
	dst = appendInt(append(append(dst, '"'), kFirst...), h.First)
	lt := linkText(h.Prev)
	dst = append(append(append(dst, kPrev...), lt[:]...), '"')
	if h.Starts != nil {
		dst = appendSources(append(dst, kStarts...), h.Starts)
	}
	if len(h.Extra) > 0 {
		dst = append(append(dst, ','), h.Extra...)
	}
	return appendSum(dst, start)
}

func appendSum(dst []byte, start int) []byte {
	sum := sumText(dst[start:])
	dst = append(append(dst, kSum...), sum[:]...)
	return append(dst, "\"}\n"...)
}

// checkSum verifies a line that ends in a sum and returns what stands before the sum's comma. sealed
// is false if the line does not end that way at all.
func checkSum(line []byte) (b []byte, sealed bool, _ *Error) {
	n := len(line) - sumTailLen
	if n < 1 || !hasAt(line, n, kSum) || !hasAt(line, len(line)-2, `"}`) {
		return nil, false, &Error{max(n, 0), BadShape, "no sum at the end of the line"}
	}
	sum := sumText(line[:n])
	if string(sum[:]) != string(line[n+len(kSum):len(line)-2]) {
		return nil, true, &Error{n, BadSum, "the sum is wrong"}
	}
	return line[:n], true, nil
}

// ParseSegment reads the first line of a segment, given without its LF. Errors are *FormatError and
// *Error. A line whose sum is wrong is damaged, whatever format it names.
func ParseSegment(line []byte) (Segment, error) {
	b, sealed, bad := checkSum(line)
	if hasAt(line, 0, kStrandline) && (bad == nil || !sealed) {
		major, i := digits(line, len(kStrandline))
		if i > 0 && major > session.Format && (bad == nil || jsontext.Value(line).IsValid()) {
			return Segment{}, &FormatError{int(major)}
		}
	}
	if bad != nil {
		return Segment{}, bad
	}
	shape := func(at int, reason string) (Segment, error) {
		return Segment{}, &Error{at, BadEnvelope, reason}
	}
	if !hasAt(b, 0, kStrandline) {
		return shape(0, "not the first line of a segment")
	}
	major, i := digits(b, len(kStrandline))
	if i < 0 || major != session.Format {
		return shape(len(kStrandline), "no format that ever was")
	}
	if !hasAt(b, i, kSession) {
		return shape(i, "no session id")
	}
	at := i + len(kSession)
	n := bytes.IndexByte(b[at:], '"')
	if n < 0 || session.ValidID(session.ID(b[at:at+n])) != nil {
		return shape(at, "not the id of a session")
	}
	h := Segment{Session: session.ID(b[at : at+n])}
	i = at + n + 1
	if !hasAt(b, i, kFirst) {
		return shape(i, "no first seq")
	}
	first, e := digits(b, i+len(kFirst))
	if e < 0 || !hasAt(b, e, kPrev) {
		return shape(i, "first is not a canonical number, or prev is missing")
	}
	h.First = session.Seq(first)
	at = e + len(kPrev)
	i = at + linkLen
	if i >= len(b) || b[i] != '"' {
		return shape(at, "prev is not a link")
	}
	var ok bool
	if h.Prev, ok = parseLink(b[at:i]); !ok {
		return shape(at, "prev is not a link")
	}
	i++
	if at := i + len(kStarts); hasAt(b, i, kStarts) {
		if n, ok := scanSources(b[at:], nil); ok { // else it is of a later version: kept as what is not known
			h.Starts, i = sources(b[at:at+n]), at+n+1
		}
	}
	if i < len(b) {
		if b[i] != ',' || i+1 == len(b) {
			return shape(i, "what stands there is no member")
		}
		if jsontext.Value(append(append([]byte{'{'}, b[i+1:]...), '}')).IsValid() {
			h.Extra = bytes.Clone(b[i+1:])
		} else {
			return shape(i, "unknown members are not valid JSON")
		}
	}
	return h, nil
}

// AppendHeader appends the header of a session as one line, LF included: its JSON object with a last
// member "sum". The error is that of a header that cannot be stored.
func AppendHeader(dst []byte, h session.Header) ([]byte, error) {
	if err := h.Validate(); err != nil {
		return dst, err
	}
	start := len(dst)
	js, err := json.Marshal(h, jsontext.EscapeForJS(false), jsontext.PreserveRawStrings(true))
	if err != nil {
		return dst, fmt.Errorf("record: header of %s: %w", h.ID, err)
	}
	if len(h.Extra) > 0 {
		if err := (*jsontext.Value)(&js).Compact(); err != nil {
			return dst, fmt.Errorf("record: header of %s: %w", h.ID, err)
		}
		var has struct {
			Sum jsontext.Value `json:"sum"`
		}
		if err := json.Unmarshal(js, &has); err != nil || has.Sum != nil {
			return dst, fmt.Errorf("record: header of %s: it may not have a member \"sum\"", h.ID)
		}
	}
	dst = append(dst, js[:len(js)-1]...)
	return appendSum(dst, start), nil
}

// ParseHeader reads the line of a session's header (with or without its LF). Errors are *FormatError,
// *Error, and those of a header that is not valid.
func ParseHeader(line []byte) (session.Header, error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	b, sealed, bad := checkSum(line)
	if bad != nil && !sealed {
		// A later format may be sealed in another way, or not at all.
		var f struct {
			Format int `json:"format"`
		}
		if json.Unmarshal(line, &f) == nil && f.Format > session.Format {
			return session.Header{}, &FormatError{f.Format}
		}
	}
	if bad != nil {
		return session.Header{}, bad
	}
	js := append(b[:len(b):len(b)], '}')
	var f struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(js, &f); err != nil {
		return session.Header{}, &Error{0, BadEnvelope, "the header is not a JSON object: " + err.Error()}
	}
	if f.Format > session.Format {
		return session.Header{}, &FormatError{f.Format}
	}
	var h session.Header
	if err := json.Unmarshal(js, &h); err != nil {
		return session.Header{}, &Error{0, BadEnvelope, "the header cannot be read: " + err.Error()}
	}
	return h, h.Validate()
}

// SalvageHeader reads the line of a header whose sum does not prove it. ok: it reads as a header of this format.
func SalvageHeader(line []byte) (h session.Header, ok bool) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	if i := bytes.LastIndex(line, []byte(kSum)); i > 0 {
		line = append(line[:i:i], '}')
	}
	return h, json.Unmarshal(line, &h) == nil && h.Validate() == nil
}
