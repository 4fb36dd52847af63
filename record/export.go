package record

import (
	"bytes"
	"encoding/base64"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/session"
)

// Export is the first line of a session that was exported as one file:
//
//	{"strandline":1,"export":{..header..},"events":12,"redacted":{"count":3},"incomplete":"..","sum":"<sum>"}
//
// Then come the records from seq 0 on, those of a fork's inherited part too, linked from the zero link
// without a gap, and before the first record that needs it each blob (AppendBlob). The sum is that of
// everything before the comma that precedes it.
type Export struct {
	Header session.Header
	Events session.Seq // how many records follow: fewer mean that the file was cut off
	// Redacted is how many credentials were replaced. Nil: nothing was looked for, every byte is the
	// session's own.
	Redacted *int
	// Incomplete says why the session itself has more than the export; "" if it has not.
	Incomplete string
	Extra      jsontext.Value // members this version does not know
}

type exportLine struct {
	Strandline int            `json:"strandline"`
	Export     session.Header `json:"export"`
	Events     session.Seq    `json:"events"`
	Redacted   *redactedCount `json:"redacted,omitzero"`
	Incomplete string         `json:"incomplete,omitzero"`
	Extra      jsontext.Value `json:",embed"`
}

type redactedCount struct {
	Count int `json:"count"`
}

const (
	kExport   = `{"strandline":1,"export":{`
	kBlobLine = `{"blob":"`
	kString   = `","string":`
	kBase64   = `","base64":"`
)

// IsExport reports whether line is, by its beginning, the first line of an export of this or a later format.
func IsExport(line []byte) bool {
	if !hasAt(line, 0, kStrandline) {
		return false
	}
	_, i := digits(line, len(kStrandline))
	return i > 0 && hasAt(line, i, `,"export":{`)
}

// AppendExport appends the first line of an export, LF included. The error is that of a header that cannot be
// stored.
func AppendExport(dst []byte, e Export) ([]byte, error) {
	if err := e.Header.Validate(); err != nil {
		return dst, err
	}
	l := exportLine{Strandline: session.Format, Export: e.Header, Events: e.Events, Incomplete: e.Incomplete, Extra: e.Extra}
	if e.Redacted != nil {
		l.Redacted = &redactedCount{*e.Redacted}
	}
	js, err := json.Marshal(l, jsontext.EscapeForJS(false), jsontext.PreserveRawStrings(true))
	if err == nil {
		err = (*jsontext.Value)(&js).Compact()
	}
	if err != nil {
		return dst, fmt.Errorf("record: export of %s: %w", e.Header.ID, err)
	}
	start := len(dst)
	return appendSum(append(dst, js[:len(js)-1]...), start), nil
}

// ParseExport reads the first line of an export (with or without its LF). Errors are *FormatError, *Error, and
// those of a header that is not valid.
func ParseExport(line []byte) (Export, error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	if !IsExport(line) {
		return Export{}, &Error{0, BadEnvelope, "not the first line of an export"}
	}
	b, sealed, bad := checkSum(line)
	if major, _ := digits(line, len(kStrandline)); major > session.Format && (bad == nil || !sealed && jsontext.Value(line).IsValid()) {
		return Export{}, &FormatError{int(major)}
	}
	if bad != nil {
		return Export{}, bad
	}
	var l exportLine
	if err := json.Unmarshal(append(b[:len(b):len(b)], '}'), &l); err != nil {
		return Export{}, &Error{0, BadEnvelope, "the first line of the export cannot be read: " + err.Error()}
	}
	if l.Strandline != session.Format || l.Events < 0 {
		return Export{}, &Error{0, BadEnvelope, "no format that ever was"}
	}
	e := Export{Header: l.Export, Events: l.Events, Incomplete: l.Incomplete, Extra: l.Extra}
	if l.Redacted != nil {
		e.Redacted = &l.Redacted.Count
	}
	return e, e.Header.Validate()
}

// AppendBlob appends a blob as one line of an export, LF included: {"blob":"<name>","string":<content>} if the
// content is the text of a JSON string, as that of every externalized string is, else
// {"blob":"<name>","base64":"<content>"}. The name proves the content.
func AppendBlob(dst []byte, name string, content []byte) []byte {
	dst = append(append(dst, kBlobLine...), name...)
	if isString(content) {
		return append(append(append(dst, kString...), content...), "}\n"...)
	}
	dst = append(dst, kBase64...)
	dst = base64.StdEncoding.AppendEncode(dst, content)
	return append(dst, "\"}\n"...)
}

func isString(b []byte) bool {
	n := len(b)
	return n >= 2 && b[0] == '"' && b[n-1] == '"' && jsontext.Value(b).IsValid()
}

// IsBlob reports whether line is, by its beginning, a blob's.
func IsBlob(line []byte) bool { return hasAt(line, 0, kBlobLine) }

// ParseBlob reads a blob's line, given without its LF. The content has the name. A string's content lies in
// the line.
func ParseBlob(line []byte) (name string, content []byte, err error) {
	at := len(kBlobLine) + nameLen
	switch {
	case !IsBlob(line) || at > len(line) || !ValidBlobName(string(line[len(kBlobLine):at])):
		return "", nil, &Error{0, BadEnvelope, "not the line of a blob"}
	case hasAt(line, at, kString) && line[len(line)-1] == '}':
		content = line[at+len(kString) : len(line)-1]
	case hasAt(line, at, kBase64) && hasAt(line, len(line)-2, `"}`) && at+len(kBase64) <= len(line)-2:
		content, err = base64.StdEncoding.AppendDecode(nil, line[at+len(kBase64):len(line)-2])
		if err != nil {
			return "", nil, &Error{at, BadEnvelope, "the blob's content is not base64"}
		}
	default:
		return "", nil, &Error{at, BadEnvelope, "the blob's line has no content"}
	}
	name = string(line[len(kBlobLine):at])
	if BlobName(content) != name {
		return "", nil, &Error{at, BadSum, "the blob's content does not have its name"}
	}
	return name, content, nil
}

// FindBlobNames calls f with each blob name that stands in text and where it begins, in order. A name of data
// is a reference wherever it stands: an image's source, or a note that says where a long text is kept.
func FindBlobNames(text []byte, f func(name string, at int) error) error {
	for i := 0; ; {
		k := bytes.Index(text[i:], []byte(blobPrefix))
		if k < 0 || i+k+nameLen > len(text) {
			return nil
		}
		i += k
		if name := string(text[i : i+nameLen]); ValidBlobName(name) {
			if err := f(name, i); err != nil {
				return err
			}
		}
		i += len(blobPrefix)
	}
}
