// Package export writes a stored session as one file for somebody else: JSONL is the log itself, so that
// another store can take it in byte for byte; Markdown and HTML are for people, and are one walk over the log in two
// forms; OpenAI is the list of messages that other programs understand.
//
// An export reads a snapshot and the blobs of a store and nothing else: it takes no lease, and holds one
// event at a time however long the log is (all but JSONL also know the surface). A fork is
// exported whole, its inherited part included.
//
// Credentials are the business of a Redactor: with one, every text of the export has passed it. Without
// one the bytes are the session's own.
package export

import (
	"context"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// Redactor replaces credentials. Package redact makes one.
type Redactor interface {
	// Text returns s without credentials, and how many were replaced.
	Text(s string) (string, int)
	// JSON does so for every string value of v, which stays valid JSON.
	JSON(v jsontext.Value) (jsontext.Value, int)
}

// Source is what is exported. Blobs and Redact may be nil.
type Source struct {
	Snap   *store.Snapshot
	Blobs  store.Blobs
	Redact Redactor
}

// Report says what became of an export.
type Report struct {
	Events   session.Seq // how many were exported
	Redacted int         // credentials that were replaced
	// MissingBlobs are the names that the session speaks of and the store does not have: attachments, as the
	// long texts of events themselves cannot be missing. Markdown has no attachments in it and none of these.
	MissingBlobs []string
	// Incomplete says why the session has more than was exported, "" if it has not.
	Incomplete string
}

// incomplete says why snap is not the whole session.
func incomplete(snap *store.Snapshot) string {
	switch {
	case len(snap.Damage) > 0:
		return "the session is damaged behind this: " + snap.Damage[0].Detail
	case snap.Unsupported != "":
		return "a newer program wrote more: " + snap.Unsupported
	case len(snap.Lost) > 0:
		return "records behind this were lost with the power"
	}
	return ""
}

// header returns the header without credentials.
func (s Source) header() (session.Header, int) {
	h, n := s.Snap.Header, 0
	if s.Redact == nil {
		return h, 0
	}
	var k int
	h.Cwd, n = s.Redact.Text(h.Cwd)
	h.Project, k = s.Redact.Text(h.Project)
	n += k
	if len(h.Extra) > 0 {
		h.Extra, k = s.Redact.JSON(h.Extra)
		n += k
	}
	return h, n
}

// content returns an attachment without credentials. What is no text has none that could be replaced.
func (s Source) content(b []byte) ([]byte, int) {
	if s.Redact == nil || !utf8.Valid(b) {
		return b, 0
	}
	text, n := s.Redact.Text(string(b))
	if n == 0 {
		return b, 0
	}
	return []byte(text), n
}

// attached returns the attachment of that name without credentials, for a message in which it stands, and notes in rep
// what became of it. It is not ok if it cannot be had; the error is that of ctx alone.
func (s Source) attached(ctx context.Context, name string, rep *Report) (content []byte, ok bool, err error) {
	if s.Blobs != nil {
		b, err := s.Blobs.GetBlob(ctx, name)
		if err == nil {
			b, n := s.content(b)
			rep.Redacted += n
			return b, true, nil
		}
		if cause := done(ctx); cause != nil {
			return nil, false, cause
		}
	}
	rep.MissingBlobs = append(rep.MissingBlobs, name)
	return nil, false, nil
}

// done returns why an export must not go on.
func done(ctx context.Context) error { return context.Cause(ctx) }
